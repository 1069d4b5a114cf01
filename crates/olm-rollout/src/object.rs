//! The decision what to do with an object, as a table of a rollout, total over small enums.
//!
//! The live object is first reduced to [`Observed`]; the table knows nothing else. Rule: revisions §7.3. Beyond it:
//! a sibling that is archived or going away gives its objects up to the revision that rolls out (§17 row 26), siblings share
//! the same parent (row 22), and an object that is being deleted is waited for.

use olm_core::Object;

use crate::applied::{Drift, drift};
use crate::desired::{OwnerRef, Revision, controller_of, enforcing, is_terminating};
use crate::keys;

/// What to do when an object exists that the revision did not create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Never adopt.
    #[default]
    Prevent,
    /// Adopt objects without a controller.
    IfNoController,
    /// Adopt everything.
    None,
}

impl Protection {
    /// The most specific of object, phase and revision; `Prevent` when none is set.
    pub fn effective(object: Option<Self>, phase: Option<Self>, revision: Option<Self>) -> Self {
        object.or(phase).or(revision).unwrap_or_default()
    }
}

/// Another revision of the same extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    pub uid: String,
    pub number: i64,
    /// Archived (or about to be) or being deleted: it no longer defends its objects.
    pub retired: bool,
}

/// The controller of a live object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controller {
    None,
    /// This revision.
    Own,
    /// Another revision of the same extension that is in force.
    Sibling,
    /// Another revision of the same extension that is not in force any more; also one that is gone, of which only its marks are left, as
    /// after a restore from a backup.
    Retired,
    /// An object that is no revision of the same extension.
    Foreign,
}

/// The revision number on a live object, compared with ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// There is none; counts as older than any.
    Absent,
    /// Lower than ours.
    Older,
    /// Ours.
    Equal,
    /// Higher than ours.
    Newer,
}

impl Mark {
    fn from_number(number: i64, revision: &Revision) -> Self {
        match number.cmp(&revision.number) {
            std::cmp::Ordering::Less => Self::Older,
            std::cmp::Ordering::Equal => Self::Equal,
            std::cmp::Ordering::Greater => Self::Newer,
        }
    }
}

/// What the table depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observed {
    /// The controller of the object.
    pub(crate) controller: Controller,
    /// Which revision applied it last.
    pub(crate) mark: Mark,
    /// It is being deleted.
    pub(crate) terminating: bool,
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

/// An annotation that is no number, on an object of none of our revisions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "getting revision of object: annotation olm.operatorframework.io/revision is {0:?}, which is no number"
)]
pub struct BadMark(String);

/// Reduces a live object to what the table depends on. On an object that the revision or a sibling controls, an annotation that is no
/// number counts as the number of a sibling, else as an older one: it is written again, and an editor of the object blocks no
/// upgrade.
///
/// # Errors
/// When the revision annotation of any other object is no number.
pub(crate) fn observe(live: &Object, revision: &Revision, siblings: &[Sibling]) -> Result<Observed, BadMark> {
    let owner = controller_of(live);
    let sibling = owner.as_ref().filter(|owner| owner.kind == revision.kind);
    let sibling = sibling.and_then(|owner| siblings.iter().find(|sibling| sibling.uid == owner.uid));
    let controller = match (owner, sibling) {
        (None, _) => Controller::None,
        (Some(owner), _) if revision.is(&owner) => Controller::Own,
        (Some(_), Some(sibling)) if sibling.retired => Controller::Retired,
        (Some(_), Some(_)) => Controller::Sibling,
        (Some(_), None) => Controller::Foreign,
    };
    let is_left = controller == Controller::None && is_marked(live, revision);
    let mark = match live.annotations().get(keys::REVISION).map(|text| (text, text.parse::<i64>())) {
        None => Mark::Absent,
        Some((_, Ok(number))) => Mark::from_number(number, revision),
        Some((text, Err(_))) => match (controller, sibling) {
            (Controller::None | Controller::Foreign, _) => return Err(BadMark((*text).to_owned())),
            (Controller::Sibling | Controller::Retired, Some(sibling)) => {
                Mark::from_number(sibling.number, revision)
            }
            (Controller::Own | Controller::Sibling | Controller::Retired, _) => Mark::Older,
        },
    };
    // a newer revision in force may be about to take it over
    let is_awaited = mark == Mark::Newer && siblings.iter().any(|sibling| !sibling.retired);
    let controller = if is_left && !is_awaited { Controller::Retired } else { controller };
    Ok(Observed { controller, mark, terminating: is_terminating(live) })
}

