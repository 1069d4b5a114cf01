//! `docs/reference/api.md` from the CRDs: each field with its type, what it may hold and what it means.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

const HEAD: &str = "# API\n\nMade from `api/` by `make generate`; do not edit. Group `olm.operatorframework.io`, version `v1`, all kinds are\n\
    cluster-scoped. `kubectl explain` prints the same on a cluster.\n";

/// The page.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let mut page = HEAD.to_owned();
    for crd in olm_api::crds().context("cannot make the CRDs")? {
        let names = &crd.spec.names;
        let version = crd.spec.versions.first().context("a CRD without a version")?;
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let schema = serde_json::to_value(schema.context("a CRD without a schema")?)?;
        let _ = writeln!(page, "\n## {}\n\n`{}`\n", names.kind, names.plural);
        if let Some(text) = schema["description"].as_str() {
            let _ = writeln!(page, "{}\n", cell(text));
        }
        page.push_str("| field | type | rules | meaning |\n|---|---|---|---|\n");
        for part in ["spec", "status"] {
            rows(&mut page, part, &schema["properties"][part], &schema["required"]);
        }
    }
    Ok(vec![(PathBuf::from("docs/reference/api.md"), page)])
}

/// One row for the field `path`, then its own fields.
fn rows(page: &mut String, path: &str, schema: &Value, required: &Value) {
    let name = path.rsplit('.').next().unwrap_or(path);
    let must = required.as_array().is_some_and(|names| names.iter().any(|it| it == name));
    let rules: Vec<String> = must.then(|| "required".to_owned()).into_iter().chain(limits(schema)).collect();
    let text = schema["description"].as_str().map(cell).unwrap_or_default();
    let _ = writeln!(page, "| `{path}` | {} | {} | {text} |", kind(schema), rules.join("; "));
    let (inner, path) = match &schema["items"] {
        Value::Null => (schema, path.to_owned()),
        items => (items, format!("{path}[]")),
    };
    // conditions are what they are everywhere
    let known = path.ends_with("conditions[]");
    if let Some(fields) = inner["properties"].as_object().filter(|_| !known) {
        for (field, schema) in fields {
            rows(page, &format!("{path}.{field}"), schema, &inner["required"]);
        }
    }
}

fn kind(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        Some(name) => match schema["format"].as_str() {
            Some(format) => format!("{name} ({format})"),
            None => name.to_owned(),
        },
        None => "any".to_owned(),
    }
}

/// What the apiserver demands, in words.
fn limits(schema: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{}`", plain(value))).collect();
        all.push(format!("one of {}", values.join(", ")));
    }
    if !schema["default"].is_null() {
        all.push(format!("default `{}`", plain(&schema["default"])));
    }
    for (key, word) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "length at least"),
        ("maxLength", "length at most"),
        ("minItems", "items at least"),
        ("maxItems", "items at most"),
    ] {
        if let Some(number) = schema[key].as_f64() {
            all.push(format!("{word} {number}"));
        }
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        if let Some(message) = rule["message"].as_str() {
            all.push(cell(message));
        }
    }
    all
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// On one line, and nothing in it ends a cell or begins a tag; in code, `<` stands for itself.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace('|', "\\|");
    let parts = line.split('`').enumerate();
    let parts: Vec<String> = parts
        .map(|(at, part)| if at % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() })
        .collect();
    parts.join("`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reference_reasons_are_in_the_troubleshooting_page() {
        let reasons = include_str!("../../../api/src/reason.rs");
        let page = include_str!("../../../docs/troubleshooting.md");
        let named: Vec<&str> =
            reasons.lines().filter_map(|line| line.strip_prefix("pub const ")?.split('"').nth(1)).collect();
        assert!(named.len() > 20, "{named:?}");
        let missing: Vec<_> =
            named.iter().filter(|reason| !page.contains(&format!("| `{reason}` |"))).collect();
        assert!(missing.is_empty(), "docs/troubleshooting.md does not explain {missing:?}");
    }

    #[test]
    fn reference_cell_escapes_tags_outside_of_code() {
        assert_eq!(cell("a < b, `>=, <=` |\n <c>"), "a &lt; b, `>=, <=` \\| &lt;c>");
    }

    #[test]
    fn reference_field_has_its_rules() {
        let schema = json!({
            "type": "object",
            "description": "a\n request | more",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "maxLength": 63, "x-kubernetes-validations": [{"rule": "x", "message": "is immutable"}]},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["A", "B"], "default": "A"}}}},
                "any": {},
            },
        });
        let mut page = String::new();
        rows(&mut page, "spec", &schema, &json!(["spec"]));
        assert_eq!(
            page,
            "| `spec` | object | required | a request \\| more |\n\
             | `spec.any` | any |  |  |\n\
             | `spec.name` | string | required; length at most 63; is immutable |  |\n\
             | `spec.parts` | list of object |  |  |\n\
             | `spec.parts[].kind` | string | one of `A`, `B`; default `A` |  |\n"
        );
    }
}
