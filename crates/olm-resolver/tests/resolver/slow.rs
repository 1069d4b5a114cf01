//! The second opinion of other tests: the slowest obvious implementation of the resolver's rules, over plain values.
//!
//! It shares parsers of versions and ranges with the product and nothing else: no graph, no order computed ahead, no index.

use olm_core::{Range, VersionRelease};
use olm_resolver::{
    ChannelEntry, DeprecatedScope, EnvironmentConstraints, GraphDraft, GvkRef, Installed, MajorUpdates,
    Outcome, Policy, Request, ResolveError,
};

/// A package of one catalog.
pub(crate) struct Offer {
    catalog: String,
    priority: i32,
    bundles: Vec<Bundle>,
    entries: Vec<Entry>,
}

struct Bundle {
    name: String,
    image: String,
    version: Option<VersionRelease>,
    deprecated: bool,
    lowest: String,
    apis: Vec<GvkRef>,
}

struct Entry {
    channel: String,
    named: ChannelEntry,
    covers: Option<Range>,
}

/// Catalog and bundle, or the kind of error.
pub(crate) type ShortAnswer = Result<(String, String), String>;

impl Offer {
    /// From the objects of a catalog; no name may be there twice.
    pub(crate) fn new(catalog: &str, priority: i32, draft: &GraphDraft) -> Self {
        let deprecated = |name: &str| {
            draft.deprecations.iter().any(
                |(scope, _)| matches!(scope, DeprecatedScope::Bundle(deprecated) if **deprecated == *name),
            )
        };
        let bundles = draft.bundles.iter().map(|bundle| Bundle {
            name: bundle.name.clone(),
            image: bundle.image.clone(),
            version: bundle
                .version
                .as_ref()
                .ok()
                .and_then(|(text, release)| VersionRelease::parse(text, release.as_deref()).ok()),
            deprecated: deprecated(&bundle.name),
            lowest: bundle.environment.as_ref().map(|it| it.lowest.clone()).unwrap_or_default(),
            apis: bundle.environment.as_ref().map(|it| it.apis.clone()).unwrap_or_default(),
        });
        let entries = draft.channels.iter().flat_map(|channel| {
            channel.entries.iter().map(|entry| Entry {
                channel: channel.name.clone(),
                named: entry.clone(),
                covers: Range::blang(&entry.skip_range).ok().filter(|_| !entry.skip_range.is_empty()),
            })
        });
        let catalog = catalog.to_owned();
        Self { catalog, priority, bundles: bundles.collect(), entries: entries.collect() }
    }

    /// Entries of a bundle in the channels asked for.
    fn considered<'a>(&'a self, bundle: &'a str, request: &'a Request) -> impl Iterator<Item = &'a Entry> {
        let asked = |entry: &&Entry| {
            request.channels.is_empty()
                || request.channels.iter().any(|channel| channel.as_str() == entry.channel)
        };
        self.entries.iter().filter(move |entry| entry.named.name == bundle).filter(asked)
    }

    /// May this bundle be installed from this catalog?
    fn eligible(&self, bundle: &Bundle, request: &Request) -> bool {
        if !request.channels.is_empty() && self.considered(&bundle.name, request).next().is_none() {
            return false;
        }
        if let Some(range) = &request.range
            && !bundle.version.as_ref().is_some_and(|version| range.contains(&version.version))
        {
            return false;
        }
        let Some(installed) = &request.installed else { return true };
        if request.policy == Policy::SelfCertified || bundle.version.as_ref() == Some(&installed.version) {
            return true;
        }
        let is_next_major =
            bundle.version.as_ref().is_some_and(|it| it.version.major() > installed.version.version.major());
        if is_next_major && request.range.is_none() && request.major_updates == MajorUpdates::Hold {
            return false;
        }
        self.considered(&bundle.name, request).any(|entry| entry.leads_from(installed, bundle))
    }
}

impl Entry {
    fn leads_from(&self, installed: &Installed, bundle: &Bundle) -> bool {
        let name = installed.name.as_str();
        let named = self.named.replaces == name || self.named.skips.iter().any(|skipped| skipped == name);
        let covers = self.covers.as_ref().is_some_and(|range| range.contains(&installed.version.version));
        let down = bundle.version.as_ref().is_some_and(|version| *version < installed.version);
        named || (covers && !down)
    }
}

