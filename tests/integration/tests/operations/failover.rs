//! Two replicas of each process with leader election: how long it takes until the other one works, after a polite stop (the
//! lease is released) and after a kill (it has to run out). What is measured ends with work done: a status written. And what comes of
//! a lease that is deleted, or given to another.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_kit::{Cluster, Options, Process, Program, SYSTEM_NAMESPACE, Wait, eventually, unique};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(90);
/// A released lease is seen in the watch of it. The rest is for a busy machine.
const RELEASED: Duration = Duration::from_secs(8);
/// How long a lease lasts, and how long the holder of a deleted one may still write.
const LEASE: Duration = Duration::from_secs(15);
/// The holder finds at its next renewal, after 2 s at most, that it has lost the lease. The rest is for a busy machine.
const ABORTED: Duration = Duration::from_secs(8);
/// A lease that is not renewed runs out after 15 s, then as above.
const KILLED: Duration = Duration::from_secs(28);

#[derive(Clone, Copy)]
struct Kind {
    lease: &'static str,
    program: fn(&Cluster) -> Result<Program>,
}

const CATALOGD: Kind = Kind { lease: "catalogd-operator-lock", program: Program::catalogd };
const OPERATOR_CONTROLLER: Kind =
    Kind { lease: "9c4404e7.operatorframework.io", program: Program::operator_controller };

fn leads(process: &Process) -> bool {
    process.log_text().contains("became leader")
}

/// An object that only a leader reconciles: its status soon reports an error.
async fn ask(cluster: &Cluster, kind: Kind) -> Result<Answered> {
    let client = cluster.client().await?;
    let name = unique("asked");
    let params = PatchParams::apply("test").force();
    if kind.lease == CATALOGD.lease {
        let api: Api<ClusterCatalog> = Api::all(client);
        let asked = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name},
            "spec": {"source": {"type": "Image", "image": {"ref": "127.0.0.1:1/none:v1"}}}});
        api.patch(&name, &params, &Patch::Apply(&asked)).await?;
        return Ok(Answered::Catalog(api, name));
    }
    let api: Api<ClusterExtension> = Api::all(client);
    let asked = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": "default", "source": {"sourceType": "Catalog", "catalog": {"packageName": "none"}}}});
    api.patch(&name, &params, &Patch::Apply(&asked)).await?;
    Ok(Answered::Extension(api, name))
}

enum Answered {
    Catalog(Api<ClusterCatalog>, String),
    Extension(Api<ClusterExtension>, String),
}

