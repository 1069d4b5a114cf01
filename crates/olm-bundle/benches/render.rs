//! Parsing and rendering the largest real bundle of the shared sample, or, without the sample, of a generated one of its
//! size.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use olm_bundle::{CertProvider, RegistryV1, RenderOptions, render};
use olm_yaml::{Documents, Limits};
use serde_json::json;

type Files = Vec<(String, Vec<u8>)>;

/// The files of a bundle, with its size in bytes.
fn read(folder: &Path) -> (Files, u64) {
    let mut files = Files::new();
    for part in ["manifests", "metadata"] {
        for entry in std::fs::read_dir(folder.join(part)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.push((format!("{part}/{name}"), std::fs::read(entry.path()).unwrap_or_default()));
        }
    }
    let bytes = files.iter().map(|(_, content)| content.len() as u64).sum();
    (files, bytes)
}

fn largest_real() -> Option<(String, Files, u64)> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/bundles");
    let packages = std::fs::read_dir(shared).ok()?.flatten();
    let versions =
        packages.flat_map(|package| std::fs::read_dir(package.path()).into_iter().flatten().flatten());
    versions
        .map(|version| {
            let (files, bytes) = read(&version.path());
            (
                version.path().display().to_string().rsplit('/').take(2).collect::<Vec<_>>().join(" of "),
                files,
                bytes,
            )
        })
        .max_by_key(|(_, _, bytes)| *bytes)
}

/// A bundle with `crds` definitions of `fields` fields each, as JSON.
fn generated(crds: usize, fields: usize) -> Files {
    let names: Vec<_> = (0..crds).map(|index| format!("things{index}.example.com")).collect();
    let owned: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "metadata": {"name": "large.v1.0.0"},
        "spec": {"installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": owned}, "install": {"spec": {}}}
    });
    let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: large}";
    let mut files = vec![
        ("metadata/annotations.yaml".to_owned(), annotations.as_bytes().to_vec()),
        ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
    ];
    for name in names {
        let properties: serde_json::Map<_, _> = (0..fields)
            .map(|index| {
                let field = json!({"type": "string", "description": "a member of the resource, described at some length"});
                (format!("member{index}"), field)
            })
            .collect();
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}]}
        });
        files.push((format!("manifests/{name}.yaml"), crd.to_string().into_bytes()));
    }
    files
}

fn bench(criterion: &mut Criterion) {
    let mut subjects = vec![("generated, 40 CRDs of 600 fields".to_owned(), generated(40, 600))];
    if let Some((name, files, bytes)) = largest_real() {
        subjects.push((format!("{name} ({} kB)", bytes / 1000), files));
    }
    let mut options = RenderOptions::new("operators");
    options.cert_provider = Some(CertProvider::CertManager);
    for (name, files) in subjects {
        let parse = || RegistryV1::from_files(files.iter().map(|(path, content)| (path.as_str(), content)));
        let Ok(bundle) = parse() else { continue };
        // what cannot be saved: the same bytes, decoded once by the same YAML reader and by a JSON reader
        let documents: Vec<Vec<u8>> = files
            .iter()
            .flat_map(|(_, content)| Documents::from_bytes(content, Limits::default()))
            .filter_map(Result::ok)
            .collect();
        criterion.bench_function(&format!("read as YAML {name}"), |bencher| {
            bencher.iter(|| {
                for (_, content) in &files {
                    black_box(Documents::from_bytes(content, Limits::default()).count());
                }
            });
        });
        criterion.bench_function(&format!("read as JSON {name}"), |bencher| {
            bencher.iter(|| {
                for document in &documents {
                    black_box(serde_json::from_slice::<serde_json::Value>(document).is_ok());
                }
            });
        });
        criterion.bench_function(&format!("parse {name}"), |bencher| bencher.iter(|| black_box(parse())));
        criterion.bench_function(&format!("render {name}"), |bencher| {
            bencher.iter(|| black_box(render(&bundle, &options)));
        });
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
