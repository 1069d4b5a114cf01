//! The cost of many extensions for operator-controller: install, rest, a pass that finds nothing to do, restart, upgrade, uninstall.
//!
//! ```text
//! OLM_SCALE=20,100 cargo bench -p olm-integration --bench scale
//! ```
//!
//! For each number a cluster of its own with as many packages, each of eight objects (CRD, service account, two cluster
//! roles with bindings, ConfigMap, Deployment). Printed is a Markdown table. Processor time and requests are the figures
//! that another machine will find again; times depend on the apiserver, which shares the processors.
//! `OLM_REST` is how many seconds of rest are watched (default 5). The figures that `make bench` checks are those of the last
//! number.
//!
//! `make scale` sets `OLM_FLEET=1000,20`: then a run with that many extensions over that many catalogs follows ([`fleet`]), and the
//! bench fails when a figure is above its bound ([`bounds`]).

#![expect(clippy::print_stdout, reason = "a bench prints")]

mod fleet;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, condition};
use olm_integration::bounds::{self, Bounds};
use olm_integration::until_collected;
use olm_kit::{
    BundleImage, CatalogImage, Cluster, Crd, Entry, Options, Package, Process, Program, Registry,
    SYSTEM_NAMESPACE, Wait,
};
use serde_json::json;

const ACCOUNT: &str = "operator-controller-under-test";
const LIMIT: Duration = Duration::from_secs(600);
const MIB: f64 = 1024.0 * 1024.0;
/// How many requests an uninstall may take.
const UNINSTALL_REQUESTS: f64 = 12.0;
/// How much resident memory an extension may take, in bytes.
const GROWTH: f64 = 0.25 * MIB;

#[tokio::main]
async fn main() -> Result<()> {
    if std::env::var_os("OLM_TOOLS").is_none() {
        println!("SKIPPED: the scale bench needs OLM_TOOLS; run it by `make bench`");
        return Ok(());
    }
    let sizes = std::env::var("OLM_SCALE").unwrap_or_else(|_| "20,100".to_owned());
    let rest = std::env::var("OLM_REST").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut columns = Vec::new();
    for size in sizes.split(',') {
        let size = size.trim().parse().with_context(|| format!("OLM_SCALE: {size:?} is no number"))?;
        columns.push(measure(size, Duration::from_secs(rest)).await?);
    }
    print(&columns);
    if let [first, .., last] = &columns[..] {
        let of = |column: &Column| column.install;
        println!("figure: {:.4} CPU of an install, to that among few", of(last) / of(first));
    }
    for (what, figure) in columns.last().iter().flat_map(|column| &column.figures) {
        println!("figure: {figure:.4} {what}");
    }
    let Ok(size) = std::env::var("OLM_FLEET") else { return Ok(()) };
    let numbers = size.split_once(',').and_then(|(extensions, catalogs)| {
        Some((extensions.parse::<usize>().ok()?, catalogs.parse::<usize>().ok()?))
    });
    let (extensions, catalogs) = numbers.with_context(|| format!("OLM_FLEET: {size:?} is not N,M"))?;
    let mut bounds = columns.into_iter().last().map(|column| column.bounds).unwrap_or_default();
    fleet::measure(extensions, catalogs, &mut bounds).await?;
    bounds.check()
}

