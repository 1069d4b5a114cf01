//! The rules inside one catalog: which bundles of a package a request keeps, and why (rules: operator-controller §4.5, decision 22).
//!
//! They judge one bundle by itself; which of those kept is the best is decided in `resolve`.

use olm_core::VersionRelease;

use crate::environment::EnvironmentConstraints;
use crate::graph::{BundleIndex, ChannelIndex, Edge, EdgeKind, Leaving, NeedsId, PackageGraph};
use crate::request::{MajorUpdates, Policy, Request};

/// The first rule that dropped a bundle, or how it may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is the best of its catalog.
    Kept(Via),
    /// The request does not admit it.
    Ineligible(Ineligible),
    /// No entry in the channels asked for replaces, skips or covers what is installed.
    NoEdge,
    /// A skipRange covers the installed version, which is higher.
    LowerThanInstalled,
    /// It is lower than what is installed, and only the best because the cluster does not fit another one (decision 34).
    LowerForEnvironment,
    Deprecated,
    LowerVersion,
}

/// A condition of the request that a bundle does not meet. What is installed plays a part in the last only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ineligible {
    NotInChannel,
    /// It has no readable version, and the request has a range.
    NoVersion,
    OutOfRange,
    /// It follows the installed bundle, and has a higher major version that the request does not ask for (decision 32).
    MajorVersionHeld,
    /// The cluster does not meet what its catalog states that it needs (decision 34).
    EnvironmentNotMet,
}

impl Ineligible {
    /// The most basic one first.
    const ALL: [Self; 5] = [
        Self::NotInChannel,
        Self::NoVersion,
        Self::OutOfRange,
        Self::MajorVersionHeld,
        Self::EnvironmentNotMet,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    FirstInstall,
    /// It has the installed version and release.
    Installed,
    Edge(Edge),
    SelfCertified,
}

/// The rules of one request, applied to the bundles of one package.
#[derive(Debug)]
pub struct Rules<'a> {
    request: &'a Request,
    graph: &'a PackageGraph,
    /// `None` means all.
    channels: Option<Vec<ChannelIndex>>,
    leaving: Option<Leaving<'a>>,
    /// Whether higher major versions are held.
    holds_major: bool,
    /// The distinct constraints that the cluster does not meet, sorted.
    unmet: Vec<NeedsId>,
}

impl<'a> Rules<'a> {
    /// The rules of `request` for the bundles of `graph`.
    #[must_use]
    pub fn new(request: &'a Request, graph: &'a PackageGraph) -> Self {
        let channels: Option<Vec<ChannelIndex>> = (!request.channels.is_empty())
            .then(|| request.channels.iter().filter_map(|name| graph.find_channel(name.as_str())).collect());
        let asked = |channel: ChannelIndex| channels.as_ref().is_none_or(|asked| asked.contains(&channel));
        // build metadata plays no part in ranges, so the version will do without the release folded in
        let leaving = request.installed.as_ref().map(|installed| {
            Leaving::new(graph, graph.name_id(installed.name.as_str()), &installed.version.version, asked)
        });
        let Request { policy, major_updates, range, environment, installed, .. } = request;
        let holds_major = (*policy, *major_updates) == (Policy::CatalogProvided, MajorUpdates::Hold)
            && range.is_none()
            && installed.is_some();
        let unmet = match environment.constraints {
            EnvironmentConstraints::Ignore => Vec::new(),
            EnvironmentConstraints::Skip | EnvironmentConstraints::Refuse => {
                graph.unmet_needs(&environment.cluster).collect()
            }
        };
        Self { request, graph, channels, leaving, holds_major, unmet }
    }

    /// Whether the cluster does not meet what some bundle needs.
    pub(crate) fn has_unmet(&self) -> bool {
        !self.unmet.is_empty()
    }

    pub(crate) fn asked(&self, channel: ChannelIndex) -> bool {
        self.channels.as_ref().is_none_or(|asked| asked.contains(&channel))
    }

    fn in_channels(&self, bundle: BundleIndex) -> bool {
        self.channels.is_none()
            || self.graph.bundle(bundle).places.iter().any(|&(channel, _)| self.asked(channel))
    }

    /// Every condition of the request that the bundle does not meet, the most basic one first.
    pub(crate) fn violations(&self, bundle: BundleIndex) -> impl Iterator<Item = Ineligible> {
        let version = self.graph.version(bundle).ok();
        Ineligible::ALL.into_iter().filter(move |condition| self.violates(bundle, version, *condition))
    }

