//! From request and catalogs to one bundle (rules: operator-controller §4.5 to §4.8, decisions 5, 22, 23).
//!
//! Each catalog puts forward its best bundle; between catalogs an undeprecated one beats a deprecated one, then the
//! higher priority wins. Catalogs are visited in the order of their names, so that equal input gives equal output.

use std::fmt;
use std::sync::Arc;

use olm_core::{BundleName, CatalogName, ImageRef, PackageName, VersionRelease};

use crate::environment::{self, Environment, EnvironmentConstraints, UnmetConstraint};
use crate::error::{Asked, ResolveError};
use crate::graph::{BundleIndex, PackageGraph};
use crate::report::{Candidate, CatalogOutcome, CatalogReport, Report};
use crate::request::{CatalogSource, Request, range_from};
use crate::rules::{Decision, Ineligible, Rules, Via};

#[derive(Debug, Clone)]
pub struct Resolution {
    pub catalog: CatalogName,
    pub package: PackageName,
    pub bundle: BundleName,
    pub version: VersionRelease,
    /// Its image, as the catalog writes it; parsing it is the caller's next step.
    pub image: String,
    pub via: Via,
    pub deprecated: bool,
    pub graph: Arc<PackageGraph>,
    /// Its number in `graph`.
    pub index: BundleIndex,
}

impl Resolution {
    /// Refuses a bundle that declares any dependency, as the reference does (`--dependency-check=Refuse`).
    ///
    /// # Errors
    /// When there is a property of type `olm.package.required`, `olm.gvk.required` or `olm.constraint`.
    pub fn refuse_dependencies(&self) -> Result<(), ResolveError> {
        match self.graph.first_dependency(self.index) {
            None => Ok(()),
            Some(property) => {
                Err(ResolveError::Dependency { bundle: self.bundle.clone(), property: property.to_owned() })
            }
        }
    }
}

/// A bundle or an error, and how it came about.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The bundle, or why there is none.
    pub result: Result<Resolution, ResolveError>,
    /// What was considered and which rule decided.
    pub report: Report,
    /// The bundle that would have been chosen if major versions were not held.
    pub held: Option<Held>,
    /// The bundle that would have been chosen if the cluster met its constraints.
    pub unfit: Option<UnfitBundle>,
}

/// A bundle that is not chosen because the cluster does not meet its constraints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfitBundle {
    pub catalog: CatalogName,
    pub bundle: BundleName,
    pub version: VersionRelease,
    pub unmet: Vec<UnmetConstraint>,
}

impl fmt::Display for UnfitBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { catalog, bundle, unmet, .. } = self;
        write_subject(f, bundle, catalog)?;
        write!(f, " is skipped: {}", environment::describe(unmet))
    }
}

/// A bundle that is not chosen because of its major version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub catalog: CatalogName,
    pub bundle: BundleName,
    pub version: VersionRelease,
}

impl Held {
    /// The shortest range of versions that admits the bundle and its updates, and no further major version.
    #[must_use]
    pub fn range(&self) -> String {
        range_from(&self.version)
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { catalog, bundle, version } = self;
        write_subject(f, bundle, catalog)?;
        write!(
            f,
            " has the next major version {version}; to install it, set spec.source.catalog.version to {:?}",
            self.range()
        )
    }
}

fn write_subject(f: &mut fmt::Formatter<'_>, bundle: &BundleName, catalog: &CatalogName) -> fmt::Result {
    write!(f, "bundle {bundle} of catalog {catalog}")
}

/// The name of the bundle in what [`Held`] or [`UnfitBundle`] prints. A name that holds ` of catalog ` itself ends there.
#[must_use]
pub fn printed_bundle(line: &str) -> Option<&str> {
    line.strip_prefix("bundle ")?.split_once(" of catalog ").map(|(bundle, _)| bundle)
}

pub fn resolve(request: &Request, sources: &[CatalogSource]) -> Outcome {
    let mut sources: Vec<&CatalogSource> = sources.iter().collect();
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let (result, report) = decide(request, &sources);
    let held = held(&report);
    let skips = request.environment.constraints == EnvironmentConstraints::Skip && report.has_unfit();
    let unfit = skips.then(|| unfit(request, &sources)).flatten();
    Outcome { result, report, held, unfit }
}

