//! Subscriptions that take part in no resolution, beside those that do.

use olm_solver::Namespace;

use super::*;
use crate::install_plan::PlanPhase;
use crate::subscription::resolve;
use crate::subscription::resolve::held_back;

/// A Subscription to the package of its name, which has no status.
fn other(name: &str) -> Subscription {
    let mut subscription = subscription(Value::Null);
    subscription.metadata.name = Some(name.to_owned());
    name.clone_into(&mut subscription.spec.package);
    subscription
}

/// The Subscriptions that are resolved.
fn moving(cluster: &Cluster) -> Vec<String> {
    let namespace = cluster.with_facts(|facts| solver_namespace(facts, |_, _| Ok(Arc::default())));
    namespace.subscriptions.into_iter().map(|it| it.name).collect()
}

/// A catalog with one version of the package.
fn offering(name: &str, replaces: &str) -> Arc<Catalog> {
    let mut package = unreadable::package("a", None);
    let entry = &mut package.channels[0].entries[0];
    (entry.name, entry.replaces) = (name.to_owned(), replaces.to_owned());
    name.clone_into(&mut package.bundles[0].name);
    Arc::new(Catalog::new([package]))
}

#[test]
fn failed_plan_holds_back_only_its_subscriptions() {
    for (case, state, installed, phase, strategy, is_held) in [
        ("nothing was made", "UpgradePending", "", None, "Default", true),
        ("its version waits", "AtLatestKnown", "a.v1", Some("Pending"), "Default", true),
        ("its version has succeeded", "AtLatestKnown", "a.v1", Some("Succeeded"), "Default", false),
        ("fail-forward", "UpgradeFailed", "", None, "TechPreviewUnsafeFailForward", false),
    ] {
        let mut cluster = cluster(vec![pending(state, "a.v1", installed, Some("p")), other("b")]);
        let mut failed = plan("p", 3, Some("Failed"), &["a.v1"]);
        failed.status.as_mut().unwrap().message = "no rights".to_owned();
        cluster.plans = vec![failed];
        cluster.csvs = phase.map(|phase| csv("a.v1", phase, "")).into_iter().collect();
        cluster.groups = vec![group(strategy)];
        assert_eq!(cluster.with_facts(|facts| begin_pass(facts, at(1))), Ok(Pass::Resolve), "{case}");
        assert_eq!(moving(&cluster), if is_held { vec!["b"] } else { vec!["a", "b"] }, "{case}");
        let why = cluster.with_facts(|facts| held_back(&facts.subscriptions[0], facts));
        let text = "InstallPlan p failed: no rights; to retry it, set spec.approved to false, and then to true again";
        assert_eq!(why.as_deref(), is_held.then_some(text), "{case}");
    }
}

