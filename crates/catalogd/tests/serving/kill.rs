//! A writer that is killed at any instant: what a restart serves is whole, and it is one of the versions written.
//!
//! The test starts itself again as the writer (`STORE_OF_A_WRITER_TO_BE_KILLED`), kills it after a while that differs each
//! time, and looks at what is on disk. In the same way a process is killed while it reads an image from a registry: the
//! second time is the last.

#[expect(clippy::unwrap_used, reason = "part of a test, and a test may panic")]
#[path = "../../../olm-oci/tests/registry/support/mod.rs"]
pub(crate) mod support;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use catalogd::controller::credentials::Credentials;
use catalogd::controller::fetch::{Fetch, History};
use catalogd::store::{Blob, COMPRESS_BEFORE_SERVING, Content, Served, Store};
use olm_fbc::IngestLimits;
use olm_oci::{Config, Limits, Puller, RegistriesFiles, SharedKeyring};
use support::{Body, Client, Pushed, Registry, Reply};

const STORE: &str = "STORE_OF_A_WRITER_TO_BE_KILLED";
/// Set for a writer that waits, until it is killed, between a large version and its compressed copies.
const WAITS_BEFORE_COPIES: &str = "WRITER_WAITS_BEFORE_COPIES";
const KILLS: u32 = 50;

/// Every second version is so large that its compressed copies are made after it is served.
fn lines(version: u64) -> String {
    let count = if version.is_multiple_of(2) { COMPRESS_BEFORE_SERVING / 200 } else { 400 };
    (0..count)
        .map(|n| {
            format!(
                "{{\"name\":\"b{n}\",\"pad\":\"{}\",\"schema\":\"olm.bundle\",\"v\":{version}}}\n",
                "x".repeat(200)
            )
        })
        .collect()
}

/// Stores and publishes a version. Its compressed copies may be missing.
fn publish_version(store: &Store, version: u64) -> Result<Arc<Content>> {
    let digest = format!("sha256:{version:064x}").parse()?;
    let staging = store.stage(store.lease(&digest))?;
    let mut ingest = olm_fbc::Ingest::new(staging.spool()?, IngestLimits::default());
    let lines = lines(version);
    // large versions come in another order than they are served in
    let half = lines.find('\n').filter(|_| version.is_multiple_of(2)).map_or(0, |end| end + 1);
    ingest.file("b.json", &mut &lines.as_bytes()[half..])?;
    ingest.file("a.json", &mut &lines.as_bytes()[..half])?;
    let (content, _lease) = staging.commit(ingest.finish()?)?;
    let last_unpacked = i64::try_from(version)?;
    let served = Served { content: content.clone(), reference: String::new(), source: None, last_unpacked };
    store.publish("cat", served)?;
    store.collect(None)?;
    Ok(content)
}

/// The progress of a writer at which the test kills it.
#[derive(Clone, Copy)]
enum Progress {
    /// It writes a version.
    Writing,
    /// It has published a version of the second, large kind that is later than this, and waits before it makes the copies.
    Published(u64),
}

impl Progress {
    fn reached(self, root: &Path) -> bool {
        match self {
            Self::Writing => std::fs::read_dir(root.join("staging")).is_ok_and(|entries| entries.count() > 0),
            Self::Published(last) => {
                published(root).is_some_and(|version| version > last && version.is_multiple_of(2))
            }
        }
    }
}

/// The published version.
fn published(root: &Path) -> Option<u64> {
    let text = std::fs::read(root.join("names/cat")).ok()?;
    serde_json::from_slice::<serde_json::Value>(&text).ok()?["lastUnpacked"].as_u64()
}

/// Not a test of its own: the writer, when the test below starts it.
#[test]
fn writer() -> Result<()> {
    let Some(root) = std::env::var_os(STORE) else { return Ok(()) };
    let (store, _) = Store::open(Path::new(&root))?;
    let first = store.get("cat").map_or(0, |served| served.last_unpacked);
    let waits = std::env::var_os(WAITS_BEFORE_COPIES).is_some();
    for version in u64::try_from(first)? + 1.. {
        let content = publish_version(&store, version)?;
        while waits && version.is_multiple_of(2) {
            std::thread::park();
        }
        store.request_zstd(&content);
        store.compress(&content, &|| false)?;
    }
    Ok(())
}

