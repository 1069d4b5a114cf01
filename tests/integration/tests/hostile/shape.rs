//! Hostile inputs and their expected outcomes.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use crate::support::Registry;

/// How long all waits for one input may take together, on a busy machine.
const INPUT_LIMIT: Duration = Duration::from_secs(800);

/// One hostile image, or one at the edge of what is accepted.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Part of the short selection.
    pub(crate) short: bool,
    pub(crate) expect: Expect,
    /// Pushes it to a registry of its own; gives the reference.
    pub(crate) make: fn(&Registry) -> Result<String>,
}

/// What must become of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The message of the status has these words.
    Refused(&'static str),
    Served,
    /// Accepted, or refused for another reason than a limit.
    Within,
}

/// The steps of reading one input: they are bounded together, and errors name the input and the step.
#[derive(Debug)]
pub(crate) struct Steps<'a> {
    pub(crate) input: &'a str,
    limit: Duration,
    current: Cell<&'static str>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(input: &'a str) -> Self {
        Self { input, limit: INPUT_LIMIT, current: Cell::new("begin") }
    }

    pub(crate) fn begin(&self, step: &'static str) {
        self.current.set(step);
    }

    /// Does the work, which begins the steps.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let done = tokio::time::timeout(self.limit, work).await;
        let done = done.unwrap_or_else(|_| Err(anyhow!("the input was not read within {:?}", self.limit)));
        done.with_context(|| format!("{}: {}", self.input, self.current.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_is_bounded_and_named_in_errors() {
        let steps = Steps { limit: Duration::from_millis(20), ..Steps::new("a catalog") };
        let waiting = async {
            steps.begin("report");
            tokio::time::sleep(Duration::ZERO).await;
            steps.begin("deletion");
            std::future::pending::<Result<()>>().await
        };
        let error = steps.bound(waiting).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "a catalog: deletion: the input was not read within 20ms");
        let failing = async {
            steps.begin("idle process");
            Err(anyhow!("it is busy"))
        };
        let error = steps.bound::<()>(failing).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "a catalog: idle process: it is busy");
    }
}
