//! A chosen bundle that the catalog's author skips: a range that leaves its successor out leads to it.

use std::fmt;

use olm_core::{BundleName, ChannelName, Range};

use crate::graph::EdgeKind;
use crate::resolve::Resolution;

/// A bundle that is chosen although another one skips it by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub bundle: BundleName,
    /// The best of those that skip it.
    pub by: String,
    pub channel: String,
    /// The range, which leaves `by` out.
    pub range: String,
}

impl Skipped {
    /// Whether an entry of the channels asked for (empty means all) skips the chosen bundle by name, and the range leaves it out. Without a
    /// range, a skipped bundle is a step of the way to the one that skips it.
    #[must_use]
    pub fn find(chosen: &Resolution, channels: &[ChannelName], range: Option<&Range>) -> Option<Self> {
        let range = range?;
        let graph = &chosen.graph;
        let name = graph.name_id(chosen.bundle.as_str())?;
        let followers = graph.followers.get(name.0 as usize)?;
        let asked =
            |channel: &str| channels.is_empty() || channels.iter().any(|asked| asked.as_str() == channel);
        let skipping = followers.iter().filter(|(bundle, edge)| {
            edge.kind == EdgeKind::Skips && *bundle != chosen.index && asked(graph.channel_name(edge.channel))
        });
        let place = |bundle| graph.preference().iter().position(|preferred| *preferred == bundle);
        let (by, edge) = skipping.min_by_key(|(bundle, _)| place(*bundle))?;
        let is_left_out = graph.version(*by).is_ok_and(|found| !range.contains(&found.version));
        is_left_out.then(|| Self {
            bundle: chosen.bundle.clone(),
            by: graph.bundle_name(*by).to_owned(),
            channel: graph.channel_name(edge.channel).to_owned(),
            range: range.as_str().to_owned(),
        })
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bundle, by, channel, range } = self;
        write!(
            f,
            "bundle {bundle} is skipped by {by} in channel {channel}, so its author replaced it; the range {range:?} leaves {by} out: \
             widen spec.source.catalog.version to install that instead"
        )
    }
}
