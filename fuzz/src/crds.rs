//! CustomResourceDefinitions: the one in the cluster against the one of a bundle.

use olm_core::Object;
use olm_crd_safety::{ExistingObjects, Finding, Fit, Policy, Profile, compare};
use olm_yaml::{Limits, yaml_to_json};
use serde_json::Value;

use crate::parts;

/// Old CRD, new CRD, an object. No change is no danger (but for what is wrong with the CRD in itself); findings are sorted, the same
/// twice; a validation error of an object names no value.
pub(crate) fn crd_safety(input: &[u8]) {
    let [old, new, object] = parts::<3>(input);
    let (Some(old), Some(new)) = (read(old), read(new)) else { return };
    let (Ok(old), Ok(new)) = (Object::from_value(old), Object::from_value(new)) else { return };
    for profile in [Profile::Corrected, Profile::Parity] {
        let policy = Policy { profile };
        let findings = compare(&old, &new, policy);
        assert_eq!(findings, compare(&old, &new, policy));
        assert!(findings.is_sorted());
        for finding in &findings {
            assert!(
                !finding.to_string().is_empty() && !finding.danger().is_empty() && !finding.fix().is_empty()
            );
        }
    }
    if has_unique_versions(&new) {
        for profile in [Profile::Corrected, Profile::Parity] {
            let findings = compare(&new, &new, Policy { profile });
            // what is wrong with a CRD in itself; the apiserver has neither
            let own = |finding: &Finding| {
                finding.message.ends_with("has no schema")
                    || finding.check == "storedVersionRemoval"
                    || finding.message.starts_with("the schemas were not compared")
            };
            assert!(findings.iter().all(own), "{findings:?}");
        }
    }
    let Some(object) = read(object) else { return };
    let Ok(Some(existing)) = ExistingObjects::new(&old, &new) else { return };
    if let Fit::Broken(problems) = existing.check(&object) {
        assert!(!problems.is_empty());
        let schemas = format!("{old:?}{new:?}");
        let mut values = Vec::new();
        texts(&object, &mut values);
        // values may be secret; those that the schemas contain themselves are known
        for value in values.iter().filter(|value| value.len() > 8 && !schemas.contains(**value)) {
            assert!(
                problems.iter().all(|problem| !problem.message.contains(*value)),
                "{value:?} is reported: {problems:?}"
            );
        }
    }
}

/// Every text of an object that is no key.
fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(members) => members.values().for_each(|member| texts(member, found)),
        _ => {}
    }
}

fn read(text: &[u8]) -> Option<Value> {
    let limits = Limits { document_bytes: 256 << 10, alias_bytes: 64 << 10, ..Limits::default() };
    let mut json = Vec::new();
    yaml_to_json(text, &mut json, &limits).ok()?;
    serde_json::from_slice(&json).ok()
}

fn has_unique_versions(crd: &Object) -> bool {
    let versions = crd.0.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
    let mut names: Vec<&str> =
        versions.into_iter().flatten().filter_map(|version| version.get("name")?.as_str()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    names.len() == all
}
