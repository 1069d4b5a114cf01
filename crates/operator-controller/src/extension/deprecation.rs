//! The four deprecation conditions, from the deprecations of package, channels and the installed bundle.
//!
//! Texts and statuses: rule operator-controller §5.2; when values are kept: decision 7.

use k8s_openapi::jiff::Timestamp;
use olm_api::{Condition, ConditionStatus, condition, reason};
use olm_install::resolution::DeprecationUpdate;
use olm_resolver::{DeprecationState, Deprecations};

const UNKNOWN_TEXT: &str = "deprecation status unknown: catalog data unavailable";

/// The four conditions in their usual order. `installed`: a bundle is installed now; `stored` are the
/// conditions of the stored status.
pub fn conditions(
    update: &DeprecationUpdate,
    installed: bool,
    stored: &[Condition],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let make = |type_: &str, status, reason: &str, message: &str| {
        Condition::new(type_, status, reason, message, Some(generation), now)
    };
    let build = |type_: &str, state: &DeprecationState, not: &str| match state {
        DeprecationState::Deprecated(text) => make(type_, ConditionStatus::True, reason::DEPRECATED, text),
        DeprecationState::NotDeprecated => make(type_, ConditionStatus::False, reason::NOT_DEPRECATED, not),
        DeprecationState::Absent => {
            make(type_, ConditionStatus::Unknown, reason::ABSENT, "no bundle installed yet")
        }
        DeprecationState::Unknown => {
            make(type_, ConditionStatus::Unknown, reason::DEPRECATION_STATUS_UNKNOWN, UNKNOWN_TEXT)
        }
    };
    let all = |found: &Deprecations| {
        vec![
            build(condition::DEPRECATED, &found.rollup, "not deprecated"),
            build(condition::PACKAGE_DEPRECATED, &found.package, "package not deprecated"),
            build(condition::CHANNEL_DEPRECATED, &found.channel, "channel not deprecated"),
            build(condition::BUNDLE_DEPRECATED, &found.bundle, "bundle not deprecated"),
        ]
    };
    let nothing = Deprecations {
        package: DeprecationState::Unknown,
        channel: DeprecationState::Unknown,
        bundle: if installed { DeprecationState::Unknown } else { DeprecationState::Absent },
        rollup: DeprecationState::Unknown,
    };
    match update {
        DeprecationUpdate::Found(found) => all(found),
        DeprecationUpdate::Removed => all(&nothing),
        DeprecationUpdate::Unchanged => {
            all(&nothing).into_iter().map(|fresh| keep(fresh, installed, stored, generation)).collect()
        }
    }
}

/// The stored value instead of "unknown", unless it speaks of a bundle that came or went since.
fn keep(fresh: Condition, installed: bool, stored: &[Condition], generation: i64) -> Condition {
    match condition::find(stored, &fresh.type_) {
        Some(found)
            if fresh.type_ != condition::BUNDLE_DEPRECATED
                || installed == (found.reason != reason::ABSENT) =>
        {
            Condition { observed_generation: Some(generation), ..found.clone() }
        }
        _ => fresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(conditions: &[Condition]) -> Vec<(String, &'static str, String)> {
        conditions.iter().map(|c| (c.type_.clone(), c.status.as_str(), c.reason.clone())).collect()
    }

    fn deprecated(bundle: DeprecationState) -> DeprecationUpdate {
        DeprecationUpdate::Found(Deprecations {
            package: DeprecationState::Deprecated("old".to_owned()),
            channel: DeprecationState::NotDeprecated,
            bundle,
            rollup: DeprecationState::Deprecated("old".to_owned()),
        })
    }

    #[test]
    fn deprecation_survives_transient_errors() {
        let now = Timestamp::UNIX_EPOCH;
        let first = conditions(&deprecated(DeprecationState::NotDeprecated), true, &[], 1, now);
        assert_eq!(brief(&first)[0], ("Deprecated".to_owned(), "True", "Deprecated".to_owned()));
        assert_eq!(first[0].message, "old");

        let kept = conditions(&DeprecationUpdate::Unchanged, true, &first, 2, now);
        assert_eq!(brief(&kept), brief(&first));
        assert_eq!(kept[0].observed_generation, Some(2));

        let gone = conditions(&DeprecationUpdate::Removed, true, &first, 3, now);
        assert!(gone.iter().all(|c| c.reason == reason::DEPRECATION_STATUS_UNKNOWN), "{gone:?}");
    }

    /// rule: operator-controller §5.2
    #[test]
    fn deprecation_texts() {
        let now = Timestamp::UNIX_EPOCH;
        let texts = |update: &DeprecationUpdate, installed| -> Vec<String> {
            let all = conditions(update, installed, &[], 1, now);
            all.iter()
                .map(|c| format!("{}={}/{}: {}", c.type_, c.status.as_str(), c.reason, c.message))
                .collect()
        };
        let none = DeprecationUpdate::Found(Deprecations {
            package: DeprecationState::NotDeprecated,
            channel: DeprecationState::NotDeprecated,
            bundle: DeprecationState::Absent,
            rollup: DeprecationState::NotDeprecated,
        });
        assert_eq!(
            texts(&none, false),
            [
                "Deprecated=False/NotDeprecated: not deprecated",
                "PackageDeprecated=False/NotDeprecated: package not deprecated",
                "ChannelDeprecated=False/NotDeprecated: channel not deprecated",
                "BundleDeprecated=Unknown/Absent: no bundle installed yet",
            ]
        );
        let unknown =
            "Unknown/DeprecationStatusUnknown: deprecation status unknown: catalog data unavailable";
        let three = ["Deprecated", "PackageDeprecated", "ChannelDeprecated"]
            .map(|type_| format!("{type_}={unknown}"));
        for installed in [false, true] {
            let texts = texts(&DeprecationUpdate::Removed, installed);
            assert_eq!(texts[..3], three);
            let bundle = if installed { unknown } else { "Unknown/Absent: no bundle installed yet" };
            assert_eq!(texts[3], format!("BundleDeprecated={bundle}"));
        }
    }

    #[test]
    fn deprecation_bundle_condition_follows_what_is_installed() {
        let now = Timestamp::UNIX_EPOCH;
        let before = conditions(&deprecated(DeprecationState::Absent), false, &[], 1, now);
        let bundle =
            |list: &[Condition]| condition::find(list, condition::BUNDLE_DEPRECATED).unwrap().reason.clone();
        assert_eq!(bundle(&before), reason::ABSENT);
        assert_eq!(
            bundle(&conditions(&DeprecationUpdate::Unchanged, true, &before, 1, now)),
            reason::DEPRECATION_STATUS_UNKNOWN
        );
        let after = conditions(&deprecated(DeprecationState::NotDeprecated), true, &before, 1, now);
        assert_eq!(bundle(&after), reason::NOT_DEPRECATED);
        assert_eq!(bundle(&conditions(&DeprecationUpdate::Unchanged, false, &after, 1, now)), reason::ABSENT);
    }
}
