//! Texts of users: scenarios for the CLI, and label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::SelectorExt as _;
use olm_catalog::parse_selector;
use olm_core::Object;
use olm_resolver::scenario::{Scenario, run};
use olm_rollout::probe;
use serde_json::json;

use crate::texts;

/// A scenario, or a label selector (JSON) and a list of labels. Every question gets one answer, the same twice; the two readers
/// of selectors (of catalogs, of probes) select the same.
pub(crate) fn scenarios(input: &[u8]) {
    let [text, labels] = texts::<2>(input);
    if text.starts_with('{') {
        if let Ok(selector) = serde_json::from_str(&text) {
            select(&selector, &serde_json::from_str(&labels).unwrap_or_default());
        }
        return;
    }
    let Ok(scenario) = Scenario::parse(&text) else { return };
    let answers = || run(&scenario, &|_, _| Err("no loader".to_owned()));
    match (answers(), answers()) {
        (Ok(one), Ok(two)) => {
            assert_eq!(one.len(), scenario.questions.len());
            assert_eq!(format!("{one:?}"), format!("{two:?}"));
        }
        (Err(one), Err(two)) => assert_eq!(one, two),
        _ => unreachable!("answered once, refused once"),
    }
}

fn select(selector: &LabelSelector, labels: &BTreeMap<String, String>) {
    let checked = parse_selector(Some(selector));
    assert_eq!(checked, parse_selector(Some(selector)));
    let Ok(checked) = checked else { return };
    let expressions =
        selector.match_expressions.iter().flatten().map(|it| {
            probe::Requirement::parse(&it.key, &it.operator, it.values.as_deref().unwrap_or_default())
        });
    let Ok(expressions) = expressions.collect::<Result<Vec<_>, _>>() else {
        unreachable!("one reader takes what the other refuses: {selector:?}")
    };
    let equal = selector.match_labels.clone().unwrap_or_default();
    let other = probe::Selector::Label(probe::LabelSelector { equal, expressions });
    let Ok(object) = Object::from_value(json!({"metadata": {"labels": labels}})) else { return };
    assert_eq!(checked.matches(labels), other.matches(&object), "{selector:?} on {labels:?}");
}
