//! Deployments of the install strategy. Rule: bundle-rendering §9.6.

use olm_core::Object;
use serde_json::{Map, Value, json};

use super::{Context, cert_volumes, certificates, overrides, unique_entries};
use crate::csv::{CsvDeployment, warn};
use crate::error::RenderError;
use olm_core::member_map as member;

pub(super) fn deployments(
    context: &Context<'_>,
    deployments: Vec<CsvDeployment>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Object>, RenderError> {
    let mut objects = Vec::new();
    for deployment in deployments {
        context.check_cancelled()?;
        objects.push(render_deployment(context, deployment, warnings));
    }
    Ok(objects)
}

fn render_deployment(context: &Context<'_>, deployment: CsvDeployment, warnings: &mut Vec<String>) -> Object {
    let mut spec = deployment.spec;
    spec.insert("revisionHistoryLimit".to_owned(), 1.into());
    annotate_template(context, member(&mut spec, "template"));
    let mut metadata = json!({"name": deployment.name, "namespace": context.namespace()});
    if !deployment.labels.is_empty() {
        metadata["labels"] = json!(deployment.labels);
    }
    if let Some(secret) = certificates::secret(context, &deployment.name) {
        cert_volumes::mount(member(member(&mut spec, "template"), "spec"), &secret);
    }
    let mut object = super::object(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
    }));
    // moved, not copied
    object.0.insert("spec".to_owned(), Value::Object(spec));
    overrides::override_deployment(&context.config.deployment, &mut object);
    let pod = member(member(member(&mut object.0, "spec"), "template"), "spec");
    warn(warnings, unique_entries::tidy(&deployment.name, pod));
    object
}

/// Annotations of the CSV, under those of the template, under those with the namespaces of the operator.
fn annotate_template(context: &Context<'_>, template: &mut Map<String, Value>) {
    let own = member(member(template, "metadata"), "annotations");
    for (key, value) in &context.bundle.csv.annotations {
        own.entry(key.as_str()).or_insert_with(|| value.as_str().into());
    }
    own.insert("olm.targetNamespaces".to_owned(), context.targets.annotation().into());
    own.insert("olm.operatorNamespace".to_owned(), context.namespace().into());
}
