//! Numbers as Go's `encoding/json` writes a `float64` (fbc §4.2): the shortest digits that read back as the
//! same double, plain decimal for 1e-6 ≤ |x| < 1e21, else an exponent without leading zeros.
//!
//! The digits come from `zmij`: std's formatter rounds exact ties of the shortest form up, Go's to even.

use std::fmt;

/// A finite double that prints as Go's JSON encoder prints it.
///
/// ```
/// # use olm_yaml::GoNumber;
/// assert_eq!(GoNumber(1e21).to_string(), "1e+21");
/// assert_eq!(GoNumber(1.50).to_string(), "1.5");
/// assert_eq!(GoNumber(-0.0).to_string(), "-0");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoNumber(pub f64);

impl GoNumber {
    /// Appends the text. Infinities and NaN have no JSON form; they are written as `null`.
    pub fn push(self, out: &mut Vec<u8>) {
        if !self.0.is_finite() {
            out.extend_from_slice(b"null");
            return;
        }
        if self.0.is_sign_negative() {
            out.push(b'-');
        }
        let size = self.0.abs();
        if size == 0.0 {
            out.push(b'0');
            return;
        }
        let mut buffer = zmij::Buffer::new();
        let (digits, point) = decimal(buffer.format_finite(size));
        if (1e-6..1e21).contains(&size) {
            push_plain(&digits, point, out)
        } else {
            push_exponent(&digits, point, out)
        }
    }

    /// The text Go's `strconv.FormatFloat(x, 'g', -1, 32)` makes, which is how float keys of a YAML mapping
    /// become JSON keys.
    pub(crate) fn as_key(self) -> Vec<u8> {
        let narrow = self.0 as f32;
        let mut out = Vec::new();
        if narrow.is_infinite() {
            out.extend_from_slice(if narrow > 0.0 { b".inf" } else { b"-.inf" });
            return out;
        }
        if narrow.is_nan() {
            out.extend_from_slice(b".nan");
            return out;
        }
        if narrow.is_sign_negative() {
            out.push(b'-');
        }
        let size = narrow.abs();
        if size == 0.0 {
            out.push(b'0');
            return out;
        }
        let mut buffer = zmij::Buffer::new();
        let (digits, point) = decimal(buffer.format_finite(size));
        let exponent = point - 1;
        if !(-4..6).contains(&exponent) {
            let mut text = Vec::new();
            push_exponent(&digits, point, &mut text);
            // Go pads the exponent of %g to two digits
            let sign = text.iter().rposition(|b| matches!(b, b'+' | b'-'));
            if let Some(at) = sign.filter(|at| text.len() - at == 2) {
                text.insert(at + 1, b'0');
            }
            out.extend_from_slice(&text);
        } else {
            push_plain(&digits, point, &mut out);
        }
        out
    }
}

impl fmt::Display for GoNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::with_capacity(24);
        self.push(&mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

/// Splits formatted text into significant digits and the place of the decimal point: value =
/// 0.DIGITS × 10^point.
fn decimal(text: &str) -> (Vec<u8>, i32) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let mut point = i32::try_from(whole.len()).unwrap_or(0) + exponent;
    let leading = digits.iter().take_while(|&&d| d == b'0').count();
    digits.drain(..leading);
    point -= i32::try_from(leading).unwrap_or(0);
    while digits.last() == Some(&b'0') {
        digits.pop();
    }
    (digits, point)
}

fn push_plain(digits: &[u8], point: i32, out: &mut Vec<u8>) {
    match usize::try_from(point) {
        Err(_) | Ok(0) => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + point.unsigned_abs() as usize, b'0');
            out.extend_from_slice(digits);
        }
        Ok(point) if point >= digits.len() => {
            out.extend_from_slice(digits);
            out.resize(out.len() + point - digits.len(), b'0');
        }
        Ok(point) => {
            out.extend_from_slice(&digits[..point]);
            out.push(b'.');
            out.extend_from_slice(&digits[point..]);
        }
    }
}

fn push_exponent(digits: &[u8], point: i32, out: &mut Vec<u8>) {
    if let [first, rest @ ..] = digits {
        out.push(*first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
    }
    let exponent = point - 1;
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    out.extend_from_slice(exponent.unsigned_abs().to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_prints_as_go() {
        for (input, want) in [
            (1.0, "1"),
            (1.5, "1.5"),
            (1e5, "100000"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1e23, "1e+23"),
            (0.000001, "0.000001"),
            (1e-5, "0.00001"),
            (0.0000009, "9e-7"),
            (1e-7, "1e-7"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            ("9007199254740993".parse().unwrap(), "9007199254740992"),
            (18446744073709551615.0, "18446744073709552000"),
            (12345678901234567.0, "12345678901234568"),
            ("0.1234567890123456789".parse().unwrap(), "0.12345678901234568"),
            (123456789.123, "123456789.123"),
            ("681614239086160.25".parse().unwrap(), "681614239086160.2"),
            (-0.0, "-0"),
            (0.0, "0"),
            (-2.5e-9, "-2.5e-9"),
        ] {
            assert_eq!(GoNumber(input).to_string(), want, "{input:e}");
        }
    }

    #[test]
    fn number_keys_are_narrowed_to_32_bits() {
        for (input, want) in [
            (1.5, "1.5"),
            (1.23456789, "1.2345679"),
            (1e30, "1e+30"),
            (1e-5, "1e-05"),
            (100000.0, "100000"),
            (1000000.0, "1e+06"),
            (123456789.0, "1.2345679e+08"),
            (-0.0, "-0"),
        ] {
            assert_eq!(String::from_utf8(GoNumber(input).as_key()).unwrap(), want, "{input}");
        }
    }
}