#[test]
fn kill_leaves_whole_content() -> Result<()> {
    let root = tempfile::tempdir()?;
    {
        let (store, _) = Store::open(root.path())?;
        let content = publish_version(&store, 1)?;
        store.compress(&content, &|| false)?;
    }
    let (mut last, mut without_copies) = (1, 0);
    for round in 0..KILLS {
        // In every fifth round the copies are missing. In the others it is killed after a time that differs each time.
        let before_copies = round % 5 == 4;
        let mut writer = Command::new(std::env::current_exe()?);
        writer
            .args(["--exact", "kill::writer"])
            .env(STORE, root.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if before_copies {
            writer.env(WAITS_BEFORE_COPIES, "1");
        }
        let mut writer = writer.spawn()?;
        let progress = if before_copies { Progress::Published(last) } else { Progress::Writing };
        let deadline = Instant::now() + LIMIT;
        while !progress.reached(root.path()) {
            ensure!(writer.try_wait()?.is_none(), "round {round}: the writer ended by itself");
            ensure!(Instant::now() < deadline, "round {round}: the writer does nothing");
            std::thread::yield_now();
        }
        let until = Instant::now() + Duration::from_micros(u64::from(round) * 7_919 % 60_000);
        while Instant::now() < until {
            std::thread::yield_now();
        }
        writer.kill()?;
        writer.wait()?;

        let (store, opened) = Store::open(root.path()).with_context(|| format!("round {round}"))?;
        ensure!(opened.lost.is_empty(), "round {round}: {:?}", opened.lost);
        let served = store.get("cat").with_context(|| format!("round {round}: nothing is served"))?;
        served.content.verify().with_context(|| format!("round {round}"))?;
        let version = u64::try_from(served.last_unpacked)?;
        ensure!(version >= last, "round {round}: went back from {last} to {version}");
        let mut body = vec![0; usize::try_from(served.content.jsonl().size())?];
        served.content.jsonl().read_at(&mut body, 0)?;
        ensure!(body == lines(version).as_bytes(), "round {round}: not what was written");
        if served.content.lacks_copies() {
            without_copies += 1;
            store.compress(&served.content, &|| false)?;
        }
        ensure!(unzipped(&served.content)? == body, "round {round}: the copy is not what was written");
        if let Some(copy) = served.content.zstd() {
            let plain = zstd::decode_all(bytes_of(copy)?.as_slice())?;
            ensure!(plain == body, "round {round}: the zstd copy is not what was written");
        }
        last = version;
        store.collect(None)?;
        for (folder, want) in [("content", 1), ("staging", 0), ("names", 1)] {
            let count = std::fs::read_dir(root.path().join(folder))?.count();
            ensure!(count == want, "round {round}: {count} entries in {folder}");
        }
    }
    ensure!(last > 1, "no writer ever finished a version");
    ensure!(without_copies >= KILLS / 5, "copies were missing in {without_copies} rounds only");
    Ok(())
}

/// What clients make of the gzip copy.
fn unzipped(content: &Content) -> Result<Vec<u8>> {
    let copy = content.gzip().context("no gzip copy")?;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes_of(copy)?.as_slice()).read_to_end(&mut plain)?;
    Ok(plain)
}

fn bytes_of(file: &Blob) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.size())?];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

const READ: &str = "STORE_OF_A_READER_TO_BE_KILLED";
const REGISTRIES: &str = "REGISTRIES_OF_A_READER";
const REFERENCE: &str = "REFERENCE_OF_A_READER";
pub(crate) const LABEL: &str = "operators.operatorframework.io.index.configs.v1";
const LIMIT: Duration = Duration::from_secs(60);

/// What pulls into `root`, as catalogd does.
pub(crate) fn fetch(root: &Path, registries: &Path) -> Result<Fetch> {
    olm_runtime::tls::install_provider();
    let (store, _) = Store::open(root)?;
    // without pull secrets the API server is not asked
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse()?))?;
    let credentials = Credentials::new(client, None, None, SharedKeyring::default());
    let registries = RegistriesFiles { file: Some(registries.to_owned()), ..RegistriesFiles::default() };
    let puller = Puller::new(Config { registries, ..Config::default() });
    Ok(Fetch::new(puller, credentials, store))
}

/// Not a test of its own: the process that reads an image, when the test below starts it.
#[tokio::test]
async fn reader() -> Result<()> {
    let Some(root) = std::env::var_os(READ) else { return Ok(()) };
    let registries = std::env::var_os(REGISTRIES).context("no registries")?;
    let fetch = fetch(Path::new(&root), Path::new(&registries))?;
    let fetched = fetch.by_reference(&std::env::var(REFERENCE)?, None, History::Counts(None)).await;
    fetched.map(drop).map_err(|problem| anyhow::anyhow!(problem.message))
}

