//! OLM Classic's reference beside classic-controller, each on a fresh control plane, in one run.
//!
//! Both read the same catalog from one `opm serve`, whose bundles have their objects inline: nothing runs the Jobs by which the reference
//! unpacks images. Its catalog and OLM operators are measured, with their own limits on requests, which make them slow, not expensive, and
//! with 500 requests a second; its package server is left out, as classic-controller has none.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Api;
use olm_api::classic::CatalogSource;
use olm_integration::bounds::Bounds;
use olm_integration::classic::{apply, bundle, source_is_ready};
use olm_kit::{
    CLASSIC_NAMESPACE, Ca, CatalogImage, Child, Entry, Memory, Package, RunDir, Tools, eventually, free_port,
};
use serde_json::{Value, json};

use crate::MIB;
use crate::installs::{SOURCE, furnish, names, subscribe, succeeded};
use crate::plane::{Plane, Spent, Subject};

/// Until the processes are measured after the last object was ready, for what they do afterwards.
const SETTLING: Duration = Duration::from_secs(5);
/// In which what a restart costs is counted, and until an upgrade has no more consequences: Kubernetes changes the status of Deployments
/// some time later.
const RESTART: Duration = Duration::from_secs(30);
/// In which `opm` has to listen.
const START: Duration = Duration::from_secs(60);

/// The reference's programs.
const PROGRAMS: [&str; 2] = ["catalog", "olm"];

/// How many requests the reference's programs may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limits {
    /// Five a second, after a burst of ten.
    Default,
    /// 500 a second.
    Raised,
}

impl Limits {
    /// The end of the programs' names.
    fn suffix(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Raised => "-500",
        }
    }
}

/// The reference, running.
pub(crate) struct Reference {
    kubeconfig: PathBuf,
    limits: Limits,
    dir: RunDir,
    children: Vec<Child>,
}

impl Reference {
    pub(crate) fn start(kubeconfig: PathBuf, limits: Limits) -> Result<Self> {
        let mut reference = Self { kubeconfig, limits, dir: RunDir::new("reference")?, children: Vec::new() };
        reference.launch()?;
        Ok(reference)
    }

    pub(crate) fn launch(&mut self) -> Result<()> {
        let tools = Tools::locate()?;
        // each listens on a fixed port, which differs with TLS
        let identity = Ca::shared()?.server("olm", &[])?;
        for name in PROGRAMS {
            let program = format!("{name}{}", self.limits.suffix());
            let mut command = tools.command(&program).context("build it with `make tools-classic`")?;
            command.args(["--namespace", CLASSIC_NAMESPACE, "--writeStatusName="]);
            match name {
                "olm" => {
                    command.arg("--tls-cert").arg(&identity.certificate).arg("--tls-key").arg(&identity.key)
                }
                _ => command.arg("--kubeconfig").arg(&self.kubeconfig),
            };
            command.env("KUBECONFIG", &self.kubeconfig).current_dir(self.dir.path());
            let log = self.dir.path().join(format!("{name}.log"));
            self.children.push(Child::spawn(name, &mut command, &log)?);
        }
        Ok(())
    }

    pub(crate) fn stop(&mut self) {
        for mut child in self.children.drain(..) {
            child.stop(Duration::from_secs(20));
        }
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.children.iter().map(Child::cpu).sum()
    }

    /// That of all programs together.
    pub(crate) fn memory(&self) -> Result<Memory> {
        let none = Memory { resident: 0, anonymous: 0, peak: 0 };
        self.children.iter().try_fold(none, |sum, child| {
            let memory = child.memory()?;
            Ok(Memory {
                resident: sum.resident + memory.resident,
                anonymous: sum.anonymous + memory.anonymous,
                peak: sum.peak + memory.peak,
            })
        })
    }
}

/// A catalog that `opm` serves on one port, whatever its content.
struct Served {
    port: u16,
    dir: RunDir,
    versions: usize,
    child: Option<Child>,
}

