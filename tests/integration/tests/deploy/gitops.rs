//! olm-rs, a catalog and an extension from git, by Flux's kustomize-controller and `examples/gitops`: order, health, drift, prune, and
//! no fight over fields. The repository is a folder that a loopback server offers as source-controller would.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_kit::{
    BundleImage, CatalogImage, Child, Cluster, Crd, Entry, Options, Package, Registry, Request, RunDir,
    Tools, Wait, condition, eventually, free_port, repository, unique,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::argocd;
use crate::install::start_programs;
use crate::manifests::{render, stdout_of};
use crate::world::LIMIT;

const NAMESPACE: &str = "flux-system";
const ACCOUNT: &str = "kustomize-controller";
const EXTENSION: &str = "cert-manager";
const CATALOG: &str = "quay.io/operatorhubio/catalog:latest";
const KUSTOMIZATIONS: [&str; 3] = ["olm-rs", "catalogs", "extensions"];

/// What a commit changes: files by their path in the repository, with their text or deleted.
type Changes<'a> = &'a [(&'a str, &'a str)];

/// What the artifact server serves, by name.
type Archives = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The repository, and Flux on a cluster.
struct Flux {
    cluster: Cluster,
    registry: Registry,
    archives: Archives,
    address: String,
    controller: Child,
    _log: RunDir,
}

impl Flux {
    async fn start() -> Result<Self> {
        let options = Options { audit: true, ..Options::default() };
        let (cluster, registry) = tokio::try_join!(Cluster::start_with(&options), Registry::start())?;
        let tools = Tools::locate()?;
        for kind in [
            "kustomize.toolkit.fluxcd.io_kustomizations",
            "source.toolkit.fluxcd.io_buckets",
            "source.toolkit.fluxcd.io_gitrepositories",
            "source.toolkit.fluxcd.io_ocirepositories",
        ] {
            cluster.apply(&std::fs::read_to_string(tools.program(&format!("{kind}.yaml"))?)?).await?;
        }
        let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}");
        cluster.apply(&namespace).await?;
        let kubeconfig = cluster.kubeconfig_for_service_account(NAMESPACE, ACCOUNT).await?;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]});
        cluster.apply(&binding.to_string()).await?;
        cluster.until_may_get(&format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"), "/metrics").await?;
        let log = RunDir::new("flux")?;
        let mut command = tools.command(ACCOUNT)?;
        command
            .args(["--watch-all-namespaces", "--no-remote-bases", "--requeue-dependency=1s"])
            .arg(format!("--metrics-addr=127.0.0.1:{}", free_port()?))
            .arg(format!("--health-addr=127.0.0.1:{}", free_port()?))
            .env("KUBECONFIG", kubeconfig)
            .env("RUNTIME_NAMESPACE", NAMESPACE)
            .env("TMPDIR", log.path());
        let controller = Child::spawn(ACCOUNT, &mut command, &log.path().join("log"))?;

        let archives = Arc::new(Mutex::new(BTreeMap::new()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let router = axum::Router::new()
            .route("/{name}", axum::routing::get(archive))
            .with_state(Arc::clone(&archives));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { cluster, registry, archives, address, controller, _log: log })
    }

    /// Makes this the state of the repository: this one, with changes.
    async fn commit(&self, changes: Changes<'_>) -> Result<String> {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), Default::default()));
        archive.append_dir_all("manifests", repository().join("manifests"))?;
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for folder in ["", "olm-rs/", "catalogs/", "extensions/"] {
            for entry in std::fs::read_dir(repository().join("examples/gitops").join(folder))? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    let path = format!("{folder}{}", entry.file_name().to_string_lossy());
                    files.insert(path, std::fs::read_to_string(entry.path())?);
                }
            }
        }
        files.extend(changes.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())));
        for (path, text) in files {
            let text = text.replace(CATALOG, &format!("{}/{CATALOG}", self.registry.address()));
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, format!("examples/gitops/{path}"), text.as_bytes())?;
        }
        let bytes = archive.into_inner()?.finish()?;
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let revision = format!("v0.1.0@sha1:{}", &digest[..40]);
        let now = "2026-01-01T00:00:00Z";
        let status = json!({"status": {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact",
                "lastTransitionTime": now, "observedGeneration": 1}],
            "artifact": {"path": "platform.tar.gz", "url": format!("http://{}/{digest}.tar.gz", self.address), "revision": revision,
                "digest": format!("sha256:{digest}"), "lastUpdateTime": now, "size": bytes.len()},
        }});
        self.archives.lock().insert(format!("{digest}.tar.gz"), bytes);
        let repositories = self.api("source.toolkit.fluxcd.io", "GitRepository").await?;
        repositories.patch_status("platform", &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(revision)
    }

    async fn api(&self, group: &str, kind: &str) -> Result<Api<DynamicObject>> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Ok(Api::namespaced_with(self.cluster.client().await?, NAMESPACE, &resource))
    }

    async fn kustomizations(&self) -> Result<Api<DynamicObject>> {
        self.api("kustomize.toolkit.fluxcd.io", "Kustomization").await
    }

    /// Waits until the Kustomization has judged the revision so; returns the message.
    async fn judged(&self, name: &str, revision: &str, status: &str, reason: &str) -> Result<String> {
        let kustomizations = self.kustomizations().await?;
        let is_judged = |found: &DynamicObject| {
            found.data["status"]["lastAttemptedRevision"] == revision
                && condition(found, "Ready")
                    .is_some_and(|ready| ready.status == status && ready.reason == reason)
        };
        let found = Wait::new(&kustomizations, name)
            .within(LIMIT)
            .log(self.controller.log())
            .until(&format!("Ready is {status}/{reason} for {revision}"), is_judged)
            .await?;
        Ok(condition(&found, "Ready").map(|ready| ready.message).unwrap_or_default())
    }

    async fn applied(&self, name: &str, revision: &str) -> Result<()> {
        self.judged(name, revision, "True", "ReconciliationSucceeded").await.map(drop)
    }

    /// Has Flux compare the cluster with git, as it does at each interval.
    async fn compare(&self, name: &str) -> Result<()> {
        let kustomizations = self.kustomizations().await?;
        let token = unique("again");
        let again = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}});
        kustomizations.patch(name, &PatchParams::default(), &Patch::Merge(again)).await?;
        Wait::new(&kustomizations, name)
            .within(LIMIT)
            .log(self.controller.log())
            .until("was reconciled again", |found: &DynamicObject| {
                found.data["status"]["lastHandledReconcileAt"] == token.as_str()
                    && condition(found, "Ready").is_some_and(|ready| ready.status == "True")
            })
            .await?;
        Ok(())
    }
}

