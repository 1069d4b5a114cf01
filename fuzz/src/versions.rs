//! Versions, releases and ranges in both dialects, and the version limits of clusters.

use olm_core::openshift::{Stream, limit};
use olm_core::{Dialect, LooseVersion, Range, Release, Version, VersionRelease, check};

use crate::texts;

/// Range, version, release or another version. What is printed is read again as the same; order is an order; and where both
/// dialects mean the same, both answer the same.
pub(crate) fn versions(input: &[u8]) {
    let [range, version, other] = texts::<3>(input);
    let parsed = version.parse::<Version>().ok();
    if let Some(one) = &parsed {
        assert_eq!(one.to_string().parse::<Version>().as_ref(), Ok(one));
        assert_eq!(one.to_string(), version, "a strict version has one spelling");
        assert!(
            version.parse::<LooseVersion>().is_ok() || version.len() > 256,
            "strict but not loose: {version:?}"
        );
        let release = VersionRelease::legacy(one.clone());
        assert_eq!(release.folded().to_string(), one.to_string(), "the legacy rule loses nothing");
        assert_eq!(Stream::of_version(&version).ok(), Some(Stream::new(one.major(), one.minor())));
        if let Ok(two) = other.parse::<Version>() {
            assert_eq!(one.cmp(&two), two.cmp(one).reverse());
            assert_eq!(one == &two, one.cmp(&two).is_eq());
        }
    }
    if let Ok(loose) = version.parse::<LooseVersion>() {
        assert_eq!(loose.to_string(), version);
    }
    if let Ok(release) = other.parse::<Release>() {
        assert_eq!(release.as_str(), other);
        assert_eq!(release.as_str().parse::<Release>().as_ref(), Ok(&release));
    }
    if let Ok(pair) = VersionRelease::parse(&version, Some(&other)) {
        assert_eq!(
            VersionRelease::parse(&pair.version.to_string(), pair.release.as_ref().map(Release::as_str))
                .as_ref(),
            Ok(&pair)
        );
    }
    let ranges = [Dialect::Masterminds, Dialect::Blang].map(|dialect| {
        let _ = check(dialect, &range, &version);
        match Range::parse(dialect, &range) {
            Ok(read) => {
                assert_eq!(read.as_str(), range);
                let contains = parsed.as_ref().map(|version| read.contains(version));
                if let (Some(contains), Some(version)) = (contains, &parsed) {
                    let again = Range::parse(dialect, read.as_str()).map(|again| again.contains(version));
                    assert_eq!(again.ok(), Some(contains));
                    assert_eq!(read.contains(&version.without_build()), contains, "build metadata matters");
                    assert_eq!(check(dialect, &range, &version.to_string()).ok(), Some(contains));
                }
                Some(read)
            }
            Err(error) => {
                let place = error.position();
                assert!(range.get(place.clone()).is_some(), "{place:?} is no place in {range:?}");
                assert!(!error.to_string().is_empty() && !error.explain().is_empty());
                None
            }
        }
    });
    if let ([Some(masterminds), Some(blang)], Some(version)) = (&ranges, &parsed)
        && is_common(&range)
        && !version.is_prerelease()
    {
        assert_eq!(masterminds.contains(version), blang.contains(version), "{range:?} and {version}");
    }
    let _ = (Stream::of_target(&version), limit(&range));
    let quoted = serde_json::Value::from(version.as_str());
    if let Ok(Some(limit)) = limit(&format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":{quoted}}}]"#)) {
        assert_eq!(Stream::of_target(&limit.stream.to_string()), Ok(limit.stream), "a limit is a target");
        assert!(limit.stream.next() > limit.stream || limit.stream.minor == u64::MAX);
    }
}

/// Whether both dialects mean the same: comparisons with full release versions, separated by single spaces.
fn is_common(range: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    range.split(' ').all(|term| {
        let version = term.trim_start_matches(['<', '>']).trim_start_matches('=');
        let operator = &term[..term.len() - version.len()];
        let known = matches!(operator, "<" | ">" | "<=" | ">=" | "=");
        known && version.split('.').count() == 3 && version.split('.').all(number)
    })
}
