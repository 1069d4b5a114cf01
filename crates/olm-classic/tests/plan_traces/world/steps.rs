//! The effects of the steps of a scenario on the world.

use olm_api::classic::{ClusterServiceVersion, InstallPlan, Subscription};
use olm_core::Object;
use serde_json::{Value, json};

use super::{World, set_phase, typed};
use crate::lab::merge;
use crate::scenario::bundle;

impl World<'_> {
    /// Carries out a step of the scenario.
    pub(crate) fn step(&mut self, verb: &str, argument: &Value) {
        let argument = self.names.substitute(argument);
        match verb {
            "sub" => self.subscribe(&argument),
            "serve" => {
                let key = argument["key"].as_str().unwrap_or("main").to_owned();
                let mut spec = self.catalogs[&key].spec.clone();
                for member in ["channels", "bundles", "content", "deprecations", "defaultChannel"] {
                    if let Some(value) = argument.get(member) {
                        spec["packages"]["demo"][member] = value.clone();
                    }
                }
                if let Some(packages) = argument.get("packages") {
                    spec["packages"] = packages.clone();
                }
                self.serve(&key, spec, true);
            }
            "catsrc-delete" | "catsrc" => {
                let key = argument["key"].as_str().unwrap_or("main");
                self.catalogs.get_mut(key).unwrap().exists = verb == "catsrc";
            }
            "og" => self.add_group(&argument),
            "approve" => {
                let waiting = self.plans.iter_mut().filter(|plan| !plan.spec.approved);
                waiting.max_by_key(|plan| plan.spec.generation).unwrap().spec.approved = true;
            }
            "csv" => {
                let package = argument["package"].as_str().unwrap_or("demo");
                let version = argument["version"].as_str().unwrap_or("1.0.0");
                let made =
                    bundle(&self.names, package, version, argument.get("bundle").unwrap_or(&json!({})));
                let mut csv: ClusterServiceVersion =
                    serde_json::from_value(made.objects[0].to_value()).unwrap();
                csv.metadata.uid = Some(format!("uid-{}", made.name));
                self.csvs.push(csv);
                set_phase(self.csvs.last_mut().unwrap(), "Succeeded");
            }
            "apply" if argument["kind"] == "ClusterRoleBinding" => self.has_rights = true,
            "apply" if argument["kind"] == "InstallPlan" => {
                self.plans.push(typed("v1alpha1", "InstallPlan", argument));
                self.trace_plan(self.plans.len() - 1);
            }
            "create" => {
                let mut made = Object::from_value(argument).unwrap();
                made.set_namespace(&self.names.namespace());
                self.objects.push(made);
            }
            "patch" => self.patch(&argument),
            "delete" => self.delete(&argument),
            "touch" | "apply" | "down" | "names" | "metrics" | "process" | "snap" | "sleep" | "until"
            | "og-delete" => {}
            other => panic!("{}: no such step: {other}", self.names.id),
        }
    }

    pub(super) fn subscribe(&mut self, argument: &Value) {
        let text = |member: &str, default: &str| argument[member].as_str().unwrap_or(default).to_owned();
        let name = text("name", "demo");
        let package = text("package", &name);
        let source = text("source", "main");
        let namespace =
            self.catalogs.get(&source).map_or_else(|| self.names.namespace(), |it| it.namespace.clone());
        let mut spec = json!({"name": text("packageName", &self.names.package(&package)), "source": source, "sourceNamespace": namespace});
        if !text("channel", "stable").is_empty() {
            spec["channel"] = text("channel", "stable").into();
        }
        if let Some(version) = argument["startingCSV"].as_str() {
            spec["startingCSV"] = self.names.csv(version, &package).into();
        }
        if let Some(approval) = argument.get("approval") {
            spec["installPlanApproval"] = approval.clone();
        }
        if let Some(config) = argument.get("config") {
            spec["config"] = config.clone();
        }
        merge(&mut spec, argument.get("spec").unwrap_or(&json!({})));
        let value = json!({"metadata": {"name": name, "namespace": self.names.namespace(), "uid": format!("uid-{name}")}, "spec": spec});
        let made: Subscription = typed("v1alpha1", "Subscription", value);
        if let Some(old) = self.subscriptions.iter_mut().find(|it| it.metadata.name == made.metadata.name) {
            old.spec = made.spec;
        } else {
            self.subscriptions.push(made);
            self.trace_subscription(self.subscriptions.len() - 1);
        }
    }

    pub(super) fn patch(&mut self, argument: &Value) {
        if argument["kind"] == "OperatorCondition" {
            let of = |member: &str| argument["patch"]["spec"][member][0]["status"].as_str();
            self.is_held = of("overrides").or(of("conditions")) == Some("False");
        }
        if let Some(name) = argument["sub"].as_str() {
            let of = |it: &&mut Subscription| it.metadata.name.as_deref() == Some(name);
            let subscription = self.subscriptions.iter_mut().find(of).unwrap();
            let mut value = serde_json::to_value(&*subscription).unwrap();
            merge(&mut value, &argument["patch"]);
            *subscription = serde_json::from_value(value).unwrap();
        }
        let of = |it: &&mut Object| argument["kind"] == it.kind() && argument["name"] == it.name();
        if let Some(found) = self.objects.iter_mut().find(of) {
            let mut value = found.to_value();
            merge(&mut value, &argument["patch"]);
            *found = Object::from_value(value).unwrap();
        }
    }

    pub(super) fn delete(&mut self, argument: &Value) {
        if let Some(name) = argument["sub"].as_str() {
            self.subscriptions.retain(|it| it.metadata.name.as_deref() != Some(name));
            self.trace.entry(format!("Subscription/{name}")).or_default().push("deleted".to_owned());
            let left: Vec<String> =
                self.subscriptions.iter().filter_map(|it| it.metadata.name.clone()).collect();
            let is_orphan = |plan: &InstallPlan| {
                let mut owners = plan.metadata.owner_references.iter().flatten();
                plan.metadata.owner_references.is_some() && !owners.any(|owner| left.contains(&owner.name))
            };
            let orphans: Vec<String> = self
                .plans
                .iter()
                .filter(|it| is_orphan(it))
                .filter_map(|it| it.metadata.name.clone())
                .collect();
            orphans.iter().for_each(|name| self.delete_plan(name));
        }
        if let Some(generation) = argument["plan"].as_i64() {
            self.delete_plan(&format!("install-{generation}"));
        }
        if let Some(version) = argument["csv"].as_str() {
            let name = self.names.csv(version, argument["pkg"].as_str().unwrap_or("demo"));
            self.csvs.retain(|it| it.metadata.name.as_deref() != Some(name.as_str()));
            self.collect_garbage(&name);
        }
    }

    /// What Kubernetes does with objects of which an owner is gone.
    pub(super) fn collect_garbage(&mut self, gone: &str) {
        self.objects.retain_mut(|object| {
            let Some(Value::Array(owners)) = object.metadata_mut().get_mut("ownerReferences") else {
                return true;
            };
            owners.retain(|owner| owner["name"] != gone);
            !owners.is_empty()
        });
    }

    pub(super) fn delete_plan(&mut self, name: &str) {
        self.plans.retain(|plan| plan.metadata.name.as_deref() != Some(name));
        self.trace.entry(format!("InstallPlan/{name}")).or_default().push("deleted".to_owned());
    }
}
