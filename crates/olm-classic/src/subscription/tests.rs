use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use olm_api::ConditionStatus;
use olm_api::classic::{CatalogSource, ClusterServiceVersion, InstallPlan, OperatorGroup, Subscription};
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_core::Object;
use olm_resolver::DeprecatedScope;
use olm_solver::{Catalog, ChosenBundle, Limits, Solution, solve};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::install_plan::PlannedBundle;

mod held_back;
mod status;
mod unreadable;

fn shared<T: Clone>(all: &[T]) -> Vec<Arc<T>> {
    all.iter().cloned().map(Arc::new).collect()
}

fn typed<T: serde::de::DeserializeOwned>(version: &str, kind: &str, mut value: Value) -> T {
    value["apiVersion"] = format!("operators.coreos.com/{version}").into();
    value["kind"] = kind.into();
    serde_json::from_value(value).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn csv(name: &str, phase: &str, replaces: &str) -> ClusterServiceVersion {
    let spec = json!({"displayName": name, "replaces": replaces, "install": {"strategy": "deployment"}});
    let value = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}});
    typed("v1alpha1", "ClusterServiceVersion", value)
}

fn plan(name: &str, generation: i64, phase: Option<&str>, csvs: &[&str]) -> InstallPlan {
    let is_approved = phase != Some("RequiresApproval");
    let spec = json!({"clusterServiceVersionNames": csvs, "approval": "Automatic", "approved": is_approved, "generation": generation});
    let mut value = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
    if let Some(phase) = phase {
        value["status"] = json!({"phase": phase, "catalogSources": []});
    }
    typed("v1alpha1", "InstallPlan", value)
}

fn subscription(status: Value) -> Subscription {
    let spec = json!({"name": "a", "source": "main", "sourceNamespace": "ns", "channel": "stable", "startingCSV": "a.v1"});
    let mut value = json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec});
    if !status.is_null() {
        value["status"] = status;
        value["status"]["lastUpdated"] = "2023-01-01T00:00:00Z".into();
    }
    typed("v1alpha1", "Subscription", value)
}

fn pending(state: &str, current: &str, installed: &str, plan: Option<&str>) -> Subscription {
    let mut status =
        json!({"state": state, "currentCSV": current, "installedCSV": installed, "installPlanGeneration": 3});
    if let Some(plan) = plan {
        status["installPlanRef"] = json!({"name": plan});
    }
    subscription(status)
}

/// The Subscription with this condition besides.
fn with_condition(mut subscription: Subscription, type_: &str, message: &str) -> Subscription {
    let condition = json!({"type": type_, "status": "True", "message": message});
    let status = subscription.status.as_mut().unwrap();
    status.conditions.push(serde_json::from_value(condition).unwrap());
    subscription
}

fn source(name: &str, namespace: &str) -> CatalogSource {
    let spec = json!({"sourceType": "grpc", "image": "registry.example.com/catalog:v1"});
    typed(
        "v1alpha1",
        "CatalogSource",
        json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}),
    )
}

fn group(strategy: &str) -> OperatorGroup {
    let value = json!({"metadata": {"name": "og", "namespace": "ns"}, "spec": {"upgradeStrategy": strategy}});
    typed("v1", "OperatorGroup", value)
}

