//! Passes that work at the same time, without those that only wait for a registry or a catalog.
//!
//! A pass takes a turn. While it waits for somebody who may never answer it is [away](Workers::away): its turn goes to another
//! pass, and it takes a new one when the answer is there. So however many extensions wait for a registry that is silent, all
//! others go on.

use tokio::sync::Semaphore;

/// A number of turns.
#[derive(Debug)]
pub struct Workers(Semaphore);

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
    /// So many passes work at the same time.
    #[must_use]
    pub fn new(number: u16) -> Self {
        Self(Semaphore::new(usize::from(number)))
    }

    /// Waits for a turn.
    pub async fn turn(&self) -> Turn<'_> {
        take(&self.0).await;
        Turn(&self.0)
    }

    /// Waits for `answer` without a turn. To be called by a pass that has one.
    pub async fn away<T>(&self, answer: impl Future<Output = T>) -> T {
        self.0.add_permits(1);
        let lent = Lent(&self.0);
        let answer = answer.await;
        take(&self.0).await;
        std::mem::forget(lent); // it has just been taken back
        answer
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
    use tokio::sync::Notify;

    #[tokio::test]
    async fn whoever_waits_for_an_answer_stands_in_nobodys_way() {
        let workers = Arc::new(Workers::new(1));
        let (answer, there) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (workers, answer, there) =
                    (Arc::clone(&workers), Arc::clone(&answer), Arc::clone(&there));
                tokio::spawn(async move {
                    let _turn = workers.turn().await;
                    workers
                        .away(async {
                            there.notify_one();
                            answer.notified().await;
                        })
                        .await;
                })
            })
            .collect();
        there.notified().await;
        let turn = workers.turn().await;
        assert!(futures::FutureExt::now_or_never(workers.turn()).is_none(), "there is one turn only");
        drop(turn);
        for one in waiting {
            answer.notify_one();
            one.await.unwrap();
        }
        assert_eq!(workers.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_pass_that_ends_while_it_is_away_leaves_no_turn_behind() {
        let workers = Workers::new(2);
        {
            let _turn = workers.turn().await;
            let away = workers.away(std::future::pending::<()>());
            assert!(futures::FutureExt::now_or_never(away).is_none());
        }
        assert_eq!(workers.0.available_permits(), 2);
    }
}
