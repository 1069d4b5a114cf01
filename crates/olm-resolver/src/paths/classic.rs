//! The choice of OLM Classic for the same package: the head's chain decides, not the version.
//!
//! Rule: update-graph §2. One package of one catalog, without dependencies and without other subscriptions; these
//! belong to a whole namespace. Entries without a bundle do not exist for Classic.

use crate::chain::{ChainLink, ChannelOrderError, chain};
use crate::graph::{BundleIndex, ChannelIndex, Edge, Entry, NameId, Origin, PackageGraph};
use crate::installed::Installed;

/// A Subscription, as far as one package is concerned.
#[derive(Debug, Clone, Default)]
pub struct ClassicRequest {
    /// Name of the Subscription; appears in messages only.
    pub subscription: String,
    /// The channel; `None` lets every channel through.
    pub channel: Option<String>,
    /// Name of the bundle to start with; counts only while nothing is installed.
    pub starting_csv: Option<String>,
    pub installed: Option<Installed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassicStep {
    /// Install or move to this bundle; with the edge, `None` on first install.
    Move(BundleIndex, ChannelIndex, Option<Edge>),
    /// Nothing is offered; what is installed stays, without an error.
    Stay,
}

/// Why Classic does not resolve; in a real cluster this stops the whole namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassicError {
    /// The catalog has nothing of the package.
    #[error(
        "no operators found in package {package} in the catalog referenced by subscription {subscription}"
    )]
    NoPackage { package: String, subscription: String },
    /// The package has no such channel, or nothing in it.
    #[error(
        "no operators found in channel {channel} of package {package} in the catalog referenced by subscription {subscription}"
    )]
    NoChannel { package: String, channel: String, subscription: String },
    /// The bundle to start with is not there.
    #[error(
        "no operators found with name {name} in channel {channel} of package {package} in the catalog referenced by \
         subscription {subscription}"
    )]
    NoStartingCsv { name: String, package: String, channel: String, subscription: String },
    #[error("no operators found matching the criteria of subscription {subscription}")]
    NoCandidate { subscription: String },
    /// The order of the channel cannot be determined.
    #[error(transparent)]
    Order(#[from] ChannelOrderError),
}

/// The step that Classic would take next.
///
/// # Errors
/// When the graph or the request is such that Classic refuses to resolve.
pub fn classic_step(graph: &PackageGraph, request: &ClassicRequest) -> Result<ClassicStep, ClassicError> {
    let ordered = ordered(graph, request)?;
    let Some(installed) = &request.installed else {
        return match ordered.into_iter().find(|&(_, _, bundle)| !prohibited(graph, bundle)) {
            Some((channel, _, bundle)) => Ok(ClassicStep::Move(bundle, channel, None)),
            None => Err(ClassicError::NoCandidate { subscription: request.subscription.clone() }),
        };
    };
    let folded = installed.version.folded();
    let from = Origin { name: graph.name_id(installed.name.as_str()), version: Some(&folded) };
    let next = ordered.into_iter().find_map(|(channel, entry, bundle)| {
        let kind = graph.follows(entry, from).filter(|_| !prohibited(graph, bundle))?;
        Some((bundle, channel, Edge { kind, channel }))
    });
    Ok(match next {
        // an entry that covers its own version proposes itself; that is no step
        Some((bundle, _, _)) if graph.bundle_name(bundle) == installed.name.as_str() => ClassicStep::Stay,
        Some((bundle, channel, edge)) => ClassicStep::Move(bundle, channel, Some(edge)),
        None => ClassicStep::Stay,
    })
}

/// Bundles that carry the truncation marker of old catalogs are never chosen.
fn prohibited(graph: &PackageGraph, bundle: BundleIndex) -> bool {
    graph.properties(bundle).iter().any(|property| &*property.kind == "olm.deprecated")
}

type Item<'a> = (ChannelIndex, &'a Entry, BundleIndex);

/// Entries in Classic's order: default channel first, then channels by name; in a channel from head to tail.
fn ordered<'a>(graph: &'a PackageGraph, request: &ClassicRequest) -> Result<Vec<Item<'a>>, ClassicError> {
    let package = || graph.package().to_owned();
    let subscription = || request.subscription.clone();
    let channel_text = || request.channel.clone().unwrap_or_default();
    let items = |channel: ChannelIndex| {
        let entries = graph.channel(channel).entries.iter();
        entries.filter_map(move |entry| Some((channel, entry, entry.bundle?)))
    };
    let mut channels: Vec<ChannelIndex> =
        graph.channels().filter(|&channel| items(channel).next().is_some()).collect();
    if channels.is_empty() {
        return Err(ClassicError::NoPackage { package: package(), subscription: subscription() });
    }
    if let Some(channel_name) = &request.channel {
        channels.retain(|&channel| graph.channel_name(channel) == channel_name);
        if channels.is_empty() {
            return Err(ClassicError::NoChannel {
                package: package(),
                channel: channel_name.clone(),
                subscription: subscription(),
            });
        }
    }
    channels.sort_by_key(|&channel| (Some(graph.channel_name(channel)) != graph.default_channel(), channel));
    let starting = request.starting_csv.as_deref().filter(|_| request.installed.is_none());
    let lists: Vec<Vec<Item<'a>>> = channels
        .into_iter()
        .map(|channel| {
            items(channel)
                .filter(|&(_, _, bundle)| starting.is_none_or(|name| graph.bundle_name(bundle) == name))
                .collect()
        })
        .filter(|list: &Vec<Item<'a>>| !list.is_empty())
        .collect();
    match starting {
        Some(name) if lists.is_empty() => Err(ClassicError::NoStartingCsv {
            name: name.to_owned(),
            package: package(),
            channel: channel_text(),
            subscription: subscription(),
        }),
        _ => Ok(lists.iter().map(|list| in_order(graph, list)).collect::<Result<Vec<_>, _>>()?.concat()),
    }
}

/// The head's replaces chain without skipped entries.
fn in_order<'a>(graph: &PackageGraph, list: &[Item<'a>]) -> Result<Vec<Item<'a>>, ClassicError> {
    let Some(&(channel, _, _)) = list.first() else { return Ok(Vec::new()) };
    let link = |&(_, entry, _): &Item<'a>| ChainLink {
        name: entry.name,
        replaces: entry.replaces,
        skips: &entry.skips,
    };
    let links: Vec<ChainLink<'_, NameId>> = list.iter().map(link).collect();
    let order = chain(&links, |name| graph.name(name), (graph.package(), graph.channel_name(channel)))?;
    Ok(order.into_iter().map(|at| list[at]).collect())
}