/// One row of the table after another: the guard, then what comes of it.
#[test]
#[rustfmt::skip]
fn next_state_takes_each_row_of_the_table() {
    let mut generated = subscription(Value::Null);
    generated.metadata.annotations = Some([("olm.generated-by".to_owned(), "p".to_owned())].into());
    let plans = [
        plan("p", 3, Some("Installing"), &["a.v1"]),
        plan("failed", 2, Some("Failed"), &["a.v1"]),
        plan("complete", 1, Some("Complete"), &["a.v1"]),
    ];
    let csvs = [csv("a.v1", "Succeeded", "")];
    let mut left = csvs.clone();
    left[0].metadata.labels = Some([("operators.coreos.com/a.ns".to_owned(), String::new())].into());
    let mut incomplete = [csv("a.v1", "Pending", "")];
    incomplete[0].status.as_mut().unwrap().reason = "RequirementsNotMet".to_owned();
    let mut interrupted = incomplete.clone();
    let conditions = json!([{"phase": "Pending"}, {"phase": "Failed", "reason": "NoOperatorGroup"}]);
    interrupted[0].status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
    let replaced = [csv("a.v2", "Succeeded", "a.v1")];
    let installed = |plan: &str| pending("AtLatestKnown", "a.v1", "a.v1", Some(plan));
    let reporting = |of: &str, message: &str| with_condition(installed("gone"), of, message);
    let deleted = "it was deleted before it was complete";
    let mut seen = BTreeSet::new();
    for (subscription, csvs, fail_forward, rule, current, installed) in [
        (subscription(Value::Null), &[][..], false, StateRule::New, "", ""),
        (subscription(Value::Null), &csvs, false, StateRule::New, "", ""),
        (subscription(Value::Null), &left, false, StateRule::Adopted, "a.v1", "a.v1"),
        (generated.clone(), &csvs, false, StateRule::TakenOver, "a.v1", "a.v1"),
        (generated, &[], false, StateRule::TakenOverPending, "a.v1", ""),
        (pending("UpgradePending", "a.v1", "", Some("p")), &[], false, StateRule::Pending, "a.v1", ""),
        (pending("UpgradePending", "a.v1", "", Some("p")), &csvs, false, StateRule::Installed, "a.v1", "a.v1"),
        (pending("AtLatestKnown", "a.v1", "a.v1", Some("p")), &csvs, false, StateRule::Latest, "a.v1", "a.v1"),
        (pending("AtLatestKnown", "a.v1", "a.v1", Some("p")), &[], false, StateRule::CsvDeleted, "a.v1", "a.v1"),
        (pending("AtLatestKnown", "a.v1", "a.v1", Some("p")), &replaced, false, StateRule::Adopted, "a.v2", "a.v2"),
        (pending("UpgradePending", "a.v1", "a.v1", Some("p")), &replaced, false, StateRule::Adopted, "a.v2", "a.v2"),
        (pending("AtLatestKnown", "a.v1", "a.v1", Some("p")), &[csv("a.v2", "Pending", "a.v1")], false, StateRule::CsvDeleted, "a.v1", "a.v1"),
        (pending("UpgradePending", "a.v1", "", Some("complete")), &[], false, StateRule::CsvDeleted, "a.v1", "a.v1"),
        (pending("UpgradePending", "a.v2", "", Some("complete")), &[], false, StateRule::Pending, "a.v2", ""),
        (reporting("InstallPlanPending", ""), &incomplete, false, StateRule::Abandoned, "", ""),
        (reporting("InstallPlanPending", ""), &interrupted, false, StateRule::Abandoned, "", ""),
        (reporting("InstallPlanFailed", "no rights"), &incomplete, false, StateRule::Abandoned, "", ""),
        (reporting("InstallPlanMissing", deleted), &incomplete, false, StateRule::Abandoned, "", ""),
        (reporting("InstallPlanMissing", ""), &incomplete, false, StateRule::Latest, "a.v1", "a.v1"),
        (installed("gone"), &incomplete, false, StateRule::Latest, "a.v1", "a.v1"),
        (reporting("InstallPlanPending", ""), &csvs, false, StateRule::Latest, "a.v1", "a.v1"),
        (pending("UpgradePending", "a.v1", "", Some("p")), &incomplete, false, StateRule::Installed, "a.v1", "a.v1"),
        (pending("UpgradePending", "a.v1", "a.v1", None), &[], false, StateRule::Pending, "a.v1", "a.v1"),
        (pending("UpgradePending", "a.v2", "", Some("gone")), &[], false, StateRule::PlanVanished, "", ""),
        (pending("UpgradePending", "a.v2", "a.v1", Some("gone")), &csvs, false, StateRule::PlanVanished, "a.v1", "a.v1"),
        (pending("UpgradePending", "a.v2", "", Some("failed")), &[], false, StateRule::Pending, "a.v2", ""),
        (pending("UpgradePending", "a.v2", "", Some("failed")), &[], true, StateRule::PlanFailed, "a.v2", ""),
    ] {
        let mut cluster = cluster(vec![subscription.clone()]);
        (cluster.csvs, cluster.plans) = (csvs.to_vec(), plans.to_vec());
        cluster.groups = vec![group(if fail_forward { "TechPreviewUnsafeFailForward" } else { "Default" })];
        let decision = cluster.with_facts(|facts| next_state(&subscription, facts));
        let got =
            (decision.rule, decision.status.current_csv.as_str(), decision.status.installed_csv.as_str());
        assert_eq!(got, (rule, current, installed), "{subscription:?}");
        let row = STATE_ROWS.iter().find(|row| row.rule == rule).unwrap();
        assert_eq!(decision.status.state, row.to.as_str(), "{rule:?}");
        let from = SubscriptionState::from_subscription(&subscription);
        assert!(row.from.is_empty() || row.from.contains(&from), "{rule:?} from {from}");
        assert_eq!(
            decision.status.install_plan_generation.is_some(),
            subscription.status.is_some(),
            "{rule:?}"
        );
        seen.insert(rule);
    }
    seen.insert(StateRule::Planned);
    assert_eq!(seen.len(), STATE_ROWS.len(), "each row has a case; `Planned` is the end of a pass");
}

