//! The wish: a ClusterExtension's spec with meaning. Strings become names, ranges and selectors here, once.
//!
//! What admission already guarantees is not asked again, except where an object stored under an older schema could lack
//! it. Rule: resolution §4.1 (selector errors win over range errors).

use olm_api::ClusterExtension;
use olm_api::annotations;
use olm_api::cluster_extension::{CrdUpgradeSafetyEnforcement, UpgradeConstraintPolicy};
use olm_core::{ChannelName, PackageName, Range};
use serde_json::{Map, Value};

use super::failure::{Class, Failure};
use super::selector::Selector;

/// Longest name whose label values, revision names and Secret names all fit.
const LONGEST_NAME: usize = 63;

/// What the user wants.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Name of the extension.
    pub name: String,
    /// UID of the extension.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Namespace of the package's own objects.
    pub namespace: String,
    /// ServiceAccount in that namespace, if one is named.
    pub service_account: Option<String>,
    /// The package.
    pub package: PackageName,
    /// Channels in the user's order; empty means all.
    pub channels: Vec<ChannelName>,
    /// The range.
    pub range: Option<Range>,
    /// Which catalogs to look into.
    pub selector: Selector,
    /// Whether the catalog's upgrade edges bind.
    pub policy: UpgradeConstraintPolicy,
    /// What an unsafe CRD change leads to.
    pub enforcement: CrdUpgradeSafetyEnforcement,
    /// `spec.config.inline`.
    pub config: Option<Map<String, Value>>,
    /// Minutes that a rollout may take.
    pub progress_deadline_minutes: Option<i32>,
    /// Whether the user paused the extension.
    pub paused: bool,
}

/// Reads the spec.
///
/// # Errors
/// The first thing that is wrong, as condition text with its class.
pub fn validate(extension: &ClusterExtension) -> Result<Wish, Failure> {
    let name = extension.metadata.name.clone().unwrap_or_default();
    if name.len() > LONGEST_NAME {
        return Err(Failure::new(
            Class::NeedsChange,
            format!(
                "metadata.name {name:?} has {} characters, at most {LONGEST_NAME} fit into the labels of its objects; \
                 create the ClusterExtension under a shorter name",
                name.len()
            ),
        ));
    }
    let spec = &extension.spec;
    let catalog = spec.source.catalog.as_ref().ok_or_else(|| {
        Failure::new(Class::NeedsChange, "spec.source.catalog is not set; name the package to install there")
    })?;
    let package = catalog.package_name.parse().map_err(|_| {
        Failure::new(
            Class::NeedsChange,
            "spec.source.catalog.packageName is empty; name the package to install there",
        )
    })?;
    let selector = Selector::parse(catalog.selector.as_ref()).map_err(|text| {
        Failure::new(Class::NeedsChange, format!("desired catalog selector is invalid: {text}"))
    })?;
    let range = olm_resolver::parse_range(catalog.version.as_deref().unwrap_or_default())
        .map_err(|error| Failure::new(Class::NeedsChange, error.condition_message()))?;
    let channels = catalog.channels.iter().filter_map(|channel| channel.parse().ok()).collect();
    let annotation =
        |key: &str| extension.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
    Ok(Wish {
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
        enforcement: enforcement(extension),
        config: spec.config.as_ref().and_then(|config| config.inline.clone()),
        progress_deadline_minutes: spec.progress_deadline_minutes.filter(|minutes| *minutes > 0),
        paused: annotation(annotations::PAUSED) == Some("true"),
    })
}

fn enforcement(extension: &ClusterExtension) -> CrdUpgradeSafetyEnforcement {
    extension
        .spec
        .install
        .as_ref()
        .and_then(|install| install.preflight.as_ref())
        .map(|preflight| preflight.crd_upgrade_safety.enforcement)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_error_wins_over_a_range_error() {
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
                    "source": {"sourceType": "Catalog", "catalog":
                        {"packageName": "p", "version": version, "selector": selector}},
                },
            }))
            .unwrap();
            let failure = validate(&extension).unwrap_err();
            assert!(failure.message.starts_with(want), "{}", failure.message);
        }
    }
}
