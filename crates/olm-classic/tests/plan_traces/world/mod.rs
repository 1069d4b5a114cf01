//! A cluster as far as plans and Subscriptions need it: what the machines decide is carried out on plain values.

mod namespace;
mod plans;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use olm_api::classic::{ClusterServiceVersion, InstallPlan, OperatorGroup, Subscription};
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_classic::install_plan::{PlanPhase, PlanRule, UnpackObserved, UnpackRule};
use olm_classic::subscription::{PassRule, ResolutionFact, StateRule, SubscriptionState, UnpackFact};
use olm_core::{Object, member_map};
use olm_solver::Catalog;
use serde_json::{Value, json};

use crate::lab::Names;
use crate::scenario::{Content, Scenario, content};

/// What the machines took part in.
#[derive(Default)]
pub(crate) struct Reached {
    pub(crate) plans: BTreeSet<PlanRule>,
    pub(crate) states: BTreeSet<StateRule>,
    pub(crate) passes: BTreeSet<PassRule>,
    pub(crate) unpacks: BTreeSet<UnpackRule>,
}

struct CatalogOfWorld {
    namespace: String,
    spec: Value,
    exists: bool,
    content: Content,
    drafts: Arc<Catalog>,
    image: bool,
    priority: Option<i32>,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    pub(crate) names: Names,
    pub(crate) now: Timestamp,
    catalogs: BTreeMap<String, CatalogOfWorld>,
    groups: Vec<OperatorGroup>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) plans: Vec<InstallPlan>,
    pub(crate) csvs: Vec<ClusterServiceVersion>,
    pub(crate) objects: Vec<Object>,
    has_rights: bool,
    /// The OperatorCondition of what is installed holds its successor.
    is_held: bool,
    unpacking: BTreeMap<String, UnpackObserved>,
    resolution: ResolutionFact,
    unpack: UnpackFact,
    pub(crate) trace: BTreeMap<String, Vec<String>>,
    pub(crate) reached: Reached,
}

