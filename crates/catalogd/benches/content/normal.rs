//! A second opinion on the normal form: slow, by the book (rule: fbc §4), sharing no code with the product.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::Value;

/// JSON objects one after the other, as `catalog.jsonl` should have them.
pub(crate) fn lines(source: &[u8]) -> Result<Vec<u8>> {
    let mut out = String::new();
    for value in serde_json::Deserializer::from_slice(source).into_iter::<Value>() {
        write(&value?, &mut out)?;
        out.push('\n');
    }
    Ok(out.into_bytes())
}

fn write(value: &Value, out: &mut String) -> Result<()> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => {
            // only integers that every reader writes the same way; other numbers have tables of their own in olm-yaml
            let number = number.as_i64().filter(|number| number.unsigned_abs() < 1 << 53);
            ensure!(number.is_some(), "a number that this opinion does not cover");
            out.push_str(&number.unwrap_or_default().to_string());
        }
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write(item, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            let sorted: BTreeMap<&[u8], (&String, &Value)> =
                members.iter().map(|(key, value)| (key.as_bytes(), (key, value))).collect();
            out.push('{');
            for (at, (key, value)) in sorted.into_values().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                string(key, out);
                out.push(':');
                write(value, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", letter as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
}
