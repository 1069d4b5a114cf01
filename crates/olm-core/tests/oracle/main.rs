//! Versions and ranges against the Go libraries that OLM uses: recorded answers, and fresh answers about generated
//! pairs from the program in `hack/oracles/semver`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on shall say so")]

mod differential;
mod generate;
mod recorded;

use olm_core::{CheckError, Dialect, Range, Version, check};

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
    let checked = match dialect {
        "blang" => check(Dialect::Blang, range, version),
        "masterminds" => check(Dialect::Masterminds, range, version),
        "olm" => Range::masterminds(range).map_err(CheckError::Range).and_then(|range| {
            let version =
                version.parse::<Version>().map_err(|error| CheckError::Version(error.to_string()))?;
            Ok(range.contains(&version))
        }),
        other => panic!("no such dialect: {other}"),
    };
    checked.map_or_else(|error| error.to_string(), |contained| contained.to_string())
}
