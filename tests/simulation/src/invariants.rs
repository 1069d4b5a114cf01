//! Invariants: at any time, judged by the changes that the apiserver recorded, and in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use olm_api::{annotations, labels};
use serde_json::Value;

use crate::content::{Content, PACKAGES, rival};
use crate::harness::{LEASE, MONITORS};
use crate::lease::LeaseHistory;
use crate::outcome::digest;
use crate::processes::PROCESS;
use crate::{ApiServer, Verb, Write};

/// How long a removal waits for custom resources before it continues without.
pub(crate) const CUSTOM_RESOURCE_WAIT: Duration = operator_controller::objectset::CUSTOM_RESOURCE_WAIT;
/// How long after its creation an account may be taken for one that is gone.
const ACCOUNT_CACHE: Duration = Duration::from_secs(10);
/// The field manager of the objects of revisions.
const MANAGER: &str = olm_rollout::keys::FIELD_MANAGER;
/// What is of the controllers whatever its labels are.
const OWN: [&str; 4] = ["clusterextensions", "clusterobjectsets", "leases", "events"];

/// What the user wants of an extension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Expected {
    /// It was never installed.
    #[default]
    Nothing,
    /// This version is installed.
    Installed { version: &'static str },
    /// It and its objects go.
    Removed { at: Duration },
    /// It goes, and its objects stay; those of an orphaned extension with their revisions.
    Left { version: &'static str, is_orphaned: bool },
    /// Objects that an earlier extension left are in its way.
    Blocked { version: &'static str },
}

/// Checks each change once.
#[derive(Default)]
pub struct Invariants {
    seen: usize,
    pub lease: LeaseHistory,
    /// The user's intent for each extension.
    pub expected: BTreeMap<&'static str, Expected>,
    /// UIDs of objects that must stay, with their extensions.
    pub protected: BTreeMap<String, &'static str>,
    /// Extensions of which the user deleted a revision, which deletes custom resources too.
    pub torn_down: BTreeSet<&'static str>,
    /// Every change, as one number.
    pub digest: u64,
    /// The users as whom the objects of each extension are written, by its UID; `None`: the controller itself.
    users: BTreeMap<String, BTreeSet<Option<String>>>,
    /// The UIDs of the extensions that have owned a revision, by the UID of the revision.
    owners: BTreeMap<String, BTreeSet<String>>,
    /// Service accounts that were deleted, as users, and since when each is there again.
    deleted_accounts: BTreeMap<String, Option<Duration>>,
}

impl Invariants {
    /// Checks the changes since the last call. To be called before the user does anything.
    pub fn observe(&mut self, server: &ApiServer) -> Result<(), String> {
        let writes = server.history_since(self.seen);
        self.seen += writes.len();
        for write in &writes {
            let at = write.at.as_secs_f64();
            self.judge(write, server)
                .map_err(|problem| format!("at {at:.3} s: {}: {problem}", describe(write)))?;
        }
        Ok(())
    }

    fn judge(&mut self, write: &Write, server: &ApiServer) -> Result<(), String> {
        trace(write);
        self.digest = digest(self.digest, &format!("{:?} {} {}", write.at, describe(write), write.version));
        if self.lease.record(LEASE, write) {
            return Ok(());
        }
        let goes = deletion_begins(write);
        if let Some(uid) = write.before.as_ref().and_then(|object| object["metadata"]["uid"].as_str())
            && goes
            && write.process != "user"
            && self.protected.contains_key(uid)
        {
            return Err("the user asked to keep it".to_owned());
        }
        if write.process != "user" && write.resource == "deployments" && goes {
            self.outlives_custom_resources(write, server)?;
        }
        self.record(write);
        if !write.process.starts_with(PROCESS) {
            return Ok(());
        }
        self.is_written_as_its_account(write)?;
        self.lease.check(write, server)?;
        let Some(before) = &write.before else { return Ok(()) };
        stays_with_its_extension(before, write.after.as_deref())?;
        let custom = PACKAGES.into_iter().find(|package| write.resource == format!("{package}s"));
        match custom {
            Some(package) => {
                let goes = matches!(self.expected.get(package), Some(Expected::Removed { .. }))
                    || self.torn_down.contains(package);
                if goes { Ok(()) } else { Err("a custom resource of an installed extension".to_owned()) }
            }
            None if OWN.contains(&write.resource.as_str()) || is_owned(before) => Ok(()),
            None => Err("the controllers do not own it".to_owned()),
        }
    }

    /// Remembers accounts of extensions and owners of revisions.
    fn record(&mut self, write: &Write) {
        let Some(object) = write.after.as_ref().or(write.before.as_ref()) else { return };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        match write.resource.as_str() {
            "clusterextensions" => {
                let spec = &object["spec"];
                let account = spec["serviceAccount"]["name"].as_str().zip(spec["namespace"].as_str());
                let user =
                    account.map(|(name, namespace)| format!("system:serviceaccount:{namespace}:{name}"));
                self.users.entry(uid.to_owned()).or_default().insert(user);
            }
            "serviceaccounts" => {
                let metadata = &object["metadata"];
                let account = metadata["namespace"].as_str().zip(metadata["name"].as_str());
                let Some((namespace, name)) = account else { return };
                let user = format!("system:serviceaccount:{namespace}:{name}");
                match write.after {
                    None => drop(self.deleted_accounts.insert(user, None)),
                    Some(_) => {
                        if let Some(since) = self.deleted_accounts.get_mut(&user) {
                            since.get_or_insert(write.at);
                        }
                    }
                }
            }
            "clusterobjectsets" => {
                for owner in owners(object, "ClusterExtension") {
                    self.owners.entry(uid.to_owned()).or_default().insert(owner.to_owned());
                }
            }
            _ => {}
        }
    }

    /// Objects of a revision are written, released and deleted as the account of an extension that owns the revision or has owned it;
    /// released and deleted as the controller while that account is gone.
    fn is_written_as_its_account(&self, write: &Write) -> Result<(), String> {
        let is_deletion = write.verb == Verb::Delete;
        if !is_deletion && write.manager != MANAGER {
            return Ok(());
        }
        // Secrets hold content and certificates
        if OWN.contains(&write.resource.as_str()) || is_deletion && write.resource == "secrets" {
            return Ok(());
        }
        // a revision that releases an object is no owner afterwards
        let states = [&write.before, &write.after].into_iter().flatten();
        let revisions = states.flat_map(|object| owners(object, "ClusterObjectSet"));
        let extensions = revisions.filter_map(|revision| self.owners.get(revision));
        let users = extensions.flatten().filter_map(|extension| self.users.get(extension)).flatten();
        let mut any = users.clone();
        if any.next().is_none() || users.clone().any(|user| *user == write.impersonated) {
            return Ok(());
        }
        let is_gone = |user: &String| {
            let since = self.deleted_accounts.get(user);
            since.is_some_and(|since| since.is_none_or(|since| write.at < since + ACCOUNT_CACHE))
        };
        if (is_deletion || releases(write)) && write.impersonated.is_none() && users.flatten().any(is_gone) {
            return Ok(());
        }
        Err(format!("written as {:?}, which is not its account", write.impersonated))
    }

    /// An operator goes after the custom resources that it has to finalize.
    fn outlives_custom_resources(&self, write: &Write, server: &ApiServer) -> Result<(), String> {
        let Some(Expected::Removed { at }) = self.expected.get(write.name.as_str()) else { return Ok(()) };
        let waiting = server.list(&format!("{}s", write.name));
        if waiting.is_empty() || write.at >= *at + CUSTOM_RESOURCE_WAIT {
            return Ok(());
        }
        Err(format!("{} custom resources wait for this operator", waiting.len()))
    }

    /// Whether there are extensions of whose objects no state is expected.
    pub fn has_unjudged(&self) -> bool {
        let is_judged =
            |expected: &Expected| matches!(expected, Expected::Installed { .. } | Expected::Removed { .. });
        !self.expected.values().all(is_judged)
    }

    /// Whether a service account was deleted at any time.
    pub fn has_deleted_accounts(&self) -> bool {
        !self.deleted_accounts.is_empty()
    }

    /// Whether the cluster is as the user wants it.
    pub fn converged(&self, server: &ApiServer, content: &Content) -> Result<(), String> {
        for (package, expected) in &self.expected {
            match expected {
                Expected::Nothing => {}
                Expected::Installed { version } => installed(server, content, package, version)
                    .map_err(|problem| format!("{problem}{}", newest_state(server, package)))?,
                Expected::Removed { .. } => removed(server, package)?,
                Expected::Left { .. } => left(server, package)?,
                Expected::Blocked { .. } => blocked(server, package)?,
            }
        }
        for rival in PACKAGES.map(rival) {
            removed(server, &rival)?;
            if server.get("clusterobjectsets", None, &rival).is_some() {
                return Err(format!("ClusterObjectSet {rival} is still there"));
            }
        }
        let deleted = server.find(|resource, object| {
            let metadata = &object["metadata"];
            let is_deleted = !metadata["deletionTimestamp"].is_null();
            is_deleted.then(|| format!("{resource} {} is still being deleted", metadata["name"]))
        });
        deleted.map_or(Ok(()), Err)
    }
}

/// Logs a write with the status that the object has then.
pub fn trace(write: &Write) {
    let status = || write.after.as_ref().map(|object| object["status"].to_string());
    tracing::trace!(version = write.version, status = status(), "{}", describe(write));
}

/// One change in words.
pub fn describe(write: &Write) -> String {
    let Write { process, verb, resource, subresource, name, .. } = write;
    let namespace = write.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{process} {verb:?} {resource} {namespace}{name} {subresource}")
}

/// Whether a revision owned the object before, and does not afterwards.
fn releases(write: &Write) -> bool {
    let (Some(before), Some(after)) = (&write.before, &write.after) else { return false };
    let mut owners_before = owners(before, "ClusterObjectSet");
    owners_before.any(|before| owners(after, "ClusterObjectSet").all(|after| after != before))
}

/// The fields that a change has changed, but those of the apiserver's own records.
pub fn changed_fields(write: &Write) -> String {
    let mut fields = Vec::new();
    if let (Some(before), Some(after)) = (&write.before, &write.after) {
        collect_changes("", before, after, &mut fields);
    }
    fields.join(", ")
}

fn collect_changes(path: &str, before: &Value, after: &Value, fields: &mut Vec<String>) {
    if before == after || ["/metadata/managedFields", "/metadata/resourceVersion"].contains(&path) {
        return;
    }
    let members = |value: &Value| -> BTreeMap<String, Value> {
        match value {
            Value::Object(map) => map.clone().into_iter().collect(),
            Value::Array(list) => {
                list.iter().enumerate().map(|(at, item)| (at.to_string(), item.clone())).collect()
            }
            _ => BTreeMap::new(),
        }
    };
    let (old, new) = (members(before), members(after));
    if old.is_empty() || new.is_empty() {
        return fields.push(format!("{path} from {before} to {after}"));
    }
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (old.get(name).unwrap_or(&Value::Null), new.get(name).unwrap_or(&Value::Null));
        collect_changes(&format!("{path}/{name}"), old, new, fields);
    }
}

/// Whether an object is gone or being deleted from this change on.
pub(crate) fn deletion_begins(write: &Write) -> bool {
    let is_going = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    match (&write.before, &write.after) {
        (Some(_), None) => true,
        (Some(before), Some(after)) => is_going(after) && !is_going(before),
        (None, _) => false,
    }
}

/// What carries the label of an extension is not given that of another one: its objects have to be deleted first.
fn stays_with_its_extension(before: &Value, after: Option<&Value>) -> Result<(), String> {
    match (extension_label(before), after.and_then(extension_label)) {
        (Some(of), Some(other)) if of != other => Err(format!("it is of {of}, and {other} takes it")),
        _ => Ok(()),
    }
}

fn extension_label(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][labels::OWNER_NAME].as_str()
}

