//! The objects of a revision: in the revision itself, or in the Secrets that its phases refer to. Rule: revisions §5.
//!
//! [`secret_key`] and [`object`] are pure, for a caller with its own cache of Secrets; [`ContentReader`] reads Secrets with a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use olm_api::ClusterObjectSet;
use olm_api::cluster_object_set::PhaseObject;
use olm_core::Object;

/// Namespace and name of a Secret.
pub type SecretKey = (String, String);

/// The error that stops the reading of an object.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ContentError {
    /// The apiserver did not return the Secret.
    #[error("getting Secret {namespace}/{name}: {source}")]
    Secret { namespace: String, name: String, source: Arc<kube::Error> },
    /// The Secret, or the revision, does not hold an object.
    #[error("{0}")]
    Invalid(String),
}

/// The Secret that holds the object, unless the revision itself does.
#[must_use]
pub fn secret_key(entry: &PhaseObject, system_namespace: &str) -> Option<SecretKey> {
    let reference = entry.reference.as_ref().filter(|_| entry.object.is_none())?;
    let namespace = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    Some((namespace.unwrap_or(system_namespace).to_owned(), reference.name.clone()))
}

/// The object of an entry. `secret` is called with the key that [`secret_key`] returns.
///
/// # Errors
/// The error of `secret`, or the reason for which there is no object.
pub fn object<S: AsRef<Secret>>(
    entry: &PhaseObject,
    system_namespace: &str,
    secret: impl FnOnce(&SecretKey) -> Result<S, String>,
) -> Result<Object, String> {
    if let Some(inline) = &entry.object {
        return Ok(Object(inline.clone()));
    }
    let (Some(place), Some(reference)) = (secret_key(entry, system_namespace), &entry.reference) else {
        return Err("it has neither object nor ref".to_owned());
    };
    let secret = secret(&place)?;
    let (title, key) = (format!("{}/{}", place.0, place.1), &reference.key);
    let value = secret.as_ref().data.as_ref().and_then(|data| data.get(key));
    let value = value.ok_or_else(|| format!("key {key:?} not found in Secret {title}"))?;
    olm_rollout::unpack(&value.0, key, &title)
}

/// Reads the objects of revisions; each Secret is read once.
pub struct ContentReader<'a> {
    client: &'a Client,
    system_namespace: &'a str,
    secrets: BTreeMap<SecretKey, Result<Arc<Secret>, ContentError>>,
}

impl<'a> ContentReader<'a> {
    /// A reference without a namespace is to a Secret in `system_namespace`.
    #[must_use]
    pub fn new(client: &'a Client, system_namespace: &'a str) -> Self {
        Self { client, system_namespace, secrets: BTreeMap::new() }
    }

    /// The objects of a revision, in the order of its phases.
    ///
    /// # Errors
    /// See [`ContentError`].
    pub async fn objects(&mut self, set: &ClusterObjectSet) -> Result<Vec<Object>, ContentError> {
        let mut objects = Vec::new();
        for entry in set.spec.phases.iter().flat_map(|phase| &phase.objects) {
            objects.push(self.object(entry).await?);
        }
        Ok(objects)
    }

    /// One object of a revision.
    ///
    /// # Errors
    /// See [`ContentError`].
    pub async fn object(&mut self, entry: &PhaseObject) -> Result<Object, ContentError> {
        let secret = match secret_key(entry, self.system_namespace) {
            Some(key) => Some(self.secret(key).await?),
            None => None,
        };
        object(entry, self.system_namespace, |_| secret.ok_or_else(String::new))
            .map_err(ContentError::Invalid)
    }

    async fn secret(&mut self, key: SecretKey) -> Result<Arc<Secret>, ContentError> {
        if let Some(read) = self.secrets.get(&key) {
            return read.clone();
        }
        let (namespace, name) = key.clone();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let read = api.get(&name).await.map(Arc::new);
        let read = read.map_err(|source| ContentError::Secret { namespace, name, source: Arc::new(source) });
        self.secrets.insert(key, read.clone());
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    #[rustfmt::skip]
    fn content_object_inline_or_in_a_secret() {
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s"}, "data": {
            // {"kind":"A"}
            "good": "eyJraW5kIjoiQSJ9",
            "bad": "Nw==",
        }}))
        .unwrap();
        let reference =
            |key: &str, namespace: Value| json!({"ref": {"name": "s", "namespace": namespace, "key": key}});
        for (entry, key, want) in [
            (json!({"object": {"kind": "B"}}), None, Ok("B")),
            (reference("good", Value::Null), Some("system/s"), Ok("A")),
            (reference("good", json!("")), Some("system/s"), Ok("A")),
            (reference("good", json!("other")), Some("other/s"), Ok("A")),
            (reference("gone", Value::Null), Some("system/s"), Err("key \"gone\" not found in Secret system/s")),
            (reference("bad", Value::Null), Some("system/s"), Err("unmarshaling object from key \"bad\" in Secret")),
            (reference("good", json!("absent")), Some("absent/s"), Err("there is no Secret")),
            (json!({}), None, Err("it has neither object nor ref")),
        ] {
            let entry: PhaseObject = serde_json::from_value(entry).unwrap();
            let found = secret_key(&entry, "system").map(|(namespace, name)| format!("{namespace}/{name}"));
            assert_eq!(found.as_deref(), key, "{entry:?}");
            let secrets = |(namespace, _): &SecretKey| match namespace.as_str() {
                "absent" => Err("there is no Secret".to_owned()),
                _ => Ok(Arc::new(secret.clone())),
            };
            match (object(&entry, "system", secrets), want) {
                (Ok(object), Ok(kind)) => assert_eq!(object.kind(), kind),
                (Err(error), Err(want)) => assert!(error.starts_with(want), "{error}"),
                (got, want) => panic!("{entry:?}: {got:?} instead of {want:?}"),
            }
        }
    }
}
