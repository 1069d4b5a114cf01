//! The ClusterExtension controller: from wish to revision, and an honest status.

pub mod adopt;
pub mod attempt;
pub mod deliver;
pub mod dependencies;
pub mod deprecation;
pub mod details;
pub mod misfits;
pub mod policy;
pub mod reconcile;
pub mod report;
pub mod shell;
pub mod status;
pub mod tell;
pub mod tidy;
pub mod uninstall;
pub mod waiting;
pub mod writer;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use kube::ResourceExt as _;
use kube::runtime::controller::{self, Action, applier};
use kube::runtime::reflector::ObjectRef;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_catalog::CatalogFacts;
use olm_runtime::metrics::Outcome;
use olm_runtime::task;

use self::reconcile::reconcile;
use self::report::ReconcileError;
use self::shell::Shell;
use crate::crds::ApiChange;
use crate::watch::{Change, Changes, Stored, when_changed};

/// Name of the controller in metrics and logs.
pub const NAME: &str = "controller-operator-cluster-extension-controller";
/// Extensions that are worked on at the same time; those that wait for a registry or a catalog do not count.
pub(crate) const WORKERS: u16 = 16;
/// Events of one object within this time are one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// What can wake the controller.
pub struct Feeds {
    /// Extensions: their own changes.
    pub extensions: Changes<ClusterExtension>,
    /// Revisions: their status is mirrored, and their disappearance is waited for.
    pub revisions: Changes<ClusterObjectSet>,
    /// Catalogs: new content, priorities, labels and availability may change every choice.
    pub catalogs: Changes<ClusterCatalog>,
    /// Names of extensions whose account lacked rights, when rights change; all names, when the CA of catalogd changes.
    pub rights: BoxStream<'static, String>,
    /// APIs that appear, change or go: extensions may wait for one, or for the change of a CRD.
    pub apis: BoxStream<'static, ApiChange>,
}

/// Runs until `stop` resolves; passes that work are finished first, those that wait for a registry or a catalog are given up.
pub async fn run(shell: Arc<Shell>, feeds: Feeds, stop: impl Future<Output = ()> + Send + 'static) {
    let mut queue = wakes(&shell, feeds).take_until(Box::pin(stop)).boxed();
    let early = before(complete(&shell), &mut queue).await;
    let queue = futures::stream::iter(early).chain(queue);
    // a pass takes one of as many turns as there are workers
    let config = controller::Config::default().concurrency(0).debounce(DEBOUNCE);
    let store = shell.extensions.reader();
    let tidying = tidy::run(Arc::clone(&shell));
    let passes = applier(pass, error_policy, shell, store, queue, config);
    let passes = passes.for_each(|result| async {
        if let Err(controller::Error::QueueError(never) | controller::Error::ReconcilerFailed(never, _)) =
            result.map_err(only_internal)
        {
            match never {}
        }
    });
    tokio::select! {
        () = passes => {}
        never = tidying => match never {},
    }
}

/// Resolves when all caches have been filled once. A pass that sees half of the revisions would take an installed extension for
/// a new one.
async fn complete(shell: &Shell) {
    // an error means that the process ends
    let _ = shell.extensions.wait_until_ready().await;
    let _ = shell.revisions.store.wait_until_ready().await;
    let _ = shell.catalogs.wait_until_ready().await;
}

/// What the queue gives before `ready` resolves. It is polled meanwhile, because that is what fills the caches.
async fn before<T>(ready: impl Future<Output = ()>, queue: &mut (impl Stream<Item = T> + Unpin)) -> Vec<T> {
    let mut early = Vec::new();
    let mut ready = std::pin::pin!(ready);
    loop {
        tokio::select! {
            biased;
            () = &mut ready => return early,
            item = queue.next() => match item {
                Some(item) => early.push(item),
                None => return early,
            },
        }
    }
}

/// Errors of single passes are logged where they occur; what is left here concerns the machinery.
fn only_internal(
    error: controller::Error<ReconcileError, Infallible>,
) -> controller::Error<Infallible, Infallible> {
    match error {
        controller::Error::ReconcilerFailed(_, object) | controller::Error::ObjectNotFound(object) => {
            controller::Error::ObjectNotFound(object)
        }
        controller::Error::QueueError(never) => match never {},
        controller::Error::RunnerError(error) => {
            tracing::error!(%error, "controller queue failed");
            controller::Error::RunnerError(error)
        }
    }
}

