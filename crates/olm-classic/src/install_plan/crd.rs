//! The update of a CustomResourceDefinition that exists.
//!
//! Rule: classic-apis §5.4. Beyond the reference, what `olm-crd-safety` finds is reported, and so is a version that is no longer served,
//! because there the upgrade of the ClusterServiceVersion cannot end.

use std::collections::BTreeSet;

use olm_core::{Object, go, member_map};
use olm_crd_safety::{ExistingObjects, Fit, Policy, Profile, compare};
use serde_json::{Value, json};

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
}

/// The definition to write, with what is to be reported about it.
#[derive(Debug, Clone, PartialEq)]
pub struct CrdUpdate {
    /// `None`: the one in the cluster needs no change.
    pub object: Option<Object>,
    /// Messages of events `CRDChanged`: what may break objects or clients to come.
    pub notices: Vec<String>,
}

/// The versions in which the objects of a definition exist that both the present and the new one serve.
pub fn judged_versions<'a>(existing: &'a Object, new: &Object) -> Vec<&'a str> {
    ExistingObjects::versions(existing, new)
}

/// What judges the objects of a definition in one of the [`judged_versions`] by [`check_object`]; `None` if nothing changes for them there,
/// so that they need not be listed. `is_converted` as for [`update_crd`].
///
/// # Errors
/// The message of an event `CRDValidation`, when a schema cannot be used: that of the cluster may be one, and no bundle changes it.
pub fn object_judge(
    existing: &Object,
    new: &Object,
    version: &str,
    is_converted: bool,
) -> Result<Option<ExistingObjects>, String> {
    let judge = if is_converted {
        let mut converting = new.clone();
        let conversion = json!({"strategy": "Webhook"});
        member_map(&mut converting.0, "spec").insert("conversion".to_owned(), conversion);
        ExistingObjects::in_version(existing, &converting, version)
    } else {
        ExistingObjects::in_version(existing, new, version)
    };
    judge.map_err(|error| format!("objects of {} were not checked in version {version}: {error}", new.name()))
}

/// Whether an object of the definition, in the version of `judge`, is still valid with the new one. If not, and the new definition converts by
/// webhook, or if it could not be checked, the message of an event `CRDValidation`.
///
/// # Errors
/// When it is not, and no webhook converts it.
pub fn check_object(
    new: &Object,
    judge: &ExistingObjects,
    object: &Value,
) -> Result<Option<String>, CrdUpdateError> {
    let problems = match judge.check(object) {
        Fit::Fits | Fit::NeverDid => return Ok(None),
        Fit::Broken(problems) => problems,
        Fit::Unchecked(why) => {
            let (crd, object) = (new.name(), object_name(object));
            return Ok(Some(format!("objects of {crd} were not checked, first {object}: {why}")));
        }
    };
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let error = CrdUpdateError::Restrictive {
        crd: new.name().to_owned(),
        gvk: format!("{}, Kind={}", text(object, "/apiVersion"), text(object, "/kind")),
        object: object_name(object),
        problems: problems.join(", "),
    };
    if conversion_strategy(new) == Some("Webhook") { Ok(Some(error.to_string())) } else { Err(error) }
}

/// Whether a definition may be replaced by that of a step, and by what. Its objects are judged by [`check_object`].
///
/// `csvs` are those of the cluster that are still there, as `namespace/name`: marks of others are dropped. `is_converted` if one of them in
/// the namespace converts the objects by its own webhook: it writes the conversion, which stays until then. Without one, objects would be
/// read and stored unconverted.
///
/// # Errors
/// When data would be lost.
pub fn update_crd(
    existing: &Object,
    new: &Object,
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
    let mut updated = updated(existing, new, owner, csvs);
    if is_converted && conversion_strategy(existing) == Some("Webhook") {
        let conversion = existing.0.get("spec").and_then(|spec| spec.get("conversion")).cloned();
        member_map(&mut updated.0, "spec").insert("conversion".to_owned(), conversion.into());
    }
    let object = (updated != *existing).then_some(updated);
    Ok(CrdUpdate { object, notices })
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