#[test]
fn upgrade_over_a_csv_that_is_stuck_is_reported() {
    let (forward, default) = ("TechPreviewUnsafeFailForward", "Default");
    let (error, conflict) = (Some("ErrorPreventedResolution"), Some("ConstraintsNotSatisfiable"));
    for (phase, reason, strategy, newer, want) in [
        ("Failed", "UnsupportedOperatorGroup", forward, "Pending", error),
        ("Failed", "UnsupportedOperatorGroup", default, "Pending", conflict),
        ("Pending", "RequirementsNotMet", forward, "Pending", error),
        ("Pending", "RequirementsNotMet", default, "Pending", conflict),
        ("Pending", "RequirementsNotMet", default, "Succeeded", None),
        ("Pending", "RequirementsUnknown", default, "Pending", None),
        ("Failed", "InstallComponentFailed", forward, "Pending", None),
        ("Replacing", "BeingReplaced", default, "Pending", None),
    ] {
        let mut cluster = cluster(vec![pending("AtLatestKnown", "a.v2", "a.v2", Some("p")), other("b")]);
        let mut before = csv("a.v1", phase, "");
        let status = before.status.as_mut().unwrap();
        (status.reason, status.message) = (reason.to_owned(), "why".to_owned());
        cluster.csvs = vec![before, csv("a.v2", newer, "a.v1")];
        cluster.plans = vec![plan("p", 3, Some("Complete"), &["a.v2"])];
        cluster.groups = vec![group(strategy)];
        let case = format!("{phase} {reason} {strategy} {newer}");
        let has_ended = newer == "Succeeded";
        assert_eq!(moving(&cluster), if has_ended { vec!["a", "b"] } else { vec!["b"] }, "{case}");
        let message = format!(
            "ClusterServiceVersion a.v2 waits for a.v1, which it replaces and which is {phase}: why; repair that, or delete \
             ClusterServiceVersion a.v1"
        );
        let found = |resolution: &ResolutionFact| {
            cluster.with_facts(|facts| {
                let (left_out, unpack) = (BTreeMap::new(), UnpackFact::NotTried);
                let outcome =
                    PassOutcome { facts, resolution, left_out: &left_out, unpack: &unpack, made: None };
                let status = next_status(&facts.subscriptions[0], None, &outcome, None, at(9)).unwrap();
                let mut conditions = status.conditions.into_iter();
                let failed = conditions.find(|it| it.type_ == "ResolutionFailed")?;
                Some((failed.reason, failed.message))
            })
        };
        let reported = want.map(|reason| (reason.to_owned(), message));
        assert_eq!(found(&ResolutionFact::Resolved), reported, "{case}");
        let of_namespace = ResolutionFact::Failed { reason: "Other", message: "none".to_owned() };
        assert_eq!(found(&of_namespace), Some(("Other".to_owned(), "none".to_owned())), "{case}");
    }
}

#[test]
fn deleted_csv_is_not_installed_again_beside_others() {
    let deleted = || pending("UpgradePending", "a.v1", "a.v1", Some("p"));
    let waiting = || {
        let mut waiting = other("b");
        waiting.status = pending("UpgradePending", "b.v1", "", Some("q")).status;
        waiting
    };
    let complete = || plan("p", 3, Some("Complete"), &["a.v1"]);
    let running = plan("q", 4, Some("Installing"), &["b.v1"]);
    for (case, subscriptions, plans, pass, want) in [
        ("alone", vec![deleted()], vec![complete()], Pass::Resolve, vec![]),
        ("its plan is gone, too", vec![deleted()], vec![], Pass::Resolve, vec![]),
        ("another one is new", vec![deleted(), other("b")], vec![complete()], Pass::Resolve, vec!["b"]),
        (
            "another one waits for its plan",
            vec![deleted(), waiting()],
            vec![complete(), running],
            Pass::Stop(PassRule::AllPending),
            vec!["b"],
        ),
    ] {
        let mut cluster = cluster(subscriptions);
        cluster.plans = plans;
        assert_eq!(cluster.with_facts(|facts| begin_pass(facts, at(1))), Ok(pass), "{case}");
        assert_eq!(moving(&cluster), want, "{case}");
        let why = cluster.with_facts(|facts| held_back(&facts.subscriptions[0], facts)).unwrap();
        assert!(why.contains("a.v1") && why.contains("delete this Subscription"), "{case}: {why}");
        cluster.csvs = vec![csv("a.v1", "Succeeded", "")];
        assert_eq!(moving(&cluster)[0], "a", "{case}: it is there again");
    }
}

#[test]
fn successor_made_by_hand_holds_back_its_subscription() {
    let after = "no next version is installed while it is there";
    let by = "a.v2, which this Subscription did not install, replaces it";
    let unless = ", unless its channel has the upgrade to a.v2";
    for (phase, has_successor, want) in [
        ("Replacing", true, Some(format!("ClusterServiceVersion a.v1 is Replacing: {by}; {after}{unless}"))),
        ("Deleting", true, Some(format!("ClusterServiceVersion a.v1 is Deleting: {by}; {after}{unless}"))),
        ("Deleting", false, Some(format!("ClusterServiceVersion a.v1 is Deleting; {after}"))),
        ("Replacing", false, None),
        ("Succeeded", false, None),
    ] {
        let mut cluster = cluster(vec![pending("AtLatestKnown", "a.v1", "a.v1", None), other("b")]);
        cluster.csvs = vec![csv("a.v1", phase, "")];
        cluster.csvs.extend(has_successor.then(|| csv("a.v2", "Installing", "a.v1")));
        let why = cluster.with_facts(|facts| held_back(&facts.subscriptions[0], facts));
        assert_eq!(why, want, "{phase} {has_successor}");
        assert_eq!(moving(&cluster), if want.is_some() { vec!["b"] } else { vec!["a", "b"] }, "{phase}");
    }
}

