//! Messages of apiserver failures for conditions, and the failures that are findings about the content.

use kube::core::Status;
use kube::runtime::watcher;
pub(super) use olm_runtime::apply::message as text;

/// Reasons with which the apiserver judges what was sent, rather than failing itself (rule: revisions §7.4).
const FINDINGS: [&str; 11] = [
    "Unauthorized",
    "Forbidden",
    "AlreadyExists",
    "Conflict",
    "Invalid",
    "BadRequest",
    "MethodNotAllowed",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "NotAcceptable",
    "NotFound",
];

/// The apiserver's answer, if it gave one.
pub(super) fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// The text for a watch that failed: that of its cause.
pub(super) fn watch_failed(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => text(error),
        watcher::Error::WatchError(status) => text(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Whether the apiserver judged what was sent, rather than failing itself.
pub(super) fn is_finding(error: &kube::Error) -> bool {
    status(error).is_some_and(|status| FINDINGS.contains(&status.reason.as_str()))
}

/// Does the answer have this code?
pub(super) fn is_code(error: &kube::Error, code: u16) -> bool {
    status(error).is_some_and(|status| status.code == code)
}

/// Whether the namespace of the object does not exist.
pub(super) fn is_namespace_missing(error: &kube::Error) -> bool {
    status(error).is_some_and(|status| {
        let about = status.details.as_ref().map(|details| details.kind.as_str());
        status.code == 404 && status.reason == "NotFound" && about == Some("namespaces")
    })
}

/// Whether it may be the kind of the object that the apiserver lacks: the answer names nothing that is missing. A role that a binding
/// refers to, for example, is named.
pub(super) fn is_kind_missing(error: &kube::Error) -> bool {
    status(error).is_some_and(|status| {
        let about = status.details.as_ref().map(|details| details.kind.as_str()).unwrap_or_default();
        status.code == 404 && about.is_empty()
    })
}

/// The text for one object whose write failed: a finding about the object, or a failure of the step `doing`.
pub(super) fn write_failed(objref: &str, doing: &str, error: &kube::Error) -> String {
    let finding = status(error).is_some_and(|status| {
        FINDINGS.contains(&status.reason.as_str())
            || status.reason.is_empty() && status.message.contains("failed to create typed patch object")
    });
    if is_namespace_missing(error) {
        format!("validating: {objref}: {}; create the namespace", text(error))
    } else if finding {
        format!("validating: {objref}: {}", text(error))
    } else {
        format!("reconciling {objref}: {doing}: {}", text(error))
    }
}

/// What an apply over an object of ours is called: with force it takes fields back that others took (rule: revisions §7.3).
pub(super) fn applying(force: bool) -> &'static str {
    if force { "patching (conflict)" } else { "patching (modified)" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_is_missing() {
        use kube::core::response::StatusDetails;
        let error = |kind: &str, code| {
            let details: StatusDetails = serde_json::from_value(serde_json::json!({"kind": kind})).unwrap();
            let status =
                Status { code, reason: "NotFound".into(), details: Some(details), ..Status::default() };
            kube::Error::Api(status.boxed())
        };
        // in the order of the functions: namespace, kind
        for (about, code, want) in [
            ("namespaces", 404, (true, false)),
            ("clusterroles", 404, (false, false)),
            ("", 404, (false, true)),
            ("namespaces", 403, (false, false)),
            ("", 403, (false, false)),
        ] {
            let error = error(about, code);
            assert_eq!((is_namespace_missing(&error), is_kind_missing(&error)), want, "{about:?} {code}");
        }
        let plain = Status { code: 404, message: "404 page not found".into(), ..Status::default() };
        assert!(is_kind_missing(&kube::Error::Api(plain.boxed())), "of a server without the group");
        assert!(!is_namespace_missing(&kube::Error::LinesCodecMaxLineLengthExceeded));
    }

    #[test]
    fn findings_and_failures_read_differently() {
        let error = |reason: &str, message: &str| {
            kube::Error::Api(
                Status { code: 400, reason: reason.into(), message: message.into(), ..Status::default() }
                    .boxed(),
            )
        };
        for (error, want) in [
            (error("Invalid", "spec.x is bad"), "validating: /v1, Kind=Pod n/p: spec.x is bad"),
            (
                error("NotFound", "namespaces \"n\" not found"),
                "validating: /v1, Kind=Pod n/p: namespaces \"n\" not found",
            ),
            (
                error("InternalError", "etcd is gone"),
                "reconciling /v1, Kind=Pod n/p: creating resource: etcd is gone",
            ),
            (
                error("", "failed to create typed patch object (x)"),
                "validating: /v1, Kind=Pod n/p: failed to create typed patch object (x)",
            ),
        ] {
            assert_eq!(write_failed("/v1, Kind=Pod n/p", "creating resource", &error), want);
        }
        for (reason, is_judged) in [
            ("Unauthorized", true),
            ("Forbidden", true),
            ("AlreadyExists", true),
            ("Conflict", true),
            ("Invalid", true),
            ("BadRequest", true),
            ("MethodNotAllowed", true),
            ("RequestEntityTooLarge", true),
            ("UnsupportedMediaType", true),
            ("NotAcceptable", true),
            ("NotFound", true),
            ("Expired", false),
            ("ServerTimeout", false),
            ("ServiceUnavailable", false),
            ("Timeout", false),
            ("TooManyRequests", false),
            ("", false),
        ] {
            let error = error(reason, "m");
            let text = write_failed("/v1, Kind=Pod n/p", "creating resource", &error);
            assert_eq!(
                (is_finding(&error), text.starts_with("validating: ")),
                (is_judged, is_judged),
                "{reason}"
            );
        }
        assert!(is_code(&error("x", "y"), 400));
    }

    #[test]
    fn errors_name_the_kind_of_apply() {
        let gone = kube::Error::Api(
            Status {
                code: 500,
                reason: "InternalError".into(),
                message: "etcd is gone".into(),
                ..Status::default()
            }
            .boxed(),
        );
        for (force, doing) in [(false, "patching (modified)"), (true, "patching (conflict)")] {
            assert_eq!(
                write_failed("/v1, Kind=Pod n/p", applying(force), &gone),
                format!("reconciling /v1, Kind=Pod n/p: {doing}: etcd is gone")
            );
        }
    }
}
