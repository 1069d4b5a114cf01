//! Holding a JSON value against a declared Kubernetes shape: what is declared stays, what is not is dropped and named,
//! what has the wrong type is an error. Only numbers are otherwise changed, to what their type holds, and required members
//! are not demanded: the reference's decoder does not demand them either.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::LazyLock;

use olm_core::go;
use serde_json::{Map, Number, Value};

use super::{parsed, referred};

/// A member whose value cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ShapeError {
    /// Where, as `spec.template.spec.containers[0].image`.
    pub path: String,
    /// What is wrong there: `got <JSON type>, want <what belongs there>`, or what a quantity must look like.
    pub problem: String,
}

impl ShapeError {
    /// A value of the wrong JSON type.
    pub(crate) fn wrong_type(path: String, found: &Value, want: &str) -> Self {
        Self { path, problem: format!("got {}, want {want}", type_name(found)) }
    }
}

/// Paths in [`Conformed`], and bytes of one: a long key above many undeclared ones would be repeated for each.
const MAX_DROPPED: usize = 1_000;
const MAX_PATH: usize = 1_000;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Conformed {
    /// Paths of members that Kubernetes does not declare, now gone; the first [`MAX_DROPPED`].
    pub(crate) dropped: Vec<String>,
}

/// Makes `value` conform to the named component. `path` is the prefix of every path reported.
///
/// # Errors
/// At the first member whose type cannot be decoded.
pub(crate) fn conform(value: &mut Value, component: &str, path: &str) -> Result<Conformed, ShapeError> {
    let mut walk = Walk { path: vec![Step::Name(path.to_owned())], dropped: Vec::new() };
    walk.visit(value, SHAPES.root(component))?;
    Ok(Conformed { dropped: walk.dropped })
}

type Id = usize;

enum Shape {
    Any,
    Text,
    Integer,
    Number,
    Boolean,
    /// An int-or-string.
    TextOrNumber,
    /// An amount such as `500m` or `1Gi`.
    Quantity,
    Object(HashMap<String, Id>),
    Map(Id),
    List(Id),
    /// A schema, or something else that CRD schemas allow in its place.
    SchemaOr(Alternative),
}

#[derive(Clone, Copy)]
enum Alternative {
    Boolean,
    Schemas,
    Texts,
}

struct Shapes {
    shapes: Vec<Shape>,
    roots: BTreeMap<String, Id>,
}

const ANY: Id = 0;
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

static SHAPES: LazyLock<Shapes> = LazyLock::new(Shapes::compile);

impl Shapes {
    fn compile() -> Self {
        let mut shapes = Self { shapes: vec![Shape::Any], roots: BTreeMap::new() };
        let components = parsed();
        for (index, name) in components.keys().enumerate() {
            shapes.roots.insert(name.clone(), index + 1);
            shapes.shapes.push(Shape::Any);
        }
        for (name, schema) in &components {
            let compiled = match name.rsplit('.').next() {
                Some("JSON") => Shape::Any,
                Some("Quantity") => Shape::Quantity,
                Some("JSONSchemaPropsOrBool") => Shape::SchemaOr(Alternative::Boolean),
                Some("JSONSchemaPropsOrArray") => Shape::SchemaOr(Alternative::Schemas),
                Some("JSONSchemaPropsOrStringArray") => Shape::SchemaOr(Alternative::Texts),
                _ => shapes.shape(schema),
            };
            let id = shapes.root(name);
            shapes.shapes[id] = compiled;
        }
        shapes
    }

    fn root(&self, name: &str) -> Id {
        self.roots.get(name).copied().unwrap_or(ANY)
    }

    fn id(&mut self, schema: &Value) -> Id {
        if let Some(name) = referred(schema) {
            return self.root(name);
        }
        let shape = self.shape(schema);
        self.shapes.push(shape);
        self.shapes.len() - 1
    }

