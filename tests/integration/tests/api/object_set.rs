//! ClusterObjectSet: operator-controller §1.2, revisions §2.

use anyhow::{Result, anyhow};
use kube::Client;
use kube::api::{Api, DynamicObject};
use olm_integration::Want::{Accepted, Refused};
use olm_integration::{Want, api, change_status, check, create, offer_change, with};
use olm_kit::unique;
use serde_json::{Value, json};

use crate::{cluster, offer_all, report};

fn sets(client: &Client) -> Api<DynamicObject> {
    api(client, "ClusterObjectSet", "clusterobjectsets")
}

fn base() -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterObjectSet",
        "metadata": {"name": "offered"},
        "spec": {"lifecycleState": "Archived", "revision": 1, "collisionProtection": "Prevent"}
    })
}

fn config_map(name: &str) -> Value {
    json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": "b"}}})
}

fn phase(name: &str, objects: Value) -> Value {
    json!({"name": name, "objects": objects})
}

fn probe(selector: Value, assertion: Value) -> Value {
    json!({"selector": selector, "assertions": [assertion]})
}

fn group_kind() -> Value {
    json!({"type": "GroupKind", "groupKind": {"group": "apps", "kind": "Deployment"}})
}

fn available() -> Value {
    json!({"type": "ConditionEqual", "conditionEqual": {"type": "Available", "status": "True"}})
}

const PHASE_NAME: &str = "the value must consist of only lowercase alphanumeric characters and hyphens, and must start and end with an alphanumeric character.";
const EITHER: &str = "exactly one of the fields in [object ref] must be set";
const PATH: &str = "must contain a valid field path. valid fields contain upper or lower-case alphanumeric characters separated by the \".\" character.";
const OBJECT: &str = "spec.phases[0].objects[0]";

