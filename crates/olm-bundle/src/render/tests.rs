//! Gates, targets and contradictions. Rules: bundle-rendering §4, §6, §9.4, §16.

use serde_json::{Value, json};

use super::*;
use crate::csv::{CsvDeployment, Permission};
use crate::fixture::{bundle, crd, patched};
use crate::options::{CertProvider, Gates};

fn modes(supported: &[&str]) -> Value {
    let listed: Vec<_> = supported.iter().map(|mode| json!({"type": mode, "supported": true})).collect();
    json!({"spec": {"installModes": listed}})
}

fn refused(csv_patch: &Value, more: &[Value], options: &RenderOptions) -> String {
    render(&bundle(csv_patch, more).unwrap(), options).unwrap_err().to_string()
}

fn conversion() -> Value {
    json!({"spec": {"webhookdefinitions": [{"type": "ConversionWebhook", "generateName": "c", "deploymentName": "demo",
        "conversionCRDs": ["as.example.com"]}]}})
}

#[test]
fn gates_come_in_order() {
    let options = RenderOptions::new("i");
    let no_provider = RenderOptions { cert_provider: None, ..options.clone() };
    let gate_off = RenderOptions {
        gates: Gates { single_own_namespace: false, ..Gates::default() },
        ..no_provider.clone()
    };
    let api_service = json!({"spec": {"apiservicedefinitions": {"owned": [{"name": "a"}]}}});
    let everything = patched(patched(modes(&[]), &api_service), &conversion());
    let want = "unsupported bundle: apiServiceDefintions are not supported";
    assert_eq!(refused(&everything, &[], &gate_off), want);
    let webhooks = patched(modes(&[]), &conversion());
    let want = "unsupported bundle: webhookDefinitions are not supported";
    assert_eq!(refused(&webhooks, &[], &gate_off), want);
    let want = "unsupported bundle: bundle does not support AllNamespaces install mode";
    assert_eq!(refused(&modes(&["OwnNamespace"]), &[], &gate_off), want);
    let want = "unsupported bundle: bundle must support at least one of [AllNamespaces SingleNamespace OwnNamespace] install modes";
    assert_eq!(refused(&modes(&["MultiNamespace"]), &[], &options), want);
}

#[test]
fn render_watch_namespaces() {
    let watch = |namespace: &str| Some(json!({"watchNamespace": namespace}));
    let targets = |supported: &[&str], config: Option<Value>| {
        let options = RenderOptions { config, ..RenderOptions::new("i") };
        render_with_report(&bundle(&modes(supported), &[]).unwrap(), &options)
            .map(|rendered| rendered.targets.annotation())
            .map_err(|error| (error.terminal_reason(), error.to_string().lines().count()))
    };
    let (all, own, single) = ("AllNamespaces", "OwnNamespace", "SingleNamespace");
    let invalid = |lines: usize| Err((Some("InvalidConfiguration"), lines));
    for (supported, unset, same, other) in [
        (vec![all], Ok(""), invalid(1), invalid(1)),
        (vec![all, own], Ok(""), Ok("i"), invalid(4)),
        (vec![all, single], Ok(""), invalid(4), Ok("o")),
        (vec![all, own, single], Ok(""), Ok("i"), Ok("o")),
        (vec![own], invalid(1), Ok("i"), invalid(1)),
        (vec![single], invalid(1), invalid(1), Ok("o")),
        (vec![own, single], invalid(1), Ok("i"), Ok("o")),
    ] {
        let owned = |want: Result<&str, _>| want.map(str::to_owned);
        assert_eq!(targets(&supported, None), owned(unset), "{supported:?} unset");
        assert_eq!(targets(&supported, watch("i")), owned(same), "{supported:?} own");
        assert_eq!(targets(&supported, watch("o")), owned(other), "{supported:?} other");
    }
}

#[test]
fn render_asks_the_schema_with_gate_or_config_only() {
    let gates = Gates { single_own_namespace: false, deployment_config: false };
    let options = RenderOptions { gates, ..RenderOptions::new("i") };
    let objects =
        render(&bundle(&modes(&["AllNamespaces", "OwnNamespace"]), &[]).unwrap(), &options).unwrap();
    assert_eq!(objects.len(), 2);
}

#[test]
fn findings_of_the_bundle_are_lines_and_not_terminal() {
    let widget = |name: &str| json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": name}});
    let error = render(&bundle(&json!({}), &[widget("a"), widget("b")]).unwrap(), &RenderOptions::new("i"))
        .unwrap_err();
    let want = (
        "unsupported resource \"a\" with kind \"Widget\"\nunsupported resource \"b\" with kind \"Widget\"",
        None,
    );
    assert_eq!((error.to_string().as_str(), error.terminal_reason()), want);
}