/// What one number of extensions came to.
struct Column {
    rows: Vec<(&'static str, String)>,
    figures: Vec<(&'static str, f64)>,
    /// processor time of an install, in seconds
    install: f64,
    /// what `make scale` checks
    bounds: Bounds,
}

fn print(columns: &[Column]) {
    let Some(first) = columns.first() else { return };
    for (at, (title, _)) in first.rows.iter().enumerate() {
        let cells: Vec<&str> =
            columns.iter().filter_map(|column| column.rows.get(at)).map(|(_, cell)| cell.as_str()).collect();
        println!("| {title} | {} |", cells.join(" | "));
        if at == 0 {
            println!("|---|{}", "---:|".repeat(columns.len()));
        }
    }
}

struct Bench {
    size: usize,
    /// the namespace of an extension
    namespace: fn(usize) -> String,
    cluster: Cluster,
    process: Process,
    extensions: Api<ClusterExtension>,
    user: String,
}

/// Where the counters stood.
struct Mark {
    when: Instant,
    cpu: Duration,
    /// of kube-apiserver
    apiserver: Duration,
    requests: usize,
}

/// What happened since a mark.
#[derive(Default)]
struct Spent {
    wall: Duration,
    cpu: Duration,
    /// of kube-apiserver
    apiserver: Duration,
    writes: usize,
    requests: usize,
}

async fn measure(size: usize, rest: Duration) -> Result<Column> {
    let registry = Registry::start().await?;
    let cluster = start().await?;
    let catalogd = Program::catalogd(&cluster)?.start().await?;
    publish(&cluster, &registry, size).await?;
    let process =
        Program::operator_controller(&cluster)?.kubeconfig(&account(&cluster).await?).start().await?;
    let client = cluster.client().await?;
    let user = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{ACCOUNT}");
    let extensions = Api::all(client.clone());
    let mut bench = Bench { size, namespace: name, extensions, user, process, cluster };
    bench.wait_until_idle().await?;
    let idle = bench.process.memory()?;

    let before = bench.mark()?;
    bench.want("1.0.0").await?;
    bench.installed("1.0.0").await?;
    let install = bench.since(&before)?;
    bench.wait_until_idle().await?;
    let resident = bench.process.memory()?;

    let before = bench.mark()?;
    tokio::time::sleep(rest).await;
    let resting = bench.since(&before)?;

    let before = bench.mark()?;
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "check again"}}}));
    for index in 0..size {
        bench.extensions.patch(&name(index), &PatchParams::default(), &note).await?;
    }
    bench.wait_until_idle().await?;
    let nothing = bench.since(&before)?;

    bench.process.stop();
    let before = bench.mark()?.requests;
    let started = Instant::now();
    bench.process.restart().await?;
    let verified = bench.wait_until_idle().await?;
    let restarted = bench.process.memory()?;
    let restart =
        Spent { wall: verified.duration_since(started), cpu: bench.process.cpu()?, ..bench.counted(before)? };

    let before = bench.mark()?;
    bench.want("2.0.0").await?;
    bench.installed("2.0.0").await?;
    let upgrade = bench.since(&before)?;
    bench.wait_until_idle().await?;
    let upgraded = bench.process.memory()?;

    let sets: Api<ClusterObjectSet> = Api::all(client);
    let objects = sets
        .list(&ListParams::default())
        .await?
        .items
        .first()
        .map(|set| set.spec.phases.iter().map(|phase| phase.objects.len()).sum::<usize>())
        .unwrap_or_default();
    let before = bench.mark()?;
    bench.uninstall().await?;
    let uninstall = bench.since(&before)?;
    drop(catalogd);
    let each = |count: usize| format!("{:.1}", count as f64 / size as f64);
    let ms_each = |spent: &Spent| format!("{:.1} ms", spent.cpu.as_secs_f64() * 1000.0 / size as f64);
    let seconds = |duration: Duration| format!("{:.1} s", duration.as_secs_f64());
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB);
    let total = |spent: &Spent| spent.cpu.as_secs_f64();
    let requests = |spent: &Spent| spent.requests as f64 / size as f64;
    let growth = resident.resident.saturating_sub(idle.resident) as f64 / size as f64;
    let figures = vec![
        ("requests of an install", requests(&install) / (objects as f64 + 12.0)),
        ("requests of an upgrade", requests(&upgrade) / requests(&install)),
        ("requests of a pass with nothing to do", requests(&nothing) / (objects as f64 + 12.0)),
        ("writes at rest", resting.writes as f64 / size as f64),
        ("writes of a restart", restart.writes as f64 / size as f64),
        ("CPU of an install", total(&install) / install.apiserver.as_secs_f64()),
        ("CPU of an upgrade", total(&upgrade) / total(&install)),
        ("CPU of a pass with nothing to do", total(&nothing) / total(&install)),
        ("CPU of a restart", total(&restart) / total(&install)),
        ("requests of an uninstall", requests(&uninstall) / UNINSTALL_REQUESTS),
        ("growth of resident memory", growth / GROWTH),
    ];
    let rows = vec![
        ("extensions", size.to_string()),
        ("objects each", objects.to_string()),
        ("install, time", seconds(install.wall)),
        ("install, CPU each", ms_each(&install)),
        ("install, requests each", each(install.requests)),
        ("resident, idle", mib(idle.resident)),
        ("resident, installed", mib(resident.resident)),
        ("resident, peak", mib(resident.peak)),
        ("resident, after restart", mib(restarted.resident)),
        ("resident, upgraded", mib(upgraded.resident)),
        ("without files: idle", mib(idle.anonymous)),
        ("without files: installed", mib(resident.anonymous)),
        ("without files: after restart", mib(restarted.anonymous)),
        ("without files: upgraded", mib(upgraded.anonymous)),
        ("at rest, writes", format!("{} in {} s", resting.writes, rest.as_secs())),
        ("at rest, CPU", format!("{:.0} ms", resting.cpu.as_secs_f64() * 1000.0)),
        ("a pass with nothing to do, CPU each", ms_each(&nothing)),
        ("a pass with nothing to do, requests each", each(nothing.requests)),
        ("restart, until steady", seconds(restart.wall)),
        ("restart, CPU", format!("{:.2} s", restart.cpu.as_secs_f64())),
        ("restart, writes", restart.writes.to_string()),
        ("upgrade, time", seconds(upgrade.wall)),
        ("upgrade, CPU each", ms_each(&upgrade)),
        ("upgrade, requests each", each(upgrade.requests)),
        ("uninstall, time", seconds(uninstall.wall)),
        ("uninstall, CPU each", ms_each(&uninstall)),
        ("uninstall, requests each", each(uninstall.requests)),
    ];
    let mut bounds = Bounds::default();
    let most = [&resident, &restarted, &upgraded].map(|memory| memory.resident).into_iter().max();
    let each_ms = |spent: &Spent| total(spent) * 1000.0 / size as f64;
    let group = format!("{size} extensions");
    let slower = bounds::slower(install.apiserver.as_secs_f64() / size as f64);
    for (what, unit, figure, bound) in [
        ("install", "s", install.wall.as_secs_f64(), 7.0 * slower),
        ("install, CPU each", "ms", each_ms(&install), 18.0 * slower),
        ("upgrade", "s", upgrade.wall.as_secs_f64(), 15.0 * slower),
        ("upgrade, requests each", "", requests(&upgrade), 30.0),
        ("restart", "s", restart.wall.as_secs_f64(), 2.0),
        ("resident memory", "MiB", most.unwrap_or_default() as f64 / MIB, 40.0),
    ] {
        bounds.add(&group, what, unit, figure, bound);
    }
    Ok(Column { rows, figures, install: total(&install) / size as f64, bounds })
}

