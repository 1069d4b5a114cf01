//! `uninstall`: deletes a ClusterExtension, with or without its objects.

use std::io::{IsTerminal as _, Write as _};

use clap::Args;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterExtension, annotations};
use olm_install::resolution::revision;
use olm_resolver::Unmet;
use serde_json::json;

use super::losses::{self, Losses};
use super::{DryRun, Several, Waiting, interrupted, named, patch_params, refuse_interrupted, refused};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::interrupt;
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(
    after_help = "Custom resources go first, while the operator still runs, then everything else in reverse order. On a terminal, it names \
                  them and asks before it deletes; elsewhere it never asks. It names the ClusterExtensions that need what this one provides, as \
                  far as their bundles' metadata/properties.yaml declares it.\n\n\
                  Examples:\n  kubectl olm uninstall my-extension --wait\n  kubectl olm uninstall my-extension --keep\n  kubectl olm uninstall one two --yes\n  \
                  kubectl olm uninstall my-extension --dry-run\n\n\
                  Exit codes: 0 done, 1 not gone after --wait or no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtensions
    #[arg(id = "name", value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Leave its objects where they are
    #[arg(long)]
    keep: bool,
    /// Change nothing: print what would be deleted (client), or what the apiserver would delete (server)
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: DryRun,
    /// Do not ask on a terminal
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    if let [name] = arguments.names.as_slice() {
        return uninstall(arguments, name).await;
    }
    let mut whole = Several::new();
    for name in &arguments.names {
        if !whole.add(&format!("{name}: "), uninstall(arguments, name).await) {
            break;
        }
    }
    whole.output(|all| CommandOutput {
        text: all.iter().map(|output| output.text.as_str()).collect(),
        yes: all.iter().all(|output| output.yes),
    })
}

async fn uninstall(arguments: &Arguments, name: &str) -> Result<CommandOutput, CommandError> {
    let (client, extension, own) = extensions::with_revisions(&arguments.cluster, name).await?;
    let newest = revision::newest(&own);
    let objects = newest.map_or(0, |set| set.spec.phases.iter().map(|phase| phase.objects.len()).sum());
    let keeps = arguments.keep || annotations::keeps_objects(extension.annotations());
    let losses = if keeps { Losses::default() } else { losses::read(&client, &own).await };
    let dependents = if keeps { Vec::new() } else { dependents(&client, name, &arguments.names).await };
    let is_protected = extension
        .annotations()
        .get(annotations::PROTECT_CUSTOM_RESOURCES)
        .is_some_and(|value| value == "true");
    let removal = Removal { name, objects, keeps, is_protected, losses: &losses, dependents: &dependents };
    let named = named(&extension);
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: extension.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    let checking = DeleteParams { dry_run: true, ..params.clone() };
    if arguments.dry_run != DryRun::None {
        if arguments.dry_run == DryRun::Server {
            api.delete(name, &checking).await.map_err(|error| refused(&named, &error))?;
        }
        let text = removal.text(Tense::DryRun(arguments.dry_run));
        return Ok(CommandOutput { text: format!("{text}\n"), yes: true });
    }
    refuse_interrupted(&named)?;
    let is_asked = !arguments.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if is_asked {
        let is_confirmed = tokio::select! {
            is_confirmed = confirmed(removal.text(Tense::Question)) => is_confirmed?,
            () = interrupt::received() => return Err(interrupted(&named)),
        };
        if !is_confirmed {
            return Ok(CommandOutput { text: "nothing was changed\n".to_owned(), yes: false });
        }
    }
    if arguments.keep {
        // without the right to delete it, the annotation would stay, and the next uninstall would keep the objects
        api.delete(name, &checking).await.map_err(|error| refused(&named, &error))?;
        let keep = json!({"metadata": {"annotations": {
            annotations::DELETION_POLICY: annotations::DELETION_POLICY_KEEP}}});
        api.patch(name, &patch_params(), &Patch::Merge(&keep))
            .await
            .map_err(|error| refused(&named, &error))?;
    }
    api.delete(name, &params).await.map_err(|error| refused(&named, &error))?;
    if !arguments.waiting.wait {
        let text =
            if is_asked { format!("ClusterExtension {name} is deleted") } else { removal.text(Tense::Done) };
        return Ok(CommandOutput { text: format!("{text}\n"), yes: true });
    }
    if !is_asked {
        print_note(&removal.text(Tense::Done));
    }
    let gone = arguments.waiting.gone(&client, &extension).await?;
    let end = if gone { "is gone" } else { "is still there" };
    Ok(CommandOutput { text: format!("ClusterExtension {name} {end}\n"), yes: gone })
}

