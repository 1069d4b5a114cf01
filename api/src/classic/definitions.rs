//! The CustomResourceDefinitions of the kinds here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt;
use serde_json::json;

use super::{
    CatalogSource, ClusterServiceVersion, GROUP, InstallPlan, OlmConfig, Operator, OperatorCondition,
    OperatorGroup, Subscription,
};
use crate::crds::{about_api_version, corrected};

/// Kinds whose objects need no specification: the apiserver adds an empty one.
const WITHOUT_SPEC: [&str; 4] = ["OLMConfig", "Operator", "OperatorCondition", "OperatorGroup"];

/// The definitions of all kinds of `operators.coreos.com`, in name order.
///
/// # Errors
/// Only if a corrected schema is no CustomResourceDefinition any more, which a test rules out.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    Ok(vec![
        definition::<CatalogSource>()?,
        definition::<ClusterServiceVersion>()?,
        definition::<InstallPlan>()?,
        definition::<OlmConfig>()?,
        with_old(
            definition::<OperatorCondition>()?,
            "v1",
            &[("spec", "conditions")],
            &[
                ("spec", "Conditions that the administrator sets."),
                ("status", "Conditions that the operator sets, as a status."),
                ("status.conditions", "Conditions that the operator sets."),
            ],
        ),
        with_old(
            definition::<OperatorGroup>()?,
            "v1alpha2",
            &[("spec", "upgradeStrategy"), ("status", "conditions")],
            &[],
        ),
        definition::<Operator>()?,
        definition::<Subscription>()?,
    ])
}

fn definition<K: CustomResourceExt>() -> Result<CustomResourceDefinition, serde_json::Error> {
    let crd = K::crd();
    let version = crd.spec.versions.first().map(|version| version.name.clone()).unwrap_or_default();
    let without_spec = WITHOUT_SPEC.contains(&crd.spec.names.kind.as_str());
    let mut crd = corrected(serde_json::to_value(crd)?, &format!("{GROUP}/{version}"));
    if without_spec && let Some(root) = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
        root["required"] = json!(["metadata"]);
        root["properties"]["spec"]["default"] = json!({});
    }
    serde_json::from_value(crd)
}

/// Adds an old version that is served, too: the stored one without some properties, and with other descriptions.
fn with_old(
    mut crd: CustomResourceDefinition,
    name: &str,
    without: &[(&str, &str)],
    described: &[(&str, &str)],
) -> CustomResourceDefinition {
    let Some(mut old) = crd.spec.versions.first().cloned() else { return crd };
    old.name = name.to_owned();
    old.storage = false;
    if let Some(root) = old.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
        for (of, name) in without {
            if let Some(properties) = property(root, of).and_then(|it| it.properties.as_mut()) {
                properties.remove(*name);
            }
        }
        let api_version = about_api_version(&format!("{GROUP}/{name}"));
        for (path, text) in described.iter().chain([&("apiVersion", api_version.as_str())]) {
            if let Some(found) = property(root, path) {
                found.description = Some((*text).to_owned());
            }
        }
    }
    crd.spec.versions.push(old);
    crd
}

/// The schema of a property, by its path.
fn property<'a>(root: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    path.split('.').try_fold(root, |schema, name| schema.properties.as_mut()?.get_mut(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rule: classic-apis §7, §8
    #[test]
    fn classic_old_versions_lack_what_was_added_later() {
        let mut found = Vec::new();
        for mut crd in crds().unwrap() {
            if crd.spec.versions.len() < 2 {
                continue;
            }
            let mut names = |version: usize, part: &str| -> Vec<String> {
                let schema = crd.spec.versions[version].schema.as_mut().unwrap();
                let part = property(schema.open_api_v3_schema.as_mut().unwrap(), part).unwrap();
                part.properties.iter().flatten().map(|(name, _)| name.clone()).collect()
            };
            for part in ["spec", "status"] {
                let old = names(1, part);
                let added: Vec<String> =
                    names(0, part).into_iter().filter(|name| !old.contains(name)).collect();
                found.push((crd.spec.names.kind.clone(), part, added.join(" ")));
            }
        }
        let row = |kind: &str, part, added: &str| (kind.to_owned(), part, added.to_owned());
        let want = [
            row("OperatorCondition", "spec", "conditions"),
            row("OperatorCondition", "status", ""),
            row("OperatorGroup", "spec", "upgradeStrategy"),
            row("OperatorGroup", "status", "conditions"),
        ];
        assert_eq!(found, want);
    }

    /// rule: classic-apis §1
    #[test]
    fn classic_kinds_have_names_columns_and_status() {
        let versions = |crd: &CustomResourceDefinition| -> String {
            let versions = crd.spec.versions.iter().map(|version| {
                assert!(version.served, "{}", version.name);
                let mark = if version.storage { "*" } else { "" };
                format!("{}{mark}", version.name)
            });
            versions.collect::<Vec<_>>().join(" ")
        };
        let found: Vec<[String; 5]> = crds()
            .unwrap()
            .iter()
            .map(|crd| {
                let names = &crd.spec.names;
                assert_eq!(crd.spec.group, GROUP);
                assert_eq!(names.categories, Some(vec!["olm".to_owned()]), "{}", names.kind);
                for version in &crd.spec.versions {
                    let subresources = version.subresources.as_ref();
                    let status = subresources.is_some_and(|subresources| subresources.status.is_some());
                    assert!(status, "{} {}", names.kind, version.name);
                }
                let columns = crd.spec.versions[0].additional_printer_columns.iter().flatten();
                let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
                let short = names.short_names.clone().unwrap_or_default().join(" ");
                [names.kind.clone(), versions(crd), short, crd.spec.scope.clone(), columns.join(" ")]
            })
            .collect();
        let expected = [
            ["CatalogSource", "v1alpha1*", "catsrc", "Namespaced", "Display Type Publisher Age"],
            [
                "ClusterServiceVersion",
                "v1alpha1*",
                "csv csvs",
                "Namespaced",
                "Display Version Release Replaces Phase",
            ],
            ["InstallPlan", "v1alpha1*", "ip", "Namespaced", "CSV Approval Approved"],
            ["OLMConfig", "v1*", "", "Cluster", ""],
            ["OperatorCondition", "v2* v1", "condition", "Namespaced", ""],
            ["OperatorGroup", "v1* v1alpha2", "og", "Namespaced", ""],
            ["Operator", "v1*", "", "Cluster", ""],
            ["Subscription", "v1alpha1*", "sub subs", "Namespaced", "Package Source Channel"],
        ];
        assert_eq!(found, expected.map(|row| row.map(str::to_owned)));
    }
}
