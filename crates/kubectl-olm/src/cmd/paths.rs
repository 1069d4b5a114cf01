//! `paths`: the upgrade path of an installed version, by the rules of v1 and of OLM Classic side by side.

use clap::{Args, ValueEnum};
use olm_core::{Range, RangeError, VersionRelease};
use olm_resolver::{End, Installed, PackageGraph, Path, PathQuery, Policy, RuleSet, Target, path};
use serde::Serialize;

use super::graph::{channels, installed, package};
use super::output::{Output, Table};
use super::plan::beyond_one;
use super::why;
use crate::CommandOutput;
use crate::failure::CommandError;
use crate::sources::{Controller, Sources};

/// Most candidates shown as not offered for a hop.
const MAX_NOT_OFFERED: usize = 5;

/// Whose rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Rules {
    /// This OLM's.
    V1,
    /// OLM Classic's.
    Classic,
    /// Both, side by side.
    #[default]
    Both,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl olm paths argocd-operator --from 0.7.0
  kubectl olm paths argocd-operator --from 0.7.0 --to 0.9.1 --rules v1 --dir ./catalog
  kubectl olm paths argocd-operator --from 0.7.0 --to head --channel alpha -o json --dir ./catalog

Exit codes: 0 reached under all rules asked for (or no --to), 1 not reached or no catalog has --from, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// The package
    package: String,
    /// Version or name of the bundle that is installed
    #[arg(long, value_name = "VERSION")]
    from: String,
    /// Version to reach, or `head`: what a first install would choose
    #[arg(long, value_name = "VERSION|head")]
    to: Option<String>,
    /// Whose rules
    #[arg(long, value_enum, default_value_t)]
    rules: Rules,
    /// Take bundles and edges from this channel only; may be given several times (Classic takes the first)
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Range of versions, as spec.source.catalog.version (v1 only)
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Whether edges are needed, as spec.source.catalog.upgradeConstraintPolicy (v1 only)
    #[arg(long, value_enum, default_value_t, alias = "upgrade-constraint-policy")]
    policy: why::Policy,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Serialize)]
struct Report {
    package: String,
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    reached: bool,
    paths: Vec<Path>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    // "not reached" has an exit code of its own, so that a misspelt package must not have the same
    let graph = package(&arguments.sources, &arguments.package).await.map_err(beyond_one)?;
    let from = installed(&graph, &arguments.from)?;
    refuse_unknown(&graph, &from, &arguments.from)?;
    let invalid_range = |error: RangeError| CommandError::Usage(format!("--version: {}", error.explain()));
    let environment = arguments.controller.environment.read(&arguments.sources).await;
    let query = PathQuery {
        channels: channels(&graph, &arguments.channels)?,
        range: arguments.version.as_deref().map(Range::masterminds).transpose().map_err(invalid_range)?,
        policy: match arguments.policy {
            why::Policy::CatalogProvided => Policy::CatalogProvided,
            why::Policy::SelfCertified => Policy::SelfCertified,
        },
        major_updates: arguments.controller.major_updates,
        environment,
        to: target(arguments.to.as_deref())?,
        from: Some(from.clone()),
        graph,
    };
    let rules: &[RuleSet] = match arguments.rules {
        Rules::V1 => &[RuleSet::V1],
        Rules::Classic => &[RuleSet::Classic],
        Rules::Both => &[RuleSet::V1, RuleSet::Classic],
    };
    let paths: Vec<Path> = rules.iter().map(|&rules| path(&query, rules)).collect();
    let report = Report {
        package: arguments.package.clone(),
        from: from.version.to_string(),
        to: arguments.to.clone(),
        reached: paths.iter().all(|path| path.reached),
        paths,
    };
    let names = || {
        let hops = report.paths.iter().flat_map(|path| path.hops.iter());
        hops.map(|hop| hop.bundle.clone()).collect()
    };
    let text = arguments.output.print(&report, names, |wide| table(&report, wide));
    Ok(CommandOutput { text, yes: report.reached })
}

/// An error if no bundle of the catalog is the installed one.
fn refuse_unknown(graph: &PackageGraph, from: &Installed, text: &str) -> Result<(), CommandError> {
    if graph.find_bundle(from.name.as_str()).is_some() {
        return Ok(());
    }
    let mut versions: Vec<&VersionRelease> =
        graph.bundles().filter_map(|bundle| graph.version(bundle).ok()).collect();
    versions.sort();
    let known = match versions.as_slice() {
        [] => "it has no versions".to_owned(),
        [only] => format!("there is {only}"),
        [first, .., last] => format!("there are {first} … {last}"),
    };
    Err(CommandError::NotFound(format!("no catalog has {text}; {known}")))
}

