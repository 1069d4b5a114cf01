//! Many extensions at the same time: the steady state costs nothing, and a registry that never answers blocks neither another
//! extension nor the shutdown.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use olm_api::{ClusterExtension, condition};
use olm_integration::package::{push_bundle, serve_catalog};
use olm_kit::{
    BundleImage, CatalogImage, Cluster, Crd, Entry, Options, Package, Program, Registry, Request,
    SYSTEM_NAMESPACE, Wait, still,
};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::world::{LIMIT, World, current};

/// The accounts of both processes; their requests are counted.
const ACCOUNT: &str = "at-rest";

fn extension_manifest(name: &str, package: &str, namespace: &str) -> serde_json::Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": namespace, "source": {"sourceType": "Catalog", "catalog": {
            "packageName": package, "selector": {"matchLabels": {"test": namespace}}}}},
    })
}

fn is_ready(extension: &ClusterExtension) -> bool {
    current(extension, condition::READY).is_some_and(|found| found.status.as_str() == "True")
}

/// Writes of both processes so far.
fn writes(cluster: &Cluster) -> Result<Vec<Request>> {
    let account = format!(":{ACCOUNT}");
    cluster.audited(0, |request| request.writes() && request.user.ends_with(&account))
}

#[tokio::test]
async fn rest_of_twenty_extensions_writes_nothing_and_heals() -> Result<()> {
    const NAMESPACE: &str = "many";
    const REST: Duration = Duration::from_secs(20);
    let registry = Registry::start().await?;
    let cluster = Cluster::start_for_olm(&Options { audit: true, ..Options::default() }).await?;
    let kubeconfig = cluster.kubeconfig_for_service_account(SYSTEM_NAMESPACE, ACCOUNT).await?;
    cluster
        .apply(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}\n---\n\
             {{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {{name: {ACCOUNT}}}, \
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}, \
             subjects: [{{kind: ServiceAccount, name: {ACCOUNT}, namespace: {SYSTEM_NAMESPACE}}}]}}"
        ))
        .await?;
    let _catalogd = Program::catalogd(&cluster)?.kubeconfig(&kubeconfig).start().await?;
    // what is done periodically is done several times in the time that is measured
    let intervals = format!("eviction={}s", REST.as_secs() / 4);
    let controller = Program::operator_controller(&cluster)?.kubeconfig(&kubeconfig);
    let _controller = controller.flag("--test-intervals", &intervals).start().await?;

    let names: Vec<String> = (0..20).map(|n| format!("rest-{n}")).collect();
    let mut image = CatalogImage::new();
    for name in &names {
        let bundle =
            BundleImage::new(name, "1.0.0").crds([Crd::new("Gadget", &format!("{name}.example.com"))]);
        let bundle = push_bundle(&registry, name, "1.0.0", &bundle).await?;
        let package = Package::new(name).channel("stable", [Entry::new("1.0.0")]);
        image = image.package(&package.bundle("1.0.0", &bundle));
    }
    let client = cluster.client().await?;
    let apply = PatchParams::apply("test").force();
    serve_catalog(&client, &registry, NAMESPACE, &image).await?;
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    for name in &names {
        extensions.patch(name, &apply, &Patch::Apply(&extension_manifest(name, name, NAMESPACE))).await?;
    }
    for name in &names {
        Wait::new(&extensions, name).within(LIMIT).until("is Ready", is_ready).await?;
    }
    // what follows an install has come to its end when nothing was written for some seconds
    let count = || writes(&cluster).map(|writes| writes.len());
    still("the writes end", LIMIT, Duration::from_secs(5), count).await?;

    let before = writes(&cluster)?.len();
    tokio::time::sleep(REST).await; // the time that is measured, not a wait for something
    let all = writes(&cluster)?;
    let written: Vec<String> =
        all[before..].iter().map(|r| format!("{} {} {}", r.verb, r.resource, r.name)).collect();
    assert!(written.is_empty(), "at rest there were {} writes: {written:#?}", written.len());

    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let lost = maps.list(&ListParams::default()).await?.items;
    let lost =
        lost.iter().filter_map(|map| map.metadata.name.as_deref()).find(|name| name.starts_with("rest-7-"));
    let lost = lost.expect("a ConfigMap of the bundle");
    maps.delete(lost, &DeleteParams::default()).await?;
    Wait::new(&maps, lost).within(Duration::from_secs(20)).to_exist().await?;

    uninstall_costs_few_requests(&cluster, &extensions, &names).await
}

