//! CustomResourceDefinitions, with the conversion webhook of the CSV where one names them. Rule: bundle-rendering §9.4.

use olm_core::Object;
use serde_json::{Value, json};

use super::{Context, certificates};
use crate::csv::WebhookType;
use crate::error::RenderError;
use crate::names;

pub(super) fn crds(context: &Context<'_>, crds: Vec<Object>) -> Result<Vec<Object>, RenderError> {
    crds.into_iter().map(|crd| render_crd(context, crd)).collect()
}

fn render_crd(context: &Context<'_>, mut crd: Object) -> Result<Object, RenderError> {
    context.check_cancelled()?;
    let converter = context.bundle.csv.webhooks.iter().find(|webhook| {
        webhook.kind == WebhookType::Conversion
            && webhook.conversion_crds.iter().any(|name| name == crd.name())
    });
    let Some(webhook) = converter else { return Ok(crd) };
    let name = crd.name().to_owned();
    let Some(Value::Object(spec)) = crd.0.get_mut("spec") else {
        return Err(RenderError::Generator(format!("custom resource definition '{name}' has no spec")));
    };
    if spec.get("preserveUnknownFields").and_then(Value::as_bool).unwrap_or(false) {
        return Err(RenderError::Generator(format!(
            "custom resource definition '{name}' must have .spec.preserveUnknownFields set to false to let API Server call \
             webhook to do the conversion"
        )));
    }
    let conversion = json!({
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"service": {
                "namespace": context.namespace(),
                "name": names::service(&webhook.deployment),
                "path": webhook.path.as_deref().unwrap_or("/"),
                "port": webhook.port(),
            }},
            "conversionReviewVersions": webhook.admission_review_versions,
        }
    });
    spec.insert("conversion".to_owned(), conversion);
    certificates::inject_ca(context, &webhook.deployment, &mut crd);
    Ok(crd)
}
