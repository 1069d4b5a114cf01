//! The phases of a plan: one row for each transition.
//!
//! [`next_phase`] is called before the steps run and after. The steps of a plan that waits, failed or is complete never run.
//! Rule: classic-apis §5.2.

use std::sync::Arc;
use std::time::Duration;

use olm_api::ConditionStatus;
use olm_api::classic::install_plan::Step;
use olm_api::classic::{ClassicCondition, InstallPlan, InstallPlanStatus, OperatorGroup};
use olm_api::k8s_openapi::api::core::v1::ObjectReference;
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::step::{StepError, StepStatus};

/// How long errors of steps are retried, in the reference's default.
pub const RETRY_WINDOW: Duration = Duration::from_secs(60);

/// When a plan that waits for an API, or retries, is tried again.
pub const REQUEUE: Duration = Duration::from_secs(5);

olm_core::words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum PlanPhase {
        /// Written by old controllers.
        None = "",
        /// Written by old controllers.
        Planning = "Planning",
        RequiresApproval = "RequiresApproval",
        Installing = "Installing",
        Complete = "Complete",
        Failed = "Failed",
    }
}

impl PlanPhase {
    /// Of a plan without status there is none; a word that is no phase counts as none, too.
    pub fn from_plan(plan: &InstallPlan) -> Option<Self> {
        Some(plan.status.as_ref()?.phase.parse().unwrap_or(Self::None))
    }

    /// Nothing more happens to the plan by itself.
    pub fn is_final(self) -> bool {
        match self {
            Self::Complete | Self::Failed => true,
            Self::None | Self::Planning | Self::RequiresApproval | Self::Installing => false,
        }
    }
}

/// A transition, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PlanRule {
    NoStatus,
    OldPhaseWaits,
    OldPhaseStarts,
    WaitsForApproval,
    Approved,
    AccountProblem,
    Runs,
    WaitsForApi,
    RetriesForbidden,
    RetriesError,
    Fails,
    Completes,
    RightsChanged,
    ApprovalWithdrawn,
    Ends,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct PlanRow {
    pub rule: PlanRule,
    pub from: &'static [PlanPhase],
    /// `None`: the plan gets no status.
    pub to: Option<PlanPhase>,
    pub guard: &'static str,
    /// A shared record shows it; the others are in the specification only.
    pub is_recorded: bool,
}

use PlanPhase::{Complete, Failed, Installing, None as NoPhase, Planning, RequiresApproval};

/// Evaluated from the top; the first row whose guard holds is taken.
pub const PLAN_ROWS: [PlanRow; 15] = [
    row(PlanRule::NoStatus, &[], None, "the plan has no status", true),
    row(PlanRule::Ends, &[Complete, Failed], None, "nothing is left to do", true),
    row(
        PlanRule::RightsChanged,
        &[Failed],
        Some(Installing),
        "rights in the namespace changed, and an account of the group makes the objects",
        false,
    ),
    row(PlanRule::ApprovalWithdrawn, &[Failed], Some(RequiresApproval), "spec.approved became false", false),
    row(
        PlanRule::OldPhaseWaits,
        &[NoPhase, Planning],
        Some(RequiresApproval),
        "written by an old controller, not approved",
        false,
    ),
    row(
        PlanRule::OldPhaseStarts,
        &[NoPhase, Planning],
        Some(Installing),
        "written by an old controller, approved",
        false,
    ),
    row(
        PlanRule::WaitsForApproval,
        &[RequiresApproval],
        Some(RequiresApproval),
        "spec.approved is false",
        true,
    ),
    row(PlanRule::Approved, &[RequiresApproval], Some(Installing), "spec.approved is true", true),
    row(
        PlanRule::AccountProblem,
        &[Installing],
        Some(Installing),
        "the OperatorGroup or its account is not usable",
        false,
    ),
    row(PlanRule::Runs, &[Installing], Some(Installing), "the steps did not run in this pass", true),
    row(PlanRule::RetriesForbidden, &[Installing], Some(Installing), "a step is forbidden", true),
    row(
        PlanRule::RetriesError,
        &[Installing],
        Some(Installing),
        "a step failed, within the retry window",
        true,
    ),
    row(
        PlanRule::Fails,
        &[Installing],
        Some(Failed),
        "a step failed after the retry window, or for invalid data",
        true,
    ),
    row(PlanRule::WaitsForApi, &[Installing], Some(Installing), "a step waits for an API", true),
    row(PlanRule::Completes, &[Installing], Some(Complete), "all steps are done", true),
];

const fn row(
    rule: PlanRule,
    from: &'static [PlanPhase],
    to: Option<PlanPhase>,
    guard: &'static str,
    is_recorded: bool,
) -> PlanRow {
    PlanRow { rule, from, to, guard, is_recorded }
}

