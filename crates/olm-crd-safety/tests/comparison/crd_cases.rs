//! Rows 1 to 31 of the case table (scope, versions, served pairs), and cases where the corrected profile must look deeper.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::mpsc;
use std::time::Duration;

use olm_core::{Cancellation, Object};
use olm_crd_safety::{Finding, Policy, Profile, compare, compare_until, message_prefix};
use serde_json::{Map, Value, json};

/// `name[!served][*stored]` and the schema of `^.spec`'s properties.
fn version(name: &str, served: bool, properties: &Value) -> Value {
    json!({
        "name": name, "served": served, "storage": name == "v1",
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}},
    })
}

fn crd(scope: &str, versions: Vec<Value>, stored: &[&str], strategy: Option<&str>) -> Object {
    let mut spec = json!({"scope": scope, "versions": versions});
    if let Some(strategy) = strategy {
        spec["conversion"] = json!({"strategy": strategy});
    }
    Object::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": spec, "status": {"storedVersions": stored},
    }))
    .unwrap()
}

fn texts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(Finding::to_string).collect()
}

/// Versions that are served, were never stored, and are not served any more: only the corrected profile has a finding.
fn allowed_in_parity(row: u16, old: &Object, new: &Object, versions: &[&str]) {
    let want = format!("servedVersionRemoval: served versions no longer served : [{}]", versions.join(" "));
    for (profile, want) in [(Profile::Parity, vec![]), (Profile::Corrected, vec![want])] {
        assert_eq!(texts(&compare(old, new, Policy { profile })), want, "row {row} {profile:?}");
    }
}

fn check(row: u16, old: &Object, new: &Object, want: &[&str]) {
    for profile in [Profile::Parity, Profile::Corrected] {
        let got = texts(&compare(old, new, Policy { profile }));
        assert_eq!(got, want, "row {row} {profile:?}");
    }
}

