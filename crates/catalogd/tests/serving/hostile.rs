//! The content server against hostile clients, byte by byte over TLS: requests that two readers would split differently,
//! paths that lead elsewhere, clients that send nothing, floods. Threats: docs/threat-model.md.

use std::time::Duration;

use crate::support::{LIMIT, World};
use anyhow::{Context, Result, ensure};
use catalogd::http::server::LIMITS;
use olm_runtime::serve::Limits;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a server sends until it closes, as text. Bytes that follow a close may break the connection; that is an end too.
async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) -> Result<String> {
    let mut received = Vec::new();
    let _ = timeout(LIMIT, stream.read_to_end(&mut received)).await.context("the server does not close")?;
    Ok(String::from_utf8_lossy(&received).into_owned())
}

/// The status codes of all answers in what a server sent.
fn statuses(received: &str) -> Vec<u16> {
    let heads = received.split("HTTP/1.1 ").skip(1);
    heads.filter_map(|head| head.get(..3)?.parse().ok()).collect()
}

impl World {
    /// Sends bytes on a connection of its own; returns all that comes back.
    async fn exchange(&self, bytes: &[u8]) -> Result<String> {
        let mut stream = self.raw().await?;
        stream.write_all(bytes).await?;
        until_closed(&mut stream).await
    }
}

