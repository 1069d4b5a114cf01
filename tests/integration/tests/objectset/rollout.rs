//! Phases, probes, drift, missing prerequisites.

use std::time::Duration;

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use olm_kit::{Wait, condition, unique};
use serde_json::json;

use crate::bench::{Bench, MINUTE, owners};

#[tokio::test]
async fn rollout_creates_labelled_objects_and_succeeds() -> Result<()> {
    let bench = Bench::new("marks").await?;
    bench
        .revision(1)
        .default_probes()
        .phase("configuration", [bench.config_map("config", json!({"a": "1"}))])
        .phase("deploy", [bench.deployment("operator", "i:1")])
        .create()
        .await?;
    let revision = bench.succeeded(1).await?;
    for (kind, reason, message) in [
        ("Progressing", "Succeeded", "Revision 1.0.0 has rolled out."),
        ("Available", "ProbesSucceeded", "Objects are available and pass all probes."),
        ("Succeeded", "Succeeded", "Revision succeeded rolling out."),
    ] {
        let found = condition(&revision, kind).unwrap_or_else(|| panic!("{kind}"));
        let texts = (found.status.as_str(), found.reason.as_str(), found.message.as_str());
        assert_eq!(texts, ("True", reason, message));
        assert_eq!(found.observed_generation, Some(1));
    }
    assert_eq!(revision.finalizers(), ["olm.operatorframework.io/teardown"]);
    let observed = &revision.status.as_ref().expect("a status").observed_phases;
    let phases: Vec<&str> = observed.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(phases, ["configuration", "deploy"]);
    assert!(observed.iter().all(|phase| phase.digest.starts_with("sha256:")));

    let config = bench.config_maps().get("config").await?;
    assert_eq!(owners(&config), [format!("{}*", bench.name(1))]);
    assert_eq!(config.labels()["app.kubernetes.io/managed-by"], "olm.operatorframework.io");
    assert_eq!(config.annotations()["olm.operatorframework.io/revision"], "1");
    let managers: Vec<_> =
        config.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, ["olm.operatorframework.io"], "created once, by one manager");
    Ok(())
}

#[tokio::test]
async fn rollout_waits_for_probes_before_the_next_phase() -> Result<()> {
    let bench = Bench::new("probe").await?;
    bench
        .revision(1)
        .probe("", "ConfigMap", "data.ready", "yes")
        .phase("first", [bench.config_map("gate", json!({}))])
        .phase("second", [bench.config_map("after", json!({"ready": "yes"}))])
        .create()
        .await?;
    let revision = bench.reason(1, "Available", "False", "ProbeFailure").await?;
    let text = format!("Object ConfigMap.v1 {}/gate: missing key: \"data.ready\"", bench.namespace);
    assert_eq!(condition(&revision, "Available").map(|condition| condition.message), Some(text));
    let reason = condition(&revision, "Progressing").map(|condition| condition.reason);
    assert_eq!(reason.as_deref(), Some("RollingOut"));
    assert!(!bench.has_config_map("after").await?, "the second phase waits");
    bench.patch(&bench.config_maps(), "gate", json!({"data": {"ready": "yes"}})).await?;
    bench.succeeded(1).await?;
    assert!(bench.has_config_map("after").await?);
    Ok(())
}

/// rule: revisions §16, row 1
#[tokio::test]
async fn rollout_reports_an_unbound_claim() -> Result<()> {
    let bench = Bench::new("claim").await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "test-pvc", "namespace": bench.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}},
    });
    bench
        .revision(1)
        .probe("", "PersistentVolumeClaim", "status.phase", "Bound")
        .phase("storage", [claim])
        .phase("configuration", [bench.config_map("after", json!({}))])
        .create()
        .await?;
    let text = format!(
        "Object PersistentVolumeClaim.v1 {}/test-pvc: value at key \"status.phase\" != \"Bound\"; expected: \"Bound\" got: \"Pending\"",
        bench.namespace
    );
    bench.message(1, "Available", &text).await?;
    assert!(!bench.has_config_map("after").await?, "the second phase waits");
    Ok(())
}