type Decided = (Result<Resolution, ResolveError>, Report);

fn decide(request: &Request, sources: &[&CatalogSource]) -> Decided {
    let (result, mut report) = decide_ignoring_refuse(request, sources, Downwards::Allowed);
    match (request.environment.constraints, &result) {
        (EnvironmentConstraints::Skip, Ok(found)) if is_lower(request, found) && report.has_unfit() => {
            // what is installed is not replaced by a lower bundle because a better one does not fit the cluster
            let without = decide_ignoring_refuse(&unconstrained(request), sources, Downwards::Allowed).0;
            if without.is_ok_and(|found| is_lower(request, &found)) {
                (result, report)
            } else {
                decide_ignoring_refuse(request, sources, Downwards::Refused)
            }
        }
        (EnvironmentConstraints::Refuse, Ok(found)) => match refuse_environment(found, &mut report) {
            Some(error) => (Err(error), report),
            None => (result, report),
        },
        _ => (result, report),
    }
}

/// Whether bundles that are lower than the installed one may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Downwards {
    Allowed,
    Refused,
}

fn decide_ignoring_refuse(request: &Request, sources: &[&CatalogSource], downwards: Downwards) -> Decided {
    let catalogs = sources.iter().map(|source| consider(request, source, downwards)).collect();
    let mut report = Report { request: request.clone(), catalogs };
    let result = choose(&mut report).and_then(|at| take(&report, at));
    (result, report)
}

fn unconstrained(request: &Request) -> Request {
    let environment =
        Environment { constraints: EnvironmentConstraints::Ignore, ..request.environment.clone() };
    Request { environment, ..request.clone() }
}

fn is_lower(request: &Request, found: &Resolution) -> bool {
    request.installed.as_ref().is_some_and(|installed| found.version < installed.version)
}

/// The error if the cluster does not meet the constraints of the chosen bundle; the report then has it as not eligible.
fn refuse_environment(found: &Resolution, report: &mut Report) -> Option<ResolveError> {
    let request = &report.request;
    if !Rules::new(request, &found.graph).is_unmet(found.index) {
        return None;
    }
    let unmet = found.graph.unmet(found.index, &request.environment.cluster);
    let catalog = report.catalogs.iter_mut().find(|catalog| catalog.name == found.catalog)?;
    if let Some(best) = catalog.best.take() {
        catalog.candidates[best].decision = Decision::Ineligible(Ineligible::EnvironmentNotMet);
    }
    catalog.outcome = CatalogOutcome::Refused;
    let (bundle, catalog) = (found.bundle.clone(), found.catalog.clone());
    Some(ResolveError::Environment { bundle, catalog, unmet })
}

/// What would be chosen if the cluster met all constraints, if it does not meet those of that bundle.
fn unfit(request: &Request, sources: &[&CatalogSource]) -> Option<UnfitBundle> {
    let best = decide(&unconstrained(request), sources).0.ok()?;
    if !Rules::new(request, &best.graph).is_unmet(best.index) {
        return None;
    }
    let unmet = best.graph.unmet(best.index, &request.environment.cluster);
    let Resolution { catalog, bundle, version, .. } = best;
    Some(UnfitBundle { catalog, bundle, version, unmet })
}

