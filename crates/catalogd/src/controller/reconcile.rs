//! One reconciliation of one catalog: gather, decide ([`super::plan`]), do, report ([`super::status`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use olm_api::cluster_catalog::ClusterCatalog;
use olm_api::{annotations, condition, finalizers, labels};
use olm_core::{Digest, KubernetesVersion, ResolvedTemplate};
use olm_runtime::error_text;
use olm_runtime::events::Events;
use olm_runtime::metrics::{ControllerMetrics, Outcome};
use olm_runtime::status::{StatusError, write_status};
use olm_runtime::{Intervals, Polled};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::fetch::{Fetch, FetchError, Fetched, History};
use super::plan::{self, FailedAttempt, Held, Memory, Observed, Plan, Quarantine, Retry};
use super::report;
use super::service::ServiceSettings;
use super::status::{self, Attempt};
use crate::store::{Content, Served, Store, StoreError};

/// Who owns the name label.
pub(super) const FIELD_MANAGER: &str = "olm.operatorframework.io/catalogd";
/// How long nothing may be served before the status reports it, so that a restart with a slow registry changes nothing.
const LOSS_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// How long a first pull may take before the status reports it, so that a fast one writes the status once.
const FIRST_PULL_DELAY: Duration = Duration::from_secs(3);

/// Pause after a write that failed.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The dependencies of a reconciliation.
pub struct Context {
    pub client: Client,
    /// What is served.
    pub store: Store,
    /// From references to stored content.
    pub fetch: Fetch,
    /// Whether this replica decides and reports.
    pub leader: watch::Receiver<bool>,
    pub events: Events,
    /// Counts reconciliations.
    pub meter: ControllerMetrics,
    /// `https://<external address>`.
    pub base: String,
    /// How Services of the gRPC registry are made; `None` while it is off.
    pub services: Option<ServiceSettings>,
    /// How long a minute of a poll interval is.
    pub intervals: Intervals,
    /// The version of the cluster; `None` if it is unknown.
    pub version: Polled<Option<KubernetesVersion>>,
    /// State of each catalog, by name.
    pub states: Mutex<HashMap<String, PerCatalog>>,
    /// How often credentials have changed, so that an attempt with older ones is noticed.
    pub epoch: AtomicU64,
}

/// State of one catalog between passes, and of its running pass.
#[derive(Debug, Default)]
pub struct PerCatalog {
    pub(super) remembered: Remembered,
    /// Ends the running reconciliation of this version of the catalog.
    pub(super) running: Option<(CancellationToken, Option<String>, Option<i64>)>,
    /// The catalog was deleted since the last reconciliation; there may be another of its name by now.
    pub(super) was_deleted: bool,
}

/// What a pass over a catalog remembers for the next one.
#[derive(Debug, Clone, Default)]
pub struct Remembered {
    pub(super) plan: Memory,
    /// Since when nothing has been served.
    unserved_since: Option<Instant>,
}

/// A step that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server refused a write.
    #[error("error updating {what}")]
    Write { what: &'static str, source: Box<kube::Error> },
    /// The API server refused the status.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// The API server did not answer a write.
    #[error("error updating {what}: no answer in time")]
    Slow { what: &'static str },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReconcileError {
    /// Whether the object has been changed by another writer meanwhile.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Status(error) => error.is_conflict(),
            Self::Write { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if status.code == 409)
            }
            Self::Slow { .. } | Self::Store(_) => false,
        }
    }
}