impl Answered {
    async fn wait(self) -> Result<()> {
        match self {
            Self::Catalog(api, name) => {
                let answered =
                    |it: &ClusterCatalog| it.status.as_ref().is_some_and(|s| !s.conditions.is_empty());
                Wait::new(&api, &name).within(LIMIT).until("has a status", answered).await.map(drop)
            }
            Self::Extension(api, name) => {
                let answered =
                    |it: &ClusterExtension| it.status.as_ref().is_some_and(|s| !s.conditions.is_empty());
                Wait::new(&api, &name).within(LIMIT).until("has a status", answered).await.map(drop)
            }
        }
    }
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

/// Ends the leader of two; gives the time until the other one held the lease, and until it had answered.
async fn failover(kind: Kind, politely: bool) -> Result<(Duration, Duration)> {
    let cluster = Cluster::start().await?;
    cluster.install_olm().await?;
    let start = || async { (kind.program)(&cluster)?.flag("--leader-elect", "true").start().await };
    let mut first = start().await?;
    eventually("the first one leads", LIMIT, || async {
        ensure!(leads(&first), "not yet");
        Ok(())
    })
    .await?;
    let second = start().await?;
    ask(&cluster, kind).await?.wait().await.context("the first leader works")?;
    ensure!(!leads(&second), "there is one leader");

    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    let before = holder(&leases.get(kind.lease).await?);
    let begun = Instant::now();
    let ending = tokio::task::spawn_blocking(move || {
        let ended = if politely {
            first.stop()
        } else {
            first.kill9();
            true
        };
        (first, ended)
    });
    let asked = ask(&cluster, kind).await?;
    let taken = async {
        let wait = Wait::new(&leases, kind.lease).within(LIMIT).log(second.log());
        let other = |lease: &Lease| !holder(lease).is_empty() && holder(lease) != before;
        wait.until("is held by the other one", other).await?;
        anyhow::Ok(begun.elapsed())
    };
    let answered = async {
        asked.wait().await?;
        anyhow::Ok(begun.elapsed())
    };
    let (taken, answered) = tokio::try_join!(taken, answered)?;
    let (mut first, ended) = ending.await?;
    ensure!(ended, "it did not end well: {}", first.child().describe_end());
    ensure!(leads(&second));
    Ok((taken, answered))
}

async fn measure(kind: Kind) -> Result<()> {
    for (how, politely, limit) in [("SIGTERM, lease released", true, RELEASED), ("kill -9", false, KILLED)] {
        let (taken, answered) = failover(kind, politely).await?;
        let (taken, answered) = (taken.as_secs_f64(), answered.as_secs_f64());
        eprintln!(
            "failover of {}, {how}: lease taken after {taken:.1} s, first status after {answered:.1} s",
            kind.lease
        );
        ensure!(answered < limit.as_secs_f64(), "{how}: first status after {answered:.1} s");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_to_another_catalogd() -> Result<()> {
    measure(CATALOGD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_to_another_operator_controller() -> Result<()> {
    measure(OPERATOR_CONTROLLER).await
}

/// The lease is deleted, once while its holder works and once while it is frozen.
async fn delete_lease(kind: Kind) -> Result<()> {
    let cluster = Cluster::start_with(&Options { audit: true, ..Options::default() }).await?;
    cluster.install_olm().await?;
    let start = async |account| {
        let kubeconfig = cluster.kubeconfig_that_may_all(account).await?;
        (kind.program)(&cluster)?.kubeconfig(&kubeconfig).flag("--leader-elect", "true").start().await
    };
    let mut first = start("first").await?;
    eventually("the first one leads", LIMIT, || async {
        ensure!(leads(&first), "not yet");
        Ok(())
    })
    .await?;
    let second = start("second").await?;
    let read = |verb: &str, resource: &str, code| verb == "get" && resource == "leases" && code == 200;
    eventually("the second one has seen the lease", LIMIT, || async {
        let seen =
            cluster.audited(0, |it| it.user.ends_with(":second") && read(&it.verb, &it.resource, it.code))?;
        ensure!(!seen.is_empty(), "not yet");
        Ok(())
    })
    .await?;
    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    let recreated = || Wait::new(&leases, kind.lease).within(LIMIT).log(second.log()).to_exist();

    let before = leases.get(kind.lease).await?;
    leases.delete(kind.lease, &DeleteParams::default()).await?;
    let lease = recreated().await?;
    ensure!(lease.metadata.uid != before.metadata.uid && holder(&lease) == holder(&before), "{lease:?}");
    ensure!(!leads(&second), "there is one leader");

    first.freeze();
    let mut tail = cluster.audit_tail()?;
    let asked = ask(&cluster, kind).await?;
    let begun = Instant::now();
    leases.delete(kind.lease, &DeleteParams::default()).await?;
    let lease = recreated().await?;
    let taken = begun.elapsed();
    eprintln!("{}, deleted: taken after {:.1} s", kind.lease, taken.as_secs_f64());
    ensure!(holder(&lease) != holder(&before), "{lease:?}");
    ensure!(taken >= LEASE, "{taken:?}: the holder may still write");
    asked.wait().await?;
    first.thaw();
    ensure!(first.child().wait(LIMIT), "the first one continues");
    let late = tail.more()?.into_iter().filter(|request| {
        request.user.ends_with(":first")
            && request.writes()
            && request.resource != "leases"
            && request.code < 300
    });
    let late: Vec<String> = late.map(|request| format!("{} {}", request.verb, request.uri)).collect();
    ensure!(late.is_empty(), "writes of the first one: {late:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_of_catalogd_waits_for_a_deleted_lease() -> Result<()> {
    delete_lease(CATALOGD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_of_operator_controller_waits_for_a_deleted_lease() -> Result<()> {
    delete_lease(OPERATOR_CONTROLLER).await
}

/// The lease goes to another one while a pass waits for its registry: the pass ends with the process and writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn failover_aborts_running_passes_of_catalogd() -> Result<()> {
    let cluster = Cluster::start_with(&Options { audit: true, ..Options::default() }).await?;
    cluster.install_olm().await?;
    let kubeconfig = cluster.kubeconfig_that_may_all("first").await?;
    let program = Program::catalogd(&cluster)?.kubeconfig(&kubeconfig).flag("--leader-elect", "true");
    let mut first = program.start().await?;
    eventually("it leads", LIMIT, || async {
        ensure!(leads(&first), "not yet");
        Ok(())
    })
    .await?;
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "silent"},
        "spec": {"source": {"type": "Image", "image": {"ref": format!("{}/silent:v1", silent.local_addr()?)}}}});
    cluster.apply(&catalog.to_string()).await?;
    let (mut pull, _) =
        tokio::time::timeout(LIMIT, silent.accept()).await.context("the registry is not called")??;

    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    let mut tail = cluster.audit_tail()?;
    let taken = json!({"spec": {"holderIdentity": "another"}});
    leases.patch(CATALOGD.lease, &PatchParams::default(), &Patch::Merge(&taken)).await?;
    let begun = Instant::now();
    let ended = tokio::time::timeout(ABORTED, pull.read_to_end(&mut Vec::new())).await;
    ensure!(ended.is_ok(), "the pull continues:\n{}", first.log_text());
    ensure!(first.child().wait(ABORTED), "the process continues:\n{}", first.log_text());
    eprintln!("the pull ended after {:.1} s", begun.elapsed().as_secs_f64());
    let late =
        tail.more()?.into_iter().filter(|request| request.user.ends_with(":first") && request.writes());
    let late: Vec<String> = late.map(|request| format!("{} {}", request.verb, request.uri)).collect();
    ensure!(late.iter().all(|write| write.contains("/leases/")), "writes after the loss: {late:?}");
    Ok(())
}
