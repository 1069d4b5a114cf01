//! Plans and their steps.

use std::collections::BTreeSet;

use olm_api::classic::InstallPlan;
use olm_classic::csv::strategy::serving;
use olm_classic::install_plan::{
    PlanDecision, PlanNext, PlanObserved, PlanRun, PlannedBundle, StepAction, StepError, StepObserved,
    StepStatus, bundle_objects, check_object, decide_step, judged_versions, next_phase, object_judge,
    plan_account, step_object, update_crd,
};
use olm_core::Object;
use olm_solver::ChosenBundle;
use serde_json::Value;

use super::namespace::shared;
use super::{RETRY_WINDOW, World};

impl World<'_> {
    pub(super) fn plans_act(&mut self) -> bool {
        let mut changed = false;
        for index in 0..self.plans.len() {
            let before = self.plans[index].status.clone();
            let decision = self.plan_decision(index, None);
            if decision.next == PlanNext::RunSteps {
                let steps = self.run_steps(index);
                self.plan_decision(index, Some(&steps));
            }
            changed |= self.plans[index].status != before;
        }
        changed
    }

    fn plan_decision(&mut self, index: usize, run: Option<&PlanRun>) -> PlanDecision {
        let observed = PlanObserved {
            account: plan_account(&shared(&self.groups)),
            rights_changed: false,
            run,
            retry_window: RETRY_WINDOW,
        };
        let decision = next_phase(&self.plans[index], &observed, self.now);
        self.reached.plans.insert(decision.rule);
        if let Some(status) = &decision.status {
            self.plans[index].status = Some(status.clone());
            self.trace_plan(index);
        }
        decision
    }

    fn run_steps(&mut self, index: usize) -> PlanRun {
        let count = self.plans[index].status.as_ref().unwrap().plan.len();
        let mut run = PlanRun { steps: Vec::new(), error: None };
        for step in 0..count {
            match self.run_step(index, step) {
                Ok(status) => run.steps.push(status),
                Err(error) => {
                    if matches!(error, StepError::Unsupported { .. }) {
                        run.steps.push(StepStatus::UnsupportedResource);
                    }
                    run.error = Some(error);
                    break;
                }
            }
        }
        run
    }

    fn run_step(&mut self, index: usize, place: usize) -> Result<StepStatus, StepError> {
        let plan = self.plans[index].clone();
        let step = plan.status.as_ref().unwrap().plan[place].clone();
        let unpacked = self.unpacked(&plan, &step.resolving);
        let manifest = step_object(place, &step, &unpacked)?;
        let kind = manifest.kind().to_owned();
        let existing = self.find(&kind, manifest.name());
        let owner = self.csvs.iter().find(|csv| csv.metadata.name.as_ref() == Some(&step.resolving));
        let observed = StepObserved {
            existing: existing.as_ref(),
            owner_uid: owner.and_then(|csv| csv.metadata.uid.as_deref()),
            csvs: &shared(&self.csvs),
            ..StepObserved::default()
        };
        let action = decide_step(&plan, place, &manifest, observed)?;
        let status = action.status();
        match action {
            StepAction::Done(_) | StepAction::Keep | StepAction::AwaitApi => {}
            StepAction::Create(made) | StepAction::Update(made) => {
                if let Some((message, is_forbidden)) = self.rejection(&made) {
                    return Err(StepError::from_api(&step, &message, is_forbidden));
                }
                self.put(made);
            }
            StepAction::CompareCrd(made) => {
                let existing = existing.unwrap();
                let kind = made.0["spec"]["names"]["kind"].as_str().unwrap();
                let live = self.objects.iter().filter(|it| it.kind() == kind).map(Object::to_value);
                let namespace = self.names.namespace();
                let csvs = self.csvs.iter().filter_map(|it| it.metadata.name.as_deref());
                let csvs: BTreeSet<String> = csvs.map(|name| format!("{namespace}/{name}")).collect();
                let is_converted =
                    self.csvs.iter().any(|it| serving::converted(it).contains_key(made.name()));
                let owner = (namespace.as_str(), step.resolving.as_str());
                let update = update_crd(&existing, &made, owner, &csvs, is_converted)?;
                for version in judged_versions(&existing, &made) {
                    let Some(judge) = object_judge(&existing, &made, version, is_converted).unwrap() else {
                        continue;
                    };
                    for mut object in live.clone() {
                        let group = made.0["spec"]["group"].as_str().unwrap();
                        object["apiVersion"] = format!("{group}/{version}").into();
                        check_object(&made, &judge, &object)?;
                    }
                }
                if let Some(updated) = update.object {
                    self.put(updated);
                }
            }
            StepAction::CopySecret { name, .. } => panic!("no pull secrets here: {name}"),
        }
        Ok(status)
    }

    /// The objects of the steps of an unpacked bundle.
    fn unpacked(&self, plan: &InstallPlan, csv: &str) -> Vec<Object> {
        let all = self.catalogs.values().flat_map(|it| &it.content.bundles);
        let Some(bundle) = all.filter(|it| it.name == csv).find(|it| it.image.is_some()) else {
            return Vec::new();
        };
        let chosen = chosen_of(csv);
        let planned = PlannedBundle {
            chosen: &chosen,
            objects: &bundle.objects,
            properties: &bundle.properties,
            image: bundle.image.as_deref(),
        };
        bundle_objects(&planned, plan.metadata.namespace.as_deref().unwrap(), &[]).unwrap()
    }

    /// The answer of the apiserver to what it does not accept.
    fn rejection(&self, object: &Object) -> Option<(String, bool)> {
        if !self.has_rights && object.kind() != "CustomResourceDefinition" {
            let plural = format!("{}s", object.kind().to_lowercase());
            let message = format!(
                "{plural}.{} is forbidden: User \"system:serviceaccount:{ns}:worker\" cannot create resource \"{plural}\" in \
                 API group \"{}\" in the namespace \"{ns}\"",
                object.group(),
                object.group(),
                ns = self.names.namespace()
            );
            return Some((message, true));
        }
        let ports = object.0.get("spec").and_then(|spec| spec.get("ports")).and_then(Value::as_array);
        let port = ports
            .into_iter()
            .flatten()
            .filter_map(|port| port["port"].as_i64())
            .find(|port| *port > 65535)?;
        let wrong = format!("Invalid value: {port}: must be between 1 and 65535, inclusive");
        let message = format!(
            "Service \"{}\" is invalid: [spec.ports[0].port: {wrong}, spec.ports[0].targetPort: {wrong}]",
            object.name()
        );
        Some((message, false))
    }

    fn find(&self, kind: &str, name: &str) -> Option<Object> {
        let as_object = |value: Value| Object::from_value(value).unwrap();
        match kind {
            "ClusterServiceVersion" => {
                let found = self.csvs.iter().find(|it| it.metadata.name.as_deref() == Some(name));
                found.map(|it| as_object(serde_json::to_value(it).unwrap()))
            }
            "Subscription" => {
                let found = self.subscriptions.iter().find(|it| it.metadata.name.as_deref() == Some(name));
                found.map(|it| as_object(serde_json::to_value(it).unwrap()))
            }
            _ => self.objects.iter().find(|it| it.kind() == kind && it.name() == name).cloned(),
        }
    }

    fn put(&mut self, mut object: Object) {
        let (kind, name) = (object.kind().to_owned(), object.name().to_owned());
        object.metadata_mut().insert("uid".into(), format!("uid-{name}").into());
        match kind.as_str() {
            "ClusterServiceVersion" => self.csvs.push(serde_json::from_value(object.into_value()).unwrap()),
            "Subscription" => {
                self.subscriptions.push(serde_json::from_value(object.into_value()).unwrap());
                self.trace_subscription(self.subscriptions.len() - 1);
            }
            _ => {
                self.objects.retain(|it| !(it.kind() == kind && it.name() == name));
                self.objects.push(object);
            }
        }
    }
}

fn chosen_of(csv: &str) -> ChosenBundle {
    ChosenBundle {
        namespace: String::new(),
        catalog: String::new(),
        channel: String::new(),
        name: csv.to_owned(),
        package: String::new(),
        replaces: String::new(),
    }
}
