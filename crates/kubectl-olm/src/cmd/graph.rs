//! `graph`: a package's channels and upgrade edges as a picture.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use olm_core::ChannelName;
use olm_fbc::{IngestLimits, load_dir};
use olm_resolver::{Installed, PackageGraph, ReleaseField};

use crate::Answer;
use crate::draw::{self, Scene};
use crate::failure::Failure;

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Form {
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
  kubectl olm graph argocd-operator --dir ./catalog
  kubectl olm graph argocd-operator --dir ./catalog --channel alpha --installed 0.8.0
  kubectl olm graph argocd-operator --dir ./catalog -o svg > argocd.svg
  kubectl olm graph argocd-operator --dir ./catalog -o dot | dot -Tpdf > argocd.pdf

Exit codes: 0 drawn, 2 bad input.")]
pub(crate) struct Arguments {
    /// The package
    package: String,
    /// Directory of a file-based catalog
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
    /// Draw only this channel; may be given several times
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Version or name of the bundle that is installed; it and what can be reached from it are marked
    #[arg(long, value_name = "VERSION")]
    installed: Option<String>,
    /// How to draw
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    let graph = package(&arguments.dir, &arguments.package)?;
    let channels = channels(&graph, &arguments.channels)?;
    let installed = arguments.installed.as_deref().map(|text| installed(&graph, text)).transpose()?;
    let scene = Scene::new(&graph, &channels, installed.as_ref());
    let text = match arguments.output {
        Form::Tree => draw::tree(&scene),
        Form::Mermaid => draw::mermaid(&scene),
        Form::Dot => draw::dot(&scene),
        Form::Svg => draw::svg(&scene),
        Form::Json => serde_json::to_string_pretty(&scene).unwrap_or_default() + "\n",
    };
    Ok(Answer { text, yes: true })
}

/// The graph of a package of a catalog directory.
pub(crate) fn package(dir: &Path, name: &str) -> Result<Arc<PackageGraph>, Failure> {
    let catalog = load_dir(dir, IngestLimits::default()).map_err(|error| Failure::content(dir, error))?;
    let (contents, findings) = catalog.package(name);
    let graph = PackageGraph::new(&contents, &findings, ReleaseField::Counts);
    if graph.is_empty() {
        return Err(Failure::content(dir, format!("there is no package {name}")));
    }
    Ok(Arc::new(graph))
}

/// The channels asked for; all must exist.
pub(crate) fn channels(graph: &PackageGraph, asked: &[String]) -> Result<Vec<ChannelName>, Failure> {
    let known: Vec<&str> = graph.channels().map(|channel| graph.channel_name(channel)).collect();
    asked
        .iter()
        .map(|name| {
            let channel = name.parse().map_err(|error| Failure::Usage(format!("--channel: {error}")))?;
            match known.contains(&name.as_str()) {
                true => Ok(channel),
                false => Err(Failure::Usage(format!(
                    "package {} has no channel {name}, only {}",
                    graph.package(),
                    known.join(", ")
                ))),
            }
        })
        .collect()
}

/// What a person says is installed.
pub(crate) fn installed(graph: &PackageGraph, text: &str) -> Result<Installed, Failure> {
    Installed::find(graph, text).ok_or_else(|| {
        Failure::Usage(format!(
            "{text} is neither a version nor the name of a bundle of package {}; write for example 1.2.3",
            graph.package()
        ))
    })
}
