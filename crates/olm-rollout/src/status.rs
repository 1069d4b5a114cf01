//! The conditions of a revision, derived once from how far the pass got.
//!
//! Pure: an [`Outcome`] and a few facts in, condition values out; the caller adds times and generations.
//! Rule: revisions §9.

use crate::probe::{ProbeResult, Ready};
use crate::schedule::Deadline;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// One condition to set; the ones not named stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// Type of the condition.
    pub condition: &'static str,
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

/// The state of one processed object, as far as the status cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectState {
    /// `<Kind>.<apiVersion> <namespace>/<name>`
    pub title: String,
    /// A newer revision has it.
    pub progressed: bool,
    /// It is as desired: nothing is left to write, no other owner conflicts.
    pub settled: bool,
    pub verdict: ProbeResult,
}

impl ObjectState {
    fn is_complete(&self) -> bool {
        self.settled && self.verdict.is_ready()
    }
}

/// The state of one processed phase.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhaseState {
    pub objects: Vec<ObjectState>,
}

impl PhaseState {
    /// Every object is in place and ready.
    pub fn is_complete(&self) -> bool {
        self.objects.iter().all(ObjectState::is_complete)
    }

    /// Some, but not all objects went to a newer revision.
    fn is_mixed(&self) -> bool {
        let progressed = self.objects.iter().filter(|object| object.progressed).count();
        progressed > 0 && progressed < self.objects.len()
    }

    /// The line on the first object that is not ready, if probes are why.
    fn failing(&self) -> Option<String> {
        let object = self.objects.iter().find(|object| object.verdict.ready != Ready::Yes)?;
        Some(format!("Object {}: {}", object.title, object.verdict.messages.join(" and ")))
    }
}

/// How far a pass over a revision got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Content is not what it was or must not be used; only a change helps.
    Blocked(String),
    /// Something failed; the real state is hidden.
    Failed(String),
    /// The content or objects of other owners are in conflict: findings, not errors.
    Refused(String),
    /// All that could be processed was.
    Processed {
        /// The processed phases, in order.
        phases: Vec<PhaseState>,
        /// Number of phases of the revision.
        total: usize,
    },
    /// Archived or deleted, but not all objects are gone. The text may name what is waited for.
    Removing(Option<String>),
    /// The teardown failed.
    RemovalFailed(String),
    /// Archived, and everything is gone.
    Archived,
}

impl Outcome {
    /// Everything is in place and ready: older revisions can be archived.
    pub fn is_complete(&self) -> bool {
        let Self::Processed { phases, total } = self else { return false };
        phases.len() == *total && phases.iter().all(PhaseState::is_complete)
    }
}

/// What else the conditions depend on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The bundle's version, from the revision's annotation; empty when absent.
    pub version: &'a str,
    /// The revision has an `Available` condition already.
    pub had_available: bool,
    /// How it stands towards its deadline.
    pub deadline: Deadline,
}

/// The message while objects of an archived or deleted revision remain.
pub(crate) const REMOVING: &str = "removing revision resources that are not owned by another revision";

/// The message begins with this when the removal of a deleted revision failed.
pub const REMOVAL_FAILED: &str = "error removing revision: ";
/// The detail begins with this when the user has to delete custom resources first.
pub const PROTECTED: &str = "custom resources are protected and must be deleted first: ";

/// What keeps a revision from being removed, as its condition reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// One line.
    pub text: String,
    /// It does not go away by itself: something was refused, or the user has to delete custom resources.
    pub lasts: bool,
}

impl Obstacle {
    /// Reads the message of `Progressing` of a revision that is being deleted. `None` when the removal has nothing to report.
    pub fn read(message: &str) -> Option<Self> {
        let line = message.lines().next().unwrap_or_default();
        if let Some(problem) = line.strip_prefix(REMOVAL_FAILED) {
            return Some(Self { text: problem.to_owned(), lasts: true });
        }
        let detail = line.strip_prefix(REMOVING)?.strip_prefix("; ")?;
        Some(Self { text: detail.to_owned(), lasts: detail.starts_with(PROTECTED) })
    }
}

