//! Do custom resources that exist fit a CRD's new schema? What OLM Classic asked before every upgrade.
//!
//! A validator of JSON Schema judges each object, with the new defaults filled in. What the present schema already refuses
//! is not the change's fault and is reported separately. CEL rules are not evaluated, and conversion webhooks are not called: objects are
//! judged in the version in which the apiserver gives them, and those of the storage version in the new storage version, too, where no
//! webhook converts.
//!
//! Rule: crd-upgrade-safety §10 row 23.

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use olm_core::Object;
use serde_json::Value;

use crate::schema::without_texts;
use crate::structural::{apply_defaults, json_schema};
use crate::{has_conversion_webhook, served_versions, spec_member, version_list, versions};

/// Violations that are reported of one object.
const MOST_PROBLEMS: usize = 3;
/// Violations of one object that are compared with those of the present schema, and bytes of the text of one: it may repeat an enum.
const MAX_COMPARED: usize = 100;
const MAX_TEXT: usize = 500;

/// Checks of one object that are made: its values, times what the schema asks for at one place.
const MAX_CHECKS: usize = 10_000_000;
/// Checks up to which problems are named: each that fails takes memory before the first is seen.
const MAX_NAMED: usize = 200_000;
/// The problem of an object above that.
const UNNAMED: &str = "the object does not fit; its schema is too large to name the field";

/// Bytes that all compiled patterns of a schema may take together, and those of one. A pattern of 30 characters can ask for
/// gigabytes.
const MAX_PATTERNS: usize = 64 << 20;
const MAX_PATTERN: usize = 8 << 20;

/// A schema that no validator can be made of, for example because of a pattern.
#[derive(Debug, thiserror::Error)]
#[error("schema of version {version}: {message}")]
pub struct SchemaError {
    version: String,
    message: String,
}

/// Why an object does not fit. The object's own values are not repeated: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolation {
    /// Path of the member, for example `spec.list.0.name`; empty for the object itself.
    pub path: String,
    pub message: String,
}

impl fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// What the change of a CRD means for one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    Fits,
    /// It does not, and it does not fit the present schema either.
    NeverDid,
    /// It fits the present schema, but not the new one: it could not be updated any more. The first problems.
    Broken(Vec<SchemaViolation>),
    /// It was not checked, for this reason.
    Unchecked(String),
}

/// Judges objects of one CRD that is about to change, given in one version.
pub struct ExistingObjects {
    version: String,
    before: Target,
    after: Vec<Target>,
}

impl fmt::Debug for ExistingObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExistingObjects").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A version with one of its schemas.
struct Target {
    api_version: String,
    schema: Value,
    validator: Validator,
    /// Checks of one value.
    checks: usize,
}

/// Why an object cannot be written.
struct Violations {
    first: Vec<SchemaViolation>,
    /// Whether there are no others.
    is_complete: bool,
}

impl Target {
    fn new(crd: &Object, version: &str, schema: &Value) -> Result<Self, SchemaError> {
        let group = spec_member(crd, "group").and_then(Value::as_str).unwrap_or_default();
        Ok(Self {
            api_version: format!("{group}/{version}"),
            validator: validator(version, schema)?,
            schema: schema.clone(),
            checks: checks(schema),
        })
    }

    /// Why an object cannot be written in this version.
    ///
    /// # Errors
    /// When its defaults or its checks are more than the limit.
    fn problems(&self, object: &Value) -> Result<Violations, String> {
        let mut written = object.clone();
        if let Some(members) = written.as_object_mut() {
            members.insert("apiVersion".into(), Value::from(self.api_version.as_str()));
        }
        apply_defaults(&self.schema, &mut written)
            .map_err(|problem| format!("schema of {}: {problem}", self.api_version))?;
        let checks = values(&written).saturating_mul(self.checks);
        if checks > MAX_CHECKS {
            return Err(format!(
                "schema of {}: an object takes {checks} checks, at most {MAX_CHECKS} are made; publish a bundle whose schema has \
                 shorter lists of branches, required fields and values",
                self.api_version
            ));
        }
        let first: Vec<SchemaViolation> = if checks <= MAX_NAMED {
            self.validator.iter_errors(&written).take(MAX_COMPARED).map(|error| problem(&error)).collect()
        } else if self.validator.is_valid(&written) {
            Vec::new()
        } else {
            vec![SchemaViolation { path: String::new(), message: UNNAMED.to_owned() }]
        };
        let is_complete = first.is_empty() || (checks <= MAX_NAMED && first.len() < MAX_COMPARED);
        Ok(Violations { first, is_complete })
    }
}

