//! `demo --classic`: the main job of OLM Classic on real parts, each command and its outcome shown: a Subscription with a dependency,
//! approval by hand, an upgrade, removal. The operator is the sample of `hack/demo`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use olm_kit::{
    BundleImage, CLASSIC_NAMESPACE, Ca, CatalogImage, Cluster, Entry, Options, Package, Process, Program,
    Registry, Tools, Wait, eventually, sample,
};
use serde_json::{Value, json};

use super::demo::{LIMIT, failed, run_printed, show_file, title, until_stopped, waiting};
use super::environment::Environment;
use super::{print_line, print_usage, step};

const GROUP: &str = "operators.coreos.com";
const NAMESPACE: &str = "greeter";

pub(crate) async fn run(oneshot: bool) -> Result<ExitCode> {
    until_stopped(oneshot, async |home| {
        let demo = ClassicDemo::start(home).await?;
        if let Err(problem) = demo.walk().await {
            let text = demo.controller.log_text();
            let lines: Vec<&str> = text.lines().collect();
            let end = lines[lines.len().saturating_sub(30)..].join("\n");
            return Ok(Err(failed(problem, &format!("--- end of the log of classic-controller:\n{end}\n"))));
        }
        demo.sum_up()?;
        Ok(Ok(demo))
    })
    .await
}

struct ClassicDemo {
    environment: Environment,
    controller: Process,
    catalog: String,
    dir: PathBuf,
    client: Client,
    // dropped after the process that uses them
    registry: Registry,
    cluster: Cluster,
}

impl ClassicDemo {
    async fn start(dir: &Path) -> Result<Self> {
        Tools::locate()?;
        let ca = Ca::create(dir, "olm-rs demo")?;
        let options = Options { dir: Some(dir.join("control-plane")), ..Options::default() };
        let cluster =
            step(1, 4, "starting a Kubernetes control plane with the kinds of OLM Classic", async {
                Cluster::start_for_classic(&options).await
            })
            .await?;
        let folder = dir.join("registry");
        let registry =
            step(2, 4, "starting an OCI registry", Registry::launch(&ca, Some(&folder), false)).await?;
        let what = "pushing bundle images of two packages and a catalog image";
        let catalog = step(3, 4, what, push(&registry, &["1.0.0"])).await?;
        let program = Program::classic_controller_in(&cluster, &ca, Some(&dir.join("classic-controller")))?;
        let controller = step(4, 4, "starting classic-controller", program.start()).await?;
        let client = cluster.client().await?;
        let environment = Environment::new(dir, &cluster, &ca)?;
        Ok(Self { environment, controller, catalog, dir: dir.to_owned(), client, registry, cluster })
    }

    async fn walk(&self) -> Result<()> {
        let started = Instant::now();
        title("1. A catalog, and a Subscription that waits for approval");
        let catalog = self.manifest("classic-catalog.yaml")?;
        show_file(&catalog)?;
        self.kubectl(&["apply", "-f", &catalog.display().to_string()])?;
        self.wait(("CatalogSource", "v1alpha1", CLASSIC_NAMESPACE), "demo", "catalog demo is READY", |it| {
            text(it, "/status/connectionState/lastObservedState") == "READY"
        })
        .await?;
        let subscription = self.manifest("classic-subscription.yaml")?;
        show_file(&subscription)?;
        self.kubectl(&["apply", "-f", &subscription.display().to_string()])?;
        self.subscription("UpgradePending", "greeter.v1.0.0", "the plan of 1.0.0 waits (UpgradePending)")
            .await?;
        self.kubectl(&["-n", NAMESPACE, "get", "installplans,csv"])?;

        title("2. The approval installs the operator and its dependency");
        self.approve("greeter.v1.0.0").await?;
        self.succeeded("greeter.v1.0.0", "greeter 1.0.0 is Succeeded").await?;
        self.succeeded("phrasebook.v1.0.0", "its dependency phrasebook 1.0.0 is Succeeded, too").await?;
        self.subscription("AtLatestKnown", "greeter.v1.0.0", "the Subscription is AtLatestKnown").await?;
        self.kubectl(&["-n", NAMESPACE, "get", "subscriptions,csv,deployments,operatorconditions"])?;

        title("3. The catalog has 1.1.0: an upgrade, after another approval");
        waiting(
            "the catalog image has 1.1.0, which replaces 1.0.0",
            push(&self.registry, &["1.0.0", "1.1.0"]),
        )
        .await?;
        self.subscription("UpgradePending", "greeter.v1.1.0", "the plan of 1.1.0 waits (UpgradePending)")
            .await?;
        self.kubectl(&["-n", NAMESPACE, "get", "installplans"])?;
        self.approve("greeter.v1.1.0").await?;
        self.succeeded("greeter.v1.1.0", "greeter 1.1.0 is Succeeded").await?;
        let csvs = self.api("ClusterServiceVersion", "v1alpha1", NAMESPACE);
        waiting("1.0.0 is replaced and gone", async {
            Wait::new(&csvs, "greeter.v1.0.0").within(LIMIT).to_be_gone().await
        })
        .await?;
        self.kubectl(&["-n", NAMESPACE, "get", "subscriptions,csv,deployments"])?;

        title("4. Without Subscription and ClusterServiceVersion the operator goes");
        self.kubectl(&["-n", NAMESPACE, "delete", "subscription/greeter", "csv/greeter.v1.1.0"])?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let deployments: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        waiting("Deployment greeter-controller is gone; definitions and custom resources stay", async {
            Wait::new(&deployments, "greeter-controller").within(LIMIT).to_be_gone().await
        })
        .await?;
        self.kubectl(&["get", "crd", "greetings.greeter.example.com", "-o", "name"])?;
        let took = started.elapsed().as_secs_f64();
        print_line(format_args!("\nAll steps had the expected outcome ({took:.1} s)."));
        Ok(())
    }