#[test]
fn successor_made_by_hand_is_installed_from_the_channel() {
    for (case, (offered, replaces), plan_phase, other_csv, want) in [
        ("it has another version", ("a.v3", "a.v1"), "Complete", "", None),
        ("it has no upgrade to the successor", ("a.v2", "a.v0"), "Complete", "", None),
        ("it has the successor", ("a.v2", "a.v1"), "Complete", "", Some("a.v2")),
        ("the plan of the version failed", ("a.v2", "a.v1"), "Failed", "", None),
        ("another Subscription has the successor", ("a.v2", "a.v1"), "Complete", "a.v2", None),
    ] {
        let mut other = other("b");
        other.status = pending("AtLatestKnown", other_csv, other_csv, None).status;
        let mut cluster = cluster(vec![pending("AtLatestKnown", "a.v1", "a.v1", Some("p")), other]);
        cluster.csvs = vec![csv("a.v1", "Replacing", ""), csv("a.v2", "Pending", "a.v1")];
        cluster.plans = vec![plan("p", 3, Some(plan_phase), &["a.v1"])];
        let content = offering(offered, replaces);
        let namespace = cluster.with_facts(|facts| solver_namespace(facts, |_, _| Ok(Arc::clone(&content))));
        let waits = cluster.with_facts(|facts| waiting(facts, &namespace));
        assert_eq!(waits.iter().any(|(name, _)| name == "a"), want.is_none(), "{case}");
        let asked = namespace.subscriptions.iter().find(|it| it.name == "a");
        let asked = asked.map(|it| (it.starting_csv.as_str(), it.installed_csv.as_str()));
        assert_eq!(asked, want.map(|it| (it, "")), "{case}");
        let installed: Vec<_> = namespace.installed.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(installed.contains(&"a.v2"), want.is_none(), "{case}");
        let alone = Namespace {
            subscriptions: namespace.subscriptions.into_iter().filter(|it| it.name == "a").collect(),
            ..namespace
        };
        let solution = resolve(&alone, Limits::default()).unwrap().solution;
        let names: Vec<_> = solution.bundles.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, Vec::from_iter(want), "{case}");
    }
}

