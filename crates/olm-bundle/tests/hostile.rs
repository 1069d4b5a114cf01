//! Hostile bundles, a few kilobytes when compressed, that would fill the memory of the process. A test program of its own,
//! so that its peak memory is that of these bundles.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test, also in its helpers"
)]

use std::time::{Duration, Instant};

use olm_bundle::RegistryV1;

/// Bytes of the manifest, a little less than a bundle may have.
const BYTES: usize = (16 << 20) - 4096;
/// KiB that the process may need: a few copies of the text and half a million nodes. Without a limit on nodes it is 1.5 GiB.
const PEAK: u64 = 320 * 1024;
/// Far above the milliseconds that an optimised build needs, far below the seconds that reading all of it takes.
const LONGEST: Duration = Duration::from_secs(10);

/// Peak resident memory in KiB, where the system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn error(manifest: String) -> String {
    let files = [
        (
            "metadata/annotations.yaml",
            "annotations: {operators.operatorframework.io.bundle.package.v1: p}".to_owned(),
        ),
        (
            "manifests/csv.yaml",
            "{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: p.v1}}"
                .to_owned(),
        ),
        ("manifests/bomb.yaml", manifest),
    ];
    RegistryV1::from_files(files).unwrap_err().to_string()
}

/// The part, as often as it fits.
fn filled(head: &str, part: &str, tail: &str) -> String {
    format!("{head}{}{tail}", part.repeat((BYTES - head.len() - tail.len()) / part.len()))
}

#[test]
fn bundle_nodes_are_limited_before_memory_is_spent() {
    let nested = format!("{}0{}", "{\"a\":".repeat(100), "}".repeat(100));
    for (name, manifest) in [
        ("JSON objects", filled(r#"{"kind":"ConfigMap","data":["#, r#"{"a":0},"#, "0]}")),
        ("JSON objects in objects", filled(r#"{"kind":"ConfigMap","data":["#, &format!("{nested},"), "0]}")),
        ("YAML flow objects", filled("kind: ConfigMap\ndata: [", "{\"a\":0},", "0]\n")),
        ("YAML block objects", filled("kind: ConfigMap\ndata:\n", "- a: 0\n", "- 0\n")),
        ("documents", filled("kind: ConfigMap\n", "---\na: 0\n", "")),
    ] {
        let began = Instant::now();
        let text = error(manifest);
        let took = began.elapsed();
        let limit = match name {
            "documents" => "more documents than the limit of 10000",
            _ => "the bundle has more than 500000 nodes (values and keys) in its files, counted up to \"manifests/bomb.yaml\"",
        };
        assert!(text.contains(limit), "{name}: {text}");
        let Some(peak) = peak() else {
            println!("SKIPPED: this system does not report the peak memory of a process");
            continue;
        };
        println!("{name}: refused after {took:?}, {peak} KiB at the peak so far");
        assert!(peak < PEAK, "{name}: {peak} KiB at the peak");
        assert!(took < LONGEST, "{name}: refused after {took:?}");
    }
}