/// Whether a revision of the same extension applied the object: it has the number of a revision, and the extension's name.
fn is_marked(live: &Object, revision: &Revision) -> bool {
    let labels = live.labels();
    let label = |key: &str| labels.get(key).copied();
    live.annotations().contains_key(keys::REVISION)
        && label(keys::OWNER_KIND) == Some(keys::OWNER_KIND_VALUE)
        && revision.extension.is_some()
        && label(keys::OWNER_NAME) == revision.extension.as_deref()
}

/// The table: what to do with an object that exists. `drift` counts only where we are the controller.
pub(crate) fn decide(observed: Observed, protection: Protection, drift: Drift) -> Step {
    use Controller as C;
    use Protection as P;
    let step = match (observed.controller, observed.mark, protection) {
        (C::None, Mark::Absent, P::IfNoController | P::None) => Step::Adopt,
        (C::None, Mark::Absent, P::Prevent) | (C::None, Mark::Older | Mark::Equal | Mark::Newer, ..) => {
            Step::Refuse
        }
        (C::Own, ..) => match drift {
            Drift::None => Step::Nothing,
            Drift::Changed => Step::Apply { force: false },
            Drift::Taken => Step::Apply { force: true },
        },
        (C::Sibling, Mark::Newer, ..) => Step::Leave,
        (C::Sibling, Mark::Absent | Mark::Older, ..) => Step::Adopt,
        (C::Sibling, Mark::Equal, ..) => Step::Refuse,
        (C::Retired, ..) | (C::Foreign, _, P::None) => Step::Adopt,
        (C::Foreign, _, P::Prevent | P::IfNoController) => Step::Refuse,
    };
    match (step, observed.terminating) {
        (Step::Nothing | Step::Apply { .. } | Step::Adopt, true) => Step::Wait,
        (step, _) => step,
    }
}

/// Reduces a live object and decides.
///
/// # Errors
/// When the live object's revision annotation is no number.
pub fn decide_object(
    content: &Object,
    live: Option<&Object>,
    revision: &Revision,
    siblings: &[Sibling],
    protection: Protection,
) -> Result<Step, BadMark> {
    let Some(live) = live else { return Ok(Step::Create) };
    let observed = observe(live, revision, siblings)?;
    let drift = match observed.controller {
        Controller::Own => drift(&enforcing(content, revision, live), live),
        Controller::None | Controller::Sibling | Controller::Retired | Controller::Foreign => Drift::None,
    };
    Ok(decide(observed, protection, drift))
}

