//! Calls of a client in process, without a socket.

use std::sync::Arc;

use futures::StreamExt as _;
use http::uri::PathAndQuery;
use http::{Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use super::graph::{Graph, MAX_BYTES, Providers};
use super::registry::MAX_STREAMS;
use super::server::{MAX_REQUEST, service};
use super::*;
use crate::store::{Content, Served, Store};
use olm_registry::proto;

const LINES: &str = r#"{"schema":"olm.package","name":"a","defaultChannel":"stable","icon":{"base64data":"PHN2Zy8+","mediatype":"image/svg+xml"}}
{"schema":"olm.channel","package":"a","name":"stable","entries":[{"name":"a.v1"},{"name":"a.v2","replaces":"a.v1","skips":["a.v0","a.v1"]},{"name":"a.v3","replaces":"a.v2","skips":["a.v1","a.gone"],"skipRange":"<3.0.0"}]}
{"schema":"olm.channel","package":"a","name":"beta","entries":[{"name":"a.v2","skips":["a.v1"]},{"name":"a.v1"}]}
{"schema":"olm.channel","package":"a","name":"two-heads","entries":[{"name":"a.v2"},{"name":"a.v1"},{"name":"a.absent"}]}
{"schema":"olm.bundle","package":"a","name":"a.v1","image":"x","properties":[{"type":"olm.package","value":{"packageName":"a","version":"1.0.0"}},{"type":"olm.gvk","value":{"group":"g","kind":"A","version":"v1"}},{"type":"olm.csv.metadata","value":{"displayName":"A"}}]}
{"schema":"olm.bundle","package":"a","name":"a.v2","image":"x","properties":[{"type":"olm.package","value":{"packageName":"a","version":"2.0.0"}}]}
{"schema":"olm.bundle","package":"a","name":"a.v3","image":"","properties":[{"type":"olm.package","value":{"packageName":"a","version":"3.0.0"}},{"type":"olm.gvk","value":{"group":"g","kind":"A","version":"v1"}},{"type":"olm.bundle.object","value":{"data":"e30="}}]}
{"schema":"olm.deprecations","package":"a","entries":[{"reference":{"schema":"olm.package"},"message":"p"},{"reference":{"schema":"olm.channel","name":"beta"},"message":"c"},{"reference":{"schema":"olm.bundle","name":"a.v1"},"message":"b"}]}
{"schema":"olm.package","name":"broken","defaultChannel":"stable"}
{"schema":"olm.channel","package":"broken","name":"stable","entries":[{"name":"broken.v1"}]}
{"schema":"olm.bundle","package":"broken","name":"broken.v1","image":"x","properties":[{"type":"olm.gvk","value":1}]}
{"schema":"olm.bundle","package":"orphan","name":"orphan.v1","image":"x"}
"#;

struct Bench {
    store: Store,
    registry: Registry,
    _root: tempfile::TempDir,
}

fn bench() -> Bench {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(root.path()).unwrap();
    let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
    let staging = store.stage(store.lease(&digest)).unwrap();
    let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
    ingest.file("catalog.json", &mut LINES.as_bytes()).unwrap();
    let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
    store
        .publish("cat", Served { content, reference: String::new(), source: None, last_unpacked: 1 })
        .unwrap();
    Bench { registry: Registry::new(store.clone()), store, _root: root }
}

impl Bench {
    fn content(&self) -> Arc<Content> {
        Arc::clone(&self.store.get("cat").unwrap().content)
    }

    /// All messages of an answer.
    async fn call_at<Q, A>(&self, authority: &str, method: &str, message: Q) -> Result<Vec<A>, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let origin = format!("http://{authority}").parse().unwrap();
        let mut client =
            tonic::client::Grpc::with_origin(service::<Body>(self.registry.clone()).unwrap(), origin);
        client.ready().await.unwrap();
        let path: PathAndQuery = format!("/{method}").parse().unwrap();
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        let answer = client.server_streaming(tonic::Request::new(message), path, codec).await?;
        answer.into_inner().collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn call<Q, A>(&self, method: &str, message: Q) -> Result<Vec<A>, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.call_at("cat.olmv1-system.svc:50051", &format!("api.Registry/{method}"), message).await
    }

    /// Channel, bundle and what it replaces, of each entry; or the error's text.
    async fn entries<Q: prost::Message + Send + Sync + 'static>(
        &self,
        method: &str,
        message: Q,
    ) -> Result<Vec<String>, String> {
        let found: Result<Vec<proto::ChannelEntry>, Status> = self.call(method, message).await;
        let line = |found: proto::ChannelEntry| {
            format!("{} {} {}", found.channel_name, found.bundle_name, found.replaces)
        };
        let texts = found.map(|entries| entries.into_iter().map(line).collect());
        texts.map_err(|status| status.message().to_owned())
    }
}

