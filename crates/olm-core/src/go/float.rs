//! Floats with the fewest digits that read back as the same value, in the layouts of `encoding/json` and of `%v`.
//!
//! The digits come from `zmij`: std's formatter rounds exact ties of the shortest form up, Go's to even.

/// A finite double as `encoding/json` prints it (fbc §4.2): plain decimal for 1e-6 ≤ |x| < 1e21, else an exponent
/// without leading zeros. Infinities and NaN have no JSON form; they print as `null`.
///
/// ```
/// # use olm_core::go::json_number;
/// assert_eq!(json_number(1e21), "1e+21");
/// assert_eq!(json_number(1.50), "1.5");
/// assert_eq!(json_number(-0.0), "-0");
/// ```
pub fn json_number(number: f64) -> String {
    if !number.is_finite() {
        return "null".to_owned();
    }
    Decimal::shortest(number).print(-6..21, 1)
}

/// A finite double as `%v` prints it: with an exponent of at least two digits below 1e-4 and from 1e6.
pub fn general(number: f64) -> String {
    Decimal::shortest(number).print(-4..6, 2)
}

/// As [`general`], with the digits of a `float32`.
pub fn general_f32(number: f32) -> String {
    Decimal::shortest(number).print(-4..6, 2)
}

/// 0.DIGITS × 10^point, without zeros at either end; zero has no digits.
struct Decimal {
    negative: bool,
    digits: String,
    point: i32,
}

impl Decimal {
    fn shortest(number: impl zmij::Float) -> Self {
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(number);
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |size| (true, size));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let digits = all.trim_start_matches('0');
        let point = whole.len() as i32 - (all.len() - digits.len()) as i32 + exponent.parse().unwrap_or(0);
        Self { negative, digits: digits.trim_end_matches('0').to_owned(), point }
    }

    /// Plain decimal for decimal exponents in `plain`, else an exponent of at least `width` digits.
    fn print(&self, plain: std::ops::Range<i32>, width: usize) -> String {
        let Self { digits, point, .. } = self;
        let sign = if self.negative { "-" } else { "" };
        if digits.is_empty() {
            return format!("{sign}0");
        }
        let exponent = point - 1;
        if !plain.contains(&exponent) {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let direction = if exponent < 0 { '-' } else { '+' };
            let size = exponent.unsigned_abs();
            return format!("{sign}{first}{dot}{rest}e{direction}{size:0width$}");
        }
        match usize::try_from(*point) {
            Ok(point @ 1..) if point < digits.len() => {
                format!("{sign}{}.{}", &digits[..point], &digits[point..])
            }
            Ok(point @ 1..) => format!("{sign}{digits:0<point$}"),
            _ => format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Go 1.26 prints: `json.Marshal(x)`, `%v` and `FormatFloat(float32(x), 'g', -1, 32)`.
    const GO: [(f64, &str, &str, &str); 26] = [
        (0.0, "0", "0", "0"),
        (-0.0, "-0", "-0", "-0"),
        (1.0, "1", "1", "1"),
        (1.5, "1.5", "1.5", "1.5"),
        (-2.5e-9, "-2.5e-9", "-2.5e-09", "-2.5e-09"),
        (100000.0, "100000", "100000", "100000"),
        (999999.0, "999999", "999999", "999999"),
        (1e6, "1000000", "1e+06", "1e+06"),
        (1234567.0, "1234567", "1.234567e+06", "1.234567e+06"),
        (123456789.123, "123456789.123", "1.23456789123e+08", "1.2345679e+08"),
        (1e20, "100000000000000000000", "1e+20", "1e+20"),
        (1e21, "1e+21", "1e+21", "1e+21"),
        (1e23, "1e+23", "1e+23", "1e+23"),
        (0.0001, "0.0001", "0.0001", "0.0001"),
        (0.00001234, "0.00001234", "1.234e-05", "1.234e-05"),
        (0.000001, "0.000001", "1e-06", "1e-06"),
        (0.0000009, "9e-7", "9e-07", "9e-07"),
        (5e-324, "5e-324", "5e-324", "0"),
        (1e30, "1e+30", "1e+30", "1e+30"),
        (1.5e300, "1.5e+300", "1.5e+300", ""),
        (f64::MAX, "1.7976931348623157e+308", "1.7976931348623157e+308", ""),
        (9007199254740992.0, "9007199254740992", "9.007199254740992e+15", "9.007199e+15"),
        (18446744073709551615.0, "18446744073709552000", "1.8446744073709552e+19", "1.8446744e+19"),
        (12345678901234567.0, "12345678901234568", "1.2345678901234568e+16", "1.2345678e+16"),
        (0.12345678901234568, "0.12345678901234568", "0.12345678901234568", "0.12345679"),
        (4503599627370497.5, "4503599627370498", "4.503599627370498e+15", "4.5035996e+15"),
    ];

    #[test]
    fn float_prints_as_go() {
        for (number, json, verb, single) in GO {
            assert_eq!(json_number(number), json, "{number:e}");
            assert_eq!(general(number), verb, "{number:e}");
            if !single.is_empty() {
                assert_eq!(general_f32(number as f32), single, "{number:e}");
            }
        }
    }

    #[test]
    fn float_rounds_exact_ties_to_even_as_go() {
        for (tie, go, std) in [
            ("681614239086160.25", "681614239086160.2", "681614239086160.3"),
            ("-681614239086160.25", "-681614239086160.2", "-681614239086160.3"),
            ("562949953421312.25", "562949953421312.2", "562949953421312.3"),
            ("1125899906842624.25", "1125899906842624.2", "1125899906842624.3"),
            ("1125899906842624.75", "1125899906842624.8", "1125899906842624.8"),
        ] {
            let tie: f64 = tie.parse().unwrap();
            assert_eq!(json_number(tie), go);
            assert_eq!(format!("{tie}"), std);
        }
    }
}
