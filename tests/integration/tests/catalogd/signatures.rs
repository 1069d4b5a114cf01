//! The signature policy and what is on disk already: a catalog that was stored without a policy is not served under one
//! before its signature is verified, and then it is served again without the registry.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, Patch, PatchParams, PostParams};
use olm_api::{ClusterCatalog, annotations, condition};
use olm_kit::{Ca, CatalogImage, Cluster, Process, Program, Registry, RunDir, Signer, Wait, eventually};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn signature_policy_verifies_stored_content_before_serving() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install_crds().await?;
    let registry = Registry::start().await?;
    let api: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    let http = Ca::shared()?.http_client()?;
    let run_dir = RunDir::new("signatures")?;
    let dir = run_dir.path();
    let (signer, foreign_signer) = (Signer::new()?, Signer::new()?);
    let policy = dir.join("policy.json");
    let policy_text = policy.display().to_string();
    let catalogd = || Program::catalogd_in(&cluster, Ca::shared()?, Some(dir));
    let strict = || anyhow::Ok(catalogd()?.flag("--signature-policy", &policy_text));
    let code = async |process: &Process| -> Result<u16> {
        let url = format!("{}/catalogs/signed/api/v1/all", process.content_url());
        Ok(http.get(url).send().await?.status().as_u16())
    };
    let condition_of = async |type_: &str, reason: &str| -> Result<String> {
        let has = |catalog: &ClusterCatalog| {
            let status = catalog.status.clone().unwrap_or_default();
            condition::find(&status.conditions, type_).is_some_and(|found| found.reason == reason)
        };
        let what = format!("{type_}/{reason}");
        let catalog = Wait::new(&api, "signed").within(LIMIT).until(&what, has).await?;
        let conditions = catalog.status.unwrap_or_default().conditions;
        Ok(condition::find(&conditions, type_).context("no condition")?.message.clone())
    };

    // a policy that cannot be read ends the process with an error message
    for (program, want) in [
        (strict()?, "error loading policy context: "),
        // and so does one of the container tools, which no flag names
        (catalogd()?.env("CONTAINERS_POLICY_JSON", &policy_text), "name another one in --signature-policy"),
    ] {
        let mut broken = program.launch()?;
        eventually("the process has ended", LIMIT, || async {
            ensure!(broken.log_text().contains(want), "{}", broken.log_text());
            Ok(())
        })
        .await?;
        broken.kill9();
    }

    let text = "schema: olm.package\nname: one\ndefaultChannel: stable\n";
    let pushed = registry.push("signed", "latest", &CatalogImage::from_text(text).image()).await?;
    let object = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "signed"},
        "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_tag()}}},
    });
    let free = catalogd()?.start().await?;
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    condition_of("Serving", "Available").await?;
    assert_eq!(code(&free).await?, 200);
    drop(free);

    std::fs::write(&policy, json!({"default": [signer.requirement()]}).to_string())?;
    let started = strict()?.start().await?;
    let message = condition_of("Progressing", "Retrying").await?;
    let want = format!(
        "source catalog content: error copying image: Source image rejected: A signature was required, but no \
         signature exists; sign {} as the default of {policy_text} demands, or change the policy",
        pushed.by_digest()
    );
    // the first line is cut, the details have all of it
    let (first, details) = message.split_once('\n').unwrap_or_default();
    assert_eq!(
        (first.trim_end_matches('…'), details),
        (&want[..first.len() - '…'.len_utf8()], want.as_str())
    );
    condition_of("Serving", "Unavailable").await?;
    assert_eq!(code(&started).await?, 404);

    // a foreign signature changes nothing, the right one does
    let again = async |word: &str| {
        let patch = json!({"metadata": {"annotations": {annotations::REQUESTED_AT: word}}});
        api.patch("signed", &PatchParams::default(), &Patch::Merge(patch)).await
    };
    registry.sign(&pushed, &foreign_signer).await?;
    again("1").await?;
    let foreign = |catalog: &ClusterCatalog| {
        let status = catalog.status.clone().unwrap_or_default();
        condition::find(&status.conditions, "Progressing")
            .is_some_and(|found| found.message.contains("it is not made with a key of the policy"))
    };
    Wait::new(&api, "signed").within(LIMIT).until("the foreign signature is reported", foreign).await?;
    registry.sign(&pushed, &signer).await?;
    again("2").await?;
    condition_of("Serving", "Available").await?;
    assert_eq!(code(&started).await?, 200);
    drop(started);

    // the registry is gone: verified content is served without it
    drop(registry);
    let offline = strict()?.start().await?;
    assert_eq!(code(&offline).await?, 200, "{}", offline.log_text());
    drop(offline);
    // under another policy it is not
    std::fs::write(&policy, json!({"default": [foreign_signer.requirement()]}).to_string())?;
    let started = strict()?.launch()?;
    eventually("it serves nothing", LIMIT, || async {
        ensure!(code(&started).await? == 404, "still served");
        Ok(())
    })
    .await
}