pub(crate) fn count(root: &Path, folder: &str) -> usize {
    std::fs::read_dir(root.join(folder)).map_or(0, Iterator::count)
}

async fn until(what: &str, limit: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, waiting).await.with_context(|| format!("not within {limit:?}: {what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_by_an_image_twice_makes_it_refused() -> Result<()> {
    let registry = Registry::start().await;
    let client = Client::new(&[&registry]);
    let push = |name: &str| {
        let layer = support::layer(&[("configs/c.json", &format!("{{\"name\":\"{name}\"}}"))]);
        let digest = registry.push("cat", Some("1"), &Pushed::new([layer.clone()]).label(LABEL, "/configs"));
        (digest.to_string(), layer)
    };
    let (digest, layer) = push("one");
    let blob = support::digest(&layer).to_string();
    registry.hook(move |request| {
        let stall = || Reply::body(Body::Stall { bytes: layer[..9].to_vec(), declared: layer.len() });
        request.target.ends_with(&blob).then(stall)
    });
    let reference = registry.reference("cat:1").to_string();
    let root = tempfile::tempdir()?;
    for round in 0..2 {
        let mut reader = Command::new(std::env::current_exe()?)
            .args(["--exact", "kill::reader"])
            .env(READ, root.path())
            .env(REGISTRIES, client.path("registries.conf"))
            .env(REFERENCE, &reference)
            .stdout(Stdio::null())
            .spawn()?;
        let reads = until("an image is read", LIMIT, || count(root.path(), "staging") > 0).await;
        reader.kill()?;
        reader.wait()?;
        reads.with_context(|| format!("round {round}"))?;
        // what the next start does; the test has to see the next reader's directory
        std::fs::remove_dir_all(root.path().join("staging"))?;
    }

    registry.hook(|_| None);
    registry.take_log();
    let fetch = fetch(root.path(), &client.path("registries.conf"))?;
    let problem = fetch.by_reference(&reference, None, History::Counts(None)).await.map(drop).unwrap_err();
    let want = format!(
        "error storing fbc: catalogd ended 2 times without a shutdown while it read the image {digest} (memory limit, kill \
         or crash), so the image is not read again; publish another image, or raise the memory limit and change the annotation \
         olm.operatorframework.io/requested-at"
    );
    assert_eq!((problem.message.as_str(), problem.quarantined), (want.as_str(), true));
    // a replica that never read it takes the status's word, and reads it alone when the user asks for it
    let elsewhere = tempfile::tempdir()?;
    let other_replica = self::fetch(elsewhere.path(), &client.path("registries.conf"))?;
    let history = History::Counts(Some(&want));
    let refused = other_replica.by_reference(&reference, None, history).await.map(drop).unwrap_err();
    assert_eq!(refused, problem);
    let asked = registry.take_log();
    ensure!(!asked.iter().any(|asked| asked.contains("/blobs/")), "{asked:?}");
    // another image is read, and so is this one when the user asks for it
    let (other, _) = push("two");
    for fetch in [&fetch, &other_replica] {
        let fetched = fetch.by_reference(&reference, None, history).await;
        let fetched = fetched.map_err(|problem| anyhow::anyhow!(problem.message))?;
        ensure!(fetched.reference.ends_with(&other), "{}", fetched.reference);
    }
    push("one");
    let fetched = fetch
        .by_reference(&reference, None, History::Ignored)
        .await
        .map_err(|problem| anyhow::anyhow!(problem.message))?;
    ensure!(fetched.reference.ends_with(&digest), "{}", fetched.reference);
    ensure!(count(root.path(), "attempts") == 0, "a record is left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_by_an_image_makes_it_read_alone() -> Result<()> {
    let registry = Registry::start().await;
    let client = Client::new(&[&registry]);
    let push = |name: &str| {
        let layer = support::layer(&[("configs/c.json", &format!("{{\"name\":\"{name}\"}}"))]);
        let image = Pushed::new([layer.clone()]).label(LABEL, "/configs");
        let digest = registry.push(name, Some("1"), &image).to_string();
        (registry.reference(&format!("{name}:1")).to_string(), digest, support::digest(&layer).to_string())
    };
    let ((slow, _, blob), (suspect, digest, _)) = (push("slow"), push("suspect"));
    registry.hook(move |request| {
        let stall = || Reply::body(Body::Stall { bytes: vec![0x1f], declared: 100 });
        request.target.ends_with(&blob).then(stall)
    });
    let root = tempfile::tempdir()?;
    let fetch = Arc::new(fetch(root.path(), &client.path("registries.conf"))?);
    std::fs::write(root.path().join("attempts").join(digest), "1")?;
    let reading = tokio::spawn({
        let fetch = Arc::clone(&fetch);
        async move { fetch.by_reference(&slow, None, History::Counts(None)).await.map(drop) }
    });
    until("an image is read", LIMIT, || count(root.path(), "staging") == 1).await?;
    let beside = fetch.by_reference(&suspect, None, History::Counts(None));
    ensure!(tokio::time::timeout(Duration::from_millis(500), beside).await.is_err(), "read beside another");
    reading.abort();
    let alone = fetch.by_reference(&suspect, None, History::Counts(None)).await;
    alone.map(drop).map_err(|problem| anyhow::anyhow!(problem.message))
}

/// Two of each registry could be read, but no more than four of all.
#[tokio::test(flavor = "multi_thread")]
async fn pulls_are_limited_over_all_registries() -> Result<()> {
    let registries = [Registry::start().await, Registry::start().await, Registry::start().await];
    let [first, second, third] = &registries;
    let client = Client::new(&[first, second, third]);
    let mut references = Vec::new();
    for (at, registry) in registries.iter().enumerate() {
        let mut blobs = Vec::new();
        for name in ["a", "b"] {
            let layer = support::layer(&[("configs/c.json", &format!("{{\"name\":\"{name}{at}\"}}"))]);
            blobs.push(support::digest(&layer).to_string());
            registry.push(name, Some("1"), &Pushed::new([layer]).label(LABEL, "/configs"));
            references.push(registry.reference(&format!("{name}:1")).to_string());
        }
        registry.hook(move |request| {
            let stall = || Reply::body(Body::Stall { bytes: vec![0x1f], declared: 100 });
            blobs.iter().any(|blob| request.target.ends_with(blob)).then(stall)
        });
    }
    let root = tempfile::tempdir()?;
    let fetch = Arc::new(fetch(root.path(), &client.path("registries.conf"))?);
    let mut pulls = tokio::task::JoinSet::new();
    for reference in references {
        let fetch = Arc::clone(&fetch);
        pulls.spawn(
            async move { fetch.by_reference(&reference, None, History::Counts(None)).await.map(drop) },
        );
    }
    let read = || count(root.path(), "staging");
    until("four images are read", LIMIT, || read() == 4).await?;
    // time for the others, if they could begin
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(read() == 4 && pulls.len() == 6, "{} images are read, {} pulls run", read(), pulls.len());
    pulls.abort_all();
    Ok(())
}

/// Patterns and names that keep the matcher busy for seconds.
#[tokio::test(flavor = "multi_thread")]
async fn kill_of_a_waiting_task_stops_its_ingest() -> Result<()> {
    let registry = Registry::start().await;
    let client = Client::new(&[&registry]);
    let names: Vec<String> = (1000..2000).map(|n| format!("configs/{}{n}", "a".repeat(80))).collect();
    let patterns = format!("{}b\n", "*a".repeat(40)).repeat(10_000);
    let mut files = vec![("configs/.indexignore", patterns.as_str()), ("configs/c.json", "{}")];
    files.extend(names.iter().map(|name| (name.as_str(), "")));
    let layer = support::layer(&files);
    registry.push("cat", Some("1"), &Pushed::new([layer.clone()]).label(LABEL, "/configs"));
    let reference = registry.reference("cat:1").to_string();
    let root = tempfile::tempdir()?;
    let limits = IngestLimits { match_steps: u64::MAX, ..IngestLimits::default() };
    let fetch = fetch(root.path(), &client.path("registries.conf"))?.with_limits(Limits::default(), limits);
    let busy =
        tokio::spawn(
            async move { fetch.by_reference(&reference, None, History::Counts(None)).await.map(drop) },
        );
    // written when the last file has been read
    let is_written = |dir: &Path| std::fs::metadata(dir.join("spool")).is_ok_and(|spool| spool.len() > 0);
    until("files are matched", LIMIT, || {
        let writers = std::fs::read_dir(root.path().join("staging"));
        writers.is_ok_and(|mut dirs| dirs.any(|dir| dir.is_ok_and(|dir| is_written(&dir.path()))))
    })
    .await?;
    ensure!(count(root.path(), "attempts") == 1, "no attempt is recorded");
    ensure!(!busy.is_finished(), "the image is read too fast: {:?}", busy.await?);
    busy.abort();
    until("the threads have ended", Duration::from_secs(2), || count(root.path(), "staging") == 0).await?;
    ensure!(count(root.path(), "attempts") == 0, "an attempt that was given up counts");
    Ok(())
}
