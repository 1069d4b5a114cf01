//! Whole statuses. Numbers are those of the case table in cluster-operator §15; the cases that need no status are beside
//! `olm_core::openshift`.

use olm_core::openshift::{Lifecycle, Revision, Stream};

use super::*;
use crate::observe::{Broken, Extension, RevisionFact};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn extension(name: &str, installed: Option<&str>) -> Extension {
    Extension { name: name.to_owned(), uid: format!("uid-{name}"), installed: installed.map(str::to_owned) }
}

fn revision(extension: &str, number: i64, bundle: &str, properties: Option<&str>) -> RevisionFact {
    Ok(Revision {
        extension: extension.to_owned(),
        number,
        lifecycle: Lifecycle::Active,
        bundle: bundle.to_owned(),
        properties: properties.map(str::to_owned),
    })
}

fn max(value: &str) -> String {
    format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":"{value}"}}]"#)
}

fn current(version: &str) -> Current {
    Current::Known { version: version.to_owned(), stream: Stream::of_version(version).unwrap() }
}

fn observed(version: &str, extensions: Vec<Extension>, revisions: Vec<RevisionFact>) -> Observed {
    Observed {
        current: current(version),
        installed: Installed::Observed { extensions, revisions, csvs: Vec::new() },
        deployments: BTreeMap::new(),
        namespace: "olmv1-system".to_owned(),
        stored: ClusterOperatorStatus::default(),
    }
}

/// One extension `e` with one revision.
fn observe_one(version: &str, bundle: &str, properties: Option<&str>) -> Observed {
    observed(version, vec![extension("e", Some(bundle))], vec![revision("e", 1, bundle, properties)])
}

/// Derives as if it had been published `second` seconds after the beginning, and keeps it as published.
fn publish(observed: &mut Observed, memory: &mut Memory, second: i64) -> Derived {
    let derived = derive(observed, memory, at(second));
    observed.stored = derived.status.clone();
    derived
}

fn summary(status: &ClusterOperatorStatus, type_: &str) -> (String, String, String, i64) {
    let found = status.condition(type_).unwrap();
    let at = found.last_transition_time.0.as_second();
    (found.status.to_string(), found.reason.clone(), found.message.clone(), at)
}

fn two_deployments(ready: bool) -> BTreeMap<String, Option<Deployment>> {
    let whole = Deployment {
        generation: 1,
        observed_generation: 1,
        desired: 1,
        updated: 1,
        available: i64::from(ready),
        unavailable: i64::from(!ready),
        progressing_reason: "ReplicaSetUpdated".to_owned(),
    };
    ["catalogd-controller-manager", "operator-controller-controller-manager"]
        .map(|name| (name.to_owned(), Some(whole.clone())))
        .into()
}

#[test]
fn status_of_a_healthy_cluster() {
    let mut observed = observed("4.19.3", vec![], vec![]);
    observed.deployments = two_deployments(true);
    let derived = publish(&mut observed, &mut Memory::default(), 100);
    insta::assert_json_snapshot!(derived.status);
}

#[test]
fn status_case_44_blocking_bundles_in_the_summary() {
    let mut observed = observe_one("4.17.0", "b.v1", Some(&max("4.17")));
    let derived = publish(&mut observed, &mut Memory::default(), 0);
    let (status, reason, message, _) = summary(&derived.status, "Upgradeable");
    let want = "InstalledOLMOperatorsUpgradeable: Found ClusterExtensions that require upgrades prior to upgrading cluster to version \
                4.18: bundle \"b.v1\" for ClusterExtension \"e\". Declared to run on at most: b.v1 4.17; upgrade or remove it";
    assert_eq!((&*status, &*reason), ("False", "InstalledOLMOperators_IncompatibleOperatorsInstalled"));
    assert_eq!(message, want);
    assert_eq!(summary(&derived.status, "Degraded").0, "False", "to block is no fault");
}

#[test]
fn status_case_30_errors_have_lines_of_their_own() {
    let extensions = vec![extension("e1", None), extension("e2", None)];
    let revisions = vec![revision("e1", 1, "b.v1", Some(&max("4.17"))), revision("e2", 1, "b.v1", Some("x"))];
    let mut observed = observed("4.17.0", extensions, revisions);
    let derived = publish(&mut observed, &mut Memory::default(), 0);
    let message = summary(&derived.status, "Upgradeable").2;
    let second = message.lines().nth(1).unwrap();
    let want = "InstalledOLMOperatorsUpgradeable:  Additionally the following errors were encountered while getting extension metadata: \
                error with cluster extension e2: ";
    assert!(second.starts_with(want), "{message}");
}

