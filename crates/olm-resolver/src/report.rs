//! The candidates and the rules that decided, as data that is rendered on demand.
//!
//! The report shares the graphs it talks about, so making one costs a few bytes a bundle. Rendering, nearest misses
//! and the shortest way to a version are computed on demand.

use std::sync::Arc;

use olm_core::{CatalogName, go};
use serde::Serialize;

use crate::environment;
use crate::error::CatalogReadError;
use crate::graph::{BundleIndex, Edge, EdgeKind, PackageGraph};
use crate::request::{Request, range_from};
use crate::rules::{Decision, Ineligible, Rules, Via};
use crate::shortest::shortest;

#[derive(Debug, Clone)]
pub struct Report {
    pub request: Request,
    /// Every selected catalog, by name.
    pub catalogs: Vec<CatalogReport>,
}

#[derive(Debug, Clone)]
pub struct CatalogReport {
    pub name: CatalogName,
    pub priority: i32,
    /// Its package, `None` if it could not be read.
    pub graph: Option<Arc<PackageGraph>>,
    /// Every bundle of the package, best first.
    pub candidates: Vec<Candidate>,
    /// Which of `candidates` the catalog put forward.
    pub best: Option<usize>,
    /// The candidate that it would put forward instead if major versions were not held.
    pub(crate) held: Option<Candidate>,
    /// Whether the cluster does not meet the constraints of a bundle, which need not be why that is not taken.
    pub(crate) has_unmet: bool,
    /// Why its bundle was or was not taken.
    pub outcome: CatalogOutcome,
}

/// One bundle and the rule that decided about it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    pub bundle: BundleIndex,
    pub decision: Decision,
}

/// Why a catalog's best bundle was or was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogOutcome {
    Chosen,
    NoPackage,
    NoMatch,
    /// It could not be read and was left out.
    Unreadable(CatalogReadError),
    /// Its best bundle is deprecated, another catalog's is not.
    DeprecatedThere,
    LowerPriority,
    /// Another catalog of the same priority has the same bundle.
    SameElsewhere,
    /// Another catalog of the same priority has another bundle that is as good.
    Ambiguous,
    /// Its bundle is the best one, and refused because the cluster does not meet its constraints.
    Refused,
}

impl CatalogReport {
    pub(crate) fn best_bundle(&self) -> Option<(&PackageGraph, BundleIndex)> {
        Some((self.graph.as_deref()?, self.candidates[self.best?].bundle))
    }

    pub(crate) fn best_is_deprecated(&self) -> bool {
        self.best_bundle().is_some_and(|(graph, bundle)| graph.is_deprecated(bundle))
    }
}

/// A bundle that would have been taken but for one rule, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearMiss {
    pub catalog: String,
    /// The bundle; empty where the whole package is missing.
    pub bundle: String,
    /// Names the rule and what to do.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub bundle: String,
    pub version: String,
    /// `replaces`, `skips` or `skipRange`.
    pub by: &'static str,
    /// The channel with that edge.
    pub channel: String,
}

impl Report {
    /// Whether a bundle is not chosen because the cluster does not meet its constraints.
    pub(crate) fn has_unfit(&self) -> bool {
        let is_unfit = |one: &Candidate| one.decision == Decision::Ineligible(Ineligible::EnvironmentNotMet);
        self.catalogs.iter().any(|catalog| catalog.has_unmet && catalog.candidates.iter().any(is_unfit))
    }

