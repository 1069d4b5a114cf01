//! Edited Deployments: reported once for each difference, or written back.
//!
//! Rule: classic-apis §6.5; decision 52.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource as _, ResourceExt as _};
use olm_api::classic::ClusterServiceVersion;
use olm_classic::csv::Phase;
use olm_classic::csv::edits::{EditedDeployment, edited, repaired};
use olm_classic::csv::strategy;
use olm_core::Object;
use olm_rollout::FieldChange;
use olm_runtime::events::NewEvent;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Csvs, key};
use crate::args::RepairDeployments;
use crate::write::cache_answer;

/// The same fields are not repaired again before this time: another controller or a webhook sets them.
const REPAIR_INTERVAL: Duration = Duration::from_mins(10);
/// Fields that an event names.
const MAX_PATHS: usize = 5;

/// What was done about the edits of a Deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EditState {
    Reported,
    /// It was written back then.
    Repaired(Instant),
    /// It was written back then, got the same fields again, and was reported.
    Returned(Instant),
}

#[derive(Debug, Clone)]
struct Edit {
    fields: Vec<FieldChange>,
    state: EditState,
}

/// What to do about an edited Deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EditAction {
    Nothing,
    Report,
    Repair,
    /// It was repaired in vain.
    ReportReturned(Instant),
}

fn decide(mode: RepairDeployments, earlier: Option<EditState>, now: Instant) -> EditAction {
    let is_recent = |at: Instant| now.saturating_duration_since(at) < REPAIR_INTERVAL;
    match (mode, earlier) {
        (RepairDeployments::Reported, Some(EditState::Reported | EditState::Returned(_))) => {
            EditAction::Nothing
        }
        (RepairDeployments::Reported, Some(EditState::Repaired(_)) | None) => EditAction::Report,
        (RepairDeployments::Repaired, Some(EditState::Repaired(at))) if is_recent(at) => {
            EditAction::ReportReturned(at)
        }
        (RepairDeployments::Repaired, Some(EditState::Returned(at))) if is_recent(at) => EditAction::Nothing,
        (
            RepairDeployments::Repaired,
            Some(EditState::Reported | EditState::Repaired(_) | EditState::Returned(_)) | None,
        ) => EditAction::Repair,
    }
}

/// The edits of Deployments, by key of the CSV and name of the Deployment. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edits(Arc<Mutex<BTreeMap<String, BTreeMap<String, Edit>>>>);

impl Edits {
    /// What was done about these very fields before.
    fn state(&self, key: &str, edited: &EditedDeployment) -> Option<EditState> {
        let edits = self.0.lock();
        let edit = edits.get(key)?.get(&edited.name)?;
        (edit.fields == edited.fields).then_some(edit.state)
    }

    fn record(&self, key: &str, edited: EditedDeployment, state: EditState) {
        let edit = Edit { fields: edited.fields, state };
        self.0.lock().entry(key.to_owned()).or_default().insert(edited.name, edit);
    }

    /// Removes the edits of Deployments that are not edited any more. Repairs are remembered for their interval.
    fn retain(&self, key: &str, edited: &[EditedDeployment], now: Instant) {
        let mut edits = self.0.lock();
        let Some(of_csv) = edits.get_mut(key) else { return };
        of_csv.retain(|name, edit| {
            if edited.iter().any(|it| it.name == *name) {
                return true;
            }
            match edit.state {
                EditState::Reported => false,
                EditState::Repaired(at) | EditState::Returned(at) => {
                    edit.state = EditState::Repaired(at);
                    now.saturating_duration_since(at) < REPAIR_INTERVAL
                }
            }
        });
        if of_csv.is_empty() {
            edits.remove(key);
        }
    }

    /// When the next repair that waits is due.
    fn wait(&self, key: &str, now: Instant) -> Option<Duration> {
        let edits = self.0.lock();
        let due = edits.get(key)?.values().filter_map(|edit| match edit.state {
            EditState::Returned(at) => Some((at + REPAIR_INTERVAL).saturating_duration_since(now)),
            EditState::Reported | EditState::Repaired(_) => None,
        });
        // one that is due could not be written: what was in the way wakes the CSV
        due.filter(|wait| !wait.is_zero()).min()
    }

    pub(super) fn evict(&self, key: &str) {
        self.0.lock().remove(key);
    }

