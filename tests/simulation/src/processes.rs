//! Processes of a program that run in two places, one of them leading: killed, suspended, and started again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use olm_runtime::leader::{Election, Moment, Timing};
use olm_runtime::metrics::Metrics;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ApiServer;

/// The namespace of the controllers.
pub const SYSTEM: &str = "olm";
/// Who takes the lease without leading.
pub const THIEF: &str = "thief";
/// The names of processes of controllers begin like this.
pub const PROCESS: &str = "controller-";
/// Places in which a process runs.
pub const PROCESSES: usize = 2;
/// The time between the end of a process and the start of the next in its place.
const RESTART: Duration = Duration::from_secs(2);
/// The time that a process takes to end after it has lost the lease; its tasks continue meanwhile.
const EXIT: Duration = Duration::from_secs(1);

pub struct Processes {
    server: ApiServer,
    /// The name of their lease.
    pub lease: &'static str,
    places: Vec<Slot>,
}

/// A place, in which one process runs after another.
struct Slot {
    /// The process that runs now.
    running: Arc<Mutex<Running>>,
    is_lost: watch::Sender<bool>,
}

/// A process.
#[derive(Clone, Default)]
pub struct Running {
    pub name: String,
    pub metrics: Metrics,
    /// For how long its machine was suspended.
    suspended: Arc<Mutex<Duration>>,
}

impl Running {
    /// Its candidacy for a lease.
    pub fn election(&self, lease: &'static str) -> Election {
        let (suspended, start) = (Arc::clone(&self.suspended), Instant::now());
        let clock = move || {
            let (monotonic, suspended) = (Instant::now(), *suspended.lock());
            Moment { monotonic, boot: monotonic - start + suspended, wall: SystemTime::now() + suspended }
        };
        Election::new(lease, SYSTEM.to_owned()).with_identity(&self.name, Timing::default()).with_clock(clock)
    }
}

/// The lease as another process has left it, so that none waits.
pub fn left_lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": SYSTEM}})
}

impl Processes {
    /// Starts a process in each place; `run` is one process until it loses the lease.
    pub fn start<F>(
        server: &ApiServer,
        lease: &'static str,
        run: impl Fn(Running) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let places = (0..PROCESSES).map(|place| Slot::start(place, server, run.clone())).collect();
        Self { server: server.clone(), lease, places }
    }

    /// The process that runs in a place now.
    pub fn name(&self, place: usize) -> String {
        self.places[place % PROCESSES].running.lock().name.clone()
    }

    /// The place of the process that holds the lease.
    fn leader(&self) -> Option<usize> {
        let lease = self.server.get("leases", Some(SYSTEM), self.lease)?;
        (0..PROCESSES).find(|place| lease["spec"]["holderIdentity"] == self.name(*place).as_str())
    }

    /// Suspends the machine of the leader for a time, after which the other process leads. Nothing happens if none leads.
    pub fn suspend(&self, time: Duration) -> Result<()> {
        let Some(leader) = self.leader() else { return Ok(()) };
        let next = (leader + 1) % PROCESSES;
        if *self.places[next].is_lost.borrow() {
            return Ok(());
        }
        *self.places[leader].running.lock().suspended.lock() += time;
        self.server.break_connections(&self.name(leader));
        let patch = json!({"spec": {"holderIdentity": self.name(next)}});
        self.server.patch("leases", Some(SYSTEM), self.lease, patch).map(drop)
    }

    /// Ends the leader at one of its next writes, those of leases apart.
    pub fn strike(&self, writes: u32, is_executed: bool) {
        if let Some(leader) = self.leader() {
            self.server.end_at_write(&self.name(leader), writes, is_executed);
        }
    }

    /// How many passes the present processes have finished.
    pub fn passes(&self) -> u64 {
        let counted = |metrics: &Metrics| -> u64 {
            let text = metrics.classic();
            let rows = text.lines().filter(|row| row.starts_with("controller_runtime_reconcile_total{"));
            rows.filter_map(|row| row.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        self.places.iter().map(|place| counted(&place.running.lock().metrics)).sum()
    }

    /// Kills the process in a place, or lets the next one start.
    pub fn lose(&self, place: usize, is_lost: bool) {
        self.places[place % PROCESSES].is_lost.send_replace(is_lost);
    }
}

impl Slot {
    fn start<F>(place: usize, server: &ApiServer, run: impl Fn(Running) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let (is_lost, mut lost) = watch::channel(false);
        let running = Arc::new(Mutex::new(Running::default()));
        let (present, server) = (Arc::clone(&running), server.clone());
        tokio::spawn(async move {
            for number in 1_u32.. {
                if lost.wait_for(|is_lost| !is_lost).await.is_err() {
                    return;
                }
                let own = Running { name: format!("{PROCESS}{place}-{number}"), ..Running::default() };
                present.lock().clone_from(&own);
                let has_lost_lease = tokio::select! {
                    biased;
                    _ = lost.wait_for(|is_lost| *is_lost) => false,
                    () = server.until_ended(&own.name) => false,
                    () = run(own.clone()) => true,
                };
                if has_lost_lease {
                    tokio::time::sleep(EXIT).await;
                }
                // its tasks are still there, but reach nothing
                server.end(&own.name);
                tokio::time::sleep(RESTART).await;
            }
        });
        Self { running, is_lost }
    }
}
