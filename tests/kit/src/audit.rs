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
    /// From the beginning.
    fn whole(dir: &Path) -> Result<Self> {
        let path = log(dir);
        let file = File::open(&path).with_context(|| {
            format!("no audit log {}; start the cluster with `audit: true`", path.display())
        })?;
        Ok(Self { file, unfinished: Vec::new() })
    }

    /// From now on.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let mut tail = Self::whole(dir)?;
        tail.file.seek(SeekFrom::End(0))?;
        Ok(tail)
    }

    /// The requests that finished since the last call, in the order in which they finished.
    pub fn more(&mut self) -> Result<Vec<Request>> {
        self.file.read_to_end(&mut self.unfinished)?;
        let end = self.unfinished.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.unfinished.split_off(end);
        let lines = std::mem::replace(&mut self.unfinished, rest);
        Ok(lines.split(|&byte| byte == b'\n').filter_map(parse).collect())
    }
}

/// The whole record, each request once. What was parsed before is not parsed again: tests poll the record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    tail: Option<AuditTail>,
    all: Vec<Request>,
}

impl Record {
    /// All requests so far; a line that is still being written is left out.
    pub(crate) fn read(&mut self, dir: &Path) -> Result<&[Request]> {
        if self.tail.is_none() {
            self.tail = Some(AuditTail::whole(dir)?);
        }
        if let Some(tail) = &mut self.tail {
            self.all.extend(tail.more()?);
        }
        Ok(&self.all)
    }
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn audit_record_has_each_request_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("logs")).unwrap();
        let mut file = File::create(log(dir.path())).unwrap();
        let line = |verb: &str| format!("{{\"stage\": \"ResponseComplete\", \"verb\": \"{verb}\"}}\n");
        let mut record = Record::default();
        let verbs = |record: &mut Record| -> Vec<String> {
            record.read(dir.path()).unwrap().iter().map(|request| request.verb.clone()).collect()
        };
        assert!(verbs(&mut record).is_empty());
        let second = line("list");
        file.write_all((line("get") + &second[..9]).as_bytes()).unwrap();
        assert_eq!(verbs(&mut record), ["get"]);
        file.write_all(&second.as_bytes()[9..]).unwrap();
        assert_eq!(verbs(&mut record), ["get", "list"]);
        let mut tail = AuditTail::start(dir.path()).unwrap();
        file.write_all(line("patch").as_bytes()).unwrap();
        assert_eq!(tail.more().unwrap().len(), 1);
        assert_eq!(verbs(&mut record), ["get", "list", "patch"]);
    }
}
