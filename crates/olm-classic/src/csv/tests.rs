//! A case for each line of the table, bad input, and the property that the machine rests.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::cluster_service_version::ClusterServiceVersionCondition;
use olm_api::classic::{ClusterServiceVersion, Time};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::requirements::ObservedApiService;
use super::*;

const NEWER: &str = "demo.v2";

fn time(seconds: i64) -> Time {
    let text = format!("2026-01-01T00:{:02}:{:02}Z", seconds / 60 % 60, seconds % 60);
    serde_json::from_value(json!(text)).unwrap()
}

fn csv(phase: &str, reason: &str) -> ClusterServiceVersion {
    let mut csv: ClusterServiceVersion = serde_json::from_value(json!({
        "metadata": {"name": "demo.v1", "namespace": "a", "annotations": {"olm.targetNamespaces": "a"}},
        "spec": {
            "displayName": "demo",
            "install": {"strategy": "deployment", "spec": {"deployments": [
                {"name": "manager", "spec": {"selector": {"matchLabels": {"app": "m"}}, "template": {"spec": {"containers": []}}}},
            ]}},
        },
    }))
    .unwrap();
    if !phase.is_empty() {
        let now = time(0);
        csv.status = serde_json::from_value(json!({
            "phase": phase, "reason": reason, "message": "", "lastUpdateTime": now, "lastTransitionTime": now,
        }))
        .unwrap();
    }
    csv
}

fn webhook(name: &str, group: &str, resource: &str) -> Value {
    json!({
        "generateName": name, "type": "ValidatingAdmissionWebhook", "deploymentName": "manager", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": [{"apiGroups": [group], "resources": [resource]}],
    })
}

fn with_webhook(mut csv: ClusterServiceVersion, group: &str) -> ClusterServiceVersion {
    csv.spec.webhook_definitions = serde_json::from_value(json!([webhook("w", group, "pods")])).unwrap();
    csv
}

fn neighbor(name: &str, phase: Phase) -> Option<Neighbor> {
    Some(Neighbor { name: name.to_owned(), phase })
}

fn met() -> Observed {
    let requirements = Requirements { are_met: true, statuses: vec![] };
    Observed { requirements, ..Observed::default() }
}

fn of_group(reason: Reason) -> Observed {
    Observed { group: GroupState::Failed { reason, message: "why".to_owned() }, ..met() }
}

fn failed(is_worth_a_retry: bool) -> InstallResult {
    InstallResult::Failed { message: "refused".to_owned(), is_worth_a_retry }
}

fn replaced_by(phase: Phase) -> Neighbors {
    Neighbors { replaced_by: neighbor(NEWER, phase), end: neighbor(NEWER, phase), ..Neighbors::default() }
}