impl ExistingObjects {
    /// For the CRD in the cluster (`old`) and its successor; `None` when nothing that objects must fit changes, or when no
    /// version is served in which they could be had. Objects are given in the storage version, if it is served.
    ///
    /// # Errors
    /// When a schema cannot be used.
    pub fn new(old: &Object, new: &Object) -> Result<Option<Self>, SchemaError> {
        match listed_version(old) {
            Some(version) => Self::in_version(old, new, version),
            None => Ok(None),
        }
    }

    /// The versions in which objects have to be given to judge every version that both CRDs serve: that of [`ExistingObjects::new`], then
    /// the others.
    #[must_use]
    pub fn versions<'a>(old: &'a Object, new: &Object) -> Vec<&'a str> {
        let listed = listed_version(old);
        let is_served = |version: &&str| served_versions(new).any(|after| after == *version);
        let others = served_versions(old).filter(|version| Some(*version) != listed && is_served(version));
        listed.into_iter().chain(others).collect()
    }

    /// As [`ExistingObjects::new`], for objects that are given in this version.
    ///
    /// # Errors
    /// When a schema cannot be used.
    pub fn in_version(old: &Object, new: &Object, version: &str) -> Result<Option<Self>, SchemaError> {
        let Some(old_schema) = schema(old, version) else { return Ok(None) };
        let served = served_versions(new).find(|served| *served == version);
        // what is stored is converted by nothing but its apiVersion
        let is_stored = listed_version(old) == Some(version) && !has_conversion_webhook(new);
        let storage = flagged(new, "storage").next().filter(|storage| is_stored && Some(*storage) != served);
        let mut after = Vec::new();
        for version in served.into_iter().chain(storage) {
            let Some(new_schema) = schema(new, version) else { continue };
            let before = schema(old, version);
            if before.is_some_and(|before| without_texts(before) == without_texts(new_schema)) {
                continue;
            }
            after.push(Target::new(new, version, new_schema)?);
        }
        if after.is_empty() {
            return Ok(None);
        }
        let before = Target::new(old, version, old_schema)?;
        Ok(Some(Self { version: version.to_owned(), before, after }))
    }

    /// The version in which objects must be given.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    #[must_use]
    pub fn check(&self, object: &Value) -> Fit {
        self.judge(object).unwrap_or_else(Fit::Unchecked)
    }

    fn judge(&self, object: &Value) -> Result<Fit, String> {
        let mut broken = Vec::new();
        for target in &self.after {
            broken.extend(target.problems(object)?.first);
        }
        if broken.is_empty() {
            return Ok(Fit::Fits);
        }
        let known = self.before.problems(object)?;
        if !known.is_complete {
            return Ok(Fit::NeverDid); // which of the new ones are among the others is not known
        }
        // without a name it may be one of those of the present schema
        let may_be_known = |problem: &SchemaViolation| !known.first.is_empty() && problem.message == UNNAMED;
        broken.retain(|problem| !known.first.contains(problem) && !may_be_known(problem));
        let mut unique: Vec<SchemaViolation> = Vec::new();
        for problem in broken {
            if unique.len() < MOST_PROBLEMS && !unique.contains(&problem) {
                unique.push(problem);
            }
        }
        Ok(if unique.is_empty() { Fit::NeverDid } else { Fit::Broken(unique) })
    }
}

