//! Passes that work at the same time, without those that only wait for a registry or a catalog.
//!
//! A pass takes a turn. While it waits for somebody who may never answer it is [away](Workers::away): its turn goes to another
//! pass, and it takes a new one when the answer is there. So however many extensions wait for a registry that is silent, all
//! others go on.
//!
//! When the process is to stop, nobody gets a turn any more and nobody waits on: a pass that works is finished, one that is away
//! or that has not begun is given up. The next process begins it anew.

use olm_runtime::Shutdown;
use tokio::sync::Semaphore;

/// A number of turns.
#[derive(Debug)]
pub struct Workers {
    turns: Semaphore,
    stop: Shutdown,
}

/// The process is to stop: there was no answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process is stopping")]
pub struct Stopping;

/// A turn; given back when dropped.
#[derive(Debug)]
pub struct Turn<'a>(&'a Semaphore);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// A turn that was lent while its owner is away; taken off again if the owner ends before it is back.
struct Lent<'a>(&'a Semaphore);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.forget_permits(1);
    }
}

impl Workers {
    /// So many passes work at the same time, until `stop`.
    #[must_use]
    pub fn new(number: u16, stop: Shutdown) -> Self {
        Self { turns: Semaphore::new(usize::from(number)), stop }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// When the process is to stop.
    pub async fn turn(&self) -> Result<Turn<'_>, Stopping> {
        self.unless_stopped(take(&self.turns)).await?;
        Ok(Turn(&self.turns))
    }

    /// Waits for `answer` without a turn. To be called by a pass that has one.
    ///
    /// # Errors
    /// When the process is to stop before the answer is there; whatever waited for it is dropped.
    pub async fn away<T>(&self, answer: impl Future<Output = T>) -> Result<T, Stopping> {
        self.turns.add_permits(1);
        let lent = Lent(&self.turns);
        let answer = self.unless_stopped(answer).await?;
        take(&self.turns).await;
        std::mem::forget(lent); // it has just been taken back
        Ok(answer)
    }

    /// Is the process to stop?
    #[must_use]
    pub fn are_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Result<T, Stopping> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Stopping),
            got = wait => Ok(got),
        }
    }
}

async fn take(turns: &Semaphore) {
    // it is never closed
    if let Ok(permit) = turns.acquire().await {
        permit.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn whoever_waits_for_an_answer_stands_in_nobodys_way() {
        let workers = Arc::new(Workers::new(1, Shutdown::new()));
        let (answer, there) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (workers, answer, there) =
                    (Arc::clone(&workers), Arc::clone(&answer), Arc::clone(&there));
                tokio::spawn(async move {
                    let _turn = workers.turn().await.unwrap();
                    let answered = workers.away(async {
                        there.notify_one();
                        answer.notified().await;
                    });
                    answered.await.unwrap();
                })
            })
            .collect();
        there.notified().await;
        let turn = workers.turn().await.unwrap();
        assert!(futures::FutureExt::now_or_never(workers.turn()).is_none(), "there is one turn only");
        drop(turn);
        for one in waiting {
            answer.notify_one();
            one.await.unwrap();
        }
        assert_eq!(workers.turns.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_pass_that_ends_while_it_is_away_leaves_no_turn_behind() {
        let workers = Workers::new(2, Shutdown::new());
        {
            let _turn = workers.turn().await.unwrap();
            let away = workers.away(std::future::pending::<()>());
            assert!(futures::FutureExt::now_or_never(away).is_none());
        }
        assert_eq!(workers.turns.available_permits(), 2);
    }

    #[tokio::test]
    async fn when_the_process_is_to_stop_nobody_waits_on_and_who_works_ends() {
        let stop = Shutdown::new();
        let workers = Arc::new(Workers::new(1, stop.clone()));
        let working = workers.turn().await.unwrap();
        let waits = Arc::clone(&workers);
        let begun = tokio::spawn(async move { waits.turn().await.map(|_| ()) });
        let others = Workers::new(1, stop.clone());
        let away = tokio::spawn(async move { others.away(std::future::pending::<()>()).await });
        tokio::task::yield_now().await;
        assert!(!begun.is_finished() && !away.is_finished());
        stop.cancel();
        let limit = Duration::from_secs(5);
        assert_eq!(tokio::time::timeout(limit, begun).await.unwrap().unwrap(), Err(Stopping));
        assert_eq!(tokio::time::timeout(limit, away).await.unwrap().unwrap(), Err(Stopping));
        assert!(workers.are_stopping() && workers.turn().await.is_err(), "though one is free now");
        drop(working);
    }
}
