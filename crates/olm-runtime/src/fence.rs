//! Writes are for the leader, up to the last moment: a client whose writes are refused when the lease was not renewed in time.
//!
//! A process that was frozen continues where it stopped, in the middle of its work, before it can learn that another one
//! leads by now. So each write checks the clock, not a signal. Reading is free to all.
//!
//! One clock is not enough. The monotonic clock stands still while the machine is suspended; `CLOCK_BOOTTIME` counts that time. Both
//! stand still in a virtual machine that its host stops or restores from a snapshot; the wall clock is then the first to be set
//! right. So a write must be in time by all three. A wall clock that is set forward closes the fence, and one that is set back behind
//! the last renewal closes it too, because it no longer shows how long ago that was; neither ever extends the time, and the next
//! renewal (after two seconds) opens the fence again. What no clock shows is a stop of the whole machine after which its clocks are
//! not set: only the next renewal finds out then.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use http::{Method, Request};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;

use crate::client::{self, ClientError, ConnectionTask};
use crate::metrics::Metrics;

/// A moment, by each clock of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Stands still while the machine is suspended.
    pub monotonic: Instant,
    /// Since the machine was booted, the time in which it was suspended included.
    pub boot: Duration,
    /// Can be set.
    pub wall: SystemTime,
}

impl Moment {
    /// The present.
    pub fn now() -> Self {
        Self { monotonic: Instant::now(), boot: since_boot(), wall: SystemTime::now() }
    }

    /// Whether less than `limit` has passed since `earlier`, by all clocks. A clock that was set back does not count as that.
    fn is_within(self, earlier: Self, limit: Duration) -> bool {
        let passed = [
            self.monotonic.checked_duration_since(earlier.monotonic),
            self.boot.checked_sub(earlier.boot),
            self.wall.duration_since(earlier.wall).ok(),
        ];
        passed.into_iter().all(|passed| passed.is_some_and(|passed| passed < limit))
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

/// Elsewhere only the command line runs, which leads nothing.
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    Duration::ZERO
}

/// Reads the clocks; a test plays them.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    pub(crate) fn new(read: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

/// Until when this process may write.
#[derive(Clone)]
pub(crate) struct Fence {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// This process has not led yet.
    Unopened,
    /// Writes are allowed for `limit` since the lease was renewed.
    Open { renewed: Moment, limit: Duration },
    /// The lease was lost or released.
    Closed,
}

/// A write that came too late, or too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is written: this process does not lead, or could not renew its lease in time")]
struct NotLeader;

impl Default for Fence {
    fn default() -> Self {
        Self::with_clock(Clock::new(Moment::now))
    }
}

impl Fence {
    pub(crate) fn with_clock(clock: Clock) -> Self {
        Self { state: Arc::new(Mutex::new(State::Unopened)), clock }
    }

    /// The present, by the clocks that writes are checked against.
    pub(crate) fn now(&self) -> Moment {
        (self.clock.0)()
    }

    /// Writes are allowed for `limit` since the lease was renewed.
    pub(crate) fn open(&self, renewed: Moment, limit: Duration) {
        self.set(State::Open { renewed, limit });
    }

    /// Writes are refused from now on.
    pub(crate) fn close(&self) {
        self.set(State::Closed);
    }

    fn set(&self, state: State) {
        *self.state.lock() = state;
    }

    /// The state now: open only if the lease was renewed in time.
    fn state(&self) -> State {
        let state = *self.state.lock();
        // the clock is read after the renewal that it is compared with
        match state {
            State::Open { renewed, limit } if !self.now().is_within(renewed, limit) => State::Closed,
            state => state,
        }
    }

    /// Whether writes are allowed now.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state(), State::Open { .. })
    }

    fn check(&self, method: &Method) -> Result<(), NotLeader> {
        let allowed = matches!(*method, Method::GET | Method::HEAD) || self.is_open();
        if allowed { Ok(()) } else { Err(NotLeader) }
    }

    /// A client for the leader's work, with connections of its own.
    ///
    /// # Errors
    /// As [`client::client`].
    pub(crate) fn connect(&self, config: Config, metrics: &Metrics) -> Result<Client, ClientError> {
        Ok(self.client(&client::client_on(config, metrics, ConnectionTasks(self.clone()))?))
    }

    /// The same connections, for the leader's work.
    pub(crate) fn client(&self, client: &Client) -> Client {
        let (fence, client, namespace) =
            (self.clone(), client.clone(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (fence, client) = (fence.clone(), client.clone());
            async move {
                fence.check(request.method())?;
                Ok::<_, BoxError>(client.send(request).await?)
            }
        });
        Client::new(service, namespace)
    }
}

/// Runs connections until the fence closes.
#[derive(Clone)]
struct ConnectionTasks(Fence);

