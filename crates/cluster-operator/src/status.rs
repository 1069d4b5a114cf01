//! The whole status of the ClusterOperator `olm`, derived once from what was observed.
//!
//! Rule: cluster-operator §3, §4, §11 step 5, §16 step 8.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use olm_api::openshift::{ClusterOperatorStatus, OPERATOR, OperandVersion, OperatorCondition, RelatedObject};
use olm_api::{ConditionStatus, condition};
use olm_core::openshift::Report;

use crate::deployment::{self, Deployment};
use crate::inner::{Inner, Memory};
use crate::summary::{TYPES, summaries};
use crate::upgradeable::{self, Installed};
use crate::version::Current;

/// All that the status is made of.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) current: Current,
    /// Extensions and their revisions.
    pub(crate) installed: Installed,
    /// The Deployments that count, by name, and what was found of each.
    pub(crate) deployments: BTreeMap<String, Option<Deployment>>,
    /// The namespace of these Deployments.
    pub(crate) namespace: String,
    /// The status as it is published.
    pub(crate) stored: ClusterOperatorStatus,
}

/// What is to be published.
#[derive(Debug, Clone)]
pub(crate) struct Derived {
    pub(crate) status: ClusterOperatorStatus,
    /// The answer about installed bundles, if there is one.
    pub(crate) report: Option<Report>,
    /// When to derive it again although nothing changed.
    pub(crate) again: Option<Timestamp>,
}

/// Derives the status; `memory` is brought up to date.
pub(crate) fn derive(observed: &Observed, memory: &mut Memory, now: Timestamp) -> Derived {
    let report = match &observed.current {
        Current::Known { stream, .. } => upgradeable::report(&observed.installed, *stream),
        Current::Unknown(_) => None,
    };
    let mut inner = upgradeable::conditions(&observed.installed, report.as_ref());
    let mut again = Vec::new();
    for (name, found) in &observed.deployments {
        let (conditions, due) = deployment::conditions(name, found.as_ref(), memory, now);
        inner.extend(conditions);
        again.extend(due);
    }
    if observed.deployments.is_empty() {
        inner.extend(without_deployments(&observed.installed));
    }
    memory.record(&inner, now);
    let (mut summaries, due) = summaries(&inner, memory, now);
    again.extend(due);
    let complete = observed.deployments.values().all(|found| deployment::is_rolled_out(found.as_ref()));
    let versions = match &observed.current {
        Current::Known { version, .. } => versions(&observed.stored, version, complete, &mut summaries),
        Current::Unknown(why) => {
            explain_unknown(why, &mut summaries);
            observed.stored.versions.clone()
        }
    };
    let status = ClusterOperatorStatus {
        conditions: conditions(&observed.stored, summaries, now),
        versions,
        related_objects: related_objects(observed),
        extension: observed.stored.extension.clone(),
    };
    Derived { status, report, again: again.into_iter().min() }
}

/// Where no Deployments are watched, OLM counts as available when its kinds are served.
fn without_deployments(installed: &Installed) -> [Inner; 2] {
    let served = matches!(installed, Installed::Observed { .. });
    let (reason, message) =
        if served { ("AsExpected", "Kinds are served") } else { ("NotServed", "Kinds are not served") };
    [
        Inner::new("OLMKindsAvailable".to_owned(), served, reason, message),
        Inner::new("OLMKindsProgressing".to_owned(), false, "AsExpected", ""),
    ]
}

/// The new version is set only when all is rolled out; until then, and in the write that records it, Progressing is true.
fn versions(
    stored: &ClusterOperatorStatus,
    version: &str,
    complete: bool,
    summaries: &mut [Inner],
) -> Vec<OperandVersion> {
    let published = stored.operator_version();
    if !stored.versions.is_empty() && published != Some(version) {
        for summary in summaries.iter_mut().filter(|summary| summary.type_ == "Progressing") {
            summary.status = ConditionStatus::True;
            "UpgradeInProgress".clone_into(&mut summary.reason);
            summary.message = format!("Progressing towards operator version {version}");
        }
    }
    if complete || published == Some(version) {
        return vec![OperandVersion { name: OPERATOR.to_owned(), version: version.to_owned() }];
    }
    stored.versions.clone()
}

/// Nothing is known of Upgradeable without a version, unless there is something that blocks any.
fn explain_unknown(why: &str, summaries: &mut [Inner]) {
    for summary in summaries.iter_mut() {
        if summary.type_ == "Upgradeable" && summary.reason == "NoData" {
            why.clone_into(&mut summary.message);
        }
    }
}

/// The five with the times that the stored ones justify, then what others have added.
fn conditions(
    stored: &ClusterOperatorStatus,
    summaries: Vec<Inner>,
    now: Timestamp,
) -> Vec<OperatorCondition> {
    let mut conditions: Vec<OperatorCondition> = summaries
        .into_iter()
        .map(|summary| {
            let before = stored.condition(&summary.type_).filter(|before| before.status == summary.status);
            let time =
                before.map_or_else(|| condition::whole_seconds(now), |it| it.last_transition_time.clone());
            OperatorCondition {
                last_transition_time: Time(time.0),
                message: summary.message,
                reason: summary.reason,
                status: summary.status,
                type_: summary.type_,
            }
        })
        .collect();
    let foreign = stored.conditions.iter().filter(|it| TYPES.iter().all(|(type_, _)| *type_ != it.type_));
    conditions.extend(foreign.cloned());
    conditions
}

/// Where to look when something is wrong.
fn related_objects(observed: &Observed) -> Vec<RelatedObject> {
    let object = |group: &str, resource: &str, namespace: Option<&str>, name: &str| RelatedObject {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    let mut all = vec![object("", "namespaces", None, &observed.namespace)];
    all.extend(["clustercatalogs", "clusterextensions", "clusterobjectsets"].map(|plural| {
        let name = format!("{plural}.{}", olm_api::GROUP);
        object("apiextensions.k8s.io", "customresourcedefinitions", None, &name)
    }));
    all.extend(
        observed
            .deployments
            .keys()
            .map(|name| object("apps", "deployments", Some(&observed.namespace), name)),
    );
    all
}

/// What changed, in words, for an event and the log.
pub(crate) fn changes(before: &ClusterOperatorStatus, after: &ClusterOperatorStatus) -> Vec<String> {
    let mut found = Vec::new();
    for condition in &after.conditions {
        let (type_, status) = (&condition.type_, condition.status);
        match before.condition(type_) {
            None => found.push(format!("{type_} set to {status} ({:?})", condition.message)),
            Some(old) if old.status != status => found
                .push(format!("{type_} changed from {} to {status} ({:?})", old.status, condition.message)),
            Some(old) if old.message != condition.message => {
                found.push(format!("{type_} message changed to {:?}", condition.message));
            }
            Some(_) => {}
        }
    }
    if before.versions != after.versions {
        let text = |status: &ClusterOperatorStatus| status.operator_version().unwrap_or("none").to_owned();
        found.push(format!("operator version changed from {} to {}", text(before), text(after)));
    }
    if before.related_objects != after.related_objects {
        found.push("relatedObjects changed".to_owned());
    }
    found
}

#[cfg(test)]
mod tests;