/// The operator goes first, as an object of its own; what neither runs nor is called goes by the garbage collector.
#[expect(clippy::print_stdout, reason = "the figure of the test")]
async fn uninstall_costs_few_requests(
    cluster: &Cluster,
    extensions: &Api<ClusterExtension>,
    names: &[String],
) -> Result<()> {
    const MAX_REQUESTS: usize = 12;
    // the status of the revision and of the extension, and an event
    const REPORT_OF_A_LATE_COLLECTOR: usize = 3;
    let before = cluster.audit_length()?;
    for name in names {
        extensions.delete(name, &DeleteParams::default()).await?;
    }
    for name in names {
        Wait::new(extensions, name).within(LIMIT).to_be_gone().await?;
    }
    let about = |name: &str| -> Result<Vec<Request>> {
        let (prefix, group) = (format!("{name}-"), format!("{name}.example.com"));
        let selected = format!("%3D{name}");
        cluster.audited(before, |request| {
            request.name == name
                || request.name.starts_with(&prefix)
                || request.uri.contains(&group)
                || request.uri.contains(&selected)
        })
    };
    let account = format!(":{ACCOUNT}");
    let ours = || {
        cluster.audited(before, |request| {
            request.user.ends_with(&account) && request.verb != "watch" && request.resource != "leases"
        })
    };
    // the control plane's own, such as watches of definitions that are gone, do not end
    still("the requests end", LIMIT, Duration::from_secs(3), || ours().map(|ours| ours.len())).await?;
    let ours = ours()?;
    let of_one = about(&names[3])?;
    let line = |r: &Request| format!("{} {} {} {} {}", r.user, r.verb, r.resource, r.name, r.code);
    let lines: Vec<String> = of_one.iter().map(line).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in &ours {
        *counts.entry(format!("{} {} {}", request.verb, request.resource, request.code)).or_default() += 1;
    }
    println!("{:.1} requests for each uninstall: {counts:#?}", ours.len() as f64 / names.len() as f64);
    // a garbage collector that takes more than 30 s is reported, once
    let reports = ours
        .iter()
        .filter(|r| r.verb == "patch" && r.uri.contains("/clusterobjectsets/") && r.uri.contains("/status"));
    let late: BTreeSet<&str> = reports.map(|request| request.name.as_str()).collect();
    let (requests, uninstalls, one) = (ours.len(), names.len(), &names[3]);
    ensure!(
        requests <= MAX_REQUESTS * uninstalls + REPORT_OF_A_LATE_COLLECTOR * late.len(),
        "{requests} requests of {uninstalls} uninstalls: {counts:#?}\nthose about {one}: {lines:#?}"
    );
    for name in names {
        let requests = about(name)?;
        let first = |resource: &str| {
            let mut deletions =
                requests.iter().filter(|request| request.verb == "delete" && request.code == 200);
            deletions.position(|request| request.resource == resource)
        };
        let operator = first("deployments");
        let later = "customresourcedefinitions serviceaccounts clusterroles clusterrolebindings configmaps";
        for resource in later.split(' ') {
            let deleted = first(resource);
            let is_later = operator.is_some() && deleted.is_none_or(|at| Some(at) > operator);
            ensure!(is_later, "{resource} of {name}: {deleted:?}, {operator:?}");
        }
    }
    Ok(())
}

/// Where nothing is ever answered, the connections made to it (they stay open as long as they are held), and the task that accepts.
async fn silent_registry() -> Result<(SocketAddr, UnboundedReceiver<TcpStream>, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (called, calls) = unbounded_channel();
    let accepting = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let _ = called.send(connection);
        }
    });
    Ok((address, calls, accepting))
}

/// Every bundle has content of its own: the pull of one digest is shared.
fn digest(number: usize) -> String {
    format!("sha256:{number:064x}")
}

