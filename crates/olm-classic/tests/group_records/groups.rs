//! Groups, their CSVs, roles and copies.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::{ClusterServiceVersion, OperatorGroup, Time};
use olm_classic::csv::{GroupState, Reason};
use olm_classic::operator_group::account::Account;
use olm_classic::operator_group::copies::{self, CopySettings};
use olm_classic::operator_group::{self, is_copy, keys, rights, roles, targets};
use olm_core::Object;
use serde_json::{Value, json};

use super::Comparison;
use super::observed::{self, keyed, label, of_kind, pruned, text, view};
use super::scenario::{Scenario, Snapshot};

pub(crate) fn compare(
    comparison: &mut Comparison,
    scenario: &Scenario,
    snapshot: &Snapshot,
    before: Option<&Snapshot>,
) {
    let place = format!("{} {}", scenario.id, snapshot.name);
    let mut groups: Vec<OperatorGroup> = of_kind(snapshot, "OperatorGroup").map(observed::group).collect();
    compare_status(comparison, scenario, snapshot, &place, &mut groups);
    let mut csvs = Vec::new();
    for object in of_kind(snapshot, "ClusterServiceVersion") {
        match observed::csv(scenario, snapshot, object) {
            Ok(csv) => csvs.push(csv),
            Err(reason) => {
                comparison.underived(&format!("{place} {}", text(object, "name")), &reason);
                return;
            }
        }
    }
    compare_checks(comparison, snapshot, before, &place, &groups, &csvs);
    compare_roles(comparison, scenario, snapshot, &place, &csvs);
    compare_copies(comparison, scenario, snapshot, &place, &groups, &csvs);
    compare_rights(comparison, snapshot, &place, &groups, &csvs);
}

fn namespace(group: &OperatorGroup) -> &str {
    group.metadata.namespace.as_deref().unwrap()
}

/// The account of a group, as the snapshot has it.
fn account(group: &OperatorGroup, snapshot: &Snapshot) -> Account {
    let name = &group.spec.service_account_name;
    let is_it =
        |object: &Value| text(object, "namespace") == namespace(group) && text(object, "name") == name;
    if name.is_empty() {
        Account::Unnamed
    } else if of_kind(snapshot, "ServiceAccount").any(is_it) {
        Account::Present { uid: "<uid>".to_owned(), resource_version: String::new() }
    } else {
        Account::Missing
    }
}

/// Status and namespace labels; gives the groups the status that was derived.
fn compare_status(
    comparison: &mut Comparison,
    scenario: &Scenario,
    snapshot: &Snapshot,
    place: &str,
    groups: &mut [OperatorGroup],
) {
    let now: Time = observed::typed(json!("2024-01-01T00:00:00Z"));
    let namespaces = scenario.namespaces();
    let all = groups.to_vec();
    for (group, recorded) in groups.iter_mut().zip(of_kind(snapshot, "OperatorGroup")) {
        let account = account(group, snapshot);
        let status = operator_group::status(group, &all, &namespaces, &account, &now).unwrap().unwrap();
        let mut value = serde_json::to_value(&status).unwrap();
        value["conditions"] = observed::condition_view(&value["conditions"]);
        value.as_object_mut().unwrap().remove("lastUpdated");
        if let Some(reference) = value.get_mut("serviceAccountRef").and_then(Value::as_object_mut) {
            reference.remove("resourceVersion");
        }
        let place = format!("{place} {}/{}", namespace(group), text(recorded, "name"));
        comparison.compare("group status", &place, &value, &recorded["status"]);
        group.status = Some(status);
    }
    let uid = "<uid>";
    let selected: BTreeSet<String> =
        groups.iter().flat_map(|group| targets::resolved(group).unwrap()).collect();
    let selected: Vec<String> = selected.into_iter().filter(|name| !name.is_empty()).collect();
    let changes = targets::labels(uid, &selected, &namespaces);
    let labelled: Vec<&str> = changes.iter().map(|it| it.namespace.as_str()).collect();
    let key = format!("{}{uid}", keys::GROUP_UID);
    let recorded = of_kind(snapshot, "Namespace").filter(|object| label(object, &key).is_some());
    let recorded: BTreeSet<&str> = recorded.map(|object| text(object, "name")).collect();
    if !groups.is_empty() {
        comparison.compare("namespace labels", place, &json!(labelled), &json!(recorded));
    }
}

