//! A leader whose apiserver refuses, does not answer, or has given the lease to another: it writes no more. The apiserver is played
//! here, because a real one cannot be made to stop answering. So is time: it passes when no task has anything to do, and a machine
//! that is slow changes nothing. Rule: operator-controller §7.2, decision 29.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in its helpers")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use olm_runtime::Shutdown;
use olm_runtime::leader::{Election, LeadershipLost, Moment, Timing, acquire, lead};
use olm_runtime::metrics::Metrics;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

const TIMING: Timing = Timing {
    lease: Duration::from_secs(8),
    renew: Duration::from_secs(4),
    retry: Duration::from_millis(100),
};
/// Longer than anything here may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Refuses,
    Silent,
}

/// An apiserver with one lease.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

struct State {
    mood: Mood,
    lease: Option<Value>,
    version: u64,
    reads: usize,
    writes: usize,
}

impl Server {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State { mood: Mood::Well, lease: None, version: 0, reads: 0, writes: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        Client::new(service, "n")
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let watches = request.uri().query().is_some_and(|query| query.contains("fieldSelector"));
        let mood = self.state().mood;
        if watches || mood == Mood::Silent {
            return std::future::pending().await;
        }
        if mood == Mood::Refuses {
            return status(StatusCode::INTERNAL_SERVER_ERROR, "etcdserver: leader changed");
        }
        if request.uri().path() == "/write" {
            return response(StatusCode::OK, &json!({}));
        }
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut state = self.state();
        if method == Method::GET {
            state.reads += 1;
            return match &state.lease {
                Some(lease) => response(StatusCode::OK, lease),
                None => status(StatusCode::NOT_FOUND, "there is no lease"),
            };
        }
        let mut lease: Value = serde_json::from_slice(&body).unwrap();
        if method == Method::PUT && state.lease.is_none() {
            return status(StatusCode::NOT_FOUND, "there is no lease");
        }
        let known = state.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        if known.is_some_and(|known| known != lease["metadata"]["resourceVersion"]) {
            return status(StatusCode::CONFLICT, "the object has been modified");
        }
        state.version += 1;
        state.writes += 1;
        lease["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.lease = Some(lease.clone());
        response(StatusCode::OK, &lease)
    }

    fn holder(&self) -> String {
        let lease = self.state().lease.clone().unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether a write of the leader's work reaches the apiserver.
    async fn takes_write(client: &Client) -> bool {
        let write = Request::post("/write").body(Body::empty()).unwrap();
        client.send(write).await.is_ok()
    }

    /// Another process writes the lease behind the leader's back.
    fn steal(&self) {
        let mut state = self.state();
        state.version += 1;
        let version = state.version.to_string();
        let lease = state.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = "thief".into();
        lease["metadata"]["resourceVersion"] = version.into();
    }

    async fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !reached(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
    }
}

fn response(code: StatusCode, value: &Value) -> Response<Body> {
    let mut answer = Response::new(Body::from(value.to_string().into_bytes()));
    *answer.status_mut() = code;
    answer
}

fn status(code: StatusCode, message: &str) -> Response<Body> {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        _ => "InternalError",
    };
    let value = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
        "code": code.as_u16(),
    });
    response(code, &value)
}

fn election(timing: Timing) -> Election {
    Election::new("l", "n".to_owned()).with_identity("me", timing)
}

/// Work that ends on request, and records when it runs and when it does not any more.
struct Work {
    running: Arc<AtomicBool>,
    end: Option<oneshot::Sender<()>>,
    led: tokio::task::JoinHandle<Result<(), LeadershipLost>>,
}

struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn leading(server: &Server) -> Work {
    let running = Arc::new(AtomicBool::new(false));
    let (end, ended) = oneshot::channel();
    let (client, flag) = (server.client(), Arc::clone(&running));
    let led = tokio::spawn(async move {
        let (metrics, stop) = (Metrics::new(), Shutdown::new());
        let work = async move {
            flag.store(true, Ordering::SeqCst);
            let _running = Running(flag);
            let _ = ended.await;
        };
        lead(client, Some(election(TIMING)), &metrics, &stop, work).await
    });
    server.until("leads", |server| server.holder() == "me").await;
    let work = Work { running, end: Some(end), led };
    server.until("works", |_| work.running.load(Ordering::SeqCst)).await;
    work
}

#[tokio::test(start_paused = true)]
async fn leader_renews_without_reading() {
    let server = Server::new();
    let work = leading(&server).await;
    let reads = server.state().reads;
    let writes = server.state().writes;
    server.until("renews", |server| server.state().writes > writes + 10).await;
    assert_eq!(server.state().reads, reads);
    drop(work);
}

