//! What a package costs when nothing of it is in memory: from catalogd over HTTP, and from the cache on disk.
//!
//! `cargo bench -p olm-client --bench cold`. The server is a stand-in on loopback that sends the bytes that catalogd would; the
//! package is the largest of the real ones in `../shared/data/catalog`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints figures and may panic")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use olm_client::catalogd::Endpoint;
use olm_client::{PackageContent, PackageStore, Route, served};
use olm_core::PackageName;
use olm_fbc::{IngestLimits, load_dir};
use olm_resolver::ReleaseField;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const ROUNDS: u32 = 40;
const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

fn main() {
    let shared = std::env::var_os("OLM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let Ok(catalog) = load_dir(&shared.join("data/catalog"), IngestLimits::default()) else {
        println!("SKIPPED: there is no {}/data/catalog", shared.display());
        return;
    };
    let lines = |package: &str| catalog.package_lines(package).collect::<Vec<_>>().join(&b'\n');
    let largest = catalog.packages().into_iter().max_by_key(|package| lines(package).len()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(largest.parse().unwrap(), lines(largest)));
}

async fn measure(package: PackageName, lines: Vec<u8>) {
    olm_runtime::tls::install_provider();
    println!("{package}: {} KiB", lines.len() / 1024);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/catalogs/c", listener.local_addr().unwrap());
    let served_lines = lines.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let said = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                served_lines.len()
            );
            let _ = stream.write_all(said.as_bytes()).await;
            let _ = stream.write_all(&served_lines).await;
        }
    });
    let route = Route::Direct(reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap());
    let endpoint =
        Endpoint { catalog: "c".parse().unwrap(), base, resolved: format!("example.com/c@{DIGEST}") };
    let dir = tempfile::tempdir().unwrap();
    let store = PackageStore::new(dir.path(), olm_client::package_store::DEFAULT_BYTES);

    let mut cold = Vec::new();
    let mut disk = Vec::new();
    let mut graph = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let read = served::package_lines(&route, None, &endpoint, &package).await.unwrap();
        let built = PackageContent::from_lines(&package, &read).graph(ReleaseField::Counts);
        cold.push(start.elapsed());
        assert!(!built.is_empty());

        served::package_lines(&route, Some(&store), &endpoint, &package).await.unwrap();
        let start = Instant::now();
        let read = served::package_lines(&route, Some(&store), &endpoint, &package).await.unwrap();
        let built = PackageContent::from_lines(&package, &read).graph(ReleaseField::Counts);
        disk.push(start.elapsed());
        assert!(!built.is_empty());

        let start = Instant::now();
        let built = PackageContent::from_lines(&package, &lines).graph(ReleaseField::Counts);
        graph.push(start.elapsed());
        assert!(!built.is_empty());
    }
    for (what, mut times) in [("HTTP and graph", cold), ("disk and graph", disk), ("graph alone", graph)] {
        times.sort();
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or(Duration::ZERO);
        println!("{what}: median {:.2?}, p90 {:.2?}", at(50), at(90));
    }
}
