//! `graph`: a package's channels and upgrade edges as a picture.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use olm_core::ChannelName;
use olm_resolver::{Installed, PackageGraph, ReleaseField};

use crate::CommandOutput;
use crate::draw::{self, Scene};
use crate::failure::{CommandError, print_note};
use crate::similar::no_channel;
use crate::sources::Sources;

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Form {
    /// Text: each channel from its head down.
    #[default]
    Tree,
    /// A Mermaid flowchart, for Markdown.
    Mermaid,
    /// Graphviz.
    Dot,
    /// A picture of its own.
    Svg,
    /// The data behind the pictures.
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl olm graph argocd-operator
  kubectl olm graph argocd-operator --channel alpha --installed 0.8.0
  kubectl olm graph argocd-operator --image quay.io/example/catalog:latest -o svg > argocd.svg
  kubectl olm graph argocd-operator --dir ./catalog -o dot | dot -Tpdf > argocd.pdf

Exit codes: 0 drawn, 1 no such package, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// The package
    package: String,
    /// Draw only this channel; may be given several times
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Version or name of the bundle that is installed; it and what can be reached from it are marked
    #[arg(long, value_name = "VERSION")]
    installed: Option<String>,
    /// How to draw
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    output: Form,
    #[command(flatten)]
    sources: Sources,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let graph = package(&arguments.sources, &arguments.package).await?;
    let channels = channels(&graph, &arguments.channels)?;
    let installed = arguments.installed.as_deref().map(|text| installed(&graph, text)).transpose()?;
    let scene = Scene::new(&graph, &channels, installed.as_ref());
    Ok(draw(arguments.output, &scene))
}

pub(crate) fn draw(form: Form, scene: &Scene) -> CommandOutput {
    let text = match form {
        Form::Tree => draw::tree(scene),
        Form::Mermaid => draw::mermaid(scene),
        Form::Dot => draw::dot(scene),
        Form::Svg => draw::svg(scene),
        Form::Json => serde_json::to_string_pretty(scene).unwrap_or_default() + "\n",
    };
    CommandOutput { text, yes: true }
}

/// The graph of a package. Of several catalogs the one with the highest priority counts; the others are printed to
/// standard error.
pub(crate) async fn package(sources: &Sources, name: &str) -> Result<Arc<PackageGraph>, CommandError> {
    let found = sources.package(name).await?;
    let mut found = found.into_iter();
    let Some(first) = found.next() else {
        return Err(CommandError::NotFound(format!("no catalog holds package {name:?}")));
    };
    let others: Vec<String> = found.map(|found| found.catalog.name.to_string()).collect();
    if !others.is_empty() {
        print_note(&format!(
            "from catalog {}; the package is also in {}: choose with --catalog",
            first.catalog.name,
            others.join(", ")
        ));
    }
    Ok(Arc::new(first.content.into_graph(ReleaseField::Counts)))
}

/// The given channels; all must exist.
pub(crate) fn channels(graph: &PackageGraph, asked: &[String]) -> Result<Vec<ChannelName>, CommandError> {
    let known: Vec<&str> = graph.channels().map(|channel| graph.channel_name(channel)).collect();
    asked
        .iter()
        .map(|name| {
            let channel = name.parse().map_err(|error| CommandError::Usage(format!("--channel: {error}")))?;
            match known.contains(&name.as_str()) {
                true => Ok(channel),
                false => {
                    let package = format!("package {}", graph.package());
                    Err(CommandError::Usage(no_channel(name, &package, known.iter().copied())))
                }
            }
        })
        .collect()
}

/// The installed bundle, by name or version.
pub(crate) fn installed(graph: &PackageGraph, text: &str) -> Result<Installed, CommandError> {
    Installed::find(graph, text).ok_or_else(|| {
        CommandError::Usage(format!(
            "{text} is neither a version nor the name of a bundle of package {}; write for example 1.2.3",
            graph.package()
        ))
    })
}
