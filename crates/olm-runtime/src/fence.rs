//! Writes are for the leader, up to the last moment: a client whose writes are refused when the lease was not renewed in time.
//!
//! A process that was frozen goes on where it stopped, in the middle of its work, before anything can tell it that another one
//! leads by now. So each write asks the clock, not a signal. Reading is free to all.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::BoxError;

/// Until when this process may write; it may not at all as long as nothing was said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fence(Arc<Mutex<Option<Instant>>>);

/// A write that came too late, or too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is written: this process does not lead, or could not renew its lease in time")]
struct NotLeader;

impl Fence {
    /// Writes are allowed until then.
    pub(crate) fn open_until(&self, end: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    fn check(&self, method: &Method, now: Instant) -> Result<(), NotLeader> {
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if end.is_some_and(|end| now < end) { Ok(()) } else { Err(NotLeader) }
    }

    /// The same connections, for the leader's work.
    pub(crate) fn client(&self, client: &Client) -> Client {
        let (fence, client, namespace) =
            (self.clone(), client.clone(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (fence, client) = (fence.clone(), client.clone());
            async move {
                fence.check(request.method(), Instant::now())?;
                Ok::<_, BoxError>(client.send(request).await?)
            }
        });
        Client::new(service, namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn writes_are_refused_before_and_after_the_time_and_reads_never() {
        let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let fence = Fence::default();
        let all = |now| writes.clone().map(|method| fence.check(&method, now));
        assert_eq!(all(at(0)), [Err(NotLeader); 4], "before the lease is ours");
        fence.open_until(at(10));
        assert_eq!(all(at(9)), [Ok(()); 4]);
        assert_eq!(all(at(10)), [Err(NotLeader); 4], "not renewed in time");
        fence.open_until(at(12));
        assert_eq!(all(at(11)), [Ok(()); 4], "renewed");
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(fence.check(&method, at(100)), Ok(()));
        }
    }

    #[tokio::test]
    async fn a_refused_write_does_not_reach_the_apiserver() -> kube::Result<()> {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        let server = tower::service_fn(move |request: Request<Body>| {
            record.lock().unwrap_or_else(PoisonError::into_inner).push(request.method().clone());
            async { Ok::<_, BoxError>(http::Response::new(Body::from(b"{}".to_vec()))) }
        });
        let fence = Fence::default();
        let client = fence.client(&Client::new(server, "default"));
        let post = || Request::post("/x").body(Body::empty()).map_err(kube::Error::HttpError);
        let refused = client.send(post()?).await.err().map(|error| crate::error_text::chain(&error));
        assert!(refused.is_some_and(|text| text.contains("does not lead")));
        client.send(Request::get("/x").body(Body::empty()).map_err(kube::Error::HttpError)?).await?;
        fence.open_until(Instant::now() + Duration::from_secs(60));
        client.send(post()?).await?;
        assert_eq!(*asked.lock().unwrap_or_else(PoisonError::into_inner), [Method::GET, Method::POST]);
        Ok(())
    }
}