#[tokio::test]
async fn drift_is_corrected_and_foreign_fields_stay() -> Result<()> {
    let bench = Bench::new("drift").await?;
    bench
        .revision(1)
        .default_probes()
        .phase("configuration", [bench.config_map("config", json!({"a": "1"}))])
        .phase("deploy", [bench.deployment("operator", "i:1")])
        .roll_out()
        .await?;
    let (config_maps, deployments) = (bench.config_maps(), bench.api("apps/v1", "Deployment"));

    // values of ours come back, those of others stay
    bench.patch(&config_maps, "config", json!({"data": {"a": "hacked", "extra": "kept"}})).await?;
    let healed = bench.until_data("config", "a", "1").await?;
    assert_eq!(healed.data["data"]["extra"], "kept");

    // a label of ours that is taken away comes back, also the one that the watch selects by
    let labels = json!({"olm.operatorframework.io/owner-name": null, "mine": "a"});
    bench.patch(&config_maps, "config", json!({"metadata": {"labels": labels}})).await?;
    let has = |found: &DynamicObject, key: &str| found.labels().contains_key(key);
    let is_labelled =
        |found: &DynamicObject| has(found, "olm.operatorframework.io/owner-name") && has(found, "mine");
    Wait::new(&config_maps, "config").until("labelled again", is_labelled).await?;

    // the same after deletion
    config_maps.delete("config", &DeleteParams::default()).await?;
    let again = bench.until_data("config", "a", "1").await?;
    assert_eq!(again.data["data"].get("extra"), None);

    // scale and rollout restart are not ours
    let restarted = json!({"metadata": {"annotations": {"restartedAt": "now"}}});
    let patch = json!({"spec": {"replicas": 2, "template": restarted}});
    bench.patch(&deployments, "operator", patch).await?;
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "manager", "image": "evil:1"}]}}}});
    bench.patch(&deployments, "operator", patch).await?;
    let healed = Wait::new(&deployments, "operator")
        .until("image is back", |found| {
            found.data.pointer("/spec/template/spec/containers/0/image").is_some_and(|image| image == "i:1")
        })
        .await?;
    assert_eq!(healed.data["spec"]["replicas"], 2);
    assert_eq!(healed.data.pointer("/spec/template/metadata/annotations/restartedAt"), Some(&json!("now")));
    bench.succeeded(1).await?;
    Ok(())
}

#[tokio::test]
async fn rollout_waits_for_a_missing_namespace() -> Result<()> {
    let bench = Bench::new("late").await?;
    let late = unique("late-ns");
    let mut config = bench.config_map("config", json!({}));
    config["metadata"]["namespace"] = json!(late);
    bench.revision(1).phase("configuration", [config]).create().await?;
    let text = format!(
        "reconciling object: validating: /v1, Kind=ConfigMap {late}/config: namespaces \"{late}\" not found; create the namespace"
    );
    bench.message(1, "Progressing", &text).await?;
    bench.cluster.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {late}}}}}")).await?;
    bench.succeeded(1).await?;
    Ok(())
}

#[tokio::test]
async fn rollout_of_a_crd_and_its_resource_succeeds() -> Result<()> {
    let bench = Bench::new("crd").await?;
    let (crds, deploy) = ([bench.crd("Widget")], [bench.custom_resource("Widget", "w")]);
    bench.revision(1).default_probes().phase("crds", crds).phase("deploy", deploy).roll_out().await?;
    let group = format!("{}/v1", bench.group());
    assert!(bench.api(&group, "Widget").get_opt("w").await?.is_some());
    Ok(())
}

/// rule: revisions §15 (kind missing)
#[tokio::test]
async fn rollout_waits_for_a_missing_kind() -> Result<()> {
    let bench = Bench::new("nokind").await?;
    bench
        .revision(1)
        .default_probes()
        .phase("configuration", [bench.config_map("before", json!({}))])
        .phase("deploy", [bench.custom_resource("Widget", "w")])
        .create()
        .await?;
    let text = format!("no matches for kind \"Widget\" in version \"{}/v1\"", bench.group());
    let revision = bench.message(1, "Progressing", &text).await?;
    let found = condition(&revision, "Progressing").expect("Progressing");
    assert_eq!(found.reason, "Retrying");
    assert!(found.message.starts_with("establish watch: "), "{}", found.message);
    assert!(bench.has_config_map("before").await?, "earlier phases do not wait for it");
    bench.create(&bench.crd("Widget")).await?;
    bench.succeeded(1).await?;
    Ok(())
}