impl Context {
    /// Reconciles a catalog; returns when to do so again, if ever, and the outcome. `catalog` becomes what the API server made
    /// of it.
    pub async fn reconcile(&self, catalog: &mut ClusterCatalog) -> (Option<Instant>, Outcome) {
        let name = catalog.name_any();
        let leader = *self.leader.borrow();
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut remembered =
            self.states.lock().get(&name).map(|state| state.remembered.clone()).unwrap_or_default();
        let memory = &mut remembered.plan;
        memory.requested.get_or_insert_with(|| catalog.annotations().get(annotations::REQUESTED_AT).cloned());
        let held = self.held(&name);
        let now = Instant::now();
        if !leader {
            // another replica resolves meanwhile
            memory.generation = None;
        }
        let template = self.template(catalog);
        let desired = plan::desired(catalog, template.as_ref());
        if leader
            && let Some(failure) = &memory.failure
            && plan::is_outdated(failure, desired, held.as_ref())
        {
            // until the next report the status is that of the failure
            memory.generation = memory.generation.or(failure.generation);
            memory.failure = None;
        }
        remembered.unserved_since = match (&held, remembered.unserved_since) {
            (Some(_), _) => None,
            (None, since) => Some(since.unwrap_or(now)),
        };
        let observed = Observed {
            catalog,
            desired,
            leader,
            held: held.as_ref(),
            memory,
            now,
            minute: self.intervals.minute,
            dice: rand::random(),
        };
        let plan = plan::plan(&observed);
        tracing::debug!(leader, ?plan, "reconciling");
        let attempted = matches!(plan, Plan::Pull { .. } | Plan::Follow { .. });
        let done = self.carry_out(&name, catalog, leader, plan, held, &mut remembered).await;
        let (next, outcome) = match (done, &remembered.plan.failure) {
            (Ok(next), Some(failure)) if attempted => {
                (next, if failure.blocked { Outcome::TerminalError } else { Outcome::Error })
            }
            (Ok(next), _) => (next, if next.is_some() { Outcome::RequeueAfter } else { Outcome::Success }),
            (Err(error), _) => {
                let conflict = error.is_conflict();
                if conflict {
                    tracing::debug!(%error, "the object has changed meanwhile");
                } else {
                    let error = error_text::chain(&error);
                    tracing::warn!(error, "cannot finish; trying again");
                }
                (Some(Instant::now() + WRITE_PAUSE), if conflict { Outcome::Requeue } else { Outcome::Error })
            }
        };
        let mut next = next;
        let mut all = self.states.lock();
        if epoch != self.epoch.load(Ordering::Relaxed)
            && let Some(failure) = remembered.plan.failure.as_mut().filter(|failure| failure.retry.is_some())
        {
            // credentials changed during this pass: it may have used the old ones, and what it began with is older than the request to retry
            let now = Instant::now();
            failure.retry = Some(now);
            next = Some(now);
        }
        if leader {
            next = next.into_iter().chain(self.loss_due(&name, catalog, &remembered)).min();
        }
        all.entry(name).or_default().remembered = remembered;
        drop(all);
        (next, outcome)
    }

    /// Lets every catalog whose last attempt failed be tried again now. Returns their names.
    #[must_use]
    pub(crate) fn retry_failed(&self) -> Vec<String> {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut all = self.states.lock();
        let mut names = Vec::new();
        for (name, PerCatalog { remembered, .. }) in all.iter_mut() {
            // A terminal error has nothing to do with credentials.
            if let Some(failure) = remembered.plan.failure.as_mut().filter(|failure| failure.retry.is_some())
            {
                failure.retry = Some(now);
                failure.attempts = 0;
                names.push(name.clone());
            }
        }
        names
    }

    /// Stops serving a catalog that is gone.
    pub async fn remove(&self, name: &str) {
        if let Some(state) = self.states.lock().get_mut(name) {
            state.remembered = Remembered::default();
        }
        if let Err(error) = self.withdraw(name).await {
            tracing::warn!(catalog = name, %error, "cannot remove content of a deleted catalog");
        }
    }

