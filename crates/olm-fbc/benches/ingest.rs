//! Normalising, YAML and whole ingests, each beside one plain parse of the same bytes by `serde_json`.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use olm_fbc::{
    Index, Ingest, IngestLimits, Query,
    testing::{Format, generate},
};
use olm_yaml::{Limits, Normaliser, yaml_to_json};

fn files(bytes: u64, format: Format) -> Vec<(String, String)> {
    let mut files = Vec::new();
    generate(bytes, format, 1, |path, text| files.push((path.to_owned(), text.to_owned())));
    files
}

fn size(files: &[(String, String)]) -> u64 {
    files.iter().map(|(_, text)| text.len() as u64).sum()
}

fn ingest(files: &[(String, String)]) -> Index {
    let mut ingest = Ingest::new(std::io::sink(), IngestLimits::default());
    for (path, text) in files {
        if let Err(error) = ingest.file(path, &mut text.as_bytes()) {
            unreachable!("{error}");
        }
    }
    match ingest.finish() {
        Ok(ingested) => ingested.index,
        Err(error) => unreachable!("{error}"),
    }
}

fn json(c: &mut Criterion) {
    let files = files(10 << 20, Format::Json);
    let mut group = c.benchmark_group("json-10MB");
    group.throughput(Throughput::Bytes(size(&files))).sample_size(20);
    group.bench_function("plain serde_json parse", |b| {
        b.iter(|| {
            for (_, text) in &files {
                let values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
                for value in values {
                    black_box(value.is_ok());
                }
            }
        });
    });
    group.bench_function("normalise", |b| {
        let mut normaliser = Normaliser::new();
        let mut out = Vec::new();
        b.iter(|| {
            for (_, text) in &files {
                let mut rest = text.as_bytes();
                while !rest.trim_ascii_start().is_empty() {
                    out.clear();
                    match normaliser.value(rest, &mut out, &Limits::default()) {
                        Ok(used) => rest = &rest[used..],
                        Err(error) => unreachable!("{error}"),
                    }
                    black_box(&out);
                }
            }
        });
    });
    group.bench_function("ingest", |b| b.iter(|| black_box(ingest(&files))));
    group.finish();
}

fn yaml(c: &mut Criterion) {
    let files = files(2 << 20, Format::Yaml);
    let mut group = c.benchmark_group("yaml-2MB");
    group.throughput(Throughput::Bytes(size(&files))).sample_size(20);
    group.bench_function("events to JSON", |b| {
        let mut out = Vec::new();
        b.iter(|| {
            for (_, text) in &files {
                for document in text.split("\n---\n") {
                    out.clear();
                    black_box(yaml_to_json(document.as_bytes(), &mut out, &Limits::default()).is_ok());
                }
            }
        });
    });
    group.bench_function("ingest", |b| b.iter(|| black_box(ingest(&files))));
    group.finish();
}

fn index(c: &mut Criterion) {
    let index = ingest(&files(50 << 20, Format::Json));
    let bytes = index.to_bytes();
    let mut group = c.benchmark_group("index-50MB");
    group.bench_function("load", |b| {
        b.iter_batched(|| bytes.clone(), |bytes| black_box(Index::from_bytes(&bytes)), BatchSize::SmallInput);
    });
    group.bench_function("one bundle", |b| {
        let query = Query { schema: "olm.bundle", package: "operator-0003", name: "operator-0003.v1.5.0" };
        b.iter(|| black_box(index.sections(&query)));
    });
    group.finish();
}

criterion_group!(benches, json, yaml, index);
criterion_main!(benches);
