//! The apiserver rejects writes: the namespace is missing, a quota is used up, a policy denies, an object is too large. The
//! condition names the object and the reason, requests become rare, and fixing the cause is enough.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use olm_api::condition;
use olm_kit::{Request, Wait};
use serde_json::json;

use crate::package::{LIMIT, Package};
use crate::runs::Case;
use crate::site::{Site, lines};
use olm_integration::extension::{installed_version, status_and_message};

/// How long requests are counted.
const WATCHED: Duration = Duration::from_secs(20);
/// Requests in that time that a failure may cost: a backoff from 0.1 s that doubles has eight attempts in it, each of which asks
/// once, and there are an event and a status.
const ATTEMPTS: usize = 10;
/// Those of a failure whose end is watched for, so that nothing is attempted: the watch begins with a listing, and there are an
/// event and a status.
const NONE: usize = 3;

/// Nothing but the next attempts of a backoff happens, and each asks once.
async fn rests(site: &Site, package: &Package, few: usize) -> Result<usize> {
    let mark = site.mark()?;
    tokio::time::sleep(WATCHED).await;
    let all = site.about(&package.name, mark)?;
    ensure!(all.len() <= few, "{} requests in {WATCHED:?}:\n{}", all.len(), lines(&all));
    let status = all.iter().filter(|request| request.resource.ends_with("/status")).count();
    ensure!(status <= 1, "the same failure is written once:\n{}", lines(&all));
    Ok(all.len())
}

#[tokio::test]
async fn fault_namespace_that_is_late_or_deleted_is_waited_for() -> Result<()> {
    let mut case = Case::once("namespace missing, then made; deleted, then made again");
    let site = Site::shared().await?;
    let package = Package::without_namespace(site, "late").await?;
    package.serve(&site.registry, [("1.0.0", package.bundle("1.0.0"))]).await?;
    package.want("1.0.0").await?;
    let waiting = package.progressing_names(&format!("namespaces {:?} not found", package.name)).await?;
    ensure!(
        status_and_message(&waiting, condition::INSTALLED)?.0 == "False"
            && status_and_message(&waiting, condition::READY)?.0 == "False"
    );
    let requests = rests(site, &package, NONE).await?;
    case.log(&format!("{requests} requests in {WATCHED:?}"));
    let since = Instant::now();
    package.make_namespace(&site.cluster).await?;
    // a watch notices it: the periodic retry comes after five minutes, longer than the wait here
    package.installed("1.0.0").await?;
    case.log(&format!("installed after {:?}", since.elapsed()));

    let namespaces: Api<Namespace> = Api::all(package.client.clone());
    namespaces.delete(&package.name, &DeleteParams::default()).await?;
    Wait::new(&namespaces, &package.name).within(LIMIT).to_be_gone().await?;
    let gone = package.progressing_names("not found").await?;
    ensure!(status_and_message(&gone, condition::READY)?.0 == "False");
    let since = Instant::now();
    package.make_namespace(&site.cluster).await?;
    package.installed("1.0.0").await?;
    package.config_has("1.0.0", LIMIT).await?;
    case.converged(since);
    Ok(())
}

#[tokio::test]
async fn fault_exceeded_quota_is_reported_until_lifted() -> Result<()> {
    let mut case = Case::once("quota used up, then lifted");
    let site = Site::shared().await?;
    let package = Package::new(site, "quota").await?;
    package.serve(&site.registry, [("1.0.0", package.bundle("1.0.0"))]).await?;
    // the namespace has one ConfigMap of its own already
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": package.name},
        "spec": {"hard": {"count/configmaps": "1"}}});
    site.cluster.apply(&quota.to_string()).await?;
    let quotas: Api<ResourceQuota> = Api::namespaced(package.client.clone(), &package.name);
    let counted = |quota: &ResourceQuota| {
        quota
            .status
            .as_ref()
            .is_some_and(|status| status.used.as_ref().is_some_and(|used| used.values().any(|n| n.0 == "1")))
    };
    Wait::new(&quotas, "none").within(LIMIT).until("counts", counted).await?;
    package.want("1.0.0").await?;
    let waiting = package.progressing_names("exceeded quota: none").await?;
    let (_, message) = status_and_message(&waiting, condition::PROGRESSING)?;
    ensure!(message.contains(&package.config()), "the object is named: {message}");
    ensure!(
        status_and_message(&waiting, condition::INSTALLED)?.0 == "False"
            && status_and_message(&waiting, condition::READY)?.0 == "False"
    );
    let requests = rests(site, &package, ATTEMPTS).await?;
    case.log(&format!("{requests} requests in {WATCHED:?}"));
    quotas.delete("none", &DeleteParams::default()).await?;
    let since = Instant::now();
    package.installed("1.0.0").await?;
    case.converged(since);
    Ok(())
}

