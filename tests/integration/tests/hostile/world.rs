//! catalogd and operator-controller, each in a memory cgroup of the manifests' limit, with a good catalog and a good extension.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use olm_api::{ClusterCatalog, ClusterExtension, condition, reason};
use olm_integration::extension::{current, installed_version};
use olm_kit::{BundleImage, Ca, Cluster, Entry, Package, Process, Program, Wait, eventually};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use crate::cgroup::{MemoryCgroup, reset_peak};
use crate::content::Layer;
use crate::report::Row;
use crate::requests::Question;
use crate::shape::{Expect, Steps};
use crate::support::{Pushed, Registry};
use crate::{bundles, catalogs};

/// The memory limit of the manifests.
pub(crate) const LIMIT: u64 = 512 << 20;
/// What a process may have resident at its highest.
pub(crate) const MAX_PEAK: u64 = 256 << 20;
pub(crate) const MAX_CPU: Duration = Duration::from_secs(30);
/// How long one wait for an input may take, on a busy machine.
pub(crate) const SETTLE: Duration = Duration::from_secs(400);
/// The good catalog, package, extension and namespace.
pub(crate) const GOOD: &str = "good";
/// Between two requests for the good catalog.
const REQUEST_INTERVAL: Duration = Duration::from_millis(200);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Each message about a limit has one of these.
const WORDS_OF_LIMITS: [&str; 7] = [
    "the limit of",
    "more than",
    "are allowed",
    "keys have at most",
    "must have fewer",
    "excessive aliasing",
    "max depth",
];
/// A process that uses less than a fifth of a core for so long is idle.
const IDLE_WINDOW: Duration = Duration::from_millis(1_500);

/// A system that tests disturb. Dropped, it ends.
pub(crate) struct World {
    pub(crate) catalogs: Api<ClusterCatalog>,
    extensions: Api<ClusterExtension>,
    catalogd: Process,
    operator_controller: Process,
    groups: [Option<MemoryCgroup>; 2],
    requests: Arc<Requests>,
    requesting: tokio::task::JoinHandle<()>,
    http: reqwest::Client,
    /// Where catalogd serves gRPC.
    grpc: String,
    _registry: Registry,
    // last, so that it ends last
    _cluster: Cluster,
}

/// Requests for the good catalog since the beginning.
#[derive(Debug, Default)]
struct Requests {
    answered: AtomicUsize,
    failed: AtomicUsize,
}

/// Which program reads an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Catalogd,
    /// catalogd, which serves the input, when a client asks for something.
    Client(Question),
    OperatorController,
}

impl Reader {
    /// A reader that is the other program.
    fn other(self) -> Self {
        match self {
            Self::Catalogd | Self::Client(_) => Self::OperatorController,
            Self::OperatorController => Self::Catalogd,
        }
    }
}

/// A registry with a certificate that the programs trust.
pub(crate) async fn registry() -> Result<Registry> {
    let identity = Ca::shared()?.server(&olm_kit::unique("hostile"), &[])?;
    let chain = vec![CertificateDer::from_pem_file(&identity.certificate)?];
    let key = PrivateKeyDer::from_pem_file(&identity.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Registry::start_with(Some(Arc::new(config))).await)
}

