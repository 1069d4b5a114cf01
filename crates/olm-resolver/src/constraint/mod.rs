//! The dependencies of a bundle, read from its properties, and whether a bundle meets them.
//!
//! Rule: update-graph §7.1, §7.2. Unknown members and empty constraints are errors, as in OLM Classic.
//! What a bundle consists of is the business of the callers, which implement [`Facts`].

pub mod cel;

use olm_core::{Range, go};
use serde_json::{Map, Value};

use crate::graph::{GvkRef, Property};

/// Largest `olm.constraint` value in bytes.
pub const MAX_CONSTRAINT: usize = 131_072;
/// Size in bytes above which a constraint is worth a warning: documentation promises no more.
pub(crate) const WARN_CONSTRAINT: usize = 65_536;

#[derive(Debug, Clone)]
pub enum Constraint {
    Gvk(GvkRef),
    Package {
        name: String,
        range: Box<Range>,
    },
    Label(String),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Vec<Self>),
    /// A rule, with the `failureMessage` beside it.
    Cel(Box<cel::Rule>, String),
}

/// A need with the author's words about it.
#[derive(Debug, Clone)]
pub struct Need {
    pub constraint: Constraint,
    /// `failureMessage`, if it is not empty.
    pub message: Option<String>,
}

/// What constraints are held against: usually one bundle.
pub trait Facts {
    fn provides(&self, gvk: &GvkRef) -> bool;
    /// Whether it is of this package, in a version of this range.
    fn is_of(&self, package: &str, range: &Range) -> bool;
    fn has_label(&self, label: &str) -> bool;
    fn meets(&self, rule: &cel::Rule) -> bool;
}

/// Reads a property; `None` if its type declares no need.
pub fn read(property: &Property) -> Option<Result<Need, String>> {
    let parse = || serde_json::from_str::<Value>(&property.value).map_err(|error| error.to_string());
    let plain = |constraint| Need { constraint, message: None };
    let read = match &*property.kind {
        "olm.gvk.required" => parse().and_then(|value| gvk(&value)).map(plain),
        "olm.package.required" => parse().and_then(|value| package(&value)).map(plain),
        "olm.label.required" => parse().and_then(|value| label(&value)).map(plain),
        "olm.constraint" if property.value.len() > MAX_CONSTRAINT => {
            return Some(Err(format!(
                "olm.constraint value is greater than max constraint size {MAX_CONSTRAINT} bytes"
            )));
        }
        "olm.constraint" => parse().and_then(|value| need(&value)),
        _ => return None,
    };
    // a bundle may declare many: which one is it?
    Some(read.map_err(|problem| format!("parse {}: {problem}", property.kind)))
}

fn members<'a>(value: &'a Value, known: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let Value::Object(members) = value else {
        return Err(format!("json: expected an object, found {}", kind_of(value)));
    };
    for key in members.keys() {
        if !known.iter().any(|known| key.eq_ignore_ascii_case(known)) {
            let hint = match (key.as_str(), known) {
                ("name", [.., "packageName" | "versionRange"]) => "; did you mean \"packageName\"?",
                ("version" | "range", [.., "packageName" | "versionRange"]) => {
                    "; did you mean \"versionRange\"?"
                }
                _ => "",
            };
            return Err(format!("json: unknown field {}{hint}", go::quote(key)));
        }
    }
    Ok(members)
}

fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    members
        .get(name)
        .or_else(|| members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
        .filter(|value| !value.is_null())
}

fn text(members: &Map<String, Value>, name: &str) -> Result<String, String> {
    match member(members, name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("json: {name} must be a text, not {}", kind_of(other))),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn label(value: &Value) -> Result<Constraint, String> {
    Ok(Constraint::Label(text(members(value, &["label"])?, "label")?))
}

fn gvk(value: &Value) -> Result<Constraint, String> {
    let members = members(value, &["group", "version", "kind"])?;
    let (group, version, kind) = (text(members, "group")?, text(members, "version")?, text(members, "kind")?);
    if version.is_empty() || kind.is_empty() {
        return Err("an API needs group, version and kind".to_owned());
    }
    Ok(Constraint::Gvk(GvkRef { group: group.into(), version: version.into(), kind: kind.into() }))
}

fn package(value: &Value) -> Result<Constraint, String> {
    let members = members(value, &["packageName", "versionRange"])?;
    let (name, range) = (text(members, "packageName")?, text(members, "versionRange")?);
    if name.is_empty() {
        return Err("packageName must be set".to_owned());
    }
    let range = Range::blang(&range).map_err(|error| {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("invalid versionRange {}: {error}{hint}", go::quote(&range))
    })?;
    Ok(Constraint::Package { name, range: Box::new(range) })
}

fn need(value: &Value) -> Result<Need, String> {
    let members = members(value, &["failureMessage", "gvk", "package", "all", "any", "not", "cel"])?;
    let message = Some(text(members, "failureMessage")?).filter(|message| !message.is_empty());
    let several = |value: &Value| -> Result<Vec<Constraint>, String> {
        let inner = self::members(value, &["constraints"])?;
        match member(inner, "constraints") {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(|item| Ok(need(item)?.constraint)).collect(),
            Some(other) => Err(format!("json: constraints must be a list, not {}", kind_of(other))),
        }
    };
    // the first kind wins, the rest is ignored
    let constraint = if let Some(value) = member(members, "gvk") {
        gvk(value)?
    } else if let Some(value) = member(members, "package") {
        package(value)?
    } else if let Some(value) = member(members, "all") {
        Constraint::All(several(value)?)
    } else if let Some(value) = member(members, "any") {
        Constraint::Any(several(value)?)
    } else if let Some(value) = member(members, "not") {
        Constraint::Not(several(value)?)
    } else if let Some(value) = member(members, "cel") {
        let rule = text(self::members(value, &["rule"])?, "rule")?;
        Constraint::Cel(Box::new(cel::Rule::parse(&rule)?), message.clone().unwrap_or_default())
    } else {
        return Err("constraint is empty".to_owned());
    };
    Ok(Need { constraint, message })
}

impl Constraint {
    pub fn holds_for(&self, facts: &impl Facts) -> bool {
        match self {
            Self::Gvk(gvk) => facts.provides(gvk),
            Self::Package { name, range } => facts.is_of(name, range),
            Self::Label(label) => facts.has_label(label),
            Self::All(parts) => parts.iter().all(|part| part.holds_for(facts)),
            Self::Any(parts) => parts.iter().any(|part| part.holds_for(facts)),
            Self::Not(parts) => !parts.iter().any(|part| part.holds_for(facts)),
            Self::Cel(rule, _) => facts.meets(rule),
        }
    }

    /// The need in words.
    pub(crate) fn describe(&self) -> String {
        let join = |parts: &[Self], word: &str| {
            let texts: Vec<String> = parts.iter().map(Self::describe).collect();
            match texts.as_slice() {
                [one] => one.clone(),
                _ => format!("({})", texts.join(word)),
            }
        };
        match self {
            Self::Gvk(gvk) => format!("API {gvk}"),
            Self::Package { name, range } => {
                format!("package {} in range {}", go::quote(name), go::quote(range.as_str()))
            }
            Self::Label(label) => format!("label {}", go::quote(label)),
            Self::All(parts) => join(parts, " and "),
            Self::Any(parts) => join(parts, " or "),
            Self::Not(parts) => format!("not {}", join(parts, " nor ")),
            Self::Cel(rule, _) => format!("a bundle with {}", rule.as_str()),
        }
    }
}

impl std::fmt::Display for GvkRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}/{})", self.kind, self.group, self.version)
    }
}