/// The conditions to set.
pub fn condition_updates(outcome: &Outcome, facts: Facts<'_>) -> Vec<ConditionUpdate> {
    let version = facts.version;
    let rolling = || format!("Revision {version} is rolling out.");
    let progressing = |reason, message: String| with_deadline(facts.deadline, reason, message);
    match outcome {
        Outcome::Blocked(text) => {
            vec![update("Progressing", ConditionStatus::False, "Blocked", text.clone())]
        }
        Outcome::Failed(text) => {
            let mut updates = vec![progressing("Retrying", text.clone())];
            if facts.had_available {
                updates.push(update("Available", ConditionStatus::Unknown, "Reconciling", text.clone()));
            }
            updates
        }
        Outcome::Removing(detail) => {
            let text =
                detail.as_ref().map_or_else(|| REMOVING.to_owned(), |detail| format!("{REMOVING}; {detail}"));
            vec![progressing("Retrying", text)]
        }
        Outcome::Refused(text) | Outcome::RemovalFailed(text) => {
            vec![progressing("Retrying", text.clone())]
        }
        Outcome::Archived => {
            let text = "revision is archived";
            vec![
                update("Available", ConditionStatus::Unknown, "Archived", text.to_owned()),
                update("Progressing", ConditionStatus::False, "Archived", text.to_owned()),
            ]
        }
        Outcome::Processed { phases, .. } if outcome.is_complete() => {
            let progress = if phases.iter().any(PhaseState::is_mixed) {
                progressing("RollingOut", rolling())
            } else {
                update(
                    "Progressing",
                    ConditionStatus::True,
                    "Succeeded",
                    format!("Revision {version} has rolled out."),
                )
            };
            vec![
                progress,
                update(
                    "Available",
                    ConditionStatus::True,
                    "ProbesSucceeded",
                    "Objects are available and pass all probes.".to_owned(),
                ),
                update(
                    "Succeeded",
                    ConditionStatus::True,
                    "Succeeded",
                    "Revision succeeded rolling out.".to_owned(),
                ),
            ]
        }
        Outcome::Processed { phases, .. } => {
            let failing: Vec<String> =
                phases.iter().filter(|phase| !phase.is_complete()).filter_map(PhaseState::failing).collect();
            let available = if failing.is_empty() {
                update("Available", ConditionStatus::False, "RollingOut", rolling())
            } else {
                update("Available", ConditionStatus::False, "ProbeFailure", failing.join("\n"))
            };
            vec![progressing("RollingOut", rolling()), available]
        }
    }
}

/// A `Progressing=True` condition, or what replaces it once the deadline has passed.
fn with_deadline(deadline: Deadline, reason: &'static str, message: String) -> ConditionUpdate {
    match deadline {
        Deadline::Passed { minutes } => update(
            "Progressing",
            ConditionStatus::False,
            "ProgressDeadlineExceeded",
            format!("Revision has not rolled out for {minutes} minute(s). Last status: {message}"),
        ),
        Deadline::None | Deadline::Ahead(_) => update("Progressing", ConditionStatus::True, reason, message),
    }
}

