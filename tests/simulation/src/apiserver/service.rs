//! The server as a tower service: latency and faults around the store, and watches as streams.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::Value;
use tokio::time::sleep;
use tower::{BoxError, Service};

use super::request::Call;
use super::status::Status;
use super::store::{Reply, text};
use super::watch::{Next, Watch};
use super::{ApiServer, InjectedError, Request as Record, USER};

/// Where the requests of one process arrive.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) server: ApiServer,
    pub(crate) process: String,
}

type HttpResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl Service<Request<Body>> for Endpoint {
    type Response = HttpResponse;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().respond(request))
    }
}

fn reset() -> BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer").into()
}

impl Endpoint {
    async fn respond(self, request: Request<Body>) -> Result<HttpResponse, BoxError> {
        let (head, body) = request.into_parts();
        let sent = self.server.elapsed();
        let text = body.collect_bytes().await?;
        let body = if text.is_empty() { Some(Value::Null) } else { serde_json::from_slice(&text).ok() };
        let mut call = Call::new(sent, &self.process, &head, body);
        let Self { server, process } = self;
        let breaks = server.state().faults.breaks(&process);
        server.pause(&process).await;
        server.unless_ended(&process).await;
        let fault = {
            let mut state = server.state();
            if state.faults.breaks(&process) != breaks {
                Some(InjectedError::ResetBefore)
            } else if state.faults.is_cut_off(&process) {
                Some(InjectedError::Timeout)
            } else {
                state.faults.meet(&call)
            }
        };
        if let Some(InjectedError::Status(_) | InjectedError::ResetBefore | InjectedError::Timeout) = fault {
            server.record(&call, 0);
        }
        match &fault {
            Some(InjectedError::Status(code)) => return Ok(injected(*code)),
            Some(InjectedError::ResetBefore) => return Err(reset()),
            Some(InjectedError::Timeout) => return Err(server.time_out().await),
            Some(InjectedError::Delay(by)) => sleep(*by).await,
            _ => {}
        }
        let strike = server.state().faults.strike(&call);
        if strike == Some(false) {
            server.end(&process);
            return std::future::pending().await;
        }
        let (reply, record) = server.execute_recorded(&mut call);
        if strike == Some(true) {
            server.end(&process);
        }
        server.pause(&process).await;
        server.unless_ended(&process).await;
        match fault {
            Some(InjectedError::TimeoutAfter) => return Err(server.time_out().await),
            Some(InjectedError::ResetAfter) => return Err(reset()),
            Some(InjectedError::DelayAnswer(by)) => sleep(by).await,
            _ if server.state().faults.is_cut_off(&process) => return Err(server.time_out().await),
            _ => {}
        }
        if let Some(record) = server.state().requests.get_mut(record) {
            record.answered = Some(server.elapsed());
        }
        match reply {
            Ok(Reply::Object(code, body)) => Ok(response(code, server.text(&call, &body))),
            Ok(Reply::List(list)) => Ok(response(200, list)),
            Err(status) => Ok(json(status.code, &status.body())),
            Ok(Reply::Watch(watch)) => Ok(stream(server, *watch)),
        }
    }
}

fn json(code: u16, body: &Value) -> HttpResponse {
    response(code, text(body))
}

