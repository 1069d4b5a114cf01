//! The controller against a real apiserver and a registry that misbehaves on the wire: served content stays the same, byte
//! for byte, the condition names the fault, and no unfinished file stays on disk.
//!
//! The controller runs in this process, with shorter timeouts than in a deployment; everything else is unchanged.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use catalogd::controller::credentials::Credentials;
use catalogd::controller::fetch::Fetch;
use catalogd::controller::readiness::Readiness;
use catalogd::controller::reconcile;
use catalogd::http::{Catalogs, Endpoints};
use catalogd::store::Store;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use olm_api::{ClusterCatalog, condition};
use olm_kit::{Cluster, Wait, eventually};
use olm_oci::{CertificateDirs, Puller, SharedKeyring};
use olm_runtime::events::Events;
use olm_runtime::metrics::Metrics;
use olm_runtime::pull_secrets::NamespacedName;
use olm_runtime::{Intervals, Shutdown};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::support::pki::Authority;
use crate::support::{self, Body, Client, Pushed, Registry, Reply, Request};
use crate::{create, merge, request};

const LIMIT: Duration = Duration::from_secs(60);
/// A minute of a poll interval: long enough that a busy machine does other things before the first poll.
const MINUTE: Duration = Duration::from_secs(15);
const LABEL: &str = "operators.operatorframework.io.index.configs.v1";

/// A catalog whose layer takes more than one read.
fn catalog(name: &str) -> Pushed {
    let noise = support::noise(300_000);
    let text = format!("{{\"name\":\"{name}\",\"noise\":\"{noise}\",\"schema\":\"olm.package\"}}\n");
    Pushed::new([support::layer(&[("configs/c.json", &text)])]).label(LABEL, "/configs")
}

struct World {
    api: Api<ClusterCatalog>,
    events: Api<Event>,
    catalogs: Catalogs,
    /// Where content is kept.
    root: tempfile::TempDir,
    stop: Shutdown,
    controller: tokio::task::JoinHandle<()>,
    /// Notifies of changed pull secrets.
    changed: mpsc::Sender<()>,
    _senders: (mpsc::Sender<String>, watch::Sender<bool>),
    // last, so that it ends last
    _cluster: Cluster,
}

impl World {
    /// A leading replica that pulls with the configuration of `client`.
    async fn new(client: &Client) -> Result<Self> {
        Self::with_secret(client, None, SharedKeyring::default()).await
    }

