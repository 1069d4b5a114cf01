//! Comparing every CRD of a bundle with a slightly wider form of it, generated ones and those of the largest real bundle of the
//! shared sample if it is there; beside it one parse of the same CRDs as JSON.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, criterion_group, criterion_main};
use olm_core::Object;
use olm_crd_safety::{Policy, compare};
use serde_json::{Value, json};

/// The CRDs among the manifests of a folder.
fn crds(folder: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(folder.join("manifests")).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts
        .filter_map(|text| serde_saphyr::from_str::<Value>(&text).ok())
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .collect()
}

fn size(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder.join("manifests")).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn largest_real() -> Option<(String, Vec<Value>)> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/bundles");
    let packages = std::fs::read_dir(shared).ok()?.flatten();
    let versions: Vec<PathBuf> = packages
        .flat_map(|package| std::fs::read_dir(package.path()).into_iter().flatten().flatten())
        .map(|version| version.path())
        .collect();
    let folder = versions.into_iter().max_by_key(|folder| size(folder))?;
    let name = folder.display().to_string().rsplit('/').take(2).collect::<Vec<_>>().join(" of ");
    Some((name, crds(&folder)))
}

fn generated() -> Vec<Value> {
    let property = json!({"type": "string", "maxLength": 63, "description": "a member of the resource"});
    let properties: serde_json::Map<_, _> =
        (0..600).map(|index| (format!("member{index}"), property.clone())).collect();
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    vec![
        json!({"kind": "CustomResourceDefinition", "metadata": {"name": "a"}, "spec": {"versions": [version]}});
        40
    ]
}

/// With one more field in every version, so that nothing can be skipped as equal.
fn wider(crd: &Value) -> Value {
    let mut crd = crd.clone();
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["schema"]["openAPIV3Schema"]["properties"]["zz"] = json!({"type": "string"});
    }
    crd
}

fn bench(criterion: &mut Criterion) {
    compared(criterion, "generated", &generated());
    if let Some((name, crds)) = largest_real() {
        compared(criterion, &name, &crds);
    }
}

fn compared(criterion: &mut Criterion, name: &str, crds: &[Value]) {
    let texts: Vec<String> = crds.iter().map(Value::to_string).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    let object = |value: &Value| Object::from_value(value.clone()).unwrap_or_default();
    let pairs: Vec<_> = crds.iter().map(|crd| (object(crd), object(&wider(crd)))).collect();
    let about = format!("{name}: {} CRDs, {} kB of JSON", crds.len(), bytes / 1000);
    criterion.bench_function(&format!("compare {about}"), |bencher| {
        bencher.iter(|| {
            for (old, new) in &pairs {
                black_box(compare(old, new, Policy::default()));
            }
        });
    });
    criterion.bench_function(&format!("parse as JSON {about}"), |bencher| {
        bencher.iter(|| {
            for text in &texts {
                black_box(serde_json::from_str::<Value>(text).is_ok());
            }
        });
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
