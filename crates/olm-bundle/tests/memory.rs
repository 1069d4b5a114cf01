//! A process that renders bundle after bundle does not grow: what 500 bundles leave behind is what 100 leave behind.
//!
//! The real bundles of the shared sample where it is at hand, and generated ones. A test program of its own, so that nothing
//! else moves its memory.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test, also in its helpers"
)]

use std::path::{Path, PathBuf};

use olm_bundle::{CertProvider, InstallMode, RegistryV1, RenderOptions, inspect, lint, render};
use serde_json::{Map, Value, json};

const FEW: usize = 100;
const MANY: usize = 500;
/// KiB that may remain between the two: what an allocator keeps in pieces, less than one large bundle.
const SLACK: u64 = 24 * 1024;

/// Resident memory in KiB, where the system reports it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn real() -> Vec<PathBuf> {
    let given = std::env::var_os("OLM_SHARED").map(PathBuf::from);
    let shared = given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let Ok(packages) = std::fs::read_dir(shared.join("data/bundles")) else {
        println!("SKIPPED: no shared data for a part of this test; generated bundles are used alone");
        return Vec::new();
    };
    let versions = packages.flat_map(|package| std::fs::read_dir(package.unwrap().path()).unwrap());
    let mut found: Vec<PathBuf> = versions.map(|version| version.unwrap().path()).collect();
    found.sort();
    found
}

/// A bundle whose size and content depend on its number.
fn generated(number: usize) -> RegistryV1 {
    let crd = format!("things{number}.example.com");
    let properties: Map<String, Value> = (0..20 + number % 300)
        .map(|field| {
            (format!("field{field}"), json!({"type": "string", "description": format!("{number} {field}")}))
        })
        .collect();
    #[rustfmt::skip]
    let files = [
        ("metadata/annotations.yaml", "annotations: {operators.operatorframework.io.bundle.package.v1: p}".to_owned()),
        (
            "manifests/csv.yaml",
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                "metadata": {"name": format!("p.v{number}.0.0")},
                "spec": {
                    "installModes": [{"type": "AllNamespaces", "supported": true}],
                    "customresourcedefinitions": {"owned": [{"name": crd}]},
                    "install": {"spec": {"clusterPermissions": [{"serviceAccountName": "sa", "rules": [
                        {"apiGroups": [""], "resources": ["pods"], "resourceNames": [number.to_string()], "verbs": ["get"]}]}]}},
                },
            })
            .to_string(),
        ),
        (
            "manifests/crd.yaml",
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": crd},
                "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": format!("things{number}")},
                    "versions": [{"name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}]},
            })
            .to_string(),
        ),
    ];
    RegistryV1::from_files(files).unwrap()
}

fn work(bundle: &RegistryV1) -> usize {
    let mut options = RenderOptions::new("operators");
    options.cert_provider = Some(CertProvider::CertManager);
    if !bundle.csv.install_modes.supports(InstallMode::AllNamespaces) {
        options.config = Some(json!({"watchNamespace": "operators"}));
    }
    let objects = render(bundle, &options).map_or(0, |objects| objects.len());
    let _ = (inspect(bundle), lint(bundle));
    objects
}

#[test]
fn render_of_500_bundles_leaves_no_more_behind_than_of_100() {
    let real = real();
    let mut objects = 0;
    let mut after_few = None;
    for number in 0..MANY {
        // real ones come again and again, so that both marks have seen all of them
        let bundle = match real.get(number % (2 * real.len().max(1))) {
            Some(folder) => RegistryV1::load_dir(folder).unwrap(),
            None => generated(number),
        };
        objects += work(&bundle);
        if number + 1 == FEW {
            after_few = resident();
        }
    }
    assert!(objects > 2 * MANY, "{objects} objects");
    let (Some(few), Some(many)) = (after_few, resident()) else {
        println!("SKIPPED: this system does not report how much memory a process has");
        return;
    };
    println!("{few} KiB after {FEW} bundles, {many} KiB after {MANY}; {objects} objects");
    assert!(many < few + SLACK, "{few} KiB after {FEW} bundles, {many} KiB after {MANY}");
}