impl Served {
    fn new() -> Result<Self> {
        Ok(Self { port: free_port()?, dir: RunDir::new("opm")?, versions: 0, child: None })
    }

    /// Serves these packages instead of those before.
    async fn publish(&mut self, all: &[String], upgraded: &[String]) -> Result<()> {
        self.versions += 1;
        let root = self.dir.path().join(format!("v{}", self.versions));
        let catalog = all
            .iter()
            .fold(CatalogImage::new(), |it, name| it.package(&package(name, upgraded.contains(name))));
        for (path, content) in catalog.files() {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().context("no folder")?)?;
            std::fs::write(path, content)?;
        }
        if let Some(mut child) = self.child.take() {
            child.stop(Duration::from_secs(5));
        }
        let mut command = Tools::locate()?.command("opm")?;
        command.arg("serve").arg(root.join("configs"));
        command.args(["--pprof-addr", "", "--cache-enforce-integrity=false", "--port"]);
        command.arg(self.port.to_string());
        command.arg("--cache-dir").arg(root.join("cache")).arg("--termination-log").arg(root.join("end"));
        let child = self.child.insert(Child::spawn("opm", &mut command, &self.dir.path().join("opm.log"))?);
        let address = ("127.0.0.1", self.port);
        let connected = eventually("opm serves", START, async || {
            Ok(tokio::net::TcpStream::connect(address).await.map(drop)?)
        });
        connected.await.with_context(|| child.describe_end())
    }

    fn source(&self) -> Value {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": SOURCE, "namespace": CLASSIC_NAMESPACE},
            "spec": {"sourceType": "grpc", "address": format!("127.0.0.1:{}", self.port)},
        })
    }
}

/// A package whose bundles have their objects inline.
fn package(name: &str, is_upgraded: bool) -> Package {
    let versions: &[&str] = if is_upgraded { &["1.0.0", "1.1.0"] } else { &["1.0.0"] };
    let mut package = Package::new(name);
    for version in versions {
        let gvk = json!({"type": "olm.gvk", "value": {"group": format!("{name}.kit.test"), "kind": "Widget", "version": "v1"}});
        let files = bundle(name, version).files();
        let manifests = files.iter().filter(|(path, _)| path.starts_with("manifests/"));
        let objects = manifests
            .map(|(_, text)| json!({"type": "olm.bundle.object", "value": {"data": STANDARD.encode(text)}}));
        package = package.bundle_with(version, "", std::iter::once(gvk).chain(objects));
    }
    let mut entries = vec![Entry::new("1.0.0")];
    if is_upgraded {
        entries.push(Entry::new("1.1.0").replaces("1.0.0"));
    }
    package.channel("stable", entries)
}

/// The figures of one subject, by work.
struct Figures {
    work: Vec<(String, Spent)>,
    memory: Memory,
}

async fn figures(subject: Subject, size: usize, rest: usize) -> Result<Figures> {
    let mut plane = Plane::start(subject).await?;
    let client = plane.client.clone();
    let (one, many) = (names(0, 1), names(1, size));
    let all = [one.clone(), many.clone()].concat();
    let mut served = Served::new()?;
    served.publish(&all, &[]).await?;
    let sources: Api<CatalogSource> = Api::namespaced(client.clone(), CLASSIC_NAMESPACE);
    apply(&sources, &served.source()).await?;
    source_is_ready(&client, SOURCE).await?;
    furnish(&client, &all).await?;
    tokio::time::sleep(SETTLING).await;

    let mut work = Vec::new();
    for names in [&one, &many] {
        let mark = plane.mark()?;
        subscribe(&client, names).await?;
        succeeded(&client, names, "1.0.0").await?;
        work.push((format!("installing {}", names.len()), plane.settled(mark, SETTLING).await?));
    }
    let mark = plane.mark()?;
    served.publish(&all, &many).await?;
    succeeded(&client, &many, "1.1.0").await?;
    work.push((format!("upgrading {size}"), plane.settled(mark, SETTLING).await?));
    tokio::time::sleep(RESTART).await;
    let mark = plane.mark()?;
    work.push((format!("{rest} s of rest"), plane.settled(mark, Duration::from_secs(rest as u64)).await?));
    let memory = plane.memory()?;
    plane.stop();
    let mark = plane.mark()?;
    plane.start_again().await?;
    work.push((format!("{} s from a restart on", RESTART.as_secs()), plane.settled(mark, RESTART).await?));
    Ok(Figures { work, memory })
}

