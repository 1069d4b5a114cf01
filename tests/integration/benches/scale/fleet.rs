//! Very many extensions over many catalogs: memory, requests at rest, a restart, an update of one catalog, and an apiserver that is
//! restarted.
//!
//! Bundles have eight objects each, as in the smaller runs, but their Deployments have no pods, and one in ten has a CRD: a
//! thousand pods and CRDs on the same processors would measure the control plane. No extension names a catalog, so each is looked for
//! in all of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterCatalog, condition};
use olm_integration::bounds::Bounds;
use olm_kit::{
    BundleImage, Ca, CatalogImage, Cluster, Crd, Entry, Package, Program, Pushed, Registry, Request,
    SYSTEM_NAMESPACE, Wait, eventually,
};
use serde_json::{Value, json};

use crate::{ACCOUNT, Bench, LIMIT, MIB, account, name, start, until_idle};

/// How long nothing may be asked.
const REST: Duration = Duration::from_secs(60);
/// How long the requests after a restart of the apiserver are counted.
const AFTERMATH: Duration = Duration::from_secs(60);
const NAMESPACES: usize = 20;
/// The leases of operator-controller and of catalogd.
const LEASES: [&str; 2] = ["9c4404e7.operatorframework.io", "catalogd-operator-lock"];
const CONTROLLER: &str = "controller-operator-cluster-extension-controller";

fn namespace(index: usize) -> String {
    format!("fleet-{}", index % NAMESPACES)
}

/// Measures `size` extensions over `catalogs` catalogs.
pub(crate) async fn measure(size: usize, catalogs: usize, bounds: &mut Bounds) -> Result<()> {
    let registry = Registry::start().await?;
    let cluster = start().await?;
    let catalogd = Program::catalogd(&cluster)?.start().await?;
    let fleet = Fleet { registry, size, catalogs };
    fleet.publish(&cluster).await?;
    let kubeconfig = account(&cluster).await?;
    let process = Program::operator_controller(&cluster)?.kubeconfig(&kubeconfig).start().await?;
    let client = cluster.client().await?;
    let user = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{ACCOUNT}");
    let extensions = Api::all(client.clone());
    let mut bench = Bench { size, namespace, extensions, user, process, cluster };
    let group = format!("{size} extensions, {catalogs} catalogs");
    bench.wait_until_idle().await?;
    let before = bench.mark()?;
    bench.want("1.0.0").await?;
    bench.installed("1.0.0").await?;
    let install = bench.since(&before)?;
    bench.wait_until_idle().await?;
    let installed = bench.process.memory()?;
    println!(
        "fleet: install {:.1} s, {:.1} CPU ms and {:.1} requests each; {:.1} MiB, catalogd {:.1} MiB",
        install.wall.as_secs_f64(),
        install.cpu.as_secs_f64() * 1000.0 / size as f64,
        install.requests as f64 / size as f64,
        installed.resident as f64 / MIB,
        catalogd.memory()?.resident as f64 / MIB
    );

    let mut tail = bench.cluster.audit_tail()?;
    let cpu = bench.process.cpu()?;
    tokio::time::sleep(REST).await;
    let asked: Vec<Request> =
        tail.more()?.into_iter().filter(is_ours).filter(|asked| !may_rest(asked)).collect();
    asked.iter().take(10).for_each(|asked| println!("at rest: {}", line_of(asked)));
    let rest_cpu = (bench.process.cpu()? - cpu).as_secs_f64() * 1000.0;
    println!("fleet: {rest_cpu:.0} CPU ms in {} s of rest", REST.as_secs());
    bounds.add(&group, "requests in 60 s of rest, without watches and leases", "", asked.len() as f64, 0.0);

    bench.process.stop();
    let before = bench.mark()?.requests;
    let started = Instant::now();
    bench.process.restart().await?;
    let verified = bench.wait_until_idle().await?;
    let restarted = bench.process.memory()?;
    let again = bench.counted(before)?;
    println!(
        "fleet: restart {:.2} CPU s, {} requests, {} of them writes; {:.1} MiB, at most {:.1}",
        bench.process.cpu()?.as_secs_f64(),
        again.requests,
        again.writes,
        restarted.resident as f64 / MIB,
        restarted.peak as f64 / MIB
    );
    bounds.add(&group, "restart", "s", verified.duration_since(started).as_secs_f64(), 15.0);
    bounds.add(&group, "writes of a restart", "", again.writes as f64, 0.0);
    let most = installed.resident.max(restarted.resident) as f64 / MIB;
    bounds.add(&group, "resident memory", "MiB", most, 200.0);
    standby(&bench.cluster, catalogs).await?;

    let passes = bench.passes(&kubeconfig).await?;
    let (cpu, before) = (bench.process.cpu()?, bench.mark()?.requests);
    fleet.update(&bench.cluster, 0).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.wait_until_idle().await?;
    let woken = bench.passes(&kubeconfig).await? - passes;
    let spent = (bench.process.cpu()? - cpu).as_secs_f64() * 1000.0;
    let requests = bench.counted(before)?.requests;
    println!("fleet: update of a catalog {spent:.0} CPU ms, {requests} requests to the apiserver");
    ensure!(woken >= 1, "the extension of the package that changed was not reconciled");
    bounds.add(&group, "passes after an update of one package in one catalog", "", woken as f64, 1.0);

    bench.restart_apiserver(&group, bounds).await
}

