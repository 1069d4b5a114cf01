//! The end of a simulation, and the runtime that it needs.

use std::time::Duration;

use anyhow::Result;

use crate::{ApiServer, Settings};

/// How a simulation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The invariant that did not hold.
    pub violation: Option<String>,
    /// A number that follows from all changes: equal for equal runs.
    pub digest: u64,
    /// Simulated time.
    pub elapsed: Duration,
    /// Changes of objects.
    pub writes: usize,
    /// Requests of the controllers.
    pub requests: usize,
}

impl Outcome {
    pub(crate) fn new(server: &ApiServer, digest: u64, violation: Option<String>) -> Self {
        let (writes, requests) = server.counts();
        Self { violation, digest, elapsed: server.elapsed(), writes, requests }
    }
}

/// Runs a simulation under paused time, with everything random from `seed`. It occupies the thread, whose random numbers and clocks
/// follow from the seed from then on; to be called before the thread uses a hash map.
pub(crate) fn simulate(seed: u64, simulation: impl AsyncFnOnce() -> Result<Outcome>) -> Result<Outcome> {
    olm_determinism::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    // the process ends soon: to free what the tasks hold takes a thirtieth of the time
    Box::leak(Box::new(runtime)).block_on(async {
        olm_determinism::follow_tokio(Settings::default().epoch);
        simulation().await
    })
}

/// A number that a further change makes of the one of all changes before.
pub(crate) fn digest(before: u64, change: &str) -> u64 {
    change.bytes().fold(before, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