fn update(
    condition: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
) -> ConditionUpdate {
    ConditionUpdate { condition, status, reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn object(name: &str, progressed: bool, verdict: ProbeResult) -> ObjectState {
        ObjectState { title: format!("ConfigMap.v1 n/{name}"), progressed, settled: true, verdict }
    }

    fn processed(phases: Vec<Vec<ObjectState>>, total: usize) -> Outcome {
        Outcome::Processed {
            phases: phases.into_iter().map(|objects| PhaseState { objects }).collect(),
            total,
        }
    }

    /// Every outcome with every fact that matters to it, in one text.
    #[test]
    #[rustfmt::skip]
    fn status_conditions_of_each_outcome() {
        let ready = |name: &str| object(name, false, ProbeResult::yes());
        let unsettled = ObjectState { settled: false, ..ready("w") };
        let message = || "text".to_owned();
        let mut text = String::new();
        for (case, outcome) in [
            ("blocked", Outcome::Blocked(message())),
            ("failed", Outcome::Failed(message())),
            ("refused", Outcome::Refused(message())),
            ("complete", processed(vec![vec![ready("a")], vec![]], 2)),
            ("complete but mixed", processed(vec![vec![ready("a"), object("b", true, ProbeResult::yes())]], 1)),
            ("complete, all progressed", processed(vec![vec![object("b", true, ProbeResult::yes())]], 1)),
            ("first phase waits",
                processed(vec![vec![ready("a"), object("b", false, ProbeResult::no("x")), object("c", false, ProbeResult::no("y"))]], 2)),
            (
                "two phases fail",
                processed(
                    vec![
                        vec![object(
                            "b",
                            false,
                            ProbeResult::all([ProbeResult::no("x"), ProbeResult::no("z")]),
                        )],
                        vec![object("c", false, ProbeResult::unknown("y"))],
                    ],
                    2,
                ),
            ),
            ("nothing fails, nothing settled", processed(vec![vec![unsettled]], 1)),
            ("removing", Outcome::Removing(None)),
            ("removing, with detail", Outcome::Removing(Some("2 custom resources remain".to_owned()))),
            ("removal failed", Outcome::RemovalFailed(message())),
            ("archived", Outcome::Archived),
        ] {
            for had_available in [false, true] {
                for deadline in [
                    Deadline::None,
                    Deadline::Ahead(Duration::from_secs(1)),
                    Deadline::Passed { minutes: 10 },
                ] {
                    let got =
                        condition_updates(&outcome, Facts { version: "1.0.0", had_available, deadline });
                    if deadline == Deadline::Ahead(Duration::from_secs(1)) {
                        let none = condition_updates(
                            &outcome,
                            Facts { version: "1.0.0", had_available, deadline: Deadline::None },
                        );
                        assert_eq!(got, none, "a deadline ahead changes nothing");
                        continue;
                    }
                    if had_available && !matches!(outcome, Outcome::Failed(_)) {
                        continue;
                    }
                    text.push_str(&format!("# {case}, had Available: {had_available}, {deadline:?}\n"));
                    for ConditionUpdate { condition, status, reason, message } in got {
                        text.push_str(&format!("{condition}={status:?}/{reason}: {message}\n"));
                    }
                }
            }
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    #[rustfmt::skip]
    fn status_obstacle_of_a_removal() {
        let removing = |detail: &str| {
            let facts = Facts { version: "1.0.0", had_available: true, deadline: Deadline::None };
            condition_updates(&Outcome::Removing(Some(detail.to_owned())), facts)[0].message.clone()
        };
        for (message, want) in [
            ("Revision 1.0.0 has rolled out.".to_owned(), None),
            (REMOVING.to_owned(), None),
            (removing("waiting for ConfigMap a/b"), Some(("waiting for ConfigMap a/b", false))),
            (removing(&format!("{PROTECTED}3 greetings.example.com")),
                Some(("custom resources are protected and must be deleted first: 3 greetings.example.com", true))),
            (format!("{REMOVAL_FAILED}teardown x: forbidden\nmore"), Some(("teardown x: forbidden", true))),
        ] {
            let got = Obstacle::read(&message);
            assert_eq!(got.as_ref().map(|found| (found.text.as_str(), found.lasts)), want, "{message}");
        }
    }

    #[test]
    fn status_without_a_version_has_two_spaces() {
        let facts = Facts { version: "", had_available: false, deadline: Deadline::None };
        let updates = condition_updates(&processed(vec![], 0), facts);
        assert_eq!(updates[0].message, "Revision  has rolled out.");
    }
}
