//! The controller is killed (KILL) at random instants of install, upgrade and uninstall. After its restart the cluster holds
//! exactly what an undisturbed run leaves, made by as many creations.
//!
//! Half of the instants are random times, half come right after the n-th write of the controller that the apiserver records.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::{Api, Client};
use olm_kit::{BundleImage, Crd, Request, Wait};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::package::{LIMIT, Package};
use crate::runs::Case;
use crate::site::{Site, is_bookkeeping, is_step, lines, replica_of};
use olm_integration::inventory::Inventory;

/// What is done to the extension, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Install,
    Upgrade,
    Uninstall,
}

impl Operation {
    /// One round.
    pub(crate) const ALL: [Self; 3] = [Self::Install, Self::Upgrade, Self::Uninstall];

    pub(crate) async fn begin(self, package: &Package) -> Result<()> {
        match self {
            Self::Install => package.want("1.0.0").await,
            Self::Upgrade => package.want("1.1.0").await,
            Self::Uninstall => package.delete().await,
        }
    }

    pub(crate) async fn done(self, package: &Package) -> Result<()> {
        match self {
            Self::Install => package.installed("1.0.0").await.map(|_| ()),
            Self::Upgrade => package.installed("1.1.0").await.map(|_| ()),
            Self::Uninstall => package.gone().await,
        }
    }
}

/// An operation without a fault.
#[derive(Debug, Clone)]
pub(crate) struct Undisturbed {
    pub(crate) operation: Operation,
    /// What the cluster holds afterwards.
    pub(crate) left: Inventory,
    /// How long it takes.
    pub(crate) took: Duration,
    /// Writes of the controller, without events and leases.
    pub(crate) writes: usize,
    /// Successful writes to each object of the extension.
    pub(crate) touched: BTreeMap<String, usize>,
}

/// Two versions with everything that can be caught half-way: two CRDs, a resource of one of them, an object
/// that goes and one that comes.
pub(crate) async fn serve(site: &Site, package: &Package) -> Result<()> {
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
    let gadget = Crd::new("Gadget", &format!("{}.example.com", package.name));
    let bundle = |version: &str, own: &str| -> BundleImage {
        package
            .bundle(version)
            .crds([package.crd(), gadget.clone()])
            .extra(map("stays"))
            .extra(map(own))
            .webhook(webhook(package))
    };
    package
        .serve(&site.registry, [("1.0.0", bundle("1.0.0", "goes")), ("1.1.0", bundle("1.1.0", "comes"))])
        .await
}

/// A webhook for the resources of one of the CRDs.
pub(crate) fn webhook(package: &Package) -> Value {
    json!({
        "type": "ValidatingAdmissionWebhook", "generateName": format!("v.{}.example.com", package.name),
        "deploymentName": format!("{}-ctrl", package.name), "containerPort": 443, "targetPort": 9443,
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        "rules": [{"apiGroups": [format!("{}.example.com", package.name)], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["gadgets"]}],
    })
}

/// A resource of the package's CRD, as a user makes it after an install.
pub(crate) async fn make_widget(site: &Site, package: &Package) -> Result<()> {
    let widget = json!({"apiVersion": format!("{}.example.com/v1", package.name), "kind": "Widget",
        "metadata": {"name": "mine", "namespace": package.name}, "spec": {"size": 1}});
    site.cluster.apply(&widget.to_string()).await.map(|_| ())
}

/// One round in which nothing happens.
pub(crate) async fn undisturbed(site: &Site, package: &Package, client: &Client) -> Result<Vec<Undisturbed>> {
    let mut all = Vec::new();
    furnished(package).await?;
    let before = settled(client).await?;
    for operation in Operation::ALL {
        let mut tail = site.cluster.audit_tail()?;
        let started = Instant::now();
        operation.begin(package).await?;
        operation.done(package).await?;
        let took = started.elapsed();
        if operation == Operation::Uninstall {
            before.reached(client, LIMIT).await.context("what an uninstall leaves")?;
        }
        let left = settled(client).await?;
        let requests = tail.more()?;
        let writes = requests.iter().filter(|request| is_step(request)).count();
        all.push(Undisturbed { operation, left, took, writes, touched: touched(&requests, package) });
        if operation == Operation::Install {
            make_widget(site, package).await?;
        }
    }
    Ok(all)
}

/// Waits for what Kubernetes itself puts into a namespace, some time after it was made.
async fn furnished(package: &Package) -> Result<()> {
    for namespace in [package.name.as_str(), olm_kit::SYSTEM_NAMESPACE] {
        let accounts: Api<ServiceAccount> = Api::namespaced(package.client.clone(), namespace);
        Wait::new(&accounts, "default").within(LIMIT).to_exist().await?;
        let maps: Api<ConfigMap> = Api::namespaced(package.client.clone(), namespace);
        Wait::new(&maps, "kube-root-ca.crt").within(LIMIT).to_exist().await?;
    }
    Ok(())
}

/// Between two reads of all objects, which take a quarter of a second of processor time.
const PAUSE: Duration = Duration::from_millis(400);

