//! Recorded scenarios: what was put into the cluster, and what the reference made of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::lab::{self, Names};

/// One scenario with its snapshots in the order in which they were taken.
pub(crate) struct Scenario {
    pub(crate) id: String,
    pub(crate) input: Value,
    /// Results of the steps.
    pub(crate) results: Vec<Value>,
    pub(crate) snapshots: Vec<Snapshot>,
    /// Whether an object of this key reached a phase, by the recorded trace.
    pub(crate) trace: Value,
}

pub(crate) struct Snapshot {
    pub(crate) name: String,
    /// How many steps ran before it.
    pub(crate) after: usize,
    pub(crate) objects: Vec<Value>,
}

pub(crate) fn load() -> Option<Vec<Scenario>> {
    Some(lab::records()?.into_iter().map(Scenario::new).collect())
}

impl Scenario {
    fn new(mut record: Value) -> Self {
        let id = record["id"].as_str().unwrap().to_owned();
        let input = Names { id: id.clone() }.substitute(&record["input"]);
        let steps = list(&input["steps"]);
        let outcome = record["outcome"].take();
        let snapshots = outcome["snapshots"].as_object().into_iter().flatten();
        let mut snapshots: Vec<Snapshot> = snapshots
            .map(|(name, content)| {
                let is_it = |step: &Value| step["snap"] == name.as_str();
                let after = steps.iter().position(is_it).unwrap_or(steps.len());
                Snapshot { name: name.clone(), after, objects: list(&content["objects"]) }
            })
            .collect();
        snapshots.sort_by_key(|snapshot| snapshot.after);
        Self { id, input, results: list(&outcome["steps"]), snapshots, trace: outcome["trace"].clone() }
    }

    /// Whether the CSV was Succeeded at some time. Names that occur in two namespaces share a trace.
    pub(crate) fn has_succeeded(&self, csv: &str) -> bool {
        let phases = list(&self.trace[format!("ClusterServiceVersion/{csv}")]);
        phases.iter().any(|phase| phase.as_str().is_some_and(|phase| phase.starts_with("Succeeded")))
    }

    /// The namespace of the scenario.
    pub(crate) fn namespace(&self) -> String {
        format!("c-{}", self.id)
    }

    /// Its namespaces with their labels.
    pub(crate) fn namespaces(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let labels = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
        let own = (self.namespace(), labels(&self.input["labels"]));
        let others = self.input["namespaces"].as_object().into_iter().flatten();
        let others = others.map(|(name, value)| (format!("{}-{name}", self.namespace()), labels(value)));
        std::iter::once(own).chain(others).collect()
    }

    /// The CSVs that were put into a namespace, or into a catalog, before the snapshot.
    pub(crate) fn csvs(&self, snapshot: &Snapshot) -> Csvs {
        let mut found = Csvs::default();
        let mut packages: BTreeMap<(String, String), Value> = BTreeMap::new();
        for (catalog, content) in self.input["catalogs"].as_object().into_iter().flatten() {
            for (key, package) in content["packages"].as_object().into_iter().flatten() {
                packages.insert((catalog.clone(), key.clone()), package.clone());
            }
        }
        packages.iter().for_each(|((_, key), package)| found.add_package(&self.id, key, package));
        for step in list(&self.input["steps"]).iter().take(snapshot.after) {
            if let Some(csv) = step.get("csv") {
                self.add_csv(&mut found, csv);
            }
            if let Some(patch) = step.get("patch").filter(|it| it.get("csv").is_some()) {
                let name = csv_name(&self.id, "demo", text(&patch["csv"], "1.0.0"));
                let namespace = patch["ns"].as_str().map_or_else(|| self.namespace(), str::to_owned);
                if let Some(csv) = found.placed.get_mut(&(namespace, name)) {
                    merge(csv, &patch["patch"]);
                }
            }
            if let Some(serve) = step.get("serve") {
                let catalog = text(&serve["key"], "main").to_owned();
                let package = packages.entry((catalog, "demo".to_owned())).or_default();
                for member in ["channels", "bundles", "content", "deprecations", "defaultChannel"] {
                    if let Some(value) = serve.get(member) {
                        merge(package, &json!({ member: value }));
                    }
                }
                found.add_package(&self.id, "demo", package);
                for (key, package) in serve["packages"].as_object().into_iter().flatten() {
                    found.add_package(&self.id, key, package);
                }
            }
        }
        found
    }

    fn add_csv(&self, found: &mut Csvs, step: &Value) {
        let key = text(&step["package"], "demo");
        let version = text(&step["version"], "1.0.0");
        let mut csv = bundle_csv(&self.id, key, version, &step["bundle"], step["name"].as_str());
        merge(&mut csv, &step["patch"]);
        let namespace = step["ns"].as_str().map_or_else(|| self.namespace(), str::to_owned);
        let name = csv["metadata"]["name"].as_str().unwrap().to_owned();
        found.placed.insert((namespace, name), csv);
    }
}

