//! The phase machine as a table: the rows of classic-apis §6.3 in their order, one line for each outcome of a row.

use std::time::Duration;

use olm_api::classic::{ClusterServiceVersion, Time};

use super::decide::{Action, INSTALL_TIMEOUT, REINSTALL_DELAY, REPORT_DELAY};
use super::labels::TARGET_NAMESPACES;
use super::{ApiServices, GroupState, Health, InstallResult, Neighbor, Observed, Phase, Reason, UpgradeGate};
use super::{strategy, webhooks};

/// Whether a recorded run of the reference reaches a line. A test holds the marks against what the replay of the records reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    Recorded,
    SpecOnly,
}

/// A line of the table: where its guard holds, the CSV gets `to`.
#[derive(Debug)]
pub struct Row {
    /// The row of classic-apis §6.3.
    pub number: u8,
    /// The outcome of the row, unique for its number.
    pub case: &'static str,
    pub evidence: Evidence,
    /// The phase in which the row counts; `None` for all.
    pub from: Option<Phase>,
    /// The new phase and reason; `None` to keep them.
    pub to: Option<(Phase, Reason)>,
    guard: fn(&View<'_>) -> Option<Found>,
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        (self.number, self.case) == (other.number, other.case)
    }
}

impl Row {
    pub(super) fn matches(&self, view: &View<'_>) -> Option<Found> {
        if self.from.is_some_and(|phase| phase != view.phase) {
            return None;
        }
        (self.guard)(view)
    }

    /// Whether the row looks at the requirements, so that the status gets them.
    pub(super) fn checks_requirements(&self) -> bool {
        matches!(self.number, 11..=13 | 15 | 19 | 24)
    }
}

/// What the guards see.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) csv: &'a ClusterServiceVersion,
    pub(super) observed: &'a Observed,
    pub(super) now: &'a Time,
    pub(super) phase: Phase,
    pub(super) reason: Option<Reason>,
}

/// A guard that holds: the message of the new status, and what is to be done.
pub(super) struct Found {
    pub(super) message: String,
    pub(super) actions: Vec<Action>,
}

fn found(message: impl Into<String>) -> Option<Found> {
    Some(Found { message: message.into(), actions: vec![] })
}

fn and_do(message: impl Into<String>, actions: Vec<Action>) -> Option<Found> {
    Some(Found { message: message.into(), actions })
}

fn given(holds: bool, message: impl Into<String>) -> Option<Found> {
    if holds { found(message) } else { None }
}

use Evidence::{Recorded, SpecOnly};

