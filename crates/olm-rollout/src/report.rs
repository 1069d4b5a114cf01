//! The reasons why an object may not be changed, as text for a condition.
//!
//! Rule: revisions §9.3. The first line names the owner of the object and what to do; the report follows as details, which are limited,
//! so that a status never becomes too large to be written (decision 33).

use std::collections::BTreeMap;

use olm_core::{Object, message};
use serde_json::{Map, Value, json};

use crate::applied::{is_identity, our_entry, unowned};
use crate::desired::{OwnerRef, Revision, adopting, controller_of, owner_refs};
use crate::fields::{self, PathSet, Step, entries, owns, print_step};
use crate::keys;
use crate::probe::{NO_CONDITIONS, NULL_CONDITIONS, OUTDATED};

/// Field paths that are listed in one section, at most.
pub const MAX_PATHS: usize = 100;

/// Why the adoption of one object is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// Whose it is.
    summary: String,
    /// What makes it another's: one line each.
    report: String,
}

/// The report on one object whose adoption is refused.
pub fn collision(content: &Object, live: &Object, revision: &Revision) -> Collision {
    let desired = adopting(content, revision, live);
    let mut text = format!("Object {}\n", title(content));
    let owner = controller_of(live);
    if let Some(owner) = &owner {
        text.push_str(&format!("Conflicting Owner: {} {}\n", owner.kind, owner.name));
    } else if let (Some(_), Some(extension), None) =
        (lost_with(content), &revision.extension, classic_owner(live))
    {
        text.push_str(&takeover(content, extension));
    }
    let managers = conflicts(&desired, live);
    if !managers.is_empty() {
        text.push_str("Conflicts:\n");
        for (manager, paths) in managers {
            text.push_str(&format!("- {manager:?}\n"));
            push_paths(&mut text, &paths);
        }
    }
    if our_entry(live).is_some() {
        let alone = crate::desired::desired(content, revision);
        let comparison = compare(&alone, live);
        if comparison.iter().any(|(_, paths)| !paths.is_empty()) {
            text.push_str("Comparison:\n");
            for (section, paths) in &comparison {
                if !paths.is_empty() {
                    text.push_str(&format!("- {section}:\n"));
                    push_paths(&mut text, paths);
                }
            }
        }
    }
    Collision { summary: summary(content, live, owner.as_ref(), revision), report: text }
}

/// Who has the object, and what to do about it.
fn summary(content: &Object, live: &Object, owner: Option<&OwnerRef>, revision: &Revision) -> String {
    let place = content.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let object = format!("{} {place}{}", content.kind(), content.name());
    if let Some(csv) = classic_owner(live) {
        return format!(
            "{object} belongs to ClusterServiceVersion {csv} of OLM Classic; uninstall one of the two"
        );
    }
    match owner {
        None => {
            let remedy = match (lost_with(content), &revision.extension) {
                (Some(lost), Some(_)) => {
                    format!("deleting it deletes {lost}, the commands below have it taken over")
                }
                (Some(lost), None) => format!("deleting it deletes {lost}"),
                (None, _) => "delete it, and it is created".to_owned(),
            };
            format!("{object} exists already and is not managed by OLM; {remedy}")
        }
        Some(owner) if owner.kind == keys::OBJECT_SET => match live.labels().get(keys::OWNER_NAME) {
            Some(extension) => {
                format!("{object} belongs to ClusterExtension {extension}; uninstall one of the two")
            }
            None => format!("{object} belongs to {} {}; delete one of the two", owner.kind, owner.name),
        },
        Some(OwnerRef { kind, name, .. }) => {
            format!("{object} belongs to {kind} {name}; remove that, or its owner reference from the object")
        }
    }
}

/// What a user would lose with an object of this kind.
fn lost_with(object: &Object) -> Option<&'static str> {
    match (object.group(), object.kind()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Some("its custom resources"),
        ("", "Namespace") => Some("all that is in it"),
        ("", "PersistentVolumeClaim" | "PersistentVolume") => Some("its data"),
        _ => None,
    }
}

/// The commands that mark an object without owner as one that an earlier revision of the extension left. One that was kept when another
/// extension was deleted has the name of that.
fn takeover(object: &Object, extension: &str) -> String {
    let namespace = object.namespace().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    let object = format!("{} {}{namespace}", object.kind().to_lowercase(), object.name());
    format!(
        "- kubectl label --overwrite {object} {}={} {}={extension}\n- kubectl annotate --overwrite {object} {}=0\n",
        keys::OWNER_KIND,
        keys::OWNER_KIND_VALUE,
        keys::OWNER_NAME,
        keys::REVISION
    )
}