fn api(kind: &str) -> proto::GetAllProvidersRequest {
    let [group, version, kind] = ["g", "v1", kind].map(str::to_owned);
    proto::GetAllProvidersRequest { group, version, kind, plural: String::new() }
}

#[tokio::test]
async fn grpc_authority_names_the_catalog() {
    let bench = bench();
    for (authority, want) in [
        ("cat", Ok(2)),
        ("CAT.olmv1-system.svc.cluster.local:50051", Ok(2)),
        ("other.olmv1-system.svc", Err(Code::NotFound)),
        ("127.0.0.1:50051", Err(Code::NotFound)),
        ("[::1]:50051", Err(Code::NotFound)),
    ] {
        let found: Result<Vec<proto::PackageName>, Status> =
            bench.call_at(authority, "api.Registry/ListPackages", proto::ListPackageRequest {}).await;
        assert_eq!(found.map(|names| names.len()).map_err(|status| status.code()), want, "{authority}");
    }
    let unknown: Result<Vec<proto::PackageName>, Status> =
        bench.call_at("other", "api.Registry/ListPackages", proto::ListPackageRequest {}).await;
    let want = "no catalog \"other\" is served; the first label of the authority names the catalog, as in NAME.NAMESPACE.svc";
    assert_eq!(unknown.unwrap_err().message(), want);
}

#[tokio::test]
async fn grpc_package_has_channels_and_deprecations() {
    let bench = bench();
    let found: Vec<proto::Package> =
        bench.call("GetPackage", proto::GetPackageRequest { name: "a".to_owned() }).await.unwrap();
    let deprecation = |text: &str| Some(proto::Deprecation { message: text.to_owned() });
    let channel = |name: &str, head: &str, deprecation| proto::Channel {
        name: name.to_owned(),
        csv_name: head.to_owned(),
        deprecation,
    };
    let want = proto::Package {
        name: "a".to_owned(),
        channels: vec![
            channel("beta", "a.v2", deprecation("c")),
            channel("stable", "a.v3", None),
            channel("two-heads", "", None),
        ],
        default_channel_name: "stable".to_owned(),
        deprecation: deprecation("p"),
    };
    assert_eq!(found, [want]);
}

