//! The shortest way by edges, for hints and for `--to`, and everything that some way leads to.

use std::collections::VecDeque;

use crate::graph::{BundleIndex, ChannelIndex, Edge, Leaving, PackageGraph};
use crate::installed::Installed;
use crate::rules::edge_holds;

/// The shortest way by edges of the channels asked for, over bundles that pass; of several equally short ones, the one over the best
/// bundles.
pub(crate) fn shortest(
    graph: &PackageGraph,
    installed: &Installed,
    target: BundleIndex,
    asked: &dyn Fn(ChannelIndex) -> bool,
    passes: &dyn Fn(BundleIndex) -> bool,
) -> Option<Vec<(BundleIndex, Edge)>> {
    let mut search = Search::new(graph, installed, asked, passes);
    search.find(|&bundle| bundle == target)?;
    Some(search.unwind(target))
}

/// Every bundle that some way by edges of the channels asked for leads to, in the order in which they are found, with
/// the number of hops of its shortest way. What is installed is not among them.
///
/// A person gets there by setting `version` before each hop; the resolver does not necessarily go there by itself.
pub fn reachable(
    graph: &PackageGraph,
    installed: &Installed,
    asked: impl Fn(ChannelIndex) -> bool,
) -> Vec<(BundleIndex, usize)> {
    let mut search = Search::new(graph, installed, &asked, &|_| true);
    let found: Vec<BundleIndex> = search.by_ref().collect();
    let mut hops = vec![0; graph.bundles().len()];
    found
        .into_iter()
        .filter_map(|bundle| {
            // a bundle is found after the one that it is found from
            let (from, _) = search.reached[bundle.0 as usize]?;
            let count = from.map_or(0, |from| hops[from.0 as usize]) + 1;
            hops[bundle.0 as usize] = count;
            (graph.bundle_name(bundle) != installed.name.as_str()).then_some((bundle, count))
        })
        .collect()
}

/// Breadth first from the installed bundle; every bundle is entered once, and looked at until then.
struct Search<'a> {
    graph: &'a PackageGraph,
    installed: &'a Installed,
    asked: &'a dyn Fn(ChannelIndex) -> bool,
    /// Bundles that may be hops and were not found yet, the best first.
    left: Vec<BundleIndex>,
    /// How each bundle was found: from where (`None`: from what is installed) and by which edge.
    reached: Vec<Option<(Option<BundleIndex>, Edge)>>,
    /// Where to look next; `None` is what is installed.
    waiting: VecDeque<Option<BundleIndex>>,
    /// Found, but not given out yet.
    fresh: VecDeque<BundleIndex>,
}

impl<'a> Search<'a> {
    fn new(
        graph: &'a PackageGraph,
        installed: &'a Installed,
        asked: &'a dyn Fn(ChannelIndex) -> bool,
        passes: &'a dyn Fn(BundleIndex) -> bool,
    ) -> Self {
        let reached = vec![None; graph.bundles().len()];
        let waiting = VecDeque::from([None]);
        let is_hop = |bundle: &BundleIndex| graph.version(*bundle).is_ok() && passes(*bundle);
        let left = graph.preference().iter().copied().filter(is_hop).collect();
        Self { graph, installed, asked, left, reached, waiting, fresh: VecDeque::new() }
    }

    /// Enters all bundles that follow one.
    fn expand(&mut self, from: Option<BundleIndex>) {
        if self.left.is_empty() {
            return;
        }
        let (graph, installed, asked) = (self.graph, self.installed, self.asked);
        let (name, version) = match from {
            None => (graph.name_id(installed.name.as_str()), &installed.version),
            Some(bundle) => match graph.version(bundle) {
                Ok(version) => (Some(graph.bundle(bundle).name), version),
                Err(_) => return,
            },
        };
        let leaving = Leaving::new(graph, name, &version.version, asked);
        let Self { left, reached, waiting, fresh, .. } = self;
        left.retain(|&bundle| {
            let Ok(candidate) = graph.version(bundle) else { return false };
            if candidate == version {
                return true;
            }
            let edge = leaving.edge_to(bundle, asked);
            let Some(edge) = edge.filter(|&edge| edge_holds(edge, Some(candidate), version)) else {
                return true;
            };
            reached[bundle.0 as usize] = Some((from, edge));
            waiting.push_back(Some(bundle));
            fresh.push_back(bundle);
            false
        });
    }

    fn unwind(&self, target: BundleIndex) -> Vec<(BundleIndex, Edge)> {
        let mut path = Vec::new();
        let mut next = Some(target);
        while let Some(bundle) = next {
            let Some((from, edge)) = self.reached[bundle.0 as usize] else { break };
            path.push((bundle, edge));
            next = from;
        }
        path.reverse();
        path
    }
}

impl Iterator for Search<'_> {
    type Item = BundleIndex;

    fn next(&mut self) -> Option<BundleIndex> {
        while self.fresh.is_empty() {
            let from = self.waiting.pop_front()?;
            self.expand(from);
        }
        self.fresh.pop_front()
    }
}
