//! APIs of a CSV against those of operator groups (classic-apis §7.5, §7.6).

use std::borrow::Borrow;

use olm_api::classic::{ClusterServiceVersion, OperatorGroup};

use super::api::{ApiSet, provided};
use super::targets::{intersect, name, namespace};
use super::{is_copy, is_member, keys};

/// What follows from the APIs of a CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intersection {
    /// The CSV may be installed.
    Continue,
    /// The APIs are added to the annotation of the group; the CSV is checked again afterwards.
    Extend,
    /// The APIs are removed from the annotation of the group; the CSV is checked again afterwards, and then fails.
    Shrink,
    /// The annotation of the group would have to change, which `staticProvidedAPIs` forbids.
    Static,
    /// Another group that shares a namespace provides one of the APIs.
    Conflict,
}

/// One row of the table. `overlaps`: an intersecting group provides an API of the CSV; `covered`: the annotation of the CSV's own group has
/// all of them; `is_static`: that annotation must not change.
#[must_use]
pub fn decide(overlaps: bool, covered: bool, is_static: bool) -> Intersection {
    match (overlaps, covered, is_static) {
        (false, true, _) => Intersection::Continue,
        (false, false, true) => Intersection::Static,
        (false, false, false) => Intersection::Extend,
        (true, false, _) => Intersection::Conflict,
        (true, true, true) => Intersection::Static,
        (true, true, false) => Intersection::Shrink,
    }
}

/// The annotation of a group; entries that are no APIs do not count.
pub(super) fn annotated(group: &OperatorGroup) -> ApiSet {
    annotation(group).map(|text| ApiSet::parse(text).0).unwrap_or_default()
}

fn annotation(group: &OperatorGroup) -> Option<&str> {
    group.metadata.annotations.as_ref()?.get(keys::PROVIDED_APIS).map(String::as_str)
}

/// What follows from the APIs of a CSV of this group, and the new annotation of the group if it changes.
pub(super) fn judge(
    csv: &ClusterServiceVersion,
    group: &OperatorGroup,
    groups: &[impl Borrow<OperatorGroup>],
) -> (Intersection, Option<String>) {
    let (mine, own) = (provided(csv), annotated(group));
    let is_other =
        |other: &&OperatorGroup| (namespace(other), name(other)) != (namespace(group), name(group));
    let others = groups.iter().map(Borrow::borrow).filter(is_other).filter(|other| intersect(group, other));
    let others = others.fold(ApiSet::default(), |all, other| all.union(&annotated(other)));
    let is_static = group.spec.static_provided_apis == Some(true);
    let decision = decide(!mine.is_disjoint(&others), mine.is_subset(&own), is_static);
    let annotation = match decision {
        Intersection::Extend => Some(own.union(&mine).to_string()),
        Intersection::Shrink => Some(own.difference(&mine).to_string()),
        Intersection::Continue | Intersection::Static | Intersection::Conflict => None,
    };
    (decision, annotation)
}

/// The annotation `olm.providedAPIs` of a group without the APIs that no active member provides any more; `None` when it stays as it is:
/// nothing is to be removed, the group is static, or a CSV that provides such an API is new or Pending.
///
/// `csvs` are those of the group's namespace, `groups` the groups in it.
#[must_use]
pub fn prune(
    group: &OperatorGroup,
    groups: &[impl Borrow<OperatorGroup>],
    csvs: &[impl Borrow<ClusterServiceVersion>],
) -> Option<String> {
    let before = annotation(group)?;
    if group.spec.static_provided_apis == Some(true) {
        return None;
    }
    let now = annotated(group);
    let here = || {
        csvs.iter().map(Borrow::borrow).filter(|csv| {
            !is_copy(csv) && csv.metadata.namespace.as_deref().unwrap_or_default() == namespace(group)
        })
    };
    let members = here().filter(|csv| is_member(csv, groups));
    let needed = members.fold(ApiSet::default(), |all, csv| all.union(&provided(csv)));
    let extra = now.difference(&needed);
    if here().filter(|csv| is_early(csv)).any(|csv| !provided(csv).is_disjoint(&extra)) {
        return None;
    }
    let after = now.intersection(&needed).to_string();
    (after != before).then_some(after)
}

/// Whether a CSV is not installed yet, so that the group does not have its APIs for certain.
#[must_use]
pub fn is_early(csv: &ClusterServiceVersion) -> bool {
    matches!(csv.status.as_ref().map(|status| status.phase.as_str()), None | Some("" | "Pending"))
}

/// The CSVs of any namespace that provide one of these APIs, as (namespace, name): a change of a group's annotation checks them again.
/// Copies are left out.
#[must_use]
pub fn providers<'a>(
    apis: &ApiSet,
    csvs: &'a [impl Borrow<ClusterServiceVersion>],
) -> Vec<(&'a str, &'a str)> {
    let affected =
        csvs.iter().map(Borrow::borrow).filter(|csv| !is_copy(csv) && !provided(csv).is_disjoint(apis));
    affected
        .map(|csv| {
            let meta = &csv.metadata;
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
        })
        .collect()
}