fn is_owned(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_ours = |owner: &Value| owner["kind"] == "ClusterObjectSet" || owner["kind"] == "ClusterExtension";
    !metadata["labels"][labels::OWNER_NAME].is_null() || owners.iter().any(is_ours)
}

/// The revisions of an extension, ascending.
pub fn revisions(server: &ApiServer, extension: &str) -> Vec<Arc<Value>> {
    let mut found = server.list("clusterobjectsets");
    found.retain(|set| set["metadata"]["labels"][labels::OWNER_NAME] == extension);
    found.sort_by_key(|set| set["spec"]["revision"].as_i64());
    found
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

fn require(object: &Value, type_: &str, status: &str) -> Result<(), String> {
    let found = condition(object, type_);
    if found.is_some_and(|found| found["status"] == status) {
        return Ok(());
    }
    let text =
        found.map_or("absent".to_owned(), |found| format!("{}, {}", found["status"], found["message"]));
    Err(format!("{} {}: {type_} is {text}", object["kind"], object["metadata"]["name"]))
}

/// What the newest revision of an extension reports.
fn newest_state(server: &ApiServer, package: &str) -> String {
    let Some(newest) = revisions(server, package).pop() else { return String::new() };
    let conditions = newest["status"]["conditions"].as_array().into_iter().flatten();
    let text = |found: &Value| {
        let message = found["message"].as_str().unwrap_or_default().lines().next().unwrap_or_default();
        format!("; {} {}: {message}", newest["metadata"]["name"], found["type"])
    };
    conditions.map(text).collect()
}

fn installed(server: &ApiServer, content: &Content, package: &str, version: &str) -> Result<(), String> {
    let extension = server.get("clusterextensions", None, package);
    let extension = extension.ok_or_else(|| format!("extension {package} is not there"))?;
    if server.get("customresourcedefinitions", None, MONITORS).is_none() {
        if require(&extension, "Ready", "True").is_ok() {
            return Err(format!("extension {package} is ready, and one of its kinds is not served"));
        }
        let conditions = extension["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        if !messages.any(|message| message.contains("no matches for kind \"ServiceMonitor\"")) {
            return Err(format!("extension {package} does not report the kind that is not served"));
        }
        return match revisions(server, package).pop() {
            Some(set) if set["metadata"]["annotations"][annotations::BUNDLE_VERSION] == version => Ok(()),
            _ => Err(format!("extension {package} has no revision of {version}")),
        };
    }
    require(&extension, "Progressing", "True")?;
    require(&extension, "Installed", "True")?;
    require(&extension, "Ready", "True")?;
    // whether a package is deprecated is unknown until its catalog has been read again
    let mut conditions = extension["status"]["conditions"].as_array().into_iter().flatten();
    if let Some(unknown) = conditions.find(|condition| condition["status"] == "Unknown") {
        return Err(format!("extension {package}: {} is Unknown", unknown["type"]));
    }
    let found = &extension["status"]["install"]["bundle"]["version"];
    if found != version {
        return Err(format!("extension {package}: {found} is installed, not {version}"));
    }
    let sets = revisions(server, package);
    let (Some(newest), older) = (sets.last(), &sets[..sets.len().saturating_sub(1)]) else {
        return Err(format!("extension {package} has no revision"));
    };
    require(newest, "Succeeded", "True")?;
    require(newest, "Available", "True")?;
    if let Some(active) = older.iter().find(|set| set["spec"]["lifecycleState"] != "Archived") {
        return Err(format!("revision {} is not archived", active["metadata"]["name"]));
    }
    let is_archiving =
        |set: &&Arc<Value>| set["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    if let Some(archiving) = older.iter().find(is_archiving) {
        return Err(format!("revision {} is still being archived", archiving["metadata"]["name"]));
    }
    for object in content.objects(package, version) {
        let key = object.key();
        let live = server.get(&plural(&key.kind), key.namespace.as_deref(), &key.name);
        let live = live.ok_or_else(|| format!("{} {} is not there", key.kind, key.name))?;
        for (field, want) in &object.0 {
            if field != "status" && !contains(&live[field], want) {
                return Err(format!("{} {}: {field} is {}, not {want}", key.kind, key.name, live[field]));
            }
        }
        if live["metadata"]["labels"][labels::OWNER_NAME] != package {
            return Err(format!("{} {} lacks the label of its extension", key.kind, key.name));
        }
    }
    let allowed =
        |name: &str| content.objects(package, version).iter().any(|object| object.key().name == name);
    for config in server.list("configmaps") {
        let (name, of) = (&config["metadata"]["name"], &config["metadata"]["labels"][labels::OWNER_NAME]);
        if of == package && !name.as_str().is_some_and(allowed) {
            return Err(format!("ConfigMap {name} of another version is still there"));
        }
    }
    Ok(())
}

