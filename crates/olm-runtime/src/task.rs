//! Background tasks that do not fail unseen: a panic ends the process.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

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

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<String>() {
        Some(text) => text,
        None => panic.downcast_ref::<&str>().copied().unwrap_or("no message"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
}
