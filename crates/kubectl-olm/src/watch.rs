//! Watches of OLM's kinds, for `--watch` and `--wait`: begun again when they break, no polling.

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, labels};
use olm_runtime::error_text::chain;
use serde::de::DeserializeOwned;

use crate::failure::{CommandError, print_result};
use crate::{CommandOutput, interrupt};

/// A kind of OLM.
pub(crate) trait Watched:
    kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static
{
}

impl Watched for ClusterExtension {}
impl Watched for ClusterCatalog {}
impl Watched for ClusterObjectSet {}

type Events<K> = Result<watcher::Event<K>, watcher::Error>;

fn events<K: Watched>(client: &Client, config: watcher::Config) -> impl Stream<Item = Events<K>> + use<K> {
    watcher(Api::<K>::all(client.clone()), config).backoff(olm_runtime::backoff::of_watch())
}

/// One object.
pub(crate) fn single<K: Watched>(client: &Client, name: &str) -> impl Stream<Item = Events<K>> + use<K> {
    events(client, watcher::Config::default().fields(&format!("metadata.name={name}")))
}

/// The revisions of an extension.
pub(crate) fn revisions(
    client: &Client,
    extension: &str,
) -> impl Stream<Item = Events<ClusterObjectSet>> + use<> {
    events(client, watcher::Config::default().labels(&format!("{}={extension}", labels::OWNER_NAME)))
}

/// Prints what `print` returns now and after each change of the extension of this name, or of any extension, and of its revisions. It
/// ends with Ctrl-C, or when `print` fails.
pub(crate) async fn follow<F>(
    client: &Client,
    name: Option<&str>,
    mut print: impl FnMut() -> F,
) -> Result<CommandOutput, CommandError>
where
    F: Future<Output = Result<Option<String>, CommandError>>,
{
    let (own, sets) = match name {
        Some(name) => (single::<ClusterExtension>(client, name).boxed(), revisions(client, name).boxed()),
        None => {
            let all = watcher::Config::default;
            (
                events::<ClusterExtension>(client, all()).boxed(),
                events::<ClusterObjectSet>(client, all()).boxed(),
            )
        }
    };
    let changes =
        futures::stream::select(own.map_ok(|event| changed(&event)), sets.map_ok(|event| changed(&event)));
    // what arrives together is printed once
    let mut changes = std::pin::pin!(changes.ready_chunks(64));
    let interrupted = interrupt::received();
    let printed = async {
        while let Some(chunk) = changes.next().await {
            let mut is_due = false;
            for change in chunk {
                let failed = |error: watcher::Error| {
                    CommandError::Unreachable(format!("cannot watch: {}", chain(&error)))
                };
                is_due |= change.map_err(failed)?;
            }
            if is_due && let Some(text) = print().await? {
                print_result(&text)?;
            }
        }
        Ok(CommandOutput { text: String::new(), yes: true })
    };
    tokio::select! {
        ended = printed => ended,
        () = interrupted => Err(CommandError::Interrupted),
    }
}

/// Whether something is to be printed: the begin of a watch is no change.
fn changed<K: Watched>(event: &watcher::Event<K>) -> bool {
    match event {
        watcher::Event::Init | watcher::Event::InitApply(_) => false,
        watcher::Event::InitDone => true,
        watcher::Event::Apply(object) | watcher::Event::Delete(object) => !object.name_any().is_empty(),
    }
}