#[test]
#[rustfmt::skip]
fn held_upgrade_is_reported_while_a_next_version_waits() {
    let unfinished = "and has not replaced a.v1 yet; no next version is installed before";
    let failed = format!("ClusterServiceVersion a.v2 is Failed {unfinished}; repair what status.message of a.v2 names, or set \
                          spec.upgradeStrategy of the OperatorGroup to TechPreviewUnsafeFailForward");
    let held = format!("ClusterServiceVersion a.v2 is Pending {unfinished}; wait until the operator is upgradeable, or set \
                        spec.overrides of OperatorCondition a.v1");
    let replaced = "ClusterServiceVersion a.v1 is Replacing: a.v2, which this Subscription did not install, replaces it; no next version \
                    is installed while it is there, unless its channel has the upgrade to a.v2".to_owned();
    let (default, forward) = ("Default", "TechPreviewUnsafeFailForward");
    for (installed, (phase, reason), strategy, (next, replaces), want) in [
        ("a.v2", ("Failed", "ComponentUnhealthy"), default, ("a.v3", "a.v2"), Some(&failed)),
        ("a.v2", ("Failed", "ComponentUnhealthy"), default, ("a.v2", "a.v1"), None),
        ("a.v2", ("Failed", "ComponentUnhealthy"), forward, ("a.v3", "a.v2"), None),
        ("a.v2", ("Pending", "OperatorConditionNotUpgradeable"), default, ("a.v3", "a.v2"), Some(&held)),
        ("a.v2", ("Pending", "OperatorConditionNotUpgradeable"), default, ("a.v2", "a.v1"), None),
        ("a.v2", ("Installing", "InstallWaiting"), default, ("a.v3", "a.v2"), None),
        ("a.v1", ("Installing", "InstallWaiting"), default, ("a.v3", "a.v1"), Some(&replaced)),
        ("a.v1", ("Installing", "InstallWaiting"), default, ("a.v2", "a.v1"), None),
        ("a.v1", ("Installing", "InstallWaiting"), default, ("a.v1", ""), None),
    ] {
        let mut cluster = cluster(vec![pending("AtLatestKnown", installed, installed, Some("p"))]);
        let mut newer = csv("a.v2", phase, "a.v1");
        newer.status.as_mut().unwrap().reason = reason.to_owned();
        cluster.csvs = vec![csv("a.v1", "Replacing", ""), newer];
        cluster.plans = vec![plan("p", 3, Some("Complete"), &[installed])];
        cluster.groups = vec![group(strategy)];
        let content = offering(next, replaces);
        let next_status = |cluster: &Cluster, deprecated: Option<PackageDeprecations<'_>>| {
            cluster.with_facts(|facts| {
                let outcome = PassOutcome {
                    facts,
                    resolution: &ResolutionFact::Resolved,
                    left_out: &BTreeMap::new(),
                    unpack: &UnpackFact::None,
                    made: None,
                };
                next_status(&facts.subscriptions[0], None, &outcome, deprecated, at(9))
            })
        };
        let deprecated = PackageDeprecations { catalog: &content, entries: &[] };
        let status = next_status(&cluster, Some(deprecated)).unwrap();
        let case = format!("{installed} {phase} {strategy} {next}");
        assert_eq!(subscription_wait(&status).as_ref(), want, "{case}");
        let condition = status.conditions.iter().find(|it| it.type_ == "ResolutionFailed");
        let reason = condition.map(|it| it.reason.as_str());
        assert_eq!(reason, want.map(|_| "ConstraintsNotSatisfiable"), "{case}");
        // it stays while the catalog is not read
        cluster.subscriptions[0].status = Some(status);
        let later = next_status(&cluster, None);
        let later = later.as_ref().or(cluster.subscriptions[0].status.as_ref()).unwrap();
        assert_eq!(subscription_wait(later).as_ref(), want, "{case}, without the catalog");
    }
}

#[test]
fn resolution_without_subscriptions_needs_no_catalog() {
    let mut cluster = cluster(vec![pending("AtLatestKnown", "a.v1", "a.v1", Some("p"))]);
    cluster.plans = vec![plan("p", 3, Some("Failed"), &["a.v1"])];
    cluster.csvs = vec![csv("a.v1", "Pending", "")];
    let namespace = cluster.with_facts(|facts| solver_namespace(facts, |_, _| Err("down".to_owned())));
    assert_eq!(resolve(&namespace, Limits::default()).unwrap(), Resolution::default());
}

#[test]
fn failed_plan_is_not_made_again() {
    let mut cluster = cluster(vec![pending("UpgradePending", "a.v1", "", Some("p"))]);
    let rule = |cluster: &Cluster| conclude(cluster, &[("a.v1", "a")]).0.rule();
    let Conclusion::Make { mut plan, .. } = conclude(&cluster, &[("a.v1", "a")]).0 else { panic!("no plan") };
    plan.metadata.name = Some("p".to_owned());
    PlanPhase::Failed.as_str().clone_into(&mut plan.status.as_mut().unwrap().phase);
    cluster.plans = vec![*plan];
    assert_eq!(rule(&cluster), PassRule::PlanUsedAgain, "what depends on a.v1 asks for it in each pass");
    cluster.groups = vec![group("TechPreviewUnsafeFailForward")];
    assert_eq!(rule(&cluster), PassRule::PlanMade, "fail-forward");
    cluster.groups = vec![group("Default")];
    cluster.subscriptions = vec![subscription(Value::Null)];
    assert_eq!(rule(&cluster), PassRule::PlanMade, "no Subscription refers to it");
}