const fn row(
    number: u8,
    case: &'static str,
    evidence: Evidence,
    from: Option<Phase>,
    to: Option<(Phase, Reason)>,
    guard: fn(&View<'_>) -> Option<Found>,
) -> Row {
    Row { number, case, evidence, from, to, guard }
}

/// A line that the group of the CSV decides.
const fn group(number: u8, case: &'static str, evidence: Evidence, reason: Reason, guard: Guard) -> Row {
    row(number, case, evidence, None, Some((Phase::Failed, reason)), guard)
}

type Guard = fn(&View<'_>) -> Option<Found>;

const PENDING: Option<Phase> = Some(Phase::Pending);
const INSTALL_READY: Option<Phase> = Some(Phase::InstallReady);
const INSTALLING: Option<Phase> = Some(Phase::Installing);
const SUCCEEDED: Option<Phase> = Some(Phase::Succeeded);
const FAILED: Option<Phase> = Some(Phase::Failed);
const REPLACING: Option<Phase> = Some(Phase::Replacing);

/// All lines; the first whose guard holds counts.
pub static TABLE: &[Row] = &[
    row(0, "inputs changed", SpecOnly, None, Some((Phase::Pending, Reason::DetectedClusterChange)), |view| {
        given(
            is_hopeless(view) && !has_failed(view),
            "what the install depends on may have changed, requirements not yet checked",
        )
    }),
    row(0, "hopeless", SpecOnly, None, None, |view| given(is_hopeless(view), "")),
    group(1, "no group", Recorded, Reason::NoOperatorGroup, |view| {
        group_failed(view, Reason::NoOperatorGroup)
    }),
    group(2, "several groups", Recorded, Reason::TooManyOperatorGroups, |view| {
        group_failed(view, Reason::TooManyOperatorGroups)
    }),
    row(3, "group without status", SpecOnly, None, None, |view| {
        let report =
            "waiting for the OperatorGroup to select namespaces; its conditions and events name the cause";
        let is_unresolved = view.observed.group == GroupState::Unresolved;
        if is_unresolved { and_do("", vec![Action::Report(report.to_owned())]) } else { None }
    }),
    row(3, "annotate", Recorded, None, None, |view| match &view.observed.group {
        GroupState::Annotate(annotations) => and_do("", vec![Action::WriteAnnotations(annotations.clone())]),
        _ => None,
    }),
    group(3, "no targets", SpecOnly, Reason::NoTargetNamespaces, |view| {
        group_failed(view, Reason::NoTargetNamespaces)
    }),
    group(4, "duplicate modes", SpecOnly, Reason::InvalidInstallModes, |view| {
        group_failed(view, Reason::InvalidInstallModes)
    }),
    group(5, "unsupported targets", Recorded, Reason::UnsupportedOperatorGroup, |view| {
        group_failed(view, Reason::UnsupportedOperatorGroup)
    }),
    group(6, "no target annotation", SpecOnly, Reason::NoTargetNamespaces, |view| {
        let annotations = view.csv.metadata.annotations.as_ref();
        let has_targets = annotations.is_some_and(|all| all.contains_key(TARGET_NAMESPACES));
        given(
            view.observed.group == GroupState::Member && !has_targets,
            "csv missing olm.targetNamespaces annotation",
        )
    }),
    group(7, "static APIs", Recorded, Reason::CannotModifyStaticProvidedApis, |view| {
        without_deployments(group_failed(view, Reason::CannotModifyStaticProvidedApis))
    }),
    group(7, "APIs of another group", Recorded, Reason::InterOperatorGroupOwnerConflict, |view| {
        without_deployments(group_failed(view, Reason::InterOperatorGroupOwnerConflict))
    }),
    row(7, "APIs of the group change", Recorded, None, None, |view| match &view.observed.group {
        GroupState::SetProvidedApis(apis) => and_do("", vec![Action::SetProvidedApis(apis.clone())]),
        _ => None,
    }),
    row(8, "new", Recorded, None, Some((Phase::Pending, Reason::RequirementsUnknown)), |view| {
        given(matches!(view.phase, Phase::New | Phase::Unknown), "requirements not yet checked")
    }),
    row(
        9,
        "not upgradeable",
        Recorded,
        PENDING,
        Some((Phase::Pending, Reason::OperatorConditionNotUpgradeable)),
        |view| match &view.observed.gate {
            UpgradeGate::Closed(why) => {
                let message = format!("operator is not upgradeable: {why}");
                let actions = other_wait(view, Reason::OperatorConditionNotUpgradeable, &message);
                and_do(message, actions)
            }
            UpgradeGate::Open => None,
        },
    ),
    row(
        10,
        "bad strategy",
        SpecOnly,
        PENDING,
        Some((Phase::Failed, Reason::InvalidInstallStrategy)),
        |view| found(format!("install strategy invalid: {}", strategy::check(view.csv).err()?)),
    ),
    row(
        11,
        "requirement missing",
        Recorded,
        PENDING,
        Some((Phase::Pending, Reason::RequirementsNotMet)),
        |view| {
            let requirements = &view.observed.requirements;
            if requirements.are_met {
                return None;
            }
            let unmet = requirements.unmet().join(", ");
            let report = format!("waiting for requirements; create or grant what is missing: {unmet}");
            let actions = lasting_wait(view, Reason::RequirementsNotMet, report);
            and_do("one or more requirements couldn't be found", actions)
        },
    ),
    row(
        12,
        "bad webhook",
        Recorded,
        PENDING,
        Some((Phase::Failed, Reason::InvalidWebhookDescription)),
        |view| found(webhooks::check(&view.csv.spec.webhook_definitions).err()?.to_string()),
    ),
    row(13, "CRD of another", Recorded, PENDING, Some((Phase::Failed, Reason::OwnerConflict)), |view| {
        conflict(view, true)
    }),
    row(
        13,
        "APIService of another",
        SpecOnly,
        PENDING,
        Some((Phase::Failed, Reason::OwnerConflict)),
        |view| conflict(view, false),
    ),
    row(14, "cycle", SpecOnly, PENDING, None, |view| {
        if view.observed.neighbors.is_cycle { and_do("", chain_wait(view)) } else { None }
    }),
    row(14, "replaced not ready", Recorded, PENDING, None, |view| {
        let replaced = view.observed.neighbors.replaced.as_ref()?;
        if matches!(replaced.phase, Phase::Replacing | Phase::Deleting) {
            return None;
        }
        and_do("", chain_wait(view))
    }),
    row(15, "all fine", Recorded, PENDING, Some((Phase::InstallReady, Reason::AllRequirementsMet)), |_| {
        found("all requirements found, attempting install")
    }),
    row(16, "install", Recorded, INSTALL_READY, None, |view| {
        let is_untried = view.observed.install == InstallResult::NotTried;
        if is_untried { and_do("", vec![Action::ApplyStrategy]) } else { None }
    }),
    row(
        16,
        "installed",
        Recorded,
        INSTALL_READY,
        Some((Phase::Installing, Reason::InstallSucceeded)),
        |view| {
            given(
                view.observed.install == InstallResult::Succeeded,
                "waiting for install components to report healthy",
            )
        },
    ),
    row(
        16,
        "failed",
        SpecOnly,
        INSTALL_READY,
        Some((Phase::Failed, Reason::InstallComponentFailed)),
        |view| install_failed(view, true),
    ),
    row(
        16,
        "hopeless",
        SpecOnly,
        INSTALL_READY,
        Some((Phase::Failed, Reason::InstallComponentFailedNoRetry)),
        |view| install_failed(view, false),
    ),
    row(
        17,
        "applying failed",
        SpecOnly,
        INSTALLING,
        Some((Phase::Failed, Reason::InstallComponentFailed)),
        |view| install_failed(view, true),
    ),
    row(
        17,
        "applying is hopeless",
        SpecOnly,
        INSTALLING,
        Some((Phase::Failed, Reason::InstallComponentFailedNoRetry)),
        |view| install_failed(view, false),
    ),
    row(17, "healthy", Recorded, INSTALLING, Some((Phase::Succeeded, Reason::InstallSucceeded)), |view| {
        given(is_healthy(view), INSTALLED)
    }),
    row(17, "timeout", SpecOnly, INSTALLING, Some((Phase::Failed, Reason::InstallCheckFailed)), |view| {
        given(has_timed_out(view), "install timeout")
    }),
    row(17, "changed", SpecOnly, INSTALLING, None, |view| match &view.observed.health {
        Health::Changed(_) => and_do("", vec![Action::ApplyStrategy]),
        Health::Healthy | Health::Waiting(_) | Health::Missing(_) => None,
    }),
    row(17, "waiting", Recorded, INSTALLING, Some((Phase::Installing, Reason::InstallWaiting)), |view| {
        let message = unhealthy(view)?;
        let observed = (&view.observed.health, &view.observed.api_services);
        let actions = if let (Health::Healthy, ApiServices::Unavailable(names)) = observed {
            let report = format!(
                "waiting until the apiserver reaches APIService {names}; its condition Available has the cause"
            );
            lasting_wait(view, Reason::InstallWaiting, report)
        } else {
            other_wait(view, Reason::InstallWaiting, &message)
        };
        and_do(message, actions)
    }),
    row(18, "replaced", Recorded, SUCCEEDED, Some((Phase::Replacing, Reason::BeingReplaced)), |view| {
        let newer = view.observed.neighbors.replaced_by.as_ref()?;
        and_do(format!("being replaced by csv: {}", newer.name), vec![Action::CountUpgrade])
    }),
    row(
        19,
        "requirement lost",
        SpecOnly,
        SUCCEEDED,
        Some((Phase::Failed, Reason::RequirementsNotMet)),
        |view| given(!view.observed.requirements.are_met, "requirements no longer met"),
    ),
    row(
        20,
        "certificate lost",
        SpecOnly,
        SUCCEEDED,
        Some((Phase::Pending, Reason::NeedsCertRotation)),
        // one that is due is rotated without another install
        |view| given(is_certificate_lost(view), "owned APIServices need cert refresh"),
    ),
    row(
        21,
        "APIService lost",
        SpecOnly,
        SUCCEEDED,
        Some((Phase::Failed, Reason::ApiServiceResourceIssue)),
        |view| match &view.observed.api_services {
            ApiServices::Missing(what) => found(what.as_str()),
            ApiServices::Present | ApiServices::Unavailable(_) => None,
        },
    ),
    row(
        22,
        "changed",
        Recorded,
        SUCCEEDED,
        Some((Phase::InstallReady, Reason::ComponentUnhealthy)),
        |view| match &view.observed.health {
            Health::Changed(what) => found(format!("installing: {what}")),
            Health::Healthy | Health::Waiting(_) | Health::Missing(_) => None,
        },
    ),
    row(22, "unhealthy", Recorded, SUCCEEDED, Some((Phase::Failed, Reason::ComponentUnhealthy)), |view| {
        found(format!("installing: {}", view.observed.health.message()?))
    }),
    row(23, "group fits", Recorded, FAILED, Some((Phase::Pending, Reason::RequirementsUnknown)), |view| {
        let reason = view.reason.filter(|reason| reason.is_of_the_group() && !fails_forward(view))?;
        let is_about_apis = matches!(
            reason,
            Reason::InterOperatorGroupOwnerConflict | Reason::CannotModifyStaticProvidedApis
        );
        found(if is_about_apis {
            "OperatorGroup no longer intersecting with conflicting owner"
        } else {
            "InstallModes now support target namespaces"
        })
    }),
    row(
        24,
        "requirement missing",
        SpecOnly,
        FAILED,
        Some((Phase::Pending, Reason::RequirementsNotMet)),
        |view| {
            given(
                !view.observed.requirements.are_met && !fails_forward(view) && !fails_again(view),
                "requirements not met",
            )
        },
    ),
    row(25, "rolls out", SpecOnly, FAILED, None, |view| {
        let is_rolling_out = view.reason == Some(Reason::ComponentUnhealthy)
            && matches!(view.observed.health, Health::Waiting(_));
        let is_new = age(view).is_some_and(|age| age < REINSTALL_DELAY);
        if is_rolling_out && is_new { and_do("", vec![Action::RequeueAfter(REINSTALL_DELAY)]) } else { None }
    }),
    row(25, "healthy again", SpecOnly, FAILED, Some((Phase::Succeeded, Reason::InstallSucceeded)), |view| {
        let was_installed = matches!(
            view.reason,
            Some(Reason::ComponentUnhealthy | Reason::InstallCheckFailed | Reason::ApiServiceResourceIssue)
        );
        given(was_installed && is_healthy(view) && !fails_forward(view), INSTALLED)
    }),
    row(25, "changed", SpecOnly, FAILED, Some((Phase::InstallReady, Reason::NeedsReinstall)), |view| {
        match &view.observed.health {
            Health::Changed(what) if !is_held(view) && !fails_forward(view) && !fails_again(view) => {
                found(format!("installing: {what}"))
            }
            Health::Changed(_) | Health::Healthy | Health::Waiting(_) | Health::Missing(_) => None,
        }
    }),
    row(
        25,
        "otherwise unhealthy",
        Recorded,
        FAILED,
        Some((Phase::Pending, Reason::NeedsReinstall)),
        |view| {
            let message = unhealthy(view).unwrap_or_else(|| "the cause of the failure is gone".to_owned());
            given(!is_held(view) && !fails_forward(view) && !fails_again(view), message)
        },
    ),
    row(26, "fail-forward", Recorded, FAILED, Some((Phase::Replacing, Reason::BeingReplaced)), |view| {
        let newer = view.observed.neighbors.replaced_by.as_ref().filter(|_| fails_forward(view))?;
        found(format!(
            "Fail Forward is enabled, allowing {} csv to be replaced by csv: {}",
            Phase::Failed.as_str(),
            newer.name
        ))
    }),
    row(27, "next succeeded", Recorded, REPLACING, Some((Phase::Deleting, Reason::Replaced)), |view| {
        let neighbors = &view.observed.neighbors;
        let has_succeeded = |neighbor: &Neighbor| neighbor.phase == Phase::Succeeded;
        let is_done = neighbors.replaced_by.iter().chain(&neighbors.end).any(has_succeeded);
        given(
            neighbors.replaced.is_none() && is_done,
            "has been replaced by a newer ClusterServiceVersion that has successfully installed.",
        )
    }),
    row(27, "next not ready", Recorded, REPLACING, None, |view| {
        // the phases of both wake it
        given(view.observed.neighbors.replaced_by.is_some(), "")
    }),
    row(27, "no next", SpecOnly, REPLACING, None, |_| {
        let report = "no ClusterServiceVersion names this one in spec.replaces any more";
        and_do("", vec![Action::Report(report.to_owned())])
    }),
    row(28, "delete", Recorded, Some(Phase::Deleting), None, |_| and_do("", vec![Action::DeleteCsv])),
];

fn is_hopeless(view: &View<'_>) -> bool {
    view.reason == Some(Reason::InstallComponentFailedNoRetry)
}

fn has_failed(view: &View<'_>) -> bool {
    matches!(view.observed.install, InstallResult::Failed { .. })
}

fn group_failed(view: &View<'_>, expected: Reason) -> Option<Found> {
    match &view.observed.group {
        GroupState::Failed { reason, message } if *reason == expected => found(message.as_str()),
        GroupState::Failed { .. }
        | GroupState::Member
        | GroupState::Unresolved
        | GroupState::Annotate(_)
        | GroupState::SetProvidedApis(_) => None,
    }
}

fn chain_wait(view: &View<'_>) -> Vec<Action> {
    view.observed.neighbors.wait().map(Action::Report).into_iter().collect()
}

/// What a wait names that the status has in general words, once it has lasted.
fn lasting_wait(view: &View<'_>, reason: Reason, report: String) -> Vec<Action> {
    if view.reason != Some(reason) {
        return vec![];
    }
    let rest = age(view).map(|age| REPORT_DELAY.saturating_sub(age)).unwrap_or_default();
    vec![if rest.is_zero() { Action::Report(report) } else { Action::RequeueAfter(rest) }]
}

/// The report of a wait that began with another message, about which there was an event with the reason.
fn other_wait(view: &View<'_>, reason: Reason, message: &str) -> Vec<Action> {
    let began = view.csv.status.as_ref().and_then(|status| status.conditions.last());
    let is_announced = began.is_some_and(|began| began.message == message);
    if is_announced { vec![] } else { lasting_wait(view, reason, message.to_owned()) }
}

fn without_deployments(found: Option<Found>) -> Option<Found> {
    found.map(|found| Found { actions: vec![Action::DeleteDeployments], ..found })
}

fn conflict(view: &View<'_>, is_crd: bool) -> Option<Found> {
    let conflict = view.observed.neighbors.conflict.as_ref()?;
    given((*conflict == super::OwnerConflict::Crd) == is_crd, conflict.message())
}

fn install_failed(view: &View<'_>, retry: bool) -> Option<Found> {
    match &view.observed.install {
        InstallResult::Failed { message, is_worth_a_retry } if *is_worth_a_retry == retry => {
            found(format!("install strategy failed: {message}"))
        }
        InstallResult::Failed { .. } | InstallResult::NotTried | InstallResult::Succeeded => None,
    }
}

/// The message of a CSV that is installed.
const INSTALLED: &str = "install strategy completed with no errors";

fn is_healthy(view: &View<'_>) -> bool {
    view.observed.health == Health::Healthy && view.observed.api_services == ApiServices::Present
}

/// What is not as it was installed, or not yet; `None` if it is.
fn unhealthy(view: &View<'_>) -> Option<String> {
    match (view.observed.health.message(), &view.observed.api_services) {
        (Some(what), _) | (None, ApiServices::Missing(what)) => Some(format!("installing: {what}")),
        (None, ApiServices::Unavailable(_)) => Some("apiServices not installed".to_owned()),
        (None, ApiServices::Present) => None,
    }
}

/// Whether the install failed, and nothing that it depends on has changed since.
fn is_held(view: &View<'_>) -> bool {
    view.reason == Some(Reason::InstallComponentFailed) && has_failed(view)
}

/// The time since the status changed; `None` before, and where the clock was set back.
fn age(view: &View<'_>) -> Option<Duration> {
    let since = view.csv.status.as_ref()?.last_update_time.as_ref()?;
    Duration::try_from(view.now.0.duration_since(since.0)).ok()
}

fn has_timed_out(view: &View<'_>) -> bool {
    age(view).is_some_and(|age| age >= INSTALL_TIMEOUT)
}

/// Whether the Secret of a certificate is gone. One that was just written may not be visible yet.
fn is_certificate_lost(view: &View<'_>) -> bool {
    let issued = view.csv.status.as_ref().and_then(|status| status.certs_last_updated.as_ref());
    let age = issued.and_then(|issued| Duration::try_from(view.now.0.duration_since(issued.0)).ok());
    view.observed.is_certificate_missing && age.is_some_and(|age| age >= REINSTALL_DELAY)
}

fn fails_forward(view: &View<'_>) -> bool {
    view.observed.is_fail_forward && view.observed.neighbors.replaced_by.is_some()
}

/// Whether the rows of Pending lead to a failure again. Then leaving it would begin a loop: the reference goes to and fro there.
fn fails_again(view: &View<'_>) -> bool {
    let pending = View { phase: Phase::Pending, ..*view };
    let mut rows = TABLE.iter().filter(|row| row.from == PENDING);
    let first = rows.find(|row| row.matches(&pending).is_some());
    first.and_then(|row| row.to).is_some_and(|(phase, _)| phase == Phase::Failed)
}