/// What would be chosen if major versions were not held, if that has a higher one.
fn held(report: &Report) -> Option<Held> {
    if report.catalogs.iter().all(|catalog| catalog.held.is_none()) {
        return None;
    }
    let catalogs = report.catalogs.iter().map(|catalog| {
        let CatalogReport { name, priority, graph, candidates, best, held, has_unmet, outcome } = catalog;
        let candidates = Vec::from_iter(held.or_else(|| best.map(|best| candidates[best])));
        let best = (!candidates.is_empty()).then_some(0);
        let (name, graph, outcome) = (name.clone(), graph.clone(), outcome.clone());
        let (priority, held, has_unmet) = (*priority, None, *has_unmet);
        CatalogReport { name, priority, graph, candidates, best, held, has_unmet, outcome }
    });
    let mut report = Report { catalogs: catalogs.collect(), request: report.request.clone() };
    let at = choose(&mut report).ok()?;
    let (request, catalog) = (&report.request, &report.catalogs[at]);
    let (graph, bundle) = catalog.best_bundle()?;
    let version = graph.version(bundle).ok()?;
    let refuses = request.environment.constraints == EnvironmentConstraints::Refuse;
    let is_next = version.version.major() > request.installed.as_ref()?.version.version.major();
    if !is_next || refuses && Rules::new(request, graph).is_unmet(bundle) {
        return None;
    }
    let name = graph.bundle_name(bundle).parse().ok()?;
    Some(Held { catalog: catalog.name.clone(), bundle: name, version: version.clone() })
}

/// Applies the rules inside one catalog and finds its best bundle.
fn consider(request: &Request, source: &CatalogSource, downwards: Downwards) -> CatalogReport {
    let (name, priority) = (source.name.clone(), source.priority);
    let graph = match &source.content {
        Ok(graph) => graph,
        Err(problem) => {
            let outcome = CatalogOutcome::Unreadable(problem.clone());
            let (graph, candidates, best, held, has_unmet) = (None, Vec::new(), None, None, false);
            return CatalogReport { name, priority, graph, candidates, best, held, has_unmet, outcome };
        }
    };
    let rules = Rules::new(request, graph);
    let mut candidates: Vec<Candidate> = graph
        .preference()
        .iter()
        .map(|&bundle| Candidate { bundle, decision: rules.judge(bundle) })
        .collect();
    if let (Downwards::Refused, Some(installed)) = (downwards, &request.installed) {
        let is_lower = |bundle| graph.version(bundle).is_ok_and(|version| *version < installed.version);
        for candidate in candidates.iter_mut().filter(|candidate| is_lower(candidate.bundle)) {
            if let Decision::Kept(_) = candidate.decision {
                candidate.decision = Decision::LowerForEnvironment;
            }
        }
    }
    let best = best(request, graph, &candidates);
    let held = held_before(&rules, &candidates[..best.unwrap_or(candidates.len())]);
    let outcome = if let Some(best) = best {
        let best_deprecated = graph.is_deprecated(candidates[best].bundle);
        for (at, candidate) in candidates.iter_mut().enumerate() {
            if let (Decision::Kept(_), false) = (candidate.decision, at == best) {
                let deprecated = graph.is_deprecated(candidate.bundle) && !best_deprecated;
                candidate.decision = if deprecated { Decision::Deprecated } else { Decision::LowerVersion };
            }
        }
        CatalogOutcome::Chosen
    } else if graph.is_empty() {
        CatalogOutcome::NoPackage
    } else {
        CatalogOutcome::NoMatch
    };
    let (graph, has_unmet) = (Some(graph.clone()), rules.has_unmet());
    CatalogReport { name, priority, graph, candidates, best, held, has_unmet, outcome }
}

/// The first candidate that would be kept if major versions were not held. In order of preference, it comes before the best one or not
/// at all.
fn held_before(rules: &Rules<'_>, candidates: &[Candidate]) -> Option<Candidate> {
    let is_held = |one: &&Candidate| one.decision == Decision::Ineligible(Ineligible::MajorVersionHeld);
    let judged = |one: &Candidate| Candidate { decision: rules.judge_with_next_major(one.bundle), ..*one };
    let kept = |one: &Candidate| matches!(one.decision, Decision::Kept(_));
    candidates.iter().filter(is_held).map(judged).find(kept)
}

/// The first bundle kept; of several with its version the one that is installed already.
fn best(request: &Request, graph: &PackageGraph, candidates: &[Candidate]) -> Option<usize> {
    let kept = |candidate: &Candidate| matches!(candidate.decision, Decision::Kept(_));
    let first = candidates.iter().position(kept)?;
    let Some(installed) = &request.installed else { return Some(first) };
    let rank =
        |candidate: &Candidate| (graph.is_deprecated(candidate.bundle), graph.version(candidate.bundle).ok());
    let equal = candidates[first..]
        .iter()
        .take_while(|other| !kept(other) || rank(other) == rank(&candidates[first]));
    let same_name = equal
        .enumerate()
        .find(|(_, other)| kept(other) && graph.bundle_name(other.bundle) == installed.name.as_str())
        .map(|(at, _)| first + at);
    same_name.or(Some(first))
}

