//! The rows of a CSV's phase machine that its operator group decides (classic-apis §6.3 rows 1 to 7).

use std::borrow::Borrow;
use std::collections::BTreeMap;

use olm_api::classic::{ClusterServiceVersion, OperatorGroup};

use super::intersection::{Intersection, judge};
use super::targets::{name, namespace, resolved};
use super::{keys, modes};

/// Why a CSV fails for its operator group. Its status has this reason until the group or the CSV changes; such a CSV is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupReason {
    NoOperatorGroup,
    TooManyOperatorGroups,
    NoTargetNamespaces,
    InvalidInstallModes,
    UnsupportedOperatorGroup,
    CannotModifyStaticOperatorGroupProvidedApis,
    InterOperatorGroupOwnerConflict,
}

impl GroupReason {
    pub const ALL: [Self; 7] = [
        Self::NoOperatorGroup,
        Self::TooManyOperatorGroups,
        Self::NoTargetNamespaces,
        Self::InvalidInstallModes,
        Self::UnsupportedOperatorGroup,
        Self::CannotModifyStaticOperatorGroupProvidedApis,
        Self::InterOperatorGroupOwnerConflict,
    ];

    /// The value of `status.reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoOperatorGroup => "NoOperatorGroup",
            Self::TooManyOperatorGroups => "TooManyOperatorGroups",
            Self::NoTargetNamespaces => "NoTargetNamespaces",
            Self::InvalidInstallModes => "InvalidInstallModes",
            Self::UnsupportedOperatorGroup => "UnsupportedOperatorGroup",
            Self::CannotModifyStaticOperatorGroupProvidedApis => {
                "CannotModifyStaticOperatorGroupProvidedAPIs"
            }
            Self::InterOperatorGroupOwnerConflict => "InterOperatorGroupOwnerConflict",
        }
    }

    /// The reason of that name; other reasons of a CSV are `None`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Whether the CSV's Deployments are deleted when it fails for this reason.
    #[must_use]
    pub fn deletes_deployments(self) -> bool {
        match self {
            Self::CannotModifyStaticOperatorGroupProvidedApis | Self::InterOperatorGroupOwnerConflict => true,
            Self::NoOperatorGroup
            | Self::TooManyOperatorGroups
            | Self::NoTargetNamespaces
            | Self::InvalidInstallModes
            | Self::UnsupportedOperatorGroup => false,
        }
    }
}

/// What the operator groups decide about a CSV before its phases are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupCheck {
    /// The phase becomes Failed.
    Failed { reason: GroupReason, message: String },
    /// The group has no status yet. Nothing is done; a new CSV stays without phase.
    Wait,
    /// These annotations are written to the CSV. That is the end of the pass.
    Annotate(BTreeMap<&'static str, String>),
    /// This becomes the annotation `olm.providedAPIs` of the CSV's group. That is the end of the pass; the CSV is requeued.
    SetProvidedApis(String),
    /// The CSV is a member of its group: its phases are evaluated.
    Passed,
}

impl GroupCheck {
    fn failed(reason: GroupReason, message: impl Into<String>) -> Self {
        Self::Failed { reason, message: message.into() }
    }
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
/// missing annotation, is therefore the same as row 3.
#[must_use]
pub fn check(csv: &ClusterServiceVersion, groups: &[impl Borrow<OperatorGroup>]) -> GroupCheck {
    let own = csv.metadata.namespace.as_deref().unwrap_or_default();
    let mut here = groups.iter().map(Borrow::borrow).filter(|group| namespace(group) == own);
    let group = match (here.next(), here.next()) {
        (None, _) => {
            return GroupCheck::failed(
                GroupReason::NoOperatorGroup,
                "csv in namespace with no operatorgroups",
            );
        }
        (Some(group), None) => group,
        (Some(_), Some(_)) => {
            return GroupCheck::failed(
                GroupReason::TooManyOperatorGroups,
                "csv created in namespace with multiple operatorgroups, can't pick one automatically",
            );
        }
    };
    let Some(targets) = resolved(group) else { return GroupCheck::Wait };
    let mut desired = annotations(group, &targets);
    if targets.is_empty() {
        desired.remove(keys::TARGET_NAMESPACES);
    }
    let present = csv.metadata.annotations.as_ref();
    if desired.iter().any(|(key, value)| present.and_then(|all| all.get(*key)) != Some(value)) {
        return GroupCheck::Annotate(desired);
    }
    if targets.is_empty() {
        return GroupCheck::failed(
            GroupReason::NoTargetNamespaces,
            "no targetNamespaces are matched operatorgroups namespace selection",
        );
    }
    let duplicates = modes::duplicates(csv);
    if !duplicates.is_empty() {
        let duplicates = duplicates.into_iter().collect::<Vec<_>>().join(", ");
        return GroupCheck::failed(
            GroupReason::InvalidInstallModes,
            format!("spec.installModes has more than one entry for {duplicates}; keep one of each type"),
        );
    }
    if let Err(error) = modes::check(csv, own, &targets) {
        return GroupCheck::failed(GroupReason::UnsupportedOperatorGroup, error.to_string());
    }
    let (decision, annotation) = judge(csv, group, groups);
    match decision {
        Intersection::Continue => GroupCheck::Passed,
        Intersection::Extend | Intersection::Shrink => {
            GroupCheck::SetProvidedApis(annotation.unwrap_or_default())
        }
        Intersection::Static => GroupCheck::failed(
            GroupReason::CannotModifyStaticOperatorGroupProvidedApis,
            "static provided api operatorgroup cannot be modified by these apis",
        ),
        Intersection::Conflict => GroupCheck::failed(
            GroupReason::InterOperatorGroupOwnerConflict,
            "intersecting operatorgroups provide the same apis",
        ),
    }
}
