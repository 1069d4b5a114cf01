//! Clocks that are wrong. The machine's own cannot be changed here, so what other machines' clocks wrote is: a leader whose
//! renewals lie an hour back or ahead, and conditions from another century. A machine that is suspended is a thread that is blocked,
//! with a monotonic clock that leaves this time out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_kit::{Cluster, SYSTEM_NAMESPACE, unique};
use olm_runtime::Shutdown;
use olm_runtime::leader::{self, Election, Moment, Timing};
use olm_runtime::metrics::Metrics;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::package::{LIMIT, Package};
use crate::runs::Case;
use crate::site::{Site, lines};

/// A lease of three seconds.
const LASTS: Duration = Duration::from_secs(3);
const TIMING: Timing =
    Timing { lease: LASTS, renew: Duration::from_secs(2), retry: Duration::from_millis(300) };

/// A leader whose clock is off by so much. It renews its lease until it is dropped.
struct WrongLeader {
    renewing: JoinHandle<()>,
    renewed: Arc<Mutex<Renewed>>,
}

/// What is known of the renewals.
struct Renewed {
    /// When the last one began.
    last: Instant,
    /// How long the lease was without one at most: from the beginning of a renewal to the end of the next.
    longest: Duration,
}

impl WrongLeader {
    async fn start(client: &Client, lease: &str, off: SignedDuration) -> Result<Self> {
        let api: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
        let name = lease.to_owned();
        let renew = move || {
            let (api, name) = (api.clone(), name.clone());
            async move {
                let now = MicroTime(Timestamp::now().checked_add(off).unwrap_or_default());
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {
                    "holderIdentity": "wrong", "leaseDurationSeconds": LASTS.as_secs(), "renewTime": now, "acquireTime": now}});
                api.patch(&name, &PatchParams::apply("wrong").force(), &Patch::Apply(&lease)).await
            }
        };
        let began = Instant::now();
        renew().await?;
        let renewed = Arc::new(Mutex::new(Renewed { last: began, longest: Duration::ZERO }));
        let noted = Arc::clone(&renewed);
        let renewing = tokio::spawn(async move {
            let mut pause = tokio::time::interval(LASTS / 4);
            loop {
                pause.tick().await;
                let began = Instant::now();
                if renew().await.is_ok() {
                    let mut renewed = noted.lock();
                    renewed.longest = renewed.longest.max(renewed.last.elapsed());
                    renewed.last = began;
                }
            }
        });
        Ok(Self { renewing, renewed })
    }

    /// Whether a machine that is too busy kept it from renewing in time.
    fn was_late(&self) -> bool {
        let renewed = self.renewed.lock();
        renewed.longest.max(renewed.last.elapsed()) >= LASTS
    }

    /// Stops renewing; returns when the last renewal began.
    fn stop(&self) -> Instant {
        self.renewing.abort();
        self.renewed.lock().last
    }
}

impl Drop for WrongLeader {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

#[tokio::test]
async fn fault_lease_of_a_wrong_clock_is_neither_stolen_nor_kept() -> Result<()> {
    let mut case = Case::once("leader's clock an hour behind or ahead");
    let site = Site::shared().await?;
    let client = site.client().await?;
    for hours in [-1, 1] {
        let lease = unique("skew");
        let wrong = WrongLeader::start(&client, &lease, SignedDuration::from_hours(hours)).await?;
        let election = Election::new(&lease, SYSTEM_NAMESPACE.to_owned()).with_identity("right", TIMING);
        let (metrics, never) = (Metrics::new(), Shutdown::new());
        let mut acquiring = std::pin::pin!(leader::acquire(client.clone(), election, &metrics, &never));
        if let Ok(leadership) = tokio::time::timeout(LASTS * 3, &mut acquiring).await {
            ensure!(wrong.was_late(), "{hours} h: taken from a leader that renews");
            case.log(&format!("{hours} h: the leader was kept from renewing in time"));
            wrong.stop();
            leadership.context("stopped")?.release().await;
            continue;
        }
        let last = wrong.stop();
        let since = Instant::now();
        let leadership = tokio::time::timeout(LIMIT, acquiring).await.context("its end is not noticed")?;
        // counted from when the last renewal was seen
        ensure!(last.elapsed() >= LASTS, "{hours} h: taken after {:?}", last.elapsed());
        leadership.context("stopped")?.release().await;
        if hours == 1 {
            case.converged(since);
        }
    }
    Ok(())
}

/// Writes as a leader does.
async fn write(client: &Client, name: &str, value: &str) -> kube::Result<ConfigMap> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"by": value}});
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&map)).await
}

