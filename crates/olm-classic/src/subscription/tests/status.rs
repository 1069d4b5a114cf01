//! Statuses, waits, and what a Subscription or a plan of an earlier time becomes.

use olm_api::classic::Time;
use olm_api::classic::subscription::SubscriptionStatus;

use super::*;
use crate::install_plan::PlanPhase;
use crate::operator::announce;

/// The status that a pass writes, and what it waits for.
fn after_pass(cluster: &Cluster, resolution: &ResolutionFact) -> (SubscriptionStatus, Option<String>) {
    cluster.with_facts(|facts| {
        let outcome = PassOutcome {
            facts,
            resolution,
            left_out: &BTreeMap::new(),
            unpack: &UnpackFact::NotTried,
            made: None,
        };
        let subscription = &facts.subscriptions[0];
        let status = next_status(subscription, None, &outcome, None, at(9)).unwrap();
        let mut written = Subscription::clone(subscription);
        written.status = Some(status.clone());
        assert_eq!(next_status(&written, None, &outcome, None, at(10)), None, "it is written once");
        let wait = subscription_wait(&status);
        (status, wait)
    })
}

#[test]
fn subscription_health_covers_what_the_group_excludes() {
    let mut cluster = cluster(vec![subscription(Value::Null)]);
    let exclusion =
        ("olm.operatorframework.io/exclude-global-namespace-resolution".to_owned(), "true".to_owned());
    cluster.groups[0].metadata.annotations = Some([exclusion].into());
    cluster.sources = vec![(source("main", "olm"), true)];
    let (status, _) = after_pass(&cluster, &ResolutionFact::Resolved);
    let healthy: Vec<_> = status.catalog_health.iter().map(|it| it.healthy).collect();
    assert_eq!(healthy, [true]);
}

#[test]
#[rustfmt::skip]
fn subscription_wait_names_object_and_fix() {
    let failed = ResolutionFact::Failed { reason: "ConstraintsNotSatisfiable", message: "no a".to_owned() };
    for (phase, installed, resolution, want) in [
        ("Installing", "", &ResolutionFact::Resolved, None),
        ("RequiresApproval", "", &failed, Some("InstallPlan p waits for approval; set spec.approved of it to true")),
        ("Failed", "", &ResolutionFact::Resolved,
            Some("InstallPlan p failed: no rights; to retry it, set spec.approved to false, and then to true again")),
        (
            "Complete",
            "a.v1",
            &ResolutionFact::Resolved,
            Some(
                "ClusterServiceVersion a.v1, which status.installedCSV names, was deleted; to install the operator \
                 again, delete this Subscription and create it again",
            ),
        ),
        ("Complete", "", &failed, Some("no a")),
    ] {
        let mut cluster = cluster(vec![pending("UpgradePending", "a.v1", installed, Some("p"))]);
        let mut plan = plan("p", 3, Some(phase), &["a.v1"]);
        let condition = json!([{"type": "Installed", "status": "False", "reason": "InstallComponentFailed", "message": "no rights"}]);
        plan.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
        cluster.plans = vec![plan];
        let (status, wait) = after_pass(&cluster, resolution);
        assert_eq!(wait.as_deref(), want, "{phase}");
        assert_eq!(status.last_updated.0, at(9));
        let is_missing = status.conditions.iter().any(|it| it.type_ == "InstalledCSVMissing");
        assert_eq!(is_missing, !installed.is_empty(), "{phase}");
    }
}

#[test]
fn plan_that_was_created_again_counts_as_missing() {
    for (of_reference, of_plan, is_missing) in
        [(None, "u", false), (Some("u"), "u", false), (Some("u"), "created again", true)]
    {
        let mut subscription = pending("AtLatestKnown", "a.v1", "a.v1", Some("p"));
        let status = subscription.status.as_mut().unwrap();
        status.install_plan_ref.as_mut().unwrap().uid = of_reference.map(str::to_owned);
        let mut cluster = cluster(vec![subscription]);
        cluster.csvs = vec![csv("a.v1", "Succeeded", "")];
        cluster.plans = vec![plan("p", 3, Some("Complete"), &["a.v1"])];
        cluster.plans[0].metadata.uid = Some(of_plan.to_owned());
        let (status, _) = after_pass(&cluster, &ResolutionFact::Resolved);
        let missing = status.conditions.iter().any(|it| it.type_ == "InstallPlanMissing");
        assert_eq!(missing, is_missing, "{of_reference:?} {of_plan}");
    }
}

