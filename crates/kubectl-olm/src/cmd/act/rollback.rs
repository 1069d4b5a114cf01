//! `rollback` and `history`: the revisions of an extension, and back to one of them.

use clap::Args;
use kube::ResourceExt as _;
use olm_api::{ClusterObjectSet, condition, labels};
use olm_install::account::Account;
use olm_install::resolution::revision;
use serde::Serialize;
use serde_json::json;

use super::pause::is_paused;
use super::planned::{Planned, Purpose};
use super::{Change, print_not_done};
use crate::CommandOutput;
use crate::cmd::output::{Output, Table, or_dash};
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(
    after_help = "The version range becomes exactly that version, with upgradeConstraintPolicy SelfCertified, until you change it: \
                  `kubectl olm upgrade NAME --any-version`. The plan of `kubectl olm plan` is made first: what the controller would \
                  refuse is not changed. Data that a newer version has changed is not changed \
                  back, and a CRD that would lose a field is refused unless its check is switched off.\n\n\
                  Examples:\n  kubectl olm history my-extension\n  kubectl olm rollback my-extension\n  \
                  kubectl olm rollback my-extension --to-revision 3 --wait\n\n\
                  Exit codes: 0 done, 1 the plan is refused, not Ready after --wait, no such extension or revision, 2 bad input, 3 no answer."
)]
pub(crate) struct Rollback {
    /// The ClusterExtension
    name: String,
    /// A revision of `kubectl olm history` [default: the newest with another version that succeeded]
    #[arg(long, value_name = "NUMBER", value_parser = extensions::revision_number)]
    to_revision: Option<i64>,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    planned: Planned,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Args)]
#[command(after_help = "Archived revisions are kept for a while (the newest five).\n\n\
                  Examples:\n  kubectl olm history my-extension\n  kubectl olm history my-extension -o json\n\n\
                  Exit codes: 0 listed, 1 no such extension, 2 bad input, 3 no answer.")]
pub(crate) struct History {
    /// The ClusterExtension
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

/// One revision. `history -o json` prints a list of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    revision: i64,
    name: String,
    bundle: String,
    version: String,
    /// `Active`, `Archived` or `Deleting`.
    state: String,
    /// Whether it was rolled out completely at some time.
    succeeded: bool,
    /// Whether it is what is installed now.
    installed: bool,
    /// Whether it was made of a Helm release that was there before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    from_helm: bool,
    /// When it was made, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    created: String,
}

fn rows(own: &[ClusterObjectSet]) -> Vec<Row> {
    let installed = revision::states(own).installed.map(|found| found.number);
    own.iter()
        .map(|set| {
            let facts = revision::facts(set);
            Row {
                revision: set.spec.revision,
                name: set.name_any(),
                bundle: facts.bundle.name.clone(),
                version: facts.bundle.version.clone(),
                state: extensions::state(set, "Deleting").to_owned(),
                succeeded: condition::is_true(&facts.conditions, condition::SUCCEEDED),
                installed: installed == Some(set.spec.revision),
                from_helm: set.labels().contains_key(labels::MIGRATED_FROM_HELM),
                created: set.creation_timestamp().map(|time| time.0.to_string()).unwrap_or_default(),
            }
        })
        .collect()
}

pub(crate) async fn history(arguments: &History) -> Result<CommandOutput, CommandError> {
    let (.., own) = extensions::with_revisions(&arguments.cluster, &arguments.name).await?;
    let rows = rows(&own);
    let people = |_| {
        let mut table =
            Table::new(["REVISION", "VERSION", "BUNDLE", "STATE", "SUCCEEDED", "INSTALLED", "CREATED"]);
        let yes = |is: bool| if is { "yes".to_owned() } else { "-".to_owned() };
        for row in &rows {
            table.row([
                row.revision.to_string(),
                or_dash(&row.version),
                or_dash(&row.bundle),
                if row.from_helm { format!("{}, from Helm", row.state) } else { row.state.clone() },
                yes(row.succeeded),
                yes(row.installed),
                or_dash(&row.created),
            ]);
        }
        if rows.is_empty() { format!("{} has no revisions yet\n", arguments.name) } else { table.text("") }
    };
    let names = || rows.iter().map(|row| row.name.clone()).collect();
    Ok(CommandOutput { text: arguments.output.print(&rows, names, people), yes: true })
}

/// The revision of an extension to go back to. `package` is for the error message.
fn target<'a>(
    rows: &'a [Row],
    number: Option<i64>,
    name: &str,
    package: &str,
) -> Result<&'a Row, CommandError> {
    let numbers: Vec<String> = rows.iter().map(|row| row.revision.to_string()).collect();
    let all = numbers.join(", ");
    let known = match numbers.as_slice() {
        [] => "it has none".to_owned(),
        [only] => format!("its only revision is {only}"),
        _ => format!("its revisions are {all}"),
    };
    let found = match (number, rows.iter().rfind(|row| row.installed).or(rows.last())) {
        (Some(number), _) => {
            let found = rows.iter().find(|row| row.revision == number);
            found.ok_or_else(|| format!("{name} has no revision {number}; {known}"))
        }
        (None, None) => Err(format!("{name} has no revisions; nothing was installed yet")),
        (None, Some(now)) => {
            let is_earlier =
                |row: &&Row| row.succeeded && row.version != now.version && row.revision < now.revision;
            rows.iter().rfind(is_earlier).ok_or_else(|| {
                format!(
                    "{name} has no earlier revision with another version than {}; `kubectl olm versions {package}` shows what there is, \
                     `kubectl olm history {name}` what there was",
                    now.version
                )
            })
        }
    };
    let found = match found {
        Ok(row) if row.version.is_empty() => Err(format!(
            "revision {} does not name its version; give --to-revision with another one of `kubectl olm history {name}`",
            row.revision
        )),
        found => found,
    };
    found.map_err(CommandError::NotFound)
}

