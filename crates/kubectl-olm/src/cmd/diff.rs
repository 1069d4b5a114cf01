//! `diff`: an extension against the cluster, or two of its revisions against each other.
//!
//! Against the cluster, every object of the installed revision is sent as a dry run: the difference is what the controller would
//! correct. Revisions are compared by their objects; one of them may be that of the controller's plan, before it is created.

use std::collections::BTreeMap;

use clap::Args;
use kube::ResourceExt as _;
use olm_api::ClusterObjectSet;
use olm_core::Object;
use olm_install::account::Account;
use olm_install::plan::Change;
use olm_install::resolution::revision;
use olm_rollout::future_revision;
use serde::Serialize;

use super::output::Output;
use super::plan::{self, SpecChanges, beyond_one, objects_text};
use crate::CommandOutput;
use crate::dry_run::{Action, DryRun, ObjectPreview, identity, sibling};
use crate::extensions;
use crate::failure::CommandError;
use crate::kinds::Kinds;
use crate::sources::{Controller, Rendering, Sources};

#[derive(Debug, Args)]
#[command(
    after_help = "Without a revision: what was changed or deleted by others since the controller last corrected it. With one: what going \
                  from the installed revision to that one changes. With two: their difference. With --planned: what the plan of `kubectl olm \
                  plan` changes in the content.\n\n\
                  Examples:\n  kubectl olm diff my-extension\n  kubectl olm diff my-extension --planned --version '>=2.0.0 <3.0.0'\n  \
                  kubectl olm diff my-extension --to-revision 3\n  kubectl olm diff my-extension 2 4 -o json\n\n\
                  Exit codes: like `kubectl diff`, 0 no difference, 1 differences, 2 the plan would be refused, bad input, no such \
                  extension or revision, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension
    name: String,
    /// Two revisions to compare; one: the installed revision with that one
    #[arg(value_name = "REVISION", num_args = 0..=2, value_parser = extensions::revision_number, conflicts_with_all = ["to_revision", "revision", "planned"])]
    revisions: Vec<i64>,
    /// Compare the installed revision with this one
    #[arg(long, value_name = "NUMBER", value_parser = extensions::revision_number, conflicts_with = "revision")]
    to_revision: Option<i64>,
    /// Compare this revision with the other one; given twice
    #[arg(long, value_name = "NUMBER", num_args = 1, value_parser = extensions::revision_number)]
    revision: Vec<i64>,
    /// Compare the installed revision with the one that the controller plans
    #[arg(long, conflicts_with_all = ["to_revision", "revision"])]
    planned: bool,
    #[command(flatten)]
    changes: SpecChanges,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    rendering: Rendering,
    #[command(flatten)]
    sources: Sources,
}

/// What is compared.
enum Sides {
    /// The cluster with the installed revision.
    Live,
    /// Two revisions, the first being the installed one unless its number is given.
    Revisions(Option<i64>, i64),
    /// The installed revision with the planned one.
    Planned,
}

/// The difference. `-o json` prints this.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    extension: String,
    /// The left side: a revision, or `live`.
    from: String,
    /// The right side: a revision.
    to: String,
    /// Objects that differ, and those that do not.
    objects: Vec<ObjectPreview>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    if arguments.changes.is_some() && !arguments.planned {
        let text = "changes of the extension, such as --version, need --planned".to_owned();
        return Err(CommandError::Usage(text));
    }
    let (named, to) = match arguments.revisions.as_slice() {
        [] => (arguments.revision.as_slice(), arguments.to_revision),
        [to] => (&[][..], Some(*to)),
        both => (both, None),
    };
    let sides = match (named, to) {
        ([], None) if arguments.planned => Sides::Planned,
        ([], None) => Sides::Live,
        ([], Some(to)) => Sides::Revisions(None, to),
        ([from, to], None) => Sides::Revisions(Some(*from), *to),
        _ => {
            let text = "give --revision twice, or --to-revision once; without them the cluster is compared";
            return Err(CommandError::Usage(text.to_owned()));
        }
    };
    let difference = compared(arguments, sides).await.map_err(beyond_one)?;
    let names = || {
        let differ = difference.objects.iter().filter(|object| object.action != Action::Same);
        differ.map(ObjectPreview::title).collect()
    };
    let yes = difference.objects.iter().all(|object| object.action == Action::Same);
    let text = arguments.output.print(&difference, names, |wide| text(&difference, yes, wide));
    Ok(CommandOutput { text, yes })
}