    fn shape(&mut self, schema: &Value) -> Shape {
        if schema.get("oneOf").is_some() {
            return Shape::TextOrNumber;
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("string") => Shape::Text,
            Some("integer") => Shape::Integer,
            Some("number") => Shape::Number,
            Some("boolean") => Shape::Boolean,
            Some("array") => match schema.get("items") {
                Some(items) => Shape::List(self.id(items)),
                None => Shape::Any,
            },
            Some("object") => {
                if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                    Shape::Object(
                        properties.iter().map(|(name, schema)| (name.clone(), self.id(schema))).collect(),
                    )
                } else if let Some(values) = schema.get("additionalProperties") {
                    Shape::Map(self.id(values))
                } else {
                    Shape::Any
                }
            }
            _ => Shape::Any,
        }
    }

    /// What Go's zero value of the shape is in JSON; `None` where leaving the member out means the same.
    fn zero(&self, id: Id) -> Option<Value> {
        match &self.shapes[id] {
            Shape::Text => Some(Value::String(String::new())),
            Shape::Object(_) => Some(Value::Object(Map::new())),
            Shape::Integer | Shape::Number => Some(Value::from(0)),
            Shape::Boolean => Some(Value::Bool(false)),
            Shape::Any
            | Shape::TextOrNumber
            | Shape::Quantity
            | Shape::Map(_)
            | Shape::List(_)
            | Shape::SchemaOr(_) => None,
        }
    }
}

enum Step {
    Name(String),
    Index(usize),
}

struct Walk {
    path: Vec<Step>,
    dropped: Vec<String>,
}

impl Walk {
    fn visit(&mut self, value: &mut Value, id: Id) -> Result<(), ShapeError> {
        match (&SHAPES.shapes[id], value) {
            (Shape::Any, _)
            | (Shape::Text, Value::String(_))
            | (Shape::Boolean, Value::Bool(_))
            | (Shape::TextOrNumber, Value::String(_) | Value::Number(_))
            | (Shape::Quantity, Value::Number(_)) => Ok(()),
            (Shape::Quantity, Value::String(text)) if is_quantity(text) => Ok(()),
            (Shape::Quantity, Value::String(_)) => {
                Err(ShapeError { path: self.to_string(), problem: QUANTITY_RULE.to_owned() })
            }
            (Shape::Number, Value::Number(number)) => {
                *number = double(number);
                Ok(())
            }
            (Shape::Integer, Value::Number(number)) => match whole(number) {
                Some(exact) => {
                    *number = exact;
                    Ok(())
                }
                None => {
                    Err(ShapeError { path: self.to_string(), problem: "got number, want integer".to_owned() })
                }
            },
            (Shape::Object(fields), Value::Object(members)) => {
                let mut failed = Ok(());
                members.retain(|name, member| {
                    if failed.is_err() {
                        return true;
                    }
                    let Some(field) = fields.get(name) else {
                        if self.dropped.len() < MAX_DROPPED {
                            let path = self.below(Step::Name(name.clone()), |walk| walk.short_path());
                            self.dropped.push(path);
                        }
                        return false;
                    };
                    if member.is_null() {
                        return false;
                    }
                    failed = self.below(Step::Name(name.clone()), |walk| walk.visit(member, *field));
                    true
                });
                failed
            }
            (Shape::Map(values), Value::Object(members)) => {
                members.iter_mut().try_for_each(|(name, member)| {
                    self.below(Step::Name(name.clone()), |walk| walk.member(member, *values))
                })
            }
            (Shape::List(item), Value::Array(items)) => self.items(items, *item),
            (Shape::SchemaOr(Alternative::Boolean), Value::Bool(_)) => Ok(()),
            (Shape::SchemaOr(Alternative::Schemas), Value::Array(items)) => {
                self.items(items, SHAPES.root(SCHEMA))
            }
            (Shape::SchemaOr(Alternative::Texts), Value::Array(items))
                if items.iter().all(Value::is_string) =>
            {
                Ok(())
            }
            (Shape::SchemaOr(_), schema @ Value::Object(_)) => self.visit(schema, SHAPES.root(SCHEMA)),
            (shape, found) => Err(ShapeError::wrong_type(self.to_string(), found, shape.describe())),
        }
    }

