//! The built-in issuer: issued, mounted, trusted, repaired, rotated, and gone with the extension.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use olm_api::cluster_extension::WebhookCertificateProvider;
use olm_api::condition;
use olm_bundle::CaTarget;
use olm_certificates::material::{self, Keys, authorities};
use olm_kit::{Entry, Wait};
use operator_controller::certificates::caller::Kind;
use serde_json::{Value, json};

use crate::site::{Site, soon, uid};
use crate::world::{LIMIT, current};

#[tokio::test]
async fn certificate_of_webhooks_needs_no_other_provider() -> Result<()> {
    let site = Site::installed("issue").await?;
    let extension = site.world.extensions.get(&site.world.name).await?;
    let kept =
        extension.status.and_then(|status| status.webhook_certificates).context("no provider in status")?;
    assert_eq!(kept.provider, WebhookCertificateProvider::BuiltIn);

    let (secret, stored) = site.read_secret().await?;
    let lifetime = material::check(&stored.current, &site.names())?;
    assert!(lifetime.not_before < Timestamp::now() && lifetime.not_after > soon(729 * 24 * 3600)?);
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(
        secret.data.context("no data")?.into_keys().collect::<Vec<_>>(),
        ["ca.crt", "tls.crt", "tls.key"]
    );
    assert_eq!(secret.metadata.owner_references.context("no owner")?[0].kind, "ClusterExtension");
    for target in &site.callers() {
        let live = site.live(target).await?;
        assert_eq!(authorities(&site.trusted(target, &live)).len(), 1, "{target:?}");
        let managers: Vec<_> =
            live.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
        assert!(
            managers.contains(&"olm.operatorframework.io/webhook-certificates".to_owned()),
            "{managers:?}"
        );
    }

    let client = site.world.stack.cluster.client().await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &site.world.name);
    let deployment = deployments.get(&format!("{}-ctrl", site.world.name)).await?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("no pod")?;
    let mounted = pod.volumes.into_iter().flatten().filter_map(|volume| volume.secret?.secret_name);
    assert_eq!(mounted.collect::<Vec<_>>(), [site.secret(), site.secret()]);

    let events: Api<Event> = Api::all(client);
    olm_kit::eventually("an event reports the issue", LIMIT, || async {
        let of = ListParams::default().fields(&format!("involvedObject.name={}", site.world.name));
        let reasons: Vec<_> =
            events.list(&of).await?.items.into_iter().filter_map(|event| event.reason).collect();
        anyhow::ensure!(reasons.iter().any(|reason| reason == "CertificateIssued"), "{reasons:?}");
        Ok(())
    })
    .await?;
    let log = site.world.stack.operator_controller.log_text();
    assert!(!log.contains("PRIVATE KEY"), "no key is logged");
    Ok(())
}

#[tokio::test]
async fn certificate_in_steady_state_costs_nothing() -> Result<()> {
    let site = Site::installed("steady").await?;
    let label = Patch::Merge(json!({"metadata": {"labels": {"mine": "yes"}}}));
    let before = site.at_rest().await?;
    // every watch delivers a change, none of them matters
    site.secrets.patch(&site.secret(), &PatchParams::default(), &label).await?;
    for target in &site.callers() {
        site.api(target).await?.patch(Kind::split(target).1, &PatchParams::default(), &label).await?;
    }
    tokio::time::sleep(Duration::from_secs(5)).await; // the time that is measured, not a wait for something
    assert_eq!(site.requests(before)?, Vec::<String>::new());
    assert_eq!(site.read_secret().await?.0.labels()["mine"], "yes");
    Ok(())
}

