//! The objects of a definition that is about to change: listed page by page in each version for which something changes, and judged.
//!
//! Rule: classic-apis §5.4.

use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use olm_classic::install_plan::{CrdUpdateError, StepError, check_object, judged_versions, object_judge};
use olm_core::Object;
use olm_install::pages::{ObjectText, Page, page};
use olm_runtime::apply;
use serde_json::{Value, json};

use super::run::Failed;
use crate::compute::compute;

/// Judges the objects of the definition `existing` by `new`, and returns messages of events `CRDValidation`: about the first object of each
/// version that does not fit, if the new definition converts by webhook, or that cannot be checked, about a webhook that does not convert
/// them now, and about a schema that cannot be used.
///
/// # Errors
/// When an object does not fit, and no webhook converts it, or when objects cannot be listed.
pub(super) async fn check(
    client: &Client,
    existing: &Object,
    new: &Object,
    is_converted: bool,
) -> Result<Vec<String>, Failed> {
    let mut warnings = Vec::new();
    for version in judged_versions(existing, new) {
        let judge = match object_judge(existing, new, version, is_converted) {
            Ok(None) => continue,
            Ok(Some(judge)) => judge,
            Err(warning) => {
                warnings.push(warning);
                continue;
            }
        };
        let (judge, definition) = (Arc::new(judge), Arc::new(new.clone()));
        let judge = move |object: &Value| check_object(&definition, &judge, object);
        match check_pages(client, &resource(existing, version), judge).await {
            Ok(warning) => warnings.extend(warning),
            // the new definition, or its operator, may be what fixes the webhook
            Err(Failed::Api(error)) if is_not_converted(&error) => {
                let (name, problem) = (new.name(), apply::message(&error));
                warnings.push(format!("objects of {name} were not checked in version {version}: {problem}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(warnings)
}

/// Judges all objects, until the first that does not fit. Returns the first warning.
async fn check_pages(
    client: &Client,
    resource: &ApiResource,
    judge: impl Fn(&Value) -> Result<Option<String>, CrdUpdateError> + Clone + Send + 'static,
) -> Result<Option<String>, Failed> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let (mut first, mut token) = (None, None::<String>);
    loop {
        let Page { objects, next } = page(client, api.resource_url(), token.as_deref()).await?;
        let (judge, kind) = (judge.clone(), resource.clone());
        let checked = compute(move || check_objects(&objects, &kind, judge)).await;
        let checked = checked.map_err(|error| kube::Error::Service(error.into()))?;
        first = first.or(checked.map_err(StepError::from)?);
        if next.is_none() {
            return Ok(first);
        }
        token = next;
    }
}

/// Each is parsed, judged and dropped before the next. One that cannot be parsed is a warning.
fn check_objects(
    objects: &[ObjectText],
    kind: &ApiResource,
    judge: impl Fn(&Value) -> Result<Option<String>, CrdUpdateError>,
) -> Result<Option<String>, CrdUpdateError> {
    let mut first = None;
    for object in objects {
        let warning = match object.parse() {
            Ok(mut object) => {
                // items of a list may have neither
                if let Some(members) = object.as_object_mut() {
                    members.insert("apiVersion".to_owned(), json!(kind.api_version));
                    members.insert("kind".to_owned(), json!(kind.kind));
                }
                judge(&object)?
            }
            Err(error) => {
                let ApiResource { plural, group, version, .. } = kind;
                Some(format!("an object of {plural}.{group} was not checked in version {version}: {error}"))
            }
        };
        first = first.or(warning);
    }
    Ok(first)
}

/// The kind of a definition in a version.
fn resource(crd: &Object, version: &str) -> ApiResource {
    let spec = crd.0.get("spec").unwrap_or(&Value::Null);
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = GroupVersionKind::gvk(text("/group"), version, text("/names/kind"));
    ApiResource::from_gvk_with_plural(&kind, text("/names/plural"))
}

/// Whether the apiserver could not list objects because a webhook did not convert them.
fn is_not_converted(error: &kube::Error) -> bool {
    apply::message(error).contains("conversion webhook for ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Apiserver, failure_with};

    /// Served in two versions; the sizes of objects have these limits.
    fn crd(v1: u8, v2: u8) -> Object {
        let version = |name: &str, maximum: u8| {
            let spec =
                json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": maximum}}});
            let schema = json!({"type": "object", "properties": {"spec": spec}});
            json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
        };
        let spec = json!({"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version("v1", v1), version("v2", v2)]});
        Object::from_value(json!({"metadata": {"name": "widgets.example.com"}, "spec": spec})).unwrap()
    }

    fn list(names: &[(&str, u8)], token: &str) -> Value {
        let item = |(name, size): &(&str, u8)| json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"size": size}});
        json!({"apiVersion": "example.com/v1", "kind": "WidgetList", "metadata": {"continue": token},
            "items": names.iter().map(item).collect::<Vec<_>>()})
    }

    #[tokio::test]
    async fn live_objects_are_listed_by_version_and_page() {
        for (new, want, requests) in [
            (crd(9, 9), None, 0),
            (crd(9, 8), None, 2),
            (crd(8, 8), None, 4),
            (crd(9, 3), Some("example.com/v2, Kind=Widget \"ns/b\": "), 2),
            (crd(9, 1), Some("example.com/v2, Kind=Widget \"ns/a\": "), 1),
        ] {
            let apiserver = Apiserver::new(|_, uri| {
                let is_second = uri.contains("continue=more");
                (200, if is_second { list(&[("b", 7)], "") } else { list(&[("a", 2)], "more") })
            });
            let checked = check(&apiserver.client(), &crd(9, 9), &new, false).await;
            let sent = apiserver.requests();
            assert_eq!(sent.len(), requests, "{sent:?}");
            assert!(sent.iter().all(|it| it.contains("/widgets?&limit=20")), "{sent:?}");
            match (checked, want) {
                (Ok(warnings), None) => assert!(warnings.is_empty(), "{warnings:?}"),
                (Err(Failed::Step(error)), Some(want)) => {
                    assert!(error.to_string().contains(want), "{error}")
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// One that is nested too deeply to be parsed; the next does not fit.
    #[tokio::test]
    async fn live_objects_that_cannot_be_parsed_are_a_warning() {
        let mut deep = json!(1);
        for _ in 0..200 {
            deep = json!([deep]);
        }
        let deep = json!({"metadata": {"name": "deep"}, "spec": {"deep": deep}});
        let mut page = list(&[("fits", 2), ("b", 7)], "");
        page["items"].as_array_mut().unwrap().insert(0, deep);
        let apiserver = Apiserver::new(move |_, _| (200, page.clone()));
        let warnings = check(&apiserver.client(), &crd(9, 9), &crd(9, 8), false).await.unwrap();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let begin =
            "an object of widgets.example.com was not checked in version v2: recursion limit exceeded";
        assert!(warning.starts_with(begin), "{warning}");
        let error = check(&apiserver.client(), &crd(9, 9), &crd(9, 3), false).await.unwrap_err();
        assert!(
            matches!(&error, Failed::Step(error) if error.to_string().contains("\"ns/b\": ")),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn live_objects_that_are_not_converted_are_a_warning() {
        for (message, is_warning) in [
            ("conversion webhook for example.com/v1, Kind=Widget failed: no endpoints", true),
            ("overloaded", false),
        ] {
            let apiserver = Apiserver::new(move |_, _| failure_with(500, "InternalError", message));
            let checked = check(&apiserver.client(), &crd(9, 9), &crd(9, 3), false).await;
            assert_eq!(checked.is_ok(), is_warning, "{checked:?}");
            if let Ok(warnings) = checked {
                let [warning] = &warnings[..] else { panic!("{warnings:?}") };
                assert!(
                    warning.starts_with("objects of widgets.example.com were not checked in version v2: "),
                    "{warning}"
                );
            }
        }
    }
}
