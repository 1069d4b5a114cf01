//! Recorded scenarios: what was done, what the reference did, and the replay of the former over a [`World`].

use std::collections::{BTreeMap, BTreeSet};

use olm_classic::csv::Phase;
use serde_json::{Value, json};

use crate::bundle::{bundle, list};
use crate::lab::{Names, merge};
use crate::world::{Group, World, key};

/// Steps that change nothing which a CSV depends on: they wait, look, or are about catalogs and plans.
#[rustfmt::skip]
const IGNORED: [&str; 13] = [
    "until", "snap", "sleep", "names", "touch", "metrics", "create", "show", "catsrc-delete", "catsrc",
    "down", "process", "approve",
];

/// A recorded scenario.
pub(crate) struct Scenario {
    pub(crate) id: String,
    input: Value,
    pub(crate) outcome: Value,
    /// Names of the snapshots, in order of the steps; `final` is the last.
    pub(crate) snapshots: BTreeMap<String, World>,
    /// By package, the versions that a catalog has had up to now.
    served: BTreeMap<String, BTreeMap<String, Value>>,
    has_subscription: bool,
    /// The next recorded snapshot.
    next: String,
}

impl Scenario {
    pub(crate) fn new(record: &Value) -> Self {
        let id = record["id"].as_str().unwrap().to_owned();
        Self {
            input: Names { id: id.clone() }.substitute(&record["input"]),
            outcome: record["outcome"].clone(),
            id,
            snapshots: BTreeMap::new(),
            served: BTreeMap::new(),
            has_subscription: false,
            next: String::new(),
        }
    }

    pub(crate) fn namespace(&self) -> String {
        format!("c-{}", self.id)
    }

    /// The recorded traces of CSVs, by name.
    pub(crate) fn traces(&self) -> BTreeMap<String, Vec<String>> {
        let traces = self.outcome["trace"].as_object().into_iter().flatten();
        let of_csvs = traces.filter_map(|(key, trace)| {
            let trace = trace.as_array()?.iter().map(|it| it.as_str().unwrap().to_owned()).collect();
            Some((key.strip_prefix("ClusterServiceVersion/")?.to_owned(), trace))
        });
        of_csvs.collect()
    }

    /// The objects of a recorded snapshot.
    pub(crate) fn objects(&self, snapshot: &str, kind: &str) -> Vec<Value> {
        let objects = self.outcome["snapshots"][snapshot]["objects"].as_array();
        objects.into_iter().flatten().filter(|object| object["kind"] == kind).cloned().collect()
    }

    fn package(&self, short: &str) -> String {
        format!("{short}-{}", self.id)
    }

    /// Runs all steps.
    pub(crate) fn replay(&mut self) -> World {
        let mut world = World { namespace: self.namespace(), ..World::default() };
        match self.input.get("og").cloned() {
            None => self.set_group(&mut world, &json!({"spec": "own"})),
            Some(Value::String(short)) if short == "none" => {}
            Some(Value::String(short)) => self.set_group(&mut world, &json!({"spec": short})),
            Some(short) => self.set_group(&mut world, &short),
        }
        let catalogs = self.input["catalogs"].clone();
        for catalog in catalogs.as_object().into_iter().flatten().map(|(_, catalog)| catalog) {
            self.serve(&catalog["packages"]);
        }
        let steps = self.input["steps"].as_array().unwrap().clone();
        for (index, step) in steps.iter().enumerate() {
            let mut snaps = steps[index..].iter().filter_map(|step| step["snap"].as_str());
            self.next = snaps.next().unwrap_or("final").to_owned();
            for (kind, argument) in step.as_object().unwrap() {
                self.step(&mut world, kind, argument);
                // CSVs that are made one after the other begin together
                if kind != "csv" {
                    self.settle(&mut world);
                }
                if let ("snap", Some(name)) = (kind.as_str(), argument.as_str()) {
                    self.snapshots.insert(name.to_owned(), world.picture());
                }
            }
        }
        self.settle(&mut world);
        self.snapshots.insert("final".to_owned(), world.picture());
        world
    }