#[tokio::test]
async fn fault_policy_that_denies_an_upgrade_is_reported() -> Result<()> {
    let mut case = Case::once("admission policy denies an upgrade, then lifted");
    let site = Site::shared().await?;
    let package = Package::new(site, "policy").await?;
    package
        .serve(&site.registry, [("1.0.0", package.bundle("1.0.0")), ("1.1.0", package.bundle("1.1.0"))])
        .await?;
    package.install("1.0.0").await?;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": package.name},
        "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "!has(object.data) || !('version' in object.data) || object.data.version != '1.1.0'", "message": "not before Monday"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": package.name},
        "spec": {"policyName": package.name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": package.name}}}}});
    site.cluster.apply(&policy.to_string()).await?;
    site.cluster.apply(&binding.to_string()).await?;
    // policies come into force a little later
    let probe = json!({"metadata": {"name": "probe"}, "data": {"version": "1.1.0"}});
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    olm_kit::eventually("the policy is in force", LIMIT, || async {
        let answer = package.maps().create(&dry, &serde_json::from_value(probe.clone())?).await;
        ensure!(answer.is_err(), "not yet");
        Ok(())
    })
    .await?;

    package.want("1.1.0").await?;
    let waiting = package.progressing_names("not before Monday").await?;
    ensure!(installed_version(&waiting) == Some("1.0.0"), "what was installed stays so");
    ensure!(
        status_and_message(&waiting, condition::INSTALLED)?.0 == "True"
            && status_and_message(&waiting, condition::READY)?.0 == "False"
    );
    let requests = rests(site, &package, ATTEMPTS).await?;
    case.log(&format!("{requests} requests in {WATCHED:?}"));
    let bindings =
        GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding");
    let resource = ApiResource::from_gvk_with_plural(&bindings, "validatingadmissionpolicybindings");
    let api: Api<DynamicObject> = Api::all_with(package.client.clone(), &resource);
    api.delete(&package.name, &DeleteParams::default()).await?;
    let since = Instant::now();
    package.installed("1.1.0").await?;
    case.converged(since);
    Ok(())
}

#[tokio::test]
async fn fault_object_too_large_is_named_until_replaced() -> Result<()> {
    let mut case = Case::once("object too large, then a version with a smaller one");
    let site = Site::shared().await?;
    let package = Package::new(site, "large").await?;
    let map = |text: String| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"text": text}});
    // one that packs well, so that only the apiserver finds it too large; and one that no Secret can hold
    let refused = package.bundle("1.0.0").extra(map("x".repeat(1_200_000)));
    let noise = noise(1_500_000);
    let unpackable = package.bundle("1.1.0").extra(map(noise));
    let good = package.bundle("1.2.0").extra(map("x".repeat(500_000)));
    package.serve(&site.registry, [("1.0.0", refused), ("1.1.0", unpackable), ("1.2.0", good)]).await?;
    package.want("1.0.0").await?;
    // the package's name begins with the object's, so that other messages have it, too
    package
        .until("Progressing reports that the object is too large", |extension| {
            status_and_message(extension, condition::PROGRESSING).is_ok_and(|(_, message)| {
                message.contains("/large") && (message.contains("Too long") || message.contains("1048576"))
            })
        })
        .await?;
    let requests = rests(site, &package, ATTEMPTS).await?;
    case.log(&format!("{requests} requests in {WATCHED:?}"));

    package.want("1.1.0").await?;
    package.progressing_names("exceeds maximum Secret data size").await?;
    let mark = site.mark()?;
    tokio::time::sleep(WATCHED / 2).await;
    let meanwhile: Vec<Request> = site.about(&package.name, mark)?;
    // the revision of 1.0.0 continues to retry with backoff, and wakes the extension, for which the bundle is known to be too large
    case.log(&format!("{} requests in {:?}", meanwhile.len(), WATCHED / 2));
    ensure!(meanwhile.len() <= NONE, "{}", lines(&meanwhile));

    package.want("1.2.0").await?;
    let since = Instant::now();
    package.installed("1.2.0").await?;
    let large = package.maps().get("large").await?.data.context("no data")?;
    ensure!(large["text"].len() == 500_000);
    case.converged(since);
    Ok(())
}

/// Letters that cannot be compressed to less than three quarters.
fn noise(length: usize) -> String {
    use rand::{Rng as _, SeedableRng as _};
    let dice = rand::rngs::StdRng::seed_from_u64(7);
    dice.sample_iter(rand::distr::Alphanumeric).take(length).map(char::from).collect()
}
