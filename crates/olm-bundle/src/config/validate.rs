//! A validator for the keywords that configuration schemas use, which fails with the same tree of failures as the
//! library behind the reference, because messages are made from that tree's shape.
//!
//! It is no general JSON schema validator: a test holds it against one. `$ref` hides its siblings, as in draft-07;
//! formats other than the two of install modes are not asserted.

use regex::Regex;
use serde_json::{Map, Value};

use super::schema::{OWN_FORMAT, SINGLE_FORMAT};
use crate::kube::{components, referred, type_name, whole};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    /// A failure behind a `$ref`.
    Reference,
    AllOf,
    AnyOf,
    /// Indexes of two branches that both match; `None` when none does.
    OneOf(Option<(usize, usize)>),
    Type {
        got: &'static str,
        want: String,
    },
    Required(Vec<String>),
    /// Members that are not declared, sorted.
    Additional(Vec<String>),
    Format {
        got: String,
        name: String,
        reason: String,
    },
    MinLength {
        got: usize,
        want: u64,
    },
    MaxLength {
        got: usize,
        want: u64,
    },
    Pattern {
        got: String,
        want: String,
    },
}

/// A failure, where it is, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValidationError {
    /// Members and indexes from the root.
    pub(crate) path: Vec<String>,
    pub(crate) kind: Kind,
    pub(crate) causes: Vec<ValidationError>,
}

/// Validates a value; the failures of the root come back as a group (also if it is only one).
pub(crate) fn validate(
    schema: &Value,
    value: &Value,
    install_namespace: &str,
) -> Result<(), Vec<ValidationError>> {
    let mut check = Check { path: Vec::new(), install_namespace };
    match check.value(schema, value) {
        None => Ok(()),
        Some(ValidationError { kind: Kind::Group, causes, .. }) => Err(causes),
        Some(failure) => Err(vec![failure]),
    }
}

struct Check<'a> {
    path: Vec<String>,
    install_namespace: &'a str,
}

