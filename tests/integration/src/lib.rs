//! Help for tests against a real apiserver: an object is offered, and what the apiserver says about it is compared field by field.
//!
//! The control plane itself, registries and processes are `olm-kit`'s job.

pub mod extension;
pub mod inventory;

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::Value;

/// The apiserver adds this line whenever a schema rule fails before CEL could run.
const CEL_SKIPPED: &str = "some validation rules were not checked because the object was invalid";

/// What the apiserver should say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// It takes the object.
    Accepted,
    /// It refuses it for exactly these causes, in any order: (field, end of the message).
    Refused(&'static [(&'static str, &'static str)]),
}

/// What the apiserver said: nothing, or (field, message) of each cause.
pub type Answer = std::result::Result<DynamicObject, Vec<(String, String)>>;

/// The API of one of our kinds, by its kind and plural.
pub fn api(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(olm_api::GROUP, olm_api::VERSION, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// An object of one of our kinds.
///
/// # Errors
/// If the value is no object.
pub fn object(value: Value) -> Result<DynamicObject> {
    serde_json::from_value(value).context("not an object")
}

/// Offers the object in a server-side dry run.
///
/// # Errors
/// If the apiserver does not answer, or with something else than a yes or causes.
pub async fn offer(api: &Api<DynamicObject>, value: Value) -> Result<Answer> {
    answer(api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object(value)?).await)
}

/// Stores the object.
///
/// # Errors
/// As [`offer`].
pub async fn create(api: &Api<DynamicObject>, value: Value) -> Result<Answer> {
    answer(api.create(&PostParams::default(), &object(value)?).await)
}

/// Replaces the stored object by `change` of it, in a server-side dry run.
///
/// # Errors
/// As [`offer`].
pub async fn offer_change(
    api: &Api<DynamicObject>,
    stored: &DynamicObject,
    change: impl FnOnce(&mut Value),
) -> Result<Answer> {
    let (name, wanted) = changed(stored, change)?;
    answer(api.replace(&name, &PostParams { dry_run: true, ..PostParams::default() }, &wanted).await)
}

/// Replaces the status of the stored object by that of `change` of it.
///
/// # Errors
/// As [`offer`].
pub async fn change_status(
    api: &Api<DynamicObject>,
    stored: &DynamicObject,
    change: impl FnOnce(&mut Value),
) -> Result<Answer> {
    let (name, wanted) = changed(stored, change)?;
    answer(api.replace_status(&name, &PostParams::default(), &wanted).await)
}

fn changed(stored: &DynamicObject, change: impl FnOnce(&mut Value)) -> Result<(String, DynamicObject)> {
    let mut value = serde_json::to_value(stored)?;
    change(&mut value);
    let name = stored.metadata.name.clone().context("the object has no name")?;
    Ok((name, object(value)?))
}

fn answer(answer: kube::Result<DynamicObject>) -> Result<Answer> {
    match answer {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            let told = causes.into_iter().filter(|cause| !cause.message.contains(CEL_SKIPPED));
            Ok(Err(told.map(|cause| (cause.field, cause.message)).collect()))
        }
        // a value of another type is refused before any rule is looked at
        Err(kube::Error::Api(status)) if status.code == 400 => {
            Ok(Err(vec![(String::new(), status.message.clone())]))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the answer is the wanted one.
///
/// # Errors
/// Says what was wanted and what came.
pub fn check(case: &str, want: Want, answer: &Answer) -> Result<()> {
    match (want, answer) {
        (Want::Accepted, Ok(_)) => Ok(()),
        (Want::Accepted, Err(causes)) => bail!("{case}: wanted to be accepted, but {causes:?}"),
        (Want::Refused(wanted), Ok(_)) => {
            bail!("{case}: wanted to be refused for {wanted:?}, but was accepted")
        }
        (Want::Refused(wanted), Err(causes)) => {
            let met = |(field, end): &(&str, &str)| {
                causes.iter().any(|(got, message)| got == field && message.ends_with(end))
            };
            if wanted.len() != causes.len() || !wanted.iter().all(met) {
                bail!("{case}: wanted to be refused for {wanted:?}, but {causes:?}");
            }
            Ok(())
        }
    }
}

/// `base` with the value at each JSON pointer set; `null` removes it. Missing objects on the way are made.
///
/// # Panics
/// If a pointer leads through something else than objects and lists: the test is wrong then.
pub fn with(mut base: Value, changes: &[(&str, Value)]) -> Value {
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
    use serde_json::json;

    #[test]
    fn with_sets_and_removes() {
        let base = json!({"a": {"b": 1}, "l": [{"x": 1}]});
        let got = with(base, &[("/a/b", json!(null)), ("/c/d", json!(2)), ("/l/0/x", json!("y"))]);
        assert_eq!(got, json!({"a": {}, "c": {"d": 2}, "l": [{"x": "y"}]}));
    }

    #[test]
    fn check_compares_all_causes() {
        let causes = || Err(vec![("spec.a".to_owned(), "Invalid value: \"x\": bad".to_owned())]);
        assert!(check("c", Want::Refused(&[("spec.a", "bad")]), &causes()).is_ok());
        assert!(check("c", Want::Refused(&[("spec.b", "bad")]), &causes()).is_err());
        assert!(check("c", Want::Refused(&[("spec.a", "worse")]), &causes()).is_err());
        assert!(check("c", Want::Refused(&[("spec.a", "bad"), ("spec.b", "bad")]), &causes()).is_err());
        assert!(check("c", Want::Refused(&[]), &causes()).is_err());
        assert!(check("c", Want::Accepted, &causes()).is_err());
    }
}
