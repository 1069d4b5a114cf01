//! Leader election on a Lease: one process works, the others wait.
//!
//! Times do not come from the lease but from our own clock since we last saw it change, so clocks need not agree. A process that
//! cannot renew in time gives up *before* another may take over. On a clean stop the lease is released, and the next process,
//! which watches it, starts immediately. A lease that is not there is not released: it may have been deleted, and its holder may still
//! write. So a process waits before it creates one: for a lease duration if it has seen the lease, else for as long as a leader works
//! without renewing, also at the first start of a cluster.
//!
//! Rule: operator-controller §7.2, decision 29 (15/10/2 s).

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Shutdown;
use crate::apply::{ErrorClass, classify, message};
use crate::client::{self, ClientError};
use crate::fence::{Clock, Fence};
use crate::metrics::Metrics;
use crate::task;

pub use crate::fence::Moment;

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others take over when they have seen no renewal for this long.
    pub lease: Duration,
    /// The leader gives up when it could not renew for this long.
    pub renew: Duration,
    /// The time between two attempts.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// Which lease, and who we are.
#[derive(Clone)]
pub struct Election {
    pub name: String,
    pub namespace: String,
    /// Who we are; different for each process, see [`identity`].
    pub identity: String,
    /// How long things take.
    pub timing: Timing,
    fence: Fence,
}

impl Election {
    /// This process, with the usual times.
    pub fn new(name: &str, namespace: String) -> Self {
        let (identity, timing) = (identity(), Timing::default());
        Self { name: name.to_owned(), namespace, identity, timing, fence: Fence::default() }
    }

    /// Under another name for this process, with other times.
    #[must_use]
    pub fn with_identity(self, identity: &str, timing: Timing) -> Self {
        Self { identity: identity.to_owned(), timing, ..self }
    }

    /// Writes are in time by these clocks, not by those of the machine.
    #[must_use]
    pub fn with_clock(self, read: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self { fence: Fence::with_clock(Clock::new(read)), ..self }
    }

    /// A client for the leader's work, with connections of its own: its writes fail before the lease is ours and when it was not
    /// renewed in time, however long the process was frozen in between, also those that were begun before. Reading is not
    /// limited before the lease is ours.
    ///
    /// # Errors
    /// As [`client::connect`](crate::client::connect).
    pub async fn connect(&self, kubeconfig: Option<&Path>, metrics: &Metrics) -> Result<Client, ClientError> {
        self.fence.connect(client::config(kubeconfig).await?, metrics)
    }

    /// The same client for the leader's work: as [`connect`](Self::connect), but for writes that were begun before the process was
    /// frozen.
    pub fn client(&self, client: &Client) -> Client {
        self.fence.client(client)
    }
}

/// The lease went to another process, or could not be renewed in time: nothing may be written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election lost")]
pub struct LeadershipLost;

/// How long the work of a leader may take to end when the process is asked to stop. The rest of its 45 s (`terminationGracePeriodSeconds`) is
/// for releasing the lease.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `work` to its end, as the leader of `election` if there is one; the lease is released after it. When the process is asked
/// to stop before the lease is ours, `work` never begins; work that does not end within 30 s of that request is dropped.
///
/// # Errors
/// [`LeadershipLost`]; `work` is dropped then, because another leader may write already.
pub async fn lead(
    client: Client,
    election: Option<Election>,
    metrics: &Metrics,
    stop: &Shutdown,
    work: impl Future<Output = ()>,
) -> Result<(), LeadershipLost> {
    let Some(election) = election else {
        work.await;
        return Ok(());
    };
    let Some(leadership) = acquire(client, election, metrics, stop).await else { return Ok(()) };
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_TIMEOUT).await;
    };
    tokio::select! {
        () = work => {}
        () = leadership.loss().cancelled() => return Err(LeadershipLost),
        () = overdue => {
            tracing::warn!(seconds = STOP_TIMEOUT.as_secs(), "some work did not end in time and is given up");
        }
    }
    leadership.release().await;
    Ok(())
}

