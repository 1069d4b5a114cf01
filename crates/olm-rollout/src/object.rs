//! May we touch this object, and how? The decision table of a rollout, total over small enums.
//!
//! What an object looks like is first reduced to [`Seen`]; the table knows nothing else. Rule: revisions §7.3. Beyond it:
//! a sibling that is archived or going away gives its objects up to whoever rolls out (§17 row 26), siblings share the
//! same parent (row 22), and an object that is being deleted is waited for.

use olm_core::Object;

use crate::applied::{Drift, drift};
use crate::desired::{OwnerRef, Us, controller_of, enforcing};
use crate::keys;

/// What to do when an object exists that the revision did not create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Never adopt.
    #[default]
    Prevent,
    /// Adopt what nobody controls.
    IfNoController,
    /// Adopt everything.
    None,
}

impl Protection {
    /// The most specific of object, phase and revision; `Prevent` when none says anything.
    pub fn effective(object: Option<Self>, phase: Option<Self>, revision: Option<Self>) -> Self {
        object.or(phase).or(revision).unwrap_or_default()
    }
}

/// Another revision of the same extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its UID.
    pub uid: String,
    /// Archived (or wanted so) or being deleted: it no longer defends its objects.
    pub retired: bool,
}

/// Who controls a live object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Nobody.
    Nobody,
    /// The revision that asks.
    Us,
    /// Another revision of the same extension that is in force.
    Sibling,
    /// Another revision of the same extension that is not in force any more.
    Retired,
    /// Somebody else.
    Stranger,
}

/// The revision number on a live object, compared with ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// There is none; counts as older than any.
    Absent,
    /// Lower than ours.
    Older,
    /// Ours.
    Equal,
    /// Higher than ours.
    Newer,
}

/// All that the table looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Who controls the object.
    pub controller: Controller,
    /// Which revision applied it last.
    pub mark: Mark,
    /// It is being deleted.
    pub terminating: bool,
}

/// What to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Create it; must fail when it exists.
    Create,
    /// It is as it shall be.
    Nothing,
    /// Apply our fields; with `force` take them back from others.
    Apply {
        /// Take fields over from other managers.
        force: bool,
    },
    /// Apply with force and become the controller.
    Adopt,
    /// A newer revision has it: leave it alone.
    Leave,
    /// It is being deleted: come back when it is gone.
    Wait,
    /// It is not ours to touch.
    Refuse,
}

/// An annotation that is no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "getting revision of object: annotation olm.operatorframework.io/revision is {0:?}, which is no number"
)]
pub struct BadMark(String);

/// Reduces a live object to what the table looks at.
///
/// # Errors
/// When the revision annotation is no number.
pub fn see(live: &Object, us: &Us, siblings: &[Sibling]) -> Result<Seen, BadMark> {
    let controller = match controller_of(live) {
        None => Controller::Nobody,
        Some(owner) if us.is(&owner) => Controller::Us,
        Some(owner) => {
            match siblings.iter().find(|sibling| sibling.uid == owner.uid && owner.kind == us.kind) {
                Some(sibling) if sibling.retired => Controller::Retired,
                Some(_) => Controller::Sibling,
                None => Controller::Stranger,
            }
        }
    };
    let mark = match live.annotations().get(keys::REVISION) {
        None => Mark::Absent,
        Some(text) => match text.parse::<i64>().map_err(|_| BadMark((*text).to_owned()))?.cmp(&us.number) {
            std::cmp::Ordering::Less => Mark::Older,
            std::cmp::Ordering::Equal => Mark::Equal,
            std::cmp::Ordering::Greater => Mark::Newer,
        },
    };
    let terminating = live
        .metadata()
        .is_some_and(|metadata| metadata.get("deletionTimestamp").is_some_and(|at| !at.is_null()));
    Ok(Seen { controller, mark, terminating })
}

/// The table: what to do with an object that exists. `drift` counts only where we are the controller.
pub fn decide(seen: Seen, protection: Protection, drift: Drift) -> Step {
    use Controller as C;
    use Protection as P;
    let step = match (seen.controller, seen.mark, protection) {
        (C::Nobody, Mark::Absent, P::Prevent) => Step::Refuse,
        (C::Nobody, Mark::Absent, P::IfNoController | P::None) => Step::Adopt,
        (C::Nobody, Mark::Older | Mark::Equal | Mark::Newer, P::Prevent | P::IfNoController | P::None) => {
            Step::Refuse
        }
        (
            C::Us,
            Mark::Absent | Mark::Older | Mark::Equal | Mark::Newer,
            P::Prevent | P::IfNoController | P::None,
        ) => match drift {
            Drift::None => Step::Nothing,
            Drift::Changed => Step::Apply { force: false },
            Drift::Taken => Step::Apply { force: true },
        },
        (C::Sibling, Mark::Newer, P::Prevent | P::IfNoController | P::None) => Step::Leave,
        (C::Sibling, Mark::Absent | Mark::Older, P::Prevent | P::IfNoController | P::None) => Step::Adopt,
        (C::Sibling, Mark::Equal, P::Prevent | P::IfNoController | P::None) => Step::Refuse,
        (
            C::Retired,
            Mark::Absent | Mark::Older | Mark::Equal | Mark::Newer,
            P::Prevent | P::IfNoController | P::None,
        ) => Step::Adopt,
        (
            C::Stranger,
            Mark::Absent | Mark::Older | Mark::Equal | Mark::Newer,
            P::Prevent | P::IfNoController,
        ) => Step::Refuse,
        (C::Stranger, Mark::Absent | Mark::Older | Mark::Equal | Mark::Newer, P::None) => Step::Adopt,
    };
    match (step, seen.terminating) {
        (Step::Nothing | Step::Apply { .. } | Step::Adopt, true) => Step::Wait,
        (step, _) => step,
    }
}

