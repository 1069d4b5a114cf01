//! One step of the phase machine, and the status that it writes.

use std::collections::BTreeMap;
use std::time::Duration;

use olm_api::classic::cluster_service_version::{
    ClusterServiceVersionCondition, ClusterServiceVersionStatus, RequirementStatus,
};
use olm_api::classic::{ClusterServiceVersion, Time};

use super::table::{Found, Row, TABLE, View};
use super::{Certificates, Observed, Phase, Reason};
use crate::operator_group::is_copy;

/// Entries of `status.conditions`; the oldest are dropped.
pub const HISTORY: usize = 20;
/// Time in Installing without a change of the status after which the install failed.
pub const INSTALL_TIMEOUT: Duration = Duration::from_mins(5);
/// Time that Deployments which were healthy have for a new rollout before they are installed again.
pub(super) const REINSTALL_DELAY: Duration = Duration::from_secs(2);
/// Time that a wait lasts before an event names what the status has in general words: most are over by then.
pub(super) const REPORT_DELAY: Duration = Duration::from_secs(30);
/// Time until an installing CSV is checked again.
const INSTALL_REQUEUE: Duration = Duration::from_secs(5);

/// What a controller carries out, in the order of [`Step::actions`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write these annotations to the CSV.
    WriteAnnotations(BTreeMap<String, String>),
    /// Write this text to the annotation `olm.providedAPIs` of the CSV's group.
    SetProvidedApis(String),
    /// Create or update the objects of the install strategy, and delete Deployments that are not in it any more. The outcome becomes
    /// [`Observed::install`].
    ApplyStrategy,
    /// Delete the CSV's Deployments.
    DeleteDeployments,
    DeleteCsv,
    /// Count an upgrade in `csv_upgrade_count`.
    CountUpgrade,
    /// Emit an event on the CSV.
    EmitEvent {
        is_warning: bool,
        reason: Reason,
        message: String,
    },
    /// Check this CSV again after some time.
    RequeueAfter(Duration),
    /// Emit the event [`WAITING_EVENT`](crate::install_plan::WAITING_EVENT): what the CSV waits for, which its conditions do not name.
    Report(String),
}

/// A new phase, reason or message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub phase: Phase,
    pub reason: Reason,
    pub message: String,
}

/// What follows from a CSV and the observed facts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// The row that decided; `None` for a CSV at rest and for a copy.
    pub row: Option<&'static Row>,
    /// `None` when phase, reason and message stay.
    pub transition: Option<Transition>,
    /// `status.requirementStatus`, if this step checked it.
    pub requirements: Option<Vec<RequirementStatus>>,
    /// The certificates in use, if the status does not have their times yet.
    pub certificates: Option<Certificates>,
    pub actions: Vec<Action>,
}

/// One step: the first row of [`TABLE`] whose guard holds. Copies rest.
///
/// The controller carries out the actions, writes [`Step::apply`], and calls again with what it then observes, until a step changes nothing.
#[must_use]
pub fn decide(csv: &ClusterServiceVersion, observed: &Observed, now: &Time) -> Step {
    let view = View { csv, observed, now, phase: Phase::read(csv), reason: Reason::read(csv) };
    if is_copy(csv) {
        return Step::default();
    }
    let first = TABLE.iter().find_map(|row| Some((row, row.matches(&view)?)));
    let step = first.map(|(row, found)| Step::new(row, found, &view)).unwrap_or_default();
    Step { certificates: certificates(&view, &step), ..step }
}

/// The certificates of an installed CSV, if its status has other times.
fn certificates(view: &View<'_>, step: &Step) -> Option<Certificates> {
    let (used, status) = (view.observed.certificates.as_ref()?, view.csv.status.as_ref()?);
    let phase = step.transition.as_ref().map_or(view.phase, |to| to.phase);
    let is_installed = matches!(phase, Phase::Installing | Phase::Succeeded | Phase::Replacing);
    let is_written = status.certs_last_updated.as_ref() == Some(&used.updated)
        && status.certs_rotate_at.as_ref() == Some(&used.rotate_at);
    (is_installed && !is_written).then(|| used.clone())
}

impl Step {
    fn new(row: &'static Row, found: Found, view: &View<'_>) -> Self {
        let status = view.csv.status.as_ref();
        let is_new = |to: &Transition| {
            status.is_none_or(|status| {
                (status.phase.as_str(), status.reason.as_str(), status.message.as_str())
                    != (to.phase.as_str(), to.reason.as_str(), to.message.as_str())
            })
        };
        let transition =
            row.to.map(|(phase, reason)| Transition { phase, reason, message: found.message }).filter(is_new);
        let mut actions = found.actions;
        if let Some(to) = &transition
            && (to.phase != view.phase || Some(to.reason) != view.reason)
        {
            actions.push(Action::EmitEvent {
                is_warning: to.phase == Phase::Failed,
                reason: to.reason,
                message: to.message.clone(),
            });
        }
        if row.to.map_or(view.phase, |(phase, _)| phase) == Phase::Installing {
            actions.push(Action::RequeueAfter(INSTALL_REQUEUE));
        }
        let statuses = &view.observed.requirements.statuses;
        let are_new = status.is_none_or(|status| status.requirement_status != *statuses);
        Self {
            row: Some(row),
            requirements: (row.checks_requirements() && are_new).then(|| statuses.clone()),
            transition,
            certificates: None,
            actions,
        }
    }

    /// Whether the status stays as it is.
    #[must_use]
    pub fn keeps_status(&self) -> bool {
        self.transition.is_none() && self.requirements.is_none() && self.certificates.is_none()
    }

    /// The status after this step. The history gets an entry for each new phase or reason.
    #[must_use]
    pub fn apply(
        &self,
        before: Option<&ClusterServiceVersionStatus>,
        now: &Time,
    ) -> ClusterServiceVersionStatus {
        let mut status = before.cloned().unwrap_or_default();
        if let Some(requirements) = &self.requirements {
            status.requirement_status.clone_from(requirements);
        }
        if let Some(used) = &self.certificates {
            status.certs_last_updated = Some(used.updated.clone());
            status.certs_rotate_at = Some(used.rotate_at.clone());
        }
        let Some(to) = &self.transition else { return status };
        let is_new_phase = status.phase != to.phase.as_str();
        let is_new_entry = is_new_phase || status.reason != to.reason.as_str();
        if is_new_phase {
            status.last_transition_time = Some(now.clone());
        }
        status.last_update_time = Some(now.clone());
        to.phase.as_str().clone_into(&mut status.phase);
        to.reason.as_str().clone_into(&mut status.reason);
        status.message.clone_from(&to.message);
        if is_new_entry {
            status.conditions.push(ClusterServiceVersionCondition {
                phase: status.phase.clone(),
                reason: status.reason.clone(),
                message: status.message.clone(),
                last_update_time: status.last_update_time.clone(),
                last_transition_time: status.last_transition_time.clone(),
                ..ClusterServiceVersionCondition::default()
            });
            let extra = status.conditions.len().saturating_sub(HISTORY);
            status.conditions.drain(..extra);
        }
        status
    }
}
