//! The update of a CustomResourceDefinition that exists.
//!
//! Rule: classic-apis §5.4. Beyond the reference, what `olm-crd-safety` finds is reported, and so is a version that is no longer served,
//! because there the upgrade of the ClusterServiceVersion cannot end.

use std::collections::BTreeSet;

use olm_core::{Object, go, member_map};
use olm_crd_safety::{ExistingObjects, Fit, Policy, Profile, compare};
use serde_json::Value;

const ALONGSIDE: &str = "operatorframework.io/installed-alongside-";

/// Why the definition must not be updated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrdUpdateError {
    #[error(
        "risk of data loss updating {}: new CRD removes version {version} that is listed as a stored version on the \
         existing CRD",
        go::quote(crd)
    )]
    StoredVersion { crd: String, version: String },
    #[error(
        "error validating existing CRs against new CRD's schema for {}: error validating {gvk} {}: updated \
         validation is too restrictive: {problems}",
        go::quote(crd),
        go::quote(object)
    )]
    Restrictive { crd: String, gvk: String, object: String, problems: String },
    #[error("schema of {} cannot be used: {problem}; publish the bundle with a valid schema", go::quote(crd))]
    Schema { crd: String, problem: String },
}

/// The definition to write, with what is to be reported about it.
#[derive(Debug, Clone, PartialEq)]
pub struct CrdUpdate {
    /// `None`: the one in the cluster needs no change.
    pub object: Option<Object>,
    /// Messages of events `CRDValidation`: objects that do not fit.
    pub warnings: Vec<String>,
    /// Messages of events `CRDChanged`: what may break objects or clients to come.
    pub notices: Vec<String>,
}

/// The version in which the objects of a definition have to be listed for [`update_crd`]; `None` if none is needed.
///
/// # Errors
/// When a schema cannot be used.
pub fn listed_version(existing: &Object, new: &Object) -> Result<Option<String>, CrdUpdateError> {
    let judge = judge(existing, new)?;
    Ok(judge.map(|judge| judge.version().to_owned()))
}

fn judge(existing: &Object, new: &Object) -> Result<Option<ExistingObjects>, CrdUpdateError> {
    ExistingObjects::new(existing, new)
        .map_err(|error| CrdUpdateError::Schema { crd: new.name().to_owned(), problem: error.to_string() })
}

/// Whether a definition may be replaced by that of a step, and by what.
///
/// `objects` are the objects of the definition in the version of [`listed_version`]. `csvs` are those of the cluster that are still
/// there, as `namespace/name`: marks of others are dropped. `is_converted` if one of them in the namespace converts the objects by its own
/// webhook: it writes the conversion, which stays until then. Without one, objects would be read and stored unconverted.
///
/// # Errors
/// When data would be lost or objects would not be valid any more. If the new definition converts by webhook, the latter is a warning.
pub fn update_crd<'a>(
    existing: &Object,
    new: &Object,
    objects: impl IntoIterator<Item = &'a Value>,
    owner: (&str, &str),
    csvs: &BTreeSet<String>,
    is_converted: bool,
) -> Result<CrdUpdate, CrdUpdateError> {
    let crd = new.name().to_owned();
    let stored = existing.0.get("status").and_then(|status| status.get("storedVersions"));
    let stored = stored.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let after: Vec<&str> = versions(new).map(|(name, _)| name).collect();
    for version in stored {
        if !after.contains(&version) {
            return Err(CrdUpdateError::StoredVersion { crd, version: version.to_owned() });
        }
    }
    let mut notices: Vec<String> = (compare(existing, new, Policy { profile: Profile::Corrected }))
        .iter()
        .map(|finding| format!("{crd}: {finding}"))
        .collect();
    for (version, _) in versions(existing).filter(|(_, served)| *served) {
        if !versions(new).any(|(name, served)| served && name == version) {
            notices.push(format!(
                "{crd}: version {version} is no longer served: a ClusterServiceVersion that owns it fails and is never \
                 replaced"
            ));
        }
    }
    let mut warnings = Vec::new();
    if let Some(judge) = judge(existing, new)? {
        let converts = conversion_strategy(new) == Some("Webhook");
        for object in objects {
            match judge.check(object) {
                Fit::Fits | Fit::NeverDid => {}
                Fit::Broken(problems) => {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    let error = CrdUpdateError::Restrictive {
                        crd: crd.clone(),
                        gvk: format!("{}, Kind={}", text(object, "/apiVersion"), text(object, "/kind")),
                        object: object_name(object),
                        problems: problems.join(", "),
                    };
                    if !converts {
                        return Err(error);
                    }
                    warnings.push(error.to_string());
                }
            }
        }
    }
    let mut updated = updated(existing, new, owner, csvs);
    if is_converted && conversion_strategy(existing) == Some("Webhook") {
        let conversion = existing.0.get("spec").and_then(|spec| spec.get("conversion")).cloned();
        member_map(&mut updated.0, "spec").insert("conversion".to_owned(), conversion.into());
    }
    let object = (updated != *existing).then_some(updated);
    Ok(CrdUpdate { object, warnings, notices })
}

/// The one in the cluster with the specification of the new one, the labels and annotations of both, and the marks of its owners.
fn updated(existing: &Object, new: &Object, owner: (&str, &str), csvs: &BTreeSet<String>) -> Object {
    let mut updated = existing.clone();
    if let Some(spec) = new.0.get("spec") {
        updated.0.insert("spec".into(), spec.clone());
    }
    for (key, value) in new.labels() {
        updated.set_label(key, value);
    }
    for (key, value) in new.annotations() {
        updated.set_annotation(key, value);
    }
    let is_stale = |key: &str, value: &str| key.starts_with(ALONGSIDE) && !csvs.contains(value);
    let stale: Vec<String> = (existing.annotations().iter())
        .filter(|(key, value)| is_stale(key, value))
        .map(|(key, _)| (*key).to_owned())
        .collect();
    if let Some(Value::Object(annotations)) = updated.metadata_mut().get_mut("annotations") {
        annotations.retain(|key, _| !stale.contains(key));
    }
    let (namespace, csv) = owner;
    mark_installed_alongside(&mut updated, namespace, csv);
    updated
}

/// Records with which ClusterServiceVersion a definition came.
pub(super) fn mark_installed_alongside(crd: &mut Object, namespace: &str, csv: &str) {
    let value = format!("{namespace}/{csv}");
    crd.set_annotation(&format!("{ALONGSIDE}{:x}", fnv1a(&value)), &value);
}

/// FNV-1a, 64 bits.
fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Names of the versions, and whether each is served.
fn versions(crd: &Object) -> impl Iterator<Item = (&str, bool)> {
    let list = crd.0.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|version| {
        let served = version.get("served").and_then(Value::as_bool).unwrap_or(false);
        Some((version.get("name")?.as_str()?, served))
    })
}

fn conversion_strategy(crd: &Object) -> Option<&str> {
    crd.0.get("spec")?.get("conversion")?.get("strategy")?.as_str()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `namespace/name`
fn object_name(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
