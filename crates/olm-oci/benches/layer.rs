//! The cost of reading a layer: SHA-256, decompression and tar, nothing else.
//!
//! `cargo bench -p olm-oci`. The catalog stand-in is JSON-like text of 64 MiB that compresses about as well as real
//! catalogs do; throughput is of decompressed bytes. `sha256 only` and `gunzip only` are the anchors.

#![expect(clippy::unwrap_used, reason = "a bench may panic")]

use std::hint::black_box;
use std::io::Read;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use olm_core::{Digest, DigestAlgorithm};
use olm_oci::bench::visit_layers;
use olm_oci::{Infallible, Limits, Visitor};
use sha2::Digest as _;

const SIZE: usize = 64 << 20;

fn catalog() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut text = String::with_capacity(SIZE + 1024);
    let mut n = 0;
    while text.len() < SIZE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        n += 1;
        text.push_str(&format!(
            r#"{{"schema":"olm.bundle","package":"p{}","name":"p{}.v1.{n}.0","image":"registry.test/p@sha256:{state:016x}{:016x}","properties":[{{"type":"olm.gvk","value":{{"group":"g{}.test","kind":"K","version":"v1"}}}}],"relatedImages":[{{"name":"","image":"registry.test/r:{}"}}]}}"#,
            n % 97, n % 97, state.rotate_left(17), n % 31, n % 1013
        ));
        text.push('\n');
    }
    let mut builder = tar::Builder::new(Vec::new());
    for (index, part) in text.as_bytes().chunks(1 << 20).enumerate() {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, format!("configs/{index:03}.json"), part).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::default());
    let mut out = Vec::new();
    encoder.read_to_end(&mut out).unwrap();
    out
}

fn chunks(bytes: &[u8]) -> Vec<Bytes> {
    let bytes = Bytes::copy_from_slice(bytes);
    (0..bytes.len()).step_by(128 << 10).map(|at| bytes.slice(at..bytes.len().min(at + (128 << 10)))).collect()
}

/// Reads the files and throws them away.
struct Count {
    bytes: usize,
    buffer: Vec<u8>,
}

impl Visitor for Count {
    type Error = Infallible;

    fn file(&mut self, _: &str, _: u64, content: &mut dyn Read) -> Result<(), Infallible> {
        while let Ok(n @ 1..) = content.read(&mut self.buffer) {
            self.bytes += n;
        }
        Ok(())
    }

    fn alias(&mut self, _: &str, _: &str) -> Result<(), Infallible> {
        Ok(())
    }

    fn remove(&mut self, _: &str) -> Result<(), Infallible> {
        Ok(())
    }
}

fn read_layer(digest: &Digest, size: usize, parts: Vec<Bytes>) -> usize {
    let visitor = Count { bytes: 0, buffer: vec![0; 64 << 10] };
    let layers = [(digest.clone(), size as u64, parts.into_iter())];
    visit_layers(layers, &["configs"], &Limits::default(), visitor).unwrap().bytes
}

fn layers(c: &mut Criterion) {
    let tar = catalog();
    let (gz, zst) = (gzip(&tar), zstd::encode_all(tar.as_slice(), 3).unwrap());
    let mut group = c.benchmark_group("layer");
    group.sample_size(10).throughput(Throughput::Bytes(tar.len() as u64));
    for (name, layer) in [("gzip", &gz), ("zstd", &zst), ("plain", &tar)] {
        let parts = chunks(layer);
        let digest = Digest::from_hash(DigestAlgorithm::Sha256, &sha2::Sha256::digest(layer)).unwrap();
        group.bench_function(format!("sha256 + {name} + tar"), |b| {
            b.iter(|| assert!(read_layer(&digest, layer.len(), black_box(parts.clone())) > 60_000_000));
        });
    }
    group.bench_function("gunzip only", |b| {
        let mut buffer = vec![0; 64 << 10];
        b.iter(|| {
            let mut decoder = flate2::bufread::MultiGzDecoder::new(gz.as_slice());
            while decoder.read(&mut buffer).unwrap() > 0 {}
        });
    });
    group.bench_function("sha256 only", |b| b.iter(|| black_box(sha2::Sha256::digest(&gz))));
    group.finish();
}

criterion_group!(benches, layers);
criterion_main!(benches);
