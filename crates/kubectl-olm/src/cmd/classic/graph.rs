//! `classic graph`: a package's channels and upgrade edges as the resolution of a namespace sees them.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use olm_api::classic::Subscription;
use olm_resolver::{Installed, PackageGraph, ReleaseField};
use olm_solver::{Limits, Namespace, solve};

use super::content::CatalogContent;
use super::space::{Gathered, Space};
use crate::CommandOutput;
use crate::cmd::graph::{Form, channels, draw};
use crate::draw::Scene;
use crate::failure::{CommandError, print_note};
use crate::sources::Sources;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl olm classic graph -n operators argocd-operator
  kubectl olm classic graph -n operators argocd-operator -f namespace.yaml --content operatorhubio=./catalog -o mermaid
  kubectl olm classic graph argocd-operator --dir ./catalog -o dot | dot -Tpdf > argocd.pdf

Marked are the CSV that is installed for the Subscription and the bundle that the namespace gets next.

Exit codes: 0 drawn, 1 no such package, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// The package
    package: String,
    /// Draw only this channel instead of the Subscription's; may be given several times
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Draw the package of this CatalogSource instead of the Subscription's or the preferred one
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Draw the package of the file-based catalog in a directory, without a namespace
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "contents", "source"])]
    dir: Option<PathBuf>,
    /// How to draw
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    output: Form,
    #[command(flatten)]
    space: Space,
}

pub(super) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let Some(directory) = &arguments.dir else { return draw_subscribed(arguments).await };
    let space = &arguments.space;
    let directory = Some(directory.clone());
    let sources = Sources::of_content(None, directory, &space.cluster, &space.registry, &space.cache);
    let content = CatalogContent::read(sources).await?;
    let graph = graph(&content, &arguments.package).await?.ok_or_else(|| missing(&arguments.package))?;
    let channels = channels(&graph, &arguments.channels)?;
    Ok(draw(arguments.output, &Scene::new(&graph, &channels, None).with_next(None)))
}

async fn draw_subscribed(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let gathered = arguments.space.gather().await?;
    let package = arguments.package.as_str();
    let mut subscriptions = gathered.objects.subscriptions.iter().map(|it| &**it);
    let subscription = subscriptions.find(|it| it.spec.package == package);
    let input = gathered.solver_input();
    let graph = published(arguments, &gathered, &input, subscription).await?;
    let asked = match subscription {
        Some(it) if arguments.channels.is_empty() && !it.spec.channel.is_empty() => {
            vec![it.spec.channel.clone()]
        }
        _ => arguments.channels.clone(),
    };
    let channels = channels(&graph, &asked)?;
    let status = subscription.and_then(|it| it.status.as_ref());
    let installed = status.map(|it| it.installed_csv.as_str()).filter(|name| !name.is_empty());
    let installed = installed.and_then(|name| {
        let version = gathered.objects.csvs.iter().find(|it| it.metadata.name.as_deref() == Some(name));
        let version = version.map(|csv| csv.spec.version.as_str()).unwrap_or_default();
        Installed::find(&graph, name).or_else(|| Installed::parse(name, version, None).ok())
    });
    let scene = Scene::new(&graph, &channels, installed.as_ref());
    Ok(draw(arguments.output, &scene.with_next(next(&input, package).as_deref())))
}

/// The bundle of a package that the namespace gets; prints why there is no resolution.
fn next(input: &Namespace, package: &str) -> Option<String> {
    match solve(input, Limits::default()) {
        Ok(solution) => solution.bundles.into_iter().find(|it| it.package == package).map(|it| it.name),
        Err(error) => {
            print_note(&format!("the namespace is not resolved, so no bundle is marked as next: {error}"));
            None
        }
    }
}

/// The package of the catalog that `--source` names, else the Subscription, else of the first that has it, in the order of preference.
async fn published(
    arguments: &Arguments,
    gathered: &Gathered<'_>,
    input: &Namespace,
    subscription: Option<&Subscription>,
) -> Result<Arc<PackageGraph>, CommandError> {
    let package = arguments.package.as_str();
    let of_subscription = subscription.map(|it| it.spec.source.as_str()).filter(|name| !name.is_empty());
    let asked = arguments.source.as_deref().or(of_subscription);
    let mut catalogs: Vec<&olm_solver::CatalogSource> = input
        .catalogs
        .iter()
        .filter(|it| it.namespace == input.name || Some(&it.namespace) == input.global_namespace.as_ref())
        .filter(|it| asked.is_none_or(|name| it.name == name))
        .collect();
    catalogs.sort_by_key(|it| (-i64::from(it.priority), it.namespace != input.name, &it.name));
    let mut unread = None;
    for catalog in catalogs {
        let Some(content) = gathered.content(&catalog.namespace, &catalog.name) else {
            let why = catalog.content.as_ref().err().cloned().unwrap_or_default();
            unread = Some(format!("catalog {}/{} has no content: {why}", catalog.namespace, catalog.name));
            continue;
        };
        if let Some(graph) = graph(content, package).await? {
            print_note(&format!("from catalog {}/{}", catalog.namespace, catalog.name));
            return Ok(graph);
        }
    }
    Err(unread.map_or_else(|| missing(package), CommandError::Unreachable))
}

fn missing(package: &str) -> CommandError {
    CommandError::NotFound(format!("no catalog holds package {package:?}"))
}

async fn graph(content: &CatalogContent, package: &str) -> Result<Option<Arc<PackageGraph>>, CommandError> {
    let content = content.package(package).await?;
    let is_there = content.contents.package.is_some();
    Ok(is_there.then(|| Arc::new(content.into_graph(ReleaseField::Ignored))))
}