fn health(catalogs: &[(&str, &str, bool)], subscription: &Subscription) -> CatalogsHealth {
    let sources: Vec<_> = catalogs.iter().map(|(name, namespace, _)| source(name, namespace)).collect();
    let facts: Vec<_> = (sources.iter().zip(catalogs))
        .map(|(source, (_, _, is_healthy))| CatalogFact { source, is_healthy: *is_healthy })
        .collect();
    catalog_health(subscription, &facts, at(5))
}

#[test]
#[rustfmt::skip]
fn catalog_health_reports_what_is_missing_or_unhealthy() {
    let of = subscription(Value::Null);
    for (catalogs, status, reason, message, is_needed) in [
        (&[][..], ConditionStatus::True, "NoCatalogSourcesFound", "dependency resolution requires at least one catalogsource", false),
        (&[("main", "ns", true), ("other", "olm", true)], ConditionStatus::False, "AllCatalogSourcesHealthy",
            "all available catalogsources are healthy", false),
        (&[("other", "olm", true)], ConditionStatus::True, "UnhealthyCatalogSourceFound", "targeted catalogsource ns/main missing", false),
        (&[("main", "ns", false)], ConditionStatus::True, "UnhealthyCatalogSourceFound", "targeted catalogsource ns/main unhealthy", true),
        (&[("main", "ns", true), ("other", "olm", false)], ConditionStatus::True, "UnhealthyCatalogSourceFound",
            "catalogsource olm/other unhealthy", false),
    ] {
        let health = health(catalogs, &of);
        let got = (health.status, health.reason, health.message.as_str(), health.is_needed);
        assert_eq!(got, (status, reason, message, is_needed), "{catalogs:?}");
        let healthy: Vec<bool> = health.entries.iter().map(|entry| entry.healthy).collect();
        assert_eq!(healthy, catalogs.iter().map(|it| it.2).collect::<Vec<_>>());
    }
}

