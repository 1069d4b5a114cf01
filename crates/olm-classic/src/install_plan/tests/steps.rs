//! Steps, and definitions that exist.

use std::collections::BTreeSet;

use olm_api::classic::ClusterServiceVersion;
use olm_core::Object;
use serde_json::{Value, json};

use super::*;

#[test]
fn decide_step_of_each_kind() {
    for kind in KINDS {
        let manifest_kind = if kind.kind == "BundleSecret" { "Secret" } else { kind.kind };
        let group = if kind.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", kind.group) };
        let mut manifest = plain(&group, manifest_kind, "x");
        manifest.0.insert("spec".into(), json!({"versions": []}));
        manifest.set_namespace("elsewhere");
        let plan = plan_with("Installing", vec![step(kind.kind, kind.group, "x", "Unknown")]);
        let mut observed = StepObserved { owner_uid: Some("uid"), ..StepObserved::default() };
        let new = decide_step(&plan, 0, &manifest, observed).unwrap();
        observed.existing = Some(&manifest);
        let again = decide_step(&plan, 0, &manifest, observed).unwrap();
        let owners = |action: &StepAction| match action {
            StepAction::Create(made) | StepAction::Update(made) => {
                let owned = made.metadata().unwrap().contains_key("ownerReferences");
                assert_eq!(made.labels()["olm.managed"], "true", "{}", kind.kind);
                assert_eq!(made.namespace().is_some(), kind.is_namespaced, "{}", kind.kind);
                (owned, made.labels().contains_key("olm.owner"), made.labels().contains_key("olm.owner.kind"))
            }
            _ => (false, false, false),
        };
        let want = match kind.handling {
            Handling::ClusterServiceVersion | Handling::Subscription => {
                ("Created", "Present", (false, false, false))
            }
            Handling::PullSecret => ("Created", "Present", (false, false, false)),
            Handling::CustomResourceDefinition => ("WaitingForApi", "Present", (false, false, false)),
            Handling::Owned => ("Created", "Present", (true, false, false)),
            Handling::AsWritten => ("Created", "Present", (false, false, false)),
            Handling::ClusterRights => ("Created", "Present", (false, true, false)),
            Handling::Generic if kind.is_namespaced => ("Created", "Present", (true, false, false)),
            Handling::Generic => ("Created", "Present", (false, true, true)),
        };
        let got = (new.status().as_str(), again.status().as_str(), owners(&new));
        assert_eq!(got, want, "{}", kind.kind);
        let is_update = matches!(again, StepAction::Update(_));
        let updates = !matches!(
            kind.handling,
            Handling::ClusterServiceVersion
                | Handling::Subscription
                | Handling::PullSecret
                | Handling::CustomResourceDefinition
        );
        assert_eq!(is_update, updates, "{}", kind.kind);
    }
}

