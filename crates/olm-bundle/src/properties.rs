//! `metadata/properties.yaml` merged into the CSV annotation `olm.properties`. Rule: bundle-rendering §2.3.
//!
//! Properties of the CSV come first, those of the file follow; nothing is de-duplicated. Values stay as they are
//! written: members of a value in the CSV keep their order.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::csv::Csv;
use crate::documents::{DocumentError, NodeBudget};
use crate::registry::{PROPERTIES, ParseError};

/// The annotation of the CSV that holds properties.
pub const PROPERTIES_ANNOTATION: &str = "olm.properties";

/// Objects and lists that the annotation may have.
const ANNOTATION_NODES: u64 = 500_000;

/// Why properties of a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PropertiesError {
    /// The CSV annotation is no JSON list of properties.
    #[error("failed to unmarshal csv.metadata.annotations['olm.properties']: {message}")]
    Annotation { message: String },
    /// The file is no list of properties.
    #[error("failed to unmarshal metadata/properties.yaml: {message}")]
    File { message: String },
}

#[derive(Deserialize)]
struct Property<'a> {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default, borrow)]
    value: Option<&'a RawValue>,
}

/// Checks the annotation and appends the properties of the file to it.
pub(crate) fn merge(
    mut csv: Csv,
    file: Option<&[u8]>,
    budget: &mut NodeBudget<'_>,
) -> Result<Csv, ParseError> {
    let mut written = Vec::new();
    if let Some(text) = csv.annotations.get(PROPERTIES_ANNOTATION) {
        // each property begins with a bracket, and three bytes of text become a hundred in memory
        if text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count() as u64 > ANNOTATION_NODES {
            let message = format!("more than {ANNOTATION_NODES} objects and lists; remove properties");
            return Err(PropertiesError::Annotation { message }.into());
        }
        let properties: Option<Vec<Property<'_>>> = serde_json::from_str(text)
            .map_err(|error| PropertiesError::Annotation { message: error.to_string() })?;
        for property in properties.into_iter().flatten() {
            let value = property.value.map_or("null", RawValue::get);
            written.push(write(property.kind.as_deref().unwrap_or_default(), &compact(value)));
        }
    }
    let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(csv) };
    let wrong = |message: String| ParseError::from(PropertiesError::File { message });
    let limit = budget.limit();
    let document = budget.single_document(file).map_err(|error| match error {
        DocumentError::Nodes => ParseError::TooManyNodes { path: PROPERTIES.to_owned(), limit },
        DocumentError::Cancelled => ParseError::Cancelled,
        DocumentError::Invalid(message) => wrong(message),
    })?;
    let listed = match document.get("properties") {
        None | Some(Value::Null) if document.is_object() || document.is_null() => return Ok(csv),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(wrong("properties must be a list of {type, value}".to_owned())),
        None => return Err(wrong("the file must be an object with the member properties".to_owned())),
    };
    for (index, property) in listed.iter().enumerate() {
        let kind = match property.get("type") {
            None | Some(Value::Null) if property.is_object() => "",
            Some(Value::String(kind)) => kind,
            _ => return Err(wrong(format!("properties[{index}] must be an object whose type is a string"))),
        };
        written.push(write(kind, &olm_core::go::json_string(property.get("value").unwrap_or(&Value::Null))));
    }
    if written.is_empty() {
        return Ok(csv);
    }
    let merged = format!("[{}]", written.join(","));
    csv.raw.set_annotation(PROPERTIES_ANNOTATION, &merged);
    csv.annotations.insert(PROPERTIES_ANNOTATION.to_owned(), merged);
    Ok(csv)
}

fn write(kind: &str, value: &str) -> String {
    format!("{{\"type\":{},\"value\":{value}}}", olm_core::go::json_string(&Value::from(kind)))
}

/// JSON text without white space between tokens, characters that Go escapes escaped; order and spelling stay.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut quoted = false;
    let mut escaped = false;
    for c in json.chars() {
        if !quoted && c.is_ascii_whitespace() {
            continue;
        }
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
        if quoted && !escaped && c == '\\' {
            escaped = true;
            continue;
        }
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = false;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_keeps_order_and_escapes() {
        assert_eq!(
            compact("{ \"b\" : [1, 2.50],\n \"a\": \"x \\\" <y> \\\\\" , \"c\":\"&\" }"),
            "{\"b\":[1,2.50],\"a\":\"x \\\" \\u003cy\\u003e \\\\\",\"c\":\"\\u0026\"}"
        );
    }
}
