//! Bundles that are images: how far one is, and when it is tried again. No InstallPlan reports that: it is made when all are unpacked.
//!
//! Rule: classic-apis §5.5 and §13. Whether a Job or the controller itself reads the image is the caller's matter.

use std::sync::Arc;
use std::time::Duration;

use olm_api::ConditionStatus;
use olm_api::classic::subscription::SubscriptionCondition;
use olm_api::classic::{OperatorGroup, Subscription};
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_core::go::GoDuration;

use super::phase::REQUEUE;

const TIMEOUT: &str = "operatorframework.io/bundle-unpack-timeout";
const RETRY_INTERVAL: &str = "operatorframework.io/bundle-unpack-min-retry-interval";
/// Between the image and the problem in the message of a failure.
const CANNOT: &str = "cannot be unpacked: ";
/// After the problem.
const AGAIN: &str = "; it is tried again after ";

/// The shortest time from a failure to the next attempt: each is a request to the registry, and writes of the Subscriptions of the namespace.
const MIN_RETRY_INTERVAL: Duration = REQUEUE;

/// How long unpacking may take, and when it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackSettings {
    /// `None`: no limit.
    pub timeout: Option<Duration>,
    /// From a failure to the next attempt.
    pub retry_interval: Duration,
}

impl Default for UnpackSettings {
    fn default() -> Self {
        Self { timeout: Some(Duration::from_secs(600)), retry_interval: Duration::from_secs(300) }
    }
}

/// An annotation of an OperatorGroup that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("OperatorGroup {group}: annotation {annotation}: {problem}")]
pub struct SettingError {
    /// `namespace/name`
    pub group: String,
    pub annotation: &'static str,
    pub problem: String,
}

impl UnpackSettings {
    /// Those of the process, replaced by the annotations of the group; a timeout of 0 is no limit, and a shorter retry interval than 5 s is 5 s.
    ///
    /// # Errors
    /// When an annotation cannot be read.
    pub fn for_group(self, group: &OperatorGroup) -> Result<Self, SettingError> {
        let read = |annotation: &'static str| -> Result<Option<Duration>, SettingError> {
            let annotations = group.metadata.annotations.as_ref();
            let Some(text) = annotations.and_then(|it| it.get(annotation)) else { return Ok(None) };
            let failed = |problem: olm_core::go::DurationError| SettingError {
                group: format!(
                    "{}/{}",
                    group.metadata.namespace.as_deref().unwrap_or_default(),
                    group.metadata.name.as_deref().unwrap_or_default()
                ),
                annotation,
                problem: problem.to_string(),
            };
            text.parse::<GoDuration>().map(|duration| Some(duration.0)).map_err(failed)
        };
        let timeout = match read(TIMEOUT)? {
            None => self.timeout,
            Some(Duration::ZERO) => None,
            some => some,
        };
        let retry_interval = read(RETRY_INTERVAL)?.map(|interval| interval.max(MIN_RETRY_INTERVAL));
        Ok(Self { timeout, retry_interval: retry_interval.unwrap_or(self.retry_interval) })
    }
}

