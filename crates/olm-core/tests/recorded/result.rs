use olm_core::{CheckError, Dialect, Range, Version, check};

/// The result of `olm-core`, in the words of the oracle.
pub(crate) fn check_as_oracle(dialect: &str, range: &str, version: &str) -> String {
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
