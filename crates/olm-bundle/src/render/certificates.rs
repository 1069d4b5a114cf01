//! Serving certificates of webhooks: who issues them and what that needs in the rendered objects. Rules:
//! bundle-rendering §9.10 and §10.
//!
//! With the built-in provider nothing of a certificate is rendered: no Secret, no `caBundle`. Its controller works from
//! [`WebhookCertificate`], so revisions stay the same when certificates rotate.

use std::collections::BTreeMap;

use olm_core::Object;
use serde_json::{Value, json};

use super::Context;
use crate::csv::WebhookType;
use crate::names;
use crate::options::CertProvider;

/// Where cert-manager is to take the CA from that it puts into `caBundle`.
pub(super) const INJECT_FROM_CERTIFICATE: &str = "cert-manager.io/inject-ca-from";
/// Asks OpenShift's service CA to fill `caBundle`.
pub(super) const INJECT_SERVICE_CA: &str = "service.beta.openshift.io/inject-cabundle";
/// Asks OpenShift's service CA for the certificate of a Service.
pub(super) const SERVING_SECRET: &str = "service.beta.openshift.io/serving-cert-secret-name";
/// Longest common name that X.509 allows.
const COMMON_NAME_LIMIT: usize = 64;

/// A serving certificate that a deployment's webhooks need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookCertificate {
    pub deployment: String,
    /// Namespace of deployment, Service and Secret.
    pub namespace: String,
    pub service: String,
    /// The Secret with the keys `tls.crt` and `tls.key` that pods mount.
    pub secret: String,
    /// Names that the certificate must be valid for.
    pub dns_names: Vec<String>,
    /// Objects whose `caBundle` must trust the certificate, sorted.
    pub ca_targets: Vec<CaTarget>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaTarget {
    /// A CustomResourceDefinition of that name: `spec.conversion.webhook.clientConfig.caBundle`.
    CustomResourceDefinition(String),
    /// A MutatingWebhookConfiguration of that name: `webhooks[*].clientConfig.caBundle`.
    MutatingWebhookConfiguration(String),
    /// A ValidatingWebhookConfiguration of that name: `webhooks[*].clientConfig.caBundle`.
    ValidatingWebhookConfiguration(String),
}

/// The certificates that the bundle needs, by deployment.
pub(super) fn certificates(context: &Context<'_>) -> Vec<WebhookCertificate> {
    let mut needed: BTreeMap<&str, WebhookCertificate> = BTreeMap::new();
    for webhook in &context.bundle.csv.webhooks {
        let certificate = needed.entry(&webhook.deployment).or_insert_with(|| {
            certificate(context.namespace(), &names::service(&webhook.deployment), &webhook.deployment)
        });
        match &webhook.kind {
            WebhookType::Validating => {
                let name = webhook.name().to_owned();
                certificate.ca_targets.push(CaTarget::ValidatingWebhookConfiguration(name));
            }
            WebhookType::Mutating => {
                let name = webhook.name().to_owned();
                certificate.ca_targets.push(CaTarget::MutatingWebhookConfiguration(name));
            }
            WebhookType::Conversion => certificate
                .ca_targets
                .extend(webhook.conversion_crds.iter().cloned().map(CaTarget::CustomResourceDefinition)),
            WebhookType::Other(_) => {}
        }
    }
    let mut certificates: Vec<_> = needed.into_values().collect();
    for certificate in &mut certificates {
        certificate.ca_targets.sort();
        certificate.ca_targets.dedup();
    }
    certificates
}

/// The certificate of a Service in front of a deployment.
pub(super) fn certificate(namespace: &str, service: &str, deployment: &str) -> WebhookCertificate {
    let host = format!("{service}.{namespace}");
    WebhookCertificate {
        deployment: deployment.to_owned(),
        namespace: namespace.to_owned(),
        secret: names::certificate(service),
        service: service.to_owned(),
        dns_names: vec![host.clone(), format!("{host}.svc"), format!("{host}.svc.cluster.local")],
        ca_targets: Vec::new(),
    }
}

/// The Secret that a deployment mounts: where a webhook names it and a provider issues certificates.
pub(super) fn secret(context: &Context<'_>, deployment: &str) -> Option<String> {
    context.options.cert_provider?;
    let serves = context.bundle.csv.webhooks.iter().any(|webhook| webhook.deployment == deployment);
    serves.then(|| names::certificate(&names::service(deployment)))
}

/// Asks the provider to put its CA into an object that calls a webhook of the deployment.
pub(super) fn inject_ca(context: &Context<'_>, deployment: &str, object: &mut Object) {
    match context.options.cert_provider {
        Some(CertProvider::CertManager) => {
            let certificate = names::certificate(&names::service(deployment));
            let from = format!("{}/{certificate}", context.namespace());
            object.set_annotation(INJECT_FROM_CERTIFICATE, &from);
        }
        Some(CertProvider::ServiceCa) => {
            object.set_annotation(INJECT_SERVICE_CA, "true");
        }
        // a mark that the bundle's author left would have another provider write the same field
        Some(CertProvider::BuiltIn) => {
            if let Some(Value::Object(annotations)) = object.metadata_mut().get_mut("annotations") {
                annotations.retain(|key, _| key != INJECT_FROM_CERTIFICATE && key != INJECT_SERVICE_CA);
            }
        }
        None => {}
    }
}

/// Asks the provider to issue the certificate of a Service.
pub(super) fn request(context: &Context<'_>, deployment: &str, service: &mut Object) {
    if context.options.cert_provider == Some(CertProvider::ServiceCa) {
        let secret = names::certificate(&names::service(deployment));
        service.set_annotation(SERVING_SECRET, &secret);
    }
}

/// The objects that cert-manager issues certificates from.
pub(super) fn objects(context: &Context<'_>) -> Vec<Object> {
    if context.options.cert_provider != Some(CertProvider::CertManager) {
        return Vec::new();
    }
    certificates(context).iter().flat_map(issuer_and_certificate).collect()
}

fn issuer_and_certificate(certificate: &WebhookCertificate) -> [Object; 2] {
    let WebhookCertificate { namespace, secret, dns_names, .. } = certificate;
    let issuer = names::issuer(secret);
    let mut spec = json!({
        "secretName": secret,
        "dnsNames": dns_names,
        "usages": ["server auth"],
        "issuerRef": {"name": issuer},
        "duration": "17520h0m0s",
        "renewBefore": "24h0m0s",
    });
    if let Some(host) = dns_names.first().filter(|host| host.len() <= COMMON_NAME_LIMIT) {
        spec["commonName"] = host.as_str().into();
    }
    let issuer = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": {"name": issuer, "namespace": namespace},
        "spec": {"selfSigned": {}},
    });
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": secret, "namespace": namespace},
        "spec": spec,
    });
    [super::object(issuer), super::object(certificate)]
}