    fn below<T>(&mut self, step: Step, visit: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = visit(self);
        self.path.pop();
        result
    }

    fn items(&mut self, items: &mut [Value], item: Id) -> Result<(), ShapeError> {
        let mut items = items.iter_mut().enumerate();
        items.try_for_each(|(index, one)| self.below(Step::Index(index), |walk| walk.member(one, item)))
    }

    fn short_path(&self) -> String {
        let long = self.path.iter().any(|step| matches!(step, Step::Name(name) if name.len() > MAX_PATH));
        if long { "a field below a name that is too long to show".to_owned() } else { self.to_string() }
    }

    /// A value in a map or list, where null is Go's zero value.
    fn member(&mut self, value: &mut Value, id: Id) -> Result<(), ShapeError> {
        if value.is_null() {
            if let Some(zero) = SHAPES.zero(id) {
                *value = zero;
            }
            return Ok(());
        }
        self.visit(value, id)
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.path.iter().enumerate() {
            match step {
                Step::Name(name) if index == 0 => write!(f, "{name}")?,
                Step::Name(name) if index == 1 && is_empty_name(&self.path[0]) => write!(f, "{name}")?,
                Step::Name(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

fn is_empty_name(step: &Step) -> bool {
    matches!(step, Step::Name(name) if name.is_empty())
}

impl Shape {
    fn describe(&self) -> &'static str {
        match self {
            Self::Any => "any value",
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::TextOrNumber | Self::Quantity => "string or number",
            Self::Object(_) | Self::Map(_) => "object",
            Self::List(_) => "array",
            Self::SchemaOr(Alternative::Boolean) => "schema or boolean",
            Self::SchemaOr(Alternative::Schemas) => "schema or array of schemas",
            Self::SchemaOr(Alternative::Texts) => "schema or array of strings",
        }
    }
}

const QUANTITY_RULE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Whether a text is a quantity: a decimal number and a known suffix or exponent.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 || number.len() - digits > 1 {
        return false;
    }
    if SUFFIXES.contains(&suffix) {
        return true;
    }
    let exponent = suffix.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    exponent
        .is_some_and(|exponent| !exponent.is_empty() && exponent.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The number as a whole one, if it is one (`3.0` is).
pub(crate) fn whole(number: &Number) -> Option<Number> {
    if number.is_i64() || number.is_u64() {
        return Some(number.clone());
    }
    let float = number.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked in the same expression")]
    let exact = (float.fract() == 0.0 && float.abs() < 9.0e15).then_some(float as i64);
    exact.map(Number::from)
}

/// The number as Go writes it from a `float64`, which has fewer digits than an integer may have.
fn double(number: &Number) -> Number {
    let text = number.as_f64().map(go::json_number);
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_else(|| number.clone())
}

/// The JSON type of a value, as messages name it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::super::component;
    use super::*;
    use serde_json::json;

    #[test]
    fn deployments_lose_undeclared_and_null_members() {
        let mut spec = json!({
            "replicas": 1.0, "paused": null, "bogus": {"a": 1},
            "selector": {"matchLabels": {"app": null}},
            "template": {
                "metadata": {"creationTimestamp": null, "labels": {"app": "x"}},
                "spec": {"containers": [{"name": "c", "imagePullPolicyy": "Always", "args": ["a", null],
                    "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "env": null}], "hostNetwork": false}
            }
        });
        let got = conform(&mut spec, component::DEPLOYMENT_SPEC, "spec").unwrap();
        assert_eq!(got.dropped, ["spec.bogus", "spec.template.spec.containers[0].imagePullPolicyy"]);
        assert_eq!(
            spec,
            json!({
                "replicas": 1, "selector": {"matchLabels": {"app": ""}},
                "template": {
                    "metadata": {"labels": {"app": "x"}},
                    "spec": {"containers": [{"name": "c", "args": ["a", ""],
                        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}], "hostNetwork": false}
                }
            })
        );
    }

    #[test]
    fn crd_schemas_keep_every_declared_keyword_and_all_user_data() {
        let schema = json!({
            "type": "object", "x-kubernetes-validations": [{"rule": "true"}], "x-unknown": true,
            "properties": {
                "x-unknown": {"type": "string", "default": null, "enum": ["a", null], "example": {"b": null}},
                "any": {"additionalProperties": true}, "sub": {"additionalProperties": {"type": "integer", "nope": 1}},
                "list": {"type": "array", "items": {"type": "object", "nope": 1}},
                "dep": {"dependencies": {"a": ["b"], "c": {"type": "object"}}}
            }
        });
        let mut crd = json!({"apiVersion": "a", "kind": "k", "metadata": {"name": "n", "creationTimestamp": null},
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}, "status": null});
        let got = conform(&mut crd, component::CRD, "").unwrap();
        let at = "spec.versions[0].schema.openAPIV3Schema";
        assert_eq!(
            got.dropped,
            [
                format!("{at}.properties.list.items.nope"),
                format!("{at}.properties.sub.additionalProperties.nope"),
                format!("{at}.x-unknown")
            ]
        );
        assert_eq!(
            crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/x-unknown"),
            Some(&json!({"type": "string", "enum": ["a", null], "example": {"b": null}}))
        );
    }

    #[test]
    fn shape_names_undeclared_members_briefly() {
        let dropped = |name: &str, count: usize| {
            let members: Map<String, Value> = (0..count).map(|at| (format!("u{at}"), json!(0))).collect();
            let properties = Map::from_iter([(name.to_owned(), Value::Object(members))]);
            let schema = json!({"openAPIV3Schema": {"properties": properties}});
            let mut crd = json!({"spec": {"versions": [{"name": "v1", "schema": schema}]}});
            conform(&mut crd, component::CRD, "").unwrap().dropped
        };
        let found = dropped("p", 2_000);
        assert_eq!(found.len(), MAX_DROPPED);
        assert_eq!(found[0], "spec.versions[0].schema.openAPIV3Schema.properties.p.u0");
        let long = dropped(&"p".repeat(MAX_PATH + 1), 1);
        assert_eq!(long, ["a field below a name that is too long to show"]);
    }

    #[test]
    fn shape_recognises_quantities() {
        for text in
            ["0", "1", "+1", "-1.5", ".5", "5.", "500m", "1Ki", "2Gi", "1E", "1e3", "1E-2", "1e+2", "1n"]
        {
            assert!(is_quantity(text), "{text:?} is a quantity");
        }
        for text in ["", "abc", "1 Gi", " 1", "1.2.3", "1KiB", "Gi", "1e", "1ee3", "--1", "0x1", "1K"] {
            assert!(!is_quantity(text), "{text:?} is no quantity");
        }
    }

    #[test]
    fn shape_names_path_and_types_of_wrong_types() {
        for (spec, want) in [
            (json!({"replicas": "1"}), "spec.replicas: got string, want integer"),
            (json!({"replicas": 1.5}), "spec.replicas: got number, want integer"),
            (json!([]), "spec: got array, want object"),
            (
                json!({"template": {"spec": {"containers": [{"env": [{"name": "a", "value": true}]}]}}}),
                "spec.template.spec.containers[0].env[0].value: got boolean, want string",
            ),
            (
                json!({"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": true}}}]}}}),
                "spec.template.spec.containers[0].resources.limits.cpu: got boolean, want string or number",
            ),
            (
                json!({"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "1 core"}}}]}}}),
                "spec.template.spec.containers[0].resources.limits.cpu: quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ] {
            let mut spec = spec;
            let got = conform(&mut spec, component::DEPLOYMENT_SPEC, "spec").unwrap_err();
            assert_eq!(got.to_string(), want);
        }
    }
}
