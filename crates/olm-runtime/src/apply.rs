//! The classes of the apiserver's errors, and their messages. Rule: operator-controller §1.4, decision 20.

use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;

use crate::error_text::{chain, stable};

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
    let status = match error {
        kube::Error::Api(status) => status,
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
            return ErrorClass::Unavailable;
        }
        _ => return ErrorClass::Other,
    };
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

/// Deletes this very object: the one with its UID, and in this state if it has a resourceVersion. It is no error if it is gone; if it was
/// changed meanwhile, or another one has its name, the conflict is returned.
///
/// # Errors
/// If the apiserver refuses for another reason.
pub async fn delete<K>(
    api: &Api<K>,
    metadata: &ObjectMeta,
    params: DeleteParams,
) -> kube::Result<Option<kube::Error>>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let same =
        Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
    let name = metadata.name.as_deref().unwrap_or_default();
    let Err(error) = api.delete(name, &params.preconditions(same)).await else { return Ok(None) };
    match classify(&error) {
        ErrorClass::NotFound => Ok(None),
        ErrorClass::Conflict => Ok(Some(error)),
        _ => Err(error),
    }
}

/// Whether nothing can be created because the namespace is being deleted: the cause by which the apiserver distinguishes that from a
/// missing right.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The error message: that of the apiserver, or the chain of causes. Nothing that changes from attempt to attempt.
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => stable(&status.message),
        kube::Error::Api(status) => {
            format!("apiserver answered {} {}", status.code, status.reason).trim_end().to_owned()
        }
        other => stable(&chain(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use serde_json::json;

    fn error(status: serde_json::Value) -> kube::Error {
        kube::Error::Api(serde_json::from_value::<Status>(status).unwrap().boxed())
    }

    #[test]
    fn apply_finds_namespace_terminating() {
        let forbidden = |details: serde_json::Value| {
            error(json!({"code": 403, "reason": "Forbidden", "message": "m", "details": details}))
        };
        let cause = json!({"reason": "NamespaceTerminating", "message": "namespace n is being terminated",
            "field": "metadata.namespace"});
        assert!(is_namespace_terminating(&forbidden(json!({"causes": [cause]}))));
        assert!(!is_namespace_terminating(&forbidden(json!({"kind": "pods"}))));
        assert!(!is_namespace_terminating(&kube::Error::Service("broken pipe".into())));
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
}
