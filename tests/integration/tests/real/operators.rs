//! Every package of the sample through the whole system: installed from a catalog, upgraded step by step, removed, all of them
//! side by side on one cluster, at the end of which nothing is left.
//!
//! Where the sample has one bundle of a package, its next version is made of it (other name, version and images).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, condition, labels};
use olm_kit::{BundleImage, CatalogImage, Crd, Entry, Package, Stack, Wait, eventually};
use serde_json::{Value, json};

use crate::page::{self, cell};
use crate::plan::{OPERATORS, Operator, RABBITMQ, WATCHED, extension, kinds_of_others};
use crate::sample;
use olm_integration::inventory::Inventory;

/// How long one step of one operator may take while all of them are at it.
const LIMIT: Duration = Duration::from_secs(180);

/// The system, and what its users ask it with.
struct Lab {
    client: Client,
    extensions: Api<ClusterExtension>,
    // last, so that it ends last
    stack: Stack,
}

/// The versions of one operator that are installed, and the results for its row of the page.
struct OperatorRun {
    operator: &'static Operator,
    /// Versions in the order of the upgrades, the made one included.
    versions: Vec<String>,
    made: bool,
    /// The requested versions with the error messages that named what was missing.
    rejections: Vec<(String, String)>,
    /// Objects of the newest revision, by version.
    objects: Vec<usize>,
    issuer: String,
}

impl Lab {
    async fn start() -> Result<Self> {
        let stack = Stack::start().await?;
        let client = stack.cluster.client().await?;
        Ok(Self { extensions: Api::all(client.clone()), client, stack })
    }

    /// Pushes a bundle; gives its reference.
    async fn push(&self, package: &str, version: &str, bundle: &BundleImage) -> Result<String> {
        let repository = format!("bundles/community/{package}");
        Ok(self.stack.registry.push(&repository, version, &bundle.image()).await?.by_digest())
    }

    /// Pushes every bundle of a package and adds its catalog.
    async fn push_package(
        &self,
        data: &Path,
        operator: &'static Operator,
        catalog: CatalogImage,
    ) -> Result<(CatalogImage, OperatorRun)> {
        let package = operator.package;
        let folder = data.join("bundles").join(package);
        let mut blobs = sample::pushed(&self.stack.registry, data, package, operator.versions).await?;
        let mut versions: Vec<String> = operator.versions.iter().map(|it| (*it).to_owned()).collect();
        let made = versions.len() == 1;
        if made {
            let (old, new) = (versions[0].clone(), sample::successor(&versions[0])?);
            let next = sample::next_bundle(&folder.join(&old), &old, &new)?;
            let image = self.push(package, &new, &next).await?;
            sample::with_next(&mut blobs, &old, &new, &image)?;
            versions.push(new);
        }
        let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
        let (rejections, objects, issuer) = (Vec::new(), Vec::new(), "–".to_owned());
        let run = OperatorRun { operator, versions, made, rejections, objects, issuer };
        Ok((catalog.file(&format!("{package}/catalog.json"), &text), run))
    }

    /// Serves one catalog with all packages.
    async fn serve(&self, data: &Path) -> Result<Vec<OperatorRun>> {
        let (mut catalog, mut runs) = (CatalogImage::new(), Vec::new());
        let only = std::env::var("OLM_REAL_ONLY").unwrap_or_default();
        let chosen =
            |operator: &&Operator| only.is_empty() || only.split(',').any(|it| it == operator.package);
        for operator in OPERATORS.iter().filter(chosen) {
            let run;
            (catalog, run) = self.push_package(data, operator, catalog).await?;
            runs.push(run);
        }
        let rabbitmq =
            BundleImage::new(RABBITMQ, "2.1.0")
                .crds([Crd::new("RabbitmqCluster", "rabbitmq.com").version("v1beta1", true, true)]);
        let image = self.push(RABBITMQ, "2.1.0", &rabbitmq).await?;
        let provides = json!({"type": "olm.gvk", "value": {"group": "rabbitmq.com", "version": "v1beta1", "kind": "RabbitmqCluster"}});
        let package = Package::new(RABBITMQ).channel("stable", [Entry::new("2.1.0")]);
        catalog = catalog.package(&package.bundle_with("2.1.0", &image, [provides]));

        let pushed = self.stack.registry.push("catalog", "latest", &catalog.image()).await?;
        let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": "real"},
            "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_digest()}}}});
        self.stack.cluster.apply(&catalog.to_string()).await?;
        let catalogs: Api<ClusterCatalog> = Api::all(self.client.clone());
        let serving = Wait::new(&catalogs, "real").within(LIMIT).log(self.stack.catalogd.log());
        serving.for_condition(condition::SERVING, "True").await?;
        Ok(runs)
    }

