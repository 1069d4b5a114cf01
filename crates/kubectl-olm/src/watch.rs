//! Watches of OLM's kinds, for `--watch` and `--wait`: begun again when they break, no polling.

use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, labels};
use olm_runtime::error_text::{chain, innermost};
use olm_runtime::watched::Received;
use serde::de::DeserializeOwned;

use crate::failure::{CommandError, print_note, print_result};
use crate::rights::in_words;
use crate::{CommandOutput, interrupt};

/// The time between two attempts to read what a watch has shown to have changed.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// A kind of OLM.
pub(crate) trait Watched:
    kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static
{
}

impl Watched for ClusterExtension {}
impl Watched for ClusterCatalog {}
impl Watched for ClusterObjectSet {}
impl<K: Watched> Watched for Received<K> {}

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
    events(client, watcher::Config::default().labels(&of_extension(extension)))
}

/// The selector of what belongs to an extension.
fn of_extension(name: &str) -> String {
    format!("{}={name}", labels::OWNER_NAME)
}

/// Prints what `print` returns now and after each change of the extension of this name, or of any extension, and of its revisions. It
/// ends with Ctrl-C, when `print` fails ([`print_changes`]), or if a watch never works.
pub(crate) async fn follow<F>(
    client: &Client,
    name: Option<&str>,
    print: impl FnMut() -> F,
) -> Result<CommandOutput, CommandError>
where
    F: Future<Output = Result<Option<String>, CommandError>>,
{
    let all = watcher::Config::default;
    let (own, sets) = match name {
        Some(name) => (all().fields(&format!("metadata.name={name}")), all().labels(&of_extension(name))),
        None => (all(), all()),
    };
    // that an object does not fit its type is for `print` to report
    let own = events::<Received<ClusterExtension>>(client, own);
    let sets = events::<Received<ClusterObjectSet>>(client, sets);
    let changes =
        futures::stream::select(own.map_ok(|event| changed(&event)), sets.map_ok(|event| changed(&event)));
    let interrupted = interrupt::received();
    tokio::select! {
        ended = print_changes(changes, print, RETRY_INTERVAL) => ended,
        () = interrupted => Err(CommandError::Interrupted),
    }
}

/// Prints after each change. Once something was printed, a read without an answer is retried as the watch itself is; another error of `print`
/// ends it.
async fn print_changes<F>(
    changes: impl Stream<Item = watcher::Result<bool>>,
    mut print: impl FnMut() -> F,
    retry: Duration,
) -> Result<CommandOutput, CommandError>
where
    F: Future<Output = Result<Option<String>, CommandError>>,
{
    // what arrives together is printed once
    let mut changes = std::pin::pin!(changes.ready_chunks(64));
    let (mut is_due, mut has_printed, mut is_failing) = (false, false, false);
    loop {
        let chunk = match is_failing {
            true => tokio::time::timeout(retry, changes.next()).await,
            false => Ok(changes.next().await),
        };
        match chunk {
            Ok(None) => return Ok(CommandOutput { text: String::new(), yes: true }),
            Ok(Some(chunk)) => {
                for change in chunk {
                    let failed = |error: watcher::Error| {
                        CommandError::Unreachable(format!("cannot watch: {}", chain(&error)))
                    };
                    is_due |= change.map_err(failed)?;
                }
            }
            // without a change, the read is retried
            Err(_) => {}
        }
        if !is_due {
            continue;
        }
        match print().await {
            Ok(text) => {
                if let Some(text) = text {
                    print_result(&text)?;
                }
                (is_due, has_printed, is_failing) = (false, true, false);
            }
            Err(failure @ CommandError::Unreachable(_)) if has_printed => {
                if !is_failing {
                    print_note(&format!("{failure}; this is retried"));
                }
                is_failing = true;
            }
            Err(failure) => return Err(failure),
        }
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
    use std::collections::VecDeque;

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

    #[tokio::test]
    async fn watch_retries_reads_without_an_answer() {
        let unanswered = || Err(CommandError::Unreachable("no answer".to_owned()));
        let gone = || Err(CommandError::NotFound("gone".to_owned()));
        for (results, calls, code) in [
            // nothing was printed before
            (vec![unanswered(), Ok(None)], 1, 3),
            (vec![Ok(None), unanswered(), unanswered(), gone()], 4, 1),
        ] {
            // two changes
            let changes = stream::unfold(0, |number| async move {
                if number == 2 {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                Some((Ok(true), number + 1))
            });
            let (mut left, mut called) = (VecDeque::from(results), 0);
            let print = || {
                called += 1;
                std::future::ready(left.pop_front().unwrap_or(Ok(None)))
            };
            let ended = print_changes(changes, print, Duration::from_millis(1)).await;
            assert_eq!((ended.err().map(|failure| failure.code()), called), (Some(code), calls));
        }
    }
}
