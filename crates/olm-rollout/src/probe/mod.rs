//! Is an object ready, so that the next phase may start? Probes are data of the revision; each selects objects and
//! asserts something of their status.
//!
//! A probe first checks whether the status is current at all, even for objects that its selector skips. Readiness of
//! kinds which the written probes cannot express lives in [`builtin`]. Rule: revisions §2.2 and §8; typed comparison of
//! values: §17 row 17.

mod assertion;
pub mod builtin;
mod defaults;
mod selector;

use olm_core::Object;

pub use assertion::Assertion;
pub use defaults::default_probes;
pub use selector::{LabelSelector, Requirement, Selector};

/// What some objects must show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Which objects; others pass.
    pub selector: Selector,
    /// What they must show, all of it.
    pub assertions: Vec<Assertion>,
}

/// Outcome of probing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ready {
    /// Everything holds.
    Yes,
    /// Something does not hold.
    No,
    /// It cannot be decided (yet).
    Unknown,
}

impl Ready {
    /// The word in collision reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "Succeeded",
            Self::No => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// Outcome of probing one object, with what stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// May the next phase start?
    pub ready: Ready,
    /// What was found by the deciding assertions; empty when nothing was asked.
    pub messages: Vec<String>,
}

impl ProbeResult {
    /// All is well.
    pub fn yes() -> Self {
        Self { ready: Ready::Yes, messages: vec![] }
    }

    /// One thing that holds.
    pub fn holds(message: impl Into<String>) -> Self {
        Self { ready: Ready::Yes, messages: vec![message.into()] }
    }

    /// One thing that does not hold.
    pub fn no(message: impl Into<String>) -> Self {
        Self { ready: Ready::No, messages: vec![message.into()] }
    }

    /// One assertion that cannot be decided.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { ready: Ready::Unknown, messages: vec![message.into()] }
    }

    /// All of `results`: unknown if any is, else no if any is. Only the messages of the deciding ones are kept, each
    /// once.
    pub fn all(results: impl IntoIterator<Item = Self>) -> Self {
        let mut whole = Self::yes();
        for result in results {
            if result.ready < whole.ready {
                continue;
            }
            if result.ready > whole.ready {
                whole = Self { ready: result.ready, messages: vec![] };
            }
            for message in result.messages {
                if !whole.messages.contains(&message) {
                    whole.messages.push(message);
                }
            }
        }
        whole
    }

    /// Does it let the rollout continue?
    pub fn is_ready(&self) -> bool {
        self.ready == Ready::Yes
    }
}

/// The author of the revision: decides whether built-in readiness applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The extension controller: its default probes are completed by [`builtin`].
    Extension,
    /// A user: the probes are taken as written, nothing else is evaluated.
    User,
}

pub fn evaluate(probes: &[Probe], author: Author, object: &Object) -> ProbeResult {
    let builtin = match author {
        Author::Extension => builtin::readiness(object),
        Author::User => None,
    };
    let replaced = builtin.is_some().then(default_probes).unwrap_or_default();
    let written = probes.iter().map(|probe| {
        if status_is_outdated(object) {
            return ProbeResult::unknown(OUTDATED);
        }
        if !probe.selector.matches(object) || replaced.contains(probe) {
            return ProbeResult::yes();
        }
        ProbeResult::all(probe.assertions.iter().map(|assertion| assertion.check(object)))
    });
    let mut result = ProbeResult::all(written.chain(builtin));
    if author == Author::Extension
        && !result.is_ready()
        && let Some(why) = builtin::cause(object)
        && let Some(last) = result.messages.last_mut()
    {
        last.push_str(&format!("; {why}"));
    }
    result
}

/// The status is older than the spec.
pub(crate) const OUTDATED: &str = ".status outdated";
/// The object has no conditions, not even none.
pub(crate) const NO_CONDITIONS: &str = "missing .status.conditions";
/// The conditions are no list: null, for a CRD that was just written.
pub(crate) const NULL_CONDITIONS: &str = "malformed .status.conditions";

/// Does the status speak of an older generation?
pub(crate) fn status_is_outdated(object: &Object) -> bool {
    let observed = field(object, &["status", "observedGeneration"]);
    let generation =
        field(object, &["metadata", "generation"]).and_then(serde_json::Value::as_i64).unwrap_or(0);
    observed.and_then(serde_json::Value::as_i64).is_some_and(|observed| observed != generation)
}

/// A nested member; `None` when any step is missing or no object.
pub(crate) fn field<'a>(object: &'a Object, path: &[&str]) -> Option<&'a serde_json::Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.0.get(*first)?, |value, step| value.get(step))
}

