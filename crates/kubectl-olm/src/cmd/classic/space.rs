//! A namespace with the content of its catalogs: the input of all verbs, and the arguments that name it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use kube::Client;
use olm_api::classic::CatalogSource;
use olm_classic::catalog_source::{Backing, validate};
use olm_classic::subscription::{CatalogFact, NamespaceFacts, solver_namespace, waiting};

use super::content::CatalogContent;
use super::objects::Objects;
use crate::failure::CommandError;
use crate::sources::{Cache, Cluster, Namespace, Registry, Sources};

#[derive(Debug, Args)]
pub(super) struct Space {
    #[command(flatten)]
    namespace: Namespace,
    /// Manifests of CatalogSources, Subscriptions, ClusterServiceVersions, InstallPlans and OperatorGroups, instead of the cluster's, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A directory with the file-based catalog of a CatalogSource, instead of its image; may be repeated
    #[arg(long = "content", value_name = "NAME=DIR")]
    contents: Vec<Content>,
    /// The namespace whose CatalogSources serve every namespace
    #[arg(long, value_name = "NAME", default_value = "olm")]
    global_namespace: String,
    #[command(flatten)]
    pub(super) cluster: Cluster,
    #[command(flatten)]
    pub(super) registry: Registry,
    #[command(flatten)]
    pub(super) cache: Cache,
}

/// `NAME=DIR`
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) name: String,
    pub(super) directory: PathBuf,
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

/// What was read.
pub(super) struct Gathered<'a> {
    pub(super) namespace: &'a str,
    global_namespace: &'a str,
    pub(super) objects: Objects,
    /// By namespace and name of the CatalogSource.
    contents: BTreeMap<(String, String), Result<CatalogContent, String>>,
    /// `None`: the objects are from files.
    pub(super) client: Option<Client>,
}

impl Space {
    /// Reads the objects and the catalogs of the namespace. A catalog that names no content is read as one without.
    pub(super) async fn gather(&self) -> Result<Gathered<'_>, CommandError> {
        let (namespace, global_namespace) = (self.namespace.required()?, self.global_namespace.as_str());
        let (objects, client) = if self.files.is_empty() {
            let client = self.cluster.client().await?;
            (Objects::from_cluster(&client, namespace, global_namespace).await?, Some(client))
        } else {
            (Objects::from_files(&self.files)?, None)
        };
        let objects = objects.within(namespace);
        let mut gathered =
            Gathered { namespace, global_namespace, objects, contents: BTreeMap::new(), client };
        for source in &gathered.objects.catalogs {
            let content = self.content(source).await?;
            gathered.contents.insert(key(source), content);
        }
        Ok(gathered)
    }

    /// As [`Self::gather`], of a namespace that has something to resolve.
    ///
    /// A catalog without content, which would fail the resolution, is an error of this command: there is no answer.
    pub(super) async fn gather_subscribed(&self) -> Result<Gathered<'_>, CommandError> {
        let gathered = self.gather().await?;
        let namespace = gathered.namespace;
        if gathered.objects.subscriptions.is_empty() {
            return Err(CommandError::NotFound(format!("namespace {namespace} has no Subscription")));
        }
        let input = gathered.solver_input();
        let is_visible = |of: &str| of == namespace || input.global_namespace.as_deref() == Some(of);
        let unread = gathered.contents.iter().filter(|((of, _), _)| is_visible(of));
        let texts: Vec<String> = unread
            .filter_map(|((namespace, name), content)| {
                let why = content.as_ref().err()?;
                Some(format!("catalog {namespace}/{name} has no content: {why}"))
            })
            .collect();
        if texts.is_empty() { Ok(gathered) } else { Err(CommandError::Unreachable(texts.join("\n"))) }
    }

    /// The content of a CatalogSource, or why it names none.
    async fn content(&self, source: &CatalogSource) -> Result<Result<CatalogContent, String>, CommandError> {
        let name = source.metadata.name.as_deref().unwrap_or_default();
        let given = self.contents.iter().find(|content| content.name == name);
        let sources = |image: Option<String>, directory: Option<PathBuf>| {
            Sources::of_content(image, directory, &self.cluster, &self.registry, &self.cache)
        };
        let sources = match (given, validate(&source.spec)) {
            (Some(content), _) => sources(None, Some(content.directory.clone())),
            (None, Ok(Backing::Image(image))) => sources(Some(image.to_owned()), None),
            (None, Ok(Backing::Address(_) | Backing::ConfigMap(_))) => {
                return Ok(Err(format!("it names no image; give --content {name}=DIR")));
            }
            (None, Err(error)) => return Ok(Err(format!("{error}; {}", error.fix()))),
        };
        Ok(Ok(CatalogContent::read(sources).await?))
    }
}

fn key(source: &CatalogSource) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&source.metadata.namespace), text(&source.metadata.name))
}

impl Gathered<'_> {
    /// Everything but the health of the catalogs, which is not read.
    pub(super) fn facts<'a>(&'a self, catalogs: &'a [CatalogFact<'a>]) -> NamespaceFacts<'a> {
        NamespaceFacts {
            namespace: self.namespace,
            global_namespace: Some(self.global_namespace),
            groups: &self.objects.groups,
            subscriptions: &self.objects.subscriptions,
            csvs: &self.objects.csvs,
            plans: &self.objects.plans,
            catalogs,
        }
        .with_exclusion()
    }

    pub(super) fn solver_input(&self) -> olm_solver::Namespace {
        let catalogs: Vec<CatalogFact<'_>> =
            self.objects.catalogs.iter().map(|source| CatalogFact { source, is_healthy: true }).collect();
        solver_namespace(&self.facts(&catalogs), |namespace, name| {
            match self.contents.get(&(namespace.to_owned(), name.to_owned())) {
                Some(Ok(content)) => Ok(content.catalog.clone()),
                Some(Err(why)) => Err(why.clone()),
                None => Err("its content was not read".to_owned()),
            }
        })
    }

    /// The Subscriptions that take part in no resolution now, and why.
    pub(super) fn waiting(&self, input: &olm_solver::Namespace) -> Vec<(String, String)> {
        waiting(&self.facts(&[]), input)
    }

    /// The content of a catalog that was read.
    pub(super) fn content(&self, namespace: &str, name: &str) -> Option<&CatalogContent> {
        self.contents.get(&(namespace.to_owned(), name.to_owned()))?.as_ref().ok()
    }
}
