//! The template of a catalog's image, with the version of the cluster in it.
//!
//! Rule: classic-apis §2.6; the template itself is read by `olm-core`.

use olm_api::ConditionStatus;
use olm_api::classic::{CatalogSource, ClassicCondition};
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_core::{ImageRef, KubernetesVersion, resolve_image_template};

/// The annotation that has the template.
pub const TEMPLATE_ANNOTATION: &str = "olm.catalogImageTemplate";

const CONDITIONS: [&str; 2] = ["TemplatesHaveResolved", "ResolvedImage"];

/// What a template means for its catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateDecision {
    /// The image to write into the spec, if it is another one.
    pub image: Option<String>,
    /// All conditions of the status.
    pub conditions: Vec<ClassicCondition>,
    /// There is no image at all: the conditions explain why.
    pub stops: bool,
}

/// Resolves the template of a catalog; without one, its conditions are removed. `version` is `None` until it is known.
pub fn template(
    source: &CatalogSource,
    version: Option<KubernetesVersion>,
    now: Timestamp,
) -> TemplateDecision {
    let known = source.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut conditions: Vec<ClassicCondition> =
        known.iter().filter(|condition| !CONDITIONS.contains(&condition.type_.as_str())).cloned().collect();
    let annotations = source.metadata.annotations.as_ref();
    let text = annotations.and_then(|it| it.get(TEMPLATE_ANNOTATION)).map(|text| text.trim());
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return TemplateDecision { image: None, conditions, stops: false };
    };
    let resolved = resolve_image_template(text, version);
    let no_reference = |image: &str| {
        let error = image.parse::<ImageRef>().err()?;
        Some(format!(
            "cannot construct catalog image reference, because {image:?} is no image reference: {error}"
        ))
    };
    let error = resolved.error.or_else(|| no_reference(&resolved.image));
    let (status, reason) = match error {
        None => (ConditionStatus::True, "AllTemplatesResolved"),
        Some(_) => (ConditionStatus::False, "UnableToResolve"),
    };
    let is_resolved = error.is_none();
    let text = error.unwrap_or_else(|| "catalog image reference was successfully resolved".to_owned());
    for (type_, message) in CONDITIONS.into_iter().zip([&text, &resolved.image]) {
        conditions.push(condition(known, type_, (status, reason, message), now));
    }
    let image = (is_resolved && source.spec.image != resolved.image).then_some(resolved.image);
    TemplateDecision { image, conditions, stops: !is_resolved && source.spec.image.is_empty() }
}

/// The times of an observation that does not change stay.
fn condition(
    known: &[ClassicCondition],
    type_: &str,
    (status, reason, message): (ConditionStatus, &str, &str),
    now: Timestamp,
) -> ClassicCondition {
    let known = known.iter().find(|condition| condition.type_ == type_);
    match known {
        Some(known) if known.status == status && known.reason == reason && known.message == message => {
            known.clone()
        }
        known => ClassicCondition {
            type_: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_update_time: Some(Time(now)),
            last_transition_time: (known.filter(|known| known.status == status))
                .map_or(Some(Time(now)), |known| known.last_transition_time.clone()),
            unknown: Default::default(),
        },
    }
}
