mod hostile;
mod phases;
mod steps;

use std::sync::Arc;

use olm_api::classic::install_plan::{Step, StepResource};
use olm_api::classic::{InstallPlan, InstallPlanStatus, Subscription};
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_core::Object;
use olm_resolver::Property;
use olm_solver::ChosenBundle;
use serde_json::{Value, json};

use super::*;

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn typed<T: serde::de::DeserializeOwned>(version: &str, kind: &str, mut value: Value) -> T {
    value["apiVersion"] = format!("operators.coreos.com/{version}").into();
    value["kind"] = kind.into();
    serde_json::from_value(value).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn csv_object(name: &str) -> Object {
    object(json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "metadata": {"name": name},
        "spec": {"displayName": name, "replaces": "from-the-bundle", "install": {"strategy": "deployment", "spec": {
            "deployments": [],
            "permissions": [{"serviceAccountName": "worker", "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}],
            "clusterPermissions": [{"serviceAccountName": "default", "rules": [{"verbs": ["list"], "nonResourceURLs": ["/metrics"]}]}],
        }}},
    }))
}

fn crd_object(versions: &[(&str, bool)], maximum: i64) -> Object {
    let version = |(name, served): &(&str, bool)| {
        json!({"name": name, "served": served, "storage": *name == versions[0].0, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                "size": {"type": "integer", "maximum": maximum}}}}}}})
    };
    object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": versions.iter().map(version).collect::<Vec<_>>()},
    }))
}

fn plain(api_version: &str, kind: &str, name: &str) -> Object {
    object(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}))
}

fn chosen(name: &str, package: &str) -> ChosenBundle {
    ChosenBundle {
        namespace: "catalogs".to_owned(),
        catalog: "main".to_owned(),
        channel: "stable".to_owned(),
        name: name.to_owned(),
        package: package.to_owned(),
        replaces: "old.v1".to_owned(),
    }
}

fn subscription(name: &str, package: &str, approval: &str) -> Subscription {
    let spec = json!({"name": package, "source": "main", "sourceNamespace": "catalogs", "installPlanApproval": approval});
    typed(
        "v1alpha1",
        "Subscription",
        json!({"metadata": {"name": name, "namespace": "ns", "uid": "u"}, "spec": spec}),
    )
}