/// Chooses between the catalogs' best bundles, and writes the losers' reasons into the report. The result is the number of the catalog.
fn choose(report: &mut Report) -> Result<usize, ResolveError> {
    let mut running: Vec<usize> =
        (0..report.catalogs.len()).filter(|&at| report.catalogs[at].best.is_some()).collect();
    let catalogs = &mut report.catalogs;
    if running.iter().any(|&at| !catalogs[at].best_is_deprecated()) {
        let stays = |catalog: &CatalogReport| !catalog.best_is_deprecated();
        retain(&mut running, catalogs, stays, &CatalogOutcome::DeprecatedThere);
    }
    if let Some(top) = running.iter().map(|&at| catalogs[at].priority).max() {
        retain(&mut running, catalogs, |catalog| catalog.priority == top, &CatalogOutcome::LowerPriority);
    }
    wait_for_unreadable(report, running.first().copied())?;
    let Some((&first, others)) = running.split_first() else { return Err(no_match(report)) };
    if !others.is_empty() {
        if !interchangeable(report, &running) {
            let catalogs = running.iter().map(|&at| report.catalogs[at].name.clone()).collect();
            for &at in &running {
                report.catalogs[at].outcome = CatalogOutcome::Ambiguous;
            }
            return Err(ResolveError::Ambiguous { asked: asked(&report.request), catalogs });
        }
        for &at in others {
            report.catalogs[at].outcome = CatalogOutcome::SameElsewhere;
        }
    }
    Ok(first)
}

/// Keeps those of `running` that stay; the others lose with this outcome.
fn retain(
    running: &mut Vec<usize>,
    catalogs: &mut [CatalogReport],
    stays: impl Fn(&CatalogReport) -> bool,
    lost: &CatalogOutcome,
) {
    running.retain(|&at| {
        let stays = stays(&catalogs[at]);
        if !stays {
            catalogs[at].outcome = lost.clone();
        }
        stays
    });
}

/// A first install waits for unreadable catalogs that could still win, which one of a lower priority could if the best bundle is deprecated;
/// what is installed waits for none.
fn wait_for_unreadable(report: &Report, best: Option<usize>) -> Result<(), ResolveError> {
    let unreadable: Vec<(&CatalogReport, &crate::CatalogReadError)> = report
        .catalogs
        .iter()
        .filter_map(|catalog| match &catalog.outcome {
            CatalogOutcome::Unreadable(problem) => Some((catalog, problem)),
            _ => None,
        })
        .collect();
    let readable = report.catalogs.len() - unreadable.len();
    let waits = |catalog: &CatalogReport| match (best, &report.request.installed) {
        (Some(best), None) => {
            let best = &report.catalogs[best];
            catalog.priority >= best.priority || best.best_is_deprecated()
        }
        (None, None) => true,
        (Some(_), Some(_)) => false,
        (None, Some(_)) => readable == 0,
    };
    let waiting: Vec<_> = unreadable.into_iter().filter(|(catalog, _)| waits(catalog)).collect();
    let Some((catalog, problem)) = waiting.first() else { return Ok(()) };
    let help = (report.request.installed.is_none() && readable > 0).then(|| {
        let names: Vec<String> =
            waiting.iter().map(|(catalog, _)| format!("{} (priority {})", catalog.name, catalog.priority)).collect();
        format!(
            "a first install waits for {}: leave it out by spec.source.catalog.selector here or spec.availabilityMode: \
             Unavailable there",
            names.join(", ")
        )
    });
    Err(ResolveError::Catalog {
        package: report.request.package.clone(),
        catalog: catalog.name.clone(),
        problem: (*problem).clone(),
        help,
    })
}