#[tokio::test]
async fn registry_that_never_answers_blocks_no_other_extension() -> Result<()> {
    // more than there are workers, and than are pulled at the same time
    const STUCK: usize = 40;
    let world = World::new("silent").await?;
    let (address, mut calls, accepting) = silent_registry().await?;
    let stuck: Vec<String> = (0..STUCK).map(|n| format!("{}-{n}", world.name)).collect();
    let mut packages: Vec<Package> = stuck
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let image = format!("{address}/{name}@{}", digest(number));
            Package::new(name).channel("stable", [Entry::new("1.0.0")]).bundle("1.0.0", &image)
        })
        .collect();
    let good = world.push("1.0.0", &world.bundle("1.0.0")).await?;
    packages.push(Package::new(&world.name).channel("stable", [Entry::new("1.0.0")]).bundle("1.0.0", &good));
    world.serve_packages(&packages).await?;
    let apply = PatchParams::apply("test").force();
    for name in &stuck {
        let manifest = extension_manifest(name, name, &world.name);
        world.extensions.patch(name, &apply, &Patch::Apply(&manifest)).await?;
    }
    let first = tokio::time::timeout(LIMIT, calls.recv()).await?;
    assert!(first.is_some(), "the silent registry is called");

    world.want(json!({})).await?;
    let started = Instant::now();
    world.installed("1.0.0").await?;
    println!("installed after {:?}", started.elapsed());
    for name in &stuck {
        let status = world.extensions.get(name).await?.status.unwrap_or_default();
        assert!(status.install.is_none(), "{name} cannot be installed");
    }

    // now it refuses connections, so that no request is left waiting
    accepting.abort();
    drop((first, calls));
    for name in &stuck {
        world.extensions.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn shutdown_does_not_wait_for_an_unresponsive_registry() -> Result<()> {
    const STUCK: usize = 40;
    let registry = Registry::start().await?;
    let cluster = Cluster::start_for_olm(&Options::default()).await?;
    let _catalogd = Program::catalogd(&cluster)?.start().await?;
    let mut controller = Program::operator_controller(&cluster)?.start().await?;

    let (address, mut calls, accepting) = silent_registry().await?;
    let names: Vec<String> = (0..STUCK).map(|n| format!("stuck-{n}")).collect();
    let mut image = CatalogImage::new();
    for (number, name) in names.iter().enumerate() {
        let bundle = format!("{address}/{name}@{}", digest(number));
        let package = Package::new(name).channel("stable", [Entry::new("1.0.0")]);
        image = image.package(&package.bundle("1.0.0", &bundle));
    }
    let client = cluster.client().await?;
    let apply = PatchParams::apply("test").force();
    serve_catalog(&client, &registry, "stuck", &image).await?;
    let extensions: Api<ClusterExtension> = Api::all(client);
    for name in &names {
        extensions.patch(name, &apply, &Patch::Apply(&extension_manifest(name, name, "stuck"))).await?;
    }
    // as many as are pulled from one registry at the same time; the others wait behind them
    let mut held = Vec::new();
    for _ in 0..4 {
        held.extend(tokio::time::timeout(LIMIT, calls.recv()).await?);
    }
    ensure!(held.len() == 4, "the silent registry is called");
    let before = extensions.list(&ListParams::default()).await?.items;

    let asked = Instant::now();
    ensure!(controller.stop(), "it ends by itself:\n{}", controller.log_text());
    let took = asked.elapsed();
    println!("ended after {took:?}");
    ensure!(took < Duration::from_secs(5), "it took {took:?}");
    // a cancelled request is no failure of the extension; only one whose timeout ended at that moment may report one
    for extension in extensions.list(&ListParams::default()).await?.items {
        let was = before.iter().find(|one| one.metadata.name == extension.metadata.name);
        let was = was.and_then(|one| one.status.as_ref());
        let became = extension.status.as_ref();
        let waited_to_the_end = became
            .and_then(|status| condition::find(&status.conditions, condition::PROGRESSING))
            .is_some_and(|found| found.message.ends_with("operation timed out"));
        ensure!(was == became || waited_to_the_end, "{was:?} became {became:?}");
    }
    accepting.abort();
    Ok(())
}