#[test]
fn subscription_without_catalogs_waits_for_one() {
    let mut cluster = cluster(vec![subscription(Value::Null)]);
    cluster.sources.clear();
    let (_, wait) = after_pass(&cluster, &ResolutionFact::NotTried);
    assert_eq!(wait.as_deref(), Some("dependency resolution requires at least one catalogsource"));
}

#[test]
fn subscription_waits_for_catalogs_that_it_needs() {
    for (unhealthy, state, want) in [
        ("main", "", Some("targeted catalogsource ns/main unhealthy")),
        ("main", "AtLatestKnown", Some("targeted catalogsource ns/main unhealthy")),
        ("other", "", Some("catalogsource ns/other unhealthy")),
        ("other", "AtLatestKnown", None),
    ] {
        let mut cluster = cluster(vec![pending(state, "", "", None)]);
        cluster.sources = ["main", "other"].map(|name| (source(name, "ns"), name != unhealthy)).into();
        let (_, wait) = after_pass(&cluster, &ResolutionFact::NotTried);
        assert_eq!(wait.as_deref(), want, "{unhealthy} {state}");
    }
}

#[test]
fn subscription_adopts_what_an_earlier_one_left() {
    let labelled = |name: &str, phase: &str, replaces: &str| {
        let mut csv = csv(name, phase, replaces);
        csv.metadata.labels = Some([("operators.coreos.com/a.ns".to_owned(), String::new())].into());
        csv
    };
    let adopted = |subscriptions: Vec<Subscription>, csvs: Vec<ClusterServiceVersion>| {
        let mut cluster = cluster(subscriptions);
        cluster.csvs = csvs;
        let decision = cluster.with_facts(|facts| next_state(&facts.subscriptions[0], facts));
        (decision.rule == StateRule::Adopted).then_some(decision.status.installed_csv)
    };
    let new = || subscription(Value::Null);
    let named = |name: &str, package: &str, mut it: Subscription| {
        it.metadata.name = Some(name.to_owned());
        it.spec.package = package.to_owned();
        it
    };
    let left = || labelled("a.v2", "Succeeded", "a.v1");
    assert_eq!(adopted(vec![new()], vec![left()]).as_deref(), Some("a.v2"));
    let upgrade = vec![labelled("a.v1", "Replacing", ""), left()];
    assert_eq!(adopted(vec![new()], upgrade).as_deref(), Some("a.v2"), "the newer one of an upgrade");
    assert_eq!(adopted(vec![new()], vec![csv("a.v2", "Succeeded", "")]), None, "made by hand");
    let generated = |starting: &str| {
        let mut it = new();
        it.metadata.annotations = Some([("olm.generated-by".to_owned(), "p".to_owned())].into());
        it.spec.starting_csv = starting.to_owned();
        it
    };
    let unlabelled = || vec![csv("a.v2", "Succeeded", "")];
    assert_eq!(adopted(vec![generated("a.v2")], unlabelled()).as_deref(), Some("a.v2"), "of its plan");
    assert_eq!(adopted(vec![generated("a.v1")], unlabelled()), None, "of another plan");
    for (package, want) in [("a", Some("a.v2")), ("b", None)] {
        let made = json!({"metadata": {"name": "made"}, "spec": {"name": package, "source": "s", "sourceNamespace": "olm"}});
        let mut planned = plan("p", 1, Some("Complete"), &["a.v2"]);
        let step = json!({"resolving": "a.v2", "status": "Present", "resource": {"kind": "Subscription", "name": "made",
            "group": "operators.coreos.com", "version": "v1alpha1", "sourceName": "s", "sourceNamespace": "olm",
            "manifest": made.to_string()}});
        planned.status.as_mut().unwrap().plan = vec![serde_json::from_value(step).unwrap()];
        let mut cluster = cluster(vec![new()]);
        (cluster.csvs, cluster.plans) = (unlabelled(), vec![planned]);
        let decision = cluster.with_facts(|facts| next_state(&facts.subscriptions[0], facts));
        let adopted = (decision.rule == StateRule::Adopted).then_some(decision.status.installed_csv);
        assert_eq!(adopted.as_deref(), want, "a plan subscribes to {package}");
    }
    let mut fallible = labelled("a.v2", "Pending", "");
    assert_eq!(adopted(vec![new()], vec![fallible.clone()]), None, "its plan may have ended half-way");
    let earlier = json!([{"phase": "Succeeded"}, {"phase": "Pending"}]);
    fallible.status.as_mut().unwrap().conditions = serde_json::from_value(earlier).unwrap();
    assert_eq!(adopted(vec![new()], vec![fallible]).as_deref(), Some("a.v2"), "it was installed");
    assert_eq!(adopted(vec![new()], vec![left(), labelled("a.v5", "Succeeded", "")]), None, "two of them");
    let deleted: ClusterServiceVersion = {
        let mut value = serde_json::to_value(left()).unwrap();
        value["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        serde_json::from_value(value).unwrap()
    };
    assert_eq!(adopted(vec![new()], vec![deleted]), None, "it is being deleted");
    let user = named("b", "b", pending("AtLatestKnown", "a.v2", "a.v2", None));
    assert_eq!(adopted(vec![new(), user], vec![left()]), None, "another Subscription refers to it");
    assert_eq!(adopted(vec![new(), named("c", "a", new())], vec![left()]), None, "two for one package");
}

#[test]
fn pending_plan_gives_way_to_a_newer_version() {
    let mut cluster = cluster(vec![pending("UpgradePending", "a.v1", "", Some("p"))]);
    cluster.plans = vec![plan("p", 3, Some("RequiresApproval"), &["a.v1"])];
    for (names, want) in [(&["a.v1"][..], true), (&["a.v2"], false), (&["a.v1", "b.v1"], false), (&[], false)]
    {
        let chosen: Vec<_> = names.iter().map(|name| chosen(name, "a")).collect();
        let chosen: Vec<_> = chosen.iter().collect();
        let is_awaiting = cluster.with_facts(|facts| is_awaiting(facts, &chosen, &BTreeMap::new()));
        assert_eq!(is_awaiting, want, "{names:?}");
    }
    let superseded = |cluster: &Cluster, names: &[(&str, &str)]| match conclude(cluster, names).0 {
        Conclusion::Make { superseded, .. } => superseded,
        other => panic!("{other:?}"),
    };
    assert_eq!(superseded(&cluster, &[("a.v2", "a")]), ["p"]);
    assert_eq!(superseded(&cluster, &[("a.v1", "a"), ("b.v1", "b")]), Vec::<String>::new(), "it has more");
    cluster.plans[0].status.as_mut().unwrap().phase = PlanPhase::Installing.as_str().to_owned();
    assert_eq!(superseded(&cluster, &[("a.v2", "a")]), Vec::<String>::new(), "it is being executed");
    cluster.plans[0].status.as_mut().unwrap().phase = PlanPhase::RequiresApproval.as_str().to_owned();
    cluster.plans[0].spec.approved = true;
    assert_eq!(superseded(&cluster, &[("a.v2", "a")]), Vec::<String>::new(), "it is about to be executed");
    cluster.plans[0].spec.approved = false;
    cluster.subscriptions.push(subscription(Value::Null));
    assert_eq!(superseded(&cluster, &[("a.v2", "a")]), ["p"], "also when another Subscription is new");
}

#[test]
fn unreferenced_plan_gives_way_to_a_newer_version() {
    let superseded = |phase: Option<&str>, generation: i64, names: &[(&str, &str)]| {
        let mut cluster = cluster(vec![pending("UpgradePending", "a.v1", "", Some("p"))]);
        cluster.plans =
            vec![plan("p", 3, Some("Complete"), &["a.v1"]), plan("q", generation, phase, &["a.v2"])];
        let (conclusion, _) = conclude(&cluster, names);
        assert_eq!(conclusion.rule(), PassRule::PlanMade);
        conclusion.superseded().to_vec()
    };
    let none = Vec::<String>::new();
    let waits = Some("RequiresApproval");
    assert_eq!(superseded(waits, 4, &[("a.v3", "a")]), ["q"]);
    assert_eq!(superseded(None, 4, &[("a.v3", "a")]), ["q"], "its status was not written");
    assert_eq!(superseded(waits, 4, &[("a.v2", "a"), ("b.v1", "b")]), ["q"], "it has more");
    assert_eq!(superseded(Some("Installing"), 4, &[("a.v3", "a")]), none, "it is being executed");
    assert_eq!(superseded(waits, 3, &[("a.v3", "a")]), none, "a Subscription has referred to it");
}

#[test]
fn pending_plan_gives_way_to_one_that_is_used_again() {
    let mut cluster = cluster(vec![pending("UpgradePending", "a.v2", "", Some("p"))]);
    cluster.plans = vec![plan("p", 3, Some("RequiresApproval"), &["a.v2"]), plan("q", 4, None, &["a.v1"])];
    let (conclusion, _) = conclude(&cluster, &[("a.v1", "a")]);
    assert_eq!(
        (conclusion.rule(), conclusion.superseded()),
        (PassRule::PlanUsedAgain, &["p".to_owned()][..])
    );
}

#[test]
fn unreferenced_plan_without_approval_gives_way_until_it_begins() {
    for (has_begun, version, want) in
        [(false, "a.v3", &["q"][..]), (false, "a.v2", &["q"]), (true, "a.v3", &[]), (true, "a.v2", &[])]
    {
        let mut cluster = cluster(vec![pending("UpgradePending", "a.v1", "", Some("p"))]);
        let mut unreferenced = plan("q", 4, Some("Installing"), &["a.v2"]);
        announce(&mut unreferenced, "ns", ["a"]);
        unreferenced.status.as_mut().unwrap().start_time = has_begun.then(|| Time(at(1)));
        cluster.plans = vec![plan("p", 3, Some("Complete"), &["a.v1"]), unreferenced];
        let superseded = match conclude(&cluster, &[(version, "a"), ("b.v1", "b")]).0 {
            Conclusion::Make { superseded, .. } => superseded,
            other => panic!("{other:?}"),
        };
        assert_eq!(superseded, want, "{has_begun} {version}");
    }
}

#[test]
fn pending_plan_of_a_left_out_subscription_stays() {
    let other = |mut it: Subscription| {
        (it.metadata.name, it.spec.package) = (Some("b".to_owned()), "b".to_owned());
        it
    };
    let down = BTreeMap::from([("b".to_owned(), "down".to_owned())]);
    let nothing = BTreeMap::new();
    let both = [
        pending("UpgradePending", "a.v1", "", Some("p")),
        other(pending("UpgradePending", "b.v1", "", Some("p"))),
    ];
    let mut cluster = cluster(both.to_vec());
    cluster.plans = vec![plan("p", 3, Some("RequiresApproval"), &["a.v1", "b.v1", "of-b.v1"])];
    for (left_out, name, want) in [(&down, "a.v1", true), (&nothing, "a.v1", false), (&down, "a.v2", false)] {
        let chosen = chosen(name, "a");
        let is_awaiting = cluster.with_facts(|facts| is_awaiting(facts, &[&chosen], left_out));
        assert_eq!(is_awaiting, want, "{name} {left_out:?}");
    }
    let superseded =
        |cluster: &Cluster, name: &str, left_out| match conclude_without(cluster, &[(name, "a")], left_out).0
        {
            Conclusion::Make { superseded, .. } => superseded,
            other => panic!("{other:?}"),
        };
    assert_eq!(superseded(&cluster, "a.v2", &down), ["p"], "it installs an old version of another package");
    cluster.subscriptions[0] = subscription(Value::Null);
    cluster.plans = vec![plan("p", 3, Some("RequiresApproval"), &["b.v1", "of-b.v1"])];
    assert_eq!(superseded(&cluster, "a.v1", &down), Vec::<String>::new());
    assert_eq!(superseded(&cluster, "a.v1", &nothing), ["p"]);
}