    /// The number of edited Deployments of each CSV that has some, by key.
    pub(super) fn counts(&self) -> Vec<(String, usize)> {
        let is_edited = |edit: &&Edit| !matches!(edit.state, EditState::Repaired(_));
        let edits = self.0.lock();
        let counts =
            edits.iter().map(|(key, of_csv)| (key.clone(), of_csv.values().filter(is_edited).count()));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl Csvs {
    /// Reports or repairs the edited Deployments of a CSV, and deletes those that it does not list any more. Returns when to check again.
    pub(super) async fn keep_deployments(
        &self,
        csv: &ClusterServiceVersion,
    ) -> kube::Result<Option<Duration>> {
        let (key, now, mode) = (key(csv), Instant::now(), self.context.settings.repair_deployments);
        let (desired, live) = match Phase::read(csv) {
            Phase::Pending | Phase::InstallReady | Phase::Installing | Phase::Succeeded | Phase::Failed => {
                let config = self.config(csv);
                let desired = strategy::deployments(csv, &self.settings(csv, config.as_ref()));
                let desired = desired.unwrap_or_default();
                let live = self.live(csv, &desired);
                (desired, live)
            }
            Phase::New | Phase::Replacing | Phase::Deleting | Phase::Unknown => Default::default(),
        };
        let edited = edited(&desired, &live);
        self.edits.retain(&key, &edited, now);
        for edited in edited {
            let paths = edited.paths(MAX_PATHS);
            let state = match decide(mode, self.edits.state(&key, &edited), now) {
                EditAction::Nothing => continue,
                EditAction::Report => {
                    let note = format!(
                        "Deployment {} differs from the ClusterServiceVersion in {paths}; it stays as it is until the \
                         ClusterServiceVersion changes. For a change that lasts use spec.config of the Subscription",
                        edited.name
                    );
                    self.emit_edit(csv, "DeploymentEdited", &note).await;
                    EditState::Reported
                }
                EditAction::Repair => {
                    let of_name = |object: &&Object| object.name() == edited.name;
                    let (Some(desired), Some(live)) =
                        (desired.iter().find(of_name), live.iter().find(of_name))
                    else {
                        continue;
                    };
                    // the next install reports what is wrong with the groups
                    let Ok(as_group) = self.group_writer(csv) else { continue };
                    let written = as_group.writer.replace(live, &repaired(desired, live)).await?;
                    cache_answer(&self.context.cluster.deployments, false, Some(written));
                    let note = format!("Deployment {} was edited and is written back: {paths}", edited.name);
                    self.emit_edit(csv, "DeploymentRepaired", &note).await;
                    EditState::Repaired(now)
                }
                EditAction::ReportReturned(at) => {
                    let note = format!(
                        "Deployment {} was written back, and {paths} changed again; stop what sets it, such as an autoscaler or a \
                         webhook. The next repair is in {} minutes",
                        edited.name,
                        REPAIR_INTERVAL.as_secs() / 60
                    );
                    self.emit_edit(csv, "DeploymentEdited", &note).await;
                    EditState::Returned(at)
                }
            };
            self.edits.record(&key, edited, state);
        }
        if Phase::read(csv) == Phase::Succeeded {
            self.delete_obsolete(csv).await?;
        }
        Ok(self.edits.wait(&key, now))
    }

    /// Deletes Deployments of the CSV that it does not list any more. If others changed, too, the install that follows did that.
    async fn delete_obsolete(&self, csv: &ClusterServiceVersion) -> kube::Result<()> {
        let Ok(as_group) = self.group_writer(csv) else { return Ok(()) };
        for obsolete in strategy::obsolete(csv, &self.deployments_of(csv)) {
            as_group.writer.delete(obsolete).await?;
            tracing::info!(
                deployment = obsolete.name(),
                "deleted a Deployment that is not in the CSV any more"
            );
            let key = format!("{}/{}", csv.namespace().unwrap_or_default(), obsolete.name());
            self.context.cluster.deployments.remove(&key);
        }
        Ok(())
    }

    async fn emit_edit(&self, csv: &ClusterServiceVersion, reason: &str, note: &str) {
        let event = NewEvent { warning: false, reason, action: "Compare", note };
        // whole: the paths are what a reader looks for
        self.context.events.publish_whole(&csv.object_ref(&()), event).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edit(replicas: i64) -> EditedDeployment {
        let field =
            FieldChange { path: "spec.replicas".to_owned(), old: Some(json!(1)), new: Some(json!(replicas)) };
        EditedDeployment { name: "web".to_owned(), fields: vec![field] }
    }

    #[tokio::test(start_paused = true)]
    async fn edit_is_reported_or_repaired_once() {
        use EditAction::{Nothing, Repair, Report, ReportReturned};
        use RepairDeployments::{Repaired, Reported};
        let now = Instant::now();
        let old = now.checked_sub(REPAIR_INTERVAL).unwrap();
        for (mode, earlier, want) in [
            (Reported, None, Report),
            (Reported, Some(EditState::Reported), Nothing),
            (Repaired, None, Repair),
            (Repaired, Some(EditState::Repaired(now)), ReportReturned(now)),
            (Repaired, Some(EditState::Repaired(old)), Repair),
            (Repaired, Some(EditState::Returned(now)), Nothing),
            (Repaired, Some(EditState::Returned(old)), Repair),
        ] {
            assert_eq!(decide(mode, earlier, now), want, "{mode:?} {earlier:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn edits_end_with_the_difference() {
        let (edits, now) = (Edits::default(), Instant::now());
        edits.record("n/a", edit(3), EditState::Reported);
        assert_eq!(edits.counts(), [("n/a".to_owned(), 1)]);
        assert_eq!(edits.state("n/a", &edit(3)), Some(EditState::Reported));
        assert_eq!(edits.state("n/a", &edit(4)), None, "another difference");
        edits.retain("n/a", &[], now);
        assert_eq!(edits.counts(), []);
        assert_eq!(edits.state("n/a", &edit(3)), None, "it came again");

        edits.record("n/a", edit(3), EditState::Returned(now));
        assert_eq!(edits.wait("n/a", now), Some(REPAIR_INTERVAL));
        assert_eq!(edits.wait("n/a", now + REPAIR_INTERVAL), None, "it could not be written");
        edits.retain("n/a", &[], now);
        assert_eq!((edits.counts(), edits.wait("n/a", now)), (vec![], None));
        assert_eq!(edits.state("n/a", &edit(3)), Some(EditState::Repaired(now)), "the repair is remembered");
        edits.retain("n/a", &[], now + REPAIR_INTERVAL);
        assert_eq!(edits.state("n/a", &edit(3)), None);
    }
}