#[tokio::test]
async fn rollout_reports_rejected_objects_and_applies_the_rest() -> Result<()> {
    let bench = Bench::new("reject").await?;
    let mut bad = bench.deployment("operator", "i:1");
    bad["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    bench.revision(1).phase("deploy", [bad, bench.config_map("config", json!({}))]).create().await?;
    let text =
        format!("reconciling object: validating: apps/v1, Kind=Deployment {}/operator: ", bench.namespace);
    let revision = bench.message(1, "Progressing", &text).await?;
    assert_eq!(condition(&revision, "Progressing").map(|found| found.reason), Some("Retrying".to_owned()));
    Wait::new(&bench.config_maps(), "config").to_exist().await?;
    Ok(())
}

#[tokio::test]
async fn rollout_rejects_invalid_content_before_applying_anything() -> Result<()> {
    let bench = Bench::new("invalid").await?;
    let mut config = bench.config_map("config", json!({}));
    config["metadata"]["finalizers"] = json!(["a/b"]);
    bench.revision(1).phase("configuration", [config]).create().await?;
    let text = format!(
        "revision validation error: revision \"{}\" (1): phase \"configuration\": object /v1, Kind=ConfigMap {}/config: \
         metadata.finalizers: Forbidden: must be empty",
        bench.name(1),
        bench.namespace
    );
    bench.message(1, "Progressing", &text).await?;
    assert!(!bench.has_config_map("config").await?);
    Ok(())
}

#[tokio::test]
async fn rollout_stops_while_the_extension_is_paused() -> Result<()> {
    let bench = Bench::new("paused").await?;
    let uid = bench.extension(json!({})).await?;
    let configuration = [bench.config_map("config", json!({"a": "1"}))];
    bench.revision(1).owned_by(&uid).phase("configuration", configuration).roll_out().await?;
    bench.extension(json!({"olm.operatorframework.io/paused": "true"})).await?;
    bench.patch(&bench.config_maps(), "config", json!({"data": {"a": "by hand"}})).await?;
    bench.reason(1, "Progressing", "True", "RollingOut").await?;
    assert_eq!(bench.data("config", "a").await?, "by hand");
    bench.extension(json!({})).await?;
    bench.until_data("config", "a", "1").await?;
    bench.succeeded(1).await?;
    Ok(())
}

/// Without the owner label no common watch sees the objects; they are watched one by one.
#[tokio::test]
async fn rollout_continues_without_an_extension() -> Result<()> {
    let bench = Bench::new("hand").await?;
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"},
        "metadata": {"name": "config", "namespace": bench.namespace},
    });
    // nothing is asked of it that the revision does not ask: a Job that no node takes holds nothing up
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "never", "namespace": bench.namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "nodeSelector": {"no.such/node": "true"},
                                       "containers": [{"name": "main", "image": "example.invalid/main:v1"}]}}},
    });
    bench.revision(1).unlabelled().phase("configuration", [object]).phase("deploy", [job]).roll_out().await?;
    for _ in 0..2 {
        bench.patch(&bench.config_maps(), "config", json!({"data": {"a": "hacked"}})).await?;
        bench.until_data("config", "a", "1").await?;
        bench.config_maps().delete("config", &DeleteParams::default()).await?;
        Wait::new(&bench.config_maps(), "config").to_exist().await?;
    }
    bench.delete(1).await?;
    Wait::new(&bench.config_maps(), "config").to_be_gone().await?;
    Ok(())
}

