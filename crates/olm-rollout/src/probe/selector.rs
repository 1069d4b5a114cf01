//! The objects that a probe is about.

use std::collections::BTreeMap;

use olm_core::Object;

/// Which objects a probe is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// All of one kind, whatever the version.
    GroupKind {
        /// API group, empty for the core group.
        group: String,
        kind: String,
    },
    /// All with these labels.
    Label(LabelSelector),
}

/// A label selector as the Kubernetes API knows it; all parts must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    /// Labels with exactly these values.
    pub equal: BTreeMap<String, String>,
    /// Further requirements.
    pub expressions: Vec<Requirement>,
}

/// One `matchExpressions` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// The label is there, with one of the values.
    In(String, Vec<String>),
    /// The label is absent or has none of the values.
    NotIn(String, Vec<String>),
    /// The label is there.
    Exists(String),
    /// The label is absent.
    Absent(String),
}

impl Requirement {
    /// Builds a requirement from the words of the API.
    ///
    /// # Errors
    /// When the operator is unknown or the number of values does not fit it.
    pub fn parse(key: &str, operator: &str, values: &[String]) -> Result<Self, String> {
        let (key, values) = (key.to_owned(), values.to_vec());
        match (operator, values.is_empty()) {
            ("In", false) => Ok(Self::In(key, values)),
            ("NotIn", false) => Ok(Self::NotIn(key, values)),
            ("Exists", true) => Ok(Self::Exists(key)),
            ("DoesNotExist", true) => Ok(Self::Absent(key)),
            ("In" | "NotIn", true) => {
                Err(format!("values of {key:?}: for operator {operator:?}, values set can't be empty"))
            }
            ("Exists" | "DoesNotExist", false) => {
                Err(format!("values of {key:?}: values set must be empty for operator {operator:?}"))
            }
            _ => Err(format!("{operator:?} is not a valid label selector operator")),
        }
    }

    fn holds(&self, labels: &BTreeMap<&str, &str>) -> bool {
        let among =
            |key: &str, values: &[String]| labels.get(key).map(|value| values.iter().any(|one| one == value));
        match self {
            Self::In(key, values) => among(key, values) == Some(true),
            Self::NotIn(key, values) => among(key, values) != Some(true),
            Self::Exists(key) => labels.contains_key(key.as_str()),
            Self::Absent(key) => !labels.contains_key(key.as_str()),
        }
    }
}

impl LabelSelector {
    /// Whether an object with these labels is selected; a selector without parts selects all.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<&str, &str>) -> bool {
        self.equal.iter().all(|(key, value)| labels.get(key.as_str()) == Some(&value.as_str()))
            && self.expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Selector {
    /// Is the object one of those?
    pub fn matches(&self, object: &Object) -> bool {
        match self {
            Self::GroupKind { group, kind } => object.group() == group && object.kind() == kind,
            Self::Label(selector) => selector.matches(&object.labels()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::test_object;
    use serde_json::json;

    #[test]
    fn probe_label_selectors() {
        let object = test_object(json!({"metadata": {"labels": {"a": "1", "b": "2"}}}));
        let values = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>();
        for (key, operator, set, want) in [
            ("a", "In", values(&["0", "1"]), true),
            ("a", "In", values(&["0"]), false),
            ("c", "In", values(&["0"]), false),
            ("a", "NotIn", values(&["0"]), true),
            ("a", "NotIn", values(&["1"]), false),
            ("c", "NotIn", values(&["1"]), true),
            ("a", "Exists", vec![], true),
            ("c", "Exists", vec![], false),
            ("a", "DoesNotExist", vec![], false),
            ("c", "DoesNotExist", vec![], true),
        ] {
            let requirement = Requirement::parse(key, operator, &set).unwrap();
            let selector =
                Selector::Label(LabelSelector { equal: BTreeMap::new(), expressions: vec![requirement] });
            assert_eq!(selector.matches(&object), want, "{key} {operator} {set:?}");
        }
        for (equal, want) in
            [(vec![("a", "1"), ("b", "2")], true), (vec![("a", "1"), ("b", "3")], false), (vec![], true)]
        {
            let equal = equal.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            assert_eq!(Selector::Label(LabelSelector { equal, expressions: vec![] }).matches(&object), want);
        }
        for (operator, set) in [("In", vec![]), ("Exists", values(&["1"])), ("Gt", values(&["1"]))] {
            assert!(Requirement::parse("a", operator, &set).is_err(), "{operator}");
        }
    }
}
