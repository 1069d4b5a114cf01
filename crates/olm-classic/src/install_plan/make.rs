//! From the solver's choice to a plan: steps and their order, names, owners, approval.
//!
//! Rule: classic-apis §4 rows 9 to 11, §5.1 and §5.3. Unlike the reference, manifests always have `kind` and `apiVersion`, and operators
//! are in the order of their names.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_api::classic::install_plan::{BundleLookup, Step, StepResource};
use olm_api::classic::{
    ClusterServiceVersion, GROUP, InstallPlan, InstallPlanSpec, InstallPlanStatus, Subscription,
};
use olm_api::k8s_openapi::api::core::v1::ObjectReference;
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use olm_core::{Object, go};
use olm_resolver::Property;
use olm_solver::ChosenBundle;
use serde_json::{Value, json};

use super::phase::PlanPhase;
use super::reference::{MAX_INLINE, StepManifest, StepReference, unpacked_name};
use super::step::{StepStatus, step_kind};
use super::{Approval, rbac};
use crate::subscription::{generated_subscription, subscribes};

pub use olm_core::openshift::RECORDED_PROPERTIES as PROPERTIES_ANNOTATION;

/// The permissions of a ClusterServiceVersion name accounts that a bundle may have, too.
const ACCOUNT: &str = "ServiceAccount";
/// Bytes of a step besides its manifest.
const STEP_BYTES: usize = 512;
/// Properties that hold the content of a bundle; they are in no annotation.
const CONTENT_PROPERTIES: [&str; 2] = ["olm.bundle.object", "olm.csv.metadata"];

/// A bundle that the solver chose, with its content.
#[derive(Debug, Clone, Copy)]
pub struct PlannedBundle<'a> {
    pub chosen: &'a ChosenBundle,
    /// In the order of the bundle; one of them is the ClusterServiceVersion.
    pub objects: &'a [Object],
    pub properties: &'a [Property],
    /// The image that was unpacked into a ConfigMap, if it was.
    pub image: Option<&'a str>,
}

/// Why no plan can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("bundle {bundle}: {count} ClusterServiceVersions among its objects; publish the bundle with one")]
    CsvCount { bundle: String, count: usize },
    #[error("bundle {bundle}: its ClusterServiceVersion is named {csv}; publish the bundle with one name")]
    CsvName { bundle: String, csv: String },
    #[error("bundle {bundle}: its ClusterServiceVersion cannot be read: {problem}; publish it corrected")]
    Csv { bundle: String, problem: String },
    #[error("bundle {bundle}: object {index} has no {field}; publish the bundle with complete objects")]
    Object { bundle: String, index: usize, field: &'static str },
    #[error("bundle {bundle}: {object} is there {count} times; publish the bundle with it once")]
    Repeated { bundle: String, object: String, count: usize },
    #[error(
        "property {kind} of bundle {bundle} is no JSON: {problem}; publish the bundle with valid properties"
    )]
    Property { bundle: String, kind: String, problem: String },
}

/// What a plan is made of.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest<'a> {
    pub namespace: &'a str,
    /// One more than the highest that is known.
    pub generation: i64,
    /// All of the namespace.
    pub subscriptions: &'a [Arc<Subscription>],
    pub bundles: &'a [PlannedBundle<'a>],
}

