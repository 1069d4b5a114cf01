//! The validated spec of a ClusterExtension. Strings become names, ranges and selectors here, once.
//!
//! Guarantees of admission are not checked a second time, except where an object of an older schema could lack
//! them. Rule: operator-controller §4.1 (selector errors win over range errors).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use olm_api::cluster_extension::{CrdUpgradeSafetyEnforcement, UpgradeConstraintPolicy};
use olm_api::{ClusterExtension, ConditionStatus, annotations, condition};
use olm_catalog::{Selector, parse_selector};
use olm_core::{ChannelName, PackageName, Range};
use olm_resolver::MajorUpdates;
use serde_json::{Map, Value};

use super::error::{Class, PassError};
use crate::dependencies::DependencyCheck;
use crate::preflight::CrdWaiver;
use crate::render::UserRoles;

/// Characters of a name that leave space for the number of a first revision in the labels of its Secrets (`<name>-1`).
const MAX_NAME: usize = 61;

/// A validated ClusterExtension.
#[derive(Debug, Clone)]
pub struct ExtensionRequest {
    pub name: String,
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Namespace of the package's own objects.
    pub namespace: String,
    /// ServiceAccount in that namespace, if one is named.
    pub service_account: Option<String>,
    pub package: PackageName,
    /// Channels in the user's order; empty means all.
    pub channels: Vec<ChannelName>,
    pub range: Option<Range>,
    /// The catalogs to search.
    pub selector: Selector,
    /// Whether the catalog's upgrade edges bind.
    pub policy: UpgradeConstraintPolicy,
    /// Whether the next major version is installed without being asked for; `None` is the controller's setting.
    pub major_updates: Option<MajorUpdates>,
    /// Whether roles for users of the provided APIs are made; `None` is the controller's setting.
    pub user_roles: Option<UserRoles>,
    /// What a missing dependency leads to; `None` is the controller's setting.
    pub dependency_check: Option<DependencyCheck>,
    /// The consequence of an unsafe CRD change.
    pub enforcement: CrdUpgradeSafetyEnforcement,
    /// What the user accepts of one bundle, whatever `enforcement` is.
    pub accepted_crd_change: Option<CrdWaiver>,
    /// `spec.config.inline`.
    pub config: Option<Map<String, Value>>,
    /// Minutes that a rollout may take.
    pub progress_deadline_minutes: Option<i32>,
    /// The annotation `requested-at`.
    pub requested_at: Option<String>,
    /// The message of the condition `Quarantined`, which names a bundle that is not read again.
    pub quarantine: Option<String>,
    /// Whether the user paused the extension.
    pub paused: bool,
    /// Whether objects stay when the extension is deleted.
    pub keep_objects: bool,
}

/// Reads the spec.
///
/// # Errors
/// The first invalid field, as condition text with its class.
pub fn validate(extension: &ClusterExtension) -> Result<ExtensionRequest, PassError> {
    let invalid = |text: String| PassError::new(Class::NeedsChange, text);
    let empty =
        |field: &str, what: &str| invalid(format!("{field} is {what}; name the package to install there"));
    let name = extension.metadata.name.clone().unwrap_or_default();
    if name.len() > MAX_NAME {
        return Err(invalid(format!(
            "metadata.name {name:?} has {} characters, at most {MAX_NAME} fit into the labels of its objects; create the \
             ClusterExtension under a shorter name",
            name.len()
        )));
    }
    let spec = &extension.spec;
    let catalog = spec.source.catalog.as_ref().ok_or_else(|| empty("spec.source.catalog", "not set"))?;
    let package =
        catalog.package_name.parse().map_err(|_| empty("spec.source.catalog.packageName", "empty"))?;
    let selector = parse_selector(catalog.selector.as_ref())
        .map_err(|text| invalid(format!("desired catalog selector is invalid: {text}")))?;
    let range = olm_resolver::parse_range(catalog.version.as_deref().unwrap_or_default())
        .map_err(|error| invalid(error.condition_message()))?;
    let channels = catalog.channels.iter().filter_map(|channel| channel.parse().ok()).collect();
    let annotations = extension.metadata.annotations.as_ref();
    let paused = annotations.and_then(|all| all.get(annotations::PAUSED));
    let paused = match paused.map(String::as_str) {
        Some("true") => true,
        Some("false") | None => false,
        Some(value) => {
            return Err(invalid(format!(
                "metadata.annotations[{}]: {value:?} is neither true nor false, so nothing is reconciled; set true or false",
                annotations::PAUSED
            )));
        }
    };
    let preflight = spec.install.as_ref().and_then(|install| install.preflight.as_ref());
    Ok(ExtensionRequest {
        name,
        uid: extension.metadata.uid.clone().unwrap_or_default(),
        generation: extension.metadata.generation.unwrap_or_default(),
        namespace: spec.namespace.clone(),
        service_account: spec.service_account.as_ref().and_then(|account| account.name.clone()),
        package,
        channels,
        range,
        selector,
        policy: catalog.upgrade_constraint_policy,
        major_updates: annotation(annotations, annotations::MAJOR_UPDATES)?,
        user_roles: annotation(annotations, annotations::USER_ROLES)?,
        enforcement: preflight.map(|checks| checks.crd_upgrade_safety.enforcement).unwrap_or_default(),
        dependency_check: annotation(annotations, annotations::DEPENDENCY_CHECK)?,
        accepted_crd_change: annotation(annotations, annotations::ACCEPT_CRD_CHANGE)?,
        config: spec.config.as_ref().and_then(|config| config.inline.clone()),
        progress_deadline_minutes: spec.progress_deadline_minutes.filter(|minutes| *minutes > 0),
        paused,
        requested_at: annotations.and_then(|all| all.get(annotations::REQUESTED_AT)).cloned(),
        quarantine: quarantine(extension),
        keep_objects: annotations.is_some_and(annotations::keeps_objects),
    })
}