    fn settle(&self, world: &mut World) {
        world.settle();
        while self.plan(world) {
            world.settle();
        }
    }

    fn step(&mut self, world: &mut World, kind: &str, argument: &Value) {
        let namespace = self.namespace();
        match kind {
            "csv" => self.by_hand(world, argument),
            "crd" => {
                let name =
                    format!("{}s.{}.lab.test", argument["kind"].as_str().unwrap().to_lowercase(), self.id);
                world.set_crd(&name, &["v1".to_owned()], None);
            }
            "sub" => {
                self.has_subscription = true;
                let package = argument
                    .get("package")
                    .or(argument.get("name"))
                    .and_then(Value::as_str)
                    .unwrap_or("demo");
                if let Some(config) = argument.get("config") {
                    let config = serde_json::from_value(config.clone()).unwrap();
                    world.configs.insert(self.package(package), config);
                }
            }
            "serve" => {
                let packages = argument.get("packages").cloned().unwrap_or_else(|| json!({"demo": argument}));
                self.serve(&packages);
            }
            "og" => self.set_group(world, argument),
            "apply" if argument["kind"] == "OperatorGroup" => {
                let metadata = &argument["metadata"];
                let short =
                    json!({"name": metadata["name"], "ns": metadata["namespace"], "spec": argument["spec"]});
                self.set_group(world, &short);
            }
            "apply" => assert!(
                ["ServiceAccount", "ClusterRoleBinding", "ConfigMap"]
                    .contains(&argument["kind"].as_str().unwrap()),
                "{}: {argument}",
                self.id
            ),
            "patch" => self.patch(world, argument),
            "delete" if argument.get("csv").is_some() => {
                let name = format!("demo-{}.v{}", self.id, argument["csv"].as_str().unwrap());
                world.delete(argument.get("ns").and_then(Value::as_str).unwrap_or(&namespace), &name);
            }
            "delete" if argument.get("og").is_some() => {
                world.groups.retain(|group| group.name != argument["og"].as_str().unwrap());
            }
            "delete" if argument["kind"] == "Deployment" => {
                world.live.retain(|object| object.name() != argument["name"].as_str().unwrap());
            }
            "delete" => assert!(argument.get("sub").is_some(), "{}: {argument}", self.id),
            _ => assert!(IGNORED.contains(&kind), "{}: unknown step {kind}", self.id),
        }
    }

    fn patch(&self, world: &mut World, argument: &Value) {
        let patch = &argument["patch"];
        if argument.get("sub").is_some() {
            if patch["spec"].get("config").is_some_and(Value::is_null) {
                world.configs.clear();
            }
        } else if argument["kind"] == "OperatorCondition" {
            let (message, is_overridden) =
                world.conditions.entry(argument["name"].as_str().unwrap().to_owned()).or_default();
            if let Some(condition) = list(&patch["spec"], "conditions").and_then(|all| all.first().cloned()) {
                *message = (condition["status"] == "False")
                    .then(|| condition["message"].as_str().unwrap().to_owned());
            }
            *is_overridden |= list(&patch["spec"], "overrides").is_some();
        } else if let Some(version) = argument.get("csv").and_then(Value::as_str) {
            let namespace =
                argument.get("ns").and_then(Value::as_str).map_or_else(|| self.namespace(), str::to_owned);
            let name = format!("demo-{}.v{version}", self.id);
            if let Some(csv) = world.csvs.iter_mut().find(|csv| key(csv) == (namespace.clone(), name.clone()))
            {
                let mut value = serde_json::to_value(&*csv).unwrap();
                merge(&mut value, patch);
                *csv = serde_json::from_value(value).unwrap();
            }
        } else {
            assert!(
                ["OLMConfig", "Widget"].contains(&argument["kind"].as_str().unwrap()),
                "{}: {argument}",
                self.id
            );
        }
    }

