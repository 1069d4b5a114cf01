//! The apiserver's own record of requests, for tests that count what a controller does.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::pki;

const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
 "rules": [{"level": "Metadata"}]}"#;

pub(crate) fn flags(dir: &Path) -> Result<Vec<String>> {
    let policy = dir.join("audit-policy.json");
    pki::write(&policy, POLICY)?;
    Ok(vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log(dir).display()),
        "--audit-log-mode=blocking".to_owned(),
    ])
}

pub(crate) fn log(dir: &Path) -> PathBuf {
    dir.join("logs/audit.log")
}

/// One finished request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// get, list, watch, create, update, patch, delete …
    pub verb: String,
    /// user name
    pub user: String,
    /// as whom `user` acted, empty when as itself
    pub acting_as: String,
    /// `User-Agent` header
    pub agent: String,
    /// API group, empty for the core group and for requests that are not about a resource
    pub group: String,
    /// plural resource name, with `/<subresource>` when there is one; empty for requests that are not about a resource
    pub resource: String,
    /// namespace, empty when there is none
    pub namespace: String,
    /// object name, empty for collections
    pub name: String,
    /// HTTP status of the answer
    pub code: u64,
    /// path and query
    pub uri: String,
}

impl Request {
    /// Whether it can change anything.
    pub fn writes(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// Reads the record, each request once; a line that is still being written is left out.
pub(crate) fn read(dir: &Path) -> Result<Vec<Request>> {
    let path = log(dir);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("no audit log {}; start the cluster with `audit: true`", path.display()))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut requests = Vec::new();
    for line in complete.lines() {
        let event: Value = serde_json::from_str(line).context("unreadable audit line")?;
        let request = request(&event);
        // a watch is told when it starts (what is refused never does), anything else at its end
        let started = event["stage"] == "ResponseStarted";
        if started == (request.verb == "watch" && request.code < 400) {
            requests.push(request);
        }
    }
    Ok(requests)
}

fn request(event: &Value) -> Request {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let subresource = text("/objectRef/subresource");
    let slash = if subresource.is_empty() { "" } else { "/" };
    Request {
        verb: text("/verb"),
        user: text("/user/username"),
        acting_as: text("/impersonatedUser/username"),
        agent: text("/userAgent"),
        group: text("/objectRef/apiGroup"),
        resource: format!("{}{slash}{subresource}", text("/objectRef/resource")),
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        uri: text("/requestURI"),
    }
}
