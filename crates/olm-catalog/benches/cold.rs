//! The cost of reading a package that is not in memory: from catalogd over HTTP, and from the cache on disk.
//!
//! `cargo bench -p olm-catalog --bench cold`. The server is a stand-in on loopback that sends the bytes that catalogd would; the
//! packages are the largest of a generated catalog, whose figures `make bench` checks, and the largest of the real ones in
//! `../shared/data/catalog`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints figures and may panic")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use olm_catalog::catalogd::Endpoint;
use olm_catalog::{PackageContent, PackageStore, Route, served};
use olm_core::PackageName;
use olm_fbc::testing::{Format, generate};
use olm_fbc::{IngestLimits, load_dir};
use olm_resolver::ReleaseField;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const ROUNDS: u32 = 40;
const WHAT: [&str; 3] = ["HTTP and graph", "disk and graph", "graph alone"];
const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

fn main() {
    olm_runtime::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let made = tempfile::tempdir().unwrap();
    generate(10 << 20, Format::Json, 1, |path, text| {
        let path = made.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    });
    let (package, lines) = largest(made.path());
    let medians = runtime.block_on(measure(package, lines));
    for (what, median) in WHAT.iter().zip(medians).take(2) {
        println!("figure: {:.4} cold: {what}", median.as_secs_f64() / medians[2].as_secs_f64());
    }

    let shared = std::env::var_os("OLM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let real = shared.join("data/catalog");
    if real.is_dir() {
        let (package, lines) = largest(&real);
        runtime.block_on(measure(package, lines));
    } else {
        println!("SKIPPED: there is no {}", real.display());
    }
}

/// The package of that catalog with most bytes.
fn largest(folder: &Path) -> (PackageName, Vec<u8>) {
    let catalog = load_dir(folder, IngestLimits::default()).unwrap();
    let lines = |package: &str| catalog.package_lines(package).collect::<Vec<_>>().join(&b'\n');
    let largest = catalog.packages().into_iter().max_by_key(|package| lines(package).len()).unwrap();
    (largest.parse().unwrap(), lines(largest))
}

/// Prints and returns how long each of [`WHAT`] takes.
async fn measure(package: PackageName, lines: Vec<u8>) -> [Duration; 3] {
    println!("{package}: {} KiB", lines.len() / 1024);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/catalogs/c", listener.local_addr().unwrap());
    let served_lines = lines.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                served_lines.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&served_lines).await;
        }
    });
    let route = Route::Direct(reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap());
    let endpoint =
        Endpoint { catalog: "c".parse().unwrap(), base, resolved: format!("example.com/c@{DIGEST}") };
    let dir = tempfile::tempdir().unwrap();
    let store = PackageStore::new(dir.path(), olm_catalog::package_store::DEFAULT_BYTES);

    let mut cold = Vec::new();
    let mut disk = Vec::new();
    let mut graph = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let read =
            served::package_lines(&route, None, &endpoint, &package, olm_catalog::catalogd::MAX_PACKAGE)
                .await
                .unwrap();
        let built = PackageContent::from_lines(&package, &read).unwrap().into_graph(ReleaseField::Counts);
        cold.push(start.elapsed());
        assert!(!built.is_empty());

        served::package_lines(&route, Some(&store), &endpoint, &package, olm_catalog::catalogd::MAX_PACKAGE)
            .await
            .unwrap();
        let start = Instant::now();
        let read = served::package_lines(
            &route,
            Some(&store),
            &endpoint,
            &package,
            olm_catalog::catalogd::MAX_PACKAGE,
        )
        .await
        .unwrap();
        let built = PackageContent::from_lines(&package, &read).unwrap().into_graph(ReleaseField::Counts);
        disk.push(start.elapsed());
        assert!(!built.is_empty());

        let start = Instant::now();
        let built = PackageContent::from_lines(&package, &lines).unwrap().into_graph(ReleaseField::Counts);
        graph.push(start.elapsed());
        assert!(!built.is_empty());
    }
    let mut all = [cold, disk, graph];
    for (what, times) in WHAT.iter().zip(&mut all) {
        times.sort();
        println!("{what}: median {:.2?}, p90 {:.2?}", times[times.len() / 2], times[times.len() * 9 / 10]);
    }
    all.map(|times| times[times.len() / 2])
}
