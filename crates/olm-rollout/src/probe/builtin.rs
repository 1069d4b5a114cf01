//! Readiness of kinds for which the written default probes assert nothing, or something that can never hold.
//!
//! Only for revisions of an extension, never written into their spec. What is defined here replaces the *default* probe
//! of the kind; a probe that a user changed is still evaluated. Rule: revisions §17 row 16.

use olm_core::Object;
use serde_json::Value;

use super::{Assertion, OUTDATED, ProbeResult, field, status_is_outdated};

/// Readiness by kind; `None` where nothing is built in and the written probes decide alone.
pub fn readiness(object: &Object) -> Option<ProbeResult> {
    let check = match (object.group(), object.kind()) {
        ("apps", "StatefulSet") => stateful_set,
        ("apps", "DaemonSet") => daemon_set,
        ("apps", "Deployment") if desired_replicas(object) == 0 => idle_deployment,
        ("batch", "Job") => job,
        ("apiregistration.k8s.io", "APIService") => api_service,
        _ => return None,
    };
    if status_is_outdated(object) {
        return Some(ProbeResult::unknown(OUTDATED));
    }
    Some(check(object))
}

/// Is there anything built in for the kind, whatever the object looks like?
pub fn covers(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("apps", "StatefulSet" | "DaemonSet" | "Deployment")
            | ("batch", "Job")
            | ("apiregistration.k8s.io", "APIService")
    )
}

/// Most characters of the cause that a Deployment reports.
const MAX_CAUSE_CHARS: usize = 200;

/// The cause why a Deployment is not ready, where its status has it: its pods are refused, or they make no progress. Why a pod
/// waits for a node is only in the pod.
pub(super) fn cause(object: &Object) -> Option<String> {
    if (object.group(), object.kind()) != ("apps", "Deployment") || status_is_outdated(object) {
        return None;
    }
    let conditions = field(object, &["status", "conditions"])?.as_array()?;
    let condition_text = |type_: &str, status: &str| {
        let text = |condition: &Value, member: &str| Some(condition.get(member)?.as_str()?.to_owned());
        let is = |condition: &&Value| {
            text(condition, "type").as_deref() == Some(type_)
                && text(condition, "status").as_deref() == Some(status)
        };
        let condition = conditions.iter().find(is)?;
        Some(format!("{}: {}", text(condition, "reason")?, text(condition, "message")?))
    };
    let why = condition_text("ReplicaFailure", "True").or_else(|| condition_text("Progressing", "False"))?;
    Some(match why.char_indices().nth(MAX_CAUSE_CHARS) {
        Some(_) => why.chars().take(MAX_CAUSE_CHARS - 1).chain(['…']).collect(),
        None => why,
    })
}