#[test]
fn crd_scope_and_versions_are_compared() {
    let a = json!({"a": {"type": "string"}});
    let ab = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let v1 = || version("v1", true, &a);
    let one = |scope: &str| crd(scope, vec![v1()], &["v1"], None);

    check(1, &one("Namespaced"), &one("Cluster"), &["scope: scope changed : \"Namespaced\" -> \"Cluster\""]);
    let alpha = |stored: &[&str]| crd("Namespaced", vec![version("v1alpha1", true, &a), v1()], stored, None);
    check(
        2,
        &alpha(&["v1alpha1", "v1"]),
        &one("Namespaced"),
        &["storedVersionRemoval: stored versions removed : [v1alpha1]"],
    );
    let two = crd(
        "Namespaced",
        vec![version("v1alpha1", true, &a), version("v1alpha2", true, &a), v1()],
        &["v1alpha1", "v1alpha2", "v1"],
        None,
    );
    check(
        3,
        &two,
        &one("Namespaced"),
        &["storedVersionRemoval: stored versions removed : [v1alpha1 v1alpha2]"],
    );
    allowed_in_parity(4, &alpha(&["v1"]), &one("Namespaced"), &["v1alpha1"]);
    let unserved = crd("Namespaced", vec![version("v1alpha1", false, &a), v1()], &["v1"], None);
    allowed_in_parity(5, &alpha(&["v1"]), &unserved, &["v1alpha1"]);
    check(5, &alpha(&["v1", "v1alpha1"]), &unserved, &[]);
    check(5, &unserved, &one("Namespaced"), &[]);
    let three = crd(
        "Namespaced",
        vec![version("v1alpha1", true, &a), version("v1alpha2", true, &a), v1()],
        &["v1"],
        Some("Webhook"),
    );
    allowed_in_parity(5, &three, &one("Namespaced"), &["v1alpha1", "v1alpha2"]);
    let with_v2 = |properties: &Value, served: bool, strategy: Option<&str>| {
        crd("Namespaced", vec![v1(), version("v2", served, properties)], &["v1"], strategy)
    };
    check(7, &one("Namespaced"), &with_v2(&a, true, None), &[]);
    check(8, &one("Namespaced"), &with_v2(&ab, true, None), &[]);
    let both = crd("Namespaced", vec![version("v1", true, &ab)], &["v1"], None);
    let lacking = crd("Namespaced", vec![version("v1", true, &ab), version("v2", true, &a)], &["v1"], None);
    check(9, &both, &lacking, &["v1 -> v2: ^.spec.b: type: type changed : \"string\" -> \"\""]);
    let other = json!({"a": {"type": "integer"}});
    let pair = ["v1 -> v2: ^.spec.a: type: type changed : \"string\" -> \"integer\""];
    check(10, &one("Namespaced"), &with_v2(&other, true, None), &pair);
    check(11, &one("Namespaced"), &with_v2(&other, true, Some("Webhook")), &[]);
    check(12, &one("Namespaced"), &with_v2(&other, true, Some("None")), &pair);
    check(13, &one("Namespaced"), &with_v2(&other, false, None), &[]);
    check(14, &with_v2(&other, true, None), &with_v2(&other, true, None), &[]);
    let grown = crd("Namespaced", vec![version("v1", true, &ab), version("v2", true, &a)], &["v1"], None);
    check(
        17,
        &with_v2(&a, true, None),
        &grown,
        &["v1 -> v2: ^.spec.b: type: type changed : \"string\" -> \"\""],
    );
    let broken = crd("Namespaced", vec![version("v1", true, &other)], &["v1"], Some("Webhook"));
    check(18, &one("Namespaced"), &broken, &["v1: ^.spec.a: type: type changed : \"string\" -> \"integer\""]);
    let narrowed = json!({"a": {"type": "string", "enum": ["x"]}});
    check(
        19,
        &one("Namespaced"),
        &with_v2(&narrowed, true, None),
        &["v1 -> v2: ^.spec.a: enum: enum constraint added when there was none previously : [\"x\"]"],
    );
    let z = json!({"a": {"type": "string"}, "z": {"type": "string"}});
    let below = crd(
        "Namespaced",
        vec![v1(), version("v1beta1", true, &z), version("v1alpha1", true, &a)],
        &["v1"],
        None,
    );
    check(
        20,
        &one("Namespaced"),
        &below,
        &["v1beta1 -> v1: ^.spec.z: type: type changed : \"string\" -> \"\""],
    );
    check(21, &one("Namespaced"), &crd("Namespaced", vec![v1()], &["v1"], Some("Webhook")), &[]);
    let alpha_other =
        |served| crd("Namespaced", vec![version("v1alpha1", served, &other), v1()], &["v1"], None);
    check(
        23,
        &alpha_other(false),
        &alpha_other(true),
        &["v1alpha1 -> v1: ^.spec.a: type: type changed : \"integer\" -> \"string\""],
    );
    let worse = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
    check(
        31,
        &crd("Namespaced", vec![version("v1", true, &a), version("v2", true, &other)], &["v1"], None),
        &crd("Namespaced", vec![version("v1", true, &ab), version("v2", true, &worse)], &["v1"], None),
        &["v1 -> v2: ^.spec.b: type: type changed : \"string\" -> \"integer\""],
    );
}

/// Rows 6, 24 and 25: what is not compared. Rows 15, 16, 22, 29 and 30: pairs of versions.
#[test]
fn crd_cases_without_findings_and_further_pairs() {
    let a = json!({"a": {"type": "string"}});
    let changed = |versions: Vec<Value>, at: &str, value: Value| {
        let mut crd = crd("Namespaced", versions, &["v1"], None).into_value();
        *crd.pointer_mut(at).unwrap() = value;
        Object::from_value(crd).unwrap()
    };
    let with = |mut version: Value, member: &str, value: Value| {
        version[member] = value;
        version
    };
    let one = || vec![version("v1", true, &a)];
    let plain = crd("Namespaced", one(), &["v1"], None);

    let stored = |alpha: bool| {
        let alpha = with(version("v1alpha1", true, &a), "storage", json!(alpha));
        let v1 = with(version("v1", true, &a), "storage", json!(!alpha["storage"].as_bool().unwrap()));
        crd("Namespaced", vec![alpha, v1], &["v1alpha1"], None)
    };
    check(6, &stored(true), &stored(false), &[]);
    let subresource = with(version("v1", true, &a), "subresources", json!({"status": {}}));
    let named = json!({"group": "other", "names": {"kind": "Other", "plural": "others"}, "scope": "Namespaced", "versions": [subresource]});
    check(24, &plain, &changed(one(), "/spec", named), &[]);
    let with_status = crd("Namespaced", vec![subresource], &["v1"], None);
    let deprecated = with(version("v1", true, &a), "deprecated", json!(true));
    check(25, &with_status, &crd("Namespaced", vec![deprecated], &["v1"], None), &[]);

    let pair = |one: &Value, two: &Value, strategy: Option<&str>| {
        crd("Namespaced", vec![version("v2", true, two), version("v1", true, one)], &["v1"], strategy)
    };
    let renamed = json!({"a": {"type": "string", "format": "email", "title": "A"}});
    check(15, &pair(&a, &renamed, None), &pair(&a, &renamed, None), &[]);
    let b = |kind: &str| json!({"a": {"type": "string"}, "b": {"type": kind}});
    check(
        16,
        &pair(&a, &a, None),
        &pair(&b("string"), &b("integer"), None),
        &["v1 -> v2: ^.spec.b: type: type changed : \"string\" -> \"integer\""],
    );
    check(22, &pair(&a, &a, Some("Webhook")), &pair(&a, &a, Some("None")), &[]);
    let values = |values: Value| json!({"foobarbaz": {"type": "string", "enum": values}});
    let (foo, bark) = (values(json!(["foo", "bar", "baz"])), values(json!(["bark", "woof"])));
    let before = crd("Namespaced", vec![version("v1", true, &foo)], &["v1"], None);
    check(29, &before, &pair(&foo, &bark, Some("Webhook")), &[]);
    check(
        30,
        &before,
        &pair(&foo, &bark, None),
        &["v1 -> v2: ^.spec.foobarbaz: enum: allowed enum values removed : [\"bar\" \"baz\" \"foo\"]"],
    );
}

