//! Watches of OLM's kinds, for `--watch` and `--wait`: begun again when they break, no polling.

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, labels};
use olm_runtime::error_text::{chain, innermost};
use serde::de::DeserializeOwned;

use crate::failure::{CommandError, print_note, print_result};
use crate::rights::in_words;
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
    let events = watcher(Api::<K>::all(client.clone()), config).backoff(olm_runtime::backoff::of_watch());
    without_interruptions(events, print_note)
}

/// The events without errors after which the watch is begun again: `note` gets the first one in a row. The error of a watch that never worked
/// stays, and that of a missing right, unless the watch is interrupted: an apiserver that restarts gives that answer until it has read the rights.
fn without_interruptions<K: Watched>(
    events: impl Stream<Item = Events<K>>,
    mut note: impl FnMut(&str),
) -> impl Stream<Item = Events<K>> {
    let (mut has_worked, mut is_interrupted) = (false, false);
    events.filter_map(move |event| {
        let is_denied = matches!(&event, Err(error) if is_denied(error));
        let event = match event {
            // before the first request is answered
            Ok(watcher::Event::Init) => Some(event),
            Ok(_) => {
                (has_worked, is_interrupted) = (true, false);
                Some(event)
            }
            Err(_) if !has_worked || is_denied && !is_interrupted => Some(event),
            Err(error) => {
                if !is_interrupted {
                    let (kind, why) = (K::plural(&()), in_words(&innermost(&error)));
                    note(&format!("the watch of {kind} was interrupted and is retried: {why}"));
                }
                is_interrupted = true;
                None
            }
        };
        std::future::ready(event)
    })
}

/// Whether the user lacks a right, or is not known.
fn is_denied(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return false;
    };
    matches!(status.code, 401 | 403)
}

/// One object.
fn single<K: Watched>(client: &Client, name: &str) -> impl Stream<Item = Events<K>> + use<K> {
    events(client, watcher::Config::default().fields(&format!("metadata.name={name}")))
}

/// The states of an object; `None` when it is gone: deleted, or another one has its name.
pub(crate) fn states<K: Watched>(
    client: &Client,
    object: &K,
) -> impl Stream<Item = watcher::Result<Option<K>>> + use<K> {
    let uid = object.uid();
    let mut is_listed = false;
    single::<K>(client, &object.name_any()).try_filter_map(move |event| {
        let state = match event {
            watcher::Event::Init => {
                is_listed = false;
                None
            }
            watcher::Event::InitDone if is_listed => None,
            watcher::Event::InitDone | watcher::Event::Delete(_) => Some(None),
            watcher::Event::InitApply(found) | watcher::Event::Apply(found) => {
                is_listed = true;
                Some(Some(found).filter(|found| found.uid() == uid))
            }
        };
        std::future::ready(Ok(state))
    })
}

/// The revisions of an extension.
pub(crate) fn revisions(
    client: &Client,
    extension: &str,
) -> impl Stream<Item = Events<ClusterObjectSet>> + use<> {
    events(client, watcher::Config::default().labels(&format!("{}={extension}", labels::OWNER_NAME)))
}

/// Prints what `print` returns now and after each change of the extension of this name, or of any extension, and of its revisions. It
/// ends with Ctrl-C, when `print` fails, or if a watch never works.
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

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn watch_retries_interruptions_and_notes_the_first() {
        let broken = || Err(watcher::Error::NoResourceVersion);
        let denied = || {
            let status = Status::failure("denied", "Forbidden").with_code(403);
            Err(watcher::Error::WatchError(status.boxed()))
        };
        let (begin, works) = (|| Ok(watcher::Event::Init), || Ok(watcher::Event::InitDone));
        let events: [Events<ClusterExtension>; 11] = [
            begin(),
            works(),
            broken(),
            begin(),
            broken(),
            begin(),
            // an apiserver that has not read the rights yet
            denied(),
            begin(),
            works(),
            broken(),
            works(),
        ];
        let mut notes = Vec::new();
        let left: Vec<Events<ClusterExtension>> =
            without_interruptions(stream::iter(events), |note| notes.push(note.to_owned())).collect().await;
        assert!(left.len() == 7 && left.iter().all(Result::is_ok), "{left:?}");
        let note = "the watch of clusterextensions was interrupted and is retried: ";
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes.iter().all(|text| text.starts_with(note)), "{notes:?}");

        // a watch that never worked, and a right to list without one to watch
        let events: [Vec<Events<ClusterExtension>>; 3] =
            [vec![begin(), broken()], vec![begin(), denied()], vec![begin(), works(), denied()]];
        for events in events {
            let mut left: Vec<Events<ClusterExtension>> =
                without_interruptions(stream::iter(events), |_| ()).collect().await;
            assert!(left.pop().is_some_and(|last| last.is_err()), "{left:?}");
        }
    }
}
