//! Text quoted as Go's `%q` quotes it; many messages of OLM contain such quotes.

/// Quotes a text as Go's `%q` does: printable characters stay, others become Go's escapes.
pub fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
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
    quoted.push('"');
    quoted
}

/// Whether a character beyond ASCII is printable. The letter in front keeps combining marks from being escaped.
fn is_printable(c: char) -> bool {
    !format!("a{c}").escape_debug().any(|escaped| escaped == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        for (text, want) in [
            ("a\"b\\", r#""a\"b\\""#),
            ("\0\u{7}\t\u{b}\u{7f}", r#""\x00\a\t\v\x7f""#),
            ("é\u{301}日", "\"é\u{301}日\""),
            ("\u{a0}\u{85}\u{200b}\u{feff}", r#""\u00a0\u0085\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(go_quote(text), want);
        }
    }
}