#[test]
#[rustfmt::skip]
fn conditions_follow_from_facts() {
    let healthy = health(&[("main", "ns", true)], &subscription(Value::Null));
    let facts = |plan, resolution, unpack| ConditionFacts {
        health: &healthy,
        plan,
        missing_csv: None,
        resolution,
        unpack,
        deprecations: Some(Vec::new()),
    };
    let failed = ResolutionFact::Failed { reason: "ConstraintsNotSatisfiable", message: "m".to_owned() };
    let running = UnpackFact::InProgress { message: "m".to_owned() };
    let stuck = UnpackFact::Failed { reason: "BundleUnpackFailed", message: "m".to_owned() };
    let of_phase = |phase: Option<&str>| plan("p", 1, phase, &[]);
    let (none, new, planning, installing, waiting, complete, broken) = (
        of_phase(None),
        of_phase(Some("")),
        of_phase(Some("Planning")),
        of_phase(Some("Installing")),
        of_phase(Some("RequiresApproval")),
        of_phase(Some("Complete")),
        of_phase(Some("Failed")),
    );
    let mut explained = broken.clone();
    let status = json!({
        "phase": "Failed", "catalogSources": [],
        "conditions": [{"type": "Installed", "status": "False", "reason": "InstallComponentFailed", "message": "why"}],
    });
    explained.status = Some(serde_json::from_value(status).unwrap());
    let ok = || (ResolutionFact::Resolved, UnpackFact::None);
    for (plan, (resolution, unpack), want) in [
        (PlanFact::None, ok(), None),
        (PlanFact::Missing, ok(), Some(("InstallPlanMissing", "ReferencedInstallPlanNotFound"))),
        (PlanFact::Present(&none), ok(), Some(("InstallPlanPending", "InstallPlanNotYetReconciled"))),
        (PlanFact::Present(&new), ok(), Some(("InstallPlanPending", "InstallPlanNotYetReconciled"))),
        (PlanFact::Present(&planning), ok(), Some(("InstallPlanPending", "Planning"))),
        (PlanFact::Present(&installing), ok(), Some(("InstallPlanPending", "Installing"))),
        (PlanFact::Present(&waiting), ok(), Some(("InstallPlanPending", "RequiresApproval"))),
        (PlanFact::Present(&complete), ok(), None),
        (PlanFact::Present(&broken), ok(), Some(("InstallPlanFailed", "InstallPlanFailed"))),
        (PlanFact::Present(&explained), ok(), Some(("InstallPlanFailed", "InstallComponentFailed"))),
        (PlanFact::None, (failed, UnpackFact::None), Some(("ResolutionFailed", "ConstraintsNotSatisfiable"))),
        (PlanFact::None, (ResolutionFact::Resolved, running), Some(("BundleUnpacking", "UnpackingInProgress"))),
        (PlanFact::None, (ResolutionFact::Resolved, stuck), Some(("BundleUnpackFailed", "BundleUnpackFailed"))),
    ] {
        let first = conditions(&[], &facts(plan, resolution, unpack), at(1));
        assert_eq!(
            (first[0].type_.as_str(), first[0].status),
            ("CatalogSourcesUnhealthy", ConditionStatus::False)
        );
        let got = first.get(1).map(|it| (it.type_.as_str(), it.reason.as_str()));
        assert_eq!((got, first.len()), (want, 1 + usize::from(want.is_some())));
        let not_tried = facts(plan, ResolutionFact::NotTried, UnpackFact::NotTried);
        assert_eq!(conditions(&first, &not_tried, at(9)), first, "times and what was not tried stay");
    }
    let deleted = "it was deleted before it was complete";
    for (plan, want) in [(&installing, deleted), (&broken, deleted), (&complete, "")] {
        let mut found = conditions(&[], &facts(PlanFact::Present(plan), ResolutionFact::Resolved, UnpackFact::None), at(1));
        for second in [2, 3] {
            let gone = facts(PlanFact::Missing, ResolutionFact::Resolved, UnpackFact::None);
            found = conditions(&found, &gone, at(second));
            let missing = found.iter().find(|it| it.type_ == "InstallPlanMissing").unwrap();
            assert_eq!(missing.message, want, "{plan:?}");
        }
    }
}

#[test]
fn resolution_failures_are_final_or_tried_again() {
    let unsatisfiable = resolve(&[subscription(Value::Null)], &[source("main", "ns")]).unwrap_err();
    let failure = resolution_failure(&unsatisfiable);
    let ResolutionFact::Failed { reason, message } = failure else { panic!("no failure") };
    assert_eq!(reason, "ConstraintsNotSatisfiable");
    assert!(message.starts_with("constraints not satisfiable: no operators found"), "{message}");
    let error = olm_solver::SolveError::TooMuchWork { namespace: "ns".to_owned(), steps: 1, candidates: 1 };
    let ResolutionFact::Failed { reason, .. } = resolution_failure(&error) else { panic!("no failure") };
    assert_eq!(reason, "ErrorPreventedResolution");
}

fn resolve(
    subscriptions: &[Subscription],
    sources: &[CatalogSource],
) -> Result<Solution, olm_solver::SolveError> {
    let catalogs: Vec<_> = sources.iter().map(|source| CatalogFact { source, is_healthy: true }).collect();
    let facts = NamespaceFacts {
        namespace: "ns",
        global_namespace: None,
        groups: &[],
        subscriptions: &shared(subscriptions),
        csvs: &[],
        plans: &[],
        catalogs: &catalogs,
    };
    solve(&solver_namespace(&facts, |_, _| Ok(Arc::default())), Limits::default())
}

