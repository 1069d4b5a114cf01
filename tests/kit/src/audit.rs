//! The apiserver's own record of requests, for tests that count what a controller does.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
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
    /// when it came in, as the apiserver's clock and RFC 3339 have it (comparable as text)
    pub received: String,
}

impl Request {
    /// Whether it can change anything.
    pub fn writes(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// Follows the record from some point on.
#[derive(Debug)]
pub struct AuditTail {
    file: File,
    unfinished: Vec<u8>,
}

impl AuditTail {
    /// From now on.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let path = log(dir);
        let mut file = File::open(&path).with_context(|| {
            format!("no audit log {}; start the cluster with `audit: true`", path.display())
        })?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, unfinished: Vec::new() })
    }

    /// The requests that finished since the last call, in the order in which they finished.
    pub fn more(&mut self) -> Result<Vec<Request>> {
        self.file.read_to_end(&mut self.unfinished)?;
        let end = self.unfinished.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.unfinished.drain(..end).collect();
        Ok(lines.split(|&byte| byte == b'\n').filter_map(parse).collect())
    }
}

/// Reads the record, each request once; a line that is still being written is left out.
pub(crate) fn read(dir: &Path) -> Result<Vec<Request>> {
    let path = log(dir);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("no audit log {}; start the cluster with `audit: true`", path.display()))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(complete.lines().filter_map(|line| parse(line.as_bytes())).collect())
}

/// The request of a line. A killed apiserver leaves half a line, and the next one continues behind it: such a line is
/// left out.
fn parse(line: &[u8]) -> Option<Request> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let request = request(&event);
    // a watch is recorded when it starts (what is refused never does), anything else at its end
    let started = event["stage"] == "ResponseStarted";
    (started == (request.verb == "watch" && request.code < 400)).then_some(request)
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
        received: text("/requestReceivedTimestamp"),
    }
}
