//! Rows 32 to 126 of the case table (same version, property `^.spec.f`): the findings of each profile.
//!
//! `parity` holds the findings without the prefix `v1: `, and without `^.spec.f: ` where they are about that path. A text
//! ending in `…` stands for all texts with that beginning. With an empty list, the change is allowed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use olm_core::Object;
use olm_crd_safety::{Policy, Profile, compare};
use serde_json::{Value, json};

struct Row {
    id: u16,
    old: Value,
    new: Value,
    parity: &'static [&'static str],
    corrected_blocks: bool,
}

fn row(id: u16, old: Value, new: Value, parity: &'static [&'static str], corrected_blocks: bool) -> Row {
    Row { id, old, new, parity, corrected_blocks }
}

/// A CRD whose `^.spec` has an untouched sibling and, unless null, the property `f`.
fn crd(f: &Value) -> Object {
    let mut properties = json!({"sibling": {"type": "string"}});
    if !f.is_null() {
        properties["f"] = f.clone();
    }
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let versions =
        json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
    Object::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"scope": "Namespaced", "versions": versions}, "status": {"storedVersions": ["v1"]},
    }))
    .unwrap()
}

fn findings(row: &Row, profile: Profile) -> Vec<String> {
    compare(&crd(&row.old), &crd(&row.new), Policy { profile })
        .iter()
        .map(|finding| {
            let text = finding.to_string();
            let text = text.strip_prefix("v1: ").unwrap_or(&text);
            text.strip_prefix("^.spec.f: ").unwrap_or(text).to_owned()
        })
        .collect()
}

fn same(got: &[String], want: &[&str]) -> bool {
    got.len() == want.len()
        && want.iter().all(|want| {
            got.iter().any(|got| match want.strip_suffix('…') {
                Some(beginning) => got.starts_with(beginning),
                None => got == want,
            })
        })
}

const TYPE_GONE: &str = "type: type changed : \"string\" -> \"\"";

