//! A bundle of a catalog as the message that clients of OLM Classic know.

use olm_fbc::{Bundle, Icon, property};
use serde_json::json;

use olm_registry::proto;

/// The message, without the members that a channel decides. `icon` is the package's; manifests are left out of lists.
///
/// # Errors
/// What does not decode, in the words of [`olm_fbc`].
pub(super) fn message(bundle: &Bundle, manifests: Option<Option<&Icon>>) -> Result<proto::Bundle, String> {
    let mut message = proto::Bundle {
        csv_name: bundle.name.clone(),
        package_name: bundle.package.clone(),
        bundle_path: bundle.image.clone(),
        version: bundle.package_property()?.version,
        ..proto::Bundle::default()
    };
    for (index, found) in bundle.properties.iter().enumerate() {
        match found.kind.as_str() {
            property::BUNDLE_OBJECT | property::CSV_METADATA => continue,
            property::GVK => {
                let property::Gvk { group, kind, version } = found.read(index)?;
                message.provided_apis.push(api(group, version, kind));
            }
            property::GVK_REQUIRED => {
                let property::GvkRequired { group, kind, version } = found.read(index)?;
                let value = json!({"group": group, "kind": kind, "version": version});
                message.dependencies.push(dependency(property::GVK, &value));
                message.required_apis.push(api(group, version, kind));
            }
            property::PACKAGE_REQUIRED => {
                let property::PackageRequired { package_name, version_range } = found.read(index)?;
                let value = json!({"packageName": package_name, "version": version_range});
                message.dependencies.push(dependency(property::PACKAGE, &value));
            }
            _ => {}
        }
        let value = found.value.as_ref().map(|value| value.as_str().to_owned()).unwrap_or_default();
        message.properties.push(proto::Property { r#type: found.kind.clone(), value });
    }
    if let Some(icon) = manifests {
        let found = bundle.manifests(icon)?;
        message.csv_json = found.csv.and_then(|at| found.objects.get(at).cloned()).unwrap_or_default();
        message.object = found.objects;
    }
    Ok(message)
}

fn api(group: String, version: String, kind: String) -> proto::GroupVersionKind {
    proto::GroupVersionKind { group, version, kind, plural: String::new() }
}

fn dependency(kind: &str, value: &serde_json::Value) -> proto::Dependency {
    proto::Dependency { r#type: kind.to_owned(), value: value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(properties: serde_json::Value) -> Bundle {
        let text = json!({"schema": "olm.bundle", "package": "p", "name": "p.v1", "properties": properties});
        Bundle::from_json(text.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn bundle_message_has_apis_and_dependencies() {
        let gvk = |kind: &str, name: &str| json!({"type": kind, "value": {"group": "g", "kind": name, "version": "v1"}});
        let package = json!({"type": "olm.package", "value": {"packageName": "p", "version": "1.0.0"}});
        let required =
            json!({"type": "olm.package.required", "value": {"packageName": "q", "versionRange": ">1"}});
        let metadata = json!({"type": "olm.csv.metadata", "value": {"displayName": "P"}});
        let all = json!([
            metadata,
            required,
            gvk("olm.gvk", "A"),
            package,
            gvk("olm.gvk.required", "B"),
            gvk("olm.gvk", "A")
        ]);
        let listed = message(&bundle(all.clone()), None).unwrap();
        let kinds =
            |apis: &[proto::GroupVersionKind]| apis.iter().map(|api| api.kind.clone()).collect::<Vec<_>>();
        assert_eq!(
            (kinds(&listed.provided_apis), kinds(&listed.required_apis)),
            (vec!["A".to_owned(); 2], vec!["B".to_owned()])
        );
        let dependencies: Vec<_> =
            listed.dependencies.iter().map(|found| (found.r#type.as_str(), found.value.as_str())).collect();
        assert_eq!(
            dependencies,
            [
                ("olm.package", r#"{"packageName":"q","version":">1"}"#),
                ("olm.gvk", r#"{"group":"g","kind":"B","version":"v1"}"#)
            ]
        );
        assert_eq!(listed.properties.len(), 5, "without the metadata");
        assert_eq!((listed.version.as_str(), listed.csv_json.as_str()), ("1.0.0", ""));
        let whole = message(&bundle(all), Some(None)).unwrap();
        assert!(whole.csv_json.contains(r#""displayName":"P""#) && whole.object == [whole.csv_json.clone()]);
    }

    #[test]
    fn bundle_message_errors_name_the_property() {
        let package = json!({"type": "olm.package", "value": {"packageName": "p", "version": "1.0.0"}});
        for (properties, want) in [
            (json!([]), "bundle \"p.v1\" has no property of type \"olm.package\""),
            (
                json!([package, {"type": "olm.gvk", "value": 1}]),
                "parse property[1] of type \"olm.gvk\": json: cannot unmarshal number into Go value of type property.GVK",
            ),
        ] {
            assert_eq!(message(&bundle(properties), None).unwrap_err(), want);
        }
    }
}
