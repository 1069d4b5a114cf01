//! Replacement chains: links by `spec.replaces` inside a namespace (classic-apis §6.6).
//!
//! A CSV never replaces itself. A cycle has no end, so nothing in it is ever deleted.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::ClusterServiceVersion;

use super::Phase;
use super::labels::{name, namespace};
use super::requirements::ObservedApiService;
use crate::operator_group::is_copy;

/// Another CSV of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbor {
    pub name: String,
    pub phase: Phase,
}

/// The place of a CSV in its chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbors {
    /// The CSV that it names in `spec.replaces`, if that exists.
    pub replaced: Option<Neighbor>,
    /// The CSV that names it in `spec.replaces`; of several the first by name.
    pub replaced_by: Option<Neighbor>,
    /// The last CSV of the chain that follows it; `None` at the end itself, and in a cycle.
    pub end: Option<Neighbor>,
    /// Whether the links lead back to it.
    pub is_cycle: bool,
    /// An API that it owns and that belongs to another operator.
    pub conflict: Option<OwnerConflict>,
}

impl Neighbors {
    /// What a Pending CSV whose requirements are met waits for, which its status does not show; `None` if only passes of the controller are
    /// missing.
    #[must_use]
    pub fn wait(&self) -> Option<String> {
        if self.is_cycle {
            let text = "spec.replaces leads back to this ClusterServiceVersion: change it in one of them";
            return Some(text.to_owned());
        }
        let replaced = self.replaced.as_ref()?;
        let phase = match replaced.phase {
            // it becomes Replacing next
            Phase::Succeeded | Phase::Replacing | Phase::Deleting => return None,
            Phase::New => "new",
            other => other.as_str(),
        };
        Some(format!(
            "waiting until ClusterServiceVersion {}, which this one replaces, is Succeeded; it is {phase}, and its status names the cause",
            replaced.name
        ))
    }
}

/// An API with two owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerConflict {
    /// A CustomResourceDefinition that a CSV outside the chain owns too.
    Crd,
    /// An APIService that is there, and not of the chain.
    ApiService {
        /// `VERSION.GROUP`.
        name: String,
        /// The CSV that has it, as `NAMESPACE/NAME`.
        owner: Option<String>,
    },
}

impl OwnerConflict {
    /// The message in the status.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Crd => "conflicting CRD owner in namespace".to_owned(),
            Self::ApiService { name, owner: Some(owner) } => {
                format!("APIService {name} is owned by ClusterServiceVersion {owner}")
            }
            Self::ApiService { name, owner: None } => {
                format!(
                    "APIService {name} exists and is not owned by a ClusterServiceVersion; to install this one, delete it first"
                )
            }
        }
    }
}

/// The place of a CSV among those of the cluster. Only CSVs of its own namespace count for links and CustomResourceDefinitions, those of all
/// namespaces as owners of `api_services`, which are those of the cluster by name; copies never count.
#[must_use]
pub fn neighbors(
    csv: &ClusterServiceVersion,
    all: &[impl Borrow<ClusterServiceVersion>],
    api_services: &BTreeMap<String, ObservedApiService>,
) -> Neighbors {
    let originals = originals(all);
    let here = of_namespace(csv, &originals);
    let (chain, end, is_cycle) = chain(csv, &here);
    Neighbors {
        replaced: replaced(csv, &here).map(neighbor),
        replaced_by: replaced_by(csv, &here).map(neighbor),
        end: end.map(neighbor),
        is_cycle,
        conflict: crd_conflict(csv, &here, &chain)
            .or_else(|| api_service_conflict(csv, &originals, &chain, api_services)),
    }
}

/// Whether `owner`, as `NAMESPACE/NAME`, is a CSV that exists and is not of the chain of this one.
#[must_use]
pub fn is_foreign(
    csv: &ClusterServiceVersion,
    all: &[impl Borrow<ClusterServiceVersion>],
    owner: &str,
) -> bool {
    let originals = originals(all);
    let here = of_namespace(csv, &originals);
    let (chain, ..) = chain(csv, &here);
    is_outside(csv, &originals, &chain, owner)
}

/// The names of the CSVs of its namespace that are neither before nor after it in a chain.
#[must_use]
pub fn others<'a>(
    csv: &'a ClusterServiceVersion,
    all: &'a [impl Borrow<ClusterServiceVersion>],
) -> BTreeSet<&'a str> {
    let originals = originals(all);
    let here = of_namespace(csv, &originals);
    let (chain, ..) = chain(csv, &here);
    here.iter().copied().map(name).filter(|name| !chain.contains(name)).collect()
}

/// The names of the chain of a CSV, its last CSV (`None` at the end itself, and in a cycle), and whether the links lead back to it.
fn chain<'a>(
    csv: &'a ClusterServiceVersion,
    here: &'a [&'a ClusterServiceVersion],
) -> (BTreeSet<&'a str>, Option<&'a ClusterServiceVersion>, bool) {
    let mut walk = Walk { here, visited: BTreeSet::new() };
    let (end, is_cycle) = walk.end(csv);
    let mut chain = walk.visited;
    chain.extend(older(csv, here));
    (chain, end, is_cycle)
}

