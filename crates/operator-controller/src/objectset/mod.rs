//! The ClusterObjectSet controller: rolls revisions out, keeps their objects as wished, and takes them away again.
//!
//! A thin shell around `olm-rollout`, which decides everything: [`reconcile`] tells the story of a pass, [`rollout`] and
//! [`removal`] do what is decided, [`world`] watches the live objects, [`content`] reads what a revision consists of. The
//! extension controller is met only in the apiserver. Rule: the revisions page of the specification.
//!
//! What wakes a pass over a revision:
//! - the revision itself (spec, labels, deletion) and changes of its siblings' state;
//! - any object that has it among its owners, and objects it waits for (collisions, deletions, namespaces, CRDs);
//! - the Secrets that hold its content;
//! - annotations of its ClusterExtension (pause, deletion policy);
//! - its own deadline, and backoff after failures. Nothing is done periodically.

mod content;
mod convert;
mod details;
mod errors;
mod extensions;
mod identity;
mod live;
mod memory;
mod reconcile;
mod removal;
mod rollout;
mod search;
mod secrets;
mod world;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::applier;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_rollout::Revision;
use olm_runtime::events::{Events, NewEvent};
use olm_runtime::metrics::{ControllerMetrics, Outcome};
use olm_runtime::{Intervals, task};
use tracing::{Instrument, error, info_span, warn};

use content::{Content, ContentError, Inventory};
use extensions::Extensions;
use memory::{Known, Memories, Memory};
use secrets::Secrets;
use world::{Wake, World};

use crate::kept::Kept;
use crate::revisions::Revisions;
use crate::watch::{self, Change, Changes, Running, Watch};

pub use identity::{ControllerIdentity, Identities, Purpose};

/// Field manager of what is written to revisions themselves (finalizer, lifecycle, status).
const FIELD_MANAGER: &str = "operator-controller";

/// Passes over different revisions that run at the same time.
pub(crate) const WORKERS: u16 = 16;

/// How long custom resources may take to go before the rest of an extension follows.
pub const CUSTOM_RESOURCE_WAIT: Duration = Duration::from_secs(300);
/// The controller's name in metrics and logs.
pub const NAME: &str = "clusterobjectset";

/// What the controller is run with.
pub struct Context {
    /// The controller's own client.
    pub client: Client,
    /// Where content Secrets lie when a reference names no namespace.
    pub system_namespace: String,
    /// As whom objects are written.
    pub identities: Arc<dyn Identities>,
    /// How long custom resources may take to go, usually [`CUSTOM_RESOURCE_WAIT`].
    pub custom_resource_wait: Duration,
    /// How long a minute of a deadline is, and the time over which corrections are counted.
    pub intervals: Intervals,
    /// Counts passes and how they end, if anyone wants to know.
    pub meter: Option<ControllerMetrics>,
    /// Where corrections and collisions are told as events.
    pub events: Option<Events>,
    /// Content that the extension controller has just written.
    pub kept: Kept,
    feeds: Feeds,
    _running: Vec<Running>,
}

/// What the controller is told of.
pub struct Feeds {
    /// All revisions.
    pub revisions: Revisions,
    /// Their changes.
    pub revision_changes: Changes<ClusterObjectSet>,
    /// All extensions.
    pub extensions: watch::Cache<ClusterExtension>,
    /// Their changes.
    pub extension_changes: Changes<ClusterExtension>,
}

impl Context {
    /// Everything is written as the controller; usual patience; watches of its own.
    pub fn new(client: Client, system_namespace: impl Into<String>) -> Self {
        let (mut revisions, mut extensions) = (Watch::new(&client), Watch::new(&client));
        let feeds = Feeds {
            revisions: Revisions::of_watch(&mut revisions),
            revision_changes: revisions.subscribe(),
            extensions: extensions.store.clone(),
            extension_changes: extensions.subscribe(),
        };
        let running = vec![revisions.start(), extensions.start()];
        Self { _running: running, ..Self::fed(client, system_namespace, feeds) }
    }

    /// The same with watches that others share.
    pub fn fed(client: Client, system_namespace: impl Into<String>, feeds: Feeds) -> Self {
        Self {
            identities: Arc::new(ControllerIdentity(client.clone())),
            client,
            system_namespace: system_namespace.into(),
            custom_resource_wait: CUSTOM_RESOURCE_WAIT,
            intervals: Intervals::default(),
            meter: None,
            events: None,
            kept: Kept::default(),
            feeds,
            _running: Vec::new(),
        }
    }

