//! When each object is reconciled next. Pure: time is an argument, nothing sleeps here.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// An object that is woken all the time is reconciled after so many times the wait for further wake-ups.
const MAX_DEBOUNCES: u32 = 4;

/// When a pass is due.
#[derive(Debug, Clone, Copy)]
struct Planned {
    at: Instant,
    /// Wake-ups do not put it off any further; `None` before the first one.
    latest: Option<Instant>,
}

impl Planned {
    /// After a wake-up.
    fn woken(before: Option<Self>, now: Instant, debounce: Duration) -> Self {
        let latest = before.and_then(|before| before.latest);
        let latest = latest.unwrap_or_else(|| now + debounce * MAX_DEBOUNCES);
        Self { at: (now + debounce).min(latest), latest: Some(latest) }
    }
}

/// The plan of all objects, by name.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Passes that are due later, in that order.
    later: BTreeSet<(Instant, String)>,
    /// Passes that are due and wait for a worker, since when.
    due: VecDeque<(Instant, String)>,
    /// When the pass over each object of the two is due.
    planned: HashMap<String, Planned>,
    /// Objects that a pass works on, and when the next pass is due if they were woken meanwhile.
    running: HashMap<String, Option<Planned>>,
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
    /// Plans a pass after `debounce`; further wake-ups within that time begin it again, up to [`MAX_DEBOUNCES`]. A pass that is due stays.
    pub(super) fn wake(&mut self, name: String, now: Instant, debounce: Duration) {
        self.advance(now);
        if let Some(woken) = self.running.get_mut(&name) {
            *woken = Some(Planned::woken(*woken, now, debounce));
            return;
        }
        match self.planned.get(&name) {
            Some(planned) if planned.at <= now => {}
            planned => {
                let planned = Planned::woken(planned.copied(), now, debounce);
                self.plan(name, planned);
            }
        }
    }

    fn plan(&mut self, name: String, planned: Planned) {
        if let Some(before) = self.planned.insert(name.clone(), planned) {
            self.later.remove(&(before.at, name.clone()));
        }
        self.later.insert((planned.at, name));
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
        let next = next.map(|at| Planned { at, latest: None });
        if let Some(planned) = woken.into_iter().chain(next).min_by_key(|planned| planned.at) {
            self.plan(name.to_owned(), planned);
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
            (false, Some(planned)) => Next::At(planned.at),
            (false, None) => Next::OnChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_starts_what_is_woken_all_the_time() {
        let (start, debounce) = (Instant::now(), Duration::from_secs(2));
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut queue = Queue::default();
        let mut started = Vec::new();
        for second in 0..30 {
            queue.wake("a".to_owned(), at(second), debounce);
            if queue.start(at(second)).is_some() {
                started.push(second);
                // the next wake-up comes while it runs
                queue.wake("a".to_owned(), at(second), debounce);
                queue.finish("a", None);
            }
        }
        assert_eq!(started, [8, 16, 24]);
    }

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