#[test]
fn deprecation_messages_are_scoped_and_rolled_up() {
    let entries = [
        (DeprecatedScope::Package, "p is old".to_owned()),
        (DeprecatedScope::Channel("stable".into()), "c is old".to_owned()),
        (DeprecatedScope::Channel("other".into()), "no".to_owned()),
        (DeprecatedScope::Bundle("a.v1".into()), "b is old".to_owned()),
        (DeprecatedScope::Bundle("".into()), "no".to_owned()),
    ];
    let catalog = Catalog::new([unreadable::package("a", None)]);
    let [package, channel, bundle, all] =
        ["PackageDeprecated", "ChannelDeprecated", "BundleDeprecated", "Deprecated"];
    for (installed, of, types, text) in [
        (
            "a.v1",
            "stable",
            vec![package, channel, bundle, all],
            "olm.package/a: p is old; olm.channel/stable: c is old; olm.bundle/a.v1: b is old",
        ),
        ("a.v1", "", vec![package, bundle, all], "olm.package/a: p is old; olm.bundle/a.v1: b is old"),
        ("", "stable", vec![], ""),
        ("a.v2", "stable", vec![], ""),
        ("a.v1", "other", vec![], ""),
    ] {
        let mut subscription = pending("AtLatestKnown", installed, installed, None);
        of.clone_into(&mut subscription.spec.channel);
        let deprecations = PackageDeprecations { catalog: &catalog, entries: &entries };
        let got = deprecation_messages(&subscription, deprecations);
        assert_eq!(got.iter().map(|it| it.0).collect::<Vec<_>>(), types, "{installed} of {of}");
        assert_eq!(got.last().map(|it| it.1.as_str()).unwrap_or_default(), text, "{installed} of {of}");
    }
}

#[test]
fn history_keeps_five_plans_and_those_that_wait() {
    let plans = (1..=12).rev().map(|it| plan(&format!("p{it}"), it, Some("Complete"), &[]));
    let plans = shared(&plans.collect::<Vec<_>>());
    assert_eq!(expired_plans(&plans, &[]), ["p1", "p2", "p3", "p4", "p5"], "five in one pass");
    assert_eq!(expired_plans(&plans[..7], &[]), ["p6", "p7"]);
    assert_eq!(expired_plans(&plans[..5], &[]), Vec::<&str>::new());
    let waits = [Arc::new(pending("UpgradePending", "a.v1", "", Some("p6")))];
    assert_eq!(expired_plans(&plans[..7], &waits), ["p7"]);
    let complete = pending("AtLatestKnown", "a.v1", "a.v1", Some("p6"));
    let reported = [Arc::new(with_condition(complete.clone(), "InstallPlanPending", ""))];
    assert_eq!(
        expired_plans(&plans[..7], &reported),
        ["p7"],
        "the Subscription does not know that it is complete"
    );
    assert_eq!(expired_plans(&plans[..7], &[Arc::new(complete)]), ["p6", "p7"]);
    let mut failed = plans[..7].to_vec();
    failed[6] = Arc::new(plan("p6", 6, Some("Failed"), &["a.v1"]));
    let refers = [Arc::new(pending("AtLatestKnown", "a.v1", "a.v1", Some("p6")))];
    assert_eq!(expired_plans(&failed, &refers), ["p7"], "it can be retried");
    assert_eq!(expired_plans(&failed, &[]), ["p6", "p7"]);
    assert_eq!(next_generation(&plans, &waits), 13);
    assert_eq!(next_generation(&[], &waits), 4, "of a plan that is gone");
    assert_eq!(next_generation(&[], &[]), 1);
}

fn chosen(name: &str, package: &str) -> ChosenBundle {
    ChosenBundle {
        namespace: "ns".to_owned(),
        catalog: "main".to_owned(),
        channel: "stable".to_owned(),
        name: name.to_owned(),
        package: package.to_owned(),
        replaces: String::new(),
    }
}

#[test]
fn generated_subscription_pins_the_bundle() {
    let bundle = chosen("b.v1", "b");
    let made: Subscription =
        serde_json::from_value(generated_subscription(&bundle, "ns").into_value()).unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some("b-stable-main-ns"));
    assert_eq!(
        (made.spec.starting_csv.as_str(), made.spec.install_plan_approval.as_str()),
        ("b.v1", "Automatic")
    );
    assert!(subscribes(&made, &bundle) && !subscribes(&made, &chosen("a.v1", "a")));
    let mut any = made.clone();
    (any.spec.source, any.spec.source_namespace) = (String::new(), String::new());
    assert!(subscribes(&any, &bundle), "no catalog means all");
    let other = ChosenBundle { catalog: "other".to_owned(), ..bundle };
    assert!(!subscribes(&made, &other), "a package of several catalogs");
}

struct Cluster {
    groups: Vec<OperatorGroup>,
    subscriptions: Vec<Subscription>,
    csvs: Vec<ClusterServiceVersion>,
    plans: Vec<InstallPlan>,
    sources: Vec<(CatalogSource, bool)>,
}

