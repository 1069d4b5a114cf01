//! Tasks that do not fail unseen: a background task whose panic ends the process, and a pass that ends with its controller.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

/// Runs background work that the process cannot do without, such as the watch that fills a cache. If `work` panics, the process
/// logs the task's name and exits with code 1: with a cache that stands still it would keep the lease and pass its probes.
pub async fn supervised<T>(task: &str, work: impl Future<Output = T>) -> T {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(panic) => {
            tracing::error!(task, panic = panic_message(&*panic), "background task panicked, exiting");
            std::process::exit(1)
        }
    }
}

/// Runs one pass on a task of its own: passes run in parallel, and one that panics ends no other. If the returned future is
/// dropped, because the lease is lost and the controller ends, the task is aborted.
///
/// # Errors
/// If the pass panicked.
pub async fn pass<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, JoinError> {
    AbortOnDropHandle::new(tokio::spawn(work)).await
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<String>() {
        Some(text) => text,
        None => panic.downcast_ref::<&str>().copied().unwrap_or("no message"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::{self, LogFormat};

    /// Set in the process that panics: this test program, started again.
    const CHILD: &str = "OLM_TEST_PANICS";

    #[tokio::test]
    async fn task_panic_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            telemetry::init(LogFormat::Text, 0, "").unwrap();
            let work = async {
                tokio::task::yield_now().await;
                panic!("index {} out of range", 7);
            };
            let task = tokio::spawn(supervised::<()>("watch of widgets", work));
            let _ = task.await;
            return; // the parent finds exit code 0
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "task::tests::task_panic_ends_the_process", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(1), "{log}");
        let line = log.lines().find(|line| line.contains("background task panicked")).unwrap();
        assert!(line.contains("watch of widgets") && line.contains("index 7 out of range"), "{line}");
    }

    #[tokio::test]
    async fn pass_is_aborted_when_its_controller_ends() {
        let held = Arc::new(());
        let used = Arc::clone(&held);
        let mut running = Box::pin(pass(async move {
            std::future::pending::<()>().await;
            drop(used);
        }));
        assert!(futures::poll!(&mut running).is_pending());
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 2, "it runs");
        drop(running);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 1, "aborted");
    }

    #[tokio::test]
    async fn pass_returns_its_result_or_its_panic() {
        assert_eq!(pass(async { 3 }).await.unwrap(), 3);
        let panicked: Result<(), JoinError> = pass(async { panic!("no") }).await;
        assert!(panicked.unwrap_err().is_panic());
    }
}