impl Check<'_> {
    fn fail(&self, kind: Kind, causes: Vec<ValidationError>) -> ValidationError {
        ValidationError { path: self.path.clone(), kind, causes }
    }

    fn value(&mut self, schema: &Value, value: &Value) -> Option<ValidationError> {
        if let Some(failure) = self.wrong_type(schema, value).or_else(|| self.wrong_format(schema, value)) {
            return Some(failure);
        }
        if schema.get("$ref").is_some() {
            let target = referred(schema).and_then(|name| components().get(name))?;
            let failure = self.value(target, value)?;
            let causes = match failure {
                ValidationError { kind: Kind::Group, causes, .. } => causes,
                single => vec![single],
            };
            return Some(self.fail(Kind::Reference, causes));
        }
        let mut failures = Vec::new();
        match value {
            Value::Object(members) => self.object(schema, members, &mut failures),
            Value::Array(items) => {
                if let Some(item_schema) = schema.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        self.member(item_schema, item, index.to_string(), &mut failures);
                    }
                }
            }
            Value::String(text) => self.text(schema, text, &mut failures),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        self.branches(schema, value, &mut failures);
        match failures.len() {
            0 => None,
            1 => failures.pop(),
            _ => Some(self.fail(Kind::Group, failures)),
        }
    }

    /// Checks a member or item and adds its failures, without the group around them.
    fn member(&mut self, schema: &Value, value: &Value, step: String, failures: &mut Vec<ValidationError>) {
        self.path.push(step);
        match self.value(schema, value) {
            Some(ValidationError { kind: Kind::Group, causes, .. }) => failures.extend(causes),
            Some(failure) => failures.push(failure),
            None => {}
        }
        self.path.pop();
    }

    fn wrong_type(&self, schema: &Value, value: &Value) -> Option<ValidationError> {
        let want = schema.get("type")?.as_str()?;
        let got = type_name(value);
        let fits = got == want
            || (want == "integer" && value.as_number().is_some_and(|number| whole(number).is_some()));
        (!fits).then(|| self.fail(Kind::Type { got, want: want.to_owned() }, Vec::new()))
    }

    fn wrong_format(&self, schema: &Value, value: &Value) -> Option<ValidationError> {
        let name = schema.get("format")?.as_str()?;
        let text = value.as_str()?;
        let own = self.install_namespace;
        let reason = match name {
            _ if own.is_empty() => return None,
            OWN_FORMAT if text != own => format!(
                "invalid value {text:?}: must be {own:?} (the namespace where the operator is installed) because this \
                 operator only supports OwnNamespace install mode"
            ),
            SINGLE_FORMAT if text == own => format!(
                "invalid value {text:?}: must be different from {own:?} (the install namespace) because this operator \
                 uses SingleNamespace install mode to watch a different namespace"
            ),
            _ => return None,
        };
        Some(self.fail(Kind::Format { got: text.to_owned(), name: name.to_owned(), reason }, Vec::new()))
    }

    fn object(&mut self, schema: &Value, members: &Map<String, Value>, failures: &mut Vec<ValidationError>) {
        if let Some(required) = schema.get("required").and_then(Value::as_array) {
            let missing: Vec<_> = required
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| !members.contains_key(*name))
                .map(str::to_owned)
                .collect();
            if !missing.is_empty() {
                failures.push(self.fail(Kind::Required(missing), Vec::new()));
            }
        }
        let properties = schema.get("properties");
        let additional = schema.get("additionalProperties");
        let mut unknown = Vec::new();
        for (name, member) in members {
            if let Some(declared) = properties.and_then(|properties| properties.get(name)) {
                self.member(declared, member, name.clone(), failures);
            } else {
                match additional {
                    Some(Value::Bool(false)) => unknown.push(name.clone()),
                    Some(schema @ Value::Object(_)) => self.member(schema, member, name.clone(), failures),
                    _ => {}
                }
            }
        }
        if !unknown.is_empty() {
            unknown.sort();
            failures.push(self.fail(Kind::Additional(unknown), Vec::new()));
        }
    }

    fn text(&self, schema: &Value, text: &str, failures: &mut Vec<ValidationError>) {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let got = text.chars().count();
        if let Some(want) = bound("minLength")
            && (got as u64) < want
        {
            failures.push(self.fail(Kind::MinLength { got, want }, Vec::new()));
        }
        if let Some(want) = bound("maxLength")
            && (got as u64) > want
        {
            failures.push(self.fail(Kind::MaxLength { got, want }, Vec::new()));
        }
        if let Some(want) = schema.get("pattern").and_then(Value::as_str)
            && Regex::new(want).is_ok_and(|pattern| !pattern.is_match(text))
        {
            let kind = Kind::Pattern { got: text.to_owned(), want: want.to_owned() };
            failures.push(self.fail(kind, Vec::new()));
        }
    }

    fn branches(&mut self, schema: &Value, value: &Value, failures: &mut Vec<ValidationError>) {
        let branches =
            |name: &str| schema.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let causes: Vec<_> =
            branches("allOf").iter().filter_map(|branch| self.value(branch, value)).collect();
        if !causes.is_empty() {
            failures.push(self.fail(Kind::AllOf, causes));
        }
        let any_of = branches("anyOf");
        let causes: Vec<_> = any_of.iter().filter_map(|branch| self.value(branch, value)).collect();
        if !any_of.is_empty() && causes.len() == any_of.len() {
            failures.push(self.fail(Kind::AnyOf, causes));
        }
        let one_of: Vec<_> = branches("oneOf").iter().map(|branch| self.value(branch, value)).collect();
        let mut matching =
            one_of.iter().enumerate().filter(|(_, failure)| failure.is_none()).map(|(index, _)| index);
        match (matching.next(), matching.next()) {
            (Some(first), Some(second)) => {
                failures.push(self.fail(Kind::OneOf(Some((first, second))), Vec::new()))
            }
            (None, _) if !one_of.is_empty() => {
                failures.push(self.fail(Kind::OneOf(None), one_of.into_iter().flatten().collect()));
            }
            _ => {}
        }
    }
}