impl Cluster {
    fn with_facts<Out>(&self, decide: impl FnOnce(&NamespaceFacts<'_>) -> Out) -> Out {
        let catalogs: Vec<_> = self
            .sources
            .iter()
            .map(|(source, is_healthy)| CatalogFact { source, is_healthy: *is_healthy })
            .collect();
        let facts = NamespaceFacts {
            namespace: "ns",
            global_namespace: Some("olm"),
            groups: &shared(&self.groups),
            subscriptions: &shared(&self.subscriptions),
            csvs: &shared(&self.csvs),
            plans: &shared(&self.plans),
            catalogs: &catalogs,
        };
        decide(&facts.with_exclusion())
    }
}

fn cluster(subscriptions: Vec<Subscription>) -> Cluster {
    Cluster {
        groups: vec![group("Default")],
        subscriptions,
        csvs: Vec::new(),
        plans: Vec::new(),
        sources: vec![(source("main", "ns"), true)],
    }
}

#[test]
fn begin_pass_stops_or_resolves() {
    let begin = |cluster: &Cluster| cluster.with_facts(|facts| begin_pass(facts, at(1)));
    assert_eq!(begin(&cluster(Vec::new())), Ok(Pass::Stop(PassRule::NoSubscriptions)));
    let mut several = cluster(vec![subscription(Value::Null)]);
    several.groups.push(group("Default"));
    assert_eq!(
        begin(&several).unwrap_err().to_string(),
        "found 2 operatorGroups, expected 1; delete all but one in the namespace"
    );
    several.groups.clear();
    assert_eq!(
        begin(&several).unwrap_err().to_string(),
        "found 0 operatorGroups, expected 1; create one in the namespace"
    );
    assert_eq!(begin(&cluster(vec![subscription(Value::Null)])), Ok(Pass::Resolve));

    let mut waiting = cluster(vec![pending("UpgradePending", "a.v1", "", Some("p"))]);
    waiting.plans = vec![plan("p", 3, Some("Installing"), &["a.v1"])];
    assert_eq!(begin(&waiting), Ok(Pass::Stop(PassRule::AllPending)));
    waiting.plans = vec![plan("p", 3, Some("RequiresApproval"), &["a.v1"])];
    assert_eq!(begin(&waiting), Ok(Pass::Resolve), "a newer version may take its place");
    waiting.plans[0].spec.approved = true;
    assert_eq!(begin(&waiting), Ok(Pass::Stop(PassRule::AllPending)), "it is about to be executed");
    waiting.csvs = vec![csv("a.v1", "", "")];
    let Ok(Pass::Write(changed)) = begin(&waiting) else { panic!("no write") };
    assert_eq!((changed[0].0, changed[0].1), (0, StateRule::Installed));

    let mut failed = cluster(vec![pending("UpgradePending", "a.v1", "", Some("p"))]);
    failed.plans = vec![plan("p", 3, Some("Failed"), &["a.v1"]), plan("q", 4, Some("Installing"), &["b.v1"])];
    assert_eq!(begin(&failed), Ok(Pass::Resolve), "it takes no part");
    failed.subscriptions.push(pending("UpgradePending", "b.v1", "", Some("q")));
    assert_eq!(begin(&failed), Ok(Pass::Stop(PassRule::AllPending)), "the one that takes part waits");
    failed.subscriptions.push(subscription(Value::Null));
    assert_eq!(begin(&failed), Ok(Pass::Resolve), "a plan that failed stops no other Subscription");

    let mut unhealthy = cluster(vec![subscription(Value::Null)]);
    unhealthy.sources.push((source("other", "olm"), false));
    assert_eq!(begin(&unhealthy), Ok(Pass::Resolve), "another catalog stops nothing");
    unhealthy.subscriptions[0].spec.source = "other".to_owned();
    unhealthy.subscriptions[0].spec.source_namespace = "olm".to_owned();
    assert_eq!(begin(&unhealthy), Ok(Pass::Stop(PassRule::CatalogUnhealthy)));
    unhealthy.subscriptions.push(subscription(Value::Null));
    assert_eq!(begin(&unhealthy), Ok(Pass::Resolve), "one Subscription needs it");
    unhealthy.subscriptions.pop();
    let exclusion =
        ("olm.operatorframework.io/exclude-global-namespace-resolution".to_owned(), "true".to_owned());
    unhealthy.groups[0].metadata.annotations = Some([exclusion].into());
    assert_eq!(begin(&unhealthy), Ok(Pass::Resolve));
    unhealthy.sources[1].0.metadata.namespace = Some("elsewhere".to_owned());
    unhealthy.groups = vec![group("Default")];
    assert_eq!(begin(&unhealthy), Ok(Pass::Resolve), "a catalog of another namespace does not count");
}

fn conclude(cluster: &Cluster, names: &[(&str, &str)]) -> (Conclusion, Solution) {
    conclude_without(cluster, names, &BTreeMap::new())
}

/// The same, without Subscriptions that were left out of the resolution.
fn conclude_without(
    cluster: &Cluster,
    names: &[(&str, &str)],
    left_out: &BTreeMap<String, String>,
) -> (Conclusion, Solution) {
    let solution = Solution { bundles: names.iter().map(|(name, package)| chosen(name, package)).collect() };
    let objects: Vec<[Object; 1]> = names
        .iter()
        .map(|(name, _)| [Object::from_value(serde_json::to_value(csv(name, "", "")).unwrap()).unwrap()])
        .collect();
    let bundles: Vec<_> = (solution.bundles.iter().zip(&objects))
        .map(|(chosen, objects)| PlannedBundle { chosen, objects, properties: &[], image: None })
        .collect();
    (cluster.with_facts(|facts| conclude_pass(facts, &solution, &bundles, left_out).unwrap()), solution)
}

#[test]
fn conclude_pass_makes_a_plan_once() {
    let mut cluster = cluster(vec![subscription(Value::Null)]);
    let (conclusion, solution) = conclude(&cluster, &[("a.v1", "a"), ("b.v1", "b")]);
    assert_eq!(conclusion.rule(), PassRule::PlanMade);
    let Conclusion::Make { mut plan, superseded } = conclusion else { panic!("no plan") };
    assert_eq!(superseded, Vec::<String>::new());
    assert_eq!(plan.spec.cluster_service_version_names, ["a.v1", "b.v1"]);
    let last = plan.status.as_ref().unwrap().plan.last().unwrap().resource.clone();
    assert_eq!((last.kind.as_str(), last.name.as_str()), ("Subscription", "b-stable-main-ns"));
    plan.metadata.name = Some("p".to_owned());
    let statuses = cluster.with_facts(|facts| planned_statuses(facts, &solution, &plan));
    assert_eq!(statuses.len(), 1);
    let values = statuses[0].1.clone();
    let got = (values.state.as_str(), values.current_csv.as_str(), values.install_plan_generation);
    assert_eq!(got, ("UpgradePending", "a.v1", Some(1)));
    let mut status = new_status(at(1));
    values.write_to(&mut status);
    cluster.subscriptions[0].status = Some(status);

    // the controller ended before it wrote the status of the plan
    let mut bare = (*plan).clone();
    let written = bare.status.take();
    cluster.plans = vec![bare];
    let (again, _) = conclude(&cluster, &[("a.v1", "a"), ("b.v1", "b")]);
    assert_eq!(
        again,
        Conclusion::UseAgain { name: "p".to_owned(), status: written.map(Box::new), superseded: Vec::new() }
    );
    cluster.plans = vec![*plan];
    let (again, _) = conclude(&cluster, &[("a.v1", "a"), ("b.v1", "b")]);
    assert_eq!(again, Conclusion::UseAgain { name: "p".to_owned(), status: None, superseded: Vec::new() });
    let (other, _) = conclude(&cluster, &[("a.v1", "a")]);
    let Conclusion::Make { plan: other, .. } = other else { panic!("no plan") };
    assert_eq!(other.spec.generation, Some(2));

    cluster.csvs = vec![csv("a.v1", "Pending", "")];
    assert_eq!(conclude(&cluster, &[("a.v1", "a")]).0, Conclusion::NothingNew, "it is there and current");
}

#[test]
fn solver_input_leaves_out_what_is_replaced() {
    let mut cluster = cluster(vec![pending("AtLatestKnown", "a.v2", "a.v2", None)]);
    let mut copied = csv("copy.v1", "Succeeded", "");
    copied.metadata.labels = Some([("olm.copiedFrom".to_owned(), "elsewhere".to_owned())].into());
    let mut described = csv("a.v2", "Pending", "a.v1");
    let text = r#"{"properties":[{"type":"olm.package","value":{"packageName":"a","version":"2.0.0"}}]}"#;
    described.metadata.annotations =
        Some([("operatorframework.io/properties".to_owned(), text.to_owned())].into());
    let mut garbled = csv("c.v1", "Succeeded", "");
    garbled.metadata.annotations =
        Some([("operatorframework.io/properties".to_owned(), "{".to_owned())].into());
    cluster.csvs =
        vec![csv("a.v1", "Replacing", ""), described, csv("old.v1", "Deleting", ""), copied, garbled];
    let namespace = cluster.with_facts(|facts| solver_namespace(facts, |_, _| Ok(Arc::default())));
    let installed: Vec<_> = namespace.installed.iter().map(|it| (it.name.as_str(), it.is_copied)).collect();
    assert_eq!(installed, [("a.v2", false), ("copy.v1", true), ("c.v1", false)]);
    assert_eq!(namespace.installed[0].properties.as_ref().unwrap().len(), 1);
    assert_eq!(namespace.installed[2].properties, None, "what cannot be read counts as absent");
    assert_eq!(namespace.subscriptions.len(), 0, "a.v2 still replaces a.v1");
    let subscriptions = |cluster: &Cluster| {
        let namespace = cluster.with_facts(|facts| solver_namespace(facts, |_, _| Ok(Arc::default())));
        namespace.subscriptions.iter().map(|it| it.installed_csv.clone()).collect::<Vec<_>>()
    };
    for (phase, strategy, want) in [
        ("Succeeded", "Default", vec!["a.v2"]),
        ("Installing", "Default", vec![]),
        ("Installing", "TechPreviewUnsafeFailForward", vec![]),
        ("Failed", "Default", vec![]),
        ("Failed", "TechPreviewUnsafeFailForward", vec!["a.v2"]),
    ] {
        cluster.groups = vec![group(strategy)];
        cluster.csvs = vec![csv("a.v1", "Replacing", ""), csv("a.v2", phase, "a.v1")];
        assert_eq!(subscriptions(&cluster), want, "{phase} {strategy}");
        cluster.csvs.remove(0);
        assert_eq!(subscriptions(&cluster), ["a.v2"], "{phase} {strategy}: a.v1 is gone");
    }
    cluster.csvs = vec![csv("a.v1", "Replacing", "")];
    let namespace = cluster.with_facts(|facts| solver_namespace(facts, |_, _| Ok(Arc::default())));
    assert_eq!(namespace.installed.len(), 1, "its successor is not there");
}

fn any_name() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["", "a.v1", "a.v2", "p", "q"])
}

