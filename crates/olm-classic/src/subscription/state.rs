//! The state of a Subscription: one row for each transition.
//!
//! Rule: classic-apis §3.3 and §4 rows 4 and 11.

use std::sync::Arc;

use olm_api::classic::subscription::{InstallPlanReference, SubscriptionStatus};
use olm_api::classic::{ClusterServiceVersion, GROUP, InstallPlan, Subscription};
use olm_api::k8s_openapi::api::core::v1::ObjectReference;

use super::conditions::is_plan_unfinished;
use super::pass::NamespaceFacts;
use super::resolve::is_on_its_way_out;
use crate::csv::Reason;
use crate::install_plan::PlanPhase;
use crate::operator;

/// Annotation with the plan that made a Subscription.
const GENERATED_BY: &str = "olm.generated-by";

olm_core::words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum SubscriptionState {
        New = "",
        UpgradeAvailable = "UpgradeAvailable",
        UpgradePending = "UpgradePending",
        AtLatestKnown = "AtLatestKnown",
        UpgradeFailed = "UpgradeFailed",
    }
}

impl SubscriptionState {
    /// That of a Subscription; a word that is no state counts as new.
    pub fn from_subscription(subscription: &Subscription) -> Self {
        let state = subscription.status.as_ref().map(|status| status.state.as_str()).unwrap_or_default();
        state.parse().unwrap_or(Self::New)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateRule {
    New,
    TakenOver,
    TakenOverPending,
    Adopted,
    Abandoned,
    PlanVanished,
    PlanFailed,
    Pending,
    Installed,
    Latest,
    CsvDeleted,
    Planned,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct StateRow {
    pub rule: StateRule,
    /// Empty: any state.
    pub from: &'static [SubscriptionState],
    pub to: SubscriptionState,
    pub guard: &'static str,
    /// A shared record shows it; the others are in the specification only.
    pub is_recorded: bool,
}

use SubscriptionState::{AtLatestKnown, New, UpgradeAvailable, UpgradeFailed, UpgradePending};

/// Evaluated from the top; the first row whose guard holds is taken. The last is taken at the end of a pass.
pub const STATE_ROWS: [StateRow; 12] = [
    row(
        StateRule::TakenOver,
        &[New],
        AtLatestKnown,
        "the plan of the annotation olm.generated-by lists startingCSV, which exists",
        true,
    ),
    row(
        StateRule::TakenOverPending,
        &[New],
        UpgradePending,
        "the plan of the annotation olm.generated-by lists startingCSV, which does not exist yet",
        false,
    ),
    row(
        StateRule::Adopted,
        &[],
        AtLatestKnown,
        "no currentCSV, but the one that an earlier Subscription to the package installed; or what has replaced it",
        false,
    ),
    row(StateRule::New, &[], New, "no currentCSV", true),
    row(
        StateRule::Abandoned,
        &[],
        New,
        "currentCSV waits for its requirements, and its plan was deleted before it was complete",
        false,
    ),
    row(StateRule::Latest, &[AtLatestKnown], AtLatestKnown, "currentCSV exists", true),
    row(
        StateRule::Installed,
        &[New, UpgradeAvailable, UpgradePending, UpgradeFailed],
        AtLatestKnown,
        "currentCSV exists",
        true,
    ),
    row(
        StateRule::PlanVanished,
        &[New, UpgradeAvailable, UpgradePending, UpgradeFailed],
        New,
        "currentCSV does not exist, nor does its plan",
        true,
    ),
    row(
        StateRule::PlanFailed,
        &[UpgradePending, UpgradeFailed],
        UpgradeFailed,
        "currentCSV does not exist, its plan failed, and fail-forward is on",
        false,
    ),
    row(
        StateRule::CsvDeleted,
        &[],
        UpgradePending,
        "currentCSV does not exist any more: it was installed, or its plan is complete",
        false,
    ),
    row(
        StateRule::Pending,
        &[New, UpgradeAvailable, UpgradePending, UpgradeFailed],
        UpgradePending,
        "currentCSV does not exist yet",
        true,
    ),
    row(StateRule::Planned, &[], UpgradePending, "a plan was made", true),
];

const fn row(
    rule: StateRule,
    from: &'static [SubscriptionState],
    to: SubscriptionState,
    guard: &'static str,
    is_recorded: bool,
) -> StateRow {
    StateRow { rule, from, to, guard, is_recorded }
}

/// The state that a Subscription has now. Conditions and health are as they were.
#[derive(Debug, Clone, PartialEq)]
pub struct StateDecision {
    pub rule: StateRule,
    /// Values of the status: state, currentCSV, installedCSV and the plan.
    pub status: StatusValues,
}

/// What the pass over a namespace decides of a status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StatusValues {
    pub state: String,
    pub current_csv: String,
    pub installed_csv: String,
    pub install_plan: Option<InstallPlanReference>,
    pub install_plan_ref: Option<ObjectReference>,
    pub install_plan_generation: Option<i64>,
}

impl StatusValues {
    pub(super) fn from_subscription(subscription: &Subscription) -> Self {
        let Some(status) = &subscription.status else { return Self::default() };
        Self {
            state: status.state.clone(),
            current_csv: status.current_csv.clone(),
            installed_csv: status.installed_csv.clone(),
            install_plan: status.install_plan.clone(),
            install_plan_ref: status.install_plan_ref.clone(),
            install_plan_generation: status.install_plan_generation,
        }
    }

    /// Into a status, which keeps everything else.
    pub fn write_to(self, status: &mut SubscriptionStatus) {
        status.state = self.state;
        status.current_csv = self.current_csv;
        status.installed_csv = self.installed_csv;
        status.install_plan = self.install_plan;
        status.install_plan_ref = self.install_plan_ref;
        status.install_plan_generation = self.install_plan_generation;
    }

    pub(super) fn refer_to(&mut self, plan: &InstallPlan) {
        let metadata = &plan.metadata;
        let api_version = format!("{GROUP}/v1alpha1");
        self.install_plan = Some(InstallPlanReference {
            api_version: api_version.clone(),
            kind: "InstallPlan".to_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            uuid: metadata.uid.clone().unwrap_or_default(),
            unknown: Default::default(),
        });
        self.install_plan_ref = Some(ObjectReference {
            api_version: Some(api_version),
            kind: Some("InstallPlan".to_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        });
    }
}

/// Whether a reference is to this plan: one of its name that was created again is another one.
pub(super) fn is_plan_of(reference: &ObjectReference, plan: &InstallPlan) -> bool {
    let metadata = &plan.metadata;
    metadata.name == reference.name && (reference.uid.is_none() || metadata.uid == reference.uid)
}

/// The plan to which the status refers.
pub(super) fn referenced_plan<'a>(
    subscription: &Subscription,
    plans: &'a [Arc<InstallPlan>],
) -> Option<&'a InstallPlan> {
    let reference = subscription.status.as_ref()?.install_plan_ref.as_ref()?;
    plans.iter().find(|plan| is_plan_of(reference, plan)).map(|plan| &**plan)
}

/// The plan that made the Subscription and lists its startingCSV.
fn generating_plan<'a>(
    subscription: &Subscription,
    plans: &'a [Arc<InstallPlan>],
) -> Option<&'a InstallPlan> {
    let name = subscription.metadata.annotations.as_ref()?.get(GENERATED_BY)?;
    let lists = |plan: &&Arc<InstallPlan>| {
        plan.metadata.name.as_ref() == Some(name)
            && plan.spec.cluster_service_version_names.contains(&subscription.spec.starting_csv)
    };
    plans.iter().find(lists).map(|plan| &**plan)
}