/// Looks at an object and decides.
///
/// # Errors
/// When the live object's revision annotation is no number.
pub fn decide_object(
    content: &Object,
    live: Option<&Object>,
    us: &Us,
    siblings: &[Sibling],
    protection: Protection,
) -> Result<Step, BadMark> {
    let Some(live) = live else { return Ok(Step::Create) };
    let seen = see(live, us, siblings)?;
    let drift = match seen.controller {
        Controller::Us => drift(&enforcing(content, us, live), live),
        Controller::Nobody | Controller::Sibling | Controller::Retired | Controller::Stranger => Drift::None,
    };
    Ok(decide(seen, protection, drift))
}

/// The owner that stands in the way of adopting an object.
pub fn conflicting_owner(live: &Object) -> Option<OwnerRef> {
    controller_of(live)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::test_us;
    use serde_json::{Value, json};

    const CONTROLLERS: [Controller; 5] =
        [Controller::Nobody, Controller::Us, Controller::Sibling, Controller::Retired, Controller::Stranger];
    const MARKS: [Mark; 4] = [Mark::Absent, Mark::Older, Mark::Equal, Mark::Newer];
    const PROTECTIONS: [Protection; 3] = [Protection::Prevent, Protection::IfNoController, Protection::None];
    const DRIFTS: [Drift; 3] = [Drift::None, Drift::Changed, Drift::Taken];

    /// Every cell of the table in one text, so that a change of any is a change of the snapshot.
    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for controller in CONTROLLERS {
            for mark in MARKS {
                for protection in PROTECTIONS {
                    let cells: Vec<String> = DRIFTS
                        .iter()
                        .map(|&drift| {
                            format!(
                                "{:?}",
                                decide(Seen { controller, mark, terminating: false }, protection, drift)
                            )
                        })
                        .collect();
                    let cells = if cells.iter().all(|cell| cell == &cells[0]) {
                        cells[0].clone()
                    } else {
                        cells.join(" | ")
                    };
                    table.push_str(&format!("{controller:?} {mark:?} {protection:?}: {cells}\n"));
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn nothing_is_written_to_an_object_that_is_being_deleted() {
        for controller in CONTROLLERS {
            for mark in MARKS {
                for protection in PROTECTIONS {
                    for drift in DRIFTS {
                        let seen = |terminating| Seen { controller, mark, terminating };
                        let alive = decide(seen(false), protection, drift);
                        let dying = decide(seen(true), protection, drift);
                        let want =
                            if matches!(alive, Step::Leave | Step::Refuse) { alive } else { Step::Wait };
                        assert_eq!(dying, want, "{controller:?} {mark:?} {protection:?} {drift:?}");
                    }
                }
            }
        }
    }

    fn live(owner: Option<(&str, &str)>, mark: Option<&str>) -> Object {
        let mut object = json!({"metadata": {"name": "c"}});
        if let Some((kind, uid)) = owner {
            object["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "not-controller"},
                {"apiVersion": "olm.operatorframework.io/v1", "kind": kind, "name": "e-2", "uid": uid, "controller": true},
            ]);
        }
        if let Some(mark) = mark {
            object["metadata"]["annotations"] = json!({"olm.operatorframework.io/revision": mark});
        }
        Object::from_value(object).unwrap()
    }

    #[test]
    fn live_objects_are_reduced_to_what_the_table_needs() {
        let siblings =
            [Sibling { uid: "u1".into(), retired: false }, Sibling { uid: "u0".into(), retired: true }];
        for (owner, mark, want) in [
            (None, None, (Controller::Nobody, Mark::Absent)),
            (None, Some("1"), (Controller::Nobody, Mark::Older)),
            (Some(("ClusterObjectSet", "u2")), Some("2"), (Controller::Us, Mark::Equal)),
            (Some(("ClusterObjectSet", "u1")), Some("10"), (Controller::Sibling, Mark::Newer)),
            (Some(("ClusterObjectSet", "u0")), Some("1"), (Controller::Retired, Mark::Older)),
            (Some(("ClusterObjectSet", "u9")), Some("2"), (Controller::Stranger, Mark::Equal)),
            (Some(("ClusterExtension", "u2")), None, (Controller::Stranger, Mark::Absent)),
        ] {
            let seen = see(&live(owner, mark), &test_us(), &siblings).unwrap();
            assert_eq!((seen.controller, seen.mark), want, "{owner:?} {mark:?}");
            assert!(!seen.terminating);
        }
        let bad = see(&live(None, Some("two")), &test_us(), &[]).unwrap_err();
        assert_eq!(
            bad.to_string(),
            "getting revision of object: annotation olm.operatorframework.io/revision is \"two\", which is no number"
        );
        let dying: Value = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(see(&Object::from_value(dying).unwrap(), &test_us(), &[]).unwrap().terminating);
    }

    #[test]
    fn the_most_specific_protection_wins() {
        use Protection::{IfNoController, None as Adopt, Prevent};
        for (object, phase, revision, want) in [
            (None, None, None, Prevent),
            (None, None, Some(Adopt), Adopt),
            (None, Some(IfNoController), Some(Adopt), IfNoController),
            (Some(Prevent), Some(IfNoController), Some(Adopt), Prevent),
        ] {
            assert_eq!(Protection::effective(object, phase, revision), want);
        }
    }

    #[test]
    fn an_absent_object_is_created() {
        let content = live(None, None);
        assert_eq!(decide_object(&content, None, &test_us(), &[], Protection::Prevent), Ok(Step::Create));
    }
}
