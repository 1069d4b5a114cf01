//! Two kinds of OpenShift, `ClusterOperator` and `ClusterVersion` in group `config.openshift.io`, version `v1`, as far as this
//! project writes or reads them.
//!
//! OpenShift brings its own definitions. For other clusters `manifests/openshift` has the ones made from these types; they know
//! fewer fields. What an object has beyond these fields does not stop it from being read.
//!
//! Rule: cluster-operator §2 and §11.

#![expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the schema derive copies each struct into a function; printer columns share argument names"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{ConditionStatus, crds};

/// The API group of both kinds.
pub const GROUP: &str = "config.openshift.io";
/// The one ClusterOperator that speaks for OLM.
pub const CLUSTER_OPERATOR: &str = "olm";
/// The one ClusterVersion.
pub const CLUSTER_VERSION: &str = "version";
/// The entry of `status.versions` that the column VERSION shows.
pub const OPERATOR: &str = "operator";

/// Nothing: a ClusterOperator reports in its status.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterOperator",
    plural = "clusteroperators",
    singular = "clusteroperator",
    shortname = "co",
    status = "ClusterOperatorStatus",
    derive = "PartialEq",
    doc = "ClusterOperator reports the state of one part of the cluster, and whether the cluster may be updated to its next minor version.",
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.versions[?(@.name=='operator')].version",
        description = "The version of the operator."
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Available')].status",
        description = "Whether the operator does its work."
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Progressing')].status",
        description = "Whether the operator is changing from one state to another."
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Degraded')].status",
        description = "Whether something has been wrong for some time."
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.conditions[?(@.type=='Available')].lastTransitionTime",
        description = "Since when Available has its value."
    )
)]
pub struct ClusterOperatorSpec {}

/// How the operator is.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperatorStatus {
    /// What is observed: Available, Progressing, Degraded, Upgradeable, EvaluationConditionsDetected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<OperatorCondition>,

    /// Versions of the operator and its parts; the entry `operator` changes when an update is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<OperandVersion>,

    /// Objects that help to find out what is wrong; tools that collect data start here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<RelatedObject>,

    /// Further data of the operator; unused here, and left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub extension: Option<Value>,
}

/// One observation.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorCondition {
    /// When `status` last changed.
    pub last_transition_time: Time,

    /// Explanation for people; line feeds are allowed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,

    /// Why `status` has its value, in CamelCase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,

    /// True, False or Unknown.
    #[schemars(schema_with = "text")]
    pub status: ConditionStatus,

    /// What is observed.
    #[serde(rename = "type")]
    pub type_: String,
}

/// The version of one part.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperandVersion {
    /// The part; `operator` for the whole.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Names an object.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedObject {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the kind.
    pub resource: String,
    /// The namespace; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

/// What version of OpenShift the cluster should have.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterVersion",
    plural = "clusterversions",
    singular = "clusterversion",
    status = "ClusterVersionStatus",
    derive = "PartialEq",
    doc = "ClusterVersion has the version of OpenShift in the cluster. The only object is named version.",
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.desired.version",
        description = "The version that the cluster has or is being updated to."
    )
)]
pub struct ClusterVersionSpec {
    /// A UUID that names this cluster.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
}

/// What version of OpenShift the cluster has.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersionStatus {
    /// The version that the cluster has or is being updated to.
    pub desired: Release,

    /// The `metadata.generation` that this status is about.
    pub observed_generation: i64,

    /// A digest of what the version is made of.
    pub version_hash: String,

    /// Versions that can follow; null when they are not known.
    #[schemars(schema_with = "releases")]
    pub available_updates: Option<Vec<Release>>,

    /// Versions that the cluster had, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<History>,
}

/// One release.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Its version.
    pub version: String,
    /// Its image.
    pub image: String,
}

/// One version that the cluster had.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// `Completed`, or `Partial` while the update runs.
    pub state: String,
    /// When the update began.
    pub started_time: Time,
    /// When it was complete; null until then.
    #[schemars(schema_with = "time_or_null")]
    pub completion_time: Option<Time>,
    /// The version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The release image.
    pub image: String,
    /// Whether the image was verified.
    pub verified: bool,
}

/// OpenShift's own schema leaves the word open.
fn text(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string"})
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn releases(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let item = Release::json_schema(generator);
    schemars::json_schema!({"type": "array", "items": item})
}

fn time_or_null(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "format": "date-time"})
}

/// Where `null` is a value.
const NULLABLE: [&str; 3] = [
    "/properties/status/properties/extension",
    "/properties/status/properties/availableUpdates",
    "/properties/status/properties/history/items/properties/completionTime",
];

/// The CustomResourceDefinitions for clusters that are no OpenShift.
///
/// # Errors
/// Only if the corrected schema is no CustomResourceDefinition any more, which a test rules out.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    [ClusterOperator::crd(), ClusterVersion::crd()]
        .into_iter()
        .map(|crd| {
            let mut crd = crds::corrected(serde_json::to_value(crd)?, "config.openshift.io/v1");
            if let Some(schema) = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
                for path in NULLABLE {
                    if let Some(place) = schema.pointer_mut(path).and_then(Value::as_object_mut) {
                        place.insert("nullable".to_owned(), json!(true));
                    }
                }
            }
            serde_json::from_value(crd)
        })
        .collect()
}

impl ClusterOperatorStatus {
    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&OperatorCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// The version of the part `operator`.
    #[must_use]
    pub fn operator_version(&self) -> Option<&str> {
        self.versions.iter().find(|entry| entry.name == OPERATOR).map(|entry| entry.version.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openshift_definitions_have_the_parts_that_clients_use() {
        let all = definitions().unwrap();
        let names: Vec<_> = all.iter().map(|crd| crd.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["clusteroperators.config.openshift.io", "clusterversions.config.openshift.io"]);
        for crd in &all {
            assert_eq!((crd.spec.scope.as_str(), crd.spec.group.as_str()), ("Cluster", GROUP));
            assert!(crd.spec.versions[0].subresources.as_ref().unwrap().status.is_some());
        }
        assert_eq!(all[0].spec.names.short_names.as_deref(), Some(&["co".to_owned()][..]));
        let schema = |index: usize| {
            serde_json::to_value(&all[index].spec.versions[0].schema).unwrap()["openAPIV3Schema"].clone()
        };
        let operator = schema(0);
        let conditions = &operator["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
        let mut required: Vec<_> = conditions["items"]["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().unwrap())
            .collect();
        required.sort_unstable();
        assert_eq!(required, ["lastTransitionTime", "status", "type"]);
        assert_eq!(operator["required"], json!(["metadata", "spec"]));
        let version = schema(1);
        assert_eq!(version["properties"]["status"]["properties"]["availableUpdates"]["nullable"], true);
        assert_eq!(version["properties"]["spec"]["required"], json!(["clusterID"]));
    }

    #[test]
    fn openshift_objects_with_more_fields_are_read() {
        let object = json!({
            "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
            "spec": {"clusterID": "c", "channel": "stable-4.18"},
            "status": {
                "desired": {"version": "4.18.3", "image": "i", "url": "u", "channels": ["a"]}, "observedGeneration": 2,
                "versionHash": "h=", "availableUpdates": null, "conditions": [{"type": "Available"}],
                "history": [{"state": "Partial", "startedTime": "2026-01-01T00:00:00Z", "completionTime": null,
                             "version": "4.18.3", "image": "i", "verified": false, "acceptedRisks": "r"}]
            }
        });
        let read: ClusterVersion = serde_json::from_value(object).unwrap();
        assert_eq!(read.status.unwrap().desired.version, "4.18.3");
    }
}
