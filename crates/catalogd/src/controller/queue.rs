//! When each catalog is reconciled next. Pure: time is an argument, nothing sleeps here.
//!
//! A catalog is worked on by one task at a time; a wake-up meanwhile is remembered and leads to another reconciliation right
//! after. Of several wake-ups the earliest counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The plan of all catalogs.
#[derive(Debug, Default)]
pub struct Queue {
    due: BTreeMap<String, Instant>,
    running: BTreeSet<String>,
}

impl Queue {
    /// Reconciles `name` at `when` at the latest.
    pub fn wake(&mut self, name: &str, when: Instant) {
        match self.due.get_mut(name) {
            Some(known) => *known = when.min(*known),
            None => {
                self.due.insert(name.to_owned(), when);
            }
        }
    }

    /// Drops what is planned for `name`; a running task is not stopped.
    pub fn remove(&mut self, name: &str) {
        self.due.remove(name);
    }

    /// The catalogs to be reconciled now; they count as running until [`Queue::finished`].
    pub fn start(&mut self, now: Instant) -> Vec<String> {
        let ready: Vec<String> = self
            .due
            .iter()
            .filter(|(name, when)| **when <= now && !self.running.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &ready {
            self.due.remove(name);
            self.running.insert(name.clone());
        }
        ready
    }

    /// A task has ended and wants the next reconciliation at `next`.
    pub fn finished(&mut self, name: &str, next: Option<Instant>) {
        self.running.remove(name);
        if let Some(next) = next {
            self.wake(name, next);
        }
    }

    /// When [`Queue::start`] has something to give next.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.iter().filter(|(name, _)| !self.running.contains(*name)).map(|(_, when)| *when).min()
    }

    /// How many tasks run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn queue_runs_one_task_per_catalog_and_keeps_wake_ups() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let mut queue = Queue::default();
        queue.wake("a", later);
        queue.wake("a", now);
        queue.wake("a", later);
        queue.wake("b", later);
        assert_eq!(queue.next(), Some(now));
        assert_eq!(queue.start(now), ["a"]);
        assert_eq!(queue.next(), Some(later), "b only");
        queue.wake("a", now);
        assert!(queue.start(now).is_empty(), "a is running");
        queue.finished("a", Some(later));
        assert_eq!(queue.start(now), ["a"], "the wake-up came while it ran");
        queue.finished("a", None);
        assert_eq!((queue.next(), queue.running()), (Some(later), 0));
        queue.remove("b");
        assert_eq!(queue.next(), None);
    }
}