/// Prints the resident memory of a replica of each program that does not lead, beside those that work.
async fn standby(cluster: &Cluster, catalogs: usize) -> Result<()> {
    // the programs that are measured elect no leader, because the requests for a lease would count
    for lease in LEASES {
        let held = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": lease, "namespace": SYSTEM_NAMESPACE},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}});
        cluster.apply(&held.to_string()).await?;
    }
    let controller = Program::operator_controller(cluster)?.flag("--leader-elect", "true").start().await?;
    let catalogd = Program::catalogd(cluster)?.flag("--leader-elect", "true").start().await?;
    eventually("catalogd has all catalogs", LIMIT, || async {
        let has = std::fs::read_dir(catalogd.cache().join("names"))?.count();
        ensure!(has >= catalogs, "{has} of {catalogs}");
        Ok(())
    })
    .await?;
    let mut resident = Vec::new();
    for process in [&controller, &catalogd] {
        until_idle(process).await?;
        ensure!(!process.log_text().contains("became leader"), "{} leads", process.name());
        resident.push(format!("{} {:.1} MiB", process.name(), process.memory()?.resident as f64 / MIB));
    }
    println!("fleet: replicas that do not lead: {}", resident.join(", "));
    Ok(())
}

/// Whether one of the two programs sent it.
fn is_ours(request: &Request) -> bool {
    ["operator-controller/", "catalogd/"].iter().any(|program| request.agent.starts_with(program))
}

/// What is asked at rest, too.
fn may_rest(request: &Request) -> bool {
    request.verb == "watch" || request.resource == "leases"
}

fn line_of(request: &Request) -> String {
    format!("{} {} {} {}", request.agent, request.verb, request.uri, request.code)
}

struct Fleet {
    registry: Registry,
    size: usize,
    catalogs: usize,
}

