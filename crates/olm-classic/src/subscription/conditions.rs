//! The conditions of a Subscription, derived as a whole from what is known.
//!
//! Rule: classic-apis §3.3. All are True when something is wrong, and absent otherwise; only CatalogSourcesUnhealthy is also False.

use olm_api::ConditionStatus;
use olm_api::classic::InstallPlan;
use olm_api::classic::subscription::SubscriptionCondition;
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_solver::{ErrorKind, SolveError};

use super::health::CatalogsHealth;
use crate::install_plan::PlanPhase;

/// Message of InstallPlanMissing if the plan was not complete: nothing makes the rest of its objects.
const DELETED_UNFINISHED: &str = "it was deleted before it was complete";

/// All types, in the order of the status.
pub const CONDITION_TYPES: [&str; 12] = [
    "CatalogSourcesUnhealthy",
    "InstallPlanMissing",
    "InstallPlanPending",
    "InstallPlanFailed",
    "InstalledCSVMissing",
    "ResolutionFailed",
    "BundleUnpacking",
    "BundleUnpackFailed",
    "PackageDeprecated",
    "ChannelDeprecated",
    "BundleDeprecated",
    "Deprecated",
];

/// The plan of a Subscription.
#[derive(Debug, Clone, Copy)]
pub enum PlanFact<'a> {
    /// The status refers to none.
    None,
    /// The one to which the status refers does not exist.
    Missing,
    Present(&'a InstallPlan),
}

/// What the last resolution of the namespace came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolutionFact {
    /// There was none in this pass: the condition stays as it is.
    NotTried,
    Resolved,
    Failed {
        reason: &'static str,
        message: String,
    },
}

/// Bundles of the resolution that are images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnpackFact {
    /// There was no resolution in this pass: the conditions stay as they are.
    NotTried,
    None,
    InProgress {
        message: String,
    },
    /// Reason BundleUnpackFailed, ErrorPreventedUnpacking or EnsureInstallPlanFailed.
    Failed {
        reason: &'static str,
        message: String,
    },
}

/// What is known about a Subscription.
#[derive(Debug, Clone)]
pub struct ConditionFacts<'a> {
    pub health: &'a CatalogsHealth,
    pub plan: PlanFact<'a>,
    /// The ClusterServiceVersion that was installed and is not there any more.
    pub missing_csv: Option<&'a str>,
    pub resolution: ResolutionFact,
    pub unpack: UnpackFact,
    /// See [`super::deprecation_messages`]; `None`: the catalog cannot be read, the conditions stay as they are.
    pub deprecations: Option<Vec<(&'static str, String)>>,
}

/// Whether the plan to which a status refers was not complete when its conditions were written; InstallPlanMissing keeps that after the plan
/// is deleted.
pub(super) fn is_plan_unfinished(conditions: &[SubscriptionCondition]) -> bool {
    let mut bad = conditions.iter().filter(|condition| condition.status == ConditionStatus::True);
    bad.any(|condition| match condition.type_.as_str() {
        "InstallPlanPending" | "InstallPlanFailed" => true,
        "InstallPlanMissing" => condition.message == DELETED_UNFINISHED,
        _ => false,
    })
}

/// Reason and message of condition ResolutionFailed.
///
/// `ConstraintsNotSatisfiable` is final until something changes, `ErrorPreventedResolution` is tried again.
pub fn resolution_failure(error: &SolveError) -> ResolutionFact {
    let reason = match error.kind() {
        ErrorKind::Unsatisfiable => "ConstraintsNotSatisfiable",
        ErrorKind::Ambiguous | ErrorKind::Other => "ErrorPreventedResolution",
    };
    ResolutionFact::Failed { reason, message: error.to_string() }
}

type Value = (ConditionStatus, String, String);

enum Change {
    Keep,
    Absent,
    Set(Value),
}

/// All conditions. Times change only with the status or the words, so that nothing is written when nothing changed.
pub fn conditions(
    known: &[SubscriptionCondition],
    facts: &ConditionFacts<'_>,
    now: Timestamp,
) -> Vec<SubscriptionCondition> {
    let of = |type_: &str| known.iter().find(|condition| condition.type_ == type_);
    CONDITION_TYPES
        .into_iter()
        .filter_map(|type_| match change(type_, known, facts) {
            Change::Keep => of(type_).cloned(),
            Change::Absent => None,
            Change::Set(value) => Some(condition(type_, value, of(type_), now)),
        })
        .collect()
}

