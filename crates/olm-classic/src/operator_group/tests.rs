use std::collections::BTreeMap;

use olm_api::classic::{ClusterServiceVersion, OperatorGroup, Time};
use serde_json::{Value, json};

use super::account::Account;
use super::*;
use crate::csv::{GroupState, Reason};
use crate::install_plan::plan_account;

mod copied_csvs;
mod hostile;
mod role_objects;

const ALL_MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];

fn group(namespace: &str, name: &str, spec: Value, status: Value) -> OperatorGroup {
    let mut object = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": { "name": name, "namespace": namespace, "uid": "u" }, "spec": spec,
    });
    if let Some(namespaces) = status.as_array() {
        object["status"] = json!({ "namespaces": namespaces, "lastUpdated": "2024-01-01T00:00:00Z" });
    }
    serde_json::from_value(object).unwrap()
}

fn with_apis(mut group: OperatorGroup, apis: &str) -> OperatorGroup {
    let annotations = group.metadata.annotations.get_or_insert_default();
    annotations.insert(keys::PROVIDED_APIS.to_owned(), apis.to_owned());
    group
}

fn csv(namespace: &str, modes: &[&str], kinds: &[&str]) -> ClusterServiceVersion {
    let modes: Vec<Value> = modes.iter().map(|it| json!({ "type": it, "supported": true })).collect();
    let owned: Vec<Value> = kinds
        .iter()
        .map(
            |kind| json!({ "name": format!("{}s.x.io", kind.to_lowercase()), "version": "v1", "kind": kind }),
        )
        .collect();
    let object = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": { "name": "demo.v1", "namespace": namespace },
        "spec": {
            "displayName": "demo", "install": { "strategy": "deployment" }, "installModes": modes,
            "customresourcedefinitions": { "owned": owned },
        },
        "status": { "phase": "Succeeded", "reason": "InstallSucceeded" },
    });
    serde_json::from_value(object).unwrap()
}

