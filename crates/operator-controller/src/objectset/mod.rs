//! The ClusterObjectSet controller: rolls revisions out, keeps their objects as desired, and removes them.
//!
//! A thin layer of IO around `olm-rollout`, which decides everything: [`reconcile`] is a pass, [`rollout`] and [`removal`] execute
//! decisions, [`world`] watches the live objects, [`content`] reads the content of a revision. Rule: the revisions page of the
//! specification.
//!
//! What wakes a pass over a revision: [`sources`]. A revision that is not finished is reconciled every minute, too.

mod content;
mod convert;
mod debounce;
mod errors;
mod extensions;
mod identity;
mod live;
mod memory;
mod pods;
mod reconcile;
mod removal;
mod requests;
mod rollout;
mod search;
mod secrets;
mod sources;
mod world;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource as _, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_install::content::secret_key;
use olm_rollout::schedule;
use olm_runtime::controller::{self, Controller, Requeue, Waker, Workers};
use olm_runtime::events::{Events, NewEvent};
use olm_runtime::metrics::{ControllerMetrics, Outcome};
use olm_runtime::watched::{Object, Objects, slim};
use olm_runtime::{Intervals, Shutdown, task};
use tokio::task::JoinSet;
use tracing::{Instrument as _, info_span, warn};

use content::{Content, ContentError, Inventory, Item};
use errors::text;
use extensions::Extensions;
use memory::{LoadedContent, Memories, Memory};
use rollout::gvk;
use secrets::Secrets;
use world::World;

use crate::recorded::Recorded;
use crate::revisions::Revisions;
use crate::secret_cache::SecretCache;

pub use identity::{ControllerIdentity, Identities, IdentityError, Owner, Purpose};

/// Field manager of what is written to revisions themselves (finalizer, lifecycle, status).
const FIELD_MANAGER: &str = "operator-controller";

/// Passes over different revisions that run at the same time.
pub(crate) const WORKERS: u16 = 8;

/// Events of one revision within this time are one pass.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// How long custom resources may take to go before the rest of an extension follows.
pub const CUSTOM_RESOURCE_WAIT: Duration = Duration::from_secs(300);
/// The controller's name in metrics and logs.
pub const NAME: &str = "clusterobjectset";

/// What a pass works with.
pub struct Context {
    /// The controller's own client.
    pub client: Client,
    /// The namespace of content Secrets when a reference names none.
    pub system_namespace: String,
    /// As whom objects are written.
    pub identities: Arc<dyn Identities>,
    /// How long custom resources may take to go, usually [`CUSTOM_RESOURCE_WAIT`].
    pub custom_resource_wait: Duration,
    /// How long a minute of a deadline is, and the time over which corrections are counted.
    pub intervals: Intervals,
    /// Records corrections and collisions.
    pub events: Option<Events>,
    /// Content that the extension controller has just written.
    pub kept: SecretCache,
    revisions: Revisions,
    world: World,
    secrets: Secrets,
    extensions: Extensions,
    memories: Memories,
    /// Wakes the revisions that live objects and content Secrets belong to.
    waker: Waker,
}

impl Context {
    /// Everything is written as the controller.
    pub fn new(
        client: Client,
        system_namespace: impl Into<String>,
        revisions: Revisions,
        extensions: Objects<ClusterExtension>,
    ) -> Self {
        let waker = Waker::default();
        Self {
            identities: Arc::new(ControllerIdentity(client.clone())),
            world: World::new(client.clone(), waker.clone()),
            client,
            system_namespace: system_namespace.into(),
            custom_resource_wait: CUSTOM_RESOURCE_WAIT,
            intervals: Intervals::default(),
            events: None,
            kept: SecretCache::default(),
            revisions,
            secrets: Secrets::default(),
            extensions: Extensions(extensions),
            memories: Memories::default(),
            waker,
        }
    }
}

