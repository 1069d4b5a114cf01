//! One bundle per finding. Rules: bundle-rendering §7.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{bundle, crd, deployment};

fn findings(csv_patch: Value, more: &[Value]) -> Vec<String> {
    validate(&bundle(&csv_patch, more).unwrap())
}

#[track_caller]
fn check(csv_patch: Value, more: &[Value], want: &[&str]) {
    assert_eq!(findings(csv_patch, more), want);
}

fn webhook(kind: &str, name: &str, more: Value) -> Value {
    crate::fixture::patched(json!({"type": kind, "generateName": name, "deploymentName": "demo"}), &more)
}

fn webhooks(webhooks: &[Value]) -> Value {
    json!({"spec": {"webhookdefinitions": webhooks}})
}

const SHAPE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[test]
fn validate_accepts_a_sound_bundle() {
    assert_eq!(findings(json!({}), &[]), Vec::<String>::new());
}

#[test]
#[rustfmt::skip]
fn deployments_and_definitions() {
    let deployments = |list: &[&str]| {
        let list: Vec<_> = list.iter().map(|name| deployment(name)).collect();
        json!({"spec": {"install": {"spec": {"deployments": list}}}})
    };
    check(deployments(&["z", "a", "z", "a", "z"]), &[],
        &["cluster service version contains duplicate strategy deployment spec 'a'",
            "cluster service version contains duplicate strategy deployment spec 'z'"]);
    let long = "A".repeat(254);
    check(deployments(&["", &long]), &[],
        &[&format!("invalid cluster service version strategy deployment name '': {SHAPE}"),
            &format!("invalid cluster service version strategy deployment name '{long}': {SHAPE}, must be no more than 253 characters")]);
    check(json!({}), &[crd("as.example.com"), crd("b"), crd("b")],
        &["bundle contains duplicate custom resource definition 'as.example.com'",
            "bundle contains duplicate custom resource definition 'b'"]);
    check(json!({"spec": {"customresourcedefinitions": {"owned": [{"name": "y"}, {"name": "x"}, {"name": "y"}]}}}), &[],
        &["cluster service definition references owned custom resource definition 'x' not found in bundle",
            "cluster service definition references owned custom resource definition 'y' not found in bundle"]);
}

#[test]
fn crd_versions_without_schema() {
    let versions = json!([
        {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}, {"name": "v2"},
        {"name": "v3", "schema": {"openAPIV3Schema": null}},
    ]);
    let crd = crate::fixture::patched(crd("b"), &json!({"spec": {"versions": versions}}));
    let want =
        "custom resource definition \"b\" has no schema for version \"v2\"; give it an openAPIV3Schema";
    check(json!({}), &[crd], &[want, &want.replace("v2", "v3")]);
}

#[test]
fn package_name() {
    let mut empty = bundle(&json!({}), &[]).unwrap();
    empty.package_name.clear();
    assert_eq!(validate(&empty), ["package name is empty"]);
}

#[test]
#[rustfmt::skip]
fn webhook_definitions() {
    let validating = |name: &str, more: Value| webhook("ValidatingAdmissionWebhook", name, more);
    let mutating = |name: &str, more: Value| webhook("MutatingAdmissionWebhook", name, more);
    let of = |deployment: &str| json!({"deploymentName": deployment});
    let missing = [validating("b.example.com", of("no")), mutating("c.example.com", of("no")), validating("a.example.com", of("ja"))];
    check(webhooks(&missing), &[],
        &["webhook of type 'ValidatingAdmissionWebhook' with name 'a.example.com' references non-existent deployment 'ja'",
            "webhook of type 'MutatingAdmissionWebhook' with name 'c.example.com' references non-existent deployment 'no'",
            "webhook of type 'ValidatingAdmissionWebhook' with name 'b.example.com' references non-existent deployment 'no'"]);
    let none = || json!({});
    check(webhooks(&[validating("a.example.com", none()), validating("a.example.com-", none()), mutating("a.example.com", none())]), &[],
        &["duplicate webhook 'a.example.com' of type 'ValidatingAdmissionWebhook'"]);
    check(webhooks(&[validating("A_", none()), mutating("a.b", none())]), &[],
        &[&format!("webhook of type 'ValidatingAdmissionWebhook' has invalid name 'A_': {SHAPE}"),
            "webhook of type 'MutatingAdmissionWebhook' has invalid name 'a.b': should be a domain with at least three segments separated by dots"]);
    let convert = |name: &str, crds: Value| webhook("ConversionWebhook", name, json!({"conversionCRDs": crds}));
    check(webhooks(&[convert("z", json!(["as.example.com", "x"])), convert("y", json!(["as.example.com"]))]), &[],
        &["conversion webhooks [y,z] reference same custom resource definition 'as.example.com'",
            "conversion webhook 'z' references custom resource definition 'x' not owned bundle"]);
    let mut own = webhooks(&[convert("c", json!(["as.example.com"]))]);
    own["spec"]["installModes"] = json!([
        {"type": "OwnNamespace", "supported": true}, {"type": "AllNamespaces", "supported": true},
        {"type": "MultiNamespace", "supported": false}, {"type": "OwnNamespacejl", "supported": true},
    ]);
    check(own, &[],
        &["bundle contains conversion webhook \"c\" and supports install modes [AllNamespaces OwnNamespace] - conversion webhooks are only supported for bundles that only support AllNamespaces install mode"]);
    check(webhooks(&[webhook("Validating", "a.example.com", none())]), &[], &["webhook 'a.example.com' has unknown type 'Validating'"]);
}