#[tokio::test]
async fn specs() -> Result<()> {
    let (_, client) = cluster().await?;
    let mut all = Vec::new();
    let mut add = |case: &str, pointer: &str, value: Value, want: Want| {
        all.push((case.to_owned(), with(base(), &[(pointer, value)]), want));
    };
    add("the smallest object", "/spec/revision", json!(1), Accepted);
    add("no spec", "/spec", Value::Null, Refused(&[("spec", "Required value")]));
    add(
        "no state",
        "/spec/lifecycleState",
        Value::Null,
        Refused(&[("spec.lifecycleState", "Required value")]),
    );
    add("active", "/spec/lifecycleState", json!("Active"), Accepted);
    add(
        "paused",
        "/spec/lifecycleState",
        json!("Paused"),
        Refused(&[("spec.lifecycleState", "supported values: \"Active\", \"Archived\"")]),
    );
    add("no revision", "/spec/revision", Value::Null, Refused(&[("spec.revision", "Required value")]));
    add(
        "revision 0",
        "/spec/revision",
        json!(0),
        Refused(&[("spec.revision", "should be greater than or equal to 1")]),
    );
    add("a large revision", "/spec/revision", json!(i64::MAX), Accepted);
    let protection = "/spec/collisionProtection";
    add("no protection", protection, Value::Null, Refused(&[("spec.collisionProtection", "Required value")]));
    for value in ["IfNoController", "None"] {
        add(value, protection, json!(value), Accepted);
    }
    add(
        "another protection",
        protection,
        json!("Ask"),
        Refused(&[(
            "spec.collisionProtection",
            "supported values: \"Prevent\", \"IfNoController\", \"None\"",
        )]),
    );
    let deadline = "/spec/progressDeadlineMinutes";
    add("a deadline", deadline, json!(10), Accepted);
    add(
        "9 minutes",
        deadline,
        json!(9),
        Refused(&[("spec.progressDeadlineMinutes", "should be greater than or equal to 10")]),
    );
    add(
        "721 minutes",
        deadline,
        json!(721),
        Refused(&[("spec.progressDeadlineMinutes", "should be less than or equal to 720")]),
    );

    let phases = "/spec/phases";
    add("no phases", phases, json!([]), Accepted);
    add("a phase", phases, json!([phase("deploy", json!([config_map("a")]))]), Accepted);
    add("a phase without objects", phases, json!([phase("deploy", json!([]))]), Accepted);
    add(
        "no objects",
        phases,
        json!([{"name": "deploy"}]),
        Refused(&[("spec.phases[0].objects", "Required value")]),
    );
    add("a long phase name", phases, json!([phase(&"p".repeat(63), json!([]))]), Accepted);
    add(
        "too long a phase name",
        phases,
        json!([phase(&"p".repeat(64), json!([]))]),
        Refused(&[("spec.phases[0].name", "Too long: may not be more than 63 bytes")]),
    );
    for name in ["Deploy", "a.b", "-a", "a-", "a b"] {
        let want = Refused(&[("spec.phases[0].name", PHASE_NAME)]);
        add(&format!("phase {name:?}"), phases, json!([phase(name, json!([]))]), want);
    }
    add(
        "no phase name",
        phases,
        json!([phase("", json!([]))]),
        Refused(&[
            ("spec.phases[0].name", "should be at least 1 chars long"),
            ("spec.phases[0].name", PHASE_NAME),
        ]),
    );
    add(
        "a phase twice",
        phases,
        json!([phase("a", json!([])), phase("a", json!([]))]),
        Refused(&[("spec.phases[1]", "Duplicate value: {\"name\":\"a\"}")]),
    );
    let many = |count: usize| (0..count).map(|n| phase(&format!("p-{n}"), json!([]))).collect::<Vec<_>>();
    add("20 phases", phases, json!(many(20)), Accepted);
    add("21 phases", phases, json!(many(21)), Refused(&[("spec.phases", "must have at most 20 items")]));
    let objects = |count: usize| (0..count).map(|n| config_map(&format!("c-{n}"))).collect::<Vec<_>>();
    add("50 objects", phases, json!([phase("a", json!(objects(50)))]), Accepted);
    add(
        "51 objects",
        phases,
        json!([phase("a", json!(objects(51)))]),
        Refused(&[("spec.phases[0].objects", "must have at most 50 items")]),
    );
    let full: Vec<_> = (0..20).map(|n| phase(&format!("p-{n}"), json!(objects(50)))).collect();
    add("20 phases of 50 objects", phases, json!(full), Accepted);

    let in_phase = |object: Value| json!([phase("a", json!([object]))]);
    let reference = |reference: Value| in_phase(json!({"ref": reference}));
    add("a reference", phases, reference(json!({"name": "s", "namespace": "n", "key": "k"})), Accepted);
    add("a reference without namespace", phases, reference(json!({"name": "s", "key": "k"})), Accepted);
    add("neither", phases, in_phase(json!({})), Refused(&[(OBJECT, EITHER)]));
    let both = with(config_map("a"), &[("/ref", json!({"name": "s", "key": "k"}))]);
    add("both", phases, in_phase(both), Refused(&[(OBJECT, EITHER)]));
    add(
        "a reference without key",
        phases,
        reference(json!({"name": "s"})),
        Refused(&[("spec.phases[0].objects[0].ref.key", "Required value")]),
    );
    add(
        "a reference with an empty name",
        phases,
        reference(json!({"name": "", "key": "k"})),
        Refused(&[("spec.phases[0].objects[0].ref.name", "should be at least 1 chars long")]),
    );
    add(
        "a reference with a long key",
        phases,
        reference(json!({"name": "s", "key": "k".repeat(254)})),
        Refused(&[("spec.phases[0].objects[0].ref.key", "Too long: may not be more than 253 bytes")]),
    );
    add(
        "a reference with a long namespace",
        phases,
        reference(json!({"name": "s", "namespace": "n".repeat(64), "key": "k"})),
        Refused(&[("spec.phases[0].objects[0].ref.namespace", "Too long: may not be more than 63 bytes")]),
    );
    add(
        "an object without kind",
        phases,
        in_phase(json!({"object": {"apiVersion": "v1", "metadata": {"name": "a"}}})),
        Refused(&[("spec.phases[0].objects[0].object.kind", "Required value")]),
    );
    let protected = with(config_map("a"), &[("/collisionProtection", json!("None"))]);
    add("an object with protection", phases, in_phase(protected), Accepted);
    let odd = with(config_map("a"), &[("/collisionProtection", json!("Ask"))]);
    add(
        "an object with odd protection",
        phases,
        in_phase(odd),
        Refused(&[(
            "spec.phases[0].objects[0].collisionProtection",
            "supported values: \"Prevent\", \"IfNoController\", \"None\"",
        )]),
    );
    offer_all(&sets(&client), all).await
}

