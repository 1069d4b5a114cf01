//! Answering the questions of a scenario with the resolver itself.

use std::sync::Arc;

use super::parse::{Question, Reply, Scenario, Who};
use crate::environment::Environment;
use crate::error::CatalogReadError;
use crate::graph::{PackageGraph, ReleaseField};
use crate::installed::Installed;
use crate::paths::{ClassicRequest, ClassicStep, End, PathQuery, RuleSet, Target, classic_step, path};
use crate::report::Report;
use crate::request::{CatalogSource, Request, parse_range};
use crate::resolve::resolve;

/// Finds the package of `catalog NAME from "TEXT"`: called with the package and the text.
pub type Loader<'a> = dyn Fn(&str, &str) -> Result<Arc<PackageGraph>, String> + 'a;

#[derive(Debug, Clone)]
pub struct QuestionResult {
    /// Line of the question, beginning with 1.
    pub line: usize,
    pub question: String,
    /// What came of it, in the words of `=>`.
    pub got: String,
    /// Whether it is as expected; true if nothing was.
    pub as_expected: bool,
    /// How v1 came to it.
    pub report: Option<Report>,
}

/// Answers all questions.
///
/// # Errors
/// When the scenario names something that is none: a catalog without name, a package that cannot be loaded.
pub fn run(scenario: &Scenario, loader: &Loader<'_>) -> Result<Vec<QuestionResult>, String> {
    let mut sources = Vec::with_capacity(scenario.catalogs.len());
    for catalog in &scenario.catalogs {
        let content = match (&catalog.unreadable, &catalog.from) {
            (Some(why), _) => Err(CatalogReadError::Other(why.clone())),
            (None, Some(from)) => Ok(loader(&scenario.package, from)?),
            (None, None) => Ok(Arc::new(catalog.graph.clone().build(ReleaseField::Counts))),
        };
        let name = catalog.name.parse().map_err(|_| "a catalog has no name".to_owned())?;
        sources.push(CatalogSource { name, priority: catalog.priority, content });
    }
    Ok(scenario.questions.iter().map(|question| answer_question(scenario, question, &sources)).collect())
}

fn answer_question(scenario: &Scenario, question: &Question, sources: &[CatalogSource]) -> QuestionResult {
    let mut report = None;
    let opinions = opinions(scenario, question, sources, &mut report)
        .unwrap_or_else(|message| vec![Reply::Error(message)]);
    let as_expected = question
        .expected
        .as_ref()
        .is_none_or(|expected| opinions.iter().all(|got| matches(got, expected, question.who)));
    let mut got: Vec<String> = opinions.iter().map(describe).collect();
    got.dedup();
    QuestionResult {
        line: question.line,
        question: question.text.clone(),
        got: got.join(" / "),
        as_expected,
        report,
    }
}

fn opinions(
    scenario: &Scenario,
    question: &Question,
    sources: &[CatalogSource],
    report: &mut Option<Report>,
) -> Result<Vec<Reply>, String> {
    let graph =
        || sources.iter().find_map(|source| source.content.as_ref().ok()).cloned().unwrap_or_default();
    Ok(match question.who {
        Who::V1 => vec![v1(scenario, question, sources, report)?],
        Who::Classic => vec![classic(question, sources, &graph())?],
        Who::Both => {
            vec![v1(scenario, question, sources, report)?, classic(question, sources, &graph())?]
        }
        Who::WalkV1 => vec![walk(question, sources, graph(), RuleSet::V1)?],
        Who::WalkClassic => vec![walk(question, sources, graph(), RuleSet::Classic)?],
        Who::Paths => vec![way(question, sources, graph())?],
    })
}

/// The bundle that is installed, found by its name in any catalog; else its version is in its name.
fn installed(question: &Question, sources: &[CatalogSource]) -> Result<Option<Installed>, String> {
    let Some(name) = &question.installed else { return Ok(None) };
    let known = sources.iter().find_map(|source| {
        let graph = source.content.as_ref().ok()?;
        graph.version(graph.find_bundle(name)?).ok().cloned()
    });
    match known {
        Some(version) => {
            let name = name.parse().map_err(|_| "what is installed has no name".to_owned())?;
            Ok(Some(Installed { name, version }))
        }
        None => {
            let version = name.split_once(".v").map_or(name.as_str(), |(_, version)| version);
            Installed::parse(name, version, None).map(Some).map_err(|error| error.to_string())
        }
    }
}