async fn archive(State(archives): State<Archives>, Path(name): Path<String>) -> Result<Vec<u8>, StatusCode> {
    archives.lock().get(&name).cloned().ok_or(StatusCode::NOT_FOUND)
}

/// Whether Flux or one of our programs changed something: not by comparing, and but for reports of their own state.
fn changes(request: &Request) -> bool {
    let own = "events.k8s.io coordination.k8s.io authentication.k8s.io authorization.k8s.io";
    let ours = [NAMESPACE, olm_kit::SYSTEM_NAMESPACE]
        .iter()
        .any(|namespace| request.user.starts_with(&format!("system:serviceaccount:{namespace}:")));
    ours && request.writes()
        && !request.uri.contains("dryRun=All")
        && own.split(' ').chain(["kustomize.toolkit.fluxcd.io"]).all(|group| group != request.group)
        && request.resource != "events"
}

/// Argo CD's health of a live object.
fn argocd_health(object: &impl serde::Serialize, kind: &str) -> Result<Value> {
    let mut object = serde_json::to_value(object)?;
    object["kind"] = json!(kind);
    Ok(argocd::health(&[object])?.remove(0)["status"].take())
}

fn has_version(extension: &ClusterExtension, version: &str) -> bool {
    serde_json::to_value(extension).is_ok_and(|it| it["spec"]["source"]["catalog"]["version"] == version)
}

