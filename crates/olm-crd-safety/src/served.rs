//! Served versions of one CRD must agree with each other, lower to higher, unless a conversion webhook translates.
//!
//! What was already inconsistent stays allowed as long as it does not get worse. Rule: crd-upgrade-safety §6.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use olm_core::Object;
use serde_json::Value;

use crate::bounds::Bounds;
use crate::{Comparison, Finding, checks, has_conversion_webhook, version_list};

pub(crate) fn compare(old: &Object, new: &Object, bounds: &Bounds<'_>) -> Vec<Finding> {
    if has_conversion_webhook(new) {
        return Vec::new();
    }
    let before: BTreeMap<&str, &Value> = served(old).into_iter().collect();
    let after = served(new);
    let mut worse = Vec::new();
    for (at, (low, low_schema)) in after.iter().enumerate() {
        for (high, high_schema) in after[at + 1..].iter().take_while(|_| !bounds.is_over()) {
            let pair = |low_schema: &Value, high_schema: &Value| {
                let comparison = |path: String| Comparison::Served { pair: format!("{low} -> {high}"), path };
                checks::compare(low_schema, high_schema, bounds, comparison)
            };
            let before = before.get(low).zip(before.get(high));
            if before == Some((low_schema, high_schema)) {
                continue;
            }
            let found = pair(low_schema, high_schema);
            if found.is_empty() {
                continue;
            }
            let known = before.map(|(low_schema, high_schema)| pair(low_schema, high_schema));
            let known: BTreeSet<Finding> = known.into_iter().flatten().collect();
            let (same, more): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|finding| known.contains(finding));
            bounds.release(known.iter().chain(&same));
            worse.extend(more);
        }
    }
    worse
}

/// The served versions of a CRD in ascending order, each with its schema.
fn served(crd: &Object) -> Vec<(&str, &Value)> {
    let mut served: Vec<(&str, &Value)> = version_list(crd)
        .filter(|version| version.get("served").and_then(Value::as_bool) == Some(true))
        .filter_map(|version| {
            Some((version.get("name")?.as_str()?, version.get("schema")?.get("openAPIV3Schema")?))
        })
        .collect();
    served.sort_by(|a, b| priority(a.0, b.0));
    served
}

/// Ascending Kubernetes version priority: alpha, beta, stable, each by numbers; other names rank below, in reverse alphabetical order.
fn priority(a: &str, b: &str) -> Ordering {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Stability class (0 alpha, 1 beta, 2 stable), major, minor.
fn parts(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let major = number(&rest[..digits])?;
    let tail = &rest[digits..];
    let (class, minor) = match (tail.strip_prefix("alpha"), tail.strip_prefix("beta"), tail) {
        (Some(minor), _, _) => (0, number(minor)?),
        (_, Some(minor), _) => (1, number(minor)?),
        (_, _, "") => (2, 0),
        _ => return None,
    };
    Some((class, major, minor))
}

fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && !text.starts_with('0')).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::priority;

    #[test]
    fn kubernetes_version_order() {
        let mut versions =
            ["v1", "foo10", "v11alpha2", "v10", "v3beta1", "v2", "v12alpha1", "v11beta2", "foo1"];
        versions.sort_by(|a, b| priority(a, b));
        assert_eq!(
            versions,
            ["foo10", "foo1", "v11alpha2", "v12alpha1", "v3beta1", "v11beta2", "v1", "v2", "v10"]
        );
    }
}