#[test]
fn status_cases_38_to_41_recovery_and_transition_time() {
    let mut memory = Memory::default();
    let mut observed = observe_one("4.17.0", "b.v1", Some(&max("4.17")));
    publish(&mut observed, &mut memory, 10);
    // 40: another blocking bundle
    let step = |observed: &mut Observed, installed: Option<&str>, revisions: Vec<RevisionFact>| {
        let extensions = installed.map(|bundle| extension("e", Some(bundle))).into_iter().collect();
        observed.installed = Installed::Observed { extensions, revisions, csvs: Vec::new() };
    };
    let at_most = |number, bundle, version| revision("e", number, bundle, Some(&max(version)));
    step(&mut observed, Some("b.v2"), vec![at_most(2, "b.v2", "4.17")]);
    let (status, _, message, since) = summary(&publish(&mut observed, &mut memory, 20).status, "Upgradeable");
    assert_eq!((&*status, since), ("False", 10), "case 40");
    assert!(message.contains("bundle \"b.v2\"") && !message.contains("b.v1"), "case 40: {message}");
    // while an upgrade rolls out both count: the old one blocks until it is gone
    step(&mut observed, Some("b.v2"), vec![at_most(2, "b.v2", "4.17"), at_most(3, "b.v3", "4.18")]);
    let (status, _, message, _) = summary(&publish(&mut observed, &mut memory, 25).status, "Upgradeable");
    assert!(
        status == "False" && message.contains("b.v2") && !message.contains("b.v3"),
        "decision 17: {message}"
    );
    // 39: upgraded to a bundle that fits
    step(&mut observed, Some("b.v3"), vec![at_most(3, "b.v3", "4.18")]);
    let well = ("True".to_owned(), "AsExpected".to_owned(), "All is well".to_owned(), 30);
    assert_eq!(summary(&publish(&mut observed, &mut memory, 30).status, "Upgradeable"), well, "case 39");
    // 41: finalizers keep the extension, so it still counts; 38: it is gone
    step(&mut observed, Some("b.v1"), vec![at_most(4, "b.v1", "4.17")]);
    assert_eq!(summary(&publish(&mut observed, &mut memory, 40).status, "Upgradeable").0, "False", "case 41");
    step(&mut observed, None, vec![at_most(4, "b.v1", "4.17")]);
    let (status, _, message, since) = summary(&publish(&mut observed, &mut memory, 50).status, "Upgradeable");
    assert_eq!((&*status, &*message, since), ("True", "All is well", 50), "case 38");
}

#[test]
fn status_cases_42_and_43_invalid_value_degrades_with_delay() {
    let mut memory = Memory::default();
    let mut observed = observe_one("4.17.0", "b.v1", Some("{}"));
    let derived = publish(&mut observed, &mut memory, 0);
    let (status, reason, message, _) = summary(&derived.status, "Upgradeable");
    assert_eq!((&*status, &*reason), ("False", "InstalledOLMOperators_FailureGettingExtensionMetadata"));
    assert!(message.contains("could not convert olm.properties"), "{message}");
    assert_eq!(derived.again, Some(at(120)), "it will check again by itself");
    assert_eq!(summary(&publish(&mut observed, &mut memory, 60).status, "Degraded").0, "False", "case 42");
    let (status, reason, _, since) = summary(&publish(&mut observed, &mut memory, 240).status, "Degraded");
    assert_eq!((&*status, &*reason, since), ("True", "OLMIncompatibleOperatorController_SyncError", 240));
    // a restart does not start the two minutes again
    let mut memory = Memory::recall(&observed.stored);
    assert_eq!(derive(&observed, &mut memory, at(250)).status, observed.stored);
    // repaired: no wait
    observed.installed = observe_one("4.17.0", "b.v1", None).installed;
    let repaired = publish(&mut observed, &mut memory, 260).status;
    assert_eq!(summary(&repaired, "Degraded").0, "False", "case 43");
    assert_eq!(summary(&repaired, "Upgradeable").0, "True");
}