#[test]
fn decide_step_names_the_original_of_a_copied_csv() {
    let csv = plain("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "a.v1");
    let planned = step("ClusterServiceVersion", "operators.coreos.com", "a.v1", "Unknown");
    let plan = plan_with("Installing", vec![planned]);
    let mut existing = csv.clone();
    let decide = |existing: &Object| {
        let observed = StepObserved { existing: Some(existing), ..StepObserved::default() };
        decide_step(&plan, 0, &csv, observed)
    };
    assert_eq!(decide(&existing), Ok(StepAction::Keep));
    existing.set_label("olm.copiedFrom", "home");
    let error = decide(&existing).unwrap_err();
    let want = "ClusterServiceVersion a.v1 is a copy of the one in namespace home, whose OperatorGroup selects this namespace, too; delete \
                the Subscription, or let that OperatorGroup select other namespaces";
    assert_eq!(error.to_string(), want);
    assert!(!error.is_final(), "the copy may go");
}

#[test]
fn pull_secret_is_that_of_the_catalog() {
    for (of, from) in [("olm", Ok("olm")), ("", Ok("olm")), ("ns", Ok("ns")), ("kube-system", Err(()))] {
        let mut planned = step("Secret", "", "x", "Unknown");
        planned.resource.source_namespace = of.to_owned();
        let plan = plan_with("Installing", vec![planned]);
        let observed = StepObserved { global_namespace: "olm", ..StepObserved::default() };
        let action = decide_step(&plan, 0, &plain("v1", "Secret", "x"), observed);
        let copy = |from: &str| StepAction::CopySecret { name: "x".to_owned(), from: from.to_owned() };
        match from {
            Ok(from) => assert_eq!(action.unwrap(), copy(from), "{of}"),
            Err(()) => assert!(action.unwrap_err().is_final(), "a Secret of another namespace stays there"),
        }
    }
}

#[test]
#[rustfmt::skip]
fn decide_step_names_what_cannot_be_done() {
    let plan = plan_with(
        "Installing",
        vec![
            step("Deployment", "apps", "x", "Unknown"),
            step("Service", "", "x", "Unknown"),
            step("Service", "", "done", "Created"),
        ],
    );
    let service = plain("v1", "Service", "x");
    let decide = |index, manifest: &Object| decide_step(&plan, index, manifest, StepObserved::default());
    let unsupported = decide(0, &plain("apps/v1", "Deployment", "x")).unwrap_err();
    assert_eq!(unsupported.to_string(), "the InstallPlan contains invalid data");
    assert!(unsupported.is_final() && !unsupported.is_forbidden());
    for (error, want) in [
        (decide(1, &service).unwrap_err(),
            "ClusterServiceVersion a.v1, which owns Service x, is not there; delete the InstallPlan, a new one is made"),
        (
            decide(1, &plain("v1", "Service", "y")).unwrap_err(),
            "manifest of step 1 (Service y): it names another object than the step; delete the InstallPlan, a new one is \
             made",
        ),
        (decide(9, &service).unwrap_err(),
            "manifest of step 9 (Service x): the plan has no such step; delete the InstallPlan, a new one is made"),
    ] {
        assert_eq!(error.to_string(), want);
    }
    assert_eq!(decide(2, &service).unwrap(), StepAction::Done(StepStatus::Created));
    let mut existing = service.clone();
    existing.set_label(olm_api::labels::OWNER_KIND, olm_api::labels::OWNER_KIND_CLUSTER_EXTENSION);
    existing.set_label(olm_api::labels::OWNER_NAME, "shop");
    let observed =
        StepObserved { existing: Some(&existing), owner_uid: Some("u"), ..StepObserved::default() };
    let conflict = decide_step(&plan, 1, &service, observed).unwrap_err();
    let want = "Service x belongs to ClusterExtension shop of OLM v1; uninstall one of the two";
    assert_eq!(conflict.to_string(), want);
    assert!(!conflict.is_final());
}

#[test]
fn older_plan_leaves_what_a_newer_one_has_written() {
    let csv = |name: &str, replaces: &str| -> Arc<ClusterServiceVersion> {
        let value = json!({"metadata": {"name": name}, "spec": {"displayName": name, "replaces": replaces,
            "install": {"strategy": "deployment"}}});
        Arc::new(typed("v1alpha1", "ClusterServiceVersion", value))
    };
    let csvs = [csv("a.v1", "a.v0"), csv("a.v2", "a.v1"), csv("a.v3", "a.v2"), csv("x", "y"), csv("y", "x")];
    let manifest = plain("v1", "ConfigMap", "settings");
    for (owner, resolving, want) in [
        ("a.v3", "a.v1", true),
        ("a.v2", "a.v1", true),
        ("a.v1", "a.v1", false),
        ("a.v1", "a.v2", false),
        ("other", "a.v1", false),
        ("a.v3", "x", false),
        ("a.v3", "", false),
    ] {
        let mut existing = manifest.clone();
        let owner = json!([{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": owner, "uid": "u"}]);
        existing.metadata_mut().insert("ownerReferences".into(), owner);
        let mut step = step("ConfigMap", "", "settings", "Unknown");
        step.resolving = resolving.to_owned();
        let plan = plan_with("Installing", vec![step]);
        let observed = StepObserved {
            existing: Some(&existing),
            owner_uid: Some("uid"),
            csvs: &csvs,
            ..StepObserved::default()
        };
        let action = decide_step(&plan, 0, &manifest, observed).unwrap();
        assert_eq!(action == StepAction::Keep, want, "{existing:?} {resolving}");
    }
}

#[test]
fn older_plan_leaves_the_definition_of_a_newer_version() {
    let csv = |name: &str, replaces: &str, owned: &str| -> Arc<ClusterServiceVersion> {
        let value = json!({"metadata": {"name": name}, "spec": {"displayName": name, "replaces": replaces,
            "install": {"strategy": "deployment"},
            "customresourcedefinitions": {"owned": [{"name": owned, "version": "v1", "kind": "Widget"}]}}});
        Arc::new(typed("v1alpha1", "ClusterServiceVersion", value))
    };
    let csvs = [
        csv("a.v1", "", "widgets.example.com"),
        csv("a.v2", "a.v1", "widgets.example.com"),
        csv("a.v3", "a.v2", "other"),
    ];
    let crd = plain("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com");
    for (resolving, status, want) in [
        ("a.v1", "Unknown", StepAction::Keep),
        ("a.v1", "WaitingForApi", StepAction::AwaitApi),
        ("a.v2", "Unknown", StepAction::CompareCrd(crd.clone())),
        ("a.v3", "Unknown", StepAction::CompareCrd(crd.clone())),
        ("b.v1", "Unknown", StepAction::CompareCrd(crd.clone())),
    ] {
        let mut step =
            step("CustomResourceDefinition", "apiextensions.k8s.io", "widgets.example.com", status);
        step.resolving = resolving.to_owned();
        let plan = plan_with("Installing", vec![step]);
        let observed = StepObserved { existing: Some(&crd), csvs: &csvs, ..StepObserved::default() };
        let mut action = decide_step(&plan, 0, &crd, observed).unwrap();
        if let StepAction::CompareCrd(made) = &mut action {
            made.metadata_mut().remove("labels");
        }
        assert_eq!(action, want, "{resolving} {status}");
    }
}

#[test]
fn shared_role_has_not_all_owner_labels() {
    let labels = |labels: Value| {
        object(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r", "labels": labels}}),
        )
    };
    let all =
        json!({"olm.owner": "a.v1", "olm.owner.namespace": "ns", "olm.owner.kind": "ClusterServiceVersion"});
    assert!(has_owner_labels(&labels(all.clone()), "a.v1", "ns"));
    for other in [
        has_owner_labels(&labels(all.clone()), "a.v2", "ns"),
        has_owner_labels(&labels(all), "a.v1", "other"),
        has_owner_labels(&labels(json!({"olm.owner": "a.v1"})), "a.v1", "ns"),
    ] {
        assert!(!other);
    }
}

#[test]
fn dependency_is_subscribed_to_once() {
    let manifest = object(
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": {"name": "pear-stable-s-olm"},
            "spec": {"name": "pear", "source": "s", "sourceNamespace": "olm"}}),
    );
    let plan = plan_with(
        "Installing",
        vec![step("Subscription", "operators.coreos.com", "pear-stable-s-olm", "Unknown")],
    );
    for (package, want) in [("pear", "Present"), ("apple", "Created"), ("", "Created")] {
        let observed = StepObserved { subscribed: &[package.to_owned()], ..StepObserved::default() };
        let action = decide_step(&plan, 0, &manifest, observed).unwrap();
        assert_eq!(action.status().as_str(), want, "{package}");
    }
}

#[test]
fn dependent_csv_takes_over_no_definition() {
    let owns = |name: &str| -> Value {
        json!({"metadata": {"name": name}, "spec": {"displayName": name, "install": {"strategy": "deployment"},
            "customresourcedefinitions": {"owned": [{"name": "widgets.example.com", "version": "v1", "kind": "Widget"}]}}})
    };
    let other: ClusterServiceVersion = typed("v1alpha1", "ClusterServiceVersion", owns("other.v1"));
    let mut manifest = owns("b.v1");
    manifest["kind"] = "ClusterServiceVersion".into();
    let plan =
        plan_with("Installing", vec![step("ClusterServiceVersion", "operators.coreos.com", "b.v1", "")]);
    let csvs = [Arc::new(other)];
    let observed = StepObserved { csvs: &csvs, ..StepObserved::default() };
    let error = decide_step(&plan, 0, &object(manifest), observed).unwrap_err().to_string();
    assert!(
        error.starts_with("pre-existing CRD owners found for owned CRD(s) of dependent CSV b.v1: other.v1"),
        "{error}"
    );
}

#[test]
fn update_keeps_labels_owners_and_account_secrets() {
    let existing = object(json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{"name": "token"}],
        "metadata": {"name": "worker", "resourceVersion": "5", "labels": {"mine": "x"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "o"}]},
    }));
    let mut manifest = plain("v1", "ServiceAccount", "worker");
    manifest
        .metadata_mut()
        .insert("ownerReferences".into(), json!([{"kind": "ClusterServiceVersion", "name": "a.v1"}]));
    let plan = plan_with("Installing", vec![step("ServiceAccount", "", "worker", "Unknown")]);
    let observed =
        StepObserved { existing: Some(&existing), owner_uid: Some("uid"), ..StepObserved::default() };
    let StepAction::Update(made) = decide_step(&plan, 0, &manifest, observed).unwrap() else {
        panic!("no update")
    };
    assert_eq!((made.labels()["mine"], &made.0["secrets"]), ("x", &json!([{"name": "token"}])));
    let owners = made.metadata().unwrap()["ownerReferences"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["uid"]), (2, &json!("uid")));
    assert_eq!(made.metadata().unwrap()["resourceVersion"], "5");
}

