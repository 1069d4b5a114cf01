//! Faults of the apiserver, of watches and of processes, whatever the controllers are.

use std::time::Duration;

use anyhow::Result;
use jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::processes::{Processes, SYSTEM, THIEF};
use crate::{ApiServer, Faults, InjectedError, Match};

/// The most by which [`Disturbance::Late`] delays events, milliseconds.
const LATEST: u64 = 15_000;
/// The number of errors that [`Disturbance::Fail`] chooses from.
pub const ERRORS: usize = 7;

/// The loss of one of the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// It ends without a word, and is started again later.
    Kill,
    /// The same, and the lease is deleted when it starts again.
    Replace,
    /// The apiserver cannot be reached.
    Partition,
}

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub enum Disturbance {
    /// Watch events of a kind come later, for a time.
    Delay { resource: &'static str, by: Duration, time: Duration },
    /// Watch events of all kinds come later, for a time: each kind by a time of its own, which follows from `seed`.
    Late { seed: u64, time: Duration },
    /// Watches of a kind break.
    Drop { resource: &'static str },
    /// The apiserver has only its present versions: watches are answered 410.
    Compact,
    /// Requests about a kind fail.
    Fail { resource: &'static str, writes: bool, error: usize, times: u32 },
    /// The apiserver is down for a time: all connections break, and it has only its present versions when it is back.
    Down { time: Duration },
    /// A share of all requests fails, for a time.
    Noise { time: Duration },
    /// The lease is deleted.
    DeleteLease,
    /// Another takes the lease, and does not renew it.
    TakeLease,
    /// A process is lost for a time.
    Lose { process: usize, outage: Outage, time: Duration },
    /// The leader is killed at one of its next writes, before or after that is executed, and started again.
    Strike { writes: u32, is_executed: bool },
    /// The wall clock of the processes is wrong by so many seconds from now on.
    Clock { seconds: i64 },
    /// The machine of the leader was suspended for so long that the other process leads now.
    Suspend { time: Duration },
}

impl Disturbance {
    /// The time until it ends.
    pub fn time(&self) -> Option<Duration> {
        match self {
            Self::Delay { time, .. }
            | Self::Late { time, .. }
            | Self::Down { time }
            | Self::Noise { time }
            | Self::Lose { time, .. } => Some(*time),
            _ => None,
        }
    }

    /// Lets it happen; `kinds` are those whose watches are disturbed.
    pub fn begin(&self, server: &ApiServer, processes: &Processes, kinds: &[&str]) -> Result<()> {
        match self {
            Self::Delay { resource, by, .. } => server.delay(resource, *by),
            Self::Late { seed, .. } => {
                let mut random = StdRng::seed_from_u64(*seed);
                for resource in kinds {
                    server.delay(resource, Duration::from_millis(random.random_range(0..LATEST)));
                }
            }
            Self::Drop { resource } => server.drop_watches(resource),
            Self::Compact => {
                server.compact();
                server.drop_watches("");
            }
            Self::Fail { resource, writes, error, times } => {
                let all = Match { resource: Some((*resource).to_owned()), ..Match::default() };
                let requests = if *writes { Match::write(resource) } else { all };
                let errors: [InjectedError; ERRORS] = [
                    InjectedError::Status(500),
                    InjectedError::Status(429),
                    InjectedError::Status(409),
                    InjectedError::ResetBefore,
                    InjectedError::ResetAfter,
                    InjectedError::Delay(Duration::from_secs(3)),
                    InjectedError::DelayAnswer(Duration::from_secs(3)),
                ];
                server.fail_next(requests, errors[error % errors.len()].clone(), *times);
            }
            Self::Down { .. } => {
                server.fail(Match::default(), InjectedError::ResetBefore);
                server.compact();
                server.drop_watches("");
            }
            Self::Noise { .. } => server.set_faults(Faults {
                error: 0.05,
                throttle: 0.05,
                reset_before: 0.05,
                reset_after: 0.05,
                watch_end: 0.05,
                watch_delay: 0.1,
                watch_delay_max: Duration::from_secs(5),
                expired: 0.2,
                ..Faults::default()
            }),
            Self::DeleteLease => return server.delete("leases", Some(SYSTEM), processes.lease),
            Self::TakeLease => {
                let patch = json!({"spec": {"holderIdentity": THIEF}});
                return server.patch("leases", Some(SYSTEM), processes.lease, patch).map(drop);
            }
            Self::Lose { process, outage: Outage::Kill | Outage::Replace, .. } => {
                processes.lose(*process, true);
            }
            Self::Lose { process, outage: Outage::Partition, .. } => {
                server.partition(&processes.name(*process), true);
            }
            Self::Strike { writes, is_executed } => processes.strike(*writes, *is_executed),
            Self::Clock { seconds } => {
                olm_determinism::shift_wall_clock(SignedDuration::from_secs(*seconds));
            }
            Self::Suspend { time } => return processes.suspend(*time),
        }
        Ok(())
    }

    pub fn end(&self, server: &ApiServer, processes: &Processes, kinds: &[&str]) -> Result<()> {
        match self {
            Self::Delay { resource, .. } => server.delay(resource, Duration::ZERO),
            Self::Late { .. } => kinds.iter().for_each(|resource| server.delay(resource, Duration::ZERO)),
            Self::Down { .. } => server.stop_failing(&Match::default()),
            Self::Noise { .. } => server.set_faults(Faults::default()),
            Self::Lose { process, outage: Outage::Kill, .. } => processes.lose(*process, false),
            Self::Lose { process, outage: Outage::Replace, .. } => {
                processes.lose(*process, false);
                return server.delete("leases", Some(SYSTEM), processes.lease);
            }
            Self::Lose { process, outage: Outage::Partition, .. } => {
                server.partition(&processes.name(*process), false);
            }
            _ => {}
        }
        Ok(())
    }
}
