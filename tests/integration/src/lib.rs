//! Helpers for tests against a real apiserver: an object is offered, and the apiserver's response is compared field by field.
//!
//! The control plane itself, registries and processes are `olm-kit`'s job.

pub mod bounds;
pub mod classic;
pub mod extension;
pub mod inventory;
pub mod package;
pub mod quarantine;
pub mod report;
pub mod sample;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use olm_kit::{Cluster, SYSTEM_NAMESPACE, Wait};
use serde_json::{Value, json};

/// The apiserver adds this line whenever a schema rule fails before CEL could run.
const CEL_SKIPPED: &str = "some validation rules were not checked because the object was invalid";

/// Why the apiserver rejects an object: the field and the message of each cause.
pub type Causes = Vec<(String, String)>;

/// The response of the apiserver.
pub type Outcome = std::result::Result<DynamicObject, Causes>;

/// The API of one of our kinds, by its kind and plural.
pub fn api(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(olm_api::GROUP, olm_api::VERSION, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// An object of one of our kinds.
pub fn object(value: Value) -> Result<DynamicObject> {
    serde_json::from_value(value).context("not an object")
}

/// Offers the object in a server-side dry run.
/// It fails if the apiserver answers something else than a yes or causes.
pub async fn offer(api: &Api<DynamicObject>, value: Value) -> Result<Outcome> {
    outcome(api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object(value)?).await)
}

/// Stores the object.
pub async fn create(api: &Api<DynamicObject>, value: Value) -> Result<Outcome> {
    outcome(api.create(&PostParams::default(), &object(value)?).await)
}

/// Replaces the stored object by `change` of it, in a server-side dry run.
pub async fn offer_change(
    api: &Api<DynamicObject>,
    stored: &DynamicObject,
    change: impl FnOnce(&mut Value),
) -> Result<Outcome> {
    let (name, object) = changed(stored, change)?;
    outcome(api.replace(&name, &PostParams { dry_run: true, ..PostParams::default() }, &object).await)
}

/// Replaces the status of the stored object by that of `change` of it.
pub async fn change_status(
    api: &Api<DynamicObject>,
    stored: &DynamicObject,
    change: impl FnOnce(&mut Value),
) -> Result<Outcome> {
    let (name, object) = changed(stored, change)?;
    outcome(api.replace_status(&name, &PostParams::default(), &object).await)
}

fn changed(stored: &DynamicObject, change: impl FnOnce(&mut Value)) -> Result<(String, DynamicObject)> {
    let mut value = serde_json::to_value(stored)?;
    change(&mut value);
    let name = stored.metadata.name.clone().context("the object has no name")?;
    Ok((name, object(value)?))
}

fn outcome(outcome: kube::Result<DynamicObject>) -> Result<Outcome> {
    match outcome {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            // `<nil>`: a number out of range a second time, by newer apiservers only
            let reported = causes
                .into_iter()
                .filter(|cause| !cause.message.contains(CEL_SKIPPED) && cause.field != "<nil>");
            Ok(Err(reported.map(|cause| (cause.field, current_text(&cause.message))).collect()))
        }
        // a value of another type is refused before any rule is looked at
        Err(kube::Error::Api(status)) if status.code == 400 => {
            Ok(Err(vec![(String::new(), status.message.clone())]))
        }
        Err(error) => Err(error.into()),
    }
}

/// A message of an older apiserver (1.31) as the one of all other tests words it.
fn current_text(message: &str) -> String {
    if let Some(most) = message.strip_prefix("Too long: may not be longer than ") {
        return format!("Too long: may not be more than {most} bytes");
    }
    message
        .replace("Duplicate value: map[string]interface {}{", "Duplicate value: {")
        .replace("Invalid value: \"object\": ", "Invalid value: ")
        .replace("Required value: must not be empty", "Required value")
}

