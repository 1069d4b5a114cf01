//! The pass over the namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use olm_api::classic::{CatalogSource, InstallPlanStatus};
use olm_classic::install_plan::{PlannedBundle, UnpackNext, UnpackObserved, UnpackSettings, decide_unpack};
use olm_classic::subscription::{
    CatalogFact, Conclusion, ConditionFacts, NamespaceFacts, PackageDeprecations, Pass, PassRule, PlanFact,
    ResolutionFact, StateRule, StatusValues, UnpackFact, begin_pass, catalog_health, conclude_pass,
    conditions, deprecation_messages, expired_plans, is_awaiting, new_bundles, new_status, next_state,
    planned_statuses, resolution_failure, resolve, solver_namespace,
};
use olm_solver::{Limits, Solution};
use serde_json::json;

use super::{World, typed};

pub(super) fn shared<T: Clone>(all: &[T]) -> Vec<Arc<T>> {
    all.iter().cloned().map(Arc::new).collect()
}

impl World<'_> {
    fn sources(&self) -> Vec<(CatalogSource, bool)> {
        let existing = self.catalogs.iter().filter(|(_, catalog)| catalog.exists);
        existing
            .map(|(key, catalog)| {
                let mut spec = json!({"sourceType": "grpc", "priority": catalog.priority});
                spec[if catalog.image { "image" } else { "address" }] = "somewhere:50051".into();
                let value = json!({"metadata": {"name": key, "namespace": catalog.namespace, "uid": format!("uid-{key}")}, "spec": spec});
                (typed("v1alpha1", "CatalogSource", value), true)
            })
            .collect()
    }

    pub(super) fn namespace_acts(&mut self) -> bool {
        let surplus: Vec<String> = expired_plans(&shared(&self.plans), &shared(&self.subscriptions))
            .into_iter()
            .map(str::to_owned)
            .collect();
        surplus.iter().for_each(|name| self.delete_plan(name));
        let sources = self.sources();
        let catalogs: Vec<CatalogFact<'_>> = sources
            .iter()
            .map(|(source, is_healthy)| CatalogFact { source, is_healthy: *is_healthy })
            .collect();
        let namespace = self.names.namespace();
        let (groups, subscriptions, csvs, plans) =
            (shared(&self.groups), shared(&self.subscriptions), shared(&self.csvs), shared(&self.plans));
        let facts = NamespaceFacts {
            namespace: &namespace,
            global_namespace: Some("olm"),
            groups: &groups,
            subscriptions: &subscriptions,
            csvs: &csvs,
            plans: &plans,
            catalogs: &catalogs,
        }
        .with_exclusion();
        let mut changed = !surplus.is_empty();
        match begin_pass(&facts, self.now) {
            Err(_) => _ = self.reached.passes.insert(PassRule::GroupCount),
            Ok(Pass::Stop(rule)) => _ = self.reached.passes.insert(rule),
            Ok(Pass::Write(states)) => {
                self.reached.passes.insert(PassRule::StateChanged);
                for (index, rule, values) in states {
                    self.reached.states.insert(rule);
                    self.write_values(index, values);
                    changed = true;
                }
            }
            Ok(Pass::Resolve) => {
                self.reached.passes.insert(PassRule::Resolves);
                changed |= self.resolve(&facts);
            }
        }
        let (subscriptions, csvs, plans) =
            (shared(&self.subscriptions), shared(&self.csvs), shared(&self.plans));
        let after = NamespaceFacts { subscriptions: &subscriptions, csvs: &csvs, plans: &plans, ..facts };
        for subscription in &subscriptions {
            let rule = next_state(subscription, &after).rule;
            self.reached.states.insert(rule);
        }
        changed | self.write_conditions(&catalogs)
    }

    fn write_values(&mut self, index: usize, values: StatusValues) {
        let now = self.now;
        values.write_to(self.subscriptions[index].status.get_or_insert_with(|| new_status(now)));
        self.trace_subscription(index);
    }

    fn resolve(&mut self, facts: &NamespaceFacts<'_>) -> bool {
        let content = |namespace: &str, name: &str| {
            let found = self.catalogs.get(name).filter(|it| it.namespace == namespace);
            found.map(|it| it.drafts.clone()).ok_or_else(|| "gone".to_owned())
        };
        let solution = match resolve(&solver_namespace(facts, content), Limits::default()) {
            Ok(resolution) => resolution.solution,
            Err(error) => {
                let failure = resolution_failure(&error);
                let changed = self.resolution != failure;
                self.resolution = failure;
                return changed;
            }
        };
        let changed = self.resolution != ResolutionFact::Resolved;
        self.resolution = ResolutionFact::Resolved;
        if is_awaiting(facts, &new_bundles(facts, &solution), &BTreeMap::new()) {
            self.reached.passes.insert(PassRule::PlanStillWaits);
            return changed;
        }
        let bundles: Vec<_> = solution
            .bundles
            .iter()
            .map(|chosen| {
                let all = &self.catalogs[&chosen.catalog].content.bundles;
                (chosen.clone(), all.iter().find(|it| it.name == chosen.name).unwrap().clone())
            })
            .collect();
        let planned: Vec<PlannedBundle<'_>> = bundles
            .iter()
            .map(|(chosen, bundle)| PlannedBundle {
                chosen,
                objects: &bundle.objects,
                properties: &bundle.properties,
                image: bundle.image.as_deref(),
            })
            .collect();
        for (_, bundle) in &bundles {
            if let Some(changed) = self.unpack(bundle) {
                return changed;
            }
        }
        let conclusion = conclude_pass(facts, &solution, &planned, &BTreeMap::new()).unwrap();
        self.reached.passes.insert(conclusion.rule());
        changed | self.carry_out(facts, &solution, conclusion)
    }

    /// `None`: the bundle is there.
    fn unpack(&mut self, bundle: &crate::scenario::Bundle) -> Option<bool> {
        let image = bundle.image.clone()?;
        let known = self.unpacking.get(&image).cloned().unwrap_or(UnpackObserved::NotStarted);
        let settings = UnpackSettings::default().for_group(&self.groups[0]).unwrap();
        let decision = decide_unpack(&image, &known, settings, self.now);
        self.reached.unpacks.insert(decision.rule);
        let before = self.unpack.clone();
        self.unpack = if decision.is_failed() {
            UnpackFact::Failed { reason: "BundleUnpackFailed", message: decision.message }
        } else {
            UnpackFact::InProgress { message: decision.message }
        };
        match decision.next {
            UnpackNext::Use => {
                self.unpack = UnpackFact::None;
                return None;
            }
            UnpackNext::Start => {
                let problem = bundle.is_missing.then(|| "image pull failed".to_owned());
                self.unpacking.insert(image, UnpackObserved::Running { since: self.now, problem });
                return Some(true);
            }
            UnpackNext::Wait(_) => {
                if matches!(known, UnpackObserved::Running { problem: None, .. }) {
                    self.unpacking.insert(image, UnpackObserved::Unpacked);
                    return Some(true);
                }
            }
            UnpackNext::Stop => {}
        }
        Some(self.unpack != before)
    }

    fn carry_out(&mut self, facts: &NamespaceFacts<'_>, solution: &Solution, conclusion: Conclusion) -> bool {
        conclusion.superseded().iter().for_each(|name| self.delete_plan(name));
        let plan = match conclusion {
            Conclusion::NothingNew => return false,
            Conclusion::UseAgain { name, .. } => {
                self.plans.iter().find(|it| it.metadata.name.as_ref() == Some(&name)).unwrap().clone()
            }
            Conclusion::Make { plan, .. } => {
                let mut plan = *plan;
                let name = format!("install-{}", plan.spec.generation.unwrap());
                plan.metadata.name = Some(name.clone());
                plan.metadata.uid = Some(format!("uid-{name}"));
                let status: Option<InstallPlanStatus> = plan.status.take();
                self.plans.push(plan);
                self.trace_plan(self.plans.len() - 1);
                self.plans.last_mut().unwrap().status = status;
                self.trace_plan(self.plans.len() - 1);
                self.plans.last().unwrap().clone()
            }
        };
        let statuses = planned_statuses(facts, solution, &plan);
        let changed = !statuses.is_empty();
        for (index, values) in statuses {
            self.reached.states.insert(StateRule::Planned);
            self.write_values(index, values);
        }
        changed
    }

    fn write_conditions(&mut self, catalogs: &[CatalogFact<'_>]) -> bool {
        let mut changed = false;
        for index in 0..self.subscriptions.len() {
            let subscription = &self.subscriptions[index];
            let health = catalog_health(subscription, catalogs, self.now);
            let mut status = subscription.status.clone().unwrap_or_else(|| new_status(self.now));
            let reference = status.install_plan_ref.clone();
            let plan = match reference.as_ref().and_then(|it| it.name.as_ref()) {
                None => PlanFact::None,
                Some(name) => (self.plans.iter().find(|it| it.metadata.name.as_ref() == Some(name)))
                    .map_or(PlanFact::Missing, PlanFact::Present),
            };
            let catalog = self.catalogs.get(&subscription.spec.source).filter(|it| it.exists);
            let deprecations = catalog.map(|catalog| {
                let of = catalog.content.deprecations.iter();
                let of = of.filter(|(package, _, _)| *package == subscription.spec.package);
                let entries: Vec<_> = of.map(|(_, scope, text)| (scope.clone(), text.clone())).collect();
                let deprecated = PackageDeprecations { catalog: &catalog.drafts, entries: &entries };
                deprecation_messages(subscription, deprecated)
            });
            let facts = ConditionFacts {
                health: &health,
                plan,
                missing_csv: None,
                resolution: self.resolution.clone(),
                unpack: self.unpack.clone(),
                deprecations,
            };
            status.conditions = conditions(&status.conditions, &facts, self.now);
            status.catalog_health = health.entries;
            if subscription.status.as_ref() != Some(&status) {
                self.subscriptions[index].status = Some(status);
                changed = true;
            }
        }
        changed
    }
}