#[test]
fn webhook_rules() {
    let ruled = |kind: &str, rules: Value| {
        findings(webhooks(&[webhook(kind, "a.example.com", json!({"rules": rules}))]), &[])
    };
    let start = "webhook \"a.example.com\" contains forbidden rule: admission webhook rules cannot reference";
    let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources});
    for kind in ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"] {
        let own = json!([rule(&["", "*", "olm.operatorframework.io"], &["pods"]), rule(&["apps"], &["*"])]);
        let want = ["*", "olm.operatorframework.io"].map(|group| format!("{start} API group {group:?}"));
        assert_eq!(ruled(kind, own), want);
        let admission = "admissionregistration.k8s.io";
        let mut resources =
            vec!["*", "MutatingWebhookConfigurations", "validatingwebhookconfiguration", "*/*"];
        let forbidden = |it: &&str| format!("{start} resource {it:?} for API group {admission:?}");
        let want: Vec<_> = resources.iter().map(forbidden).collect();
        resources.insert(3, "validatingadmissionpolicies");
        assert_eq!(ruled(kind, json!([rule(&[admission], &resources)])), want);
    }
    assert_eq!(ruled("ConversionWebhook", json!([rule(&["*"], &["*"])])), Vec::<String>::new());
}

#[test]
fn findings_of_a_bundle_are_limited() {
    let rules = json!({"rules": [{"apiGroups": vec!["*"; 2_000]}]});
    let ruled = |kind: &str| findings(webhooks(&[webhook(kind, "a.example.com", rules.clone())]), &[]);
    assert_eq!(ruled("ValidatingAdmissionWebhook").len(), MAX_FINDINGS);
    let convert = |count: usize, crds: Value| {
        let one =
            |at: usize| webhook("ConversionWebhook", &format!("c{at:03}"), json!({"conversionCRDs": crds}));
        findings(webhooks(&(0..count).map(one).collect::<Vec<_>>()), &[])
    };
    assert_eq!(convert(1, json!(["as.example.com", "as.example.com"])), Vec::<String>::new(), "listed twice");
    assert_eq!(convert(1, json!(vec!["x"; 2_000])).len(), MAX_FINDINGS);
    let found = convert(100, json!(["as.example.com"]));
    assert!(found.len() == 1 && found[0].contains(",c019] reference same"), "{found:?}");
    let found = findings(
        webhooks(&[webhook("MutatingAdmissionWebhook", "a.b.c", json!({"targetPort": "p".repeat(2_000)}))]),
        &[],
    );
    assert!(found.len() == 1 && found[0].contains("its target port has a name of 2000 bytes"), "{found:?}");
}

#[test]
fn webhook_ports_and_services() {
    let validating = |name: &str, more: Value| webhook("ValidatingAdmissionWebhook", name, more);
    let shared = webhooks(&[
        validating("a.example.com", json!({"containerPort": 443, "targetPort": 9443})),
        validating("b.example.com", json!({"targetPort": 8443})),
        validating("c.example.com", json!({"containerPort": 8443})),
    ]);
    let want = "webhooks 'a.example.com' and 'b.example.com' of deployment 'demo' share port 443 with different target ports 9443 and 8443";
    check(shared, &[], &[want]);
    let (first, second) = (format!("{}-1", "a".repeat(60)), format!("{}-2", "a".repeat(60)));
    let mut patch = webhooks(&[
        validating("a.example.com", json!({"deploymentName": first})),
        validating("b.example.com", json!({"deploymentName": second})),
    ]);
    patch["spec"]["install"] = json!({"spec": {"deployments": [deployment(&first), deployment(&second)]}});
    let service = format!("{}-service", "a".repeat(55));
    let want = format!("deployments '{first}' and '{second}' would share the webhook service '{service}'");
    check(patch, &[], &[&want]);
}

#[test]
fn validate_allows_other_kinds_of_the_list() {
    let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}});
    #[rustfmt::skip]
    let allowed = [
        "Service", "ServiceAccount", "Role", "RoleBinding", "Secret", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy", "PrometheusRule",
        "ServiceMonitor", "PodMonitor", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "ConsoleYAMLSample", "ConsoleQuickStart",
        "ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin", "VerticalPodAutoscaler",
    ];
    let objects: Vec<_> = allowed.iter().map(|kind| object(kind)).collect();
    assert_eq!(findings(json!({}), &objects), Vec::<String>::new());
    #[rustfmt::skip]
    let refused = [
        "Deployment", "StatefulSet", "DaemonSet", "Job", "Namespace", "Ingress", "MutatingWebhookConfiguration", "Widget",
    ];
    let objects: Vec<_> = refused.iter().map(|kind| object(kind)).collect();
    let want = refused.map(|kind| format!("unsupported resource \"n\" with kind {kind:?}"));
    assert_eq!(findings(json!({}), &objects), want);
}