fn removed(server: &ApiServer, package: &str) -> Result<(), String> {
    let left = server.find(|resource, object| {
        let metadata = &object["metadata"];
        let is_extension = resource == "clusterextensions" && metadata["name"] == package;
        let is_custom = resource.strip_suffix('s') == Some(package);
        let is_left = is_extension || is_custom || metadata["labels"][labels::OWNER_NAME] == package;
        is_left.then(|| {
            format!("{resource} {} of the removed extension {package} is still there", metadata["name"])
        })
    });
    left.map_or(Ok(()), Err)
}

fn left(server: &ApiServer, package: &str) -> Result<(), String> {
    match server.get("clusterextensions", None, package) {
        Some(_) => Err(format!("extension {package} is still there")),
        None => Ok(()),
    }
}

fn blocked(server: &ApiServer, package: &str) -> Result<(), String> {
    match server.get("clusterextensions", None, package) {
        Some(extension) if require(&extension, "Installed", "True").is_err() => Ok(()),
        Some(_) => Err(format!("extension {package} is installed over the objects of another one")),
        None => Err(format!("extension {package} is not there")),
    }
}

/// UIDs of the owners of a kind.
fn owners<'a>(object: &'a Value, kind: &'static str) -> impl Iterator<Item = &'a str> + Clone {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter(move |owner| owner["kind"] == kind).filter_map(|owner| owner["uid"].as_str())
}

