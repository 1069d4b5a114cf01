//! Sources of catalogs: the flags that all reading verbs share, and the catalogs that they select.
//!
//! Without a flag, catalogs are read from the cluster of the kubeconfig, through catalogd; `--image` and `--dir` need no
//! cluster. Content of images and of catalogd is cached by digest in the user's cache directory.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use olm_api::{ClusterCatalog, condition};
use olm_catalog::image::{Access, Step};
use olm_catalog::{
    AccessError, CatalogFacts, CatalogImageError, CatalogImages, CatalogReader, ClusterAccess, Fetching,
    PackageContent, PackageStore, ReadError, Selector, package_store,
};
use olm_core::{KubernetesVersion, PackageName, dns};
use olm_fbc::PackageSummary;
use olm_install::render::{RenderSettings, UserRoles};
use olm_install::resolution;
use olm_oci::Store;
use olm_resolver::{ClusterFacts, Environment, EnvironmentConstraints, MajorUpdates, PackageGraph};
use olm_runtime::duration::{DurationError, GoDuration};
use olm_runtime::error_text::{chain, innermost};
use olm_runtime::tls::{CaPool, TlsSettings};

use crate::cmd::act::catalogs;
use crate::cmd::output::{counted, cut};
use crate::extensions::print_passed_over;
use crate::failure::{CommandError, NOT_INSTALLED, check_directory, print_note};
use crate::rights::{VIEWER_ROLE, in_words};
use crate::similar;

/// Which catalogs to read.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sources {
    /// Read a catalog image, named with its registry and a tag or digest, instead of the cluster's catalogs
    #[arg(long, value_name = "REF", conflicts_with = "dir", help_heading = "Catalogs")]
    image: Option<String>,
    /// Read the file-based catalog in a directory instead of the cluster's catalogs
    #[arg(long, value_name = "DIR", help_heading = "Catalogs")]
    dir: Option<PathBuf>,
    /// Read only this catalog of the cluster
    #[arg(long, value_name = "NAME", conflicts_with_all = ["image", "dir"], help_heading = "Catalogs")]
    catalog: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(flatten)]
    pub(crate) registry: Registry,
    #[command(flatten)]
    pub(crate) cache: Cache,
}

/// Flags of operator-controller that decide which bundle is chosen.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Controller")]
pub(crate) struct Controller {
    /// What operator-controller is started with: Hold or Automatic
    #[arg(long, value_name = "MODE", default_value_t, value_parser = MajorUpdates::from_str)]
    pub(crate) major_updates: MajorUpdates,
    #[command(flatten)]
    pub(crate) environment: EnvironmentFlags,
}

/// The cluster that bundles have to fit, and how much that counts.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Controller")]
pub(crate) struct EnvironmentFlags {
    /// What operator-controller is started with: Skip, Refuse or Ignore
    #[arg(long, value_name = "MODE", default_value_t, value_parser = EnvironmentConstraints::from_str)]
    environment_constraints: EnvironmentConstraints,
    /// Choose for this version of Kubernetes instead of the cluster's, such as 1.33; with --image or --dir no other is known
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<KubernetesVersion>,
}

impl Controller {
    /// What a resolution depends on.
    pub(crate) async fn resolution(self, sources: &Sources) -> resolution::Settings {
        let environment = self.environment.read(sources).await;
        resolution::Settings { separate_release: true, major_updates: self.major_updates, environment }
    }
}

impl EnvironmentFlags {
    /// The cluster, as far as it is known. Prints a notice to standard error if it cannot be read.
    pub(crate) async fn read(self, sources: &Sources) -> Environment {
        let Self { environment_constraints: constraints, kube_version } = self;
        let mut facts = ClusterFacts::default();
        if constraints != EnvironmentConstraints::Ignore && !sources.is_local() {
            let read = async {
                let client = sources.cluster.client().await?;
                let facts = olm_install::cluster::facts(&client).await;
                facts.map_err(|error| CommandError::Unreachable(chain(&error)))
            };
            match read.await {
                Ok(found) => facts = found,
                Err(failure) => {
                    print_note(&format!("the version and the APIs of the cluster are not known: {failure}"))
                }
            }
        }
        facts.version = kube_version.or(facts.version);
        Environment { constraints, cluster: Arc::new(facts) }
    }
}