/// Whether a plan makes a Subscription to the package for the ClusterServiceVersion. If the user had subscribed before, that Subscription
/// serves instead.
fn subscribes(plan: &InstallPlan, csv: &str, package: &str) -> bool {
    let mut steps = plan.status.iter().flat_map(|status| &status.plan);
    steps.any(|step| {
        step.resolving == csv
            && step.resource.kind == "Subscription"
            && serde_json::from_str::<Subscription>(&step.resource.manifest)
                .is_ok_and(|made| made.spec.package == package)
    })
}

/// The ClusterServiceVersion that an earlier Subscription to the package installed, which is known by its label (classic-apis §12), or that
/// came with this Subscription of a plan that is gone, or with a plan that would have made it: the only one of the namespace to which no other Subscription refers. One that has never succeeded was not installed: its plan went with the
/// earlier Subscription, and may have ended half-way.
fn left_behind<'a>(subscription: &Subscription, facts: &NamespaceFacts<'a>) -> Option<&'a str> {
    let name = &subscription.metadata.name;
    let others = || facts.subscriptions.iter().filter(|other| other.metadata.name != *name);
    let package = &subscription.spec.package;
    if others().any(|other| other.spec.package == *package) {
        return None;
    }
    let label = operator::label(&operator::name(package, facts.namespace));
    let is_generated =
        subscription.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(GENERATED_BY));
    let is_of_its_plan = |csv: &ClusterServiceVersion| {
        let name = csv.metadata.name.as_deref().unwrap_or_default();
        is_generated && name == subscription.spec.starting_csv
            || facts.plans.iter().any(|plan| subscribes(plan, name, package))
    };
    let is_left = |csv: &&Arc<ClusterServiceVersion>| {
        let metadata = &csv.metadata;
        let is_labelled = metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(&label));
        metadata.deletion_timestamp.is_none()
            && (is_labelled || is_of_its_plan(csv))
            && has_succeeded(csv)
            && !is_referenced(csv, subscription, facts)
            && !is_on_its_way_out(csv, facts.csvs)
    };
    let mut left = facts.csvs.iter().filter(is_left);
    let found = left.next().filter(|_| left.next().is_none())?;
    found.metadata.name.as_deref()
}

