//! The methods of `api.Registry` over one catalog of the store.
//!
//! Answers and error messages are those of `opm serve` for the same catalog; where that chooses at random, the order is by name
//! (decision 51). Rules: fbc §9, §10.7.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use olm_core::go::quote;
use olm_fbc::{Bundle, Icon, Query, schema};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status};

use super::bundle;
use super::graph::{
    Api, Channel, Entry, Graph, GraphError, MAX_BYTES, MAX_EDGES, MAX_PROVIDED, Name, Package, Providers,
    read,
};
use crate::per_content::PerContent;
use crate::store::{Content, Store};
use olm_registry::proto;
use olm_registry::proto::registry_server;

/// Streamed answers at the same time, of all clients together.
pub(super) const MAX_STREAMS: usize = 64;
/// Bytes of the catalog that are read for one part of a streamed answer, unless one object is larger.
const BATCH: u64 = 64 << 10;

/// The catalog that a request is about: the first label of its authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CatalogName(pub(super) String);

/// Answers requests for every catalog of a store. Cheap to clone.
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

struct Shared {
    store: Store,
    graphs: PerContent<Result<Arc<Graph>, String>>,
    providers: PerContent<Result<Arc<Providers>, String>>,
    streams: Arc<Semaphore>,
}

/// A catalog that is served, and what is searched in it.
struct Catalog {
    content: Arc<Content>,
    graph: Arc<Graph>,
}

type Reply<T> = Result<Response<T>, Status>;
type Items<T> = BoxStream<'static, Result<T, Status>>;

impl Registry {
    /// Serves what `store` serves.
    #[must_use]
    pub fn new(store: Store) -> Self {
        let streams = Arc::new(Semaphore::new(MAX_STREAMS));
        Self(Arc::new(Shared {
            store,
            graphs: PerContent::default(),
            providers: PerContent::default(),
            streams,
        }))
    }

    /// Whether a catalog of this name is served.
    pub(super) fn serves(&self, name: &CatalogName) -> bool {
        self.0.store.get(&name.0).is_some()
    }

    async fn catalog<T>(&self, request: &Request<T>) -> Result<Catalog, Status> {
        let Some(CatalogName(name)) = request.extensions().get() else {
            return Err(Status::invalid_argument(
                "the request has no authority, whose first label names the catalog",
            ));
        };
        let Some(served) = self.0.store.get(name) else {
            return Err(Status::not_found(format!(
                "no catalog {} is served; the first label of the authority names the catalog, as in NAME.NAMESPACE.svc",
                quote(name)
            )));
        };
        let content = Arc::clone(&served.content);
        let graph = self
            .derived(&self.0.graphs, &content, |content| Graph::read(content, MAX_EDGES, MAX_BYTES))
            .await?;
        Ok(Catalog { content, graph })
    }

    async fn providers(&self, catalog: &Catalog) -> Result<Arc<Providers>, Status> {
        let make: fn(&Content) -> _ = |content| Providers::read(content, MAX_PROVIDED, MAX_BYTES);
        self.derived(&self.0.providers, &catalog.content, make).await
    }

    /// What is made of a content once, however many requests ask for it at the same time.
    async fn derived<T: Send + Sync + 'static>(
        &self,
        made: &PerContent<Result<Arc<T>, String>>,
        content: &Arc<Content>,
        make: fn(&Content) -> Result<T, GraphError>,
    ) -> Result<Arc<T>, Status> {
        let found = made.get_or_make(&self.0.store, content, move |content| match make(content) {
            Ok(found) => Ok(Ok(Arc::new(found))),
            Err(GraphError::Read(error)) => Err(error),
            Err(GraphError::TooLarge(message)) => Ok(Err(message)),
        });
        found.await.map_err(|error| unreadable(&error))?.map_err(Status::resource_exhausted)
    }

    /// A seat for a streamed answer.
    pub(super) fn seat(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.0.streams).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!("{MAX_STREAMS} streamed answers are running; retry later"))
        })
    }

    #[cfg(test)]
    pub(super) fn free_seats(&self) -> usize {
        self.0.streams.available_permits()
    }

    /// Entries of all packages, one package after the other; `none` is the error if there are none.
    fn entries(
        &self,
        graph: Arc<Graph>,
        find: impl Fn(&Name, &Package) -> Vec<Edge> + Send + 'static,
        none: impl FnOnce() -> String,
    ) -> Reply<Items<proto::ChannelEntry>> {
        let seat = self.seat()?;
        let names: Vec<Name> = graph.packages.keys().cloned().collect();
        let mut found = names.into_iter().map(move |name| {
            let _running = &seat;
            graph.packages.get(&name).map(|package| find(&name, package)).unwrap_or_default()
        });
        let first = found.find(|entries| !entries.is_empty());
        let first = first.ok_or_else(|| Status::unknown(none()))?;
        let edges = stream::iter(first).chain(stream::iter(found).flat_map(stream::iter));
        Ok(Response::new(edges.map(|edge| Ok(channel_entry(&edge))).boxed()))
    }
}