/// Runs the controller until `stop`; running passes are finished first.
pub async fn run(context: Context, metrics: ControllerMetrics, stop: Shutdown) {
    let context = Arc::new(context);
    let follows = context.secrets.clone().run(context.client.clone(), context.waker.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(task::supervised(secrets::WATCH, follows));
    let workers = Workers::new(WORKERS, stop);
    let controller = Controller {
        debounce: DEBOUNCE,
        unfinished: context.intervals.unfinished,
        backoff: |earlier| schedule::backoff(earlier.saturating_add(1)),
        describe: {
            let context = Arc::clone(&context);
            Box::new(move |name| context.describe(name))
        },
        ..Controller::new(NAME, workers, metrics, sources::sources(&context))
    };
    let ready = async {
        context.revisions.wait_until_listed().await;
        context.extensions.0.wait_until_listed().await;
        context.secrets.wait_until_listed().await;
    };
    controller::run(controller, ready, |name| {
        let revision = context.revisions.get(&name.to_owned())?;
        let span = info_span!("revision", revision = name);
        Some(pass(revision, Arc::clone(&context)).instrument(span))
    })
    .await;
}

async fn pass(revision: Object<ClusterObjectSet>, context: Arc<Context>) -> (Requeue, Outcome) {
    match revision.0 {
        Ok(revision) => reconcile::reconcile(revision, &context).await,
        Err(invalid) => {
            warn!(revision = %invalid.metadata.name.as_deref().unwrap_or_default(), error = %invalid.error, "not a revision");
            (Requeue::OnChange, Outcome::TerminalError)
        }
    }
}

impl Context {
    /// Evicts a revision that is gone.
    fn evict(&self, name: &str, uid: &str) {
        self.memories.evict(uid);
        self.world.stop_waiting(name);
        self.world.release(uid, &HashSet::new());
    }

    /// The resourceVersions at which a revision and its objects are cached, and what it waits for.
    fn describe(&self, name: &str) -> String {
        let uid = self.revisions.get(&name.to_owned()).map(|revision| revision.uid()).unwrap_or_default();
        let inventory = self.memories.inventory(&uid);
        let phases = inventory.iter().flat_map(|inventory| &inventory.phases);
        let objects: Vec<String> = phases
            .flat_map(|(_, items)| items)
            .map(|Item { key, .. }| {
                let version = self.world.cached_version(&gvk(key), key).unwrap_or_default();
                format!(
                    "{} {}/{}@{version}",
                    key.kind,
                    key.namespace.as_deref().unwrap_or_default(),
                    key.name
                )
            })
            .collect();
        format!(
            "{}; objects: {}; waits for: {}",
            self.revisions.describe(name),
            objects.join(", "),
            self.world.waits(name).join(", ")
        )
    }

    /// Shows a revision as the apiserver answered a write of it, before the watch does.
    fn update(&self, revision: ClusterObjectSet) -> Arc<ClusterObjectSet> {
        let revision = Arc::new(slim(revision));
        self.revisions.update(revision.name_any(), Object(Ok(Arc::clone(&revision))));
        revision
    }

    /// Records an event about a revision.
    async fn record(&self, revision: &ClusterObjectSet, warning: bool, reason: &str, note: &str) {
        if let Some(events) = &self.events {
            let event = NewEvent { warning, reason, action: "RollOut", note };
            events.publish(&revision.object_ref(&()), event).await;
        }
    }

    /// Records that the removal of a revision waits for another one.
    async fn record_wait(&self, revision: &ClusterObjectSet, note: &str) {
        if let Some(events) = &self.events {
            let event = NewEvent { warning: true, reason: "RemovalWaiting", action: "Remove", note };
            events.publish(&revision.object_ref(&()), event).await;
        }
    }

    /// The other revisions of the same extension.
    fn siblings(&self, revision: &ClusterObjectSet) -> Vec<Arc<ClusterObjectSet>> {
        let mut all =
            convert::extension(revision).map(|name| self.revisions.of_extension(name)).unwrap_or_default();
        all.retain(|other| convert::are_siblings(revision, other));
        all
    }

    /// Evicts the content Secrets of revisions from the cache.
    fn evict_secrets<'a>(&self, revisions: impl IntoIterator<Item = &'a ClusterObjectSet>) {
        for revision in revisions {
            self.kept.remove(&content::references(revision, &self.system_namespace));
        }
    }

    /// The owner of a revision, on which the identity that writes its objects depends.
    async fn owner(&self, revision: &ClusterObjectSet, memory: &mut Memory) -> Result<Owner, String> {
        if let Some((name, uid)) = convert::owner(revision) {
            return Ok(Owner::Extension { name: name.to_owned(), uid: uid.to_owned() });
        }
        Ok(Owner::None(self.recorded(revision, memory).await?.account.clone()))
    }

    /// The client that removes objects of a revision. An extension that was orphaned or removed may still be named as its owner.
    async fn removing_client(
        &self,
        revision: &ClusterObjectSet,
        owner: &Owner,
        memory: &mut Memory,
    ) -> Result<Client, String> {
        let found = match self.identities.client(owner, Purpose::Remove).await {
            Err(IdentityError::NoExtension(_)) => {
                let recorded = Owner::None(self.recorded(revision, memory).await?.account.clone());
                self.identities.client(&recorded, Purpose::Remove).await
            }
            found => found,
        };
        found.map_err(|error| error.to_string())
    }

    /// What the Secrets of a revision without ClusterExtension record of the one that it had. Nothing changes it any more.
    async fn recorded<'a>(
        &self,
        revision: &ClusterObjectSet,
        memory: &'a mut Memory,
    ) -> Result<&'a Recorded, String> {
        let recorded = match memory.recorded.take() {
            Some(recorded) => recorded,
            None => Recorded::read(&self.client, &self.system_namespace, revision)
                .await
                .map_err(|error| format!("reading the annotations of its Secrets: {}", text(&error)))?,
        };
        Ok(memory.recorded.insert(recorded))
    }

    /// Makes sure that the content is known, without its bodies if they are not needed.
    async fn know(&self, revision: &ClusterObjectSet, memory: &mut Memory) -> Result<(), ContentError> {
        if memory.known.as_ref().is_some_and(|known| known.is_current(revision, &self.secrets)) {
            return Ok(());
        }
        memory.known = None;
        let content =
            Content::load(revision, &self.client, &self.system_namespace, &self.secrets, &self.kept).await?;
        memory.known = Some(LoadedContent::new(revision, content));
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
    ) -> Result<Arc<Inventory>, ContentError> {
        if memory.known.is_none() {
            self.know(revision, memory).await?;
        }
        memory
            .known
            .as_ref()
            .map(|known| Arc::clone(&known.inventory))
            .ok_or_else(|| ContentError::Failed("content is not known".to_owned()))
    }

    /// Wakes the revision when the namespace appears (or is there after all).
    fn await_namespace(&self, revision: &str, namespace: &str) {
        self.world.wait_for_named::<Namespace>(revision, None, namespace);
    }

    /// Wakes the revision when a CRD for the kind appears, if its name is the usual one.
    fn await_crd(&self, revision: &str, gvk: &GroupVersionKind) {
        let name = format!("{}.{}", ApiResource::from_gvk(gvk).plural, gvk.group);
        self.world.wait_for_named::<CustomResourceDefinition>(revision, None, &name);
    }

    /// Wakes the revision when one of its Secrets changes, those without our label included.
    fn await_secrets(&self, revision: &ClusterObjectSet) {
        self.world.begin_waits(&revision.name_any());
        let objects = revision.spec.phases.iter().flat_map(|phase| &phase.objects);
        for secret in objects.filter_map(|object| secret_key(object, &self.system_namespace)) {
            if self.secrets.edition(&secret).is_none() {
                let (namespace, name) = &secret;
                self.world.wait_for_named::<Secret>(&revision.name_any(), Some(namespace), name);
            }
        }
    }
}
