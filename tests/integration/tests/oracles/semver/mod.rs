//! Versions and ranges against fresh answers of the Go libraries that OLM uses, by the program in `hack/oracles/semver`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod differential;
mod generate;
#[path = "../../../../../crates/olm-core/tests/recorded/result.rs"]
mod result;

use result::check_as_oracle;

/// A question to the libraries and to `olm-core`.
#[derive(Debug, Clone)]
struct Question {
    /// `masterminds` (both sides by that library), `blang` (likewise), or `olm` (range by Masterminds, version by
    /// blang, as operator-controller does).
    dialect: &'static str,
    range: String,
    version: String,
}
