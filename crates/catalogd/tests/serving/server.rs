//! The content server on real sockets: TLS, both HTTP versions, bounds on clients, and the end. Hostile clients are in
//! `hostile.rs`.

use std::time::Duration;

use crate::support::{LIMIT, World};
use anyhow::{Context, Result, ensure};
use catalogd::http::server::LIMITS;
use olm_kit::Ca;
use olm_runtime::serve::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn server_sends_the_whole_file_with_both_http_versions() -> Result<()> {
    let world = World::new(LIMITS, 1000).await?;
    let ca = reqwest::Certificate::from_pem(Ca::shared()?.pem().as_bytes())?;
    let only_http1 = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().http1_only().build()?;
    for (client, version) in
        [(&world.client, reqwest::Version::HTTP_2), (&only_http1, reqwest::Version::HTTP_11)]
    {
        let answer = client.get(world.url()).send().await?;
        assert_eq!(answer.version(), version);
        assert_eq!(answer.headers()["content-length"], world.body.len().to_string());
        assert_eq!(answer.bytes().await?, world.body);
        let many =
            (0..16).map(|_| async { anyhow::Ok(client.get(world.url()).send().await?.bytes().await?.len()) });
        for length in futures::future::try_join_all(many).await? {
            assert_eq!(length, world.body.len());
        }
    }
    world.end().await
}

#[tokio::test]
async fn server_drain_finishes_running_answers_and_accepts_none() -> Result<()> {
    // Larger than all socket buffers, so that the answer cannot be in flight as a whole.
    let world = World::new(LIMITS, 30_000).await?;
    let mut answer = world.client.get(world.url()).send().await?;
    let first = answer.chunk().await?.context("no bytes")?;
    world.stop.cancel();
    let mut got = first.len();
    while let Some(chunk) = answer.chunk().await? {
        got += chunk.len();
    }
    assert_eq!(got, world.body.len());
    drop(answer);
    let refused = Ca::shared()?.http_client()?.get(world.url()).send().await;
    assert!(refused.is_err(), "{refused:?}");
    world.end().await
}

#[tokio::test]
async fn server_disconnects_a_client_that_reads_nothing() -> Result<()> {
    let limits = Limits { stall: Duration::from_secs(1), drain: 2 * LIMIT, ..LIMITS };
    let world = World::new(limits, 30_000).await?;
    let mut stream = world.raw().await?;
    stream.write_all(b"GET /catalogs/cat/api/v1/all HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    // it ends sooner than running answers may take, so it has dropped this connection
    world.end().await
}

/// Clients of HTTP/2 took the end of a stream whose body they still sent for an error.
#[tokio::test]
async fn server_answers_refused_posts_with_bodies() -> Result<()> {
    let world = World::new(LIMITS, 1).await?;
    let graphql = world.url().replace("/all", "/graphql");
    for _ in 0..20 {
        for (url, status) in [(world.url(), 405), (graphql.clone(), 400)] {
            let answer = world.client.post(&url).body("b".repeat(100_000)).send().await?;
            assert_eq!((answer.version(), answer.status().as_u16()), (reqwest::Version::HTTP_2, status));
            ensure!(!answer.text().await?.is_empty());
        }
    }
    // a body without an end is not read without an end
    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0_u8; 65_536]));
    let sent = world.client.post(world.url()).body(reqwest::Body::wrap_stream(endless)).send();
    let answered = tokio::time::timeout(LIMIT, sent).await.context("the body is read without an end")?;
    if let Ok(answer) = answered {
        assert_eq!(answer.status(), 405);
    }
    world.end().await
}

#[tokio::test]
async fn server_reports_limits_on_requests() -> Result<()> {
    let world = World::new(LIMITS, 1).await?;
    let hurried = Limits { head: Duration::from_millis(500), ..LIMITS };
    let hurried = World::new(hurried, 1).await?;
    let long = format!("https://{}/{}", world.address, "a".repeat(9000));
    assert_eq!(world.client.get(long).send().await?.status(), 414);

    let ask = async |world: &World, head: Vec<u8>| -> Result<String> {
        let mut stream = world.raw().await?;
        stream.write_all(&head).await?;
        let mut text = Vec::new();
        let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut text)).await.context("not closed")?;
        // A server that gives up does not always end TLS cleanly.
        ensure!(read.is_ok() || text.is_empty() || text.starts_with(b"HTTP"), "{read:?}");
        Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned())
    };
    let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    assert_eq!(ask(&world, huge.into_bytes()).await?, "HTTP/1.1 431 Request Header Fields Too Large");
    // only a client that sends too little meets the short limit: the others would too, if the machine stops
    let slow = ask(&hurried, b"GET / HTTP/1.1\r\nHost:".to_vec()).await?;
    assert!(slow.is_empty() || slow.contains("408"), "{slow}");
    assert_eq!(ask(&world, b"\x00\x01nonsense\r\n\r\n".to_vec()).await?, "HTTP/1.1 400 Bad Request");
    hurried.end().await?;
    world.end().await
}