/// Waits until the garbage collector deletes what an absent object of this kind owns. It looks for new kinds every 30 s.
pub async fn until_collected(cluster: &Cluster, api_version: &str, kind: &str) -> Result<()> {
    let objects: Api<ConfigMap> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    for attempt in 0..60 {
        // one for each attempt: the collector takes long for an object that it could not decide about
        let name = format!("without-owner-{attempt}");
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "none",
            "uid": format!("00000000-0000-4000-8000-{attempt:012}")});
        let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": name, "namespace": SYSTEM_NAMESPACE, "ownerReferences": [owner]}});
        cluster.apply(&orphan.to_string()).await?;
        if Wait::new(&objects, &name).within(Duration::from_secs(1)).to_be_gone().await.is_ok() {
            return Ok(());
        }
    }
    bail!("the garbage collector does not know {kind} after a minute")
}

/// Compares a response with the expected causes, in any order, of which the messages are the ends; none if the object must be accepted.
///
pub fn check(case: &str, rejected: &[(String, String)], outcome: &Outcome) -> Result<()> {
    let causes = outcome.as_ref().err().map(Vec::as_slice).unwrap_or_default();
    let met = |(field, end): &(String, String)| {
        causes.iter().any(|(got, message)| got == field && message.ends_with(end))
    };
    let same = outcome.is_ok() == rejected.is_empty() && causes.len() == rejected.len();
    if !same || !rejected.iter().all(met) {
        let got = if outcome.is_ok() { "accepted".to_owned() } else { format!("rejected for {causes:?}") };
        bail!("{case}: expected causes {rejected:?}, but {got}");
    }
    Ok(())
}

/// `base` with the value at each JSON pointer set; `null` removes it. Missing objects on the way are made.
///
/// # Panics
/// If a pointer leads through something else than objects and lists: the test is wrong then.
pub fn patched(mut base: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        set(&mut base, pointer, value.clone());
    }
    base
}

fn set(base: &mut Value, pointer: &str, value: Value) {
    let mut place = base;
    let mut steps = pointer.trim_start_matches('/').split('/').peekable();
    while let Some(step) = steps.next() {
        let last = steps.peek().is_none();
        if let Value::Array(items) = place {
            let index: usize = step.parse().unwrap_or(usize::MAX);
            assert!(index < items.len(), "no item {step} in {pointer}");
            place = &mut items[index];
        } else {
            if !place.is_object() {
                *place = Value::Object(serde_json::Map::new());
            }
            let Some(members) = place.as_object_mut() else { return };
            if last && value.is_null() {
                members.remove(step);
                return;
            }
            place = members.entry(step).or_insert(Value::Null);
        }
        if last {
            *place = value;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patched_sets_and_removes_values() {
        let base = json!({"a": {"b": 1}, "l": [{"x": 1}]});
        let got = patched(base, &[("/a/b", json!(null)), ("/c/d", json!(2)), ("/l/0/x", json!("y"))]);
        assert_eq!(got, json!({"a": {}, "c": {"d": 2}, "l": [{"x": "y"}]}));
    }

    #[test]
    fn check_compares_all_causes() {
        let causes = |all: &[(&str, &str)]| -> Causes {
            all.iter().map(|(field, text)| ((*field).to_owned(), (*text).to_owned())).collect()
        };
        let outcome = Err(causes(&[("spec.a", "Invalid value: \"x\": bad")]));
        for (rejected, met) in [
            (&[("spec.a", "bad")][..], true),
            (&[("spec.b", "bad")], false),
            (&[("spec.a", "worse")], false),
            (&[("spec.a", "bad"), ("spec.b", "bad")], false),
            (&[], false),
        ] {
            assert_eq!(check("c", &causes(rejected), &outcome).is_ok(), met, "{rejected:?}");
        }
        assert!(check("c", &[], &Err(Vec::new())).is_err());
        let accepted = Ok(object(json!({"metadata": {}})).unwrap());
        assert!(check("c", &[], &accepted).is_ok());
        assert!(check("c", &causes(&[("spec.a", "bad")]), &accepted).is_err());
    }
}
