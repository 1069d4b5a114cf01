//! Validating and mutating webhook configurations, one per webhook definition. Rules: bundle-rendering §9.7, §9.8.

use olm_core::Object;
use serde_json::{Value, json};

use super::{Context, certificates};
use crate::csv::{Webhook, WebhookType};
use crate::modes::Targets;
use crate::names;

pub(super) fn validating(context: &Context<'_>) -> Vec<Object> {
    configurations(context, &WebhookType::Validating, "ValidatingWebhookConfiguration")
}

pub(super) fn mutating(context: &Context<'_>) -> Vec<Object> {
    configurations(context, &WebhookType::Mutating, "MutatingWebhookConfiguration")
}

fn configurations(context: &Context<'_>, webhook_type: &WebhookType, kind: &str) -> Vec<Object> {
    let of_type = context.bundle.csv.webhooks.iter().filter(|webhook| webhook.kind == *webhook_type);
    of_type
        .map(|webhook| {
            let mut object = super::object(json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": webhook.name()},
                "webhooks": [entry(context, webhook)],
            }));
            certificates::inject_ca(context, &webhook.deployment, &mut object);
            object
        })
        .collect()
}

fn entry(context: &Context<'_>, webhook: &Webhook) -> Value {
    let mut service = json!({
        "namespace": context.namespace(),
        "name": names::service(&webhook.deployment),
        "port": webhook.port(),
    });
    if let Some(path) = &webhook.path {
        service["path"] = path.as_str().into();
    }
    let mut entry = webhook.admission.clone();
    entry.insert("name".to_owned(), webhook.name().into());
    entry.insert("clientConfig".to_owned(), json!({"service": service}));
    entry.insert("admissionReviewVersions".to_owned(), json!(webhook.admission_review_versions));
    if !webhook.rules.is_empty() {
        entry.insert("rules".to_owned(), json!(webhook.rules));
    }
    if let Targets::Namespaces(namespaces) = context.targets {
        let selector = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces},
        ]});
        entry.insert("namespaceSelector".to_owned(), selector);
    }
    if let (WebhookType::Mutating, Some(policy)) = (&webhook.kind, &webhook.reinvocation_policy) {
        entry.insert("reinvocationPolicy".to_owned(), policy.as_str().into());
    }
    Value::Object(entry)
}
