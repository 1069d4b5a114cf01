//! `classic resolve`: the bundles that the Subscriptions of a namespace come to together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use olm_api::classic::CatalogSource;
use olm_catalog::{CatalogReader, Selector};
use olm_classic::catalog_source::{Backing, validate};
use olm_classic::subscription::{CatalogFact, NamespaceFacts, solver_namespace};
use olm_core::PackageName;
use olm_solver::{Catalog, ChosenBundle, Limits, PackageDraft, solve};
use serde::Serialize;

use super::objects::Objects;
use crate::CommandOutput;
use crate::cmd::output::{Output, Table, or_dash};
use crate::failure::{CommandError, print_note};
use crate::sources::{Cache, Cluster, Namespace, Registry, Sources};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl olm classic resolve -n operators
  kubectl olm classic resolve -n operators -f subscriptions.yaml --content operatorhubio=./catalog
  kubectl olm classic resolve -n operators --global-namespace openshift-marketplace -o json

Exit codes: 0 the Subscriptions can be met, 1 they contradict each other, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    namespace: Namespace,
    /// Manifests of CatalogSources, Subscriptions, ClusterServiceVersions and OperatorGroups, instead of the cluster's; may be repeated
    #[arg(short, long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A directory with the file-based catalog of a CatalogSource, instead of its image; may be repeated
    #[arg(long = "content", value_name = "NAME=DIR")]
    contents: Vec<Content>,
    /// The namespace whose CatalogSources serve every namespace
    #[arg(long, value_name = "NAME", default_value = "olm")]
    global_namespace: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    cache: Cache,
}

/// `NAME=DIR`
#[derive(Debug, Clone)]
struct Content {
    name: String,
    directory: PathBuf,
}

impl FromStr for Content {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, directory)) if !name.is_empty() && !directory.is_empty() => {
                Ok(Self { name: name.to_owned(), directory: directory.into() })
            }
            _ => Err(format!("{text:?} is no NAME=DIR; write operatorhubio=./catalog")),
        }
    }
}

/// A bundle to install. `-o json` prints a list of these.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    package: String,
    bundle: String,
    channel: String,
    catalog: String,
    catalog_namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    replaces: String,
    /// The Subscription that names the package; absent for a dependency.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
}

pub(super) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let (namespace, global) = (arguments.namespace.required()?, arguments.global_namespace.as_str());
    let objects = if arguments.files.is_empty() {
        Objects::from_cluster(&arguments.cluster.client().await?, namespace, global).await?
    } else {
        Objects::from_files(&arguments.files)?
    };
    let objects = objects.within(namespace);
    if objects.subscriptions.is_empty() {
        return Err(CommandError::NotFound(format!("namespace {namespace} has no Subscription")));
    }
    let catalogs: Vec<CatalogFact<'_>> =
        objects.catalogs.iter().map(|source| CatalogFact { source, is_healthy: true }).collect();
    let facts = NamespaceFacts {
        namespace,
        global_namespace: Some(global),
        groups: &objects.groups,
        subscriptions: &objects.subscriptions,
        csvs: &objects.csvs,
        plans: &[],
        catalogs: &catalogs,
    }
    .with_exclusion();
    let mut contents = BTreeMap::new();
    for source in &objects.catalogs {
        let key = |text: &Option<String>| text.clone().unwrap_or_default();
        let content = arguments.content(source).await?;
        contents.insert((key(&source.metadata.namespace), key(&source.metadata.name)), content);
    }
    let input = solver_namespace(&facts, |namespace, name| {
        let content = contents.get(&(namespace.to_owned(), name.to_owned())).cloned();
        content.unwrap_or_else(|| Err("its content was not read".to_owned()))
    });
    match solve(&input, Limits::default()) {
        Ok(solution) => {
            let rows: Vec<Row> = solution.bundles.into_iter().map(|it| row(it, &objects)).collect();
            let names = || rows.iter().map(|row| row.bundle.clone()).collect();
            let text = arguments.output.print(&rows, names, |_| table(&rows));
            Ok(CommandOutput { text, yes: true })
        }
        Err(error) => Ok(CommandOutput { text: format!("{error}\n"), yes: false }),
    }
}

fn row(chosen: ChosenBundle, objects: &Objects) -> Row {
    let names = objects.subscriptions.iter().filter(|it| it.spec.package == chosen.package);
    Row {
        subscription: names.filter_map(|it| it.metadata.name.clone()).next(),
        package: chosen.package,
        bundle: chosen.name,
        channel: chosen.channel,
        catalog: chosen.catalog,
        catalog_namespace: chosen.namespace,
        replaces: chosen.replaces,
    }
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "nothing to install: every Subscription has its newest bundle\n".to_owned();
    }
    let mut table = Table::new(["PACKAGE", "BUNDLE", "CHANNEL", "CATALOG", "REPLACES", "SUBSCRIPTION"]);
    for row in rows {
        let catalog = format!("{}/{}", row.catalog_namespace, row.catalog);
        let subscription = row.subscription.clone().unwrap_or_else(|| "(dependency)".to_owned());
        let replaces = or_dash(&row.replaces);
        table.row([
            row.package.clone(),
            row.bundle.clone(),
            row.channel.clone(),
            catalog,
            replaces,
            subscription,
        ]);
    }
    table.text("")
}

impl Arguments {
    /// The content of a CatalogSource, or why there is none.
    async fn content(&self, source: &CatalogSource) -> Result<Result<Arc<Catalog>, String>, CommandError> {
        let name = source.metadata.name.as_deref().unwrap_or_default();
        let given = self.contents.iter().find(|content| content.name == name);
        let sources = |image: Option<String>, directory: Option<PathBuf>| {
            Sources::of_content(image, directory, &self.cluster, &self.registry, &self.cache)
        };
        let sources = match (given, validate(&source.spec)) {
            (Some(content), _) => sources(None, Some(content.directory.clone())),
            (None, Ok(Backing::Image(image))) => sources(Some(image.to_owned()), None),
            (None, Ok(Backing::Address(_) | Backing::ConfigMap(_))) => {
                let why = format!("it names no image; give --content {name}=DIR");
                print_note(&format!("catalog {name}: {why}"));
                return Ok(Err(why));
            }
            (None, Err(error)) => return Ok(Err(format!("{error}; {}", error.fix()))),
        };
        Ok(Ok(Arc::new(read(&sources).await?)))
    }
}

/// Every package of the only catalog.
async fn read(sources: &Sources) -> Result<Catalog, CommandError> {
    let reader: CatalogReader = sources.open().await?;
    let mut drafts = Vec::new();
    for facts in reader.select(&Selector::default()) {
        let packages = reader.packages(&facts).await.map_err(|error| sources.failure(error))?;
        for summary in packages {
            let Ok(package) = summary.name.parse::<PackageName>() else { continue };
            let content = reader.package(&facts, &package).await.map_err(|error| sources.failure(error))?;
            drafts.extend(PackageDraft::from_contents(content.contents));
        }
    }
    Ok(Catalog::new(drafts))
}
