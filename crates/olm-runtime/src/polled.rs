//! A value of the cluster that has no watch, such as its version: read at the start, when a watch was interrupted, and now and then.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;

/// The wait between two attempts to reach the cluster.
const RETRY: Duration = Duration::from_secs(2);

/// The value as it was read last. Cheap to clone.
#[derive(Debug)]
pub struct Polled<T>(Arc<watch::Sender<Option<Arc<T>>>>);

impl<T> Clone for Polled<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Polled<T> {
    /// A value that is still to be read.
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl<T> Polled<T> {
    /// A value that is not read any more.
    #[must_use]
    pub fn fixed(value: T) -> Self {
        Self(Arc::new(watch::Sender::new(Some(Arc::new(value)))))
    }

    /// As it was read last, if ever.
    #[must_use]
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.borrow().clone()
    }

    /// Returns when it was read once.
    pub async fn wait_until_read(&self) {
        // the sender lives as long as `self`
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }
}

impl<T: PartialEq + Send + Sync + 'static> Polled<T> {
    /// An item whenever another value was read, after [`Self::get`] has it.
    #[must_use]
    pub fn changes(&self) -> BoxStream<'static, ()> {
        let changes = stream::unfold(self.0.subscribe(), |mut value| async move {
            value.changed().await.ok()?;
            Some(((), value))
        });
        changes.boxed()
    }

    /// Reads it until it is dropped: first, after each interruption of a watch, and whenever the interval has passed. What fails is
    /// repeated until the cluster answers.
    pub async fn follow<F: Future<Output = Result<T, kube::Error>>>(
        &self,
        what: &str,
        read: impl Fn() -> F,
        mut interruptions: watch::Receiver<u64>,
        interval: Duration,
    ) -> Infallible {
        loop {
            interruptions.mark_unchanged();
            match read().await {
                Ok(value) => self.put(value),
                Err(error) => {
                    tracing::warn!(%error, "cannot read {what} of the cluster");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                Ok(()) = interruptions.changed() => {}
            }
        }
    }

    fn put(&self, value: T) {
        self.0.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&value);
            if is_new {
                *known = Some(Arc::new(value));
            }
            is_new
        });
    }
}

/// The answer, or `None` if the cluster has none for this client: asking again would not help.
///
/// # Errors
/// When the cluster did not answer.
pub fn answered<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => Ok(None),
        Err(kube::Error::SerdeError(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn polled_is_read_after_an_interruption_and_now_and_then() {
        let (version, asked, start) = (Mutex::new(None), Mutex::new(Vec::new()), Instant::now());
        let read = || {
            asked.lock().push(start.elapsed().as_secs());
            let version = version.lock().ok_or(kube::Error::LinesCodecMaxLineLengthExceeded);
            async { version }
        };
        let interrupted = watch::Sender::new(0);
        let polled = Polled::default();
        let mut changes = polled.changes();
        let script = async {
            assert_eq!(polled.get(), None);
            tokio::time::sleep(Duration::from_secs(3)).await;
            *version.lock() = Some(33);
            polled.wait_until_read().await;
            changes.next().await;
            assert_eq!(polled.get().as_deref(), Some(&33));
            // the same again is no change
            tokio::time::sleep(Duration::from_secs(601)).await;
            *version.lock() = Some(34);
            interrupted.send_replace(1);
            changes.next().await;
            assert_eq!(polled.get().as_deref(), Some(&34));
        };
        tokio::select! {
            () = script => {}
            never = polled.follow("the version", read, interrupted.subscribe(), Duration::from_secs(300)) => match never {},
        }
        // twice in vain, then when it answers; after each interval; and at the interruption
        assert_eq!(*asked.lock(), [0, 2, 4, 304, 604, 605]);
    }

    #[test]
    fn polled_takes_a_rejection_for_an_answer() {
        let api = |code| {
            let status = kube::core::Status { code, ..Default::default() };
            answered::<()>(Err(kube::Error::Api(Box::new(status))))
        };
        for code in [401, 403, 404] {
            assert!(api(code).unwrap().is_none(), "{code}");
        }
        for code in [429, 500, 503] {
            assert!(api(code).is_err(), "{code}");
        }
    }
}