/// The plural name of a kind that bundles contain.
pub fn plural(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

/// Whether everything in `want` is in `live`.
fn contains(live: &Value, want: &Value) -> bool {
    match (live, want) {
        (Value::Object(live), Value::Object(want)) => want
            .iter()
            .all(|(key, want)| want.is_null() || live.get(key).is_some_and(|live| contains(live, want))),
        (Value::Array(live), Value::Array(want)) => {
            live.len() == want.len() && live.iter().zip(want).all(|(live, want)| contains(live, want))
        }
        (Value::Null, Value::Object(want)) => want.is_empty(),
        (Value::Null, Value::Array(want)) => want.is_empty(),
        _ => live == want,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A creation by a process of the controllers.
    fn creation(resource: &str, object: Value, user: Option<&str>) -> Write {
        Write {
            sent: Duration::ZERO,
            at: Duration::ZERO,
            process: format!("{PROCESS}0-1"),
            impersonated: user.map(str::to_owned),
            manager: MANAGER.to_owned(),
            verb: Verb::Create,
            subresource: String::new(),
            resource: resource.to_owned(),
            api_version: String::new(),
            kind: String::new(),
            namespace: None,
            name: String::new(),
            before: None,
            after: Some(object.into()),
            version: 1,
        }
    }

    /// The deletion of what was created, by the same user.
    fn deletion(creation: &Write) -> Write {
        let (before, after) = (creation.after.clone(), None);
        Write { verb: Verb::Delete, manager: String::new(), before, after, ..creation.clone() }
    }

    #[test]
    fn identity_follows_the_owners_of_a_revision() {
        let owned = |uid: &str, kind: &str, owner: &str| json!({"metadata": {"uid": uid, "ownerReferences": [{"kind": kind, "uid": owner}]}});
        let mut invariants = Invariants::default();
        for (uid, account) in [("e1", json!({"name": "a"})), ("e2", Value::Null)] {
            let spec = json!({"namespace": "n", "serviceAccount": account});
            let extension = json!({"metadata": {"uid": uid}, "spec": spec});
            invariants.record(&creation("clusterextensions", extension, None));
        }
        for (revision, extension) in [("r1", "e1"), ("r2", "e2"), ("r3", "e1"), ("r3", "e2")] {
            let set = owned(revision, "ClusterExtension", extension);
            invariants.record(&creation("clusterobjectsets", set, None));
        }
        let account = Some("system:serviceaccount:n:a");
        for (revision, user, holds) in [
            ("r1", account, true),
            ("r1", None, false),
            ("r1", Some("system:serviceaccount:n:b"), false),
            ("r2", None, true),
            ("r2", account, false),
            ("r3", None, true),
            ("r3", account, true),
            ("unknown", None, true),
        ] {
            let write = creation("configmaps", owned("c", "ClusterObjectSet", revision), user);
            for write in [deletion(&write), write] {
                let found = invariants.is_written_as_its_account(&write).is_ok();
                assert_eq!(found, holds, "{revision} {user:?} {:?}", write.verb);
            }
        }
        // the account goes, and comes again
        let account = creation("serviceaccounts", json!({"metadata": {"name": "a", "namespace": "n"}}), None);
        let created = creation("configmaps", owned("c", "ClusterObjectSet", "r1"), None);
        for (case, account, seconds, may_delete) in [
            ("it was never deleted", account.clone(), 0, false),
            ("it is gone", deletion(&account), 100, true),
            ("it is there again, and was looked for before", account.clone(), 1, true),
            ("it is there again", account, 100, false),
        ] {
            invariants.record(&account);
            let later = |write: Write| Write { at: Duration::from_secs(seconds), ..write };
            let holds = |write| invariants.is_written_as_its_account(&later(write)).is_ok();
            assert_eq!((holds(created.clone()), holds(deletion(&created))), (false, may_delete), "{case}");
        }
    }

    #[test]
    fn objects_stay_with_the_extension_of_their_label() {
        let of = |name: Value| json!({"metadata": {"labels": {(labels::OWNER_NAME): name}}});
        for (before, after, holds) in [
            (json!("a"), Some(json!("a")), true),
            (json!("a"), Some(json!("b")), false),
            (json!("a"), Some(Value::Null), true),
            (Value::Null, Some(json!("b")), true),
            (json!("a"), None, true),
        ] {
            let (before, after) = (of(before), after.map(of));
            let found = stays_with_its_extension(&before, after.as_ref());
            assert_eq!(found.is_ok(), holds, "{before} {after:?}");
        }
    }

    #[test]
    fn contains_ignores_other_fields() {
        for (live, want, holds) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!([{"a": 1, "b": 2}]), json!([{"a": 1}]), true),
            (json!([1, 2]), json!([1]), false),
            (Value::Null, json!({}), true),
        ] {
            assert_eq!(contains(&live, &want), holds, "{live} {want}");
        }
    }
}