    /// Bundles that failed only one rule, the most useful first, at most one for each rule and catalog.
    pub fn nearest_misses(&self) -> Vec<NearMiss> {
        let readable: Vec<(&CatalogReport, &PackageGraph)> =
            self.catalogs.iter().filter_map(|catalog| Some((catalog, catalog.graph.as_deref()?))).collect();
        if self.catalogs.is_empty() {
            return vec![miss(
                "",
                "",
                "no available catalog matches spec.source.catalog.selector".to_owned(),
            )];
        }
        if !readable.is_empty() && readable.iter().all(|(_, graph)| graph.is_empty()) {
            let text = match readable.len() {
                1 => format!("the selected catalog {} does not hold the package", readable[0].0.name),
                count => format!("none of the {count} selected catalogs holds the package"),
            };
            return vec![miss("", "", text)];
        }
        let mut misses: Vec<(u8, NearMiss)> =
            readable.into_iter().flat_map(|(catalog, graph)| self.misses_of(catalog, graph)).collect();
        misses.sort_by_key(|(rank, _)| *rank);
        misses.into_iter().map(|(_, miss)| miss).collect()
    }

    fn misses_of(&self, catalog: &CatalogReport, graph: &PackageGraph) -> Vec<(u8, NearMiss)> {
        let rules = Rules::new(&self.request, graph);
        let dropped = |rule: Decision| {
            catalog.candidates.iter().filter(move |candidate| candidate.decision == rule).map(|c| c.bundle)
        };
        let version = |bundle| graph.version(bundle).map_or_else(|_| "?".to_owned(), ToString::to_string);
        let miss = |bundle, text| miss(catalog.name.as_str(), graph.bundle_name(bundle), text);
        let mut found = Vec::new();
        if let (Some(bundle), Some(installed)) = (dropped(Decision::NoEdge).next(), &self.request.installed) {
            let scope = match self.request.channels.as_slice() {
                [] => "no entry".to_owned(),
                [one] => format!("no entry in channel {one}"),
                _ => "no entry in the channels asked for".to_owned(),
            };
            let mut text = format!(
                "{} matches but {scope} replaces, skips or covers {}",
                version(bundle),
                installed.version
            );
            let path = shortest(graph, installed, bundle, &|channel| rules.asked(channel), &|hop| {
                !rules.is_unmet(hop)
            });
            let elsewhere = graph.edge(&installed.name, &installed.version, bundle, |_| true);
            if let Some(path) = path.filter(|path| path.len() > 1) {
                text.push_str(&format!("; {} does: go through it, or use SelfCertified", version(path[0].0)));
            } else if let Some(edge) = elsewhere {
                text.push_str(&format!(
                    "; channel {} does: add it to channels",
                    graph.channel_name(edge.channel)
                ));
            } else {
                text.push_str("; upgradeConstraintPolicy: SelfCertified would allow it");
            }
            found.push((1, miss(bundle, text)));
        }
        if let (Some(bundle), Some(installed)) =
            (dropped(Decision::LowerThanInstalled).next(), &self.request.installed)
        {
            let text = format!(
                "{} covers {} by its skipRange but is lower; upgradeConstraintPolicy: SelfCertified allows going down",
                version(bundle),
                installed.version
            );
            found.push((2, miss(bundle, text)));
        }
        let all_ineligible =
            catalog.candidates.iter().all(|candidate| matches!(candidate.decision, Decision::Ineligible(_)));
        let only = |rule: Ineligible| {
            dropped(Decision::Ineligible(rule)).find(|&bundle| rules.violations(bundle).count() == 1)
        };
        let mut broken: Vec<Ineligible> = Vec::new();
        for candidate in &catalog.candidates {
            if let Decision::Ineligible(rule) = candidate.decision
                && !broken.contains(&rule)
            {
                broken.push(rule);
            }
        }
        for rule in broken {
            let (rank, nearest) = match rule {
                Ineligible::NotInChannel => {
                    (3, only(rule).map(|bundle| (bundle, self.not_in_channel(graph, bundle))))
                }
                Ineligible::OutOfRange => {
                    let all = dropped(Decision::Ineligible(rule));
                    (4, self.out_of_range(graph, all).filter(|_| all_ineligible))
                }
                Ineligible::NoVersion => {
                    let text = |bundle| {
                        let why = graph.version(bundle).err().unwrap_or_default();
                        format!("bundle {} has no version: {why}", graph.bundle_name(bundle))
                    };
                    (5, only(rule).map(|bundle| (bundle, text(bundle))))
                }
                Ineligible::MajorVersionHeld => {
                    let text = |bundle| {
                        let range = graph.version(bundle).map(range_from).unwrap_or_default();
                        format!(
                            "{} follows but has a new major version; to take it, set spec.source.catalog.version: {range:?}",
                            version(bundle)
                        )
                    };
                    (0, only(rule).map(|bundle| (bundle, text(bundle))))
                }
                Ineligible::EnvironmentNotMet => {
                    let text = |bundle| {
                        let unmet = graph.unmet(bundle, &self.request.environment.cluster);
                        format!(
                            "bundle {} does not fit: {}",
                            graph.bundle_name(bundle),
                            environment::describe(&unmet)
                        )
                    };
                    (0, only(rule).map(|bundle| (bundle, text(bundle))))
                }
            };
            found.extend(nearest.map(|(bundle, text)| (rank, miss(bundle, text))));
        }
        found
    }

