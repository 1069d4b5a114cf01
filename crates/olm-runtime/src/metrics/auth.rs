//! The access check of `/metrics` and `/debug/pprof`: a bearer token that TokenReview knows and whose user SubjectAccessReview allows.
//!
//! Verdicts are remembered for a while, by the token's hash, so that a scraper does not cost two requests each time.
//!
//! Rule: catalogd §10, decision 27 (a wrong token gives 401).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

const ALLOWED_FOR: Duration = Duration::from_secs(300);
const DENIED_FOR: Duration = Duration::from_secs(30);
/// How many tokens are remembered; when full, all are evicted.
const MAX_REMEMBERED: usize = 1024;

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
    Authentication(ReviewError),
    Authorization(String, ReviewError),
}

pub(crate) struct Gate<R> {
    reviews: R,
    path: &'static str,
    known: Mutex<HashMap<[u8; 32], (Instant, Decision)>>,
}

impl<R: Reviews> Gate<R> {
    pub(crate) fn new(reviews: R, path: &'static str) -> Self {
        Self { reviews, path, known: Mutex::default() }
    }

    pub(crate) async fn decision(&self, token: &str, now: Instant) -> Result<Decision, AccessError> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(decision) = self.remembered(&key, now) {
            return Ok(decision);
        }
        let decision = match self.reviews.user(token).await.map_err(AccessError::Authentication)? {
            None => Decision::Unknown,
            Some(user) => match self.reviews.may_get(&user, self.path).await {
                Ok(true) => Decision::Allowed,
                Ok(false) => Decision::Denied(user.username.unwrap_or_default()),
                Err(error) => {
                    return Err(AccessError::Authorization(user.username.unwrap_or_default(), error));
                }
            },
        };
        let mut known = self.known.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(key, (now + decision.lasts(), decision.clone()));
        Ok(decision)
    }

    fn remembered(&self, key: &[u8; 32], now: Instant) -> Option<Decision> {
        let known = self.known.lock();
        known.get(key).filter(|(until, _)| *until > now).map(|(_, decision)| decision.clone())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Knows the tokens `good`, `poor` (may not) and `unsure` (authorisation fails); `down` always fails.
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
        for n in 0..3000 {
            gate.decision(&format!("token {n}"), now).await.unwrap();
        }
        assert!(gate.known.lock().len() <= MAX_REMEMBERED);
        for _ in 0..2 {
            assert!(matches!(gate.decision("down", now).await, Err(AccessError::Authentication(_))));
            assert!(matches!(gate.decision("unsure", now).await, Err(AccessError::Authorization(_, _))));
        }
        assert_eq!(reviews.asked.load(Ordering::Relaxed), 3004);
    }
}
