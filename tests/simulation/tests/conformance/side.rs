//! One of the two servers that are compared: sends steps, and makes what differs by nature the same.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};

use crate::steps::Step;

/// A server, and the names of its uids and resource versions in the order of their appearance.
pub(crate) struct Side {
    pub(crate) client: Client,
    /// The last error message, for reports.
    pub(crate) message: Value,
    /// Objects that got a new version without any other change. A real apiserver does this when two field managers have entries of the
    /// same second, whose order it changes; the simulated one never.
    pub(crate) rewrites: usize,
    last: BTreeMap<String, (String, Value)>,
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
}

impl Side {
    pub(crate) fn new(client: Client) -> Self {
        let (last, uids, versions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { client, message: Value::Null, rewrites: 0, last, uids, versions }
    }

    /// Sends a request: the status code and the body.
    pub(crate) async fn send(
        &self,
        method: &str,
        uri: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<(u16, Value)> {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let mut request = http::Request::builder().method(method).uri(uri);
        if !content_type.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let answer = self.client.send(request.body(bytes.into())?).await?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// Sends a step: the status code and the comparable body.
    pub(crate) async fn take(&mut self, step: &Step) -> Result<(u16, Value)> {
        let mut body = step.body.clone();
        self.resolve(&mut body).await?;
        let uri = format!("{}?{}", step.path, step.query);
        let (code, answer) = self.send(step.method, &uri, step.content_type, &body).await?;
        Ok((code, self.comparable(answer)))
    }

    async fn resolve(&self, body: &mut Value) -> Result<()> {
        let mut places = Vec::new();
        find(body, "", &mut places);
        for (pointer, text) in places {
            let Some((field, path)) = text.trim_start_matches('$').split_once(':') else { continue };
            let (_, object) = self.send("GET", path, "", &Value::Null).await?;
            let field = if field == "uid" { "uid" } else { "resourceVersion" };
            let found = object["metadata"][field].as_str().unwrap_or("7");
            let found = if field == "uid" && found == "7" { path } else { found };
            *body.pointer_mut(&pointer).context("a place")? = found.into();
        }
        Ok(())
    }

    /// The body with the same names for uids, versions and times on both sides.
    pub(crate) fn comparable(&mut self, mut body: Value) -> Value {
        if body["kind"] == "Status" {
            self.message = body["message"].take();
            let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
            let is_conflict = causes.iter().any(|cause| cause["reason"] == "FieldManagerConflict");
            let mut fields: Vec<Value> = causes
                .into_iter()
                .filter(|_| is_conflict)
                .map(|it| json!([it["field"], short(&it["message"])]))
                .collect();
            let mut fields: Vec<Value> = fields.drain(..).map(|field| self.rename_keys(field)).collect();
            fields.sort_by_key(Value::to_string);
            return json!({"status": body["status"], "reason": body["reason"], "fields": fields});
        }
        // the version of a list counts what other sequences do; how many objects are left is optional
        if body.get("items").is_some() {
            let has_more = body["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty());
            body["metadata"] = has_more.into();
        }
        let object = if body.get("object").is_some() { &body["object"] } else { &body };
        self.find_rewrite(&object.clone());
        self.rename(&mut body);
        self.rename_keys(body)
    }

    /// Gives a version without any other change the name of the version before.
    fn find_rewrite(&mut self, object: &Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (uid, version) = (text("uid"), text("resourceVersion"));
        if uid.is_empty() {
            return;
        }
        let mut bare = object.clone();
        bare["metadata"]["resourceVersion"] = Value::Null;
        let mut entries = bare["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter_mut().for_each(|entry| entry["time"] = Value::Null);
        entries.sort_by_key(Value::to_string);
        bare["metadata"]["managedFields"] = entries.into();
        if let Some((before, same)) = self.last.get(&uid)
            && *same == bare
            && *before != version
            && let Some(name) = self.versions.get(before).cloned()
            && !self.versions.contains_key(&version)
        {
            self.versions.insert(version.clone(), name);
            self.rewrites += 1;
        }
        self.last.insert(uid, (version, bare));
    }

    /// Uids are also keys of owned fields.
    fn rename_keys(&self, body: Value) -> Value {
        let mut text = body.to_string();
        for (uid, name) in &self.uids {
            text = text.replace(uid, name);
        }
        let mut body = serde_json::from_str(&text).unwrap_or(body);
        sort_managers(&mut body);
        body
    }

    fn rename(&mut self, value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|item| self.rename(item)),
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    match (name.as_str(), value.as_str()) {
                        ("uid", Some(uid)) => {
                            let next = format!("uid {}", self.uids.len());
                            let named = self.uids.entry(uid.to_owned()).or_insert(next);
                            *value = named.clone().into();
                        }
                        ("resourceVersion", Some(version)) => {
                            let names: std::collections::BTreeSet<&String> = self.versions.values().collect();
                            let next = format!("version {}", names.len());
                            let named = self.versions.entry(version.to_owned()).or_insert(next);
                            *value = named.clone().into();
                        }
                        ("time", Some(_)) => *value = Value::Null,
                        ("creationTimestamp" | "deletionTimestamp", Some(_)) => *value = "time".into(),
                        ("managedFields", _) => {
                            let mut entries = value.as_array().cloned().unwrap_or_default();
                            for entry in &mut entries {
                                entry["time"] = Value::Null;
                            }
                            *value = entries.into();
                        }
                        _ => self.rename(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// The newest version of a collection.
    pub(crate) async fn version(&self, path: &str) -> Result<String> {
        let (_, list) = self.send("GET", &format!("{path}?limit=1"), "", &Value::Null).await?;
        Ok(list["metadata"]["resourceVersion"].as_str().context("no version of a list")?.to_owned())
    }

    /// The events of a collection after a version, of objects whose name begins with `prefix`, until one named `end` appears.
    pub(crate) async fn events(
        &mut self,
        path: &str,
        from: &str,
        prefix: &str,
        end: &str,
    ) -> Result<Vec<Value>> {
        let uri = format!("{path}?watch=true&resourceVersion={from}&timeoutSeconds=30");
        let request = http::Request::get(uri).body(Vec::new())?;
        let mut lines = self.client.request_stream(request).await?.lines();
        let mut events = Vec::new();
        while let Some(line) = lines.try_next().await? {
            let event: Value = serde_json::from_str(&line)?;
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            if name == end {
                return Ok(events);
            }
            if event["type"] == "ERROR" {
                anyhow::bail!("{event}");
            }
            if name.starts_with(prefix) {
                let event = self.comparable(event);
                let is_of =
                    |it: &&Value| it["object"]["metadata"]["uid"] == event["object"]["metadata"]["uid"];
                let last = events.iter().rev().find(is_of);
                let is_rewrite =
                    event["type"] == "MODIFIED" && last.is_some_and(|last| last["object"] == event["object"]);
                if !is_rewrite {
                    events.push(event);
                }
            }
        }
        anyhow::bail!("no event of {end} at {path}")
    }
}

/// The order of field managers depends on times.
fn sort_managers(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(sort_managers),
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                match value.as_array_mut() {
                    Some(entries) if name == "managedFields" => entries.sort_by_key(Value::to_string),
                    _ => sort_managers(value),
                }
            }
        }
        _ => {}
    }
}

/// A conflict without its time.
fn short(message: &Value) -> String {
    let text = message.as_str().unwrap_or_default();
    text.split(" at ").next().unwrap_or_default().to_owned()
}

fn find(value: &Value, at: &str, out: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) if text.starts_with('$') => out.push((at.to_owned(), text.clone())),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, it)| find(it, &format!("{at}/{i}"), out)),
        Value::Object(map) => map.iter().for_each(|(name, it)| find(it, &format!("{at}/{name}"), out)),
        _ => {}
    }
}