/// Does the cluster lack something that this bundle needs? It does not count for what is installed.
fn misses_something(bundle: &Bundle, request: &Request) -> bool {
    let cluster = &request.environment.cluster;
    let too_old = match (cluster.version, bundle.lowest.split('.').nth(1)) {
        (Some(version), Some(minor)) => version.minor < minor.parse().unwrap(),
        _ => false,
    };
    let lacks = |api: &GvkRef| cluster.apis.as_ref().is_some_and(|served| !served.contains(api));
    let is_installed = request
        .installed
        .as_ref()
        .is_some_and(|installed| bundle.version.as_ref() == Some(&installed.version));
    !is_installed && (too_old || bundle.apis.iter().any(lacks))
}

/// The answer by trying everything.
pub(crate) fn slow(offers: &[Offer], request: &Request) -> ShortAnswer {
    let is_lower = |bundle: &Bundle| match (&request.installed, &bundle.version) {
        (Some(installed), Some(version)) => *version < installed.version,
        _ => false,
    };
    let named = |answer: &ShortAnswer| {
        let (catalog, name) = answer.as_ref().ok()?;
        let offer = offers.iter().find(|offer| offer.catalog == *catalog)?;
        offer.bundles.iter().find(|bundle| bundle.name == *name)
    };
    let best = choose(offers, request, &|_| true);
    let fits = |bundle: &Bundle| !misses_something(bundle, request);
    match request.environment.constraints {
        EnvironmentConstraints::Ignore => best,
        EnvironmentConstraints::Refuse if named(&best).is_some_and(|bundle| !fits(bundle)) => {
            Err("refused".to_owned())
        }
        EnvironmentConstraints::Refuse => best,
        EnvironmentConstraints::Skip => {
            let next_best = choose(offers, request, &fits);
            if named(&next_best).is_some_and(is_lower) && !named(&best).is_some_and(is_lower) {
                return choose(offers, request, &|bundle| fits(bundle) && !is_lower(bundle));
            }
            next_best
        }
    }
}

/// The best of the bundles that pass.
fn choose(offers: &[Offer], request: &Request, passes: &dyn Fn(&Bundle) -> bool) -> ShortAnswer {
    let mut finds: Vec<(&Offer, &Bundle)> = Vec::new();
    let is_installed = |bundle: &Bundle| {
        request.installed.as_ref().is_some_and(|installed| installed.name.as_str() == bundle.name)
    };
    for offer in offers {
        let mut eligible: Vec<&Bundle> =
            offer.bundles.iter().filter(|bundle| offer.eligible(bundle, request) && passes(bundle)).collect();
        eligible.sort_by(|a, b| {
            let key = |bundle: &Bundle| (!bundle.deprecated, bundle.version.clone(), is_installed(bundle));
            key(b).cmp(&key(a)).then(a.name.cmp(&b.name))
        });
        finds.extend(eligible.first().map(|bundle| (offer, *bundle)));
    }
    if finds.iter().any(|(_, bundle)| !bundle.deprecated) {
        finds.retain(|(_, bundle)| !bundle.deprecated);
    }
    let top = finds.iter().map(|(offer, _)| offer.priority).max();
    finds.retain(|(offer, _)| Some(offer.priority) == top);
    let Some(&(offer, first)) = finds.first() else { return Err("none".to_owned()) };
    let all_installed = finds.iter().all(|(_, bundle)| is_installed(bundle));
    let by_digest = first.image.contains("@sha256:");
    let all_same =
        by_digest && finds.iter().all(|(_, bundle)| bundle.name == first.name && bundle.image == first.image);
    if finds.len() > 1 && !all_installed && !all_same {
        let names: Vec<&str> = finds.iter().map(|(offer, _)| offer.catalog.as_str()).collect();
        return Err(format!("ambiguous {}", names.join(" ")));
    }
    if first.version.is_none() {
        return Err("version".to_owned());
    }
    Ok((offer.catalog.clone(), first.name.clone()))
}

/// What the product answered, in the same words.
pub(crate) fn short_answer(outcome: &Outcome) -> ShortAnswer {
    match &outcome.result {
        Ok(found) => Ok((found.catalog.to_string(), found.bundle.to_string())),
        Err(ResolveError::NoMatch { .. }) => Err("none".to_owned()),
        Err(ResolveError::Ambiguous { catalogs, .. }) => {
            let names: Vec<&str> = catalogs.iter().map(|name| name.as_str()).collect();
            Err(format!("ambiguous {}", names.join(" ")))
        }
        Err(ResolveError::Version { .. }) => Err("version".to_owned()),
        Err(ResolveError::Environment { .. }) => Err("refused".to_owned()),
        Err(other) => Err(other.to_string()),
    }
}