/// Runs the checks of all CSVs until nothing changes, from CSVs without annotations and the group annotations of the snapshot before.
fn compare_checks(
    comparison: &mut Comparison,
    snapshot: &Snapshot,
    before: Option<&Snapshot>,
    place: &str,
    groups: &[OperatorGroup],
    csvs: &[ClusterServiceVersion],
) {
    let mut groups = groups.to_vec();
    for group in &mut groups {
        let name = group.metadata.name.clone().unwrap();
        let earlier = before.into_iter().flat_map(|it| of_kind(it, "OperatorGroup"));
        let mut earlier =
            earlier.filter(|it| text(it, "namespace") == namespace(group) && text(it, "name") == name);
        if let Some(apis) = earlier.find_map(|it| it["annotations"][keys::PROVIDED_APIS].as_str()) {
            let annotations = group.metadata.annotations.get_or_insert_default();
            annotations.insert(keys::PROVIDED_APIS.to_owned(), apis.to_owned());
        }
    }
    let mut csvs = csvs.to_vec();
    for csv in csvs.iter_mut().filter(|csv| !is_copy(csv)) {
        if let Some(annotations) = &mut csv.metadata.annotations {
            for key in [keys::OPERATOR_GROUP, keys::OPERATOR_NAMESPACE, keys::TARGET_NAMESPACES] {
                annotations.remove(key);
            }
        }
    }
    let mut outcomes: Vec<GroupState> = Vec::new();
    for _ in 0..10 {
        outcomes.clear();
        for csv in &mut csvs {
            let outcome = if is_copy(csv) { GroupState::Member } else { operator_group::check(csv, &groups) };
            match &outcome {
                GroupState::Annotate(all) => {
                    let annotations = csv.metadata.annotations.get_or_insert_default();
                    annotations.extend(all.clone());
                }
                GroupState::SetProvidedApis(apis) => {
                    let own = csv.metadata.namespace.clone().unwrap();
                    let group = groups.iter_mut().find(|group| namespace(group) == own).unwrap();
                    set_apis(group, apis);
                }
                GroupState::Failed { .. } | GroupState::Unresolved | GroupState::Member => {}
            }
            outcomes.push(outcome);
        }
        for index in 0..groups.len() {
            if let Some(apis) = operator_group::prune(&groups[index], &groups, &csvs) {
                set_apis(&mut groups[index], &apis);
            }
        }
    }
    for ((csv, outcome), recorded) in
        csvs.iter().zip(&outcomes).zip(of_kind(snapshot, "ClusterServiceVersion"))
    {
        if is_copy(csv) {
            continue;
        }
        let status = &recorded["status"];
        let failure = match outcome {
            GroupState::Failed { reason, message } => json!(["Failed", reason.as_str(), message]),
            GroupState::Member => json!(null),
            other => json!(format!("{other:?}")),
        };
        let is_failure =
            |reason: &Reason| reason.is_of_the_group() && reason.as_str() == text(status, "reason");
        let recorded_failure = match Reason::ALL.iter().any(is_failure) {
            true => json!([status["phase"], status["reason"], status["message"]]),
            false => json!(null),
        };
        let of = |annotations: &Value| {
            [keys::OPERATOR_GROUP, keys::OPERATOR_NAMESPACE, keys::TARGET_NAMESPACES]
                .map(|key| annotations.get(key).cloned())
        };
        let ours = json!([failure, of(&json!(csv.metadata.annotations))]);
        let theirs = json!([recorded_failure, of(&recorded["annotations"])]);
        let place = format!("{place} {}/{}", text(recorded, "namespace"), text(recorded, "name"));
        comparison.compare("annotations and check of a CSV", &place, &ours, &theirs);
    }
    for (group, recorded) in groups.iter().zip(of_kind(snapshot, "OperatorGroup")) {
        let place = format!("{place} {}/{}", namespace(group), text(recorded, "name"));
        let annotations = pruned(&group.metadata.annotations);
        let recorded = pruned(&recorded["annotations"]);
        comparison.compare("group annotation", &place, &annotations, &recorded);
    }
}

fn set_apis(group: &mut OperatorGroup, apis: &str) {
    let annotations = group.metadata.annotations.get_or_insert_default();
    annotations.insert(keys::PROVIDED_APIS.to_owned(), apis.to_owned());
}