#[tokio::test]
async fn fault_suspended_leader_writes_nothing() -> Result<()> {
    let mut case = Case::once("leader's machine suspended until another leads");
    let site = Site::shared().await?;
    let client = site.client().await?;
    let name = unique("suspended");
    let (kubeconfig, lease) = (site.cluster.kubeconfig(), name.clone());
    let (leads, led) = tokio::sync::oneshot::channel();
    let (resume, resumed) = std::sync::mpsc::channel();
    let machine = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Cluster::client_from(&kubeconfig).await?;
            let suspended = Arc::new(Mutex::new(Duration::ZERO));
            let left_out = Arc::clone(&suspended);
            let clock = move || {
                let now = Moment::now();
                Moment { monotonic: now.monotonic - *left_out.lock(), ..now }
            };
            let election = Election::new(&lease, SYSTEM_NAMESPACE.to_owned());
            let election = election.with_identity("suspended", TIMING).with_clock(clock);
            let writing = election.client(&client);
            let (metrics, never) = (Metrics::new(), Shutdown::new());
            let leadership = leader::acquire(client, election, &metrics, &never).await.context("stopped")?;
            write(&writing, &lease, "first").await?;
            let begun = Instant::now();
            leads.send(()).ok().context("the test has ended")?;
            resumed.recv()?;
            *suspended.lock() = begun.elapsed();
            // before any other task of this machine continues
            ensure!(write(&writing, &lease, "first, late").await.is_err(), "another leads");
            leadership.loss().cancelled().await;
            ensure!(write(&writing, &lease, "first, later").await.is_err(), "it knows that another leads");
            Ok(())
        })
    });
    led.await?;
    let election = Election::new(&name, SYSTEM_NAMESPACE.to_owned()).with_identity("second", TIMING);
    let writing = election.client(&client);
    let since = Instant::now();
    let (metrics, never) = (Metrics::new(), Shutdown::new());
    let acquired = leader::acquire(client.clone(), election, &metrics, &never);
    let leadership = tokio::time::timeout(LIMIT, acquired).await.context("its end is not noticed")?;
    let leadership = leadership.context("stopped")?;
    case.converged(since);
    let written = write(&writing, &name, "second").await?;
    resume.send(())?;
    machine.await??;
    let map = Api::<ConfigMap>::namespaced(client, SYSTEM_NAMESPACE).get(&name).await?;
    ensure!(map == written, "{map:?}");
    leadership.release().await;
    Ok(())
}

#[tokio::test]
async fn fault_conditions_of_another_century_are_preserved() -> Result<()> {
    let mut case = Case::once("times in conditions far ahead and far back");
    let site = Site::shared().await?;
    let package = Package::new(site, "century").await?;
    package
        .serve(&site.registry, [("1.0.0", package.bundle("1.0.0")), ("1.1.0", package.bundle("1.1.0"))])
        .await?;
    let installed = package.install("1.0.0").await?;
    let set = package.sets.get(&format!("{}-1", package.name)).await?;
    let shifted = |status: Option<Value>, time: &str| -> Result<Value> {
        let mut status = status.context("no status")?;
        for condition in status["conditions"].as_array_mut().context("no conditions")? {
            condition["lastTransitionTime"] = time.into();
        }
        Ok(json!({"status": status}))
    };
    for time in ["2099-01-01T00:00:00Z", "1971-01-01T00:00:00Z"] {
        let status = shifted(installed.status.as_ref().map(serde_json::to_value).transpose()?, time)?;
        package
            .extensions
            .patch_status(&package.name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        let status = shifted(set.status.as_ref().map(serde_json::to_value).transpose()?, time)?;
        package
            .sets
            .patch_status(&format!("{}-1", package.name), &PatchParams::default(), &Patch::Merge(status))
            .await?;
        let mark = site.mark()?;
        let again = json!({"metadata": {"annotations": {"olm.operatorframework.io/requested-at": time}}});
        package.extensions.patch(&package.name, &PatchParams::default(), &Patch::Merge(again)).await?;
        package.heals("1.0.0").await?;
        let writes: Vec<_> = site
            .about(&package.name, mark)?
            .into_iter()
            .filter(|r| r.writes() && r.resource.ends_with("/status"))
            .collect();
        ensure!(writes.is_empty(), "nothing has changed but the times:\n{}", lines(&writes));
        ensure!(times(&package.extensions.get(&package.name).await?).iter().all(|found| found == time));
    }
    package.want("1.1.0").await?;
    let since = Instant::now();
    package.installed("1.1.0").await?;
    case.converged(since);
    Ok(())
}

fn times(extension: &ClusterExtension) -> Vec<String> {
    let status = extension.status.as_ref().map(serde_json::to_value).and_then(Result::ok).unwrap_or_default();
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.iter()
        .map(|condition| condition["lastTransitionTime"].as_str().unwrap_or_default().to_owned())
        .collect()
}