#[test]
fn conversion_needs_declared_fields() {
    let owned = json!({"spec": {"customresourcedefinitions": {"owned": [{"name": "as.example.com"}, {"name": "b"}]},
        "webhookdefinitions": [{"type": "ConversionWebhook", "generateName": "c", "deploymentName": "demo",
            "conversionCRDs": ["b"]}]}});
    let keeps = patched(crd("b"), &json!({"spec": {"preserveUnknownFields": true}}));
    assert_eq!(
        refused(&owned, &[keeps], &RenderOptions::new("i")),
        "custom resource definition 'b' must have .spec.preserveUnknownFields set to false to let API Server call webhook to \
         do the conversion"
    );
    let objects = render(&bundle(&owned, &[crd("b")]).unwrap(), &RenderOptions::new("i")).unwrap();
    let converted = objects.iter().find(|object| object.name() == "b").unwrap().to_value();
    let want = json!({"namespace": "i", "name": "demo-service", "path": "/", "port": 443});
    assert_eq!(converted["spec"]["conversion"]["webhook"]["clientConfig"]["service"], want);

    let conversion = json!({"spec": {"webhookdefinitions": [{"type": "ConversionWebhook", "generateName": "c",
        "deploymentName": "demo", "conversionCRDs": ["b"], "admissionReviewVersions": ["v1beta1", "v1"],
        "containerPort": 9443, "targetPort": "hooks", "webhookPath": "/convert"}]}});
    let bundle = bundle(&patched(owned, &conversion), &[crd("b")]).unwrap();
    let objects = render(&bundle, &RenderOptions::new("i")).unwrap();
    let converted = objects.iter().find(|object| object.name() == "b").unwrap().to_value();
    assert_eq!(
        converted["spec"]["conversion"],
        json!({"strategy": "Webhook", "webhook": {
            "clientConfig": {
                "service": {"namespace": "i", "name": "demo-service", "path": "/convert", "port": 9443},
            },
            "conversionReviewVersions": ["v1beta1", "v1"],
        }})
    );
}

#[test]
fn render_merges_equal_objects() {
    let permission =
        json!({"spec": {"install": {"spec": {"permissions": [{"serviceAccountName": "sa", "rules": []}]}}}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa", "labels": {"a": "b"}}});
    let objects = render(&bundle(&permission, &[account]).unwrap(), &RenderOptions::new("i")).unwrap();
    let accounts: Vec<_> = objects.iter().filter(|object| object.kind() == "ServiceAccount").collect();
    assert_eq!(accounts.len(), 1, "the shipped account takes the generated one's place");
    assert_eq!(accounts[0].labels().get("a"), Some(&"b"));

    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": value}});
    let want = "/v1, Kind=ConfigMap i/c is made twice with different content: its own manifests and its own manifests";
    assert_eq!(refused(&json!({}), &[config("a"), config("b")], &RenderOptions::new("i")), want);
}

#[test]
fn providers_share_all_but_their_own_marks() {
    let webhook = bundle(&conversion(), &[]).unwrap();
    let rendered = |provider: CertProvider| {
        let options = RenderOptions { cert_provider: Some(provider), ..RenderOptions::new("i") };
        let mut objects = render(&webhook, &options).unwrap();
        objects.retain(|object| object.group() != "cert-manager.io");
        for object in &mut objects {
            object.metadata_mut().remove("annotations");
        }
        objects
    };
    assert_eq!(rendered(CertProvider::CertManager), rendered(CertProvider::BuiltIn));
    assert_eq!(rendered(CertProvider::ServiceCa), rendered(CertProvider::BuiltIn));
    let text = serde_json::to_string(&rendered(CertProvider::BuiltIn)).unwrap();
    assert!(!text.contains("caBundle") && text.contains("demo-service-cert"));
}

/// A field that one of the files leaves out fails here; each message names that file.
#[test]
fn config_fields_are_accepted_read_and_applied() {
    let examples = json!({
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}},
        "annotations": {"example.com/k": "v"},
        "env": [{"name": "EXAMPLE", "value": "v"}],
        "envFrom": [{"configMapRef": {"name": "example"}}],
        "nodeSelector": {"example.com/k": "v"},
        "resources": {"limits": {"cpu": "123m"}},
        "tolerations": [{"key": "example.com/k", "operator": "Exists"}],
        "volumeMounts": [{"name": "example", "mountPath": "/example"}],
        "volumes": [{"name": "example", "emptyDir": {}}],
    });
    let examples = examples.as_object().unwrap();
    let deployment = |config: Option<Value>| {
        let options = RenderOptions { config, ..RenderOptions::new("i") };
        let objects = render(&bundle(&modes(&["AllNamespaces"]), &[]).unwrap(), &options).unwrap();
        objects.into_iter().find(|object| object.kind() == "Deployment").unwrap()
    };
    let plain = deployment(None);
    for field in crate::DEPLOYMENT_FIELDS {
        assert!(examples.contains_key(field.name), "no example of {} in render/tests.rs", field.name);
    }
    for (name, value) in examples {
        let listed = crate::DEPLOYMENT_FIELDS.iter().any(|field| field.name == name);
        assert!(listed, "deploymentConfig.{name} is not in DEPLOYMENT_FIELDS, config/schema.rs");
        let given = json!({"deploymentConfig": {name: value}});
        let all: crate::InstallModes = [crate::InstallMode::AllNamespaces].into_iter().collect();
        let config = crate::read_config(Some(&given), &all, "i", Gates::default()).unwrap();
        let read = config.deployment != crate::DeploymentConfig::default();
        assert!(read, "deploymentConfig.{name} is not read, config/mod.rs");
        let changed = deployment(Some(given));
        assert_ne!(changed, plain, "deploymentConfig.{name} changes nothing, render/overrides.rs");
    }
}

