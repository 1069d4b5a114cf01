//! Whether an extension may keep what is installed although nothing could be resolved.
//!
//! Rule: operator-controller §3.4 (ResolveBundle, step 5) with the range evaluated and unavailable catalogs counted as absent.

use olm_core::Range;

use crate::installed::Installed;

#[derive(Debug, Clone, Copy)]
pub struct FallbackFacts<'a> {
    pub installed: Option<&'a Installed>,
    pub range: Option<&'a Range>,
    /// Number of selected catalogs that are available and whose content (also the last known one) could be read.
    pub readable_catalogs: usize,
}

/// What to do after a failed resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// Keep and maintain the installed bundle as if it had been resolved.
    KeepInstalled,
    /// Report the failure and try again.
    Retry(WhyRetry),
}

/// Why the installed bundle does not stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyRetry {
    NothingInstalled,
    /// A catalog was read, so its answer counts.
    CatalogReadable,
    /// The installed version is outside the range asked for.
    OutOfRange,
}

pub fn fallback(facts: &FallbackFacts<'_>) -> Fallback {
    let Some(installed) = facts.installed else { return Fallback::Retry(WhyRetry::NothingInstalled) };
    if facts.readable_catalogs > 0 {
        return Fallback::Retry(WhyRetry::CatalogReadable);
    }
    match facts.range {
        Some(range) if !range.contains(&installed.version.version) => Fallback::Retry(WhyRetry::OutOfRange),
        Some(_) | None => Fallback::KeepInstalled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallback_needs_no_readable_catalog_and_the_range() {
        let installed = Installed::parse("p.v1.0.0", "1.0.0", None).unwrap();
        for (installed, range, readable, want) in [
            (None, None, 0, Fallback::Retry(WhyRetry::NothingInstalled)),
            (Some(&installed), None, 0, Fallback::KeepInstalled),
            (Some(&installed), None, 1, Fallback::Retry(WhyRetry::CatalogReadable)),
            (Some(&installed), Some("1.x"), 0, Fallback::KeepInstalled),
            (Some(&installed), Some("1.0.0"), 0, Fallback::KeepInstalled),
            (Some(&installed), Some(">1.0.0"), 0, Fallback::Retry(WhyRetry::OutOfRange)),
        ] {
            let range = range.map(|text| Range::masterminds(text).unwrap());
            let facts = FallbackFacts { installed, range: range.as_ref(), readable_catalogs: readable };
            assert_eq!(fallback(&facts), want, "{facts:?}");
        }
    }
}
