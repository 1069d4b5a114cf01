//! JSON values as readable block YAML.
//!
//! Only for our own generated files: it writes what we need and reads nothing. A string is written plainly when no YAML 1.1 or
//! 1.2 reader could take it for something else, as a literal block when it has lines, and in double quotes otherwise.

use std::fmt::Write as _;

use serde_json::Value;

/// The document, ending in a newline.
pub(crate) fn block(value: &Value) -> String {
    let mut out = String::new();
    node(&mut out, value, 0, Position::Line);
    out
}

/// Where the next value is written.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    /// At the start of a line.
    Line,
    /// Behind `key:`.
    Key,
    /// Behind `- `.
    Item,
}

fn node(out: &mut String, value: &Value, depth: usize, position: Position) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (index, (key, member)) in members.iter().enumerate() {
                start(out, depth, position, index);
                out.push_str(&scalar(key));
                out.push(':');
                node(out, member, depth + 1, Position::Key);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            // items of a list that is a member stand below the key, not deeper
            let depth = if position == Position::Key { depth - 1 } else { depth };
            for (index, item) in items.iter().enumerate() {
                start(out, depth, position, index);
                out.push('-');
                node(out, item, depth + 1, Position::Item);
            }
        }
        Value::String(text) if text.contains('\n') && literal_block(text) => {
            space(out, position);
            out.push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
            for line in text.trim_end_matches('\n').split('\n') {
                if !line.is_empty() {
                    indent(out, depth);
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        leaf => {
            space(out, position);
            match leaf {
                Value::String(text) => out.push_str(&scalar(text)),
                other => {
                    // numbers, booleans, null and empty collections look the same in YAML
                    let _ = write!(out, "{other}");
                }
            }
            out.push('\n');
        }
    }
}

fn start(out: &mut String, depth: usize, position: Position, index: usize) {
    match (position, index) {
        (Position::Item, 0) => out.push(' '),
        (Position::Key, 0) => {
            out.push('\n');
            indent(out, depth);
        }
        (Position::Line | Position::Key | Position::Item, _) => indent(out, depth),
    }
}

fn space(out: &mut String, position: Position) {
    if position != Position::Line {
        out.push(' ');
    }
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

/// Whether a literal block can hold the text as it is.
fn literal_block(text: &str) -> bool {
    !text.starts_with([' ', '\n'])
        && !text.ends_with("\n\n")
        && text.chars().all(|c| c == '\n' || (c >= ' ' && c != '\u{7f}' && c != '\u{85}' && c != '\u{feff}'))
}

fn scalar(text: &str) -> String {
    if plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

fn plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let ordinary = |c: char| c.is_ascii_alphanumeric() || " _-./(),;'`*+<>=$^@|".contains(c);
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    first.is_ascii_alphabetic() && !text.ends_with(' ') && !word && text.chars().all(ordinary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_writes_blocks() {
        let value = json!({
            "a": { "b": [1, true, null, "x y", {"k": "v", "l": []}, [1, 2], {}] },
            "empty": "", "number": "1", "bool": "yes", "colon": "a: b", "dash": "- a", "regex": "^a$",
            "lines": "one\n\n  two\n", "open": "one\ntwo", "odd": " lead\nx"
        });
        let want = r#"a:
  b:
  - 1
  - true
  - null
  - x y
  - k: v
    l: []
  - - 1
    - 2
  - {}
bool: "yes"
colon: "a: b"
dash: "- a"
empty: ""
lines: |
  one

    two
number: "1"
odd: " lead\nx"
open: |-
  one
  two
regex: "^a$"
"#;
        assert_eq!(block(&value), want);
    }
}
