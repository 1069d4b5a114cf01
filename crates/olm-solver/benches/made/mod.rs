//! A namespace as large as the largest published catalogs: four catalogs of 300 packages, 24,000 bundles, 61,200 entries; three of four
//! packages need others.

use std::sync::Arc;

use olm_solver::{
    BundleDraft, Catalog, CatalogSource, ChannelDraft, ChannelEntry, Namespace, PackageDraft, Property,
    Subscription,
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
pub(crate) fn namespace(catalogs: &[Arc<Catalog>], subscribed: &[(&str, &str)]) -> Namespace {
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

pub(crate) fn catalog() -> Catalog {
    Catalog::new((0..PACKAGES).map(package))
}

/// The namespace, of which a resolution installs [`BUNDLES_TO_INSTALL`].
pub(crate) fn largest() -> Namespace {
    let catalogs: Vec<Arc<Catalog>> = (0..4).map(|_| Arc::new(catalog())).collect();
    let subscribed = ["operator-1", "operator-50", "operator-101", "operator-203", "operator-297"];
    namespace(&catalogs, &subscribed.map(|package| (package, "stable")))
}

pub(crate) const BUNDLES_TO_INSTALL: usize = 17;