/// The ClusterServiceVersion that has the object, as `namespace/name`: by an owner reference, which is never a controller's, by labels on
/// objects without a namespace, or by the annotation of definitions.
fn classic_owner(live: &Object) -> Option<String> {
    const KIND: &str = "ClusterServiceVersion";
    let labels = live.labels();
    let label = |key: &str| labels.get(key).copied();
    let by_reference = || {
        let owner = owner_refs(live).into_iter().find(|owner| owner.kind == KIND)?;
        Some(format!("{}/{}", live.namespace()?, owner.name))
    };
    let by_label = || {
        label("olm.owner.kind").filter(|kind| *kind == KIND)?;
        Some(format!("{}/{}", label("olm.owner.namespace")?, label("olm.owner")?))
    };
    let by_annotation = || {
        let annotations = live.metadata()?.get("annotations")?.as_object()?;
        let alongside = |key: &String| key.starts_with("operatorframework.io/installed-alongside-");
        annotations.iter().find(|(key, _)| alongside(key))?.1.as_str().map(str::to_owned)
    };
    by_reference().or_else(by_label).or_else(by_annotation)
}

/// The condition text of a phase with collisions; `index` counts from 0.
pub fn collisions(index: usize, collisions: &[Collision]) -> String {
    let Some((first, others)) = collisions.split_first() else { return String::new() };
    let summary = match others.len() {
        0 => first.summary.clone(),
        1 => format!("{} (and 1 more object)", first.summary),
        more => format!("{} (and {more} more objects)", first.summary),
    };
    let phase = format!("revision object collisions in phase {index}");
    let reports = collisions.iter().flat_map(|collision| collision.report.lines());
    message::with_details(&summary, std::iter::once(phase.as_str()).chain(reports))
}

/// `<Kind>.<apiVersion> <namespace>/<name>`
pub fn title(object: &Object) -> String {
    format!(
        "{}.{} {}/{}",
        object.kind(),
        object.api_version(),
        object.namespace().unwrap_or_default(),
        object.name()
    )
}

/// Whether an object's line is about a status that its controller has not written since the object was.
pub fn is_lagging(line: &str) -> bool {
    [OUTDATED, NO_CONDITIONS, NULL_CONDITIONS].iter().any(|text| line.ends_with(text))
}

/// Why the pods of an object fail, from its line: behind the text of the probe, where the object or its pods report it.
pub fn cause(line: &str) -> Option<&str> {
    let (_, found) = line.strip_prefix("Object ")?.split_once(": ")?;
    let (_, cause) = found.split_once("; ")?;
    (!found.starts_with("error locating")).then_some(cause)
}

/// The line of an object that is not ready, as people write it: kind, namespace and name, and its cause where there is one.
///
/// `Object Deployment.apps/v1 n/x: .status.condition["Available"] is False; 0 of 1 …` becomes `Deployment n/x: 0 of 1 …`.
pub fn readable(line: &str) -> String {
    let parts = || {
        let (kind, rest) = line.strip_prefix("Object ")?.split_once('.')?;
        let (_, rest) = rest.split_once(' ')?;
        let (name, found) = rest.split_once(": ")?;
        Some((kind, name.trim_start_matches('/'), found))
    };
    let Some((kind, name, found)) = parts() else { return line.to_owned() };
    let words = match cause(line).unwrap_or(found) {
        r#".status.condition["Available"] is False"# => "is not available",
        NO_CONDITIONS | NULL_CONDITIONS => "has no conditions yet",
        OUTDATED => "is not yet observed by its controller",
        cause => return format!("{kind} {name}: {cause}"),
    };
    format!("{kind} {name} {words}")
}

fn push_paths(text: &mut String, paths: &PathSet) {
    for path in paths.print(MAX_PATHS) {
        text.push_str(&format!("  {path}\n"));
    }
}

fn printed(path: &[String]) -> Vec<String> {
    path.iter().map(|key| print_step(key)).filter(|step| !step.is_empty()).collect()
}

/// Other managers that own fields that we apply. Without bookkeeping of ours, all that they share with the desired object.
fn conflicts(desired: &Object, live: &Object) -> BTreeMap<String, PathSet> {
    let ours = our_entry(live);
    let missing = unowned(desired, live);
    let mut managers: BTreeMap<String, PathSet> = BTreeMap::new();
    for entry in entries(live) {
        if ours.is_some_and(|ours| std::ptr::eq(ours.fields, entry.fields)) {
            continue;
        }
        let mut shared = vec![];
        if ours.is_some() {
            shared.extend(missing.iter().filter(|path| owns(entry.fields, path)).cloned());
        } else {
            intersect(entry.fields, &Value::Object(desired.0.clone()), &mut vec![], &mut shared);
        }
        for path in shared {
            managers.entry(entry.manager.to_owned()).or_default().insert(&printed(&path));
        }
    }
    managers
}