#[test]
fn crd_version_without_schema_is_a_finding() {
    let a = json!({"a": {"type": "string"}});
    let whole = crd("Namespaced", vec![version("v1", true, &a)], &["v1"], None);
    let bare = crd("Namespaced", vec![json!({"name": "v1", "served": true, "storage": true})], &["v1"], None);
    check(26, &whole, &bare, &["v1: ^: schema: version v1 has no schema"]);
    check(27, &bare, &whole, &[]);
}

#[test]
fn crd_wider_at_any_depth_is_allowed_and_narrower_is_not() {
    let deep = |leaf: Value| {
        let properties = json!({"m": {"type": "object", "additionalProperties": {"type": "array", "items": {
            "type": "object", "properties": {"x": {"type": "string", "anyOf": [{"enum": ["z"]}, leaf]}}}}}});
        crd("Namespaced", vec![version("v1", true, &properties)], &["v1"], None)
    };
    let corrected = |old: Value, new: Value| texts(&compare(&deep(old), &deep(new), Policy::default()));
    assert_eq!(corrected(json!({"maxLength": 1}), json!({"maxLength": 2})), Vec::<String>::new());
    let want = ["v1: ^.spec.m.additionalProperties.items.x.anyOf[1]: maxLength: maximum decreased : 2 -> 1"];
    assert_eq!(corrected(json!({"maxLength": 2}), json!({"maxLength": 1})), want);
    let (bare, field, items) = (
        json!({"required": ["a"]}),
        json!({"required": ["a"], "properties": {"a": {"maxLength": 3}}}),
        json!({"required": ["a"], "items": {"maxLength": 3}}),
    );
    let added = |name: &str| {
        format!(
            "v1: ^.spec.m.additionalProperties.items.x.anyOf[1]: unhandled: unhandled changes found (fields added to a branch: [{name}])"
        )
    };
    assert_eq!(corrected(bare.clone(), field.clone()), [added("a")]);
    assert_eq!(corrected(bare.clone(), items), [added("items")]);
    assert_eq!(corrected(field, bare), Vec::<String>::new());

    let all = |branches: Value| {
        let properties = json!({"n": {"type": "integer", "allOf": branches}});
        crd("Namespaced", vec![version("v1", true, &properties)], &["v1"], None)
    };
    let found = |new: Value| {
        texts(&compare(&all(json!([{"minimum": 2}, {"maximum": 7}])), &all(new), Policy::default()))
    };
    for fewer in [json!([{"minimum": 2}]), json!([{"maximum": 7}]), json!([])] {
        assert_eq!(found(fewer.clone()), Vec::<String>::new(), "{fewer}");
    }
    assert!(!found(json!([{"maximum": 6}])).is_empty());
}