/// The value of an annotation, if it is there.
fn annotation<T: FromStr<Err: Display>>(
    annotations: Option<&BTreeMap<String, String>>,
    name: &str,
) -> Result<Option<T>, PassError> {
    let value = annotations.and_then(|all| all.get(name)).map(|value| value.parse::<T>());
    value
        .transpose()
        .map_err(|error| PassError::new(Class::NeedsChange, format!("metadata.annotations[{name}]: {error}")))
}

fn quarantine(extension: &ClusterExtension) -> Option<String> {
    let conditions = &extension.status.as_ref()?.conditions;
    let found = condition::find(conditions, condition::QUARANTINED)?;
    (found.status == ConditionStatus::True).then(|| found.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::BundleError;
    use crate::render::not_fetched;
    use crate::resolution::error::Cause;

    fn named(name: &str, annotations: Value, deadline: Value) -> Result<ExtensionRequest, PassError> {
        let extension = serde_json::from_value(serde_json::json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"namespace": "x", "progressDeadlineMinutes": deadline,
                     "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
        }));
        validate(&extension.unwrap())
    }

    /// rule: operator-controller §9.1 row 28, revisions §17 row 31
    #[test]
    fn request_rejects_a_name_that_labels_cannot_hold() {
        let fits = "x".repeat(MAX_NAME);
        assert_eq!(named(&fits, Value::Null, Value::Null).unwrap().name, fits);
        let failure = named(&format!("{fits}x"), Value::Null, Value::Null).unwrap_err();
        assert_eq!(failure.class, Class::NeedsChange);
        assert!(
            failure.message.starts_with("metadata.name ") && failure.message.contains("a shorter name"),
            "{}",
            failure.message
        );
    }

    #[test]
    fn request_defaults() {
        let request = named("x", Value::Null, Value::Null).unwrap();
        assert_eq!(request.enforcement, CrdUpgradeSafetyEnforcement::Strict);
        assert_eq!(request.policy, UpgradeConstraintPolicy::CatalogProvided);
        assert_eq!((request.progress_deadline_minutes, request.paused, request.config), (None, false, None));
        assert!(request.channels.is_empty() && request.range.is_none());
        assert_eq!(named("x", Value::Null, 0.into()).unwrap().progress_deadline_minutes, None, "0 is none");
        assert_eq!(named("x", Value::Null, 30.into()).unwrap().progress_deadline_minutes, Some(30));
    }

    /// Another replica may have written it. Its message is the one of the error that is met there.
    #[test]
    fn request_has_the_quarantine_of_the_status() {
        let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let error = not_fetched(&BundleError::quarantined(&digest, 2, ""));
        assert_eq!(error.cause, Cause::Quarantine);
        for (status, want) in [("True", Some(&error.message)), ("False", None)] {
            let extension = serde_json::from_value(serde_json::json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "x"},
                "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
                "status": {"conditions": [{"type": condition::QUARANTINED, "status": status, "reason": "Test",
                    "message": error.message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }));
            let request = validate(&extension.unwrap()).unwrap();
            assert_eq!(request.quarantine.as_ref(), want, "{status}");
        }
    }

    #[test]
    fn request_rejects_other_values_of_paused() {
        let paused = |value: &str| {
            let annotations = serde_json::json!({(annotations::PAUSED): value});
            let request = named("x", annotations, Value::Null).map(|request| request.paused);
            request.map_err(|error| (error.class, error.message))
        };
        assert_eq!((paused("true"), paused("false")), (Ok(true), Ok(false)));
        for value in ["yes", "True", ""] {
            let text = format!(
                "metadata.annotations[olm.operatorframework.io/paused]: {value:?} is neither true nor false, so nothing is reconciled; set true or false"
            );
            assert_eq!(paused(value), Err((Class::NeedsChange, text)), "{value}");
        }
    }

    #[test]
    fn request_reads_major_updates_from_the_annotation() {
        let read = |value: &str| {
            let annotations = serde_json::json!({(annotations::MAJOR_UPDATES): value});
            named("x", annotations, Value::Null).map(|request| request.major_updates)
        };
        assert_eq!(olm_resolver::MAJOR_UPDATES, annotations::MAJOR_UPDATES);
        assert_eq!(read("Hold").unwrap(), Some(MajorUpdates::Hold));
        assert_eq!(read("Automatic").unwrap(), Some(MajorUpdates::Automatic));
        let failure = read("automatic").unwrap_err();
        assert_eq!(
            (failure.class, failure.message.as_str()),
            (
                Class::NeedsChange,
                "metadata.annotations[olm.operatorframework.io/major-updates]: \"automatic\" is neither Hold nor Automatic"
            )
        );
    }

    #[test]
    fn request_reads_user_roles_from_the_annotation() {
        let read = |value: &str| {
            let annotations = serde_json::json!({(annotations::USER_ROLES): value});
            named("x", annotations, Value::Null).map(|request| request.user_roles)
        };
        assert_eq!(named("x", Value::Null, Value::Null).unwrap().user_roles, None);
        for value in [UserRoles::None, UserRoles::Aggregate] {
            assert_eq!(read(&value.to_string()).unwrap(), Some(value));
        }
        let failure = read("aggregate").unwrap_err();
        assert_eq!(
            (failure.class, failure.message.as_str()),
            (
                Class::NeedsChange,
                "metadata.annotations[olm.operatorframework.io/user-roles]: \"aggregate\" is neither None nor Aggregate"
            )
        );
    }

    #[test]
    fn request_reads_dependency_check_from_the_annotation() {
        let read = |value: &str| {
            let annotations = serde_json::json!({(annotations::DEPENDENCY_CHECK): value});
            named("x", annotations, Value::Null).map(|request| request.dependency_check)
        };
        for check in [
            DependencyCheck::Enforce,
            DependencyCheck::Warn,
            DependencyCheck::Ignore,
            DependencyCheck::Refuse,
        ] {
            assert_eq!(read(&check.to_string()).unwrap(), Some(check));
        }
        assert_eq!(named("x", Value::Null, Value::Null).unwrap().dependency_check, None);
        let failure = read("off").unwrap_err();
        assert_eq!(
            (failure.class, failure.message.as_str()),
            (
                Class::NeedsChange,
                "metadata.annotations[olm.operatorframework.io/dependency-check]: \"off\" is none of Enforce, Warn, Ignore and Refuse"
            )
        );
    }

    #[test]
    fn request_reads_the_accepted_crd_change() {
        let read = |value: &str| {
            let annotations = serde_json::json!({(annotations::ACCEPT_CRD_CHANGE): value});
            named("x", annotations, Value::Null).map(|request| request.accepted_crd_change)
        };
        assert!(read(&format!("p.v2@sha256:{}", "a".repeat(64))).unwrap().is_some());
        let failure = read("true").unwrap_err();
        assert_eq!(failure.class, Class::NeedsChange);
        let want =
            "metadata.annotations[olm.operatorframework.io/accept-crd-change]: \"true\" is not of the form ";
        assert!(failure.message.starts_with(want), "{}", failure.message);
    }

    #[test]
    fn request_reports_selector_errors_before_range_errors() {
        let bad = serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "bad"}]});
        for (selector, version, want) in [
            (
                bad.clone(),
                "foobar",
                "desired catalog selector is invalid: \"bad\" is not a valid label selector operator",
            ),
            (
                Value::Null,
                "foobar",
                "desired version range \"foobar\" is invalid: improper constraint: \"foobar\"",
            ),
        ] {
            let extension: ClusterExtension = serde_json::from_value(serde_json::json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "x"},
                "spec": {
                    "namespace": "x",
                    "source": {"sourceType": "Catalog", "catalog": {"packageName": "p", "version": version, "selector": selector}},
                },
            }))
            .unwrap();
            let failure = validate(&extension).unwrap_err();
            assert!(failure.message.starts_with(want), "{}", failure.message);
        }
    }
}
