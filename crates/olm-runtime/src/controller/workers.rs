//! The number of passes that work at the same time, without those that only wait for a registry or a catalog.
//!
//! A pass holds a turn. While it waits for an answer that may never come it is [away](Workers::away): its turn goes to another pass,
//! and it takes a new one when the answer is there. So a registry that does not answer blocks only the objects that need it.
//!
//! When the process stops, no pass gets a turn and none waits any longer: one that works is finished, one that is away is given up
//! and begins again in the next process.

use std::sync::Arc;

use tokio::sync::watch;

use crate::Shutdown;

/// A number of turns.
#[derive(Debug)]
pub struct Workers {
    /// Turns that no pass holds; negative while more were lent than are there.
    free: watch::Sender<i32>,
    stop: Shutdown,
}

/// The process stops: there was no answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process is stopping")]
pub struct Stopping;

/// A turn; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Turn(Arc<Workers>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.add(1);
    }
}

/// A turn that was lent while its owner is away; taken off again if the owner ends before it is back.
struct Lent<'a> {
    workers: &'a Workers,
    is_back: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if !self.is_back {
            self.workers.add(-1);
        }
    }
}

impl Workers {
    /// So many passes work at the same time, until `stop`.
    #[must_use]
    pub fn new(number: u16, stop: Shutdown) -> Arc<Self> {
        Arc::new(Self { free: watch::Sender::new(i32::from(number)), stop })
    }

    pub(super) async fn turn(self: Arc<Self>) -> Result<Turn, Stopping> {
        self.unless_stopped(self.take()).await?;
        Ok(Turn(self))
    }

    /// Waits for `answer` without a turn. To be called by a pass.
    ///
    /// # Errors
    /// When the process stops before the answer is there; whatever waited for it is dropped.
    pub async fn away<T>(&self, answer: impl Future<Output = T>) -> Result<T, Stopping> {
        self.add(1);
        let mut lent = Lent { workers: self, is_back: false };
        let answer = self.unless_stopped(answer).await?;
        self.take().await;
        lent.is_back = true;
        Ok(answer)
    }

    /// Whether the process stops.
    #[must_use]
    pub fn are_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves when the process stops.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    fn add(&self, turns: i32) {
        self.free.send_modify(|free| *free += turns);
    }

    async fn take(&self) {
        let mut changes = self.free.subscribe();
        let take = |free: &mut i32| {
            let is_free = *free > 0;
            *free -= i32::from(is_free);
            is_free
        };
        while !self.free.send_if_modified(take) {
            // the sender lives as long as `self`
            let _ = changes.changed().await;
        }
    }

    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Result<T, Stopping> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Stopping),
            got = wait => Ok(got),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn workers_take_other_passes_while_one_is_away() {
        let workers = Workers::new(1, Shutdown::new());
        let (answer, asked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (workers, answer, asked) =
                    (Arc::clone(&workers), Arc::clone(&answer), Arc::clone(&asked));
                tokio::spawn(async move {
                    let _turn = Arc::clone(&workers).turn().await.unwrap();
                    let answered = workers.away(async {
                        asked.notify_one();
                        answer.notified().await;
                    });
                    answered.await.unwrap();
                })
            })
            .collect();
        asked.notified().await;
        let turn = Arc::clone(&workers).turn().await.unwrap();
        assert!(Arc::clone(&workers).turn().now_or_never().is_none(), "there is one turn only");
        drop(turn);
        for pass in waiting {
            answer.notify_one();
            pass.await.unwrap();
        }
        assert_eq!(*workers.free.borrow(), 1);
    }

    #[tokio::test]
    async fn workers_lose_no_turn_when_a_pass_ends_away() {
        let workers = Workers::new(1, Shutdown::new());
        let turn = Arc::clone(&workers).turn().await.unwrap();
        let mut away = Box::pin(workers.away(std::future::pending::<()>()));
        assert!(futures::poll!(&mut away).is_pending());
        let other = Arc::clone(&workers).turn().await.unwrap();
        drop((away, turn));
        assert!(Arc::clone(&workers).turn().now_or_never().is_none(), "the other pass works");
        drop(other);
        assert_eq!(*workers.free.borrow(), 1);
    }

    /// Another pass holds the turn that was lent when the answer panics.
    #[tokio::test]
    async fn workers_gain_no_turn_when_an_answer_panics() {
        let workers = Workers::new(1, Shutdown::new());
        let mut other = None;
        let pass = async {
            let _turn = Arc::clone(&workers).turn().await.unwrap();
            let answer = async {
                other = Some(Arc::clone(&workers).turn().await.unwrap());
                panic!("a defect")
            };
            workers.away::<()>(answer).await
        };
        assert!(std::panic::AssertUnwindSafe(pass).catch_unwind().await.is_err());
        assert_eq!(*workers.free.borrow(), 0, "the other pass works");
        drop(other);
        assert_eq!(*workers.free.borrow(), 1);
    }

    #[tokio::test]
    async fn workers_wait_for_nothing_when_the_process_stops() {
        let stop = Shutdown::new();
        let workers = Workers::new(1, stop.clone());
        let working = Arc::clone(&workers).turn().await.unwrap();
        let waits = tokio::spawn(Arc::clone(&workers).turn());
        let others = Workers::new(1, stop.clone());
        let away = tokio::spawn(async move { others.away(std::future::pending::<()>()).await });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished() && !away.is_finished());
        stop.cancel();
        let limit = Duration::from_secs(5);
        assert!(tokio::time::timeout(limit, waits).await.unwrap().unwrap().is_err());
        assert_eq!(tokio::time::timeout(limit, away).await.unwrap().unwrap(), Err(Stopping));
        assert!(
            workers.are_stopping() && Arc::clone(&workers).turn().await.is_err(),
            "though one is free now"
        );
        drop(working);
    }
}