/// Roles for users. The rules of a group's roles are left out: Kubernetes fills them.
fn compare_roles(
    comparison: &mut Comparison,
    scenario: &Scenario,
    snapshot: &Snapshot,
    place: &str,
    csvs: &[ClusterServiceVersion],
) {
    let recorded_groups = of_kind(snapshot, "OperatorGroup").map(|object| {
        let mut group = observed::group(object);
        group.metadata.annotations = serde_json::from_value(object["annotations"].clone()).unwrap();
        group
    });
    let ours = recorded_groups.flat_map(|group| {
        roles::of_group(&group, &roles::aggregated(&group, csvs)).iter().map(view).collect::<Vec<_>>()
    });
    let is_of_group = |object: &&Value| text(object, "name").starts_with("olm.og.");
    let recorded = of_kind(snapshot, "ClusterRole").filter(is_of_group).cloned().map(|mut role| {
        role.as_object_mut().unwrap().remove("rules");
        role
    });
    comparison.compare_all("group roles", place, &keyed(ours), &keyed(recorded));

    let crds: roles::Uids = of_kind(snapshot, "CustomResourceDefinition")
        .map(|crd| (text(crd, "name").to_owned(), "<uid>".to_owned()))
        .collect();
    // the roles stay as long as the definition
    let derived = scenario.csvs(snapshot);
    let succeeded = derived.all().filter(|csv| scenario.has_succeeded(text(&csv["metadata"], "name")));
    let ours = succeeded.flat_map(|csv| {
        let csv: ClusterServiceVersion = observed::typed(csv.clone());
        roles::of_apis(&csv, &crds, &roles::Uids::new()).iter().map(view).collect::<Vec<_>>()
    });
    let is_of_api = |object: &&Value| object["owners"][0]["kind"] == "customresourcedefinition";
    let recorded: BTreeMap<String, Value> =
        keyed(of_kind(snapshot, "ClusterRole").filter(is_of_api).cloned());
    let mut ours = keyed(ours);
    // a CSV of a trace may succeed after the snapshot was taken
    let now_succeeded: BTreeSet<String> = csvs
        .iter()
        .filter(|csv| csv.status.as_ref().is_some_and(|status| status.phase == "Succeeded"))
        .flat_map(|csv| roles::of_apis(csv, &crds, &roles::Uids::new()))
        .map(|role| format!("ClusterRole /{}", role.name()))
        .collect();
    let is_last = scenario.snapshots.last().is_some_and(|last| last.name == snapshot.name);
    ours.retain(|key, _| is_last || now_succeeded.contains(key) || recorded.contains_key(key));
    comparison.compare_all("API roles", place, &ours, &recorded);
}

/// The targets of the one group of a namespace.
fn targets_of(own: &str, groups: &[OperatorGroup]) -> Vec<String> {
    let mut here = groups.iter().filter(|group| namespace(group) == own);
    match (here.next(), here.next()) {
        (Some(group), None) => targets::resolved(group).unwrap(),
        _ => Vec::new(),
    }
}

fn compare_copies(
    comparison: &mut Comparison,
    scenario: &Scenario,
    snapshot: &Snapshot,
    place: &str,
    groups: &[OperatorGroup],
    csvs: &[ClusterServiceVersion],
) {
    let config = of_kind(snapshot, "OLMConfig").next().map(|config| {
        observed::typed(json!({
            "apiVersion": config["apiVersion"], "kind": "OLMConfig", "metadata": { "name": "cluster" },
            "spec": config.get("spec").cloned().unwrap_or(json!({})),
        }))
    });
    let settings = CopySettings::new(config.as_ref(), BTreeSet::new());
    let namespaces: BTreeSet<String> = scenario.namespaces().into_keys().collect();
    let ours = csvs.iter().filter(|csv| !is_copy(csv)).flat_map(|csv| {
        let targets = targets_of(csv.metadata.namespace.as_deref().unwrap(), groups);
        let plan = copies::plan(csv, &targets, &namespaces, &[], &settings);
        plan.write.into_iter().map(|write| pruned(observed::csv_view(&write.copy))).collect::<Vec<_>>()
    });
    let recorded = of_kind(snapshot, "ClusterServiceVersion");
    let recorded = recorded.filter(|object| label(object, keys::COPIED_FROM).is_some()).map(pruned);
    comparison.compare_all("copies of CSVs", place, &keyed(ours), &keyed(recorded));
}

/// Roles and RoleBindings of CSVs in the target namespaces of their group.
fn compare_rights(
    comparison: &mut Comparison,
    snapshot: &Snapshot,
    place: &str,
    groups: &[OperatorGroup],
    csvs: &[ClusterServiceVersion],
) {
    let rbac = || of_kind(snapshot, "Role").chain(of_kind(snapshot, "RoleBinding"));
    let owned: Vec<Object> =
        rbac().filter(|object| label(object, keys::COPIED_FROM).is_none()).map(observed::object).collect();
    let copied: BTreeMap<String, String> = csvs
        .iter()
        .filter(|csv| is_copy(csv))
        .map(|csv| (csv.metadata.namespace.clone().unwrap(), "<uid>".to_owned()))
        .collect();
    let ours = csvs.iter().filter(|csv| !is_copy(csv)).flat_map(|csv| {
        let own = csv.metadata.namespace.as_deref().unwrap();
        let here: Vec<Object> =
            owned.iter().filter(|object| object.namespace() == Some(own)).cloned().collect();
        let targets = targets_of(own, groups);
        rights::spread(csv, &targets, &here, &copied).iter().map(view).map(pruned_status).collect::<Vec<_>>()
    });
    let recorded = rbac().filter(|object| label(object, keys::COPIED_FROM).is_some()).cloned();
    comparison.compare_all("rights in target namespaces", place, &keyed(ours), &keyed(recorded));
}

/// Without the status that the derived source object has.
fn pruned_status(mut object: Value) -> Value {
    object.as_object_mut().unwrap().remove("status");
    object
}
