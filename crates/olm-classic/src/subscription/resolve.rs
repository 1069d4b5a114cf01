//! The solver's input for a namespace.
//!
//! Rule: update-graph §7.1. Unlike the reference, a ClusterServiceVersion that is being replaced or deleted is not installed any more:
//! it would stop every resolution until it is gone (classic-apis §17). Only the Subscription whose upgrade has not ended waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_api::classic::{ClusterServiceVersion, Subscription};
use olm_resolver::{GvkRef, Property};
use olm_solver::{Catalog, CatalogSource, InstalledCsv, Namespace};
use serde_json::Value;

use super::conditions::{ResolutionFact, missing_csv_message};
use super::pass::NamespaceFacts;
use super::state::referenced_plan;
use super::status::missing_csv;
use crate::catalog_source::solver_source;
use crate::csv::Reason;
use crate::install_plan::{PROPERTIES_ANNOTATION, PlanPhase, plan_wait};
use crate::operator_group::{FAIL_FORWARD, is_copy};

/// `content` gives the content of each catalog, or why there is none. `global_namespace` is `None` if the OperatorGroup leaves it out.
pub fn solver_namespace(
    facts: &NamespaceFacts<'_>,
    mut content: impl FnMut(&str, &str) -> Result<Arc<Catalog>, String>,
) -> Namespace {
    let catalogs = facts.catalogs.iter().map(|catalog| {
        let content = content(catalog.namespace(), catalog.name());
        solver_source(catalog.source, content)
    });
    let catalogs: Vec<CatalogSource> = catalogs.collect();
    let offered = |it: &Subscription| {
        let spec = &it.spec;
        let is_named = |of: &&CatalogSource| of.name == spec.source && of.namespace == spec.source_namespace;
        offered_successor(it, facts, catalogs.iter().find(is_named)?.content.as_ref().ok()?)
    };
    let taken_over: BTreeSet<&str> = facts.subscriptions.iter().filter_map(|it| offered(it)).collect();
    let subscriptions = facts.subscriptions.iter().filter_map(|subscription| {
        let (spec, status) = (&subscription.spec, subscription.status.as_ref());
        let (starting_csv, installed_csv) = match offered(subscription) {
            Some(successor) => (successor.to_owned(), String::new()),
            None if held_back(subscription, facts).is_some() => return None,
            None => {
                let installed = status.map(|status| status.installed_csv.clone());
                (spec.starting_csv.clone(), installed.unwrap_or_default())
            }
        };
        Some(olm_solver::Subscription {
            name: subscription.metadata.name.clone().unwrap_or_default(),
            package: spec.package.clone(),
            channel: spec.channel.clone(),
            catalog: spec.source.clone(),
            catalog_namespace: spec.source_namespace.clone(),
            starting_csv,
            installed_csv,
        })
    });
    let subscriptions: Vec<_> = subscriptions.collect();
    let stays = |csv: &&Arc<ClusterServiceVersion>| {
        let name = csv.metadata.name.as_deref().unwrap_or_default();
        !is_on_its_way_out(csv, facts.csvs) && !taken_over.contains(name)
    };
    let installed = facts.csvs.iter().filter(stays).map(|csv| installed(csv)).collect();
    Namespace {
        name: facts.namespace.to_owned(),
        global_namespace: facts.global_namespace.map(str::to_owned),
        fail_forward: facts.is_fail_forward(),
        catalogs,
        subscriptions,
        installed,
    }
}

/// The successor that a person made of the version of a Subscription, if the channel of the Subscription has that upgrade, too. The
/// Subscription installs it like any other: the plan makes the accounts and roles that the successor may lack.
fn offered_successor<'a>(
    subscription: &Subscription,
    facts: &NamespaceFacts<'a>,
    catalog: &Catalog,
) -> Option<&'a str> {
    let csv = find(facts, &subscription.status.as_ref()?.installed_csv)?;
    let successor = successor(csv, facts.csvs).filter(|_| is_on_its_way_out(csv, facts.csvs))?;
    let successor = successor.metadata.name.as_deref()?;
    let mut statuses = facts.subscriptions.iter().filter_map(|it| it.status.as_ref());
    if failed_plan(subscription, facts).is_some()
        || statuses.any(|it| it.current_csv == successor || it.installed_csv == successor)
    {
        return None;
    }
    upgrades(subscription, csv, catalog).any(|name| name == successor).then_some(successor)
}