/// Leaves of a field set that the desired object has too.
fn intersect(
    fields: &Map<String, Value>,
    desired: &Value,
    path: &mut Vec<String>,
    out: &mut Vec<Vec<String>>,
) {
    for (key, below) in fields {
        let Some(found) = fields::below(&Step::parse(key), desired) else { continue };
        path.push(key.clone());
        let names: Vec<&str> = path.iter().filter_map(|key| key.strip_prefix("f:")).collect();
        if names.len() != path.len() || !is_identity(&names) {
            match below.as_object() {
                Some(below) if !below.is_empty() => intersect(below, found, path, out),
                _ => out.push(path.clone()),
            }
        }
        path.pop();
    }
}

/// Fields only live has, fields that differ, fields only the desired object has.
fn compare(desired: &Object, live: &Object) -> [(&'static str, PathSet); 3] {
    let mut known = Value::Object(Map::new());
    for entry in entries(live) {
        merge_keys(&mut known, entry.fields);
    }
    let mut sections =
        [("Added", PathSet::default()), ("Modified", PathSet::default()), ("Removed", PathSet::default())];
    let mut compare = Compare { sections: &mut sections, path: vec![] };
    compare.object(&desired.0, &live.0, &known);
    sections
}

fn merge_keys(into: &mut Value, fields: &Map<String, Value>) {
    let Some(members) = into.as_object_mut() else { return };
    for (key, below) in fields {
        let child = members.entry(key.clone()).or_insert_with(|| json!({}));
        if let Some(below) = below.as_object() {
            merge_keys(child, below);
        }
    }
}

struct Compare<'a> {
    sections: &'a mut [(&'static str, PathSet); 3],
    path: Vec<String>,
}