#[tokio::test(flavor = "multi_thread")]
async fn gitops_flux_installs_repairs_and_prunes() -> Result<()> {
    if std::env::var_os("OLM_GITOPS").is_none() {
        println!("SKIPPED: make test-gitops runs this with Flux's kustomize-controller");
        return Ok(());
    }
    let mut flux = Flux::start().await?;
    let bundle = BundleImage::new(EXTENSION, "1.0.0").crds([Crd::new("Issuer", "cert.kit.test")]);
    let bundle = flux.registry.push("cert-manager/bundle", "v1.0.0", &bundle.image()).await?.by_digest();
    let package = Package::new(EXTENSION).bundle("1.0.0", &bundle).channel("stable", [Entry::new("1.0.0")]);
    let image = CatalogImage::new().package(&package).image();
    flux.registry.push("quay.io/operatorhubio/catalog", "latest", &image).await?;

    let mut command = flux.cluster.kubectl()?;
    command.args(["apply", "--server-side", "--validate=strict", "-f"]);
    stdout_of(command.arg(repository().join("examples/gitops/flux.yaml")))?;
    let first = flux.commit(&[]).await?;
    flux.applied("olm-rs", &first).await?;
    let client = flux.cluster.client().await?;
    let (extensions, catalogs): (Api<ClusterExtension>, Api<ClusterCatalog>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    // pods are simulated: until our programs run, the catalog has no status, and nothing may take that for healthy
    Wait::new(&catalogs, "operatorhubio").within(LIMIT).to_exist().await?;
    ensure!(
        extensions.get_opt(EXTENSION).await?.is_none(),
        "the extension came before its catalog was served"
    );
    let _programs = start_programs(&flux.cluster, &render("overlays/kubernetes")?).await?;
    flux.applied("catalogs", &first).await?;
    flux.applied("extensions", &first).await?;
    let (catalog, extension) = (catalogs.get("operatorhubio").await?, extensions.get(EXTENSION).await?);
    ensure!(condition(&catalog, "Serving").is_some_and(|it| it.status == "True"), "{:?}", catalog.status);
    ensure!(condition(&extension, "Ready").is_some_and(|it| it.status == "True"), "{:?}", extension.status);
    ensure!(argocd_health(&catalog, "ClusterCatalog")? == "Healthy", "{catalog:?}");
    ensure!(argocd_health(&extension, "ClusterExtension")? == "Healthy", "{extension:?}");

    // two rounds at rest: both sides compare, nothing is written
    flux.compare("extensions").await?;
    let mut audit = flux.cluster.audit_tail()?;
    for name in KUSTOMIZATIONS.iter().chain(&KUSTOMIZATIONS) {
        flux.compare(name).await?;
    }
    let requests = audit.more()?;
    let compared = |resource: &str| {
        requests.iter().filter(|it| it.resource == resource && it.uri.contains("dryRun=All")).count()
    };
    ensure!(compared("clusterextensions") >= 2 && compared("clustercatalogs") >= 2, "nothing was compared");
    let written: Vec<&Request> = requests.iter().filter(|request| changes(request)).collect();
    println!("{} requests in two rounds at rest, {} writes", requests.len(), written.len());
    ensure!(written.is_empty(), "{written:#?}");

    // drift of what is in git is Flux's to repair, drift of what an extension consists of is ours
    let other = json!({"spec": {"source": {"catalog": {"version": "0.x"}}}});
    extensions.patch(EXTENSION, &PatchParams::default(), &Patch::Merge(other)).await?;
    flux.compare("extensions").await?;
    ensure!(has_version(&extensions.get(EXTENSION).await?, "1.x"), "the version is not that of git");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), EXTENSION);
    let name = format!("{EXTENSION}-ctrl");
    deployments.delete(&name, &DeleteParams::foreground()).await?;
    Wait::new(&deployments, &name).within(LIMIT).for_condition("Available", "True").await?;
    Wait::new(&extensions, EXTENSION).within(LIMIT).for_condition("Ready", "True").await?;

    // a spec that cannot be met: its Kustomization is not healthy, and becomes so with the next commit
    let text = std::fs::read_to_string(repository().join("examples/gitops/extensions/cert-manager.yaml"))?;
    let impossible = text.replace("version: 1.x", "version: 9.x");
    let list = "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [operatorhubio.yaml, second.yaml]}";
    let catalog = std::fs::read_to_string(repository().join("examples/gitops/catalogs/operatorhubio.yaml"))?;
    let another = catalog.replace("name: operatorhubio", "name: second");
    let second = flux
        .commit(&[
            ("extensions/cert-manager.yaml", &impossible),
            ("catalogs/kustomization.yaml", list),
            ("catalogs/second.yaml", &another),
        ])
        .await?;
    let message = flux.judged("extensions", &second, "False", "HealthCheckFailed").await?;
    ensure!(message.contains("ClusterExtension/cert-manager"), "{message}");
    let stalled = extensions.get(EXTENSION).await?;
    ensure!(argocd_health(&stalled, "ClusterExtension")? == "Degraded", "{stalled:?}");
    Wait::new(&catalogs, "second").within(LIMIT).to_exist().await?;

    // the catalog that is not in git any more goes; the extension stays, and with it the CRD and its objects
    let none = "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [left.yaml]}";
    let left = "{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: default}}";
    let third =
        flux.commit(&[("extensions/kustomization.yaml", none), ("extensions/left.yaml", left)]).await?;
    Wait::new(&catalogs, "second").within(LIMIT).to_be_gone().await?;
    for name in KUSTOMIZATIONS {
        flux.applied(name, &third).await?;
    }
    // not even with olm-rs
    let kustomizations = flux.kustomizations().await?;
    kustomizations.delete("olm-rs", &DeleteParams::default()).await?;
    Wait::new(&kustomizations, "olm-rs").within(LIMIT).to_be_gone().await?;
    let programs: Api<Deployment> = Api::namespaced(client.clone(), olm_kit::SYSTEM_NAMESPACE);
    eventually("the Deployments of olm-rs are pruned", LIMIT, || async {
        ensure!(programs.list(&Default::default()).await?.items.is_empty());
        Ok(())
    })
    .await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    for crd in ["issuers.cert.kit.test", "clusterextensions.olm.operatorframework.io"] {
        let crd = crds.get(crd).await?;
        ensure!(crd.metadata.deletion_timestamp.is_none(), "{crd:?}");
    }
    let extension = extensions.get(EXTENSION).await?;
    ensure!(extension.metadata.deletion_timestamp.is_none(), "{extension:?}");
    deployments.get(&name).await.context("the operator of the extension is gone")?;
    ensure!(flux.controller.exited().is_none(), "{}", flux.controller.describe_end());
    Ok(())
}

