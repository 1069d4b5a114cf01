//! The removal of an object when its revision is archived or deleted.
//!
//! Only what the revision controls is deleted; whatever another one controls merely loses our reference (revisions §12
//! with §17 row 1), and what a revision in force takes over is left to that. Phases go in reverse; a phase is gone before the one
//! before it starts.

use olm_core::Object;

use crate::desired::{Revision, is_terminating, owner_refs};
use crate::keys;

/// Why a revision is torn down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A newer revision replaced it, or a user archived it.
    Archive,
    /// It is being deleted, most often with its extension.
    Delete,
    /// Its objects shall stay: orphaning deletion, or the extension has `deletion-policy: keep`.
    Keep,
}

/// What a revision in force does with an object that it has in its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Successor {
    /// There is no such revision.
    None,
    /// It takes the object over.
    TakesOver,
    /// It had the object before, and has not taken it back in time. It is still among the owners, so the object stays.
    Late,
}

/// The ownership of an object, as far as the teardown depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// We are its controller.
    pub controlled: bool,
    /// We are among its owners.
    pub owned: bool,
    /// It is being deleted already.
    pub terminating: bool,
    /// Its manifest asks to keep it.
    pub keep: bool,
    /// What a revision in force does with it.
    pub successor: Successor,
}

/// What to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Nothing; it is gone as far as we are concerned.
    Gone,
    /// Delete it, with UID and resourceVersion as preconditions, and wait until it is gone.
    Delete,
    /// Wait: it is on its way, or a sibling is about to take it over.
    Wait,
    /// Take our owner reference out; another owner has it.
    Unlink,
    /// Leave it in the cluster without an owner: take out reference and marks.
    Release,
}

/// Reduces a live object to what the table depends on.
pub fn ownership(content: &Object, live: &Object, revision: &Revision, successor: Successor) -> Ownership {
    let owners = owner_refs(live);
    let ours = owners.iter().find(|owner| revision.is(owner));
    Ownership {
        controlled: ours.is_some_and(|owner| owner.controller),
        owned: ours.is_some(),
        terminating: is_terminating(live),
        keep: content.annotations().get(keys::DELETION_POLICY) == Some(&keys::DELETION_POLICY_KEEP),
        successor,
    }
}

/// The table: what to do with an object that exists.
pub fn remove(ownership: Ownership, reason: Reason) -> Removal {
    let Ownership { controlled, owned, terminating, keep, successor } = ownership;
    match (owned, controlled, successor, reason) {
        (false, ..) => Removal::Gone,
        (true, false, ..) => Removal::Unlink,
        // also what is kept: without our marks, the revision in force could not take it over
        (true, true, Successor::TakesOver, _) => Removal::Wait,
        (true, true, Successor::Late, _) => Removal::Unlink,
        (true, true, Successor::None, Reason::Keep) => Removal::Release,
        (true, true, Successor::None, Reason::Archive | Reason::Delete) => match (keep, terminating) {
            (true, _) => Removal::Release,
            (false, true) => Removal::Wait,
            (false, false) => Removal::Delete,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::test_revision;
    use serde_json::{Value, json};

    #[test]
    fn teardown_table() {
        let mut table = String::new();
        for reason in [Reason::Archive, Reason::Delete, Reason::Keep] {
            for (owner, controlled, owned) in
                [("foreign", false, false), ("owner", false, true), ("controller", true, true)]
            {
                for bits in 0..12_u8 {
                    let successor =
                        [Successor::None, Successor::TakesOver, Successor::Late][usize::from(bits / 4)];
                    let (terminating, keep) = (bits & 1 > 0, bits & 2 > 0);
                    let ownership = Ownership { controlled, owned, terminating, keep, successor };
                    let words: Vec<&str> = [
                        (terminating, "terminating"),
                        (keep, "keep"),
                        (successor == Successor::TakesOver, "awaited"),
                        (successor == Successor::Late, "late"),
                    ]
                    .into_iter()
                    .filter_map(|(set, word)| set.then_some(word))
                    .collect();
                    let removal = remove(ownership, reason);
                    assert!(
                        controlled || !matches!(removal, Removal::Delete | Removal::Release),
                        "only what we control"
                    );
                    table.push_str(&format!("{reason:?} {owner} [{}]: {removal:?}\n", words.join(" ")));
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    /// rule: revisions §12, the most dangerous defect: an equal number on a foreign object means nothing.
    #[test]
    fn teardown_ignores_an_equal_number_of_a_foreign_owner() {
        let live = |uid: &str, controller: bool| {
            Object::from_value(json!({"metadata": {
                "annotations": {"olm.operatorframework.io/revision": "2"},
                "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "e-2",
                                     "uid": uid, "controller": controller}],
            }}))
            .unwrap()
        };
        let content = Object::default();
        let ownership = |live: &Object| ownership(&content, live, &test_revision(), Successor::None);
        let run = |live: &Object| remove(ownership(live), Reason::Archive);
        assert_eq!(run(&live("other", true)), Removal::Gone);
        assert_eq!(run(&live("u2", false)), Removal::Unlink);
        assert_eq!(run(&live("u2", true)), Removal::Delete);
    }

    #[test]
    fn teardown_keeps_objects_whose_manifest_asks() {
        let annotations: Value = json!({"olm.operatorframework.io/deletion-policy": "keep"});
        let content = Object::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
        let ownership =
            |content: &Object| ownership(content, &Object::default(), &test_revision(), Successor::None);
        assert!(ownership(&content).keep);
        assert!(!ownership(&Object::default()).keep);
    }
}
