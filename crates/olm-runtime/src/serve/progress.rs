//! Whether the answers of one connection move. Over HTTP/2 a client can be alive and take nothing: it opens no window and
//! answers pings, so that the socket does not show it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The answers of one connection that are under way.
pub(super) struct Progress(Mutex<State>);

struct State {
    open: usize,
    moved: Instant,
}

impl State {
    /// When the stall becomes an error, unless something moves.
    fn stalls(&self, limit: Duration, now: Instant) -> Instant {
        if self.open == 0 { now + limit } else { self.moved + limit }
    }

    /// When the pause between two answers is too long, unless one begins.
    fn idles(&self, limit: Duration, now: Instant) -> Instant {
        if self.open > 0 { now + limit } else { self.moved + limit }
    }
}

/// One answer in flight; over when dropped.
pub(super) struct ResponseGuard(Arc<Progress>);

impl Progress {
    /// No answer yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { open: 0, moved: Instant::now() })))
    }

    /// A request arrives: the pause since the last answer is over.
    pub(super) fn arrives(&self) {
        self.change(|_| ());
    }

    /// An answer begins.
    pub(super) fn begin(self: &Arc<Self>) -> ResponseGuard {
        self.change(|state| state.open += 1);
        ResponseGuard(Arc::clone(self))
    }

    /// Ends when answers are under way and none of them has moved for so long.
    pub(super) async fn stall(&self, limit: Duration) {
        self.reach(|state, now| state.stalls(limit, now)).await;
    }

    /// Ends when no answer has been under way for so long.
    pub(super) async fn idle(&self, limit: Duration) {
        self.reach(|state, now| state.idles(limit, now)).await;
    }

    async fn reach(&self, end: impl Fn(&State, Instant) -> Instant) {
        loop {
            let now = Instant::now();
            let until = end(&self.0.lock(), now);
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        state.moved = Instant::now();
    }
}

impl ResponseGuard {
    /// Called when the connection takes the next part.
    pub(super) fn moves(&self) {
        self.0.change(|_| ());
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.change(|state| state.open = state.open.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_progress_stalls_when_no_answer_moves() {
        let limit = Duration::from_secs(60);
        let progress = Progress::new();
        let later = Instant::now() + Duration::from_secs(3600);
        let stalled = || progress.0.lock().stalls(limit, later) <= later;
        assert!(!stalled(), "nothing is under way");
        let (one, two) = (progress.begin(), progress.begin());
        assert!(stalled());
        drop(one);
        assert!(stalled(), "the other is still there");
        progress.0.lock().moved = later;
        assert!(!stalled(), "it has moved");
        two.moves();
        assert!(stalled(), "that was long ago");
        drop(two);
        assert!(!stalled());
    }

    #[test]
    fn serve_progress_is_idle_between_answers() {
        let limit = Duration::from_secs(60);
        let progress = Progress::new();
        let later = Instant::now() + Duration::from_secs(3600);
        let is_idle = || progress.0.lock().idles(limit, later) <= later;
        assert!(is_idle(), "nothing was under way");
        let answer = progress.begin();
        assert!(!is_idle(), "one is under way");
        drop(answer);
        assert!(is_idle());
        progress.0.lock().moved = later;
        assert!(!is_idle(), "one has just ended");
    }
}