/// rule: cluster-operator §16 step 6
#[test]
fn status_of_a_stuck_deployment_survives_a_restart() {
    let mut memory = Memory::default();
    let mut observed = observed("4.17.0", vec![], vec![]);
    observed.deployments = two_deployments(false);
    for (second, want) in [(0, "False"), (900, "False"), (1_020, "True"), (3_000, "True")] {
        let found = summary(&publish(&mut observed, &mut memory, second).status, "Degraded");
        assert_eq!(found.0, want, "at {second}");
    }
    let restarted = derive(&observed, &mut Memory::recall(&observed.stored), at(3_010));
    assert_eq!(restarted.status, observed.stored);
    // one that is there again after it was missing has its 15 minutes
    observed.deployments.values_mut().for_each(|found| *found = None);
    let mut memory = Memory::default();
    for second in [4_000, 4_200] {
        publish(&mut observed, &mut memory, second);
    }
    assert_eq!(summary(&observed.stored, "Degraded").0, "True");
    observed.deployments = two_deployments(false);
    let restarted = derive(&observed, &mut Memory::recall(&observed.stored), at(4_210));
    assert_eq!(summary(&restarted.status, "Degraded").0, "False");
}

#[test]
fn status_case_45_nothing_new_gives_the_same_status() {
    let mut memory = Memory::default();
    let mut observed = observe_one("4.17.0", "b.v1", Some(&max("4.17")));
    let first = publish(&mut observed, &mut memory, 10);
    let later = derive(&observed, &mut memory, at(3_000));
    assert_eq!(first.status, later.status);
    assert_eq!(changes(&first.status, &later.status), Vec::<String>::new());
    assert_eq!(later.again, None, "nothing to wait for");
    // and after a restart
    let restarted = derive(&observed, &mut Memory::recall(&observed.stored), at(4_000));
    assert_eq!(first.status, restarted.status);
}

#[test]
fn status_case_46_without_a_version_reports_the_rest() {
    let mut observed = observe_one("4.17.0", "b.v1", Some(&max("4.17")));
    observed.current = Current::Unknown("no OpenShift version is known: because".to_owned());
    let derived = publish(&mut observed, &mut Memory::default(), 0);
    let (status, reason, message, _) = summary(&derived.status, "Upgradeable");
    let want = ("Unknown", "NoData", "no OpenShift version is known: because");
    assert_eq!((&*status, &*reason, &*message), want);
    assert_eq!(summary(&derived.status, "Available").0, "True");
    assert!(derived.status.versions.is_empty() && derived.report.is_none());
}

#[test]
fn status_case_48_another_version_of_the_cluster() {
    let mut memory = Memory::default();
    let mut observed = observe_one("4.17.0", "b.v1", Some(&max("4.18")));
    assert_eq!(summary(&publish(&mut observed, &mut memory, 0).status, "Upgradeable").0, "True");
    observed.current = current("4.18.0");
    let derived = publish(&mut observed, &mut memory, 10);
    let (status, _, message, since) = summary(&derived.status, "Upgradeable");
    assert_eq!((&*status, since), ("False", 10));
    assert!(message.contains("version 4.19:"), "{message}");
    // cluster-operator §3: one write reports that the update is in progress, and records the version
    let (status, reason, message, _) = summary(&derived.status, "Progressing");
    let want = ("True", "UpgradeInProgress", "Progressing towards operator version 4.18.0");
    assert_eq!((&*status, &*reason, &*message), want);
    assert_eq!(derived.status.operator_version(), Some("4.18.0"));
    assert_eq!(summary(&publish(&mut observed, &mut memory, 20).status, "Progressing").0, "False");
}

#[test]
fn status_case_49_deleted_object_gets_the_status_again() {
    let mut memory = Memory::default();
    let mut observed = observe_one("4.17.0", "b.v1", Some(&max("4.17")));
    let first = publish(&mut observed, &mut memory, 0).status;
    observed.stored = ClusterOperatorStatus::default();
    let again = derive(&observed, &mut memory, at(50)).status;
    assert_eq!(again.conditions.len(), first.conditions.len());
    assert_eq!(summary(&again, "Upgradeable").3, 50);
    assert_eq!(again.versions, first.versions);
}

