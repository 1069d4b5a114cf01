//! Inner conditions: the condition of each part, and since when it has its status. The summary is made of them.
//!
//! OpenShift keeps them in another object; here they live in memory. The times that the published summary implies are read
//! at the start ([`Memory::recall`]), so that nothing flaps when the process restarts.
//!
//! Rule: cluster-operator §1, §16 step 6.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use olm_api::ConditionStatus;
use olm_api::openshift::ClusterOperatorStatus;

use crate::deployment::{PROGRESS_DEADLINE, TOO_LONG};

/// How long something must be wrong before Degraded is set.
pub(crate) const INERTIA: SignedDuration = SignedDuration::from_mins(2);

/// One inner condition as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inner {
    /// Ends with the name of the summary that it is part of.
    pub(crate) type_: String,
    pub(crate) status: ConditionStatus,
    /// One CamelCase word; may be empty.
    pub(crate) reason: String,
    /// May be empty and have several lines.
    pub(crate) message: String,
}

impl Inner {
    pub(crate) fn new(type_: String, status: bool, reason: &str, message: impl Into<String>) -> Self {
        Self { type_, status: status.into(), reason: reason.to_owned(), message: message.into() }
    }

    /// Whether the last work of the part `name` went well.
    pub(crate) fn degraded(name: &str, error: Option<String>) -> Self {
        let type_ = format!("{name}Degraded");
        match error {
            Some(error) => Self::new(type_, true, "SyncError", error),
            None => Self::new(type_, false, "AsExpected", ""),
        }
    }
}

/// Since when inner conditions have their status.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    since: BTreeMap<String, (ConditionStatus, Timestamp)>,
}

impl Memory {
    /// Times that a published status implies: parts that it names as degraded were so for long enough when it changed.
    pub(crate) fn recall(status: &ClusterOperatorStatus) -> Self {
        let mut since = BTreeMap::new();
        let degraded = status.condition("Degraded").filter(|it| it.status == ConditionStatus::True);
        if let Some(condition) = degraded {
            let changed = condition.last_transition_time.0;
            let earlier = |time: SignedDuration| changed.checked_sub(time).unwrap_or(changed);
            for part in condition.reason.split("::") {
                let part = part.split_once('_').map_or(part, |it| it.0);
                since.insert(format!("{part}Degraded"), (ConditionStatus::True, earlier(INERTIA)));
            }
            // such an error is there while another condition is old enough
            let stuck = condition.message.lines().filter(|line| line.contains(TOO_LONG));
            for (part, _) in stuck.filter_map(|line| line.split_once("Degraded: ")) {
                let at = earlier(INERTIA + PROGRESS_DEADLINE);
                since.insert(format!("{part}Progressing"), (ConditionStatus::True, at));
            }
        }
        Self { since }
    }

    /// Records conditions as they are at `now`, and removes those that no longer exist.
    pub(crate) fn record(&mut self, conditions: &[Inner], now: Timestamp) {
        let mut since = BTreeMap::new();
        for condition in conditions {
            let earlier = self.since.get(&condition.type_).filter(|(status, _)| *status == condition.status);
            let at = earlier.map_or(now, |(_, at)| *at);
            since.insert(condition.type_.clone(), (condition.status, at));
        }
        self.since = since;
    }

    /// Since when the condition has its status; `now` if nothing is known.
    pub(crate) fn since(&self, condition: &Inner, now: Timestamp) -> Timestamp {
        let known = self.since.get(&condition.type_).filter(|(status, _)| *status == condition.status);
        known.map_or(now, |(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use olm_api::openshift::OperatorCondition;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn memory_time_moves_only_with_the_status() {
        let mut memory = Memory::default();
        let error = |text: &str| Inner::degraded("A", Some(text.to_owned()));
        let fine = Inner::degraded("A", None);
        for (second, condition, since) in [
            (10, error("one"), 10),
            (20, error("two"), 10),
            (30, fine.clone(), 30),
            (40, fine.clone(), 30),
            (50, error("two"), 50),
        ] {
            memory.record(std::slice::from_ref(&condition), at(second));
            assert_eq!(memory.since(&condition, at(second)), at(since), "at {second}");
        }
        memory.record(&[], at(60));
        assert_eq!(memory.since(&error("two"), at(70)), at(70), "a condition that is gone is removed");
    }

    #[test]
    fn memory_recalls_degraded_parts_after_a_restart() {
        let published = |status: ConditionStatus| ClusterOperatorStatus {
            conditions: vec![OperatorCondition {
                last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(500)),
                message: String::new(),
                reason: "A_SyncError::B_SyncError".to_owned(),
                status,
                type_: "Degraded".to_owned(),
            }],
            ..ClusterOperatorStatus::default()
        };
        for (status, part, since) in [
            (ConditionStatus::True, "A", 500 - 120),
            (ConditionStatus::True, "B", 500 - 120),
            (ConditionStatus::True, "C", 510),
            (ConditionStatus::False, "A", 510),
        ] {
            let memory = Memory::recall(&published(status));
            let condition = Inner::degraded(part, Some("e".to_owned()));
            assert_eq!(memory.since(&condition, at(510)), at(since), "{part}, Degraded was {status}");
        }
    }
}
