//! The cost of a poll of an unchanged tag, client and (in-process) registry together, over TLS.
//!
//! `cargo bench -p olm-oci --bench poll`. `kept connection` is a poll on an open connection, `new connection` one after
//! the registry has closed it (TLS handshake included): the usual case, as polls are minutes apart.

#![expect(clippy::unwrap_used, reason = "a bench may panic")]

#[path = "../tests/registry/support/mod.rs"]
mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use olm_oci::CertificateDirs;
use support::pki::Authority;
use support::{Client, Pushed, Registry, layer};

fn polls(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let authority = Authority::new("ca");
    let registry = runtime.block_on(Registry::start_with(Some(authority.server(None))));
    registry.push("cat", Some("1"), &Pushed::new([layer(&[("configs/a", "1")])]));
    let mut client = Client::new(&[]);
    let directory = client.path("cas");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("ca.crt"), &authority.pem).unwrap();
    client.config.certificates =
        CertificateDirs { every_host: Some(directory), ..CertificateDirs::default() };
    let puller = client.puller();
    let reference = registry.reference("cat:1");
    let mut group = c.benchmark_group("poll");
    group.bench_function("kept connection", |b| {
        b.iter(|| runtime.block_on(puller.resolve(&reference)).unwrap());
    });
    registry.close_after_each(true);
    group.bench_function("new connection", |b| {
        b.iter(|| runtime.block_on(puller.resolve(&reference)).unwrap());
    });
    group.finish();
    assert!(registry.take_log().iter().all(|line| line == "HEAD /v2/cat/manifests/1"));
}

criterion_group!(benches, polls);
criterion_main!(benches);