/// A request that is never answered would keep the lease until the process is killed.
#[tokio::test(start_paused = true)]
async fn leader_releases_the_lease_if_its_work_does_not_end() {
    let server = Server::new();
    let (stop, client) = (Shutdown::new(), server.client());
    let stopping = stop.clone();
    let led = tokio::spawn(async move {
        let (metrics, work) = (Metrics::new(), std::future::pending());
        lead(client, Some(election(TIMING)), &metrics, &stopping, work).await
    });
    server.until("leads", |server| server.holder() == "me").await;
    stop.cancel();
    let since = Instant::now();
    let led = tokio::time::timeout(TEST_TIMEOUT, led).await.unwrap_or_else(|_| panic!("it never stops"));
    assert_eq!((led.unwrap(), server.holder()), (Ok(()), String::new()));
    let took = since.elapsed();
    assert!(took < Duration::from_secs(35), "{took:?} of the 45 s after which the process is killed");
}

async fn gives_up(mood: Mood) {
    let server = Server::new();
    let work = leading(&server).await;
    let before = server.state().writes;
    server.until("renews", |server| server.state().writes > before).await;
    server.state().mood = mood;
    let since = Instant::now();
    let led =
        tokio::time::timeout(TEST_TIMEOUT, work.led).await.unwrap_or_else(|_| panic!("{mood:?}: leads on"));
    assert_eq!(led.unwrap(), Err(LeadershipLost), "{mood:?}");
    let took = since.elapsed();
    assert!(!work.running.load(Ordering::SeqCst), "{mood:?}: the work continues");
    assert!(took < TIMING.lease, "{mood:?}: {took:?}, and others may take over after {:?}", TIMING.lease);
    assert!(took > TIMING.renew / 2, "{mood:?}: {took:?}; one failure is none yet");
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_ends_its_work_in_time() {
    tokio::join!(gives_up(Mood::Refuses), gives_up(Mood::Silent));
}

#[tokio::test(start_paused = true)]
async fn leader_keeps_the_lease_in_a_short_outage() {
    // a request that comes while the apiserver is silent is never answered
    for (mood, length) in [(Mood::Refuses, TIMING.retry * 5), (Mood::Silent, TIMING.renew / 4)] {
        let server = Server::new();
        let mut work = leading(&server).await;
        server.state().mood = mood;
        tokio::time::sleep(length).await; // the outage, not a wait for something
        server.state().mood = Mood::Well;
        let before = server.state().writes;
        server.until("renews again", |server| server.state().writes > before + 2).await;
        assert!(work.running.load(Ordering::SeqCst), "{mood:?}");
        work.end.take().unwrap().send(()).unwrap();
        let led = tokio::time::timeout(TEST_TIMEOUT, work.led).await.unwrap().unwrap();
        assert_eq!((led, server.holder().as_str()), (Ok(()), ""), "{mood:?}: released");
    }
}

#[tokio::test(start_paused = true)]
async fn leader_neither_keeps_nor_releases_a_lease_of_another() {
    let server = Server::new();
    let work = leading(&server).await;
    server.steal();
    let since = Instant::now();
    assert_eq!(tokio::time::timeout(TEST_TIMEOUT, work.led).await.unwrap().unwrap(), Err(LeadershipLost));
    assert!(!work.running.load(Ordering::SeqCst));
    assert!(
        since.elapsed() < TIMING.renew / 2,
        "it is noticed at the next renewal, not after {:?}",
        since.elapsed()
    );
    assert_eq!(server.holder(), "thief");

    // not noticed yet when it ends by itself
    let server = Server::new();
    let slow = election(Timing { retry: Duration::from_secs(3), ..TIMING });
    let leadership = acquire(server.client(), slow, &Metrics::new(), &Shutdown::new()).await.unwrap();
    server.steal();
    leadership.release().await;
    assert_eq!(server.holder(), "thief");
}

/// The clocks of this machine, which was suspended for some seconds that the monotonic clock did not count.
fn clock(suspended: &Arc<AtomicU64>) -> impl Fn() -> Moment + Send + Sync + 'static {
    let (suspended, booted) = (Arc::clone(suspended), Instant::now());
    move || {
        let monotonic = Instant::now();
        let boot = (monotonic - booted) + Duration::from_secs(suspended.load(Ordering::SeqCst));
        Moment { monotonic, boot, wall: SystemTime::UNIX_EPOCH + boot }
    }
}

#[tokio::test(start_paused = true)]
async fn leader_writes_nothing_after_losing_the_lease() {
    let server = Server::new();
    let election = election(TIMING);
    let client = election.client(&server.client());
    assert!(!Server::takes_write(&client).await, "it does not lead yet");
    let leadership = acquire(server.client(), election, &Metrics::new(), &Shutdown::new()).await.unwrap();
    assert!(Server::takes_write(&client).await);
    server.steal();
    let since = Instant::now();
    leadership.loss().cancelled().await;
    assert!(since.elapsed() < TIMING.renew / 2, "its last renewal would allow writes for longer");
    assert!(!Server::takes_write(&client).await, "another may lead already");
}

#[tokio::test(start_paused = true)]
async fn leader_writes_nothing_after_the_release() {
    let server = Server::new();
    let election = election(TIMING);
    let client = election.client(&server.client());
    let leadership = acquire(server.client(), election, &Metrics::new(), &Shutdown::new()).await.unwrap();
    leadership.release().await;
    assert_eq!(server.holder(), "");
    assert!(!Server::takes_write(&client).await);
}

