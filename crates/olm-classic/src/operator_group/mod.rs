//! Operator groups: targets, install modes, provided APIs, roles, annotations and copied CSVs.
//!
//! [`check`] is the part of a CSV's phase machine that its group decides. The rest follows from a group and the CSVs of its namespace:
//! [`status`] and [`targets`] of the group, the roles for users of its APIs in [`roles`], the rights of its operators in their target
//! namespaces in [`rights`], the copies of its CSVs in [`copies`], and the account that installs in [`account`].
//!
//! Rules: classic-apis §7, §10.

pub mod account;
pub mod api;
mod check;
pub mod copies;
mod intersection;
pub mod keys;
pub mod modes;
mod objects;
pub mod rights;
pub mod roles;
mod selector;
mod status;
pub mod targets;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;

use olm_api::classic::{ClusterServiceVersion, OperatorGroup};

pub use api::{Api, ApiError, ApiSet, provided};
pub use check::{annotations, check};
pub use intersection::{Intersection, decide, is_early, providers, prune};
pub use modes::ModeError;
pub(crate) use objects::{encode, owner_reference};
pub use status::{group_wait, status};
pub use targets::{GroupError, Namespaces};

/// The strategy with which versions that Failed are replaced, too; anything else is the default.
pub(crate) const FAIL_FORWARD: &str = "TechPreviewUnsafeFailForward";

#[must_use]
pub fn is_fail_forward(group: &OperatorGroup) -> bool {
    group.spec.upgrade_strategy == FAIL_FORWARD
}

/// Whether a CSV is a copy of one in another namespace: its label shows that, or, if a person removed the label, the reason of its status.
#[must_use]
pub fn is_copy(csv: &ClusterServiceVersion) -> bool {
    csv.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(keys::COPIED_FROM))
        || csv.status.as_ref().is_some_and(|status| status.reason == copies::REASON)
}

/// Whether a CSV is an active member: no copy, one group in its namespace, and install modes that support the namespaces of that group
/// (classic-apis §7.2).
#[must_use]
pub fn is_member(csv: &ClusterServiceVersion, groups: &[impl Borrow<OperatorGroup>]) -> bool {
    let own = csv.metadata.namespace.as_deref().unwrap_or_default();
    let mut here = groups.iter().map(Borrow::borrow).filter(|group| targets::namespace(group) == own);
    let (Some(group), None, false) = (here.next(), here.next(), is_copy(csv)) else { return false };
    targets::resolved(group).is_some_and(|targets| modes::check(csv, own, &targets).is_ok())
}