/// Flags of operator-controller that decide what a bundle renders to.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Controller")]
pub(crate) struct Rendering {
    /// What operator-controller is started with: None or Aggregate
    #[arg(long, value_name = "MODE", default_value_t, value_parser = UserRoles::from_str)]
    user_roles: UserRoles,
}

impl Rendering {
    /// What a rendering depends on.
    pub(crate) fn settings(self) -> RenderSettings {
        RenderSettings { user_roles: self.user_roles, ..RenderSettings::default() }
    }
}

/// The cluster and the identity: kubectl's flags. They may stand before and after the verb.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Cluster {
    /// A kubeconfig; else KUBECONFIG, ~/.kube/config or the pod's account
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig
    #[arg(long, env = "KUBECTL_OLM_CONTEXT", hide_env_values = true, value_name = "NAME", global = true)]
    context: Option<String>,
    /// A cluster of the kubeconfig
    #[arg(long, value_name = "NAME", global = true)]
    cluster: Option<String>,
    /// A user of the kubeconfig
    #[arg(long, value_name = "NAME", global = true)]
    user: Option<String>,
    /// Act as this user
    #[arg(long = "as", value_name = "USER", global = true)]
    impersonate: Option<String>,
    /// Act as a member of this group; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", global = true)]
    impersonate_groups: Vec<String>,
    /// The longest wait for an answer of the apiserver, such as 5s or 2m; 0 waits for ever
    #[arg(long, env = "KUBECTL_OLM_REQUEST_TIMEOUT", hide_env_values = true, value_name = "DURATION", default_value = "30s", value_parser = request_timeout, global = true)]
    request_timeout: GoDuration,
    /// Reach catalogd at this address instead of through the apiserver, such as https://127.0.0.1:8443
    #[arg(long, env = "KUBECTL_OLM_CATALOGD_URL", hide_env_values = true, value_name = "URL", value_parser = address, global = true)]
    catalogd_url: Option<String>,
    /// A directory with CA certificates to trust for --catalogd-url
    #[arg(
        long,
        env = "KUBECTL_OLM_CATALOGD_CAS_DIR",
        hide_env_values = true,
        value_name = "DIR",
        global = true
    )]
    catalogd_cas_dir: Option<PathBuf>,
}

/// The namespace that a package is installed in. The flag may stand before and after the verb.
#[derive(Debug, Clone, Args)]
pub(crate) struct Namespace {
    /// Namespace of the package's objects
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace, global = true)]
    namespace: Option<String>,
}

impl Namespace {
    pub(crate) fn given(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|name| !name.is_empty())
    }

    pub(crate) fn required(&self) -> Result<&str, CommandError> {
        self.given().ok_or_else(|| {
            let text = "--namespace is missing; name the namespace of the objects";
            CommandError::Usage(text.to_owned())
        })
    }
}

/// A name that a namespace can have; an empty one counts as not given.
fn namespace(text: &str) -> Result<String, String> {
    if text.is_empty() || (dns::is_label(text) && text.len() <= 63) {
        return Ok(text.to_owned());
    }
    Err("no namespace has such a name; write at most 63 lower case letters, digits and '-'".to_owned())
}

/// A duration as kubectl reads it: a number without a unit counts seconds.
fn request_timeout(text: &str) -> Result<GoDuration, DurationError> {
    match text.parse() {
        Ok(seconds) => Ok(GoDuration(Duration::from_secs(seconds))),
        Err(_) => text.parse(),
    }
}

/// An absolute address of HTTP.
fn address(text: &str) -> Result<String, String> {
    let is_http = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    match reqwest::Url::parse(text) {
        Ok(url) if is_http(&url) => Ok(text.to_owned()),
        _ => Err("write an address such as https://127.0.0.1:8443".to_owned()),
    }
}

/// Whether an address is on this machine, such as that of `kubectl port-forward`: no proxy leads there.
pub(crate) fn is_loopback(address: &str) -> bool {
    let url = reqwest::Url::parse(address).ok();
    url.as_ref().and_then(reqwest::Url::host_str).is_some_and(|host| {
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    })
}