#[test]
fn crd_wider_inside_not_and_one_of_is_not_safer() {
    let with = |keyword: &str, value: Value| {
        let mut f = json!({"type": "integer"});
        f[keyword] = value;
        crd("Namespaced", vec![version("v1", true, &json!({"f": f}))], &["v1"], None)
    };
    let blocked = |old: &Object, new: &Object| !compare(old, new, Policy::default()).is_empty();
    assert!(blocked(&with("not", json!({"maximum": 1})), &with("not", json!({"maximum": 2}))));
    assert!(blocked(&with("oneOf", json!([{"maximum": 1}])), &with("oneOf", json!([{"maximum": 2}]))));
    assert!(!blocked(&with("not", json!({"title": "a"})), &with("not", json!({"title": "b"}))));
    // nothing satisfies the one with an empty schema
    assert!(blocked(&with("not", Value::Null), &with("not", json!({}))));
    assert!(!blocked(&with("not", json!({})), &with("not", Value::Null)));
}

/// Texts change nothing, wherever they stand; what only looks like a text does: the name of a property, a value.
#[test]
fn crd_texts_do_not_count_but_members_of_their_names_do() {
    let field = |keyword: &str, value: Value| {
        let mut field = json!({"type": "object"});
        field[keyword] = value;
        crd("Namespaced", vec![version("v1", true, &json!({"f": field}))], &["v1"], None)
    };
    let found = |keyword: &str, old: Value, new: Value| {
        texts(&compare(&field(keyword, old), &field(keyword, new), Policy::default()))
    };
    // inside of these nothing is compared on its own, so each is compared whole
    let inside = |node: Value| {
        [
            ("not", node.clone()),
            ("oneOf", json!([node])),
            ("not", json!({"properties": {"x": {"items": [{"anyOf": [node]}]}}})),
            ("not", json!({"dependencies": {"x": node}})),
        ]
    };
    for text in ["description", "title", "example", "externalDocs"] {
        let node = |value: Value| json!({"required": ["a"], text: value});
        for (old, new) in [(json!("a"), json!({"url": "b"})), (json!("a"), Value::Null)] {
            let both = inside(node(old)).into_iter().zip(inside(node(new)));
            for ((keyword, old), (_, new)) in both {
                assert_eq!(found(keyword, old.clone(), new.clone()), Vec::<String>::new(), "{old} -> {new}");
            }
        }
        // new texts in the other order are still the same branches
        let branch = |enumerated: &str, value: &str| json!({"enum": [enumerated], text: value});
        for keyword in ["anyOf", "allOf"] {
            let old = json!([branch("a", "1"), branch("b", "1")]);
            let new = json!([branch("b", "2"), branch("a", "3")]);
            assert_eq!(found(keyword, old, new), Vec::<String>::new(), "{keyword} {text}");
        }

        for (old, new) in [
            (json!({"properties": {text: {"maximum": 1}}}), json!({"properties": {text: {"maximum": 2}}})),
            (json!({"dependencies": {text: ["a"]}}), json!({"dependencies": {text: ["b"]}})),
            (json!({"enum": [{text: "a"}]}), json!({"enum": [{text: "b"}]})),
            (json!({"default": {text: "a"}}), json!({"default": {text: "b"}})),
        ] {
            for ((keyword, old), (_, new)) in inside(old).into_iter().zip(inside(new)) {
                assert!(!found(keyword, old.clone(), new.clone()).is_empty(), "{keyword}: {old} -> {new}");
            }
        }
    }
    for text in ["message", "messageExpression", "reason", "fieldPath"] {
        let rule = |value: &str| json!({"x-kubernetes-validations": [{"rule": "self", text: value}]});
        assert_eq!(found("not", rule("a"), rule("b")), Vec::<String>::new(), "{text}");
    }
    let rule = |rule: &str| json!({"x-kubernetes-validations": [{"rule": rule}]});
    assert!(!found("not", rule("a"), rule("b")).is_empty());
}

#[test]
fn error_message_is_sorted_and_names_the_crd() {
    let old = json!({"b": {"type": "string"}, "a": {"type": "string"}});
    let new = json!({});
    let old = crd("Namespaced", vec![version("v1", true, &old)], &["v1"], None);
    let new = crd("Namespaced", vec![version("v1", true, &new)], &["v1"], None);
    let findings = compare(&old, &new, Policy { profile: Profile::Parity });
    assert_eq!(
        message_prefix("widgets.example.com") + &texts(&findings).join("\n"),
        "validating upgrade for CRD \"widgets.example.com\": existingFieldRemoval: removed field : v1.^.spec.a\n\
         existingFieldRemoval: removed field : v1.^.spec.b\n\
         v1: ^.spec.a: type: type changed : \"string\" -> \"\"\n\
         v1: ^.spec.b: type: type changed : \"string\" -> \"\""
    );
}