/// Number and case of the line, the CSV, the facts, and `PHASE/REASON: MESSAGE` with the actions other than events.
type Case = (u8, &'static str, ClusterServiceVersion, Observed, String);

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let neighbors = |neighbors| Observed { neighbors, ..met() };
    let health = |health| Observed { health, ..met() };
    let install = |install| Observed { install, ..met() };
    let unmet = || Observed { requirements: Requirements::default(), ..met() };
    let hopeless = "InstallComponentFailedNoRetry";
    let mut without_targets = csv("Pending", "RequirementsUnknown");
    without_targets.metadata.annotations = None;
    let mut bad_strategy = csv("Pending", "RequirementsUnknown");
    bad_strategy.spec.install.spec = None;
    let mut lost = with_webhook(csv("Succeeded", "InstallSucceeded"), "x");
    lost.status.as_mut().unwrap().certs_last_updated = Some(time(0));
    let service = OwnerConflict::ApiService { name: "v1.x".to_owned(), owner: Some("b/other.v1".to_owned()) };
    let pending = || csv("Pending", "RequirementsUnknown");
    let succeeded = || csv("Succeeded", "InstallSucceeded");
    let installing = || csv("Installing", "InstallSucceeded");
    let broken = || csv("Failed", "ComponentUnhealthy");
    let since = |reason: &str, message: &str, seconds| {
        let mut csv = csv(if reason == "InstallWaiting" { "Installing" } else { "Pending" }, reason);
        let status = csv.status.as_mut().unwrap();
        (status.message, status.last_update_time) = (message.to_owned(), Some(time(seconds)));
        csv
    };
    let announced = |mut csv: ClusterServiceVersion| {
        let status = csv.status.as_mut().unwrap();
        let message = status.message.clone();
        status.conditions.push(ClusterServiceVersionCondition { message, ..Default::default() });
        csv
    };
    let installs = |message| since("InstallWaiting", message, 0);
    let held = "operator is not upgradeable: busy";
    let lacking = || {
        let account = json!({"group": "", "version": "v1", "kind": "ServiceAccount", "name": "m", "status": "NotPresent", "message": "why"});
        let statuses = vec![serde_json::from_value(account).unwrap()];
        Observed { requirements: Requirements { are_met: false, statuses }, ..met() }
    };
    let no_requirements = "one or more requirements couldn't be found";
    let unavailable = || Observed { api_services: ApiServices::Unavailable("v1.x".to_owned()), ..met() };
    let annotations = [("k".to_owned(), "v".to_owned())].into();
    let text = str::to_owned;
    vec![
        (0, "inputs changed", csv("Failed", hopeless), met(),
            text("Pending/DetectedClusterChange: what the install depends on may have changed, requirements not yet checked []")),
        (0, "hopeless", csv("Failed", hopeless), install(failed(false)), text("- []")),
        (1, "no group", csv("", ""), of_group(Reason::NoOperatorGroup), text("Failed/NoOperatorGroup: why []")),
        (2, "several groups", succeeded(), of_group(Reason::TooManyOperatorGroups), text("Failed/TooManyOperatorGroups: why []")),
        (3, "group without status", csv("", ""), Observed { group: GroupState::Unresolved, ..met() },
            text("- [Report(\"waiting for the OperatorGroup to select namespaces; its conditions and events name the cause\")]")),
        (3, "annotate", csv("", ""), Observed { group: GroupState::Annotate(annotations), ..met() },
            text("- [WriteAnnotations({\"k\": \"v\"})]")),
        (3, "no targets", pending(), of_group(Reason::NoTargetNamespaces), text("Failed/NoTargetNamespaces: why []")),
        (4, "duplicate modes", pending(), of_group(Reason::InvalidInstallModes), text("Failed/InvalidInstallModes: why []")),
        (5, "unsupported targets", pending(), of_group(Reason::UnsupportedOperatorGroup), text("Failed/UnsupportedOperatorGroup: why []")),
        (6, "no target annotation", without_targets, met(),
            text("Failed/NoTargetNamespaces: csv missing olm.targetNamespaces annotation []")),
        (7, "static APIs", pending(), of_group(Reason::CannotModifyStaticProvidedApis),
            text("Failed/CannotModifyStaticOperatorGroupProvidedAPIs: why [DeleteDeployments]")),
        (7, "APIs of another group", pending(), of_group(Reason::InterOperatorGroupOwnerConflict),
            text("Failed/InterOperatorGroupOwnerConflict: why [DeleteDeployments]")),
        (7, "APIs of the group change", pending(), Observed { group: GroupState::SetProvidedApis(text("A.v1.x")), ..met() },
            text("- [SetProvidedApis(\"A.v1.x\")]")),
        (8, "new", csv("", ""), met(), text("Pending/RequirementsUnknown: requirements not yet checked []")),
        (8, "new", csv("Imaginary", ""), met(), text("Pending/RequirementsUnknown: requirements not yet checked []")),
        (9, "not upgradeable", pending(), Observed { gate: UpgradeGate::Closed(text("busy")), ..unmet() },
            text("Pending/OperatorConditionNotUpgradeable: operator is not upgradeable: busy []")),
        (9, "not upgradeable", since("OperatorConditionNotUpgradeable", held, 0),
            Observed { gate: UpgradeGate::Closed(text("busy")), ..unmet() },
            text("- [Report(\"operator is not upgradeable: busy\")]")),
        (10, "bad strategy", bad_strategy, unmet(),
            text("Failed/InvalidInstallStrategy: install strategy invalid: spec.install.spec is missing []")),
        (11, "requirement missing", pending(), unmet(), text("Pending/RequirementsNotMet: one or more requirements couldn't be found []")),
        (11, "requirement missing", since("RequirementsNotMet", no_requirements, 58), lacking(), text("- [RequeueAfter(28s)]")),
        (11, "requirement missing", since("RequirementsNotMet", no_requirements, 30), lacking(),
            text("- [Report(\"waiting for requirements; create or grant what is missing: ServiceAccount m: NotPresent why\")]")),
        (12, "bad webhook", with_webhook(pending(), "*"), met(),
            text("Failed/InvalidWebhookDescription: webhook rules cannot include all groups []")),
        (13, "CRD of another", pending(), neighbors(Neighbors { conflict: Some(OwnerConflict::Crd), ..Neighbors::default() }),
            text("Failed/OwnerConflict: conflicting CRD owner in namespace []")),
        (13, "APIService of another", pending(), neighbors(Neighbors { conflict: Some(service), ..Neighbors::default() }),
            text("Failed/OwnerConflict: APIService v1.x is owned by ClusterServiceVersion b/other.v1 []")),
        (14, "cycle", pending(), neighbors(Neighbors { is_cycle: true, ..Neighbors::default() }),
            text("- [Report(\"spec.replaces leads back to this ClusterServiceVersion: change it in one of them\")]")),
        (14, "replaced not ready", pending(),
            neighbors(Neighbors { replaced: neighbor("demo.v0", Phase::Succeeded), ..Neighbors::default() }),
            text("- []")),
        (14, "replaced not ready", pending(),
            neighbors(Neighbors { replaced: neighbor("demo.v0", Phase::Failed), ..Neighbors::default() }),
            text("- [Report(\"waiting until ClusterServiceVersion demo.v0, which this one replaces, is Succeeded; it is Failed, and its \
                  status names the cause\")]")),
        (15, "all fine", pending(), neighbors(Neighbors { replaced: neighbor("demo.v0", Phase::Replacing), ..Neighbors::default() }),
            text("InstallReady/AllRequirementsMet: all requirements found, attempting install []")),
        (16, "install", csv("InstallReady", ""), met(), text("- [ApplyStrategy]")),
        (16, "installed", csv("InstallReady", ""), install(InstallResult::Succeeded),
            text("Installing/InstallSucceeded: waiting for install components to report healthy [RequeueAfter(5s)]")),
        (16, "failed", csv("InstallReady", ""), install(failed(true)),
            text("Failed/InstallComponentFailed: install strategy failed: refused []")),
        (16, "hopeless", csv("InstallReady", ""), install(failed(false)),
            text("Failed/InstallComponentFailedNoRetry: install strategy failed: refused []")),
        (17, "applying failed", installing(), Observed { health: Health::Changed(text("c")), ..install(failed(true)) },
            text("Failed/InstallComponentFailed: install strategy failed: refused []")),
        (17, "applying is hopeless", installing(), Observed { health: Health::Changed(text("c")), ..install(failed(false)) },
            text("Failed/InstallComponentFailedNoRetry: install strategy failed: refused []")),
        (17, "healthy", installing(), met(), text("Succeeded/InstallSucceeded: install strategy completed with no errors []")),
        (17, "timeout", installing(), Observed { health: Health::Missing(text("m")), ..met() },
            text("Failed/InstallCheckFailed: install timeout []")),
        (17, "changed", installing(), health(Health::Changed(text("c"))), text("- [ApplyStrategy, RequeueAfter(5s)]")),
        (17, "waiting", installing(), health(Health::Waiting(text("w"))),
            text("Installing/InstallWaiting: installing: w [RequeueAfter(5s)]")),
        (17, "waiting", installs("installing: w"), health(Health::Waiting(text("w"))),
            text("- [Report(\"installing: w\"), RequeueAfter(5s)]")),
        (17, "waiting", announced(installs("installing: w")), health(Health::Waiting(text("w"))), text("- [RequeueAfter(5s)]")),
        (17, "waiting", installing(), Observed { api_services: ApiServices::Missing(text("s")), ..met() },
            text("Installing/InstallWaiting: installing: s [RequeueAfter(5s)]")),
        (17, "waiting", installing(), unavailable(), text("Installing/InstallWaiting: apiServices not installed [RequeueAfter(5s)]")),
        (17, "waiting", installs("apiServices not installed"), unavailable(),
            text("- [Report(\"waiting until the apiserver reaches APIService v1.x; its condition Available has the cause\"), \
                  RequeueAfter(5s)]")),
        (18, "replaced", succeeded(), Observed { neighbors: replaced_by(Phase::Pending), ..unmet() },
            text("Replacing/BeingReplaced: being replaced by csv: demo.v2 [CountUpgrade]")),
        (19, "requirement lost", succeeded(), unmet(), text("Failed/RequirementsNotMet: requirements no longer met []")),
        (20, "certificate lost", lost, Observed { is_certificate_missing: true, ..met() },
            text("Pending/NeedsCertRotation: owned APIServices need cert refresh []")),
        (21, "APIService lost", succeeded(), Observed { api_services: ApiServices::Missing(text("s")), ..met() },
            text("Failed/APIServiceResourceIssue: s []")),
        (22, "changed", succeeded(), health(Health::Changed(text("c"))), text("InstallReady/ComponentUnhealthy: installing: c []")),
        (22, "unhealthy", succeeded(), health(Health::Missing(text("m"))), text("Failed/ComponentUnhealthy: installing: m []")),
        (23, "group fits", csv("Failed", "NoOperatorGroup"), met(),
            text("Pending/RequirementsUnknown: InstallModes now support target namespaces []")),
        (23, "group fits", csv("Failed", "InterOperatorGroupOwnerConflict"), met(),
            text("Pending/RequirementsUnknown: OperatorGroup no longer intersecting with conflicting owner []")),
        (24, "requirement missing", broken(), unmet(), text("Pending/RequirementsNotMet: requirements not met []")),
        (25, "rolls out", broken(), health(Health::Waiting(text("w"))), text("- [RequeueAfter(2s)]")),
        (25, "otherwise unhealthy", broken(), health(Health::Waiting(text("w"))), text("Pending/NeedsReinstall: installing: w []")),
        (25, "healthy again", broken(), met(), text("Succeeded/InstallSucceeded: install strategy completed with no errors []")),
        (25, "changed", broken(), health(Health::Changed(text("c"))), text("InstallReady/NeedsReinstall: installing: c []")),
        (25, "otherwise unhealthy", broken(), health(Health::Missing(text("m"))), text("Pending/NeedsReinstall: installing: m []")),
        (25, "otherwise unhealthy", csv("Failed", "APIServiceResourceIssue"),
            Observed { api_services: ApiServices::Missing(text("s")), ..met() }, text("Pending/NeedsReinstall: installing: s []")),
        (25, "otherwise unhealthy", csv("Failed", "InstallComponentFailed"), met(),
            text("Pending/NeedsReinstall: the cause of the failure is gone []")),
        (
            26,
            "fail-forward",
            broken(),
            Observed { is_fail_forward: true, neighbors: replaced_by(Phase::Pending), ..unmet() },
            text(
                "Replacing/BeingReplaced: Fail Forward is enabled, allowing Failed csv to be replaced by csv: demo.v2 []",
            ),
        ),
        (
            26,
            "fail-forward",
            csv("Failed", "UnsupportedOperatorGroup"),
            Observed { is_fail_forward: true, neighbors: replaced_by(Phase::Pending), ..met() },
            text(
                "Replacing/BeingReplaced: Fail Forward is enabled, allowing Failed csv to be replaced by csv: demo.v2 []",
            ),
        ),
        (27, "next succeeded", csv("Replacing", ""), neighbors(replaced_by(Phase::Succeeded)),
            text("Deleting/Replaced: has been replaced by a newer ClusterServiceVersion that has successfully installed. []")),
        (27, "next not ready", csv("Replacing", ""),
            neighbors(Neighbors { replaced: neighbor("demo.v0", Phase::Replacing), ..replaced_by(Phase::Succeeded) }),
            text("- []")),
        (27, "no next", csv("Replacing", ""), met(),
            text("- [Report(\"no ClusterServiceVersion names this one in spec.replaces any more\")]")),
        (28, "delete", csv("Deleting", ""), met(), text("- [DeleteCsv]")),
    ]
}

