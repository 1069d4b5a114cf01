//! Typed access to members of a JSON object, with errors that name the path. Absent and null members read as nothing.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::kube::{ShapeError, whole};

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

pub(crate) struct Reader<'a> {
    members: &'a Map<String, Value>,
    path: String,
}

impl<'a> Reader<'a> {
    pub(crate) fn root(members: &'a Map<String, Value>) -> Self {
        Self { members, path: String::new() }
    }

    pub(crate) fn at(&self, member: &str) -> String {
        if self.path.is_empty() { member.to_owned() } else { format!("{}.{member}", self.path) }
    }

    pub(crate) fn value(&self, member: &str) -> Option<&'a Value> {
        self.members.get(member).filter(|value| !value.is_null())
    }

    pub(crate) fn object(&self, member: &str) -> Result<Self, ShapeError> {
        let path = self.at(member);
        match self.value(member) {
            None => Ok(Self { members: &EMPTY, path }),
            Some(Value::Object(members)) => Ok(Self { members, path }),
            Some(other) => Err(wrong(path, other, "object")),
        }
    }

    pub(crate) fn values(&self, member: &str) -> Result<&'a [Value], ShapeError> {
        match self.value(member) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(wrong(self.at(member), other, "array")),
        }
    }

    pub(crate) fn objects(&self, member: &str) -> Result<Vec<Self>, ShapeError> {
        let mut read = Vec::new();
        for (index, item) in self.values(member)?.iter().enumerate() {
            let path = format!("{}[{index}]", self.at(member));
            read.push(match item {
                Value::Object(members) => Self { members, path },
                Value::Null => Self { members: &EMPTY, path },
                other => return Err(wrong(path, other, "object")),
            });
        }
        Ok(read)
    }

    pub(crate) fn optional_text(&self, member: &str) -> Result<Option<String>, ShapeError> {
        match self.value(member) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(wrong(self.at(member), other, "string")),
        }
    }

    pub(crate) fn text(&self, member: &str) -> Result<String, ShapeError> {
        Ok(self.optional_text(member)?.unwrap_or_default())
    }

    pub(crate) fn texts(&self, member: &str) -> Result<Vec<String>, ShapeError> {
        let mut read = Vec::new();
        for (index, item) in self.values(member)?.iter().enumerate() {
            read.push(match item {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => return Err(wrong(format!("{}[{index}]", self.at(member)), other, "string")),
            });
        }
        Ok(read)
    }

    pub(crate) fn texts_by_name(&self, member: &str) -> Result<BTreeMap<String, String>, ShapeError> {
        let inner = self.object(member)?;
        inner.members.keys().map(|name| Ok((name.clone(), inner.text(name)?))).collect()
    }

    pub(crate) fn boolean(&self, member: &str) -> Result<Option<bool>, ShapeError> {
        match self.value(member) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong(self.at(member), other, "boolean")),
        }
    }

    pub(crate) fn integer(&self, member: &str) -> Result<Option<i64>, ShapeError> {
        match self.value(member) {
            None => Ok(None),
            Some(value) => match value.as_number().and_then(whole).and_then(|number| number.as_i64()) {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(self.at(member), value, "integer")),
            },
        }
    }

    /// A port: a whole number or a name.
    pub(crate) fn port(&self, member: &str) -> Result<Option<Value>, ShapeError> {
        match self.value(member) {
            Some(Value::String(name)) => Ok(Some(Value::from(name.as_str()))),
            _ => Ok(self.integer(member)?.map(Value::from)),
        }
    }
}

fn wrong(path: String, found: &Value, want: &'static str) -> ShapeError {
    ShapeError::wrong_type(path, found, want)
}