/// A file that is there: a misspelt one must not lead to requests without credentials.
fn existing_file(text: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(text) {
        Ok(found) if found.is_file() => Ok(PathBuf::from(text)),
        Ok(_) => Err("it is no file".to_owned()),
        Err(error) => Err(innermost(&error)),
    }
}

/// A directory that is there.
fn existing_directory(text: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(text) {
        Ok(found) if found.is_dir() => Ok(PathBuf::from(text)),
        Ok(_) => Err("it is no directory".to_owned()),
        Err(error) => Err(innermost(&error)),
    }
}

/// How registries are reached. Credentials, mirrors, proxies and certificates of the container tools are used anyway.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Registry")]
pub(crate) struct Registry {
    /// A docker or containers credentials file, instead of the usual places
    #[arg(long, env = "KUBECTL_OLM_AUTHFILE", hide_env_values = true, value_name = "FILE", value_parser = existing_file)]
    authfile: Option<PathBuf>,
    /// A file with CA certificates to trust
    #[arg(long, env = "KUBECTL_OLM_CA_FILE", hide_env_values = true, value_name = "FILE", value_parser = existing_file)]
    ca_file: Option<PathBuf>,
    /// A directory with CA certificates (*.crt) and client certificates (*.cert and *.key)
    #[arg(long, env = "KUBECTL_OLM_CERT_DIR", hide_env_values = true, value_name = "DIR", value_parser = existing_directory)]
    cert_dir: Option<PathBuf>,
    /// A registries.conf with mirrors, instead of those in the usual places
    #[arg(long, env = "KUBECTL_OLM_REGISTRIES_CONF", hide_env_values = true, value_name = "FILE", value_parser = existing_file)]
    registries_conf: Option<PathBuf>,
    /// Allow plain HTTP and untrusted certificates
    #[arg(long)]
    insecure: bool,
}

/// What is kept on disk.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cache")]
pub(crate) struct Cache {
    /// Where content is kept [default: $XDG_CACHE_HOME/olm, else ~/.cache/olm]
    #[arg(long, env = "KUBECTL_OLM_CACHE_DIR", hide_env_values = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// A package as one catalog has it.
pub(crate) struct Found {
    pub(crate) catalog: CatalogFacts,
    pub(crate) content: PackageContent,
}

impl Registry {
    pub(crate) fn access(&self) -> Access {
        Access {
            auth_file: self.authfile.clone(),
            cert_dir: self.cert_dir.clone(),
            ca_file: self.ca_file.clone(),
            registries_conf: self.registries_conf.clone(),
            insecure: self.insecure,
        }
    }
}

impl Cache {
    /// The directory, if the user has a home.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.cache_dir
            .clone()
            .or_else(|| set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("olm")))
            .or_else(|| set("HOME").map(|home| home.join(".cache").join("olm")))
    }

    /// The images in this folder of the cache.
    pub(crate) async fn images(&self, folder: &str) -> Result<Store, CommandError> {
        let directory = self.directory().ok_or_else(|| {
            CommandError::Usage(
                "there is no home directory to keep the image in; give --cache-dir".to_owned(),
            )
        })?;
        let root = directory.join(folder);
        let opened = tokio::task::spawn_blocking(move || Store::open(&root)).await;
        let opened =
            opened.map_err(|error| CommandError::Usage(format!("cannot open the cache: {error}")))?;
        opened.map_err(|error| {
            let (path, why) = (directory.display(), chain(&error));
            CommandError::Usage(format!("cannot open the cache {path}: {why}; give another --cache-dir"))
        })
    }
}

impl Cluster {
    /// A client. No request is sent yet.
    pub(crate) async fn client(&self) -> Result<kube::Client, CommandError> {
        self.client_within(self.request_timeout()).await
    }

    async fn client_within(&self, request_timeout: Option<Duration>) -> Result<kube::Client, CommandError> {
        let access = ClusterAccess {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
            request_timeout,
        };
        access.client().await.map_err(|error| match error {
            AccessError::GroupsWithoutUser => {
                CommandError::Usage(format!("{error}; give --as with --as-group"))
            }
            AccessError::NoEntry { .. } => CommandError::Unreachable(error.to_string()),
            _ => CommandError::Unreachable(format!("{error}; name a cluster with --kubeconfig or --context")),
        })
    }

