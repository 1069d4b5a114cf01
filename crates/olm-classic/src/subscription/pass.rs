//! One pass over a namespace: from its Subscriptions to a plan, or why there is none.
//!
//! Rule: classic-apis §4. Unlike the reference, a plan that installs the same bundles and is not finished is used again, and after a plan
//! that failed there is a new one only with fail-forward (classic-apis §6.6): so a pass that changes nothing ends. A Subscription whose plan
//! failed holds up no other one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use olm_api::classic::install_plan::StepResource;
use olm_api::classic::subscription::SubscriptionStatus;
use olm_api::classic::{ClusterServiceVersion, InstallPlan, InstallPlanStatus, OperatorGroup, Subscription};
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_solver::{ChosenBundle, Solution};

use super::generated::subscribes;
use super::health::{CatalogFact, catalog_health};
use super::history::next_generation;
use super::resolve::held_back;
use super::state::{StateRule, StatusValues, decided, next_state, referenced_plan};
use crate::install_plan::{PlanError, PlanPhase, PlanRequest, PlannedBundle, install_plan};
use crate::operator::{is_ahead, is_announced};
use crate::operator_group::is_fail_forward;

const EXCLUDE_GLOBAL: &str = "olm.operatorframework.io/exclude-global-namespace-resolution";

/// A namespace as a pass sees it.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceFacts<'a> {
    pub namespace: &'a str,
    /// Namespace whose catalogs are available everywhere; [`NamespaceFacts::with_exclusion`] drops it if the OperatorGroup opts out.
    pub global_namespace: Option<&'a str>,
    pub groups: &'a [Arc<OperatorGroup>],
    pub subscriptions: &'a [Arc<Subscription>],
    /// Those of the namespace, without copies.
    pub csvs: &'a [Arc<ClusterServiceVersion>],
    pub plans: &'a [Arc<InstallPlan>],
    /// Those of the namespace and of the global namespace.
    pub catalogs: &'a [CatalogFact<'a>],
}

impl<'a> NamespaceFacts<'a> {
    /// The same without the global namespace if an OperatorGroup leaves it out.
    #[must_use]
    pub fn with_exclusion(self) -> Self {
        let excludes = |group: &Arc<OperatorGroup>| {
            let annotations = group.metadata.annotations.as_ref();
            annotations.and_then(|it| it.get(EXCLUDE_GLOBAL)).is_some_and(|value| value == "true")
        };
        let is_excluded = self.groups.iter().any(excludes);
        Self { global_namespace: self.global_namespace.filter(|_| !is_excluded), ..self }
    }

    pub fn is_fail_forward(&self) -> bool {
        self.groups.iter().any(|group| is_fail_forward(group))
    }

    /// Those of the namespace and, unless it is left out, of the global namespace.
    pub(crate) fn visible_catalogs(&self) -> Vec<CatalogFact<'a>> {
        let is_visible = |catalog: &&CatalogFact<'a>| {
            let of = catalog.namespace();
            of == self.namespace || Some(of) == self.global_namespace
        };
        self.catalogs.iter().filter(is_visible).copied().collect()
    }

    /// The Subscriptions that take part in resolution.
    fn moving(&self) -> Vec<&'a Arc<Subscription>> {
        self.subscriptions.iter().filter(|it| held_back(it, self).is_none()).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PassRule {
    NoSubscriptions,
    GroupCount,
    StateChanged,
    AllPending,
    CatalogUnhealthy,
    Resolves,
    NothingNew,
    PlanStillWaits,
    PlanUsedAgain,
    PlanMade,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct PassRow {
    pub rule: PassRule,
    pub guard: &'static str,
    pub result: &'static str,
    /// A shared record shows it; the others are in the specification only.
    pub is_recorded: bool,
}

/// Evaluated from the top; the last four after resolution.
pub const PASS_ROWS: [PassRow; 10] = [
    row(PassRule::NoSubscriptions, "there are no Subscriptions", "stop", true),
    row(PassRule::GroupCount, "there is not exactly one OperatorGroup", "error", true),
    row(
        PassRule::StateChanged,
        "the state of a Subscription changes",
        "write, and wait for the next pass",
        true,
    ),
    row(
        PassRule::AllPending,
        "every Subscription that takes part in resolution waits for its plan, which is being executed",
        "stop",
        true,
    ),
    row(
        PassRule::CatalogUnhealthy,
        "every Subscription needs a catalog that is there and not healthy",
        "stop",
        false,
    ),
    row(PassRule::Resolves, "none of these", "resolve", true),
    row(PassRule::NothingNew, "nothing is to be installed", "stop", true),
    row(PassRule::PlanStillWaits, "the plans that wait for approval install the same", "stop", true),
    row(PassRule::PlanUsedAgain, "an unfinished plan installs the same", "refer to it", false),
    row(PassRule::PlanMade, "something is to be installed", "make a plan", true),
];

const fn row(rule: PassRule, guard: &'static str, result: &'static str, is_recorded: bool) -> PassRow {
    PassRow { rule, guard, result, is_recorded }
}

/// Why a namespace cannot be resolved at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    #[error(
        "found {0} operatorGroups, expected 1; {fix} in the namespace",
        fix = if *(.0) == 0 { "create one" } else { "delete all but one" }
    )]
    GroupCount(usize),
}