/// Why the account that makes the objects of a plan is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    #[error("no operator group found that is managing this namespace")]
    NoGroup,
    #[error("more than one operator group(s) are managing this namespace count={0}")]
    SeveralGroups(usize),
    #[error("please make sure the service account exists. sa={account} operatorgroup={group}")]
    NoAccount {
        account: String,
        /// `namespace/name`
        group: String,
    },
}

/// The account of the OperatorGroup; `None` if the controller's own rights count.
///
/// # Errors
/// When it cannot be determined.
pub fn plan_account(groups: &[Arc<OperatorGroup>]) -> Result<Option<ObjectReference>, AccountError> {
    let has_targets = |group: &&Arc<OperatorGroup>| {
        group.status.as_ref().is_some_and(|status| !status.namespaces.is_empty())
    };
    let active: Vec<&Arc<OperatorGroup>> = groups.iter().filter(has_targets).collect();
    let group = match active.as_slice() {
        [] => return Err(AccountError::NoGroup),
        [group] => group,
        several => return Err(AccountError::SeveralGroups(several.len())),
    };
    let account = &group.spec.service_account_name;
    if account.is_empty() {
        return Ok(None);
    }
    let namespace = &group.metadata.namespace;
    // the status may still have the account of an earlier specification
    let is_it = |reference: &ObjectReference| {
        reference.name.as_ref() == Some(account)
            && (reference.namespace.is_none() || reference.namespace == *namespace)
    };
    let found = group.status.as_ref().and_then(|status| status.service_account_ref.clone()).filter(is_it);
    let missing = || {
        let namespace = namespace.as_deref().unwrap_or_default();
        let name = group.metadata.name.as_deref().unwrap_or_default();
        AccountError::NoAccount { account: account.clone(), group: format!("{namespace}/{name}") }
    };
    found.map(Some).ok_or_else(missing)
}

/// What the steps came to in this pass.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRun {
    /// In the order of the plan.
    pub steps: Vec<StepStatus>,
    /// The error at which the pass ended; later steps were not tried.
    pub error: Option<StepError>,
}

/// The cluster as a plan sees it.
#[derive(Debug, Clone)]
pub struct PlanObserved<'a> {
    pub account: Result<Option<ObjectReference>, AccountError>,
    /// Roles or bindings of the namespace changed since the plan failed.
    pub rights_changed: bool,
    /// `None`: the steps did not run.
    pub run: Option<&'a PlanRun>,
    /// How long errors are retried.
    pub retry_window: Duration,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanNext {
    /// Nothing, before something else changes.
    Rest,
    /// The steps run, with the account in the status if there is one.
    RunSteps,
    /// The plan is tried again after this time.
    Requeue(Duration),
}

#[derive(Debug, Clone, PartialEq)]
pub struct PlanDecision {
    pub rule: PlanRule,
    /// `None`: as it is.
    pub status: Option<InstallPlanStatus>,
    pub next: PlanNext,
}

pub fn next_phase(plan: &InstallPlan, observed: &PlanObserved<'_>, now: Timestamp) -> PlanDecision {
    let rest = |rule| PlanDecision { rule, status: None, next: PlanNext::Rest };
    let (Some(phase), Some(status)) = (PlanPhase::from_plan(plan), &plan.status) else {
        return rest(PlanRule::NoStatus);
    };
    let moved = |rule, to: PlanPhase, next| {
        let mut status = status.clone();
        to.as_str().clone_into(&mut status.phase);
        PlanDecision { rule, status: Some(status), next }
    };
    match phase {
        Complete => rest(PlanRule::Ends),
        Failed if observed.rights_changed && status.attenuated_service_account_ref.is_some() => {
            begun_again(moved(PlanRule::RightsChanged, Installing, PlanNext::RunSteps))
        }
        // a person approves it again to retry its steps
        Failed if !plan.spec.approved => {
            begun_again(moved(PlanRule::ApprovalWithdrawn, RequiresApproval, PlanNext::Rest))
        }
        Failed => rest(PlanRule::Ends),
        NoPhase | Planning if !plan.spec.approved => {
            moved(PlanRule::OldPhaseWaits, RequiresApproval, PlanNext::Rest)
        }
        NoPhase | Planning => moved(PlanRule::OldPhaseStarts, Installing, PlanNext::RunSteps),
        RequiresApproval if !plan.spec.approved => rest(PlanRule::WaitsForApproval),
        RequiresApproval => moved(PlanRule::Approved, Installing, PlanNext::RunSteps),
        Installing => install(status, observed, now),
    }
}

/// The decision without what the status reports of the failure.
fn begun_again(mut decision: PlanDecision) -> PlanDecision {
    if let Some(status) = &mut decision.status {
        (status.start_time, status.message) = (None, String::new());
        status.conditions.retain(|condition| condition.type_ != "Installed");
    }
    decision
}