/// Two writers that both insist: the controller pauses its corrections for a while and reports it.
#[tokio::test]
async fn rollout_limits_corrections_of_a_contested_object() -> Result<()> {
    let bench = Bench::new("fight").await?;
    let configuration = [bench.config_map("config", json!({"a": "1"}))];
    bench.revision(1).phase("configuration", configuration).roll_out().await?;
    let contested = "another client changes it again and again; it is left alone for a while";
    let config_maps = bench.config_maps();
    let mut corrected = 0;
    loop {
        bench.patch(&config_maps, "config", json!({"data": {"a": format!("theirs-{corrected}")}})).await?;
        tokio::select! {
            reported = bench.message(1, "Progressing", contested) => {
                reported?;
                break;
            }
            healed = bench.until_data("config", "a", "1") => {
                healed?;
                corrected += 1;
            }
        }
        assert!(corrected <= 40, "it never lets go");
    }
    assert!(corrected >= 5, "it lets go after {corrected} corrections already");
    assert_ne!(config_maps.get("config").await?.data["data"]["a"], "1");
    Ok(())
}

/// rule: revisions §9.4, §16 rows 6 and 7.
#[tokio::test]
async fn rollout_deadline_is_reported_and_cleared_by_success() -> Result<()> {
    let bench = Bench::new("late-rollout").await?;
    let first = [bench.config_map("gate", json!({}))];
    bench.revision(1).probe("", "ConfigMap", "data.ready", "yes").phase("first", first).create().await?;
    let deadline = Patch::Merge(json!({"spec": {"progressDeadlineMinutes": 10}}));
    bench.revisions().patch(&bench.name(1), &PatchParams::default(), &deadline).await?;
    let late = Wait::new(&bench.revisions(), &bench.name(1))
        .within(Duration::from_secs(90))
        .for_reason("Progressing", "False", "ProgressDeadlineExceeded")
        .await?;
    let found = condition(&late, "Progressing").expect("Progressing");
    let text = "Revision has not rolled out for 10 minute(s). Last status: Revision 1.0.0 is rolling out.";
    assert_eq!(found.message, text);
    let conditions = late.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let stored = olm_api::condition::find(conditions, "Progressing").expect("Progressing");
    let reported = stored.last_transition_time.0.as_second();
    let made = late.metadata.creation_timestamp.as_ref().expect("a time").0.as_second();
    let due = i64::try_from((10 * MINUTE).as_secs())?;
    assert!((due..due + 30).contains(&(reported - made)), "after {} s", reported - made);
    bench.patch(&bench.config_maps(), "gate", json!({"data": {"ready": "yes"}})).await?;
    bench.succeeded(1).await?;
    Ok(())
}

#[tokio::test]
async fn rollout_names_the_failing_pod() -> Result<()> {
    let bench = Bench::new("pod").await?;
    let mut deployment = bench.deployment("operator", "i:1");
    deployment["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "such"});
    bench.revision(1).default_probes().phase("deploy", [deployment]).create().await?;
    let found = bench.message(1, "Available", ": Unschedulable: ").await?;
    let text = &condition(&found, "Available").expect("waited for").message;
    let object = format!("Object Deployment.apps/v1 {}/operator: ", bench.namespace);
    let (first, full) = text.split_once('\n').expect("a first line and details");
    assert!(
        first.contains("; 0 of 1 replicas available: pod operator-") && first.contains(": Unschedulable: "),
        "{first}"
    );
    let (probe, cause) =
        full.split_once("; 0 of 1 replicas available: pod operator-").expect("a pod is named");
    assert_eq!(probe, format!("{object}.status.condition[\"Available\"] is False"));
    assert!(cause.contains("nodes are available"), "{cause}");

    // the next lists show what its container does, though the status of the Deployment stays
    let pods = bench.api("v1", "Pod");
    let listed = pods.list(&ListParams::default().labels("app=operator")).await?;
    let last = json!({"terminated": {"exitCode": 1, "reason": "OOMKilled"}});
    let status = json!({"status": {"containerStatuses": [{
        "name": "manager", "image": "i:1", "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": last}]}});
    let name = listed.items.first().expect("a pod").name_any();
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    let text = format!("pod {name}: container manager: CrashLoopBackOff (exit code 1, OOMKilled)");
    bench.message(1, "Available", &text).await?;
    Ok(())
}