    fn request_timeout(&self) -> Option<Duration> {
        let GoDuration(limit) = self.request_timeout;
        Some(limit).filter(|limit| !limit.is_zero())
    }

    /// The longest wait for an answer of catalogd.
    fn catalogd_timeout(&self) -> Option<Duration> {
        self.request_timeout().map(|limit| if limit == REQUEST_TIMEOUT { CATALOGD_TIMEOUT } else { limit })
    }
}

/// The longest wait for an answer of catalogd, unless --request-timeout is given.
const CATALOGD_TIMEOUT: Duration = Duration::from_secs(10);
/// The default of --request-timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The error message if no catalog can be read.
pub(crate) const NO_CATALOG: &str =
    "there is no available ClusterCatalog; `kubectl olm catalogs` shows why, or give --image or --dir";
/// Catalogs that are not served and are named one by one.
const MAX_UNSERVED: usize = 3;
/// Characters of the reason why a catalog is not served.
const MAX_REASON: usize = 120;

fn or_without_a_cluster(failure: CommandError) -> CommandError {
    match failure {
        CommandError::Unreachable(text) => CommandError::Unreachable(format!(
            "{text}, or read a catalog without one: --image REF or --dir DIR"
        )),
        other => other,
    }
}

impl Sources {
    /// All catalogs of the cluster.
    pub(crate) fn of_cluster(cluster: &Cluster, registry: &Registry, cache: &Cache) -> Self {
        let (cluster, registry, cache) = (cluster.clone(), registry.clone(), cache.clone());
        Self { image: None, dir: None, catalog: None, cluster, registry, cache }
    }

    /// A catalog image, or a directory.
    pub(crate) fn of_content(
        image: Option<String>,
        dir: Option<PathBuf>,
        cluster: &Cluster,
        registry: &Registry,
        cache: &Cache,
    ) -> Self {
        Self { image, dir, ..Self::of_cluster(cluster, registry, cache) }
    }

    /// Whether the catalog is not one of the cluster.
    pub(crate) fn is_local(&self) -> bool {
        self.local().is_some()
    }

    /// The flag and the catalog that is read instead of those of the cluster.
    pub(crate) fn local(&self) -> Option<(&'static str, String)> {
        match (&self.image, &self.dir) {
            (Some(image), _) => Some(("--image", image.clone())),
            (None, Some(directory)) => Some(("--dir", directory.display().to_string())),
            (None, None) => None,
        }
    }

    /// The flags of another command that is to read the same catalogs, with a space before them.
    pub(crate) fn flags(&self) -> String {
        self.local().map(|(flag, value)| format!(" {flag} {value}")).unwrap_or_default()
    }

    /// The hint if no package has a similar name.
    fn search_hint(&self) -> String {
        format!("see `kubectl olm search{}`", self.flags())
    }

    /// The images of these catalogs as they were named, by the name of the catalog: `--image`, or `spec` of the ClusterCatalogs.
    /// A directory has none.
    pub(crate) async fn catalog_images(
        &self,
        catalogs: &[CatalogFacts],
    ) -> Result<BTreeMap<String, String>, CommandError> {
        if self.dir.is_some() {
            return Ok(BTreeMap::new());
        }
        let names: Vec<String> = catalogs.iter().map(|catalog| catalog.name.to_string()).collect();
        if let Some(image) = &self.image {
            return Ok(names.into_iter().map(|name| (name, image.clone())).collect());
        }
        let listed = catalogs::all(&self.cluster.client().await?).await?;
        let image = |catalog: &ClusterCatalog| {
            let name = catalog.metadata.name.clone().filter(|name| names.contains(name))?;
            Some((name, catalog.spec.source.image.as_ref()?.reference.clone()))
        };
        Ok(listed.iter().filter_map(image).collect())
    }