/// A line for each other extension, but those of `leaving`, that needs what this one provides.
async fn dependents(client: &Client, name: &str, leaving: &[String]) -> Vec<String> {
    let found = async {
        let revisions = extensions::revisions(client, None).await?;
        let found = olm_install::dependencies::dependents(client, &revisions, name).await;
        found.map_err(|failure| CommandError::Unreachable(failure.message))
    };
    match found.await {
        Ok(found) => found
            .iter()
            .filter(|(extension, _)| !leaving.contains(extension))
            .map(|(extension, unmet)| {
                let needs: Vec<String> = unmet.iter().map(Unmet::describe).collect();
                format!("  {extension}: {}", needs.join("; "))
            })
            .collect(),
        Err(failure) => vec![format!("  unknown: {failure}")],
    }
}

/// The deletion, and what it takes along.
struct Removal<'a> {
    name: &'a str,
    /// Number of objects of the newest revision.
    objects: usize,
    keeps: bool,
    is_protected: bool,
    losses: &'a Losses,
    /// A line for each extension that needs it.
    dependents: &'a [String],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tense {
    Done,
    DryRun(DryRun),
    Question,
}

impl Removal<'_> {
    fn text(&self, tense: Tense) -> String {
        let Self { name, objects, .. } = self;
        let (first, last) = match tense {
            Tense::Done => (format!("ClusterExtension {name} is deleted"), ""),
            Tense::DryRun(dry_run) => (format!("would delete ClusterExtension {name}"), dry_run.suffix()),
            Tense::Question => (format!("Delete ClusterExtension {name}"), "? [y/N] "),
        };
        let noun = if *objects == 1 { "object" } else { "objects" };
        let with = match (objects, self.keeps, tense) {
            (0, ..) => String::new(),
            (1, true, Tense::Done) => "; its object stays".to_owned(),
            (_, true, Tense::Done) => format!("; its {objects} {noun} stay"),
            (_, true, _) => format!(" and keep its {objects} {noun}"),
            (1, false, Tense::Done) => "; its object goes with it".to_owned(),
            (_, false, Tense::Done) => format!("; its {objects} {noun} go with it"),
            (_, false, _) => format!(" and its {objects} {noun}"),
        };
        let list = if self.keeps { None } else { self.losses.text() };
        let resources = match (&list, self.is_protected, tense) {
            (None, ..) => String::new(),
            (Some(_), false, Tense::Done) => ", and these custom resources before them".to_owned(),
            (Some(_), false, _) => ", and before them these custom resources".to_owned(),
            (Some(_), true, _) => format!(
                "; it waits until you have deleted these custom resources, which the annotation {} protects",
                annotations::PROTECT_CUSTOM_RESOURCES
            ),
        };
        let mut list = list.map_or_else(String::new, |list| format!(":\n{list}"));
        if !self.dependents.is_empty() {
            let dependents = self.dependents.join("\n");
            list = format!("{list}\nThese ClusterExtensions need what it provides:\n{dependents}");
        }
        match tense {
            // the question is the last line
            Tense::Question if !list.is_empty() => format!("{first}{with}{resources}{list}\n{first}{last}"),
            _ => format!("{first}{with}{resources}{last}{list}"),
        }
    }
}