fn target(text: Option<&str>) -> Result<Target, CommandError> {
    Ok(match text {
        None => Target::Anywhere,
        Some("head") => Target::Head,
        Some(text) => Target::Version(
            text.parse::<VersionRelease>()
                .map_err(|error| CommandError::Usage(format!("--to: {error}; write a version or head")))?,
        ),
    })
}

/// In text and as the head of a column.
fn names(rules: RuleSet) -> (&'static str, &'static str) {
    match rules {
        RuleSet::V1 => ("v1", "V1"),
        RuleSet::Classic => ("Classic", "CLASSIC"),
    }
}

/// The hops side by side, then the reasons of each.
fn table(report: &Report, wide: bool) -> String {
    let heading = report.paths.iter().map(|path| names(path.rules).1);
    let mut table = Table::new(std::iter::once("HOP").chain(heading));
    let mut row = |first: String, cell: &dyn Fn(&Path) -> String| {
        table.row(std::iter::once(first).chain(report.paths.iter().map(cell)));
    };
    let most = report.paths.iter().map(|path| path.hops.len()).max().unwrap_or_default();
    for hop in 0..most {
        row((hop + 1).to_string(), &|path| match path.hops.get(hop) {
            Some(hop) if hop.version.is_empty() => hop.bundle.clone(),
            Some(hop) => hop.version.clone(),
            None => String::new(),
        });
    }
    row("end".to_owned(), &|path| match &path.end {
        End::Stays => end_of(report, path).to_owned(),
        End::Loop(_) => "loops".to_owned(),
        End::Error(_) => "error".to_owned(),
    });
    if report.to.is_some() {
        row("target".to_owned(), &|path| if path.reached { "reached" } else { "not reached" }.to_owned());
    }
    let to = report.to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
    let mut text = format!("package {}: from {}{to}\n\n", report.package, report.from);
    text.push_str(&table.text(""));
    for path in &report.paths {
        text.push_str(&reasons(report, path, wide));
    }
    text
}

/// The version at which a path ends.
fn end_of<'a>(report: &'a Report, path: &'a Path) -> &'a str {
    path.hops.last().map_or(&report.from, |hop| match hop.version.as_str() {
        "" => &hop.bundle,
        version => version,
    })
}

fn reasons(report: &Report, path: &Path, wide: bool) -> String {
    let most = if wide { usize::MAX } else { MAX_NOT_OFFERED };
    let mut text = format!("\n{}\n", names(path.rules).0);
    let mut line = |line: String| {
        text.push_str("  ");
        text.push_str(&line);
        text.push('\n');
    };
    // in full where the path ends; for a hop on the way only if it is asked for
    let not_offered = |line: &mut dyn FnMut(String), list: &[olm_resolver::NotOffered]| {
        for candidate in list.iter().take(most) {
            line(format!("  not offered: {}: {}", candidate.bundle, candidate.why));
        }
        if let Some(more @ 1..) = list.len().checked_sub(most) {
            line(format!("  not offered: {more} more, see -o wide"));
        }
    };
    let mut at = report.from.clone();
    for hop in &path.hops {
        line(format!("{at} → {}: {}", hop.version, hop.why));
        for warning in &hop.warnings {
            line(format!("  warning: {warning}"));
        }
        if wide {
            not_offered(&mut line, &hop.not_offered);
        }
        at.clone_from(&hop.version);
    }
    match &path.end {
        End::Stays => line(format!("{at}: nothing more is offered")),
        End::Loop(bundle) => line(format!("{at}: would continue in a circle, back to {bundle}")),
        End::Error(message) => line(format!("{at}: {message}")),
    }
    not_offered(&mut line, &path.not_offered);
    let by_itself = |to: &str| to == report.from || path.hops.iter().any(|hop| hop.version == to);
    if let (Some(steps), Some(to)) = (&path.pinned, &report.to)
        && let Some(last) = steps.last()
        && !by_itself(if to == "head" { &last.version } else { to })
    {
        let head = match to.as_str() {
            "head" => format!(
                "head is {}; the target is not reached by itself: set version for each hop",
                last.version
            ),
            _ => "by setting version for each hop".to_owned(),
        };
        let steps: Vec<String> =
            steps.iter().map(|step| format!("{} ({} in {})", step.version, step.by, step.channel)).collect();
        line(format!("{head}: {}", steps.join(", ")));
    }
    for warning in &path.warnings {
        line(format!("warning: {warning}"));
    }
    text
}
