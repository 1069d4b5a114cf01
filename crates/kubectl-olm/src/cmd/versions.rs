//! `versions`: the bundles of a package, highest version first.

use std::collections::BTreeSet;

use clap::Args;
use olm_catalog::CatalogFacts;
use olm_core::EmptyName;
use olm_resolver::{DeprecatedScope, PackageGraph, ReleaseField, Request, Rules, parse_range};
use serde::Serialize;

use super::output::{MAX_NOTE, Output, Table, cut, or_dash};
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};
use crate::similar::no_channel;
use crate::sources::{EnvironmentFlags, Sources};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl olm versions argocd-operator\n  \
                  kubectl olm versions argocd-operator --version '>=0.9.0 <0.11.0' --channel alpha\n  \
                  kubectl olm versions my-operator --dir ./catalog -o name\n\n\
                  Exit codes: 0 there are some, 1 there is none, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// The package
    package: String,
    /// Only versions in this range, written as in spec.source.catalog.version
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Only bundles in this channel; may be repeated
    #[arg(long)]
    channel: Vec<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    environment: EnvironmentFlags,
    #[command(flatten)]
    sources: Sources,
}

/// One bundle. `-o json` prints a list of these.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    catalog: String,
    /// Version with release; absent where the catalog gives none that can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    bundle: String,
    channels: Vec<String>,
    /// Whether the bundle itself is deprecated.
    deprecated: bool,
    /// The message of the catalog for its deprecation.
    #[serde(skip_serializing_if = "String::is_empty")]
    deprecation: String,
    image: String,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let range = parse_range(arguments.version.as_deref().unwrap_or_default())
        .map_err(|error| CommandError::Usage(error.condition_message()))?;
    let channel = |error: EmptyName| CommandError::Usage(format!("--channel: {error}"));
    let found = arguments.sources.package(&arguments.package).await?;
    let package = arguments.package.parse();
    let mut request =
        Request::new(package.map_err(|error| CommandError::Usage(format!("PACKAGE: {error}")))?);
    request.channels =
        arguments.channel.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(channel)?;
    request.range = range;
    request.environment = arguments.environment.read(&arguments.sources).await;
    let several = found.len() > 1;
    let graphs: Vec<(CatalogFacts, PackageGraph)> = found
        .into_iter()
        .map(|found| (found.catalog, found.content.into_graph(ReleaseField::Counts)))
        .collect();
    let listed: Vec<Row> =
        graphs.iter().flat_map(|(catalog, graph)| rows(catalog, graph, &request)).collect();
    let names = || listed.iter().map(|row| row.bundle.clone()).collect();
    let text = arguments.output.print(&listed, names, |wide| table(&listed, several, wide));
    if listed.is_empty() {
        print_note(&format!("error: {}", nothing_matches(arguments, &graphs)));
    }
    Ok(CommandOutput { text, yes: !listed.is_empty() })
}

fn nothing_matches(arguments: &Arguments, graphs: &[(CatalogFacts, PackageGraph)]) -> String {
    let package = &arguments.package;
    let mut known = BTreeSet::new();
    for (_, graph) in graphs {
        known.extend(graph.channels().map(|channel| graph.channel_name(channel)));
    }
    match arguments.channel.iter().find(|name| !known.contains(name.as_str())) {
        Some(missing) => no_channel(missing, &format!("package {package}"), known),
        None => {
            let flags = arguments.sources.flags();
            format!("no version of {package} matches; `kubectl olm versions {package}{flags}` lists all")
        }
    }
}

fn rows(facts: &CatalogFacts, graph: &PackageGraph, request: &Request) -> Vec<Row> {
    let rules = Rules::new(request, graph);
    let mut bundles: Vec<_> = graph.bundles().filter(|&bundle| rules.eligible(bundle).is_ok()).collect();
    bundles.sort_by(|a, b| graph.version(*b).ok().cmp(&graph.version(*a).ok()));
    let row = |bundle| Row {
        catalog: facts.name.to_string(),
        version: graph.version(bundle).ok().map(ToString::to_string),
        bundle: graph.bundle_name(bundle).to_owned(),
        channels: graph.channels_of(bundle).map(|channel| graph.channel_name(channel).to_owned()).collect(),
        deprecated: graph.is_deprecated(bundle),
        deprecation: deprecation(graph, graph.bundle_name(bundle)),
        image: graph.image(bundle).to_owned(),
    };
    bundles.into_iter().map(row).collect()
}

fn deprecation(graph: &PackageGraph, bundle: &str) -> String {
    let is_of = |scope: &DeprecatedScope| matches!(scope, DeprecatedScope::Bundle(name) if **name == *bundle);
    let mut found = graph.deprecations().filter(|(scope, _)| is_of(scope)).map(|(_, text)| text.to_owned());
    found.next().unwrap_or_default()
}

fn table(listed: &[Row], several: bool, wide: bool) -> String {
    let heads = ["VERSION", "BUNDLE", "CHANNELS", "DEPRECATED", "CATALOG", "IMAGE"];
    let shown = match (wide, several) {
        (true, _) => heads.len(),
        (false, true) => 5,
        (false, false) => 4,
    };
    let mut table = Table::new(heads.into_iter().take(shown));
    for row in listed {
        table.row([
            or_dash(row.version.as_deref().unwrap_or_default()),
            row.bundle.clone(),
            or_dash(&row.channels.join(",")),
            match (row.deprecated, wide) {
                (false, _) => "-".to_owned(),
                (true, true) => format!("yes: {}", row.deprecation),
                (true, false) => cut(&format!("yes: {}", row.deprecation), MAX_NOTE),
            },
            row.catalog.clone(),
            or_dash(&row.image),
        ]);
    }
    table.text("")
}