#[test]
fn api_errors_have_the_words_of_the_reference() {
    let error = |kind: &str| StepError::from_api(&step(kind, "", "x", ""), "no", true).to_string();
    for (kind, want) in [
        ("ClusterServiceVersion", "error creating csv x: no"),
        ("Service", "error updating service: x: no"),
        ("BundleSecret", "error updating secret: x: no"),
        ("ClusterRoleBinding", "error updating clusterrolebinding: x: no"),
    ] {
        assert_eq!(error(kind), want);
    }
    let (path, message) = warning_event(2, &step("Service", "", "x", ""), &["old API".to_owned()]);
    assert_eq!((path.as_str(), message.as_str()), ("status.plan[2]", "Service x: \"old API\""));
}

#[test]
fn crd_waits_until_its_api_is_served() {
    let plan = plan_with(
        "Installing",
        vec![step(
            "CustomResourceDefinition",
            "apiextensions.k8s.io",
            "widgets.example.com",
            "WaitingForApi",
        )],
    );
    let crd = crd_object(&[("v1", true)], 5);
    for (conditions, want) in [
        (json!([]), StepAction::AwaitApi),
        (json!([{"type": "Established", "status": "True"}]), StepAction::AwaitApi),
        (
            json!([{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}]),
            StepAction::Done(StepStatus::Created),
        ),
    ] {
        let mut existing = crd.clone();
        existing.0.insert("status".into(), json!({"conditions": conditions}));
        let observed = StepObserved { existing: Some(&existing), ..StepObserved::default() };
        assert_eq!(decide_step(&plan, 0, &crd, observed).unwrap(), want, "{conditions}");
    }
}