    /// A CSV that a person makes, with its CustomResourceDefinitions, accounts and rights.
    fn by_hand(&self, world: &mut World, argument: &Value) {
        let text = |member: &str| argument.get(member).and_then(Value::as_str).map(str::to_owned);
        let is_on = |member: &str| argument.get(member).and_then(Value::as_bool).unwrap_or(true);
        let short = text("package").unwrap_or_else(|| "demo".to_owned());
        let (package, version) =
            (self.package(&short), text("version").unwrap_or_else(|| "1.0.0".to_owned()));
        let namespace = text("ns").unwrap_or_else(|| self.namespace());
        let bundle =
            bundle(&package, &version, &argument["bundle"], &format!("{}.lab.test", self.id), &namespace);
        let mut csv = bundle.csv;
        if let Some(replaces) = text("replaces") {
            csv.spec.replaces = format!("{package}.v{replaces}");
        }
        if is_on("crds") {
            bundle.crds.iter().for_each(|(name, versions)| world.set_crd(name, versions, None));
        }
        for account in accounts(&csv) {
            world.set_account(&namespace, &account, None);
        }
        if !is_on("rbac") {
            world.without_rights.insert(namespace);
        }
        world.put(csv);
    }

    /// One CSV that a plan makes: the next of the record whose package has nothing under way.
    fn plan(&self, world: &mut World) -> bool {
        let traces = self.traces();
        let mut waiting: Vec<_> = traces.keys().filter(|name| !world.traces.contains_key(*name)).collect();
        waiting.sort_by_key(|name| version_of(name));
        for name in waiting {
            let (package, version) = name.split_once(".v").unwrap();
            let short = package.strip_suffix(&format!("-{}", self.id)).unwrap();
            let ends = traces[name].last().is_some_and(|state| state == "deleted");
            if !ends && !self.is_recorded(name) {
                continue; // the plan waits: for an approval, for rights, for another Subscription
            }
            let Some(content) = self.served.get(short).and_then(|versions| versions.get(version)) else {
                continue;
            };
            let mut before = world.csvs.iter().filter(|csv| key(csv).1.starts_with(&format!("{package}.v")));
            let before = before.next_back().map(|csv| (key(csv).1, Phase::read(csv)));
            let is_ready =
                before.as_ref().is_none_or(|(_, phase)| matches!(phase, Phase::Succeeded | Phase::Failed));
            if self.has_subscription && is_ready && !world.groups.is_empty() {
                self.make(world, package, version, content, before.map(|(name, _)| name));
                return true;
            }
        }
        false
    }

    /// Whether a CSV is in the next recorded snapshot, or that does not exist.
    fn is_recorded(&self, name: &str) -> bool {
        let objects = self.objects(&self.next, "ClusterServiceVersion");
        objects.iter().any(|csv| csv["name"] == name) || self.outcome["snapshots"].get(&self.next).is_none()
    }

    fn make(&self, world: &mut World, package: &str, version: &str, content: &Value, before: Option<String>) {
        let namespace = self.namespace();
        let bundle = bundle(package, version, content, &format!("{}.lab.test", self.id), &namespace);
        let mut csv = bundle.csv;
        csv.spec.replaces = before.unwrap_or_default();
        let name = key(&csv).1;
        if let Some(properties) = self.properties(&name) {
            let annotations = csv.metadata.annotations.get_or_insert_default();
            annotations.insert("operatorframework.io/properties".to_owned(), properties);
        }
        if !self.has_stopped_plan(&name) {
            for account in accounts(&csv) {
                world.set_account(&namespace, &account, Some(&name));
            }
            for (crd, versions) in &bundle.crds {
                world.set_crd(crd, versions, Some(format!("{namespace}/{name}")));
            }
        }
        world.put(csv);
    }