#[test]
fn gitops_parts_are_ordered_and_kept() -> Result<()> {
    const WAVE: &str = "argocd.argoproj.io/sync-wave";
    const KEEP: [(&str, &str); 2] = [
        ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
        ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
    ];
    let examples = repository().join("examples/gitops");
    let text = stdout_of(Tools::locate()?.command("kubectl")?.arg("kustomize").arg(&examples))?;
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|error| anyhow::anyhow!("{error}"))?;
    for kind in ["CustomResourceDefinition", "Deployment", "ClusterCatalog", "ClusterExtension"] {
        ensure!(objects.iter().any(|object| object["kind"] == kind), "no {kind}");
    }
    for object in &objects {
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), &object["metadata"]["name"]);
        let annotations = &object["metadata"]["annotations"];
        let wave = match (kind, name.as_str()) {
            ("ClusterCatalog", _) => json!("1"),
            ("ClusterExtension", _) | ("Namespace", Some(EXTENSION)) => json!("2"),
            _ => Value::Null,
        };
        ensure!(annotations[WAVE] == wave, "{kind} {name}: {annotations}");
        let kept = matches!(kind, "CustomResourceDefinition" | "Namespace" | "ClusterExtension");
        for (key, value) in KEEP {
            ensure!((annotations[key] == value) == kept, "{kind} {name}: {annotations}");
        }
    }
    let documents = |file: &str| -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(examples.join(file))?;
        serde_saphyr::from_multiple(&text).map_err(|error| anyhow::anyhow!("{file}: {error}"))
    };
    let application = documents("argocd.yaml")?.remove(0);
    ensure!(application["spec"]["source"]["path"] == "examples/gitops", "{application}");
    let parts = documents("flux.yaml")?.split_off(1);
    for (name, part) in KUSTOMIZATIONS.iter().zip(&parts) {
        ensure!(part["metadata"]["name"] == *name, "{part}");
        ensure!(part["spec"]["path"] == format!("./examples/gitops/{name}"), "{part}");
        ensure!(part["spec"]["wait"] == true && part["spec"]["prune"] == true, "{part}");
    }
    Ok(())
}
