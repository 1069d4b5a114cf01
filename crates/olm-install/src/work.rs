//! Work on a bundle: on a thread for blocking work, for a bounded time, and stopped when its pass is dropped.

use std::time::Duration;

use olm_core::{Cancellation, Object};
use serde_json::Value;

use crate::resolution::{Class, PassError};

/// How long one step may work on a bundle: rendering it, comparing one of its CRDs, packing it. The largest bundle that the limits
/// allow takes seconds.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes below which work takes milliseconds and needs no thread.
const SMALL: usize = 64 << 10;
/// Bytes of a value without its text.
const VALUE: usize = 64;

/// Runs a step on something of this size. `what` is its name for users: "rendering it".
///
/// # Errors
/// When it took too long or panicked.
pub(crate) async fn run<T: Send + 'static>(
    what: &str,
    size: usize,
    work: impl FnOnce(&Cancellation) -> T + Send + 'static,
) -> Result<T, PassError> {
    let cancellation = Cancellation::default();
    if size < SMALL {
        return Ok(work(&cancellation));
    }
    // threads cannot be dropped: they look at this
    let _cancel = cancellation.drop_guard();
    let thread = tokio::task::spawn_blocking(move || work(&cancellation));
    match tokio::time::timeout(WORK_TIMEOUT, thread).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(PassError::new(Class::Transient, format!("{what} did not end: {error}"))),
        Err(_) => {
            let limit = WORK_TIMEOUT.as_secs();
            let message = format!(
                "{what} took longer than the limit of {limit} s; publish a bundle with simpler or fewer objects"
            );
            Err(PassError::new(Class::NeedsChange, message))
        }
    }
}

/// About how many bytes the objects take.
pub(crate) fn size<'a>(objects: impl IntoIterator<Item = &'a Object>) -> usize {
    objects.into_iter().flat_map(|object| &object.0).map(|(name, value)| name.len() + of_value(value)).sum()
}

fn of_value(value: &Value) -> usize {
    VALUE
        + match value {
            Value::Array(items) => items.iter().map(of_value).sum(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| VALUE + name.len() + of_value(value)).sum()
            }
            Value::String(text) => text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A step that ends only when it is cancelled; the sender reports its end.
    fn endless(ended: mpsc::Sender<()>) -> impl FnOnce(&Cancellation) + Send + 'static {
        move |cancellation| {
            while !cancellation.is_cancelled() {
                std::thread::yield_now();
            }
            let _ = ended.send(());
        }
    }

    const DEADLINE: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_its_limit_with_its_thread() {
        let (ended, end) = mpsc::channel();
        let mut running = Box::pin(run("rendering it", SMALL, endless(ended)));
        assert!(futures::poll!(&mut running).is_pending());
        tokio::time::advance(WORK_TIMEOUT - Duration::from_secs(1)).await;
        assert!(futures::poll!(&mut running).is_pending(), "ended before its limit");
        tokio::time::advance(Duration::from_secs(2)).await;
        let error = running.await.unwrap_err();
        let want =
            "rendering it took longer than the limit of 60 s; publish a bundle with simpler or fewer objects";
        assert_eq!((error.class, error.message.as_str()), (Class::NeedsChange, want));
        end.recv_timeout(DEADLINE).expect("the thread runs on");
    }

    #[tokio::test]
    async fn work_ends_when_its_future_is_dropped() {
        let (ended, end) = mpsc::channel();
        let mut running = Box::pin(run("rendering it", SMALL, endless(ended)));
        assert!(futures::poll!(&mut running).is_pending());
        drop(running);
        end.recv_timeout(DEADLINE).expect("the thread runs on");
    }

    #[tokio::test]
    async fn work_on_little_needs_no_thread() {
        let here = std::thread::current().id();
        let is_here = move |_: &Cancellation| std::thread::current().id() == here;
        assert_eq!(run("it", SMALL - 1, is_here).await, Ok(true));
        assert_eq!(run("it", SMALL, is_here).await, Ok(false));
    }
}