fn show(step: &Step) -> String {
    let to = step.transition.as_ref();
    let to = to.map_or_else(
        || "-".to_owned(),
        |to| format!("{}/{}: {}", to.phase.as_str(), to.reason.as_str(), to.message),
    );
    let is_event = |action: &&Action| matches!(action, Action::EmitEvent { .. });
    let actions: Vec<_> = step.actions.iter().filter(|action| !is_event(action)).collect();
    format!("{to} {actions:?}")
}

#[test]
fn decide_gives_each_row_of_the_table() {
    let mut seen = BTreeSet::new();
    for (number, case, csv, observed, want) in cases() {
        let now = match case {
            "timeout" => time(301),
            "rolls out" => time(1),
            _ => time(60),
        };
        let step = decide(&csv, &observed, &now);
        let row = step.row.unwrap_or_else(|| panic!("row {number} {case}: none"));
        assert_eq!((row.number, row.case), (number, case), "{want}");
        assert_eq!(show(&step), want, "row {number} {case}");
        seen.insert((number, case));
        let has_event = step.actions.iter().any(|action| matches!(action, Action::EmitEvent { .. }));
        assert_eq!(has_event, step.transition.is_some(), "row {number} {case}: an event");
        let is_warning =
            step.actions.iter().any(|it| matches!(it, Action::EmitEvent { is_warning: true, .. }));
        assert_eq!(
            is_warning,
            step.transition.is_some_and(|to| to.phase == Phase::Failed),
            "row {number} {case}"
        );
    }
    let all: BTreeSet<_> = TABLE.iter().map(|row| (row.number, row.case)).collect();
    assert_eq!(all, seen, "each line has a case");
    assert!(TABLE.is_sorted_by_key(|row| row.number));
    assert_eq!(all.len(), TABLE.len(), "cases of a row have different names");
}

