//! The revision of a rendered bundle: phases, annotations, probes. Pure.
//!
//! Rule: revisions §3, §4.1; operator-controller §6.3 step 3.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
use kube::core::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use olm_api::cluster_object_set::{
    Assertion, AssertionType, CollisionProtection, ConditionEqual, FieldValue, FieldsEqual, GroupKind,
    LifecycleState, ObjectReference, Phase, PhaseObject, ProbeSelector, ProbeSelectorType, ProbedStatus,
    ProgressionProbe,
};
use olm_api::{
    ClusterExtension, ClusterObjectSet, ClusterObjectSetSpec, annotations, field_managers, finalizers, labels,
};
use olm_core::{Cancellation, Object, go};
use olm_rollout::{Packed, Stamp, probe};
use serde_json::{Map, Value};

use crate::resolution::{BundleFacts, Class, ExtensionRequest, PassError};

/// Bytes of objects that a revision may hold in itself; etcd stores little more in one object.
const MAX_INLINE_BYTES: usize = 1 << 20;
/// Most characters of a label's value.
const MAX_LABEL: usize = 63;

/// Content of a revision that has no number yet.
#[derive(Debug, Clone)]
pub struct Desired {
    phases: Vec<olm_rollout::Phase>,
    annotations: BTreeMap<String, String>,
    progress_deadline_minutes: Option<i32>,
    owner: OwnerReference,
    extension: String,
}

/// A revision with its number, and the Secrets that hold its objects.
#[derive(Debug, Clone)]
pub struct Numbered {
    /// The ClusterObjectSet as it is applied.
    pub set: ClusterObjectSet,
    pub packed: Packed,
}

/// The error for objects that do not fit into a revision. It stays as long as the inputs stay.
fn oversized(text: impl ToString) -> PassError {
    PassError::new(Class::NeedsChange, text.to_string())
}

impl Desired {
    /// Lays rendered objects out in phases.
    ///
    /// `properties` is the bundle's `olm.properties` annotation, if it has one.
    ///
    /// # Errors
    /// When there are more objects than the API can hold.
    pub fn new(
        request: &ExtensionRequest,
        bundle: &BundleFacts,
        properties: Option<&str>,
        objects: Vec<Object>,
    ) -> Result<Self, PassError> {
        let stamp = Stamp { extension: &request.name, package: &bundle.package, version: &bundle.version };
        let content = objects.into_iter().map(|object| olm_rollout::sanitise(object, stamp)).collect();
        Ok(Self {
            phases: olm_rollout::phases(content).map_err(oversized)?,
            annotations: revision_annotations(bundle, properties),
            progress_deadline_minutes: request.progress_deadline_minutes,
            owner: owner(&request.name, &request.uid),
            extension: request.name.clone(),
        })
    }

    /// The objects, in the order in which they are rolled out.
    #[must_use]
    pub(crate) fn into_phases(self) -> Vec<olm_rollout::Phase> {
        self.phases
    }

    /// The revision under this number.
    ///
    /// # Errors
    /// When an object does not fit into a Secret, or the revision's name into a label.
    pub fn numbered(&self, number: i64, system_namespace: &str) -> Result<Numbered, PassError> {
        self.numbered_until(number, system_namespace, &Cancellation::default())
    }

    /// As [`Self::numbered`]. It reads the cancellation before each object.
    ///
    /// # Errors
    /// As [`Self::numbered`], and when it is cancelled.
    pub(crate) fn numbered_until(
        &self,
        number: i64,
        system_namespace: &str,
        cancellation: &Cancellation,
    ) -> Result<Numbered, PassError> {
        let name = self.name(number);
        if name.len() > MAX_LABEL {
            return Err(oversized(format!(
                "the name of revision {name:?} has {} characters, at most {MAX_LABEL} fit into a label of its Secrets; create \
                 the ClusterExtension under a shorter name",
                name.len()
            )));
        }
        let (phases, packed) = self.pack(&name, system_namespace, cancellation)?;
        Ok(Numbered { set: self.set(number, CollisionProtection::Prevent, phases), packed })
    }

