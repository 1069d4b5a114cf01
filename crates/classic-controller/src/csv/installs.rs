//! The result of the last attempt to install each CSV. The rest of its state is in the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use olm_classic::csv::{InstallResult, Phase};
use olm_runtime::backoff;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest wait before a failed install is tried again.
const MAX_WAIT: Duration = Duration::from_mins(5);
/// The wait after the first failure.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// Why an install failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstallError {
    pub(super) message: String,
    pub(super) retry: Retry,
}

/// When an install that failed is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// After some time.
    Later,
    /// When an input changes, or rarely: what the apiserver refuses may depend on an object that is no input, such as a Deployment with
    /// another selector or an admission policy.
    OnChange,
    /// When an input changes; the CSV reports that it is not worth a retry.
    Hopeless,
}

/// What an install depends on: a failure counts as long as it stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inputs {
    /// Of the CSV: one that is created again begins with the first generation, and no pass may have seen that the earlier one was gone.
    pub(super) uid: Option<String>,
    pub(super) generation: Option<i64>,
    /// The settings of the Subscription, and the proxy of the cluster.
    pub(super) config: String,
    /// The account of the group, and the version of its rights.
    pub(super) account: String,
}

struct Attempt {
    at: Instant,
    inputs: Inputs,
    result: InstallResult,
    retry: Option<Retry>,
    failures: u32,
}

impl Attempt {
    fn retry_at(&self) -> Option<Instant> {
        let wait = match self.retry? {
            Retry::Later => backoff::delay(self.failures.saturating_add(7)).clamp(MIN_WAIT, MAX_WAIT),
            Retry::OnChange => MAX_WAIT,
            Retry::Hopeless => return None,
        };
        Some(self.at + wait)
    }
}

/// By key of the CSV.
#[derive(Default)]
pub(super) struct Installs(Mutex<BTreeMap<String, Attempt>>);

impl Installs {
    pub(super) fn record(&self, key: &str, inputs: Inputs, result: Result<(), InstallError>) {
        let mut attempts = self.0.lock();
        let earlier = attempts.get(key).filter(|it| it.inputs == inputs).map_or(0, |it| it.failures);
        let retry = result.as_ref().err().map(|error| error.retry);
        let (result, failures) = match result {
            Ok(()) => (InstallResult::Succeeded, 0),
            Err(InstallError { message, retry }) => {
                let is_worth_a_retry = retry != Retry::Hopeless;
                (InstallResult::Failed { message, is_worth_a_retry }, earlier.saturating_add(1))
            }
        };
        attempts.insert(key.to_owned(), Attempt { at: Instant::now(), inputs, result, retry, failures });
    }

    /// The outcome that counts now. A failure that is due to be tried again counts no more, and nothing waits for it: in the phase that the CSV
    /// has by now it may not be installed.
    pub(super) fn result(&self, key: &str, inputs: &Inputs) -> InstallResult {
        let mut attempts = self.0.lock();
        let Some(attempt) = attempts.get_mut(key) else { return InstallResult::NotTried };
        if attempt.retry_at().is_some_and(|at| at <= Instant::now()) {
            (attempt.result, attempt.retry) = (InstallResult::NotTried, None);
        }
        match &attempt.result {
            InstallResult::Failed { .. } if attempt.inputs != *inputs => InstallResult::NotTried,
            result => result.clone(),
        }
    }

    /// Ends the success of a CSV that becomes InstallReady, or is not any more: the next time there it is installed again. It may have a
    /// success at the beginning, because an installing CSV is installed again when a Deployment changes.
    pub(super) fn phase_changed(&self, key: &str, from: Phase, to: Phase) {
        if from != to
            && [from, to].contains(&Phase::InstallReady)
            && let Some(attempt) = self.0.lock().get_mut(key)
            && attempt.result == InstallResult::Succeeded
        {
            attempt.result = InstallResult::NotTried;
        }
    }

    /// The time since the last attempt.
    pub(super) fn age(&self, key: &str) -> Option<Duration> {
        self.0.lock().get(key).map(|attempt| attempt.at.elapsed())
    }

    /// The time until a failed install is tried again.
    pub(super) fn retry_in(&self, key: &str) -> Option<Duration> {
        let at = self.0.lock().get(key)?.retry_at()?;
        Some(at.saturating_duration_since(Instant::now()).max(Duration::from_millis(10)))
    }

    pub(super) fn evict(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(generation: i64) -> Inputs {
        Inputs { uid: None, generation: Some(generation), config: String::new(), account: String::new() }
    }

    fn failed(retry: Retry) -> Result<(), InstallError> {
        Err(InstallError { message: "m".to_owned(), retry })
    }

    #[tokio::test(start_paused = true)]
    async fn install_failure_counts_until_inputs_change_or_it_is_due() {
        let installs = Installs::default();
        let is_tried = |generation| installs.result("k", &inputs(generation)) != InstallResult::NotTried;
        assert!(!is_tried(1));
        installs.record("k", inputs(1), failed(Retry::Later));
        assert!(is_tried(1) && !is_tried(2), "another generation is another input");
        let wait = installs.retry_in("k").unwrap();
        tokio::time::advance(wait).await;
        assert!(!is_tried(1));
        assert_eq!(installs.retry_in("k"), None, "a CSV that lacks a requirement by now is not installed");
        installs.record("k", inputs(1), failed(Retry::Later));
        assert!(installs.retry_in("k").unwrap() > wait, "later and later");
        let counts = |is_worth_a_retry| InstallResult::Failed { message: "m".to_owned(), is_worth_a_retry };
        installs.record("k", inputs(1), failed(Retry::OnChange));
        tokio::time::advance(MAX_WAIT - MIN_WAIT).await;
        assert_eq!(installs.result("k", &inputs(1)), counts(true));
        tokio::time::advance(installs.retry_in("k").unwrap()).await;
        assert!(!is_tried(1), "another object may have been in the way");
        installs.record("k", inputs(1), failed(Retry::Hopeless));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(installs.result("k", &inputs(1)), counts(false), "only another input helps");
        assert_eq!(installs.retry_in("k"), None);
        let created_again = Inputs { uid: Some("u".to_owned()), ..inputs(1) };
        assert_eq!(installs.result("k", &created_again), InstallResult::NotTried);
        installs.record("k", inputs(1), Ok(()));
        assert_eq!(installs.result("k", &inputs(2)), InstallResult::Succeeded);
        installs.phase_changed("k", Phase::InstallReady, Phase::Installing);
        assert!(!is_tried(1));
    }

    #[test]
    fn install_success_ends_at_the_next_install() {
        let installs = Installs::default();
        for (from, to, ends) in [
            (Phase::Installing, Phase::Succeeded, false),
            (Phase::InstallReady, Phase::InstallReady, false),
            (Phase::Succeeded, Phase::InstallReady, true),
            (Phase::Pending, Phase::InstallReady, true),
            (Phase::InstallReady, Phase::Installing, true),
        ] {
            installs.record("k", inputs(1), Ok(()));
            installs.phase_changed("k", from, to);
            let is_untried = installs.result("k", &inputs(1)) == InstallResult::NotTried;
            assert_eq!(is_untried, ends, "{from:?} to {to:?}");
        }
    }
}