fn name(index: usize) -> String {
    format!("scale-{index}")
}

/// A control plane with OLM's kinds that the garbage collector knows, too: until then it reads each object of a revision from the apiserver,
/// half as many requests again as an install takes.
async fn start() -> Result<Cluster> {
    let cluster = Cluster::start_with(&Options { audit: true, ..Options::default() }).await?;
    cluster.install_olm().await?;
    until_collected(&cluster, "olm.operatorframework.io/v1", "ClusterObjectSet").await?;
    Ok(cluster)
}

/// A kubeconfig of an account of its own, so that its requests can be counted.
async fn account(cluster: &Cluster) -> Result<std::path::PathBuf> {
    let kubeconfig = cluster.kubeconfig_for_service_account(SYSTEM_NAMESPACE, ACCOUNT).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE}]});
    cluster.apply(&binding.to_string()).await?;
    Ok(kubeconfig)
}

/// Packages, their catalog and their namespaces.
async fn publish(cluster: &Cluster, registry: &Registry, size: usize) -> Result<()> {
    let mut catalog = CatalogImage::new();
    for index in 0..size {
        let name = name(index);
        let mut package = Package::new(&name)
            .channel("stable", [Entry::new("1.0.0"), Entry::new("2.0.0").replaces("1.0.0")]);
        for version in ["1.0.0", "2.0.0"] {
            let bundle =
                BundleImage::new(&name, version).crds([Crd::new("Gadget", &format!("{name}.example.com"))]);
            let pushed =
                registry.push(&format!("{name}/bundle"), &format!("v{version}"), &bundle.image()).await?;
            package = package.bundle(version, &pushed.by_digest());
        }
        catalog = catalog.package(&package);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.apply(&namespace.to_string()).await?;
    }
    let pushed = registry.push("scale/catalog", "v1", &catalog.image()).await?;
    let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": {"name": "scale"},
        "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_digest()}}}});
    cluster.apply(&catalog.to_string()).await?;
    let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    Wait::new(&catalogs, "scale")
        .within(LIMIT)
        .until("is served", |catalog: &ClusterCatalog| {
            let status = catalog.status.as_ref();
            status.is_some_and(|status| condition::is_true(&status.conditions, condition::SERVING))
        })
        .await?;
    Ok(())
}

impl Bench {
    fn mark(&mut self) -> Result<Mark> {
        let requests = self.cluster.audit_length()?;
        let cpu = self.process.cpu().unwrap_or_default();
        Ok(Mark { when: Instant::now(), cpu, apiserver: self.apiserver()?, requests })
    }

    fn since(&mut self, mark: &Mark) -> Result<Spent> {
        let (wall, cpu) = (mark.when.elapsed(), self.process.cpu()?.saturating_sub(mark.cpu));
        let apiserver = self.apiserver()?.saturating_sub(mark.apiserver);
        Ok(Spent { wall, cpu, apiserver, ..self.counted(mark.requests)? })
    }

