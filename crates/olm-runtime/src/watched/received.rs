//! An object of a listing or a watch, read from its text.
//!
//! [`kube::core::DeserializeGuard`] reads an object into a tree of values and copies that before it knows whether the object fits its
//! type, managed fields included. Here the text is kept until then, and managed fields are cut out of it first: they are up to half of
//! an object, and a tree of maps in memory. Rule: decision 56.

use std::borrow::Cow;

use kube::Resource;
use kube::core::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use kube::core::metadata::PartialObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object without managed fields; of one that does not fit its type the metadata, and why.
#[derive(Debug, Clone)]
pub struct Received<K>(pub Result<K, InvalidObject>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Received<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = without_managed_fields(raw.get());
        let error = match serde_json::from_str(&text) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => error.to_string(),
        };
        let partial: PartialObjectMeta<K> = serde_json::from_str(&text).map_err(D::Error::custom)?;
        Ok(Self(Err(InvalidObject { error, metadata: partial.metadata })))
    }
}

/// The objects of a listing that fit their type, and an error message about each of the others.
#[must_use]
pub fn readable<K: Resource<DynamicType = ()>>(listed: Vec<Received<K>>) -> (Vec<K>, Vec<String>) {
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for object in listed {
        match object.0 {
            Ok(object) => objects.push(object),
            Err(InvalidObject { error, metadata }) => {
                let name = metadata.name.unwrap_or_default();
                errors.push(format!("{} {name:?} cannot be read: {error}", K::kind(&())));
            }
        }
    }
    (objects, errors)
}

/// The object's text, in which an empty list takes the place of its managed fields.
fn without_managed_fields(object: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, rename = "managedFields")]
        managed_fields: &'a RawValue,
    }
    // one without them, or that is no object
    let Ok(Outer { metadata }) = serde_json::from_str(object) else { return Cow::Borrowed(object) };
    let fields = metadata.managed_fields.get();
    let begin = fields.as_ptr().addr() - object.as_ptr().addr();
    Cow::Owned([&object[..begin], "[]", &object[begin + fields.len()..]].concat())
}

impl<K: Resource> Resource for Received<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    use super::*;

    fn config_map(data: &Value) -> Value {
        let managed =
            json!([{"manager": "m", "operation": "Update", "fieldsV1": {"f:data": {"f:\"]}": {}}}}]);
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c\"managedFields\"", "managedFields": managed, "uid": "u", "labels": {"l": "é\n"}},
            "data": data,
        })
    }

    #[test]
    fn received_object_is_read_or_keeps_its_metadata() {
        let text = |object: &Value| format!(r#"{{"type":"MODIFIED","object":{object}}}"#);
        let received = |text: &str| match serde_json::from_str(text).unwrap() {
            WatchEvent::<Received<ConfigMap>>::Modified(object) => object,
            other => panic!("{other:?}"),
        };
        let managed = json!({"metadata": {"managedFields": "x"}});
        let good = received(&text(&config_map(&json!({"managedFields": managed.to_string()}))));
        assert_eq!(good.0.as_ref().unwrap().data.as_ref().unwrap()["managedFields"], managed.to_string());
        let bad = received(&text(&config_map(&json!(["no map"]))));
        assert!(bad.0.as_ref().unwrap_err().error.contains("expected a map"), "{bad:?}");
        for object in [good, bad] {
            let metadata = object.meta();
            assert_eq!(metadata.managed_fields.as_deref().unwrap_or_default(), []);
            assert_eq!(metadata.name.as_deref(), Some("c\"managedFields\""));
            assert_eq!(metadata.labels, Some([("l".to_owned(), "é\n".to_owned())].into()));
        }
        let list = json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"},
            "items": [config_map(&json!({})), {"metadata": {"name": "bare"}}],
        });
        let mut list: ObjectList<Received<ConfigMap>> = serde_json::from_str(&list.to_string()).unwrap();
        assert!(list.items.iter().all(|it| it.0.is_ok()) && list.items.len() == 2);
        list.items.push(received(&text(&config_map(&json!("no map")))));
        let (objects, errors) = readable(list.items);
        assert_eq!(objects.len(), 2);
        assert!(
            errors[0].starts_with(r#"ConfigMap "c\"managedFields\"" cannot be read: invalid type"#),
            "{errors:?}"
        );
        serde_json::from_str::<Received<ConfigMap>>("[]").unwrap_err();
        serde_json::from_str::<Received<ConfigMap>>(r#"{"metadata": 1}"#).unwrap_err();
    }
}