#[test]
fn decide_rests_in_a_failure_that_would_come_back() {
    let mut bad_strategy = csv("Failed", "InvalidInstallStrategy");
    bad_strategy.spec.install.strategy = "helm".to_owned();
    let conflict = Neighbors { conflict: Some(OwnerConflict::Crd), ..Neighbors::default() };
    for (csv, observed) in [
        (with_webhook(csv("Failed", "InvalidWebhookDescription"), "*"), met()),
        (csv("Failed", "OwnerConflict"), Observed { neighbors: conflict, ..met() }),
        (csv("Failed", "InstallComponentFailed"), Observed { install: failed(true), ..met() }),
        (bad_strategy, Observed { requirements: Requirements::default(), ..met() }),
    ] {
        let step = decide(&csv, &observed, &time(60));
        assert_eq!((step.row, step.keeps_status()), (None, true), "{:?}", csv.status);
    }
}

#[test]
fn decide_leaves_copies_alone() {
    let mut copy = csv("Deleting", "");
    copy.metadata.labels = Some([("olm.copiedFrom".to_owned(), "b".to_owned())].into());
    let without_label = csv("Succeeded", "Copied");
    for copy in [copy, without_label] {
        assert_eq!(decide(&copy, &of_group(Reason::NoOperatorGroup), &time(0)).row, None);
    }
}

