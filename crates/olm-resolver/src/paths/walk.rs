//! Walking on until nothing more is offered.

use std::sync::Arc;

use olm_core::{ChannelName, PackageName, Range, VersionRelease};
use serde::Serialize;

use super::classic::{ClassicRequest, ClassicStep, classic_step};
use crate::environment::Environment;
use crate::graph::{BundleIndex, ChannelIndex, EdgeKind, PackageGraph};
use crate::installed::Installed;
use crate::report::{Step, describe_edge, some_of, step};
use crate::request::{CatalogSource, MajorUpdates, Policy, Request};
use crate::resolve::resolve;
use crate::rules::{Decision, Rules};
use crate::shortest::shortest;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RuleSet {
    /// This resolver's.
    V1,
    /// OLM Classic's.
    Classic,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Target {
    /// Wherever it ends.
    #[default]
    Anywhere,
    /// What a first install would choose: highest version (v1) or channel head (Classic).
    Head,
    /// A version; without release any release of it will do.
    Version(VersionRelease),
}

#[derive(Debug, Clone)]
pub struct PathQuery {
    pub graph: Arc<PackageGraph>,
    /// Where it begins; `None` is a first install.
    pub from: Option<Installed>,
    pub to: Target,
    /// Channels; Classic takes the first only.
    pub channels: Vec<ChannelName>,
    /// Range of versions, v1 only.
    pub range: Option<Range>,
    /// Policy, v1 only.
    pub policy: Policy,
    /// Whether a hop to a new major version happens by itself, v1 only.
    pub major_updates: MajorUpdates,
    /// The cluster that bundles have to fit, v1 only.
    pub environment: Environment,
}

/// Most candidates listed as not offered at one place of a way.
const MAX_NOT_OFFERED: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    pub bundle: String,
    pub version: String,
    pub why: String,
    /// What a careful person would want to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Candidates that fell out at this hop, at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_offered: Vec<NotOffered>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotOffered {
    pub bundle: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    Stays,
    /// It would continue in a circle, back to this bundle.
    Loop(String),
    Error(String),
}

/// A way under one set of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Path {
    pub rules: RuleSet,
    /// Hops that happen by themselves.
    pub hops: Vec<Hop>,
    pub end: End,
    /// Candidates that fell out after the last hop, at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_offered: Vec<NotOffered>,
    /// Hops towards the target with `version` set for each (v1); `None` if there is no target or no way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Vec<Step>>,
    /// Whether the target is reached, by itself or by pinning; true if there is no target.
    pub reached: bool,
    /// Warnings about the package as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The ways under both sets of rules, v1 first.
pub fn paths(query: &PathQuery) -> [Path; 2] {
    [path(query, RuleSet::V1), path(query, RuleSet::Classic)]
}

/// The way under one set of rules.
pub fn path(query: &PathQuery, rules: RuleSet) -> Path {
    let walker = Walker { query, rules };
    let mut hops: Vec<Hop> = Vec::new();
    let mut visited: Vec<BundleIndex> = Vec::new();
    let mut at = query.from.clone();
    let mut last_not_offered;
    // every bundle is entered at most once, so the walk ends
    let end = loop {
        let (next, not_offered) = match walker.next(at.as_ref()) {
            Ok(found) => found,
            Err(message) => {
                last_not_offered = Vec::new();
                break End::Error(message);
            }
        };
        last_not_offered = not_offered;
        let Some((bundle, why)) = next else { break End::Stays };
        let name = query.graph.bundle_name(bundle).to_owned();
        if visited.contains(&bundle) {
            break End::Loop(name);
        }
        visited.push(bundle);
        let version = query.graph.version(bundle).ok().cloned();
        hops.push(Hop {
            version: version.as_ref().map(ToString::to_string).unwrap_or_default(),
            why,
            warnings: walker.warnings(at.as_ref(), bundle),
            not_offered: std::mem::take(&mut last_not_offered),
            bundle: name.clone(),
        });
        match (name.parse(), version) {
            (Ok(name), Some(version)) => at = Some(Installed { name, version }),
            _ => break End::Error(format!("bundle {name} has no readable version")),
        }
    };
    let target = walker.target();
    let arrived = |bundle: BundleIndex| {
        visited.contains(&bundle)
            || query.from.as_ref().is_some_and(|from| from.name.as_str() == query.graph.bundle_name(bundle))
    };
    let pinned = match rules {
        RuleSet::V1 => target.and_then(|target| walker.pinned(target)),
        RuleSet::Classic => None,
    };
    let reached = match (&query.to, target) {
        (Target::Anywhere, _) => true,
        (_, None) => false,
        (_, Some(target)) => arrived(target) || pinned.is_some(),
    };
    Path {
        rules,
        hops,
        end,
        not_offered: last_not_offered,
        pinned,
        reached,
        warnings: walker.package_warnings(),
    }
}