/// What a pass does before resolution.
#[derive(Debug, Clone, PartialEq)]
pub enum Pass {
    /// Nothing, before something else changes.
    Stop(PassRule),
    /// The states that changed, by the places of the Subscriptions. The next pass continues.
    Write(Vec<(usize, StateRule, StatusValues)>),
    Resolve,
}

/// Begins a pass.
///
/// # Errors
/// When there is not exactly one OperatorGroup.
pub fn begin_pass(facts: &NamespaceFacts<'_>, now: Timestamp) -> Result<Pass, PassError> {
    if facts.subscriptions.is_empty() {
        return Ok(Pass::Stop(PassRule::NoSubscriptions));
    }
    if facts.groups.len() != 1 {
        return Err(PassError::GroupCount(facts.groups.len()));
    }
    let mut changed = Vec::new();
    for (index, subscription) in facts.subscriptions.iter().enumerate() {
        let decision = next_state(subscription, facts);
        if decision.status != StatusValues::from_subscription(subscription) {
            changed.push((index, decision.rule, decision.status));
        }
    }
    if !changed.is_empty() {
        return Ok(Pass::Write(changed));
    }
    let moving = facts.moving();
    let is_pending = |it: &&Arc<Subscription>| pending_plan(it, facts.plans).is_some();
    // if none takes part, what an earlier resolution reported ends
    if !moving.is_empty() && moving.iter().all(is_pending) && awaiting_approval(facts).is_empty() {
        return Ok(Pass::Stop(PassRule::AllPending));
    }
    let catalogs = facts.visible_catalogs();
    let is_stopped = |it: &Arc<Subscription>| catalog_health(it, &catalogs, now).is_needed;
    if facts.subscriptions.iter().all(is_stopped) {
        return Ok(Pass::Stop(PassRule::CatalogUnhealthy));
    }
    Ok(Pass::Resolve)
}

/// The plan for whose ClusterServiceVersion a Subscription waits.
fn pending_plan<'a>(subscription: &Subscription, plans: &'a [Arc<InstallPlan>]) -> Option<&'a InstallPlan> {
    let is_pending = subscription.status.as_ref().is_some_and(|status| status.state == "UpgradePending");
    referenced_plan(subscription, plans).filter(|_| is_pending)
}

/// The plans for which Subscriptions wait, if every one that takes part in resolution waits for a plan that waits for approval; else none.
fn awaiting_approval<'a>(facts: &NamespaceFacts<'a>) -> Vec<&'a InstallPlan> {
    let pending = facts.moving().into_iter().map(|it| pending_plan(it, facts.plans));
    let pending = pending.map(|plan| plan.filter(|it| is_awaiting_approval(it)));
    pending.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Whether the plans for whose approval all Subscriptions wait install exactly this (row [`PassRule::PlanStillWaits`]), beside what the
/// Subscriptions wait for that were left out of the resolution. The pass ends before anything is unpacked or planned.
pub fn is_awaiting(
    facts: &NamespaceFacts<'_>,
    new: &[&ChosenBundle],
    left_out: &BTreeMap<String, String>,
) -> bool {
    let (plans, unresolved) = (awaiting_approval(facts), unresolved(facts, left_out));
    let new: BTreeSet<&str> = new.iter().map(|bundle| bundle.name.as_str()).collect();
    let of_plans = plans.iter().flat_map(|plan| &plan.spec.cluster_service_version_names);
    let of_plans = of_plans.map(String::as_str).filter(|it| new.contains(it) || !unresolved.contains(it));
    let of_plans: BTreeSet<&str> = of_plans.collect();
    !of_plans.is_empty() && of_plans == new
}

