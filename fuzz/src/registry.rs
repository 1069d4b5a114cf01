//! Requests to the gRPC registry, in process, over a catalog of foreign lines.

use std::cell::RefCell;
use std::collections::BTreeSet;

use bytes::{BufMut as _, Bytes, BytesMut};
use catalogd::grpc::{Registry, server};
use catalogd::store::{Served, Store};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use olm_core::Digest;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::parts;

/// Every method of the service.
const METHODS: [&str; 10] = [
    "ListPackages",
    "GetPackage",
    "GetBundle",
    "GetBundleForChannel",
    "GetChannelEntriesThatReplace",
    "GetBundleThatReplaces",
    "GetChannelEntriesThatProvide",
    "GetLatestChannelEntriesThatProvide",
    "GetDefaultBundleThatProvides",
    "ListBundles",
];

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

fn store(lines: &[u8]) -> Option<(Store, TempDir)> {
    let root = tempfile::tempdir().ok()?;
    let (store, _) = Store::open(root.path()).ok()?;
    let digest: Digest = format!("sha256:{}", "a".repeat(64)).parse().ok()?;
    let staging = store.stage(store.lease(&digest)).ok()?;
    let mut ingest = olm_fbc::Ingest::new(staging.spool().ok()?, olm_fbc::IngestLimits::default());
    ingest.file("catalog.json", &mut &*lines).ok()?;
    let (content, _lease) = staging.commit(ingest.finish().ok()?).ok()?;
    store
        .publish("cat", Served { content, reference: String::new(), source: None, last_unpacked: 1 })
        .ok()?;
    Some((store, root))
}

/// What an answer came to: its status and its messages.
type Outcome = (Option<String>, BTreeSet<Vec<u8>>);

async fn call(registry: &Registry, method: &str, message: &[u8]) -> Option<Outcome> {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).ok()?);
    frame.put_slice(message);
    let request = Request::post(format!("http://cat/api.Registry/{method}"))
        .header("content-type", "application/grpc")
        .body(Full::new(frame.freeze()))
        .ok()?;
    let service = server::service::<Full<Bytes>>(registry.clone()).ok()?;
    let Ok(answer) = tower::ServiceExt::oneshot(service, request).await;
    let (head, body) = answer.into_parts();
    let body = body.collect().await.ok()?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = trailers.get("grpc-status").or(head.headers.get("grpc-status"));
    let status = status.and_then(|status| status.to_str().ok()).map(str::to_owned);
    let (mut rest, mut messages) = (body.to_bytes(), BTreeSet::new());
    while rest.len() >= 5 {
        let length = u32::from_be_bytes([rest[1], rest[2], rest[3], rest[4]]) as usize;
        assert!(rest.len() >= length + 5, "a message is cut off");
        messages.insert(rest[5..length + 5].to_vec());
        rest = rest.slice(length + 5..);
    }
    assert!(rest.is_empty(), "bytes after the last message");
    Some((status, messages))
}

/// A method (its number in the service, modulo ten), a message, and the lines of a catalog. Every answer has a status, and the same
/// call has the same answer.
pub(crate) fn grpc_registry(input: &[u8]) {
    let [method, message, lines] = parts::<3>(input);
    let number = method.iter().fold(0_usize, |sum, byte| sum.wrapping_add(usize::from(*byte)));
    let method = METHODS[number % METHODS.len()];
    let Some((store, _root)) = store(lines) else { return };
    let registry = Registry::new(store);
    RUNTIME.with_borrow_mut(|place| {
        if place.is_none() {
            *place = tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
        }
        let Some(runtime) = place else { return };
        let first = runtime.block_on(call(&registry, method, message));
        assert!(first.as_ref().is_some_and(|(status, _)| status.is_some()), "{method} has no status");
        assert_eq!(runtime.block_on(call(&registry, method, message)), first);
    });
}
