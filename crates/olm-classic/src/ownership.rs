//! Objects that an extension of OLM v1 manages.

use olm_api::labels;
use olm_core::Object;

/// Why an object cannot be written: it belongs to a ClusterExtension, by the labels that OLM v1 puts on what it manages.
pub fn extension_conflict(live: &Object) -> Option<String> {
    let found = live.labels();
    let label = |key: &str| found.get(key).copied();
    label(labels::OWNER_KIND).filter(|kind| *kind == labels::OWNER_KIND_CLUSTER_EXTENSION)?;
    let (kind, name, extension) = (live.kind(), live.name(), label(labels::OWNER_NAME)?);
    Some(format!("{kind} {name} belongs to ClusterExtension {extension} of OLM v1; uninstall one of the two"))
}

#[cfg(test)]
mod tests {
    use olm_core::Object;
    use serde_json::json;

    use super::*;

    #[test]
    fn extension_conflict_names_object_and_extension() {
        let object = |labels: serde_json::Value| {
            Object::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": labels}}))
                .unwrap()
        };
        let of = |kind: &str| object(json!({(labels::OWNER_KIND): kind, (labels::OWNER_NAME): "shop"}));
        let want = "Deployment web belongs to ClusterExtension shop of OLM v1; uninstall one of the two";
        assert_eq!(extension_conflict(&of("ClusterExtension")).as_deref(), Some(want));
        for other in [of("Other"), object(json!({(labels::OWNER_NAME): "shop"})), object(json!({}))] {
            assert_eq!(extension_conflict(&other), None);
        }
    }
}
