//! What the controller asks of the apiserver: little for a rollout, nothing when nothing happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use olm_kit::{Request, Wait};
use serde_json::json;

use crate::bench::{ACCOUNT, Bench, secrets};

/// Finished requests of the controller under test about one extension's things.
fn requests(bench: &Bench) -> Result<Vec<Request>> {
    let ours = format!(":{ACCOUNT}");
    let mut found = bench.cluster.audit()?;
    found.retain(|request| {
        request.user.ends_with(&ours)
            && request.verb != "watch"
            && (request.namespace == bench.namespace || request.name.starts_with(&bench.extension))
    });
    Ok(found)
}

#[tokio::test]
async fn a_steady_revision_costs_nothing_and_heals_within_two_seconds() -> Result<()> {
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

    // drift is corrected fast, by one request
    let deleted = Instant::now();
    bench.config_maps().delete("config-3", &DeleteParams::default()).await?;
    Wait::new(&bench.config_maps(), "config-3").within(Duration::from_secs(2)).to_exist().await?;
    assert!(deleted.elapsed() < Duration::from_secs(2));
    bench.patch(&bench.config_maps(), "config-4", json!({"data": {"a": "2"}})).await?;
    Wait::new(&bench.config_maps(), "config-4")
        .until("healed", |found| found.data["data"]["a"] == "1")
        .await?;

    // then silence: a foreign label is seen and judged without a request
    let version = bench
        .patch(
            &bench.api("apps/v1", "Deployment"),
            "operator",
            json!({"metadata": {"labels": {"mine": "a"}}}),
        )
        .await?
        .resource_version();
    let before = requests(&bench)?.len();
    tokio::time::sleep(Duration::from_secs(5)).await; // the time that is measured, not a wait for something
    let after = requests(&bench)?;
    let new: Vec<String> =
        after.iter().skip(before).map(|r| format!("{} {} {}", r.verb, r.resource, r.name)).collect();
    let writes = after.iter().skip(before).filter(|request| request.writes()).count();
    assert_eq!(writes, 0, "{new:?}");
    assert!(new.len() <= 1, "at most the content is read to judge the label: {new:?}");
    let operator = bench.api("apps/v1", "Deployment").get("operator").await?;
    assert_eq!(operator.resource_version(), version);
    assert_eq!(operator.labels()["mine"], "a");
    Ok(())
}
