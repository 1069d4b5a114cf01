//! The version of the cluster and the APIs that it serves, for bundles that need some (decision 34): read when the process starts, when
//! a watch was interrupted, and now and then. Passes read nothing.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kube::Client;
use olm_install::cluster;
use olm_resolver::ClusterFacts;
use tokio::sync::watch;

/// The wait between two attempts to reach the cluster.
const RETRY: Duration = Duration::from_secs(2);

/// What is known about the cluster. Cheap to clone.
#[derive(Clone, Default)]
pub struct Cluster(Arc<watch::Sender<Option<Arc<ClusterFacts>>>>);

impl Cluster {
    /// A cluster of which nothing is known, so that every bundle fits it.
    #[must_use]
    pub fn unknown() -> Self {
        Self(Arc::new(watch::Sender::new(Some(Arc::default()))))
    }

    /// As it was read last.
    #[must_use]
    pub fn facts(&self) -> Arc<ClusterFacts> {
        self.0.borrow().clone().unwrap_or_default()
    }

    /// Returns when it was read once: until then a bundle would be chosen that does not fit.
    pub async fn wait_until_read(&self) {
        // the sender lives as long as `self`
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// An item whenever another version or other APIs were read, after `facts` has them.
    pub fn changes(&self) -> BoxStream<'static, ()> {
        let changes = stream::unfold(self.0.subscribe(), |mut facts| async move {
            facts.changed().await.ok()?;
            Some(((), facts))
        });
        changes.boxed()
    }

    /// Reads it until it is dropped: first, after each interruption of a watch, and whenever the interval has passed.
    pub async fn follow(
        &self,
        client: &Client,
        mut interruptions: watch::Receiver<u64>,
        interval: Duration,
    ) -> Infallible {
        loop {
            interruptions.mark_unchanged();
            match cluster::facts(client).await {
                Ok(facts) => self.put(facts),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the version and the APIs of the cluster");
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

    fn put(&self, facts: ClusterFacts) {
        self.0.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&facts);
            if is_new {
                let version = facts.version.map(|version| version.to_string());
                let apis = facts.apis.as_ref().map(BTreeSet::len);
                tracing::info!(version, apis, "read the version and the APIs of the cluster");
                *known = Some(Arc::new(facts));
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    /// An apiserver of this version that serves nothing but its version, or does not answer; and when it was asked for its version.
    fn apiserver(version: Arc<Mutex<Option<&'static str>>>) -> (Client, Arc<Mutex<Vec<u64>>>) {
        let (asked, start) = (Arc::<Mutex<Vec<u64>>>::default(), Instant::now());
        let times = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let version = *version.lock();
            let is_version = request.uri().path() == "/version";
            if is_version {
                times.lock().push(start.elapsed().as_secs());
            }
            let (code, answer): (_, Value) = match version {
                Some(version) if is_version => {
                    let info = json!({"major": "1", "minor": "33", "gitVersion": version, "gitCommit": "", "gitTreeState": "",
                        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
                    (StatusCode::OK, info)
                }
                Some(_) => (StatusCode::NOT_FOUND, json!({"kind": "Status", "code": 404})),
                None => (StatusCode::SERVICE_UNAVAILABLE, json!({"kind": "Status", "code": 503})),
            };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = code;
            async { Ok::<_, Infallible>(response) }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_is_read_after_an_interruption_and_now_and_then() {
        let version = Arc::new(Mutex::new(None));
        let (client, asked) = apiserver(Arc::clone(&version));
        let interrupted = watch::Sender::new(0);
        let cluster = Cluster::default();
        let mut changes = cluster.changes();
        let script = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            *version.lock() = Some("v1.33.1");
            cluster.wait_until_read().await;
            changes.next().await;
            assert_eq!(cluster.facts().version.map(|version| version.to_string()).as_deref(), Some("1.33.1"));
            assert_eq!(cluster.facts().apis, None, "it does not say");
            // the same again is no change
            tokio::time::sleep(Duration::from_secs(601)).await;
            *version.lock() = Some("v1.34.0");
            interrupted.send_replace(1);
            changes.next().await;
            assert_eq!(cluster.facts().version.map(|version| version.minor), Some(34));
        };
        let interval = Duration::from_secs(300);
        tokio::select! {
            () = script => {}
            never = cluster.follow(&client, interrupted.subscribe(), interval) => match never {},
        }
        // twice in vain, then when it answers; after each interval; and at the interruption
        assert_eq!(*asked.lock(), [0, 2, 4, 304, 604, 605]);
    }
}
