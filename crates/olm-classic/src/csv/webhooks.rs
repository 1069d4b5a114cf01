//! Webhooks of a CSV that must not be installed (classic-apis §9, §6.3 row 12).

use std::collections::BTreeSet;

use olm_api::classic::ClusterServiceVersion;
use olm_api::classic::cluster_service_version::WebhookDescription;
use serde_json::Value;

/// The type of a webhook that converts objects of a CustomResourceDefinition.
pub(crate) const CONVERSION: &str = "ConversionWebhook";
const OLM_GROUP: &str = "operators.coreos.com";
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// As the reference compares them: kind names, though rules name resources.
const ADMISSION_KINDS: [&str; 3] = ["*", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Why the webhooks of a CSV are not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error("webhook rules cannot include all groups")]
    AllGroups,
    #[error("webhook rules cannot include the OLM group")]
    OlmGroup,
    #[error(
        "webhook rules cannot include MutatingWebhookConfiguration or ValidatingWebhookConfiguration resources"
    )]
    AdmissionWebhooks,
    #[error("spec.webhookdefinitions has generateName {0:?} more than once; give each webhook its own")]
    Repeated(String),
}

/// Why the conversion webhooks of a CSV cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    #[error(
        "CSV {csv} has conversion webhook {webhook:?} and must support AllNamespaces and no other install mode"
    )]
    Modes { csv: String, webhook: String },
    #[error("conversion webhook {webhook:?} must have at least one entry in conversionCRDs")]
    NoCrd { webhook: String },
    #[error(
        "conversion webhook {webhook:?} names CustomResourceDefinition {crd}, which CSV {csv} does not own"
    )]
    NotOwned { csv: String, webhook: String, crd: String },
    #[error(
        "CustomResourceDefinition {crd} of conversion webhook {webhook:?} must have spec.preserveUnknownFields: false"
    )]
    PreservesUnknownFields { webhook: String, crd: String },
}

/// Checks names and rules of all webhooks; the first error counts.
///
/// # Errors
/// For a repeated name, and for rules that would let a webhook stop OLM itself or other webhooks.
pub fn check(webhooks: &[WebhookDescription]) -> Result<(), WebhookError> {
    let mut names = BTreeSet::new();
    for webhook in webhooks {
        if !names.insert(webhook.generate_name.as_str()) {
            return Err(WebhookError::Repeated(webhook.generate_name.clone()));
        }
        webhook.rules.iter().try_for_each(check_rule)?;
    }
    Ok(())
}

fn check_rule(rule: &Value) -> Result<(), WebhookError> {
    let list = |member: &str| {
        rule.get(member).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    };
    for group in list("apiGroups") {
        match group {
            "*" => return Err(WebhookError::AllGroups),
            OLM_GROUP => return Err(WebhookError::OlmGroup),
            ADMISSION_GROUP if list("resources").any(|resource| ADMISSION_KINDS.contains(&resource)) => {
                return Err(WebhookError::AdmissionWebhooks);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks what conversion webhooks need. `preserving` are the names of CustomResourceDefinitions with `spec.preserveUnknownFields: true`.
///
/// # Errors
/// At the first webhook that the CSV or a CustomResourceDefinition does not fit.
pub fn check_conversion(
    csv: &ClusterServiceVersion,
    preserving: &BTreeSet<String>,
) -> Result<(), ConversionError> {
    let name = || csv.metadata.name.clone().unwrap_or_default();
    let modes = || csv.spec.install_modes.iter();
    let is_global_only = modes().any(|mode| mode.type_ == "AllNamespaces" && mode.supported)
        && modes().all(|mode| mode.type_ == "AllNamespaces" || !mode.supported);
    let is_owned = |crd: &str| {
        let owned = csv.spec.custom_resource_definitions.iter().flat_map(|crds| &crds.owned);
        owned.into_iter().any(|owned| owned.name == crd)
    };
    for description in csv.spec.webhook_definitions.iter().filter(|webhook| webhook.type_ == CONVERSION) {
        let webhook = description.generate_name.clone();
        if !is_global_only {
            return Err(ConversionError::Modes { csv: name(), webhook });
        }
        if description.conversion_crds.is_empty() {
            return Err(ConversionError::NoCrd { webhook });
        }
        for crd in &description.conversion_crds {
            if !is_owned(crd) {
                return Err(ConversionError::NotOwned { csv: name(), webhook, crd: crd.clone() });
            }
            if preserving.contains(crd) {
                return Err(ConversionError::PreservesUnknownFields { webhook, crd: crd.clone() });
            }
        }
    }
    Ok(())
}