/// A name for this process: the host's (the pod's) and a random part.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "unknown",
        name => name,
    };
    format!("{host}_{:032x}", rand::random::<u128>())
}

/// Holds the lease and renews it until it is released or lost.
pub struct Leadership {
    election: Election,
    api: Api<Lease>,
    metrics: Metrics,
    stop: Shutdown,
    lost: Shutdown,
    renewing: JoinHandle<()>,
}

/// Waits until the lease is ours; `None` if the process was asked to stop before. While the apiserver cannot be reached it
/// keeps trying.
pub async fn acquire(
    client: Client,
    election: Election,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Option<Leadership> {
    let api: Api<Lease> = Api::namespaced(client, &election.namespace);
    let mut observed = ObservedLease::default();
    // a released lease is seen in the watch; that a lease expires is in no event
    let watched = watcher::watch_object(api.clone(), &election.name).backoff(crate::backoff::of_watch());
    let mut watched = std::pin::pin!(watched);
    metrics.leads(&election.name, false);
    tracing::info!(lease = election.name, identity = election.identity, "waiting to become leader");
    let renewed = loop {
        let begun = election.fence.now();
        // as at a renewal: an answer after that is of no use, and the connection may be dead
        let limited =
            tokio::time::timeout(election.timing.renew / 2, attempt(&api, &election, &mut observed));
        let outcome = tokio::select! {
            () = shutdown.cancelled() => return None,
            outcome = limited => outcome,
        };
        match outcome {
            Ok(Attempt::Leader) => break begun,
            Ok(Attempt::Other | Attempt::Failed) => {}
            Err(_) => {
                tracing::warn!(lease = election.name, "reading or writing the lease takes too long, retrying")
            }
        }
        // spread out, so that processes started together do not ask together
        let wait = election.timing.retry.mul_f64(1.0 + rand::random::<f64>());
        let mut wait = std::pin::pin!(tokio::time::sleep(wait));
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = &mut wait => break,
                Some(lease) = watched.next() => if observed.is_released(lease, Instant::now()) { break },
            }
        }
    };
    election.fence.open(renewed, election.timing.renew);
    metrics.leads(&election.name, true);
    tracing::info!(lease = election.name, identity = election.identity, "became leader");
    let (stop, lost) = (Shutdown::new(), Shutdown::new());
    let keeping = (renewed, metrics.clone(), stop.clone(), lost.clone());
    let renewing = renew(api.clone(), election.clone(), observed, keeping);
    let renewing = tokio::spawn(task::supervised("lease renewal", renewing));
    Some(Leadership { election, api, metrics: metrics.clone(), stop, lost, renewing })
}

impl Leadership {
    /// Cancelled when the lease could not be renewed in time; the process must stop working then.
    pub fn loss(&self) -> &Shutdown {
        &self.lost
    }

    /// Gives the lease back, so that another process need not wait; nothing can be written from then on. Failures are logged; the
    /// lease then runs out by itself.
    pub async fn release(self) {
        self.stop.cancel();
        if let Err(error) = self.renewing.await {
            tracing::warn!(error = %error, "renewing the lease ended badly");
        }
        self.election.fence.close();
        self.metrics.leads(&self.election.name, false);
        if self.lost.is_cancelled() {
            return;
        }
        match tokio::time::timeout(self.election.timing.renew, release_lease(&self.api, &self.election)).await
        {
            Ok(Ok(())) => tracing::info!(lease = self.election.name, "lease released"),
            Ok(Err(error)) => {
                tracing::warn!(error = message(&error), "cannot release the lease, it will run out")
            }
            Err(_) => tracing::warn!("cannot release the lease in time, it will run out"),
        }
    }
}

