//! Injected failures: rules of the test, random faults, delays and partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;

use super::request::Call;
use super::{Faults, InjectedError, Match, USER};

impl Match {
    pub(crate) fn fits(&self, call: &Call) -> bool {
        let target = call.target.as_ref();
        let is = |pattern: &Option<String>, found: Option<&str>| {
            pattern.as_deref().is_none_or(|pattern| Some(pattern) == found)
        };
        is(&self.process, Some(&call.process))
            && is(&self.resource, target.map(|it| it.resource.as_str()))
            && is(&self.name, target.and_then(|it| it.name.as_deref()))
            && (self.verbs.is_empty() || self.verbs.contains(&call.verb))
    }
}

struct Rule {
    requests: Match,
    fault: InjectedError,
    /// `None`: until the end of all faults.
    left: Option<u32>,
}

/// The faults of a server, and the randomness of these and of latency.
pub(crate) struct InjectionState {
    pub(crate) random: Faults,
    rules: Vec<Rule>,
    /// By process (empty: all) and resource (empty: all).
    delays: BTreeMap<(String, String), Duration>,
    partitions: BTreeSet<String>,
    ended: BTreeSet<String>,
    /// Wake what waits for the end of a process. A channel would use random numbers of the runtime.
    ends: BTreeMap<String, Arc<Notify>>,
    /// Processes that end at a write: after how many others, and whether it is executed.
    strikes: BTreeMap<String, (u32, bool)>,
    /// How often the connections of a process were broken.
    breaks: BTreeMap<String, u64>,
    /// How often the watches of a resource were dropped; empty: of all.
    drops: BTreeMap<String, u64>,
    source: StdRng,
}

impl InjectionState {
    pub(crate) fn new(seed: u64, random: Faults) -> Self {
        Self {
            random,
            rules: Vec::new(),
            delays: BTreeMap::new(),
            partitions: BTreeSet::new(),
            ended: BTreeSet::new(),
            ends: BTreeMap::new(),
            strikes: BTreeMap::new(),
            breaks: BTreeMap::new(),
            drops: BTreeMap::new(),
            source: StdRng::seed_from_u64(seed ^ 0x66_6175),
        }
    }

    pub(crate) fn add(&mut self, requests: Match, fault: InjectedError, left: Option<u32>) {
        self.rules.push(Rule { requests, fault, left });
    }

    pub(crate) fn remove(&mut self, requests: &Match) {
        self.rules.retain(|rule| rule.requests != *requests);
    }

    pub(crate) fn set_delay(&mut self, process: &str, resource: &str, by: Duration) {
        let key = (process.to_owned(), resource.to_owned());
        if by.is_zero() {
            self.delays.remove(&key);
        } else {
            self.delays.insert(key, by);
        }
    }

    pub(crate) fn delay(&self, process: &str, resource: &str) -> Duration {
        if process == USER {
            return Duration::ZERO;
        }
        let fits = |pattern: &str, found: &str| pattern.is_empty() || pattern == found;
        let all = self.delays.iter().filter(|((by, of), _)| fits(by, process) && fits(of, resource));
        all.map(|(_, delay)| *delay).max().unwrap_or_default()
    }

    pub(crate) fn partition(&mut self, process: &str, is_cut_off: bool) {
        if is_cut_off {
            self.partitions.insert(process.to_owned());
        } else {
            self.partitions.remove(process);
        }
    }

    pub(crate) fn is_cut_off(&self, process: &str) -> bool {
        self.partitions.contains(process)
    }

    pub(crate) fn break_connections(&mut self, process: &str) {
        *self.breaks.entry(process.to_owned()).or_default() += 1;
    }

    pub(crate) fn breaks(&self, process: &str) -> u64 {
        self.breaks.get(process).copied().unwrap_or_default()
    }

    pub(crate) fn end(&mut self, process: &str) {
        self.ended.insert(process.to_owned());
        if let Some(end) = self.ends.get(process) {
            end.notify_one();
        }
    }

    /// Is notified when the process ends; `None` if it has ended.
    pub(crate) fn end_of(&mut self, process: &str) -> Option<Arc<Notify>> {
        (!self.has_ended(process)).then(|| Arc::clone(self.ends.entry(process.to_owned()).or_default()))
    }

    pub(crate) fn end_at_write(&mut self, process: &str, writes: u32, is_executed: bool) {
        self.strikes.insert(process.to_owned(), (writes, is_executed));
    }

    /// Whether the process ends with this request, and then whether it is executed.
    pub(crate) fn strike(&mut self, call: &Call) -> Option<bool> {
        let (left, is_executed) = self.strikes.get_mut(&call.process)?;
        if !call.verb.writes() || call.target.as_ref().is_some_and(|target| target.resource == "leases") {
            return None;
        }
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let is_executed = *is_executed;
        self.strikes.remove(&call.process);
        Some(is_executed)
    }

    pub(crate) fn has_ended(&self, process: &str) -> bool {
        self.ended.contains(process)
    }

    pub(crate) fn drop_watches(&mut self, resource: &str) {
        *self.drops.entry(resource.to_owned()).or_default() += 1;
    }

    /// Counts the drops that concern a watch of the resource.
    pub(crate) fn drops(&self, resource: &str) -> u64 {
        let of = |name: &str| self.drops.get(name).copied().unwrap_or_default();
        of(resource) + of("")
    }

    pub(crate) fn heal(&mut self) {
        self.random = Faults::default();
        self.rules.clear();
        self.delays.clear();
        self.partitions.clear();
        self.strikes.clear();
    }

    /// A random time up to `most`.
    pub(crate) fn pause(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.source.random_range(0..=most))
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.source.random_bool(probability.min(1.0))
    }

    /// The fault that a request meets.
    pub(crate) fn meet(&mut self, call: &Call) -> Option<InjectedError> {
        if call.process == USER {
            return None;
        }
        if let Some(rule) = self.rules.iter_mut().find(|it| it.left != Some(0) && it.requests.fits(call)) {
            rule.left = rule.left.map(|left| left - 1);
            return Some(rule.fault.clone());
        }
        let Faults { error, throttle, timeout, reset_before, reset_after, .. } = self.random;
        let faults = [
            (error, InjectedError::Status(500)),
            (throttle, InjectedError::Status(429)),
            (timeout, InjectedError::Timeout),
            (reset_before, InjectedError::ResetBefore),
            (reset_after, InjectedError::ResetAfter),
        ];
        faults.into_iter().find(|(probability, _)| self.chance(*probability)).map(|(_, fault)| fault)
    }
}

#[cfg(test)]
mod tests;
