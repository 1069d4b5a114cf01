//! Resolutions with the content of the catalogs at hand, as a controller has it.
//!
//! A made namespace stands for the largest published catalogs. With the shared material: the recorded large cases, all small ones, and five Subscriptions over the published sample.
#![expect(clippy::unwrap_used, reason = "a bench that cannot continue panics")]

mod made;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use olm_fbc::{IngestLimits, PackageContents, load_dir};
use olm_solver::testing::{Case, recorded_cases, shared_material};
use olm_solver::{Catalog, Limits, PackageDraft, solve};

fn largest(c: &mut Criterion) {
    c.bench_function("catalog of 6,000 bundles: make", |b| b.iter(|| black_box(made::catalog())));
    let namespace = made::largest();
    let solved = solve(&namespace, Limits::default());
    assert_eq!(solved.map_or(0, |it| it.bundles.len()), made::BUNDLES_TO_INSTALL);
    c.bench_function("five Subscriptions, 24,000 bundles", |b| {
        b.iter(|| solve(black_box(&namespace), Limits::default()))
    });
}

fn published(c: &mut Criterion) {
    let Some(folder) = shared_material().map(|shared| shared.join("data/catalog")) else { return };
    let sample = load_dir(&folder, IngestLimits::default()).unwrap();
    let subscribed = [
        ("gatekeeper-operator-product", "stable"),
        ("opendatahub-operator", "fast"),
        ("rhtas-operator", "stable"),
        ("kueue-operator", ""),
        ("rabbitmq-messaging-topology-operator", "stable"),
    ];
    let packages = subscribed.map(|(package, _)| {
        let lines: Vec<Vec<u8>> = sample.package_lines(package).map(<[u8]>::to_vec).collect();
        PackageDraft::from_contents(PackageContents::from_lines(package, &lines).unwrap().0).unwrap()
    });
    let catalog = Arc::new(Catalog::new(packages));
    let namespace = made::namespace(&[catalog], &subscribed);
    c.bench_function("five Subscriptions, published sample", |b| {
        b.iter(|| solve(black_box(&namespace), Limits::default()))
    });
}

fn recorded(c: &mut Criterion) {
    let Some(cases) = recorded_cases() else { return };
    let (large, small): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.profile == "large");
    for (title, cases) in [("large", large), ("small", small)] {
        c.bench_function(&format!("all {} recorded {title} cases", cases.len()), |b| {
            b.iter(|| {
                cases
                    .iter()
                    .filter(|case| solve(black_box(&case.namespace), Limits::default()).is_ok())
                    .count()
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = largest, published, recorded
}
criterion_main!(benches);