/// What is there of the content of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnpackObserved {
    NotStarted,
    Running {
        since: Timestamp,
        /// What stops it, such as an image that cannot be pulled.
        problem: Option<String>,
    },
    Failed {
        at: Timestamp,
        message: String,
    },
    Unpacked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnpackRule {
    Starts,
    Waits,
    DeadlineExceeded,
    Failed,
    Retries,
    Unpacked,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct UnpackRow {
    pub rule: UnpackRule,
    pub guard: &'static str,
    /// A shared record shows it; the others are in the specification only.
    pub is_recorded: bool,
}

pub const UNPACK_ROWS: [UnpackRow; 6] = [
    row(UnpackRule::Unpacked, "the content is there", true),
    row(UnpackRule::Starts, "nothing was started", true),
    row(UnpackRule::Waits, "it runs", true),
    row(UnpackRule::DeadlineExceeded, "it runs longer than allowed", true),
    row(UnpackRule::Retries, "it failed, and the retry interval is over", false),
    row(UnpackRule::Failed, "it failed", false),
];

const fn row(rule: UnpackRule, guard: &'static str, is_recorded: bool) -> UnpackRow {
    UnpackRow { rule, guard, is_recorded }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpackNext {
    Start,
    /// Checked after this time.
    Wait(Duration),
    Stop,
    /// The content can be used.
    Use,
}

#[derive(Debug, Clone, PartialEq)]
pub struct UnpackDecision {
    pub rule: UnpackRule,
    pub next: UnpackNext,
    /// For the Subscriptions: what happens, or the failure.
    pub message: String,
}

impl UnpackDecision {
    /// Resolution of the namespace reports a failure.
    pub fn is_failed(&self) -> bool {
        match self.rule {
            UnpackRule::DeadlineExceeded | UnpackRule::Failed => true,
            UnpackRule::Starts | UnpackRule::Waits | UnpackRule::Retries | UnpackRule::Unpacked => false,
        }
    }
}

/// What the conditions of the Subscriptions of a namespace report of an image: an earlier process has begun with it, or failed. A failure is
/// tried again, and the time limit ends, when they would have without the end of that process.
pub fn reported_unpack(
    image: &str,
    subscriptions: &[Arc<Subscription>],
    settings: UnpackSettings,
    now: Timestamp,
) -> UnpackObserved {
    let report = |type_: &str, reason: &str| {
        let statuses = subscriptions.iter().filter_map(|it| it.status.as_ref());
        let is_it = |it: &&SubscriptionCondition| {
            it.type_ == type_
                && it.status == ConditionStatus::True
                && it.reason == reason
                && is_about(&it.message, image)
        };
        let found = statuses.flat_map(|status| &status.conditions).filter(is_it);
        let found = found.filter_map(|it| Some((it.last_transition_time.as_ref()?.0, it.message.as_str())));
        found.min_by_key(|(since, _)| *since)
    };
    if let Some((at, message)) = report("BundleUnpackFailed", "BundleUnpackFailed") {
        return UnpackObserved::Failed { at, message: problem(message, image).to_owned() };
    }
    // what took longer has failed, and is due again
    let is_current = |since| match settings.timeout {
        Some(timeout) => age(since, now) < timeout.saturating_add(settings.retry_interval),
        None => true,
    };
    match report("BundleUnpacking", "UnpackingInProgress") {
        Some((since, _)) if is_current(since) => UnpackObserved::Running { since, problem: None },
        Some(_) | None => UnpackObserved::NotStarted,
    }
}

/// Whether a message of [`decide_unpack`], or several of them, are about an image; the name of another one may begin with its own.
fn is_about(message: &str, image: &str) -> bool {
    [" ", ": "].iter().any(|end| message.contains(&format!("bundle image {image}{end}")))
}

/// The problem in the message of a failure, as it was when the image failed.
fn problem<'a>(message: &'a str, image: &str) -> &'a str {
    let begin = format!("bundle image {image} ");
    let text = message.find(&begin).map_or(message, |at| &message[at..]);
    let text = text.strip_prefix(&begin).and_then(|rest| rest.strip_prefix(CANNOT)).unwrap_or(text);
    text.split_once(AGAIN).map_or(text, |(text, _)| text)
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

/// What to do for a bundle that is an image.
pub fn decide_unpack(
    image: &str,
    observed: &UnpackObserved,
    settings: UnpackSettings,
    now: Timestamp,
) -> UnpackDecision {
    let (rule, next, message) = match observed {
        UnpackObserved::Unpacked => (UnpackRule::Unpacked, UnpackNext::Use, String::new()),
        UnpackObserved::NotStarted => {
            (UnpackRule::Starts, UnpackNext::Start, format!("bundle image {image} is about to be unpacked"))
        }
        UnpackObserved::Running { since, problem } => {
            let problem = problem.as_deref().unwrap_or("still running");
            match settings.timeout {
                Some(timeout) if age(*since, now) >= timeout => (
                    UnpackRule::DeadlineExceeded,
                    UnpackNext::Stop,
                    format!(
                        "bundle image {image} was not unpacked within {} s: {problem}; check the image and its pull \
                         secret, or set annotation {TIMEOUT} on the OperatorGroup",
                        timeout.as_secs()
                    ),
                ),
                _ => (
                    UnpackRule::Waits,
                    UnpackNext::Wait(REQUEUE),
                    format!("unpacking of bundle image {image}: {problem}"),
                ),
            }
        }
        UnpackObserved::Failed { at, message } => {
            let left = settings.retry_interval.saturating_sub(age(*at, now));
            if left.is_zero() {
                let message = format!("bundle image {image} is unpacked again after a failure: {message}");
                (UnpackRule::Retries, UnpackNext::Start, message)
            } else {
                let text = format!(
                    "bundle image {image} {CANNOT}{message}{AGAIN}{} s",
                    settings.retry_interval.as_secs()
                );
                (UnpackRule::Failed, UnpackNext::Wait(left), text)
            }
        }
    };
    UnpackDecision { rule, next, message }
}