    /// The same with credentials of a Secret.
    async fn with_secret(
        client: &Client,
        secret: Option<NamespacedName>,
        keyring: SharedKeyring,
    ) -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.install_crds().await?;
        let kube = cluster.client().await?;
        let root = tempfile::tempdir()?;
        let (store, _) = Store::open(root.path())?;
        let metrics = Metrics::new();
        let (damage, damaged) = mpsc::channel(1);
        let (changed, secrets) = mpsc::channel(1);
        let (lead, leader) = watch::channel(true);
        let credentials = Credentials::new(kube.clone(), secret, None, keyring);
        let context = Arc::new(reconcile::Context {
            client: kube.clone(),
            store: store.clone(),
            fetch: Fetch::new(Puller::new(client.config.clone()), credentials, store.clone()),
            leader,
            events: Events::new(kube.clone(), "catalogd-clustercatalog-controller", None),
            meter: metrics.controller("test", 0),
            base: "https://catalogd.example.com".to_owned(),
            services: None,
            intervals: Intervals { minute: MINUTE, ..Intervals::default() },
            states: Default::default(),
            version: Default::default(),
            epoch: AtomicU64::new(0),
        });
        let stop = Shutdown::new();
        let readiness = Arc::new(Readiness::new(Instant::now()));
        let hourly = Duration::from_secs(3600);
        let running = catalogd::controller::run(context, readiness, hourly, damaged, secrets, stop.clone());
        Ok(Self {
            api: Api::all(kube.clone()),
            events: Api::namespaced(kube, "default"),
            catalogs: Catalogs::new(store, Endpoints { metas: true, graphql: false }),
            root,
            controller: tokio::spawn(running),
            stop,
            changed,
            _senders: (damage, lead),
            _cluster: cluster,
        })
    }

    async fn resolved(&self, name: &str, digest: &str) -> Result<()> {
        let served = |catalog: &ClusterCatalog| {
            let Some(status) = &catalog.status else { return false };
            status.resolved_source.as_ref().is_some_and(|source| source.image.reference.ends_with(digest))
                && condition::find(&status.conditions, condition::PROGRESSING)
                    .is_some_and(|progressing| progressing.reason == "Succeeded")
        };
        Wait::new(&self.api, name).within(LIMIT).until(&format!("serves {digest}"), served).await?;
        Ok(())
    }

    /// Waits until the condition reports a failed attempt with this reason and these words.
    async fn failed(&self, name: &str, reason: &str, words: &str) -> Result<()> {
        let matches = |catalog: &ClusterCatalog| {
            let conditions = catalog.status.clone().unwrap_or_default().conditions;
            condition::find(&conditions, condition::PROGRESSING).is_some_and(|progressing| {
                progressing.reason == reason && progressing.message.contains(words)
            })
        };
        Wait::new(&self.api, name).within(LIMIT).until(&format!("{reason}: {words}"), matches).await?;
        Ok(())
    }

    /// Status, digest header and body of what is served under the name.
    async fn get(&self, name: &str) -> Result<(u16, String, Vec<u8>)> {
        let request = http::Request::get(format!("/catalogs/{name}/api/v1/all"))
            .body(http_body_util::Empty::<bytes::Bytes>::new())?;
        let (head, body) = self.catalogs.handle(request).await.into_parts();
        let digest = head.headers.get("olm-catalog-digest").and_then(|value| value.to_str().ok());
        let body = body.collect().await.map_err(|error| anyhow::anyhow!("{error:?}"))?.to_bytes();
        Ok((head.status.as_u16(), digest.unwrap_or_default().to_owned(), body.to_vec()))
    }

    /// Every file and directory of the store, except those that finished content consists of.
    fn on_disk(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut pending = vec![self.root.path().to_owned()];
        while let Some(directory) = pending.pop() {
            for entry in std::fs::read_dir(&directory)? {
                let path = entry?.path();
                let name = path.strip_prefix(self.root.path())?.display().to_string();
                let content = name.starts_with("content/sha256");
                if path.is_dir() && !content {
                    pending.push(path);
                }
                found.push(name);
            }
        }
        found.sort();
        Ok(found)
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.controller).await.context("the controller does not end")??;
        Ok(())
    }
}

/// Spoils the bytes of one blob; those of `gone` cannot be had at all.
fn spoil(registry: &Registry, blob: &[u8], gone: &[String], reply: impl Fn() -> Reply + Send + 'static) {
    let (path, gone) = (support::digest(blob).to_string(), gone.to_vec());
    registry.hook(move |request: &Request| {
        let asks = |digest: &String| request.target.ends_with(digest.as_str());
        if asks(&path) { Some(reply()) } else { gone.iter().any(asks).then(|| Reply::new(404, "")) }
    });
}