#[test]
fn apply_writes_times_history_and_certificates() {
    let before = with_webhook(csv("InstallReady", "AllRequirementsMet"), "x");
    let using = |updated, rotate_at| {
        let certificates = Some(Certificates { updated: time(updated), rotate_at: time(rotate_at) });
        Observed { install: InstallResult::Succeeded, certificates, ..met() }
    };
    let step = decide(&before, &using(7, 900), &time(60));
    let status = step.apply(before.status.as_ref(), &time(60));
    assert_eq!((&status.last_transition_time, &status.last_update_time), (&Some(time(60)), &Some(time(60))));
    assert_eq!((status.certs_last_updated, status.certs_rotate_at), (Some(time(7)), Some(time(900))));

    let mut rotated = with_webhook(csv("Succeeded", "InstallSucceeded"), "x");
    let step = decide(&rotated, &using(800, 1800), &time(960));
    assert_eq!((step.row, step.keeps_status()), (None, false), "it stays Succeeded");
    let status = step.apply(rotated.status.as_ref(), &time(960));
    assert_eq!((&status.certs_last_updated, &status.certs_rotate_at), (&Some(time(800)), &Some(time(1800))));
    assert_eq!(status.last_update_time, Some(time(0)));
    rotated.status = Some(status);
    assert!(decide(&rotated, &using(800, 1800), &time(2000)).keeps_status(), "a rotation is no other phase");
    assert!(decide(&rotated, &met(), &time(2000)).keeps_status(), "there is none to show");
    let replaced = Observed { neighbors: replaced_by(Phase::Pending), ..using(7, 900) };
    let step = decide(&csv("Replacing", "BeingReplaced"), &replaced, &time(60));
    assert_eq!(step.certificates, replaced.certificates, "it serves until the newer one is installed");
    let held = Observed { gate: UpgradeGate::Closed("busy".to_owned()), ..using(7, 900) };
    assert_eq!(decide(&csv("Pending", "RequirementsUnknown"), &held, &time(60)).certificates, None);

    let waiting = csv("Installing", "InstallSucceeded");
    let step = decide(&waiting, &Observed { health: Health::Waiting("w".to_owned()), ..met() }, &time(60));
    let mut status = step.apply(waiting.status.as_ref(), &time(60));
    assert_eq!(status.last_transition_time, Some(time(0)), "the phase stays");
    assert_eq!(status.last_update_time, Some(time(60)));
    for _ in 0..30 {
        status.reason.clear();
        status = step.apply(Some(&status), &time(61));
    }
    assert_eq!(status.conditions.len(), HISTORY);
}