    /// The revision under this number that adopts what the reference installed through a Helm release: whichever owner controls the
    /// objects, and with the objects in itself unless they are too large for that. Rule: revisions §4.6.
    ///
    /// # Errors
    /// When an object does not fit into a Secret.
    pub fn migrated(&self, number: i64, system_namespace: &str) -> Result<Numbered, PassError> {
        let size: usize = self
            .phases
            .iter()
            .flat_map(|phase| &phase.objects)
            .map(|object| go::json_object(&object.0).len())
            .sum();
        let (phases, packed) = if size <= MAX_INLINE_BYTES {
            let inline = |object: &Object| (Some(object.0.clone()), None);
            let phases = self.phases.iter();
            let phases = phases.map(|phase| api_phase(&phase.name, &phase.objects, inline));
            (phases.collect(), Packed::default())
        } else {
            self.pack(&self.name(number), system_namespace, &Cancellation::default())?
        };
        let mut set = self.set(number, CollisionProtection::None, phases);
        let label = (labels::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
        set.metadata.labels.get_or_insert_default().extend([label]);
        Ok(Numbered { set, packed })
    }

    /// The phases as references to Secrets, and the Secrets.
    fn pack(
        &self,
        name: &str,
        system_namespace: &str,
        cancellation: &Cancellation,
    ) -> Result<(Vec<Phase>, Packed), PassError> {
        let packed = olm_rollout::pack_until(name, &self.phases, cancellation)
            .map_err(|error| oversized(format!("packing objects into Secrets: {error}")))?;
        let reference = |object: &olm_rollout::ObjectRef| ObjectReference {
            name: object.secret.clone(),
            namespace: Some(system_namespace.to_owned()),
            key: object.key.clone(),
        };
        let phases = packed.phases.iter();
        let phases = phases
            .map(|phase| api_phase(&phase.name, &phase.objects, |object| (None, Some(reference(object)))));
        Ok((phases.collect(), packed))
    }

    fn name(&self, number: i64) -> String {
        format!("{}-{number}", self.extension)
    }

    fn set(
        &self,
        number: i64,
        collision_protection: CollisionProtection,
        phases: Vec<Phase>,
    ) -> ClusterObjectSet {
        let name = self.name(number);
        let mut set = ClusterObjectSet::new(
            &name,
            ClusterObjectSetSpec {
                lifecycle_state: LifecycleState::Active,
                revision: number,
                collision_protection,
                phases,
                progress_deadline_minutes: self.progress_deadline_minutes,
                progression_probes: default_probes(),
            },
        );
        set.metadata = ObjectMeta {
            name: Some(name),
            annotations: Some(self.annotations.clone()),
            labels: Some(BTreeMap::from([
                (labels::OWNER_KIND.to_owned(), labels::OWNER_KIND_CLUSTER_EXTENSION.to_owned()),
                (labels::OWNER_NAME.to_owned(), self.extension.clone()),
            ])),
            owner_references: Some(vec![self.owner.clone()]),
            // it is torn down, not dropped, from its first moment on
            finalizers: Some(vec![finalizers::TEARDOWN.to_owned()]),
            ..ObjectMeta::default()
        };
        set
    }
}

/// Whether the stored revision already holds exactly this content.
#[must_use]
pub fn same_content(stored: &ClusterObjectSet, desired: &ClusterObjectSet) -> bool {
    stored.spec.lifecycle_state == LifecycleState::Active
        && stored.spec.collision_protection == desired.spec.collision_protection
        && stored.spec.phases == desired.spec.phases
}

/// Annotations that this controller writes on a revision.
const REVISION_ANNOTATIONS: [&str; 6] = [
    annotations::BUNDLE_NAME,
    annotations::PACKAGE_NAME,
    annotations::BUNDLE_VERSION,
    annotations::BUNDLE_REFERENCE,
    annotations::BUNDLE_RELEASE,
    annotations::PROPERTIES,
];

/// Whether the settings that can change in place (annotations, probes, deadline) are the desired ones.
#[must_use]
pub(crate) fn same_settings(stored: &ClusterObjectSet, desired: &ClusterObjectSet) -> bool {
    let (theirs, ours) = (stored.annotations(), desired.annotations());
    let is_same = |key: &str| {
        // one that is not desired any more is removed by an apply, unless another client owns it
        theirs.get(key) == ours.get(key) || (!ours.contains_key(key) && is_foreign(stored, key))
    };
    REVISION_ANNOTATIONS.into_iter().all(is_same)
        && stored.spec.progress_deadline_minutes == desired.spec.progress_deadline_minutes
        && stored.spec.progression_probes == desired.spec.progression_probes
}

/// Whether another client alone owns the annotation. Caches have no `managedFields`: then it counts as that of the controller.
fn is_foreign(stored: &ClusterObjectSet, key: &str) -> bool {
    let (entries, field) = (stored.managed_fields(), format!("f:{key}"));
    let is_applied = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:metadata"]["f:annotations"]);
        entry.manager.as_deref() == Some(field_managers::CLUSTER_EXTENSION_CONTROLLER)
            && entry.operation.as_deref() == Some("Apply")
            && fields.is_some_and(|annotations| annotations.get(&field).is_some())
    };
    !entries.is_empty() && !entries.iter().any(is_applied)
}

