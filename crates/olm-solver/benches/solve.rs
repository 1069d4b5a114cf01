//! Resolutions with the content of the catalogs at hand, as a controller has it.
//!
//! A made namespace stands for the largest published catalogs: four catalogs of 300 packages, 24,000 bundles, 61,200 entries; three of four
//! packages need others. With the shared material: the recorded large cases, all small ones, and five Subscriptions over the published sample.
#![expect(clippy::unwrap_used, reason = "a bench that cannot continue panics")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use olm_fbc::{IngestLimits, PackageContents, load_dir};
use olm_solver::testing::{Case, recorded_cases, shared_material};
use olm_solver::{
    BundleDraft, Catalog, CatalogSource, ChannelDraft, ChannelEntry, Limits, Namespace, PackageDraft,
    Property, Subscription, solve,
};
use serde_json::{Value, json};

const PACKAGES: usize = 300;
const BUNDLES: usize = 20;
const CHANNELS: [&str; 3] = ["alpha", "beta", "stable"];

fn property(kind: &str, value: &Value) -> Property {
    Property { kind: kind.into(), value: value.to_string().into() }
}

/// A package with one chain of bundles, of which each channel has the older part.
fn package(number: usize) -> PackageDraft {
    let name = format!("operator-{number}");
    let bundle = |at: usize| format!("{name}.v1.{at}.0");
    let gvk =
        |number: usize| json!({"group": "example.com", "version": "v1", "kind": format!("Kind{number}")});
    let bundles = (0..BUNDLES).map(|at| {
        let version = format!("1.{at}.0");
        let mut properties = vec![
            property("olm.package", &json!({"packageName": name, "version": version})),
            property("olm.gvk", &gvk(number)),
        ];
        if !number.is_multiple_of(4) {
            properties.push(property("olm.gvk.required", &gvk((number + 1) % PACKAGES)));
            let needed = format!("operator-{}", (number + 4) / 4 * 4 % PACKAGES);
            let range = json!({"packageName": needed, "versionRange": ">=1.2.0 <2.0.0"});
            properties.push(property("olm.package.required", &range));
        }
        BundleDraft { name: bundle(at), version, properties, ..BundleDraft::default() }
    });
    let channel = |(at, channel): (usize, &str)| {
        let entries = (0..BUNDLES - 3 * (CHANNELS.len() - 1 - at)).map(|at| ChannelEntry {
            name: bundle(at),
            replaces: if at == 0 { String::new() } else { bundle(at - 1) },
            skip_range: format!(">=1.0.0 <1.{at}.0"),
            ..ChannelEntry::default()
        });
        ChannelDraft { name: channel.to_owned(), entries: entries.collect() }
    };
    PackageDraft {
        default_channel: "stable".to_owned(),
        channels: CHANNELS.into_iter().enumerate().map(channel).collect(),
        bundles: bundles.collect(),
        name,
    }
}

/// Five Subscriptions over these catalogs.
fn namespace(catalogs: &[Arc<Catalog>], subscribed: &[(&str, &str)]) -> Namespace {
    let source = |(at, catalog): (usize, &Arc<Catalog>)| CatalogSource {
        name: format!("catalog-{at}"),
        namespace: "ns".to_owned(),
        priority: i32::try_from(at).unwrap(),
        content: Ok(Arc::clone(catalog)),
    };
    let subscription = |(package, channel): &(&str, &str)| Subscription {
        name: format!("sub-{package}"),
        package: (*package).to_owned(),
        channel: (*channel).to_owned(),
        catalog: "catalog-0".to_owned(),
        catalog_namespace: "ns".to_owned(),
        ..Subscription::default()
    };
    Namespace {
        name: "ns".to_owned(),
        catalogs: catalogs.iter().enumerate().map(source).collect(),
        subscriptions: subscribed.iter().map(subscription).collect(),
        ..Namespace::default()
    }
}

fn made(c: &mut Criterion) {
    let make = || Catalog::new((0..PACKAGES).map(package));
    c.bench_function("catalog of 6,000 bundles: make", |b| b.iter(|| black_box(make())));
    let catalogs: Vec<Arc<Catalog>> = (0..4).map(|_| Arc::new(make())).collect();
    let subscribed = ["operator-1", "operator-50", "operator-101", "operator-203", "operator-297"];
    let namespace = namespace(&catalogs, &subscribed.map(|package| (package, "stable")));
    assert_eq!(solve(&namespace, Limits::default()).map_or(0, |it| it.bundles.len()), 17);
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
        draft(PackageContents::from_lines(package, &lines).unwrap().0)
    });
    let catalog = Arc::new(Catalog::new(packages));
    let namespace = namespace(&[catalog], &subscribed);
    c.bench_function("five Subscriptions, published sample", |b| {
        b.iter(|| solve(black_box(&namespace), Limits::default()))
    });
}

fn draft(contents: PackageContents) -> PackageDraft {
    let package = contents.package.unwrap();
    let bundle = |bundle: olm_fbc::Bundle| {
        let properties = bundle.properties.into_iter().filter(|it| it.kind != "olm.csv.metadata");
        let text =
            |it: &olm_fbc::Property| it.value.as_ref().map_or("null", |value| value.as_str()).to_owned();
        let properties: Vec<Property> = properties
            .map(|it| Property { kind: it.kind.as_str().into(), value: text(&it).into() })
            .collect();
        let of_package = properties.iter().find(|it| &*it.kind == "olm.package").unwrap();
        let version =
            serde_json::from_str::<Value>(&of_package.value).unwrap()["version"].as_str().unwrap().to_owned();
        BundleDraft { name: bundle.name, version, properties, ..BundleDraft::default() }
    };
    let channel = |it: olm_fbc::Channel| ChannelDraft { name: it.name, entries: it.entries };
    PackageDraft {
        name: package.name,
        default_channel: package.default_channel,
        channels: contents.channels.into_iter().map(channel).collect(),
        bundles: contents.bundles.into_iter().map(bundle).collect(),
    }
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
    targets = made, published, recorded
}
criterion_main!(benches);