/// One pass on the whole runtime, not on the queue's task alone.
fn pass(
    extension: Arc<Stored<ClusterExtension>>,
    shell: Arc<Shell>,
) -> BoxFuture<Result<Action, ReconcileError>> {
    let (name, uid) = (extension.name_any(), extension.uid().unwrap_or_default());
    Box::pin(async move {
        let span = tracing::info_span!("extension", name);
        let pass = metered(extension, Arc::clone(&shell));
        task::pass(tracing::Instrument::instrument(pass, span)).await.unwrap_or_else(|error| {
            tracing::error!(extension = name, %error, "pass panicked");
            Ok(Action::requeue(shell.backoff.panicked(uid)))
        })
    })
}

/// One pass, counted; one that panics is counted as that.
async fn metered(
    extension: Arc<Stored<ClusterExtension>>,
    shell: Arc<Shell>,
) -> Result<Action, ReconcileError> {
    let workers = Arc::clone(&shell.workers);
    let Ok(_turn) = workers.turn().await else { return Ok(Action::await_change()) };
    let running = shell.meter.start();
    match reconcile(extension, shell).await {
        Ok((action, outcome)) => {
            running.finish(outcome);
            Ok(action)
        }
        Err(ReconcileError::Stopping(_)) => {
            running.finish(Outcome::Requeue);
            Ok(Action::await_change())
        }
        Err(error) => {
            running.finish(if error.is_conflict() { Outcome::Requeue } else { Outcome::Error });
            Err(error)
        }
    }
}

type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

fn error_policy(
    extension: Arc<Stored<ClusterExtension>>,
    error: &ReconcileError,
    shell: Arc<Shell>,
) -> Action {
    let name = extension.name_any();
    if error.is_conflict() {
        tracing::debug!(extension = name, %error, "the object has changed meanwhile");
    } else {
        tracing::warn!(extension = name, %error, "pass failed");
    }
    Action::requeue(shell.backoff.failed(extension.uid().unwrap_or_default()))
}

/// Every wake-up as the extension to look at.
fn wakes(
    shell: &Arc<Shell>,
    feeds: Feeds,
) -> impl Stream<Item = Result<ObjectRef<Stored<ClusterExtension>>, Infallible>> + Send + 'static {
    let seen = Arc::clone(shell);
    let extensions = feeds.extensions.inspect(move |change| seen.written.seen(change));
    let own = own_changes(extensions);

    let waiting = Arc::clone(shell);
    let revisions = revision_changes(feeds.revisions, move |package| waiting.waiting.for_package(package));

    let waiting = Arc::clone(shell);
    let apis = feeds
        .apis
        .flat_map(move |change| {
            let mut names = waiting.waiting.for_group(&change.group);
            names.extend(change.crd.iter().flat_map(|crd| waiting.waiting.for_crd(crd)));
            futures::stream::iter(names)
        })
        .map(|name| ObjectRef::new(&name));

    let shell = Arc::clone(shell);
    let catalogs = catalog_changes(feeds.catalogs, move |gone| {
        if gone {
            shell.keep_packages_in_use(None);
        }
        shell.extensions.state().iter().map(|extension| ObjectRef::from_obj(&**extension)).collect()
    });

    let rights = feeds.rights.map(|name| ObjectRef::new(&name));

    let all = [own.boxed(), revisions.boxed(), catalogs.boxed(), rights.boxed(), apis.boxed()];
    futures::stream::select_all(all).map(Ok)
}

/// Extensions whose spec or metadata changed: what users, GitOps and the garbage collector write, not our own status.
fn own_changes(
    changes: impl Stream<Item = Change<ClusterExtension>> + Send + 'static,
) -> impl Stream<Item = ObjectRef<Stored<ClusterExtension>>> + Send + 'static {
    when_changed(changes, |extension| {
        (
            kube::Resource::meta(extension).generation,
            extension.annotations().clone(),
            extension.labels().clone(),
            extension.finalizers().to_vec(),
        )
    })
    .map(|change| ObjectRef::from_obj(&change.object))
}

/// Owners of revisions that changed, and the extensions that wait for the package of a revision that has succeeded.
fn revision_changes(
    changes: impl Stream<Item = Change<ClusterObjectSet>> + Send + 'static,
    waiting_for: impl Fn(&str) -> Vec<String> + Send + 'static,
) -> impl Stream<Item = ObjectRef<Stored<ClusterExtension>>> + Send + 'static {
    let mut succeeded = HashSet::new();
    when_changed(changes, mirrored).flat_map(move |Change { object: set, gone }| {
        let owners = set.owner_references().iter().filter(|owner| owner.kind == "ClusterExtension");
        let mut names: Vec<String> = owners.map(|owner| owner.name.clone()).collect();
        // a package is installed from now on
        if let Some(package) = newly_succeeded(&set, gone, &mut succeeded) {
            names.extend(waiting_for(&package));
        }
        futures::stream::iter(names).map(|name| ObjectRef::new(&name))
    })
}

