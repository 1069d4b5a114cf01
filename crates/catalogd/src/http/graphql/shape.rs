//! The types of the members of a schema's objects, learned from all objects (rule: catalogd §8.4; §12 row 12: types are
//! widened over all objects instead of taken from the first). Pure.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::names::field_name;

/// A type that holds one value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Scalar {
    /// Only null was seen.
    #[default]
    Unknown,
    /// True or false.
    Boolean,
    /// A whole number within 32 bits.
    Int,
    /// Any other number.
    Float,
    /// Text; also objects, and what has no common type, as JSON text.
    String,
}

impl Scalar {
    fn infer(value: &Value) -> Self {
        match value {
            Value::Null => Self::Unknown,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) => match number.as_i64() {
                Some(whole) if i32::try_from(whole).is_ok() => Self::Int,
                _ => Self::Float,
            },
            Value::String(_) | Value::Array(_) | Value::Object(_) => Self::String,
        }
    }

    fn widened(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, kind) | (kind, Self::Unknown) => kind,
            (Self::Boolean, Self::Boolean) => Self::Boolean,
            (Self::Int, Self::Int) => Self::Int,
            (Self::Int | Self::Float, Self::Int | Self::Float) => Self::Float,
            (Self::String, _) | (_, Self::String) | (Self::Boolean, _) | (_, Self::Boolean) => Self::String,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unknown | Self::String => "String",
            Self::Boolean => "Boolean",
            Self::Int => "Int",
            Self::Float => "Float",
        }
    }

    /// The value as this type has it; null where it does not fit.
    pub(super) fn value(self, value: &Value) -> async_graphql::Value {
        match (self, value) {
            (_, Value::Null) => async_graphql::Value::Null,
            (Self::Boolean, Value::Bool(value)) => async_graphql::Value::Boolean(*value),
            (Self::Int, Value::Number(number)) => {
                let fits = number.as_i64().and_then(|whole| i32::try_from(whole).ok());
                fits.map_or(async_graphql::Value::Null, async_graphql::Value::from)
            }
            (Self::Float, Value::Number(number)) => {
                number.as_f64().map_or(async_graphql::Value::Null, async_graphql::Value::from)
            }
            (Self::String | Self::Unknown, Value::String(text)) => async_graphql::Value::from(text.as_str()),
            (Self::String | Self::Unknown, other) => async_graphql::Value::from(other.to_string()),
            (Self::Boolean | Self::Int | Self::Float, _) => async_graphql::Value::Null,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Kind {
    /// Only null was seen.
    #[default]
    Unknown,
    /// One value.
    One(Scalar),
    /// A list of values.
    List(Scalar),
    /// A list of objects, with their fields.
    Objects(Fields),
}

impl Kind {
    /// `deep`: whether lists of objects get a type of their own; only one level does.
    fn infer(value: &Value, deep: bool) -> Self {
        match value {
            Value::Null => Self::Unknown,
            Value::Array(items) => {
                let mut fields = Fields::default();
                // one object is limited already
                let mut remaining = usize::MAX;
                for item in items.iter().filter_map(Value::as_object).filter(|_| deep) {
                    fields.learn(item, false, &mut remaining);
                }
                if fields.0.is_empty() {
                    Self::List(items.iter().map(Scalar::infer).fold(Scalar::Unknown, Scalar::widened))
                } else {
                    Self::Objects(fields)
                }
            }
            scalar => Self::One(Scalar::infer(scalar)),
        }
    }

    /// `remaining` is how many keys may be added to lists of objects.
    fn widen(&mut self, other: Self, remaining: &mut usize) {
        *self = match (std::mem::take(self), other) {
            (Self::Objects(mut a), Self::Objects(b)) => {
                a.merge(b, remaining);
                Self::Objects(a)
            }
            (Self::Unknown | Self::List(_), Self::Objects(b)) => {
                let mut fields = Fields::default();
                fields.merge(b, remaining);
                // a type has fields
                if fields.0.is_empty() { Self::List(Scalar::String) } else { Self::Objects(fields) }
            }
            (Self::Objects(fields), Self::List(_)) => Self::Objects(fields),
            (Self::Unknown, kind) | (kind, Self::Unknown) => kind,
            (Self::One(a), Self::One(b)) => Self::One(a.widened(b)),
            (Self::List(a), Self::List(b)) => Self::List(a.widened(b)),
            (Self::One(_), Self::List(_) | Self::Objects(_))
            | (Self::List(_) | Self::Objects(_), Self::One(_)) => Self::One(Scalar::String),
        };
    }
}

/// A field: where its value is, and what it is like.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Field {
    /// Keys that have this name; the first one present counts.
    pub(super) keys: BTreeSet<String>,
    pub(super) kind: Kind,
}

/// Fields by GraphQL name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields(pub(super) BTreeMap<String, Field>);

impl Fields {
    fn learn(&mut self, object: &Map<String, Value>, deep: bool, remaining: &mut usize) {
        for (key, value) in object {
            let keys = BTreeSet::from([key.clone()]);
            self.add(field_name(key), Field { keys, kind: Kind::infer(value, deep) }, remaining);
        }
    }

    fn merge(&mut self, other: Self, remaining: &mut usize) {
        for (name, field) in other.0 {
            self.add(name, field, remaining);
        }
    }

    /// Adds what was learned of a field, as far as `remaining` allows for its keys.
    fn add(&mut self, name: String, field: Field, remaining: &mut usize) {
        let known = match self.0.entry(name) {
            Entry::Vacant(_) if *remaining == 0 => return,
            entry => entry.or_default(),
        };
        for key in field.keys {
            if *remaining > 0 && known.keys.insert(key) {
                *remaining -= 1;
            }
        }
        known.kind.widen(field.kind, remaining);
    }
}

/// What is known about one schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shape {
    pub(super) objects: usize,
    pub(super) fields: Fields,
}

