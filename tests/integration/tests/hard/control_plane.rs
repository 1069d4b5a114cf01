//! The control plane itself fails: the apiserver is killed and comes back, history is compacted, watches expire.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use olm_kit::Request;
use rand::Rng as _;
use serde_json::json;

use crate::kills::{Moment, Operation, check_creations, make_widget, serve, undisturbed};
use crate::package::{LIMIT, Package, version_data};
use crate::runs::Case;
use crate::site::{Site, lines};

#[tokio::test]
async fn fault_apiserver_kill_leaves_the_undisturbed_result() -> Result<()> {
    let mut case = Case::random("apiserver killed during install, upgrade, uninstall", 15);
    let mut dice = case.dice();
    let mut site = Site::start().await?;
    let client = site.client().await?;
    let package = Package::new(&site, "apiserver").await?;
    serve(&site, &package).await?;
    let usual = undisturbed(&site, &package, &client).await?;
    for run in 0..case.runs() {
        let usual = &usual[usize::try_from(run)? % usual.len()];
        let moment = Moment::random(&mut dice, usual);
        let pause = Duration::from_millis(dice.random_range(0..3_000));
        case.log(&format!("run {run}: {:?}, apiserver killed at {moment:?} for {pause:?}", usual.operation));
        let about = || format!("run {run}: {:?}, killed at {moment:?} for {pause:?}", usual.operation);
        let mut tail = site.cluster.audit_tail()?;
        usual.operation.begin(&package).await?;
        let mut seen = Vec::new();
        moment.come(&mut tail, &mut seen).await?;
        let plane = site.cluster.plane().context("the control plane is not ours")?;
        plane.outage(pause).await?;
        let since = Instant::now();
        let ended = async {
            usual.operation.done(&package).await?;
            usual.left.reached(&client, LIMIT).await
        };
        let mut helped = false;
        let ended = tokio::select! {
            ended = ended => ended,
            never = establish(&case, &client, &mut helped) => match never {},
        };
        seen.extend(tail.more()?);
        if let Err(error) = ended {
            seen.retain(Request::writes);
            return Err(site.explain(error.context(lines(&seen)))).with_context(about);
        }
        check_creations(&seen, &package).with_context(about)?;
        case.converged(since);
        if helped {
            case.helped();
        }
        ensure!(site.controller()?.child().exited().is_none(), "{}: the controller ended", about());
        if usual.operation == Operation::Install {
            make_widget(&site, &package).await?;
        }
    }
    Ok(())
}

/// Changes each CRD that hangs, until dropped. An apiserver that was killed between accepting the names of a new CRD and
/// reporting it as established reports it only after another change of the CRD, or at its own resync.
pub(crate) async fn establish(case: &Case, client: &Client, helped: &mut bool) -> Infallible {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let hangs = |crd: &CustomResourceDefinition| {
        let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let has = |type_: &str, status: &str| {
            conditions.clone().any(|condition| condition.type_ == type_ && condition.status == status)
        };
        has("NamesAccepted", "True") && has("Established", "False")
    };
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        // an apiserver that comes back may refuse for a moment
        let Ok(all) = crds.list(&ListParams::default()).await else { continue };
        let hanging = all.items.iter().filter(|crd| hangs(crd)).map(ResourceExt::name_any);
        let hanging: BTreeSet<String> = hanging.collect();
        for name in hanging.intersection(&before) {
            *helped = true;
            case.log(&format!("the apiserver does not continue with the CRD {name}: it is changed"));
            // applied with it and then without: nothing of it is left, not even the manager
            for metadata in [json!({"name": name, "annotations": {"retry": "now"}}), json!({"name": name})] {
                let change = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata});
                if let Err(error) =
                    crds.patch(name, &PatchParams::apply("retry"), &Patch::Apply(&change)).await
                {
                    case.log(&format!("the CRD {name} cannot be changed now: {error}"));
                }
            }
        }
        before = hanging;
    }
}

/// The controller is frozen while objects are changed, history is compacted and the apiserver, which caches some of it,
/// is restarted. The watch that it then resumes has expired (410), and only a new list shows the changes of the meantime.
#[tokio::test]
async fn fault_changes_during_an_expired_watch_are_corrected() -> Result<()> {
    let mut case = Case::once("watches expire (compaction and apiserver restart)");
    let mut site = Site::start().await?;
    let package = Package::new(&site, "expired").await?;
    let two = package.bundle("1.1.0");
    package
        .serve(
            &site.registry,
            [("1.0.0", package.bundle("1.0.0").crds([package.crd()])), ("1.1.0", two.crds([package.crd()]))],
        )
        .await?;
    package.install("1.0.0").await?;

    site.controller()?.freeze();
    package.maps().delete(&package.config(), &DeleteParams::default()).await?;
    package.want("1.1.0").await?;
    let plane = site.cluster.plane().context("the control plane is not ours")?;
    // the version at which watches stopped must be history; each write makes one
    let compacted = plane.compact().await?;
    plane.kill9("kube-apiserver")?;
    plane.start_again("kube-apiserver").await?;
    let since = Instant::now();
    site.controller()?.thaw();
    package.installed("1.1.0").await?;
    package.config_has("1.1.0", LIMIT).await?;
    case.converged(since);
    let log = site.controller()?.log_text();
    ensure!(
        log.contains("too old resource version") || log.contains("Expired") || log.contains("410"),
        "no watch expired (compacted at {compacted}):\n{log}"
    );
    Ok(())
}

/// etcd is gone for a while: the apiserver answers with errors, and nothing is lost or made twice.
#[tokio::test]
async fn fault_store_outage_is_waited_for() -> Result<()> {
    let mut case = Case::once("etcd killed during an upgrade");
    let mut site = Site::start().await?;
    let package = Package::new(&site, "etcd").await?;
    package
        .serve(&site.registry, [("1.0.0", package.bundle("1.0.0")), ("1.1.0", package.bundle("1.1.0"))])
        .await?;
    package.install("1.0.0").await?;
    let mut tail = site.cluster.audit_tail()?;
    package.want("1.1.0").await?;
    let plane = site.cluster.plane().context("the control plane is not ours")?;
    plane.kill9("etcd")?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    plane.start_again("etcd").await?;
    let since = Instant::now();
    package.installed("1.1.0").await?;
    let edited = Patch::Merge(version_data("edited"));
    package.maps().patch(&package.config(), &PatchParams::default(), &edited).await?;
    package.config_has("1.1.0", LIMIT).await?;
    check_creations(&tail.more()?, &package)?;
    case.converged(since);
    Ok(())
}
