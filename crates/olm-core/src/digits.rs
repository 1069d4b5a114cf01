//! Hashes in hexadecimal digits, and in the digits of names, which are shorter.

const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as one big-endian number in base 36 or 62 (digits, lower case, upper case), without padding. A base above 62 counts as 62.
#[must_use]
pub fn digits(bytes: &[u8], base: u8) -> String {
    let base = usize::from(base).clamp(2, DIGITS.len());
    let mut number = bytes.to_vec();
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0_usize;
        for byte in &mut number {
            let value = rest * 256 + usize::from(*byte);
            // value / base is below 256 because the rest is below the base
            *byte = u8::try_from(value / base).unwrap_or(u8::MAX);
            rest = value % base;
        }
        digits.push(char::from(DIGITS[rest]));
    }
    if digits.is_empty() {
        digits.push('0');
    }
    digits.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_big_endian_numbers() {
        for (bytes, base, want) in [
            (&[0, 0][..], 36, "0"),
            (&[0, 36], 36, "10"),
            (&[1, 0, 0], 36, "1ekg"),
            (&[35], 36, "z"),
            (&[1, 0], 36, "74"),
            (&[61], 62, "Z"),
            (&[1, 0], 62, "48"),
            (&[255, 255, 255, 255], 62, "4GFfc3"),
        ] {
            assert_eq!(digits(bytes, base), want, "{bytes:?} in base {base}");
        }
    }
}
