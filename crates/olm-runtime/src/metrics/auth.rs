//! The access check of `/metrics` and `/debug/pprof`: a bearer token that TokenReview knows and whose user SubjectAccessReview allows.
//!
//! Decisions are cached for a while, by the token's hash, so that a scraper does not cost two requests each time. Reviews are bounded, so
//! that a client with many wrong tokens does not pass them on to the apiserver; requests that do not get their turn are refused.
//!
//! Rule: catalogd §10, decision 27 (a wrong token gives 401).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const ALLOWED_FOR: Duration = Duration::from_secs(300);
const DENIED_FOR: Duration = Duration::from_secs(30);
/// How many tokens are remembered; when full, those that are not allowed are evicted, then all.
const MAX_REMEMBERED: usize = 1024;
/// Requests whose reviews are made at the same time.
const MAX_REVIEWS: usize = 8;
/// How long a request waits for its turn, and how long its reviews may take.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// A review could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReviewError(pub String);

/// The two questions to the cluster; a seam for tests.
pub trait Reviews: Send + Sync {
    /// Whose token this is; `None` if it is no good.
    fn user(&self, token: &str) -> impl Future<Output = Result<Option<UserInfo>, ReviewError>> + Send;
    /// Whether the user may `get` the path.
    fn may_get(&self, user: &UserInfo, path: &str) -> impl Future<Output = Result<bool, ReviewError>> + Send;
}

/// Asks the apiserver.
#[derive(Clone)]
pub struct KubeReviews(pub kube::Client);

impl Reviews for KubeReviews {
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let answer = Api::<TokenReview>::all(self.0.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| ReviewError(crate::error_text::chain(&error)))?;
        let status = answer.status.filter(|status| status.authenticated == Some(true));
        Ok(status.map(|status| status.user.unwrap_or_default()))
    }

    async fn may_get(&self, user: &UserInfo, path: &str) -> Result<bool, ReviewError> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                uid: user.uid.clone().filter(|uid| !uid.is_empty()),
                groups: user.groups.clone(),
                extra: user.extra.clone(),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = Api::<SubjectAccessReview>::all(self.0.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| ReviewError(crate::error_text::chain(&error)))?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    /// the token is no good
    Unknown,
    /// the user may not
    Denied(String),
}

impl Decision {
    fn lasts(&self) -> Duration {
        match self {
            Self::Allowed => ALLOWED_FOR,
            Self::Unknown | Self::Denied(_) => DENIED_FOR,
        }
    }
}

/// Why there is no decision.
#[derive(Debug)]
pub(crate) enum AccessError {
    /// The reviews of other requests took too long.
    Busy,
    Authentication(ReviewError),
    Authorization(String, ReviewError),
}

impl AccessError {
    fn log(&self, is_repeated: bool) {
        const TEXT: &str = "cannot authenticate or authorize requests for metrics or profiles";
        let (user, error) = match self {
            Self::Busy => return,
            Self::Authentication(error) => (None, error),
            Self::Authorization(user, error) => (Some(user.as_str()), error),
        };
        if is_repeated {
            tracing::debug!(user, %error, "{TEXT}");
        } else {
            tracing::warn!(user, %error, "{TEXT}");
        }
    }
}

pub(crate) struct Gate<R> {
    reviews: R,
    path: &'static str,
    known: Mutex<HashMap<[u8; 32], (Instant, Decision)>>,
    turns: Semaphore,
    /// The last review failed. Further failures are not worth a line each: any client can cause them.
    is_failing: AtomicBool,
}

impl<R: Reviews> Gate<R> {
    pub(crate) fn new(reviews: R, path: &'static str) -> Self {
        let turns = Semaphore::new(MAX_REVIEWS);
        Self { reviews, path, known: Mutex::default(), turns, is_failing: AtomicBool::default() }
    }

