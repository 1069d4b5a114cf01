//! Writing a status: once per reconciliation, only if it differs, never over a newer object.
//!
//! The status itself is derived elsewhere, from a value.
//!
//! Rule: operator-controller §3.2 (one update of the status subresource, optimistic; failures are joined to the step's error).

use std::fmt;

use kube::Resource;
use kube::api::{Api, PostParams};
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A status could not be written.
#[derive(Debug, thiserror::Error)]
#[error("error updating status: {}", crate::apply::message(.0))]
pub struct StatusError(pub kube::Error);

impl StatusError {
    /// Whether the object has changed since it was read; the change itself leads to another attempt.
    pub fn is_conflict(&self) -> bool {
        crate::apply::classify(&self.0) == crate::apply::ErrorClass::Conflict
    }

    /// Whether the object is gone.
    pub fn is_gone(&self) -> bool {
        crate::apply::classify(&self.0) == crate::apply::ErrorClass::NotFound
    }
}

/// Writes `desired` as the status of `stored`, unless it is there already. Returns the object as stored then, or `None` if nothing
/// was written. `stored` must be the object as read, with its resourceVersion.
///
/// # Errors
/// If the apiserver refuses, also because the object has changed since it was read.
pub async fn write_status<K>(
    api: &Api<K>,
    stored: &K,
    desired: K::Status,
    manager: &str,
) -> Result<Option<K>, StatusError>
where
    K: Resource + HasStatus + Clone + fmt::Debug + Serialize + DeserializeOwned,
    K::Status: Serialize,
{
    if same(stored.status(), &desired) {
        return Ok(None);
    }
    let mut object = stored.clone();
    *object.status_mut() = Some(desired);
    let name = stored.meta().name.clone().unwrap_or_default();
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    api.replace_status(&name, &params, &object).await.map(Some).map_err(StatusError)
}

/// Whether both are equal; no status and an empty one are.
fn same<S: Serialize>(stored: Option<&S>, desired: &S) -> bool {
    let value = |status: &S| serde_json::to_value(status).ok();
    let stored = match stored {
        Some(status) => value(status),
        None => Some(Value::Object(serde_json::Map::new())),
    };
    // what cannot be compared is written; the client reports why it cannot be serialised
    stored.is_some() && stored == value(desired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_api::{ClusterCatalogStatus, Condition, ConditionStatus, condition, reason};

    #[test]
    fn status_compares_meaning() {
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        let empty = ClusterCatalogStatus::default();
        let mut serving = empty.clone();
        let desired =
            Condition::new(condition::SERVING, ConditionStatus::True, reason::AVAILABLE, "", Some(1), now);
        condition::set(&mut serving.conditions, desired);
        assert!(same(None, &empty));
        assert!(same(Some(&empty), &empty));
        assert!(same(Some(&serving), &serving.clone()));
        assert!(!same(None, &serving));
        assert!(!same(Some(&serving), &empty));
    }

    #[test]
    fn status_errors_are_classified() {
        let status = kube::core::Status::failure("the object has been modified", "Conflict").with_code(409);
        let error = StatusError(kube::Error::Api(status.boxed()));
        assert!(error.is_conflict() && !error.is_gone());
        assert_eq!(error.to_string(), "error updating status: the object has been modified");
    }
}