pub(crate) async fn rollback(arguments: &Rollback) -> Result<CommandOutput, CommandError> {
    let (client, extension, own) = extensions::with_revisions(&arguments.cluster, &arguments.name).await?;
    extensions::refuse_deleted(&extension)?;
    let rows = rows(&own);
    let name = &arguments.name;
    let catalog = extension.spec.source.catalog.as_ref();
    let package = catalog.map_or("PACKAGE", |catalog| catalog.package_name.as_str());
    let target = target(&rows, arguments.to_revision, name, package)?;
    let catalog = json!({"version": target.version, "upgradeConstraintPolicy": "SelfCertified"});
    let writes = arguments.change.writes();
    let what = format!(
        "clusterextension/{name}: {} back to version {} of revision {}",
        if writes { "rolls" } else { "would roll" },
        target.version,
        target.revision
    );
    let patch = json!({"spec": {"source": {"catalog": catalog}}});
    let mut edited = json!(extension);
    json_patch::merge(&mut edited, &patch);
    let edited = serde_json::from_value(edited).map_err(|error| CommandError::Usage(error.to_string()))?;
    let account = Account::from_extension(&extension);
    let purpose = Purpose {
        verb: "rollback",
        dry_run: arguments.change.dry_run(),
        passed_over: None,
        prints: |notice| notice.kind.is_of_first_install(),
    };
    let planned = (&edited, account.as_ref());
    match arguments.planned.check(&client, &arguments.cluster, planned, purpose).await {
        Err(failure @ CommandError::NotFound(_)) if !writes => {
            let refused = arguments.change.refused_dry_run(&edited, &what, &failure);
            return Ok(arguments.change.edit.print(&refused));
        }
        checked => checked?,
    }
    let forward = format!("`kubectl olm upgrade {name} --any-version`");
    let changed = arguments.change.edit(&client, &extension, patch, (&what, &forward)).await?;
    let answer = arguments.change.edit.print(&changed);
    if is_paused(&extension) {
        print_note(&format!("{name} is paused, so nothing happens until `kubectl olm resume {name}`"));
    }
    if writes && !answer.yes {
        print_not_done(&client, (&extension, &edited), Some(&target.version)).await;
    } else if writes {
        print_note(&format!(
            "its version range is {} now; {forward} lets it follow the catalog again",
            target.version
        ));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(revision: i64, version: &str, succeeded: bool, installed: bool) -> Row {
        Row {
            revision,
            name: format!("x-{revision}"),
            bundle: format!("x.v{version}"),
            version: version.to_owned(),
            state: "Active".to_owned(),
            succeeded,
            installed,
            from_helm: false,
            created: String::new(),
        }
    }

    #[test]
    fn rollback_targets_newest_succeeded_other_version() {
        let plain = [row(1, "1.0.0", true, false), row(2, "2.0.0", true, true)];
        let stuck =
            [row(1, "1.0.0", true, false), row(2, "2.0.0", true, true), row(3, "3.0.0", false, false)];
        let again = [row(1, "1.0.0", true, false), row(2, "2.0.0", true, false), row(3, "2.0.0", true, true)];
        let failed =
            [row(1, "1.0.0", true, false), row(2, "1.5.0", false, false), row(3, "2.0.0", true, true)];
        let unnamed = [row(1, "", true, false), row(2, "2.0.0", true, true)];
        for (rows, number, want) in [
            (&plain[..], None, Ok(1)),
            (&stuck[..], None, Ok(1)),
            (&again[..], None, Ok(1)),
            (&failed[..], None, Ok(1)),
            (&failed[..], Some(2), Ok(2)),
            (&plain[..1], Some(9), Err("x has no revision 9; its only revision is 1")),
            (&plain[..], Some(7), Err("x has no revision 7; its revisions are 1, 2")),
            (
                &plain[..1],
                None,
                Err(
                    "x has no earlier revision with another version than 1.0.0; `kubectl olm versions p` shows what there is, `kubectl olm history x` what there was",
                ),
            ),
            (&[], None, Err("x has no revisions; nothing was installed yet")),
            (
                &unnamed[..],
                Some(1),
                Err(
                    "revision 1 does not name its version; give --to-revision with another one of `kubectl olm history x`",
                ),
            ),
        ] {
            let got = target(rows, number, "x", "p");
            let got = got.map(|row| row.revision).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "{rows:?} {number:?}");
        }
    }
}