/// What has replaced the installed ClusterServiceVersion without this Subscription: made by hand, or by a plan of an earlier Subscription.
fn replacement<'a>(subscription: &Subscription, facts: &NamespaceFacts<'a>) -> Option<&'a str> {
    let status = subscription.status.as_ref().filter(|status| !status.installed_csv.is_empty())?;
    let is_it = |csv: &&Arc<ClusterServiceVersion>| {
        status.current_csv == status.installed_csv
            && csv.spec.replaces == status.installed_csv
            && csv.metadata.deletion_timestamp.is_none()
            && has_succeeded(csv)
            && !is_referenced(csv, subscription, facts)
    };
    facts.csvs.iter().find(is_it)?.metadata.name.as_deref()
}

/// Whether another Subscription refers to a ClusterServiceVersion.
fn is_referenced(csv: &ClusterServiceVersion, by_other: &Subscription, facts: &NamespaceFacts<'_>) -> bool {
    let name = csv.metadata.name.as_deref().unwrap_or_default();
    let others = facts.subscriptions.iter().filter(|other| other.metadata.name != by_other.metadata.name);
    let mut statuses = others.filter_map(|other| other.status.as_ref());
    statuses.any(|status| status.current_csv == name || status.installed_csv == name)
}

fn has_succeeded(csv: &ClusterServiceVersion) -> bool {
    const SUCCEEDED: &str = "Succeeded";
    csv.status.as_ref().is_some_and(|status| {
        status.phase == SUCCEEDED || status.conditions.iter().any(|earlier| earlier.phase == SUCCEEDED)
    })
}

fn is_of_the_group(reason: &str) -> bool {
    reason.parse().is_ok_and(Reason::is_of_the_group)
}

/// Whether a ClusterServiceVersion has only ever waited for its requirements, which a plan that was not complete may not have made, or for its
/// OperatorGroup.
fn is_incomplete(csv: &ClusterServiceVersion) -> bool {
    const PENDING: &str = "Pending";
    csv.status.as_ref().is_some_and(|status| {
        status.phase == PENDING
            && status.reason == "RequirementsNotMet"
            && status
                .conditions
                .iter()
                .all(|earlier| earlier.phase == PENDING || is_of_the_group(&earlier.reason))
    })
}

