//! Health of the Deployments of a CSV (classic-apis §6.5).

use std::collections::BTreeSet;

use olm_core::Object;
use serde_json::Value;

use super::labels::{SPEC_HASH, text};
use crate::operator_group::keys;

/// One of the Deployments: the first that is changed, else the first that is not healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    #[default]
    Healthy,
    /// A Deployment is not rolled out.
    Waiting(String),
    /// A Deployment is not there.
    Missing(String),
    /// A Deployment was made from another specification or with other annotations: it has to be applied again.
    Changed(String),
}

impl Health {
    /// What is wrong; `None` for healthy ones.
    #[must_use]
    pub fn message(&self) -> Option<&String> {
        match self {
            Self::Healthy => None,
            Self::Waiting(what) | Self::Missing(what) | Self::Changed(what) => Some(what),
        }
    }
}

/// Holds the Deployments of the cluster (`live`, of the CSV's namespace) against those of the strategy. A changed one counts before others: it
/// is applied again, whatever the present rollout comes to. One that a CSV of `others` has taken over is not judged: if each took it back, they
/// would do so for ever.
#[must_use]
pub fn check(desired: &[Object], live: &[Object], others: &BTreeSet<&str>) -> Health {
    let is_taken = |desired: &&Object| {
        let owner = find(desired, live).and_then(|live| live.labels().get(keys::OWNER).copied());
        owner.is_some_and(|owner| others.contains(owner))
    };
    let judged = desired.iter().filter(|desired| !is_taken(desired)).map(|desired| check_one(desired, live));
    let unhealthy: Vec<Health> = judged.filter(|health| *health != Health::Healthy).collect();
    let changed = unhealthy.iter().find(|health| matches!(health, Health::Changed(_)));
    changed.or(unhealthy.first()).cloned().unwrap_or_default()
}

fn find<'a>(desired: &Object, live: &'a [Object]) -> Option<&'a Object> {
    live.iter().find(|live| live.name() == desired.name() && live.kind() == desired.kind())
}

fn check_one(desired: &Object, live: &[Object]) -> Health {
    let name = desired.name();
    let Some(live) = find(desired, live) else {
        return Health::Missing(format!("missing deployment with name={name}"));
    };
    let annotations = |object: &Object| -> Option<Value> {
        object.0.get("spec")?.get("template")?.get("metadata")?.get("annotations").cloned()
    };
    let (expected, present) = (annotations(desired), annotations(live).unwrap_or_default());
    for (key, expected) in expected.iter().filter_map(Value::as_object).flatten() {
        let (expected, present) = (expected.as_str().unwrap_or_default(), text(&present, key));
        if expected != present {
            return Health::Changed(format!(
                "unexpected annotation on deployment. Expected {key}:{expected}, found {key}:{present}"
            ));
        }
    }
    let hash = |object: &Object| object.labels().get(SPEC_HASH).copied().unwrap_or_default().to_owned();
    let (old, new) = (hash(live), hash(desired));
    if old != new {
        return Health::Changed(format!("deployment changed old hash={old}, new hash={new}"));
    }
    match rollout(live) {
        Some(waiting) => Health::Waiting(format!("waiting for deployment {name} to become ready: {waiting}")),
        None => Health::Healthy,
    }
}

/// Why a Deployment is not rolled out; `None` when it is.
#[must_use]
pub fn rollout(deployment: &Object) -> Option<String> {
    let name = deployment.name();
    let number = |path: &[&str]| {
        let value = path.iter().try_fold(None::<&Value>, |at, key| {
            Some(Some(match at {
                None => deployment.0.get(*key)?,
                Some(value) => value.get(key)?,
            }))
        });
        value.flatten().and_then(Value::as_i64)
    };
    let status = |member: &str| number(&["status", member]).unwrap_or_default();
    if number(&["metadata", "generation"]).unwrap_or_default() > status("observedGeneration") {
        return Some(format!("waiting for spec update of deployment {name:?} to be observed..."));
    }
    if let Some(progress) = condition(deployment, "Progressing")
        && text(progress, "reason") == "ProgressDeadlineExceeded"
    {
        return Some(format!("deployment {name:?} exceeded its progress deadline"));
    }
    let (replicas, updated) = (status("replicas"), status("updatedReplicas"));
    if replicas > updated {
        return Some(format!(
            "deployment {name:?} waiting for {} outdated replica(s) to be terminated",
            replicas - updated
        ));
    }
    match condition(deployment, "Available") {
        None => Some(format!("deployment {name:?} not available: missing condition \"Available\"")),
        Some(available) if text(available, "status") != "True" => {
            Some(format!("deployment {name:?} not available: {}", text(available, "message")))
        }
        Some(_) => None,
    }
}