    fn not_in_channel(&self, graph: &PackageGraph, bundle: BundleIndex) -> String {
        if !self.request.channels.iter().any(|name| graph.find_channel(name.as_str()).is_some()) {
            let all = some_of(graph.channels().map(|channel| graph.channel_name(channel)), 5);
            return format!("the package has no such channel, only {all}");
        }
        let version = graph.version(bundle).map_or_else(|_| "?".to_owned(), ToString::to_string);
        match some_of(graph.channels_of(bundle).map(|channel| graph.channel_name(channel)), 3).as_str() {
            "" => format!("{version} matches but is in no channel"),
            channels => format!("{version} matches but is in channel {channels}"),
        }
    }

    /// The bundle nearest to the range, and how the range would have to change.
    fn out_of_range(
        &self,
        graph: &PackageGraph,
        dropped: impl Iterator<Item = BundleIndex>,
    ) -> Option<(BundleIndex, String)> {
        let range = self.request.range.as_ref()?;
        let mut versions: Vec<_> =
            dropped.filter_map(|bundle| Some((graph.version(bundle).ok()?, bundle))).collect();
        versions.sort();
        // would it match if it were no pre-release?
        let released = |version: &olm_core::Version| {
            format!("{}.{}.{}", version.major(), version.minor(), version.patch())
                .parse()
                .is_ok_and(|release| version.is_prerelease() && range.contains(&release))
        };
        if let Some((version, bundle)) = versions.iter().rev().find(|(version, _)| released(&version.version))
        {
            return Some((
                *bundle,
                format!(
                    "{version} is a pre-release, which a range only takes if it has one itself, as in >=1.0.0-0"
                ),
            ));
        }
        let (lowest, highest) = (versions.first()?, versions.last()?);
        let text = if lowest.1 == highest.1 {
            format!("the only version is {}", highest.0)
        } else {
            format!("there are {} versions from {} to {}", versions.len(), lowest.0, highest.0)
        };
        Some((highest.1, text))
    }

    /// The shortest way, hop by hop, from the installed bundle to the best one that matches channels and range.
    /// `None` when nothing is installed or no way exists.
    pub fn upgrade_path(&self) -> Option<Vec<Step>> {
        let installed = self.request.installed.as_ref()?;
        self.catalogs
            .iter()
            .filter_map(|catalog| {
                let graph = catalog.graph.as_deref()?;
                let rules = Rules::new(&self.request, graph);
                let asked = |channel| rules.asked(channel);
                let path =
                    graph.preference().iter().filter(|&&bundle| rules.eligible(bundle).is_ok()).find_map(
                        |&bundle| shortest(graph, installed, bundle, &asked, &|hop| !rules.is_unmet(hop)),
                    )?;
                Some((
                    std::cmp::Reverse(catalog.priority),
                    path.into_iter().map(|hop| step(graph, hop)).collect(),
                ))
            })
            .min_by_key(|(priority, _)| *priority)
            .map(|(_, path)| path)
    }

