//! Durations as Go writes them (`12h`, `1m30s`, `1.5h`, `300ms`): flags, annotations and fields that users know from the reference.
//!
//! Negative durations are refused: nothing here has a use for one.

use std::str::FromStr;
use std::time::Duration;

/// A duration in Go syntax: one or more numbers with a unit (`ns`, `us`, `µs`, `ms`, `s`, `m`, `h`); a bare `0` is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub Duration);

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DurationError(String);

impl From<GoDuration> for Duration {
    fn from(value: GoDuration) -> Self {
        value.0
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || DurationError(format!("invalid duration {text:?}; write it like 12h or 1m30s"));
        let too_long = || DurationError(format!("duration {text:?} is too long"));
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        if let Some(rest) = unsigned.strip_prefix('-') {
            let negative = || DurationError(format!("duration {text:?} is negative"));
            return Err(if rest.is_empty() { invalid() } else { negative() });
        }
        if unsigned == "0" {
            return Ok(Self(Duration::ZERO));
        }
        if unsigned.is_empty() {
            return Err(invalid());
        }
        let mut nanoseconds: u128 = 0;
        let mut rest = unsigned;
        while !rest.is_empty() {
            let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, behind) = rest.split_at(number_end);
            let unit_end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
            let (unit, behind) = behind.split_at(unit_end);
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return Err(invalid());
            }
            if unit.is_empty() {
                let text = format!("missing unit in duration {text:?}; add one of ns, us, ms, s, m, h");
                return Err(DurationError(text));
            }
            let scale = scale(unit).ok_or_else(|| {
                let units = "use one of ns, us, ms, s, m, h";
                DurationError(format!("unknown unit {unit:?} in duration {text:?}; {units}"))
            })?;
            let part = nanoseconds_of(whole, fraction, scale);
            nanoseconds = part
                .and_then(|part| nanoseconds.checked_add(part))
                // about 292 years, Go's limit
                .filter(|sum| i64::try_from(*sum).is_ok())
                .ok_or_else(too_long)?;
            rest = behind;
        }
        let nanoseconds = u64::try_from(nanoseconds).map_err(|_| too_long())?;
        Ok(Self(Duration::from_nanos(nanoseconds)))
    }
}

/// Nanoseconds in one unit.
fn scale(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn nanoseconds_of(whole: &str, fraction: &str, scale: u128) -> Option<u128> {
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // digits beyond this are below a nanosecond for every unit
    let fraction = fraction.get(..fraction.len().min(18))?;
    let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let digits = u32::try_from(fraction.len()).ok()?;
    whole.checked_mul(scale)?.checked_add(parts * scale / 10_u128.pow(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_reads_what_go_reads() {
        for (text, want) in [
            ("0", 0),
            ("0s", 0),
            ("12h", 43_200_000_000_000),
            ("1m30s", 90_000_000_000),
            ("+1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("300ms", 300_000_000),
            ("2us3ns", 2_003),
            ("1µs", 1_000),
            ("0.0000000001s", 0),
            ("2540400h10m10s", 9_145_440_610_000_000_000),
        ] {
            assert_eq!(text.parse::<GoDuration>().map(|d| d.0.as_nanos()), Ok(want), "{text}");
        }
    }

    #[test]
    fn duration_rejects_with_a_reason() {
        for (text, want) in [
            ("", "invalid duration \"\"; write it like 12h or 1m30s"),
            ("h", "invalid duration \"h\"; write it like 12h or 1m30s"),
            ("1..5s", "invalid duration \"1..5s\"; write it like 12h or 1m30s"),
            (".s", "invalid duration \".s\"; write it like 12h or 1m30s"),
            ("12", "missing unit in duration \"12\"; add one of ns, us, ms, s, m, h"),
            ("12d", "unknown unit \"d\" in duration \"12d\"; use one of ns, us, ms, s, m, h"),
            ("-1s", "duration \"-1s\" is negative"),
            ("9999999999h", "duration \"9999999999h\" is too long"),
            (
                "99999999999999999999999999999999999999999h",
                "duration \"99999999999999999999999999999999999999999h\" is too long",
            ),
        ] {
            let got = text.parse::<GoDuration>().map_err(|error| error.to_string());
            assert_eq!(got, Err(want.to_owned()), "{text}");
        }
    }
}