#[tokio::test]
async fn registry_faults_keep_served_content() -> Result<()> {
    let registry = Registry::start().await;
    let mut client = Client::new(&[&registry]);
    client.config.retries.resume = 1;
    client.config.retries.server_error = 1;
    client.config.retries.too_many_requests = 1;
    let world = World::new(&client).await?;
    let good = registry.push("cat", Some("1"), &catalog("good")).to_string();
    create(&world.api, "cat", json!({ "ref": registry.reference("cat:1").to_string() })).await?;
    world.resolved("cat", &good).await?;
    let (code, digest, body) = world.get("cat").await?;
    assert_eq!((code, digest.as_str()), (200, good.as_str()));
    let disk = world.on_disk()?;
    let date = world.api.get("cat").await?.status.and_then(|status| status.last_unpacked);

    let half = |layer: &[u8]| (layer[..layer.len() / 2].to_vec(), layer.len());
    type Damage = Box<dyn Fn(Vec<u8>) -> Reply + Send>;
    let faults: Vec<(&str, Damage, &str)> = vec![
        (
            "cut mid-layer",
            Box::new(move |layer| {
                let (bytes, declared) = half(&layer);
                Reply::body(Body::Cut { bytes, declared })
            }),
            "error copying image: reading blob sha256:",
        ),
        (
            "stalls mid-layer",
            Box::new(move |layer| {
                let (bytes, declared) = half(&layer);
                Reply::body(Body::Stall { bytes, declared })
            }),
            "stalled: ",
        ),
        ("hangs up", Box::new(|_| Reply::body(Body::Hangup)), "error copying image: reading blob sha256:"),
        ("500", Box::new(|_| Reply::new(500, "<html>")), "unexpected HTTP status 500"),
        ("503", Box::new(|_| Reply::new(503, "")), "unexpected HTTP status 503"),
        (
            "429 for an hour",
            Box::new(|_| Reply::new(429, "").header("Retry-After", "3600")),
            "toomanyrequests",
        ),
        ("404", Box::new(|_| Reply::error(404, "BLOB_UNKNOWN")), "blob_unknown"),
        (
            "other bytes",
            Box::new(|mut layer| {
                let last = layer.len() - 1;
                layer[last] ^= 0xff;
                Reply::new(200, layer)
            }),
            "digest mismatch: want sha256:",
        ),
        ("more bytes", Box::new(|layer| Reply::new(200, [layer, vec![0; 10]].concat())), "longer than the"),
        ("no end", Box::new(|_| Reply::body(Body::Endless(vec![b'x'; 4096]))), "error"),
    ];
    let mut gone = Vec::new();
    for (name, fault, words) in faults {
        // New content each time, so that nothing remembered about the last one answers.
        let next = catalog(name);
        let layer = next.layers[0].clone();
        let spoiled = support::digest(&layer).to_string();
        spoil(&registry, &layer.clone(), &gone, move || fault(layer.clone()));
        gone.push(spoiled);
        registry.push("cat", Some("1"), &next);
        request(&world.api, "cat", name).await?;
        world.failed("cat", "Retrying", words).await.context(name)?;
        let now = world.get("cat").await?;
        assert!(now == (200, good.clone(), body.clone()), "{name}: something else is served");
        let status = world.api.get("cat").await?.status.unwrap_or_default();
        assert!(condition::is_true(&status.conditions, condition::SERVING), "{name}");
        assert!(
            status.resolved_source.is_some_and(|source| source.image.reference.ends_with(&good)),
            "{name}"
        );
        assert_eq!(status.last_unpacked, date, "{name}");
        eventually("what failed leaves nothing", LIMIT, || async {
            let now = world.on_disk()?;
            ensure!(now == disk, "{name}: {now:?}");
            Ok(())
        })
        .await?;
    }
    // The registry recovers, and what it has now is served; what failed has left nothing.
    registry.hook(|_| None);
    let last = registry.push("cat", Some("1"), &catalog("last")).to_string();
    request(&world.api, "cat", "last").await?;
    world.resolved("cat", &last).await?;
    assert_eq!(world.get("cat").await?.1, last);
    let expected: Vec<String> = disk.iter().map(|name| name.replace(&good, &last)).collect();
    eventually("nothing else is on disk", LIMIT, || async {
        let disk = world.on_disk()?;
        ensure!(disk == expected, "{disk:?}");
        Ok(())
    })
    .await?;
    // under another name it is there already: the tag is looked up, nothing is pulled
    registry.take_log();
    create(&world.api, "twin", json!({ "ref": registry.reference("cat:1").to_string() })).await?;
    world.resolved("twin", &last).await?;
    let asked = registry.take_log();
    assert!(!asked.is_empty() && !asked.iter().any(|asked| asked.contains("/blobs/")), "{asked:?}");
    world.end().await
}