#[test]
#[rustfmt::skip]
fn webhooks_check_names_and_rules() {
    for (webhooks, want) in [
        (json!([webhook("a", "x", "*"), webhook("b", "admissionregistration.k8s.io", "validatingwebhookconfigurations")]), ""),
        (json!([webhook("a", "*", "x")]), "webhook rules cannot include all groups"),
        (json!([webhook("a", "operators.coreos.com", "x")]), "webhook rules cannot include the OLM group"),
        (json!([webhook("a", "admissionregistration.k8s.io", "*")]),
            "webhook rules cannot include MutatingWebhookConfiguration or ValidatingWebhookConfiguration resources"),
        (json!([webhook("a", "x", "y"), webhook("a", "x", "z")]),
            "spec.webhookdefinitions has generateName \"a\" more than once; give each webhook its own"),
        (json!([{"generateName": "a", "type": "?", "sideEffects": "", "admissionReviewVersions": [], "rules": [1, {"apiGroups": 2}]}]), ""),
    ] {
        let webhooks: Vec<_> = serde_json::from_value(webhooks).unwrap();
        let got = webhooks::check(&webhooks).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(got, want);
    }
}

#[test]
#[rustfmt::skip]
fn webhooks_of_conversion_need_one_mode_and_own_crds() {
    let conversion = |modes: Value, crds: Value| {
        let mut csv = csv("", "");
        csv.spec.install_modes = serde_json::from_value(modes).unwrap();
        csv.spec.custom_resource_definitions =
            serde_json::from_value(json!({"owned": [{"name": "as.x", "kind": "A", "version": "v1"}, {"name": "bs.x", "kind": "B", "version": "v1"}]})).unwrap();
        let mut description = webhook("w", "x", "y");
        description["type"] = "ConversionWebhook".into();
        description["conversionCRDs"] = crds;
        csv.spec.webhook_definitions = serde_json::from_value(json!([description])).unwrap();
        csv
    };
    let global = || json!([{"type": "AllNamespaces", "supported": true}, {"type": "OwnNamespace", "supported": false}]);
    let both =
        json!([{"type": "AllNamespaces", "supported": true}, {"type": "OwnNamespace", "supported": true}]);
    let preserving = BTreeSet::from(["bs.x".to_owned()]);
    for (csv, want) in [
        (conversion(global(), json!(["as.x"])), ""),
        (conversion(both, json!(["as.x"])),
            "CSV demo.v1 has conversion webhook \"w\" and must support AllNamespaces and no other install mode"),
        (conversion(global(), json!([])), "conversion webhook \"w\" must have at least one entry in conversionCRDs"),
        (conversion(global(), json!(["cs.x"])),
            "conversion webhook \"w\" names CustomResourceDefinition cs.x, which CSV demo.v1 does not own"),
        (conversion(global(), json!(["bs.x"])),
            "CustomResourceDefinition bs.x of conversion webhook \"w\" must have spec.preserveUnknownFields: false"),
    ] {
        let got = webhooks::check_conversion(&csv, &preserving)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert_eq!(got, want);
    }
}

fn named(name: &str, replaces: &str) -> ClusterServiceVersion {
    let mut csv = csv("Succeeded", "");
    csv.metadata.name = Some(name.to_owned());
    replaces.clone_into(&mut csv.spec.replaces);
    csv
}

