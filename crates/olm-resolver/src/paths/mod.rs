//! Ways through a package: which bundles are reached from an installed one, hop by hop.

use std::collections::VecDeque;

use crate::graph::{BundleIndex, ChannelIndex, Edge, PackageGraph};
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
    let mut waiting: VecDeque<(Option<BundleIndex>, Installed)> = VecDeque::from([(None, installed.clone())]);
    while let Some((from, at)) = waiting.pop_front() {
        for &bundle in graph.preference() {
            if reached[bundle.0 as usize].is_some() || Some(bundle) == from {
                continue;
            }
            let Ok(version) = graph.version(bundle) else { continue };
            if *version == at.version {
                continue;
            }
            let Some(edge) =
                graph.edge(&at, bundle, asked).filter(|&edge| edge_holds(edge, Some(version), &at))
            else {
                continue;
            };
            reached[bundle.0 as usize] = Some((from, edge));
            if bundle == target {
                return Some(unwind(&reached, bundle));
            }
            if let Ok(name) = graph.bundle_name(bundle).parse() {
                waiting.push_back((Some(bundle), Installed { name, version: version.clone() }));
            }
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
