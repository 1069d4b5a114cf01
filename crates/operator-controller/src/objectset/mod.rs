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
use kube::core::{ApiResource, DeserializeGuard, GroupVersionKind};
use kube::runtime::applier;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_rollout::Us;
use olm_runtime::events::{Events, Happening};
use olm_runtime::metrics::{ControllerMeter, Outcome};
use tokio::sync::mpsc;
use tracing::{Instrument, error, info_span, warn};

use content::{Content, ContentError, Inventory};
use extensions::Extensions;
use memory::{Known, Memories, Memory};
use secrets::Secrets;
use world::{Wake, World};

pub(crate) use errors::text as error_text;
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
    /// Counts passes and how they end, if anyone wants to know.
    pub meter: Option<ControllerMeter>,
    /// Where corrections and collisions are told as events.
    pub events: Option<Events>,
}

impl Context {
    /// Everything is written as the controller; usual patience.
    pub fn new(client: Client, system_namespace: impl Into<String>) -> Self {
        Self {
            identities: Arc::new(ControllerIdentity(client.clone())),
            client,
            system_namespace: system_namespace.into(),
            custom_resource_wait: CUSTOM_RESOURCE_WAIT,
            meter: None,
            events: None,
        }
    }
}

type Stored = DeserializeGuard<ClusterObjectSet>;

/// What a pass works with.
struct Shell {
    client: Client,
    system_namespace: String,
    identities: Arc<dyn Identities>,
    custom_resource_wait: Duration,
    meter: Option<ControllerMeter>,
    events: Option<Events>,
    revisions: Store<Stored>,
    world: World,
    secrets: Secrets,
    extensions: Extensions,
    memories: Memories,
}

/// Runs the controller until `shutdown` resolves; running passes are finished first.
pub async fn run(context: Context, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
    let Context { client, system_namespace, identities, custom_resource_wait, meter, events } = context;
    let mut tasks = tokio::task::JoinSet::new();
    let (wake, woken) = Wake::channel();
    let (changed, mut changes) = mpsc::channel(1024);
    let watch = crate::watch::all::<ClusterObjectSet>(&client);
    let store = watch.store.clone();
    let shell = Arc::new(Shell {
        world: World::new(client.clone(), wake.clone()),
        secrets: Secrets::start(client.clone(), wake.clone(), &mut tasks),
        extensions: Extensions::start(client.clone(), changed, &mut tasks),
        memories: Memories::default(),
        revisions: store.clone(),
        client,
        system_namespace,
        identities,
        custom_resource_wait,
        meter,
        events,
    });
    // an extension changed: all its revisions are looked at
    let (by_extension, waker) = (store.clone(), wake.clone());
    tasks.spawn(async move {
        while let Some(extension) = changes.recv().await {
            for revision in by_extension.state() {
                if extension_of(&revision) == Some(extension.as_str()) {
                    waker.revision(&revision.name_any()).await;
                }
            }
        }
    });
    // a revision changed: it and, if its standing changed, its siblings are looked at
    let (siblings, mut standings, gone) = (store.clone(), HashMap::new(), Arc::clone(&shell));
    let own = watch.changes.flat_map(move |revision| {
        let mut names = vec![revision.name_any()];
        let standing = (
            revision.meta().generation,
            revision.meta().deletion_timestamp.is_some(),
            siblings.get(&ObjectRef::new(&revision.name_any())).is_some(),
        );
        if standings.insert(revision.name_any(), standing) != Some(standing) {
            let extension = extension_of(&revision);
            names.extend(
                siblings
                    .state()
                    .iter()
                    .filter(|other| extension.is_some() && extension_of(other) == extension)
                    .map(|other| other.name_any())
                    .filter(|name| *name != revision.name_any()),
            );
        }
        if !standing.2 {
            let uid = revision.meta().uid.clone().unwrap_or_default();
            gone.memories.forget(&uid);
            gone.world.release(&uid, &HashSet::new());
            standings.remove(&revision.name_any());
        }
        futures::stream::iter(names)
    });
    let woken =
        futures::stream::unfold(
            woken,
            |mut woken| async move { woken.recv().await.map(|name| (name, woken)) },
        );
    let queue = futures::stream::select(own.boxed(), woken.boxed())
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
    tasks.shutdown().await;
}

/// A pass on its own task: passes run in parallel, and one that panics takes nothing with it.
async fn spawn(revision: Arc<Stored>, shell: Arc<Shell>) -> Action {
    let name = revision.name_any();
    let pass =
        tokio::spawn(async move { shell.metered(revision).await }.instrument(info_span!("revision", %name)));
    pass.await.unwrap_or_else(|error| {
        error!(%error, "pass ended unexpectedly");
        Action::requeue(olm_rollout::schedule::SLOWEST)
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
        let running = self.meter.as_ref().map(ControllerMeter::start);
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
                reconcile::reconcile(Arc::new(revision.clone()), self).await
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
            let happening = Happening { warning, reason, action: "RollOut", note };
            events.publish(&revision.object_ref(&()), happening).await;
        }
    }

    /// The other revisions of the same extension.
    fn siblings(&self, revision: &ClusterObjectSet) -> Vec<Arc<ClusterObjectSet>> {
        let all = self.revisions.state();
        let readable = all.iter().filter_map(|stored| stored.0.as_ref().ok());
        readable
            .filter(|other| convert::are_siblings(revision, other))
            .map(|other| Arc::new(other.clone()))
            .collect()
    }

    /// Makes sure that the content is known, without its bodies if they are not needed.
    async fn know(&self, revision: &ClusterObjectSet, memory: &mut Memory) -> Result<(), ContentError> {
        if memory.known.as_ref().is_some_and(|known| known.is_current(revision, &self.secrets)) {
            return Ok(());
        }
        memory.known = None;
        let content = Content::load(revision, &self.client, &self.system_namespace, &self.secrets).await?;
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
    async fn search(&self, us: &Us) -> Result<Arc<Inventory>, String> {
        search::search(&self.client, us).await
    }

    /// Wakes the revision when the namespace appears.
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
        self.world.stop_waiting(&revision.name_any());
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