fn no_match(report: &Report) -> ResolveError {
    let mut help = report.nearest_misses().into_iter().next().map(|miss| miss.text);
    let left_out: Vec<&str> = report
        .catalogs
        .iter()
        .filter(|catalog| matches!(catalog.outcome, CatalogOutcome::Unreadable(_)))
        .map(|catalog| catalog.name.as_str())
        .collect();
    if !left_out.is_empty() {
        let text = format!("left out because unreadable: {}", left_out.join(", "));
        help = Some(help.map_or(text.clone(), |help| format!("{text}; {help}")));
    }
    ResolveError::NoMatch { asked: asked(&report.request), help }
}

fn asked(request: &Request) -> Box<Asked> {
    Box::new(Asked {
        package: request.package.clone(),
        range: request.range.as_ref().map(|range| range.as_str().to_owned()),
        channels: request.channels.clone(),
        installed: request.installed.as_ref().map(|installed| installed.version.version.clone()),
    })
}

/// Whether it does not matter which of the tied catalogs is taken: all mean the installed bundle, or all have the same
/// content by digest (decision 23).
fn interchangeable(report: &Report, tied: &[usize]) -> bool {
    let tied: Vec<(&PackageGraph, BundleIndex)> =
        tied.iter().filter_map(|&at| report.catalogs[at].best_bundle()).collect();
    let same = |one: (&PackageGraph, BundleIndex), name: &str, version: Option<&VersionRelease>| {
        one.0.bundle_name(one.1) == name && one.0.version(one.1).ok() == version
    };
    if let Some(installed) = &report.request.installed
        && tied.iter().all(|&one| same(one, installed.name.as_str(), Some(&installed.version)))
    {
        return true;
    }
    let Some(&(graph, bundle)) = tied.first() else { return false };
    let image = graph.image(bundle);
    let by_digest = image.parse::<ImageRef>().is_ok_and(|image| image.digest().is_some());
    by_digest
        && tied.iter().all(|&one| {
            same(one, graph.bundle_name(bundle), graph.version(bundle).ok()) && one.0.image(one.1) == image
        })
}

fn take(report: &Report, at: usize) -> Result<Resolution, ResolveError> {
    let catalog = &report.catalogs[at];
    let (Some(graph), Some(candidate)) = (&catalog.graph, catalog.best.map(|best| &catalog.candidates[best]))
    else {
        return Err(no_match(report));
    };
    let index = candidate.bundle;
    let unnamed = || ResolveError::NoMatch { asked: asked(&report.request), help: None };
    let bundle: BundleName = graph.bundle_name(index).parse().map_err(|_| unnamed())?;
    let version = match graph.version(index) {
        Ok(version) => version.clone(),
        Err(why) => return Err(ResolveError::Version { bundle, why: why.to_owned() }),
    };
    let via = match candidate.decision {
        Decision::Kept(via) => via,
        _ => Via::FirstInstall,
    };
    Ok(Resolution {
        catalog: catalog.name.clone(),
        package: report.request.package.clone(),
        bundle,
        version,
        image: graph.image(index).to_owned(),
        via,
        deprecated: graph.is_deprecated(index),
        graph: graph.clone(),
        index,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_bundle_is_that_of_the_line() {
        let unmet = UnmetConstraint::Version {
            lowest: "1.40.0".parse().unwrap(),
            cluster: "v1.33.1".parse().unwrap(),
        };
        for name in ["demo.v1.2.0", "demo.v1.2.0-1+build", "Demo of 2020", "bundle of"] {
            let (catalog, bundle): (CatalogName, BundleName) =
                ("main".parse().unwrap(), name.parse().unwrap());
            let version = VersionRelease::parse("1.2.0", None).unwrap();
            let held = Held { catalog: catalog.clone(), bundle: bundle.clone(), version: version.clone() };
            let unfit = UnfitBundle { catalog, bundle, version, unmet: vec![unmet.clone()] };
            for line in [held.to_string(), unfit.to_string()] {
                assert_eq!(printed_bundle(&line), Some(name), "{line}");
            }
        }
        assert_eq!(printed_bundle("to follow to each major version, set the annotation"), None);
    }
}