    /// Processor time of kube-apiserver.
    fn apiserver(&mut self) -> Result<Duration> {
        let plane = self.cluster.plane().context("the control plane is not ours")?;
        let apiserver = plane.children().iter().find(|child| child.name() == "kube-apiserver");
        apiserver.context("there is no kube-apiserver")?.cpu()
    }

    /// Requests of operator-controller after the first `from` of the record. Watches are counted when they end, so they are
    /// left out, and so are reviews of who may see metrics.
    fn counted(&self, from: usize) -> Result<Spent> {
        let all = self.cluster.audit()?;
        let own: Vec<_> = all
            .iter()
            .skip(from)
            .filter(|request| request.user == self.user && request.verb != "watch")
            .collect();
        if std::env::var_os("OLM_SCALE_REQUESTS").is_some() {
            self.print_requests(&own);
        }
        let writes = own.iter().filter(|request| request.writes()).count();
        Ok(Spent { writes, requests: own.len(), ..Spent::default() })
    }

    /// Prints how many requests of each kind an extension takes, and those about one extension in order.
    fn print_requests(&self, requests: &[&olm_kit::Request]) {
        let mut sorts: BTreeMap<String, usize> = BTreeMap::new();
        for request in requests {
            *sorts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
        }
        for (sort, count) in &sorts {
            println!("{:8.2} {sort}", *count as f64 / self.size as f64);
        }
        let one = name(self.size / 2);
        let about = requests.iter().filter(|request| {
            let named = request.name == one || request.name.starts_with(&format!("{one}-"));
            named || request.namespace == one || request.uri.contains(&format!("{one}-"))
        });
        for request in about {
            let olm_kit::Request { received, verb, resource, name, code, .. } = request;
            println!("         {received} {verb} {resource} {name} {code}");
        }
    }

    /// Wants this version of every package.
    async fn want(&self, version: &str) -> Result<()> {
        let params = PatchParams::apply("bench").force();
        let applies = (0..self.size).map(|index| {
            let name = name(index);
            let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                "metadata": {"name": name},
                "spec": {"namespace": (self.namespace)(index), "source": {"sourceType": "Catalog",
                    "catalog": {"packageName": name, "version": version}}}});
            let params = &params;
            async move { self.extensions.patch(&name, params, &Patch::Apply(&extension)).await }
        });
        let mut answers = futures::stream::iter(applies).buffer_unordered(8);
        while let Some(answer) = answers.next().await {
            answer?;
        }
        Ok(())
    }

    /// Waits until every extension has this version and is Ready.
    async fn installed(&self, version: &str) -> Result<()> {
        let mut open: std::collections::BTreeSet<String> = (0..self.size).map(name).collect();
        let mut events =
            watcher(self.extensions.clone(), watcher::Config::default()).applied_objects().boxed();
        let all = async {
            while let Some(event) = events.next().await {
                let extension = event?;
                let Some(status) = &extension.status else { continue };
                let installed =
                    status.install.as_ref().is_some_and(|install| install.bundle.version == version);
                let ready = condition::find(&status.conditions, condition::READY).is_some_and(|found| {
                    found.status.as_str() == "True"
                        && found.observed_generation == extension.metadata.generation
                });
                if installed && ready {
                    open.remove(&extension.name_any());
                }
                if open.is_empty() {
                    return Ok(());
                }
            }
            bail!("the watch ended")
        };
        let done = tokio::time::timeout(LIMIT, all).await;
        match done {
            Ok(done) => done,
            Err(_) => bail!("{} of {} are not installed: {open:?}", open.len(), self.size),
        }
    }

    /// Deletes all extensions and waits until they are gone.
    async fn uninstall(&self) -> Result<()> {
        for index in 0..self.size {
            self.extensions.delete(&name(index), &DeleteParams::default()).await?;
        }
        for index in 0..self.size {
            Wait::new(&self.extensions, &name(index)).within(LIMIT).to_be_gone().await?;
        }
        Ok(())
    }

    async fn wait_until_idle(&self) -> Result<Instant> {
        until_idle(&self.process).await
    }
}

/// Waits until the process has used almost no CPU for a second; returns when its work ended.
async fn until_idle(process: &Process) -> Result<Instant> {
    let (mut since, mut cpu) = (Instant::now(), process.cpu()?);
    while since.elapsed() < Duration::from_secs(1) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = process.cpu()?;
        // a clock tick now and then is the runtime's own
        if now > cpu + Duration::from_millis(15) {
            (since, cpu) = (Instant::now(), now);
        }
    }
    Ok(since)
}
