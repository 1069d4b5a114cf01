//! The errors of the API: `metav1.Status` bodies.

use serde_json::{Value, json};

use super::managed::Conflict;

/// An error answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Status {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    details: Value,
}

impl Status {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    fn about(self, resource: &str, group: &str, name: &str) -> Self {
        let mut details = json!({"name": name, "kind": resource});
        if !group.is_empty() {
            details["group"] = group.into();
        }
        Self { details, ..self }
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code});
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }

    /// The error message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// No such path or resource.
    pub(crate) fn no_route() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn not_found(resource: &str, group: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(resource, group));
        Self::new(404, "NotFound", message).about(resource, group, name)
    }

    pub(crate) fn exists(resource: &str, group: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(resource, group));
        Self::new(409, "AlreadyExists", message).about(resource, group, name)
    }

    pub(crate) fn conflict(resource: &str, group: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(resource, group));
        Self::new(409, "Conflict", message).about(resource, group, name)
    }

    pub(crate) fn modified(resource: &str, group: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, group, name, why)
    }

    pub(crate) fn invalid(kind: &str, group: &str, name: &str, field: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is invalid: {field}: {why}", qualified(kind, group));
        let mut status = Self::new(422, "Invalid", message).about(kind, group, name);
        status.details["causes"] = json!([{"field": field, "message": why, "reason": "FieldValueInvalid"}]);
        status
    }

    pub(crate) fn forbidden(resource: &str, group: &str, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", qualified(resource, group));
        Self::new(403, "Forbidden", message).about(resource, group, name)
    }

    /// Nothing is created in a namespace that is being deleted.
    pub(crate) fn terminating(resource: &str, group: &str, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Self::forbidden(resource, group, name, &why);
        status.details["causes"] = json!([{"reason": "NamespaceTerminating", "field": "metadata.namespace",
            "message": format!("namespace {namespace} is being terminated")}]);
        status
    }

    /// A patch of a type that the kind does not have.
    pub(crate) fn unsupported(is_custom: bool) -> Self {
        let strategic = if is_custom { "" } else { "application/strategic-merge-patch+json, " };
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, {strategic}application/apply-patch+yaml"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Fields that other managers own.
    pub(crate) fn conflicts(conflicts: &[Conflict]) -> Self {
        let count: usize = conflicts.iter().map(|conflict| conflict.paths.len()).sum();
        let message = match conflicts {
            [Conflict { manager, paths }] if paths.len() == 1 => {
                format!("Apply failed with 1 conflict: conflict with {manager}: {}", paths[0])
            }
            _ => {
                let one = |conflict: &Conflict| {
                    let paths: Vec<String> = conflict.paths.iter().map(|path| format!("- {path}")).collect();
                    format!("conflicts with {}:\n{}", conflict.manager, paths.join("\n"))
                };
                let all: Vec<String> = conflicts.iter().map(one).collect();
                format!("Apply failed with {count} conflicts: {}", all.join("\n"))
            }
        };
        let cause = |manager: &str, path: &String| json!({"reason": "FieldManagerConflict", "field": path, "message": format!("conflict with {manager}")});
        let causes = conflicts.iter().flat_map(|it| it.paths.iter().map(|path| cause(&it.manager, path)));
        let details = json!({"causes": causes.collect::<Vec<_>>()});
        Self { details, ..Self::new(409, "Conflict", message) }
    }
}

/// `deployments.apps`, of the core group `pods`.
pub(crate) fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}