    fn sum_up(&self) -> Result<()> {
        title("What is running");
        print_usage(&self.controller)?;
        print_line(format_args!("logs                 {}", self.dir.display()));
        print_line(format_args!("registry             {}", self.registry.address()));
        print_line("");
        self.environment.write()?;
        print_line("  kubectl get catalogsources --all-namespaces\n");
        Ok(())
    }

    /// A manifest of `hack/demo/cluster` with the image's name in it.
    fn manifest(&self, name: &str) -> Result<PathBuf> {
        let text = std::fs::read_to_string(sample::source().join("cluster").join(name))?;
        let path = self.dir.join(name);
        std::fs::write(&path, text.replace("${CATALOG_IMAGE}", &self.catalog))?;
        Ok(path)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.cluster.kubectl()?;
        command.args(arguments);
        run_printed("kubectl", arguments, &mut command).map(|_| ())
    }

    fn api(&self, kind: &str, version: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind));
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    async fn wait(
        &self,
        (kind, version, namespace): (&str, &str, &str),
        name: &str,
        what: &str,
        reached: impl FnMut(&DynamicObject) -> bool,
    ) -> Result<()> {
        let api = self.api(kind, version, namespace);
        waiting(what, Wait::new(&api, name).within(LIMIT).until(what, reached)).await.map(|_| ())
    }

    async fn subscription(&self, state: &str, csv: &str, what: &str) -> Result<()> {
        self.wait(("Subscription", "v1alpha1", NAMESPACE), "greeter", what, |it| {
            text(it, "/status/state") == state && text(it, "/status/currentCSV") == csv
        })
        .await
    }

    async fn succeeded(&self, csv: &str, what: &str) -> Result<()> {
        let kind = ("ClusterServiceVersion", "v1alpha1", NAMESPACE);
        self.wait(kind, csv, what, |it| text(it, "/status/phase") == "Succeeded").await
    }

    /// Approves the plan that has the ClusterServiceVersion and waits.
    async fn approve(&self, csv: &str) -> Result<()> {
        let plans = self.api("InstallPlan", "v1alpha1", NAMESPACE);
        let plan = eventually("a plan waits for approval", LIMIT, || async {
            let waits = |plan: &DynamicObject| {
                let names = plan.data.pointer("/spec/clusterServiceVersionNames").and_then(Value::as_array);
                text(plan, "/status/phase") == "RequiresApproval"
                    && names.into_iter().flatten().any(|name| name == csv)
            };
            let all = plans.list(&ListParams::default()).await?.items;
            all.into_iter().find(waits).and_then(|plan| plan.metadata.name).context("none")
        })
        .await?;
        let patch = json!({"spec": {"approved": true}}).to_string();
        self.kubectl(&["-n", NAMESPACE, "patch", "installplan", &plan, "--type=merge", "-p", &patch])
    }
}

fn text<'a>(object: &'a DynamicObject, pointer: &str) -> &'a str {
    object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Pushes the bundles, and a catalog with these versions of greeter, lowest first, each of which needs phrasebook; returns the catalog's
/// reference by tag.
async fn push(registry: &Registry, versions: &[&str]) -> Result<String> {
    let needs = json!({"type": "olm.package.required", "value": {"packageName": "phrasebook", "versionRange": ">=1.0.0"}});
    let mut greeter = Package::new("greeter");
    for version in versions {
        let image = sample::bundle(version)?.image();
        let pushed = registry.push("greeter-bundle", &format!("v{version}"), &image).await?;
        greeter = greeter.bundle_with(version, &pushed.by_digest(), [needs.clone()]);
    }
    let entries = versions.iter().enumerate().map(|(at, version)| match at.checked_sub(1) {
        None => Entry::new(version),
        Some(before) => Entry::new(version).replaces(versions[before]),
    });
    let image = BundleImage::new("phrasebook", "1.0.0").image();
    let pushed = registry.push("phrasebook-bundle", "v1.0.0", &image).await?;
    let phrasebook = Package::new("phrasebook").bundle("1.0.0", &pushed.by_digest());
    let phrasebook = phrasebook.channel("stable", [Entry::new("1.0.0")]);
    let catalog = CatalogImage::new().package(&greeter.channel("stable", entries)).package(&phrasebook);
    Ok(registry.push("classic-catalog", "latest", &catalog.image()).await?.by_tag())
}
