//! Requests of the controller to the apiserver: few for a rollout, none in the steady state.

use std::time::Duration;

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_kit::{Request, Wait};
use serde_json::json;

use crate::bench::{ACCOUNT, Bench, secrets};

/// Until a deleted object is there again on a busy machine.
const HEALED: Duration = Duration::from_secs(20);

/// Finished requests of the controller under test about one extension's things.
fn requests(bench: &Bench) -> Result<Vec<Request>> {
    let ours = format!(":{ACCOUNT}");
    bench.cluster.audited(0, |request| {
        request.user.ends_with(&ours)
            && request.verb != "watch"
            && (request.namespace == bench.namespace || request.name.starts_with(&bench.extension))
    })
}

#[tokio::test]
async fn rest_of_a_revision_costs_nothing_and_heals() -> Result<()> {
    let bench = Bench::new("steady").await?;
    let objects = (0..6).map(|n| bench.config_map(&format!("config-{n}"), json!({"a": "1"})));
    let (contents, revision) = bench
        .revision(1)
        .default_probes()
        .phase("configuration", objects)
        .phase("deploy", [bench.deployment("operator", "i:1"), bench.deployment("webhook", "i:1")])
        .packed()?;
    secrets(&bench).create(&PostParams::default(), &serde_json::from_value(contents[0].clone())?).await?;
    bench.revisions().create(&PostParams::default(), &revision).await?;
    bench.succeeded(1).await?;
    let rollout = requests(&bench)?;
    let listed: Vec<String> =
        rollout.iter().map(|r| format!("{} {} {}", r.verb, r.resource, r.name)).collect();
    assert!(rollout.len() <= 8 + 8, "8 objects took {} requests: {listed:#?}", rollout.len());

    // drift is corrected because the change is watched: the next periodic pass is hours away
    bench.config_maps().delete("config-3", &DeleteParams::default()).await?;
    Wait::new(&bench.config_maps(), "config-3").within(HEALED).to_exist().await?;
    bench.patch(&bench.config_maps(), "config-4", json!({"data": {"a": "2"}})).await?;
    bench.until_data("config-4", "a", "1").await?;

    // then nothing: a foreign label is noticed and judged without a request
    // the restored object may be visible before the apply is in the audit log
    olm_kit::eventually("the record has the healing", Duration::from_secs(60), || async {
        let all = requests(&bench)?;
        let ours = all.iter().filter(|request| request.name == "config-4" && request.verb == "patch");
        let healing = ours.filter(|request| request.code == 200).count();
        anyhow::ensure!(healing == 1, "{healing} patches: an apply that drops no field needs no preparation");
        Ok(())
    })
    .await?;
    let label = json!({"metadata": {"labels": {"mine": "a"}}});
    bench.patch(&bench.api("apps/v1", "Deployment"), "operator", label).await?;
    let before = requests(&bench)?.len();
    tokio::time::sleep(Duration::from_secs(5)).await; // the time that is measured, not a wait for something
    let after = requests(&bench)?;
    let new: Vec<String> =
        after.iter().skip(before).map(|r| format!("{} {} {}", r.verb, r.resource, r.name)).collect();
    let writes = after.iter().skip(before).filter(|request| request.writes()).count();
    assert_eq!(writes, 0, "{new:?}");
    assert!(new.len() <= 1, "at most the content is read to judge the label: {new:?}");
    // its resourceVersion proves nothing: the Deployment controller writes, too
    let operator = bench.api("apps/v1", "Deployment").get("operator").await?;
    assert_eq!(operator.labels()["mine"], "a");
    Ok(())
}

/// rule: revisions §12, §17 row 12: an archived revision has done its work, whatever happens to it
#[tokio::test]
async fn archived_revision_is_not_torn_down_again() -> Result<()> {
    let bench = Bench::new("done").await?;
    let config = |version: &str| bench.config_map("config", json!({"version": version}));
    let configuration = [config("1"), bench.config_map("goes", json!({}))];
    bench.revision(1).phase("configuration", configuration).roll_out().await?;
    bench.revision(2).phase("configuration", [config("2")]).roll_out().await?;
    Wait::new(&bench.revisions(), &bench.name(1))
        .until("finalised", |found| found.finalizers().is_empty())
        .await?;
    assert!(!bench.has_config_map("goes").await?);

    // it comes back with all marks of the archived revision, and the revision is touched
    let owner = bench.revisions().get(&bench.name(1)).await?;
    let mut again = bench.config_map("goes", json!({}));
    again["metadata"]["annotations"] = json!({"olm.operatorframework.io/revision": "1"});
    again["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": owner.name_any(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    bench.create(&again).await?;
    let touched = json!({"metadata": {"annotations": {"touched": "yes"}}});
    bench.revisions().patch(&bench.name(1), &PatchParams::default(), &Patch::Merge(&touched)).await?;
    // what is healed afterwards shows that the controller has gone on
    bench.patch(&bench.config_maps(), "config", json!({"data": {"version": "hacked"}})).await?;
    bench.until_data("config", "version", "2").await?;
    let about: Vec<String> = requests(&bench)?
        .into_iter()
        .filter(|request| request.writes() && (request.name == "goes" || request.name == bench.name(1)))
        .map(|request| format!("{} {}", request.verb, request.name))
        .collect();
    let deletions = about.iter().filter(|text| *text == "delete goes").count();
    assert_eq!(deletions, 1, "{about:?}");
    assert!(bench.config_maps().get("goes").await?.metadata.deletion_timestamp.is_none());
    Ok(())
}