/// CSVs by name, without status and without what the cluster adds.
#[derive(Default)]
pub(crate) struct Csvs {
    /// By (namespace, name): made by hand.
    placed: BTreeMap<(String, String), Value>,
    /// By name: in catalogs. The first content counts.
    offered: BTreeMap<String, Value>,
}

impl Csvs {
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Value> {
        let placed = self.placed.get(&(namespace.to_owned(), name.to_owned()));
        placed.or_else(|| self.offered.get(name))
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Value> {
        self.placed.values().chain(self.offered.values())
    }

    fn add_package(&mut self, id: &str, key: &str, package: &Value) {
        for (name, csv) in package_csvs(id, key, package) {
            self.offered.entry(name).or_insert(csv);
        }
    }
}

/// The CSVs of a package of a catalog, by name.
pub(crate) fn package_csvs(id: &str, key: &str, package: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (_, entries) in package["channels"].as_object().into_iter().flatten() {
        for entry in list(entries) {
            let version = entry_version(&entry);
            let mut bundle = package["content"].clone();
            merge(&mut bundle, &package["bundles"][&version]);
            let csv = bundle_csv(id, key, &version, &bundle, bundle["name"].as_str());
            found.insert(csv["metadata"]["name"].as_str().unwrap().to_owned(), csv);
        }
    }
    found
}

/// The version of an entry of a channel, which is a text or an object.
pub(crate) fn entry_version(entry: &Value) -> String {
    entry.as_str().or_else(|| entry["v"].as_str()).unwrap_or_default().to_owned()
}

/// The name of a CSV of a package of the scenario; texts that are no versions are names.
pub(crate) fn csv_name(id: &str, key: &str, version: &str) -> String {
    if version.starts_with(|first: char| first.is_ascii_digit()) {
        format!("{key}-{id}.v{version}")
    } else {
        version.to_owned()
    }
}

/// The CSV that the lab makes of a bundle's description, as far as it is read here.
fn bundle_csv(id: &str, key: &str, version: &str, bundle: &Value, name: Option<&str>) -> Value {
    let package = format!("{key}-{id}");
    let account = format!("{package}-sa");
    let group = format!("{id}.lab.test");
    let version = text(&bundle["csvVersion"], version);
    let given = |member: &str, usual: Value| bundle.get(member).cloned().unwrap_or(usual);
    let owned: Vec<Value> = list(&given("crds", json!([{ "kind": "Widget" }])))
        .iter()
        .map(|crd| {
            let kind = text(&crd["kind"], "");
            let plural = format!("{}s", kind.to_lowercase());
            let name = format!("{}.{}", text(&crd["plural"], &plural), text(&crd["group"], &group));
            json!({ "name": name, "kind": kind, "version": text(&crd["versions"][0]["name"], "v1") })
        })
        .collect();
    let deployments: Vec<Value> =
        list(&given("deployments", json!([{ "name": format!("{package}-ctrl") }])))
            .iter()
            .map(|deployment| {
                let mut pod = json!({ "containers": [{ "name": "manager", "image": text(&deployment["image"], "lab.invalid/manager:v1") }] });
                merge(&mut pod, &deployment["spec"]);
                json!({ "name": deployment["name"], "spec": { "template": { "spec": pod } } })
            })
            .collect();
    let permission = |rule: Value| json!([{ "serviceAccountName": account, "rules": [rule] }]);
    let cluster = permission(json!({ "apiGroups": [group], "resources": ["*"], "verbs": ["*"] }));
    let own = permission(
        json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"] }),
    );
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    let supported = list(&given("installModes", json!(modes)));
    let modes: Vec<Value> = modes
        .iter()
        .map(|mode| json!({ "type": mode, "supported": supported.contains(&json!(mode)) }))
        .collect();
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {
            "name": name.map_or_else(|| csv_name(id, key, version), str::to_owned),
            "annotations": given("csvAnnotations", json!({})),
        },
        "spec": {
            "displayName": package, "description": "lab bundle", "version": version, "provider": { "name": "lab" },
            "maturity": "alpha", "installModes": modes, "customresourcedefinitions": { "owned": owned },
            "install": { "strategy": "deployment", "spec": {
                "deployments": deployments, "permissions": given("permissions", own),
                "clusterPermissions": given("clusterPermissions", cluster),
            } },
        },
    });
    merge(&mut csv, &bundle["csvPatch"]);
    csv
}

pub(crate) fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text<'a>(value: &'a Value, usual: &'a str) -> &'a str {
    value.as_str().unwrap_or(usual)
}

/// Without a patch nothing changes.
fn merge(target: &mut Value, patch: &Value) {
    if patch.is_object() {
        lab::merge(target, patch);
    }
}