fn problem(error: &jsonschema::ValidationError<'_>) -> SchemaViolation {
    SchemaViolation {
        path: cut(error.instance_path().as_str().trim_start_matches('/').replace('/', ".")),
        message: cut(error.masked().to_string()),
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}

fn validator(version: &str, schema: &Value) -> Result<Validator, SchemaError> {
    let limit = (MAX_PATTERNS / patterns(schema).max(1)).min(MAX_PATTERN);
    jsonschema::options()
        .with_draft(Draft::Draft4)
        // linear time, and nearer to Go's patterns than those of JavaScript
        .with_pattern_options(PatternOptions::regex().size_limit(limit).dfa_size_limit(limit))
        .build(&json_schema(schema))
        .map_err(|error| SchemaError { version: version.to_owned(), message: error.masked().to_string() })
}

/// How many values there are, at any depth.
fn values(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(values).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// How many checks of one value the schema asks for, at the place where these are most. What is inside of a branch may be about one value.
fn checks(schema: &Value) -> usize {
    let (mut here, mut below) = (1, 1);
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match (keyword.as_str(), value) {
            ("required" | "enum" | "allOf" | "anyOf" | "oneOf" | "not", value) => here += values(value),
            ("properties", Value::Object(fields)) => {
                below = fields.values().map(checks).fold(below, usize::max);
            }
            ("items" | "additionalProperties", value) => below = below.max(checks(value)),
            _ => {}
        }
    }
    here.max(below)
}

/// How many patterns the schema has.
fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => {
            let own = usize::from(members.get("pattern").is_some_and(Value::is_string));
            own + members.values().map(patterns).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(patterns).sum(),
        _ => 0,
    }
}

/// The version to list objects in: the storage version if it is served, else the first served one.
fn listed_version(crd: &Object) -> Option<&str> {
    let served: Vec<&str> = flagged(crd, "served").collect();
    flagged(crd, "storage").find(|storage| served.contains(storage)).or(served.first().copied())
}

/// Names of versions with this flag set.
fn flagged<'a>(crd: &'a Object, flag: &'a str) -> impl Iterator<Item = &'a str> {
    version_list(crd)
        .filter(move |version| version.get(flag).and_then(Value::as_bool).unwrap_or(false))
        .filter_map(|version| version.get("name").and_then(Value::as_str))
}