fn good_package(registry: &Registry) -> String {
    let bundle = BundleImage::new(GOOD, "1.0.0").crds([]);
    let layer = bundle.files().iter().fold(Layer::new(), |layer, (path, content)| layer.file(path, content));
    let digest = registry.push("bundle", Some("1"), &Pushed::new([layer.end()]));
    let image = format!("{}/bundle@{digest}", registry.address);
    Package::new(GOOD).channel("stable", [Entry::new("1.0.0")]).bundle("1.0.0", &image).text()
}

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.install_olm().await?;
        for name in [GOOD, bundles::PACKAGE] {
            cluster
                .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"))
                .await?;
        }
        let present = bundles::present();
        cluster.apply(&present.manifest().to_string()).await?;
        let object = json!({"apiVersion": "hostile.kit.test/v1", "kind": "Gadget",
            "metadata": {"name": "present", "namespace": bundles::PACKAGE}, "spec": {"size": 1}});
        cluster.apply(&object.to_string()).await?;
        let groups =
            [MemoryCgroup::create("catalogd", LIMIT), MemoryCgroup::create("operator-controller", LIMIT)];
        let within = |program: Program, group: &Option<MemoryCgroup>| match group {
            Some(group) => program.cgroup(&group.processes()),
            None => program,
        };
        let grpc = format!("127.0.0.1:{}", olm_kit::free_port()?);
        let catalogd = Program::catalogd(&cluster)?
            .more("--feature-gates", "GraphQLCatalogQueries=true")
            .flag("--grpc-bind-address", &grpc);
        let catalogd = within(catalogd, &groups[0]).start().await?;
        let operator_controller = within(Program::operator_controller(&cluster)?, &groups[1]).start().await?;
        let client = cluster.client().await?;
        let registry = registry().await?;
        let requests = Arc::new(Requests::default());
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(Ca::shared()?.pem().as_bytes())?])
            .no_proxy()
            .timeout(REQUEST_TIMEOUT)
            .build()?;
        let world = Self {
            catalogs: Api::all(client.clone()),
            extensions: Api::all(client),
            requesting: tokio::spawn(request_again_and_again(
                http.clone(),
                format!("{}/catalogs/{GOOD}/api/v1/all", catalogd.content_url()),
                Arc::clone(&requests),
            )),
            catalogd,
            operator_controller,
            groups,
            requests,
            http,
            grpc,
            _registry: registry,
            _cluster: cluster,
        };
        let layer = Layer::new().file("configs/good.yaml", good_package(&world._registry).as_bytes()).end();
        world.create_catalog(GOOD, &catalogs::push(&world._registry, [layer])).await?;
        Wait::new(&world.catalogs, GOOD).within(SETTLE).for_condition(condition::SERVING, "True").await?;
        world.good_pass().await?;
        Ok(world)
    }

    /// How memory is limited, for the summary.
    pub(crate) fn describe(&self) -> String {
        match &self.groups {
            [Some(group), Some(_)] => format!("each program in a {} of 512 MiB", group.describe()),
            _ => "NO memory cgroup could be created: nothing limits the programs, only their resident sizes are compared".to_owned(),
        }
    }

    async fn create_catalog(&self, name: &str, reference: &str) -> Result<()> {
        let catalog = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name, "labels": {"test": name}},
            "spec": {"source": {"type": "Image", "image": {"ref": reference}}},
        });
        self.catalogs.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&catalog)).await?;
        Ok(())
    }

    async fn create_extension(&self, name: &str, version: &str) -> Result<()> {
        let extension = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {"namespace": name, "source": {"sourceType": "Catalog", "catalog": {
                "packageName": name, "version": version, "selector": {"matchLabels": {"test": name}}}}},
        });
        self.extensions.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&extension)).await?;
        Ok(())
    }

    /// Changes the good extension's request, and waits until a pass has read catalog and bundle for it.
    async fn good_pass(&self) -> Result<()> {
        let before = self.extensions.get_opt(GOOD).await?.and_then(|extension| extension.metadata.generation);
        let version =
            if before.is_some_and(|generation| generation % 2 == 1) { ">=1.0.0 <1.0.1" } else { "1.0.0" };
        self.create_extension(GOOD, version).await?;
        let read = |extension: &ClusterExtension| {
            extension.metadata.generation != before
                && installed_version(extension) == Some("1.0.0")
                && current(extension, condition::READY).is_some_and(|found| found.status.as_str() == "True")
        };
        let log = self.operator_controller.log();
        Wait::new(&self.extensions, GOOD)
            .within(SETTLE)
            .log(log)
            .until("a pass read the good bundle", read)
            .await?;
        Ok(())
    }

    fn process(&mut self, reader: Reader) -> &mut Process {
        match reader {
            Reader::Catalogd | Reader::Client(_) => &mut self.catalogd,
            Reader::OperatorController => &mut self.operator_controller,
        }
    }

    /// Lets a program read an input, which ends as expected while the good catalog and the good extension work on, and is gone after it.
    pub(crate) async fn read(
        &mut self,
        reader: Reader,
        name: &str,
        expect: Expect,
        make: impl FnOnce(&Registry) -> Result<String>,
    ) -> Result<Row> {
        let registry = registry().await?;
        let reference = make(&registry).with_context(|| name.to_owned())?;
        let steps = Steps::new(name);
        steps.bound(self.read_within(&steps, reader, &reference, expect)).await
    }

    async fn read_within(
        &mut self,
        steps: &Steps<'_>,
        reader: Reader,
        reference: &str,
        expect: Expect,
    ) -> Result<Row> {
        let kills = self.kills();
        let failed = self.requests.failed.load(Ordering::Relaxed);
        let answered = self.requests.answered.load(Ordering::Relaxed);
        let pid = self.process(reader).child().pid();
        for pid in [pid, self.process(reader.other()).child().pid()] {
            reset_peak(pid)?;
        }
        let cpu = self.process(reader).cpu()?;
        let began = Instant::now();
        let mut problems = Vec::new();
        let message = {
            let mut settling = std::pin::pin!(self.settled(steps, reader, reference));
            let died = ended(pid);
            tokio::select! {
                message = &mut settling => message.map_err(|error| format!("{error:#}")),
                () = died => Err("the process has ended".to_owned()),
            }
        };
        let (outcome, message) = match message {
            Ok((served, message)) => (Some(served), message),
            Err(problem) => {
                problems.push(problem.lines().next().unwrap_or_default().to_owned());
                (None, problem)
            }
        };
        if let Some(served) = outcome {
            match expect {
                Expect::Served if !served => problems.push("not accepted".to_owned()),
                Expect::Refused(words) if served || !message.contains(words) => {
                    problems.push(format!("expected: {words:?}"));
                }
                Expect::Within if !served && WORDS_OF_LIMITS.iter().any(|words| message.contains(words)) => {
                    problems.push("a limit is in the way".to_owned());
                }
                _ => {}
            }
        }
        let mut row = Row { name: steps.input.to_owned(), peak: 0, cpu: Duration::ZERO, message, problems };
        if self.process(reader).child().exited().is_none() {
            // what still runs belongs to this input
            steps.begin("wait for an idle process");
            let process = &*self.process(reader);
            until_idle(process).await?;
            row.peak = process.memory()?.peak;
            row.cpu = process.cpu()?.saturating_sub(cpu);
        }
        steps.begin("deletion");
        self.delete(reader).await?;
        if self.process(reader).child().exited().is_some() {
            row.problems.push("the process was restarted".to_owned());
            self.process(reader).restart().await?;
        }
        let beside = self.process(reader.other()).memory()?.peak;
        let kills = self.kills() - kills;
        let failed = self.requests.failed.load(Ordering::Relaxed) - failed;
        for (is_wrong, problem) in [
            (row.peak > MAX_PEAK, "too much memory".to_owned()),
            (beside > MAX_PEAK, format!("{} MiB in the other program", beside.div_ceil(1 << 20))),
            (row.cpu > MAX_CPU, "too much processor time".to_owned()),
            (kills > 0, format!("{kills} kills because of the limit")),
            (failed > 0, format!("{failed} failed requests for the good catalog")),
            (
                began.elapsed() > REQUEST_INTERVAL * 20
                    && self.requests.answered.load(Ordering::Relaxed) == answered,
                "no answered request for the good catalog".to_owned(),
            ),
        ] {
            if is_wrong {
                row.problems.push(problem);
            }
        }
        row.print();
        self.until_gone().await?;
        Ok(row)
    }

    /// Creates what lets the program read the input; gives whether it was accepted, and the message of the status.
    async fn settled(&self, steps: &Steps<'_>, reader: Reader, reference: &str) -> Result<(bool, String)> {
        let name = bundles::PACKAGE;
        steps.begin("status of the catalog");
        self.create_catalog(name, reference).await?;
        let settled = |catalog: &ClusterCatalog| {
            let conditions = catalog.status.clone().unwrap_or_default().conditions;
            // a pull of more than a few seconds has a status of its own before
            condition::find(&conditions, condition::PROGRESSING)
                .filter(|it| it.reason != reason::PULLING)
                .cloned()
        };
        let catalog = Wait::new(&self.catalogs, name).within(SETTLE);
        let catalog = catalog.until("has a status", |catalog| settled(catalog).is_some()).await?;
        let progressing = settled(&catalog).context("no condition")?;
        let served = progressing.reason == "Succeeded";
        if reader == Reader::Catalogd || !served {
            return Ok((served, progressing.message));
        }
        if let Reader::Client(question) = reader {
            steps.begin("answer to a client");
            return question.ask(&self.http, &self.catalogd.content_url(), &self.grpc).await;
        }
        steps.begin("status of the extension, and a pass of the good one");
        self.create_extension(name, "1.0.0").await?;
        let settled = |extension: &ClusterExtension| {
            let progressing = current(extension, condition::PROGRESSING).cloned()?;
            let installed = installed_version(extension).is_some()
                && current(extension, condition::READY).is_some_and(|found| found.status.as_str() == "True");
            let refused = ["Retrying", "Blocked"].contains(&progressing.reason.as_str())
                || condition::find(&extension.status.as_ref()?.conditions, "Stalled")
                    .is_some_and(|found| found.status.as_str() == "True");
            (installed || refused).then_some((installed, progressing.message))
        };
        let reading = async {
            let log = self.operator_controller.log();
            let wait = Wait::new(&self.extensions, name).within(SETTLE).log(log);
            let extension = wait.until("is installed or refused", |it| settled(it).is_some()).await?;
            settled(&extension).context("no condition")
        };
        let (read, pass) = tokio::join!(reading, self.good_pass());
        pass.context("the good extension has no pass")?;
        read
    }

    async fn delete(&self, reader: Reader) -> Result<()> {
        let name = bundles::PACKAGE;
        if reader == Reader::OperatorController && self.extensions.get_opt(name).await?.is_some() {
            self.extensions.delete(name, &DeleteParams::default()).await?;
        }
        if self.catalogs.get_opt(name).await?.is_some() {
            self.catalogs.delete(name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Waits until nothing of the last input is left.
    async fn until_gone(&self) -> Result<()> {
        let name = bundles::PACKAGE;
        Wait::new(&self.extensions, name).within(SETTLE).to_be_gone().await?;
        Wait::new(&self.catalogs, name).within(SETTLE).to_be_gone().await
    }

    fn kills(&self) -> u64 {
        self.groups.iter().flatten().map(MemoryCgroup::kills).sum()
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.requesting.abort();
        for reader in [Reader::Catalogd, Reader::OperatorController] {
            ensure!(self.process(reader).stop(), "{reader:?} did not end by itself");
        }
        Ok(())
    }
}

/// Waits until the process does nothing but answer requests.
pub(crate) async fn until_idle(process: &Process) -> Result<()> {
    let began = Instant::now();
    loop {
        let before = process.cpu()?;
        tokio::time::sleep(IDLE_WINDOW).await;
        if process.cpu()?.saturating_sub(before) < IDLE_WINDOW / 5 {
            return Ok(());
        }
        ensure!(began.elapsed() < SETTLE, "{} is busy after {SETTLE:?}", process.name());
    }
}

async fn request_again_and_again(client: reqwest::Client, url: String, requests: Arc<Requests>) {
    let mut good = false;
    loop {
        tokio::time::sleep(REQUEST_INTERVAL).await;
        let answer = match client.get(&url).send().await {
            Ok(answer) => answer.status() == 200 && answer.bytes().await.is_ok_and(|body| !body.is_empty()),
            Err(_) => false,
        };
        // not served yet at the beginning
        good |= answer;
        let count = if answer { &requests.answered } else { &requests.failed };
        if good {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waits until the process has ended.
async fn ended(pid: u32) {
    let stat = format!("/proc/{pid}/stat");
    let _ = eventually("the process ends", SETTLE * 2, || async {
        let text = std::fs::read_to_string(&stat).unwrap_or_default();
        let state = text.rsplit_once(") ").map_or("X", |(_, rest)| rest);
        ensure!(state.starts_with(['X', 'Z']), "{state}");
        Ok(())
    })
    .await;
}
