//! Server-side apply of objects of any kind, and what an answer of the apiserver means.
//!
//! It decides nothing: whether to apply, with force or not, is the caller's.
//!
//! Rule: operator-controller §1.4 (field managers), decision 20.

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, Status};
use serde::Serialize;

/// What an error of the apiserver means for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Another field manager owns a field, or the object has changed meanwhile.
    Conflict,
    /// There is an object of this name already.
    AlreadyExists,
    /// There is no such object, or no such kind.
    NotFound,
    /// The object breaks a rule of its schema or of an admission policy; the same object will be refused again.
    Invalid,
    /// The identity may not do this.
    Forbidden,
    /// The apiserver asks for fewer requests.
    TooManyRequests,
    /// The apiserver cannot be reached or is not well; the same request may succeed later.
    Unavailable,
    /// Something else.
    Other,
}

/// What the error means.
pub fn classify(error: &kube::Error) -> ErrorClass {
    match error {
        kube::Error::Api(status) => classify_status(status),
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
            ErrorClass::Unavailable
        }
        _ => ErrorClass::Other,
    }
}

fn classify_status(status: &Status) -> ErrorClass {
    match (status.code, status.reason.as_str()) {
        (_, "AlreadyExists") => ErrorClass::AlreadyExists,
        (409, _) => ErrorClass::Conflict,
        (404, _) => ErrorClass::NotFound,
        (400 | 422, _) => ErrorClass::Invalid,
        (401 | 403, _) => ErrorClass::Forbidden,
        (429, _) => ErrorClass::TooManyRequests,
        (500..=599, _) => ErrorClass::Unavailable,
        _ => ErrorClass::Other,
    }
}

/// The error message: that of the apiserver, or the chain of causes. Nothing that changes from attempt to attempt.
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => crate::error_text::stable(&status.message),
        kube::Error::Api(status) => {
            format!("apiserver answered {} {}", status.code, status.reason).trim_end().to_owned()
        }
        other => crate::error_text::stable_chain(other),
    }
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// The other manager.
    pub manager: String,
    /// The field's path, such as `.spec.replicas`.
    pub field: String,
}

/// Which fields an apply without force was refused for; empty for every other error.
pub fn field_conflicts(error: &kube::Error) -> Vec<FieldConflict> {
    let kube::Error::Api(status) = error else { return Vec::new() };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| {
            // `conflict with "kubectl" using apps/v1`
            let manager = cause.message.split('"').nth(1).unwrap_or_default().to_owned();
            FieldConflict { manager, field: cause.field.clone() }
        })
        .collect()
}

/// The API for objects of this kind: in a namespace, or, without one, cluster-wide.
pub fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// How an object is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apply<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// Take fields from other managers.
    pub force: bool,
    /// Only ask what would happen.
    pub dry_run: bool,
}

impl Apply<'_> {
    fn params(self) -> PatchParams {
        let mut params = PatchParams::apply(self.manager);
        params.force = self.force;
        params.dry_run = self.dry_run;
        params
    }

    /// Applies the object, which has apiVersion and kind; returns it as it is stored.
    ///
    /// # Errors
    /// The error of the apiserver or the connection; see [`classify`] and [`message`].
    pub async fn object<T: Serialize + std::fmt::Debug + Sync>(
        self,
        api: &Api<DynamicObject>,
        name: &str,
        object: &T,
    ) -> kube::Result<DynamicObject> {
        api.patch(name, &self.params(), &Patch::Apply(object)).await
    }
}

/// Creates the object, and only that: an existing one is an error ([`ErrorClass::AlreadyExists`]).
///
/// # Errors
/// The error of the apiserver or the connection.
pub async fn create(
    api: &Api<DynamicObject>,
    object: &DynamicObject,
    manager: &str,
) -> kube::Result<DynamicObject> {
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    api.create(&params, object).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(status: serde_json::Value) -> kube::Error {
        kube::Error::Api(serde_json::from_value::<Status>(status).unwrap().boxed())
    }

    #[test]
    fn apply_classifies_errors() {
        for (code, reason, want) in [
            (409, "Conflict", ErrorClass::Conflict),
            (409, "AlreadyExists", ErrorClass::AlreadyExists),
            (404, "NotFound", ErrorClass::NotFound),
            (422, "Invalid", ErrorClass::Invalid),
            (400, "BadRequest", ErrorClass::Invalid),
            (401, "Unauthorized", ErrorClass::Forbidden),
            (403, "Forbidden", ErrorClass::Forbidden),
            (429, "TooManyRequests", ErrorClass::TooManyRequests),
            (503, "ServiceUnavailable", ErrorClass::Unavailable),
            (500, "InternalError", ErrorClass::Unavailable),
            (410, "Expired", ErrorClass::Other),
        ] {
            let error = error(json!({"code": code, "reason": reason, "message": "m"}));
            assert_eq!(classify(&error), want, "{code} {reason}");
            assert_eq!(message(&error), "m");
        }
        let refused = kube::Error::Service("write tcp 10.0.0.1:2->10.0.0.3:4: broken pipe".into());
        assert_eq!(classify(&refused), ErrorClass::Unavailable);
        assert_eq!(message(&refused), "ServiceError: broken pipe");
        assert_eq!(message(&error(json!({"code": 418}))), "apiserver answered 418");
    }

    #[test]
    fn apply_names_conflicting_managers() {
        let conflict = error(json!({
            "code": 409, "reason": "Conflict", "message": "Apply failed with 1 conflict: conflict with \"kubectl\" using v1: .data.a",
            "details": {"causes": [
                {"reason": "FieldManagerConflict", "message": "conflict with \"kubectl\" using v1", "field": ".data.a"},
                {"reason": "Other", "message": "x", "field": ".y"}
            ]}
        }));
        let want = FieldConflict { manager: "kubectl".to_owned(), field: ".data.a".to_owned() };
        assert_eq!(field_conflicts(&conflict), [want]);
        assert_eq!(field_conflicts(&error(json!({"code": 404}))), []);
    }
}