#[tokio::test]
async fn certificate_is_restored_after_deletion_or_edit() -> Result<()> {
    let site = Site::installed("mend").await?;
    let first = site.read_secret().await?;

    // deleted: a new one, and callers continue to trust the old one, which pods may still serve with
    site.secrets.delete(&site.secret(), &DeleteParams::default()).await?;
    let old = uid(&first.0)?;
    site.until_stored("is there again", |secret, _| secret.uid().is_some_and(|new| new != old)).await?;
    let second = site.settled().await?;
    assert_eq!(authorities(&second.trust()).len(), 2);
    assert!(second.trust().contains(first.1.current.authority.trim()));

    // edited: not a pair any more
    let broken = json!({"data": {"tls.key": k8s_openapi::ByteString(b"nonsense".to_vec())}});
    site.secrets.patch(&site.secret(), &PatchParams::default(), &Patch::Merge(broken)).await?;
    let (_, third) = site
        .until_stored("is served with again", |_, stored| {
            material::check(&stored.current, &site.names()).is_ok()
        })
        .await?;
    assert_ne!(third.current, second.current);
    site.settled().await?;

    // unlabelled and disowned: found again
    let stray = json!({"metadata": {"labels": {"olm.operatorframework.io/webhook-certificate": null}, "ownerReferences": []}});
    site.secrets.patch(&site.secret(), &PatchParams::default(), &Patch::Merge(stray)).await?;
    let (_, fourth) =
        site.until_stored("is ours again", |secret, _| !secret.owner_references().is_empty()).await?;
    assert_eq!(fourth, third, "nothing was issued for that");

    // a replaced caBundle
    let [validating, ..] = site.callers();
    let mut live = serde_json::to_value(site.live(&validating).await?)?;
    let hook = live["webhooks"][0]["name"].clone();
    live["webhooks"][0]["clientConfig"]["caBundle"] =
        json!(k8s_openapi::ByteString(foreign_authority()?.into_bytes()));
    let patch: Value = json!({"webhooks": [live["webhooks"][0]]});
    assert_eq!(patch["webhooks"][0]["name"], hook);
    site.api(&validating)
        .await?
        .patch(Kind::split(&validating).1, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    site.settled().await?;
    Ok(())
}

/// An authority that is not part of the installation.
fn foreign_authority() -> Result<String> {
    let names = ["stranger.example.com".to_owned()];
    Ok(material::issue(
        "test authority",
        &names,
        Timestamp::now(),
        SignedDuration::from_hours(1),
        Keys::generate()?,
    )?
    .authority)
}

#[tokio::test]
async fn certificate_never_overwrites_foreign_secret() -> Result<()> {
    let site = Site::empty("foreign").await?;
    let password =
        json!({"metadata": {"name": site.secret()}, "stringData": {"password": "of another program"}});
    let before = site.secrets.create(&PostParams::default(), &serde_json::from_value(password)?).await?;
    site.world.serve([("1.0.0", site.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    site.world.want(json!({})).await?;
    site.world.until_event("CertificateRefused").await?;
    let message =
        site.world.progressing("Retrying", "holds no webhook certificate of this extension").await?;
    let extension = site.world.extensions.get(&site.world.name).await?;
    let stalled = current(&extension, condition::STALLED).context("not stalled")?;
    let first = message.lines().next();
    assert_eq!((stalled.status.as_str(), &*stalled.reason), ("True", "CertificateRefused"));
    assert_eq!(Some(stalled.message.as_str()), first);
    let after = site.secrets.get(&site.secret()).await?;
    assert_eq!((after.resource_version(), after.data), (before.resource_version(), before.data));
    let messages = site.world.events("CertificateRefused").await?;
    let secret = format!("Secret {}/{} ", site.world.name, site.secret());
    let named = |message: &String| message.starts_with(&secret) && message.contains("delete or rename it");
    assert!(messages.iter().all(named), "{messages:?}");

    // the condition goes with what it names
    site.secrets.delete(&site.secret(), &DeleteParams::default()).await?;
    let again = json!({"metadata": {"annotations": {"olm.operatorframework.io/requested-at": "now"}}});
    site.world.extensions.patch(&site.world.name, &PatchParams::default(), &Patch::Merge(again)).await?;
    site.world.installed("1.0.0").await?;
    Ok(())
}

/// An upgrade renames the Service, and so the Secret of its certificate.
#[tokio::test]
async fn certificate_never_overwrites_foreign_secret_after_rename() -> Result<()> {
    let site = Site::empty("renamed").await?;
    let deployment = format!("{}-moved", site.world.name);
    let secret = format!("{deployment}-service-cert");
    let upgrade = site.renamed_bundle("1.1.0", &deployment);
    site.world.serve_chain([("1.0.0", site.bundle("1.0.0")), ("1.1.0", upgrade)]).await?;
    site.world.install("1.0.0").await?;
    site.settled().await?;
    let password = json!({"metadata": {"name": secret}, "stringData": {"password": "of another program"}});
    let before = site.secrets.create(&PostParams::default(), &serde_json::from_value(password)?).await?;
    site.world.want(json!({"version": "1.1.0"})).await?;
    site.world.until_event("CertificateRefused").await?;
    site.world.progressing("Retrying", "holds no webhook certificate of this extension").await?;
    let after = site.secrets.get(&secret).await?;
    assert_eq!((after.resource_version(), after.data), (before.resource_version(), before.data));

    site.secrets.delete(&secret, &DeleteParams::default()).await?;
    site.world.again().await?;
    site.world.installed("1.1.0").await?;
    Ok(())
}

#[tokio::test]
async fn certificate_near_expiry_is_rotated_with_overlap() -> Result<()> {
    let site = Site::installed("rotate").await?;
    let [validating, _, crd] = site.callers();
    let ending = material::issue(
        "test authority",
        &site.names(),
        Timestamp::now(),
        SignedDuration::from_secs(24),
        Keys::generate()?,
    )?;
    site.overwrite(&ending).await?;

    // first the successor is trusted, while the ending one is served with
    let (_, staged) = site
        .until_stored("has a successor", |_, stored| stored.current == ending && stored.next.is_some())
        .await?;
    let next = staged.next.context("no successor")?;
    for target in [&validating, &crd] {
        let both = site.until_trusts(target, "trusts both", |found| found.len() == 2).await?;
        for one in [&ending, &next] {
            assert!(both.iter().any(|found| found.pem.trim() == one.authority.trim()), "{target:?}");
        }
    }
    let (_, serving) = site.read_secret().await?;
    assert_eq!(serving.current, ending, "it is not served before callers trust it");

    // then it is served with, and the old one is still trusted
    let (_, switched) = site.until_stored("is switched", |_, stored| stored.current == next).await?;
    assert!(switched.previous.contains(ending.authority.trim()));
    let live = site.live(&validating).await?;
    let trusted = authorities(&site.trusted(&validating, &live));
    assert_eq!(trusted.len(), 2, "pods may still serve with the old one");

    // after its expiry no caller trusts it
    for target in &site.callers() {
        let left = site.until_trusts(target, "trusts the successor alone", |found| found.len() == 1).await?;
        assert_eq!(left[0].pem.trim(), next.authority.trim());
    }
    let (secret, settled) = site.until_stored("has settled", |_, stored| stored.previous.is_empty()).await?;
    assert_eq!(settled.current, next);
    assert_eq!(
        secret.data.context("no data")?.into_keys().collect::<Vec<_>>(),
        ["ca.crt", "tls.crt", "tls.key"]
    );
    Ok(())
}

#[tokio::test]
async fn certificate_is_removed_by_a_version_without_webhooks() -> Result<()> {
    let site = Site::installed("drop").await?;
    // the conversion of a CRD goes away: a leftover caBundle would have the apiserver refuse the new definition
    let safety = json!({"spec": {"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}});
    site.world.extensions.patch(&site.world.name, &PatchParams::default(), &Patch::Merge(safety)).await?;
    site.world.install("1.1.0").await?;
    Wait::new(&site.secrets, &site.secret()).within(LIMIT).to_be_gone().await?;
    let [validating, mutating, crd] = site.callers();
    for target in [&validating, &mutating] {
        Wait::new(&site.api(target).await?, Kind::split(target).1).within(LIMIT).to_be_gone().await?;
    }
    let live = site.live(&crd).await?;
    assert_eq!(live.data.pointer("/spec/conversion/strategy"), Some(&json!("None")));
    assert_eq!(site.trusted(&crd, &live), "");
    Ok(())
}

#[tokio::test]
async fn certificate_is_removed_by_uninstall() -> Result<()> {
    let site = Site::installed("gone").await?;
    site.world.extensions.delete(&site.world.name, &DeleteParams::default()).await?;
    Wait::new(&site.world.extensions, &site.world.name).within(LIMIT).to_be_gone().await?;
    for target in &site.callers() {
        Wait::new(&site.api(target).await?, Kind::split(target).1).within(LIMIT).to_be_gone().await?;
    }
    // by the garbage collector
    Wait::new(&site.secrets, &site.secret()).within(LIMIT).to_be_gone().await?;
    Ok(())
}

#[tokio::test]
async fn certificate_stays_with_kept_objects() -> Result<()> {
    let site = Site::installed("kept").await?;
    let before = site.read_secret().await?;
    let keep = json!({"metadata": {"annotations": {"olm.operatorframework.io/deletion-policy": "keep"}}});
    site.world.extensions.patch(&site.world.name, &PatchParams::default(), &Patch::Merge(keep)).await?;
    site.world.extensions.delete(&site.world.name, &DeleteParams::default()).await?;
    Wait::new(&site.world.extensions, &site.world.name).within(LIMIT).to_be_gone().await?;
    let (secret, stored) = site.read_secret().await?;
    assert_eq!((uid(&secret)?, stored), (uid(&before.0)?, before.1));
    assert!(secret.owner_references().is_empty(), "the garbage collector has no reason to take it");
    let [CaTarget::ValidatingWebhookConfiguration(_), ..] = site.callers() else {
        anyhow::bail!("another order")
    };
    assert!(site.live(&site.callers()[0]).await.is_ok());
    Ok(())
}
