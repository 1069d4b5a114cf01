//! Discovery, health, and the reviews of rights.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::kinds::REVIEWS;
use super::request::{Call, Target};
use super::status::Status;
use super::store::{Reply, Store};
use super::{USER, Verb};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl Store {
    /// Answers a path that names no object.
    pub(crate) fn discover(&self, path: &str) -> Result<Value, Status> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["version"] => Ok(json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "",
                "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "gc", "platform": "linux/amd64"})),
            ["healthz" | "readyz" | "livez", ..] => Ok(json!("ok")),
            ["api"] => Ok(json!({"kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:443"}]})),
            ["apis"] => {
                let groups: Vec<Value> = self.groups().iter().map(|(name, it)| group(name, it)).collect();
                Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
            }
            ["apis", name] => {
                let groups = self.groups();
                let versions = groups.get(*name).ok_or_else(Status::no_route)?;
                let mut found = group(name, versions);
                found["kind"] = "APIGroup".into();
                found["apiVersion"] = "v1".into();
                Ok(found)
            }
            ["api", version] => self.resource_list("", version),
            ["apis", group, version] => self.resource_list(group, version),
            _ => Err(Status::no_route()),
        }
    }

    /// The versions of each named group.
    fn groups(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, ..) in REVIEWS {
            groups.entry(name.to_owned()).or_default().insert("v1".to_owned());
        }
        for resource in self.resources.values().filter(|it| !it.kind.group.is_empty()) {
            let versions = resource.kind.versions.iter().map(|version| version.name.clone());
            groups.entry(resource.kind.group.clone()).or_default().extend(versions);
        }
        groups
    }

    fn resource_list(&self, group: &str, version: &str) -> Result<Value, Status> {
        let mut resources = Vec::new();
        for resource in self.resources.values().filter(|it| it.kind.group == group) {
            let kind = &resource.kind;
            let Some(found) = kind.version(version) else { continue };
            let row = |name: String, verbs: &[&str]| {
                json!({"name": name, "singularName": kind.singular, "namespaced": kind.is_namespaced,
                    "kind": kind.kind, "verbs": verbs})
            };
            resources.push(row(kind.plural.clone(), &VERBS));
            if found.has_status {
                resources.push(row(format!("{}/status", kind.plural), &["get", "patch", "update"]));
            }
        }
        for (_, name, kind, namespaced) in REVIEWS.iter().filter(|(it, ..)| *it == group && version == "v1") {
            resources
                .push(json!({"name": name, "singularName": kind.to_lowercase(), "namespaced": namespaced,
                "kind": kind, "verbs": ["create"]}));
        }
        if resources.is_empty() {
            return Err(Status::no_route());
        }
        let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Ok(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}),
        )
    }

    /// Answers a review of rights: everything is allowed but what [`super::ApiServer::deny`] names.
    pub(crate) fn review(&self, call: &Call, target: &Target) -> Option<Result<Reply, Status>> {
        let is_token =
            target.group.is_empty() && target.resource == "serviceaccounts" && target.subresource == "token";
        let review =
            REVIEWS.iter().find(|(group, name, ..)| *group == target.group && *name == target.resource);
        if (review.is_none() && !is_token) || call.verb != Verb::Create {
            return None;
        }
        let Some(mut body) = call.body.clone() else { return Some(Err(Status::bad_request("no JSON"))) };
        body["status"] = match target.resource.as_str() {
            "tokenreviews" => json!({"authenticated": true, "user": {"username": body["spec"]["token"]}}),
            "serviceaccounts" => json!({"token": target.name, "expirationTimestamp": "2100-01-01T00:00:00Z"}),
            "selfsubjectrulesreviews" => json!({"incomplete": false,
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}),
            _ => json!({"allowed": self.is_allowed(call, &body["spec"])}),
        };
        Some(Ok(Reply::Object(201, body.into())))
    }

    fn is_allowed(&self, call: &Call, spec: &Value) -> bool {
        let attributes = &spec["resourceAttributes"];
        let text = |name: &str| attributes[name].as_str().map(str::to_owned);
        let verb = match attributes["verb"].as_str().unwrap_or_default() {
            "get" => Verb::Get,
            "list" => Verb::List,
            "watch" => Verb::Watch,
            "create" => Verb::Create,
            "update" => Verb::Update,
            "patch" => Verb::Patch,
            "delete" => Verb::Delete,
            "deletecollection" => Verb::DeleteCollection,
            _ => Verb::Other,
        };
        let target = Target {
            group: text("group").unwrap_or_default(),
            version: String::new(),
            resource: text("resource").unwrap_or_default(),
            namespace: text("namespace"),
            name: text("name"),
            subresource: String::new(),
        };
        let asked = Call { verb, target: Some(target), ..call.clone() };
        call.process == USER || !self.denied.iter().any(|rule| rule.fits(&asked))
    }
}

fn group(name: &str, versions: &BTreeSet<String>) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": name, "versions": all, "preferredVersion": all.last()})
}