async fn renew(
    api: Api<Lease>,
    election: Election,
    mut observed: ObservedLease,
    (mut renewed, metrics, stop, lost): (Moment, Metrics, Shutdown, Shutdown),
) {
    let mut wait = election.timing.retry;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = election.timing.retry;
        let deadline = renewed.monotonic + election.timing.renew;
        let begun = election.fence.now();
        // a dropped request closes its connection: if that is dead, there is time for a request over another one
        let limit = deadline.min(begun.monotonic + election.timing.renew / 2);
        let outcome = tokio::select! {
            () = stop.cancelled() => return,
            outcome = tokio::time::timeout_at(limit, attempt(&api, &election, &mut observed)) => outcome,
        };
        match outcome {
            // counted from before the request: the others count from when they see its effect, which is later
            Ok(Attempt::Leader) => {
                renewed = begun;
                election.fence.open(renewed, election.timing.renew);
            }
            Ok(Attempt::Other) => {
                tracing::error!(lease = election.name, "another process took the lease, or it was deleted");
                break;
            }
            Ok(Attempt::Failed) if Instant::now() < deadline => {}
            Err(_) if Instant::now() < deadline => {
                tracing::warn!(lease = election.name, "renewing the lease takes too long, retrying");
                wait = Duration::ZERO;
            }
            Ok(Attempt::Failed) | Err(_) => {
                tracing::error!(lease = election.name, "the lease could not be renewed in time");
                break;
            }
        }
    }
    // before anything else: another process may lead already, and passes run until they are aborted
    election.fence.close();
    metrics.leads(&election.name, false);
    lost.cancel();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The lease is ours for now.
    Leader,
    /// It belongs to another process.
    Other,
    /// The apiserver could not be asked, or another process wrote at the same time.
    Failed,
}

async fn attempt(api: &Api<Lease>, election: &Election, observed: &mut ObservedLease) -> Attempt {
    match try_once(api, election, observed).await {
        Ok(true) => Attempt::Leader,
        Ok(false) => Attempt::Other,
        Err(error) => {
            match classify(&error) {
                ErrorClass::Conflict | ErrorClass::AlreadyExists => {
                    tracing::debug!("another process wrote the lease first")
                }
                _ => tracing::warn!(
                    lease = election.name,
                    error = message(&error),
                    "cannot read or write the lease"
                ),
            }
            Attempt::Failed
        }
    }
}

async fn try_once(api: &Api<Lease>, election: &Election, observed: &mut ObservedLease) -> kube::Result<bool> {
    let params = PostParams { field_manager: Some(election.identity.clone()), ..PostParams::default() };
    // what this process wrote last is there as a rule, and need not be read; its resourceVersion makes sure
    if let Some(mut lease) = observed.own.take() {
        lease.spec = Some(written(lease.spec, election, true, Timestamp::now()));
        match api.replace(&election.name, &params, &lease).await {
            Ok(written) => {
                observed.record_own(written, Instant::now());
                return Ok(true);
            }
            Err(error) if matches!(classify(&error), ErrorClass::Conflict | ErrorClass::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    let stored = api.get_opt(&election.name).await?;
    let spec = stored.as_ref().and_then(|lease| lease.spec.clone());
    let step = observed.decide(stored.as_ref().map(|_| spec.as_ref()), election, Instant::now());
    let mut lease = stored.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(election.name.clone()),
            namespace: Some(election.namespace.clone()),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    });
    lease.spec = Some(written(spec, election, step == Step::Renew, Timestamp::now()));
    let written = match step {
        Step::Wait => return Ok(false),
        Step::Create => api.create(&params, &lease).await?,
        // the resourceVersion makes sure that no one else wrote since we read
        Step::Take | Step::Renew => api.replace(&election.name, &params, &lease).await?,
    };
    observed.record_own(written, Instant::now());
    Ok(true)
}

async fn release_lease(api: &Api<Lease>, election: &Election) -> kube::Result<()> {
    let Some(mut lease) = api.get_opt(&election.name).await? else { return Ok(()) };
    let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
    if spec.holder_identity.as_deref() != Some(&election.identity) {
        return Ok(());
    }
    let now = MicroTime(Timestamp::now());
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
    let params = PostParams { field_manager: Some(election.identity.clone()), ..PostParams::default() };
    api.replace(&election.name, &params, &lease).await.map(drop)
}

/// The spec that makes or keeps this process the leader.
fn written(stored: Option<LeaseSpec>, election: &Election, ours: bool, now: Timestamp) -> LeaseSpec {
    let now = MicroTime(now);
    let had_holder = stored.as_ref().is_some_and(|spec| spec.holder_identity.is_some());
    let mut spec = stored.unwrap_or_default();
    if !ours {
        spec.acquire_time = Some(now.clone());
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + i32::from(had_holder));
    }
    spec.holder_identity = Some(election.identity.clone());
    spec.lease_duration_seconds = i32::try_from(election.timing.lease.as_secs().max(1)).ok();
    spec.renew_time = Some(now);
    spec
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// There is no lease, and if one was deleted, its holder has given up.
    Create,
    /// The lease is free or has run out.
    Take,
    /// The lease is ours.
    Renew,
    /// The lease is another's, or was until it was deleted.
    Wait,
}