impl Fleet {
    /// Packages in catalogs, and the namespaces.
    async fn publish(&self, cluster: &Cluster) -> Result<()> {
        for index in 0..NAMESPACES {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(index)}});
            cluster.apply(&namespace.to_string()).await?;
        }
        for catalog in 0..self.catalogs {
            let pushed = self.push(catalog, None).await?;
            self.point(cluster, catalog, &pushed).await?;
        }
        Ok(())
    }

    /// One package of a catalog gets a version that no extension asks for.
    async fn update(&self, cluster: &Cluster, catalog: usize) -> Result<()> {
        let pushed = self.push(catalog, Some(catalog)).await?;
        self.point(cluster, catalog, &pushed).await
    }

    /// Pushes a catalog with every package of it; `updated` has a second version.
    async fn push(&self, catalog: usize, updated: Option<usize>) -> Result<Pushed> {
        let packages = (catalog..self.size).step_by(self.catalogs).map(|index| async move {
            let name = name(index);
            let mut bundle = BundleImage::new(&name, "1.0.0").deployments([without_pods(&name)]);
            let crd = Crd::new("Gadget", &format!("{name}.example.com"));
            bundle = bundle.crds((index % 10 == 0).then_some(crd));
            let pushed = self.registry.push(&format!("{name}/bundle"), "v1.0.0", &bundle.image()).await?;
            let mut entries = vec![Entry::new("1.0.0")];
            if updated == Some(index) {
                entries.push(Entry::new("2.0.0").replaces("1.0.0"));
            }
            let mut package =
                Package::new(&name).channel("stable", entries).bundle("1.0.0", &pushed.by_digest());
            if updated == Some(index) {
                package = package.bundle("2.0.0", &pushed.by_digest());
            }
            anyhow::Ok(package)
        });
        let packages: Vec<Result<Package>> = futures::stream::iter(packages).buffered(8).collect().await;
        let mut image = CatalogImage::new();
        for package in packages {
            image = image.package(&package?);
        }
        let tag = if updated.is_some() { "v2" } else { "v1" };
        self.registry.push(&format!("fleet/catalog-{catalog}"), tag, &image.image()).await
    }

    /// Makes a ClusterCatalog of the image, and waits until it is served.
    async fn point(&self, cluster: &Cluster, catalog: usize, pushed: &Pushed) -> Result<()> {
        let name = format!("fleet-{catalog}");
        let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name},
            "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_digest()}}}});
        let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().await?);
        catalogs.patch(&name, &PatchParams::apply("bench").force(), &Patch::Apply(&catalog)).await?;
        let digest = pushed.by_digest();
        let digest = digest.rsplit('@').next().unwrap_or_default();
        let is_served = |catalog: &ClusterCatalog| {
            let status = serde_json::to_value(&catalog.status).unwrap_or_default();
            let resolved = status.pointer("/resolvedSource/image/ref").and_then(Value::as_str);
            let serving = catalog.status.as_ref();
            resolved.is_some_and(|reference| reference.ends_with(digest))
                && serving.is_some_and(|status| condition::is_true(&status.conditions, condition::SERVING))
        };
        Wait::new(&catalogs, &name).within(LIMIT).until("is served", is_served).await?;
        Ok(())
    }
}

fn without_pods(package: &str) -> Value {
    json!({"name": format!("{package}-ctrl"), "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": package}},
        "template": {"metadata": {"labels": {"app": package}}, "spec": {
            "serviceAccountName": format!("{package}-sa"),
            "containers": [{"name": "manager", "image": "registry.example.com/manager:v1"}],
        }},
    }})
}

impl Bench {
    /// Passes over extensions since the process began.
    async fn passes(&self, kubeconfig: &std::path::Path) -> Result<u64> {
        let kubeconfig: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig)?)?;
        let token = kubeconfig.pointer("/users/0/user/token").and_then(Value::as_str).context("no token")?;
        let http = Ca::shared()?.http_client()?;
        let url = format!("{}/metrics", self.process.metrics_url());
        let text = http.get(url).bearer_auth(token).send().await?.error_for_status()?.text().await?;
        let of_extensions = format!("controller_runtime_reconcile_total{{controller=\"{CONTROLLER}\"");
        let passes = text.lines().filter(|line| line.starts_with(&of_extensions));
        Ok(passes.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    /// Counts what both programs ask in each second after a crash of the apiserver.
    async fn restart_apiserver(&mut self, group: &str, bounds: &mut Bounds) -> Result<()> {
        let mut tail = self.cluster.audit_tail()?;
        let plane = self.cluster.plane().context("the control plane is not ours")?;
        plane.kill9("kube-apiserver")?;
        plane.start_again("kube-apiserver").await?;
        tokio::time::sleep(AFTERMATH).await;
        let mut seconds: BTreeMap<String, usize> = BTreeMap::new();
        let mut all = 0;
        for request in tail.more()?.iter().filter(|request| is_ours(request)) {
            all += 1;
            let second = request.received.get(..19).unwrap_or_default().to_owned();
            *seconds.entry(second).or_default() += 1;
            if std::env::var_os("OLM_SCALE_REQUESTS").is_some() {
                println!("after the apiserver: {} {}", request.received, line_of(request));
            }
        }
        ensure!(all > 0, "no watch was begun again");
        let most = seconds.values().max().copied().unwrap_or_default();
        println!("fleet: {all} requests in {} s after a restart of the apiserver", AFTERMATH.as_secs());
        bounds.add(group, "requests in any second after a restart of the apiserver", "", most as f64, 50.0);
        let served = eventually("it works again", LIMIT, || async {
            self.extensions.get(&name(0)).await.map(drop).context("not served")
        });
        served.await
    }
}