#[test]
fn update_crd_protects_stored_versions_and_objects() {
    let mut existing = crd_object(&[("v1", true), ("v2", true)], 9);
    existing.0.insert("status".into(), json!({"storedVersions": ["v1"]}));
    existing.set_annotation("operatorframework.io/installed-alongside-1", "ns/gone.v1");
    let csvs = BTreeSet::from(["ns/a.v1".to_owned()]);
    let update = |new: &Object| update_crd(&existing, new, ("ns", "a.v1"), &csvs, false);
    let error = update(&crd_object(&[("v2", true)], 9)).unwrap_err().to_string();
    let want = "risk of data loss updating \"widgets.example.com\": new CRD removes version v1 that is listed as a stored \
                version on the existing CRD";
    assert_eq!(error, want);
    let unserved = update(&crd_object(&[("v1", true), ("v2", false)], 9)).unwrap();
    assert!(unserved.notices.iter().any(|it| it.contains("version v2 is no longer served")), "{unserved:?}");
    let wide = update(&crd_object(&[("v1", true), ("v2", true)], 20)).unwrap().object.unwrap();
    let marks: Vec<&str> = wide.annotations().values().copied().collect();
    assert_eq!(marks, ["ns/a.v1"], "the mark of what is gone is dropped");
    let again = update_crd(&wide, &wide, ("ns", "a.v1"), &csvs, false);
    assert_eq!(again.unwrap().object, None, "nothing changes");
}

/// The messages of events about a Widget of size 7, by versions.
fn checked(existing: &Object, new: &Object, is_converted: bool) -> Result<Vec<String>, CrdUpdateError> {
    let mut warnings = Vec::new();
    for version in judged_versions(existing, new) {
        let judge = match object_judge(existing, new, version, is_converted) {
            Ok(None) => continue,
            Ok(Some(judge)) => judge,
            Err(warning) => {
                warnings.push(warning);
                continue;
            }
        };
        let widget = json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget",
            "metadata": {"name": "w", "namespace": "n"}, "spec": {"size": 7}});
        warnings.extend(check_object(new, &judge, &widget)?);
    }
    Ok(warnings)
}

