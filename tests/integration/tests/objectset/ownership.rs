//! Collisions, handover between revisions, archiving.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use olm_kit::{Wait, condition};
use serde_json::json;

use crate::bench::{Bench, owners};

#[tokio::test]
async fn collision_leaves_the_foreign_object_and_ends_with_it() -> Result<()> {
    let bench = Bench::new("foreign").await?;
    bench
        .create(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"mine": "yes"},
            "metadata": {"name": "config", "namespace": bench.namespace},
        }))
        .await?;
    bench
        .revision(1)
        .phase("identity", [bench.config_map("before", json!({}))])
        .phase(
            "configuration",
            [bench.config_map("config", json!({"a": "1"})), bench.config_map("beside", json!({}))],
        )
        .phase("deploy", [bench.config_map("after", json!({}))])
        .create()
        .await?;
    let text = format!(
        "ConfigMap {0}/config exists already and is not managed by OLM; delete it, and it is created\n\
         revision object collisions in phase 1\nObject ConfigMap.v1 {0}/config",
        bench.namespace
    );
    let revision = bench.message(1, "Progressing", "collisions").await?;
    let found = condition(&revision, "Progressing").expect("Progressing");
    assert_eq!((found.reason.as_str(), found.message.as_str()), ("Retrying", text.as_str()));
    assert_eq!(condition(&revision, "Available"), None);
    assert!(bench.has_config_map("beside").await?, "the rest of the phase is applied");
    assert!(!bench.has_config_map("after").await?, "later phases wait");
    assert_eq!(bench.config_maps().get("config").await?.data["data"], json!({"mine": "yes"}));
    // the waiting controller sees the removal; the slow retry is minutes away
    bench.config_maps().delete("config", &DeleteParams::default()).await?;
    bench.succeeded(1).await?;
    assert_eq!(bench.config_maps().get("config").await?.data["data"], json!({"a": "1"}));
    Ok(())
}

