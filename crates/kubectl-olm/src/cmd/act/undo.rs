//! The version that runs after a change that did not become Ready, and the command that takes the request back. Pure.

use kube::ResourceExt as _;
use olm_api::ClusterExtension;
use serde_json::{Value, json};

/// The version that runs after a change that was refused or takes too long, and how to continue. `target` is the requested version, `back` the
/// command that takes the request back.
pub(super) fn not_done(
    name: &str,
    target: Option<&str>,
    installed: Option<&str>,
    back: Option<&str>,
) -> String {
    let runs = match (installed, target) {
        (Some(version), Some(target)) if version == target => {
            format!("version {version} is installed, but it is not Ready")
        }
        (Some(version), Some(target)) => {
            format!("version {version} stays installed; {target} is requested and not installed")
        }
        (None, Some(target)) => format!("nothing is installed; {target} is requested"),
        (Some(version), None) => format!("version {version} is installed"),
        (None, None) => "nothing is installed".to_owned(),
    };
    let back = back.map(|back| format!(", or take the request back with: {back}")).unwrap_or_default();
    format!("{runs}. Follow the message above (`kubectl olm plan {name}` repeats it){back}")
}

/// The `kubectl olm upgrade` that restores range, channels and policy of `before`; `None` if `after` has the same ones.
pub(super) fn command(before: &ClusterExtension, after: &ClusterExtension) -> Option<String> {
    let [before_catalog, after_catalog] =
        [before, after].map(|extension| json!(extension.spec.source.catalog));
    let differs = |field: &str| before_catalog[field] != after_catalog[field];
    let mut flags = String::new();
    if differs("version") {
        match before_catalog["version"].as_str().filter(|range| !range.is_empty()) {
            Some(range) => flags.push_str(&format!(" --version '{range}'")),
            None => flags.push_str(" --any-version"),
        }
    }
    if differs("channels") {
        let channels = before_catalog["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        match channels {
            [] => flags.push_str(" --any-channel"),
            all => {
                for channel in all.iter().filter_map(Value::as_str) {
                    flags.push_str(&format!(" --channel {channel}"));
                }
            }
        }
    }
    // another range or channel sets the policy back by itself
    let policy = before_catalog["upgradeConstraintPolicy"].as_str().unwrap_or("CatalogProvided");
    if policy != "CatalogProvided" && !flags.is_empty()
        || flags.is_empty() && differs("upgradeConstraintPolicy")
    {
        flags.push_str(&format!(" --policy {policy}"));
    }
    (!flags.is_empty()).then(|| format!("kubectl olm upgrade {}{flags}", before.name_any()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_names_what_runs_and_how_to_go_back() {
        let end = "Follow the message above (`kubectl olm plan x` repeats it)";
        for (target, installed, back, want) in [
            (
                Some("1.0.1"),
                Some("2.0.0"),
                Some("kubectl olm upgrade x --any-version"),
                format!(
                    "version 2.0.0 stays installed; 1.0.1 is requested and not installed. {end}, or take the request back with: kubectl olm \
                     upgrade x --any-version"
                ),
            ),
            (
                Some("1.0.1"),
                Some("1.0.1"),
                None,
                format!("version 1.0.1 is installed, but it is not Ready. {end}"),
            ),
            (Some("1.0.1"), None, None, format!("nothing is installed; 1.0.1 is requested. {end}")),
            (None, Some("1.0.1"), None, format!("version 1.0.1 is installed. {end}")),
        ] {
            assert_eq!(not_done("x", target, installed, back), want);
        }
    }

    #[test]
    fn undo_restores_range_channels_and_policy() {
        let extension = |catalog: Value| -> ClusterExtension {
            let mut whole = json!({"packageName": "x"});
            json_patch::merge(&mut whole, &catalog);
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "x"},
                "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": whole}},
            }))
            .unwrap()
        };
        for (before, after, want) in [
            (json!({}), json!({"version": "1.0.0"}), Some("--any-version")),
            (json!({"version": "1.x"}), json!({"version": "1.0.0"}), Some("--version '1.x'")),
            (json!({"version": "1.0.0"}), json!({"version": "1.0.0"}), None),
            (json!({"channels": ["a", "b"]}), json!({"channels": ["c"]}), Some("--channel a --channel b")),
            (
                json!({"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"}),
                json!({"version": "2.x", "upgradeConstraintPolicy": "CatalogProvided"}),
                Some("--version '1.0.0' --policy SelfCertified"),
            ),
        ] {
            let want = want.map(|flags| format!("kubectl olm upgrade x {flags}"));
            assert_eq!(command(&extension(before), &extension(after)), want);
        }
    }
}
