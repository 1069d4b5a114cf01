//! JSON as `encoding/json` writes it: compact, keys sorted, HTML-sensitive characters escaped.

use serde_json::{Map, Value};

use super::json_number;

/// As [`json_string`], in bytes.
pub fn json(value: &Value) -> Vec<u8> {
    json_string(value).into_bytes()
}

/// The value as compact JSON text with sorted keys and Go's escapes.
pub fn json_string(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

/// As [`json_string`], of the members of an object.
pub fn json_object(members: &Map<String, Value>) -> String {
    let mut out = String::new();
    write_object(members, &mut out);
    out
}

fn write_object(members: &Map<String, Value>, out: &mut String) {
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

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => out.push_str(&json_number(float)),
            _ => out.push_str(&number.to_string()),
        },
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
        Value::Object(members) => write_object(members, out),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_escapes_and_sorts_as_go() {
        let value = json!({"b": "<a>&\u{2028}\u{2029}\u{7f}é\u{1}\u{8}\u{c}\n\"\\", "a": [1, -2, true, null, 1.50, 681614239086160.2], "": {}});
        assert_eq!(
            json_string(&value),
            "{\"\":{},\"a\":[1,-2,true,null,1.5,681614239086160.2],\"b\":\"\\u003ca\\u003e\\u0026\\u2028\\u2029\u{7f}é\\u0001\\b\\f\\n\\\"\\\\\"}"
        );
    }
}
