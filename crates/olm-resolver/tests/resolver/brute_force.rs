//! The resolver against the slowest obvious implementation of the same rules, over generated catalogs.

use std::sync::Arc;

use olm_core::Range;
use olm_resolver::{
    BundleDraft, CatalogSource, ChannelDraft, ChannelEntry, ClusterFacts, DeprecatedScope, Environment,
    EnvironmentConstraints, EnvironmentDraft, GraphDraft, GvkRef, Installed, MajorUpdates, Policy,
    ReleaseField, Request, Resolution, ResolveError, resolve,
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

/// What each version asks of the cluster: a minor version of Kubernetes, and an API or not. It is the same in every catalog.
type Needs = [(Option<u64>, bool); VERSIONS.len()];

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
    constraints: EnvironmentConstraints,
    /// Minor version of the cluster, and whether it serves the API that some bundles need; `None` is unknown.
    cluster: (Option<u64>, Option<bool>),
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
    let constraints = select(vec![
        EnvironmentConstraints::Skip,
        EnvironmentConstraints::Refuse,
        EnvironmentConstraints::Ignore,
    ]);
    let cluster = (prop::option::weighted(0.9, 30_u64..33), prop::option::weighted(0.9, any::<bool>()));
    let installed = prop::option::weighted(0.7, 0..VERSIONS.len() - 1);
    (channels, select(&RANGES[..]), any::<bool>(), major_updates, (constraints, cluster), installed).prop_map(
        |(channels, range, self_certified, major_updates, (constraints, cluster), installed)| Ask {
            channels,
            range,
            self_certified,
            major_updates,
            constraints,
            cluster,
            installed,
        },
    )
}

fn needs() -> impl Strategy<Value = Needs> {
    let one = || (prop::option::of(31_u64..34), prop::bool::weighted(0.2));
    prop::array::uniform9(one())
}

fn native_api() -> GvkRef {
    GvkRef { group: "g.io".into(), version: "v1".into(), kind: "Foo".into() }
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
fn draft(at: usize, catalog: &Catalog, needs: &Needs) -> GraphDraft {
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
                environment: Ok(EnvironmentDraft {
                    lowest: needs[version].0.map(|minor| format!("1.{minor}.0")).unwrap_or_default(),
                    apis: needs[version].1.then(native_api).into_iter().collect(),
                }),
                ..BundleDraft::default()
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

fn sources(catalogs: &[Catalog], needs: &Needs) -> Vec<CatalogSource> {
    let one = |(at, catalog): (usize, &Catalog)| CatalogSource {
        name: format!("c{at}").parse().unwrap(),
        priority: catalog.priority,
        content: Ok(Arc::new(draft(at, catalog, needs).build(ReleaseField::Counts))),
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
        environment: Environment {
            constraints: ask.constraints,
            cluster: Arc::new(ClusterFacts {
                version: ask.cluster.0.map(|minor| format!("v1.{minor}.0").parse().unwrap()),
                apis: ask.cluster.1.map(|served| served.then(native_api).into_iter().collect()),
            }),
        },
        installed: ask
            .installed
            .map(|version| Installed::parse(&name(version), VERSIONS[version], None).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn resolver_picks_what_brute_force_picks(
        catalogs in prop::collection::vec(catalog(), 0..4), needs in needs(), ask in ask(),
    ) {
        let mut sources = sources(&catalogs, &needs);
        let outcome = resolve(&request(&ask), &sources);
        let got = short_answer(&outcome);
        let offers: Vec<Offer> = catalogs
            .iter()
            .enumerate()
            .map(|(at, catalog)| Offer::new(&format!("c{at}"), catalog.priority, &draft(at, catalog, &needs)))
            .collect();
        let want = slow(&offers, &request(&ask));
        prop_assert_eq!(&got, &want);

        // the environment: what is skipped or refused is what would be chosen otherwise
        let ignoring = |request: Request| {
            let environment =
                Environment { constraints: EnvironmentConstraints::Ignore, ..request.environment.clone() };
            Request { environment, ..request }
        };
        let unconstrained = resolve(&ignoring(request(&ask)), &sources);
        let facts = request(&ask).environment.cluster;
        let installed = ask.installed.map(|version| Installed::parse(&name(version), VERSIONS[version], None).unwrap());
        let is_unmet = |found: &Resolution| {
            let is_installed = installed.as_ref().is_some_and(|installed| installed.version == found.version);
            !is_installed && !found.graph.unmet(found.index, &facts).is_empty()
        };
        let is_lower = |found: &Resolution| {
            installed.as_ref().is_some_and(|installed| found.version < installed.version)
        };
        let best = unconstrained.result.as_ref().ok();
        match (ask.constraints, &outcome.result) {
            (EnvironmentConstraints::Ignore, _) => prop_assert_eq!(short_answer(&unconstrained), got.clone()),
            (_, Ok(found)) => {
                prop_assert!(!is_unmet(found));
                // never a downgrade that the request alone does not lead to
                prop_assert!(!is_lower(found) || best.is_some_and(is_lower));
            }
            (EnvironmentConstraints::Refuse, Err(error)) => {
                let is_refused = matches!(error, ResolveError::Environment { .. });
                prop_assert_eq!(is_refused, best.is_some_and(is_unmet));
            }
            _ => {}
        }
        let unfit = best.filter(|best| ask.constraints == EnvironmentConstraints::Skip && is_unmet(best));
        prop_assert_eq!(
            outcome.unfit.as_ref().map(|unfit| (&unfit.catalog, &unfit.bundle)),
            unfit.map(|best| (&best.catalog, &best.bundle))
        );
        if best.is_some_and(|best| !is_unmet(best)) {
            prop_assert_eq!(short_answer(&unconstrained), got.clone());
        }

        // what is held is what would be chosen otherwise
        let automatic = Request { major_updates: MajorUpdates::Automatic, ..ignoring(request(&ask)) };
        let unheld = resolve(&automatic, &sources);
        prop_assert!(unheld.held.is_none());
        let got = short_answer(&unconstrained);
        if let Some(held) = &unconstrained.held {
            prop_assert_eq!(unheld.result.map(|found| found.bundle).ok(), Some(held.bundle.clone()));
            let range = Some(Range::masterminds(&held.range()).unwrap());
            let asked = Request { range, ..ignoring(request(&ask)) };
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