fn condition<'a>(deployment: &'a Object, kind: &str) -> Option<&'a Value> {
    let conditions = deployment.0.get("status")?.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| text(condition, "type") == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deployment_of_another_csv_is_not_judged() {
        let deployment = |owner: &str, hash: &str| {
            let labels = json!({"olm.owner": owner, SPEC_HASH: hash});
            let status = json!({"conditions": [{"type": "Available", "status": "True"}]});
            let value =
                json!({"kind": "Deployment", "metadata": {"name": "d", "labels": labels}, "status": status});
            Object::from_value(value).unwrap()
        };
        let desired = [deployment("a.v1", "1")];
        let others = BTreeSet::from(["b.v1"]);
        let health = |live: Object| check(&desired, &[live], &others);
        assert_eq!(health(deployment("a.v1", "1")), Health::Healthy);
        assert_eq!(health(deployment("b.v1", "2")), Health::Healthy, "b.v1 has it");
        for owner in ["a.v1", "gone.v1"] {
            assert!(matches!(health(deployment(owner, "2")), Health::Changed(_)), "{owner}");
        }
    }

    #[test]
    fn deployment_that_changed_does_not_wait_for_a_rollout() {
        let deployment = |name: &str, hash: &str, available: &str| {
            let status = json!({"conditions": [{"type": "Available", "status": available}]});
            let metadata = json!({"name": name, "labels": {SPEC_HASH: hash}});
            let value = json!({"kind": "Deployment", "metadata": metadata, "status": status});
            Object::from_value(value).unwrap()
        };
        let desired = [deployment("a", "1", ""), deployment("b", "1", "")];
        let changed = "deployment changed old hash=0, new hash=1";
        let waiting = "waiting for deployment a to become ready: deployment \"a\" not available: ";
        for (a, b, want) in [
            (("1", "True"), ("1", "True"), Health::Healthy),
            (("1", "False"), ("1", "False"), Health::Waiting(waiting.to_owned())),
            (("0", "False"), ("1", "True"), Health::Changed(changed.to_owned())),
            (("1", "False"), ("0", "True"), Health::Changed(changed.to_owned())),
        ] {
            let live = [deployment("a", a.0, a.1), deployment("b", b.0, b.1)];
            assert_eq!(check(&desired, &live, &BTreeSet::new()), want, "{a:?} {b:?}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn rollout_reports_as_the_reference() {
        let available = |status: &str| json!([{"type": "Available", "status": status, "message": "M"}]);
        for (generation, status, want) in [
            (2, json!({"observedGeneration": 1}), "waiting for spec update of deployment \"d\" to be observed..."),
            (0, json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}),
                "deployment \"d\" exceeded its progress deadline"),
            (0, json!({"replicas": 3, "updatedReplicas": 2, "conditions": available("False")}),
                "deployment \"d\" waiting for 1 outdated replica(s) to be terminated"),
            (0, json!({}), "deployment \"d\" not available: missing condition \"Available\""),
            (0, json!({"conditions": available("False")}), "deployment \"d\" not available: M"),
            (0, json!({"conditions": available("True")}), ""),
        ] {
            let value = json!({"metadata": {"name": "d", "generation": generation}, "spec": {"replicas": 2}, "status": status});
            let object = Object::from_value(value).unwrap();
            assert_eq!(rollout(&object).unwrap_or_default(), want, "{status}");
        }
    }
}
