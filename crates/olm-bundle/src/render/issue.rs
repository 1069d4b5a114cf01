//! Certificates that the built-in issuer issues for rendered objects, read back from the objects themselves: a revision needs no
//! further record of it, and survives restarts and upgrades of the controller. Rule: decision 13.
//!
//! It is the other direction of [`super::certificates`]: for a bundle rendered with the built-in provider it gives
//! [`Rendered::certificates`](super::Rendered), for any other provider nothing.

use std::collections::{BTreeMap, BTreeSet};

use olm_core::Object;
use serde_json::Value;

use super::certificates::{
    CaTarget, INJECT_FROM_CERTIFICATE, INJECT_SERVICE_CA, SERVING_SECRET, WebhookCertificate, certificate,
};
use crate::names;

/// The certificates that no other provider issues: of Services behind which a pod mounts the Secret of the certificate, and
/// which are called by webhook configurations or conversions that no other provider marks as its own.
#[must_use]
pub fn certificates_to_issue(objects: &[Object]) -> Vec<WebhookCertificate> {
    let mounted = mounted_secrets(objects);
    let elsewhere = issued_elsewhere(objects);
    let mut needed: BTreeMap<(String, String), WebhookCertificate> = BTreeMap::new();
    for service in objects.iter().filter(|object| object.group().is_empty() && object.kind() == "Service") {
        let (name, namespace) = (service.name(), service.namespace().unwrap_or_default());
        let place = (namespace.to_owned(), names::certificate(name));
        let marked = service.annotations().contains_key(SERVING_SECRET);
        if let Some(deployment) = mounted.get(&place)
            && !marked
            && !elsewhere.contains(&place)
        {
            needed.insert((namespace.to_owned(), name.to_owned()), certificate(namespace, name, deployment));
        }
    }
    for object in objects {
        let Some(target) = target(object) else { continue };
        for service in called_services(object) {
            if let Some(certificate) = needed.get_mut(&service) {
                certificate.ca_targets.push(target.clone());
            }
        }
    }
    let mut certificates: Vec<_> =
        needed.into_values().filter(|certificate| !certificate.ca_targets.is_empty()).collect();
    for certificate in &mut certificates {
        certificate.ca_targets.sort();
        certificate.ca_targets.dedup();
    }
    certificates.sort_by(|a, b| a.deployment.cmp(&b.deployment));
    certificates
}

/// Secrets that pods of Deployments mount (namespace and name), with the first Deployment that does.
#[must_use]
pub fn mounted_secrets(objects: &[Object]) -> BTreeMap<(String, String), String> {
    let mut mounted = BTreeMap::new();
    for deployment in objects.iter().filter(|object| object.kind() == "Deployment") {
        let volumes = path(deployment, &["spec", "template", "spec", "volumes"]);
        for volume in volumes.and_then(Value::as_array).into_iter().flatten() {
            if let Some(secret) = volume.pointer("/secret/secretName").and_then(Value::as_str) {
                let place = (deployment.namespace().unwrap_or_default().to_owned(), secret.to_owned());
                mounted.entry(place).or_insert_with(|| deployment.name().to_owned());
            }
        }
    }
    mounted
}

/// The Services (namespace and name) that an admission configuration or a converted CustomResourceDefinition calls.
#[must_use]
pub fn called_services(object: &Object) -> Vec<(String, String)> {
    let clients: Vec<&Value> = match object.kind() {
        "CustomResourceDefinition" => {
            path(object, &["spec", "conversion", "webhook", "clientConfig"]).into_iter().collect()
        }
        _ => {
            let hooks = object.0.get("webhooks").and_then(Value::as_array).into_iter().flatten();
            hooks.filter_map(|hook| hook.get("clientConfig")).collect()
        }
    };
    let service = |client: &&Value| {
        let text = |key: &str| client.pointer(key).and_then(Value::as_str).map(str::to_owned);
        Some((text("/service/namespace")?, text("/service/name")?))
    };
    clients.iter().filter_map(service).collect()
}