impl Shape {
    /// Learns from one more object. `remaining` is how many keys may be added to those that are known.
    pub(super) fn learn(&mut self, object: &Map<String, Value>, remaining: &mut usize) {
        self.objects += 1;
        self.fields.learn(object, true, remaining);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind(values: &[Value]) -> Kind {
        let mut shape = Shape::default();
        for value in values {
            shape.learn(json!({ "x": value }).as_object().unwrap(), &mut 100);
        }
        shape.fields.0.remove("x").unwrap().kind
    }

    #[test]
    fn graphql_shape_types_widen() {
        use Scalar::{Boolean, Float, Int, String, Unknown};
        for (values, want) in [
            (vec![json!("a")], Kind::One(String)),
            (vec![json!(null)], Kind::Unknown),
            (vec![json!(null), json!(1)], Kind::One(Int)),
            (vec![json!(true)], Kind::One(Boolean)),
            (vec![json!(1), json!(1.5)], Kind::One(Float)),
            (vec![json!(5_000_000_000_i64)], Kind::One(Float)),
            (vec![json!(1), json!("a")], Kind::One(String)),
            (vec![json!(1), json!(true)], Kind::One(String)),
            (vec![json!({ "a": 1 })], Kind::One(String)),
            (vec![json!([])], Kind::List(Unknown)),
            (vec![json!([{}])], Kind::List(String)),
            (vec![json!(["a", "b"])], Kind::List(String)),
            (vec![json!([null, 1])], Kind::List(Int)),
            (vec![json!([1, "a"])], Kind::List(String)),
            (vec![json!([1]), json!([1.5])], Kind::List(Float)),
            (vec![json!([1]), json!(1)], Kind::One(String)),
            (vec![json!([[1]])], Kind::List(String)),
        ] {
            assert_eq!(kind(&values), want, "{values:?}");
        }
    }

    #[test]
    fn graphql_shape_merges_lists_of_objects_one_level_deep() {
        let Kind::Objects(fields) =
            kind(&[json!([]), json!([{ "a": 1 }, { "b-c": [{ "d": 1 }] }]), json!([{ "a": "x" }, 7])])
        else {
            panic!("not a list of objects")
        };
        assert_eq!(fields.0["a"].kind, Kind::One(Scalar::String));
        assert_eq!(
            fields.0["bC"],
            Field { keys: ["b-c".to_owned()].into(), kind: Kind::List(Scalar::String) }
        );
    }

    #[test]
    fn graphql_shape_learns_a_limited_number_of_keys() {
        let (mut shape, mut remaining) = (Shape::default(), 3);
        for object in [
            json!({ "a": 1, "b": [{ "c": 1, "d": 1 }], "e": [{ "f": 1 }] }),
            json!({ "a": "text", "A": 1, "g": 1 }),
        ] {
            shape.learn(object.as_object().unwrap(), &mut remaining);
            assert_eq!(remaining, 0);
        }
        let fields = &shape.fields.0;
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((fields["a"].keys.len(), &fields["a"].kind), (1, &Kind::One(Scalar::String)));
        let Kind::Objects(nested) = &fields["b"].kind else { panic!("not a list of objects") };
        assert_eq!(nested.0.keys().collect::<Vec<_>>(), ["c"]);
        // no key left for one of its objects
        let (mut shape, mut remaining) = (Shape::default(), 1);
        shape.learn(json!({ "b": [{ "c": 1 }] }).as_object().unwrap(), &mut remaining);
        assert_eq!(shape.fields.0["b"].kind, Kind::List(Scalar::String));
    }

    #[test]
    fn graphql_shape_values_fit_their_type_or_are_null() {
        assert_eq!(Scalar::Int.value(&json!(5_000_000_000_i64)), async_graphql::Value::Null);
        assert_eq!(Scalar::String.value(&json!({ "a": [1] })), async_graphql::Value::from(r#"{"a":[1]}"#));
        assert_eq!(Scalar::Boolean.value(&json!("yes")), async_graphql::Value::Null);
    }
}