/// What the channel of a Subscription has for an upgrade of a ClusterServiceVersion.
fn upgrades<'a>(
    subscription: &Subscription,
    csv: &ClusterServiceVersion,
    catalog: &'a Catalog,
) -> impl Iterator<Item = &'a str> {
    let (spec, name) = (&subscription.spec, csv.metadata.name.as_deref().unwrap_or_default());
    catalog.upgrades(&spec.package, &spec.channel, (name, csv.spec.version.as_str()))
}

/// The Subscriptions that take part in no resolution now, so that the input of the solver does not have them, and why.
pub fn waiting(facts: &NamespaceFacts<'_>, input: &Namespace) -> Vec<(String, String)> {
    let waits = |subscription: &Arc<Subscription>| {
        let name = subscription.metadata.name.clone().unwrap_or_default();
        let is_resolved = input.subscriptions.iter().any(|it| it.name == name);
        (!is_resolved).then_some((name, held_back(subscription, facts)?))
    };
    facts.subscriptions.iter().filter_map(waits).collect()
}

/// Why a Subscription takes part in no resolution now, unless its channel has the successor that a person made of its version; `None` if it
/// does. The others of its namespace are resolved without it.
pub(super) fn held_back(subscription: &Subscription, facts: &NamespaceFacts<'_>) -> Option<String> {
    deleted_csv(subscription, facts)
        .or_else(|| failed_plan(subscription, facts))
        .or_else(|| unfinished_upgrade(subscription, facts))
}

/// Its version was deleted, which is how an operator is removed (decision 54): it is not installed again.
fn deleted_csv(subscription: &Subscription, facts: &NamespaceFacts<'_>) -> Option<String> {
    missing_csv(subscription.status.as_ref()?, facts).map(missing_csv_message)
}

/// Its plan failed, and another one follows only with fail-forward (classic-apis §6.6). A version that has succeeded nevertheless is upgraded.
fn failed_plan(subscription: &Subscription, facts: &NamespaceFacts<'_>) -> Option<String> {
    let plan = referenced_plan(subscription, facts.plans)?;
    let current = find(facts, &subscription.status.as_ref()?.current_csv);
    let is_held = PlanPhase::from_plan(plan) == Some(PlanPhase::Failed)
        && !facts.is_fail_forward()
        && current.is_none_or(|csv| phase(csv) != "Succeeded");
    is_held.then(|| {
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        format!("InstallPlan {name} failed: {}", plan_wait(plan).unwrap_or_default())
    })
}

/// Its version still replaces the one before it, and no next version follows until that has succeeded; with fail-forward, also after it failed
/// (classic-apis §6.6). Nor does one while the user replaces its version by another one.
pub(super) fn unfinished_upgrade(subscription: &Subscription, facts: &NamespaceFacts<'_>) -> Option<String> {
    let csv = find(facts, subscription.status.as_ref()?.installed_csv.as_str())?;
    if is_on_its_way_out(csv, facts.csvs) {
        return Some(replaced_by_user(csv, facts));
    }
    let before = replaced_still(csv, facts)?;
    Some(if is_stuck(before) { stuck_message(csv, before) } else { unfinished_message(csv) })
}

fn unfinished_message(csv: &ClusterServiceVersion) -> String {
    let name = csv.metadata.name.as_deref().unwrap_or_default();
    let (phase, replaced) = (phase(csv), &csv.spec.replaces);
    let remedy = match phase {
        "Failed" => format!(
            "; repair what status.message of {name} names, or set spec.upgradeStrategy of the OperatorGroup to {FAIL_FORWARD}"
        ),
        _ if is_not_upgradeable(csv) => format!(
            "; wait until the operator is upgradeable, or set spec.overrides of OperatorCondition {replaced}"
        ),
        _ => String::new(),
    };
    format!(
        "ClusterServiceVersion {name} is {phase} and has not replaced {replaced} yet; no next version is installed before{remedy}"
    )
}