#[tokio::test]
async fn probes() -> Result<()> {
    let (_, client) = cluster().await?;
    let mut all = Vec::new();
    let mut add = |case: &str, probes: Value, want: Want| {
        all.push((case.to_owned(), with(base(), &[("/spec/progressionProbes", probes)]), want));
    };
    add("a probe", json!([probe(group_kind(), available())]), Accepted);
    add("no probe", json!([]), Refused(&[("spec.progressionProbes", "should have at least 1 items")]));
    add("20 probes", json!(vec![probe(group_kind(), available()); 20]), Accepted);
    add(
        "21 probes",
        json!(vec![probe(group_kind(), available()); 21]),
        Refused(&[("spec.progressionProbes", "must have at most 20 items")]),
    );
    let assertions = |list: Value| json!([{"selector": group_kind(), "assertions": list}]);
    add("20 assertions", assertions(json!(vec![available(); 20])), Accepted);
    add(
        "21 assertions",
        assertions(json!(vec![available(); 21])),
        Refused(&[("spec.progressionProbes[0].assertions", "must have at most 20 items")]),
    );
    add(
        "no assertion",
        assertions(json!([])),
        Refused(&[("spec.progressionProbes[0].assertions", "should have at least 1 items")]),
    );

    let selected = |selector: Value| json!([probe(selector, available())]);
    const GROUP_KIND: (&str, &str) = (
        "spec.progressionProbes[0].selector",
        "groupKind is required when type is GroupKind, and forbidden otherwise",
    );
    const LABEL: (&str, &str) = (
        "spec.progressionProbes[0].selector",
        "label is required when type is Label, and forbidden otherwise",
    );
    const ONE: (&str, &str) = (
        "spec.progressionProbes[0].selector.label",
        "exactly one of matchLabels or matchExpressions must be set",
    );
    let labels = json!({"matchLabels": {"a": "b"}});
    let expressions = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    add(
        "the core group",
        selected(json!({"type": "GroupKind", "groupKind": {"group": "", "kind": "Pod"}})),
        Accepted,
    );
    add("by labels", selected(json!({"type": "Label", "label": labels})), Accepted);
    add("by expressions", selected(json!({"type": "Label", "label": expressions})), Accepted);
    add("no group and kind", selected(json!({"type": "GroupKind"})), Refused(&[GROUP_KIND]));
    add("no label", selected(json!({"type": "Label"})), Refused(&[LABEL]));
    add(
        "both members",
        selected(json!({"type": "Label", "label": labels, "groupKind": {"group": "", "kind": "Pod"}})),
        Refused(&[GROUP_KIND]),
    );
    add(
        "labels and expressions",
        selected(
            json!({"type": "Label", "label": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
        ),
        Refused(&[ONE]),
    );
    add("an empty label selector", selected(json!({"type": "Label", "label": {}})), Refused(&[ONE]));
    add(
        "another selector",
        selected(json!({"type": "Name"})),
        Refused(&[("spec.progressionProbes[0].selector.type", "supported values: \"GroupKind\", \"Label\"")]),
    );
    add(
        "no kind",
        selected(json!({"type": "GroupKind", "groupKind": {"group": "apps"}})),
        Refused(&[("spec.progressionProbes[0].selector.groupKind.kind", "Required value")]),
    );

    let asserted = |assertion: Value| json!([probe(group_kind(), assertion)]);
    const AT: &str = "spec.progressionProbes[0].assertions[0]";
    let equal = |a: &str, b: &str| {
        asserted(json!({"type": "FieldsEqual", "fieldsEqual": {"fieldA": a, "fieldB": b}}))
    };
    let value = |path: &str, value: Value| {
        asserted(json!({"type": "FieldValue", "fieldValue": {"fieldPath": path, "value": value}}))
    };
    add("fields", equal("spec.replicas", "status.updatedReplicas"), Accepted);
    add("a value", value("status.phase", json!("Active")), Accepted);
    for (member, message) in [
        (
            "ConditionEqual",
            Refused(&[(
                AT,
                "conditionEqual is required when type is ConditionEqual, and forbidden otherwise",
            )]),
        ),
        (
            "FieldsEqual",
            Refused(&[(AT, "fieldsEqual is required when type is FieldsEqual, and forbidden otherwise")]),
        ),
        (
            "FieldValue",
            Refused(&[(AT, "fieldValue is required when type is FieldValue, and forbidden otherwise")]),
        ),
    ] {
        add(&format!("{member} without its member"), asserted(json!({"type": member})), message);
    }
    add(
        "a member too many",
        asserted(with(available(), &[("/fieldValue", json!({"fieldPath": "a", "value": "b"}))])),
        Refused(&[(AT, "fieldValue is required when type is FieldValue, and forbidden otherwise")]),
    );
    add(
        "another assertion",
        asserted(json!({"type": "Exists"})),
        Refused(&[(
            "spec.progressionProbes[0].assertions[0].type",
            "supported values: \"ConditionEqual\", \"FieldsEqual\", \"FieldValue\"",
        )]),
    );
    for path in ["spec.replicas-x", "spec.items[0]", ".spec", "spec.", "a b"] {
        let want = Refused(&[("spec.progressionProbes[0].assertions[0].fieldsEqual.fieldA", PATH)]);
        add(&format!("path {path:?}"), equal(path, "a"), want);
    }
    add(
        "a long path",
        value(&"a".repeat(201), json!("x")),
        Refused(&[(
            "spec.progressionProbes[0].assertions[0].fieldValue.fieldPath",
            "Too long: may not be more than 200 bytes",
        )]),
    );
    add(
        "a value that is no text",
        value("a", json!(1)),
        Refused(&[(
            "spec.progressionProbes[0].assertions[0].fieldValue.value",
            "must be of type string: \"integer\"",
        )]),
    );
    add(
        "an empty value",
        value("a", json!("")),
        Refused(&[(
            "spec.progressionProbes[0].assertions[0].fieldValue.value",
            "should be at least 1 chars long",
        )]),
    );
    let status = |status: &str| {
        asserted(json!({"type": "ConditionEqual", "conditionEqual": {"type": "A", "status": status}}))
    };
    add("false is a status", status("False"), Accepted);
    add(
        "unknown is none to probe for",
        status("Unknown"),
        Refused(&[(
            "spec.progressionProbes[0].assertions[0].conditionEqual.status",
            "supported values: \"True\", \"False\"",
        )]),
    );
    offer_all(&sets(&client), all).await
}

#[tokio::test]
async fn embedded_objects_are_kept_whole() -> Result<()> {
    let (_, client) = cluster().await?;
    let widget = json!({"apiVersion": "x.y/v7", "kind": "Widget", "metadata": {"name": "w", "annotations": {"a": ""}}, "spec": {"deep": [{"n": 1.5, "null": null}]}, "extra": true});
    let object = with(base(), &[("/spec/phases", json!([phase("a", json!([{"object": widget}]))]))]);
    let stored =
        olm_integration::offer(&sets(&client), object).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    assert_eq!(stored.data["spec"]["phases"][0]["objects"][0]["object"], widget);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_changed() -> Result<()> {
    let (_, client) = cluster().await?;
    let api = sets(&client);
    let name = unique("immutable");
    let filled = with(
        base(),
        &[("/metadata/name", json!(name)), ("/spec/phases", json!([phase("a", json!([config_map("x")]))]))],
    );
    let archived = create(&api, filled).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    let empty_name = unique("empty");
    let empty =
        with(base(), &[("/metadata/name", json!(empty_name)), ("/spec/lifecycleState", json!("Active"))]);
    let active = create(&api, empty).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    let phases = "/spec/phases";
    let cases: Vec<(&str, &DynamicObject, &str, Value, Want)> = vec![
        (
            "back to life",
            &archived,
            "/spec/lifecycleState",
            json!("Active"),
            Refused(&[("spec.lifecycleState", "cannot un-archive")]),
        ),
        ("archive", &active, "/spec/lifecycleState", json!("Archived"), Accepted),
        (
            "revision",
            &active,
            "/spec/revision",
            json!(2),
            Refused(&[("spec.revision", "revision is immutable")]),
        ),
        (
            "protection",
            &active,
            "/spec/collisionProtection",
            json!("None"),
            Refused(&[("spec.collisionProtection", "collisionProtection is immutable")]),
        ),
        ("phases filled later", &active, phases, json!([phase("a", json!([config_map("x")]))]), Accepted),
        (
            "another object",
            &archived,
            phases,
            json!([phase("a", json!([config_map("y")]))]),
            Refused(&[("spec.phases", "phases is immutable")]),
        ),
        (
            "one more phase",
            &archived,
            phases,
            json!([phase("a", json!([config_map("x")])), phase("b", json!([]))]),
            Refused(&[("spec.phases", "phases is immutable")]),
        ),
        (
            "no phase any more",
            &archived,
            phases,
            json!([]),
            Refused(&[("spec.phases", "phases is immutable")]),
        ),
        ("probes", &archived, "/spec/progressionProbes", json!([probe(group_kind(), available())]), Accepted),
        ("deadline", &archived, "/spec/progressDeadlineMinutes", json!(30), Accepted),
    ];
    let count = cases.len();
    let mut wrong = Vec::new();
    for (case, stored, pointer, value, want) in cases {
        let answer =
            offer_change(&api, stored, |object| *object = with(object.take(), &[(pointer, value)])).await?;
        wrong.extend(check(case, want, &answer).err().map(|error| error.to_string()));
    }
    for name in [name, empty_name] {
        api.delete(&name, &kube::api::DeleteParams::default()).await?;
    }
    report(count, &wrong)
}

#[tokio::test]
async fn status_rules() -> Result<()> {
    let (_, client) = cluster().await?;
    let api = sets(&client);
    let name = unique("status");
    let object = with(base(), &[("/metadata/name", json!(name))]);
    let stored = create(&api, object).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    let observed = |digest: &str| json!({"observedPhases": [{"name": "a", "digest": digest}]});
    const DIGEST: Want =
        Refused(&[("status.observedPhases[0].digest", "digest must be in the format '<algorithm>:<hex>'")]);
    const FIXED: Want = Refused(&[("status.observedPhases", "observedPhases is immutable")]);
    let many: Vec<_> = (0..21).map(|n| json!({"name": format!("p-{n}"), "digest": "sha256:ab"})).collect();
    // in order: the first digest that is accepted stays
    let cases = [
        ("no hex", observed("sha256:xyz"), DIGEST),
        ("no algorithm", observed(":ab"), DIGEST),
        (
            "no digest",
            observed(""),
            Refused(&[
                ("status.observedPhases[0].digest", "should be at least 1 chars long"),
                ("status.observedPhases[0].digest", "digest must be in the format '<algorithm>:<hex>'"),
            ]),
        ),
        (
            "a long digest",
            observed(&format!("sha512:{}", "a".repeat(250))),
            Refused(&[("status.observedPhases[0].digest", "Too long: may not be more than 256 bytes")]),
        ),
        (
            "21 phases",
            json!({"observedPhases": many}),
            Refused(&[("status.observedPhases", "must have at most 20 items")]),
        ),
        ("none yet", json!({"observedPhases": []}), Accepted),
        ("the first", observed("sha256:ab"), Accepted),
        ("the same", observed("sha256:ab"), Accepted),
        ("another", observed("sha256:cd"), FIXED),
        (
            "one more",
            json!({"observedPhases": [{"name": "a", "digest": "sha256:ab"}, {"name": "b", "digest": "sha256:cd"}]}),
            FIXED,
        ),
    ];
    let count = cases.len();
    let mut wrong = Vec::new();
    let mut latest = stored;
    for (case, status, want) in cases {
        let answer = change_status(&api, &latest, |object| object["status"] = status).await?;
        wrong.extend(check(case, want, &answer).err().map(|error| error.to_string()));
        if let Ok(object) = answer {
            latest = object;
        }
    }
    api.delete(&name, &kube::api::DeleteParams::default()).await?;
    report(count, &wrong)
}
