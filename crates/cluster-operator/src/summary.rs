//! The five conditions of a ClusterOperator, made of inner ones. Rule: cluster-operator §3.

use k8s_openapi::jiff::Timestamp;
use olm_api::ConditionStatus;

use crate::inner::{INERTIA, Inner, Memory};

/// The conditions in the order in which they are written, with the status that is good.
pub(crate) const TYPES: [(&str, ConditionStatus); 5] = [
    ("Degraded", ConditionStatus::False),
    ("Progressing", ConditionStatus::False),
    ("Available", ConditionStatus::True),
    ("Upgradeable", ConditionStatus::True),
    ("EvaluationConditionsDetected", ConditionStatus::False),
];

/// All five, and when to derive them again although nothing changed: when something will have been wrong for long enough.
pub(crate) fn summaries(inner: &[Inner], memory: &Memory, now: Timestamp) -> (Vec<Inner>, Option<Timestamp>) {
    let all = TYPES.iter().map(|(type_, good)| summary(type_, *good, inner, memory, now)).collect();
    let due = inner
        .iter()
        .filter(|condition| {
            condition.type_.ends_with("Degraded") && condition.status != ConditionStatus::False
        })
        .filter_map(|condition| memory.since(condition, now).checked_add(INERTIA).ok())
        .filter(|due| *due > now)
        .min();
    (all, due)
}

fn summary(
    name: &'static str,
    good: ConditionStatus,
    inner: &[Inner],
    memory: &Memory,
    now: Timestamp,
) -> Inner {
    let type_ = name.to_owned();
    let mut ours: Vec<&Inner> = inner.iter().filter(|condition| condition.type_.ends_with(name)).collect();
    ours.sort_by(|a, b| a.type_.cmp(&b.type_));
    if ours.is_empty() {
        let (status, reason) = (ConditionStatus::Unknown, "NoData".to_owned());
        return Inner { type_, status, reason, message: String::new() };
    }
    let bad: Vec<&Inner> = ours.iter().copied().filter(|condition| condition.status != good).collect();
    let long_enough = |condition: &&Inner| {
        name != "Degraded" || now.duration_since(memory.since(condition, now)) >= INERTIA
    };
    if !bad.iter().any(long_enough) {
        let message = match union(&ours) {
            message if message.is_empty() => "All is well".to_owned(),
            message => message,
        };
        return Inner { type_, status: good, reason: "AsExpected".to_owned(), message };
    }
    let opposite = match good {
        ConditionStatus::True => ConditionStatus::False,
        ConditionStatus::False | ConditionStatus::Unknown => ConditionStatus::True,
    };
    let clear = bad.iter().any(|condition| condition.status == opposite);
    let mut reasons: Vec<String> = bad
        .iter()
        .map(|condition| {
            let part = condition.type_.strip_suffix(name).unwrap_or_default();
            let joint = if condition.reason.is_empty() { "" } else { "_" };
            format!("{part}{joint}{}", condition.reason)
        })
        .collect();
    reasons.sort_unstable();
    Inner {
        type_,
        status: if clear { opposite } else { ConditionStatus::Unknown },
        reason: reasons.join("::"),
        message: union(&bad),
    }
}