fn unreadable(error: &io::Error) -> Status {
    tracing::error!(%error, "cannot read catalog content");
    Status::internal("cannot read catalog content; retry later")
}

impl Catalog {
    fn package(&self, name: &str) -> Result<&Package, Status> {
        let found = self.graph.packages.get(name);
        found.ok_or_else(|| Status::unknown(format!("package {} not found", quote(name))))
    }

    fn channel(&self, package: &str, name: &str) -> Result<&Channel, Status> {
        self.package(package)?.channels.get(name).ok_or_else(|| {
            Status::unknown(format!("package {}, channel {} not found", quote(package), quote(name)))
        })
    }

    /// A bundle with its manifests, as an entry of a channel.
    async fn bundle(&self, package: &str, channel: &str, name: &str) -> Reply<proto::Bundle> {
        let missing = || {
            let [package, channel, name] = [package, channel, name].map(quote);
            Status::unknown(format!("package {package}, channel {channel}, bundle {name} not found"))
        };
        let entry = self.channel(package, channel)?.entries_of(name).first().ok_or_else(missing)?;
        let deprecation = self.package(package)?.deprecated_bundles.get(name);
        let (content, package, name) = (Arc::clone(&self.content), package.to_owned(), name.to_owned());
        let read = tokio::task::spawn_blocking(move || read_bundle(&content, &package, &name)).await;
        let read =
            read.map_err(io::Error::other).and_then(|read| read).map_err(|error| unreadable(&error))?;
        let found = read.ok_or_else(missing)?;
        let mut message = found.map_err(Status::failed_precondition)?;
        message.channel_name = channel.to_owned();
        message.skip_range = entry.skip_range.as_ref().to_owned();
        message.deprecation = deprecation.map(deprecated);
        Ok(Response::new(message))
    }
}

/// The last bundle of a name with its manifests, or why it does not decode.
fn read_bundle(
    content: &Content,
    package: &str,
    name: &str,
) -> io::Result<Option<Result<proto::Bundle, String>>> {
    let last = |query: &Query<'_>| content.index().find(query).pop();
    let query = Query { schema: schema::BUNDLE, package, name };
    let Some(object) = last(&query) else { return Ok(None) };
    let bundle = read(content, &object)?;
    let package = last(&Query { schema: schema::PACKAGE, package: "", name: package });
    let package = package.map(|object| read(content, &object)).transpose()?;
    let icon: Option<Icon> = package.and_then(|line| schema_package(&line)?.icon);
    let found = Bundle::from_json(&bundle).and_then(|bundle| bundle::message(&bundle, Some(icon.as_ref())));
    Ok(Some(found.map_err(|problem| format!("bundle {}: {problem}", quote(name)))))
}

fn schema_package(line: &[u8]) -> Option<olm_fbc::Package> {
    olm_fbc::Package::from_json(line).ok()
}

fn deprecated(message: &Name) -> proto::Deprecation {
    proto::Deprecation { message: message.as_ref().to_owned() }
}

/// The package, channel and bundle of an entry, and what it replaces. Its words are those of the graph until it is sent.
type Edge = [Name; 4];

fn entry(package: &Name, channel: &Name, entry: &Entry, replaces: &Name) -> Edge {
    [package, channel, &entry.bundle, replaces].map(Arc::clone)
}

fn channel_entry(edge: &Edge) -> proto::ChannelEntry {
    let [package_name, channel_name, bundle_name, replaces] =
        edge.each_ref().map(|name| name.as_ref().to_owned());
    proto::ChannelEntry { package_name, channel_name, bundle_name, replaces }
}

/// The edges of an entry whose bundle provides what is asked for: what it replaces, even if that is nothing, then what it skips.
fn edges<'a>(
    package: &'a Name,
    channel: &'a Name,
    found: &'a Entry,
    counts: impl Fn(&Name) -> bool + 'a,
) -> impl Iterator<Item = Edge> + 'a {
    let skips = found.other_skips().filter(move |skipped| counts(skipped));
    [&found.replaces].into_iter().chain(skips).map(move |name| entry(package, channel, found, name))
}