#[tokio::test]
#[rustfmt::skip]
async fn grpc_bundle_is_an_entry_of_a_channel() {
    let bench = bench();
    let get = async |package: &str, channel: &str, bundle: &str| {
        let [pkg_name, channel_name, csv_name] = [package, channel, bundle].map(str::to_owned);
        let request = proto::GetBundleRequest { pkg_name, channel_name, csv_name };
        let found: Result<Vec<proto::Bundle>, Status> = bench.call("GetBundle", request).await;
        found.map(|mut found| found.remove(0)).map_err(|status| status.message().to_owned())
    };
    let found = get("a", "stable", "a.v1").await.unwrap();
    assert_eq!((found.channel_name.as_str(), found.replaces.as_str(), found.skips.len()), ("stable", "", 0));
    assert_eq!(found.deprecation, Some(proto::Deprecation { message: "b".to_owned() }));
    assert!(found.csv_json.contains(r#""icon":[{"base64data":"PHN2Zy8+""#), "{}", found.csv_json);
    assert_eq!(get("a", "stable", "a.v3").await.unwrap().skip_range, "<3.0.0");
    for (package, channel, bundle, want) in [
        ("b", "stable", "a.v1", r#"package "b" not found"#),
        ("a", "other", "a.v1", r#"package "a", channel "other" not found"#),
        ("a", "beta", "a.v3", r#"package "a", channel "beta", bundle "a.v3" not found"#),
        ("a", "two-heads", "a.absent", r#"package "a", channel "two-heads", bundle "a.absent" not found"#),
        ("broken", "stable", "broken.v1", r#"bundle "broken.v1": bundle "broken.v1" has no property of type "olm.package""#),
    ] {
        assert_eq!(get(package, channel, bundle).await.unwrap_err(), want);
    }
    let head = async |channel: &str| {
        let [pkg_name, channel_name] = ["a", channel].map(str::to_owned);
        let request = proto::GetBundleInChannelRequest { pkg_name, channel_name };
        let found: Result<Vec<proto::Bundle>, Status> = bench.call("GetBundleForChannel", request).await;
        found.map(|mut found| found.remove(0).csv_name).map_err(|status| status.message().to_owned())
    };
    assert_eq!(head("stable").await.unwrap(), "a.v3");
    let want = r#"package "a", channel "two-heads" has no single head"#;
    assert_eq!(head("two-heads").await.unwrap_err(), want);
}

#[tokio::test]
async fn grpc_entries_follow_replaces_and_skips() {
    let bench = bench();
    let replacing = async |name: &str| {
        let request = proto::GetAllReplacementsRequest { csv_name: name.to_owned() };
        bench.entries("GetChannelEntriesThatReplace", request).await
    };
    // a name that is replaced and skipped counts once, and skips show what the entry replaces
    assert_eq!(replacing("a.v1").await.unwrap(), ["beta a.v2 ", "stable a.v2 a.v1", "stable a.v3 a.v2"]);
    assert_eq!(replacing("a.gone").await.unwrap(), ["stable a.v3 a.v2"]);
    assert_eq!(replacing("a.v9").await.unwrap_err(), "no channel entries found that replace a.v9");
    let successor = async |bundle: &str, package: &str, channel: &str| {
        let [csv_name, pkg_name, channel_name] = [bundle, package, channel].map(str::to_owned);
        let request = proto::GetReplacementRequest { csv_name, pkg_name, channel_name };
        let found: Result<Vec<proto::Bundle>, Status> = bench.call("GetBundleThatReplaces", request).await;
        found.map(|mut found| found.remove(0).csv_name).map_err(|status| status.message().to_owned())
    };
    for (bundle, package, channel, want) in [
        ("a.v1", "a", "stable", Ok("a.v2")),
        ("a.gone", "a", "stable", Ok("a.v3")),
        ("a.v3", "a", "stable", Err(r#"no entry found for package "a", channel "stable""#)),
        ("a.v1", "a", "other", Err(r#"package "a", channel "other" not found"#)),
        ("a.v1", "b", "other", Err("package b not found")),
    ] {
        let found = successor(bundle, package, channel).await;
        assert_eq!(found.as_deref().map_err(String::as_str), want, "{bundle} {package} {channel}");
    }
}

#[tokio::test]
async fn grpc_providers_are_entries_heads_and_defaults() {
    let bench = bench();
    let all = bench.entries("GetChannelEntriesThatProvide", api("A")).await.unwrap();
    let want = [
        "beta a.v1 ",
        "stable a.v1 ",
        "stable a.v3 a.v2",
        "stable a.v3 a.v1",
        "stable a.v3 a.gone",
        "two-heads a.v1 ",
    ];
    assert_eq!(all, want);
    // of a head, what the channel has no entry for is left out
    let heads = bench.entries("GetLatestChannelEntriesThatProvide", api("A")).await.unwrap();
    assert_eq!(heads, ["stable a.v3 a.v2", "stable a.v3 a.v1"]);
    let found: Vec<proto::Bundle> = bench.call("GetDefaultBundleThatProvides", api("A")).await.unwrap();
    assert_eq!(
        (found[0].csv_name.as_str(), found[0].csv_json.as_str(), found[0].object.len()),
        ("a.v3", "", 1)
    );
    let want = r#"no channel entries found that provide group:"g" version:"v1" kind:"B""#;
    for method in
        ["GetChannelEntriesThatProvide", "GetLatestChannelEntriesThatProvide", "GetDefaultBundleThatProvides"]
    {
        assert_eq!(bench.entries(method, api("B")).await.unwrap_err(), want, "{method}");
    }
}

#[tokio::test]
async fn grpc_list_has_a_bundle_for_each_channel() {
    let bench = bench();
    let found: Vec<proto::Bundle> = bench.call("ListBundles", proto::ListBundlesRequest {}).await.unwrap();
    let lines: Vec<String> = found
        .iter()
        .map(|found| format!("{} {} {:?}", found.csv_name, found.channel_name, found.skips))
        .collect();
    // what does not decode and what no channel has an entry for is left out
    let want = [
        "a.v1 beta []",
        "a.v1 stable []",
        "a.v1 two-heads []",
        r#"a.v2 beta ["a.v1"]"#,
        r#"a.v2 stable ["a.v0", "a.v1"]"#,
        "a.v2 two-heads []",
        r#"a.v3 stable ["a.v1", "a.gone"]"#,
    ];
    assert_eq!(lines, want);
    assert!(found.iter().all(|found| found.csv_json.is_empty()));
    assert_eq!(found[6].object, ["{}"], "a bundle without an image has its manifests");
}

#[tokio::test]
async fn grpc_streams_are_limited() {
    let bench = bench();
    let seats: Vec<_> = (0..MAX_STREAMS).map(|_| bench.registry.seat().unwrap()).collect();
    let list = async || -> Result<Vec<proto::Bundle>, Status> {
        bench.call("ListBundles", proto::ListBundlesRequest {}).await
    };
    let full = list().await.unwrap_err();
    assert_eq!(
        (full.code(), full.message()),
        (Code::ResourceExhausted, "64 streamed answers are running; retry later")
    );
    drop(seats);
    assert!(list().await.is_ok());
    assert_eq!(bench.registry.free_seats(), MAX_STREAMS, "an answer that is over has given up its seat");
}

#[tokio::test]
async fn grpc_requests_are_limited() {
    let bench = bench();
    let large = proto::GetPackageRequest { name: "a".repeat(MAX_REQUEST + 1) };
    let refused: Result<Vec<proto::Package>, Status> = bench.call("GetPackage", large).await;
    assert_eq!(refused.unwrap_err().code(), Code::OutOfRange);
    let answer = raw(
        &bench,
        "application/grpc",
        http_body_util::Full::new(bytes::Bytes::from_static(b"\0\0\0\0\x02\x0a\xff")),
    )
    .await;
    assert_eq!(answer.headers()["grpc-status"], "13");
    let answer = raw(&bench, "text/html", http_body_util::Empty::new()).await;
    assert_eq!(answer.status(), http::StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test(start_paused = true)]
async fn grpc_requests_that_do_not_arrive_end() {
    let bench = bench();
    let endless = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<bytes::Bytes>, std::io::Error>,
    >());
    let answer = raw(&bench, "application/grpc", endless).await;
    assert_eq!(answer.headers()["grpc-status"], (Code::DeadlineExceeded as i32).to_string());
}

async fn raw<B>(bench: &Bench, kind: &str, body: B) -> Response<Body>
where
    B: http_body::Body<Data = bytes::Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send>
        + Send
        + 'static,
{
    let request = Request::post("http://cat/api.Registry/GetPackage").header("content-type", kind).body(body);
    let service = service::<B>(bench.registry.clone()).unwrap();
    tower::ServiceExt::oneshot(service, request.unwrap()).await.unwrap()
}

#[test]
fn grpc_catalogs_are_limited() {
    let bench = bench();
    let content = bench.content();
    for (limit, want) in [
        (17, None),
        (16, Some("the catalog has more than the limit of 16 entries, skipped names and deprecations")),
    ] {
        let error = Graph::read(&content, limit, MAX_BYTES).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), want);
    }
    for (limit, want) in
        [(2, None), (1, Some("the catalog has more than the limit of 1 APIs that bundles provide"))]
    {
        let error = Providers::read(&content, limit, MAX_BYTES).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), want);
    }
    let of_providers = "in the names of bundles and of the APIs that they provide";
    let providers = |limit| Providers::read(&content, usize::MAX, limit).err();
    let graph = |limit| Graph::read(&content, usize::MAX, limit).err();
    let is_searched = |schema: &str| ["olm.channel", "olm.deprecations"].contains(&schema);
    let bytes: u64 = content.index().objects().filter(|it| is_searched(it.schema)).map(|it| it.length).sum();
    for (error, limit, what) in [
        (graph(9), 9, "in channels and deprecations"),
        // what names take beside their letters counts
        (graph(bytes), bytes, "in the names of channels and deprecations"),
        (providers(200), 200, of_providers),
    ] {
        let want = format!("the catalog has more than the limit of {limit} bytes {what}");
        assert_eq!(error.map(|error| error.to_string()), Some(want));
    }
}

#[tokio::test]
async fn grpc_health_is_that_of_the_catalog() {
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
    let bench = bench();
    for (authority, want) in [("cat", ServingStatus::Serving), ("other", ServingStatus::NotServing)] {
        let request = HealthCheckRequest { service: "api.Registry".to_owned() };
        let found: Vec<HealthCheckResponse> =
            bench.call_at(authority, "grpc.health.v1.Health/Check", request).await.unwrap();
        assert_eq!(found[0].status(), want, "{authority}");
    }
}

#[tokio::test]
async fn grpc_reflection_lists_the_services() {
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
    let bench = bench();
    let message = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request: message };
    let method = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let found: Vec<ServerReflectionResponse> = bench.call_at("cat", method, request).await.unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = &found[0].message_response else {
        unreachable!("{found:?}")
    };
    let mut names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["api.Registry", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]);
    let unknown: Result<Vec<proto::Package>, Status> =
        bench.call_at("cat", "api.Nothing/Get", proto::GetPackageRequest::default()).await;
    let unknown = unknown.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::Unimplemented, "unknown service api.Nothing"));
}