/// All messages, each line with its condition's name; lines that repeat within a condition are left out.
fn union(conditions: &[&Inner]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for condition in conditions.iter().filter(|condition| !condition.message.is_empty()) {
        let mut written: Vec<&str> = Vec::new();
        for line in condition.message.split('\n') {
            if !written.contains(&line) {
                written.push(line);
                lines.push(format!("{}: {line}", condition.type_));
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConditionStatus::{False, True, Unknown};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn inner(type_: &str, status: ConditionStatus, reason: &str, message: &str) -> Inner {
        Inner { type_: type_.to_owned(), status, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn summarize(type_: &str, all: &[Inner]) -> (ConditionStatus, String, String) {
        let (found, _) = summaries(all, &Memory::default(), at(0));
        let found = found.into_iter().find(|summary| summary.type_ == type_).unwrap();
        (found.status, found.reason, found.message)
    }

    #[test]
    fn summary_is_the_union_of_inner_conditions() {
        type Row = (&'static str, &'static str, Vec<Inner>, (ConditionStatus, &'static str, &'static str));
        #[rustfmt::skip]
        let rows: Vec<Row> = vec![
            ("no conditions", "Upgradeable", vec![], (Unknown, "NoData", "")),
            ("others' conditions do not count", "Upgradeable", vec![inner("AAvailable", False, "R", "m")], (Unknown, "NoData", "")),
            ("good without words", "Upgradeable", vec![inner("AUpgradeable", True, "", "")], (True, "AsExpected", "All is well")),
            ("good with words", "Available",
                vec![inner("BAvailable", True, "AsExpected", "up"), inner("AAvailable", True, "AsExpected", "up")],
                (True, "AsExpected", "AAvailable: up\nBAvailable: up")),
            ("one is bad", "Available",
                vec![inner("BAvailable", False, "Deploying", "wait"), inner("AAvailable", True, "AsExpected", "up")],
                (False, "B_Deploying", "BAvailable: wait")),
            ("bad without a reason", "Available", vec![inner("BAvailable", False, "", "")], (False, "B", "")),
            ("unknown is bad, but not the opposite", "Progressing", vec![inner("AProgressing", Unknown, "Lost", "who knows")],
                (Unknown, "A_Lost", "AProgressing: who knows")),
            ("unknown beside the opposite", "Progressing",
                vec![inner("BProgressing", Unknown, "Lost", ""), inner("AProgressing", True, "Deploying", "x")],
                (True, "A_Deploying::B_Lost", "AProgressing: x")),
            ("lines, one of them twice", "Upgradeable", vec![inner("AUpgradeable", False, "R", "one\n two\none")],
                (False, "A_R", "AUpgradeable: one\nAUpgradeable:  two")),
        ];
        for (case, type_, all, (status, reason, message)) in rows {
            assert_eq!(summarize(type_, &all), (status, reason.to_owned(), message.to_owned()), "{case}");
        }
    }

    #[test]
    fn summary_cases_42_and_43_degraded_waits_two_minutes() {
        let bad = inner("ADegraded", True, "SyncError", "broken");
        let young = inner("BDegraded", True, "SyncError", "new");
        let mut memory = Memory::default();
        memory.record(std::slice::from_ref(&bad), at(0));
        let degraded = |all: &[Inner], memory: &Memory, now: i64| {
            let (found, due) = summaries(all, memory, at(now));
            (
                found[0].status,
                found[0].reason.clone(),
                found[0].message.clone(),
                due.map(Timestamp::as_second),
            )
        };
        let within_inertia = (False, "AsExpected".to_owned(), "ADegraded: broken".to_owned(), Some(120));
        assert_eq!(degraded(std::slice::from_ref(&bad), &memory, 60), within_inertia, "case 42: a minute");
        assert_eq!(degraded(std::slice::from_ref(&bad), &memory, 119).0, False);
        let loud = (True, "A_SyncError".to_owned(), "ADegraded: broken".to_owned(), None);
        assert_eq!(degraded(std::slice::from_ref(&bad), &memory, 240), loud, "case 43: four minutes");
        // once one is old enough, all are listed
        memory.record(&[bad.clone(), young.clone()], at(230));
        let (status, reason, message, due) = degraded(&[bad, young], &memory, 240);
        assert_eq!((status, reason.as_str(), due), (True, "A_SyncError::B_SyncError", Some(350)));
        assert_eq!(message, "ADegraded: broken\nBDegraded: new");
        // repaired: no wait
        let fine = inner("ADegraded", False, "AsExpected", "");
        memory.record(std::slice::from_ref(&fine), at(250));
        let repaired = (False, "AsExpected".to_owned(), "All is well".to_owned(), None);
        assert_eq!(degraded(&[fine], &memory, 250), repaired);
    }
}