/// The object as one whose `caBundle` is ours to set; `None` for other kinds and where another provider injects.
fn target(object: &Object) -> Option<CaTarget> {
    let annotations = object.annotations();
    if [INJECT_FROM_CERTIFICATE, INJECT_SERVICE_CA].iter().any(|key| annotations.contains_key(key)) {
        return None;
    }
    let name = object.name().to_owned();
    match (object.group(), object.kind()) {
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            Some(CaTarget::ValidatingWebhookConfiguration(name))
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            Some(CaTarget::MutatingWebhookConfiguration(name))
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some(CaTarget::CustomResourceDefinition(name))
        }
        _ => None,
    }
}

fn issued_elsewhere(objects: &[Object]) -> BTreeSet<(String, String)> {
    let certificates =
        objects.iter().filter(|object| object.group() == "cert-manager.io" && object.kind() == "Certificate");
    certificates
        .filter_map(|object| {
            let secret = path(object, &["spec", "secretName"])?.as_str()?;
            Some((object.namespace().unwrap_or_default().to_owned(), secret.to_owned()))
        })
        .collect()
}

fn path<'a>(object: &'a Object, steps: &[&str]) -> Option<&'a Value> {
    let (first, rest) = steps.split_first()?;
    rest.iter().try_fold(object.0.get(*first)?, |value, step| value.get(step))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{bundle, crd, deployment};
    use crate::options::{CertProvider, RenderOptions};
    use crate::render::render_with_report;

    fn webhook(kind: &str, name: &str, deployment: &str) -> Value {
        json!({"type": kind, "generateName": name, "deploymentName": deployment, "sideEffects": "None", "admissionReviewVersions": ["v1"]})
    }

    fn every_kind() -> (Value, Vec<Value>) {
        let mut conversion = webhook("ConversionWebhook", "c.x.y", "other.one");
        conversion["conversionCRDs"] = json!(["as.example.com"]);
        let csv = json!({"spec": {
            "customresourcedefinitions": {"owned": [{"name": "as.example.com"}, {"name": "bs.example.com"}]},
            "install": {"spec": {"deployments": [deployment("demo"), deployment("other.one"), deployment("idle")]}},
            "webhookdefinitions": [
                webhook("ValidatingAdmissionWebhook", "v.x.y", "demo"), webhook("MutatingAdmissionWebhook", "m.x.y", "demo"),
                webhook("ValidatingAdmissionWebhook", "w.x.y", "demo"), conversion,
            ],
        }});
        (csv, vec![crd("bs.example.com")])
    }

    #[test]
    fn issue_finds_the_rendered_certificates() {
        let (csv, more) = every_kind();
        let bundle = bundle(&csv, &more).unwrap();
        let rendered = |provider: CertProvider| {
            let options = RenderOptions { cert_provider: Some(provider), ..RenderOptions::new("i") };
            render_with_report(&bundle, &options).unwrap()
        };
        let built_in = rendered(CertProvider::BuiltIn);
        assert_eq!(built_in.certificates.len(), 2);
        assert_eq!(certificates_to_issue(&built_in.objects), built_in.certificates);
        for provider in [CertProvider::CertManager, CertProvider::ServiceCa] {
            assert_eq!(certificates_to_issue(&rendered(provider).objects), [], "{provider:?}");
        }
        let secrets =
            ["demo-service-cert", "other-one-service-cert"].map(|name| ("i".to_owned(), name.to_owned()));
        assert!(mounted_secrets(&built_in.objects).into_keys().eq(secrets));
    }

    #[test]
    fn issue_ignores_foreign_certificates() {
        let (csv, more) = every_kind();
        let objects =
            render_with_report(&bundle(&csv, &more).unwrap(), &RenderOptions::new("i")).unwrap().objects;
        let without = |kind: &str, name: &str| {
            let kept: Vec<_> =
                objects.iter().filter(|o| !(o.kind() == kind && o.name() == name)).cloned().collect();
            certificates_to_issue(&kept).iter().map(|one| one.deployment.clone()).collect::<Vec<_>>()
        };
        assert_eq!(without("Service", "demo-service"), ["other.one"], "no Service, no certificate");
        assert_eq!(without("Deployment", "demo"), ["other.one"], "no pod mounts it");
        assert_eq!(without("CustomResourceDefinition", "as.example.com"), ["demo"], "no webhook calls it");
        let mut marked = objects.clone();
        for object in &mut marked {
            object.set_annotation(INJECT_FROM_CERTIFICATE, "i/x");
        }
        assert_eq!(certificates_to_issue(&marked), [], "another provider injects");
    }
}