/// The versions for which only Subscriptions wait that were left out of the resolution, by their names: nothing shows that another one is to
/// be installed.
fn unresolved<'a>(facts: &NamespaceFacts<'a>, left_out: &BTreeMap<String, String>) -> BTreeSet<&'a str> {
    let is_left_out =
        |it: &Subscription| it.metadata.name.as_ref().is_some_and(|it| left_out.contains_key(it));
    let (out, others): (Vec<_>, Vec<_>) = facts.subscriptions.iter().partition(|it| is_left_out(it));
    let others = others.into_iter().filter_map(|it| it.status.as_ref());
    let current: BTreeSet<&str> = others.map(|status| status.current_csv.as_str()).collect();
    let plans = out.into_iter().filter_map(|it| pending_plan(it, facts.plans));
    let versions = plans.flat_map(|plan| &plan.spec.cluster_service_version_names).map(String::as_str);
    versions.filter(|it| !current.contains(it)).collect()
}

/// What a pass does after resolution.
#[derive(Debug, Clone, PartialEq)]
pub enum Conclusion {
    NothingNew,
    /// A plan that is there is used. It gets this status if it has none: the controller ended before it wrote one.
    UseAgain {
        name: String,
        status: Option<Box<InstallPlanStatus>>,
        /// As of [`Self::Make`].
        superseded: Vec<String>,
    },
    /// Created, then its status is written, then those of [`planned_statuses`].
    Make {
        plan: Box<InstallPlan>,
        /// Names of plans whose steps have not begun and that are deleted before: this one takes their place.
        superseded: Vec<String>,
    },
}

impl Conclusion {
    pub fn rule(&self) -> PassRule {
        match self {
            Self::NothingNew => PassRule::NothingNew,
            Self::UseAgain { .. } => PassRule::PlanUsedAgain,
            Self::Make { .. } => PassRule::PlanMade,
        }
    }

    /// Names of plans that are deleted first.
    pub fn superseded(&self) -> &[String] {
        match self {
            Self::NothingNew => &[],
            Self::UseAgain { superseded, .. } | Self::Make { superseded, .. } => superseded,
        }
    }
}

/// The bundles of a solution that a plan has to install: the others are current and there.
pub fn new_bundles<'a>(facts: &NamespaceFacts<'_>, solution: &'a Solution) -> Vec<&'a ChosenBundle> {
    let exists = |name: &str| facts.csvs.iter().any(|csv| csv.metadata.name.as_deref() == Some(name));
    let is_current = |name: &str| {
        let mut statuses = facts.subscriptions.iter().filter_map(|it| it.status.as_ref());
        statuses.any(|status| status.current_csv == name)
    };
    solution.bundles.iter().filter(|it| !(is_current(&it.name) && exists(&it.name))).collect()
}