    /// The catalogs to read. Prints the files and objects that were passed over to standard error.
    pub(crate) async fn open(&self) -> Result<CatalogReader, CommandError> {
        let reader = match (&self.image, &self.dir) {
            (Some(reference), _) => self.pull(reference).await?,
            (None, Some(directory)) => {
                check_directory(directory)?;
                CatalogReader::directory(directory).await?
            }
            (None, None) => {
                let client = self.cluster.client_within(self.cluster.catalogd_timeout()).await;
                let client = client.map_err(or_without_a_cluster)?;
                CatalogReader::cluster(client, self.fetching()?).await?
            }
        };
        print_passed_over(reader.warnings());
        match &self.catalog {
            Some(name) if !self.is_local() => Ok(reader.only(name)?),
            _ => Ok(reader),
        }
    }

    async fn pull(&self, reference: &str) -> Result<CatalogReader, CommandError> {
        let store = self.cache.images("catalogs").await?;
        let images = CatalogImages::new(self.registry.access().puller(), store);
        Ok(CatalogReader::image(images.open(reference, print_progress).await.map_err(ReadError::from)?))
    }

    fn fetching(&self) -> Result<Fetching, CommandError> {
        let bad = |error: &(dyn std::error::Error + 'static)| CommandError::Usage(chain(error));
        let pool = CaPool::load(self.cluster.catalogd_cas_dir.as_deref()).map_err(|error| bad(&error))?;
        let tls = pool.client_config(&TlsSettings::default()).map_err(|error| bad(&error))?;
        let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
        let mut builder = olm_catalog::catalogd::timeouts(builder);
        if let Some(limit) = self.cluster.catalogd_timeout() {
            builder = builder.read_timeout(limit).connect_timeout(limit);
        }
        if self.cluster.catalogd_url.as_deref().is_some_and(is_loopback) {
            builder = builder.no_proxy();
        }
        let direct = builder.build().map_err(|error| bad(&error))?;
        let store = self
            .cache
            .directory()
            .map(|root| PackageStore::new(&root.join("packages"), package_store::DEFAULT_BYTES));
        Ok(Fetching { address: self.cluster.catalogd_url.clone(), direct, store })
    }

    /// The package in every catalog that has it, the higher priority first. Prints the catalogs that cannot be read to
    /// standard error.
    pub(crate) async fn package(&self, name: &str) -> Result<Vec<Found>, CommandError> {
        self.package_from(&self.open().await?, name).await
    }

    /// As [`Self::package`], for catalogs that were opened.
    pub(crate) async fn package_from(
        &self,
        reader: &CatalogReader,
        name: &str,
    ) -> Result<Vec<Found>, CommandError> {
        let package: PackageName =
            name.parse().map_err(|_| CommandError::Usage("a package needs a name".to_owned()))?;
        let catalogs = reader.select(&Selector::default());
        let asked = catalogs.len();
        let read = catalogs.into_iter().map(async |catalog| {
            let content = reader.package(&catalog, &package).await;
            (catalog, content)
        });
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for (catalog, content) in futures::future::join_all(read).await {
            match content {
                Ok(content) if content.is_empty() => {}
                Ok(content) => found.push(Found { catalog, content }),
                Err(error) => unread.push((catalog, error)),
            }
        }
        let unread = self.unread(unread).await;
        if found.is_empty() && unread.is_empty() {
            return Err(self.missing(reader, name, asked).await);
        }
        skip(&unread, !found.is_empty())?;
        found.sort_by_key(|found| std::cmp::Reverse(found.catalog.priority));
        Ok(found)
    }
}

impl Sources {
    /// Every package of the catalogs in brief. Prints the catalogs that cannot be read to standard error.
    pub(crate) async fn packages(
        &self,
        reader: &CatalogReader,
    ) -> Result<Vec<(CatalogFacts, Vec<PackageSummary>)>, CommandError> {
        let read = reader.select(&Selector::default()).into_iter().map(async |catalog| {
            let packages = reader.packages(&catalog).await;
            (catalog, packages)
        });
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for (catalog, packages) in futures::future::join_all(read).await {
            match packages {
                Ok(packages) => all.push((catalog, packages)),
                Err(error) => unread.push((catalog, error)),
            }
        }
        skip(&self.unread(unread).await, !all.is_empty())?;
        Ok(all)
    }