#[tokio::test]
async fn registry_certificate_is_rejected_until_ca_is_trusted() -> Result<()> {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let registry = Registry::start_with(Some(old.server(None))).await;
    let mut client = Client::new(&[]);
    let cas = client.path("cas");
    std::fs::create_dir(&cas)?;
    std::fs::write(cas.join("ca.crt"), &old.pem)?;
    client.config.certificates =
        CertificateDirs { every_host: Some(cas.clone()), ..CertificateDirs::default() };
    let world = World::new(&client).await?;
    let one = registry.push("cat", Some("1"), &catalog("one")).to_string();
    create(&world.api, "cat", json!({ "ref": registry.reference("cat:1").to_string() })).await?;
    world.resolved("cat", &one).await?;
    let before = world.get("cat").await?;

    registry.set_tls(new.server(None));
    registry.close_after_each(true);
    let two = registry.push("cat", Some("1"), &catalog("two")).to_string();
    // Connections that were open are as good as before; the next one must not be.
    let mut word = 0;
    loop {
        word += 1;
        request(&world.api, "cat", &word.to_string()).await?;
        let words = "certificate signed by unknown authority";
        if world.failed("cat", "Retrying", words).await.is_ok() {
            break;
        }
        ensure!(word < 3, "the old certificate is still accepted");
    }
    assert!(world.get("cat").await? == before, "what was served is served");

    // The file changes without a restart: the next retry succeeds by itself.
    std::fs::write(cas.join("ca.crt"), &new.pem)?;
    request(&world.api, "cat", "trusted").await?;
    world.resolved("cat", &two).await?;
    assert_eq!(world.get("cat").await?.1, two);
    world.end().await
}

/// The requests of each repository, without those of others.
fn asked(log: &[String], repository: &str) -> Vec<String> {
    let path = format!("/v2/{repository}/");
    log.iter().filter(|line| line.contains(&path)).cloned().collect()
}

#[tokio::test]
async fn poll_detects_moved_tag_and_requests_nothing_else() -> Result<()> {
    let registry = Registry::start().await;
    let mut client = Client::new(&[&registry]);
    // requests are counted: none is to be repeated because the machine is slow
    client.config.timeouts.stall = LIMIT;
    client.config.timeouts.slow = LIMIT;
    let world = World::new(&client).await?;
    let one = registry.push("moving", Some("1"), &catalog("one")).to_string();
    let pushed = |name: &str| registry.push(name, Some("1"), &catalog(name)).to_string();
    let (still, pinned, unpolled) = (pushed("still"), pushed("pinned"), pushed("unpolled"));
    let by_tag = |name: &str| registry.reference(&format!("{name}:1")).to_string();
    let by_digest = registry.reference(&format!("pinned@{pinned}")).to_string();
    let began = Instant::now();
    create(&world.api, "moving", json!({ "ref": by_tag("moving"), "pollIntervalMinutes": 1 })).await?;
    create(&world.api, "still", json!({ "ref": by_tag("still"), "pollIntervalMinutes": 1 })).await?;
    create(&world.api, "pinned", json!({ "ref": by_digest })).await?;
    create(&world.api, "unpolled", json!({ "ref": by_tag("unpolled") })).await?;
    for (name, digest) in [("moving", &one), ("still", &still), ("pinned", &pinned), ("unpolled", &unpolled)]
    {
        world.resolved(name, digest).await?;
    }
    let log = registry.take_log();
    assert!(
        !asked(&log, "pinned").iter().any(|line| line.starts_with("HEAD")),
        "a digest needs no resolving"
    );

    // Labels ask the registry for nothing; a change of the spec asks for the digest of the tag (decision 35), and a digest needs none.
    for name in ["moving", "still", "pinned", "unpolled"] {
        merge(&world.api, name, json!({ "metadata": { "labels": { "a": "b" } } })).await?;
        merge(&world.api, name, json!({ "spec": { "priority": 5 } })).await?;
        let current = |catalog: &ClusterCatalog| {
            let conditions = catalog.status.clone().unwrap_or_default().conditions;
            conditions.iter().all(|condition| condition.observed_generation == catalog.metadata.generation)
        };
        Wait::new(&world.api, name).within(LIMIT).until("observed", current).await?;
    }
    let mut log = Vec::new();
    eventually("the tags are resolved again", LIMIT, || {
        log.extend(registry.take_log());
        let resolved = log.len();
        async move {
            ensure!(resolved == 3, "{resolved}");
            Ok(())
        }
    })
    .await?;
    for name in ["moving", "still", "unpolled"] {
        assert_eq!(asked(&log, name), [format!("HEAD /v2/{name}/manifests/1")]);
    }

    // The tag moves and the object stays as it is: the poll finds it after its interval and at most a hundredth more.
    let date = world.api.get("still").await?.status.and_then(|status| status.last_unpacked);
    let two = registry.push("moving", Some("1"), &catalog("two")).to_string();
    eventually("the moved tag is served", LIMIT, || async {
        let digest = world.get("moving").await?.1;
        ensure!(digest == two, "{digest}");
        Ok(())
    })
    .await?;
    // The interval began with the catalog's own pull, after its creation.
    assert!(began.elapsed() >= MINUTE, "{:?}", began.elapsed());
    world.resolved("moving", &two).await?;
    let mut log = registry.take_log();
    eventually("the other tag is polled", LIMIT, || {
        log.extend(registry.take_log());
        let polled = asked(&log, "still");
        async move {
            ensure!(!polled.is_empty(), "not yet");
            Ok(())
        }
    })
    .await?;
    assert_eq!(asked(&log, "still"), ["HEAD /v2/still/manifests/1"], "an unchanged tag costs one request");
    let moved = asked(&log, "moving");
    assert_eq!(moved.iter().filter(|line| line.starts_with("HEAD")).count(), 1, "{moved:?}");
    assert_eq!(moved.len(), 4, "digest, manifest, config and layer: {moved:?}");
    assert_eq!(asked(&log, "pinned"), [""; 0]);
    assert_eq!(asked(&log, "unpolled"), [""; 0]);
    let again = world.api.get("still").await?.status.and_then(|status| status.last_unpacked);
    assert_eq!(again, date, "the same content keeps its date");
    world.end().await
}