#[tokio::test]
async fn collision_protection_decides_about_adoption() -> Result<()> {
    for (protection, controlled, adopted) in
        [("IfNoController", false, true), ("IfNoController", true, false), ("None", true, true)]
    {
        let bench = Bench::new("adopt").await?;
        let owner = bench.create(&bench.config_map("owner", json!({}))).await?;
        let mut foreign = bench.config_map("config", json!({"a": "theirs"}));
        if controlled {
            foreign["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(), "controller": true,
            }]);
        }
        bench.create(&foreign).await?;
        let ours = bench.config_map("config", json!({"a": "ours"}));
        bench.revision(1).protection(protection).phase("configuration", [ours]).create().await?;
        let case = format!("{protection}, controlled: {controlled}");
        if adopted {
            bench.succeeded(1).await?;
            let config = bench.config_maps().get("config").await?;
            assert_eq!(config.data["data"]["a"], "ours", "{case}");
            let mut want = vec![format!("{}*", bench.name(1))];
            if controlled {
                want.insert(0, "owner".to_owned());
            }
            assert_eq!(owners(&config), want, "{case}");
        } else {
            bench.message(1, "Progressing", "Conflicting Owner: ConfigMap owner").await?;
            assert_eq!(bench.data("config", "a").await?, "theirs", "{case}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn revision_takes_over_and_archives_its_predecessor() -> Result<()> {
    let bench = Bench::new("handover").await?;
    let content = |version: &str| bench.config_map("config", json!({"version": version}));
    bench
        .revision(1)
        .default_probes()
        .phase("configuration", [content("1"), bench.config_map("goes", json!({}))])
        .phase("deploy", [bench.deployment("operator", "i:1")])
        .roll_out()
        .await?;
    let uid = bench.api("apps/v1", "Deployment").get("operator").await?.uid();
    bench
        .revision(2)
        .default_probes()
        .phase("configuration", [bench.config_map("comes", json!({}))])
        // moved to another phase: an object is known by what it is, not by where it stands
        .phase("deploy", [content("2"), bench.deployment("operator", "i:2")])
        .roll_out()
        .await?;
    let archived = bench.reason(1, "Progressing", "False", "Archived").await?;
    let available = condition(&archived, "Available").map(|found| (found.status, found.reason));
    assert_eq!(available, Some(("Unknown".into(), "Archived".into())));
    assert_eq!(condition(&archived, "Succeeded").map(|found| found.status), Some("True".to_owned()));
    Wait::new(&bench.revisions(), &bench.name(1))
        .until("finalised", |found| found.finalizers().is_empty())
        .await?;
    assert!(!bench.has_config_map("goes").await?);
    for (api, name) in [
        (bench.config_maps(), "config"),
        (bench.config_maps(), "comes"),
        (bench.api("apps/v1", "Deployment"), "operator"),
    ] {
        let object = api.get(name).await?;
        assert_eq!(owners(&object), [format!("{}*", bench.name(2))], "{name}");
        assert_eq!(object.annotations()["olm.operatorframework.io/revision"], "2", "{name}");
        let last = if name == "comes" { "Update" } else { "Apply" };
        assert_eq!(operations(&object).last().map(String::as_str), Some(last), "{name}");
    }
    let deployment = bench.api("apps/v1", "Deployment").get("operator").await?;
    assert_eq!(deployment.uid(), uid, "adopted, not created again");
    assert_eq!(deployment.data.pointer("/spec/template/spec/containers/0/image"), Some(&json!("i:2")));
    Ok(())
}

/// The operations of our entries in `managedFields`, sorted in reverse.
fn operations(object: &DynamicObject) -> Vec<String> {
    let ours = object.managed_fields().iter().filter(|entry| {
        entry.subresource.is_none() && entry.manager.as_deref() == Some("olm.operatorframework.io")
    });
    let mut operations: Vec<String> = ours.filter_map(|entry| entry.operation.clone()).collect();
    operations.sort_by(|a, b| b.cmp(a));
    operations
}

/// rule: decision 20
#[tokio::test]
async fn revision_drops_fields_that_the_create_wrote() -> Result<()> {
    let bench = Bench::new("dropped").await?;
    for (number, data, want) in [
        (1, json!({"a": "1", "b": "1"}), vec!["Update"]),
        (2, json!({"a": "2", "b": "2"}), vec!["Apply"]),
        (3, json!({"a": "3"}), vec!["Apply"]),
    ] {
        let configuration = [bench.config_map("config", data.clone())];
        bench.revision(number).phase("configuration", configuration).roll_out().await?;
        if number > 1 {
            bench.reason(number - 1, "Progressing", "False", "Archived").await?;
        }
        let config = bench.config_maps().get("config").await?;
        assert_eq!(config.data["data"], data);
        assert_eq!(operations(&config), want, "revision {number}");
    }
    Ok(())
}

/// rule: revisions §10, §17 row 28
#[tokio::test]
async fn revision_names_a_predecessor_that_cannot_be_archived() -> Result<()> {
    let bench = Bench::new("sealed").await?;
    let content = |version: &str| bench.config_map("config", json!({"version": version}));
    bench.revision(1).phase("configuration", [content("1")]).roll_out().await?;
    let name = bench.name(1);
    let about = |kind: &str, spec: serde_json::Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let policy = about(
        "ValidatingAdmissionPolicy",
        json!({
            "matchConstraints": {"resourceRules": [{"apiGroups": ["olm.operatorframework.io"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["clusterobjectsets"]}]},
            "matchConditions": [{"name": "ours", "expression": format!("object.metadata.name == '{name}'")}],
            "validations": [{"expression": "object.spec.lifecycleState == 'Active'", "message": "sealed"}],
        }),
    );
    let binding =
        about("ValidatingAdmissionPolicyBinding", json!({"policyName": name, "validationActions": ["Deny"]}));
    for object in [&policy, &binding] {
        bench.cluster.apply(&object.to_string()).await?;
    }
    // policies come into force a little later
    let archived = Patch::Merge(json!({"spec": {"lifecycleState": "Archived"}}));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    olm_kit::eventually("the policy is in force", std::time::Duration::from_secs(60), || async {
        anyhow::ensure!(bench.revisions().patch(&name, &dry, &archived).await.is_err(), "not yet");
        Ok(())
    })
    .await?;
    bench.revision(2).phase("configuration", [content("2")]).create().await?;
    let revision = bench.message(2, "Progressing", "sealed").await?;
    let found = condition(&revision, "Progressing").expect("Progressing");
    let start = format!("archiving revision {name}: ");
    assert!(found.reason == "Retrying" && found.message.starts_with(&start), "{found:?}");
    assert_eq!(condition(&revision, "Succeeded"), None, "success is not reported before");
    let api = bench.api("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding");
    api.delete(&name, &DeleteParams::default()).await?;
    bench.succeeded(2).await?;
    bench.reason(1, "Progressing", "False", "Archived").await?;
    Ok(())
}

/// rule: decision 9
#[tokio::test]
async fn revision_that_is_stuck_is_superseded() -> Result<()> {
    let bench = Bench::new("stuck").await?;
    let gate = |ready: &str| bench.config_map("gate", json!({"ready": ready}));
    bench
        .revision(1)
        .probe("", "ConfigMap", "data.ready", "yes")
        .phase("first", [gate("no"), bench.config_map("only-in-one", json!({"ready": "yes"}))])
        .phase("second", [bench.config_map("never", json!({}))])
        .create()
        .await?;
    bench.reason(1, "Available", "False", "ProbeFailure").await?;
    bench
        .revision(2)
        .probe("", "ConfigMap", "data.ready", "yes")
        .phase("first", [gate("yes")])
        .roll_out()
        .await?;
    let archived = bench.reason(1, "Progressing", "False", "Archived").await?;
    assert_eq!(condition(&archived, "Succeeded"), None);
    assert!(!bench.has_config_map("only-in-one").await?);
    assert!(!bench.has_config_map("never").await?);
    Ok(())
}

#[tokio::test]
async fn revision_that_is_incomplete_leaves_the_old_one_active() -> Result<()> {
    let bench = Bench::new("both").await?;
    let gate = |ready: &str| bench.config_map("gate", json!({"ready": ready}));
    let first = [gate("yes"), bench.config_map("beside", json!({"ready": "yes"}))];
    bench.revision(1).probe("", "ConfigMap", "data.ready", "yes").phase("first", first).roll_out().await?;
    bench
        .revision(2)
        .probe("", "ConfigMap", "data.ready", "yes")
        .phase("first", [gate("no")])
        .create()
        .await?;
    bench.reason(2, "Available", "False", "ProbeFailure").await?;
    // the first reports that its object belongs to the second and is not ready
    let first = bench.reason(1, "Available", "False", "ProbeFailure").await?;
    assert_eq!(condition(&first, "Progressing").map(|found| found.reason), Some("RollingOut".to_owned()));
    assert_eq!(condition(&first, "Succeeded").map(|found| found.status), Some("True".to_owned()));
    let gate = bench.config_maps().get("gate").await?;
    assert_eq!(owners(&gate), [bench.name(1), format!("{}*", bench.name(2))]);
    // what it still holds is still corrected
    bench.patch(&bench.config_maps(), "beside", json!({"data": {"ready": "no"}})).await?;
    bench.until_data("beside", "ready", "yes").await?;
    Ok(())
}

/// rule: revisions §12, the most dangerous defect of the reference
#[tokio::test]
async fn archiving_keeps_objects_of_another_extension() -> Result<()> {
    let first = Bench::new("mine").await?;
    let second = first.other("yours");
    let config = |bench: &Bench| bench.config_map("shared", json!({"of": bench.extension}));
    first.revision(1).phase("configuration", [config(&first)]).roll_out().await?;
    let uid = first.config_maps().get("shared").await?.uid();
    let configuration = [config(&second), second.config_map("own", json!({}))];
    second.revision(1).phase("configuration", configuration).create().await?;
    second.message(1, "Progressing", "revision object collisions in phase 0").await?;
    let patch = json!({"spec": {"lifecycleState": "Archived"}});
    second.revisions().patch(&second.name(1), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    second.reason(1, "Progressing", "False", "Archived").await?;
    assert!(!first.has_config_map("own").await?, "its own object is gone");
    let shared = first.config_maps().get("shared").await?;
    // a deleted object would be created again, with another UID
    assert_eq!(shared.uid(), uid);
    assert_eq!(owners(&shared), [format!("{}*", first.name(1))]);
    assert!(shared.metadata.deletion_timestamp.is_none());
    Ok(())
}

#[tokio::test]
async fn collision_of_two_extensions_ends_when_the_first_is_gone() -> Result<()> {
    let first = Bench::new("two").await?;
    let second = first.other("next");
    let config = |bench: &Bench| bench.config_map("shared", json!({"of": bench.extension}));
    first.revision(1).phase("configuration", [config(&first)]).roll_out().await?;
    second.revision(1).phase("configuration", [config(&second)]).create().await?;
    let conflict = second.message(1, "Progressing", "Conflicting Owner: ClusterObjectSet").await?;
    let text = condition(&conflict, "Progressing").map(|found| found.message).unwrap_or_default();
    let fields = "- Modified:\n  .data.of\n  .metadata.labels.olm.operatorframework.io/owner-name\n";
    assert!(text.contains(fields), "{text}");
    first.delete(1).await?;
    second.succeeded(1).await?;
    assert_eq!(first.data("shared", "of").await?, second.extension.as_str());
    Ok(())
}

/// rule: revisions §17 row 26: archiving by hand during a rollout must not take the objects away under the new revision
#[tokio::test]
async fn revision_archived_by_hand_hands_over() -> Result<()> {
    let bench = Bench::new("byhand").await?;
    let gate = |ready: &str| bench.config_map("gate", json!({"ready": ready}));
    let later = |version: &str| bench.config_map("later", json!({"version": version}));
    let revision = |number, ready| {
        bench
            .revision(number)
            .probe("", "ConfigMap", "data.ready", "yes")
            .phase("first", [gate(ready)])
            .phase("second", [later(&number.to_string())])
    };
    let ready = json!([{
        "selector": {"type": "Label", "label": {"matchLabels": {"none": "none"}}},
        "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "data.ready", "value": "yes"}}],
    }]);
    revision(1, "yes").create().await?;
    Wait::new(&bench.config_maps(), "later").to_exist().await?;
    let uid = bench.config_maps().get("later").await?.uid();
    revision(2, "no").create().await?;
    bench.reason(2, "Available", "False", "ProbeFailure").await?;
    let patch = json!({"spec": {"lifecycleState": "Archived"}});
    bench.revisions().patch(&bench.name(1), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let text = "removing revision resources that are not owned by another revision";
    bench.message(1, "Progressing", text).await?;
    let kept = bench.config_maps().get("later").await?;
    assert!(kept.metadata.deletion_timestamp.is_none() && kept.uid() == uid, "kept for the new revision");
    // probes are mutable: now the second revision can continue
    let patch = json!({"spec": {"progressionProbes": ready}});
    bench.revisions().patch(&bench.name(2), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    bench.succeeded(2).await?;
    bench.reason(1, "Progressing", "False", "Archived").await?;
    assert_eq!(bench.config_maps().get("later").await?.uid(), uid);
    Ok(())
}