/// The CSV with the annotations of its group.
fn annotated(mut csv: ClusterServiceVersion, group: &OperatorGroup) -> ClusterServiceVersion {
    let all = annotations(group, &targets::resolved(group).unwrap());
    csv.metadata.annotations = Some(all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    csv
}

fn namespaces() -> Namespaces {
    let labels = |value: &str| BTreeMap::from([("env".to_owned(), value.to_owned())]);
    BTreeMap::from([
        ("a".to_owned(), labels("prod")),
        ("b".to_owned(), labels("test")),
        ("c".to_owned(), BTreeMap::new()),
    ])
}

/// rule: classic-apis §7.1
#[test]
#[rustfmt::skip]
fn group_targets_by_list_selector_or_all() {
    for (spec, want) in [
        (json!({}), Ok(vec![""])),
        (json!({ "selector": {} }), Ok(vec![""])),
        (json!({ "targetNamespaces": ["c", "a", "a", "not-there"] }), Ok(vec!["a", "c", "not-there"])),
        (json!({ "targetNamespaces": ["c"], "selector": { "matchLabels": { "env": "prod" } } }), Ok(vec!["c"])),
        (json!({ "selector": { "matchLabels": { "env": "prod" } } }), Ok(vec!["a"])),
        (json!({ "selector": { "matchLabels": { "env": "none" } } }), Ok(vec![])),
        (json!({ "selector": { "matchExpressions": [{ "key": "env", "operator": "Exists" }] } }), Ok(vec!["a", "b"])),
        (json!({ "selector": { "matchExpressions": [{ "key": "env", "operator": "NotIn", "values": ["prod"] }] } }), Ok(vec!["b", "c"])),
        (
            json!({ "targetNamespaces": ["a", ""] }),
            Err(
                "spec.targetNamespaces: TargetNamespaces cannot contain NamespaceAll; remove \"\", or leave targetNamespaces and \
                 selector out to select all namespaces",
            ),
        ),
        (
            json!({ "selector": { "matchExpressions": [{ "key": "env", "operator": "Gt", "values": ["1"] }] } }),
            Err(
                "spec.selector.matchExpressions[0]: \"Gt\" is not a valid label selector operator; use In or NotIn with values, \
                 Exists or DoesNotExist without",
            ),
        ),
        (
            json!({ "selector": { "matchExpressions": [{ "key": "env", "operator": "In" }] } }),
            Err(
                "spec.selector.matchExpressions[0]: values of \"env\": for operator \"In\", values set can't be empty; use In or \
                 NotIn with values, Exists or DoesNotExist without",
            ),
        ),
        (json!({ "selector": { "matchLabels": { "not a key": "x" } } }),
            Err("spec.selector.matchLabels: \"not a key\" is no key of a label; write it like example.com/name")),
        (
            json!({ "selector": { "matchLabels": { "env": "no value!" } } }),
            Err(
                "spec.selector.matchLabels[\"env\"]: \"no value!\" is no value of a label; use at most 63 letters, digits, '-', '_' \
                 and '.', with a letter or digit at both ends",
            ),
        ),
    ] {
        let group = group("ns", "og", spec.clone(), json!(null));
        let want = want
            .map(|names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
            .map_err(|problem| format!("operatorgroup ns/og: {problem}"));
        let got = targets::resolve(&group, &namespaces()).map_err(|error| error.to_string());
        assert_eq!(got, want, "{spec}");
        let errors: Vec<String> = targets::lint(&group).iter().map(ToString::to_string).collect();
        assert_eq!(errors, want.err().into_iter().collect::<Vec<_>>(), "{spec}");
    }
    let wrong = with_apis(group("ns", "og", json!({}), json!(null)), "A.v1.x.io,nonsense");
    let errors: Vec<String> = targets::lint(&wrong).iter().map(ToString::to_string).collect();
    let want = "operatorgroup ns/og: metadata.annotations[\"olm.providedAPIs\"]: \"nonsense\" is no API; write it as Kind.version.group";
    assert_eq!(errors, [want]);
}

/// rule: classic-apis §7.3
#[test]
#[rustfmt::skip]
fn group_modes_are_needed_by_the_targets() {
    let (own, single, multi, all) = (ALL_MODES[0], ALL_MODES[1], ALL_MODES[2], ALL_MODES[3]);
    let without = |mode: &str| ALL_MODES.into_iter().filter(|it| *it != mode).collect::<Vec<_>>();
    for (targets, modes, want) in [
        (vec![], ALL_MODES.to_vec(), "operatorgroup has invalid selected namespaces, cannot configure to watch zero namespaces"),
        (vec!["ns"], vec![own], ""),
        (vec!["ns"], without(own), "OwnNamespace InstallModeType not supported, cannot configure to watch own namespace"),
        (vec![""], vec![all], ""),
        (vec![""], without(all), "AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces"),
        (vec!["a"], vec![single], ""),
        (vec!["a"], without(single), "SingleNamespace InstallModeType not supported, cannot configure to watch one namespace"),
        (vec!["a", "b"], vec![multi], ""),
        (vec!["a", "b", "c"], without(multi), "MultiNamespace InstallModeType not supported, cannot configure to watch 3 namespaces"),
        (vec!["a", "ns"], vec![multi, own], ""),
        (vec!["a", "ns"], vec![multi], "OwnNamespace InstallModeType not supported, cannot configure to watch own namespace"),
        (vec!["", "a"], ALL_MODES.to_vec(),
            "operatorgroup has invalid selected namespaces, NamespaceAll found when |selected namespaces| > 1"),
        (vec!["a", "a"], vec![single], ""),
        (vec![""], vec![], "AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces"),
        (vec![""], vec!["allnamespaces"], "AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces"),
    ] {
        let targets: Vec<String> = targets.into_iter().map(str::to_owned).collect();
        let got = modes::check(&csv("ns", &modes, &[]), "ns", &targets);
        assert_eq!(
            got.err().map(|error| error.to_string()).unwrap_or_default(),
            want,
            "{targets:?} {modes:?}"
        );
    }
}

/// rule: classic-apis §7.6
#[test]
fn group_intersection_has_the_rows_of_the_table() {
    for (overlaps, covered, is_static, want) in [
        (false, true, false, Intersection::Continue),
        (false, true, true, Intersection::Continue),
        (false, false, true, Intersection::Static),
        (false, false, false, Intersection::Extend),
        (true, false, false, Intersection::Conflict),
        (true, false, true, Intersection::Conflict),
        (true, true, true, Intersection::Static),
        (true, true, false, Intersection::Shrink),
    ] {
        assert_eq!(decide(overlaps, covered, is_static), want, "{overlaps} {covered} {is_static}");
    }
}

/// rule: classic-apis §7.6
#[test]
fn group_targets_intersect_with_their_own_namespace() {
    let of = |namespace: &str, targets: Value| group(namespace, "og", json!({}), targets);
    for (one, other, want) in [
        (of("a", json!(["x"])), of("b", json!(["x", "y"])), true),
        (of("a", json!(["x"])), of("b", json!(["y"])), false),
        (of("a", json!(["x"])), of("b", json!(["a"])), true),
        (of("a", json!(["x"])), of("x", json!(["y"])), true),
        (of("a", json!(["x"])), of("b", json!([""])), true),
        (of("a", json!([""])), of("b", json!([])), true),
        (of("a", json!(null)), of("b", json!(null)), false),
    ] {
        assert_eq!((targets::intersect(&one, &other), targets::intersect(&other, &one)), (want, want));
    }
}

fn failed(reason: Reason, message: &str) -> GroupState {
    GroupState::Failed { reason, message: message.to_owned() }
}

/// rule: classic-apis §6.3
#[test]
#[rustfmt::skip]
fn group_check_has_a_row_for_each_outcome() {
    let plain = || group("ns", "og", json!({}), json!(["ns"]));
    let fixed = || group("ns", "og", json!({ "staticProvidedAPIs": true }), json!(["ns"]));
    let other = |apis| with_apis(group("other", "og", json!({}), json!(["ns"])), apis);
    let demo = || csv("ns", &ALL_MODES, &["A"]);
    let member = || annotated(demo(), &plain());
    let twice = || {
        let modes = ["OwnNamespace", "OwnNamespace", "Other", "Other", "AllNamespaces"];
        annotated(csv("ns", &modes, &["A"]), &plain())
    };
    let without_account = || {
        let spec = json!({ "targetNamespaces": ["ns"], "serviceAccountName": "sa" });
        let mut group = group("ns", "og", spec, json!([]));
        let condition = json!([{ "type": "OperatorGroupServiceAccount", "status": "True", "reason": "ServiceAccountNotFound",
            "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z" }]);
        group.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
        group
    };
    let annotation = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    for (name, csv, groups, want) in [
        ("row 1", demo(), vec![other("")], failed(Reason::NoOperatorGroup, "csv in namespace with no operatorgroups")),
        ("row 2", demo(), vec![plain(), group("ns", "second", json!({}), json!(["ns"]))],
            failed(Reason::TooManyOperatorGroups, "csv created in namespace with multiple operatorgroups, can't pick one automatically")),
        ("no status", demo(), vec![group("ns", "og", json!({}), json!(null))], GroupState::Unresolved),
        ("row 3, no targets: no annotation that means all namespaces", demo(), vec![group("ns", "og", json!({}), json!([]))],
            GroupState::Annotate(BTreeMap::from([annotation("olm.operatorGroup", "og"), annotation("olm.operatorNamespace", "ns")]))),
        ("row 3, no targets, annotated", annotated(demo(), &plain()), vec![group("ns", "og", json!({}), json!([]))],
            failed(Reason::NoTargetNamespaces, "no targetNamespaces are matched operatorgroups namespace selection")),
        ("row 3, no account", annotated(demo(), &without_account()), vec![without_account()], GroupState::Unresolved),
        ("row 3", demo(), vec![group("ns", "og", json!({}), json!(["ns", "a"]))],
            GroupState::Annotate(
                BTreeMap::from([annotation("olm.operatorGroup", "og"), annotation("olm.operatorNamespace", "ns"),
                    annotation("olm.targetNamespaces", "a,ns")]))),
        ("row 4", twice(), vec![plain()],
            failed(Reason::InvalidInstallModes,
                "spec.installModes has more than one entry for Other, OwnNamespace; keep one of each type")),
        ("row 5", annotated(csv("ns", &["AllNamespaces"], &["A"]), &plain()), vec![plain()],
            failed(Reason::UnsupportedOperatorGroup, "OwnNamespace InstallModeType not supported, cannot configure to watch own namespace")),
        ("row 7, provided already", member(), vec![with_apis(plain(), "A.v1.x.io")], GroupState::Member),
        ("row 7, no API", annotated(csv("ns", &ALL_MODES, &[]), &plain()), vec![plain()], GroupState::Member),
        ("row 7, new API", member(), vec![with_apis(plain(), "B.v1.x.io"), other("C.v1.x.io")],
            GroupState::SetProvidedApis("A.v1.x.io,B.v1.x.io".to_owned())),
        ("row 7, static", member(), vec![fixed()],
            failed(Reason::CannotModifyStaticProvidedApis, "static provided api operatorgroup cannot be modified by these apis")),
        ("row 7, static and provided", member(), vec![with_apis(fixed(), "A.v1.x.io")], GroupState::Member),
        ("row 7, of another group", member(), vec![plain(), other("A.v1.x.io")],
            failed(Reason::InterOperatorGroupOwnerConflict, "intersecting operatorgroups provide the same apis")),
        ("row 7, of both groups", member(), vec![with_apis(plain(), "A.v1.x.io,B.v1.x.io"), other("A.v1.x.io")],
            GroupState::SetProvidedApis("B.v1.x.io".to_owned())),
        ("row 7, of both groups, static", member(), vec![with_apis(fixed(), "A.v1.x.io"), other("A.v1.x.io")],
            failed(Reason::CannotModifyStaticProvidedApis, "static provided api operatorgroup cannot be modified by these apis")),
    ] {
        if let GroupState::Failed { reason, .. } = &want {
            assert!(reason.is_of_the_group(), "{name}");
        }
        assert_eq!(check(&csv, &groups), want, "{name}");
    }
}

/// rule: classic-apis §7.5
#[test]
#[rustfmt::skip]
fn group_annotation_is_pruned_when_providers_end() {
    let plain = || group("ns", "og", json!({}), json!(["ns"]));
    let phase = |phase: &str| {
        let mut csv = csv("ns", &ALL_MODES, &["B"]);
        csv.status.as_mut().unwrap().phase = phase.to_owned();
        csv
    };
    let unsupported = |at: &str| {
        let mut csv = csv("ns", &[], &["B"]);
        csv.status.as_mut().unwrap().phase = at.to_owned();
        csv
    };
    let copied = {
        let mut csv = csv("ns", &ALL_MODES, &["B"]);
        csv.metadata.labels = Some(BTreeMap::from([(keys::COPIED_FROM.to_owned(), "x".to_owned())]));
        csv
    };
    let both = "A.v1.x.io,B.v1.x.io";
    let fixed = with_apis(group("ns", "og", json!({ "staticProvidedAPIs": true }), json!(["ns"])), both);
    for (name, group, csvs, want) in [
        ("no annotation", plain(), vec![], None),
        ("all gone", with_apis(plain(), both), vec![], Some("")),
        ("pruned already", with_apis(plain(), ""), vec![], None),
        ("one stays", with_apis(plain(), both), vec![phase("Succeeded")], Some("B.v1.x.io")),
        ("a failed member stays", with_apis(plain(), both), vec![phase("Failed")], Some("B.v1.x.io")),
        ("copies do not count", with_apis(plain(), both), vec![copied], Some("")),
        ("no member", with_apis(plain(), both), vec![unsupported("Failed")], Some("")),
        ("a new provider", with_apis(plain(), both), vec![unsupported("")], None),
        ("a pending provider", with_apis(plain(), both), vec![unsupported("Pending")], None),
        ("of another namespace", with_apis(plain(), both), vec![csv("other", &ALL_MODES, &["A"])], Some("")),
        ("static", fixed, vec![], None),
        ("malformed entries", with_apis(plain(), "B.v1.x.io,nonsense"), vec![phase("Succeeded")], Some("B.v1.x.io")),
    ] {
        let got = prune(&group, std::slice::from_ref(&group), &csvs);
        assert_eq!(got.as_deref(), want, "{name}");
    }
    let apis = ApiSet::parse("B.v1.x.io").0;
    let csvs = [csv("a", &[], &["A", "B"]), csv("b", &[], &["A"])];
    assert_eq!(providers(&apis, &csvs), [("a", "demo.v1")]);
}

/// rule: classic-apis §7.1
#[test]
fn group_status_reports_targets_and_account() {
    let time = |text: &str| -> Time { serde_json::from_value(json!(text)).unwrap() };
    let (old, now) = (time("2024-01-01T00:00:00Z"), time("2025-01-01T00:00:00Z"));
    let spec = json!({ "targetNamespaces": ["b", "a"], "serviceAccountName": "sa" });
    let named = |status| group("ns", "og", spec.clone(), status);
    let present = Account::Present { uid: "1".to_owned(), resource_version: "2".to_owned() };
    let of = |group: &OperatorGroup, others: &[OperatorGroup], account: &Account| {
        status(group, others, &namespaces(), account, &now).unwrap()
    };

    let first = of(&named(json!(null)), &[named(json!(null))], &present).unwrap();
    assert_eq!(
        serde_json::to_value(&first).unwrap(),
        json!({
            "namespaces": ["a", "b"], "lastUpdated": "2025-01-01T00:00:00Z",
            "serviceAccountRef": { "apiVersion": "v1", "kind": "ServiceAccount", "name": "sa", "namespace": "ns", "uid": "1", "resourceVersion": "2" },
        })
    );
    let mut written = named(json!(null));
    written.status = Some(first);
    assert_eq!(of(&written, &[written.clone()], &present), None);

    let condition = |status: Option<olm_api::classic::OperatorGroupStatus>| {
        let conditions = status.unwrap().conditions;
        conditions
            .into_iter()
            .map(|it| (it.type_, it.reason, it.message, it.last_transition_time))
            .collect::<Vec<_>>()
    };
    let missing = |since: &Time| {
        let texts = ["OperatorGroupServiceAccount", "ServiceAccountNotFound", "ServiceAccount sa not found"];
        (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned(), since.clone())
    };
    let never = of(&named(json!(null)), &[], &Account::Missing);
    assert_eq!(never.as_ref().unwrap().namespaces, Vec::<String>::new());
    assert_eq!(condition(never), [missing(&now)]);
    let gone = of(&named(json!(["a"])), &[], &Account::Missing).unwrap();
    assert_eq!((gone.namespaces.as_slice(), &gone.service_account_ref), (["a".to_owned()].as_slice(), &None));

    let mut waiting = named(json!(["a"]));
    waiting.status.as_mut().unwrap().conditions = gone.conditions;
    waiting.status.as_mut().unwrap().conditions[0].last_transition_time = old.clone();
    let several =
        of(&waiting, &[waiting.clone(), group("ns", "second", json!({}), json!(null))], &Account::Missing);
    let texts = [
        "MultipleOperatorGroup",
        "MultipleOperatorGroupsFound",
        "Multiple OperatorGroup found in the same namespace",
    ];
    let multiple = (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned(), now.clone());
    let wait = several.as_ref().and_then(group_wait);
    assert_eq!(
        wait.as_deref(),
        Some("Multiple OperatorGroup found in the same namespace; delete all but one")
    );
    assert_eq!(condition(several), [multiple, missing(&old)]);
    let wait = waiting.status.as_ref().and_then(group_wait);
    assert_eq!(
        wait.as_deref(),
        Some("ServiceAccount sa not found; create it, or change spec.serviceAccountName")
    );
    let repaired = of(&waiting, &[waiting.clone()], &present).unwrap();
    assert_eq!((group_wait(&repaired), repaired.conditions), (None, vec![]));

    let wrong = group("ns", "og", json!({ "targetNamespaces": [""] }), json!(null));
    assert!(status(&wrong, &[] as &[OperatorGroup], &namespaces(), &Account::Unnamed, &now).is_err());
}

/// rule: classic-apis §5.2
#[test]
#[rustfmt::skip]
fn group_account_is_what_plans_act_with() {
    let of = |namespace: &str, name: &str, account: &str, targets: Value| {
        group(namespace, name, json!({ "serviceAccountName": account }), targets)
    };
    for (groups, want) in [
        (vec![], Err("no operator group found that is managing this namespace")),
        (vec![of("other", "og", "", json!(["ns"]))], Err("no operator group found that is managing this namespace")),
        (vec![of("ns", "og", "", json!(null))], Err("no operator group found that is managing this namespace")),
        (vec![of("ns", "og", "", json!([]))], Err("no operator group found that is managing this namespace")),
        (vec![of("ns", "og", "", json!(["ns"]))], Ok(None)),
        (vec![of("ns", "og", "sa", json!(["ns"]))], Ok(Some("sa"))),
        (vec![of("ns", "og", "gone", json!(["ns"]))], Err("please make sure the service account exists. sa=gone operatorgroup=ns/og")),
        (vec![of("ns", "og", "sa", json!(["ns"])), of("ns", "b", "sa", json!(["ns"]))],
            Err("more than one operator group(s) are managing this namespace count=2")),
    ] {
        let mut own: Vec<OperatorGroup> =
            groups.into_iter().filter(|group| group.metadata.namespace.as_deref() == Some("ns")).collect();
        for group in &mut own {
            let is_there = group.spec.service_account_name == "sa";
            if let Some(status) = group.status.as_mut().filter(|_| is_there) {
                status.service_account_ref = serde_json::from_value(json!({ "name": "sa" })).unwrap();
            }
        }
        let own: Vec<_> = own.into_iter().map(std::sync::Arc::new).collect();
        let got = plan_account(&own).map(|account| account.and_then(|it| it.name));
        let got = got.map_err(|error| error.to_string());
        assert_eq!(got, want.map(|it| it.map(str::to_owned)).map_err(str::to_owned), "{}", own.len());
    }
    for (strategy, want) in [
        ("", false),
        ("Default", false),
        ("TechPreviewUnsafeFailForward", true),
        ("other", false),
    ] {
        let group = group("ns", "og", json!({ "upgradeStrategy": strategy }), json!(null));
        assert_eq!(is_fail_forward(&group), want, "{strategy}");
    }
}

/// rule: classic-apis §7.1
#[test]
fn group_label_is_on_targets_only() {
    let mut namespaces = namespaces();
    for name in ["a", "c"] {
        namespaces.get_mut(name).unwrap().insert("olm.operatorgroup.uid/u".to_owned(), String::new());
    }
    let names = |targets: &[&str]| targets.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    for (targets, want) in [
        (names(&["a", "b", "not-there"]), vec![("b", true), ("c", false)]),
        (names(&["a", "c"]), vec![]),
        (names(&[""]), vec![("a", false), ("c", false)]),
    ] {
        let changes = targets::labels("u", &targets, &namespaces);
        let got: Vec<(&str, bool)> = changes.iter().map(|it| (it.namespace.as_str(), it.add)).collect();
        assert_eq!(got, want, "{targets:?}");
        assert!(changes.iter().all(|it| it.label == "olm.operatorgroup.uid/u"));
    }
}

#[test]
fn webhook_namespaces_are_those_of_known_targets() {
    let selector = json!({ "matchLabels": { "env": "prod" } });
    let label = json!({ "matchLabels": { "olm.operatorgroup.uid/u": "" } });
    for (spec, status, want) in [
        (json!({}), json!([""]), Some(json!({}))),
        (json!({ "targetNamespaces": ["a"] }), json!(["a"]), Some(label)),
        (json!({ "selector": selector }), json!(["a"]), Some(selector.clone())),
        (json!({ "selector": selector }), json!([]), Some(selector.clone())),
        (json!({}), Value::Null, None),
        (json!({ "targetNamespaces": ["a"] }), Value::Null, None),
        (json!({}), json!(["a"]), None),
    ] {
        let group = group("ns", "og", spec.clone(), status.clone());
        assert_eq!(targets::webhook_namespaces(&group), want, "{spec} {status}");
    }
}