impl World {
    /// Waits for an event about a catalog: type, reason, and what its note contains.
    async fn until_event(&self, about: &str, kind: &str, reason: &str, words: &str) -> Result<()> {
        eventually(&format!("{kind} {reason} about {about}: {words}"), LIMIT, || async {
            let events = self.events.list(&ListParams::default()).await?;
            let mut seen = Vec::new();
            for event in events {
                if event.regarding.and_then(|regarding| regarding.name).as_deref() != Some(about) {
                    continue;
                }
                let [of, why, note] = [event.type_, event.reason, event.note].map(Option::unwrap_or_default);
                if of == kind && why == reason && note.contains(words) {
                    return Ok(());
                }
                seen.push(format!("{of} {why} {note}"));
            }
            anyhow::bail!("{seen:#?}")
        })
        .await
    }
}

#[tokio::test]
async fn catalog_events_report_state_changes() -> Result<()> {
    let registry = Registry::start().await;
    let mut client = Client::new(&[&registry]);
    client.config.retries.server_error = 0;
    let world = World::new(&client).await?;
    let one = registry.push("cat", Some("1"), &catalog("one")).to_string();
    let unlabelled = registry.push("bare", None, &Pushed::new([support::layer(&[("a", "b")])])).to_string();
    create(&world.api, "cat", json!({ "ref": registry.reference("cat:1").to_string() })).await?;
    let reference = registry.reference(&format!("bare@{unlabelled}")).to_string();
    create(&world.api, "bare", json!({ "ref": reference })).await?;
    let serving = format!("serving content of {}/cat@{one}", registry.address);
    world.until_event("cat", "Normal", "Unpacked", &serving).await?;
    let missing = "terminal error: catalog image is missing the required label";
    world.until_event("bare", "Warning", "Blocked", missing).await?;
    registry.hook(|_| Some(Reply::new(500, "")));
    request(&world.api, "cat", "1").await?;
    world.until_event("cat", "Warning", "Retrying", "unexpected HTTP status 500").await?;
    registry.hook(|_| None);
    let two = registry.push("cat", Some("1"), &catalog("two")).to_string();
    request(&world.api, "cat", "2").await?;
    world.until_event("cat", "Normal", "Unpacked", &two).await?;
    merge(&world.api, "cat", json!({ "spec": { "availabilityMode": "Unavailable" } })).await?;
    world
        .until_event("cat", "Normal", "UserSpecifiedUnavailable", "availability mode is set to Unavailable")
        .await?;
    merge(&world.api, "cat", json!({ "spec": { "availabilityMode": "Available" } })).await?;
    world.resolved("cat", &two).await?;
    world.api.delete("cat", &DeleteParams::default()).await?;
    Wait::new(&world.api, "cat").within(LIMIT).to_be_gone().await?;
    world.until_event("cat", "Normal", "Unavailable", "content is not served").await?;
    world.end().await
}