/// What the cluster holds once that has stopped to change.
async fn settled(client: &Client) -> Result<Inventory> {
    let mut before = Inventory::default();
    let mut same = 0;
    for _ in 0..200 {
        let now = Inventory::take(client).await?;
        same = if now == before { same + 1 } else { 0 };
        if same == 3 {
            return Ok(now);
        }
        before = now;
        tokio::time::sleep(PAUSE).await;
    }
    anyhow::bail!("the cluster does not become steady")
}

/// Successful writes of the controllers to objects of the extension: revisions, their status and Secrets count apart.
pub(crate) fn touched(requests: &[Request], package: &Package) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    let writes = requests.iter().filter(|request| {
        replica_of(request).is_some() && request.writes() && request.code < 300 && !is_bookkeeping(request)
    });
    // what is named after the extension and what lies in its namespace
    for request in writes.filter(|r| r.uri.contains(&package.name) || r.namespace == package.name) {
        let own = request.uri.contains("olm.operatorframework.io")
            || request.namespace == olm_kit::SYSTEM_NAMESPACE;
        if !own {
            let what =
                format!("{} {} {}/{}", request.verb, request.resource, request.namespace, request.name);
            *all.entry(what).or_default() += 1;
        }
    }
    all
}

/// When to strike.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moment {
    /// This long after the beginning.
    After(Duration),
    /// Right after so many writes, events and leases not counted.
    Write(usize),
}

impl Moment {
    /// Within the operation, or shortly after it.
    pub(crate) fn random(dice: &mut StdRng, usual: &Undisturbed) -> Self {
        if dice.random_bool(0.5) {
            Self::After(usual.took.mul_f64(dice.random_range(0.0..1.1)))
        } else {
            Self::Write(dice.random_range(1..=usual.writes.max(1)))
        }
    }

    /// Resolves then; in any case after 10 s.
    pub(crate) async fn come(self, tail: &mut olm_kit::AuditTail, seen: &mut Vec<Request>) -> Result<()> {
        match self {
            Self::After(time) => tokio::time::sleep(time).await,
            Self::Write(number) => {
                let limit = Instant::now() + Duration::from_secs(10);
                let steps = |all: &[Request]| all.iter().filter(|request| is_step(request)).count();
                while steps(seen) < number && Instant::now() < limit {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    seen.extend(tail.more()?);
                }
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn fault_controller_kill_leaves_the_undisturbed_result() -> Result<()> {
    let mut case = Case::random("controller killed (KILL) during install, upgrade, uninstall", 50);
    let mut dice = case.dice();
    let mut site = Site::start().await?;
    let client = site.client().await?;
    let package = Package::new(&site, "kill").await?;
    serve(&site, &package).await?;
    let usual = undisturbed(&site, &package, &client).await?;
    for (usual, again) in usual.iter().zip(undisturbed(&site, &package, &client).await?) {
        usual.left.is(&again.left).with_context(|| format!("two undisturbed runs, {:?}", usual.operation))?;
    }
    case.log(&format!(
        "undisturbed: {:?}",
        usual.iter().map(|one| (one.operation, one.took, one.writes)).collect::<Vec<_>>()
    ));

    for run in 0..case.runs() {
        let mut since = Instant::now();
        for usual in &usual {
            let mut tail = site.cluster.audit_tail()?;
            let mut seen = Vec::new();
            usual.operation.begin(&package).await?;
            // sometimes it is killed again while it recovers
            for _ in 0..if dice.random_bool(0.2) { 2 } else { 1 } {
                let moment = Moment::random(&mut dice, usual);
                case.log(&format!("run {run}: {:?}, killed at {moment:?}", usual.operation));
                moment.come(&mut tail, &mut seen).await?;
                let controller = site.controller()?;
                controller.kill9();
                since = Instant::now();
                if dice.random_bool(0.3) {
                    // what was pulled is lost, too
                    std::fs::remove_dir_all(controller.cache()).context("removing the cache")?;
                }
                controller.relaunch()?;
            }
            usual
                .operation
                .done(&package)
                .await
                .with_context(|| format!("run {run}: {:?}", usual.operation))?;
            usual
                .left
                .reached(&client, LIMIT)
                .await
                .with_context(|| format!("run {run}: {:?}", usual.operation))?;
            seen.extend(tail.more()?);
            check_creations(&seen, &package).with_context(|| format!("run {run}: {:?}", usual.operation))?;
            if usual.operation == Operation::Install {
                make_widget(&site, &package).await?;
            }
        }
        case.converged(since);
    }
    Ok(())
}

/// Nothing is made twice.
pub(crate) fn check_creations(seen: &[Request], package: &Package) -> Result<()> {
    let twice: Vec<_> = touched(seen, package)
        .into_iter()
        .filter(|(what, times)| what.starts_with("create ") && *times > 1)
        .collect();
    ensure!(twice.is_empty(), "made twice: {twice:?}\n{}", lines(seen));
    Ok(())
}