    /// The annotation with the properties, as a Deployment of the CSV shows it: a plan writes it, the record of the CSV has it decoded.
    fn properties(&self, csv: &str) -> Option<String> {
        let snapshots = self.outcome["snapshots"].as_object()?.keys();
        let mut deployments = snapshots.flat_map(|snapshot| self.objects(snapshot, "Deployment"));
        let deployment = deployments.find(|deployment| deployment["labels"]["olm.owner"] == csv)?;
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        Some(annotations["operatorframework.io/properties"].as_str()?.to_owned())
    }

    /// Whether the plan of a CSV stopped after the CSV itself: at the end it is not Complete.
    fn has_stopped_plan(&self, csv: &str) -> bool {
        let plans = self.objects("final", "InstallPlan");
        plans.iter().any(|plan| {
            let names = list(&plan["spec"], "clusterServiceVersionNames").unwrap_or_default();
            names.contains(&json!(csv)) && plan["status"]["phase"] != "Complete"
        }) && self
            .objects("final", "ClusterServiceVersion")
            .iter()
            .any(|it| it["name"] == csv && it["status"]["phase"] == "Pending")
    }

    fn serve(&mut self, packages: &Value) {
        for (short, package) in packages.as_object().into_iter().flatten() {
            let known = self.served.entry(short.clone()).or_default();
            let content =
                package.get("content").or(self.input["catalogs"]["main"]["packages"][short].get("content"));
            let content = content.cloned().unwrap_or_else(|| json!({}));
            let entries = package["channels"]
                .as_object()
                .into_iter()
                .flatten()
                .flat_map(|(_, entries)| entries.as_array().unwrap());
            for entry in entries {
                let version = entry.as_str().or(entry["v"].as_str()).unwrap();
                let mut short = content.clone();
                if let Some(own) = package["bundles"].get(version) {
                    merge(&mut short, own);
                }
                known.insert(version.to_owned(), short);
            }
        }
    }

    fn set_group(&self, world: &mut World, short: &Value) {
        let namespace =
            short.get("ns").and_then(Value::as_str).map_or_else(|| self.namespace(), str::to_owned);
        let name = short.get("name").and_then(Value::as_str).unwrap_or("og").to_owned();
        let spec = match &short["spec"] {
            Value::String(it) if it == "own" => json!({"targetNamespaces": [namespace]}),
            Value::String(_) => json!({}),
            spec => spec.clone(),
        };
        let named = list(&spec, "targetNamespaces");
        let namespaces = self.input["namespaces"].as_object().into_iter().flatten();
        let selected = namespaces.map(|(short, _)| json!(format!("{}-{short}", self.namespace())));
        let targets = match named {
            Some(named) => named,
            None if spec.get("selector").is_some() => selected.collect(),
            None => vec![json!("")],
        };
        let mut targets: Vec<_> = targets.iter().map(|it| it.as_str().unwrap().to_owned()).collect();
        targets.sort();
        let old = world.groups.iter().position(|group| group.namespace == namespace && group.name == name);
        let provided = old.map(|at| world.groups.remove(at).provided).unwrap_or_default();
        world.groups.push(Group {
            namespace,
            name,
            targets,
            is_static: spec["staticProvidedAPIs"] == true,
            is_fail_forward: short["strategy"] == "TechPreviewUnsafeFailForward",
            provided,
        });
    }
}

/// Accounts that permissions name.
fn accounts(csv: &olm_api::classic::ClusterServiceVersion) -> BTreeSet<String> {
    let strategy = csv.spec.install.spec.as_ref().unwrap();
    let permissions = strategy.permissions.iter().chain(&strategy.cluster_permissions);
    permissions.map(|it| it.service_account_name.clone()).collect()
}

fn version_of(name: &str) -> Vec<u64> {
    name.split_once(".v").unwrap().1.split('.').map(|part| part.parse().unwrap()).collect()
}
