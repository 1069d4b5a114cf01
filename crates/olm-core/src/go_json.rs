//! JSON text exactly as Go's `encoding/json` writes it: compact, keys sorted, HTML-sensitive characters escaped.
//!
//! Used where bytes are hashed or compared with what the reference wrote. Reading JSON is not done here.

use serde_json::{Number, Value};

/// The value as compact JSON bytes with sorted keys and Go's escapes.
pub fn go_json(value: &Value) -> Vec<u8> {
    go_json_string(value).into_bytes()
}

/// The value as compact JSON text with sorted keys and Go's escapes.
pub fn go_json_string(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (index, (key, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_value(member, out);
            }
            out.push('}');
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Integers as they are; floats in the shortest form, with an exponent below 1e-6 and from 1e21.
fn write_number(number: &Number, out: &mut String) {
    let float = match number.as_f64() {
        Some(float) if number.is_f64() => float,
        _ => {
            out.push_str(&number.to_string());
            return;
        }
    };
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                out.push_str(digits);
                out.push_str("e+");
                out.push_str(exponent);
            }
            _ => out.push_str(&text),
        }
    } else {
        out.push_str(&format!("{float}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn go_json_escapes_and_sorts_as_go() {
        let value = json!({"b": "<a>&\u{2028}\u{2029}\u{7f}é\u{1}\u{8}\u{c}\n\"\\", "a": [1, -2, true, null, 1.5], "": {}});
        assert_eq!(
            go_json_string(&value),
            "{\"\":{},\"a\":[1,-2,true,null,1.5],\"b\":\"\\u003ca\\u003e\\u0026\\u2028\\u2029\u{7f}é\\u0001\\b\\f\\n\\\"\\\\\"}"
        );
    }

    #[test]
    fn go_json_prints_floats_as_go() {
        for (float, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (0.000001, "0.000001"),
            (0.00000015, "1.5e-7"),
            (3.0, "3"),
            (-0.1, "-0.1"),
        ] {
            assert_eq!(go_json_string(&json!(float)), want);
        }
    }
}
