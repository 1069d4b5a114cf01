//! A request as the store takes it: what it is about, and with which options.

use std::collections::BTreeMap;
use std::time::Duration;

use http::request::Parts;
use serde_json::Value;

use super::Verb;

/// The object, collection or version that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    /// The plural name of the resource.
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: String,
}

/// A request with its body.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// When the client sent it.
    pub(crate) sent: Duration,
    pub(crate) process: String,
    pub(crate) impersonated: Option<String>,
    pub(crate) verb: Verb,
    pub(crate) path: String,
    pub(crate) target: Option<Target>,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) content_type: String,
    /// The response holds metadata only.
    pub(crate) is_partial: bool,
    /// Null if there is none; `None`: it is no JSON.
    pub(crate) body: Option<Value>,
}

impl Call {
    /// Reads the head of a request.
    pub(crate) fn new(sent: Duration, process: &str, head: &Parts, body: Option<Value>) -> Self {
        let header =
            |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let path = head.uri.path().to_owned();
        let pairs = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        let query: BTreeMap<String, String> = pairs.into_owned().collect();
        let target = target(&path);
        let verb = verb(&head.method, target.as_ref(), &query);
        let user = head.headers.get("impersonate-user").map(|_| header("impersonate-user").to_owned());
        Self {
            sent,
            process: process.to_owned(),
            impersonated: user,
            verb,
            path,
            target,
            query,
            content_type: header("content-type").to_owned(),
            is_partial: header("accept").contains("PartialObjectMetadata"),
            body,
        }
    }

    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.option(name), Some("true" | "1"))
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.option("dryRun") == Some("All")
    }

    /// The path with its query, for the log.
    pub(crate) fn line(&self) -> String {
        let query: Vec<String> = self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, query.join("&")) }
    }
}

fn target(path: &str) -> Option<Target> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status" | "finalize", ..]) => {
            (Some(*namespace), rest)
        }
        rest => (None, rest),
    };
    Some(Target {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: (*rest.first()?).to_owned(),
        namespace: namespace.map(str::to_owned),
        name: rest.get(1).map(|name| (*name).to_owned()),
        subresource: rest.get(2).map(|name| (*name).to_owned()).unwrap_or_default(),
    })
}

fn verb(method: &http::Method, target: Option<&Target>, query: &BTreeMap<String, String>) -> Verb {
    let Some(target) = target else { return Verb::Other };
    let is_watch = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
    match (method.as_str(), &target.name) {
        ("GET", Some(_)) => Verb::Get,
        ("GET", None) if is_watch => Verb::Watch,
        ("GET", None) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", Some(_)) => Verb::Delete,
        ("DELETE", None) => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}