/// The owner that stands in the way of adopting an object.
pub fn conflicting_owner(live: &Object) -> Option<OwnerRef> {
    controller_of(live)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::test_revision;
    use serde_json::{Value, json};

    const CONTROLLERS: [Controller; 5] =
        [Controller::None, Controller::Own, Controller::Sibling, Controller::Retired, Controller::Foreign];
    const MARKS: [Mark; 4] = [Mark::Absent, Mark::Older, Mark::Equal, Mark::Newer];
    const PROTECTIONS: [Protection; 3] = [Protection::Prevent, Protection::IfNoController, Protection::None];
    const DRIFTS: [Drift; 3] = [Drift::None, Drift::Changed, Drift::Taken];

    /// Every cell of the table in one text, so that a change of any is a change of the snapshot.
    #[test]
    fn object_decision_table() {
        let mut table = String::new();
        for controller in CONTROLLERS {
            for mark in MARKS {
                for protection in PROTECTIONS {
                    let cells: Vec<String> = DRIFTS
                        .iter()
                        .map(|&drift| {
                            format!(
                                "{:?}",
                                decide(Observed { controller, mark, terminating: false }, protection, drift)
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
    fn object_that_is_being_deleted_is_not_written() {
        for controller in CONTROLLERS {
            for mark in MARKS {
                for protection in PROTECTIONS {
                    for drift in DRIFTS {
                        let observed = |terminating| Observed { controller, mark, terminating };
                        let alive = decide(observed(false), protection, drift);
                        let dying = decide(observed(true), protection, drift);
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

    fn sibling(uid: &str, number: i64, retired: bool) -> Sibling {
        Sibling { uid: uid.into(), number, retired }
    }

    #[test]
    fn object_is_reduced_to_what_the_table_needs() {
        let siblings = [sibling("u1", 1, false), sibling("u0", 0, true), sibling("u3", 3, false)];
        for (owner, mark, want) in [
            (None, None, (Controller::None, Mark::Absent)),
            (None, Some("1"), (Controller::None, Mark::Older)),
            (Some(("ClusterObjectSet", "u2")), Some("2"), (Controller::Own, Mark::Equal)),
            (Some(("ClusterObjectSet", "u1")), Some("10"), (Controller::Sibling, Mark::Newer)),
            (Some(("ClusterObjectSet", "u0")), Some("1"), (Controller::Retired, Mark::Older)),
            (Some(("ClusterObjectSet", "u9")), Some("2"), (Controller::Foreign, Mark::Equal)),
            (Some(("ClusterExtension", "u2")), None, (Controller::Foreign, Mark::Absent)),
            // an editor of the object must not block its revision or the next one
            (Some(("ClusterObjectSet", "u2")), Some("two"), (Controller::Own, Mark::Older)),
            (Some(("ClusterObjectSet", "u1")), Some("two"), (Controller::Sibling, Mark::Older)),
            (Some(("ClusterObjectSet", "u3")), Some("two"), (Controller::Sibling, Mark::Newer)),
            (Some(("ClusterObjectSet", "u0")), Some("two"), (Controller::Retired, Mark::Older)),
        ] {
            let observed = observe(&live(owner, mark), &test_revision(), &siblings).unwrap();
            assert_eq!((observed.controller, observed.mark), want, "{owner:?} {mark:?}");
            assert!(!observed.terminating);
        }
        observe(&live(Some(("ClusterObjectSet", "u9")), Some("two")), &test_revision(), &siblings)
            .unwrap_err();
        let bad = observe(&live(None, Some("two")), &test_revision(), &[]).unwrap_err();
        assert_eq!(
            bad.to_string(),
            "getting revision of object: annotation olm.operatorframework.io/revision is \"two\", which is no number"
        );
        let dying: Value = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(observe(&Object::from_value(dying).unwrap(), &test_revision(), &[]).unwrap().terminating);
    }

    /// As after a restore: the object has other owners than before, or none.
    #[test]
    fn object_left_by_an_earlier_revision_is_adopted() {
        let marked = |extension: &str, mark: &str, owner: Option<(&str, &str)>| {
            let mut object = live(owner, Some(mark)).to_value();
            object["metadata"]["labels"] = json!({
                "olm.operatorframework.io/owner-kind": "ClusterExtension",
                "olm.operatorframework.io/owner-name": extension,
            });
            Object::from_value(object).unwrap()
        };
        let own = test_revision();
        let mine = own.extension.clone().unwrap();
        let sibling = |retired| Sibling { uid: "u1".into(), number: 9, retired };
        let foreign = Some(("ClusterObjectSet", "gone"));
        for (case, object, siblings, want) in [
            ("of an earlier revision", marked(&mine, "1", None), vec![], Step::Adopt),
            ("of this number", marked(&mine, "2", None), vec![sibling(false)], Step::Adopt),
            ("of a later one that is gone", marked(&mine, "9", None), vec![], Step::Adopt),
            ("of a later one that is retired", marked(&mine, "9", None), vec![sibling(true)], Step::Adopt),
            ("of a later one in force", marked(&mine, "9", None), vec![sibling(false)], Step::Refuse),
            ("of another extension", marked("other", "1", None), vec![], Step::Refuse),
            ("with a controller", marked(&mine, "1", foreign), vec![], Step::Refuse),
            ("without the extension's labels", live(None, Some("1")), vec![], Step::Refuse),
        ] {
            let got = decide_object(&object, Some(&object), &own, &siblings, Protection::Prevent);
            assert_eq!(got, Ok(want), "{case}");
        }
    }

    #[test]
    fn object_most_specific_protection_wins() {
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
    fn object_that_is_absent_is_created() {
        let content = live(None, None);
        assert_eq!(
            decide_object(&content, None, &test_revision(), &[], Protection::Prevent),
            Ok(Step::Create)
        );
    }
}