/// The most that classic-controller may need of what the reference needs.
struct Goal {
    cpu: f64,
    requests: f64,
    /// Whether the work has an end that both reach.
    ends: bool,
}

/// For the work of [`Figures`], in its order: the bounds of this bench over what the reference needed on the machine that they are for.
const GOALS: [Goal; 5] = [
    Goal { cpu: 0.03 / 0.87, requests: 50.0 / 259.0, ends: true },
    Goal { cpu: 0.5 / 11.6, requests: 20.0 * 50.0 / 2432.0, ends: true },
    Goal { cpu: 0.7 / 20.0, requests: 20.0 * 50.0 / 2891.0, ends: true },
    Goal { cpu: 0.1 / 2.7, requests: 0.0, ends: false },
    Goal { cpu: 0.4 / 11.1, requests: 45.0 / 1214.0, ends: false },
];

/// Measures `size` Subscriptions with classic-controller, and with the reference, with either of its limits. The goals are beside the
/// raised ones.
pub(crate) async fn measure(size: usize, rest: usize, bounds: &mut Bounds) -> Result<()> {
    let own = figures(Subject::Own, size, rest).await.context("classic-controller")?;
    let default = Subject::Reference(Limits::Default);
    let default = figures(default, size, rest).await.context("the reference")?;
    let raised = Subject::Reference(Limits::Raised);
    let raised = figures(raised, size, rest).await.context("the reference with 500 requests a second")?;
    println!("\n| work | | classic-controller | reference | times | with 500 requests a second | times |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    let row = |work: &str, figure: &str, [own, default, raised]: [f64; 3]| {
        let times = |reference: f64| {
            if own > 0.0 { format!("{:.1}", reference / own) } else { String::new() }
        };
        let (less, more) = (times(default), times(raised));
        println!("| {work} | {figure} | {own:.2} | {default:.2} | {less} | {raised:.2} | {more} |");
    };
    for (at, (goal, (work, spent))) in GOALS.iter().zip(&own.work).enumerate() {
        let all = [spent, &default.work[at].1, &raised.work[at].1];
        let seconds = |name: &str, figure: fn(&Spent) -> Duration| {
            row(work, name, all.map(|spent| figure(spent).as_secs_f64()));
        };
        if goal.ends {
            seconds("s", |spent| spent.wall);
        }
        seconds("CPU s", |spent| spent.cpu);
        seconds("control plane, CPU s", |spent| spent.plane);
        row(work, "requests", all.map(|spent| spent.requests.len() as f64));
        row(work, "writes", all.map(|spent| spent.writes() as f64));
        let raised = all[2];
        let cpu = spent.cpu.as_secs_f64() / raised.cpu.as_secs_f64();
        let requests = spent.requests.len() as f64 / raised.requests.len() as f64;
        bounds.add(work, "CPU, of the reference's", "%", 100.0 * cpu, 100.0 * goal.cpu);
        bounds.add(work, "requests, of the reference's", "%", 100.0 * requests, 100.0 * goal.requests);
    }
    let memory = |figure: fn(&Memory) -> u64| {
        [&own, &default, &raised].map(|figures| figure(&figures.memory) as f64 / MIB)
    };
    row("all installed", "resident, MiB", memory(|memory| memory.resident));
    row("all installed", "resident at most, MiB", memory(|memory| memory.peak));
    Ok(())
}