#[test]
fn check_object_judges_each_version_that_stays_served() {
    let with_maximum = |maximum: i64| crd_object(&[("v1", true), ("v2", true)], maximum);
    let existing = with_maximum(9);
    assert_eq!(checked(&existing, &existing, false), Ok(vec![]), "nothing changes");
    assert_eq!(checked(&existing, &with_maximum(8), false), Ok(vec![]), "it fits");
    let want = |version: &str| {
        format!(
            "error validating existing CRs against new CRD's schema for \"widgets.example.com\": error validating \
             example.com/{version}, Kind=Widget \"n/w\": updated validation is too restrictive: spec.size: "
        )
    };
    let narrow = with_maximum(3);
    let mut narrow_v2 = existing.clone();
    narrow_v2.0["spec"]["versions"][1] = narrow.0["spec"]["versions"][1].clone();
    for (new, version) in [(&narrow, "v1"), (&narrow_v2, "v2")] {
        let error = checked(&existing, new, false).unwrap_err().to_string();
        assert!(error.starts_with(&want(version)) && !error.contains('7'), "{error}");
    }
    let mut converting = narrow;
    converting.0["spec"]["conversion"] = json!({"strategy": "Webhook"});
    let warnings = checked(&existing, &converting, false).unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with(&want("v1")) && warnings[1].starts_with(&want("v2")), "{warnings:?}");
    narrow_v2.0["spec"]["versions"][1]["served"] = false.into();
    assert_eq!(checked(&existing, &narrow_v2, false), Ok(vec![]), "it is no longer served");
}

#[test]
fn object_judge_reports_a_schema_that_it_cannot_use() {
    let existing = crd_object(&[("v1", true)], 9);
    let mut new = existing.clone();
    let text = json!({"type": "string", "pattern": "(?=a)"});
    new.0["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["text"] = text;
    let start = "objects of widgets.example.com were not checked in version v1: schema of version v1: ";
    for (existing, new) in [(&existing, &new), (&new, &existing)] {
        let warnings = checked(existing, new, false).unwrap();
        assert!(warnings.len() == 1 && warnings[0].starts_with(start), "{warnings:?}");
    }
}

#[test]
fn check_object_reports_defaults_that_are_too_large() {
    let existing = crd_object(&[("v1", true)], 9);
    let mut new = existing.clone();
    let large = json!({"type": "string", "default": "x".repeat(17 << 20)});
    new.0["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["large"] = large;
    let warnings = checked(&existing, &new, false).unwrap();
    let want = "objects of widgets.example.com were not checked, first n/w: schema of example.com/v1: defaults, the last of field \"large\"";
    assert!(warnings.len() == 1 && warnings[0].starts_with(want), "{warnings:?}");
}

#[test]
fn check_object_leaves_a_new_storage_version_to_the_webhook() {
    let existing = crd_object(&[("v1", true)], 9);
    let mut new = crd_object(&[("v2", true)], 3);
    let mut v1 = existing.0["spec"]["versions"][0].clone();
    v1["storage"] = false.into();
    new.0["spec"]["versions"].as_array_mut().unwrap().push(v1);
    assert!(checked(&existing, &new, false).is_err(), "nothing converts what is stored");
    assert_eq!(checked(&existing, &new, true), Ok(vec![]));
}

#[test]
fn update_crd_keeps_the_conversion_of_a_csv() {
    let with = |conversion: Option<Value>| {
        let mut crd = crd_object(&[("v1", true), ("v2", true)], 9);
        if let Some(conversion) = conversion {
            crd.0["spec"]["conversion"] = conversion;
        }
        crd
    };
    let webhook = |name: &str| json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": name, "namespace": "ns"}}}});
    let (live, placeholder, none) =
        (webhook("a-service"), webhook("webhook-service"), json!({"strategy": "None"}));
    for (case, existing, new, is_converted, want) in [
        ("the bundle has none", &live, None, true, Some(&live)),
        ("the bundle names another Service", &live, Some(&placeholder), true, Some(&live)),
        ("no CSV converts", &live, Some(&placeholder), false, Some(&placeholder)),
        ("no CSV converts, and the bundle has none", &live, None, false, None),
        ("it was not converted before", &none, Some(&placeholder), true, Some(&placeholder)),
    ] {
        let (existing, new) = (with(Some(existing.clone())), with(new.cloned()));
        let update = update_crd(&existing, &new, ("ns", "a.v2"), &BTreeSet::new(), is_converted);
        let updated = update.unwrap().object.unwrap();
        assert_eq!(updated.0["spec"].get("conversion"), want, "{case}");
    }
}