fn revision_annotations(bundle: &BundleFacts, properties: Option<&str>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        (annotations::BUNDLE_NAME.to_owned(), bundle.name.clone()),
        (annotations::PACKAGE_NAME.to_owned(), bundle.package.clone()),
        (annotations::BUNDLE_VERSION.to_owned(), bundle.version.clone()),
        (annotations::BUNDLE_REFERENCE.to_owned(), bundle.reference.clone()),
    ]);
    all.extend(bundle.release.clone().map(|release| (annotations::BUNDLE_RELEASE.to_owned(), release)));
    all.extend(properties.map(|text| (annotations::PROPERTIES.to_owned(), text.to_owned())));
    all
}

/// The extension with this name and UID as the controller of an object.
#[must_use]
pub fn owner(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: ClusterExtension::api_version(&()).into_owned(),
        kind: ClusterExtension::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn api_phase<T>(
    name: &str,
    objects: &[T],
    content: impl Fn(&T) -> (Option<Map<String, Value>>, Option<ObjectReference>),
) -> Phase {
    let objects = objects.iter().map(content);
    let objects =
        objects.map(|(object, reference)| PhaseObject { object, reference, collision_protection: None });
    Phase { name: name.to_owned(), objects: objects.collect(), collision_protection: None }
}

fn default_probes() -> Vec<ProgressionProbe> {
    olm_rollout::default_probes()
        .into_iter()
        .filter_map(|probe| {
            let probe::Selector::GroupKind { group, kind } = probe.selector else { return None };
            Some(ProgressionProbe {
                selector: ProbeSelector {
                    type_: ProbeSelectorType::GroupKind,
                    group_kind: Some(GroupKind { group, kind }),
                    label: None,
                },
                assertions: probe.assertions.into_iter().map(assertion).collect(),
            })
        })
        .collect()
}

fn assertion(assertion: probe::Assertion) -> Assertion {
    let empty = |type_| Assertion { type_, condition_equal: None, fields_equal: None, field_value: None };
    match assertion {
        probe::Assertion::ConditionEqual { condition, status } => Assertion {
            condition_equal: Some(ConditionEqual {
                type_: condition,
                status: if status == "True" { ProbedStatus::True } else { ProbedStatus::False },
            }),
            ..empty(AssertionType::ConditionEqual)
        },
        probe::Assertion::FieldsEqual { a, b } => Assertion {
            fields_equal: Some(FieldsEqual { field_a: a, field_b: b }),
            ..empty(AssertionType::FieldsEqual)
        },
        probe::Assertion::FieldValue { path, value } => Assertion {
            field_value: Some(FieldValue { field_path: path, value }),
            ..empty(AssertionType::FieldValue)
        },
    }
}

/// The metadata that this controller applies, from that of a stored revision: without what others and the apiserver put there.
#[must_use]
pub(crate) fn applied_metadata(stored: &ObjectMeta) -> ObjectMeta {
    let ours = |key: &String| key.starts_with("olm.");
    let keep = |all: &Option<BTreeMap<String, String>>| {
        all.as_ref()
            .map(|all| all.iter().filter(|(k, _)| ours(k)).map(|(k, v)| (k.clone(), v.clone())).collect())
    };
    ObjectMeta {
        name: stored.name.clone(),
        labels: keep(&stored.labels),
        annotations: keep(&stored.annotations),
        owner_references: stored.owner_references.clone(),
        finalizers: stored
            .finalizers
            .as_ref()
            .map(|all| all.iter().filter(|name| *name == finalizers::TEARDOWN).cloned().collect()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn desired(data: usize) -> Desired {
        desired_with(json!({}), data)
    }

    fn desired_with(annotations: Value, data: usize) -> Desired {
        let extension = serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
            "metadata": {"name": "demo", "uid": "u1", "annotations": annotations},
            "spec": {"namespace": "demo", "progressDeadlineMinutes": 30, "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
        }))
        .unwrap();
        let request = crate::resolution::validate(&extension).unwrap();
        let bundle = BundleFacts {
            name: "demo.v1.0.0".into(),
            package: "demo".into(),
            version: "1.0.0".into(),
            release: None,
            reference: "registry/demo@sha256:0".into(),
        };
        let object = |kind: &str, name: &str, data: Value| {
            Object::from_value(json!({"apiVersion": "v1", "kind": kind, "data": data, "metadata": {
                "name": name, "namespace": "demo", "labels": {"a": "b"}, "uid": "gone", "ownerReferences": [{"kind": "ClusterExtension"}],
            }}))
            .unwrap()
        };
        let objects = vec![
            object("ConfigMap", "a", json!({"x": "x".repeat(data)})),
            object("ServiceAccount", "b", json!({})),
            object("ConfigMap", "c", json!({"x": "y".repeat(data)})),
        ];
        Desired::new(&request, &bundle, Some("[]"), objects).unwrap()
    }

    /// rule: operator-controller §6.3 step 3, §A; revisions §3, §4.1, §8.4
    #[test]
    fn revision_has_the_fields_that_clients_read() {
        let Numbered { set, packed } = desired(1).numbered(3, "olmv1-system").unwrap();
        let mut value = serde_json::to_value(&set).unwrap();
        let secret = packed.secrets[0].name.clone();
        assert!(secret.starts_with("demo-3-") && secret.len() == "demo-3-".len() + 16, "{secret}");
        for phase in value["spec"]["phases"].as_array_mut().unwrap() {
            for object in phase["objects"].as_array_mut().unwrap() {
                let key = object["ref"]["key"].take();
                assert!(packed.secrets[0].data.contains_key(key.as_str().unwrap()), "{key}");
            }
        }
        let reference = json!({"ref": {"name": secret, "namespace": "olmv1-system", "key": null}});
        let condition = |name: &str| json!({"type": "ConditionEqual", "conditionEqual": {"type": name, "status": "True"}});
        let phase = |value: &str| json!({"type": "FieldValue", "fieldValue": {"fieldPath": "status.phase", "value": value}});
        let updated = json!({"type": "FieldsEqual", "fieldsEqual": {"fieldA": "status.updatedReplicas", "fieldB": "status.replicas"}});
        let probe = |group: &str, kind: &str, assertions: Value| json!({"selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": kind}}, "assertions": assertions});
        assert_eq!(
            value,
            json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                "metadata": {
                    "name": "demo-3",
                    "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "demo"},
                    "annotations": {
                        "olm.operatorframework.io/bundle-name": "demo.v1.0.0", "olm.operatorframework.io/package-name": "demo",
                        "olm.operatorframework.io/bundle-version": "1.0.0",
                        "olm.operatorframework.io/bundle-reference": "registry/demo@sha256:0", "olm.properties": "[]",
                    },
                    "finalizers": ["olm.operatorframework.io/teardown"],
                    "ownerReferences": [{
                        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "demo", "uid": "u1",
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": {
                    "lifecycleState": "Active", "revision": 3, "collisionProtection": "Prevent", "progressDeadlineMinutes": 30,
                    "phases": [
                        {"name": "identity", "objects": [reference.clone()]},
                        {"name": "configuration", "objects": [reference.clone(), reference]},
                    ],
                    "progressionProbes": [
                        probe("apiextensions.k8s.io", "CustomResourceDefinition", json!([condition("Established")])),
                        probe("cert-manager.io", "Certificate", json!([condition("Ready")])),
                        probe("cert-manager.io", "Issuer", json!([condition("Ready")])), probe("", "Namespace", json!([phase("Active")])),
                        probe("", "PersistentVolumeClaim", json!([phase("Bound")])),
                        probe("apps", "StatefulSet", json!([updated.clone(), condition("Available")])),
                        probe("apps", "Deployment", json!([updated, condition("Available")])),
                    ],
                },
            })
        );
    }

    /// rule: revisions §3: the revision's name is a label of its Secrets
    #[test]
    fn revision_rejects_a_name_that_labels_cannot_hold() {
        let mut long = desired(1);
        long.extension = "x".repeat(61);
        assert!(long.numbered(9, "olmv1-system").is_ok());
        let refused = long.numbered(10, "olmv1-system").unwrap_err().message;
        assert!(
            refused.starts_with("the name of revision \"xxx")
                && refused.contains(" has 64 characters, at most 63 "),
            "{refused}"
        );
    }

    /// rule: operator-controller §1.4: an explicitly empty release is not the same as none
    #[test]
    fn revision_annotates_an_empty_release() {
        let of = |release: Option<&str>| {
            let bundle = BundleFacts { release: release.map(str::to_owned), ..BundleFacts::default() };
            revision_annotations(&bundle, None).get("olm.operatorframework.io/bundle-release").cloned()
        };
        assert_eq!(
            (of(None), of(Some("")), of(Some("2"))),
            (None, Some(String::new()), Some("2".to_owned()))
        );
    }

    /// rule: revisions §4.2 step 4: what is immutable makes a new revision, the rest changes in place
    #[test]
    fn revision_content_and_settings_are_compared_apart() {
        let stored = desired(1).numbered(1, "olmv1-system").unwrap().set;
        let change = |change: &dyn Fn(&mut ClusterObjectSet)| {
            let mut desired = stored.clone();
            change(&mut desired);
            (same_content(&stored, &desired), same_settings(&stored, &desired))
        };
        assert_eq!(change(&|_| {}), (true, true));
        assert_eq!(change(&|set| set.spec.progress_deadline_minutes = None), (true, false));
        assert_eq!(change(&|set| drop(set.spec.progression_probes.pop())), (true, false));
        let release = |set: &mut ClusterObjectSet| {
            let all = set.metadata.annotations.get_or_insert_default();
            all.insert(annotations::BUNDLE_RELEASE.to_owned(), "2".to_owned());
        };
        assert_eq!(change(&release), (true, false));
        // one that the bundle does not give any more
        let without_properties = |set: &mut ClusterObjectSet| {
            set.metadata.annotations.get_or_insert_default().remove(annotations::PROPERTIES);
        };
        assert_eq!(change(&without_properties), (true, false));
        let foreign = |set: &mut ClusterObjectSet| {
            let all = set.metadata.annotations.get_or_insert_default();
            all.insert("example.com/mine".to_owned(), "2".to_owned());
        };
        assert_eq!(change(&foreign), (true, true));
        assert_eq!(change(&|set| drop(set.spec.phases.pop())), (false, true));
        assert_eq!(change(&|set| set.spec.collision_protection = CollisionProtection::None), (false, true));
        let mut archived = stored.clone();
        archived.spec.lifecycle_state = LifecycleState::Archived;
        assert!(!same_content(&archived, &stored), "one that was archived by hand is followed by another");
    }

    /// An apply leaves an annotation that it does not have and another client owns.
    #[test]
    fn revision_settings_pass_over_annotations_of_others() {
        let desired = desired(1).numbered(1, "olmv1-system").unwrap().set;
        let controller = field_managers::CLUSTER_EXTENSION_CONTROLLER;
        let is_same = |manager: &str, operation: &str, value: Option<&str>| {
            let mut stored = desired.clone();
            let all = stored.metadata.annotations.get_or_insert_default();
            all.insert(annotations::BUNDLE_RELEASE.to_owned(), "2".to_owned());
            all.extend(value.map(|value| (annotations::BUNDLE_NAME.to_owned(), value.to_owned())));
            let entry = |manager: &str, operation: &str, key: &str| {
                let fields = json!({"f:metadata": {"f:annotations": {(format!("f:{key}")): {}}}});
                json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields})
            };
            let entries = json!([
                entry(controller, "Apply", annotations::BUNDLE_NAME),
                entry(manager, operation, annotations::BUNDLE_RELEASE),
            ]);
            stored.metadata.managed_fields = serde_json::from_value(entries).unwrap();
            same_settings(&stored, &desired)
        };
        assert!(is_same("kubectl-annotate", "Update", None));
        assert!(!is_same(controller, "Apply", None), "its own is removed");
        assert!(!is_same("kubectl-annotate", "Update", Some("other")), "a desired one is corrected");
    }

    /// Revisions must look as the reference makes them: what else is remembered belongs on their Secrets.
    #[test]
    fn deletion_policy_is_not_written_on_a_revision() {
        let keep = json!({"olm.operatorframework.io/deletion-policy": "keep"});
        let kept = desired_with(keep, 1).numbered(1, "olmv1-system").unwrap().set;
        assert_eq!(kept, desired(1).numbered(1, "olmv1-system").unwrap().set);
    }

    #[test]
    fn migrated_revision_holds_its_objects_and_adopts_all() {
        let Numbered { set, packed } = desired(1).migrated(1, "olmv1-system").unwrap();
        assert!(packed.secrets.is_empty());
        let value = serde_json::to_value(&set).unwrap();
        assert_eq!(value["metadata"]["name"], "demo-1");
        assert_eq!(
            value["metadata"]["labels"],
            json!({
                "olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "demo",
                "olm.operatorframework.io/migrated-from-helm": "true",
            })
        );
        assert_eq!(value["metadata"]["annotations"]["olm.operatorframework.io/bundle-name"], "demo.v1.0.0");
        assert_eq!(value["metadata"]["ownerReferences"][0]["uid"], "u1");
        let spec = &value["spec"];
        assert_eq!(spec["collisionProtection"], "None");
        assert_eq!(spec["revision"], 1);
        let phase = |at: usize| {
            (spec["phases"][at]["name"].clone(), spec["phases"][at]["objects"].as_array().unwrap().len())
        };
        assert_eq!((phase(0), phase(1)), ((json!("identity"), 1), (json!("configuration"), 2)));
        assert_eq!(
            spec["phases"][1]["objects"][0]["object"]["metadata"],
            json!({
                "name": "a", "namespace": "demo",
                "labels": {"a": "b", "olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "demo"},
                "annotations": {"olm.operatorframework.io/bundle-version": "1.0.0", "olm.operatorframework.io/package-name": "demo"},
            })
        );
        let next = desired(1).numbered(1, "olmv1-system").unwrap();
        assert!(!same_content(&set, &next.set), "the next revision always follows");
    }

    #[test]
    fn migrated_revision_puts_large_objects_into_secrets() {
        let Numbered { set, packed } = desired(600_000).migrated(1, "olmv1-system").unwrap();
        assert_eq!(packed.secrets.len(), 2);
        let objects: Vec<_> = set.spec.phases.iter().flat_map(|phase| &phase.objects).collect();
        assert!(objects.iter().all(|object| object.object.is_none() && object.reference.is_some()));
        assert_eq!(set.spec.collision_protection, CollisionProtection::None);
    }
}