fn v1(
    scenario: &Scenario,
    question: &Question,
    sources: &[CatalogSource],
    report: &mut Option<Report>,
) -> Result<Reply, String> {
    let package = scenario.package.parse().map_err(|_| "the package has no name".to_owned())?;
    let mut request = Request::new(package);
    request.channels = channels(question)?;
    request.range = parse_range(&question.version).map_err(|error| error.to_string())?;
    request.policy = question.policy;
    request.major_updates = question.major_updates;
    request.installed = installed(question, sources)?;
    let outcome = resolve(&request, sources);
    *report = Some(outcome.report);
    Ok(match outcome.result {
        Err(error) => Reply::Error(error.to_string()),
        Ok(found) => match &request.installed {
            Some(installed) if installed.version == found.version => Reply::Stay,
            _ => Reply::Versions(vec![format!("{}@{}", found.version, found.catalog)]),
        },
    })
}

fn channels(question: &Question) -> Result<Vec<olm_core::ChannelName>, String> {
    question
        .channels
        .iter()
        .map(|name| name.parse().map_err(|_| "a channel has no name".to_owned()))
        .collect()
}

fn classic(question: &Question, sources: &[CatalogSource], graph: &PackageGraph) -> Result<Reply, String> {
    let request = ClassicRequest {
        subscription: graph.package().to_owned(),
        channel: question.channels.first().cloned(),
        starting_csv: question.starting.clone(),
        installed: installed(question, sources)?,
    };
    Ok(match classic_step(graph, &request) {
        Err(error) => Reply::Error(error.to_string()),
        Ok(ClassicStep::Stay) => Reply::Stay,
        Ok(ClassicStep::Move(bundle, ..)) => Reply::Versions(vec![name_of(graph, bundle)]),
    })
}

/// The version of a bundle, or its name if it has none.
fn name_of(graph: &PackageGraph, bundle: crate::graph::BundleIndex) -> String {
    graph.version(bundle).map_or_else(|_| graph.bundle_name(bundle).to_owned(), ToString::to_string)
}

fn query(
    question: &Question,
    sources: &[CatalogSource],
    graph: Arc<PackageGraph>,
) -> Result<PathQuery, String> {
    Ok(PathQuery {
        graph,
        from: installed(question, sources)?,
        to: match question.to.as_deref() {
            None => Target::Anywhere,
            Some("head") => Target::Head,
            Some(version) => Target::Version(
                version.parse().map_err(|error: olm_core::VersionReleaseError| error.to_string())?,
            ),
        },
        channels: channels(question)?,
        range: parse_range(&question.version).map_err(|error| error.to_string())?,
        policy: question.policy,
        major_updates: question.major_updates,
        environment: Environment::default(),
    })
}

fn walk(
    question: &Question,
    sources: &[CatalogSource],
    graph: Arc<PackageGraph>,
    rules: RuleSet,
) -> Result<Reply, String> {
    let found = path(&query(question, sources, graph)?, rules);
    Ok(match found.end {
        End::Error(message) if found.hops.is_empty() => Reply::Error(message),
        End::Stays if found.hops.is_empty() => Reply::Stay,
        End::Error(_) | End::Stays => {
            Reply::Versions(found.hops.into_iter().map(|hop| hop.version).collect())
        }
        End::Loop(_) => {
            let looped = std::iter::once("loop".to_owned());
            Reply::Versions(found.hops.into_iter().map(|hop| hop.version).chain(looped).collect())
        }
    })
}

fn way(question: &Question, sources: &[CatalogSource], graph: Arc<PackageGraph>) -> Result<Reply, String> {
    let found = path(&query(question, sources, graph)?, RuleSet::V1);
    Ok(match found.pinned {
        Some(steps) if steps.is_empty() => Reply::Stay,
        Some(steps) => Reply::Versions(steps.into_iter().map(|step| step.version).collect()),
        None => Reply::Unreachable,
    })
}

fn matches(got: &Reply, expected: &Reply, who: Who) -> bool {
    match (got, expected) {
        (Reply::Versions(got), Reply::Versions(want)) => {
            let same = |(got, want): (&String, &String)| {
                got == want || (!want.contains('@') && got.split('@').next() == Some(want))
            };
            got.len() == want.len() && got.iter().zip(want).all(same)
        }
        (Reply::Stay, Reply::Stay) | (Reply::Unreachable, Reply::Unreachable) => true,
        // the two resolvers word their errors differently
        (Reply::Error(message), Reply::Error(part)) => who == Who::Both || message.contains(part.as_str()),
        (Reply::Versions(_) | Reply::Stay | Reply::Error(_) | Reply::Unreachable, _) => false,
    }
}

fn describe(got: &Reply) -> String {
    match got {
        Reply::Versions(versions) => versions.join(" "),
        Reply::Stay => "stay".to_owned(),
        Reply::Error(message) => format!("error {}", olm_core::go::quote(message)),
        Reply::Unreachable => "unreachable".to_owned(),
    }
}