/// The entry of a channel's head, if its bundle provides an API.
fn providing_head<'a>(
    providers: &Providers,
    api: &Api,
    package: &Name,
    channel: &'a Channel,
) -> Option<&'a Entry> {
    let head = channel.head.as_ref().filter(|head| providers.provides(api, package, head))?;
    channel.entries_of(head).first()
}

fn no_providers((group, version, kind): &Api) -> String {
    format!("no channel entries found that provide {}", api_text(group, version, kind))
}

fn api_text(group: &str, version: &str, kind: &str) -> String {
    format!("group:{} version:{} kind:{}", quote(group), quote(version), quote(kind))
}

/// The bundles of a catalog that are still to be sent.
struct BundleList {
    content: Arc<Content>,
    graph: Arc<Graph>,
    /// The next object, and how many of its entries were sent.
    next: usize,
    sent: usize,
    _seat: OwnedSemaphorePermit,
}

impl BundleList {
    /// Reads the next bundles, of which each entry is a message; the list is over when nothing is left to read.
    fn batch(mut self) -> (Vec<Result<proto::Bundle, Status>>, Option<Self>) {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH {
            let Some(object) = self.content.index().object(self.next) else { return (messages, None) };
            let sent = std::mem::take(&mut self.sent);
            self.next += 1;
            if object.schema != schema::BUNDLE {
                continue;
            }
            let Some(package) = self.graph.packages.get(object.package) else { continue };
            let in_channels = || {
                package.channels.iter().flat_map(|(name, channel)| {
                    channel.entries_of(object.name).iter().map(move |entry| (name, entry))
                })
            };
            if in_channels().next().is_none() {
                continue;
            }
            let line = match read(&self.content, &object) {
                Ok(line) => line,
                Err(error) => {
                    messages.push(Err(unreadable(&error)));
                    return (messages, None);
                }
            };
            let found = Bundle::from_json(&line)
                .and_then(|bundle| bundle::message(&bundle, bundle.image.is_empty().then_some(None)));
            let mut message = match found {
                Ok(message) => message,
                Err(problem) => {
                    let (package, bundle) = (object.package, object.name);
                    tracing::debug!(package, bundle, problem, "a bundle is left out of a list");
                    bytes += object.length;
                    continue;
                }
            };
            let deprecation = package.deprecated_bundles.get(object.name);
            message.deprecation = deprecation.map(deprecated);
            let of_each = object.length + deprecation.map_or(0, |text| text.len() as u64);
            for (number, (channel, entry)) in in_channels().enumerate().skip(sent) {
                if bytes >= BATCH {
                    // the next part continues with this entry
                    (self.next, self.sent) = (self.next - 1, number);
                    break;
                }
                let words = [channel, &entry.skip_range, &entry.replaces].into_iter().chain(&entry.skips);
                bytes += of_each + words.map(|word| word.len() as u64).sum::<u64>();
                message.channel_name = channel.as_ref().to_owned();
                message.skip_range = entry.skip_range.as_ref().to_owned();
                message.replaces = entry.replaces.as_ref().to_owned();
                message.skips = entry.skips.iter().map(|name| name.as_ref().to_owned()).collect();
                messages.push(Ok(message.clone()));
            }
        }
        (messages, Some(self))
    }

    fn stream(self) -> Items<proto::Bundle> {
        let batches = stream::unfold(Some(self), |list| async {
            let list = list?;
            let (messages, rest) = match tokio::task::spawn_blocking(move || list.batch()).await {
                Ok(read) => read,
                Err(error) => (vec![Err(unreadable(&io::Error::other(error)))], None),
            };
            Some((stream::iter(messages), rest))
        });
        batches.flatten().boxed()
    }
}

#[tonic::async_trait]
impl registry_server::Registry for Registry {
    type ListPackagesStream = Items<proto::PackageName>;
    type GetChannelEntriesThatReplaceStream = Items<proto::ChannelEntry>;
    type GetChannelEntriesThatProvideStream = Items<proto::ChannelEntry>;
    type GetLatestChannelEntriesThatProvideStream = Items<proto::ChannelEntry>;
    type ListBundlesStream = Items<proto::Bundle>;

