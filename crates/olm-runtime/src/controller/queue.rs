//! When each object is reconciled next. Pure: time is an argument, nothing sleeps here.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// The plan of all objects, by name.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// In the order in which they are due.
    order: BTreeSet<(Instant, String)>,
    due: HashMap<String, Instant>,
    /// Objects that a pass works on, and when the next pass is due if they were woken meanwhile.
    running: HashMap<String, Option<Instant>>,
}

impl Queue {
    /// Plans a pass after `debounce`; further wake-ups within that time begin it again. A pass that is planned earlier stays.
    pub(super) fn wake(&mut self, name: String, now: Instant, debounce: Duration) {
        let at = now + debounce;
        match self.running.get_mut(&name) {
            Some(woken) => *woken = Some(at),
            None if self.due.get(&name).is_some_and(|due| *due < now) => {}
            None => self.plan(name, at),
        }
    }

    fn plan(&mut self, name: String, at: Instant) {
        if let Some(before) = self.due.insert(name.clone(), at) {
            self.order.remove(&(before, name.clone()));
        }
        self.order.insert((at, name));
    }

    /// The first object that is due. It counts as running until [`Queue::finish`].
    pub(super) fn start(&mut self, now: Instant) -> Option<String> {
        self.next().filter(|due| *due <= now)?;
        let (_, name) = self.order.pop_first()?;
        self.due.remove(&name);
        self.running.insert(name.clone(), None);
        Some(name)
    }

    /// A pass has ended; the next is due at `next`, or earlier if the object was woken meanwhile.
    pub(super) fn finish(&mut self, name: &str, next: Option<Instant>) {
        let woken = self.running.remove(name).flatten();
        if let Some(at) = woken.into_iter().chain(next).min() {
            self.plan(name.to_owned(), at);
        }
    }

    /// When the first object is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_runs_one_pass_per_object_and_keeps_wake_ups() {
        let (now, debounce) = (Instant::now(), Duration::from_secs(1));
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let mut queue = Queue::default();
        queue.wake("a".to_owned(), at(0), debounce);
        queue.wake("b".to_owned(), at(0), Duration::ZERO);
        queue.wake("a".to_owned(), at(1), debounce);
        assert_eq!(queue.next(), Some(at(0)));
        assert_eq!(queue.start(at(0)).as_deref(), Some("b"));
        assert_eq!((queue.start(at(1)), queue.next()), (None, Some(at(2))), "woken twice within the time");
        queue.wake("a".to_owned(), at(3), debounce);
        assert_eq!(queue.start(at(3)).as_deref(), Some("a"), "it was due before");
        queue.wake("a".to_owned(), at(4), debounce);
        assert!(queue.start(at(9)).is_none(), "a runs");
        queue.finish("a", Some(at(60)));
        assert_eq!(queue.next(), Some(at(5)), "the wake-up came while it ran");
        assert_eq!(queue.start(at(5)).as_deref(), Some("a"));
        queue.finish("a", Some(at(60)));
        queue.wake("a".to_owned(), at(6), debounce);
        assert_eq!(queue.next(), Some(at(7)), "a wake-up comes before a retry");
        assert_eq!(queue.start(at(7)).as_deref(), Some("a"));
        queue.finish("a", None);
        queue.finish("b", None);
        assert!(queue.next().is_none() && queue.due.is_empty() && queue.running.is_empty());
    }
}