#[expect(clippy::too_many_lines, reason = "one line a row")]
#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let s = || json!({"type": "string"});
    let i = || json!({"type": "integer"});
    let with = |base: Value, key: &str, value: Value| {
        let mut base = base;
        base[key] = value;
        base
    };
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let map = |value: Value| json!({"type": "object", "additionalProperties": value});
    let list = |value: Value| json!({"type": "array", "items": value});
    let req = |name: &str| json!({"required": [name]});
    vec![
        row(32, Value::Null, s(), &[], false),
        row(33, Value::Null, with(s(), "default", json!("a")), &[], false),
        row(34, Value::Null, json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}), &[], false),
        row(35, Value::Null, json!({"type": "string", "enum": ["a"], "pattern": "a", "minLength": 1}), &[], false),
        row(36, s(), Value::Null, &["existingFieldRemoval: removed field : v1.^.spec.f", TYPE_GONE], true),
        row(37,
            json!({"type": "string", "default": "a", "enum": ["a"], "nullable": true, "pattern": "a", "format": "date", "minLength": 1}),
            Value::Null,
            &["existingFieldRemoval: removed field : v1.^.spec.f", TYPE_GONE, "default: default value removed : \"\\\"a\\\"\"",
                "enum: allowed enum values removed : [\"a\"]", "nullable: nullable removed : true -> false",
                "pattern: pattern removed : \"a\" -> \"\"", "unhandled: unhandled changes found (Format \"date\" -> \"\")"],
            true),
        row(38, object(json!({"a": {"type": "string"}})), Value::Null,
            &["existingFieldRemoval: removed field : v1.^.spec.f", "existingFieldRemoval: removed field : v1.^.spec.f.a",
                "type: type changed : \"object\" -> \"\"", "^.spec.f.a: type: type changed : \"string\" -> \"\""],
            true),
        row(39, s(), i(), &["type: type changed : \"string\" -> \"integer\""], true),
        row(40, with(i(), "format", json!("int32")), s(),
            &["type: type changed : \"integer\" -> \"string\"", "unhandled: unhandled changes found (Format \"int32\" -> \"\")"], true),
        row(41, i(), json!({"type": "number"}), &["type: type changed : \"integer\" -> \"number\""], true),
        row(42, i(), json!({"x-kubernetes-int-or-string": true}),
            &["type: type changed : \"integer\" -> \"\"", "unhandled: unhandled changes found (XIntOrString false -> true)"], true),
        row(43, object(json!({"a": {"type": "string"}})), json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            &["existingFieldRemoval: removed field : v1.^.spec.f.a", "^.spec.f.a: type: type changed : \"string\" -> \"\"",
                "unhandled: unhandled changes found (XPreserveUnknownFields nil -> &true)"],
            true),
        row(44, json!({"type": "object"}), json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            &["unhandled: unhandled changes found (XPreserveUnknownFields nil -> &true)"], false),
        row(45, json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({"type": "object"}),
            &["unhandled: unhandled changes found (XPreserveUnknownFields &true -> nil)"], true),
        row(46, json!({"type": "object"}), json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            &["unhandled: unhandled changes found (XEmbeddedResource false -> true)"], true),
        row(47, with(s(), "enum", json!(["a"])), with(s(), "enum", json!(["a", "b"])), &[], false),
        row(48, with(s(), "enum", json!(["a", "b"])), with(s(), "enum", json!(["a"])), &["enum: allowed enum values removed : [\"b\"]"],
            true),
        row(49, with(s(), "enum", json!(["a"])), with(s(), "enum", json!(["b"])), &["enum: allowed enum values removed : [\"a\"]"], true),
        row(50, s(), with(s(), "enum", json!(["b", "a"])), &["enum: enum constraint added when there was none previously : [\"a\" \"b\"]"],
            true),
        row(51, with(s(), "enum", json!(["a"])), s(), &["enum: allowed enum values removed : [\"a\"]"], false),
        row(52, with(s(), "enum", json!(["a", "b"])), with(s(), "enum", json!(["b", "a"])), &[], false),
        row(53, s(), with(s(), "default", json!("a")), &["default: default added when there was none previously : \"\\\"a\\\"\""], true),
        row(54, with(s(), "default", json!("a")), s(), &["default: default value removed : \"\\\"a\\\"\""], true),
        row(55, with(s(), "default", json!("a")), with(s(), "default", json!("b")),
            &["default: default value changed : \"\\\"a\\\"\" -> \"\\\"b\\\"\""], true),
        row(56, object(json!({"a": {"type": "string"}})), with(object(json!({"a": {"type": "string"}})), "required", json!(["a"])),
            &["required: new required fields: [a]"], true),
        row(57, object(json!({"a": {"type": "string"}})),
            with(object(json!({"a": {"type": "string"}, "b": {"type": "string"}})), "required", json!(["b"])),
            &["required: new required fields: [b]"], true),
        row(58, with(object(json!({"a": {"type": "string"}})), "required", json!(["a"])), object(json!({"a": {"type": "string"}})), &[],
            false),
        row(59, with(object(json!({"a": {"type": "string"}, "b": {"type": "string"}})), "required", json!(["a", "b"])),
            with(object(json!({"a": {"type": "string"}, "b": {"type": "string"}})), "required", json!(["b", "a"])), &[], false),
        row(60, object(json!({"a": {"type": "string", "default": "x"}})),
            with(object(json!({"a": {"type": "string", "default": "x"}})), "required", json!(["a"])),
            &["required: new required fields: [a]"], false),
        row(61, i(), with(i(), "maximum", json!(10)), &["maximum: maximum constraint added when there was none previously : 10"], true),
        row(62, with(i(), "maximum", json!(10)), with(i(), "maximum", json!(5)), &["maximum: maximum decreased : 10 -> 5"], true),
        row(63, with(i(), "maximum", json!(10)), with(i(), "maximum", json!(15)), &[], false),
        row(64, with(i(), "maximum", json!(10)), i(), &[], false),
        row(65, json!({"type": "number", "maximum": 10.5}), json!({"type": "number", "maximum": 10.25}),
            &["maximum: maximum decreased : 10.5 -> 10.25"], true),
        row(66, with(i(), "maximum", json!(30_000_000)), with(i(), "maximum", json!(20_000_000)),
            &["maximum: maximum decreased : 3e+07 -> 2e+07"], true),
        row(67, i(), with(i(), "minimum", json!(1)), &["minimum: minimum constraint added when there was none previously : 1"], true),
        row(68, with(i(), "minimum", json!(1)), with(i(), "minimum", json!(2)), &["minimum: minimum increased : 1 -> 2"], true),
        row(69, with(i(), "minimum", json!(1)), with(i(), "minimum", json!(0)), &[], false),
        row(70, with(i(), "minimum", json!(1)), i(), &[], false),
        row(71, s(), with(s(), "minLength", json!(0)), &["minLength: minimum constraint added when there was none previously : 0"], false),
        row(72, with(list(s()), "maxItems", json!(5)), with(list(s()), "maxItems", json!(3)), &["maxItems: maximum decreased : 5 -> 3"],
            true),
        row(73, json!({"type": "object"}), json!({"type": "object", "maxProperties": 3}),
            &["maxProperties: maximum constraint added when there was none previously : 3"], true),
        row(74, json!({"type": "array", "minItems": 1}), json!({"type": "array", "minItems": 2}), &["minItems: minimum increased : 1 -> 2"],
            true),
        row(75, with(i(), "exclusiveMaximum", json!(false)), with(i(), "exclusiveMaximum", json!(true)),
            &["unhandled: unhandled changes found (ExclusiveMaximum false -> true)"], true),
        row(76, with(i(), "exclusiveMinimum", json!(true)), with(i(), "exclusiveMinimum", json!(false)),
            &["unhandled: unhandled changes found (ExclusiveMinimum true -> false)"], false),
        row(77, i(), with(i(), "multipleOf", json!(2)), &["unhandled: unhandled changes found (MultipleOf nil -> &2)"], true),
        row(78, with(i(), "multipleOf", json!(2)), i(), &["unhandled: unhandled changes found (MultipleOf &2 -> nil)"], false),
        row(79, list(s()), with(list(s()), "uniqueItems", json!(false)), &[], false),
        row(80, s(), with(s(), "pattern", json!("^a$")), &["pattern: pattern added : \"\" -> \"^a$\""], true),
        row(81, with(s(), "pattern", json!("^b$")), with(s(), "pattern", json!("^a$")), &["pattern: pattern changed : \"^b$\" -> \"^a$\""],
            true),
        row(82, with(s(), "pattern", json!("^b$")), s(), &["pattern: pattern removed : \"^b$\" -> \"\""], false),
        row(83, s(), with(s(), "nullable", json!(true)), &["nullable: nullable added : false -> true"], false),
        row(84, with(s(), "nullable", json!(true)), s(), &["nullable: nullable removed : true -> false"], true),
        row(85, s(), with(s(), "nullable", json!(false)), &[], false),
        row(86, with(s(), "description", json!("a")), with(s(), "description", json!("b")), &[], false),
        row(87, s(), with(s(), "title", json!("T")), &["unhandled: unhandled changes found (Title \"\" -> \"T\")"], false),
        row(88, s(), with(s(), "example", json!("x")), &["unhandled: unhandled changes found (Example nil -> …"], false),
        row(89, s(), with(s(), "externalDocs", json!({"url": "u"})), &["unhandled: unhandled changes found (ExternalDocs nil -> …"], false),
        row(90, s(), with(s(), "format", json!("email")), &["unhandled: unhandled changes found (Format \"\" -> \"email\")"], true),
        row(91, with(s(), "format", json!("date")), with(s(), "format", json!("date-time")),
            &["unhandled: unhandled changes found (Format \"date\" -> \"date-time\")"], true),
        row(92, with(s(), "format", json!("date")), s(), &["unhandled: unhandled changes found (Format \"date\" -> \"\")"], false),
        row(93, with(i(), "format", json!("int32")), with(i(), "format", json!("int64")),
            &["unhandled: unhandled changes found (Format \"int32\" -> \"int64\")"], false),
        row(94, i(), with(i(), "x-kubernetes-validations", json!([{"rule": "self > 0", "message": "m"}])),
            &["unhandled: unhandled changes found (XValidations nil -> ValidationRules{{Rule: \"self > 0\", Message: \"m\"}})"], true),
        row(95, with(i(), "x-kubernetes-validations", json!([{"rule": "self > 0", "message": "m"}])), i(),
            &["unhandled: unhandled changes found (XValidations ValidationRules{{Rule: \"self > 0\", Message: \"m\"}} -> nil)"], false),
        row(96, with(i(), "x-kubernetes-validations", json!([{"rule": "self > 0", "message": "a"}])),
            with(i(), "x-kubernetes-validations", json!([{"rule": "self > 0", "message": "b"}])),
            &["unhandled: unhandled changes found (…"], false),
        row(97, with(list(s()), "x-kubernetes-list-type", json!("atomic")), with(list(s()), "x-kubernetes-list-type", json!("set")),
            &["unhandled: unhandled changes found (XListType &\"atomic\" -> &\"set\")"], true),
        row(97, list(s()), with(list(s()), "x-kubernetes-list-type", json!("atomic")),
            &["unhandled: unhandled changes found (XListType nil -> &\"atomic\")"], false),
        row(97, list(s()), with(list(s()), "x-kubernetes-list-type", json!("set")),
            &["unhandled: unhandled changes found (XListType nil -> &\"set\")"], true),
        row(98, with(list(object(json!({}))), "x-kubernetes-list-map-keys", json!(["a"])),
            with(list(object(json!({}))), "x-kubernetes-list-map-keys", json!(["a", "b"])), &["unhandled: unhandled changes found"], true),
        row(99, json!({"type": "object"}), json!({"type": "object", "x-kubernetes-map-type": "atomic"}),
            &["unhandled: unhandled changes found (XMapType nil -> &\"atomic\")"], true),
        row(99, json!({"type": "object", "x-kubernetes-map-type": "granular"}), json!({"type": "object"}),
            &["unhandled: unhandled changes found (XMapType &\"granular\" -> nil)"], false),
        row(100, list(object(json!({"a": {"type": "string"}}))), list(object(json!({"a": {"type": "string"}, "b": {"type": "string"}}))),
            &[], false),
        row(101, list(with(s(), "description", json!("a"))), list(with(s(), "description", json!("b"))), &[], false),
        row(102, list(s()), list(i()), &["^.spec.f.items: type: type changed : \"string\" -> \"integer\""], true),
        row(103, list(object(json!({"a": {"type": "string"}, "b": {"type": "string"}}))), list(object(json!({"a": {"type": "string"}}))),
            &["existingFieldRemoval: removed field : v1.^.spec.f.items.b", "^.spec.f.items.b: type: type changed : \"string\" -> \"\""],
            true),
        row(104, map(s()), map(i()),
            &["^.spec.f.additionalProperties: type: type changed : \"string\" -> \"integer\"", "unhandled: unhandled changes found…"],
            true),
        row(105, map(with(s(), "description", json!("a"))), map(with(s(), "description", json!("b"))),
            &["unhandled: unhandled changes found…"], false),
        row(106, map(object(json!({"a": {"type": "string"}}))), map(object(json!({"a": {"type": "string"}, "b": {"type": "string"}}))),
            &["unhandled: unhandled changes found…"], false),
        row(107, map(with(s(), "enum", json!(["a"]))), map(with(s(), "enum", json!(["a", "b"]))), &["unhandled: unhandled changes found…"],
            false),
        row(108, map(with(i(), "maximum", json!(1))), map(with(i(), "maximum", json!(2))), &["unhandled: unhandled changes found…"], false),
        row(109, json!({"type": "object"}), map(s()), &["unhandled: unhandled changes found (AdditionalProperties nil -> <complex value>)"],
            true),
        row(110, object(json!({"a": {"type": "string"}})), map(s()),
            &["existingFieldRemoval: removed field : v1.^.spec.f.a", "^.spec.f.a: type: type changed : \"string\" -> \"\"",
                "unhandled: unhandled changes found…"],
            true),
        row(111, map(s()), json!({"type": "object"}),
            &["existingFieldRemoval: removed field : v1.^.spec.f.additionalProperties",
                "^.spec.f.additionalProperties: type: type changed : \"string\" -> \"\"", "unhandled: unhandled changes found…"],
            true),
        row(112, s(), with(s(), "anyOf", json!([{"pattern": "a"}])), &["unhandled: unhandled changes found (AnyOf nil -> <complex value>)"],
            true),
        row(113, with(s(), "anyOf", json!([{"enum": ["a"]}])), with(s(), "anyOf", json!([{"enum": ["a", "b"]}])),
            &["unhandled: unhandled changes found…"], false),
        row(114, with(s(), "anyOf", json!([{"pattern": "a"}])), s(),
            &["existingFieldRemoval: removed field : v1.^.spec.f.anyOf[0]", "^.spec.f.anyOf[0]: pattern: pattern removed : \"a\" -> \"\"",
                "unhandled: unhandled changes found…"],
            false),
        row(115, i(), with(i(), "allOf", json!([{"minimum": 1}])), &["unhandled: unhandled changes found (AllOf nil -> <complex value>)"],
            true),
        row(116, with(i(), "allOf", json!([{"minimum": 2}])), with(i(), "allOf", json!([{"minimum": 1}])),
            &["unhandled: unhandled changes found…"], false),
        row(117, s(), with(s(), "not", json!({"pattern": "a"})), &["unhandled: unhandled changes found (Not nil -> <complex value>)"],
            true),
        row(118, json!({"type": "object"}), with(json!({"type": "object"}), "oneOf", json!([req("a")])),
            &["oneOf: oneOf constraint added when there was none previously: […"], true),
        row(119, with(json!({"type": "object"}), "oneOf", json!([req("a")])), json!({"type": "object"}),
            &["existingFieldRemoval: removed field : v1.^.spec.f.oneOf[0]", "oneOf: allowed oneOf schemas removed: […"], false),
        row(120, with(json!({"type": "object"}), "oneOf", json!([req("a")])),
            with(json!({"type": "object"}), "oneOf", json!([req("a"), req("b")])), &["oneOf: allowed oneOf schemas added: […"], true),
        row(121, with(json!({"type": "object"}), "oneOf", json!([req("a"), req("b")])),
            with(json!({"type": "object"}), "oneOf", json!([req("a")])),
            &["existingFieldRemoval: removed field : v1.^.spec.f.oneOf[1]", "oneOf: allowed oneOf schemas removed: […"], true),
        row(122, with(json!({"type": "object"}), "oneOf", json!([req("a"), req("b")])),
            with(json!({"type": "object"}), "oneOf", json!([req("b"), req("a")])),
            &["^.spec.f.oneOf[0]: required: new required fields: [b]", "^.spec.f.oneOf[1]: required: new required fields: [a]"], false),
        row(123, with(json!({"type": "object"}), "oneOf", json!([{"required": ["a"], "description": "x"}])),
            with(json!({"type": "object"}), "oneOf", json!([{"required": ["a"], "description": "y"}])), &[], false),
        row(124, with(object(json!({"a": {"type": "string"}})), "description", json!("a")),
            with(object(json!({"a": {"type": "string"}})), "description", json!("b")), &[], false),
        row(125, s(), s(), &[], false),
        row(126, json!({"type": "object"}), json!({"nullable": true, "oneOf": [{"type": "string"}]}),
            &["type: type changed : \"object\" -> \"\"", "nullable: nullable added : false -> true",
                "oneOf: oneOf constraint added when there was none previously: […"],
            true),
    ]
}