#[tokio::test]
async fn pulls_are_limited_per_registry() -> Result<()> {
    let (slow, fast) = (Registry::start().await, Registry::start().await);
    let mut client = Client::new(&[&slow, &fast]);
    client.config.timeouts.stall = LIMIT;
    client.config.timeouts.slow = LIMIT;
    let world = World::new(&client).await?;
    let mut layers = Vec::new();
    for n in 0..6 {
        let name = format!("slow-{n}");
        let image = catalog(&name);
        layers.push(support::digest(&image.layers[0]).to_string());
        slow.push(&name, Some("1"), &image);
    }
    let stalled = layers.clone();
    slow.hook(move |request| {
        let stall = || Reply::body(Body::Stall { bytes: vec![0x1f], declared: 1000 });
        stalled.iter().any(|layer| request.target.ends_with(layer)).then(stall)
    });
    for n in 0..6 {
        let reference = slow.reference(&format!("slow-{n}:1")).to_string();
        create(&world.api, &format!("slow-{n}"), json!({ "ref": reference })).await?;
    }
    let mut asked = Vec::new();
    eventually("two pulls have come to their layers", LIMIT, || {
        asked.extend(slow.take_log());
        let waiting = asked.iter().filter(|line| layers.iter().any(|layer| line.ends_with(layer))).count();
        async move {
            ensure!(waiting >= 2, "{waiting}");
            Ok(())
        }
    })
    .await?;
    let began = Instant::now();
    for n in 0..3 {
        let name = format!("fast-{n}");
        let digest = fast.push(&name, Some("1"), &catalog(&name)).to_string();
        create(&world.api, &name, json!({ "ref": fast.reference(&format!("{name}:1")).to_string() })).await?;
        world.resolved(&name, &digest).await?;
        assert_eq!(world.get(&name).await?.0, 200);
    }
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    asked.extend(slow.take_log());
    let waiting = asked.iter().filter(|line| layers.iter().any(|layer| line.ends_with(layer))).count();
    assert_eq!(waiting, 2, "two places for one registry: {asked:#?}");
    // A look that is stopped ends its pull too.
    world.end().await
}

/// A registry that rejects unknown clients for an hour: only a change of the Secret ends that sooner, and a removed
/// password is not used again.
#[tokio::test(flavor = "multi_thread")]
async fn pull_secrets_are_read_before_each_pull_and_trigger_retries() -> Result<()> {
    let registry = Registry::start().await;
    registry.hook(|request| {
        let known = request.header("authorization") == Some("Basic dXNlcjpwYXNzd29yZA==");
        let denied = Reply::error(401, "UNAUTHORIZED")
            .header("WWW-Authenticate", "Basic")
            .header("Retry-After", "3600");
        (!known).then_some(denied)
    });
    let mut client = Client::new(&[&registry]);
    let keyring = SharedKeyring::default();
    client.config.credentials.shared = Some(keyring.clone());
    let place = NamespacedName { namespace: "default".to_owned(), name: "registry".to_owned() };
    let world = World::with_secret(&client, Some(place), keyring).await?;
    let secrets: Api<Secret> = Api::namespaced(world.api.clone().into_client(), "default");
    let entry =
        json!({ "auths": { registry.address.to_string(): { "username": "user", "password": "password" } } });
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "registry"}, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": entry.to_string()},
    }))?;

    let one = registry.push("cat", Some("1"), &catalog("one")).to_string();
    let by_digest = format!("{}@{one}", registry.reference("cat:1").name());
    create(&world.api, "by-digest", json!({ "ref": by_digest })).await?;
    world.failed("by-digest", "Retrying", "unauthorized").await?;
    secrets.create(&PostParams::default(), &secret).await?;
    world.changed.send(()).await?;
    world.resolved("by-digest", &one).await?;

    secrets.delete("registry", &DeleteParams::default()).await?;
    let two = registry.push("cat", Some("2"), &catalog("two")).to_string();
    create(&world.api, "by-tag", json!({ "ref": registry.reference("cat:2").to_string() })).await?;
    world.failed("by-tag", "Retrying", "unauthorized").await?;
    secrets.create(&PostParams::default(), &secret).await?;
    world.changed.send(()).await?;
    world.resolved("by-tag", &two).await?;
    world.end().await
}
