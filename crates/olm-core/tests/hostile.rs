//! Any text at all: no panic, and what is accepted prints as it came, except that references get the canonical registry.

use olm_core::{Digest, ImageRef, LooseVersion, Range, RangeError, Release, Version, go};
use proptest::prelude::*;

/// Texts near to what the parsers know, and texts of any kind.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9xX*v|.+ <>=!~^,a-]{0,40}",
        "(>=|<|\\^|~|!=|=|)v?[0-9]{1,20}(\\.[0-9x]{1,3}){0,3}(-[a-z0-9.]{1,5})?( \\|\\| | - |, | )?[0-9x.é٣]{0,9}",
        "[a-z0-9.:/@_A-Z-]{0,60}",
        "(quay.io|localhost:5000|\\[::1\\]:1|é)/[a-z/._é-]{0,20}(:[a-z0-9]{0,9})?(@(sha256|sha512|md5):[0-9a-f]{30,70})?",
        any::<String>(),
    ]
}

/// Every error can be explained, whatever the text is.
fn explained(error: &RangeError) -> bool {
    let position = error.position();
    position.start <= position.end && !error.explain().is_empty() && !error.to_string().is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsers_survive(text in text(), numbers in any::<[u8; 3]>()) {
        let [major, minor, patch] = numbers;
        let version: Version = format!("{major}.{minor}.{patch}-rc.1").parse().expect("a version");
        for parsed in [Range::masterminds(&text), Range::blang(&text)] {
            match parsed {
                Ok(range) => {
                    range.contains(&version);
                    prop_assert_eq!(range.to_string(), text.clone());
                    prop_assert!(range.memory() > text.len());
                }
                Err(error) => prop_assert!(explained(&error)),
            }
        }
        if let Ok(parsed) = text.parse::<Version>() {
            prop_assert_eq!(parsed.to_string(), text.clone());
            prop_assert!(text.parse::<LooseVersion>().is_ok() || text.len() > 256);
        }
        if let Ok(parsed) = text.parse::<Release>() {
            prop_assert_eq!(parsed.to_string(), text.clone());
        }
        match text.parse::<ImageRef>() {
            // the registry is normalised, the rest is as it came
            Ok(image) => {
                let canonical = image.to_string();
                prop_assert!(canonical.split_once('/').map(|(_, rest)| rest) == text.split_once('/').map(|(_, rest)| rest));
                prop_assert_eq!(canonical.parse::<ImageRef>().ok(), Some(image));
            }
            Err(error) => prop_assert!(error.hint(&text).is_none_or(|hint| !hint.is_empty())),
        }
        if let Ok(digest) = text.parse::<Digest>() {
            prop_assert_eq!(digest.to_string(), text.clone());
        }
        prop_assert!(go::quote(&text).len() >= text.len());
        let json = serde_json::Value::String(text);
        prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&go::json(&json)).ok(), Some(json));
    }
}
