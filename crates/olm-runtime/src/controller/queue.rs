//! When each object is reconciled next. Pure: time is an argument, nothing sleeps here.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// The plan of all objects, by name.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Passes that are due later, in that order.
    later: BTreeSet<(Instant, String)>,
    /// Passes that are due and wait for a worker, since when.
    due: VecDeque<(Instant, String)>,
    /// When the pass over each object of the two is due.
    planned: HashMap<String, Instant>,
    /// Objects that a pass works on, and when the next pass is due if they were woken meanwhile.
    running: HashMap<String, Option<Instant>>,
}

/// When the next pass over an object begins, as far as that is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Not before the object is woken.
    OnChange,
    /// It is due since then, or will be.
    At(Instant),
    /// A pass runs.
    Running,
}

impl Queue {
    /// Plans a pass after `debounce`; further wake-ups within that time begin it again. A pass that is due stays.
    pub(super) fn wake(&mut self, name: String, now: Instant, debounce: Duration) {
        self.advance(now);
        let at = now + debounce;
        match self.running.get_mut(&name) {
            Some(woken) => *woken = Some(at),
            None if self.planned.get(&name).is_some_and(|due| *due <= now) => {}
            None => self.plan(name, at),
        }
    }

    fn plan(&mut self, name: String, at: Instant) {
        if let Some(before) = self.planned.insert(name.clone(), at) {
            self.later.remove(&(before, name.clone()));
        }
        self.later.insert((at, name));
    }

    /// Lines up what is due by now.
    pub(super) fn advance(&mut self, now: Instant) {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            self.due.extend(self.later.pop_first());
        }
    }

    /// The object that has been due for longest, and for how long. It counts as running until [`Queue::finish`].
    pub(super) fn start(&mut self, now: Instant) -> Option<(String, Duration)> {
        self.advance(now);
        let (since, name) = self.due.pop_front()?;
        self.planned.remove(&name);
        self.running.insert(name.clone(), None);
        Some((name, now.duration_since(since)))
    }

    /// A pass has ended; the next is due at `next`, or earlier if the object was woken meanwhile.
    pub(super) fn finish(&mut self, name: &str, next: Option<Instant>) {
        let woken = self.running.remove(name).flatten();
        if let Some(at) = woken.into_iter().chain(next).min() {
            self.plan(name.to_owned(), at);
        }
    }

    /// When the first pass of those that are not due yet will be.
    pub(super) fn next(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// How many passes were due at the last [`advance`](Self::advance) and have not begun.
    pub(super) fn depth(&self) -> usize {
        self.due.len()
    }

    /// When the next pass over this object begins.
    pub(super) fn next_of(&self, name: &str) -> Next {
        match (self.running.contains_key(name), self.planned.get(name)) {
            (true, _) => Next::Running,
            (false, Some(at)) => Next::At(*at),
            (false, None) => Next::OnChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_runs_one_pass_per_object_and_keeps_wake_ups() {
        let (now, debounce) = (Instant::now(), Duration::from_secs(2));
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let started = |queue: &mut Queue, second| {
            queue.start(at(second)).map(|(name, waited)| (name, waited.as_secs()))
        };
        let some = |name: &str, waited| Some((name.to_owned(), waited));
        let mut queue = Queue::default();
        queue.wake("a".to_owned(), at(0), debounce);
        queue.wake("b".to_owned(), at(0), Duration::ZERO);
        queue.wake("a".to_owned(), at(1), debounce);
        assert_eq!((queue.next(), queue.depth()), (Some(at(3)), 1));
        assert_eq!(started(&mut queue, 1), some("b", 1));
        assert_eq!(queue.next_of("b"), Next::Running);
        assert_eq!(
            (started(&mut queue, 2), queue.next()),
            (None, Some(at(3))),
            "woken twice within the time"
        );
        queue.wake("a".to_owned(), at(4), debounce);
        assert_eq!((queue.next(), queue.depth(), queue.next_of("a")), (None, 1, Next::At(at(3))));
        assert_eq!(started(&mut queue, 5), some("a", 2), "it was due before");
        queue.wake("a".to_owned(), at(5), debounce);
        assert!(queue.start(at(9)).is_none(), "a runs");
        queue.finish("a", Some(at(60)));
        assert_eq!(queue.next(), Some(at(7)), "the wake-up came while it ran");
        assert_eq!(started(&mut queue, 7), some("a", 0));
        queue.finish("a", Some(at(60)));
        queue.wake("a".to_owned(), at(8), debounce);
        assert_eq!(queue.next(), Some(at(10)), "a wake-up comes before a retry");
        assert_eq!(started(&mut queue, 10), some("a", 0));
        queue.finish("a", None);
        queue.finish("b", None);
        assert_eq!((queue.next(), queue.depth(), queue.next_of("a")), (None, 0, Next::OnChange));
        assert!(queue.planned.is_empty() && queue.running.is_empty());
    }
}
