//! Requests to the catalog server, in process: method, path, query, headers and body as a client sends them.

use std::cell::RefCell;

use catalogd::http::{Catalogs, Endpoints};
use catalogd::store::{Served, Store};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use olm_core::Digest;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The catalog that is served.
const LINES: &str = concat!(
    r#"{"defaultChannel":"stable","name":"demo","schema":"olm.package"}"#,
    "\n",
    r#"{"entries":[{"name":"demo.v1.0.0"}],"name":"stable","package":"demo","schema":"olm.channel"}"#,
    "\n",
    r#"{"image":"x","name":"demo.v1.0.0","package":"demo","properties":[{"type":"olm.package","value":{"packageName":"demo","version":"1.0.0"}}],"schema":"olm.bundle"}"#,
    "\n",
    r#"{"name":"free","package":"demo"}"#,
    "\n",
    r#"{"a b":{"c":[1,{"d":null}]},"name":"n","package":"other","schema":"custom.schema"}"#,
    "\n",
);

struct Bench {
    runtime: Runtime,
    catalogs: Catalogs,
    _root: TempDir,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

fn bench() -> Option<Bench> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
    let root = tempfile::tempdir().ok()?;
    let (store, _) = Store::open(root.path()).ok()?;
    let digest: Digest = format!("sha256:{}", "a".repeat(64)).parse().ok()?;
    let staging = store.stage(store.lease(&digest)).ok()?;
    let mut ingest = olm_fbc::Ingest::new(staging.spool().ok()?, olm_fbc::IngestLimits::default());
    ingest.file("catalog.json", &mut LINES.as_bytes()).ok()?;
    let (content, _lease) = staging.commit(ingest.finish().ok()?).ok()?;
    let reference = format!("example.com/c@{digest}");
    store.publish("cat", Served { content, reference, source: None, last_unpacked: 1_700_000_000 }).ok()?;
    let catalogs = Catalogs::new(store, Endpoints { metas: true, graphql: true });
    Some(Bench { runtime, catalogs, _root: root })
}

/// `METHOD URI`, header lines, an empty line, the body. The server never fails and never answers what it does not hold: lengths
/// are those declared, lines are the catalog's, ranges are parts of it, HEAD is GET without a body, and the same request has the
/// same answer (from the cache, too).
pub(crate) fn catalogd_http(input: &[u8]) {
    let (head, body) = match input.windows(2).position(|found| found == b"\n\n") {
        Some(at) => (&input[..at], &input[at + 2..]),
        None => (input, &[][..]),
    };
    let mut lines = head.split(|&byte| byte == b'\n');
    let Some(Ok(first)) = lines.next().map(std::str::from_utf8) else { return };
    let Some((method, uri)) = first.split_once(' ') else { return };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let headers: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            line.iter().position(|&byte| byte == b':').map(|at| (&line[..at], line[at + 1..].trim_ascii()))
        })
        .collect();
    let request = |method: &Method| {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(bytes::Bytes::copy_from_slice(body))).ok()
    };
    let Some(sent) = request(&method) else { return };
    let path = sent.uri().path().to_owned();
    BENCH.with_borrow_mut(|place| {
        if place.is_none() {
            *place = bench();
        }
        assert!(place.is_some(), "there is no store to serve from");
        let Some(bench) = place else { return };
        let ask = |request| {
            bench.runtime.block_on(async {
                let (head, body) = bench.catalogs.handle(request).await.into_parts();
                let body = body.collect().await.map(|body| body.to_bytes());
                (head, body.map_err(|error| error.to_string()))
            })
        };
        let (head, body) = ask(sent);
        assert!(!head.status.is_server_error(), "{}", head.status);
        assert!(body.is_ok(), "{body:?}");
        let body = body.unwrap_or_default();
        let length = head
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if method == Method::HEAD {
            assert!(body.is_empty(), "a body for HEAD");
        } else {
            assert!(
                length.is_none_or(|length| length == body.len()),
                "{length:?} declared, {} sent",
                body.len()
            );
        }
        let plain = !head.headers.contains_key(header::CONTENT_ENCODING);
        if plain && path == "/catalogs/cat/api/v1/all" && method == Method::GET {
            match head.status {
                StatusCode::OK => assert_eq!(body, LINES.as_bytes()),
                StatusCode::PARTIAL_CONTENT => {
                    assert!(
                        LINES.as_bytes().windows(body.len().max(1)).any(|found| found == body),
                        "no part of it"
                    );
                }
                _ => {}
            }
        }
        if plain && path == "/catalogs/cat/api/v1/metas" && head.status == StatusCode::OK {
            for line in body.split_inclusive(|&byte| byte == b'\n') {
                assert!(
                    LINES.split_inclusive('\n').any(|known| known.as_bytes() == line),
                    "{}",
                    line.escape_ascii()
                );
            }
        }
        if let Some(again) = request(&method) {
            let (second, repeated) = ask(again);
            assert_eq!((second.status, repeated), (head.status, Ok(body)));
        }
        if method == Method::GET
            && let Some(bare) = request(&Method::HEAD)
        {
            assert_eq!(ask(bare).0.status, head.status, "HEAD is answered otherwise than GET");
        }
    });
}
