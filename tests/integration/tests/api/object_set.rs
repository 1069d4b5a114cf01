//! ClusterObjectSet: operator-controller §1.2, revisions §2.

use anyhow::Result;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject};
use olm_integration::{api, patched};
use olm_kit::unique;
use serde_json::{Value, json};

use crate::cases::{Case, accepted, cases, create_accepted, offer_all, offer_changes, write_statuses};
use crate::cluster;

const CASES: &str = include_str!("cases/object_set.yaml");

fn sets(client: &Client) -> Api<DynamicObject> {
    api(client, "ClusterObjectSet", "clusterobjectsets")
}

fn base() -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": "offered"},
        "spec": {"lifecycleState": "Archived", "revision": 1, "collisionProtection": "Prevent"},
    })
}

fn config_map(name: &str) -> Value {
    json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": "b"}}})
}

fn phase(name: &str, objects: Value) -> Value {
    json!({"name": name, "objects": objects})
}

/// The smallest object with this probe.
fn probing(assertion: Value) -> Value {
    let selector = json!({"type": "GroupKind", "groupKind": {"group": "apps", "kind": "Deployment"}});
    let probes = json!([{"selector": selector, "assertions": [assertion]}]);
    patched(base(), &[("/spec/progressionProbes", probes)])
}

#[tokio::test]
async fn object_set_schema_validates_specs() -> Result<()> {
    let (_, client) = cluster().await?;
    let mut all = cases(CASES, "specs", &base())?;
    let objects = |count: usize| (0..count).map(|n| config_map(&format!("c-{n}"))).collect::<Vec<_>>();
    let phases = |count: usize, objects: Vec<Value>| {
        (0..count).map(|n| phase(&format!("p-{n}"), json!(objects))).collect::<Vec<_>>()
    };
    for (name, phases, rejected) in [
        ("20 phases", phases(20, objects(0)), &[][..]),
        ("21 phases", phases(21, objects(0)), &[("spec.phases", "must have at most 20 items")]),
        ("50 objects", phases(1, objects(50)), &[]),
        ("51 objects", phases(1, objects(51)), &[("spec.phases[0].objects", "must have at most 50 items")]),
        ("20 phases of 50 objects", phases(20, objects(50)), &[]),
    ] {
        all.push(Case::new(name, patched(base(), &[("/spec/phases", json!(phases))]), rejected));
    }
    offer_all(&sets(&client), all).await
}

#[tokio::test]
async fn object_set_schema_validates_probes() -> Result<()> {
    let (_, client) = cluster().await?;
    let available =
        json!({"type": "ConditionEqual", "conditionEqual": {"type": "Available", "status": "True"}});
    let probe = probing(available.clone());
    let fields = probing(json!({"type": "FieldsEqual", "fieldsEqual": {"fieldA": "a", "fieldB": "a"}}));
    let mut all = cases(CASES, "probes", &probe)?;
    all.extend(cases(CASES, "field paths", &fields)?);
    for (pointer, item) in [
        ("/spec/progressionProbes", &probe["spec"]["progressionProbes"][0]),
        ("/spec/progressionProbes/0/assertions", &available),
    ] {
        let field = pointer.trim_start_matches('/').replace("/0", "[0]").replace('/', ".");
        let too_many = [(field.as_str(), "must have at most 20 items")];
        for (count, rejected) in [(1, &[][..]), (20, &[]), (21, &too_many)] {
            let object = patched(probe.clone(), &[(pointer, json!(vec![item; count]))]);
            all.push(Case::new(&format!("{count} at {pointer}"), object, rejected));
        }
    }
    offer_all(&sets(&client), all).await
}

#[tokio::test]
async fn object_set_schema_preserves_embedded_objects() -> Result<()> {
    let (_, client) = cluster().await?;
    let widget = json!({"apiVersion": "x.y/v7", "kind": "Widget", "metadata": {"name": "w", "annotations": {"a": ""}}, "spec": {"deep": [{"n": 1.5, "null": null}]}, "extra": true});
    let object = patched(base(), &[("/spec/phases", json!([phase("a", json!([{"object": widget}]))]))]);
    let stored = accepted(&sets(&client), object).await?;
    assert_eq!(stored.data["spec"]["phases"][0]["objects"][0]["object"], widget);
    Ok(())
}

#[tokio::test]
async fn object_set_schema_rejects_immutable_changes() -> Result<()> {
    let (_, client) = cluster().await?;
    let api = sets(&client);
    let phases = json!([phase("a", json!([config_map("x")]))]);
    for (changes, pointer, value) in [
        ("changes of an archived revision", "/spec/phases", phases),
        ("changes of an active revision", "/spec/lifecycleState", json!("Active")),
    ] {
        let name = unique("immutable");
        let object = patched(base(), &[("/metadata/name", json!(name)), (pointer, value)]);
        offer_changes(&api, &create_accepted(&api, object).await?, CASES, changes).await?;
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn object_set_schema_validates_status() -> Result<()> {
    let (_, client) = cluster().await?;
    let many: Vec<_> = (0..21).map(|n| json!({"name": format!("p-{n}"), "digest": "sha256:ab"})).collect();
    let too_many = [("status.observedPhases", "must have at most 20 items")];
    let mut all = vec![Case::new("21 phases", json!({"observedPhases": many}), &too_many)];
    all.extend(cases(CASES, "status", &json!({}))?);
    let object = patched(base(), &[("/metadata/name", json!(unique("status")))]);
    write_statuses(&sets(&client), object, all).await
}