#[test]
fn removed_field_is_one_finding() {
    let field = json!({"a": {"type": "string", "default": "x", "enum": ["x"]}, "b": {"type": "string"}});
    let old = crd("Namespaced", vec![version("v1", true, &field)], &["v1"], None);
    let new = crd("Namespaced", vec![version("v1", true, &json!({"b": {"type": "integer"}}))], &["v1"], None);
    let found: Vec<String> = compare(&old, &new, Policy::default()).iter().map(ToString::to_string).collect();
    let want = [
        "existingFieldRemoval: removed field : v1.^.spec.a",
        "v1: ^.spec.b: type: type changed : \"string\" -> \"integer\"",
    ];
    assert_eq!(found, want);
}

#[test]
#[rustfmt::skip]
fn paths_and_findings_of_a_crd_are_limited() {
    let below = |name: usize, fields: usize| {
        let fields: Map<String, Value> = (0..fields).map(|at| (format!("f{at}"), json!({"type": "string"}))).collect();
        version("v1", true, &json!({("n".repeat(name)): {"type": "object", "properties": fields}}))
    };
    let one = |version: Value| crd("Namespaced", vec![version], &["v1"], None);
    // each differs from the one before, but for `more`
    let wider = |count: usize, more: Value| {
        let kind = |at: usize| json!({"a": {"type": format!("{}{at}", "t".repeat(1_000))}, "b": more});
        let versions = (1..=count).map(|at| version(&format!("v{at}"), true, &kind(at))).collect();
        crd("Namespaced", versions, &["v1"], None)
    };
    let versions = |count: usize| wider(count, json!({}));
    let small = one(below(1, 1));
    for (case, old, new, problem) in [
        ("long paths", &small, one(below(7_000, 1_000)), None),
        ("longer paths", &small, one(below(9_000, 1_000)), Some("the paths of the schema's fields take more than 8388608 bytes")),
        ("one name", &small, one(below(9 << 20, 1)), Some("publish a CRD with shorter names of fields or fewer levels")),
        ("many findings", &versions(1), versions(40), None),
        ("more findings", &versions(1), versions(80), Some("the findings take more than 4194304 bytes, the last is \"v")),
        ("what there was before", &versions(50), versions(50), None),
        ("what there was before, beside a change", &versions(50), wider(50, json!({"nullable": true})), None),
    ] {
        for profile in [Profile::Parity, Profile::Corrected] {
            let found = texts(&compare(old, &new, Policy { profile }));
            let stopped: Vec<&String> = found.iter().filter(|text| text.contains("were not compared")).collect();
            match problem {
                None => assert!(stopped.is_empty(), "{case}: {stopped:?}"),
                Some(problem) => {
                    assert_eq!(found.len(), 1, "{case}");
                    assert!(found[0].contains(problem) && found[0].len() < 500, "{case}: {}", found[0]);
                }
            }
        }
    }
}

/// Versions and branches are compared in pairs, and a bundle of the permitted size has many.
#[test]
fn comparison_stops_when_cancelled() {
    let served = |name: String| version(&name, true, &json!({"a": {"type": "string"}}));
    let versions = || (0..20_000).map(|at| served(format!("v{at}"))).collect();
    let branches = |from: usize| {
        let branch = |at: usize| json!({"properties": {"a": {"minLength": at}}});
        let branches: Vec<Value> = (from..from + 20_000).map(branch).collect();
        let mut version = served("v1".to_owned());
        version["schema"]["openAPIV3Schema"]["anyOf"] = json!(branches);
        crd("Namespaced", vec![version], &["v1"], None)
    };
    let one = crd("Namespaced", vec![served("v1".to_owned())], &["v1"], None);
    for (case, old, new) in [
        ("versions", one, crd("Namespaced", versions(), &["v1"], None)),
        ("branches", branches(0), branches(20_000)),
    ] {
        let cancellation = Cancellation::default();
        let (end, ended) = mpsc::channel();
        let thread_cancellation = cancellation.clone();
        std::thread::spawn(move || {
            let _ = compare_until(&old, &new, Policy::default(), &thread_cancellation);
            let _ = end.send(());
        });
        // whole, it takes minutes
        let early = ended.recv_timeout(Duration::from_secs(1));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "{case}: ended by itself");
        cancellation.cancel();
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(()), "{case}: runs on");
    }
}