impl hyper::rt::Executor<ConnectionTask> for ConnectionTasks {
    fn execute(&self, mut task: ConnectionTask) {
        let fence = self.0.clone();
        tokio::spawn(std::future::poll_fn(move |context| match fence.state() {
            State::Closed => Poll::Ready(()),
            State::Unopened | State::Open { .. } => task.as_mut().poll(context),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A fence, and the clocks that it reads: seconds since `start`.
    fn fence() -> (Fence, Moment, Arc<Mutex<Moment>>) {
        let start = Moment {
            monotonic: Instant::now(),
            boot: Duration::from_secs(1_000),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000),
        };
        let played = Arc::new(Mutex::new(start));
        let read = Arc::clone(&played);
        (Fence::with_clock(Clock::new(move || *read.lock())), start, played)
    }

    fn later(start: Moment, seconds: u64) -> Moment {
        let passed = Duration::from_secs(seconds);
        Moment { monotonic: start.monotonic + passed, boot: start.boot + passed, wall: start.wall + passed }
    }

    #[test]
    fn fence_rejects_writes_outside_of_the_time_and_no_reads() {
        let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let (fence, start, now) = fence();
        let all = |seconds| {
            *now.lock() = later(start, seconds);
            writes.clone().map(|method| fence.check(&method))
        };
        assert_eq!(all(0), [Err(NotLeader); 4], "before the lease is ours");
        fence.open(start, LIMIT);
        assert_eq!(all(9), [Ok(()); 4]);
        assert_eq!(all(10), [Err(NotLeader); 4], "not renewed in time");
        fence.open(later(start, 2), LIMIT);
        assert_eq!(all(11), [Ok(()); 4], "renewed");
        fence.close();
        assert_eq!(all(11), [Err(NotLeader); 4], "lost");
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(fence.check(&method), Ok(()));
        }
    }

    #[test]
    fn fence_counts_by_every_clock() {
        let (fence, start, now) = fence();
        fence.open(start, LIMIT);
        let hour = Duration::from_secs(3_600);
        let at = later(start, 5);
        for (moment, open, case) in [
            (at, true, "all clocks agree"),
            (Moment { monotonic: at.monotonic + LIMIT, ..at }, false, "late by the monotonic clock"),
            (Moment { boot: at.boot + hour, ..at }, false, "the machine was suspended"),
            (
                Moment { boot: at.boot + hour, wall: at.wall - hour, ..at },
                false,
                "and its wall clock set back",
            ),
            (Moment { wall: at.wall + hour, ..at }, false, "the host stopped the machine and set its clock"),
            (Moment { wall: start.wall - hour, ..at }, false, "the wall clock was set back"),
            (Moment { wall: start.wall - hour, ..later(start, 11) }, false, "that extends nothing"),
            (Moment { wall: at.wall - Duration::from_secs(4), ..at }, true, "not behind the renewal"),
        ] {
            *now.lock() = moment;
            assert_eq!(fence.is_open(), open, "{case}");
        }
        *now.lock() = Moment { wall: at.wall - hour, ..at };
        fence.open(fence.now(), LIMIT);
        assert!(fence.is_open(), "the next renewal counts from the clocks as they are");
    }

    #[test]
    fn fence_reads_clocks_that_run() {
        let before = Moment::now();
        let after = Moment::now();
        assert!(before.boot > Duration::ZERO && after.boot >= before.boot);
        assert!(after.is_within(before, LIMIT));
    }

    #[tokio::test]
    async fn fence_keeps_rejected_writes_from_the_apiserver() -> kube::Result<()> {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        let server = crate::testing::client(move |request| {
            record.lock().push(request.method().clone());
            std::future::ready((200, serde_json::json!({})))
        });
        let fence = Fence::default();
        let client = fence.client(&server);
        let post = || Request::post("/x").body(Body::empty()).map_err(kube::Error::HttpError);
        let refused = client.send(post()?).await.err().map(|error| crate::error_text::chain(&error));
        assert!(refused.is_some_and(|text| text.contains("does not lead")));
        client.send(Request::get("/x").body(Body::empty()).map_err(kube::Error::HttpError)?).await?;
        fence.open(fence.now(), Duration::from_secs(60));
        client.send(post()?).await?;
        assert_eq!(*asked.lock(), [Method::GET, Method::POST]);
        Ok(())
    }

    /// What a write meets that was allowed and waits while the process is frozen: only the connection's task is in its way.
    #[tokio::test]
    async fn connection_ends_when_the_lease_was_not_renewed_in_time() {
        crate::tls::install_provider();
        let (fence, start, now) = fence();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        let answer = async move |request: axum::extract::Request| {
            record.lock().push(request.uri().path().to_owned());
            "{}"
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(axum::serve(listener, axum::Router::new().fallback(answer)).into_future());
        let tasks = ConnectionTasks(fence.clone());
        let client = client::client_on(Config::new(url), &Metrics::new(), tasks).unwrap();
        let post = |path: &str| client.send(Request::post(path).body(Body::from(b"{}".to_vec())).unwrap());

        post("/unopened").await.unwrap();
        fence.open(start, LIMIT);
        post("/open").await.unwrap();
        *now.lock() = later(start, 10);
        post("/late").await.unwrap_err();
        fence.open(later(start, 10), LIMIT);
        post("/renewed").await.unwrap();
        fence.close();
        post("/closed").await.unwrap_err();
        assert_eq!(*asked.lock(), ["/unopened", "/open", "/renewed"]);
    }
}