/// The lease as we last saw it change.
#[derive(Debug, Default)]
struct ObservedLease {
    spec: Option<LeaseSpec>,
    /// `None` until there was a lease.
    at: Option<Instant>,
    /// Since when there is no lease.
    missing: Option<Instant>,
    /// The lease as this process wrote it last, if that did not fail since.
    own: Option<Lease>,
}

impl ObservedLease {
    fn record(&mut self, spec: Option<&LeaseSpec>, now: Instant) {
        self.missing = None;
        if self.at.is_none() || self.spec.as_ref() != spec {
            self.spec = spec.cloned();
            self.at = Some(now);
        }
    }

    fn record_own(&mut self, written: Lease, now: Instant) {
        self.record(written.spec.as_ref(), now);
        self.own = Some(written);
    }

    /// Whether the lease, as it is watched, has no holder. An error of the watch is none of the election, which polls anyway.
    fn is_released(&mut self, watched: watcher::Result<Option<Lease>>, now: Instant) -> bool {
        let Ok(lease) = watched.inspect_err(|error| tracing::debug!(%error, "cannot watch the lease")) else {
            return false;
        };
        let Some(lease) = lease else {
            self.record_missing(now);
            return false;
        };
        self.missing = None;
        if self.at.is_none() {
            self.record(lease.spec.as_ref(), now);
        }
        lease.spec.unwrap_or_default().holder_identity.unwrap_or_default().is_empty()
    }

    /// The lease is not there. Returns since when.
    fn record_missing(&mut self, now: Instant) -> Instant {
        *self.missing.get_or_insert(now)
    }

    /// `stored`: outer `None` if there is no lease, inner if it has no spec.
    #[expect(clippy::option_option, reason = "no lease and an empty lease lead to different requests")]
    fn decide(&mut self, stored: Option<Option<&LeaseSpec>>, election: &Election, now: Instant) -> Step {
        let Some(spec) = stored else {
            // its holder may still write, and creates it again; a process that does not lead waits until that is over
            let lasts = match self.at {
                Some(_) => self.lasts(election).max(election.timing.lease),
                None => election.timing.renew,
            };
            let has_waited = now.duration_since(self.record_missing(now)) >= lasts;
            return if has_waited || election.fence.is_open() { Step::Create } else { Step::Wait };
        };
        self.record(spec, now);
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder == election.identity {
            return Step::Renew;
        }
        let since = self.at.map_or(Duration::ZERO, |at| now.duration_since(at));
        if holder.is_empty() || since >= self.lasts(election) { Step::Take } else { Step::Wait }
    }

    /// How long the lease lasts: the holder's own promise counts, it may have been configured differently.
    fn lasts(&self, election: &Election) -> Duration {
        let seconds = self.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(election.timing.lease, Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, seconds: i32, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        }
    }

    /// rule: decision 29
    #[test]
    fn leader_another_takes_over_after_fifteen_seconds() {
        let Timing { lease, renew, retry } = Timing::default();
        assert_eq!([lease, renew, retry].map(|time| time.as_secs()), [15, 10, 2]);
    }