    async fn list_packages(
        &self,
        request: Request<proto::ListPackageRequest>,
    ) -> Reply<Self::ListPackagesStream> {
        let catalog = self.catalog(&request).await?;
        let seat = self.seat()?;
        let names: Vec<Name> = catalog.graph.packages.keys().cloned().collect();
        let names = stream::iter(names).map(move |name| {
            let _running = &seat;
            Ok(proto::PackageName { name: name.as_ref().to_owned() })
        });
        Ok(Response::new(names.boxed()))
    }

    async fn get_package(&self, request: Request<proto::GetPackageRequest>) -> Reply<proto::Package> {
        let catalog = self.catalog(&request).await?;
        let name = request.into_inner().name;
        let package = catalog.package(&name)?;
        let channels = package.channels.iter().map(|(name, channel)| proto::Channel {
            name: name.as_ref().to_owned(),
            csv_name: channel.head.as_deref().unwrap_or_default().to_owned(),
            deprecation: channel.deprecation.as_ref().map(deprecated),
        });
        Ok(Response::new(proto::Package {
            name,
            channels: channels.collect(),
            default_channel_name: package.default_channel.as_ref().to_owned(),
            deprecation: package.deprecation.as_ref().map(deprecated),
        }))
    }

    async fn get_bundle(&self, request: Request<proto::GetBundleRequest>) -> Reply<proto::Bundle> {
        let catalog = self.catalog(&request).await?;
        let proto::GetBundleRequest { pkg_name, channel_name, csv_name } = request.into_inner();
        catalog.bundle(&pkg_name, &channel_name, &csv_name).await
    }

    async fn get_bundle_for_channel(
        &self,
        request: Request<proto::GetBundleInChannelRequest>,
    ) -> Reply<proto::Bundle> {
        let catalog = self.catalog(&request).await?;
        let proto::GetBundleInChannelRequest { pkg_name, channel_name } = request.into_inner();
        let Some(head) = &catalog.channel(&pkg_name, &channel_name)?.head else {
            return Err(Status::failed_precondition(format!(
                "package {}, channel {} has no single head",
                quote(&pkg_name),
                quote(&channel_name)
            )));
        };
        catalog.bundle(&pkg_name, &channel_name, head).await
    }

    async fn get_channel_entries_that_replace(
        &self,
        request: Request<proto::GetAllReplacementsRequest>,
    ) -> Reply<Self::GetChannelEntriesThatReplaceStream> {
        let catalog = self.catalog(&request).await?;
        let name = request.into_inner().csv_name;
        let missing = format!("no channel entries found that replace {name}");
        let find = move |package: &Name, found: &Package| {
            let mut entries = Vec::new();
            for (channel, of_channel) in &found.channels {
                for edge in &of_channel.entries {
                    let skips = edge.other_skips().filter(|skipped| ***skipped == *name).count();
                    let count = skips + usize::from(*edge.replaces == *name);
                    entries.extend(std::iter::repeat_n(entry(package, channel, edge, &edge.replaces), count));
                }
            }
            entries
        };
        self.entries(catalog.graph, find, || missing)
    }

    async fn get_bundle_that_replaces(
        &self,
        request: Request<proto::GetReplacementRequest>,
    ) -> Reply<proto::Bundle> {
        let catalog = self.catalog(&request).await?;
        let proto::GetReplacementRequest { csv_name, pkg_name, channel_name } = request.into_inner();
        if !catalog.graph.packages.contains_key(pkg_name.as_str()) {
            return Err(Status::unknown(format!("package {pkg_name} not found")));
        }
        let entries = &catalog.channel(&pkg_name, &channel_name)?.entries;
        let replaces = |entry: &&Entry| {
            *entry.replaces == *csv_name || entry.skips.iter().any(|skipped| **skipped == *csv_name)
        };
        let Some(found) = entries.iter().find(replaces) else {
            let (package, channel) = (quote(&pkg_name), quote(&channel_name));
            return Err(Status::unknown(format!("no entry found for package {package}, channel {channel}")));
        };
        catalog.bundle(&pkg_name, &channel_name, &found.bundle).await
    }

    async fn get_channel_entries_that_provide(
        &self,
        request: Request<proto::GetAllProvidersRequest>,
    ) -> Reply<Self::GetChannelEntriesThatProvideStream> {
        let catalog = self.catalog(&request).await?;
        let providers = self.providers(&catalog).await?;
        let proto::GetAllProvidersRequest { group, version, kind, plural: _ } = request.into_inner();
        let api: Api = (group.into(), version.into(), kind.into());
        let missing = no_providers(&api);
        let find = move |package: &Name, found: &Package| {
            let channels = found.channels.iter();
            let entries =
                channels.flat_map(|(name, channel)| channel.entries.iter().map(move |entry| (name, entry)));
            let provides = entries.filter(|(_, entry)| providers.provides(&api, package, &entry.bundle));
            provides.flat_map(|(channel, entry)| edges(package, channel, entry, |_| true)).collect()
        };
        self.entries(catalog.graph, find, || missing)
    }