#[test]
fn status_has_the_version_when_all_is_rolled_out() {
    let mut memory = Memory::default();
    let mut observed = observed("4.18.0", vec![], vec![]);
    observed.deployments = two_deployments(false);
    let fresh = publish(&mut observed, &mut memory, 0).status;
    assert_eq!(fresh.operator_version(), None, "nothing runs yet");
    assert_eq!(summary(&fresh, "Available").0, "False");
    observed.deployments = two_deployments(true);
    assert_eq!(publish(&mut observed, &mut memory, 10).status.operator_version(), Some("4.18.0"));
    // an update: the old version stays until the new pods are up
    observed.current = current("4.19.0");
    observed.deployments = two_deployments(false);
    let during = publish(&mut observed, &mut memory, 20).status;
    assert_eq!(during.operator_version(), Some("4.18.0"));
    assert_eq!(summary(&during, "Progressing").1, "UpgradeInProgress");
    observed.deployments = two_deployments(true);
    let after = publish(&mut observed, &mut memory, 30).status;
    assert_eq!(after.operator_version(), Some("4.19.0"));
    assert_eq!(summary(&after, "Progressing").1, "UpgradeInProgress");
    let steady = publish(&mut observed, &mut memory, 40).status;
    let (status, reason, ..) = summary(&steady, "Progressing");
    assert_eq!((&*status, &*reason), ("False", "AsExpected"));
    // a pod that restarts later is no step back
    observed.deployments = two_deployments(false);
    assert_eq!(publish(&mut observed, &mut memory, 50).status.operator_version(), Some("4.19.0"));
}

#[test]
fn status_unreadable_objects_block_with_a_reason() {
    let mut observed = observe_one("4.17.0", "b.v1", None);
    let broken = |extension: &str| {
        let (extension, name) = (extension.to_owned(), format!("{extension}-1"));
        Err(Broken { extension, name, cause: "spec.revision is no number".to_owned() })
    };
    let (extensions, revisions) = (vec![extension("e", None)], vec![broken("e"), broken("gone")]);
    observed.installed = Installed::Observed { extensions, revisions, csvs: Vec::new() };
    let message = summary(&publish(&mut observed, &mut Memory::default(), 0).status, "Upgradeable").2;
    let want = "InstalledOLMOperatorsUpgradeable: error with cluster extension e: ClusterObjectSet e-1 cannot be read: spec.revision is no \
                number";
    assert_eq!(message, want);
    observed.installed = Installed::NotServed("ClusterExtension");
    let derived = publish(&mut observed, &mut Memory::default(), 0);
    let (status, reason, message, _) = summary(&derived.status, "Upgradeable");
    assert_eq!((&*status, &*reason), ("False", "InstalledOLMOperators_FailureGettingExtensionMetadata"));
    let want = "the cluster has no kind ClusterExtension; install the CustomResourceDefinitions of OLM";
    assert!(message.ends_with(want), "{message}");
    assert_eq!(summary(&derived.status, "Available").0, "False");
}

#[test]
fn status_keeps_foreign_conditions() {
    let mut observed = observed("4.17.0", vec![], vec![]);
    let foreign = OperatorCondition {
        last_transition_time: Time(at(1)),
        message: String::new(),
        reason: "R".to_owned(),
        status: ConditionStatus::True,
        type_: "RecentBackup".to_owned(),
    };
    observed.stored.conditions = vec![foreign.clone()];
    observed.stored.extension = Some(serde_json::json!({"a": 1}));
    let status = publish(&mut observed, &mut Memory::default(), 10).status;
    assert_eq!(status.conditions.last(), Some(&foreign));
    assert_eq!(status.extension, Some(serde_json::json!({"a": 1})));
}

#[test]
fn status_changes_as_text() {
    let mut memory = Memory::default();
    let mut observed = observe_one("4.17.0", "b.v1", None);
    let before = publish(&mut observed, &mut memory, 0).status;
    assert_eq!(changes(&ClusterOperatorStatus::default(), &before).len(), 7);
    observed.installed = observe_one("4.17.0", "b.v1", Some(&max("4.17"))).installed;
    let after = publish(&mut observed, &mut memory, 10).status;
    let found = changes(&before, &after);
    assert_eq!(found.len(), 1);
    let want = "Upgradeable changed from True to False (\"InstalledOLMOperatorsUpgradeable: Found";
    assert!(found[0].starts_with(want), "{found:?}");
    observed.installed = observe_one("4.17.0", "b.v2", Some(&max("4.17"))).installed;
    let other = publish(&mut observed, &mut memory, 20).status;
    let found = changes(&after, &other);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("Upgradeable message changed to \"InstalledOLM"), "{found:?}");
    assert!(found[0].contains("b.v2"), "{found:?}");

    let mut newer = other.clone();
    newer.versions[0].version = "4.18.0".to_owned();
    newer.related_objects.clear();
    let want = ["operator version changed from 4.17.0 to 4.18.0", "relatedObjects changed"];
    assert_eq!(changes(&other, &newer), want);
    assert_eq!(changes(&other, &other), Vec::<String>::new());
}