    /// All extensions, as the controller has seen them.
    #[must_use]
    pub fn extensions(&self) -> &watch::Cache<ClusterExtension> {
        &self.feeds.extensions
    }
}

type Stored = watch::Stored<ClusterObjectSet>;

/// What a pass works with.
struct Shell {
    client: Client,
    system_namespace: String,
    identities: Arc<dyn Identities>,
    custom_resource_wait: Duration,
    intervals: Intervals,
    meter: Option<ControllerMetrics>,
    events: Option<Events>,
    revisions: Revisions,
    kept: Kept,
    world: World,
    secrets: Secrets,
    extensions: Extensions,
    memories: Memories,
}

/// Runs the controller until `shutdown` resolves; running passes are finished first.
pub async fn run(context: Context, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
    let Context {
        client,
        system_namespace,
        identities,
        custom_resource_wait,
        intervals,
        meter,
        events,
        kept,
        feeds,
        _running: running,
    } = context;
    let mut tasks = tokio::task::JoinSet::new();
    let (wake, woken) = Wake::channel();
    let revisions = feeds.revisions;
    let store = revisions.store.reader();
    let shell = Arc::new(Shell {
        world: World::new(client.clone(), wake.clone()),
        secrets: Secrets::start(client.clone(), wake.clone(), &mut tasks),
        extensions: Extensions(feeds.extensions),
        memories: Memories::default(),
        revisions: revisions.clone(),
        kept,
        client,
        system_namespace,
        identities,
        custom_resource_wait,
        intervals,
        meter,
        events,
    });
    // an extension changed: all its revisions are looked at
    let by_extension = revisions.clone();
    let paused = extensions::changed(feeds.extension_changes).flat_map(move |extension| {
        let all: Vec<String> = by_extension.of(&extension).iter().map(|set| set.name_any()).collect();
        futures::stream::iter(all)
    });
    // a revision changed: it and, if its standing changed, its siblings are looked at
    let (siblings, mut standings, told) = (revisions, HashMap::new(), Arc::clone(&shell));
    let own = feeds.revision_changes.flat_map(move |Change { object: revision, gone }| {
        let name = revision.name_any();
        let mut names = vec![];
        // what our own pass wrote last has been looked at by it
        if gone || !told.memories.is_echo(&revision) {
            names.push(name.clone());
        }
        let standing = (revision.meta().generation, revision.meta().deletion_timestamp.is_some(), gone);
        if standings.insert(name.clone(), standing) != Some(standing)
            && let Some(extension) = extension_of(&revision)
        {
            let others = siblings.of(extension).into_iter().map(|other| other.name_any());
            names.extend(others.filter(|other| *other != name));
        }
        if gone {
            let uid = revision.meta().uid.clone().unwrap_or_default();
            told.memories.forget(&uid);
            told.world.release(&uid, &HashSet::new());
            standings.remove(&name);
        }
        futures::stream::iter(names)
    });
    let woken =
        futures::stream::unfold(
            woken,
            |mut woken| async move { woken.recv().await.map(|name| (name, woken)) },
        );
    let queue = futures::stream::select_all([own.boxed(), woken.boxed(), paused.boxed()])
        .map(|name| Ok::<_, Infallible>(request(&name)))
        .take_until(shutdown);
    let config = controller::Config::default().concurrency(WORKERS).debounce(Duration::from_millis(10));
    let passes = applier(
        |revision: Arc<Stored>, shell: Arc<Shell>| {
            async move { Ok::<_, Infallible>(spawn(revision, shell).await) }.boxed()
        },
        |_, error: &Infallible, _| match *error {},
        shell,
        store,
        queue,
        config,
    );
    passes.for_each(|_| std::future::ready(())).await;
    drop(running);
    tasks.shutdown().await;
}

/// A pass on its own task: passes run in parallel, and one that panics takes nothing with it.
async fn spawn(revision: Arc<Stored>, shell: Arc<Shell>) -> Action {
    let (name, uid) = (revision.name_any(), revision.uid().unwrap_or_default());
    let passes = Arc::clone(&shell);
    let pass = async move { passes.metered(revision).await }.instrument(info_span!("revision", %name));
    task::pass(pass).await.unwrap_or_else(|error| {
        error!(revision = name, %error, "pass panicked");
        Action::requeue(olm_runtime::backoff::after_panic(shell.memories.failures(&uid).saturating_sub(1)))
    })
}

fn request(name: &str) -> controller::ReconcileRequest<Stored> {
    controller::ReconcileRequest::from(ObjectRef::<Stored>::new(name))
}