    #[inline]
    fn violates(&self, bundle: BundleIndex, version: Option<&VersionRelease>, condition: Ineligible) -> bool {
        match condition {
            Ineligible::NotInChannel => !self.in_channels(bundle),
            Ineligible::NoVersion => self.request.range.is_some() && version.is_none(),
            Ineligible::OutOfRange => {
                let range = self.request.range.as_ref();
                range.zip(version).is_some_and(|(range, version)| !range.contains(&version.version))
            }
            Ineligible::MajorVersionHeld => {
                self.holds_major && self.is_next_major(version) && self.edge_to(bundle).is_some()
            }
            Ineligible::EnvironmentNotMet => self.is_unmet(bundle),
        }
    }

    /// Whether the cluster does not meet what the bundle needs. What is installed is not judged.
    pub(crate) fn is_unmet(&self, bundle: BundleIndex) -> bool {
        let is_unmet = || {
            let needs = self.graph.bundle(bundle).needs;
            needs.is_some_and(|id| self.unmet.binary_search(&id).is_ok())
        };
        let is_installed = || {
            let installed = self.request.installed.as_ref().map(|installed| &installed.version);
            installed.is_some() && self.graph.version(bundle).ok() == installed
        };
        self.has_unmet() && is_unmet() && !is_installed()
    }

    /// Whether it is a higher major version than what is installed.
    fn is_next_major(&self, version: Option<&VersionRelease>) -> bool {
        let pair = version.zip(self.request.installed.as_ref());
        pair.is_some_and(|(version, installed)| version.version.major() > installed.version.version.major())
    }

    /// The edge to the bundle from what is installed, in the channels asked for.
    fn edge_to(&self, bundle: BundleIndex) -> Option<Edge> {
        self.leaving.as_ref()?.edge_to(bundle, |channel| self.asked(channel))
    }

    /// Whether the request admits the bundle. Resolution, upgrade paths and lists of versions all ask this.
    ///
    /// # Errors
    /// The first condition that the bundle does not meet.
    pub fn eligible(&self, bundle: BundleIndex) -> Result<(), Ineligible> {
        self.violations(bundle).next().map_or(Ok(()), Err)
    }

    /// The rule that keeps or drops one bundle.
    pub(crate) fn judge(&self, bundle: BundleIndex) -> Decision {
        self.judge_where(bundle, |_| true)
    }

    /// As [`Self::judge`], if major versions were not held.
    pub(crate) fn judge_with_next_major(&self, bundle: BundleIndex) -> Decision {
        self.judge_where(bundle, |rule| rule != Ineligible::MajorVersionHeld)
    }

    fn judge_where(&self, bundle: BundleIndex, applies: impl Fn(Ineligible) -> bool) -> Decision {
        // `Refuse` refuses the best bundle, so another one is not better because of it
        let refuses = self.request.environment.constraints == EnvironmentConstraints::Refuse;
        let counts = |rule: Ineligible| applies(rule) && !(refuses && rule == Ineligible::EnvironmentNotMet);
        let version = self.graph.version(bundle).ok();
        let is_violated = |rule: &Ineligible| counts(*rule) && self.violates(bundle, version, *rule);
        if let Some(rule) = Ineligible::ALL.into_iter().find(is_violated) {
            return Decision::Ineligible(rule);
        }
        let Some(installed) = &self.request.installed else { return Decision::Kept(Via::FirstInstall) };
        if version == Some(&installed.version) {
            return Decision::Kept(Via::Installed);
        }
        match (self.edge_to(bundle), self.request.policy) {
            (Some(edge), _) if edge_holds(edge, version, &installed.version) => {
                Decision::Kept(Via::Edge(edge))
            }
            (Some(_) | None, Policy::SelfCertified) => Decision::Kept(Via::SelfCertified),
            (Some(_), Policy::CatalogProvided) => Decision::LowerThanInstalled,
            (None, Policy::CatalogProvided) => Decision::NoEdge,
        }
    }
}

/// A skipRange does not lead down; `replaces` and `skips` are the author's word and may (decision 22).
pub(crate) fn edge_holds(edge: Edge, version: Option<&VersionRelease>, installed: &VersionRelease) -> bool {
    match edge.kind {
        EdgeKind::Replaces | EdgeKind::Skips => true,
        EdgeKind::SkipRange => version.is_none_or(|version| version >= installed),
    }
}