/// What a version that has not ended replaces, if that is there.
fn replaced_still<'a>(
    csv: &ClusterServiceVersion,
    facts: &NamespaceFacts<'a>,
) -> Option<&'a ClusterServiceVersion> {
    let has_ended = match phase(csv) {
        "Succeeded" => true,
        "Failed" => facts.is_fail_forward(),
        _ => false,
    };
    let replaced = csv.spec.replaces.as_str();
    if has_ended || csv.metadata.name.as_deref() == Some(replaced) {
        return None;
    }
    find(facts, replaced)
}

/// Condition ResolutionFailed of a Subscription whose version waits for one that cannot become Replacing in its present state. It has the
/// reason that it has in the reference.
pub(super) fn stuck_upgrade(
    subscription: &Subscription,
    facts: &NamespaceFacts<'_>,
) -> Option<ResolutionFact> {
    let csv = find(facts, &subscription.status.as_ref()?.installed_csv)?;
    let before = replaced_still(csv, facts).filter(|it| is_stuck(it))?;
    let reason =
        if facts.is_fail_forward() { "ErrorPreventedResolution" } else { "ConstraintsNotSatisfiable" };
    Some(ResolutionFact::Failed { reason, message: stuck_message(csv, before) })
}

/// Condition ResolutionFailed of a Subscription whose catalog has a next version that is not installed before a person acts, or the operator
/// allows it: its version failed before it replaced the one before, or is held by the OperatorCondition of that, or a person replaces it by one
/// that this Subscription does not install. It has the reason that it has in the reference.
pub(super) fn held_upgrade(
    subscription: &Subscription,
    facts: &NamespaceFacts<'_>,
    catalog: &Catalog,
) -> Option<ResolutionFact> {
    let csv = find(facts, &subscription.status.as_ref()?.installed_csv)?;
    let is_held = if is_on_its_way_out(csv, facts.csvs) {
        successor(csv, facts.csvs).is_some() && offered_successor(subscription, facts, catalog).is_none()
    } else {
        replaced_still(csv, facts).is_some() && (phase(csv) == "Failed" || is_not_upgradeable(csv))
    };
    // InstallPlanFailed reports the plan
    if !is_held || failed_plan(subscription, facts).is_some() {
        return None;
    }
    // a range may contain the version itself
    upgrades(subscription, csv, catalog).find(|next| csv.metadata.name.as_deref() != Some(*next))?;
    let message = unfinished_upgrade(subscription, facts)?;
    Some(ResolutionFact::Failed { reason: "ConstraintsNotSatisfiable", message })
}

/// Whether the OperatorCondition of what a ClusterServiceVersion replaces holds it.
fn is_not_upgradeable(csv: &ClusterServiceVersion) -> bool {
    phase(csv) == "Pending" && Reason::read(csv) == Some(Reason::OperatorConditionNotUpgradeable)
}

/// Whether a ClusterServiceVersion cannot become Replacing in its present state: it failed for its OperatorGroup, also with fail-forward, or
/// its requirements are not met.
fn is_stuck(csv: &ClusterServiceVersion) -> bool {
    match (phase(csv), Reason::read(csv)) {
        ("Failed", Some(reason)) => reason.is_of_the_group(),
        ("Pending", reason) => reason == Some(Reason::RequirementsNotMet),
        _ => false,
    }
}

fn stuck_message(csv: &ClusterServiceVersion, before: &ClusterServiceVersion) -> String {
    let name = |csv: &ClusterServiceVersion| csv.metadata.name.clone().unwrap_or_default();
    let (csv, before_name, phase) = (name(csv), name(before), phase(before));
    let message = before.status.as_ref().map(|status| status.message.as_str()).unwrap_or_default();
    format!(
        "ClusterServiceVersion {csv} waits for {before_name}, which it replaces and which is {phase}: {message}; \
         repair that, or delete ClusterServiceVersion {before_name}"
    )
}

