//! The resolver against the slowest obvious implementation of the same rules, over generated catalogs.

use std::sync::Arc;

use olm_core::Range;
use olm_resolver::{
    BundleDraft, CatalogSource, ChannelDraft, ChannelEntry, DeprecatedScope, GraphDraft, Installed,
    MajorUpdates, Policy, ReleaseField, Request, ResolveError, resolve,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::slow::{Offer, short_answer, slow};

const VERSIONS: [&str; 9] =
    ["0.9.0", "1.0.0-rc.1", "1.0.0", "1.0.0+1", "1.0.0+2", "1.1.0", "1.2.0", "2.0.0", "not-a-version"];
const CHANNELS: [&str; 3] = ["alpha", "beta", "stable"];
const SKIP_RANGES: [&str; 8] =
    ["", "", "", "<1.1.0", ">=1.0.0 <2.0.0", ">=0.9.0", "garbage", "<1.0.0 || >=1.2.0"];
const RANGES: [&str; 8] = ["", "", ">=1.0.0", "^1", "1.0.0", "<1.1.0", ">=1.0.0-0 <2.0.0", ">9.0.0"];

#[derive(Debug, Clone)]
struct Catalog {
    priority: i32,
    /// Indices into `VERSIONS`, and whether the image is the one by digest that all catalogs share.
    bundles: Vec<(usize, bool)>,
    channels: Vec<(usize, Vec<Entry>)>,
    deprecated: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Entry {
    version: usize,
    replaces: Option<usize>,
    skips: Vec<usize>,
    skip_range: &'static str,
}

#[derive(Debug, Clone)]
struct Ask {
    channels: Vec<&'static str>,
    range: &'static str,
    self_certified: bool,
    major_updates: MajorUpdates,
    installed: Option<usize>,
}

fn entry() -> impl Strategy<Value = Entry> {
    let any = 0..VERSIONS.len();
    (any.clone(), prop::option::of(any.clone()), prop::collection::vec(any, 0..3), select(&SKIP_RANGES[..]))
        .prop_map(|(version, replaces, skips, skip_range)| Entry { version, replaces, skips, skip_range })
}

fn catalog() -> impl Strategy<Value = Catalog> {
    let all: Vec<usize> = (0..VERSIONS.len()).collect();
    let bundles = subsequence(all.clone(), 0..=7).prop_flat_map(|some| {
        let shared = prop::collection::vec(any::<bool>(), some.len());
        (Just(some), shared).prop_map(|(some, shared)| some.into_iter().zip(shared).collect::<Vec<_>>())
    });
    let channels = subsequence(vec![0, 1, 2], 0..=3).prop_flat_map(|some| {
        let entries = prop::collection::vec(prop::collection::vec(entry(), 0..6), some.len());
        (Just(some), entries).prop_map(|(some, entries)| some.into_iter().zip(entries).collect::<Vec<_>>())
    });
    (0..2, bundles, channels, subsequence(all, 0..=3)).prop_map(
        |(priority, bundles, channels, deprecated)| Catalog { priority, bundles, channels, deprecated },
    )
}

fn ask() -> impl Strategy<Value = Ask> {
    let channels = subsequence(vec!["alpha", "beta", "stable", "nosuch"], 0..=2);
    // the last version cannot be installed: it is none
    let major_updates = select(vec![MajorUpdates::Hold, MajorUpdates::Automatic]);
    let installed = prop::option::weighted(0.7, 0..VERSIONS.len() - 1);
    (channels, select(&RANGES[..]), any::<bool>(), major_updates, installed).prop_map(
        |(channels, range, self_certified, major_updates, installed)| Ask {
            channels,
            range,
            self_certified,
            major_updates,
            installed,
        },
    )
}

fn name(version: usize) -> String {
    format!("p.v{}", VERSIONS[version])
}

fn image(version: usize, shared: bool, catalog: usize) -> String {
    if shared {
        format!("quay.io/p@sha256:{}", version.to_string().repeat(64))
    } else {
        format!("quay.io/p:c{catalog}")
    }
}

/// The package as catalog number `at` has it.
fn draft(at: usize, catalog: &Catalog) -> GraphDraft {
    GraphDraft {
        package: "p".into(),
        default_channel: String::new(),
        channels: catalog
            .channels
            .iter()
            .map(|(channel, entries)| ChannelDraft {
                name: CHANNELS[*channel].into(),
                entries: entries
                    .iter()
                    .map(|entry| ChannelEntry {
                        name: name(entry.version),
                        replaces: entry.replaces.map(name).unwrap_or_default(),
                        skips: entry.skips.iter().map(|&version| name(version)).collect(),
                        skip_range: entry.skip_range.into(),
                    })
                    .collect(),
            })
            .collect(),
        bundles: catalog
            .bundles
            .iter()
            .map(|&(version, shared)| BundleDraft {
                name: name(version),
                image: image(version, shared, at),
                version: Ok((VERSIONS[version].into(), None)),
                properties: vec![],
            })
            .collect(),
        deprecations: catalog
            .deprecated
            .iter()
            .map(|&version| (DeprecatedScope::Bundle(name(version).into()), "old".to_owned()))
            .collect(),
        findings: vec![],
    }
}

fn sources(catalogs: &[Catalog]) -> Vec<CatalogSource> {
    let one = |(at, catalog): (usize, &Catalog)| CatalogSource {
        name: format!("c{at}").parse().unwrap(),
        priority: catalog.priority,
        content: Ok(Arc::new(draft(at, catalog).build(ReleaseField::Counts))),
    };
    catalogs.iter().enumerate().map(one).collect()
}

fn request(ask: &Ask) -> Request {
    Request {
        package: "p".parse().unwrap(),
        channels: ask.channels.iter().map(|name| name.parse().unwrap()).collect(),
        range: (!ask.range.is_empty()).then(|| Range::masterminds(ask.range).unwrap()),
        policy: if ask.self_certified { Policy::SelfCertified } else { Policy::CatalogProvided },
        major_updates: ask.major_updates,
        installed: ask
            .installed
            .map(|version| Installed::parse(&name(version), VERSIONS[version], None).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn picks_what_brute_force_picks(catalogs in prop::collection::vec(catalog(), 0..4), ask in ask()) {
        let mut sources = sources(&catalogs);
        let outcome = resolve(&request(&ask), &sources);
        let got = short_answer(&outcome);
        let offers: Vec<Offer> = catalogs
            .iter()
            .enumerate()
            .map(|(at, catalog)| Offer::new(&format!("c{at}"), catalog.priority, &draft(at, catalog)))
            .collect();
        let want = slow(&offers, &request(&ask));
        prop_assert_eq!(&got, &want);

        // what is held is what would be chosen otherwise
        let automatic = Request { major_updates: MajorUpdates::Automatic, ..request(&ask) };
        let unheld = resolve(&automatic, &sources);
        prop_assert!(unheld.held.is_none());
        if let Some(held) = &outcome.held {
            prop_assert_eq!(unheld.result.map(|found| found.bundle).ok(), Some(held.bundle.clone()));
            let asked = Request { range: Some(Range::masterminds(&held.range()).unwrap()), ..request(&ask) };
            let taken = resolve(&asked, &sources).result;
            prop_assert_eq!(taken.map(|found| found.version.version.major()).ok(), Some(held.version.version.major()));
        } else if !matches!(unheld.result, Err(ResolveError::Ambiguous { .. })) {
            // a hold can also leave one catalog of two that tie
            prop_assert_eq!(short_answer(&unheld), got);
        }

        // the order of catalogs does not matter, and asking twice gives the same report
        let view = serde_json::to_string(&outcome.report.view()).unwrap();
        sources.reverse();
        let again = resolve(&request(&ask), &sources);
        prop_assert_eq!(serde_json::to_string(&again.report.view()).unwrap(), view);
        prop_assert_eq!(again.result.map(|found| found.bundle).map_err(|error| error.condition_message()),
            outcome.result.map(|found| found.bundle).map_err(|error| error.condition_message()));

        // every bundle is accounted for, once
        for (catalog, made) in outcome.report.catalogs.iter().zip(&catalogs) {
            prop_assert_eq!(catalog.candidates.len(), made.bundles.len());
        }
    }
}