#[cfg(test)]
pub(crate) fn test_object(value: serde_json::Value) -> Object {
    Object::from_value(value).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    #[rustfmt::skip]
    fn probe_results_unknown_beats_no_beats_yes() {
        let no = || ProbeResult::no("n");
        let unknown = || ProbeResult::unknown("u");
        for (results, ready, messages) in [
            (vec![], Ready::Yes, vec![]),
            (vec![ProbeResult::yes(), ProbeResult::yes()], Ready::Yes, vec![]),
            (vec![ProbeResult::yes(), no(), ProbeResult::no("m"), no()], Ready::No, vec!["n", "m"]),
            (vec![no(), unknown(), ProbeResult::yes(), ProbeResult::no("m"), unknown(), ProbeResult::unknown("v")], Ready::Unknown,
                vec!["u", "v"]),
        ] {
            let got = ProbeResult::all(results);
            assert_eq!(
                (got.ready, got.messages.iter().map(String::as_str).collect::<Vec<_>>()),
                (ready, messages)
            );
        }
    }

    fn deployment(status: serde_json::Value) -> Object {
        test_object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "generation": 2}, "spec": {"replicas": 1},
            "status": status,
        }))
    }

    #[test]
    #[rustfmt::skip]
    fn probe_of_a_deployment_has_the_cause_of_its_status() {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message});
        let available = || condition("Available", "False", "MinimumReplicasUnavailable", "not yet");
        let refused = || condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota: q");
        let late = |status: &str| {
            condition(
                "Progressing",
                status,
                "ProgressDeadlineExceeded",
                "ReplicaSet \"d-1\" has timed out progressing.",
            )
        };
        let plain = r#".status.condition["Available"] is False"#;
        for (conditions, help) in [
            (vec![available()], String::new()),
            (vec![available(), late("True")], String::new()),
            (vec![available(), late("False"), refused()], "; FailedCreate: exceeded quota: q".to_owned()),
            (vec![available(), late("False")], "; ProgressDeadlineExceeded: ReplicaSet \"d-1\" has timed out progressing.".to_owned()),
            (vec![available(), condition("ReplicaFailure", "True", "F", &"é".repeat(300))], format!("; F: {}…", "é".repeat(196))),
        ] {
            let status = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "conditions": conditions});
            let asked = |author| evaluate(&default_probes(), author, &deployment(status.clone())).messages;
            assert_eq!(asked(Author::Extension), [format!("{plain}{help}")]);
            assert_eq!(asked(Author::User), [plain]);
        }
        let stale = json!({"observedGeneration": 1, "conditions": [available(), refused()]});
        let result = evaluate(&default_probes(), Author::Extension, &deployment(stale));
        assert_eq!(result.messages, [".status outdated"]);
        let well = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1,
            "conditions": [condition("Available", "True", "R", "m"), late("False")]});
        assert!(evaluate(&default_probes(), Author::Extension, &deployment(well)).is_ready());
    }

    #[test]
    #[rustfmt::skip]
    fn probe_defaults_on_deployments() {
        let probes = default_probes();
        for (status, ready, messages) in [
            (json!({}), Ready::Unknown, vec!["missing .status.conditions"]),
            (json!({"observedGeneration": 1}), Ready::Unknown, vec![".status outdated"]),
            (json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}),
                Ready::No, vec![r#""status.updatedReplicas" != "status.replicas" expected: 1 got: 2"#]),
            (json!({"observedGeneration": 2, "conditions": [{"type": "Available", "status": "False"}]}), Ready::No,
                vec![r#""status.updatedReplicas" missing"#, r#".status.condition["Available"] is False"#]),
            (json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}),
                Ready::Yes, vec![r#""status.updatedReplicas" == "status.replicas""#, r#".status.condition["Available"] is True"#]),
        ] {
            let got = evaluate(&probes, Author::Extension, &deployment(status.clone()));
            assert_eq!(
                (got.ready, got.messages.iter().map(String::as_str).collect::<Vec<_>>()),
                (ready, messages),
                "{status}"
            );
            assert_eq!(evaluate(&probes, Author::User, &deployment(status)), got);
        }
    }

    #[test]
    fn probe_guard_ignores_the_selector() {
        let stale = test_object(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generation": 3}, "status": {"observedGeneration": 2},
        }));
        assert_eq!(
            evaluate(&default_probes(), Author::User, &stale),
            ProbeResult::unknown(".status outdated")
        );
        assert_eq!(evaluate(&[], Author::User, &stale), ProbeResult::yes());
    }

    #[test]
    fn probe_builtin_replaces_only_the_default_probe() {
        let set = test_object(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"generation": 1}, "spec": {"replicas": 1},
            "status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1,
                       "currentRevision": "a", "updateRevision": "a"},
        }));
        assert!(evaluate(&default_probes(), Author::Extension, &set).is_ready());
        assert_eq!(
            evaluate(&default_probes(), Author::User, &set),
            ProbeResult::unknown("missing .status.conditions")
        );
        let own = Probe {
            selector: Selector::GroupKind { group: "apps".into(), kind: "StatefulSet".into() },
            assertions: vec![Assertion::FieldValue { path: "status.replicas".into(), value: "3".into() }],
        };
        let got = evaluate(&[own], Author::Extension, &set);
        assert_eq!(got, ProbeResult::no(r#"value at key "status.replicas" != "3"; expected: "3" got: 1"#));
    }
}