    /// Everything as plain values, for printing and for JSON.
    pub fn view(&self) -> ReportView {
        ReportView {
            package: self.request.package.to_string(),
            range: self.request.range.as_ref().map(ToString::to_string),
            channels: self.request.channels.iter().map(ToString::to_string).collect(),
            policy: self.request.policy.to_string(),
            installed: self.request.installed.as_ref().map(|installed| installed.name.to_string()),
            catalogs: self.catalogs.iter().map(|catalog| self.view_catalog(catalog)).collect(),
            nearest_misses: self.nearest_misses(),
            upgrade_path: self.upgrade_path(),
        }
    }

    fn view_catalog(&self, catalog: &CatalogReport) -> CatalogView {
        let graph = catalog.graph.as_deref();
        CatalogView {
            name: catalog.name.to_string(),
            priority: catalog.priority,
            outcome: catalog.outcome.describe(catalog, self),
            candidates: catalog
                .candidates
                .iter()
                .enumerate()
                .filter_map(|(at, candidate)| {
                    let graph = graph?;
                    Some(CandidateView {
                        bundle: graph.bundle_name(candidate.bundle).to_owned(),
                        version: graph.version(candidate.bundle).ok().map(ToString::to_string),
                        deprecated: graph.is_deprecated(candidate.bundle),
                        kept: catalog.best == Some(at),
                        rule: candidate.decision.rule(),
                        why: candidate.decision.describe(graph, candidate.bundle, &self.request),
                    })
                })
                .collect(),
            findings: graph
                .into_iter()
                .flat_map(|graph| graph.findings())
                .map(|finding| format!("{}: {}", finding.place, finding.message))
                .collect(),
        }
    }
}

fn miss(catalog: &str, bundle: &str, text: String) -> NearMiss {
    NearMiss { catalog: catalog.to_owned(), bundle: bundle.to_owned(), text }
}

pub(crate) fn step(graph: &PackageGraph, (bundle, edge): (BundleIndex, Edge)) -> Step {
    Step {
        bundle: graph.bundle_name(bundle).to_owned(),
        version: graph.version(bundle).map(ToString::to_string).unwrap_or_default(),
        by: edge.kind.as_str(),
        channel: graph.channel_name(edge.channel).to_owned(),
    }
}

impl Decision {
    /// A short stable word for the rule.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Kept(Via::FirstInstall) => "first-install",
            Self::Kept(Via::Installed) => "installed",
            Self::Kept(Via::Edge(edge)) => edge.kind.as_str(),
            Self::Kept(Via::SelfCertified) => "self-certified",
            Self::Ineligible(Ineligible::NotInChannel) => "channel",
            Self::Ineligible(Ineligible::NoVersion) => "version",
            Self::Ineligible(Ineligible::OutOfRange) => "range",
            Self::Ineligible(Ineligible::MajorVersionHeld) => "major-version",
            Self::Ineligible(Ineligible::EnvironmentNotMet) => "environment",
            Self::NoEdge => "no-edge",
            Self::LowerThanInstalled | Self::LowerForEnvironment => "downgrade",
            Self::Deprecated => "deprecated",
            Self::LowerVersion => "lower-version",
        }
    }

    /// The rule as a text about a bundle.
    pub fn describe(&self, graph: &PackageGraph, bundle: BundleIndex, request: &Request) -> String {
        let installed =
            || request.installed.as_ref().map(|installed| installed.version.to_string()).unwrap_or_default();
        match self {
            Self::Kept(Via::FirstInstall) => "nothing is installed".to_owned(),
            Self::Kept(Via::Installed) => "it is the installed version".to_owned(),
            Self::Kept(Via::Edge(edge)) => describe_edge(graph, bundle, *edge, &installed()),
            Self::Kept(Via::SelfCertified) => "the policy SelfCertified asks for no edge".to_owned(),
            Self::Ineligible(Ineligible::NotInChannel) => {
                let channels =
                    some_of(graph.channels_of(bundle).map(|channel| graph.channel_name(channel)), 3);
                if channels.is_empty() {
                    "it is in no channel".to_owned()
                } else {
                    format!("it is only in {channels}")
                }
            }
            Self::Ineligible(Ineligible::NoVersion) => {
                graph.version(bundle).err().unwrap_or_default().to_owned()
            }
            Self::Ineligible(Ineligible::OutOfRange) => {
                format!("not in {}", request.range.as_ref().map(ToString::to_string).unwrap_or_default())
            }
            Self::Ineligible(Ineligible::MajorVersionHeld) => {
                format!(
                    "it has a higher major version than {}, which `version` does not ask for",
                    installed()
                )
            }
            Self::Ineligible(Ineligible::EnvironmentNotMet) => {
                environment::describe(&graph.unmet(bundle, &request.environment.cluster))
            }
            Self::NoEdge => format!("no entry replaces, skips or covers {}", installed()),
            Self::LowerThanInstalled => {
                format!("its skipRange covers {}, which is higher", installed())
            }
            Self::LowerForEnvironment => {
                format!(
                    "it is lower than {}, and only the best because the cluster does not fit another one",
                    installed()
                )
            }
            Self::Deprecated => "it is deprecated, the one chosen is not".to_owned(),
            Self::LowerVersion => "another one has a higher version".to_owned(),
        }
    }
}

