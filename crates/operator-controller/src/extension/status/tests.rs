//! Every row of the tables of rules operator-controller §3.5, §5.1 and §5.3, and of decision 4.

use olm_install::resolution::{BundleFacts, DeprecationUpdate, UpgradeUpdate};

use olm_resolver::{Held, UnfitBundle, UnmetConstraint};

use super::*;

const TEXT: &str = "some text";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn bundle(version: &str) -> BundleFacts {
    BundleFacts {
        name: format!("demo.v{version}"),
        package: "demo".to_owned(),
        version: version.to_owned(),
        release: Some("2".to_owned()),
        reference: format!("registry.invalid/demo:v{version}"),
    }
}

/// A revision with conditions given as `Type=Status/Reason/message`, made in its own generation at its own time.
fn revision(number: i64, version: &str, conditions: &[&str]) -> RevisionFacts {
    let read = |text: &&str| {
        let (type_, rest) = text.split_once('=').unwrap();
        let mut parts = rest.splitn(3, '/');
        let status = match parts.next() {
            Some("True") => ConditionStatus::True,
            Some("False") => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        let reason = parts.next().unwrap();
        Condition::new(type_, status, reason, parts.next().unwrap_or_default(), Some(1), at(number))
    };
    RevisionFacts {
        name: format!("demo-{number}"),
        number,
        bundle: bundle(version),
        conditions: conditions.iter().map(read).collect(),
    }
}

fn done(number: i64, version: &str) -> RevisionFacts {
    let rolled = format!("Progressing=True/Succeeded/Revision {version} has rolled out.");
    revision(number, version, &["Succeeded=True/Succeeded", "Available=True/ProbesSucceeded/passed", &rolled])
}

fn running(number: i64, version: &str) -> RevisionFacts {
    let text = format!("Progressing=True/RollingOut/Revision {version} is rolling out.");
    revision(number, version, &["Available=False/ProbeFailure/not yet", &text])
}

fn failed(class: Class) -> Progress {
    Progress::Failed(PassError::new(class, TEXT))
}

fn applied(version: &str) -> Progress {
    Progress::Applied { target: bundle(version), issuer: None }
}

/// The result of a pass that found no deprecation.
fn result(revisions: RevisionStates, upgrade: UpgradeUpdate, progress: Progress) -> PassResult {
    let deprecations = DeprecationUpdate::Removed;
    PassResult { deprecations, upgrade, ..PassResult::unchanged(revisions, progress) }
}

fn derived(
    revisions: Vec<RevisionFacts>,
    progress: Progress,
    before: Option<&ClusterExtensionStatus>,
) -> ClusterExtensionStatus {
    let result = result(RevisionStates::split(revisions), UpgradeUpdate::NONE, progress);
    derive(&result, before, 7, true, at(100))
}

/// The status while 1.0.0 is installed.
fn derived_with(upgrade: UpgradeUpdate, before: Option<&ClusterExtensionStatus>) -> ClusterExtensionStatus {
    derived_after(vec![done(1, "1.0.0")], upgrade, before)
}

fn derived_after(
    revisions: Vec<RevisionFacts>,
    upgrade: UpgradeUpdate,
    before: Option<&ClusterExtensionStatus>,
) -> ClusterExtensionStatus {
    let result = result(RevisionStates::split(revisions), upgrade, applied("1.0.0"));
    derive(&result, before, 7, true, at(100))
}

fn held(version: &str) -> UpgradeUpdate {
    let held = Held {
        catalog: "main".parse().unwrap(),
        bundle: format!("demo.v{version}").parse().unwrap(),
        version: version.parse().unwrap(),
    };
    UpgradeUpdate { held: Some(held), ..UpgradeUpdate::NONE }
}

fn unfit(version: &str) -> UnfitBundle {
    let unmet =
        UnmetConstraint::Version { lowest: "1.40.0".parse().unwrap(), cluster: "v1.33.1".parse().unwrap() };
    UnfitBundle {
        catalog: "main".parse().unwrap(),
        bundle: format!("demo.v{version}").parse().unwrap(),
        version: version.parse().unwrap(),
        unmet: vec![unmet],
    }
}

/// `Status/Reason: message` of one condition.
fn text(status: &ClusterExtensionStatus, type_: &str) -> String {
    condition::find(&status.conditions, type_).map_or("absent".to_owned(), |found| {
        format!("{}/{}: {}", found.status.as_str(), found.reason, found.message)
    })
}

#[test]
#[rustfmt::skip]
fn status_installed_and_progressing_in_every_state() {
    let installed = "True/Succeeded: Installed bundle registry.invalid/demo:v1.0.0 successfully";
    let none = "False/Failed: No bundle installed";
    let waiting = "False/Absent: No bundle installed";
    let retrying = &format!("True/Retrying: {TEXT}");
    let rolling = "True/RollingOut: Revision 1.1.0 is rolling out.";
    let stuck = revision(2, "1.1.0", &["Progressing=True/Retrying/cannot"]);
    let blocked = revision(2, "1.1.0", &["Progressing=False/Blocked/secrets"]);
    let late = "Progressing=False/ProgressDeadlineExceeded/Revision has not rolled out for 10 minute(s). Last status: x";
    let late = revision(2, "1.1.0", &[late]);
    let fresh = revision(2, "1.1.0", &[]);
    for (case, revisions, progress, want) in [
        ("nothing yet, transient", vec![], failed(Class::Transient), [none, retrying]),
        ("nothing yet, needs change", vec![], failed(Class::NeedsChange), [none, retrying]),
        ("nothing yet, blocked", vec![], failed(Class::Blocked), [none, &format!("False/Blocked: {TEXT}")]),
        ("nothing yet, configuration", vec![], failed(Class::InvalidConfiguration),
            ["absent", &format!("False/InvalidConfiguration: {TEXT}")]),
        ("a failure beside what is installed", vec![done(1, "1.0.0")], failed(Class::Transient), [installed, retrying]),
        ("installed", vec![done(1, "1.0.0")], applied("1.0.0"), [installed, "True/Succeeded: Revision 1.0.0 has rolled out."]),
        ("just made", vec![fresh.clone()], applied("1.1.0"), [waiting, rolling]),
        ("rolling out", vec![running(2, "1.1.0")], applied("1.1.0"), [waiting, rolling]),
        ("retrying", vec![stuck.clone()], applied("1.1.0"), [none, "True/Retrying: cannot"]),
        ("blocked", vec![blocked], applied("1.1.0"), [waiting, "False/Blocked: secrets"]),
        ("late", vec![late], applied("1.1.0"),
            [waiting, "False/ProgressDeadlineExceeded: Revision has not rolled out for 10 minute(s). Last status: x"]),
        ("an upgrade", vec![done(1, "1.0.0"), running(2, "1.1.0")], applied("1.1.0"), [installed, rolling]),
        ("the last of several rolls out", vec![done(1, "1.0.0"), stuck.clone(), running(3, "1.1.0")], applied("1.1.0"),
            [installed, rolling]),
        ("one that is older than what is installed is stuck", vec![stuck, done(3, "1.0.0")], applied("1.0.0"),
            [installed, "True/Succeeded: Revision 1.0.0 has rolled out."]),
    ] {
        let status = derived(revisions, progress, None);
        assert_eq!(
            [text(&status, condition::INSTALLED), text(&status, condition::PROGRESSING)],
            want,
            "{case}"
        );
        let is_installed = text(&status, condition::INSTALLED).starts_with("True/");
        assert_eq!(status.install.is_some(), is_installed, "{case}: status.install goes with Installed");
        for found in &status.conditions {
            assert_eq!(found.observed_generation, Some(7), "{case}: {}", found.type_);
        }
    }
}

#[test]
fn available_comes_from_the_installed_revision_alone() {
    let status = derived(vec![running(1, "1.0.0")], applied("1.0.0"), None);
    assert_eq!(text(&status, condition::AVAILABLE), "absent");
    let status = derived(vec![done(1, "1.0.0"), running(2, "1.1.0")], applied("1.1.0"), None);
    assert_eq!(text(&status, condition::AVAILABLE), "True/ProbesSucceeded: passed");
}

#[test]
fn status_mirrors_message_and_time() {
    let status = derived(vec![done(1, "1.0.0"), running(2, "1.1.0")], applied("1.1.0"), None);
    for (type_, second) in [(condition::AVAILABLE, 1), (condition::PROGRESSING, 2)] {
        let found = condition::find(&status.conditions, type_).unwrap();
        assert_eq!(
            (found.last_transition_time.0, found.observed_generation),
            (at(second), Some(7)),
            "{type_}"
        );
    }
    let active = status.active_revisions;
    let mirrored = |at: usize| -> Vec<(&str, Option<i64>)> {
        active[at].conditions.iter().map(|c| (c.type_.as_str(), c.observed_generation)).collect()
    };
    assert_eq!(
        active.iter().map(|revision| revision.name.as_str()).collect::<Vec<_>>(),
        ["demo-1", "demo-2"]
    );
    assert_eq!(mirrored(0), []);
    assert_eq!(mirrored(1), [("Available", Some(7)), ("Progressing", Some(7))]);
    assert_eq!(active[1].conditions[1].message, "Revision 1.1.0 is rolling out.");
}

#[test]
fn status_reports_the_installed_bundle() {
    let revisions = RevisionStates::split(vec![done(1, "1.0.0"), running(2, "1.1.0")]);
    let result = result(revisions, UpgradeUpdate::NONE, applied("1.1.0"));
    for (separate, release) in [(true, Some("2".to_owned())), (false, None)] {
        let found = derive(&result, None, 1, separate, at(0)).install.unwrap().bundle;
        assert_eq!((found.name.as_str(), found.version.as_str()), ("demo.v1.0.0", "1.0.0"));
        assert_eq!(found.release, release);
    }
}

/// rule: operator-controller §9.1 row 29: the schema would refuse the status as a whole
#[test]
fn status_fits_a_bundle_name_that_is_no_dns_subdomain() {
    let mut installed = done(1, "1.0.0");
    installed.bundle.name = "Demo_v1.0.0+2".to_owned();
    let status = derived(vec![installed], applied("1.0.0"), None);
    assert_eq!(status.install.as_ref().unwrap().bundle.name, "demo-v1.0.0-2");
    assert_eq!(
        text(&status, condition::INSTALLED),
        "True/Succeeded: Installed bundle registry.invalid/demo:v1.0.0 successfully; the bundle's name \"Demo_v1.0.0+2\" is no DNS \
         subdomain, so status.install.bundle.name is \"demo-v1.0.0-2\""
    );
}

#[test]
fn status_errors_are_stable_and_bounded() {
    let long = format!("get: read tcp 10.0.0.1:4711->10.0.0.2:443: reset {}", "x".repeat(40_000));
    let status = derived(vec![], Progress::Failed(PassError::new(Class::Transient, long)), None);
    for type_ in [condition::PROGRESSING, condition::READY] {
        let message = &condition::find(&status.conditions, type_).unwrap().message;
        assert!(message.starts_with("get: reset xxx"), "{}", &message[..40]);
        let lines = if type_ == condition::READY { 1 } else { 2 };
        assert!(message.ends_with("x…") && message.len() <= 2048, "{}", message.len());
        assert_eq!(message.lines().count(), lines);
    }
}

#[test]
fn status_of_one_line_has_no_details() {
    let text = "what is wrong; what to do\ndetails\nmore";
    let status = derived(vec![], Progress::Failed(PassError::new(Class::NeedsChange, text.to_owned())), None);
    for (type_, want) in [
        (condition::PROGRESSING, text),
        (condition::READY, "what is wrong; what to do"),
        (condition::STALLED, "what is wrong; what to do"),
    ] {
        assert_eq!(condition::find(&status.conditions, type_).unwrap().message, want, "{type_}");
    }
}

/// After a terminal error `Installed` stays as it was; so it is absent until it was there once.
#[test]
fn status_keeps_installed_on_invalid_configuration() {
    let first = derived(vec![], failed(Class::Transient), None);
    let then = derived(vec![], failed(Class::InvalidConfiguration), Some(&first));
    assert_eq!(text(&then, condition::INSTALLED), "False/Failed: No bundle installed");
    let upgraded = derived(vec![done(1, "1.0.0")], failed(Class::InvalidConfiguration), Some(&first));
    assert!(upgraded.install.is_some());
    let gone = derived(vec![], failed(Class::InvalidConfiguration), Some(&upgraded));
    assert_eq!(
        (text(&gone, condition::INSTALLED).as_str(), gone.install),
        ("False/Failed: No bundle installed", None)
    );
}

#[test]
#[rustfmt::skip]
fn status_ready_and_kstatus_in_every_state() {
    let no_node = revision(
        1,
        "1.0.0",
        &[
            "Succeeded=True/Succeeded",
            "Available=False/ProbeFailure/no node",
            "Progressing=True/RollingOut/Revision 1.0.0 is rolling out.",
        ],
    );
    for (case, revisions, progress, ready, reconciling, stalled) in [
        ("done", vec![done(1, "1.0.0")], applied("1.0.0"), "True/Succeeded: bundle demo.v1.0.0 is installed and available", false, false),
        ("rolling out", vec![running(1, "1.0.0")], applied("1.0.0"), "False/RollingOut: Revision 1.0.0 is rolling out: not yet", true,
            false),
        (
            "rolling out, a pod crashes",
            vec![revision(
                1,
                "1.0.0",
                &[
                    "Available=False/ProbeFailure/Object Deployment.apps/v1 n/x: .status.condition[\"Available\"] is False; 0 of 1 replicas \
                     available: pod x-a: container m: OOMKilled (exit code 137)\nObject Deployment.apps/v1 n/y: \"a\" missing",
                    "Progressing=True/RollingOut/Revision 1.0.0 is rolling out.",
                ],
            )],
            applied("1.0.0"),
            "False/RollingOut: Revision 1.0.0 is rolling out: Deployment n/x: 0 of 1 replicas available: pod x-a: container m: OOMKilled \
             (exit code 137)",
            true,
            false,
        ),
        ("an upgrade", vec![done(1, "1.0.0"), running(2, "1.1.0")], applied("1.1.0"),
            "False/RollingOut: Revision 1.1.0 is rolling out: not yet", true, false),
        ("an older one rolls out", vec![running(1, "0.9.0"), done(2, "1.0.0")], applied("1.0.0"),
            "True/Succeeded: bundle demo.v1.0.0 is installed and available", false, false),
        ("another is desired", vec![done(1, "1.0.0")], applied("1.1.0"),
            "False/UpgradePending: bundle demo.v1.0.0 is installed, demo.v1.1.0 is desired", true, false),
        ("not available", vec![no_node], applied("1.0.0"), "False/Unavailable: no node", true, false),
        ("a revision that retries", vec![revision(1, "1.0.0", &["Progressing=True/Retrying/cannot"])], applied("1.0.0"),
            "False/Retrying: cannot", true, false),
        ("a revision that is blocked", vec![revision(1, "1.0.0", &["Progressing=False/Blocked/no"])], applied("1.0.0"), "False/Blocked: no",
            false, true),
        ("transient", vec![done(1, "1.0.0")], failed(Class::Transient), "False/Retrying: some text", true, false),
        ("needs change", vec![done(1, "1.0.0")], failed(Class::NeedsChange), "False/Retrying: some text", false, true),
        ("blocked", vec![], failed(Class::Blocked), "False/Blocked: some text", false, true),
        ("configuration", vec![], failed(Class::InvalidConfiguration), "False/Blocked: some text", false, true),
        ("paused", vec![done(1, "1.0.0")], Progress::Paused,
            "False/Paused: reconciliation is paused by annotation olm.operatorframework.io/paused; remove it to continue", false, false),
        ("going", vec![done(1, "1.0.0")], Progress::Uninstalling { message: "uninstalling".to_owned(), obstacle: None },
            "False/RollingOut: uninstalling", true, false),
    ] {
        let status = derived(revisions, progress, None);
        assert_eq!(text(&status, condition::READY), ready, "{case}");
        let there = |type_: &str| condition::find(&status.conditions, type_).is_some();
        assert_eq!(
            (there(condition::RECONCILING), there(condition::STALLED)),
            (reconciling, stalled),
            "{case}"
        );
    }
}

/// Another process finds by the reason which error it reported.
#[test]
fn stalled_has_a_reason_of_its_own_for_certificates() {
    let refused = PassError { cause: Cause::Certificate, ..PassError::new(Class::NeedsChange, TEXT) };
    let status = derived(vec![done(1, "1.0.0")], Progress::Failed(refused), None);
    for (type_, want) in [
        (condition::PROGRESSING, "True/Retrying: some text"),
        (condition::READY, "False/Retrying: some text"),
        (condition::STALLED, "True/CertificateRefused: some text"),
    ] {
        assert_eq!(text(&status, type_), want, "{type_}");
    }
}

#[test]
fn status_names_a_deleted_revision_while_it_is_torn_down() {
    let removing = "removing revision resources that are not owned by another revision";
    let again =
        "revision demo-1 was deleted and is torn down; bundle demo.v1.0.0 is installed again after that";
    let protected = "custom resources are protected and must be deleted first: 3 greetings.example.com";
    for (progressing, want) in [
        ("Progressing=True/Succeeded/Revision 1.0.0 has rolled out.".to_owned(), again.to_owned()),
        (format!("Progressing=True/Retrying/{removing}"), again.to_owned()),
        (
            format!("Progressing=True/Retrying/{removing}; {protected}"),
            format!("revision demo-1 was deleted and is torn down: {protected}"),
        ),
    ] {
        let deleted = Some(revision(1, "1.0.0", &["Succeeded=True/Succeeded", &progressing]));
        let revisions = RevisionStates { deleted, ..RevisionStates::default() };
        let result = result(revisions, UpgradeUpdate::NONE, applied("1.0.0"));
        let status = derive(&result, None, 7, true, at(100));
        assert_eq!(text(&status, condition::PROGRESSING), format!("True/RollingOut: {want}"));
        assert_eq!(text(&status, condition::READY), format!("False/RollingOut: {want}"));
        assert_eq!(text(&status, condition::RECONCILING), format!("True/RollingOut: {want}"));
        assert_eq!(text(&status, condition::INSTALLED), "False/Failed: No bundle installed");
    }
}

/// Leaving out either side fails here: what exports, debounces, prints and documents conditions reads the list.
#[test]
fn conditions_are_those_of_the_list() {
    let stuck = || revision(2, "1.1.0", &["Progressing=False/Blocked/secrets"]);
    let quarantined = PassError { cause: Cause::Quarantine, ..PassError::new(Class::NeedsChange, TEXT) };
    let mut set: Vec<String> = Vec::new();
    for (revisions, progress) in [
        (vec![], failed(Class::Transient)),
        (vec![], Progress::Failed(quarantined)),
        (vec![done(1, "1.0.0")], failed(Class::NeedsChange)),
        (vec![done(1, "1.0.0")], applied("1.0.0")),
        (vec![done(1, "1.0.0"), running(2, "1.1.0")], applied("1.1.0")),
        (vec![stuck()], applied("1.1.0")),
        (vec![done(1, "1.0.0")], Progress::Paused),
    ] {
        set.extend(derived(revisions, progress, None).conditions.into_iter().map(|found| found.type_));
    }
    set.extend(derived_with(held("2.0.0"), None).conditions.into_iter().map(|found| found.type_));
    for type_ in &set {
        let listed = condition::spec(condition::EXTENSION, type_).is_some();
        assert!(listed, "{type_} has no row in CONDITIONS, api/src/condition.rs");
    }
    for spec in condition::of_kind(condition::EXTENSION) {
        let type_ = spec.type_;
        assert!(
            set.iter().any(|found| found == type_),
            "{type_} is never set, crates/operator-controller/src/extension/status.rs"
        );
    }
}

/// rule: operator-controller §3.2: the reference changes its own conditions in the stored status.
#[test]
fn status_keeps_conditions_of_other_writers() {
    let foreign = Condition::new("example.com/Scanned", ConditionStatus::False, "Found", "x", Some(3), at(1));
    let mut before = derived(vec![done(1, "1.0.0")], applied("1.0.0"), None);
    before.conditions.insert(0, foreign.clone());
    for progress in [applied("1.0.0"), failed(Class::Blocked), Progress::Paused] {
        let after = derived(vec![done(1, "1.0.0")], progress, Some(&before));
        assert_eq!(after.conditions.first(), Some(&foreign), "{:?}", after.conditions);
    }
    let after = derived(vec![done(1, "1.0.0")], applied("1.0.0"), Some(&before));
    assert_eq!(after, before, "nothing is written");
}

#[test]
fn status_names_a_held_major_version_and_changes_nothing_else() {
    let without = derived_with(UpgradeUpdate::NONE, None);
    let mut with = derived_with(held("2.0.0"), None);
    assert_eq!(
        text(&with, condition::UPGRADE_AVAILABLE),
        "True/MajorVersionHeld: bundle demo.v2.0.0 of catalog main has the next major version 2.0.0; to install it, set \
         spec.source.catalog.version to \"^2.0.0\"\nto follow to each major version, set the annotation \
         olm.operatorframework.io/major-updates to Automatic"
    );
    assert!(text(&with, condition::UPGRADE_AVAILABLE).contains(olm_api::annotations::MAJOR_UPDATES));
    // a pass that could not look for it
    let unchanged = derived_with(UpgradeUpdate::UNCHANGED, Some(&with));
    assert_eq!(text(&unchanged, condition::UPGRADE_AVAILABLE), text(&with, condition::UPGRADE_AVAILABLE));
    let gone = derived_with(UpgradeUpdate::NONE, Some(&with));
    assert_eq!(text(&gone, condition::UPGRADE_AVAILABLE), "absent");
    with.conditions.retain(|found| found.type_ != condition::UPGRADE_AVAILABLE);
    assert_eq!(with, without);
}

#[test]
fn status_names_a_bundle_that_the_cluster_does_not_fit() {
    let text_of = |held: UpgradeUpdate| {
        let update = UpgradeUpdate { unfit: Some(unfit("1.2.0")), ..held };
        text(&derived_with(update, None), condition::UPGRADE_AVAILABLE)
    };
    let unfit = "bundle demo.v1.2.0 of catalog main is skipped: it needs Kubernetes 1.40.0 or later (minKubeVersion), and the \
                   cluster has 1.33.1";
    assert_eq!(text_of(UpgradeUpdate::NONE), format!("True/EnvironmentNotMet: {unfit}"));
    let both = text_of(held("2.0.0"));
    assert!(both.starts_with("True/MajorVersionHeld: bundle demo.v2.0.0"), "{both}");
    assert!(both.ends_with(&format!("\n{unfit}")), "{both}");
}

#[test]
fn status_keeps_an_upgrade_while_catalogs_are_unread() {
    let skipped = || UpgradeUpdate { unfit: Some(unfit("1.2.0")), ..UpgradeUpdate::NONE };
    let none = || UpgradeUpdate::NONE;
    for (case, before, found, has_range, generation, want) in [
        ("nothing is found", held("2.0.0"), none(), false, 7, "MajorVersionHeld"),
        ("another one is found", held("2.0.0"), skipped(), false, 7, "MajorVersionHeld"),
        ("a held one is found", skipped(), held("2.0.0"), false, 7, "EnvironmentNotMet"),
        ("the first one", none(), held("2.0.0"), false, 7, "MajorVersionHeld"),
        ("the spec has changed", skipped(), held("2.0.0"), false, 6, "MajorVersionHeld"),
        ("the spec has changed, nothing is found", skipped(), none(), false, 6, "EnvironmentNotMet"),
        ("a range", skipped(), none(), true, 7, "EnvironmentNotMet"),
        ("a range holds no major version", held("2.0.0"), none(), true, 7, "absent"),
        ("a range, another one is found", held("2.0.0"), skipped(), true, 7, "EnvironmentNotMet"),
    ] {
        let mut before = derived_with(before, None);
        before.conditions.iter_mut().for_each(|found| found.observed_generation = Some(generation));
        let partial = UpgradeUpdate { is_complete: false, has_range, ..found };
        let after = derived_with(partial, Some(&before));
        let text = text(&after, condition::UPGRADE_AVAILABLE);
        assert!(text.contains(want), "{case}: {text}");
    }
}

/// A spec asks for what the first pass reported, and in the second one a catalog is unread.
#[test]
fn status_drops_a_taken_upgrade_while_catalogs_are_unread() {
    let skipped = || UpgradeUpdate { unfit: Some(unfit("1.2.0")), ..UpgradeUpdate::NONE };
    let both = || UpgradeUpdate { unfit: Some(unfit("1.2.0")), ..held("2.0.0") };
    let installed = done(1, "1.0.0");
    for (case, before, revisions, has_range, want) in [
        ("the range asks for it", skipped(), vec![installed.clone()], true, Some(6)),
        ("the annotation asks for it", held("2.0.0"), vec![installed.clone()], false, Some(6)),
        ("it is rolling out", held("2.0.0"), vec![installed.clone(), running(2, "2.0.0")], false, None),
        ("it is installed", held("2.0.0"), vec![done(2, "2.0.0")], false, None),
        ("it fits now", skipped(), vec![installed.clone(), running(2, "1.2.0")], true, None),
        ("one of both is rolling out", both(), vec![installed.clone(), running(2, "1.2.0")], false, None),
        ("a bundle with a longer name", skipped(), vec![installed, running(2, "1.2.0-1")], true, Some(6)),
    ] {
        let mut before = derived_with(before, None);
        before.conditions.iter_mut().for_each(|found| found.observed_generation = Some(6));
        let partial = UpgradeUpdate { has_range, ..UpgradeUpdate::UNCHANGED };
        let after = derived_after(revisions, partial, Some(&before));
        let found = condition::find(&after.conditions, condition::UPGRADE_AVAILABLE);
        assert_eq!(found.map(|found| found.observed_generation), want.map(Some), "{case}: {found:?}");
    }
}

/// Another replica that takes over does not read the bundle either.
#[test]
fn status_quarantine_stays_until_a_bundle_is_read() {
    let quarantine = |progress, before: Option<&ClusterExtensionStatus>| {
        let revisions = RevisionStates::split(Vec::new());
        let result =
            PassResult { upgrade: UpgradeUpdate::NONE, ..PassResult::unchanged(revisions, progress) };
        let status = derive(&result, before, 1, true, at(2));
        (condition::find(&status.conditions, condition::QUARANTINED).map(|it| it.message.clone()), status)
    };
    let error = PassError { cause: Cause::Quarantine, ..PassError::new(Class::NeedsChange, TEXT) };
    let (set, before) = quarantine(Progress::Failed(error), None);
    assert_eq!(set.as_deref(), Some(TEXT));
    for (progress, stays) in [
        (failed(Class::Transient), true),
        (Progress::Paused, true),
        (failed(Class::NeedsChange), false),
        (applied("1.0.0"), false),
    ] {
        let case = format!("{progress:?}");
        assert_eq!(quarantine(progress, Some(&before)).0.is_some(), stays, "{case}");
    }
}
