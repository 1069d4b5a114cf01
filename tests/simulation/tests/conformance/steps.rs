//! Generated request sequences.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

/// A kind that sequences use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    Deployment,
    Gadget,
    Extension,
}

pub(crate) const KINDS: [Kind; 5] =
    [Kind::ConfigMap, Kind::Secret, Kind::Deployment, Kind::Gadget, Kind::Extension];
const MANAGERS: [&str; 3] = ["one", "two", "three"];
const FINALIZERS: [&str; 2] = ["example.com/one", "example.com/two"];
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl Kind {
    fn type_meta(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("v1", "ConfigMap"),
            Self::Secret => ("v1", "Secret"),
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::Gadget => ("conformance.olm-rs.test/v1", "Gadget"),
            Self::Extension => ("olm.operatorframework.io/v1", "ClusterExtension"),
        }
    }

    /// The path of the collection.
    pub(crate) fn path(self, namespace: &str) -> String {
        match self {
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::Secret => format!("/api/v1/namespaces/{namespace}/secrets"),
            Self::Deployment => format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            Self::Gadget => format!("/apis/conformance.olm-rs.test/v1/namespaces/{namespace}/gadgets"),
            Self::Extension => "/apis/olm.operatorframework.io/v1/clusterextensions".to_owned(),
        }
    }

    fn has_status(self) -> bool {
        matches!(self, Self::Deployment | Self::Gadget)
    }
}

/// A request. Strings `$uid:PATH` and `$version:PATH` in the body stand for what the object at the path has then.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Value,
}

/// A sequence of requests for objects of one namespace.
pub(crate) struct Sequence<'a> {
    pub(crate) random: &'a mut StdRng,
    pub(crate) namespace: String,
    /// The kinds that this sequence uses: two of them.
    pub(crate) kinds: [Kind; 2],
}

