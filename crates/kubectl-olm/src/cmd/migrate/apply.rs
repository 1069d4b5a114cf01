//! `migrate reference apply`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kube::Client;
use olm_runtime::duration::GoDuration;

use super::leases::{self, Holder, LeaseRow};
use super::leftovers::Leftover;
use super::{Changes, crds, rollback_hint};
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};
use crate::sources::Cluster;

/// The time between two reads of a lease that is watched.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// Where to write the manifests of what is removed; the file must not exist yet, but for that of a run that failed
    #[arg(long, value_name = "FILE", default_value = "olm-reference-removed.yaml")]
    backup: PathBuf,
    /// How long to watch an expired lease, before its holder counts as gone: the Go implementation renews every 26 s
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    lease_wait: GoDuration,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) async fn run(arguments: &Apply) -> Result<CommandOutput, CommandError> {
    let client = arguments.cluster.client().await?;
    let changes = Changes::read(&client).await?;
    if changes.is_empty() {
        print_note("nothing is left to do");
        return Ok(CommandOutput { text: String::new(), yes: true });
    }
    refuse_held(&changes.leases)?;
    watch_expired(&client, &changes.leases, arguments.lease_wait.0).await?;
    if !changes.removed.is_empty() {
        back_up(&arguments.backup, &changes.removed)?;
        print_note(&format!("what is removed is in {}", arguments.backup.display()));
    }
    let mut text = String::new();
    for change in changes.custom_resource_definitions.iter().filter(|change| !change.is_none()) {
        crds::take_over(&client, change).await.map_err(|failure| after(&text, failure))?;
        let done = if change.verb() == "create" { "created" } else { "taken over" };
        text.push_str(&format!("customresourcedefinition/{} {done}\n", change.name));
    }
    crds::until_served(&client).await.map_err(|failure| after(&text, failure))?;
    for leftover in &changes.removed {
        leftover.delete(&client).await.map_err(|failure| after(&text, failure))?;
        text.push_str(&format!("{}/{} deleted\n", leftover.kind.to_lowercase(), leftover.name));
    }
    if !changes.removed.is_empty() {
        print_note(&rollback_hint(&arguments.backup.display().to_string()));
    }
    Ok(CommandOutput { text, yes: true })
}

/// The error of a step, after printing the steps that were done.
fn after(done: &str, failure: CommandError) -> CommandError {
    print_note(&format!("{done}run this again once it is fixed: what was done is not done twice"));
    failure
}

fn refuse_held(leases: &[LeaseRow]) -> Result<(), CommandError> {
    let held: Vec<String> = leases.iter().filter(|lease| lease.is_held()).map(LeaseRow::describe).collect();
    if held.is_empty() {
        return Ok(());
    }
    let text = format!("the Go implementation still works: {}; {}", held.join(", "), leases::STOP);
    Err(CommandError::Usage(text))
}

/// Fails if a lease that looks expired is renewed: clocks need not agree.
async fn watch_expired(client: &Client, before: &[LeaseRow], wait: Duration) -> Result<(), CommandError> {
    let expired = |leases: &[LeaseRow]| -> Vec<LeaseRow> {
        leases.iter().filter(|lease| lease.holder == Holder::OtherExpired).cloned().collect()
    };
    let first = expired(before);
    if first.is_empty() {
        return Ok(());
    }
    for lease in &first {
        print_note(&format!(
            "{} and expired; watching for {} s whether it is renewed",
            lease.describe(),
            wait.as_secs()
        ));
    }
    let end = tokio::time::Instant::now() + wait;
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(POLL_INTERVAL.min(wait)).await;
        let now = leases::read(client).await?;
        refuse_held(&now)?;
        let renewed = expired(&now).into_iter().find(|lease| {
            let same =
                first.iter().find(|one| (&one.namespace, &one.name) == (&lease.namespace, &lease.name));
            same.is_none_or(|same| same.renewed != lease.renewed)
        });
        if let Some(lease) = renewed {
            return Err(CommandError::Usage(format!(
                "the Go implementation still works: {}, which renews it; {}",
                lease.describe(),
                leases::STOP
            )));
        }
    }
    Ok(())
}

/// Writes what is removed to a new file; one of an earlier run that failed later, which has all of it, stays.
fn back_up(path: &Path, removed: &[Leftover]) -> Result<(), CommandError> {
    let mut documents = Vec::new();
    for leftover in removed {
        let text = serde_saphyr::to_string(&leftover.manifest());
        let text = text.map_err(|error| CommandError::content(path, error))?;
        documents.push(format!("---\n{text}"));
    }
    if let Ok(present) = std::fs::read_to_string(path)
        && documents.iter().all(|document| present.contains(document))
    {
        return Ok(());
    }
    let unwritable = |error: std::io::Error| {
        CommandError::Usage(format!("cannot write {}: {error}; give another --backup FILE", path.display()))
    };
    let mut file = std::fs::File::options().write(true).create_new(true).open(path).map_err(unwritable)?;
    file.write_all(documents.concat().as_bytes()).map_err(unwritable)?;
    file.sync_all().map_err(unwritable)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::leftovers;
    use super::*;
    use crate::stand_in;

    #[tokio::test]
    async fn migrate_apply_accepts_the_backup_of_an_earlier_run() {
        let client = stand_in::cluster(|request| {
            let name = request.rsplit('/').next().unwrap_or_default();
            let object =
                json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": name, "uid": "u"}, "spec": {}});
            Some((200, object.to_string()))
        });
        let removed = leftovers::read(&client).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("removed.yaml");
        back_up(&path, &removed).unwrap();
        let first = std::fs::read_to_string(&path).unwrap();
        assert_eq!(first.matches("---\n").count(), 3, "{first}");
        // a step failed before the first deletion, or after it
        for left in [&removed[..], &removed[1..]] {
            back_up(&path, left).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
        }
        std::fs::write(&path, "---\nother: 1\n").unwrap();
        let error = back_up(&path, &removed).unwrap_err().to_string();
        assert!(error.contains("give another --backup FILE"), "{error}");
    }
}