/// Whether a plan has made a ClusterServiceVersion.
fn has_made(plan: &InstallPlan, csv: &str) -> bool {
    PlanPhase::from_plan(plan) == Some(PlanPhase::Complete)
        && plan.spec.cluster_service_version_names.iter().any(|name| name == csv)
}

/// What the cluster and the plans mean for a Subscription.
pub fn next_state(subscription: &Subscription, facts: &NamespaceFacts<'_>) -> StateDecision {
    let (csvs, plans, is_fail_forward) = (facts.csvs, facts.plans, facts.is_fail_forward());
    let exists = |name: &str| csvs.iter().any(|csv| csv.metadata.name.as_deref() == Some(name));
    let state = SubscriptionState::from_subscription(subscription);
    let mut status = StatusValues::from_subscription(subscription);
    let is_unplanned = status.current_csv.is_empty() && status.install_plan_ref.is_none();
    if let Some(plan) = generating_plan(subscription, plans).filter(|_| is_unplanned) {
        status.refer_to(plan);
        status.current_csv.clone_from(&subscription.spec.starting_csv);
        let rule = if exists(&status.current_csv) {
            status.installed_csv.clone_from(&status.current_csv);
            StateRule::TakenOver
        } else {
            StateRule::TakenOverPending
        };
        return decided(rule, status);
    }
    if status.current_csv.is_empty() {
        if let Some(csv) = left_behind(subscription, facts).filter(|_| is_unplanned) {
            (status.current_csv, status.installed_csv) = (csv.to_owned(), csv.to_owned());
            return decided(StateRule::Adopted, status);
        }
        return decided(StateRule::New, status);
    }
    let plan = referenced_plan(subscription, plans);
    if let Some(csv) = csvs.iter().find(|csv| csv.metadata.name.as_ref() == Some(&status.current_csv)) {
        let conditions = subscription.status.as_ref().map(|status| status.conditions.as_slice());
        let is_unfinished = status.install_plan_ref.is_some()
            && plan.is_none()
            && is_plan_unfinished(conditions.unwrap_or_default());
        // resolution then names it as what is in the way, and begins again when it is deleted
        if is_unfinished && is_incomplete(csv) {
            (status.current_csv, status.installed_csv) = (String::new(), String::new());
            (status.install_plan, status.install_plan_ref) = (None, None);
            return decided(StateRule::Abandoned, status);
        }
        status.installed_csv.clone_from(&status.current_csv);
        let is_latest = state == AtLatestKnown;
        return decided(if is_latest { StateRule::Latest } else { StateRule::Installed }, status);
    }
    if let Some(csv) = replacement(subscription, facts) {
        (status.current_csv, status.installed_csv) = (csv.to_owned(), csv.to_owned());
        return decided(StateRule::Adopted, status);
    }
    if state == AtLatestKnown {
        return decided(StateRule::CsvDeleted, status);
    }
    let was_installed = status.installed_csv == status.current_csv;
    match plan {
        // what was installed and deleted is not installed again
        None if !was_installed => {
            status.current_csv = String::new();
            (status.install_plan, status.install_plan_ref) = (None, None);
            // the next plan still gets a higher number
            if exists(&status.installed_csv) {
                status.current_csv.clone_from(&status.installed_csv);
            }
            decided(StateRule::PlanVanished, status)
        }
        // what it made was deleted before a pass saw it
        Some(plan) if has_made(plan, &status.current_csv) => {
            status.installed_csv.clone_from(&status.current_csv);
            decided(StateRule::CsvDeleted, status)
        }
        Some(plan)
            if is_fail_forward
                && PlanPhase::from_plan(plan) == Some(PlanPhase::Failed)
                && matches!(state, UpgradePending | UpgradeFailed) =>
        {
            decided(StateRule::PlanFailed, status)
        }
        None | Some(_) => decided(StateRule::Pending, status),
    }
}

pub(super) fn decided(rule: StateRule, mut status: StatusValues) -> StateDecision {
    let row = STATE_ROWS.iter().find(|row| row.rule == rule);
    let to = row.map_or(New, |row| row.to);
    to.as_str().clone_into(&mut status.state);
    StateDecision { rule, status }
}