/// The plan, with the status that it gets after it was created. The apiserver completes its name.
///
/// # Errors
/// When the content of a bundle cannot be used.
pub fn install_plan(request: PlanRequest<'_>) -> Result<InstallPlan, PlanError> {
    let mut bundles: Vec<&PlannedBundle<'_>> = request.bundles.iter().collect();
    bundles.sort_by_key(|bundle| &bundle.chosen.name);
    let mut steps: Vec<(u8, Step)> = Vec::new();
    let mut inline = 0;
    let mut objects_of = Vec::new();
    for bundle in &bundles {
        let objects = bundle_objects(bundle, request.namespace, request.subscriptions)?;
        if bundle.image.is_none() {
            inline += objects.iter().map(inline_bytes).sum::<usize>();
        }
        objects_of.push(objects);
    }
    for (bundle, objects) in bundles.iter().zip(objects_of) {
        let reference =
            (bundle.image.is_some() || inline > MAX_INLINE).then(|| step_reference(bundle)).transpose()?;
        for object in objects {
            steps.push((rank(object.kind()), step(bundle.chosen, object, reference.as_ref())));
        }
    }
    steps.sort_by_key(|(rank, _)| *rank);
    let approval = Approval::of_namespace(request.subscriptions);
    let mut sources: Vec<String> = bundles.iter().map(|it| it.chosen.catalog.clone()).collect();
    sources.sort_unstable();
    sources.dedup();
    let lookups: Result<Vec<_>, _> = bundles.iter().filter_map(|bundle| lookup(bundle)).collect();
    let phase = match approval {
        Approval::Manual => PlanPhase::RequiresApproval,
        Approval::Automatic => PlanPhase::Installing,
    };
    let mut plan = InstallPlan::new(
        "",
        InstallPlanSpec {
            source: String::new(),
            source_namespace: String::new(),
            cluster_service_version_names: bundles.iter().map(|it| it.chosen.name.clone()).collect(),
            approval: approval.as_str().to_owned(),
            approved: approval == Approval::Automatic,
            generation: Some(request.generation),
            unknown: Default::default(),
        },
    );
    plan.metadata = ObjectMeta {
        generate_name: Some("install-".to_owned()),
        namespace: Some(request.namespace.to_owned()),
        owner_references: Some(request.subscriptions.iter().map(|it| owner(it)).collect()),
        ..ObjectMeta::default()
    };
    plan.status = Some(InstallPlanStatus {
        phase: phase.as_str().to_owned(),
        catalog_sources: sources,
        plan: steps.into_iter().map(|(_, step)| step).collect(),
        bundle_lookups: lookups?,
        ..InstallPlanStatus::default()
    });
    Ok(plan)
}

/// About how many bytes the step of an object takes in a plan: its manifest is a text there, whose quotes are escaped.
fn inline_bytes(object: &Object) -> usize {
    let manifest = go::json_object(&object.0);
    let escapes = manifest.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    manifest.len() + escapes + STEP_BYTES
}

/// The objects of all steps of a bundle: its own, those that its permissions ask for, and its Subscription if it came as a dependency.
///
/// # Errors
/// When the content of the bundle cannot be used.
pub fn bundle_objects(
    bundle: &PlannedBundle<'_>,
    namespace: &str,
    subscriptions: &[Arc<Subscription>],
) -> Result<Vec<Object>, PlanError> {
    let name = &bundle.chosen.name;
    let is_csv = |object: &&Object| object.kind() == "ClusterServiceVersion" && object.group() == GROUP;
    let csvs: Vec<&Object> = bundle.objects.iter().filter(is_csv).collect();
    let [csv] = csvs.as_slice() else {
        return Err(PlanError::CsvCount { bundle: name.clone(), count: csvs.len() });
    };
    if csv.name() != name {
        return Err(PlanError::CsvName { bundle: name.clone(), csv: csv.name().to_owned() });
    }
    let typed: ClusterServiceVersion = serde_json::from_value(csv.to_value())
        .map_err(|error| PlanError::Csv { bundle: name.clone(), problem: error.to_string() })?;
    let mut objects = vec![planned_csv(bundle, csv, namespace)?];
    for (index, object) in bundle.objects.iter().enumerate().filter(|(_, object)| !is_csv(object)) {
        let missing = |field| PlanError::Object { bundle: name.clone(), index, field };
        for (field, value) in [("kind", object.kind()), ("metadata.name", object.name())] {
            if value.is_empty() {
                return Err(missing(field));
            }
        }
        let mut object = object.clone();
        if step_kind(object.group(), step_kind_name(&object)).is_some_and(|kind| kind.is_namespaced) {
            object.set_namespace(namespace);
        }
        objects.push(object);
    }
    let generated = rbac::objects(&typed, name, namespace);
    let own = objects.len();
    for account in generated.iter().filter(|object| object.kind() == ACCOUNT) {
        // a step each, as in the reference, and the same object in both
        if let Some(twin) = objects.iter_mut().find(|object| key(object) == key(account))
            && let Some(owners) = account.metadata().and_then(|metadata| metadata.get("ownerReferences"))
        {
            twin.metadata_mut().insert("ownerReferences".to_owned(), owners.clone());
        }
    }
    objects.extend(generated);
    if !subscriptions.iter().any(|subscription| subscribes(subscription, bundle.chosen)) {
        objects.push(generated_subscription(bundle.chosen, namespace));
    }
    let mut seen = BTreeSet::new();
    for (index, object) in objects.iter().enumerate() {
        let is_generated_account = index >= own && object.kind() == ACCOUNT;
        if !seen.insert(key(object)) && !is_generated_account {
            return Err(PlanError::Repeated {
                bundle: name.clone(),
                object: format!("{} {}", object.kind(), object.name()),
                count: objects.iter().filter(|other| key(other) == key(object)).count(),
            });
        }
    }
    Ok(objects)
}

