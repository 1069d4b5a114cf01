//! Requests over loopback, well and ill behaved.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::tls::tests::TestCa;
use crate::tls::{CaPool, ServingPair, TlsSettings, server_config};

struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<()>,
}

async fn start(router: Router, limits: Limits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let task = tokio::spawn(http(listener, router, limits, shutdown.clone()));
    Server { address, shutdown, task }
}

async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // the server may answer and close before it has read all
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

#[tokio::test]
async fn serve_limits_heads() {
    let server = start(hello(), Limits { head_bytes: 16_384, ..Limits::default() }).await;
    let get = |extra: &str| format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{extra}\r\n");
    let small = exchange(server.address, get("").as_bytes()).await;
    assert!(small.starts_with("HTTP/1.1 200 OK") && small.ends_with("hello"), "{small}");
    let large = format!("A: {}\r\n", "a".repeat(20_000));
    let refused = exchange(server.address, get(&large).as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
    let many = "A: b\r\n".repeat(200);
    let refused = exchange(server.address, get(&many).as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
    server.shutdown.cancel();
    server.task.await.unwrap();
}

#[test]
fn serve_default_limits_fit_into_memory() {
    let limits = Limits::default();
    let heads = u64::from(limits.head_bytes) * limits.connections as u64;
    assert!(heads <= 64 << 20, "{heads} bytes, of 256 MiB that the smallest program has");
    assert!(
        2 * limits.connections_per_client <= limits.connections,
        "one client cannot take all connections"
    );
}

#[tokio::test]
async fn serve_slow_head_ends_the_connection() {
    let limits = Limits { head: Duration::from_millis(50), ..Limits::default() };
    let server = start(hello(), limits).await;
    // no time limit here: the answer is that the server closes, sooner or later
    let half = exchange(server.address, b"GET / HTTP/1.1\r\nHost:").await;
    assert!(half.is_empty() || half.starts_with("HTTP/1.1 408 "), "{half}");
    server.shutdown.cancel();
    server.task.await.unwrap();
}

#[tokio::test]
async fn serve_connections_above_the_bound_wait() {
    let head = Duration::from_millis(300);
    let server = start(hello(), Limits { connections: 1, head, ..Limits::default() }).await;
    // an idle client holds the only slot until the head's time is over; the second is served after it, not before
    let begun = std::time::Instant::now();
    let idle = TcpStream::connect(server.address).await.unwrap();
    let answer = exchange(server.address, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(begun.elapsed() >= head, "served beside the idle client, after {:?}", begun.elapsed());
    drop(idle);
    server.shutdown.cancel();
    server.task.await.unwrap();
}

#[tokio::test]
async fn serve_drain_finishes_running_answers() {
    let entered = Arc::new(Notify::new());
    let proceed = Arc::new(Notify::new());
    let (entered_there, proceed_there) = (Arc::clone(&entered), Arc::clone(&proceed));
    let router = Router::new().route(
        "/",
        get(move || async move {
            entered_there.notify_one();
            proceed_there.notified().await;
            "late"
        }),
    );
    let server = start(router, Limits::default()).await;
    let client = tokio::spawn(exchange_once(server.address));
    entered.notified().await;
    server.shutdown.cancel();
    proceed.notify_one();
    server.task.await.unwrap();
    let answer = client.await.unwrap();
    assert!(answer.ends_with("late"), "{answer}");
    assert!(TcpStream::connect(server.address).await.is_err(), "it does not listen any more");
}

async fn exchange_once(address: SocketAddr) -> String {
    exchange(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await
}

#[tokio::test]
async fn serve_drain_cuts_off_endless_answers() {
    let entered = Arc::new(Notify::new());
    let entered_there = Arc::clone(&entered);
    let router = Router::new().route(
        "/",
        get(move || async move {
            entered_there.notify_one();
            std::future::pending::<()>().await;
        }),
    );
    let server = start(router, Limits { drain: Duration::from_millis(50), ..Limits::default() }).await;
    let client = tokio::spawn(exchange_once(server.address));
    entered.notified().await;
    server.shutdown.cancel();
    server.task.await.unwrap();
    assert_eq!(client.await.unwrap(), "");
}

/// A client's TLS connection; the second value is the protocol that was agreed on.
async fn connect(
    address: SocketAddr,
    mut config: rustls::ClientConfig,
    offers: &[&[u8]],
) -> io::Result<(tokio_rustls::client::TlsStream<TcpStream>, Option<Vec<u8>>)> {
    config.alpn_protocols = offers.iter().map(|offer| offer.to_vec()).collect();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    Ok((stream, agreed))
}

#[tokio::test]
async fn serve_http_1_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let ca = TestCa::new();
    ca.write_pair(folder.path(), "server");
    let cas = tempfile::tempdir().unwrap();
    ca.write_ca(&cas.path().join("ca.crt"));
    let pair = ServingPair::load(folder.path().join("tls.crt"), folder.path().join("tls.key")).unwrap();
    let settings = TlsSettings::default();
    let tls = server_config(pair, &settings).unwrap();
    let client = CaPool::given(Vec::new(), Some(cas.path())).unwrap().client_config(&settings).unwrap();

    let serve = async |limits: Limits| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let task = tokio::spawn(https(listener, hello(), Arc::clone(&tls), limits, shutdown.clone()));
        Server { address, shutdown, task }
    };
    let Server { address, shutdown, task } = serve(Limits::default()).await;

    let (mut stream, agreed) = connect(address, client.clone(), &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(agreed.as_deref(), Some(&b"http/1.1"[..]), "HTTP/2 is off");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");

    // one that speaks no TLS gets the reason, and the server continues
    let plain = exchange(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(plain, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n");
    // so is one that sends nothing at all, where a handshake has so little time that a slow machine may not make one
    let hurried = serve(Limits { handshake: Duration::from_millis(100), ..Limits::default() }).await;
    for _ in 0..2 {
        assert_eq!(exchange(hurried.address, b"").await, "");
    }
    hurried.shutdown.cancel();
    hurried.task.await.unwrap();
    let (_, agreed) = connect(address, client, &[]).await.unwrap();
    assert_eq!(agreed, None);
    shutdown.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn serve_http_2_without_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let limits = Limits { streams: 8, head: Duration::from_millis(300), ..Limits::default() };
    let task = tokio::spawn(http2(listener, hello(), limits, shutdown.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    // the preface and empty SETTINGS; the server's first frame is SETTINGS, too
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "{frame:?}");
    // HTTP/1.1 and no preface end the connection
    for sent in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b""] {
        let answer = exchange(address, sent).await;
        assert!(!answer.contains("HTTP/1.1"), "{answer}");
    }
    drop(stream);
    shutdown.cancel();
    task.await.unwrap();
}

/// A client of HTTP/2 that asks for nothing and answers pings, that with which the server ends the connection only if `acknowledges`; the types
/// of the frames that it gets until the server closes.
async fn idle_frames(address: SocketAddr, acknowledges: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let (mut kinds, mut head) = (Vec::new(), [0; 9]);
    while stream.read_exact(&mut head).await.is_ok() {
        let [_, high, low, kind, flags, ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut payload).await.unwrap();
        kinds.push(kind);
        // the one at the end has a content of its own
        if kind == 6 && flags & 1 == 0 && (acknowledges || payload[0] != 0x0b) {
            head[4] = 1;
            // the server may have closed
            let _ = stream.write_all(&[&head[..], &payload[..]].concat()).await;
        }
    }
    kinds
}

#[tokio::test]
async fn serve_closes_idle_connections_of_http_2() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let (idle, stall) = (Duration::from_millis(100), Duration::from_secs(1));
    let limits = Limits { streams: 8, idle, stall, ..Limits::default() };
    let task = tokio::spawn(http2(listener, hello(), limits, shutdown.clone()));
    for acknowledges in [true, false] {
        let kinds = tokio::time::timeout(Duration::from_secs(10), idle_frames(address, acknowledges)).await;
        let kinds = kinds.unwrap_or_else(|_| panic!("it stays open: {acknowledges}"));
        assert!(kinds.contains(&7), "no GOAWAY: {kinds:?}");
    }
    shutdown.cancel();
    task.await.unwrap();
}