fn originals(all: &[impl Borrow<ClusterServiceVersion>]) -> Vec<&ClusterServiceVersion> {
    all.iter().map(Borrow::borrow).filter(|csv| !is_copy(csv)).collect()
}

/// Those of the namespace of a CSV, by name.
fn of_namespace<'a>(
    csv: &ClusterServiceVersion,
    originals: &[&'a ClusterServiceVersion],
) -> Vec<&'a ClusterServiceVersion> {
    let mut here: Vec<_> =
        originals.iter().copied().filter(|other| namespace(other) == namespace(csv)).collect();
    here.sort_by_key(|other| name(other));
    here
}

fn neighbor(csv: &ClusterServiceVersion) -> Neighbor {
    Neighbor { name: name(csv).to_owned(), phase: Phase::read(csv) }
}

fn replaced<'a>(
    csv: &ClusterServiceVersion,
    here: &[&'a ClusterServiceVersion],
) -> Option<&'a ClusterServiceVersion> {
    let target = csv.spec.replaces.as_str();
    here.iter().copied().find(|other| !target.is_empty() && target != name(csv) && name(other) == target)
}

fn replaced_by<'a>(
    csv: &ClusterServiceVersion,
    here: &[&'a ClusterServiceVersion],
) -> Option<&'a ClusterServiceVersion> {
    replacing(name(csv), here.iter().copied())
}

/// The CSV that names this one in `spec.replaces`; of several the first by name.
fn replacing<'a>(
    replaced: &str,
    here: impl IntoIterator<Item = &'a ClusterServiceVersion>,
) -> Option<&'a ClusterServiceVersion> {
    let replace = here.into_iter().filter(|other| other.spec.replaces == replaced && name(other) != replaced);
    replace.min_by_key(|other| name(other))
}

/// The CSVs of a namespace that follow this one, which need not exist, in its chain. In a cycle they end before they repeat without end.
pub fn successors<'a>(
    csv: &'a str,
    here: &'a [impl Borrow<ClusterServiceVersion>],
) -> impl Iterator<Item = &'a ClusterServiceVersion> {
    let replacing = |replaced: &str| replacing(replaced, here.iter().map(Borrow::borrow));
    let first = Some(csv).filter(|csv| !csv.is_empty()).and_then(replacing);
    std::iter::successors(first, move |at| replacing(name(at))).take(here.len())
}

/// Names of the CSVs before this one.
fn older<'a>(csv: &'a ClusterServiceVersion, here: &[&'a ClusterServiceVersion]) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut at = csv;
    while let Some(before) = replaced(at, here) {
        if !names.insert(name(before)) {
            break;
        }
        at = before;
    }
    names
}

struct Walk<'a> {
    here: &'a [&'a ClusterServiceVersion],
    visited: BTreeSet<&'a str>,
}

impl<'a> Walk<'a> {
    /// The end of the chain after a CSV, and whether the links lead back to it.
    fn end(&mut self, csv: &'a ClusterServiceVersion) -> (Option<&'a ClusterServiceVersion>, bool) {
        self.visited.insert(name(csv));
        let mut at = csv;
        while let Some(next) = replaced_by(at, self.here) {
            if !self.visited.insert(name(next)) {
                return (None, name(next) == name(csv));
            }
            at = next;
        }
        ((name(at) != name(csv)).then_some(at), false)
    }
}

fn crd_conflict(
    csv: &ClusterServiceVersion,
    here: &[&ClusterServiceVersion],
    chain: &BTreeSet<&str>,
) -> Option<OwnerConflict> {
    let mine: BTreeSet<_> = owned_crds(csv).collect();
    let mut outside = here.iter().copied().filter(|other| !chain.contains(name(other)));
    let has_one = outside.any(|other| owned_crds(other).any(|crd| mine.contains(crd)));
    has_one.then_some(OwnerConflict::Crd)
}

/// One that no CSV owns is not OLM's; one whose owner is gone was left behind, and is taken over.
fn api_service_conflict(
    csv: &ClusterServiceVersion,
    originals: &[&ClusterServiceVersion],
    chain: &BTreeSet<&str>,
    api_services: &BTreeMap<String, ObservedApiService>,
) -> Option<OwnerConflict> {
    let owned = csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned);
    owned.map(|service| format!("{}.{}", service.version, service.group)).find_map(|name| {
        let owner = api_services.get(&name)?.owner.clone();
        let is_free = owner.as_deref().is_some_and(|owner| !is_outside(csv, originals, chain, owner));
        (!is_free).then_some(OwnerConflict::ApiService { name, owner })
    })
}

fn is_outside(
    csv: &ClusterServiceVersion,
    originals: &[&ClusterServiceVersion],
    chain: &BTreeSet<&str>,
    owner: &str,
) -> bool {
    let Some(owner) = owner.split_once('/') else { return false };
    let is_of_chain = owner.0 == namespace(csv) && chain.contains(owner.1);
    !is_of_chain && originals.iter().any(|other| (namespace(other), name(other)) == owner)
}

fn owned_crds(csv: &ClusterServiceVersion) -> impl Iterator<Item = &str> {
    csv.spec.custom_resource_definitions.iter().flat_map(|crds| &crds.owned).map(|crd| crd.name.as_str())
}