    async fn carry_out(
        &self,
        name: &str,
        catalog: &mut ClusterCatalog,
        leader: bool,
        plan: Plan,
        held: Option<Held>,
        remembered: &mut Remembered,
    ) -> Result<Option<Instant>, ReconcileError> {
        match plan {
            Plan::SwitchOff | Plan::TearDown => {
                if let Err(error) = self.withdraw(name).await {
                    if leader {
                        let message = error_text::chain(&error);
                        self.report(catalog, &Attempt::RemovalFailed { message }).await?;
                    }
                    return Err(error.into());
                }
                *remembered = Remembered {
                    plan: Memory { requested: remembered.plan.requested.take(), ..Memory::default() },
                    unserved_since: None,
                };
                if leader {
                    if catalog.metadata.deletion_timestamp.is_none() {
                        self.label(catalog).await?;
                    }
                    let attempt =
                        if plan == Plan::SwitchOff { Attempt::SwitchedOff } else { Attempt::Removed };
                    self.report(catalog, &attempt).await?;
                    self.unfinalize(catalog).await?;
                }
                Ok(None)
            }
            Plan::LeaveAlone => Ok(None),
            Plan::Refuse(message) => {
                let attempt = Attempt::Failed {
                    message,
                    blocked: true,
                    nothing_served: held.is_none(),
                    quarantine: Quarantine::Unchanged,
                };
                self.report(catalog, &attempt).await?;
                Ok(None)
            }
            Plan::Rest { until } => {
                if leader {
                    self.ensure_finalizer_and_label(catalog).await?;
                    let attempt = match (&remembered.plan.failure, held) {
                        (Some(failure), held) => {
                            Some(self.failed(failure, held.is_some(), remembered.unserved_since))
                        }
                        (None, Some(held)) => Some(self.served(name, held)),
                        (None, None) => None,
                    };
                    if let Some(attempt) = attempt {
                        self.report(catalog, &attempt).await?;
                    }
                } else if let Some(held) = held {
                    self.redate(name, catalog, &held).await?;
                }
                Ok(until)
            }
            Plan::Pull { reference, why } => {
                self.ensure_finalizer_and_label(catalog).await?;
                if why.is_repetition() {
                    tracing::debug!(reference, ?why, "resolving");
                } else {
                    tracing::info!(reference, ?why, "resolving");
                }
                let observed = catalog.clone();
                let history = history(&observed, remembered);
                if history == History::Ignored
                    && let Some(message) = plan::quarantine(&observed)
                {
                    self.lift(message).await?;
                }
                let pull = self.fetch.by_reference(&reference, None, history);
                let fetched = match plan::is_reported(&observed) {
                    true => pull.await,
                    false => self.report_slow_pull(catalog, &reference, pull).await?,
                };
                self.finish_attempt(name, catalog, &reference, true, fetched, remembered).await
            }
            Plan::Follow { reference } => {
                let text = "fetching what the leader has published";
                if remembered.plan.failure.is_some() {
                    tracing::debug!(reference, "{text}");
                } else {
                    tracing::info!(reference, "{text}");
                }
                let source = plan::source_of_status(catalog);
                let history = history(catalog, remembered);
                let fetched = self.fetch.by_reference(&reference, source.as_deref(), history).await;
                self.finish_attempt(name, catalog, &reference, false, fetched, remembered).await
            }
        }
    }

    /// Waits for a first pull, and reports it if it takes a while.
    async fn report_slow_pull<T>(
        &self,
        catalog: &mut ClusterCatalog,
        reference: &str,
        pull: impl Future<Output = T>,
    ) -> Result<T, ReconcileError> {
        let mut pull = std::pin::pin!(pull);
        if let Ok(done) = tokio::time::timeout(FIRST_PULL_DELAY, &mut pull).await {
            return Ok(done);
        }
        let attempt = Attempt::Pulling { reference: reference.to_owned() };
        // the pull continues meanwhile, and also if the apiserver refuses the status
        let (done, reported) = tokio::join!(pull, self.report(catalog, &attempt));
        if let Err(error) = reported {
            let error = error_text::chain(&error);
            tracing::debug!(error, "cannot report the first pull");
        }
        Ok(done)
    }