#[tokio::test(start_paused = true)]
async fn leader_writes_nothing_after_a_suspend() {
    let server = Server::new();
    let suspended = Arc::new(AtomicU64::new(0));
    let election = election(TIMING).with_clock(clock(&suspended));
    let client = election.client(&server.client());
    let leadership = acquire(server.client(), election, &Metrics::new(), &Shutdown::new()).await.unwrap();
    assert!(Server::takes_write(&client).await);
    suspended.fetch_add(300, Ordering::SeqCst);
    assert!(!Server::takes_write(&client).await, "another may have led for minutes");
    let before = server.state().writes;
    server.until("renews", |server| server.state().writes > before).await;
    tokio::time::sleep(TIMING.retry / 2).await; // until it has the answer
    assert!(Server::takes_write(&client).await, "no replica took the lease");
    suspended.fetch_add(300, Ordering::SeqCst);
    server.state().lease = None;
    leadership.loss().cancelled().await;
    assert!(server.state().lease.is_none(), "another may have led, and its lease was deleted");
}

#[tokio::test(start_paused = true)]
async fn leader_keeps_a_lease_that_was_deleted() {
    let server = Server::new();
    let mut work = leading(&server).await;
    server.state().lease = None;
    server.until("creates it again", |server| server.holder() == "me").await;
    assert!(work.running.load(Ordering::SeqCst));
    work.end.take().unwrap().send(()).unwrap();
    assert_eq!(tokio::time::timeout(TEST_TIMEOUT, work.led).await.unwrap().unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn standby_waits_after_the_lease_was_deleted() {
    let server = Server::new();
    let spec = json!({"holderIdentity": "other", "leaseDurationSeconds": TIMING.lease.as_secs()});
    server.state().lease = Some(json!({"metadata": {"name": "l", "resourceVersion": "1"}, "spec": spec}));
    let client = server.client();
    let standby = election(TIMING).with_identity("standby", TIMING);
    let acquired =
        tokio::spawn(
            async move { acquire(client, standby, &Metrics::new(), &Shutdown::new()).await.map(drop) },
        );
    tokio::time::sleep(TIMING.lease / 2).await; // it sees the lease
    server.state().lease = None;
    let since = Instant::now();
    acquired.await.unwrap().unwrap();
    let took = since.elapsed();
    assert!(took >= TIMING.lease, "{took:?}: the holder may still write");
    assert!(took < TIMING.lease + TIMING.retry * 5, "{took:?}");
}

/// A request over a connection that is dead is never answered.
#[tokio::test(start_paused = true)]
async fn standby_retries_requests_without_an_answer() {
    let server = Server::new();
    // released, so the first attempt that is answered takes it
    let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1});
    server.state().lease = Some(json!({"metadata": {"name": "l", "resourceVersion": "1"}, "spec": spec}));
    server.state().mood = Mood::Silent;
    let (client, since) = (server.client(), Instant::now());
    let acquired = tokio::spawn(async move {
        acquire(client, election(TIMING), &Metrics::new(), &Shutdown::new()).await.map(drop)
    });
    tokio::time::sleep(TIMING.retry).await; // its first request is sent
    server.state().mood = Mood::Well;
    let acquired = tokio::time::timeout(TEST_TIMEOUT, acquired).await;
    acquired.unwrap_or_else(|_| panic!("it waits for the answer")).unwrap().unwrap();
    let took = since.elapsed();
    assert!(took < TIMING.renew / 2 + TIMING.retry * 5, "{took:?}");
}

/// A process that starts after the deletion finds the cluster like one in which none has ever led.
#[tokio::test(start_paused = true)]
async fn process_waits_for_a_lease_that_it_has_not_seen() {
    let start = async |server: &Server| {
        let newcomer = election(TIMING).with_identity("newcomer", TIMING);
        let (metrics, never) = (Metrics::new(), Shutdown::new());
        let acquired = acquire(server.client(), newcomer, &metrics, &never);
        tokio::time::timeout(TIMING.lease * 2, acquired).await.ok().flatten()
    };
    // the holder reaches the apiserver, and creates the lease again
    let server = Server::new();
    let work = leading(&server).await;
    server.state().lease = None;
    assert!(start(&server).await.is_none(), "two lead");
    assert!(work.running.load(Ordering::SeqCst));
    assert_eq!(server.holder(), "me");

    // the holder does not reach it, and may write until it gives up
    let (server, reached) = (Server::new(), Server::new());
    let holder = election(TIMING);
    let client = holder.client(&server.client());
    let leadership = acquire(server.client(), holder, &Metrics::new(), &Shutdown::new()).await.unwrap();
    server.state().mood = Mood::Refuses;
    let since = Instant::now();
    assert!(start(&reached).await.is_some(), "none leads");
    let took = since.elapsed();
    assert!(took < TIMING.renew + TIMING.retry * 5, "{took:?}");
    server.state().mood = Mood::Well;
    assert!(!Server::takes_write(&client).await, "two write");
    drop(leadership);
}