proptest! {
    #[test]
    fn namespace_rests_whatever_its_statuses_are(
        states in proptest::collection::vec((
            proptest::sample::select(vec!["", "UpgradePending", "AtLatestKnown", "UpgradeFailed", "UpgradeAvailable", "x"]),
            any_name(), any_name(), proptest::option::of(any_name()),
        ), 1..4),
        csvs in proptest::collection::vec((any_name(), any_name()), 0..3),
        phases in proptest::collection::vec(proptest::option::of(
            proptest::sample::select(vec!["", "Installing", "Failed", "Complete", "x"])), 0..3),
        fail_forward in any::<bool>(),
    ) {
        let mut cluster = cluster(
            states.iter().map(|(state, current, installed, plan)| pending(state, current, installed, *plan)).collect(),
        );
        cluster.csvs = csvs.iter().map(|(name, replaces)| csv(name, "Replacing", replaces)).collect();
        let names = ["p", "q", "p"];
        cluster.plans =
            phases.iter().zip(names).map(|(phase, name)| plan(name, 1, *phase, &["a.v1"])).collect();
        cluster.groups = vec![group(if fail_forward { "TechPreviewUnsafeFailForward" } else { "Default" })];
        let mut passes = 0;
        while let Ok(Pass::Write(changed)) = cluster.with_facts(|facts| begin_pass(facts, at(1))) {
            for (index, _, values) in changed {
                values.write_to(cluster.subscriptions[index].status.get_or_insert_with(|| new_status(at(1))));
            }
            passes += 1;
            prop_assert!(passes <= 3, "{:?}", cluster.subscriptions);
        }
        let namespace = cluster.with_facts(|facts| solver_namespace(facts, |_, _| Err("down".to_owned())));
        if let Err(error) = solve(&namespace, Limits::default()) {
            let is_failure = matches!(resolution_failure(&error), ResolutionFact::Failed { .. });
            prop_assert!(is_failure);
        }
    }
}