fn response(code: u16, text: Bytes) -> HttpResponse {
    let body = Full::new(text).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if code == 429 {
        headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

fn injected(code: u16) -> HttpResponse {
    let status = match code {
        429 => Status::new(code, "TooManyRequests", "the server has received too many requests"),
        503 => {
            Status::new(code, "ServiceUnavailable", "the server is currently unable to handle the request")
        }
        504 => Status::new(code, "Timeout", "the server was unable to return a response in time"),
        403 => Status::new(code, "Forbidden", "injected fault"),
        404 => Status::no_route(),
        _ => Status::new(code, "InternalError", "injected fault"),
    };
    json(code, &status.body())
}

impl ApiServer {
    async fn pause(&self, process: &str) {
        if process != USER {
            let pause = {
                let mut state = self.state();
                let most = state.store.settings.latency;
                state.faults.pause(most)
            };
            sleep(pause).await;
        }
    }

    /// Never returns to a process that has ended.
    async fn unless_ended(&self, process: &str) {
        let has_ended = self.state().faults.has_ended(process);
        if has_ended {
            std::future::pending().await
        }
    }

    /// The client gives up.
    async fn time_out(&self) -> BoxError {
        let limit = self.state().store.settings.response_timeout;
        sleep(limit).await;
        format!("no answer from the apiserver within {} s", limit.as_secs()).into()
    }

    /// Records a request that is not answered yet, and returns its place. Those of the user have none.
    fn record(&self, call: &Call, code: u16) -> usize {
        if call.process == USER {
            return usize::MAX;
        }
        let resource = call.target.as_ref().map(|it| it.resource.clone()).unwrap_or_default();
        let mut state = self.state();
        let (at, process, path) = (state.store.now, call.process.clone(), call.line());
        state.requests.push(Record { at, answered: None, process, verb: call.verb, resource, path, code });
        state.requests.len() - 1
    }

    /// The body of an answer: an object that watches show as they show it.
    fn text(&self, call: &Call, body: &Arc<Value>) -> Bytes {
        let state = self.state();
        let target = call.target.as_ref();
        let resource = target
            .and_then(|target| state.store.resources.get(&(target.resource.clone(), target.group.clone())));
        let shown = resource.and_then(|resource| resource.text(body));
        shown.cloned().unwrap_or_else(|| text(body))
    }

    /// Executes a request now.
    pub(crate) fn execute(&self, call: &mut Call) -> Result<Reply, Status> {
        self.execute_recorded(call).0
    }

    /// The same, with the place of its record.
    fn execute_recorded(&self, call: &mut Call) -> (Result<Reply, Status>, usize) {
        let reply = {
            let mut state = self.state();
            state.store.work();
            let mut reply = state.store.handle(call);
            if let Ok(Reply::Watch(watch)) = &mut reply {
                let expired = state.faults.random.expired;
                if call.process != USER && watch.version > 0 && state.faults.chance(expired) {
                    watch.expire(watch.version, state.store.version);
                }
            }
            self.wake(&mut state);
            reply
        };
        let code = match &reply {
            Ok(Reply::Object(code, _)) => *code,
            Ok(Reply::List(_) | Reply::Watch(_)) => 200,
            Err(status) => status.code,
        };
        let record = self.record(call, code);
        (reply, record)
    }
}

/// A watch that is open.
struct Stream {
    server: ApiServer,
    watch: Watch,
    drops: u64,
    bookmark: Duration,
    is_over: bool,
}

fn stream(server: ApiServer, watch: Watch) -> HttpResponse {
    let (drops, now) = {
        let state = server.state();
        (state.faults.drops(&watch.request.kind.plural), state.store.now)
    };
    let bookmark = now + server.state().store.settings.bookmarks;
    let stream = Stream { server, watch, drops, bookmark, is_over: false };
    let lines = futures::stream::unfold(stream, |mut stream| async move {
        let line = stream.next().await?;
        Some((Ok::<_, BoxError>(Frame::data(line)), stream))
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}

enum Step {
    Show(Bytes, Option<Duration>),
    Wait(Option<Duration>),
    End,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        let mut changes = self.server.changes(&self.watch.request.key);
        loop {
            changes.mark_unchanged();
            match self.step() {
                Step::End => return None,
                Step::Show(line, None) => return Some(line),
                Step::Show(line, Some(pause)) => {
                    sleep(pause).await;
                    return Some(line);
                }
                Step::Wait(None) => drop(changes.changed().await),
                Step::Wait(Some(at)) => tokio::select! {
                    biased;
                    _ = changes.changed() => {}
                    () = tokio::time::sleep_until(self.server.instant(at)) => {}
                },
            }
        }
    }

    fn step(&mut self) -> Step {
        let mut state = self.server.state();
        let state = &mut *state;
        let process = &self.watch.call.process;
        let resource = &self.watch.request.kind.plural;
        if self.is_over || process != USER && state.faults.drops(resource) != self.drops {
            return Step::End;
        }
        if state.faults.is_cut_off(process) || state.faults.has_ended(process) {
            return Step::Wait(None);
        }
        let delay = state.faults.delay(process, resource);
        let is_faulty = process != USER;
        match self.watch.next(&state.store, delay) {
            Next::End => Step::End,
            Next::Event(line) => {
                let random = state.faults.random;
                self.is_over = is_faulty && state.faults.chance(random.watch_end);
                let is_late = is_faulty && state.faults.chance(random.watch_delay);
                let pause = is_late.then(|| state.faults.pause(random.watch_delay_max));
                Step::Show(line, pause)
            }
            Next::Wait(_) if self.watch.has_bookmarks && self.bookmark <= state.store.now => {
                self.bookmark = state.store.now + state.store.settings.bookmarks;
                Step::Show(self.watch.bookmark(), None)
            }
            Next::Wait(until) if self.watch.has_bookmarks => {
                Step::Wait(Some(until.map_or(self.bookmark, |until| until.min(self.bookmark))))
            }
            Next::Wait(until) => Step::Wait(until),
        }
    }
}