#[test]
fn chain_finds_neighbors_end_and_cycles() {
    let chain =
        [named("a", ""), named("b", "a"), named("c", "b"), named("self", "self"), named("gone", "nothing")];
    let cycle =
        [named("x", "z"), named("y", "x"), named("z", "y"), named("before", ""), named("w", "before")];
    let all: Vec<_> = chain.iter().chain(&cycle).cloned().collect();
    let name = |neighbor: Option<Neighbor>| neighbor.map_or_else(String::new, |neighbor| neighbor.name);
    for (at, want) in [
        ("a", ("", "b", "c", false)),
        ("b", ("a", "c", "c", false)),
        ("c", ("b", "", "", false)),
        ("self", ("", "", "", false)),
        ("gone", ("", "", "", false)),
        ("x", ("z", "y", "", true)),
        ("w", ("before", "", "", false)),
    ] {
        let csv = all.iter().find(|csv| csv.metadata.name.as_deref() == Some(at)).unwrap();
        let got = chain::neighbors(csv, &all, &BTreeMap::new());
        let got = (name(got.replaced), name(got.replaced_by), name(got.end), got.is_cycle);
        assert_eq!(got, (want.0.to_owned(), want.1.to_owned(), want.2.to_owned(), want.3), "{at}");
    }
}

#[test]
fn chain_finds_other_owners_of_apis() {
    let crd = |name: &str, replaces: &str, namespace: &str| {
        let mut csv = named(name, replaces);
        csv.metadata.namespace = Some(namespace.to_owned());
        let owned = json!([{"name": "as.x", "kind": "A", "version": "v1"}]);
        csv.spec.custom_resource_definitions = serde_json::from_value(json!({ "owned": owned })).unwrap();
        csv
    };
    for (csv, other, want) in [
        (crd("b", "a", "n"), crd("a", "", "n"), None),
        (crd("a", "", "n"), crd("b", "a", "n"), None),
        (crd("b", "", "n"), crd("a", "", "n"), Some(OwnerConflict::Crd)),
        (crd("b", "", "n"), crd("a", "", "other"), None),
    ] {
        let got = chain::neighbors(&csv, &[csv.clone(), other], &BTreeMap::new()).conflict;
        assert_eq!(got, want, "{:?}", csv.metadata);
    }
}

#[test]
fn chain_reads_the_owner_of_an_api_service_in_the_cluster() {
    let serving = |name: &str, replaces: &str, namespace: &str| {
        let mut csv = named(name, replaces);
        csv.metadata.namespace = Some(namespace.to_owned());
        let owned =
            json!([{"name": "as", "group": "x", "version": "v1", "kind": "A", "deploymentName": "manager"}]);
        csv.spec.api_service_definitions = serde_json::from_value(json!({ "owned": owned })).unwrap();
        csv
    };
    let all =
        [serving("b", "a", "n"), serving("a", "", "n"), serving("c", "", "n"), serving("b", "", "other")];
    for (case, live, want) in [
        ("there is none, whatever others declare", None, None),
        ("its own", Some(Some("n/b")), None),
        ("of the version before", Some(Some("n/a")), None),
        ("of one that is gone", Some(Some("n/gone")), None),
        ("of another operator", Some(Some("n/c")), Some("is owned by ClusterServiceVersion n/c")),
        ("of another namespace", Some(Some("other/b")), Some("is owned by ClusterServiceVersion other/b")),
        (
            "not of OLM",
            Some(None),
            Some("exists and is not owned by a ClusterServiceVersion; to install this one, delete it first"),
        ),
    ] {
        let live = live.map(|owner: Option<&str>| {
            let owner = owner.map(str::to_owned);
            ("v1.x".to_owned(), ObservedApiService { owner, ..ObservedApiService::default() })
        });
        let got = chain::neighbors(&all[0], &all, &live.into_iter().collect()).conflict;
        let want = want.map(|text| format!("APIService v1.x {text}"));
        assert_eq!(got.map(|conflict| conflict.message()), want, "{case}");
    }
    let foreign = ["n/b", "n/a", "n/gone", "n/c", "other/b"].map(|it| chain::is_foreign(&all[0], &all, it));
    assert_eq!(foreign, [false, false, false, true, true]);
}

#[test]
fn chain_others_are_of_no_common_chain() {
    let named = |name: &str, replaces: &str| {
        let mut csv = csv("Succeeded", "");
        csv.metadata.name = Some(name.to_owned());
        csv.spec.replaces = replaces.to_owned();
        csv
    };
    let all = [named("a.v1", ""), named("a.v2", "a.v1"), named("a.v3", "a.v1"), named("b.v1", "")];
    assert_eq!(chain::others(&all[0], &all), ["a.v3", "b.v1"].into());
    assert_eq!(chain::others(&all[2], &all), ["a.v2", "b.v1"].into());
}