impl Sequence<'_> {
    fn chance(&mut self, of: u32) -> bool {
        self.random.random_ratio(1, of)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())]
    }

    fn name(&mut self) -> String {
        let letter = self.pick(&["a", "b"]);
        format!("{}-{letter}", self.namespace)
    }

    /// An object that creates and updates may send.
    pub(crate) fn object(&mut self, kind: Kind, name: &str, is_apply: bool) -> Value {
        let (api_version, kind_name) = kind.type_meta();
        let mut meta = json!({"name": name});
        for field in ["labels", "annotations"] {
            if self.chance(2) {
                meta[field] = self.texts();
            }
        }
        if self.chance(6) {
            meta["finalizers"] = self.finalizers();
        }
        if self.chance(6) {
            meta["ownerReferences"] = self.owners();
        }
        let mut object = json!({"apiVersion": api_version, "kind": kind_name, "metadata": meta});
        self.content(kind, &mut object, is_apply);
        // the apiserver stores empty metadata of an applied custom resource until it is written again
        if is_apply && let Some(meta) = object["metadata"].as_object_mut() {
            meta.retain(|_, value| {
                value.as_array().is_none_or(|list| !list.is_empty())
                    && value.as_object().is_none_or(|map| !map.is_empty())
            });
        }
        object
    }

    fn texts(&mut self) -> Value {
        let mut map = Map::new();
        for key in ["x", "y", "z"] {
            if self.chance(2) {
                map.insert(key.to_owned(), self.pick(&["1", "2", ""]).into());
            }
        }
        Value::Object(map)
    }

    fn finalizers(&mut self) -> Value {
        let list: Vec<&str> = FINALIZERS.into_iter().filter(|_| self.chance(2)).collect();
        json!(list)
    }

    fn owners(&mut self) -> Value {
        let kind = self.kinds[0];
        let mut list = Vec::new();
        for letter in ["a", "b"] {
            if self.chance(2) {
                let name = format!("{}-{letter}", self.namespace);
                let (api_version, kind_name) = kind.type_meta();
                let mut owner = json!({"apiVersion": api_version, "kind": kind_name, "name": name,
                    "uid": format!("$uid:{}/{name}", kind.path(&self.namespace))});
                if self.chance(3) {
                    owner["blockOwnerDeletion"] = true.into();
                }
                list.push(owner);
            }
        }
        json!(list)
    }

    fn content(&mut self, kind: Kind, object: &mut Value, is_apply: bool) {
        match kind {
            Kind::ConfigMap => {
                if !self.chance(5) {
                    object["data"] = self.texts();
                }
            }
            Kind::Secret => {
                if !self.chance(5) {
                    let data = self.texts();
                    let encode = |text: &Value| if text == "" { json!("") } else { json!("MQ==") };
                    let data = data
                        .as_object()
                        .into_iter()
                        .flatten()
                        .map(|(key, value)| (key.clone(), encode(value)));
                    object["data"] = Value::Object(data.collect());
                }
                if !is_apply && self.chance(4) {
                    object["stringData"] = self.texts();
                }
            }
            Kind::Deployment => object["spec"] = self.deployment(),
            Kind::Gadget => object["spec"] = self.gadget(),
            Kind::Extension => object["spec"] = self.extension(),
        }
    }

    fn deployment(&mut self) -> Value {
        let mut containers = Vec::new();
        for name in ["main", "side"] {
            if name == "main" || self.chance(3) {
                let mut container =
                    json!({"name": name, "image": self.pick(&["r.example/a:1", "r.example/a:2"])});
                if self.chance(3) {
                    container["args"] = json!([self.pick(&["--a", "--b"])]);
                }
                if self.chance(3) {
                    let names = ["E", "F"].into_iter().filter(|_| self.chance(2)).collect::<Vec<_>>();
                    let value = self.pick(&["1", "2"]);
                    container["env"] =
                        names.iter().map(|name| json!({"name": name, "value": value})).collect();
                }
                if self.chance(4) {
                    container["ports"] = json!([{"containerPort": self.pick(&[80, 81])}]);
                }
                if self.chance(4) {
                    container["resources"] = json!({"requests": {"cpu": self.pick(&["1", "2"])}});
                }
                containers.push(container);
            }
        }
        if self.chance(4) {
            containers.reverse();
        }
        let mut spec = json!({"selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}});
        if self.chance(2) {
            spec["replicas"] = self.pick(&[1, 2, 3]).into();
        }
        if self.chance(5) {
            spec["template"]["spec"]["nodeSelector"] = self.texts();
        }
        if self.chance(5) {
            spec["strategy"] = json!({"type": "Recreate"});
        }
        spec
    }

    fn gadget(&mut self) -> Value {
        let mut spec = json!({});
        if self.chance(2) {
            spec["size"] = self.pick(&[1, 2]).into();
        }
        if self.chance(2) {
            spec["title"] = self.pick(&["p", "q"]).into();
        }
        if self.chance(3) {
            let tags: Vec<&str> = ["t", "u", "v"].into_iter().filter(|_| self.chance(2)).collect();
            spec["tags"] = json!(tags);
        }
        if self.chance(3) {
            spec["steps"] = json!([self.pick(&["s", "r"])]);
        }
        for field in ["options", "whole"] {
            if self.chance(3) {
                spec[field] = self.texts();
            }
        }
        if self.chance(4) {
            spec["free"] = json!({"deep": self.texts(), "list": [1, 2]});
        }
        if self.chance(3) {
            spec["nested"] = json!({"a": self.pick(&["1", "2"])});
        }
        if self.chance(2) {
            let mut parts = Vec::new();
            for name in ["k", "l", "m"] {
                if self.chance(2) {
                    let mut part = json!({"name": name});
                    if self.chance(2) {
                        part["count"] = self.pick(&[1, 2]).into();
                    }
                    if self.chance(2) {
                        part["note"] = self.pick(&["n", "o"]).into();
                    }
                    parts.push(part);
                }
            }
            if self.chance(3) {
                parts.reverse();
            }
            spec["parts"] = json!(parts);
        }
        spec
    }

    fn extension(&mut self) -> Value {
        let mut catalog = json!({"packageName": "demo"});
        if self.chance(2) {
            catalog["channels"] = json!([self.pick(&["stable", "beta"])]);
        }
        if self.chance(2) {
            catalog["version"] = self.pick(&["1.0.0", "1.x"]).into();
        }
        json!({"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": catalog}})
    }

    fn status(&mut self, kind: Kind) -> Value {
        if kind == Kind::Deployment {
            return json!({"observedGeneration": self.pick(&[1, 2]), "replicas": self.pick(&[1, 2]),
                "conditions": [{"type": self.pick(&["Available", "Progressing"]), "status": "True"}]});
        }
        json!({"phase": self.pick(&["Up", "Down"]),
            "conditions": [{"type": self.pick(&["Ready", "Synced"]), "status": self.pick(&["True", "False"])}]})
    }

    /// A strategic merge patch, with directives for lists and maps.
    fn strategic(&mut self, kind: Kind, name: &str, path: &str) -> Value {
        let mut patch = self.object(kind, name, true);
        if self.chance(2)
            && let Some(map) = patch.as_object_mut()
        {
            map.remove("spec");
        }
        let meta = &mut patch["metadata"];
        if self.chance(2) {
            meta["ownerReferences"] = self.owners();
        }
        for owner in meta["ownerReferences"].as_array_mut().into_iter().flatten() {
            if self.chance(4) {
                owner["$patch"] = "delete".into();
            }
        }
        match self.random.random_range(0..12) {
            0 => meta["labels"] = Value::Null,
            1 => meta["labels"] = json!({"x": null, "y": "2"}),
            2 => meta["annotations"] = json!({"$patch": "replace", "y": "2"}),
            3 => meta["annotations"] = json!({"$patch": "delete"}),
            4 | 5 => {
                let deleted = self.pick(&FINALIZERS);
                // if one patch adds and deletes an item, the apiserver does either first, by chance
                if let Some(added) = meta.get_mut("finalizers").and_then(Value::as_array_mut) {
                    added.retain(|finalizer| *finalizer != deleted);
                }
                meta["$deleteFromPrimitiveList/finalizers"] = json!([deleted]);
            }
            6 => meta["finalizers"] = json!([self.pick(&FINALIZERS)]),
            7 => meta["uid"] = format!("$uid:{path}").into(),
            8 => meta["uid"] = "00000000-0000-4000-8000-000000000000".into(),
            9 => meta["resourceVersion"] = self.pick(&["1", &format!("$version:{path}")]).into(),
            10 if matches!(kind, Kind::ConfigMap | Kind::Secret) => {
                patch["data"] = json!({"x": null, "y": ""})
            }
            11 => meta["ownerReferences"] = json!([{"$patch": "replace"}]),
            _ => {}
        }
        patch
    }

    /// The next request.
    pub(crate) fn step(&mut self) -> Step {
        let kind = self.pick(&self.kinds.clone());
        let name = self.name();
        let collection = kind.path(&self.namespace);
        let path = format!("{collection}/{name}");
        let manager = self.pick(&MANAGERS);
        let step = |method, path: &str, query: String, content_type, body| {
            let path = path.to_owned();
            Step { method, path, query, content_type, body }
        };
        let own = format!("fieldManager={manager}");
        match self.random.random_range(0..22) {
            0..=2 => step("POST", &collection, own, "application/json", self.object(kind, &name, false)),
            3..=5 => {
                let mut object = self.object(kind, &name, false);
                match self.random.random_range(0..8) {
                    0 => {}
                    1 => object["metadata"]["resourceVersion"] = "1".into(),
                    _ => object["metadata"]["resourceVersion"] = format!("$version:{path}").into(),
                }
                if self.chance(8) {
                    object["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
                }
                step("PUT", &path, own, "application/json", object)
            }
            6..=11 => {
                let force = if self.chance(2) { "&force=true" } else { "" };
                let mut object = self.object(kind, &name, true);
                if self.chance(8) {
                    object["metadata"]["resourceVersion"] = self.pick(&["1", "$"]).into();
                    if object["metadata"]["resourceVersion"] == "$" {
                        object["metadata"]["resourceVersion"] = format!("$version:{path}").into();
                    }
                }
                step("PATCH", &path, format!("{own}&force={}", !force.is_empty()), APPLY, object)
            }
            12..=14 => {
                let mut patch = self.object(kind, &name, true);
                let drops_metadata = self.chance(3);
                if let Some(map) = patch.as_object_mut() {
                    map.remove("apiVersion");
                    map.remove("kind");
                    if drops_metadata {
                        map.remove("metadata");
                    }
                }
                match self.random.random_range(0..6) {
                    0 => patch["metadata"]["labels"] = Value::Null,
                    1 => patch["metadata"]["finalizers"] = Value::Null,
                    2 => patch["metadata"]["resourceVersion"] = "1".into(),
                    _ => {}
                }
                step("PATCH", &path, own, MERGE, patch)
            }
            15 if kind.has_status() => {
                let patch = json!({"status": self.status(kind)});
                let status = format!("{path}/status");
                if self.chance(2) {
                    return step("PATCH", &status, own, MERGE, patch);
                }
                let (api_version, kind_name) = kind.type_meta();
                let applied = json!({"apiVersion": api_version, "kind": kind_name, "metadata": {"name": name}, "status": patch["status"]});
                step("PATCH", &status, format!("{own}&force={}", self.chance(2)), APPLY, applied)
            }
            16..=17 => {
                let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
                if let Some(policy) =
                    self.pick(&[None, Some("Background"), Some("Orphan"), Some("Foreground")])
                {
                    options["propagationPolicy"] = policy.into();
                }
                match self.random.random_range(0..6) {
                    0 => options["preconditions"] = json!({"uid": format!("$uid:{path}")}),
                    1 => options["preconditions"] = json!({"resourceVersion": format!("$version:{path}")}),
                    2 => options["preconditions"] = json!({"uid": "00000000-0000-4000-8000-000000000000"}),
                    3 => options["preconditions"] = json!({"resourceVersion": "1"}),
                    _ => {}
                }
                step("DELETE", &path, String::new(), "application/json", options)
            }
            18 => step("GET", &path, String::new(), "", Value::Null),
            19..=20 => step("PATCH", &path, own, STRATEGIC, self.strategic(kind, &name, &path)),
            _ if kind == Kind::Extension => step("GET", &path, String::new(), "", Value::Null),
            _ => {
                let query = self.pick(&["labelSelector=x%3D1", "labelSelector=%21x", "limit=1", ""]);
                step("GET", &collection, query.to_owned(), "", Value::Null)
            }
        }
    }
}