/// All extensions, for each catalog whose content, selection or availability changed or that is gone. `all` lists them.
fn catalog_changes(
    changes: impl Stream<Item = Change<ClusterCatalog>> + Send + 'static,
    all: impl Fn(bool) -> Vec<ObjectRef<Stored<ClusterExtension>>> + Send + 'static,
) -> impl Stream<Item = ObjectRef<Stored<ClusterExtension>>> + Send + 'static {
    when_changed(changes, |catalog| {
        catalog.0.as_ref().ok().map(|catalog| (CatalogFacts::of(catalog), requested(catalog)))
    })
    .flat_map(move |change| futures::stream::iter(all(change.gone)))
}

/// The package of a revision that is seen to have succeeded for the first time. `known` holds UIDs of such revisions.
fn newly_succeeded(
    set: &Stored<ClusterObjectSet>,
    gone: bool,
    known: &mut HashSet<String>,
) -> Option<String> {
    let set = set.0.as_ref().ok()?;
    let uid = set.metadata.uid.as_ref()?;
    if gone || set.metadata.deletion_timestamp.is_some() {
        known.remove(uid);
        return None;
    }
    (olm_install::dependencies::has_succeeded(set) && known.insert(uid.clone()))
        .then(|| set.annotations().get(olm_api::annotations::PACKAGE_NAME).cloned())?
}

fn requested(catalog: &ClusterCatalog) -> Option<String> {
    catalog.annotations().get(olm_api::annotations::REQUESTED_AT).cloned()
}