/// The lab's flag of the reference.
const RETRY_WINDOW: Duration = Duration::from_secs(10);

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let names = Names { id: scenario.id.clone() };
        let mut world = Self {
            scenario,
            names,
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            catalogs: BTreeMap::new(),
            groups: Vec::new(),
            subscriptions: Vec::new(),
            plans: Vec::new(),
            csvs: Vec::new(),
            objects: Vec::new(),
            has_rights: true,
            is_held: false,
            unpacking: BTreeMap::new(),
            resolution: ResolutionFact::NotTried,
            unpack: UnpackFact::NotTried,
            trace: BTreeMap::new(),
            reached: Reached::default(),
        };
        for (key, spec) in scenario.input["catalogs"].as_object().into_iter().flatten() {
            let exists = spec["create"] != json!(false);
            world.serve(key, spec.clone(), exists);
        }
        match &scenario.input["og"] {
            Value::String(none) if none == "none" => {}
            Value::Object(group) => world.add_group(&Value::Object(group.clone())),
            _ => world.add_group(&json!({"spec": "own"})),
        }
        world
    }

    fn serve(&mut self, key: &str, spec: Value, exists: bool) {
        let content = content(&self.names, &spec);
        let namespace = spec["ns"].as_str().map_or_else(|| self.names.namespace(), str::to_owned);
        let catalog = CatalogOfWorld {
            namespace,
            exists,
            drafts: Arc::new(Catalog::new(content.packages.clone())),
            content,
            image: spec["mode"] == "image",
            priority: spec["priority"].as_i64().map(|it| i32::try_from(it).unwrap()),
            spec,
        };
        self.catalogs.insert(key.to_owned(), catalog);
    }

    fn add_group(&mut self, spec: &Value) {
        let spec = self.names.substitute(spec);
        let namespace = self.names.namespace();
        let (mut body, targets) = match &spec["spec"] {
            Value::Object(body) => {
                (Value::Object(body.clone()), body.get("targetNamespaces").cloned().unwrap_or(json!([""])))
            }
            Value::String(own) if own == "own" => {
                (json!({"targetNamespaces": [namespace]}), json!([namespace]))
            }
            _ => (json!({}), json!([""])),
        };
        let mut status = json!({"lastUpdated": "2023-01-01T00:00:00Z", "namespaces": targets});
        if let Some(strategy) = spec.get("strategy") {
            body["upgradeStrategy"] = strategy.clone();
        }
        if let Some(account) = spec.get("sa") {
            body["serviceAccountName"] = account.clone();
            status["serviceAccountRef"] =
                json!({"kind": "ServiceAccount", "name": account, "namespace": namespace});
            self.has_rights = false;
        }
        let mut metadata = json!({"name": spec["name"].as_str().unwrap_or("og"), "namespace": namespace});
        if let Some(annotations) = spec.get("annotations") {
            metadata["annotations"] = annotations.clone();
        }
        let group = json!({"metadata": metadata, "spec": body, "status": status});
        self.groups.push(typed("v1", "OperatorGroup", group));
    }

    fn record(&mut self, key: String, value: String) {
        let list = self.trace.entry(key).or_default();
        if list.last() != Some(&value) {
            list.push(value);
        }
    }

    fn trace_subscription(&mut self, index: usize) {
        let subscription = &self.subscriptions[index];
        let state = SubscriptionState::from_subscription(subscription);
        let (current, installed) = subscription
            .status
            .as_ref()
            .map(|status| (status.current_csv.clone(), status.installed_csv.clone()))
            .unwrap_or_default();
        let key = format!("Subscription/{}", subscription.metadata.name.as_deref().unwrap());
        self.record(key, format!("{state} current={current} installed={installed}"));
    }

    fn trace_plan(&mut self, index: usize) {
        let plan = &self.plans[index];
        let number = plan.spec.generation.map_or_else(|| "none".to_owned(), |it| it.to_string());
        let phase = PlanPhase::from_plan(plan).map(PlanPhase::as_str).unwrap_or_default().to_owned();
        self.record(format!("InstallPlan/install-{number}"), phase);
    }

    /// Lets all machines act until none changes anything.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200 {
            let mut changed = self.plans_act();
            changed |= self.csvs_act();
            changed |= self.namespace_acts();
            changed |= self.definitions_are_served();
            if !changed {
                return;
            }
        }
        panic!("{}: the machines do not rest", self.names.id);
    }

    /// Definitions serve their API a moment after they were created.
    fn definitions_are_served(&mut self) -> bool {
        let mut changed = false;
        for object in self.objects.iter_mut().filter(|it| it.kind() == "CustomResourceDefinition") {
            if object.0.contains_key("status") {
                continue;
            }
            let stored = object.0["spec"]["versions"][0]["name"].clone();
            let conditions = json!([{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}]);
            object.0.insert("status".into(), json!({"storedVersions": [stored], "conditions": conditions}));
            changed = true;
        }
        changed
    }

    /// Phases of ClusterServiceVersions are input here: whether one succeeds is read from its recorded trace.
    fn csvs_act(&mut self) -> bool {
        let mut changed = false;
        for index in 0..self.csvs.len() {
            let name = self.csvs[index].metadata.name.clone().unwrap();
            let trace = &self.scenario.outcome["trace"][format!("ClusterServiceVersion/{name}")];
            let went = |phase: &str| {
                trace.as_array().into_iter().flatten().any(|it| it.as_str().unwrap().starts_with(phase))
            };
            let lists = |plan: &&InstallPlan| plan.spec.cluster_service_version_names.contains(&name);
            let is_complete = self
                .plans
                .iter()
                .filter(lists)
                .any(|plan| PlanPhase::from_plan(plan) == Some(PlanPhase::Complete));
            let replacement = self.csvs.iter().find(|it| it.spec.replaces == name);
            let replaced_by = replacement.map(|it| phase(it).to_owned());
            let next = match (phase(&self.csvs[index]), replaced_by.as_deref()) {
                ("", _) => "Pending",
                ("Replacing", Some("Succeeded")) => {
                    self.csvs.remove(index);
                    self.collect_garbage(&name);
                    return true;
                }
                ("Succeeded" | "Failed", Some(_)) => "Replacing",
                ("Pending", _) if self.is_held && self.csvs.len() > 1 => continue,
                ("Pending", _) if is_complete && went("Succeeded/") => "Succeeded",
                ("Pending", _) if is_complete && went("Failed/") => "Failed",
                _ => continue,
            };
            set_phase(&mut self.csvs[index], next);
            changed = true;
        }
        changed
    }

    /// Whether what a step of the scenario waits for is the case.
    pub(crate) fn is_reached(&self, awaited: &Value) -> bool {
        let csv = |version: &Value| {
            self.names.csv(version.as_str().unwrap(), awaited["pkg"].as_str().unwrap_or("demo"))
        };
        let is_absent = awaited["absent"] == json!(true);
        // why a ClusterServiceVersion waits is not replayed here
        if awaited.get("reason").is_some() {
            return true;
        }
        if let Some(version) = awaited.get("csv") {
            let found = self.csvs.iter().find(|it| it.metadata.name.as_ref() == Some(&csv(version)));
            let want = awaited["phase"].as_str().unwrap_or("Succeeded");
            return found.map_or(is_absent, |it| !is_absent && phase(it) == want);
        }
        if let Some(generation) = awaited["plan"].as_i64() {
            let found = self.plans.iter().find(|it| it.spec.generation == Some(generation));
            return found
                .and_then(PlanPhase::from_plan)
                .is_some_and(|phase| awaited["phase"] == phase.as_str());
        }
        let Some(name) = awaited["sub"].as_str() else { return true };
        let found = self.subscriptions.iter().find(|it| it.metadata.name.as_deref() == Some(name));
        let Some(status) = found.and_then(|it| it.status.as_ref()) else { return false };
        let is_installed =
            awaited.get("installed").is_none_or(|version| status.installed_csv == csv(version));
        let is_state = awaited.get("state").is_none_or(|state| *state == status.state);
        let mut conditions = awaited["cond"].as_object().into_iter().flatten();
        is_installed
            && is_state
            && conditions.all(|(type_, value)| {
                let found = status.conditions.iter().find(|it| it.type_ == *type_);
                found.is_some_and(|it| *value == it.status.as_str())
            })
    }
}

pub(crate) fn typed<T: serde::de::DeserializeOwned>(version: &str, kind: &str, mut value: Value) -> T {
    value["apiVersion"] = format!("operators.coreos.com/{version}").into();
    value["kind"] = kind.into();
    serde_json::from_value(value).unwrap()
}

fn phase(csv: &ClusterServiceVersion) -> &str {
    csv.status.as_ref().map(|status| status.phase.as_str()).unwrap_or_default()
}

fn set_phase(csv: &mut ClusterServiceVersion, phase: &str) {
    let mut value = serde_json::to_value(&*csv).unwrap();
    member_map(value.as_object_mut().unwrap(), "status").insert("phase".into(), phase.into());
    *csv = serde_json::from_value(value).unwrap();
}

impl World<'_> {
    /// Names and images of the bundles that are images.
    pub(crate) fn images(&self) -> Vec<(String, String)> {
        let bundles = self.catalogs.values().flat_map(|it| &it.content.bundles);
        bundles.filter_map(|it| Some((it.name.clone(), it.image.clone()?))).collect()
    }
}
