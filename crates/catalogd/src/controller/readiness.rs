//! Whether this replica may be sent requests: it serves every catalog that is served according to its status, or has tried
//! for long enough. Rule: decision 15.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a catalog that should be served may hold back readiness.
pub const MAX_WAIT: Duration = Duration::from_secs(120);

/// Shared by the controller, which notes, and the health server, which asks.
#[derive(Debug)]
pub struct Readiness {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    began: Instant,
    listening: bool,
    listed: bool,
    /// Since when each catalog has been missing.
    missing: BTreeMap<String, Instant>,
}

impl Readiness {
    /// Not ready yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let inner = Inner { began: now, listening: false, listed: false, missing: BTreeMap::new() };
        Self { inner: Mutex::new(inner) }
    }

    /// The content server accepts connections.
    pub(crate) fn listening(&self) {
        self.inner.lock().listening = true;
    }

    /// The catalogs are known; these should be served here and are not.
    pub fn missing(&self, names: BTreeSet<String>, now: Instant) {
        let mut inner = self.inner.lock();
        inner.listed = true;
        let before = std::mem::take(&mut inner.missing);
        inner.missing = names
            .into_iter()
            .map(|name| (before.get(&name).copied().unwrap_or(now), name))
            .map(|(since, name)| (name, since))
            .collect();
    }

    /// Whether requests may come.
    ///
    /// # Errors
    /// The error message for the probe's answer.
    pub fn check(&self, now: Instant) -> Result<(), String> {
        let inner = self.inner.lock();
        if !inner.listening {
            return Err("catalog server not yet started".to_owned());
        }
        let waited = |since: Instant| now.saturating_duration_since(since) >= MAX_WAIT;
        if !inner.listed && !waited(inner.began) {
            return Err("catalogs not yet listed".to_owned());
        }
        let awaited: Vec<&str> = inner
            .missing
            .iter()
            .filter(|(_, since)| !waited(**since))
            .map(|(name, _)| name.as_str())
            .collect();
        if awaited.is_empty() {
            Ok(())
        } else {
            Err(format!("catalogs not yet served: {}", awaited.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_waits_for_missing_catalogs_with_a_limit() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let readiness = Readiness::new(start);
        assert_eq!(readiness.check(start), Err("catalog server not yet started".to_owned()));
        readiness.listening();
        assert_eq!(readiness.check(start), Err("catalogs not yet listed".to_owned()));
        assert_eq!(
            readiness.check(at(120)),
            Ok(()),
            "an API server that does not answer is no reason for ever"
        );
        readiness.missing(names(&["a", "b"]), at(10));
        assert_eq!(readiness.check(at(11)), Err("catalogs not yet served: a, b".to_owned()));
        readiness.missing(names(&["b"]), at(20));
        assert_eq!(readiness.check(at(129)), Err("catalogs not yet served: b".to_owned()));
        assert_eq!(readiness.check(at(130)), Ok(()), "b has been missing since second 10");
        readiness.missing(names(&[]), at(30));
        assert_eq!(readiness.check(at(30)), Ok(()));
    }
}