fn is_true(reason: &str, message: &str) -> Change {
    Change::Set((ConditionStatus::True, reason.to_owned(), message.to_owned()))
}

fn change(type_: &str, known: &[SubscriptionCondition], facts: &ConditionFacts<'_>) -> Change {
    match type_ {
        "CatalogSourcesUnhealthy" => {
            let health = facts.health;
            Change::Set((health.status, health.reason.to_owned(), health.message.clone()))
        }
        "InstallPlanMissing" => match facts.plan {
            PlanFact::Missing => {
                let message = if is_plan_unfinished(known) { DELETED_UNFINISHED } else { "" };
                is_true("ReferencedInstallPlanNotFound", message)
            }
            PlanFact::None | PlanFact::Present(_) => Change::Absent,
        },
        "InstallPlanPending" => match plan_phase(facts.plan) {
            Some(None | Some(PlanPhase::None)) => is_true("InstallPlanNotYetReconciled", ""),
            Some(Some(PlanPhase::Planning)) => is_true("Planning", ""),
            Some(Some(PlanPhase::Installing)) => is_true("Installing", ""),
            Some(Some(PlanPhase::RequiresApproval)) => is_true("RequiresApproval", ""),
            Some(Some(PlanPhase::Complete | PlanPhase::Failed)) | None => Change::Absent,
        },
        "InstallPlanFailed" => failed_plan(facts.plan),
        "InstalledCSVMissing" => match facts.missing_csv {
            Some(csv) => is_true("ReferencedCSVNotFound", &missing_csv_message(csv)),
            None => Change::Absent,
        },
        "ResolutionFailed" => match &facts.resolution {
            ResolutionFact::NotTried => Change::Keep,
            ResolutionFact::Resolved => Change::Absent,
            ResolutionFact::Failed { reason, message } => is_true(reason, message),
        },
        "BundleUnpacking" => match &facts.unpack {
            UnpackFact::NotTried => Change::Keep,
            UnpackFact::InProgress { message } => is_true("UnpackingInProgress", message),
            UnpackFact::None | UnpackFact::Failed { .. } => Change::Absent,
        },
        "BundleUnpackFailed" => match &facts.unpack {
            UnpackFact::NotTried => Change::Keep,
            UnpackFact::Failed { reason, message } => is_true(reason, message),
            UnpackFact::None | UnpackFact::InProgress { .. } => Change::Absent,
        },
        type_ => match &facts.deprecations {
            None => Change::Keep,
            Some(list) => match list.iter().find(|(of, _)| *of == type_) {
                Some((_, message)) => is_true("", message),
                None => Change::Absent,
            },
        },
    }
}

pub(super) fn missing_csv_message(csv: &str) -> String {
    format!(
        "ClusterServiceVersion {csv}, which status.installedCSV names, was deleted; \
         to install the operator again, delete this Subscription and create it again"
    )
}

/// `None`: there is no plan. A plan without status has no phase.
fn plan_phase(plan: PlanFact<'_>) -> Option<Option<PlanPhase>> {
    match plan {
        PlanFact::None | PlanFact::Missing => None,
        PlanFact::Present(plan) => Some(PlanPhase::from_plan(plan)),
    }
}

/// Reason and message are those of the plan's condition Installed.
fn failed_plan(plan: PlanFact<'_>) -> Change {
    let PlanFact::Present(plan) = plan else { return Change::Absent };
    if PlanPhase::from_plan(plan) != Some(PlanPhase::Failed) {
        return Change::Absent;
    }
    let conditions = plan.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let installed = conditions.iter().find(|condition| condition.type_ == "Installed");
    match installed {
        Some(installed) if !installed.reason.is_empty() => is_true(&installed.reason, &installed.message),
        Some(_) | None => is_true("InstallPlanFailed", ""),
    }
}

fn condition(
    type_: &str,
    (status, reason, message): Value,
    known: Option<&SubscriptionCondition>,
    now: Timestamp,
) -> SubscriptionCondition {
    match known {
        Some(known) if known.status == status && known.reason == reason && known.message == message => {
            known.clone()
        }
        known => SubscriptionCondition {
            type_: type_.to_owned(),
            status,
            reason,
            message,
            last_heartbeat_time: None,
            last_transition_time: (known.filter(|known| known.status == status))
                .map_or(Some(Time(now)), |known| known.last_transition_time.clone()),
            unknown: Default::default(),
        },
    }
}