/// By which words of the catalog a bundle follows what is installed.
pub(crate) fn describe_edge(
    graph: &PackageGraph,
    bundle: BundleIndex,
    edge: Edge,
    installed: &str,
) -> String {
    let channel = graph.channel_name(edge.channel);
    match edge.kind {
        EdgeKind::Replaces => format!("it replaces {installed} in channel {channel}"),
        EdgeKind::Skips => format!("it skips {installed} in channel {channel}"),
        EdgeKind::SkipRange => {
            let range = graph
                .places(bundle)
                .find(|(place, entry)| *place == edge.channel && entry.skip_range.is_some())
                .and_then(|(_, entry)| entry.skip_range.map(|range| graph.range(range)))
                .map(ToString::to_string)
                .unwrap_or_default();
            format!("its skipRange {range} covers {installed} in channel {channel}")
        }
    }
}

impl CatalogOutcome {
    fn describe(&self, catalog: &CatalogReport, report: &Report) -> String {
        match self {
            Self::Chosen => "its bundle is chosen".to_owned(),
            Self::NoPackage => "does not hold the package".to_owned(),
            Self::NoMatch => "no bundle matches".to_owned(),
            Self::Unreadable(problem) => {
                format!("left out: {}", problem.describe(&catalog.name, &report.request.package))
            }
            Self::DeprecatedThere => "its best bundle is deprecated, another catalog's is not".to_owned(),
            Self::LowerPriority => "another catalog has a higher priority".to_owned(),
            Self::SameElsewhere => "has the same bundle as the chosen catalog".to_owned(),
            Self::Ambiguous => "another catalog of the same priority has a different bundle".to_owned(),
            Self::Refused => {
                "its bundle is refused because the cluster does not meet its constraints".to_owned()
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportView {
    pub package: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
    pub policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    pub catalogs: Vec<CatalogView>,
    /// What would have matched but for one rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearest_misses: Vec<NearMiss>,
    /// The shortest way to the best match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_path: Option<Vec<Step>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogView {
    pub name: String,
    pub priority: i32,
    pub outcome: String,
    /// Its bundles, best first.
    pub candidates: Vec<CandidateView>,
    /// What is wrong in it about the package.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateView {
    pub bundle: String,
    /// Version with release, if readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub deprecated: bool,
    /// Whether it is its catalog's best.
    pub kept: bool,
    /// Short word for the rule that decided.
    pub rule: &'static str,
    pub why: String,
}

/// Names for messages: `a, b and 3 more`.
pub(crate) fn some_of<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> String {
    let all: Vec<String> = names.map(go::quote).collect();
    match all.len().checked_sub(most) {
        Some(more @ 1..) => format!("{} and {more} more", all[..most].join(", ")),
        _ => all.join(", "),
    }
}