    pub(crate) async fn decision(&self, token: &str, now: Instant) -> Result<Decision, AccessError> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(decision) = self.remembered(&key, now) {
            return Ok(decision);
        }
        let Ok(Ok(_turn)) = timeout(TURN_TIMEOUT, self.turns.acquire()).await else {
            return Err(AccessError::Busy);
        };
        // another request with this token had its turn before
        if let Some(decision) = self.remembered(&key, now) {
            return Ok(decision);
        }
        let reviewed = timeout(REVIEW_TIMEOUT, self.review(token)).await.unwrap_or_else(|_| {
            let late = format!("no answer from the apiserver within {} s", REVIEW_TIMEOUT.as_secs());
            Err(AccessError::Authentication(ReviewError(late)))
        });
        let is_repeated = self.is_failing.swap(reviewed.is_err(), Ordering::Relaxed);
        let decision = reviewed.inspect_err(|error| error.log(is_repeated))?;
        let mut known = self.known.lock();
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, (until, decision)| *until > now && *decision == Decision::Allowed);
            if known.len() >= MAX_REMEMBERED {
                known.clear();
            }
        }
        known.insert(key, (now + decision.lasts(), decision.clone()));
        Ok(decision)
    }

    async fn review(&self, token: &str) -> Result<Decision, AccessError> {
        let Some(user) = self.reviews.user(token).await.map_err(AccessError::Authentication)? else {
            return Ok(Decision::Unknown);
        };
        let name = user.username.clone().unwrap_or_default();
        match self.reviews.may_get(&user, self.path).await {
            Ok(true) => Ok(Decision::Allowed),
            Ok(false) => Ok(Decision::Denied(name)),
            Err(error) => Err(AccessError::Authorization(name, error)),
        }
    }

    fn remembered(&self, key: &[u8; 32], now: Instant) -> Option<Decision> {
        let known = self.known.lock();
        known.get(key).filter(|(until, _)| *until > now).map(|(_, decision)| decision.clone())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Knows the tokens `good`, `poor` (may not) and `unsure` (authorisation fails); `down` always fails, and `silent…` gets no answer.
    #[derive(Clone, Default)]
    pub(crate) struct FakeReviews {
        pub(crate) asked: Arc<AtomicUsize>,
    }

    impl Reviews for FakeReviews {
        async fn user(&self, token: &str) -> Result<Option<UserInfo>, ReviewError> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let user =
                |name: &str| Ok(Some(UserInfo { username: Some(name.to_owned()), ..UserInfo::default() }));
            match token {
                "good" | "poor" | "unsure" => user(token),
                "down" => Err(ReviewError("apiserver is away".to_owned())),
                token if token.starts_with("silent") => std::future::pending().await,
                _ => Ok(None),
            }
        }

        async fn may_get(&self, user: &UserInfo, path: &str) -> Result<bool, ReviewError> {
            assert!(path == "/metrics" || path.starts_with("/debug/pprof/"), "{path}");
            match user.username.as_deref() {
                Some("unsure") => Err(ReviewError("apiserver is away".to_owned())),
                name => Ok(name == Some("good")),
            }
        }
    }

    #[tokio::test]
    async fn metrics_access_decisions_are_cached_for_a_while() {
        let reviews = FakeReviews::default();
        let gate = Gate::new(reviews.clone(), "/metrics");
        let start = Instant::now();
        for (token, lasts) in [("good", 300), ("poor", 30), ("wrong", 30)] {
            let before = reviews.asked.load(Ordering::Relaxed);
            let asked_at = |seconds: u64| {
                let (gate, reviews) = (&gate, &reviews);
                async move {
                    gate.decision(token, start + Duration::from_secs(seconds)).await.unwrap();
                    reviews.asked.load(Ordering::Relaxed) - before
                }
            };
            assert_eq!(asked_at(0).await, 1, "{token}");
            assert_eq!(asked_at(lasts - 1).await, 1, "{token}");
            assert_eq!(asked_at(lasts).await, 2, "{token}");
        }
    }

    #[tokio::test]
    async fn metrics_access_cache_is_bounded_and_without_failures() {
        let reviews = FakeReviews::default();
        let gate = Gate::new(reviews.clone(), "/metrics");
        let now = Instant::now();
        gate.decision("good", now).await.unwrap();
        for n in 0..3000 {
            gate.decision(&format!("token {n}"), now).await.unwrap();
        }
        assert!(gate.known.lock().len() <= MAX_REMEMBERED);
        gate.decision("good", now).await.unwrap();
        for _ in 0..2 {
            assert!(matches!(gate.decision("down", now).await, Err(AccessError::Authentication(_))));
            assert!(matches!(gate.decision("unsure", now).await, Err(AccessError::Authorization(_, _))));
        }
        assert_eq!(reviews.asked.load(Ordering::Relaxed), 3005, "wrong tokens evict no scraper");
    }

    #[tokio::test]
    async fn metrics_access_failures_are_logged_once() {
        let gate = Gate::new(FakeReviews::default(), "/metrics");
        let now = Instant::now();
        let (logged, _guard) =
            testing::logged(|metadata| *metadata.level() == tracing::Level::WARN, &["message"]);
        for (token, want) in
            [("down", 1), ("down", 1), ("unsure", 1), ("wrong", 1), ("unsure", 2), ("down", 2)]
        {
            let _ = gate.decision(token, now).await;
            assert_eq!(logged.lock().len(), want, "{token}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_access_reviews_are_bounded() {
        let reviews = FakeReviews::default();
        let gate = Gate::new(reviews.clone(), "/metrics");
        let (now, begun) = (Instant::now(), tokio::time::Instant::now());
        let ask = |n: usize| {
            let gate = &gate;
            async move { (gate.decision(&format!("silent {n}"), now).await, begun.elapsed().as_secs()) }
        };
        let answers = futures::future::join_all((0..50).map(ask)).await;
        assert_eq!(reviews.asked.load(Ordering::Relaxed), MAX_REVIEWS);
        let busy = answers.iter().filter(|it| matches!(it, (Err(AccessError::Busy), 5))).count();
        let late =
            answers.iter().filter(|it| matches!(it, (Err(AccessError::Authentication(_)), 10))).count();
        assert_eq!((busy, late), (50 - MAX_REVIEWS, MAX_REVIEWS));
        // then there are turns again, and one review serves all that ask with the same token
        let same = futures::future::join_all((0..50).map(|_| gate.decision("good", now))).await;
        assert!(same.iter().all(|it| matches!(it, Ok(Decision::Allowed))));
        assert!(reviews.asked.load(Ordering::Relaxed) <= 2 * MAX_REVIEWS);
    }
}