/// Asks on the terminal; everything but yes is a no. A thread waits for the answer, because no signal ends that.
async fn confirmed(question: String) -> Result<bool, CommandError> {
    let asked = tokio::task::spawn_blocking(move || {
        let mut errors = std::io::stderr();
        write!(errors, "{}", crate::terminal::harmless(&question))?;
        errors.flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        Ok::<bool, std::io::Error>(is_yes(&answer))
    });
    let answer = asked.await.map_err(std::io::Error::other).flatten();
    answer.map_err(|error| CommandError::Usage(format!("cannot ask on the terminal: {error}; give --yes")))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninstall_announces_what_goes() {
        let mut losses = Losses::default();
        losses.add("greetings.example.com", [(Some("a"), "x"), (Some("b"), "z"), (Some("a"), "y")], 0);
        let list = "  greetings.example.com: 3\n    namespace a: x, y\n    namespace b: z";
        let none = &Losses::default();
        let [client, server] = [DryRun::Client, DryRun::Server].map(Tense::DryRun);
        let protects = "; it waits until you have deleted these custom resources, which the annotation \
                        olm.operatorframework.io/protect-custom-resources protects";
        for (objects, keeps, is_protected, losses, tense, want) in [
            (
                8,
                true,
                false,
                none,
                Tense::Done,
                "ClusterExtension g is deleted; its 8 objects stay".to_owned(),
            ),
            (
                8,
                true,
                false,
                none,
                client,
                "would delete ClusterExtension g and keep its 8 objects (dry run)".to_owned(),
            ),
            (
                1,
                false,
                false,
                none,
                Tense::Done,
                "ClusterExtension g is deleted; its object goes with it".to_owned(),
            ),
            (0, false, false, none, Tense::Done, "ClusterExtension g is deleted".to_owned()),
            (0, false, false, none, client, "would delete ClusterExtension g (dry run)".to_owned()),
            (0, false, false, none, server, "would delete ClusterExtension g (server dry run)".to_owned()),
            (
                8,
                false,
                false,
                none,
                Tense::Question,
                "Delete ClusterExtension g and its 8 objects? [y/N] ".to_owned(),
            ),
            (
                8,
                false,
                false,
                &losses,
                Tense::Done,
                format!(
                    "ClusterExtension g is deleted; its 8 objects go with it, and these custom resources before them:\n{list}"
                ),
            ),
            (
                8,
                false,
                false,
                &losses,
                client,
                format!(
                    "would delete ClusterExtension g and its 8 objects, and before them these custom resources (dry run):\n{list}"
                ),
            ),
            (
                8,
                false,
                false,
                &losses,
                Tense::Question,
                format!(
                    "Delete ClusterExtension g and its 8 objects, and before them these custom resources:\n{list}\n\
                     Delete ClusterExtension g? [y/N] "
                ),
            ),
            (
                8,
                false,
                true,
                &losses,
                Tense::Done,
                format!("ClusterExtension g is deleted; its 8 objects go with it{protects}:\n{list}"),
            ),
        ] {
            let removal = Removal { name: "g", objects, keeps, is_protected, losses, dependents: &[] };
            assert_eq!(removal.text(tense), want);
        }
    }

    #[test]
    fn uninstall_names_extensions_that_need_it() {
        let mut some = Losses::default();
        some.add("greetings.example.com", [(None, "x")], 0);
        let needs = "\nThese ClusterExtensions need what it provides:\n  a: API A\n  b: API B";
        let resources = "\n  greetings.example.com: 1\n    x";
        for (losses, tense, want) in [
            (
                &Losses::default(),
                Tense::Done,
                format!("ClusterExtension g is deleted; its 8 objects go with it{needs}"),
            ),
            (
                &Losses::default(),
                Tense::Question,
                format!(
                    "Delete ClusterExtension g and its 8 objects{needs}\nDelete ClusterExtension g? [y/N] "
                ),
            ),
            (
                &some,
                Tense::DryRun(DryRun::Client),
                format!(
                    "would delete ClusterExtension g and its 8 objects, and before them these custom resources (dry \
                     run):{resources}{needs}"
                ),
            ),
        ] {
            let dependents = ["  a: API A".to_owned(), "  b: API B".to_owned()];
            let removal = Removal {
                name: "g",
                objects: 8,
                keeps: false,
                is_protected: false,
                losses,
                dependents: &dependents,
            };
            assert_eq!(removal.text(tense), want);
        }
    }

    #[test]
    fn uninstall_needs_an_explicit_yes() {
        for (answer, want) in
            [("y\n", true), ("YES", true), ("", false), ("\n", false), ("no", false), ("yep", false)]
        {
            assert_eq!(is_yes(answer), want, "{answer:?}");
        }
    }
}
