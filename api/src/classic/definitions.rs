//! The CustomResourceDefinitions of the kinds here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::json;

use super::{
    CatalogSource, ClusterServiceVersion, GROUP, InstallPlan, OlmConfig, Operator, OperatorCondition,
    OperatorGroup, Subscription, operator_condition, operator_group,
};
use crate::crds::corrected;

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
            definition::<operator_condition::v1::OperatorCondition>()?,
        ),
        with_old(definition::<OperatorGroup>()?, definition::<operator_group::v1alpha2::OperatorGroup>()?),
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

/// The definition of a kind that is also served in an old version.
fn with_old(mut crd: CustomResourceDefinition, old: CustomResourceDefinition) -> CustomResourceDefinition {
    for mut version in old.spec.versions {
        version.storage = false;
        crd.spec.versions.push(version);
    }
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

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
