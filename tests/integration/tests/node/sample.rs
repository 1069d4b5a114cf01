//! The sample operator in bundles: its Deployment, its kind, and the webhooks for it.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use olm_kit::{BundleImage, Crd, eventually};
use serde_json::{Value, json};

use crate::site::{LIMIT, OPERATOR, Site, is_ready};

/// The API group of a package.
pub(crate) fn group(package: &str) -> String {
    format!("{package}.kit.test")
}

pub(crate) fn deployment_name(package: &str) -> String {
    format!("{package}-ctrl")
}

/// The namespace of an operator, whose pods have to be restricted.
pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
        "pod-security.kubernetes.io/enforce": "restricted"}}})
}

/// The Deployment of a package, as an entry of a ClusterServiceVersion. `flags` are more of the operator.
pub(crate) fn deployment(package: &str, version: &str, flags: &[String]) -> Value {
    let name = deployment_name(package);
    let version = format!("--version={version}");
    let arguments: Vec<&String> = [&version].into_iter().chain(flags).collect();
    let manager = json!({
        "name": "manager", "image": OPERATOR, "command": ["/sample-operator"], "args": arguments,
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1}, "resources": {"limits": {"memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
    });
    let spec = json!({
        "replicas": 1, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {
            "serviceAccountName": format!("{package}-sa"), "terminationGracePeriodSeconds": 5,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [manager],
        }},
    });
    json!({"name": name, "spec": spec})
}

/// The kind `Widget` of a package, in two versions.
pub(crate) fn crd(package: &str) -> Crd {
    Crd::new("Widget", &group(package))
        .version("v1", true, true)
        .version("v2", true, false)
        .field("replicas", json!({"type": "integer"}))
}

/// Adds the kind, and webhooks that validate and convert its objects.
pub(crate) fn with_webhooks(bundle: BundleImage, package: &str) -> BundleImage {
    let (group, crd) = (group(package), crd(package));
    let webhook = |kind: &str, name: &str, path: &str, more: Value| {
        let mut definition = json!({
            "type": kind, "generateName": format!("{name}.{group}"), "deploymentName": deployment_name(package), "containerPort": 443,
            "targetPort": 9443, "webhookPath": path, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        });
        if let (Some(whole), Value::Object(more)) = (definition.as_object_mut(), more) {
            whole.extend(more);
        }
        definition
    };
    let rules = json!([{"apiGroups": [group], "apiVersions": ["v1", "v2"], "resources": ["widgets"], "operations": ["CREATE", "UPDATE"]}]);
    let strict = json!({"failurePolicy": "Fail", "rules": rules});
    let validating = webhook("ValidatingAdmissionWebhook", "v", "/validate", strict);
    let converting = webhook("ConversionWebhook", "c", "/convert", json!({"conversionCRDs": [crd.name()]}));
    bundle.crds([crd]).webhook(validating).webhook(converting)
}

/// A Widget in v1; the operator rejects sizes above 10.
pub(crate) fn widget(package: &str, size: u32) -> Value {
    json!({"apiVersion": format!("{}/v1", group(package)), "kind": "Widget",
        "metadata": {"name": "w", "namespace": package}, "spec": {"size": size}})
}

/// What the operator answers to a size of 11.
pub(crate) const TOO_LARGE: &str = "spec.size: 11 is above 10";

/// Waits until the only pod of the operator of a package is Ready and reports this version.
pub(crate) async fn runs(site: &Site, package: &str, version: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(site.client().await?, package);
    let selected = ListParams::default().labels(&format!("app={}", deployment_name(package)));
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
    eventually(&format!("the operator of {version} runs"), LIMIT, || async {
        let found = pods.list(&selected).await?.items;
        let [pod] = &found[..] else { bail!("{} pods", found.len()) };
        ensure!(is_ready(pod), "not Ready: {:?}", pod.status);
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("no address")?;
        let answer = client.get(format!("http://{address}:8081/version")).send().await?.text().await?;
        ensure!(answer.trim() == version, "it reports {answer:?}");
        Ok(())
    })
    .await
}
