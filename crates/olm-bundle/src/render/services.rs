//! The Services in front of deployments that serve webhooks. Rule: bundle-rendering §9.9.

use std::collections::BTreeSet;

use olm_core::Object;
use serde_json::{Value, json};

use super::{Context, certificates};
use crate::csv::CsvDeployment;
use crate::names;

pub(super) fn services(context: &Context<'_>, deployments: &[CsvDeployment]) -> Vec<Object> {
    deployments.iter().filter_map(|deployment| render_service(context, deployment)).collect()
}

fn render_service(context: &Context<'_>, deployment: &CsvDeployment) -> Option<Object> {
    // ordered by port, then by numeric target, then by the target's name
    let ports: BTreeSet<(i64, i64, String)> = context
        .bundle
        .csv
        .webhooks
        .iter()
        .filter(|webhook| webhook.deployment == deployment.name)
        .map(|webhook| match &webhook.target_port {
            Some(Value::String(name)) => (webhook.port(), 0, name.clone()),
            Some(number) => (webhook.port(), number.as_i64().unwrap_or_default(), String::new()),
            None => (webhook.port(), webhook.port(), String::new()),
        })
        .collect();
    if ports.is_empty() {
        return None;
    }
    let ports: Vec<_> = ports
        .into_iter()
        .map(|(port, number, name)| {
            let target = if name.is_empty() { Value::from(number) } else { Value::from(name) };
            json!({"name": port.to_string(), "port": port, "targetPort": target})
        })
        .collect();
    let mut spec = json!({"ports": ports});
    let labels = deployment.spec.get("selector").and_then(|selector| selector.get("matchLabels"));
    if let Some(Value::Object(labels)) = labels
        && !labels.is_empty()
    {
        spec["selector"] = json!(labels);
    }
    let mut service = super::object(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": names::service(&deployment.name), "namespace": context.namespace()},
        "spec": spec,
    }));
    certificates::request(context, &deployment.name, &mut service);
    Some(service)
}