/// What of a revision an extension's status depends on: not its finalizers and its bookkeeping.
fn mirrored(set: &Stored<ClusterObjectSet>) -> impl std::hash::Hash + use<> {
    let conditions = set.0.as_ref().ok().and_then(|set| set.status.as_ref()).map(|status| {
        let all = status.conditions.iter();
        all.map(|one| {
            let said = (one.type_.clone(), one.status.as_str(), one.reason.clone(), one.message.clone());
            (said, one.observed_generation)
        })
        .collect::<Vec<_>>()
    });
    let meta = kube::Resource::meta(set);
    (
        meta.generation,
        meta.annotations.clone(),
        meta.labels.clone(),
        meta.owner_references.is_some(),
        conditions,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const API: &str = "olm.operatorframework.io/v1";

    /// A change of `object`, whose status and metadata are replaced by members of `with`.
    fn change<K: kube::Resource + serde::de::DeserializeOwned>(mut object: Value, with: Value) -> Change<K> {
        for (key, value) in with.as_object().unwrap() {
            match object.pointer_mut(key) {
                Some(found) => *found = value.clone(),
                None => {
                    let (parent, name) = key.rsplit_once('/').unwrap();
                    object.pointer_mut(parent).unwrap()[name] = value.clone();
                }
            }
        }
        Change { object: serde_json::from_value(object).unwrap(), gone: false }
    }

    async fn names(wakes: impl Stream<Item = ObjectRef<Stored<ClusterExtension>>>) -> Vec<String> {
        wakes.map(|extension| extension.name).collect().await
    }

    #[tokio::test]
    async fn wakes_own_changes() {
        let extension = json!({"apiVersion": API, "kind": "ClusterExtension",
            "metadata": {"name": "a", "uid": "a", "generation": 1, "resourceVersion": "1"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}}});
        let asked =
            |when: &str| json!({"/metadata/annotations": {"olm.operatorframework.io/requested-at": when}});
        for (case, with, wakes) in [
            ("nothing but resourceVersion", json!({"/metadata/resourceVersion": "2"}), false),
            ("status", json!({"/status": {"conditions": []}}), false),
            ("spec", json!({"/metadata/generation": 2}), true),
            ("requested-at", asked("now"), true),
            ("label", json!({"/metadata/labels": {"a": "b"}}), true),
            ("finalizer", json!({"/metadata/finalizers": ["x/y"]}), true),
            ("deletion", json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}), true),
        ] {
            let changes = [change(extension.clone(), json!({})), change(extension.clone(), with)];
            let woken = names(own_changes(futures::stream::iter(changes))).await;
            assert_eq!(woken.len(), 1 + usize::from(wakes), "{case}");
        }
        let twice = ["1", "1", "2"].map(|when| change(extension.clone(), asked(when)));
        assert_eq!(
            names(own_changes(futures::stream::iter(twice))).await,
            ["a", "a"],
            "another value asks again"
        );
    }

    #[tokio::test]
    async fn wakes_catalog_changes() {
        let catalog = json!({"apiVersion": API, "kind": "ClusterCatalog",
            "metadata": {"name": "c", "uid": "c", "generation": 1, "resourceVersion": "1", "labels": {"a": "b"}},
            "spec": {"priority": 0, "source": {"type": "Image", "image": {"ref": "example.com/c:v1"}}},
            "status": {
                "conditions": [{"type": "Serving", "status": "True", "reason": "Available", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "urls": {"base": "https://example.com/c"},
                "resolvedSource": {"type": "Image", "image": {"ref": "example.com/c@sha256:1"}},
                "lastUnpacked": "2026-01-01T00:00:00Z"}});
        for (case, with, wakes) in [
            ("nothing but resourceVersion", json!({"/metadata/resourceVersion": "2"}), false),
            ("content", json!({"/status/resolvedSource/image/ref": "example.com/c@sha256:2"}), true),
            ("availability", json!({"/status/conditions/0/status": "False"}), true),
            ("priority", json!({"/spec/priority": 1}), true),
            ("labels", json!({"/metadata/labels": {"a": "c"}}), true),
            (
                "requested-at",
                json!({"/metadata/annotations": {"olm.operatorframework.io/requested-at": "now"}}),
                true,
            ),
        ] {
            let changes = [change(catalog.clone(), json!({})), change(catalog.clone(), with)];
            let all = |_| ["a", "b"].map(ObjectRef::new).to_vec();
            let woken = names(catalog_changes(futures::stream::iter(changes), all)).await;
            let want: &[&str] = if wakes { &["a", "b", "a", "b"] } else { &["a", "b"] };
            assert_eq!(woken, want, "{case}");
        }
        let gone = Change { gone: true, ..change(catalog.clone(), json!({})) };
        let changes = futures::stream::iter([gone]);
        let woken =
            names(catalog_changes(changes, |gone| if gone { vec![ObjectRef::new("a")] } else { vec![] }))
                .await;
        assert_eq!(woken, ["a"], "a catalog that is gone");
    }

    #[tokio::test]
    async fn wakes_revision_changes() {
        let succeeded = json!([{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let set = json!({"apiVersion": API, "kind": "ClusterObjectSet",
            "metadata": {"name": "a-1", "uid": "a-1", "generation": 1, "resourceVersion": "1",
                "annotations": {"olm.operatorframework.io/package-name": "p"},
                "ownerReferences": [
                    {"apiVersion": API, "kind": "ClusterExtension", "name": "a", "uid": "a"},
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "no", "uid": "no"}]},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"}});
        let waiting = |package: &str| if package == "p" { vec!["b".to_owned()] } else { vec![] };
        for (case, with, want) in [
            ("nothing but resourceVersion", json!({"/metadata/resourceVersion": "2"}), &["a"][..]),
            ("finalizers", json!({"/metadata/finalizers": ["x/y"]}), &["a"]),
            ("spec", json!({"/metadata/generation": 2}), &["a", "a"]),
            ("a condition", json!({"/status": {"conditions": succeeded}}), &["a", "a", "b"]),
        ] {
            let changes = [change(set.clone(), json!({})), change(set.clone(), with)];
            let woken = names(revision_changes(futures::stream::iter(changes), waiting)).await;
            assert_eq!(woken, want, "{case}");
        }
    }

    #[tokio::test]
    async fn nothing_is_looked_at_before_the_caches_are_complete_and_nothing_is_lost() {
        let (send, receive) = futures::channel::mpsc::unbounded();
        let (filled, ready) = tokio::sync::oneshot::channel::<()>();
        let mut queue = receive;
        let caches = async move {
            let _ = ready.await;
        };
        let feeding = async move {
            for name in ["a", "b"] {
                assert!(send.unbounded_send(name).is_ok());
            }
            tokio::task::yield_now().await;
            assert!(filled.send(()).is_ok());
            assert!(send.unbounded_send("c").is_ok());
        };
        let (mut seen, ()) = tokio::join!(before(caches, &mut queue), feeding);
        seen.extend(queue.collect::<Vec<_>>().await);
        assert_eq!(seen, ["a", "b", "c"]);
    }
}