const GET: &str = "GET /catalogs/cat/api/v1/metas?schema=none HTTP/1.1\r\nHost: x\r\n";
/// A second request hidden behind the first.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[tokio::test]
#[rustfmt::skip]
async fn hostile_ambiguous_requests_get_one_answer() -> Result<()> {
    let limits = Limits { head: Duration::from_secs(2), ..LIMITS };
    let world = World::new(limits, 1).await?;
    for (name, request, want) in [
        ("length and chunks", format!("{GET}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 200),
        ("chunks and length", format!("{GET}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n{HIDDEN}"), 200),
        ("chunks alone", format!("{GET}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 200),
        ("chunks with extensions", format!("{GET}Transfer-Encoding: chunked\r\n\r\n0;a=b;c=\"\r\n\r\n{HIDDEN}"), 200),
        ("chunks under two names", format!("{GET}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
        ("an unknown coding", format!("{GET}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
        ("chunks not last", format!("{GET}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
        ("two lengths", format!("{GET}Content-Length: 0\r\nContent-Length: 44\r\n\r\n{HIDDEN}"), 400),
        ("a list of lengths", format!("{GET}Content-Length: 0, 44\r\n\r\n{HIDDEN}"), 400),
        ("a signed length", format!("{GET}Content-Length: +0\r\n\r\n{HIDDEN}"), 400),
        ("a negative length", format!("{GET}Content-Length: -1\r\n\r\n{HIDDEN}"), 400),
        ("a hexadecimal length", format!("{GET}Content-Length: 0x0\r\n\r\n{HIDDEN}"), 400),
        ("a length without end", format!("{GET}Content-Length: 99999999999999999999999\r\n\r\n{HIDDEN}"), 400),
        ("a folded header", format!("{GET}X: a\r\n Content-Length: 4\r\n\r\n{HIDDEN}"), 400),
        ("a space before the colon", format!("{GET}Content-Length : 4\r\n\r\n{HIDDEN}"), 400),
        ("a header without a name", format!("{GET}: x\r\n\r\n{HIDDEN}"), 400),
        ("a lone carriage return", format!("{GET}X: a\rContent-Length: 4\r\n\r\n{HIDDEN}"), 400),
        ("NUL in a value", format!("{GET}X: a\0b\r\n\r\n{HIDDEN}"), 400),
        ("NUL in the path", format!("GET /catalogs/cat\0/api/v1/all HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}"), 400),
        ("a space in the path", format!("GET /catalogs/c at/api/v1/all HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}"), 400),
        ("no such version", format!("GET / HTTP/3.7\r\nHost: x\r\n\r\n{HIDDEN}"), 400),
        ("an older version with chunks", format!("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
    ] {
        let received = world.exchange(request.as_bytes()).await.context(name)?;
        assert_eq!(statuses(&received), [want], "{name}: {received}");
    }
    // what cannot be misunderstood may share a connection, also behind a body that no endpoint reads
    let three = format!("{GET}Content-Length: 3\r\n\r\nGET{GET}\r\n{HIDDEN}");
    let received = world.exchange(three.as_bytes()).await?;
    assert_eq!(statuses(&received), [200, 200, 404], "{received}");
    world.end().await
}

#[tokio::test]
async fn hostile_paths_stay_in_the_store() -> Result<()> {
    let world = World::new(LIMITS, 1).await?;
    for (path, want) in [
        ("/catalogs/../../../../etc/passwd", 307),
        ("/catalogs/cat/api/v1/../../../../../etc/passwd", 307),
        ("/catalogs/..%2f..%2f..%2fetc%2fpasswd/api/v1/all", 400),
        ("/catalogs/%2e%2e/api/v1/all", 400),
        ("/catalogs/%2e%2e%2fcat/api/v1/all", 400),
        ("/catalogs/..%5c..%5ccat/api/v1/all", 400),
        ("/catalogs/%252e%252e/api/v1/all", 400),
        ("/catalogs/cat%00/api/v1/all", 400),
        ("/catalogs/cat%0d%0aX:%20y/api/v1/all", 400),
        ("/catalogs/%c0%ae%c0%ae/api/v1/all", 400),
        ("/catalogs/cat%2fapi%2fv1%2fall", 404),
        ("/catalogs/cat/api/v1/all%2f..%2fmetas", 404),
        ("/catalogs/cat/catalog.jsonl", 404),
        ("/catalogs/CAT/api/v1/all", 400),
        ("http://elsewhere.test/catalogs/cat/api/v1/metas?schema=none", 200),
        ("https://u:p@elsewhere.test/catalogs/..%2f/api/v1/all", 400),
        ("*", 404),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: elsewhere.test\r\nConnection: close\r\n\r\n");
        let received = world.exchange(request.as_bytes()).await?;
        assert_eq!(statuses(&received), [want], "{path}: {received}");
        assert!(!received.contains("root:"), "{path}: {received}");
        assert!(
            !received.contains("elsewhere.test"),
            "{path}: no answer is made of the Host header: {received}"
        );
    }
    let connect =
        world.exchange(b"CONNECT elsewhere.test:443 HTTP/1.1\r\nHost: elsewhere.test:443\r\n\r\n").await?;
    assert!(statuses(&connect).iter().all(|status| (400..500).contains(status)), "{connect}");
    world.end().await
}

/// A redirect to the clean form of a path stays with this server, whatever a browser makes of the path, and adds no header.
#[tokio::test]
async fn hostile_redirects_stay_here_and_split_nothing() -> Result<()> {
    let world = World::new(LIMITS, 1).await?;
    for (path, location) in [
        ("//elsewhere.test/x", "/elsewhere.test/x"),
        ("/\\elsewhere.test//x", "/%5Celsewhere.test/x"),
        ("/..//\\elsewhere.test", "/%5Celsewhere.test"),
        ("/.//elsewhere.test/%2e%2e", "/elsewhere.test/%2e%2e"),
        ("/a//b%0d%0aSet-Cookie:%20x=y", "/a/b%0d%0aSet-Cookie:%20x=y"),
        ("/a//b?c=//d\\e", "/a/b?c=//d%5Ce"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let received = world.exchange(request.as_bytes()).await?;
        let (head, body) = received.split_once("\r\n\r\n").context("no head")?;
        assert_eq!(statuses(&received), [307], "{path}: {received}");
        let target = head.lines().find_map(|line| line.strip_prefix("location: "));
        assert_eq!(target, Some(location), "{path}");
        assert!(!head.to_lowercase().contains("set-cookie:\x20x\r"), "{head}");
        assert!(!body.contains("<script"), "{body}");
    }
    world.end().await
}

#[tokio::test]
async fn hostile_heads_are_bounded() -> Result<()> {
    let world = World::new(LIMITS, 1).await?;
    let many = |count: usize| {
        let headers: String = (0..count).map(|n| format!("X-{n}: y\r\n")).collect();
        format!("{GET}Connection: close\r\n{headers}\r\n")
    };
    let long =
        |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "a".repeat(bytes));
    let query = format!(
        "GET /catalogs/cat/api/v1/metas?schema={} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "%61".repeat(4000)
    );
    for (name, request, want) in [
        ("a few headers", many(50), 200),
        ("many headers", many(1000), 431),
        ("a long path", long(9_000), 414),
        ("a path beyond all bounds", long(70_000), 431),
        ("a long query", query, 414),
        ("a long method", format!("{} / HTTP/1.1\r\nHost: x\r\n\r\n", "G".repeat(1_000_000)), 431),
        ("one long header", format!("{GET}X: {}\r\n\r\n", "a".repeat(100_000)), 431),
    ] {
        let received = world.exchange(request.as_bytes()).await.context(name)?;
        assert_eq!(statuses(&received), [want], "{name}: {received:.200}");
    }
    // ranges: many, overlapping, backwards; never more bytes than the file has
    let size = world.body.len();
    for ranges in
        ["0-,".repeat(500), "0-0,".repeat(500), format!("{size}-0"), "-0".to_owned(), "9-1,".repeat(9)]
    {
        let request = format!(
            "GET /catalogs/cat/api/v1/all HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: bytes={ranges}\r\n\r\n"
        );
        let received = world.exchange(request.as_bytes()).await?;
        assert!(matches!(statuses(&received)[..], [200 | 416]), "{ranges:.20}: {received:.200}");
        assert!(received.len() < size + 1000, "{ranges:.20}: {} bytes", received.len());
    }
    world.end().await
}

/// Waits until the only place is free again. Who takes it may be sent away for being slow, and come back.
async fn answers_again(world: &World) -> Result<()> {
    let again = async {
        while !world.exchange(HIDDEN.as_bytes()).await.is_ok_and(|received| statuses(&received) == [404]) {}
    };
    timeout(LIMIT, again).await.context("the place is not released")
}

/// Clients that send too little hold no place: not in TLS, not before the first request, not in the middle of one.
#[tokio::test]
async fn hostile_clients_that_send_nothing_are_disconnected() -> Result<()> {
    // one limit at a time: a client that sends enough, on a machine that is slow, is not to meet the other
    let brief = Duration::from_millis(400);
    let world = World::new(Limits { connections: 1, handshake: brief, ..LIMITS }, 1).await?;
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]; // the first bytes of a ClientHello
    for sent in [&b""[..], &hello] {
        let mut stream = TcpStream::connect(world.address).await?;
        stream.write_all(sent).await?;
        until_closed(&mut stream).await.with_context(|| format!("{sent:?} in TLS"))?;
    }
    answers_again(&world).await?;
    world.end().await?;
    let world = World::new(Limits { connections: 1, head: brief, ..LIMITS }, 1).await?;
    for (protocol, sent) in [
        ("http/1.1", &b""[..]),
        ("http/1.1", b"G"),
        ("http/1.1", b"PRI * HTTP/2.0\r\n"),
        ("http/1.1", b"GET / HTTP/1.1\r\nHost:"),
        ("h2", b""),
        ("h2", b"PRI * HTTP/2.0\r\n"),
    ] {
        let mut stream = world.raw_as(&[protocol]).await?;
        stream.write_all(sent).await?;
        let place = format!("{:?} as {protocol}", String::from_utf8_lossy(sent));
        until_closed(&mut stream).await.with_context(|| place.clone())?;
        answers_again(&world).await.context(place)?;
    }
    // a byte now and then counts as nothing
    let mut stream = world.raw().await?;
    let drip = async {
        for byte in GET.bytes().cycle() {
            if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, drip).await.context("a dripping client is listened to")?;
    world.end().await
}

/// One address cannot take all places.
#[tokio::test]
async fn hostile_client_cannot_take_all_connections() -> Result<()> {
    let limits = Limits { connections: 8, connections_per_client: 3, ..LIMITS };
    let world = World::new(limits, 1).await?;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = world.raw().await?;
        stream.write_all(format!("{GET}\r\n").as_bytes()).await?;
        stream.read_u8().await?;
        open.push(stream);
    }
    ensure!(world.raw().await.is_err(), "a fourth connection of the same address is taken");
    // another address of this machine is another client
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind("127.0.0.2:0".parse()?)?;
    let other = socket.connect(world.address).await?;
    let mut other = world.encrypt(other, &[]).await?;
    other.write_all(HIDDEN.as_bytes()).await?;
    assert_eq!(statuses(&until_closed(&mut other).await?), [404]);
    // a client that closes one may open one
    open.pop();
    let again = async {
        while world.raw().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, again).await.context("a place is not released")?;
    world.end().await
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// A frame of HTTP/2 (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends frames until the server has had enough; whether it had.
async fn flood(world: &World, frames: impl Iterator<Item = Vec<u8>>) -> Result<bool> {
    let (mut reader, mut writer) = tokio::io::split(world.raw_as(&["h2"]).await?);
    let reading = tokio::spawn(async move { until_closed(&mut reader).await });
    writer.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).await?;
    let sent = send(&mut writer, frames);
    timeout(LIMIT, sent).await.context("the server neither reads nor closes")?;
    // all may have been sent before the server reads it; it still closes sooner than a client that sends nothing is let go
    let closed = timeout(LIMIT / 2, reading).await;
    Ok(matches!(closed, Ok(Ok(Ok(_)))))
}

/// Until the connection breaks.
async fn send(writer: &mut (impl AsyncWrite + Unpin), frames: impl Iterator<Item = Vec<u8>>) {
    for frame in frames {
        if writer.write_all(&frame).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// `GET https://x/`, in as few bytes as HPACK allows.
const REQUEST: &[u8] = &[0x82, 0x87, 0x84, 0x01, 1, b'x'];

#[tokio::test]
async fn hostile_floods_of_frames_end_the_connection() -> Result<()> {
    let world = World::new(LIMITS, 1).await?;
    let cancelled = (0..20_000_u32).map(|n| {
        let stream = 2 * n + 1;
        [frame(HEADERS, 4, stream, REQUEST), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat()
    });
    assert!(flood(&world, cancelled).await?, "requests that are cancelled immediately");
    let endless = std::iter::once(frame(HEADERS, 0, 1, REQUEST));
    let endless = endless.chain((0..20_000).map(|_| frame(CONTINUATION, 0, 1, &[0, 1, b'a', 1, b'b'])));
    assert!(flood(&world, endless).await?, "a head without end");
    let empty = std::iter::once(frame(HEADERS, 0, 1, REQUEST));
    let empty = empty.chain((0..20_000).map(|_| frame(CONTINUATION, 0, 1, b"")));
    assert!(flood(&world, empty).await?, "a head of empty pieces");
    // and the others are served
    assert_eq!(world.client.get(world.url()).send().await?.status(), 200);
    world.end().await
}

/// A client that is alive, answers pings and opens no window for what it asked for.
#[tokio::test]
async fn hostile_client_without_a_window_is_disconnected() -> Result<()> {
    let limits = Limits { stall: Duration::from_secs(1), ..LIMITS };
    let world = World::new(limits, 1).await?;
    let mut stream = world.raw_as(&["h2"]).await?;
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let path = b"/catalogs/cat/api/v1/all";
    let length = u8::try_from(path.len())?;
    let request = [&[0x82, 0x87, 0x04, length], path.as_slice(), &[0x01, 1, b'x']].concat();
    // the head and the end of the request in one frame
    let ask = frame(HEADERS, 5, 1, &request);
    stream.write_all(&[PREFACE, &no_window, &ask].concat()).await?;
    let (mut answered, mut pings) = (false, 0);
    let alive = async {
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length)?];
            stream.read_exact(&mut payload).await?;
            answered |= head[3] == HEADERS;
            if head[3] == PING && head[4] == 0 {
                pings += 1;
                stream.write_all(&frame(PING, 1, 0, &payload)).await?;
            } else if head[3] == SETTINGS && head[4] == 0 {
                stream.write_all(&frame(SETTINGS, 1, 0, b"")).await?;
            }
        }
        anyhow::Ok(())
    };
    let _ = timeout(LIMIT, alive).await.with_context(|| "the client keeps its answer for ever")?;
    ensure!(answered && pings > 0, "answered: {answered}, pings: {pings}");
    world.end().await
}
