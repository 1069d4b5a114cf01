//! `uninstall`: deletes a ClusterExtension, with or without its objects.

use std::io::{IsTerminal as _, Write as _};

use clap::Args;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, Preconditions};
use olm_api::{ClusterExtension, annotations};
use serde_json::json;

use super::losses::{self, Losses};
use super::{Waiting, named, patch_params, refused};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(
    after_help = "Custom resources go first, while the operator still runs, then everything else in reverse order. On a terminal, it names \
                  them and asks before it deletes; elsewhere it never asks.\n\n\
                  Examples:\n  kubectl olm uninstall my-extension --wait\n  kubectl olm uninstall my-extension --keep\n  \
                  kubectl olm uninstall my-extension --dry-run\n\n\
                  Exit codes: 0 done, 1 not gone after --wait or no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension
    name: String,
    /// Leave its objects where they are
    #[arg(long)]
    keep: bool,
    /// Only print what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Do not ask on a terminal
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let name = &arguments.name;
    let (client, extension, own) = extensions::with_revisions(&arguments.cluster, name).await?;
    let objects = own.last().map_or(0, |set| set.spec.phases.iter().map(|phase| phase.objects.len()).sum());
    let keeps = arguments.keep || annotations::keeps_objects(extension.annotations());
    let losses = if keeps { Losses::default() } else { losses::read(&client, &own).await };
    let is_protected = extension
        .annotations()
        .get(annotations::PROTECT_CUSTOM_RESOURCES)
        .is_some_and(|value| value == "true");
    let what = announcement(name, objects, keeps, is_protected, &losses);
    if arguments.dry_run {
        return Ok(CommandOutput { text: format!("{what} (nothing was changed)\n"), yes: true });
    }
    let is_asked = !arguments.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if is_asked {
        print_note(&what);
        if !confirmed()? {
            return Ok(CommandOutput { text: "nothing was changed\n".to_owned(), yes: false });
        }
    }
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let named = named(&extension);
    if arguments.keep {
        let keep = json!({"metadata": {"annotations": {
            annotations::DELETION_POLICY: annotations::DELETION_POLICY_KEEP}}});
        api.patch(name, &patch_params(), &Patch::Merge(&keep))
            .await
            .map_err(|error| refused(&named, &error))?;
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: extension.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    api.delete(name, &params).await.map_err(|error| refused(&named, &error))?;
    if !arguments.waiting.wait {
        let text = if is_asked { format!("ClusterExtension {name} is deleted") } else { what };
        return Ok(CommandOutput { text: format!("{text}\n"), yes: true });
    }
    if !is_asked {
        print_note(&what);
    }
    let gone = arguments.waiting.gone(&client, &extension).await?;
    let end = if gone { "is gone" } else { "is still there" };
    Ok(CommandOutput { text: format!("ClusterExtension {name} {end}\n"), yes: gone })
}

/// What the deletion takes along.
fn announcement(name: &str, objects: usize, keeps: bool, is_protected: bool, losses: &Losses) -> String {
    let noun = if objects == 1 { "object" } else { "objects" };
    if keeps {
        return format!("ClusterExtension {name} is deleted; its {objects} {noun} stay");
    }
    let first = format!("ClusterExtension {name} is deleted; its {objects} {noun} go with it");
    match (losses.text(), is_protected) {
        (Some(text), false) => format!("{first}, and these custom resources before them:\n{text}"),
        (Some(text), true) => format!(
            "{first}; it waits until you have deleted these custom resources, which the annotation {} protects:\n{text}",
            annotations::PROTECT_CUSTOM_RESOURCES
        ),
        (None, _) => first,
    }
}

/// Asks on the terminal; everything but yes is a no.
fn confirmed() -> Result<bool, CommandError> {
    let failed = |error: std::io::Error| {
        CommandError::Usage(format!("cannot ask on the terminal: {error}; give --yes"))
    };
    let mut errors = std::io::stderr().lock();
    write!(errors, "Delete it? [y/N] ").and_then(|()| errors.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(is_yes(&answer))
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
        for (keeps, protected, losses, want) in [
            (true, false, &Losses::default(), "ClusterExtension g is deleted; its 8 objects stay".to_owned()),
            (
                false,
                false,
                &Losses::default(),
                "ClusterExtension g is deleted; its 8 objects go with it".to_owned(),
            ),
            (
                false,
                false,
                &losses,
                format!(
                    "ClusterExtension g is deleted; its 8 objects go with it, and these custom resources before them:\n{list}"
                ),
            ),
            (
                false,
                true,
                &losses,
                format!(
                    "ClusterExtension g is deleted; its 8 objects go with it; it waits until you have deleted these custom resources, \
                     which the annotation olm.operatorframework.io/protect-custom-resources protects:\n{list}"
                ),
            ),
        ] {
            assert_eq!(announcement("g", 8, keeps, protected, losses), want);
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