#[test]
fn parity_profile_equals_the_reference() {
    for row in rows() {
        let got = findings(&row, Profile::Parity);
        assert!(same(&got, row.parity), "row {}:\n got {got:#?}\nwant {:#?}", row.id, row.parity);
    }
}

/// Rows 64 to 74, for each of the eight checks of numbers.
#[test]
fn parity_profile_has_all_checks_of_numbers() {
    for (kind, maximum, minimum) in [
        ("integer", "maximum", "minimum"),
        ("array", "maxItems", "minItems"),
        ("string", "maxLength", "minLength"),
        ("object", "maxProperties", "minProperties"),
    ] {
        let found = |check: &str, old: Option<u8>, new: Option<u8>| {
            let of = |value: Option<u8>| match value {
                Some(value) => json!({"type": kind, (check): value}),
                None => json!({"type": kind}),
            };
            findings(&row(74, of(old), of(new), &[], true), Profile::Parity)
        };
        let added = |check: &str, word: &str| {
            vec![format!("{check}: {word} constraint added when there was none previously : 3")]
        };
        assert_eq!(found(maximum, None, Some(3)), added(maximum, "maximum"));
        assert_eq!(found(minimum, None, Some(3)), added(minimum, "minimum"));
        assert_eq!(found(maximum, Some(3), Some(2)), [format!("{maximum}: maximum decreased : 3 -> 2")]);
        assert_eq!(found(minimum, Some(2), Some(3)), [format!("{minimum}: minimum increased : 2 -> 3")]);
        for (check, old, new) in [(maximum, 2, 3), (minimum, 3, 2)] {
            assert_eq!(found(check, Some(old), Some(new)), [""; 0], "{check} is loosened");
            assert_eq!(found(check, Some(old), None), [""; 0], "{check} is removed");
        }
    }
}

#[test]
fn corrected_blocks_only_what_can_hurt() {
    for row in rows() {
        let got = findings(&row, Profile::Corrected);
        assert_eq!(!got.is_empty(), row.corrected_blocks, "row {}: {got:#?}", row.id);
    }
}

#[test]
fn parity_profile_contains_the_corrected_one() {
    for row in rows() {
        let parity = findings(&row, Profile::Parity);
        let unhandled = parity.iter().any(|text| text.contains("unhandled"));
        for text in findings(&row, Profile::Corrected) {
            assert!(
                parity.contains(&text) || (unhandled && text.contains("unhandled")),
                "row {}: {text}",
                row.id
            );
        }
    }
}

#[test]
fn findings_name_danger_and_fix() {
    for row in rows() {
        for finding in compare(&crd(&row.old), &crd(&row.new), Policy::default()) {
            assert!(!finding.danger().is_empty() && !finding.fix().is_empty(), "{finding}");
        }
    }
}
