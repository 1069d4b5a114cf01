//! Checks on the CRD as a whole: scope, stored versions, fields that disappear. Rule: crd-upgrade-safety §4.1.

use olm_core::{Object, go};
use serde_json::Value;

use crate::bounds::Bounds;
use crate::schema::flatten;
use crate::{Comparison, Finding, Profile, served_versions, versions};

/// The check for fields that disappear.
pub(crate) const REMOVED: &str = "existingFieldRemoval";

/// Its message about one field.
pub(crate) fn removed(version: &str, path: &str) -> String {
    format!("removed field : {version}.{path}")
}

pub(crate) fn compare(old: &Object, new: &Object, bounds: &Bounds<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |check, message| {
        let finding = Finding { comparison: Comparison::Crd, check, message };
        if bounds.take(&finding) {
            findings.push(finding);
        }
    };
    let is_corrected = bounds.profile == Profile::Corrected;

    let scope = |crd: &Object| {
        let scope = crd.0.get("spec").and_then(|spec| spec.get("scope")).and_then(Value::as_str);
        scope.unwrap_or_default().to_owned()
    };
    let (old_scope, new_scope) = (scope(old), scope(new));
    if old_scope != new_scope {
        report("scope", format!("scope changed : {} -> {}", go::quote(&old_scope), go::quote(&new_scope)));
    }

    let stored =
        old.0.get("status").and_then(|status| status.get("storedVersions")).and_then(Value::as_array);
    let stored: Vec<&str> = stored.into_iter().flatten().filter_map(Value::as_str).collect();
    let gone: Vec<&str> =
        stored.iter().copied().filter(|stored| !versions(new).any(|(name, _)| name == *stored)).collect();
    if !gone.is_empty() {
        report("storedVersionRemoval", format!("stored versions removed : [{}]", gone.join(" ")));
    }

    // what is stored may become unserved: that is the way to retire a version
    let unserved: Vec<&str> = served_versions(old)
        .filter(|version| !stored.contains(version) && !served_versions(new).any(|name| name == *version))
        .collect();
    if is_corrected && !unserved.is_empty() {
        report(
            "servedVersionRemoval",
            format!("served versions no longer served : [{}]", unserved.join(" ")),
        );
    }

    for (version, old_schema) in versions(old).take_while(|_| !bounds.is_over()) {
        let new_schema = versions(new).find(|(name, _)| *name == version).and_then(|(_, schema)| schema);
        let (Some(old_schema), Some(new_schema)) = (old_schema, new_schema) else { continue };
        let kept = flatten(new_schema, None, bounds);
        for path in flatten(old_schema, None, bounds).into_keys().take_while(|_| !bounds.is_over()) {
            let branch = is_corrected && super::in_combinator(&path);
            if !kept.contains_key(&path) && !branch {
                report(REMOVED, removed(version, &path));
            }
        }
    }
    findings
}