fn phases() -> impl Strategy<Value = Phase> {
    proptest::sample::select(&Phase::ALL[..])
}

fn maybe_neighbor() -> impl Strategy<Value = Option<Neighbor>> {
    proptest::option::of(phases().prop_map(|phase| Neighbor { name: "other".to_owned(), phase }))
}

prop_compose! {
    fn facts()(
        group in prop_oneof![
            4 => Just(GroupState::Member),
            1 => Just(GroupState::Unresolved),
            1 => Just(GroupState::Annotate([].into())),
            1 => Just(GroupState::SetProvidedApis(String::new())),
            2 => proptest::sample::select(&Reason::ALL[..]).prop_map(|reason| GroupState::Failed { reason, message: "m".to_owned() }),
        ],
        is_fail_forward: bool,
        is_closed in proptest::bool::weighted(0.2),
        are_met in proptest::bool::weighted(0.7),
        replaced in maybe_neighbor(), replaced_by in maybe_neighbor(), end in maybe_neighbor(),
        is_cycle in proptest::bool::weighted(0.1),
        conflict in proptest::option::weighted(0.2, Just(OwnerConflict::Crd)),
        install in prop_oneof![Just(InstallResult::NotTried), Just(InstallResult::Succeeded), any::<bool>().prop_map(failed)],
        health in prop_oneof![
            Just(Health::Healthy), Just(Health::Waiting("w".to_owned())), Just(Health::Missing("m".to_owned())), Just(Health::Changed("c".to_owned())),
        ],
        is_missing in proptest::bool::weighted(0.3),
    ) -> Observed {
        Observed {
            group,
            is_fail_forward,
            gate: if is_closed { UpgradeGate::Closed("busy".to_owned()) } else { UpgradeGate::Open },
            requirements: Requirements { are_met, statuses: vec![] },
            neighbors: Neighbors { replaced, replaced_by, end, is_cycle, conflict },
            install,
            health,
            api_services: if is_missing { ApiServices::Missing("s".to_owned()) } else { ApiServices::Present },
            certificates: None,
            is_certificate_missing: false,
        }
    }
}

/// The longest way to rest: Succeeded, Failed, Pending, InstallReady, Installing, waiting, and one step that changes nothing.
const STEPS_TO_REST: usize = 10;

proptest! {
    #[test]
    fn decide_depends_on_health_only_where_the_phase_does(
        phase in phases().prop_filter("depends on health", |phase| !phase.depends_on_health()),
        reason in proptest::sample::select(&Reason::ALL[..]),
        observed in facts(),
    ) {
        let csv = with_webhook(csv(phase.as_str(), reason.as_str()), "x");
        let healthy = Observed { health: Health::Healthy, ..observed.clone() };
        prop_assert_eq!(decide(&csv, &observed, &time(60)), decide(&csv, &healthy, &time(60)));
    }

    #[test]
    fn decide_rests_with_unchanged_facts(
        phase in phases(),
        reason in proptest::sample::select(&Reason::ALL[..]),
        changes in proptest::collection::vec(facts(), 1..6),
        has_bad_webhook in proptest::bool::weighted(0.2),
        has_strategy in proptest::bool::weighted(0.9),
        has_annotation in proptest::bool::weighted(0.9),
    ) {
        let mut csv = csv(phase.as_str(), reason.as_str());
        csv = with_webhook(csv, if has_bad_webhook { "*" } else { "x" });
        if !has_strategy {
            csv.spec.install.spec = None;
        }
        if !has_annotation {
            csv.metadata.annotations = None;
        }
        for (index, observed) in changes.iter().enumerate() {
            let now = time(60 * i64::try_from(index).unwrap());
            let mut steps = 0;
            loop {
                let step = decide(&csv, observed, &now);
                csv.status = Some(step.apply(csv.status.as_ref(), &now));
                prop_assert!(csv.status.as_ref().unwrap().conditions.len() <= HISTORY);
                if step.keeps_status() {
                    break;
                }
                steps += 1;
                prop_assert!(steps <= STEPS_TO_REST, "{:?}", csv.status);
            }
        }
    }
}