    /// Serves what was fetched, or records why not.
    async fn finish_attempt(
        &self,
        name: &str,
        catalog: &mut ClusterCatalog,
        reference: &str,
        leader: bool,
        fetched: Result<Fetched, FetchError>,
        remembered: &mut Remembered,
    ) -> Result<Option<Instant>, ReconcileError> {
        let now = Instant::now();
        let generation = catalog.metadata.generation.filter(|_| leader);
        let asked = catalog.annotations().get(annotations::REQUESTED_AT).cloned();
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                if let Some(rejected) = &error.rejected {
                    self.distrust(name, rejected, remembered).await?;
                }
                let attempts = match &remembered.plan.failure {
                    Some(before)
                        if before.reference == reference
                            && before.generation == generation
                            && remembered.plan.requested.as_ref() == Some(&asked) =>
                    {
                        before.attempts.saturating_add(1)
                    }
                    _ => 1,
                };
                let quarantine = match error.quarantined {
                    true => Quarantine::Set,
                    false if plan::requested(catalog, &remembered.plan) => Quarantine::Lifted,
                    false => Quarantine::Unchanged,
                };
                remembered.plan.requested = Some(asked);
                let pause =
                    plan::pause(error.retry, attempts, plan::interval(catalog, self.intervals.minute));
                let failure = FailedAttempt {
                    reference: reference.to_owned(),
                    generation,
                    attempts,
                    message: error.message,
                    blocked: error.retry == Retry::Never,
                    retry: pause.and_then(|pause| now.checked_add(pause)),
                    quarantine,
                };
                let before = remembered.plan.failure.as_ref().map(|failure| &failure.message);
                let is_repeated = before == Some(&failure.message);
                let (error, next) = (failure.message.clone(), failure.retry);
                let attempt =
                    self.failed(&failure, self.store.get(name).is_some(), remembered.unserved_since);
                remembered.plan.failure = Some(failure);
                // an event is a line of the log, too
                let is_logged = leader && self.report(catalog, &attempt).await?;
                let text = "cannot fetch catalog content";
                if is_logged || is_repeated {
                    tracing::debug!(reference, attempts, error, "{text}");
                } else {
                    tracing::warn!(reference, attempts, error, "{text}");
                }
                return Ok(next);
            }
        };
        let before = self.store.get(name);
        let source = if leader { Some(reference.to_owned()) } else { plan::source_of_status(catalog) };
        let replaced = before
            .as_ref()
            .map(|before| (held_of(before), before.content.digest() == fetched.content.digest()));
        let last_unpacked = plan::dated(
            plan::known_date(catalog, &fetched.reference),
            replaced.as_ref().map(|(held, same)| (held, *same)),
            Timestamp::now().as_second(),
        );
        let held = Held { reference: fetched.reference.clone(), source, last_unpacked };
        let same = before.as_ref().is_some_and(|before| held_of(before) == held);
        if !same {
            self.publish(name, fetched.content.clone(), &held).await?;
            let moved = before.as_ref().is_none_or(|before| before.reference != held.reference);
            if moved {
                tracing::info!(reference = held.reference, "serving");
                if let Some(signer) = fetched.signer.as_deref().filter(|_| leader) {
                    report::signer_accepted(&self.events, catalog, &held.reference, signer).await;
                }
                self.collect().await;
            }
        }
        remembered.plan.requested = Some(asked);
        remembered.plan.failure = None;
        remembered.plan.generation = generation;
        remembered.plan.polled = Some(now);
        remembered.unserved_since = None;
        if leader {
            self.report(catalog, &self.served(name, held)).await?;
        }
        // requeued immediately: the next pass plans the poll, from the time that is stored in `polled` above
        Ok(plan::interval(catalog, self.intervals.minute).is_some().then_some(now))
    }

    /// Lets the image that the message of a quarantine names be read again, also if its registry does not answer now.
    async fn lift(&self, message: &str) -> Result<(), StoreError> {
        let (store, message) = (self.store.clone(), message.to_owned());
        off_thread(move || store.clear_attempts_in(&message)).await
    }

    /// Withdraws content that the signature policy rejects, whenever it was stored. The status reports this without a grace
    /// period.
    async fn distrust(
        &self,
        name: &str,
        rejected: &Digest,
        remembered: &mut Remembered,
    ) -> Result<(), StoreError> {
        if self.store.get(name).is_some_and(|served| served.content.digest() == rejected) {
            self.withdraw(name).await?;
        }
        if self.store.get(name).is_none() {
            remembered.unserved_since =
                Instant::now().checked_sub(LOSS_GRACE_PERIOD).or(remembered.unserved_since);
        }
        Ok(())
    }

    fn served(&self, name: &str, held: Held) -> Attempt {
        let base = format!("{}/catalogs/{name}", self.base);
        Attempt::Served { reference: held.reference, base, last_unpacked: held.last_unpacked }
    }

    fn failed(&self, failure: &FailedAttempt, held: bool, unserved_since: Option<Instant>) -> Attempt {
        Attempt::Failed {
            message: failure.message.clone(),
            blocked: failure.blocked,
            nothing_served: !held && unserved_since.is_some_and(|since| since.elapsed() >= LOSS_GRACE_PERIOD),
            quarantine: failure.quarantine,
        }
    }

    /// When the status has to report that nothing is served, while it reports the opposite.
    fn loss_due(&self, name: &str, catalog: &ClusterCatalog, remembered: &Remembered) -> Option<Instant> {
        let status = catalog.status.as_ref()?;
        let due = remembered.unserved_since?.checked_add(LOSS_GRACE_PERIOD)?;
        let is_lost =
            condition::is_true(&status.conditions, condition::SERVING) && self.store.get(name).is_none();
        (is_lost && due > Instant::now()).then_some(due)
    }

    fn template(&self, catalog: &ClusterCatalog) -> Option<ResolvedTemplate> {
        plan::template(catalog, self.version.get().and_then(|version| *version))
    }

    /// The leader's marks on the object: finalizer and name label.
    async fn ensure_finalizer_and_label(&self, catalog: &mut ClusterCatalog) -> Result<(), ReconcileError> {
        if !catalog.finalizers().iter().any(|name| name == finalizers::DELETE_SERVER_CACHE) {
            let mut names = catalog.finalizers().to_vec();
            names.push(finalizers::DELETE_SERVER_CACHE.to_owned());
            self.set_finalizers(catalog, names).await?;
        }
        self.label(catalog).await
    }

    async fn unfinalize(&self, catalog: &mut ClusterCatalog) -> Result<(), ReconcileError> {
        let names: Vec<String> = catalog
            .finalizers()
            .iter()
            .filter(|name| *name != finalizers::DELETE_SERVER_CACHE)
            .cloned()
            .collect();
        if names.len() == catalog.finalizers().len() {
            return Ok(());
        }
        self.set_finalizers(catalog, names).await
    }

    async fn set_finalizers(
        &self,
        catalog: &mut ClusterCatalog,
        names: Vec<String>,
    ) -> Result<(), ReconcileError> {
        let metadata = &catalog.metadata;
        let patch = serde_json::json!({
            "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": names },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.write("finalizers", catalog, async |api, name| {
            api.patch(name, &params, &Patch::Merge(&patch)).await
        })
        .await
    }

    async fn label(&self, catalog: &mut ClusterCatalog) -> Result<(), ReconcileError> {
        if !plan::mislabelled(catalog) {
            return Ok(());
        }
        let patch = serde_json::json!({
            "apiVersion": olm_api::API_VERSION,
            "kind": ClusterCatalog::kind(&()),
            "metadata": { "uid": catalog.metadata.uid, "labels": { labels::METADATA_NAME: catalog.name_any() } },
        });
        let force = PatchParams::apply(FIELD_MANAGER).force();
        self.write("name label", catalog, async |api, name| {
            api.patch(name, &force, &Patch::Apply(&patch)).await
        })
        .await
    }

    /// Writes the status if it differs, and emits events about it. Returns whether it differs.
    async fn report(&self, catalog: &mut ClusterCatalog, attempt: &Attempt) -> Result<bool, ReconcileError> {
        let status = status::derive(attempt, catalog, self.template(catalog).as_ref(), Timestamp::now());
        if catalog.status.as_ref() == Some(&status) {
            return Ok(false);
        }
        report::status_changed(&self.events, catalog, &status).await;
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        let writing = write_status(&api, catalog, status, FIELD_MANAGER);
        match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(written)) => {
                if let Some(written) = written {
                    *catalog = written;
                }
                Ok(true)
            }
            Ok(Err(error)) if error.is_gone() => Ok(true),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(ReconcileError::Slow { what: "status" }),
        }
    }

    /// One write; the object becomes what the API server answers. An object that is gone needs no write.
    async fn write(
        &self,
        what: &'static str,
        catalog: &mut ClusterCatalog,
        write: impl AsyncFnOnce(&Api<ClusterCatalog>, &str) -> kube::Result<ClusterCatalog>,
    ) -> Result<(), ReconcileError> {
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        let name = catalog.name_any();
        match tokio::time::timeout(WRITE_TIMEOUT, write(&api, &name)).await {
            Ok(Ok(written)) => *catalog = written,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
            Ok(Err(source)) => return Err(ReconcileError::Write { what, source: Box::new(source) }),
            Err(_) => return Err(ReconcileError::Slow { what }),
        }
        Ok(())
    }

    fn held(&self, name: &str) -> Option<Held> {
        self.store.get(name).as_deref().map(held_of)
    }

    /// A follower takes over date and source that the leader has published for the same content.
    async fn redate(&self, name: &str, catalog: &ClusterCatalog, held: &Held) -> Result<(), ReconcileError> {
        let Some(served) = self.store.get(name) else { return Ok(()) };
        let last_unpacked = plan::known_date(catalog, &held.reference).unwrap_or(held.last_unpacked);
        let source = plan::source_of_status(catalog).or_else(|| held.source.clone());
        let updated = Held { reference: held.reference.clone(), source, last_unpacked };
        if updated != *held {
            self.publish(name, served.content.clone(), &updated).await?;
        }
        Ok(())
    }

    async fn publish(&self, name: &str, content: Arc<Content>, held: &Held) -> Result<(), StoreError> {
        let Held { reference, source, last_unpacked } = held.clone();
        let served = Served { content, reference, source, last_unpacked };
        let (store, name) = (self.store.clone(), name.to_owned());
        off_thread(move || store.publish(&name, served)).await
    }

    async fn withdraw(&self, name: &str) -> Result<(), StoreError> {
        let (store, name) = (self.store.clone(), name.to_owned());
        off_thread(move || {
            if store.withdraw(&name)? {
                tracing::info!(catalog = name, "no longer served");
            }
            // also if an attempt before this one has withdrawn it and failed
            store.collect(None)?;
            Ok(())
        })
        .await
    }

    /// Removes content that is not needed any more; failing to is no reason to fail.
    async fn collect(&self) {
        let store = self.store.clone();
        if let Err(error) = off_thread(move || store.collect(None)).await {
            tracing::warn!(%error, "cannot remove old catalog content");
        }
    }
}

fn history<'a>(catalog: &'a ClusterCatalog, remembered: &Remembered) -> History<'a> {
    match plan::requested(catalog, &remembered.plan) {
        true => History::Ignored,
        false => History::Counts(plan::quarantine(catalog)),
    }
}

fn held_of(served: &Served) -> Held {
    let Served { reference, source, last_unpacked, .. } = served;
    Held { reference: reference.clone(), source: source.clone(), last_unpacked: *last_unpacked }
}

/// Runs disk work on a thread that may block.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError::Write(std::io::Error::other(error))),
    }
}