fn schema<'a>(crd: &'a Object, version: &str) -> Option<&'a Value> {
    versions(crd).find(|(name, _)| *name == version).and_then(|(_, schema)| schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd(versions: Value, strategy: &str) -> Object {
        Object::from_value(json!({"spec": {
            "group": "g.io", "versions": versions, "conversion": {"strategy": strategy},
        }}))
        .unwrap()
    }

    fn single_version(spec: &Value) -> Object {
        crd(json!([version("v1", true, true, spec)]), "None")
    }

    fn version(name: &str, served: bool, storage: bool, spec: &Value) -> Value {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}})
    }

    fn object(spec: &Value) -> Value {
        json!({"apiVersion": "g.io/v1", "kind": "W", "metadata": {"name": "a"}, "spec": spec})
    }

    /// The verdict in one line: `fits`, `never did`, or the problems.
    fn verdict(old: &Value, new: &Value, spec: &Value) -> String {
        let Some(existing) = ExistingObjects::new(&single_version(old), &single_version(new)).unwrap() else {
            return "nothing changes".to_owned();
        };
        match existing.check(&object(spec)) {
            Fit::Fits => "fits".to_owned(),
            Fit::NeverDid => "never did".to_owned(),
            Fit::Broken(problems) => problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Fit::Unchecked(why) => why,
        }
    }

    #[test]
    #[rustfmt::skip]
    fn defaults_of_an_object_are_limited() {
        let list = |count: usize, y: Value| json!({"type": "array", "default": vec![json!({}); count], "items": {"type": "object", "properties": {"y": y}}});
        let text = |length: usize| json!({"type": "string", "default": "x".repeat(length)});
        let old = json!({"type": "object"});
        let new = |a: Value| json!({"type": "object", "properties": {"a": a}});
        for (case, schema, is_within) in [
            ("two levels", list(40, list(40, json!({"type": "string"}))), true),
            ("four levels", list(40, list(40, list(40, list(40, json!({"type": "string"}))))), false),
            ("texts", list(100, text(10_000)), true),
            ("long texts", list(100, text(200_000)), false),
            ("a long name", json!({"type": "object", "default": {("n".repeat(200_000)): vec![0; 100]}}), false),
        ] {
            let verdict = verdict(&old, &new(schema), &json!({"a": null}));
            let start = if is_within { "fits" } else { "schema of g.io/v1: defaults, the last of field " };
            assert!(verdict.starts_with(start), "{case}: {verdict}");
            assert_eq!(verdict.contains("would add more than 16777216 bytes to an object; publish a "), !is_within, "{verdict}");
        }
    }

    #[test]
    fn checks_of_an_object_are_limited() {
        let list =
            |items: Value| json!({"type": "object", "properties": {"l": {"type": "array", "items": items}}});
        let names: Vec<String> = (0..1_000).map(|at| format!("n{at}")).collect();
        let old = list(json!({"type": "object"}));
        let branch = json!({"required": names});
        for items in
            [json!({"type": "object", "required": names}), json!({"type": "object", "allOf": [branch]})]
        {
            let verdict =
                |count: usize| verdict(&old, &list(items.clone()), &json!({"l": vec![json!({}); count]}));
            assert!(
                verdict(100).starts_with("spec.l.0: \"n0\" is a required property; "),
                "{}",
                verdict(100)
            );
            assert_eq!(verdict(300), UNNAMED);
            let many = verdict(11_000);
            assert!(many.starts_with("schema of g.io/v1: an object takes 11"), "{many}");
            assert!(many.contains(" checks, at most 10000000 are made; publish a bundle whose "), "{many}");
        }
        let with = |items: Value| {
            let mut schema = list(items);
            schema["properties"]["a"] = json!({"type": "integer"});
            schema
        };
        let (old, new) = (with(json!({"type": "string"})), with(json!({"type": "string", "enum": names})));
        for (a, item, want) in [
            (json!(1), "n0", "fits"),
            (json!(1), "x", UNNAMED),
            // `a` never fitted, and that is all that the new schema may complain of
            (json!("x"), "n0", "never did"),
        ] {
            assert_eq!(verdict(&old, &new, &json!({"a": a, "l": vec![item; 300]})), want);
        }
    }

    #[test]
    fn problems_of_an_object_are_limited() {
        let list =
            |items: Value| json!({"type": "object", "properties": {"l": {"type": "array", "items": items}}});
        let names: Vec<String> = (0..300).map(|at| format!("name-{at}")).collect();
        let (text, number, one_of) =
            (list(json!({"type": "string"})), list(json!({"type": "integer"})), list(json!({"enum": names})));
        let spec = |count: usize| json!({"l": vec!["x"; count]});
        let broken = verdict(&text, &one_of, &spec(300));
        assert!(broken.starts_with("spec.l.0: value is not one of "), "{broken}");
        assert!(broken.len() < 2_000, "{}", broken.len());
        assert_eq!(verdict(&number, &list(json!({"type": "boolean"})), &spec(300)), "never did");
        assert!(verdict(&number, &list(json!({"type": "boolean"})), &spec(99)).starts_with("spec.l.0: "));
    }

    #[test]
    fn patterns_of_a_schema_share_a_limit() {
        let text = json!({"type": "string"});
        let with = |count: usize, pattern: &str| {
            let field = |at| (format!("f{at}"), json!({"type": "string", "pattern": pattern}));
            let fields: serde_json::Map<String, Value> = (0..count).map(field).collect();
            ExistingObjects::new(
                &single_version(&text),
                &single_version(&json!({"type": "object", "properties": fields})),
            )
        };
        assert!(with(300, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").is_ok());
        for (count, pattern) in [(1, "^(([a-z]{1,100}){1,100}){1,100}$"), (100, "^([a-z]{1,100}){1,100}$")] {
            let error = with(count, pattern).map(drop).unwrap_err().to_string();
            assert!(error.contains("pattern") || error.contains("regex"), "{error}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn objects_are_judged_by_what_the_change_breaks() {
        let text = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let with = |a: Value| json!({"type": "object", "properties": {"a": a}});
        let number = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let required = |default: Value| {
            let mut b = json!({"type": "string"});
            if !default.is_null() {
                b["default"] = default;
            }
            json!({"type": "object", "required": ["b"], "properties": {"a": {"type": "string"}, "b": b}})
        };
        let nested = |schema: Value| json!({"type": "object", "properties": {"l": {"type": "array", "items": schema}}});
        for (case, old, new, spec, want) in [
            ("same", &text, &text, json!({"a": "x"}), "nothing changes"),
            ("only a text", &text, &with(json!({"type": "string", "description": "d"})), json!({}), "nothing changes"),
            ("fits", &text, &with(json!({"type": "string", "maxLength": 3})), json!({"a": "abc"}), "fits"),
            ("too long", &text, &with(json!({"type": "string", "maxLength": 3})), json!({"a": "secret"}),
                "spec.a: value is longer than 3 characters"),
            ("type", &text, &number, json!({"a": "x"}), "spec.a: value is not of type \"integer\""),
            ("wrong before, and wrong in another way now", &number, &with(json!({"type": "boolean"})), json!({"a": "x"}),
                "spec.a: value is not of type \"boolean\""),
            ("the same complaint as before", &required(Value::Null),
                &{ let mut new = required(Value::Null); new["properties"]["c"] = json!({"type": "string"}); new }, json!({"a": "x"}),
                "never did"),
            ("a default fills in", &text, &required(json!("d")), json!({"a": "x"}), "fits"),
            ("nothing fills in", &text, &required(Value::Null), json!({"a": "x"}), "spec: \"b\" is a required property"),
            ("null counts as absent where null is not allowed", &text, &required(json!("d")), json!({"b": null}), "fits"),
            ("nullable", &text, &with(json!({"type": "string", "nullable": true, "enum": ["x"]})), json!({"a": null}), "fits"),
            ("int or string", &text, &with(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
                json!({"a": 5}), "fits"),
            ("set", &with(json!({"type": "array", "items": {"type": "string"}})),
                &with(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"})), json!({"a": ["x", "x"]}),
                "spec.a: value has non-unique elements"),
            ("exclusive bound", &with(json!({"type": "integer"})),
                &with(json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true})), json!({"a": 1}),
                "spec.a: value is less than or equal to the minimum of 1"),
            ("deep, with a default at the same depth", &nested(json!({"type": "object", "properties": {"x": {"type": "string"}}})),
                &nested(json!({"type": "object", "required": ["x", "y"],
                    "properties": {"x": {"type": "string", "pattern": "^[a-z]+$"}, "y": {"type": "integer", "default": 1}}})),
                json!({"l": [{"x": "ok"}, {"x": "No"}]}), "spec.l.1.x: value does not match \"^[a-z]+$\""),
            ("map values", &with(json!({"type": "object", "additionalProperties": {"type": "string"}})),
                &with(json!({"type": "object", "additionalProperties": {"type": "string", "enum": ["x"]}})), json!({"a": {"k": "y"}}),
                "spec.a.k: value is not one of \"x\""),
            ("preserved fields", &text, &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({"a": {"b": [1]}}),
                "fits"),
        ] {
            assert_eq!(verdict(old, new, &spec), want, "{case}");
        }
    }

    #[test]
    fn existing_objects_are_judged_in_the_storage_versions() {
        let (text, number) = (
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
        );
        let old = crd(json!([version("v1", true, true, &text)]), "None");
        let with_v2 = |strategy| {
            crd(json!([version("v2", true, true, &number), version("v1", true, false, &text)]), strategy)
        };
        let existing = ExistingObjects::new(&old, &with_v2("None")).unwrap().unwrap();
        assert_eq!(existing.version(), "v1");
        assert!(matches!(existing.check(&object(&json!({"a": "x"}))), Fit::Broken(_)));
        assert!(ExistingObjects::new(&old, &with_v2("Webhook")).unwrap().is_none());

        let unserved =
            crd(json!([version("v1", false, true, &text), version("v2", true, false, &text)]), "None");
        let changed =
            crd(json!([version("v1", false, true, &text), version("v2", true, false, &number)]), "None");
        assert_eq!(ExistingObjects::new(&unserved, &changed).unwrap().unwrap().version(), "v2");
        let nothing = crd(json!([version("v1", false, true, &text)]), "None");
        assert!(ExistingObjects::new(&nothing, &changed).unwrap().is_none());
    }

    #[test]
    #[rustfmt::skip]
    fn existing_objects_are_judged_in_each_served_version() {
        let field = |a: Value| json!({"type": "object", "properties": {"a": a}});
        let (text, short) =
            (field(json!({"type": "string"})), field(json!({"type": "string", "maxLength": 3})));
        let of = |v2: &Value, is_served: bool, strategy: &str| {
            crd(json!([version("v1", true, true, &text), version("v2", is_served, false, v2)]), strategy)
        };
        let object = object(&json!({"a": "long"}));
        for (case, old, new, versions, broken) in [
            ("another version becomes narrower", of(&text, true, "None"), of(&short, true, "None"), &["v1", "v2"][..], &["v2"][..]),
            ("a webhook converts", of(&text, true, "Webhook"), of(&short, true, "Webhook"), &["v1", "v2"], &["v2"]),
            ("nothing changes", of(&short, true, "None"), of(&short, true, "None"), &["v1", "v2"], &[]),
            ("it is new", of(&text, false, "None"), of(&short, true, "None"), &["v1"], &[]),
            ("it is no longer served", of(&text, true, "None"), of(&short, false, "None"), &["v1"], &[]),
        ] {
            assert_eq!(ExistingObjects::versions(&old, &new), versions, "{case}");
            let breaks = |version: &&str| {
                let judge = ExistingObjects::in_version(&old, &new, version).unwrap();
                judge.is_some_and(|judge| matches!(judge.check(&object), Fit::Broken(_)))
            };
            let found: Vec<&str> = versions.iter().copied().filter(breaks).collect();
            assert_eq!(found, broken, "{case}");
        }
    }

    #[test]
    fn existing_objects_have_the_old_defaults_of_their_version() {
        let required = |b: Value| json!({"type": "object", "required": ["b"], "properties": {"b": b}});
        let (old, new) = (json!({"type": "string", "default": "d"}), json!({"type": "string"}));
        assert_eq!(
            verdict(&required(old), &required(new), &json!({})),
            "spec: \"b\" is a required property",
            "the default that filled it in is gone"
        );
    }

    #[test]
    fn schemas_of_the_apiserver_are_usable() {
        let of = |a: Value| json!({"type": "object", "properties": {"a": a, "b": {"type": "string"}}});
        let old = of(json!({"type": "string"}));
        for pattern in [
            "(?i)^abc$",
            "(?P<n>x)",
            r"\Aa\z",
            r"^\pL+$",
            "^[[:alpha:]]+$",
            "^}$",
            "^[a-z]([-a-z0-9]*[a-z0-9])?$",
        ] {
            let new = of(json!({"type": "string", "pattern": pattern, "maxLength": 1}));
            assert!(verdict(&old, &new, &json!({"a": "ab"})).contains("longer than 1"), "{pattern}");
        }
        for keyword in ["exclusiveMinimum", "exclusiveMaximum"] {
            let new = of(json!({"type": "string", keyword: false}));
            assert_eq!(verdict(&old, &new, &json!({"a": "x"})), "fits", "{keyword}");
        }
        let mut new = of(json!({"type": "string"}));
        new["required"] = json!(["b", "b"]);
        assert_eq!(verdict(&old, &new, &json!({"a": "x"})), "spec: \"b\" is a required property");
    }

    #[test]
    fn existing_objects_name_the_version_of_a_bad_pattern() {
        let old = single_version(&json!({"type": "object"}));
        let new = single_version(&json!({"type": "string", "pattern": "(?=a)"}));
        let error = ExistingObjects::new(&old, &new).unwrap_err().to_string();
        assert!(error.starts_with("schema of version v1: "), "{error}");
    }

    #[test]
    fn existing_reports_few_problems_of_an_object() {
        let properties = |schema: Value| {
            let members: serde_json::Map<_, _> = (0..9).map(|n| (format!("p{n}"), schema.clone())).collect();
            json!({"type": "object", "properties": members})
        };
        let (old, new) =
            (single_version(&properties(json!({}))), single_version(&properties(json!({"type": "integer"}))));
        let spec: serde_json::Map<_, _> = (0..9).map(|n| (format!("p{n}"), json!("x"))).collect();
        let existing = ExistingObjects::new(&old, &new).unwrap().unwrap();
        let Fit::Broken(problems) = existing.check(&object(&Value::Object(spec))) else { panic!("fits") };
        assert_eq!(problems.len(), 3);
    }
}