/// A Subscription refers to the successors that it installs itself: this one was made by hand.
fn replaced_by_user(csv: &ClusterServiceVersion, facts: &NamespaceFacts<'_>) -> String {
    let name = csv.metadata.name.as_deref().unwrap_or_default();
    let successor = successor(csv, facts.csvs).and_then(|it| it.metadata.name.as_deref());
    let replaced =
        successor.map(|it| format!(": {it}, which this Subscription did not install, replaces it"));
    let until = successor.map(|it| format!(", unless its channel has the upgrade to {it}"));
    format!(
        "ClusterServiceVersion {name} is {}{}; no next version is installed while it is there{}",
        phase(csv),
        replaced.unwrap_or_default(),
        until.unwrap_or_default()
    )
}

fn find<'a>(facts: &NamespaceFacts<'a>, name: &str) -> Option<&'a ClusterServiceVersion> {
    facts.csvs.iter().find(|csv| csv.metadata.name.as_deref() == Some(name)).map(|csv| &**csv)
}

fn phase(csv: &ClusterServiceVersion) -> &str {
    csv.status.as_ref().map(|status| status.phase.as_str()).unwrap_or_default()
}

/// Its successor is there.
pub(super) fn is_on_its_way_out(csv: &ClusterServiceVersion, csvs: &[Arc<ClusterServiceVersion>]) -> bool {
    match phase(csv) {
        "Deleting" => true,
        "Replacing" => successor(csv, csvs).is_some(),
        _ => false,
    }
}

/// The one that replaces it.
fn successor<'a>(
    csv: &ClusterServiceVersion,
    csvs: &'a [Arc<ClusterServiceVersion>],
) -> Option<&'a Arc<ClusterServiceVersion>> {
    let name = csv.metadata.name.as_deref().unwrap_or_default();
    csvs.iter().find(|other| other.spec.replaces == name && other.metadata.name != csv.metadata.name)
}

fn installed(csv: &ClusterServiceVersion) -> InstalledCsv {
    let annotations = csv.metadata.annotations.as_ref();
    let properties =
        annotations.and_then(|it| it.get(PROPERTIES_ANNOTATION)).and_then(|text| properties(text));
    let crds = csv.spec.custom_resource_definitions.as_ref();
    let apis = csv.spec.api_service_definitions.as_ref();
    let of_crds = |list: Option<&Vec<olm_api::classic::cluster_service_version::CrdDescription>>| {
        let list = list.into_iter().flatten();
        list.map(|crd| {
            let group = crd.name.split_once('.').map_or("", |(_, group)| group);
            gvk(group, &crd.version, &crd.kind)
        })
        .collect::<Vec<_>>()
    };
    let of_apis = |list: Option<&Vec<olm_api::classic::cluster_service_version::ApiServiceDescription>>| {
        let list = list.into_iter().flatten();
        list.map(|api| gvk(&api.group, &api.version, &api.kind)).collect::<Vec<_>>()
    };
    let mut provided_apis = of_crds(crds.map(|crds| &crds.owned));
    provided_apis.extend(of_apis(apis.map(|apis| &apis.owned)));
    let mut required_apis = of_crds(crds.map(|crds| &crds.required));
    required_apis.extend(of_apis(apis.map(|apis| &apis.required)));
    InstalledCsv {
        name: csv.metadata.name.clone().unwrap_or_default(),
        version: csv.spec.version.clone(),
        replaces: csv.spec.replaces.clone(),
        phase: phase(csv).to_owned(),
        is_copied: is_copy(csv),
        properties,
        provided_apis,
        required_apis,
    }
}

fn gvk(group: &str, version: &str, kind: &str) -> GvkRef {
    GvkRef { group: group.into(), version: version.into(), kind: kind.into() }
}

/// `None`: the annotation is no list of properties, and counts as absent.
fn properties(text: &str) -> Option<Vec<Property>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let list = value.get("properties")?.as_array()?.iter();
    let property = |it: &Value| {
        let kind = it.get("type")?.as_str()?.into();
        Some(Property { kind, value: it.get("value")?.to_string().into() })
    };
    list.map(property).collect()
}