fn plan_of(objects: &[Object], approval: &str, image: Option<&str>) -> Result<InstallPlan, PlanError> {
    let chosen = chosen("a.v1", "a");
    let properties = [
        Property { kind: "olm.package".into(), value: r#"{"packageName":"a","version":"1.0.0"}"#.into() },
        Property { kind: "olm.bundle.object".into(), value: r#"{"data":"e30="}"#.into() },
    ];
    let bundle = PlannedBundle { chosen: &chosen, objects, properties: &properties, image };
    let subscriptions = [Arc::new(subscription("a", "a", approval))];
    install_plan(PlanRequest {
        namespace: "ns",
        generation: 7,
        subscriptions: &subscriptions,
        bundles: &[bundle],
    })
}

/// A plan as it is in the cluster.
fn named(mut plan: InstallPlan) -> InstallPlan {
    plan.metadata.name = Some("install-x".to_owned());
    plan
}

#[test]
fn plan_lists_steps_in_order_and_owners() {
    let objects = [
        plain("v1", "Secret", "token"),
        crd_object(&[("v1", true)], 5),
        csv_object("a.v1"),
        plain("apps/v1", "Deployment", "x"),
    ];
    let plan = plan_of(&objects, "Automatic", None).unwrap();
    let status = plan.status.as_ref().unwrap();
    let kinds: Vec<&str> = status.plan.iter().map(|step| step.resource.kind.as_str()).collect();
    #[rustfmt::skip]
    let want = [
        "ClusterServiceVersion", "CustomResourceDefinition", "BundleSecret", "Deployment", "ClusterRole",
        "ClusterRoleBinding", "ServiceAccount", "Role", "RoleBinding",
    ];
    assert_eq!(kinds, want, "the account default is the cluster's own");
    assert!(status.plan.iter().all(|step| step.resolving == "a.v1" && step.status == "Unknown"));
    assert_eq!(plan.metadata.generate_name.as_deref(), Some("install-"));
    let owner = &plan.metadata.owner_references.as_ref().unwrap()[0];
    let want = ("a", Some(false), Some(false));
    assert_eq!((owner.name.as_str(), owner.controller, owner.block_owner_deletion), want);
    assert_eq!(
        (plan.spec.generation, status.catalog_sources.as_slice()),
        (Some(7), ["main".to_owned()].as_slice())
    );
    let csv = step_object(0, &status.plan[0], &[]).unwrap();
    assert_eq!((csv.0["spec"]["replaces"].as_str(), csv.namespace()), (Some("old.v1"), Some("ns")));
    let want = r#"{"properties":[{"type":"olm.package","value":{"packageName":"a","version":"1.0.0"}}]}"#;
    assert_eq!(
        csv.annotations()[PROPERTIES_ANNOTATION],
        want,
        "the content of the bundle is in no annotation"
    );
}

#[test]
fn approval_of_namespace_is_manual_if_one_is() {
    for (approvals, want, phase) in [
        (&["", "Automatic"][..], Approval::Automatic, "Installing"),
        (&["Automatic", "Manual"], Approval::Manual, "RequiresApproval"),
        (&["automatic"], Approval::Manual, "RequiresApproval"),
    ] {
        let subscriptions: Vec<_> =
            approvals.iter().map(|approval| Arc::new(subscription("a", "a", approval))).collect();
        assert_eq!(Approval::of_namespace(&subscriptions), want, "{approvals:?}");
        let plan = plan_of(&[csv_object("a.v1")], approvals.last().unwrap(), None).unwrap();
        assert_eq!(plan.status.unwrap().phase, phase, "{approvals:?}");
        assert_eq!(plan.spec.approved, want == Approval::Automatic);
    }
}

#[test]
#[rustfmt::skip]
fn plan_error_names_bundle_object_and_fix() {
    let twice = [csv_object("a.v1"), plain("v1", "ConfigMap", "c"), plain("v1", "ConfigMap", "c")];
    let mut broken = csv_object("a.v1");
    broken.0.insert("spec".into(), json!({"install": 5}));
    for (objects, want) in [
        (&[][..], "bundle a.v1: 0 ClusterServiceVersions among its objects; publish the bundle with one"),
        (&[csv_object("b.v1")], "bundle a.v1: its ClusterServiceVersion is named b.v1; publish the bundle with one name"),
        (&twice, "bundle a.v1: ConfigMap c is there 2 times; publish the bundle with it once"),
        (&[csv_object("a.v1"), object(json!({"kind": "Service"}))],
            "bundle a.v1: object 1 has no metadata.name; publish the bundle with complete objects"),
    ] {
        assert_eq!(plan_of(objects, "", None).unwrap_err().to_string(), want);
    }
    let error = plan_of(&[broken], "", None).unwrap_err().to_string();
    assert!(error.starts_with("bundle a.v1: its ClusterServiceVersion cannot be read: "), "{error}");
}

#[test]
fn plan_has_an_account_of_the_bundle_and_of_its_permissions() {
    let objects = [csv_object("a.v1"), plain("v1", "ServiceAccount", "worker")];
    let plan = plan_of(&objects, "", None).unwrap();
    let steps = &plan.status.as_ref().unwrap().plan;
    let accounts: Vec<Object> = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.resource.kind == "ServiceAccount")
        .map(|(index, step)| step_object(index, step, &objects).unwrap())
        .collect();
    assert_eq!(accounts.len(), 2, "a step each");
    let owner = |account: &Object| account.metadata().unwrap()["ownerReferences"][0]["name"].clone();
    assert!(accounts.iter().all(|account| account.name() == "worker" && owner(account) == "a.v1"));
}

#[test]
fn plan_refers_to_config_maps_when_it_is_large() {
    let with = |text: String| {
        let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"text": text}});
        [csv_object("a.v1"), object(large)]
    };
    // a quote is four bytes in the plan
    for (text, is_inline) in [("\"".repeat(MAX_INLINE / 5), true), ("\"".repeat(MAX_INLINE / 4), false)] {
        let plan = plan_of(&with(text), "", None).unwrap();
        let manifest = StepManifest::read(1, &plan.status.as_ref().unwrap().plan[1]).unwrap();
        assert_eq!(matches!(manifest, StepManifest::Object(_)), is_inline);
        let bytes = serde_json::to_string(&plan).unwrap().len();
        assert!(bytes < MAX_INLINE, "{bytes}");
    }
    let objects = with("x".repeat(MAX_INLINE));
    let plan = plan_of(&objects, "", None).unwrap();
    let steps = &plan.status.as_ref().unwrap().plan;
    let bytes: usize = steps.iter().map(|step| step.resource.manifest.len()).sum();
    assert!(bytes < 10_000, "{bytes}");
    let StepManifest::Reference(reference) = StepManifest::read(1, &steps[1]).unwrap() else {
        panic!("no reference")
    };
    assert_eq!((reference.namespace.as_str(), reference.name.len()), ("catalogs", 63));
    assert_eq!(reference.replaces, "old.v1");
    let found = step_object(1, &steps[1], &objects).unwrap();
    assert_eq!(found.name(), "large");
    let error = step_object(1, &steps[1], &[]).unwrap_err().to_string();
    assert!(error.contains("step 1 (ConfigMap large): ConfigMap catalogs/"), "{error}");
}

#[test]
fn unpacked_bundle_has_a_lookup_and_references() {
    let plan = plan_of(&[csv_object("a.v1")], "", Some("registry.example.com/a:v1")).unwrap();
    let status = plan.status.unwrap();
    let lookup = &status.bundle_lookups[0];
    assert_eq!((lookup.path.as_str(), lookup.identifier.as_str()), ("registry.example.com/a:v1", "a.v1"));
    let StepManifest::Reference(reference) = StepManifest::read(0, &status.plan[0]).unwrap() else {
        panic!("no reference")
    };
    assert_eq!(reference.name, unpacked_name("registry.example.com/a:v1"));
}

fn step(kind: &str, group: &str, name: &str, status: &str) -> Step {
    Step {
        resolving: "a.v1".to_owned(),
        resource: StepResource {
            kind: kind.to_owned(),
            group: group.to_owned(),
            name: name.to_owned(),
            version: "v1".to_owned(),
            ..StepResource::default()
        },
        status: status.to_owned(),
        ..Step::default()
    }
}

fn plan_with(phase: &str, steps: Vec<Step>) -> InstallPlan {
    let spec = json!({"clusterServiceVersionNames": ["a.v1"], "approval": "Manual", "approved": true});
    let mut plan: InstallPlan = typed(
        "v1alpha1",
        "InstallPlan",
        json!({"metadata": {"name": "install-x", "namespace": "ns"}, "spec": spec}),
    );
    plan.status =
        Some(InstallPlanStatus { phase: phase.to_owned(), plan: steps, ..InstallPlanStatus::default() });
    plan
}
