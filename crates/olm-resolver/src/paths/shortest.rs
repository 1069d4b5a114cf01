//! The shortest way by edges, for hints and for `--to`.

use std::collections::VecDeque;

use crate::graph::{BundleIndex, ChannelIndex, Edge, Leaving, PackageGraph};
use crate::request::Installed;
use crate::resolve::edge_holds;

/// The shortest way by edges of the channels asked for; of several equally short ones, the one over the best bundles.
///
/// Breadth first from the installed bundle; every bundle is entered once, so the cost is bundles times entries.
pub(crate) fn shortest(
    graph: &PackageGraph,
    installed: &Installed,
    target: BundleIndex,
    asked: &dyn Fn(ChannelIndex) -> bool,
) -> Option<Vec<(BundleIndex, Edge)>> {
    let mut reached: Vec<Option<(Option<BundleIndex>, Edge)>> = vec![None; graph.bundles().len()];
    let mut waiting: VecDeque<Option<BundleIndex>> = VecDeque::from([None]);
    while let Some(from) = waiting.pop_front() {
        let (name, version) = match from {
            None => (graph.name_id(installed.name.as_str()), &installed.version),
            Some(bundle) => match graph.version(bundle) {
                Ok(version) => (Some(graph.bundle(bundle).name), version),
                Err(_) => continue,
            },
        };
        let leaving = Leaving::new(graph, name, &version.version, asked);
        for &bundle in graph.preference() {
            let Ok(candidate) = graph.version(bundle) else { continue };
            if reached[bundle.0 as usize].is_some() || candidate == version {
                continue;
            }
            let edge =
                leaving.edge_to(bundle, asked).filter(|&edge| edge_holds(edge, Some(candidate), version));
            let Some(edge) = edge else { continue };
            reached[bundle.0 as usize] = Some((from, edge));
            if bundle == target {
                return Some(unwind(&reached, bundle));
            }
            waiting.push_back(Some(bundle));
        }
    }
    None
}

fn unwind(reached: &[Option<(Option<BundleIndex>, Edge)>], target: BundleIndex) -> Vec<(BundleIndex, Edge)> {
    let mut path = Vec::new();
    let mut next = Some(target);
    while let Some(bundle) = next {
        let Some((from, edge)) = reached[bundle.0 as usize] else { break };
        path.push((bundle, edge));
        next = from;
    }
    path.reverse();
    path
}