async fn compared(arguments: &Arguments, sides: Sides) -> Result<Difference, CommandError> {
    let cluster = &arguments.sources.cluster;
    let (client, mut extension, own) = extensions::with_revisions(cluster, &arguments.name).await?;
    let states = revision::states(&own);
    let numbered = |number: i64| {
        own.iter().find(|set| set.spec.revision == number).ok_or_else(|| {
            let name = &arguments.name;
            CommandError::Usage(format!("{name} has no revision {number}; see `kubectl olm history {name}`"))
        })
    };
    let installed = || match &states.installed {
        Some(installed) => numbered(installed.number),
        None => Err(CommandError::Usage(format!(
            "{0} has no installed revision; `kubectl olm status {0}` shows why, `kubectl olm plan {0}` what would be installed",
            arguments.name
        ))),
    };
    let difference = |from: String, to: &ClusterObjectSet, objects| Difference {
        extension: arguments.name.clone(),
        from,
        to: to.name_any(),
        objects,
    };
    match sides {
        Sides::Live => {
            let set = installed()?;
            let mut revision = future_revision(&arguments.name, set.spec.revision);
            revision.uid = set.uid().unwrap_or_default();
            let siblings = own.iter().filter(|other| other.uid() != set.uid()).map(sibling);
            let uid = extension.uid().unwrap_or_default();
            let dry_run = DryRun {
                client: &client,
                extension: &arguments.name,
                uid: &uid,
                revision,
                siblings: siblings.collect(),
            };
            let objects =
                dry_run.apply(&mut Kinds::new(&client), &extensions::objects(&client, set).await?).await;
            Ok(difference("live".to_owned(), set, objects))
        }
        Sides::Revisions(from, to) => {
            let from = from.map_or_else(installed, numbered)?;
            let to = numbered(to)?;
            let (old, new) =
                (extensions::objects(&client, from).await?, extensions::objects(&client, to).await?);
            let objects = between(&old, &new);
            Ok(difference(from.name_any(), to, objects))
        }
        Sides::Planned => {
            let from = installed()?;
            let account = Account::from_extension(&extension);
            arguments.changes.apply(&mut extension)?;
            let made = plan::made(
                &client,
                &extension,
                account.as_ref(),
                (arguments.controller, arguments.rendering),
                &arguments.sources,
            )
            .await?;
            if !made.preview.refused.is_empty() {
                return Err(plan::refused(&made.preview, arguments.output));
            }
            let old = extensions::objects(&client, from).await?;
            match made.plan.map(|plan| plan.change) {
                Some(Change::Create(planned)) => {
                    let set = &planned.revision.set;
                    let new: Vec<Object> =
                        planned.phases.iter().flat_map(|phase| phase.objects.clone()).collect();
                    Ok(difference(from.name_any(), set, between(&old, &new)))
                }
                // the newest revision stays, perhaps with other settings
                Some(Change::Keep | Change::Update(_) | Change::Restore(_)) | None => {
                    let newest = revision::newest(&own).unwrap_or(from);
                    let new = extensions::objects(&client, newest).await?;
                    Ok(difference(from.name_any(), newest, between(&old, &new)))
                }
            }
        }
    }
}

/// The difference of two contents, in the order of the second; removed objects last.
fn between(from: &[Object], to: &[Object]) -> Vec<ObjectPreview> {
    let mut left: BTreeMap<_, &Object> =
        from.iter().map(|object| (identity(&object.key()), object)).collect();
    let mut found: Vec<ObjectPreview> = to
        .iter()
        .map(|object| match left.remove(&identity(&object.key())) {
            Some(old) => ObjectPreview::changed(old, object).without_stamp(),
            None => ObjectPreview::new(object, Action::Add),
        })
        .collect();
    let is_removed = |object: &&Object| left.contains_key(&identity(&object.key()));
    found.extend(from.iter().filter(is_removed).map(|object| ObjectPreview::new(object, Action::Remove)));
    found
}

fn text(difference: &Difference, same: bool, wide: bool) -> String {
    let head = format!("{} -> {}\n", difference.from, difference.to);
    if same && !wide {
        return format!("{head}No difference.\n");
    }
    head + &objects_text(&difference.objects, wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn diff_pairs_objects_by_kind_and_name() {
        let object = |version: &str, name: &str, data: &str| {
            Object::from_value(json!({"apiVersion": format!("g.io/{version}"), "kind": "Foo", "metadata": {"name": name}, "data": data})).unwrap()
        };
        let from = [object("v1", "same", "x"), object("v1", "moved", "x"), object("v1", "gone", "x")];
        let to = [object("v1", "new", "x"), object("v2", "moved", "x"), object("v1", "same", "x")];
        let got: Vec<_> =
            between(&from, &to).into_iter().map(|it| (it.name, it.action, it.fields.len())).collect();
        let want = [
            ("new", Action::Add, 0),
            ("moved", Action::Change, 1),
            ("same", Action::Same, 0),
            ("gone", Action::Remove, 0),
        ];
        assert_eq!(got, want.map(|(name, action, fields)| (name.to_owned(), action, fields)));
    }
}
