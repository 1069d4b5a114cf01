//! Content in Secrets: what is accepted, what blocks, what is retried.

use anyhow::Result;
use kube::api::{DeleteParams, PostParams};
use olm_kit::{Wait, condition};
use serde_json::{Value, json};

use crate::bench::{Bench, secrets};

async fn store(bench: &Bench, secret: &Value) -> Result<()> {
    secrets(bench).create(&PostParams::default(), &serde_json::from_value(secret.clone())?).await?;
    Ok(())
}

fn name(secret: &Value) -> String {
    secret["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn content_secret_is_applied_and_waited_for() -> Result<()> {
    let bench = Bench::new("packed").await?;
    let (contents, revision) =
        bench.revision(1).phase("configuration", [bench.config_map("config", json!({"a": "1"}))]).packed()?;
    bench.revisions().create(&PostParams::default(), &revision).await?;
    let text = format!(
        "resolving ref in phase \"configuration\": getting Secret olmv1-system/{0}: secrets \"{0}\" not found",
        name(&contents[0])
    );
    let waiting = bench.message(1, "Progressing", &text).await?;
    assert_eq!(condition(&waiting, "Progressing").map(|found| found.reason), Some("Retrying".to_owned()));
    store(&bench, &contents[0]).await?;
    bench.succeeded(1).await?;
    assert_eq!(bench.data("config", "a").await?, "1");
    Ok(())
}

#[tokio::test]
async fn content_secret_blocks_until_it_is_immutable() -> Result<()> {
    let bench = Bench::new("mutable").await?;
    let (mut contents, revision) =
        bench.revision(1).phase("configuration", [bench.config_map("config", json!({}))]).packed()?;
    contents[0]["immutable"] = json!(false);
    store(&bench, &contents[0]).await?;
    bench.revisions().create(&PostParams::default(), &revision).await?;
    let blocked = bench.reason(1, "Progressing", "False", "Blocked").await?;
    assert_eq!(
        condition(&blocked, "Progressing").map(|found| found.message),
        Some(format!(
            "the following secrets are not immutable (referenced secrets must have immutable set to true): olmv1-system/{}",
            name(&contents[0])
        ))
    );
    assert!(!bench.has_config_map("config").await?);
    bench.patch(&secrets(&bench), &name(&contents[0]), json!({"immutable": true})).await?;
    bench.succeeded(1).await?;
    Ok(())
}

#[tokio::test]
async fn content_secret_with_other_content_blocks_until_restored() -> Result<()> {
    let bench = Bench::new("swapped").await?;
    let (contents, revision) =
        bench.revision(1).phase("resources", [bench.config_map("config", json!({"a": "1"}))]).packed()?;
    store(&bench, &contents[0]).await?;
    bench.revisions().create(&PostParams::default(), &revision).await?;
    bench.succeeded(1).await?;

    let mut forged = contents[0].clone();
    for value in forged["stringData"].as_object_mut().expect("data").values_mut() {
        *value = json!(bench.config_map("config", json!({"a": "forged"})).to_string());
    }
    secrets(&bench).delete(&name(&forged), &DeleteParams::default()).await?;
    store(&bench, &forged).await?;
    bench.reason(1, "Progressing", "False", "Blocked").await?;
    let text = "resolved content of 1 phase(s) has changed: phase \"resources\" (expected digest sha256:";
    bench.message(1, "Progressing", text).await?;
    assert_eq!(bench.data("config", "a").await?, "1", "nothing of it is applied");

    secrets(&bench).delete(&name(&forged), &DeleteParams::default()).await?;
    store(&bench, &contents[0]).await?;
    bench.succeeded(1).await?;
    Ok(())
}

#[tokio::test]
async fn content_reference_may_omit_namespace_and_labels() -> Result<()> {
    let bench = Bench::new("hand").await?;
    let (mut contents, mut revision) =
        bench.revision(1).phase("configuration", [json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": bench.namespace},
        })]).packed()?;
    contents[0]["metadata"]["labels"] = json!({});
    revision.metadata.labels = None;
    for object in revision.spec.phases.iter_mut().flat_map(|phase| &mut phase.objects) {
        if let Some(reference) = &mut object.reference {
            reference.namespace = None;
        }
    }
    store(&bench, &contents[0]).await?;
    bench.revisions().create(&PostParams::default(), &revision).await?;
    bench.succeeded(1).await?;
    let config = bench.config_maps().get("config").await?;
    let labels = config.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("olm.operatorframework.io/owner-name"), None, "no empty label is stamped");
    Ok(())
}

/// A revision may name any Secret. Its content is applied or not, and never printed.
#[tokio::test]
async fn content_secret_without_manifest_is_named_and_not_printed() -> Result<()> {
    const MARK: &str = "Mark-of-somebody-elses-password";
    let bench = Bench::new("peek").await?;
    for (number, content) in [
        (1, MARK.to_owned()),
        (2, format!("\"{MARK}\"")),
        (3, json!({"password": MARK}).to_string()),
        (4, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": [MARK]}}).to_string()),
        (5, format!("{{\"{MARK}\": tru")),
    ] {
        let bench = bench.other(&format!("peek-{number}"));
        let (_, mut revision) =
            bench.revision(1).phase("configuration", [bench.config_map("config", json!({}))]).packed()?;
        let theirs = json!({"apiVersion": "v1", "kind": "Secret", "immutable": true, "stringData": {"key": content},
            "metadata": {"name": format!("theirs-{number}"), "namespace": bench.namespace}});
        bench.create(&theirs).await?;
        for object in revision.spec.phases.iter_mut().flat_map(|phase| &mut phase.objects) {
            if let Some(reference) = &mut object.reference {
                reference.namespace = Some(bench.namespace.clone());
                reference.name = format!("theirs-{number}");
                reference.key = "key".to_owned();
            }
        }
        bench.revisions().create(&PostParams::default(), &revision).await?;
        let blocked = Wait::new(&bench.revisions(), &bench.name(1))
            .until("reports the fault", |found| {
                condition(found, "Progressing").is_some_and(|found| !found.message.is_empty())
            })
            .await?;
        let text = serde_json::to_string(&blocked.status)?;
        assert!(!text.contains(MARK), "{number}: {text}");
        let message = condition(&blocked, "Progressing").map(|found| found.message).unwrap_or_default();
        assert!(!message.contains("Succeeded"), "{number}: {message}");
    }
    // events of cluster-scoped objects live in this namespace
    let api: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(bench.client.clone(), "default");
    let events = serde_json::to_string(&api.list(&kube::api::ListParams::default()).await?.items)?;
    assert!(!events.contains(MARK), "{events}");
    Ok(())
}
