//! Plans, steps and objects of any content.

use std::collections::BTreeSet;

use olm_api::classic::install_plan::Step;
use olm_core::Object;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::phases::error;
use super::*;

#[rustfmt::skip]
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "", "v1", "Service", "Secret", "apps", "ClusterServiceVersion", "CustomResourceDefinition",
            "Installing", "Failed", "Complete", "RequiresApproval", "Planning", "Created", "WaitingForApi",
            "operators.coreos.com", "{}", "[]", "null", r#"{"kind":"ConfigMap","catalogSourceName":5}"#,
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    [any_text(), any_text(), any_text(), any_text(), any_text()].prop_map(
        |[kind, group, name, status, manifest]| {
            let mut step = step(&kind, &group, &name, &status);
            step.resource.manifest = manifest;
            step
        },
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any_text().prop_map(Value::from)];
    #[rustfmt::skip]
    let key = proptest::sample::select(vec![
        "kind", "metadata", "name", "spec", "versions", "schema", "status", "storedVersions", "conditions",
        "labels", "ownerReferences", "customresourcedefinitions", "owned", "annotations",
    ]);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn plan_rests_whatever_its_status_is(
        phase in any_text(), approved in any::<bool>(), steps in proptest::collection::vec(any_step(), 0..4),
        rights_changed in any::<bool>(), is_account in any::<bool>(), outcome in 0..5_u8,
    ) {
        let mut plan = plan_with(&phase, steps);
        plan.spec.approved = approved;
        let count = plan.status.as_ref().unwrap().plan.len();
        let run = PlanRun {
            steps: vec![if outcome == 1 { StepStatus::WaitingForApi } else { StepStatus::Created }; count],
            error: match outcome { 2 => Some(error(true)), 3 => Some(error(false)), _ => None },
        };
        let account = if is_account { Ok(None) } else { Err(AccountError::SeveralGroups(2)) };
        let mut changes = 0;
        for _ in 0..12 {
            let before = plan.status.clone();
            for run in [None, Some(&run)] {
                let account = account.clone();
                let observed = PlanObserved { account, rights_changed, run, retry_window: RETRY_WINDOW };
                if let Some(status) = next_phase(&plan, &observed, at(100)).status {
                    plan.status = Some(status);
                }
            }
            changes += usize::from(plan.status != before);
        }
        prop_assert!(changes <= 3, "{changes} changes, at last {:?}", plan.status);
    }

    #[test]
    fn steps_of_any_content_do_not_panic(step in any_step(), manifest in any_json(), existing in any_json()) {
        let plan = named(plan_with("Installing", vec![step.clone()]));
        let read = step_object(0, &step, &[]);
        let manifest = read.or_else(|_| Object::from_value(manifest)).unwrap_or_default();
        let existing = Object::from_value(existing).ok();
        let observed = StepObserved { existing: existing.as_ref(), owner_uid: Some("u"), ..StepObserved::default() };
        match decide_step(&plan, 0, &manifest, observed) {
            Ok(action) => _ = action.status(),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        if let Some(existing) = existing {
            let _ = update_crd(&existing, &manifest, ("ns", "a"), &BTreeSet::new(), true);
            for version in judged_versions(&existing, &manifest) {
                if let Ok(Some(judge)) = object_judge(&existing, &manifest, version, true) {
                    let _ = check_object(&manifest, &judge, &json!({}));
                }
            }
        }
    }

    #[test]
    fn plans_of_any_objects_are_made_or_explained(objects in proptest::collection::vec(any_json(), 0..4)) {
        let objects: Vec<Object> =
            objects.into_iter().filter_map(|value| Object::from_value(value).ok()).chain([csv_object("a.v1")]).collect();
        match plan_of(&objects, "", None) {
            Ok(plan) => prop_assert!(plan.status.unwrap().plan.len() >= objects.len()),
            Err(error) => prop_assert!(error.to_string().contains("bundle a.v1") && error.to_string().contains(';')),
        }
    }
}
