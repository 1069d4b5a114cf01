//! Versions and ranges against the Go libraries that OLM uses: recorded answers, and fresh answers about generated
//! pairs from the program in `hack/oracles/semver`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on shall say so")]

mod differential;
mod generate;
mod recorded;

use olm_core::{LooseVersion, Range, Version};

/// A question to the libraries and to us.
#[derive(Debug, Clone)]
struct Question {
    /// `masterminds` (both sides by that library), `blang` (likewise), or `olm` (range by Masterminds, version by
    /// blang, as operator-controller does).
    dialect: &'static str,
    range: String,
    version: String,
}

/// What we say, in the words of the oracle.
fn answer(dialect: &str, range: &str, version: &str) -> String {
    let parsed = if dialect == "blang" { Range::blang(range) } else { Range::masterminds(range) };
    let range = match parsed {
        Ok(range) => range,
        Err(error) => return format!("range-error: {error}"),
    };
    if dialect == "masterminds" {
        return match version.parse::<LooseVersion>() {
            Ok(version) => range.contains_loose(&version).unwrap().to_string(),
            Err(error) => format!("version-error: {error}"),
        };
    }
    match version.parse::<Version>() {
        Ok(version) => range.contains(&version).to_string(),
        Err(error) => format!("version-error: {error}"),
    }
}