    async fn get_latest_channel_entries_that_provide(
        &self,
        request: Request<proto::GetLatestProvidersRequest>,
    ) -> Reply<Self::GetLatestChannelEntriesThatProvideStream> {
        let catalog = self.catalog(&request).await?;
        let providers = self.providers(&catalog).await?;
        let proto::GetLatestProvidersRequest { group, version, kind, plural: _ } = request.into_inner();
        let api: Api = (group.into(), version.into(), kind.into());
        let missing = no_providers(&api);
        let find = move |package: &Name, found: &Package| {
            let mut entries = Vec::new();
            for (name, channel) in &found.channels {
                let Some(head) = providing_head(&providers, &api, package, channel) else { continue };
                // names that the channel does not have count here only as what the head replaces
                let present: BTreeSet<&Name> = channel.entries.iter().map(|entry| &entry.bundle).collect();
                entries.extend(edges(package, name, head, |skipped| present.contains(skipped)));
            }
            entries
        };
        self.entries(catalog.graph, find, || missing)
    }

    async fn get_default_bundle_that_provides(
        &self,
        request: Request<proto::GetDefaultProviderRequest>,
    ) -> Reply<proto::Bundle> {
        let catalog = self.catalog(&request).await?;
        let providers = self.providers(&catalog).await?;
        let proto::GetDefaultProviderRequest { group, version, kind, plural: _ } = request.into_inner();
        let api: Api = (group.into(), version.into(), kind.into());
        let mut provided = false;
        for (name, package) in &catalog.graph.packages {
            for (channel_name, channel) in &package.channels {
                let Some(head) = providing_head(&providers, &api, name, channel) else { continue };
                provided = true;
                if *channel_name == package.default_channel {
                    return catalog.bundle(name, channel_name, &head.bundle).await;
                }
            }
        }
        let (group, version, kind) = &api;
        Err(Status::unknown(if provided {
            format!("no entry found that provides {}", api_text(group, version, kind))
        } else {
            no_providers(&api)
        }))
    }

    async fn list_bundles(
        &self,
        request: Request<proto::ListBundlesRequest>,
    ) -> Reply<Self::ListBundlesStream> {
        let Catalog { content, graph } = self.catalog(&request).await?;
        let list = BundleList { content, graph, next: 0, sent: 0, _seat: self.seat()? };
        Ok(Response::new(list.stream()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_list_has_parts_of_limited_size() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let staging = store.stage(store.lease(&digest)).unwrap();
        let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        let large = "x".repeat(20_000);
        let mut lines = vec![
            r#"{"schema":"olm.package","name":"a"}"#.to_owned(),
            format!(
                r#"{{"schema":"olm.bundle","package":"a","name":"b","image":"i","properties":[{{"type":"olm.package","value":{{"packageName":"a","version":"1.0.0"}}}},{{"type":"other","value":"{large}"}}]}}"#
            ),
        ];
        lines.push(format!(
            r#"{{"schema":"olm.deprecations","package":"a","entries":[{{"reference":{{"schema":"olm.bundle","name":"b"}},"message":"{large}"}}]}}"#
        ));
        lines.extend((0..5).map(|n| {
            format!(r#"{{"schema":"olm.channel","package":"a","name":"c{n}","entries":[{{"name":"b"}}]}}"#)
        }));
        ingest.file("catalog.json", &mut lines.join("\n").as_bytes()).unwrap();
        let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
        let graph = Arc::new(Graph::read(&content, MAX_EDGES, MAX_BYTES).unwrap());
        let seat = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let mut list = Some(BundleList { content, graph, next: 0, sent: 0, _seat: seat });
        let mut parts = Vec::new();
        while let Some(left) = list {
            let (messages, rest) = left.batch();
            let channels = messages.into_iter().map(|message| message.unwrap().channel_name);
            parts.push(channels.collect::<Vec<_>>().join(" "));
            list = rest;
        }
        // a part ends with the message that makes it larger than a batch
        assert_eq!(parts, ["c0 c1", "c2 c3", "c4"]);
    }
}
