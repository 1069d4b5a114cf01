//! One object of a catalog and the three members that every object may have (fbc §4.1).

use std::borrow::Cow;

use olm_core::go;
use olm_yaml::{Document, Limits, Normaliser};
use unicase::UniCase;

/// The members by which objects are found. Empty means absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// What kind of object it is, such as `olm.bundle`.
    pub schema: String,
    pub package: String,
    pub name: String,
}

/// One object with its normalised bytes. Empty texts are absent members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    pub schema: String,
    pub package: String,
    pub name: String,
    /// Normalised JSON without a line end; empty for a document without content.
    pub blob: Vec<u8>,
}

impl Meta {
    /// Reads one JSON object, such as a line of `catalog.jsonl`.
    ///
    /// # Errors
    /// Go's message for broken JSON, for something that is no object, or a rule of fbc §4.1.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let mut normaliser = Normaliser::new();
        let mut blob = Vec::with_capacity(line.len());
        let used = normaliser.value(line, &mut blob, &Limits::default()).map_err(|error| error.message)?;
        if let Some(byte) = line[used..].iter().find(|b| !b.is_ascii_whitespace()) {
            return Err(format!("invalid character {} after top-level value", go::quote_byte(*byte)));
        }
        let document = Document { json: &blob, members: normaliser.members(), origin: Default::default() };
        let head = head(&document)?;
        Ok(Self { blob, ..Self::from(head) })
    }

    /// Whether the object belongs to `package`: by its `package` member or, for `olm.package`, by its name.
    pub fn is_of(&self, package: &str) -> bool {
        let owner = if self.schema == crate::schema::PACKAGE { &self.name } else { &self.package };
        owner == package
    }
}

impl From<Head> for Meta {
    fn from(head: Head) -> Self {
        Self { schema: head.schema, package: head.package, name: head.name, blob: Vec::new() }
    }
}

/// Finds schema, package and name in a document, which must be an object or empty.
///
/// # Errors
/// The messages of fbc §4.1 and of Go's decoder.
pub fn head(document: &Document<'_>) -> Result<Head, String> {
    match document.kind() {
        "object" => {}
        "null" => return Ok(Head::default()),
        kind => {
            return Err(format!(
                "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            ));
        }
    }
    let mut head = Head::default();
    let mut wrong = [const { None }; 3];
    let mut may_fold = false;
    for member in document.members {
        let key = &document.json[member.key()];
        may_fold |=
            key.iter().any(|b| !(b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'.' || *b == b'_'));
        // only these letters fold into the three names
        let Some(slot) = slot(key) else { continue };
        let value = &document.json[member.value()];
        let Ok(text) = serde_json::from_slice(value) else {
            wrong[slot] = Some((member.key_text(document.json), value));
            continue;
        };
        match slot {
            0 => head.schema = text,
            1 => head.package = text,
            _ => head.name = text,
        }
    }
    if may_fold {
        duplicates(document)?;
    }
    match wrong.into_iter().flatten().next() {
        None => Ok(head),
        Some((key, value)) => {
            let (key, value) = (String::from_utf8_lossy(&key), String::from_utf8_lossy(value));
            Err(format!("expected value for key {} to be a string, got {value}", go::quote(&key)))
        }
    }
}

fn slot(key: &[u8]) -> Option<usize> {
    let names: [&[u8]; 3] = [b"schema", b"package", b"name"];
    if let Some(slot) = names.iter().position(|name| key.eq_ignore_ascii_case(name)) {
        return Some(slot);
    }
    if key.is_ascii() {
        return None;
    }
    let folded = fold(std::str::from_utf8(key).ok()?);
    names.iter().position(|name| folded.as_bytes() == *name)
}

fn fold(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            text.to_ascii_lowercase().into()
        } else {
            text.into()
        }
    } else {
        UniCase::unicode(text).to_folded_case().into()
    }
}

/// Refuses keys of the outermost object that differ only in case.
fn duplicates(document: &Document<'_>) -> Result<(), String> {
    let mut keys: Vec<(String, String)> = document
        .members
        .iter()
        .map(|member| {
            let key = String::from_utf8_lossy(&member.key_text(document.json)).into_owned();
            (fold(&key).into_owned(), key)
        })
        .collect();
    keys.sort();
    let messages: Vec<String> = keys
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|group| group.len() > 1)
        .map(|group| {
            let spellings: Vec<&str> = group.iter().map(|(_, key)| key.as_str()).collect();
            format!("duplicate keys for key {}: [{}]", go::quote(&group[0].0), spellings.join(" "))
        })
        .collect();
    match messages.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_heads_are_those_of_fbc_4_1() {
        for (input, want) in [
            (r#"{"schema":"s","package":"p","name":"n","x":1}"#, ("s", "p", "n")),
            (r#"{"Schema":"s","NAME":"n"}"#, ("s", "", "n")),
            ("{\"\u{17f}chema\":\"s\"}", ("s", "", "")),
            ("{\"pac\u{212a}age\":\"p\"}", ("", "p", "")),
            (r#"{"v":{"A":1,"a":2},"name":""}"#, ("", "", "")),
            (r#"{"name":"a\nb"}"#, ("", "", "a\nb")),
            ("null", ("", "", "")),
        ] {
            let meta = Meta::parse(input.as_bytes()).unwrap();
            assert_eq!((&*meta.schema, &*meta.package, &*meta.name), want, "{input}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn meta_errors_of_fbc_4_1() {
        for (input, want) in [
            (r#"{"Name":"a","name":"b"}"#, r#"duplicate keys for key "name": [Name name]"#),
            ("{\"Straße\":1,\"STRASSE\":2}", "duplicate keys for key \"strasse\": [STRASSE Straße]"),
            (r#"{"B":1,"b":2,"A":1,"a":1}"#, r#"[duplicate keys for key "a": [A a], duplicate keys for key "b": [B b]]"#),
            (r#"{"name":5}"#, r#"expected value for key "name" to be a string, got 5"#),
            (r#"{"Name":null}"#, r#"expected value for key "Name" to be a string, got null"#),
            (r#"{"schema":["x"]}"#, r#"expected value for key "schema" to be a string, got ["x"]"#),
            (r#"{"package":true}"#, r#"expected value for key "package" to be a string, got true"#),
            (r#"{"name":{"a":0.00000015}}"#, r#"expected value for key "name" to be a string, got {"a":1.5e-7}"#),
            ("[1]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ("{} x", "invalid character 'x' after top-level value"),
        ] {
            assert_eq!(Meta::parse(input.as_bytes()).unwrap_err(), want, "{input}");
        }
    }
}