/// Ends a pass whose resolution succeeded, but for Subscriptions that were left out of it, by their names. `bundles` has the content of each
/// of the [`new_bundles`], all unpacked.
///
/// # Errors
/// When the content of a bundle cannot be used.
pub fn conclude_pass(
    facts: &NamespaceFacts<'_>,
    solution: &Solution,
    bundles: &[PlannedBundle<'_>],
    left_out: &BTreeMap<String, String>,
) -> Result<Conclusion, PlanError> {
    let new = new_bundles(facts, solution);
    if new.is_empty() {
        return Ok(Conclusion::NothingNew);
    }
    let bundles: Vec<PlannedBundle<'_>> =
        bundles.iter().filter(|it| new.contains(&it.chosen)).copied().collect();
    let plan = install_plan(PlanRequest {
        namespace: facts.namespace,
        generation: next_generation(facts.plans, facts.subscriptions),
        subscriptions: facts.subscriptions,
        bundles: &bundles,
    })?;
    let mut superseded = superseded(facts, &plan, left_out);
    let used = facts.plans.iter().find(|old| installs_the_same(old, &plan, facts));
    let Some(used) = used else {
        return Ok(Conclusion::Make { plan: Box::new(plan), superseded });
    };
    let name = used.metadata.name.clone().unwrap_or_default();
    superseded.retain(|other| *other != name);
    let status = if used.status.is_none() { plan.status.map(Box::new) } else { None };
    Ok(Conclusion::UseAgain { name, status, superseded })
}

/// The plans whose steps have not begun and that install a version that the new plan does not: those for whose approval a Subscription waits,
/// and those to which none has ever referred, because the controller ended between making them and that. Of the latter also those of the same
/// versions with other steps: once the Subscriptions refer to the new plan, the steps would begin. What Subscriptions wait for that were
/// left out of the resolution is no reason.
fn superseded(
    facts: &NamespaceFacts<'_>,
    new: &InstallPlan,
    left_out: &BTreeMap<String, String>,
) -> Vec<String> {
    let (planned, unresolved) = (&new.spec.cluster_service_version_names, unresolved(facts, left_out));
    let is_kept = |it: &String| planned.contains(it) || unresolved.contains(it.as_str());
    let is_superseded = |old: &&InstallPlan| !old.spec.cluster_service_version_names.iter().all(is_kept);
    let has_other_steps =
        |old: &&InstallPlan| old.spec.cluster_service_version_names.iter().all(|it| planned.contains(it));
    let referenced = facts.subscriptions.iter().filter_map(|it| pending_plan(it, facts.plans));
    let referenced = referenced.filter(|plan| is_awaiting_approval(plan));
    let is_unreferenced =
        |plan: &&InstallPlan| facts.subscriptions.iter().all(|it| is_ahead(plan.spec.generation, it));
    let unreferenced = facts.plans.iter().map(|it| &**it).filter(is_unreferenced);
    let unreferenced = unreferenced.filter(|plan| match PlanPhase::from_plan(plan) {
        Some(PlanPhase::RequiresApproval) => true,
        Some(PlanPhase::Installing) => !is_announced(plan, facts.subscriptions.iter().map(|it| &**it)),
        Some(PlanPhase::None | PlanPhase::Planning | PlanPhase::Complete | PlanPhase::Failed) => false,
        None => plan.spec.generation.is_some(),
    });
    let unreferenced = unreferenced.filter(|plan| is_superseded(plan) || has_other_steps(plan));
    let names = referenced.filter(is_superseded).chain(unreferenced);
    names.filter_map(|it| it.metadata.name.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// One that was approved is about to be executed.
fn is_awaiting_approval(plan: &InstallPlan) -> bool {
    PlanPhase::from_plan(plan) == Some(PlanPhase::RequiresApproval) && !plan.spec.approved
}

/// Whether a plan has the steps of a new one, and is not finished, or failed and is to be retried. Plans without generation are not ours.
fn installs_the_same(old: &InstallPlan, new: &InstallPlan, facts: &NamespaceFacts<'_>) -> bool {
    let steps = |plan: &InstallPlan| -> Option<Vec<StepResource>> {
        let status = plan.status.as_ref()?;
        Some(status.plan.iter().map(|step| step.resource.clone()).collect())
    };
    let refers = |it: &Arc<Subscription>| {
        referenced_plan(it, facts.plans).is_some_and(|plan| plan.metadata.name == old.metadata.name)
    };
    let is_used = match PlanPhase::from_plan(old) {
        None => old.spec.generation.is_some(),
        // what depends on its version does not make another one again and again
        Some(PlanPhase::Failed) => {
            !facts.is_fail_forward() && facts.subscriptions.iter().any(refers) && steps(old) == steps(new)
        }
        Some(phase) => !phase.is_final() && steps(old) == steps(new),
    };
    is_used
        && old.spec.cluster_service_version_names == new.spec.cluster_service_version_names
        && old.spec.approval == new.spec.approval
}

/// The states after a plan was made or found, by the places of the Subscriptions: of those whose bundle it installs.
pub fn planned_statuses(
    facts: &NamespaceFacts<'_>,
    solution: &Solution,
    plan: &InstallPlan,
) -> Vec<(usize, StatusValues)> {
    let planned = &plan.spec.cluster_service_version_names;
    let mut changed = Vec::new();
    for (index, subscription) in facts.subscriptions.iter().enumerate() {
        let mut chosen = solution.bundles.iter().filter(|it| subscribes(subscription, it));
        let Some(chosen) = chosen.find(|it| planned.contains(&it.name)) else { continue };
        let mut status = StatusValues::from_subscription(subscription);
        status.current_csv.clone_from(&chosen.name);
        status.refer_to(plan);
        status.install_plan_generation = plan.spec.generation;
        let status = decided(StateRule::Planned, status).status;
        if status != StatusValues::from_subscription(subscription) {
            changed.push((index, status));
        }
    }
    changed
}

/// A status for a Subscription that has none.
pub fn new_status(now: Timestamp) -> SubscriptionStatus {
    SubscriptionStatus {
        current_csv: String::new(),
        installed_csv: String::new(),
        install_plan: None,
        state: String::new(),
        reason: String::new(),
        install_plan_generation: None,
        install_plan_ref: None,
        catalog_health: Vec::new(),
        conditions: Vec::new(),
        last_updated: Time(now),
        unknown: Default::default(),
    }
}