fn key(object: &Object) -> (&str, &str, &str) {
    (object.group(), object.kind(), object.name())
}

/// The ClusterServiceVersion with the namespace, what the solver decided about `spec.replaces`, and the properties of the bundle.
fn planned_csv(bundle: &PlannedBundle<'_>, csv: &Object, namespace: &str) -> Result<Object, PlanError> {
    let mut csv = csv.clone();
    csv.set_namespace(namespace);
    csv.set_annotation(PROPERTIES_ANNOTATION, &properties_text(bundle)?);
    let spec = olm_core::member_map(&mut csv.0, "spec");
    match bundle.chosen.replaces.as_str() {
        "" => spec.remove("replaces"),
        replaces => spec.insert("replaces".into(), replaces.into()),
    };
    Ok(csv)
}

/// `{"properties":[{"type":…,"value":…}]}`
fn properties_text(bundle: &PlannedBundle<'_>) -> Result<String, PlanError> {
    let mut list = Vec::new();
    for property in bundle.properties.iter().filter(|it| !CONTENT_PROPERTIES.contains(&&*it.kind)) {
        let value: Value = serde_json::from_str(&property.value).map_err(|error| PlanError::Property {
            bundle: bundle.chosen.name.clone(),
            kind: property.kind.to_string(),
            problem: error.to_string(),
        })?;
        list.push(json!({"type": &*property.kind, "value": value}));
    }
    Ok(go::json_string(&json!({"properties": list})))
}

fn step_reference(bundle: &PlannedBundle<'_>) -> Result<StepReference, PlanError> {
    let chosen = bundle.chosen;
    let inlined = format!("{}/{}/{}", chosen.namespace, chosen.catalog, chosen.name);
    Ok(StepReference {
        kind: "ConfigMap".to_owned(),
        name: unpacked_name(bundle.image.unwrap_or(&inlined)),
        namespace: chosen.namespace.clone(),
        catalog_source_name: chosen.catalog.clone(),
        catalog_source_namespace: chosen.namespace.clone(),
        replaces: chosen.replaces.clone(),
        properties: properties_text(bundle)?,
    })
}

fn lookup(bundle: &PlannedBundle<'_>) -> Option<Result<BundleLookup, PlanError>> {
    let (chosen, image) = (bundle.chosen, bundle.image?);
    Some(properties_text(bundle).map(|properties| BundleLookup {
        path: image.to_owned(),
        identifier: chosen.name.clone(),
        replaces: chosen.replaces.clone(),
        catalog_source_ref: ObjectReference {
            name: Some(chosen.catalog.clone()),
            namespace: Some(chosen.namespace.clone()),
            ..ObjectReference::default()
        },
        conditions: Vec::new(),
        properties,
        unknown: Default::default(),
    }))
}

/// ClusterServiceVersions, then CustomResourceDefinitions, then the rest.
fn rank(kind: &str) -> u8 {
    match kind {
        "ClusterServiceVersion" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    }
}

/// A Secret inside a bundle has a kind of its own among steps.
fn step_kind_name(object: &Object) -> &str {
    match (object.group(), object.kind()) {
        ("", "Secret") => "BundleSecret",
        (_, kind) => kind,
    }
}

fn step(chosen: &ChosenBundle, object: Object, reference: Option<&StepReference>) -> Step {
    let kind = step_kind_name(&object).to_owned();
    let (group, version, name) =
        (object.group().to_owned(), object.version().to_owned(), object.name().to_owned());
    let manifest = match reference {
        // the Subscription of a dependency is in no bundle
        Some(reference) if kind != "Subscription" => StepManifest::Reference(reference.clone()),
        _ => StepManifest::Object(object),
    };
    Step {
        resolving: chosen.name.clone(),
        resource: StepResource {
            source_name: chosen.catalog.clone(),
            source_namespace: chosen.namespace.clone(),
            group,
            version,
            kind,
            name,
            manifest: manifest.write(),
            unknown: Default::default(),
        },
        optional: false,
        status: StepStatus::Unknown.as_str().to_owned(),
        unknown: Default::default(),
    }
}

fn owner(subscription: &Subscription) -> OwnerReference {
    OwnerReference {
        api_version: format!("{GROUP}/v1alpha1"),
        kind: "Subscription".to_owned(),
        name: subscription.metadata.name.clone().unwrap_or_default(),
        uid: subscription.metadata.uid.clone().unwrap_or_default(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}