struct Walker<'a> {
    query: &'a PathQuery,
    rules: RuleSet,
}

type Next = (Option<(BundleIndex, String)>, Vec<NotOffered>);

impl Walker<'_> {
    /// The next hop with its reason, or nothing, and what was not offered.
    fn next(&self, at: Option<&Installed>) -> Result<Next, String> {
        match self.rules {
            RuleSet::V1 => self.next_v1(at),
            RuleSet::Classic => self.next_classic(at),
        }
    }

    fn request(&self, at: Option<&Installed>, range: Option<Range>) -> Option<(Request, [CatalogSource; 1])> {
        let graph = &self.query.graph;
        let package: PackageName = graph.package().parse().or_else(|_| "package".parse()).ok()?;
        let source = CatalogSource { name: "catalog".parse().ok()?, priority: 0, content: Ok(graph.clone()) };
        let mut request = Request::new(package);
        request.channels = self.query.channels.clone();
        request.range = range;
        request.policy = self.query.policy;
        request.major_updates = self.query.major_updates;
        request.environment = self.query.environment.clone();
        request.installed = at.cloned();
        Some((request, [source]))
    }

    fn next_v1(&self, at: Option<&Installed>) -> Result<Next, String> {
        let graph = &self.query.graph;
        let Some((request, sources)) = self.request(at, self.query.range.clone()) else {
            return Err("the package has no name".to_owned());
        };
        let outcome = resolve(&request, &sources);
        let candidates =
            outcome.report.catalogs.first().map(|catalog| catalog.candidates.as_slice()).unwrap_or_default();
        // only what is newer is missed
        let newer = |bundle: BundleIndex| match (at, graph.version(bundle)) {
            (Some(at), Ok(version)) => *version > at.version,
            (None, _) => true,
            (Some(_), Err(_)) => false,
        };
        let not_offered = candidates
            .iter()
            .filter(|candidate| !matches!(candidate.decision, Decision::Kept(_) | Decision::LowerVersion))
            .filter(|candidate| newer(candidate.bundle))
            .take(MAX_NOT_OFFERED)
            .map(|candidate| NotOffered {
                bundle: graph.bundle_name(candidate.bundle).to_owned(),
                why: candidate.decision.describe(graph, candidate.bundle, &request),
            })
            .collect();
        let found = outcome.result.map_err(|error| error.condition_message())?;
        if at.is_some_and(|at| at.version == found.version) {
            return Ok((None, not_offered));
        }
        let why = Decision::Kept(found.via).describe(graph, found.index, &request);
        Ok((Some((found.index, why)), not_offered))
    }

    fn next_classic(&self, at: Option<&Installed>) -> Result<Next, String> {
        let graph = &self.query.graph;
        let request = ClassicRequest {
            subscription: graph.package().to_owned(),
            channel: self.query.channels.first().map(ToString::to_string),
            starting_csv: None,
            installed: at.cloned(),
        };
        let step = classic_step(graph, &request).map_err(|error| error.to_string())?;
        let asked = |channel: ChannelIndex| {
            request.channel.as_deref().is_none_or(|name| graph.channel_name(channel) == name)
        };
        let from = || at.map(|at| at.version.to_string()).unwrap_or_default();
        let next = match step {
            ClassicStep::Stay => None,
            ClassicStep::Move(bundle, channel, None) => {
                Some((bundle, format!("nearest to the head of channel {}", graph.channel_name(channel))))
            }
            ClassicStep::Move(bundle, _, Some(edge)) => {
                Some((bundle, describe_edge(graph, bundle, edge, &from())))
            }
        };
        let chosen = next.as_ref().map(|(bundle, _)| *bundle);
        // an edge alone is not enough for Classic: the entry must be on the head's chain and not skipped
        let not_offered = graph
            .bundles()
            .filter(|&bundle| Some(bundle) != chosen)
            .filter_map(|bundle| {
                let at = at?;
                let edge = graph.edge(&at.name, &at.version, bundle, asked)?;
                (graph.bundle_name(bundle) != at.name.as_str()).then(|| NotOffered {
                    bundle: graph.bundle_name(bundle).to_owned(),
                    why: format!(
                        "{}, but it is skipped, off the chain, or further from the head",
                        describe_edge(graph, bundle, edge, &from())
                    ),
                })
            })
            .take(MAX_NOT_OFFERED)
            .collect();
        Ok((next, not_offered))
    }

    /// The bundle that the query wants to reach.
    fn target(&self) -> Option<BundleIndex> {
        let graph = &self.query.graph;
        match &self.query.to {
            Target::Anywhere => None,
            Target::Head => self.next(None).ok()?.0.map(|(bundle, _)| bundle),
            Target::Version(version) => {
                let same = |bundle: &&BundleIndex| {
                    graph.version(**bundle).is_ok_and(|found| {
                        found == version || (version.release.is_none() && found.version == version.version)
                    })
                };
                graph.preference().iter().find(same).copied()
            }
        }
    }

    fn asked(&self, channel: ChannelIndex) -> bool {
        let name = self.query.graph.channel_name(channel);
        self.query.channels.is_empty() || self.query.channels.iter().any(|asked| asked.as_str() == name)
    }

    /// The shortest way for a user who sets `version` before each hop.
    fn pinned(&self, target: BundleIndex) -> Option<Vec<Step>> {
        let graph = &self.query.graph;
        let version = graph.version(target).ok()?;
        let (mut request, _) = self.request(self.query.from.as_ref(), self.query.range.clone())?;
        // `version` asks for what it names
        request.major_updates = MajorUpdates::Automatic;
        let rules = Rules::new(&request, graph);
        rules.eligible(target).ok()?;
        let direct = |by: &'static str| {
            let channel = graph.channels_of(target).find(|&channel| rules.asked(channel));
            Step {
                bundle: graph.bundle_name(target).to_owned(),
                version: version.to_string(),
                by,
                channel: channel.map(|channel| graph.channel_name(channel).to_owned()).unwrap_or_default(),
            }
        };
        match &self.query.from {
            None => Some(vec![direct("install")]),
            Some(from) if from.version == *version => Some(Vec::new()),
            Some(_) if self.query.policy == Policy::SelfCertified => Some(vec![direct("SelfCertified")]),
            Some(from) => {
                shortest(graph, from, target, &|channel| rules.asked(channel), &|hop| !rules.is_unmet(hop))
                    .map(|hops| hops.into_iter().map(|hop| step(graph, hop)).collect())
            }
        }
    }

    fn warnings(&self, from: Option<&Installed>, to: BundleIndex) -> Vec<String> {
        let graph = &self.query.graph;
        let mut found = Vec::new();
        if graph.is_deprecated(to) {
            found.push("the bundle is deprecated".to_owned());
        }
        let Ok(version) = graph.version(to) else { return found };
        if version.version.is_prerelease() {
            found.push(format!("{version} is a pre-release"));
        }
        let Some(from) = from else { return found };
        if *version < from.version {
            found.push(format!("goes down from {}", from.version));
        }
        if version.version.major() > from.version.version.major() {
            found.push(format!("new major version {}", version.version.major()));
        }
        if let Some(edge) = graph.edge(&from.name, &from.version, to, |channel| self.asked(channel))
            && edge.kind == EdgeKind::SkipRange
        {
            let unbound = |(channel, entry): (ChannelIndex, &crate::graph::Entry)| {
                let range =
                    entry.skip_range.filter(|_| channel == edge.channel).map(|range| graph.range(range))?;
                range.is_unbound().then(|| format!("skipRange {range} has no lower or no upper bound"))
            };
            found.extend(graph.places(to).find_map(unbound));
        }
        found
    }

    fn package_warnings(&self) -> Vec<String> {
        let graph = &self.query.graph;
        let mut found: Vec<String> = graph
            .channels()
            .filter(|&channel| self.asked(channel))
            .filter_map(|channel| {
                let request = ClassicRequest {
                    channel: Some(graph.channel_name(channel).to_owned()),
                    ..ClassicRequest::default()
                };
                let error = classic_step(graph, &request).err()?;
                Some(format!("OLM Classic refuses channel {}: {error}", graph.channel_name(channel)))
            })
            .collect();
        let missing: Vec<&str> = self
            .query
            .channels
            .iter()
            .map(ChannelName::as_str)
            .filter(|name| graph.find_channel(name).is_none())
            .collect();
        if !missing.is_empty() {
            let known = some_of(graph.channels().map(|channel| graph.channel_name(channel)), 5);
            found.push(format!("there is no channel {}, only {known}", some_of(missing.into_iter(), 5)));
        }
        if let (Target::Version(version), None) = (&self.query.to, self.target()) {
            found.push(format!("the package has no version {version}"));
        }
        if self.rules == RuleSet::Classic && self.query.channels.len() > 1 {
            found.push("OLM Classic knows one channel; the first is taken".to_owned());
        }
        found
    }
}
