//! Text quoted as `%q` quotes it; many messages of OLM contain such quotes.

/// Quotes a text as Go's `%q` does: printable characters stay, others become Go's escapes.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    text.chars().for_each(|c| push(c, &mut quoted));
    quoted.push('"');
    quoted
}

/// Quotes a byte as Go's JSON decoder does in `invalid character 'x'`.
pub fn quote_byte(byte: u8) -> String {
    let mut escaped = String::new();
    match byte {
        b'"' => escaped.push('"'),
        b'\'' => escaped.push_str("\\'"),
        _ => push(byte.into(), &mut escaped),
    }
    format!("'{escaped}'")
}

fn push(c: char, quoted: &mut String) {
    match c {
        '"' => quoted.push_str("\\\""),
        '\\' => quoted.push_str("\\\\"),
        '\u{7}' => quoted.push_str("\\a"),
        '\u{8}' => quoted.push_str("\\b"),
        '\u{c}' => quoted.push_str("\\f"),
        '\n' => quoted.push_str("\\n"),
        '\r' => quoted.push_str("\\r"),
        '\t' => quoted.push_str("\\t"),
        '\u{b}' => quoted.push_str("\\v"),
        ' '..='~' => quoted.push(c),
        '\0'..='\u{7f}' => quoted.push_str(&format!("\\x{:02x}", c as u32)),
        c if is_printable(c) => quoted.push(c),
        c if (c as u32) < 0x1_0000 => quoted.push_str(&format!("\\u{:04x}", c as u32)),
        c => quoted.push_str(&format!("\\U{:08x}", c as u32)),
    }
}

/// Whether a character beyond ASCII is printable. The letter in front keeps combining marks from being escaped.
fn is_printable(c: char) -> bool {
    !format!("a{c}").escape_debug().any(|escaped| escaped == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_escapes_as_go() {
        for (text, want) in [
            ("a\"b\\", r#""a\"b\\""#),
            ("\0\u{7}\t\u{b}\u{7f}", r#""\x00\a\t\v\x7f""#),
            ("é\u{301}日", "\"é\u{301}日\""),
            ("\u{a0}\u{85}\u{200b}\u{feff}", r#""\u00a0\u0085\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), want);
        }
    }

    #[test]
    fn quote_byte_escapes_as_go() {
        for (byte, want) in [
            (b'a', "'a'"),
            (b'"', "'\"'"),
            (b'\'', r"'\''"),
            (b'\\', r"'\\'"),
            (b'\n', r"'\n'"),
            (0x01, r"'\x01'"),
            (0x7f, r"'\x7f'"),
        ] {
            assert_eq!(quote_byte(byte), want);
        }
        let escaped: Vec<u8> = (0x80..=0xff).filter(|&byte| quote_byte(byte).contains('\\')).collect();
        let want: Vec<u8> = (0x80..=0xa0).chain([0xad]).collect();
        assert_eq!(escaped, want);
    }
}