impl Compare<'_> {
    fn object(&mut self, desired: &Map<String, Value>, live: &Map<String, Value>, known: &Value) {
        let names: std::collections::BTreeSet<&String> = desired.keys().chain(live.keys()).collect();
        for name in names {
            let key = format!("f:{name}");
            self.path.push(format!(".{name}"));
            let plain: Vec<&str> = self.path.iter().map(|step| step.trim_start_matches('.')).collect();
            if !is_identity(&plain) {
                let below = known.get(&key).cloned().unwrap_or_else(|| json!({}));
                self.pair(desired.get(name), live.get(name), &below);
            }
            self.path.pop();
        }
    }

    fn pair(&mut self, desired: Option<&Value>, live: Option<&Value>, known: &Value) {
        let keyed = known.as_object().is_some_and(|known| known.keys().any(|key| key.starts_with("k:")));
        let atomic = known.as_object().is_some_and(Map::is_empty);
        match (desired, live) {
            (Some(desired), Some(live)) if desired == live => {}
            (Some(Value::Object(desired)), Some(Value::Object(live))) if !atomic => {
                self.object(desired, live, known)
            }
            (Some(Value::Array(desired)), Some(Value::Array(live))) if keyed => {
                self.list(desired, live, known)
            }
            (Some(_), Some(_)) => self.record(1),
            (None, Some(Value::Object(live))) if !atomic && !live.is_empty() => {
                self.object(&Map::new(), live, known)
            }
            (None, Some(_)) => self.record(0),
            (Some(Value::Object(desired)), None) if !atomic && !desired.is_empty() => {
                self.object(desired, &Map::new(), known)
            }
            (Some(_), None) => self.record(2),
            (None, None) => {}
        }
    }

    /// Lists keyed as in the known field sets; the items' own key names are taken from the first of them.
    fn list(&mut self, desired: &[Value], live: &[Value], known: &Value) {
        let Some((keys, below)) = known.as_object().and_then(|known| {
            known.iter().find_map(|(key, below)| match Step::parse(key) {
                Step::Item(keys) => Some((keys, below)),
                _ => None,
            })
        }) else {
            return self.record(1);
        };
        let key_of = |value: &Value| -> Map<String, Value> {
            keys.keys().filter_map(|key| Some((key.clone(), value.get(key)?.clone()))).collect()
        };
        for value in desired {
            let key = key_of(value);
            let other = live.iter().find(|live| key_of(live) == key);
            self.item(&key, Some(value), other, below);
        }
        for value in live {
            let key = key_of(value);
            if !desired.iter().any(|desired| key_of(desired) == key) {
                self.item(&key, None, Some(value), below);
            }
        }
    }

    fn item(
        &mut self,
        key: &Map<String, Value>,
        desired: Option<&Value>,
        live: Option<&Value>,
        known: &Value,
    ) {
        let json = olm_core::go::json_string(&Value::Object(key.clone()));
        self.path.push(print_step(&format!("k:{json}")));
        self.pair(desired, live, known);
        self.path.pop();
    }

    fn record(&mut self, section: usize) {
        if let Some((_, paths)) = self.sections.get_mut(section) {
            paths.insert(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::test_revision;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn report_of_a_foreign_object_without_owner() {
        let content = object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"version": "1"}}),
        );
        let live = object(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"mine": "yes"},
            "metadata": {"name": "c", "namespace": "n", "managedFields": [
                {"manager": "lab-user", "operation": "Apply", "fieldsV1": {"f:data": {"f:mine": {}}}},
            ]},
        }));
        assert_eq!(
            collisions(1, &[collision(&content, &live, &test_revision())]),
            "ConfigMap n/c exists already and is not managed by OLM; delete it, and it is created\n\
             revision object collisions in phase 1\nObject ConfigMap.v1 n/c"
        );
    }

    /// As a CRD that was kept when its extension was deleted: a user who deletes it loses what was kept.
    #[test]
    fn report_names_what_goes_with_an_object() {
        let lines = |kind: &str, metadata: Value, extension: Option<&str>| {
            let group = if kind == "CustomResourceDefinition" { "apiextensions.k8s.io/" } else { "" };
            let content =
                object(json!({"apiVersion": format!("{group}v1"), "kind": kind, "metadata": metadata}));
            let revision = Revision { extension: extension.map(str::to_owned), ..test_revision() };
            collisions(0, &[collision(&content, &content, &revision)])
        };
        let (crd, name) = ("CustomResourceDefinition", json!({"name": "ks.g"}));
        let head = "exists already and is not managed by OLM; deleting it deletes";
        let labels = "olm.operatorframework.io/owner-kind=ClusterExtension \
                      olm.operatorframework.io/owner-name=e";
        let mark = "olm.operatorframework.io/revision=0";
        assert_eq!(
            lines(crd, name.clone(), Some("e")),
            format!(
                "{crd} ks.g {head} its custom resources, the commands below have it taken over\n\
                 revision object collisions in phase 0\nObject {crd}.apiextensions.k8s.io/v1 /ks.g\n\
                 - kubectl label --overwrite customresourcedefinition ks.g {labels}\n\
                 - kubectl annotate --overwrite customresourcedefinition ks.g {mark}"
            )
        );
        let claim = lines("PersistentVolumeClaim", json!({"name": "c", "namespace": "n"}), Some("e"));
        assert!(claim.starts_with(&format!("PersistentVolumeClaim n/c {head} its data, ")), "{claim}");
        assert!(
            claim.contains(&format!("- kubectl annotate --overwrite persistentvolumeclaim c -n n {mark}")),
            "{claim}"
        );
        let by_hand = lines(crd, name, None);
        assert!(by_hand.starts_with(&format!("{crd} ks.g {head} its custom resources\n")), "{by_hand}");
        assert!(!by_hand.contains("kubectl"), "{by_hand}");
    }

    /// As recorded in the scenario crd-foreign.
    #[test]
    fn report_of_a_foreign_crd_names_the_managers() {
        let spec = json!({"group": "g", "scope": "Namespaced", "versions": [{"name": "v1"}],
                          "names": {"kind": "K", "listKind": "KList", "plural": "ks", "singular": "k"}});
        let content =
            object(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                                    "metadata": {"name": "ks.g"}, "spec": spec}));
        let mut live = content.clone();
        live.metadata_mut().insert(
            "managedFields".into(),
            json!([
                {"manager": "kube-apiserver", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:conditions": {}}}},
                {"manager": "lab-user", "operation": "Apply", "fieldsV1": {"f:spec": {
                    "f:group": {}, "f:scope": {}, "f:versions": {},
                    "f:names": {"f:kind": {}, "f:listKind": {}, "f:plural": {}, "f:singular": {}}}}},
            ]),
        );
        insta::assert_snapshot!(collision(&content, &live, &test_revision()).report);
    }

    /// As recorded in the scenario own-two-ce.
    #[test]
    fn report_of_an_object_of_another_extension_compares_it() {
        let content = object(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "sa", "namespace": "n", "labels": {"olm.operatorframework.io/owner-name": "e"}},
        }));
        let live = object(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {
                "name": "sa", "namespace": "n", "uid": "z", "resourceVersion": "1", "creationTimestamp": "t",
                "labels": {"olm.operatorframework.io/owner-name": "other", "app.kubernetes.io/managed-by": "olm.operatorframework.io"},
                "annotations": {"olm.operatorframework.io/revision": "2"},
                "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "other-2",
                                     "uid": "u9", "controller": true, "blockOwnerDeletion": true}],
                "managedFields": [{"manager": "olm.operatorframework.io", "operation": "Apply", "fieldsV1": {"f:metadata": {
                    "f:labels": {"f:olm.operatorframework.io/owner-name": {}, "f:app.kubernetes.io/managed-by": {}},
                    "f:annotations": {"f:olm.operatorframework.io/revision": {}},
                    "f:ownerReferences": {"k:{\"uid\":\"u9\"}": {}},
                }}}],
            },
        }));
        let found = collision(&content, &live, &test_revision());
        assert_eq!(
            collisions(0, &[found.clone(), found.clone()]).lines().next(),
            Some(
                "ServiceAccount n/sa belongs to ClusterExtension other; uninstall one of the two (and 1 more object)"
            )
        );
        insta::assert_snapshot!(found.report);
    }

    #[test]
    fn report_names_the_csv_of_olm_classic() {
        let content = |kind: &str, namespace: Option<&str>| {
            let mut metadata = json!({"name": "a"});
            if let Some(namespace) = namespace {
                metadata["namespace"] = namespace.into();
            }
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
        };
        let owner = json!([{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "p.v1", "uid": "u",
            "controller": false}]);
        let labels = json!({"olm.owner": "p.v1", "olm.owner.kind": "ClusterServiceVersion", "olm.owner.namespace": "n"});
        let alongside = json!({"operatorframework.io/installed-alongside-1f": "n/p.v1"});
        for (kind, namespace, member, value) in [
            ("Deployment", Some("n"), "ownerReferences", owner),
            ("ClusterRole", None, "labels", labels),
            ("CustomResourceDefinition", None, "annotations", alongside),
        ] {
            let content = content(kind, namespace);
            let mut live = content.clone();
            live["metadata"][member] = value;
            let found = collision(&object(content), &object(live), &test_revision());
            let text = collisions(0, &[found]);
            let want = "belongs to ClusterServiceVersion n/p.v1 of OLM Classic; uninstall one of the two";
            assert!(text.lines().next().is_some_and(|line| line.contains(want)), "{text}");
        }
    }

    #[test]
    fn report_line_of_an_object_is_readable() {
        for (line, want) in [
            (
                "Object Deployment.apps/v1 t1/x: .status.condition[\"Available\"] is False; 0 of 1 replicas available: pod x-abc: container \
                 manager: CrashLoopBackOff (exit code 1, OOMKilled)",
                "Deployment t1/x: 0 of 1 replicas available: pod x-abc: container manager: CrashLoopBackOff (exit code 1, OOMKilled)",
            ),
            (
                "Object Deployment.apps/v1 t1/x: .status.condition[\"Available\"] is False",
                "Deployment t1/x is not available",
            ),
            (
                "Object Deployment.apps/v1 t1/x: .status.condition[\"Available\"] is False; FailedCreate: exceeded quota: q",
                "Deployment t1/x: FailedCreate: exceeded quota: q",
            ),
            (
                "Object Deployment.apps/v1 t1/x: missing .status.conditions",
                "Deployment t1/x has no conditions yet",
            ),
            (
                "Object CustomResourceDefinition.apiextensions.k8s.io/v1 /a.b: .status outdated",
                "CustomResourceDefinition a.b is not yet observed by its controller",
            ),
            (
                "Object X.v1 n/x: error locating key \"a\"; not a map",
                "X n/x: error locating key \"a\"; not a map",
            ),
            ("something else", "something else"),
        ] {
            let has_cause = want.contains("replicas available: ") || want.contains("FailedCreate");
            assert_eq!(cause(line).is_some(), has_cause, "{line}");
            assert_eq!(readable(line), want);
        }
    }

    #[test]
    fn report_of_many_collisions_is_cut() {
        let one = Collision { summary: "Secret n/s is not ours".to_owned(), report: "x\n".repeat(1000) };
        let text = collisions(0, &vec![one; 50]);
        assert!(
            text.starts_with("Secret n/s is not ours (and 49 more objects)\nrevision object collisions"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1 + message::MAX_DETAILS);
        assert!(text.ends_with("\n… and 49992 more lines"), "{text}");
    }
}
