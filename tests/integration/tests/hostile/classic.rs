//! Hostile catalogs of OLM Classic, which classic-controller reads in the memory of its manifests. Another namespace has a good catalog
//! of its own.

use std::cell::Cell;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use olm_api::ConditionStatus;
use olm_api::classic::{CatalogSource, Subscription};
use olm_integration::classic::{group, source, subscription};
use olm_kit::{CLASSIC_NAMESPACE, Cluster, Options, Process, Program, Wait};
use serde_json::json;

use crate::bundles::PACKAGE;
use crate::catalogs::push;
use crate::cgroup::{MemoryCgroup, reset_peak};
use crate::content::Layer;
use crate::report::Row;
use crate::shape::{Expect, Shape, Steps};
use crate::support::Registry;
use crate::world::{GOOD, LIMIT, MAX_CPU, MAX_PEAK, SETTLE, registry, until_idle};

const MIB: usize = 1 << 20;
const BUNDLES: usize = 10_000;

/// classic-controller, with a namespace that subscribes to the package of each catalog.
pub(crate) struct ClassicWorld {
    sources: Api<CatalogSource>,
    subscriptions: Api<Subscription>,
    good: Api<Subscription>,
    /// Passes of the good Subscription.
    passes: Cell<usize>,
    process: Process,
    group: Option<MemoryCgroup>,
    _registry: Registry,
    // last, so that it ends last
    cluster: Cluster,
}

/// The message of condition ResolutionFailed.
fn failure(subscription: &Subscription) -> Option<&str> {
    let mut conditions = subscription.status.iter().flat_map(|status| &status.conditions);
    let failed =
        conditions.find(|it| it.type_ == "ResolutionFailed" && it.status == ConditionStatus::True)?;
    Some(&failed.message)
}

impl ClassicWorld {
    pub(crate) async fn start() -> Result<Self> {
        let cluster = Cluster::start_for_classic(&Options::default()).await?;
        for name in [PACKAGE, GOOD] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster.apply(&namespace.to_string()).await?;
        }
        cluster.apply(&group(PACKAGE, &[PACKAGE]).to_string()).await?;
        // its catalog is the only one there, as a dependency may come from each one that may be used
        let mut alone = group(GOOD, &[GOOD]);
        alone["metadata"]["annotations"] =
            json!({"olm.operatorframework.io/exclude-global-namespace-resolution": "true"});
        let registry = registry().await?;
        let mut catalog = source(GOOD, &good_catalog(&registry));
        catalog["metadata"]["namespace"] = json!(GOOD);
        let mut subscribed = subscription(GOOD, GOOD, GOOD, "absent");
        subscribed["spec"]["sourceNamespace"] = json!(GOOD);
        for object in [alone, catalog, subscribed] {
            cluster.apply(&object.to_string()).await?;
        }
        let group = MemoryCgroup::create("classic-controller", LIMIT);
        let program = Program::classic_controller(&cluster)?;
        let program = match &group {
            Some(group) => program.cgroup(&group.processes()),
            None => program,
        };
        let process = program.start().await?;
        let client = cluster.client().await?;
        let world = Self {
            sources: Api::namespaced(client.clone(), CLASSIC_NAMESPACE),
            subscriptions: Api::namespaced(client.clone(), PACKAGE),
            good: Api::namespaced(client, GOOD),
            passes: Cell::new(0),
            process,
            group,
            _registry: registry,
            cluster,
        };
        world.good_pass().await?;
        Ok(world)
    }

    /// Lets the good Subscription ask for another channel that its catalog does not have, and waits until it reports that.
    async fn good_pass(&self) -> Result<()> {
        self.passes.set(self.passes.get() + 1);
        let channel = format!("absent-{}", self.passes.get());
        let patch = json!({"spec": {"channel": channel}});
        self.good.patch(GOOD, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        let want = format!("no operators found in channel {channel} of package {GOOD} ");
        let reports = |it: &Subscription| failure(it).is_some_and(|message| message.contains(&want));
        let wait = Wait::new(&self.good, GOOD).within(SETTLE).log(self.process.log());
        wait.until(&format!("reports {want:?}"), reports).await.map(drop)
    }

    /// Lets the controller read a catalog, until the Subscription reports what is expected.
    pub(crate) async fn read(&mut self, shape: &Shape) -> Result<Row> {
        let Expect::Refused(words) = shape.expect else { bail!("{}: nothing is installed here", shape.name) };
        let registry = registry().await?;
        let reference = (shape.make)(&registry).with_context(|| shape.name)?;
        let steps = Steps::new(shape.name);
        steps.bound(self.read_within(&steps, &reference, words)).await
    }

    async fn read_within(&mut self, steps: &Steps<'_>, reference: &str, words: &str) -> Result<Row> {
        steps.begin("creation of CatalogSource and Subscription");
        let kills = self.kills();
        reset_peak(self.process.child().pid())?;
        let cpu = self.process.cpu()?;
        self.cluster.apply(&source(PACKAGE, reference).to_string()).await?;
        self.cluster.apply(&subscription(PACKAGE, PACKAGE, PACKAGE, "stable").to_string()).await?;
        steps.begin("report of the Subscription, and a pass of the good one");
        let wait = Wait::new(&self.subscriptions, PACKAGE).within(SETTLE).log(self.process.log());
        let reports = |it: &Subscription| failure(it).is_some_and(|message| message.contains(words));
        let what = format!("reports {words:?}");
        let (reported, pass) = tokio::join!(wait.until(&what, reports), self.good_pass());
        let (message, mut problems) = match &reported {
            Ok(found) => (failure(found).unwrap_or_default().to_owned(), Vec::new()),
            Err(error) => {
                let problem = format!("{error:#}");
                let problem = problem.lines().next().unwrap_or_default().to_owned();
                // what it reports instead
                let found = self.subscriptions.get_opt(PACKAGE).await?;
                (found.as_ref().and_then(failure).unwrap_or_default().to_owned(), vec![problem])
            }
        };
        if pass.is_err() {
            problems.push("the good Subscription has no pass".to_owned());
        }
        let (mut peak, mut took) = (0, Duration::ZERO);
        if self.process.child().exited().is_none() {
            // what still runs belongs to this input
            steps.begin("wait for an idle process");
            until_idle(&self.process).await?;
            peak = self.process.memory()?.peak;
            took = self.process.cpu()?.saturating_sub(cpu);
        }
        steps.begin("deletion of CatalogSource and Subscription");
        self.subscriptions.delete(PACKAGE, &DeleteParams::default()).await?;
        self.sources.delete(PACKAGE, &DeleteParams::default()).await?;
        if self.process.child().exited().is_some() {
            problems.push("the process was restarted".to_owned());
            self.process.restart().await?;
        }
        Wait::new(&self.subscriptions, PACKAGE).within(SETTLE).to_be_gone().await?;
        Wait::new(&self.sources, PACKAGE).within(SETTLE).to_be_gone().await?;
        for (is_wrong, problem) in [
            (peak > MAX_PEAK, "too much memory"),
            (took > MAX_CPU, "too much processor time"),
            (self.kills() > kills, "killed because of the limit"),
        ] {
            if is_wrong {
                problems.push(problem.to_owned());
            }
        }
        let row = Row { name: steps.input.to_owned(), peak, cpu: took, message, problems };
        row.print();
        Ok(row)
    }

    fn kills(&self) -> u64 {
        self.group.as_ref().map_or(0, MemoryCgroup::kills)
    }

    pub(crate) fn end(mut self) -> Result<()> {
        ensure!(self.process.stop(), "classic-controller did not end by itself");
        Ok(())
    }
}