    #[test]
    fn leader_decides_by_observed_changes() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let election = Election::new("l", "n".to_owned()).with_identity("me", Timing::default());
        let mut observed = ObservedLease::default();
        for (second, stored, want, case) in [
            (0, None, Step::Wait, "no lease"),
            (9, None, Step::Wait, "no lease for 9 s: there may be a leader"),
            (10, None, Step::Create, "no lease for 10 s"),
            (1, Some(Some(spec("other", 15, 1))), Step::Wait, "held"),
            (15, Some(Some(spec("other", 15, 1))), Step::Wait, "held for 14 s since we saw it"),
            (15, Some(Some(spec("other", 15, 2))), Step::Wait, "renewed"),
            (29, Some(Some(spec("other", 15, 2))), Step::Wait, "14 s later"),
            (30, Some(Some(spec("other", 15, 2))), Step::Take, "15 s later"),
            (30, Some(Some(spec("me", 15, 30))), Step::Renew, "ours"),
            (31, Some(Some(spec("", 1, 31))), Step::Take, "released"),
            (31, Some(None), Step::Take, "no spec"),
            (40, Some(Some(spec("other", 137, 40))), Step::Wait, "held by one with a longer lease"),
            (176, Some(Some(spec("other", 137, 40))), Step::Wait, "its longer lease counts"),
            (177, Some(Some(spec("other", 137, 40))), Step::Take, "run out"),
        ] {
            let stored = stored.as_ref().map(Option::as_ref);
            assert_eq!(observed.decide(stored, &election, at(second)), want, "{case}");
        }
    }

    #[test]
    fn leader_waits_for_a_deleted_lease() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let election = Election::new("l", "n".to_owned()).with_identity("me", Timing::default());
        let held = spec("other", 15, 1);
        let mut observed = ObservedLease::default();
        for (second, stored, want, case) in [
            (0, Some(Some(&held)), Step::Wait, "held"),
            (60, None, Step::Wait, "deleted after its holder renewed it unseen"),
            (74, None, Step::Wait, "14 s later"),
            (74, Some(Some(&held)), Step::Take, "it is there again, and was not renewed for long"),
            (75, None, Step::Wait, "deleted again"),
            (90, None, Step::Create, "15 s later"),
        ] {
            assert_eq!(observed.decide(stored, &election, at(second)), want, "{case}");
        }
        // only the watch has seen it
        let mut observed = ObservedLease::default();
        let lease = |spec: LeaseSpec| Ok(Some(Lease { spec: Some(spec), ..Lease::default() }));
        assert!(!observed.is_released(Ok(None), at(0)), "no lease yet");
        assert_eq!(observed.decide(None, &election, at(0)), Step::Wait);
        assert!(!observed.is_released(lease(held.clone()), at(0)));
        assert!(!observed.is_released(Ok(None), at(3)), "deleted");
        assert_eq!(observed.decide(None, &election, at(17)), Step::Wait);
        assert_eq!(observed.decide(None, &election, at(18)), Step::Create);
        assert!(observed.is_released(lease(spec("", 1, 20)), at(20)));
        // its own: others that saw it wait
        let renewed = election.fence.now();
        election.fence.open(renewed, election.timing.renew);
        assert_eq!(observed.decide(None, &election, at(21)), Step::Create);
    }

    #[test]
    fn leader_counts_transitions() {
        let election = Election::new("l", "n".to_owned()).with_identity("me", Timing::default());
        let now = Timestamp::from_second(100).unwrap();
        let first = written(None, &election, false, now);
        assert_eq!((first.lease_transitions, first.lease_duration_seconds), (Some(0), Some(15)));
        let taken = written(Some(spec("other", 15, 1)), &election, false, now);
        assert_eq!((taken.lease_transitions, taken.holder_identity.as_deref()), (Some(1), Some("me")));
        let later = Timestamp::from_second(102).unwrap();
        let renewed = written(Some(taken.clone()), &election, true, later);
        assert_eq!(renewed.lease_transitions, Some(1));
        assert_eq!(renewed.acquire_time, taken.acquire_time);
        assert_eq!(renewed.renew_time, Some(MicroTime(later)));
    }

    #[test]
    fn leader_identities_differ() {
        assert_ne!(identity(), identity());
    }
}