/// What a plan waits for, and what to do; `None` if it does not wait for anything that a person can see to.
///
/// It is the note of the event [`WAITING_EVENT`].
pub fn plan_wait(plan: &InstallPlan) -> Option<String> {
    let status = plan.status.as_ref()?;
    match PlanPhase::from_plan(plan)? {
        RequiresApproval => Some("waiting for approval; set spec.approved to true".to_owned()),
        Installing => {
            let installed = status.conditions.iter().find(|it| it.reason == "InstallCheckFailed");
            let account = installed.map(|installed| installed.message.as_str());
            let message = account.unwrap_or(&status.message);
            (!message.is_empty()).then(|| message.to_owned())
        }
        Failed => Some(failed_wait(&status.message)),
        NoPhase | Planning | Complete => None,
    }
}

/// The problem of a plan that failed, with what to do about it: what it names itself, or another attempt.
pub fn failed_wait(problem: &str) -> String {
    if problem.contains("delete the InstallPlan") {
        return problem.to_owned();
    }
    format!("{problem}; to retry it, set spec.approved to false, and then to true again")
}

/// Reason of the Normal event that reports for what an object waits.
pub const WAITING_EVENT: &str = "Waiting";

fn install(status: &InstallPlanStatus, observed: &PlanObserved<'_>, now: Timestamp) -> PlanDecision {
    let mut new = status.clone();
    let to = |rule, phase: PlanPhase, next, new: &mut InstallPlanStatus| {
        phase.as_str().clone_into(&mut new.phase);
        let status = (*new != *status).then(|| new.clone());
        PlanDecision { rule, status, next }
    };
    let account = match &observed.account {
        Ok(account) => account,
        Err(error) => {
            let condition = ("InstallCheckFailed", error.to_string());
            set_installed(&mut new, ConditionStatus::False, condition, now);
            let next = PlanNext::Requeue(REQUEUE);
            return to(PlanRule::AccountProblem, Installing, next, &mut new);
        }
    };
    new.attenuated_service_account_ref.clone_from(account);
    let start = new.start_time.get_or_insert(Time(now)).0;
    let Some(run) = observed.run else {
        new.conditions.retain(|condition| condition.reason != "InstallCheckFailed");
        return to(PlanRule::Runs, Installing, PlanNext::RunSteps, &mut new);
    };
    for (step, done) in new.plan.iter_mut().zip(&run.steps) {
        done.as_str().clone_into(&mut step.status);
    }
    if let Some(error) = &run.error {
        let window = SignedDuration::try_from(observed.retry_window).unwrap_or(SignedDuration::MAX);
        let is_young = now.duration_since(start) < window;
        // what is about to be there is reported as made before the plan fails
        let is_final = error.is_final() && !run.steps.contains(&StepStatus::WaitingForApi);
        let rule = if error.is_forbidden() {
            PlanRule::RetriesForbidden
        } else if is_young && !is_final {
            PlanRule::RetriesError
        } else {
            new.message = error.to_string();
            let condition = ("InstallComponentFailed", error.to_string());
            set_installed(&mut new, ConditionStatus::False, condition, now);
            return to(PlanRule::Fails, Failed, PlanNext::Rest, &mut new);
        };
        new.message = format!("retrying execution due to error: {error}");
        return to(rule, Installing, PlanNext::Requeue(REQUEUE), &mut new);
    }
    let waiting = new.plan.iter().find(|step| !StepStatus::parse(&step.status).is_done());
    new.message = waiting.map(waits_for).unwrap_or_default();
    if waiting.is_some() {
        return to(PlanRule::WaitsForApi, Installing, PlanNext::Requeue(REQUEUE), &mut new);
    }
    set_installed(&mut new, ConditionStatus::True, ("", String::new()), now);
    to(PlanRule::Completes, Complete, PlanNext::Rest, &mut new)
}

fn waits_for(step: &Step) -> String {
    format!("waiting for the API of {} {} to be served", step.resource.kind, step.resource.name)
}

/// The time of an observation that does not change stays, so that nothing is written for it.
fn set_installed(
    status: &mut InstallPlanStatus,
    value: ConditionStatus,
    (reason, message): (&str, String),
    now: Timestamp,
) {
    let old = status.conditions.iter().position(|condition| condition.type_ == "Installed");
    let old = old.map(|index| status.conditions.remove(index));
    let is_same = |old: &ClassicCondition| {
        (old.status, old.reason.as_str(), old.message.as_str()) == (value, reason, message.as_str())
    };
    let condition = match old {
        Some(old) if is_same(&old) => old,
        old => ClassicCondition {
            type_: "Installed".to_owned(),
            status: value,
            reason: reason.to_owned(),
            message,
            last_update_time: Some(Time(now)),
            last_transition_time: (old.filter(|old| old.status == value))
                .map_or(Some(Time(now)), |old| old.last_transition_time),
            unknown: Default::default(),
        },
    };
    status.conditions.push(condition);
}
