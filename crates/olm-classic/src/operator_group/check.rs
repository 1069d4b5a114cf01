//! The rows of a CSV's phase machine that its operator group decides (classic-apis §6.3 rows 1 to 7).

use std::borrow::Borrow;
use std::collections::BTreeMap;

use olm_api::classic::{ClusterServiceVersion, OperatorGroup};

use super::intersection::{Intersection, judge};
use super::targets::{name, namespace, resolved, settled};
use super::{keys, modes};
use crate::csv::{GroupState, Reason};

fn failed(reason: Reason, message: impl Into<String>) -> GroupState {
    GroupState::Failed { reason, message: message.into() }
}

/// The annotations of members of a group that watches these namespaces (classic-apis §7.4).
#[must_use]
pub fn annotations(group: &OperatorGroup, targets: &[String]) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (keys::OPERATOR_GROUP, name(group).to_owned()),
        (keys::OPERATOR_NAMESPACE, namespace(group).to_owned()),
        (keys::TARGET_NAMESPACES, targets.join(",")),
    ])
}

/// Evaluates rows 1 to 7 for a CSV that is no copy. `groups` are all operator groups of the cluster.
///
/// A group that selects no namespace fails its CSVs without `olm.targetNamespaces`: an empty one means all namespaces to an operator. Row 6, a
/// missing annotation, is therefore the same as row 3. One whose account has never existed may select some, and its CSVs wait.
#[must_use]
pub fn check(csv: &ClusterServiceVersion, groups: &[impl Borrow<OperatorGroup>]) -> GroupState {
    let own = csv.metadata.namespace.as_deref().unwrap_or_default();
    let mut here = groups.iter().map(Borrow::borrow).filter(|group| namespace(group) == own);
    let group = match (here.next(), here.next()) {
        (None, _) => {
            return failed(Reason::NoOperatorGroup, "csv in namespace with no operatorgroups");
        }
        (Some(group), None) => group,
        (Some(_), Some(_)) => {
            return failed(
                Reason::TooManyOperatorGroups,
                "csv created in namespace with multiple operatorgroups, can't pick one automatically",
            );
        }
    };
    let Some(targets) = resolved(group) else { return GroupState::Unresolved };
    let mut desired = annotations(group, &targets);
    if targets.is_empty() {
        desired.remove(keys::TARGET_NAMESPACES);
    }
    let present = csv.metadata.annotations.as_ref();
    if desired.iter().any(|(key, value)| present.and_then(|all| all.get(*key)) != Some(value)) {
        return GroupState::Annotate(
            desired.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        );
    }
    if settled(group).is_none() {
        return GroupState::Unresolved;
    }
    if targets.is_empty() {
        return failed(
            Reason::NoTargetNamespaces,
            "no targetNamespaces are matched operatorgroups namespace selection",
        );
    }
    let duplicates = modes::duplicates(csv);
    if !duplicates.is_empty() {
        let duplicates = duplicates.into_iter().collect::<Vec<_>>().join(", ");
        return failed(
            Reason::InvalidInstallModes,
            format!("spec.installModes has more than one entry for {duplicates}; keep one of each type"),
        );
    }
    if let Err(error) = modes::check(csv, own, &targets) {
        return failed(Reason::UnsupportedOperatorGroup, error.to_string());
    }
    let (decision, annotation) = judge(csv, group, groups);
    match decision {
        Intersection::Continue => GroupState::Member,
        Intersection::Extend | Intersection::Shrink => {
            GroupState::SetProvidedApis(annotation.unwrap_or_default())
        }
        Intersection::Static => failed(
            Reason::CannotModifyStaticProvidedApis,
            "static provided api operatorgroup cannot be modified by these apis",
        ),
        Intersection::Conflict => failed(
            Reason::InterOperatorGroupOwnerConflict,
            "intersecting operatorgroups provide the same apis",
        ),
    }
}