/// A catalog of one bundle.
fn good_catalog(registry: &Registry) -> String {
    let version = json!({"type": "olm.package", "value": {"packageName": GOOD, "version": "1.0.0"}});
    let objects = [
        json!({"schema": "olm.package", "name": GOOD, "defaultChannel": "stable"}),
        json!({"schema": "olm.bundle", "package": GOOD, "name": "good.v1.0.0", "image": "i", "properties": [version]}),
        json!({"schema": "olm.channel", "package": GOOD, "name": "stable", "entries": [{"name": "good.v1.0.0"}]}),
    ];
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    push(registry, [Layer::new().file("configs/good.json", text.as_bytes()).end()])
}

/// Packages with a channel of 10,000 bundles each, which have a property of a kilobyte. Each bundle takes about 1.7 kB of memory. The
/// names of 120,000 bundles are above `catalog-name-bytes`: such an image is rejected before its content is read.
fn packages(registry: &Registry, count: usize) -> Result<String> {
    let value = "v".repeat(1_000);
    let mut layer = Layer::new().noise(2 * MIB);
    for package in 0..count {
        let mut text =
            format!("{{\"schema\":\"olm.package\",\"name\":\"p{package}\",\"defaultChannel\":\"c\"}}\n");
        let mut entries = String::new();
        for at in 0..BUNDLES {
            let _ = writeln!(
                text,
                r#"{{"schema":"olm.bundle","package":"p{package}","name":"{package}.{at}","image":"i","properties":[{{"type":"olm.package","value":{{"packageName":"p{package}","version":"{at}.0.0"}}}},{{"type":"other","value":"{value}"}}]}}"#
            );
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(entries, r#"{comma}{{"name":"{package}.{at}"}}"#);
        }
        let _ = writeln!(
            text,
            r#"{{"schema":"olm.channel","package":"p{package}","name":"c","entries":[{entries}]}}"#
        );
        layer = layer.file(&format!("configs/{package}.json"), text.as_bytes());
    }
    Ok(push(registry, [layer.end()]))
}

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const SHAPES: &[Shape] = &[
    Shape { name: "classic: 100,000 bundles of 1.7 kB", short: false, expect: Expect::Refused("the limit of 134217728 bytes of memory"),
        make: |registry| packages(registry, 10) },
    Shape { name: "classic: 70,000 bundles of 1.7 kB", short: false, expect: Expect::Refused("no operators found in package hostile"),
        make: |registry| packages(registry, 7) },
];