    /// The namespaces of all operators, with all that Kubernetes puts into one.
    async fn namespaces(&self) -> Result<()> {
        let names = OPERATORS.iter().map(|operator| operator.package).chain([WATCHED, RABBITMQ]);
        for name in names {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.stack.cluster.apply(&namespace.to_string()).await?;
        }
        let (namespaces, maps) =
            (Api::<Namespace>::all(self.client.clone()), Api::<ConfigMap>::all(self.client.clone()));
        let accounts = Api::<ServiceAccount>::all(self.client.clone());
        eventually("every namespace is furnished", LIMIT, || async {
            let count = namespaces.list(&ListParams::default()).await?.items.len();
            let of = ListParams::default().fields("metadata.name=kube-root-ca.crt");
            let furnished = maps.list(&of).await?.items.len();
            ensure!(count == furnished, "{furnished} of {count}");
            // another controller makes these
            let of = ListParams::default().fields("metadata.name=default");
            let accounts = accounts.list(&of).await?.items.len();
            ensure!(count == accounts, "{accounts} accounts of {count}");
            Ok(())
        })
        .await
    }

    async fn want(&self, package: &str, extension: Value) -> Result<()> {
        let params = PatchParams::apply("test").force();
        self.extensions.patch(package, &params, &Patch::Apply(&extension)).await?;
        Ok(())
    }

    fn wait<'a>(&'a self, package: &'a str) -> Wait<'a, ClusterExtension> {
        Wait::new(&self.extensions, package).within(LIMIT).log(self.stack.operator_controller.log())
    }

    /// Waits until this version is installed, rolled out and Ready; the error has the conditions of its revisions and pods.
    async fn installed(&self, package: &str, version: &str) -> Result<ClusterExtension> {
        match self.until_installed(package, version).await {
            Ok(extension) => Ok(extension),
            Err(error) => Err(error.context(self.explain(package).await?)),
        }
    }