fn extension_of(revision: &Stored) -> Option<&str> {
    revision.labels().get(olm_api::labels::OWNER_NAME).map(String::as_str).filter(|name| !name.is_empty())
}

impl Shell {
    /// One pass, counted; one that panics is counted as that.
    async fn metered(&self, stored: Arc<Stored>) -> Action {
        let running = self.meter.as_ref().map(ControllerMetrics::start);
        let (action, outcome) = self.pass(stored).await;
        if let Some(running) = running {
            running.finish(outcome);
        }
        action
    }

    async fn pass(&self, stored: Arc<Stored>) -> (Action, Outcome) {
        match &stored.0 {
            Ok(revision) => {
                self.secrets.synced().await;
                self.extensions.synced().await;
                reconcile::reconcile(Arc::clone(revision), self).await
            }
            Err(invalid) => {
                warn!(revision = %invalid.metadata.name.as_deref().unwrap_or_default(), error = %invalid.error, "not a revision");
                (Action::await_change(), Outcome::TerminalError)
            }
        }
    }

    /// Tells something about a revision as an event.
    async fn tell(&self, revision: &ClusterObjectSet, warning: bool, reason: &str, note: &str) {
        if let Some(events) = &self.events {
            let event = NewEvent { warning, reason, action: "RollOut", note };
            events.publish(&revision.object_ref(&()), event).await;
        }
    }

    /// The other revisions of the same extension.
    fn siblings(&self, revision: &ClusterObjectSet) -> Vec<Arc<ClusterObjectSet>> {
        let mut all = convert::extension(revision).map(|name| self.revisions.of(name)).unwrap_or_default();
        all.retain(|other| convert::are_siblings(revision, other));
        all
    }

    /// Makes sure that the content is known, without its bodies if they are not needed.
    async fn know(&self, revision: &ClusterObjectSet, memory: &mut Memory) -> Result<(), ContentError> {
        if memory.known.as_ref().is_some_and(|known| known.is_current(revision, &self.secrets)) {
            return Ok(());
        }
        memory.known = None;
        let content =
            Content::load(revision, &self.client, &self.system_namespace, &self.secrets, &self.kept).await?;
        memory.known = Some(Known::new(revision, content));
        Ok(())
    }

    /// The content with bodies, read again if they were dropped.
    async fn content(
        &self,
        revision: &ClusterObjectSet,
        memory: &mut Memory,
    ) -> Result<Arc<Content>, String> {
        if let Some(content) = memory.known.as_ref().and_then(|known| known.content.clone()) {
            return Ok(content);
        }
        memory.known = None;
        self.know(revision, memory).await.map_err(|error| error.to_string())?;
        memory
            .known
            .as_ref()
            .and_then(|known| known.content.clone())
            .ok_or_else(|| "content is not known".to_owned())
    }

    /// What a revision consists of, from memory if it is there.
    async fn inventory(
        &self,
        revision: &ClusterObjectSet,
        memory: &mut Memory,
    ) -> Result<Arc<Inventory>, String> {
        if memory.known.is_none() {
            self.know(revision, memory).await.map_err(|error| error.to_string())?;
        }
        memory
            .known
            .as_ref()
            .map(|known| Arc::clone(&known.inventory))
            .ok_or_else(|| "content is not known".to_owned())
    }

    /// What a revision consists of, searched in the cluster.
    async fn search(&self, us: &Revision) -> Result<Arc<Inventory>, String> {
        search::search(&self.client, us).await
    }

    /// Wakes the revision when the namespace appears (or is there after all).
    fn await_namespace(&self, revision: &str, namespace: &str) {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&());
        self.world.wait_for_named(revision, &resource, namespace);
    }

    /// Wakes the revision when a CRD for the kind appears, if its name is the usual one.
    fn await_crd(&self, revision: &str, gvk: &GroupVersionKind) {
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            "customresourcedefinitions",
        );
        let plural = ApiResource::from_gvk(gvk).plural;
        self.world.wait_for_named(revision, &resource, &format!("{plural}.{}", gvk.group));
    }

    /// Wakes the revision when one of its Secrets changes, those without our label included.
    fn await_secrets(&self, revision: &ClusterObjectSet) {
        self.world.wait_anew(&revision.name_any());
        for object in revision.spec.phases.iter().flat_map(|phase| &phase.objects) {
            if let Some(reference) = &object.reference {
                let namespace = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
                let namespace = namespace.unwrap_or(&self.system_namespace);
                if self.secrets.edition(&(namespace.to_owned(), reference.name.clone())).is_none() {
                    self.world.wait_for_secret(&revision.name_any(), namespace, &reference.name);
                }
            }
        }
    }
}
