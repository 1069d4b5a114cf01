//! The catalogs that a Subscription may use, and whether it can.
//!
//! Rule: classic-apis §2.7 and §3.3.

use olm_api::ConditionStatus;
use olm_api::classic::subscription::SubscriptionCatalogHealth;
use olm_api::classic::{CatalogSource, GROUP, Subscription};
use olm_api::k8s_openapi::api::core::v1::ObjectReference;
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::k8s_openapi::jiff::Timestamp;

/// A CatalogSource with its health, see [`crate::catalog_source::is_healthy`].
#[derive(Debug, Clone, Copy)]
pub struct CatalogFact<'a> {
    pub source: &'a CatalogSource,
    pub is_healthy: bool,
}

impl CatalogFact<'_> {
    pub(super) fn name(&self) -> &str {
        self.source.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.source.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// How the message begins that is about the catalog which the Subscription names.
pub(super) const TARGETED: &str = "targeted catalogsource";

/// What the status of a Subscription reports of catalogs.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogsHealth {
    /// By namespace and name.
    pub entries: Vec<SubscriptionCatalogHealth>,
    /// Of condition CatalogSourcesUnhealthy.
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
    /// The catalog that the Subscription names is there and not healthy; any of them if it names none.
    pub is_needed: bool,
}

/// Health as one Subscription sees it. `catalogs` are those of its namespace and of the global namespace.
///
/// A catalog that is missing does not stop resolution, which explains what is missing; one that is there and not healthy stops the
/// Subscriptions that need it.
pub fn catalog_health(
    subscription: &Subscription,
    catalogs: &[CatalogFact<'_>],
    now: Timestamp,
) -> CatalogsHealth {
    let mut sorted: Vec<&CatalogFact<'_>> = catalogs.iter().collect();
    sorted.sort_by_key(|catalog| (catalog.namespace(), catalog.name()));
    let known =
        subscription.status.as_ref().map(|status| status.catalog_health.as_slice()).unwrap_or_default();
    let entries = sorted.iter().map(|catalog| entry(catalog, known, now)).collect();
    let spec = &subscription.spec;
    let target = sorted.iter().find(|it| it.name() == spec.source && it.namespace() == spec.source_namespace);
    let unhealthy = sorted.iter().find(|catalog| !catalog.is_healthy);
    let has_target = !spec.source.is_empty();
    let (status, reason, message) = match (sorted.is_empty(), target, unhealthy) {
        (true, _, _) => (
            ConditionStatus::True,
            "NoCatalogSourcesFound",
            "dependency resolution requires at least one catalogsource".to_owned(),
        ),
        (false, None, _) if has_target => (
            ConditionStatus::True,
            "UnhealthyCatalogSourceFound",
            format!("{TARGETED} {}/{} missing", spec.source_namespace, spec.source),
        ),
        (false, Some(target), _) if !target.is_healthy => (
            ConditionStatus::True,
            "UnhealthyCatalogSourceFound",
            format!("{TARGETED} {}/{} unhealthy", spec.source_namespace, spec.source),
        ),
        (false, _, Some(other)) => (
            ConditionStatus::True,
            "UnhealthyCatalogSourceFound",
            format!("catalogsource {}/{} unhealthy", other.namespace(), other.name()),
        ),
        (false, _, None) => (
            ConditionStatus::False,
            "AllCatalogSourcesHealthy",
            "all available catalogsources are healthy".to_owned(),
        ),
    };
    let is_needed = match target {
        Some(target) => !target.is_healthy,
        None => !has_target && unhealthy.is_some(),
    };
    CatalogsHealth { entries, status, reason, message, is_needed }
}

/// The time of an observation that does not change stays.
fn entry(
    catalog: &CatalogFact<'_>,
    known: &[SubscriptionCatalogHealth],
    now: Timestamp,
) -> SubscriptionCatalogHealth {
    let metadata = &catalog.source.metadata;
    let reference = ObjectReference {
        api_version: Some(format!("{GROUP}/v1alpha1")),
        kind: Some("CatalogSource".to_owned()),
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    };
    let is_same = |it: &&SubscriptionCatalogHealth| {
        let of = &it.catalog_source_ref;
        (&of.name, &of.namespace, &of.uid) == (&reference.name, &reference.namespace, &reference.uid)
            && it.healthy == catalog.is_healthy
    };
    known.iter().find(is_same).cloned().unwrap_or_else(|| SubscriptionCatalogHealth {
        catalog_source_ref: reference,
        last_updated: Time(now),
        healthy: catalog.is_healthy,
        unknown: Default::default(),
    })
}
