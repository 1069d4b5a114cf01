//! The four deprecation conditions, from what the catalog says about package, channels and the installed bundle.
//!
//! Rule: resolution §5.2; which catalog speaks, and when values are kept: decision 7.

use k8s_openapi::jiff::Timestamp;
use olm_api::{Condition, ConditionStatus, condition, reason};

/// Messages of matching deprecation entries; an empty list says "not deprecated".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Messages {
    /// Entries about the package.
    pub package: Vec<String>,
    /// Entries about the selected channels.
    pub channel: Vec<String>,
    /// Entries about the installed bundle.
    pub bundle: Vec<String>,
}

/// What is known in this pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deprecations {
    /// A readable catalog holds the package.
    Known(Messages),
    /// Nothing could be read in this pass: earlier values stay.
    Unread,
    /// No selected catalog exists any more, or none was ever read: nothing is known.
    Gone,
}

const UNKNOWN_TEXT: &str = "deprecation status unknown: catalog data unavailable";

/// The four conditions in their usual order.
pub fn conditions(
    deprecations: &Deprecations,
    installed: bool,
    stored: &[Condition],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let make = |type_: &str, status, reason: &str, message: String| {
        Condition::new(type_, status, reason, message, Some(generation), now)
    };
    let absent = || {
        let message = "no bundle installed yet".to_owned();
        make(condition::BUNDLE_DEPRECATED, ConditionStatus::Unknown, reason::ABSENT, message)
    };
    let unknown =
        |type_: &str| make(type_, ConditionStatus::Unknown, reason::DEPRECATION_STATUS_UNKNOWN, UNKNOWN_TEXT.to_owned());
    match deprecations {
        Deprecations::Known(found) => {
            let say = |type_: &str, messages: &[String], not: &str| {
                if messages.is_empty() {
                    make(type_, ConditionStatus::False, reason::NOT_DEPRECATED, not.to_owned())
                } else {
                    let text: Vec<&str> = messages.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
                    make(type_, ConditionStatus::True, reason::DEPRECATED, text.join("\n"))
                }
            };
            let bundle: &[String] = if installed { &found.bundle } else { &[] };
            let all: Vec<String> = [&found.package, &found.channel, bundle].into_iter().flatten().cloned().collect();
            vec![
                say(condition::DEPRECATED, &all, "not deprecated"),
                say(condition::PACKAGE_DEPRECATED, &found.package, "package not deprecated"),
                say(condition::CHANNEL_DEPRECATED, &found.channel, "channel not deprecated"),
                if installed {
                    say(condition::BUNDLE_DEPRECATED, bundle, "bundle not deprecated")
                } else {
                    absent()
                },
            ]
        }
        Deprecations::Gone => vec![
            unknown(condition::DEPRECATED),
            unknown(condition::PACKAGE_DEPRECATED),
            unknown(condition::CHANNEL_DEPRECATED),
            if installed { unknown(condition::BUNDLE_DEPRECATED) } else { absent() },
        ],
        Deprecations::Unread => {
            let keep = |type_: &str| match condition::find(stored, type_) {
                Some(found) => Condition { observed_generation: Some(generation), ..found.clone() },
                None => unknown(type_),
            };
            vec![
                keep(condition::DEPRECATED),
                keep(condition::PACKAGE_DEPRECATED),
                keep(condition::CHANNEL_DEPRECATED),
                match (installed, condition::find(stored, condition::BUNDLE_DEPRECATED)) {
                    (false, _) => absent(),
                    (true, Some(found)) if found.reason != reason::ABSENT => keep(condition::BUNDLE_DEPRECATED),
                    (true, _) => unknown(condition::BUNDLE_DEPRECATED),
                },
            ]
        }
    }
}