/// Before they are made: a short entry of the CSV becomes kilobytes of objects.
#[test]
fn render_limits_objects() {
    let with = |accounts: usize| {
        let mut bundle = bundle(&modes(&["AllNamespaces"]), &[]).unwrap();
        let account = |at: usize| Permission { service_account: format!("a{at}"), rules: Some(Vec::new()) };
        bundle.csv.cluster_permissions = (0..accounts).map(account).collect();
        render(&bundle, &RenderOptions::new("i")).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(3_300), Ok(()));
    let error = with(3_334).unwrap_err();
    assert!(error.contains("at most 10000 are allowed"), "{error}");
}

/// rule: classic-apis §7.7; decision 47
#[test]
fn user_roles_of_each_served_version() {
    let owned = json!({"spec": {"customresourcedefinitions": {"owned": [{"name": "as.example.com"}, {"name": "ws.example.com"}]}}});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let widgets = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ws.example.com"},
        "spec": {"group": "example.com", "names": {"plural": "ws", "kind": "W"}, "scope": "Namespaced", "versions": [
            {"name": "v1alpha1", "served": false, "storage": false, "schema": schema},
            {"name": "v1", "served": true, "storage": true, "schema": schema},
            {"name": "v2", "served": true, "storage": false, "schema": schema}]},
    });
    let bundle = bundle(&owned, &[widgets]).unwrap();
    let roles = |user_roles: bool| -> Vec<Value> {
        let options = RenderOptions { user_roles, ..RenderOptions::new("i") };
        let objects = render(&bundle, &options).unwrap();
        let roles = objects.iter().filter(|object| object.name().starts_with("ws.example.com-"));
        roles.map(Object::to_value).collect()
    };
    assert_eq!(roles(false), Vec::<Value>::new());
    let found = roles(true);
    let names: Vec<_> = found.iter().map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
    let want = [
        "ws.example.com-v1-admin",
        "ws.example.com-v1-edit",
        "ws.example.com-v1-view",
        "ws.example.com-v1-crdview",
        "ws.example.com-v2-admin",
        "ws.example.com-v2-edit",
        "ws.example.com-v2-view",
        "ws.example.com-v2-crdview",
    ];
    assert_eq!(names, want);
    let on_widgets =
        |verbs: Value| json!([{"apiGroups": ["example.com"], "resources": ["ws"], "verbs": verbs}]);
    let label = |role: &str| json!({format!("rbac.authorization.k8s.io/aggregate-to-{role}"): "true"});
    for (role, labels, rules) in [
        (0, label("admin"), on_widgets(json!(["*"]))),
        (1, label("edit"), on_widgets(json!(["create", "update", "patch", "delete"]))),
        (2, label("view"), on_widgets(json!(["get", "list", "watch"]))),
        (
            3,
            label("view"),
            json!([{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
                "resourceNames": ["ws.example.com"], "verbs": ["get"]}]),
        ),
    ] {
        assert_eq!(
            (&found[role]["metadata"]["labels"], &found[role]["rules"]),
            (&labels, &rules),
            "{}",
            names[role]
        );
    }
}

/// The annotations of the CSV come into each deployment: few bytes of a bundle would become gigabytes.
#[test]
fn render_limits_copied_annotations() {
    let with = |deployments: usize| {
        let mut bundle = bundle(&modes(&["AllNamespaces"]), &[]).unwrap();
        let text = "x".repeat((256 << 10) - ANNOTATION_BYTES - 1);
        bundle.csv.annotations = [("a".to_owned(), text)].into();
        let demo = bundle.csv.deployments.pop().unwrap();
        let named = |at: usize| CsvDeployment { name: format!("d{at}"), ..demo.clone() };
        bundle.csv.deployments = (0..deployments).map(named).collect();
        render(&bundle, &RenderOptions::new("i")).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(128), Ok(()));
    assert_eq!(
        with(129).unwrap_err(),
        "the annotations of the CSV take 33816576 bytes in the bundle's deployments together, at most 33554432 are allowed; \
         it must have fewer annotations or deployments"
    );
}

#[test]
fn render_stops_when_cancelled() {
    let whole = || bundle(&json!({}), &[]).unwrap();
    let cancellation = Cancellation::default();
    assert!(render_owned(whole(), &RenderOptions::new("i"), &cancellation).is_ok());
    cancellation.cancel();
    let cancelled = render_owned(whole(), &RenderOptions::new("i"), &cancellation);
    assert_eq!(cancelled.unwrap_err(), RenderError::Cancelled);
}
