//! `ClusterObjectSet`: one immutable revision of an extension's objects, rolled out phase by phase.
//!
//! Rule: operator-controller §1.2, revisions §2.

#![expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the schema derive copies each struct into a function; printer columns share argument names"
)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Condition;
use crate::cel;
use crate::schema::{self, Selector};

/// The objects of one revision and how to roll them out.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "olm.operatorframework.io",
    version = "v1",
    kind = "ClusterObjectSet",
    plural = "clusterobjectsets",
    singular = "clusterobjectset",
    shortname = "cos",
    category = "olm",
    status = "ClusterObjectSetStatus",
    derive = "PartialEq",
    doc = "ClusterObjectSet is one revision of a set of objects, applied in ordered phases. It is made by the controller for a ClusterExtension and is not meant to be written by hand.",
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Available')].status"
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Progressing')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "State", type_ = "string", priority = 1, json_path = r#".spec.lifecycleState"#),
    printcolumn(name = "Revision", type_ = "integer", priority = 1, json_path = r#".spec.revision"#),
    printcolumn(
        name = "Version",
        type_ = "string",
        priority = 1,
        json_path = r#".metadata.annotations.olm\.operatorframework\.io/bundle-version"#
    )
)]
pub struct ClusterObjectSetSpec {
    /// `Active`: the objects are applied and kept. `Archived`: the objects are deleted unless a newer revision has taken them
    /// over; this is final.
    #[x_kube(validation = cel::lifecycle_one_way())]
    pub lifecycle_state: LifecycleState,

    /// The number of this revision, from 1 upwards and unique for its owner; it cannot be changed.
    #[schemars(range(min = 1))]
    #[x_kube(validation = cel::unchanged("revision is immutable"))]
    pub revision: i64,

    /// What happens when an object exists already; phases and objects may set another value. It cannot be changed.
    #[x_kube(validation = cel::unchanged("collisionProtection is immutable"))]
    pub collision_protection: CollisionProtection,

    /// The objects in phases (at most 20), rolled out in this order: a phase starts when all objects of the one before pass their
    /// probes. Once filled it cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = cel::filled_once("phases")
    )]
    pub phases: Vec<Phase>,

    /// Minutes (10 to 720) that the rollout may take before it is reported as failed. Without it there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 720))]
    pub progress_deadline_minutes: Option<i32>,

    /// When an object counts as ready (1 to 20 probes); an object that no probe selects is ready as soon as it exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub progression_probes: Vec<ProgressionProbe>,
}

/// Whether a revision is in force.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LifecycleState {
    /// In force.
    Active,
    /// Replaced, and never active again.
    Archived,
}

/// What happens when an object exists already.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CollisionProtection {
    /// Only objects that this owner's revisions created are touched.
    #[default]
    Prevent,
    /// Existing objects are adopted if no one controls them.
    IfNoController,
    /// Existing objects are taken over from any controller.
    None,
}

/// Objects that are applied together.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// The phase's name, unique in the revision: a lower-case DNS label of 1 to 63 characters.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = cel::phase_name())]
    pub name: String,

    /// The objects of the phase, at most 50.
    #[schemars(length(max = 50))]
    pub objects: Vec<PhaseObject>,

    /// What happens when an object of this phase exists already; the default is the revision's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_protection: Option<CollisionProtection>,
}

/// One object, given here or kept in a Secret.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = cel::object_or_ref())]
pub struct PhaseObject {
    /// The whole object with apiVersion, kind and metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::embedded_object")]
    pub object: Option<Map<String, Value>>,

    /// The entry of an immutable Secret that holds the object as JSON, gzip-compressed or not.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<ObjectReference>,

    /// What happens when this object exists already; the default is the phase's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_protection: Option<CollisionProtection>,
}

/// Points to one entry of a Secret.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectReference {
    /// The Secret's name, 1 to 253 characters.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The Secret's namespace, at most 63 characters; without it, the namespace of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,

    /// The key in the Secret's data, 1 to 253 characters.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// When objects of a certain sort count as ready.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgressionProbe {
    /// The objects that are probed.
    #[x_kube(validation = cel::member("type", "GroupKind", "groupKind"), validation = cel::member("type", "Label", "label"))]
    pub selector: ProbeSelector,

    /// What must hold for each of them (1 to 20 assertions).
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub assertions: Vec<Assertion>,
}

/// Selects objects; `type` selects the member that is set.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSelector {
    /// How objects are selected: by `GroupKind` or by `Label`.
    #[serde(rename = "type")]
    pub type_: ProbeSelectorType,

    /// The API group and kind of the objects. Required when `type` is `GroupKind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_kind: Option<GroupKind>,

    /// Labels of the objects; exactly one of `matchLabels` and `matchExpressions`. Required when `type` is `Label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::one_form_selector")]
    pub label: Option<Selector>,
}

/// The ways to select objects.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProbeSelectorType {
    /// By API group and kind.
    GroupKind,
    /// By labels.
    Label,
}

/// An API group and a kind in it.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// One thing that must hold; `type` names the member that is set.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = cel::member("type", "ConditionEqual", "conditionEqual"),
    validation = cel::member("type", "FieldsEqual", "fieldsEqual"),
    validation = cel::member("type", "FieldValue", "fieldValue")
)]
pub struct Assertion {
    /// What is looked at: `ConditionEqual`, `FieldsEqual` or `FieldValue`.
    #[serde(rename = "type")]
    pub type_: AssertionType,

    /// A condition that must have a certain status. Required when `type` is `ConditionEqual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition_equal: Option<ConditionEqual>,

    /// Two fields that must be equal. Required when `type` is `FieldsEqual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields_equal: Option<FieldsEqual>,

    /// A field that must have a certain value. Required when `type` is `FieldValue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_value: Option<FieldValue>,
}

/// The sorts of assertion.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AssertionType {
    /// A condition has a status.
    ConditionEqual,
    /// Two fields are equal.
    FieldsEqual,
    /// A field has a value.
    FieldValue,
}

/// A condition that must have a certain status.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionEqual {
    /// The condition's type, 1 to 200 characters.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 200))]
    pub type_: String,

    /// The status it must have: True or False.
    pub status: ProbedStatus,
}

/// The statuses that a probe can ask for.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProbedStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
}

/// Two fields that must be equal.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldsEqual {
    /// The path of one field, such as `spec.replicas`; 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = cel::field_path())]
    pub field_a: String,

    /// The path of the other field; 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = cel::field_path())]
    pub field_b: String,
}

/// A field that must have a certain value.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldValue {
    /// The field's path, such as `status.phase`; 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = cel::field_path())]
    pub field_path: String,

    /// The value it must have, as text; 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    pub value: String,
}

/// What was seen of the rollout.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterObjectSetStatus {
    /// Observations: `Progressing`, `Available` and, once and for all, `Succeeded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The content of each phase (at most 20) when it was first read; later content must be the same. Once filled it cannot be
    /// changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = cel::filled_once("observedPhases")
    )]
    pub observed_phases: Vec<ObservedPhase>,
}

/// The content of one phase.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedPhase {
    /// The phase's name.
    pub name: String,

    /// The digest of the phase's objects, `<algorithm>:<hex>`, 1 to 256 characters.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = cel::phase_digest())]
    pub digest: String,
}