    /// What to do about a package that no catalog has; `None` if one has it.
    pub(crate) async fn package_hint(&self, name: &str) -> Option<String> {
        let names = package_names(&self.open().await.ok()?).await;
        (!names.iter().any(|known| known == name)).then(|| similar::hint(name, &names, &self.search_hint()))
    }

    /// The error for a package that is in no catalog, with similar names.
    async fn missing(&self, reader: &CatalogReader, name: &str, asked: usize) -> CommandError {
        if asked == 0 {
            return CommandError::NotFound(NO_CATALOG.to_owned());
        }
        let names = package_names(reader).await;
        let catalogs = if asked == 1 {
            "the catalog does not hold".to_owned()
        } else {
            format!("none of {asked} catalogs holds")
        };
        let hint = similar::hint(name, &names, &self.search_hint());
        CommandError::NotFound(format!("{catalogs} package {name:?}; {hint}"))
    }

    /// The errors of catalogs that cannot be read, each once: those that are not served first.
    async fn unread(&self, unread: Vec<(CatalogFacts, ReadError)>) -> Vec<CommandError> {
        let (unserved, failed): (Vec<_>, Vec<_>) =
            unread.into_iter().partition(|(catalog, _)| catalog.endpoint.is_err());
        let mut texts = Vec::new();
        if !unserved.is_empty() {
            // the reason is only worth a request if there is something to explain
            let listed = match self.cluster.client().await {
                Ok(client) => catalogs::all(&client).await.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            let names: Vec<_> = unserved.iter().map(|(catalog, _)| catalog.name.to_string()).collect();
            texts = unserved_texts(&names, &listed);
        }
        for (_, error) in failed {
            let text = self.failure(error).to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts.into_iter().map(CommandError::Unreachable).collect()
    }

    /// The error of a catalog that cannot be read. An address that the user gives needs no hint about other ways to catalogd.
    pub(crate) fn failure(&self, error: ReadError) -> CommandError {
        match (&self.cluster.catalogd_url, &error) {
            (Some(url), ReadError::Catalog { why, .. }) if is_timeout(why) => {
                let limit = self.cluster.catalogd_timeout().unwrap_or_default();
                CommandError::Unreachable(format!(
                    "cannot reach catalogd at {url}: no answer within {} s",
                    limit.as_secs_f64()
                ))
            }
            (Some(_), ReadError::Catalog { why, .. }) if !why.contains("invalid peer certificate") => {
                CommandError::Unreachable(error.to_string())
            }
            _ => CommandError::from(error),
        }
    }
}

/// Prints the errors of catalogs that were skipped. If nothing was read, the first one is the result.
fn skip(unread: &[CommandError], is_some_read: bool) -> Result<(), CommandError> {
    let (first, others) = match unread.split_first() {
        Some((first, others)) if !is_some_read => (Some(first), others),
        _ => (None, unread),
    };
    for failure in others {
        let text = failure.to_string();
        print_note(&if text.starts_with('…') { text } else { format!("skipped {text}") });
    }
    first.map_or(Ok(()), |first| Err(CommandError::Unreachable(first.to_string())))
}

fn is_timeout(why: &str) -> bool {
    why.contains("timed out") || why.contains("deadline has elapsed")
}

/// A line for each of the first catalogs that are not served, and one for the others.
fn unserved_texts(names: &[String], listed: &[ClusterCatalog]) -> Vec<String> {
    let reason = |name: &String| {
        let catalog = listed.iter().find(|catalog| catalog.metadata.name.as_ref() == Some(name))?;
        let conditions = &catalog.status.as_ref()?.conditions;
        let found = condition::find(conditions, condition::PROGRESSING)?;
        let line = found.message.lines().next().filter(|line| !line.trim().is_empty());
        Some(cut(line.unwrap_or(&found.reason), MAX_REASON))
    };
    let mut texts: Vec<String> = names
        .iter()
        .take(MAX_UNSERVED)
        .map(|name| {
            let why = reason(name).map(|why| format!(": {why}")).unwrap_or_default();
            format!("catalog {name}: not served{why}; see kubectl olm catalogs -o wide")
        })
        .collect();
    match names.len().saturating_sub(MAX_UNSERVED) {
        0 => {}
        1 => texts.push("… and 1 more catalog is not served".to_owned()),
        more => texts.push(format!("… and {more} more catalogs are not served")),
    }
    texts
}

/// The names of all packages, as far as catalogs can be read.
async fn package_names(reader: &CatalogReader) -> Vec<String> {
    let catalogs = reader.select(&Selector::default());
    // only for a hint: the error of an unreadable catalog was printed before
    let read = catalogs.iter().map(async |catalog| reader.packages(catalog).await.unwrap_or_default());
    let all = futures::future::join_all(read).await;
    let mut names: Vec<String> = all.into_iter().flatten().map(|brief| brief.name).collect();
    names.sort();
    names.dedup();
    names
}

impl From<ReadError> for CommandError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoCatalog { .. } => Self::NotFound(error.to_string()),
            ReadError::Directory { path, source } => Self::Content { path, message: chain(&source) },
            ReadError::Image(CatalogImageError::NoLabel { .. }) => Self::Usage(error.to_string()),
            ReadError::Image(CatalogImageError::Image(
                olm_oci::Error::ReferenceForm { .. } | olm_oci::Error::ReferenceSyntax { .. },
            )) => Self::Usage(format!("{}; write quay.io/example/catalog:tag", chain(&error))),
            ReadError::List(why)
                if why.contains("404") || why.contains("could not find the requested resource") =>
            {
                Self::Unreachable(format!("{NOT_INSTALLED}; install it, or give --image or --dir"))
            }
            ReadError::List(ref why) if why.contains(" is forbidden: ") => {
                Self::Unreachable(format!("{}; ClusterRole {VIEWER_ROLE} allows it", in_words(why)))
            }
            ReadError::List(why) if why.contains(UNANSWERED) => {
                let whence = why.split_once(UNANSWERED).map_or(why.as_str(), |(_, whence)| whence);
                Self::Unreachable(format!("cannot read ClusterCatalogs from {whence}"))
            }
            ReadError::Catalog { ref why, .. } => Self::Unreachable(match route_hint(why) {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            }),
            ReadError::Access(_) | ReadError::List(_) | ReadError::Image(_) | ReadError::Task(_) => {
                Self::Unreachable(chain(&error))
            }
        }
    }
}