    async fn explain(&self, package: &str) -> Result<String> {
        let sets: Api<ClusterObjectSet> = Api::all(self.client.clone());
        let of = ListParams::default().labels(&format!("{}={package}", labels::OWNER_NAME));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), package);
        let line = |name: String, conditions: Value| format!("{name}: {conditions}");
        let mut all = Vec::new();
        for set in sets.list(&of).await?.items {
            all.push(line(set.name_any(), json!(set.status.as_ref().map(|status| &status.conditions))));
        }
        for pod in pods.list(&ListParams::default()).await?.items {
            all.push(line(pod.name_any(), json!(pod.status.as_ref().map(|status| &status.conditions))));
        }
        Ok(all.join("\n"))
    }

    async fn until_installed(&self, package: &str, version: &str) -> Result<ClusterExtension> {
        self.wait(package)
            .until(&format!("{version} is installed and Ready"), |extension| {
                let Some(status) = &extension.status else { return false };
                let ready = condition::find(&status.conditions, condition::READY);
                status.install.as_ref().is_some_and(|install| install.bundle.version == version)
                    && ready.is_some_and(|ready| {
                        ready.status.as_str() == "True"
                            && ready.observed_generation == extension.metadata.generation
                    })
            })
            .await
    }

    /// Waits until the condition names what is missing; returns its message.
    async fn refused(&self, package: &str, lack: &str) -> Result<String> {
        let message = |extension: &ClusterExtension| {
            let conditions = &extension.status.as_ref()?.conditions;
            let found = condition::find(conditions, condition::PROGRESSING)?;
            found.message.contains(lack).then(|| found.message.clone())
        };
        let extension = self
            .wait(package)
            .until(&format!("Progressing names {lack}"), |it| message(it).is_some())
            .await?;
        message(&extension).context("no message")
    }

    /// Images of the operator's Deployments, once all are available. (They were at the end of the rollout. A node that
    /// is slow to renew its lease makes them unavailable for a while.)
    async fn images(&self, package: &str) -> Result<Vec<String>> {
        eventually("the Deployments are available", LIMIT, || self.images_now(package)).await
    }

    async fn images_now(&self, package: &str) -> Result<Vec<String>> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), package);
        let of = ListParams::default().labels(&format!("{}={package}", labels::OWNER_NAME));
        let mut images = Vec::new();
        for deployment in api.list(&of).await?.items {
            let available = olm_kit::condition(&deployment, "Available").map(|it| it.status);
            let name = deployment.name_any();
            ensure!(available.as_deref() == Some("True"), "{package}: {name} is not available");
            let pod = deployment.spec.and_then(|spec| spec.template.spec).context("no pod")?;
            images.extend(pod.containers.into_iter().filter_map(|container| container.image));
        }
        ensure!(!images.is_empty(), "{package} has no Deployment");
        images.sort();
        Ok(images)
    }

    /// Objects of the newest revision.
    async fn objects(&self, package: &str) -> Result<usize> {
        let sets: Api<ClusterObjectSet> = Api::all(self.client.clone());
        let of = ListParams::default().labels(&format!("{}={package}", labels::OWNER_NAME));
        let newest = sets.list(&of).await?.items.into_iter().max_by_key(|set| set.spec.revision);
        let phases = newest.context("no revision")?.spec.phases;
        Ok(phases.iter().map(|phase| phase.objects.len()).sum())
    }

    /// Installs or upgrades to a version, and notes what came of it.
    async fn step(&self, run: &mut OperatorRun, step: usize) -> Result<()> {
        let (package, version) = (run.operator.package, run.versions[step].clone());
        let before = match step {
            0 => Vec::new(),
            _ => self.images(package).await?,
        };
        // others fixed the first one, the user has to fix the next
        for lack in run.operator.lacks_at(step).skip(1) {
            run.rejections.push((version.clone(), self.refused(package, lack).await?));
        }
        let refused = run.rejections.iter().any(|(rejected, _)| *rejected == version);
        let accepts_crds = run.operator.accepts_crds && refused;
        self.want(package, extension(package, &version, run.operator.watches, accepts_crds)).await?;
        let extension = self.installed(package, &version).await?;
        let images = self.images(package).await?;
        ensure!(
            images != before,
            "{package}: the upgrade to {version} must change the Deployment: {images:?}"
        );
        run.objects.push(self.objects(package).await?);
        let status = extension.status.context("no status")?;
        if let Some(certificates) = status.webhook_certificates {
            let provider = serde_json::to_value(certificates.provider)?;
            run.issuer = provider.as_str().context("no name")?.to_owned();
        }
        Ok(())
    }

    /// Requests a version that cannot be installed yet, and notes the reason.
    async fn ask_too_early(&self, run: &mut OperatorRun, step: usize) -> Result<()> {
        let Some(lack) = run.operator.lacks_at(step).next() else { return Ok(()) };
        let (package, version) = (run.operator.package, run.versions[step].clone());
        self.want(package, extension(package, &version, run.operator.watches, false)).await?;
        let message = self.refused(package, lack).await.with_context(|| format!("{package} {version}"))?;
        run.rejections.push((version, message));
        Ok(())
    }

    /// Brings the kinds that first installs need, or takes them away again.
    async fn kinds_of_others(&self, there: bool) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in kinds_of_others() {
            if there {
                self.stack.cluster.apply(&crd.to_string()).await?;
            } else {
                let name = crd["metadata"]["name"].as_str().context("a kind without name")?;
                crds.delete(name, &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, package: &str) -> Result<()> {
        self.extensions.delete(package, &DeleteParams::default()).await?;
        self.wait(package).to_be_gone().await
    }
}

impl OperatorRun {
    fn row(&self) -> String {
        let steps: Vec<String> = self
            .versions
            .iter()
            .enumerate()
            .map(|(step, version)| match self.made && step + 1 == self.versions.len() {
                true => format!("{version} (made)"),
                false => version.clone(),
            })
            .collect();
        let objects: Vec<String> = self.objects.iter().map(usize::to_string).collect();
        let scope = self.operator.watches.map_or("all namespaces".to_owned(), |it| format!("watches `{it}`"));
        let mut outcome = String::new();
        for (version, message) in &self.rejections {
            let more = message.lines().count().saturating_sub(1);
            let more = if more > 0 { format!(" (and {more} more lines)") } else { String::new() };
            let first = cell(message.lines().next().unwrap_or_default());
            outcome.push_str(&format!("{version} waits: “{first}”{more}; "));
        }
        if self.operator.accepts_crds {
            outcome.push_str("accepted with `enforcement: None`; ");
        }
        outcome.push_str("installed, upgraded, removed");
        let (steps, objects) = (steps.join(" → "), objects.join(" → "));
        let (package, issuer) = (self.operator.package, &self.issuer);
        format!("| {package} | {steps} | {scope} | {objects} | {issuer} | {outcome} |\n")
    }
}

/// Runs a step of several operators at the same time; the error names all that failed.
macro_rules! all {
    ($lab:ident, $runs:expr, $method:ident, $step:expr) => {
        let outcomes = join_all($runs.iter_mut().map(|run| async {
            let package = run.operator.package;
            $lab.$method(run, $step).await.with_context(|| package.to_owned())
        }))
        .await;
        let failed: Vec<String> =
            outcomes.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        ensure!(failed.is_empty(), "{} operators failed:\n{}", failed.len(), failed.join("\n=====\n"));
    };
}

#[tokio::test]
async fn operators_are_installed_upgraded_and_removed() -> Result<()> {
    let Some(data) = sample::data() else { return Ok(()) };
    let began = Instant::now();
    let lab = Lab::start().await?;
    let mut took = Vec::new();
    let mut done = |what: &'static str| took.push(format!("{what} {:.0?}", began.elapsed()));
    lab.namespaces().await?;
    let runs = lab.serve(&data).await?;
    let bare = Inventory::take(&lab.client).await?;
    done("ready");

    // cert-manager would become the issuer of the others' certificates, so it comes when they have one
    let (mut cert_manager, mut runs): (Vec<_>, Vec<_>) =
        runs.into_iter().partition(|run| run.operator.package == "cert-manager");
    all!(lab, runs, ask_too_early, 0);
    done("refused");
    lab.kinds_of_others(true).await?;
    all!(lab, runs, step, 0);
    done("installed");
    let most = runs.iter().map(|run| run.versions.len()).max().unwrap_or_default();
    for step in 1..most {
        let mut longer: Vec<&mut OperatorRun> =
            runs.iter_mut().filter(|run| run.versions.len() > step).collect();
        all!(lab, longer, ask_too_early, step);
        if longer.iter().any(|run| run.operator.lacks_at(step).next() == Some(RABBITMQ)) {
            lab.want(RABBITMQ, extension(RABBITMQ, "2.1.0", None, false)).await?;
        }
        all!(lab, longer, step, step);
    }
    done("upgraded");
    for step in 0..2 {
        all!(lab, cert_manager, step, step);
    }
    done("cert-manager");
    runs.append(&mut cert_manager);
    runs.sort_by_key(|run| run.operator.package);
    for run in &runs {
        let version = run.versions.last().context("no version")?;
        lab.installed(run.operator.package, version).await?;
    }

    let helper = lab.extensions.get_opt(RABBITMQ).await?.map(|_| RABBITMQ);
    let packages = runs.iter().map(|run| run.operator.package).chain(helper);
    try_join_all(packages.map(|package| lab.remove(package))).await?;
    lab.kinds_of_others(false).await?;
    bare.reached(&lab.client, LIMIT).await.context("after all were removed")?;
    done("removed");
    let memory = lab.stack.operator_controller.memory()?;
    println!("{} real operators: {}; operator-controller {memory:?}", runs.len(), took.join(", "));

    if runs.len() < OPERATORS.len() {
        return Ok(());
    }
    let rows: String = runs.iter().map(OperatorRun::row).collect();
    let made = runs.iter().filter(|run| run.made).count();
    let upgrades: usize = runs.iter().map(|run| run.versions.len() - 1).sum();
    let text = format!(
        "{} packages side by side on one cluster, {upgrades} upgrades ({made} of them to a version made of the only one), {} \
         errors that were fixed. After the removal the cluster holds exactly what it held before.\n\n\
         | Package | Versions | Scope | Objects | Issuer | Outcome |\n|---|---|---|---|---|---|\n{rows}",
        runs.len(),
        runs.iter().map(|run| run.rejections.len()).sum::<usize>(),
    );
    page::check("operators", text.trim_end())
}
