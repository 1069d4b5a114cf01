//! A writer that is killed at any instant: what a restart serves is whole, and it is one of the versions written.
//!
//! The test starts itself again as the writer (`STORE_OF_A_WRITER_TO_BE_KILLED`), kills it after a while that differs each
//! time, and looks at what is on disk.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use catalogd::store::{COMPRESS_AT_ONCE, Content, Served, Store};

const STORE: &str = "STORE_OF_A_WRITER_TO_BE_KILLED";
const KILLS: u32 = 50;

/// Every second version is so large that its compressed copies are made after it is served.
fn lines(version: u64) -> String {
    let count = if version.is_multiple_of(2) { COMPRESS_AT_ONCE / 200 } else { 400 };
    (0..count)
        .map(|n| {
            format!(
                "{{\"name\":\"b{n}\",\"pad\":\"{}\",\"schema\":\"olm.bundle\",\"v\":{version}}}\n",
                "x".repeat(200)
            )
        })
        .collect()
}

fn store_version(store: &Store, version: u64) -> Result<()> {
    let digest = format!("sha256:{version:064x}").parse()?;
    let staging = store.stage(store.lease(&digest))?;
    let mut ingest = olm_fbc::Ingest::new(staging.spool()?, olm_fbc::IngestLimits::default());
    ingest.file("catalog.json", &mut lines(version).as_bytes())?;
    let (content, _lease) = staging.commit(ingest.finish()?)?;
    let last_unpacked = i64::try_from(version)?;
    let served = Served { content: content.clone(), reference: String::new(), source: None, last_unpacked };
    store.publish("cat", served)?;
    store.collect(None)?;
    store.compress(&content, &|| false)?;
    Ok(())
}

/// What a writer has come to.
#[derive(Clone, Copy)]
enum Sign {
    /// It has begun a version.
    Writing,
    /// It has published a later version than this.
    Published(u64),
}

impl Sign {
    fn shown(self, root: &Path) -> bool {
        match self {
            Self::Writing => std::fs::read_dir(root.join("staging")).is_ok_and(|entries| entries.count() > 0),
            Self::Published(seen) => std::fs::read_to_string(root.join("names/cat"))
                .is_ok_and(|text| !text.contains(&format!("\"lastUnpacked\":{seen}}}"))),
        }
    }
}

/// Not a test of its own: the writer, when the test below starts it.
#[test]
fn writer() -> Result<()> {
    let Some(root) = std::env::var_os(STORE) else { return Ok(()) };
    let (store, _) = Store::open(Path::new(&root))?;
    let first = store.get("cat").map_or(0, |served| served.last_unpacked);
    for version in u64::try_from(first)? + 1.. {
        store_version(&store, version)?;
    }
    Ok(())
}

#[test]
fn a_kill_at_any_instant_leaves_whole_content() -> Result<()> {
    let root = tempfile::tempdir()?;
    {
        let (store, _) = Store::open(root.path())?;
        store_version(&store, 1)?;
    }
    let (mut seen, mut without_copies) = (1, 0);
    for round in 0..KILLS {
        let mut writer = Command::new(std::env::current_exe()?)
            .args(["--exact", "kill::writer"])
            .env(STORE, root.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Wait until it writes (in some rounds: until it has published), then a while that differs each time.
        let sign = if round % 5 == 4 { Sign::Published(seen) } else { Sign::Writing };
        let patience = Instant::now() + Duration::from_secs(60);
        while !sign.shown(root.path()) {
            ensure!(writer.try_wait()?.is_none(), "round {round}: the writer ended by itself");
            ensure!(Instant::now() < patience, "round {round}: the writer does nothing");
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
        ensure!(version >= seen, "round {round}: went back from {seen} to {version}");
        let mut body = vec![0; usize::try_from(served.content.jsonl().size())?];
        served.content.jsonl().read_at(&mut body, 0)?;
        ensure!(body == lines(version).as_bytes(), "round {round}: not what was written");
        if served.content.lacks_copies() {
            without_copies += 1;
            store.compress(&served.content, &|| false)?;
        }
        ensure!(unzipped(&served.content)? == body, "round {round}: the copy is not what was written");
        seen = version;
        store.collect(None)?;
        for (folder, want) in [("content", 1), ("staging", 0), ("names", 1)] {
            let count = std::fs::read_dir(root.path().join(folder))?.count();
            ensure!(count == want, "round {round}: {count} entries in {folder}");
        }
    }
    ensure!(seen > 1, "no writer ever finished a version");
    ensure!(without_copies > 0, "no writer was ever killed before its copies were made");
    Ok(())
}

/// What clients make of the gzip copy.
fn unzipped(content: &Content) -> Result<Vec<u8>> {
    let copy = content.gzip().context("no gzip copy")?;
    let mut packed = vec![0; usize::try_from(copy.size())?];
    copy.read_at(&mut packed, 0)?;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut plain)?;
    Ok(plain)
}