/// How the text of a `ConnectionError` begins.
const UNANSWERED: &str = "no answer from ";

/// What to do if catalogd cannot be reached on this way.
fn route_hint(why: &str) -> Option<&'static str> {
    if why.contains("invalid peer certificate") {
        return Some("trust its certificate with --catalogd-cas-dir DIR");
    }
    let is_served = !why.contains("is not served");
    is_served.then_some(
        "reading through the apiserver takes the right to `get services/proxy`, and `kubectl port-forward` with --catalogd-url \
         https://127.0.0.1:PORT is another way",
    )
}

/// Prints a notice to standard error if one of the packages asks something of the cluster, and the cluster is not known.
pub(crate) fn note_unknown_cluster<'a>(
    environment: &Environment,
    graphs: impl IntoIterator<Item = &'a PackageGraph>,
) {
    let is_unknown =
        environment.constraints != EnvironmentConstraints::Ignore && environment.cluster.version.is_none();
    if is_unknown && graphs.into_iter().any(PackageGraph::has_needs) {
        print_note(
            "minKubeVersion and nativeAPIs of bundles are not applied, because no cluster is known; give --kube-version",
        );
    }
}

/// Prints the progress of reading an image.
pub(crate) fn print_progress(step: Step) {
    match step {
        Step::Resolved { reference } => print_note(&format!("reading {reference}")),
        Step::Reading { bytes, layers } => {
            let size = match bytes {
                0..1000 => format!("{bytes} B"),
                1000..1_000_000 => format!("{} kB", bytes / 1000),
                _ => format!("{:.1} MB", bytes as f64 / 1e6),
            };
            print_note(&format!("downloading {size} in {}", counted(layers, "layer")));
        }
    }
}

#[cfg(test)]
mod tests;