fn desired_replicas(object: &Object) -> i64 {
    field(object, &["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(1)
}

fn status_number(object: &Object, key: &str) -> i64 {
    field(object, &["status", key]).and_then(Value::as_i64).unwrap_or(0)
}

/// Has the kind's controller seen the object at all?
fn observed(object: &Object) -> ProbeResult {
    match field(object, &["status", "observedGeneration"]) {
        Some(_) => ProbeResult::yes(),
        None => ProbeResult::unknown("missing .status.observedGeneration"),
    }
}

fn at_least(object: &Object, key: &str, desired: i64) -> ProbeResult {
    let found = status_number(object, key);
    if found >= desired {
        ProbeResult::yes()
    } else {
        ProbeResult::no(format!(".status.{key} is {found}, want {desired}"))
    }
}

fn stateful_set(object: &Object) -> ProbeResult {
    let desired = desired_replicas(object);
    let on_delete =
        field(object, &["spec", "updateStrategy", "type"]).and_then(Value::as_str) == Some("OnDelete");
    let partition = field(object, &["spec", "updateStrategy", "rollingUpdate", "partition"])
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let updated = if on_delete {
        ProbeResult::yes()
    } else {
        at_least(object, "updatedReplicas", desired.saturating_sub(partition).max(0))
    };
    ProbeResult::all([observed(object), at_least(object, "readyReplicas", desired), updated])
}

fn daemon_set(object: &Object) -> ProbeResult {
    let desired = status_number(object, "desiredNumberScheduled");
    let on_delete =
        field(object, &["spec", "updateStrategy", "type"]).and_then(Value::as_str) == Some("OnDelete");
    let updated =
        if on_delete { ProbeResult::yes() } else { at_least(object, "updatedNumberScheduled", desired) };
    ProbeResult::all([observed(object), updated, at_least(object, "numberAvailable", desired)])
}

fn idle_deployment(object: &Object) -> ProbeResult {
    let left = status_number(object, "replicas");
    let gone = if left == 0 {
        ProbeResult::yes()
    } else {
        ProbeResult::no(format!(".status.replicas is {left}, want 0"))
    };
    ProbeResult::all([observed(object), gone])
}

fn job(object: &Object) -> ProbeResult {
    if field(object, &["spec", "suspend"]).and_then(Value::as_bool) == Some(true) {
        return ProbeResult::yes();
    }
    let holds = |condition: &str| {
        Assertion::ConditionEqual { condition: condition.into(), status: "True".into() }.check(object)
    };
    if holds("Failed").is_ready() {
        return ProbeResult::no(r#".status.condition["Failed"] is True"#);
    }
    holds("Complete")
}

fn api_service(object: &Object) -> ProbeResult {
    Assertion::ConditionEqual { condition: "Available".into(), status: "True".into() }.check(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Ready, test_object};
    use serde_json::json;

    #[test]
    #[rustfmt::skip]
    fn probe_builtin_readiness_by_kind() {
        let ready = Some((Ready::Yes, String::new()));
        let no = |message: &str| Some((Ready::No, message.to_owned()));
        let unknown = |message: &str| Some((Ready::Unknown, message.to_owned()));
        for (api_version, kind, spec, status, want) in [
            ("apps/v1", "StatefulSet", json!({}), json!({}), unknown("missing .status.observedGeneration")),
            ("apps/v1", "StatefulSet", json!({}), json!({"observedGeneration": 0}), unknown(".status outdated")),
            ("apps/v1", "StatefulSet", json!({"replicas": 2}), json!({"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 2}),
                no(".status.readyReplicas is 1, want 2")),
            ("apps/v1", "StatefulSet", json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}}),
                json!({"observedGeneration": 1, "readyReplicas": 3, "updatedReplicas": 1}), ready.clone()),
            ("apps/v1", "StatefulSet", json!({"updateStrategy": {"type": "OnDelete"}}),
                json!({"observedGeneration": 1, "readyReplicas": 1}), ready.clone()),
            ("apps/v1", "StatefulSet", json!({"replicas": 0}), json!({"observedGeneration": 1}), ready.clone()),
            ("apps/v1", "DaemonSet", json!({}), json!({"observedGeneration": 1}), ready.clone()),
            ("apps/v1", "DaemonSet", json!({}),
                json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}),
                no(".status.numberAvailable is 1, want 2")),
            ("apps/v1", "Deployment", json!({"replicas": 0}), json!({"observedGeneration": 1}), ready.clone()),
            ("apps/v1", "Deployment", json!({"replicas": 0}), json!({"observedGeneration": 1, "replicas": 1}),
                no(".status.replicas is 1, want 0")),
            ("apps/v1", "Deployment", json!({}), json!({}), None),
            ("batch/v1", "Job", json!({}), json!({}), unknown("missing .status.conditions")),
            ("batch/v1", "Job", json!({"suspend": true}), json!({}), ready.clone()),
            ("batch/v1", "Job", json!({}), json!({"conditions": [{"type": "Complete", "status": "True"}]}),
                Some((Ready::Yes, r#".status.condition["Complete"] is True"#.to_owned()))),
            ("batch/v1", "Job", json!({}), json!({"conditions": [{"type": "Failed", "status": "True"}]}),
                no(r#".status.condition["Failed"] is True"#)),
            ("apiregistration.k8s.io/v1", "APIService", json!({}), json!({"conditions": [{"type": "Available", "status": "False"}]}),
                no(r#".status.condition["Available"] is False"#)),
            ("v1", "ConfigMap", json!({}), json!({}), None),
        ] {
            let object = test_object(
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"generation": 1}, "spec": spec, "status": status}),
            );
            assert!(readiness(&object).is_none() || covers(object.group(), kind), "{kind}");
            let got = readiness(&object).map(|verdict| (verdict.ready, verdict.messages.join("|")));
            assert_eq!(got, want, "{kind} {spec} {status}");
        }
    }
}
