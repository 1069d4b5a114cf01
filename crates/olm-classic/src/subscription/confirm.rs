//! Decisions that depend on whether a ClusterServiceVersion is there: a watch may be late, so the apiserver confirms them.

use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::state::StateRule;
use crate::operator_group::keys::COPIED_FROM;

/// Whether a decision is written only after the apiserver was asked, see [`is_confirmed`].
pub fn needs_confirmation(rule: StateRule) -> bool {
    matches!(rule, StateRule::Adopted | StateRule::CsvDeleted)
}

/// Whether what the apiserver has of a ClusterServiceVersion confirms a decision about it. One that is adopted is the one that was `observed`,
/// and is not being deleted; one that was deleted is not there, although a copy from another namespace may have taken its place.
pub fn is_confirmed(rule: StateRule, observed: Option<&ObjectMeta>, live: Option<&ObjectMeta>) -> bool {
    let is_copy = |it: &ObjectMeta| it.labels.as_ref().is_some_and(|labels| labels.contains_key(COPIED_FROM));
    let live = live.filter(|it| it.deletion_timestamp.is_none() && !is_copy(it));
    match rule {
        StateRule::Adopted => live.zip(observed).is_some_and(|(live, observed)| live.uid == observed.uid),
        StateRule::CsvDeleted => live.is_none(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn decision_is_confirmed_by_what_the_apiserver_has() {
        let metadata = |value: Value| -> ObjectMeta { serde_json::from_value(value).unwrap() };
        let observed = metadata(json!({"uid": "u"}));
        let deleted = json!({"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let copy = json!({"uid": "c", "labels": {(COPIED_FROM): "other"}});
        for (case, live, is_adopted, is_deleted) in [
            ("the same", Some(json!({"uid": "u"})), true, false),
            ("created again", Some(json!({"uid": "again"})), false, false),
            ("being deleted", Some(deleted), false, true),
            ("a copy", Some(copy), false, true),
            ("none", None, false, true),
        ] {
            let live = live.map(metadata);
            let of = |rule| is_confirmed(rule, Some(&observed), live.as_ref());
            assert_eq!(
                (of(StateRule::Adopted), of(StateRule::CsvDeleted)),
                (is_adopted, is_deleted),
                "{case}"
            );
            assert!(of(StateRule::Pending), "{case}");
            assert!(!is_confirmed(StateRule::Adopted, None, live.as_ref()), "{case}: it was not observed");
        }
        for (rule, want) in
            [(StateRule::Adopted, true), (StateRule::CsvDeleted, true), (StateRule::Installed, false)]
        {
            assert_eq!(needs_confirmation(rule), want, "{rule:?}");
        }
    }
}
