//! Requests against a stored catalog, in process: status, headers and body of each as a snapshot.

use std::fmt::Write as _;

use http_body_util::BodyExt;

use super::*;
use std::sync::Arc;

use crate::store::{COMPRESS_BEFORE_SERVING, Content, Lease};

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const STORED_AT: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

/// Stores a catalog of these lines.
fn written(store: &Store, digest: &olm_core::Digest, lines: &str) -> (Arc<Content>, Lease) {
    let staging = store.stage(store.lease(digest)).unwrap();
    let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
    ingest.file("catalog.json", &mut lines.as_bytes()).unwrap();
    staging.commit(ingest.finish().unwrap()).unwrap()
}

struct Bench {
    catalogs: Catalogs,
    _root: tempfile::TempDir,
}

fn bench() -> Bench {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(root.path()).unwrap();
    let objects = |big: usize| {
        let pad = "p".repeat(big);
        vec![
            r#"{"defaultChannel":"stable","name":"demo","schema":"olm.package"}"#.to_owned(),
            r#"{"entries":[{"name":"demo.v1.0.0"}],"name":"stable","package":"demo","schema":"olm.channel"}"#
                .to_owned(),
            format!(r#"{{"name":"demo.v1.0.0","package":"demo","pad":"{pad}","schema":"olm.bundle"}}"#),
            r#"{"name":"free","package":"demo"}"#.to_owned(),
            r#"{"name":"demo.v1.0.0","package":"other","schema":"custom"}"#.to_owned(),
        ]
    };
    for (name, letter, big) in [("cat", 'a', 1500), ("small", 'b', 0)] {
        let digest = format!("sha256:{}", letter.to_string().repeat(64)).parse().unwrap();
        let (content, _lease) = written(&store, &digest, &objects(big).join("\n"));
        let reference = format!("example.com/c@{digest}");
        store
            .publish(name, Served { content, reference, source: None, last_unpacked: 1_700_000_000 })
            .unwrap();
    }
    let endpoints = Endpoints { metas: true, graphql: true };
    Bench { catalogs: Catalogs::new(store, endpoints), _root: root }
}

impl Bench {
    async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (http::response::Parts, Vec<u8>) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response =
            self.catalogs.handle(request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap()).await;
        let (head, body) = response.into_parts();
        (head, body.collect().await.unwrap().to_bytes().to_vec())
    }

    /// One request as text: sorted headers, the body shortened where it repeats itself.
    async fn show(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let (head, body) = self.raw(method, path, headers).await;
        let mut text = format!("{method} {path}");
        headers.iter().for_each(|(name, value)| write!(text, " [{name}: {value}]").unwrap());
        let shown = |text: &str| text.replace(DIGEST, "<digest>").replace(&"p".repeat(1500), "<1500 p>");
        write!(text, "\n  {}", head.status.as_u16()).unwrap();
        let mut lines: Vec<String> =
            head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines.iter().for_each(|line| write!(text, " | {}", shown(line)).unwrap());
        text.push('\n');
        match String::from_utf8(body) {
            Ok(body) => shown(&body).lines().for_each(|line| writeln!(text, "    {line}").unwrap()),
            Err(error) => writeln!(text, "    {} bytes, binary", error.as_bytes().len()).unwrap(),
        }
        text
    }
}

#[tokio::test]
#[rustfmt::skip]
async fn http_all() {
    let bench = bench();
    let mut text = String::new();
    let path = "/catalogs/cat/api/v1/all";
    for (method, path, headers) in [
        ("GET", path, &[][..]),
        ("HEAD", path, &[]),
        ("HEAD", path, &[("accept-encoding", "gzip")]),
        ("GET", "/catalogs/cat/api/v1/all?schema=olm.bundle&foo", &[("range", "bytes=0-3")]),
        ("GET", path, &[("if-modified-since", STORED_AT)]),
        ("GET", path, &[("if-modified-since", "nonsense"), ("range", "bytes=0-9")]),
        ("GET", path, &[("if-unmodified-since", "Mon, 01 Jan 2001 00:00:00 GMT")]),
        ("GET", path, &[("if-none-match", "*")]),
        ("GET", path, &[("if-none-match", "\"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"")]),
        ("GET", path, &[("if-match", "\"x\"")]),
        ("GET", path, &[("range", "bytes=0-9")]),
        ("HEAD", path, &[("range", "bytes=0-9")]),
        ("GET", path, &[("range", "bytes=0-9"), ("accept-encoding", "gzip")]),
        ("GET", path, &[("range", "bytes=0-9"), ("if-range", "\"other\""), ("if-none-match", "\"y\"")]),
        ("GET", path, &[("range", "bytes=99999999-")]),
        ("GET", path, &[("range", "bytes=9-1")]),
        ("HEAD", path, &[("range", "")]),
        ("POST", path, &[]),
        ("OPTIONS", path, &[]),
        ("GET", "/catalogs/cat/api/v1/all/", &[]),
        ("GET", "/catalogs/nothing/api/v1/all", &[]),
        ("HEAD", "/catalogs/nothing/api/v1/all", &[]),
        ("POST", "/catalogs/nothing/api/v1/all", &[]),
        ("GET", "/catalogs/Bad_Name/api/v1/all", &[]),
        ("GET", "/catalogs/../api/v1/all?x=%3C", &[]),
        ("POST", "//catalogs/cat/api/v1/all", &[]),
        ("GET", "/catalogs/small/api/v1/all", &[("accept-encoding", "gzip, zstd")]),
        ("GET", "/catalogs/cat/api/v1/graphql", &[]),
        ("GET", "/catalogs/cat/api/v1/other", &[]),
        ("GET", "/metrics", &[]),
    ] {
        text.push_str(&bench.show(method, path, headers).await);
    }
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn http_metas() {
    let bench = bench();
    let mut text = String::new();
    let path = |query: &str| format!("/catalogs/cat/api/v1/metas{query}");
    for (method, query, headers) in [
        ("GET", "", &[("range", "bytes=0-3")][..]),
        ("HEAD", "", &[]),
        ("GET", "?schema=olm.package", &[]),
        ("HEAD", "?schema=olm.package", &[]),
        ("GET", "?package=demo", &[]),
        ("GET", "?name=demo.v1.0.0&package=other", &[]),
        ("GET", "?schema=nothing", &[]),
        ("GET", "?schema=olm.package&schema=custom", &[("range", "bytes=0-3")]),
        ("GET", "?schema=olm.package", &[("if-modified-since", STORED_AT)]),
        ("GET", "?schema=olm.package", &[("if-modified-since", "nonsense")]),
        ("GET", "?schema=olm.package", &[("if-match", "\"x\"")]),
        ("GET", "?schema=olm.package", &[("if-none-match", "*")]),
        ("GET", "?foo=1", &[]),
        ("GET", "?schema=%zz", &[]),
        ("GET", "?a;b", &[]),
        ("PATCH", "", &[]),
    ] {
        text.push_str(&bench.show(method, &path(query), headers).await);
    }
    text.push_str(&bench.show("GET", "/catalogs/nothing/api/v1/metas", &[]).await);
    text.push_str(&bench.show("GET", "/catalogs/nothing/api/v1/metas?foo=bar", &[]).await);
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn http_compressed_answers_have_equal_bytes_and_own_tags() {
    let bench = bench();
    for path in [
        "/catalogs/cat/api/v1/all",
        "/catalogs/cat/api/v1/metas",
        "/catalogs/cat/api/v1/metas?schema=olm.bundle",
        "/catalogs/cat/api/v1/metas?schema=olm.bundle&package=demo",
    ] {
        let (plain, want) = bench.raw("GET", path, &[]).await;
        let mut tags = vec![plain.headers[header::ETAG].clone()];
        for encoding in ["gzip", "zstd"] {
            let (head, body) = bench.raw("GET", path, &[("accept-encoding", encoding)]).await;
            assert_eq!(head.headers[header::CONTENT_ENCODING], encoding, "{path}");
            assert!(!head.headers.contains_key(header::ACCEPT_RANGES), "{path}");
            assert_eq!(head.headers[header::CONTENT_LENGTH], body.len().to_string(), "{path}");
            let mut got = Vec::new();
            match encoding {
                "gzip" => {
                    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(body.as_slice()), &mut got)
                        .unwrap()
                }
                _ => std::io::Read::read_to_end(&mut zstd::Decoder::new(body.as_slice()).unwrap(), &mut got)
                    .unwrap(),
            };
            assert_eq!(got, want, "{path} {encoding}");
            let tag = head.headers[header::ETAG].clone();
            let again = [("accept-encoding", encoding), ("if-none-match", tag.to_str().unwrap())];
            assert_eq!(bench.raw("GET", path, &again).await.0.status, 304, "{path} {encoding}");
            tags.push(tag);
        }
        tags.dedup();
        assert_eq!(tags.len(), 3, "{path}: one tag a representation");
    }
}

#[tokio::test]
async fn http_large_catalog_has_the_copies_that_clients_ask_for() {
    let bench = bench();
    let store = &bench.catalogs.store;
    let line = format!("{{\"name\":\"n\",\"pad\":\"{}\",\"schema\":\"s\"}}\n", "p".repeat(1000));
    let lines = line.repeat(usize::try_from(COMPRESS_BEFORE_SERVING).unwrap() / 1000);
    let digest = format!("sha256:{}", "c".repeat(64)).parse().unwrap();
    let (content, _lease) = written(store, &digest, &lines);
    let reference = format!("example.com/c@{digest}");
    store
        .publish("large", Served { content: Arc::clone(&content), reference, source: None, last_unpacked: 1 })
        .unwrap();
    let sent = async |accepted| {
        let headers = [("accept-encoding", accepted)];
        let (head, _) = bench.raw("GET", "/catalogs/large/api/v1/all", &headers).await;
        head.headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(sent("gzip").await, None, "served before it has copies");
    store.compress(&content, &|| false).unwrap();
    assert_eq!(sent("gzip").await.as_deref(), Some("gzip"));
    assert!(!content.lacks_copies(), "no client wants zstd");
    assert_eq!(sent("gzip, zstd").await.as_deref(), Some("gzip"), "what there is");
    assert_eq!(sent("zstd").await, None);
    assert_eq!(store.uncompressed().len(), 1, "both have asked for zstd");
    store.compress(&content, &|| false).unwrap();
    assert_eq!(sent("gzip, zstd").await.as_deref(), Some("zstd"));
}

#[tokio::test]
async fn http_several_ranges_are_one_multipart_body() {
    let bench = bench();
    let path = "/catalogs/cat/api/v1/all";
    let (head, body) = bench.raw("GET", path, &[("range", "bytes=0-1,5-6")]).await;
    assert_eq!(head.status, 206);
    let kind = head.headers[header::CONTENT_TYPE].to_str().unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    assert_eq!(head.headers[header::CONTENT_LENGTH], body.len().to_string());
    let (_, whole) = bench.raw("GET", path, &[]).await;
    let size = whole.len();
    let part = |from: usize, to: usize| {
        let bytes = String::from_utf8(whole[from..=to].to_vec()).unwrap();
        format!(
            "--{boundary}\r\nContent-Range: bytes {from}-{to}/{size}\r\nContent-Type: application/jsonl\r\n\r\n{bytes}\r\n"
        )
    };
    assert_eq!(String::from_utf8(body).unwrap(), format!("{}{}--{boundary}--\r\n", part(0, 1), part(5, 6)));
}

#[tokio::test]
async fn http_packages_are_summarized() {
    let bench = bench();
    let lines = [
        r#"{"schema":"olm.package","name":"b","defaultChannel":"stable","icon":{"base64data":"AAAA","mediatype":"image/png"}}"#,
        r#"{"schema":"olm.channel","package":"b","name":"stable","entries":[{"name":"b.v1"},{"name":"b.v2","replaces":"b.v1"},{"name":"b.v9","skips":["b.v2"]}]}"#,
        r#"{"schema":"olm.channel","package":"b","name":"next","entries":[{"name":"b.v10"}]}"#,
        r#"{"schema":"olm.channel","package":"b","name":"odd","entries":"none"}"#,
        r#"{"schema":"olm.bundle","package":"b","name":"b.v9","properties":[{"type":"olm.package","value":{"packageName":"b","version":"9.0.0"}},{"type":"olm.gvk","value":{"group":"g","version":"v1","kind":"K"}},{"type":"olm.gvk","value":7}]}"#,
        r#"{"schema":"olm.bundle","package":"b","name":"b.v10","properties":[{"type":"olm.package","value":{"packageName":"b","version":"10.0.0-rc.1"}}]}"#,
        r#"{"schema":"olm.deprecations","package":"b","entries":[{"reference":{"schema":"olm.package"},"message":"old"},{"reference":{"schema":"olm.channel","name":"next"},"message":"not ready"}]}"#,
        r#"{"schema":"olm.bundle","package":"a","name":"a.v1","image":"x"}"#,
        r#"{"schema":"custom","package":"c","name":"x"}"#,
    ];
    let digest = format!("sha256:{}", "c".repeat(64)).parse().unwrap();
    let store = &bench.catalogs.store;
    let (content, _lease) = written(store, &digest, &lines.join("\n"));
    store
        .publish("packs", Served { content, reference: String::new(), source: None, last_unpacked: 0 })
        .unwrap();
    let path = "/catalogs/packs/api/v1/packages";
    let mut text = bench.show("GET", path, &[]).await;
    let (_, body) = bench.raw("GET", path, &[]).await;
    let read: Vec<olm_fbc::PackageSummary> =
        body.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!(read.iter().map(|package| package.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let icon = read[1].icon.as_ref().unwrap();
    text += &bench.show("GET", &format!("/catalogs/packs/api/v1/metas?{}", icon.query), &[]).await;
    text += &bench.show("HEAD", path, &[]).await;
    text += &bench.show("GET", path, &[("if-none-match", &format!("\"{digest}/packages\""))]).await;
    text += &bench.show("POST", path, &[]).await;
    text += &bench.show("GET", &format!("{path}?name=a"), &[]).await;
    text += &bench.show("GET", "/catalogs/nothing/api/v1/packages", &[]).await;
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn http_packages_are_compressed_only_if_they_are_sent() {
    let bench = bench();
    let packages =
        (0..100).map(|n| format!(r#"{{"schema":"olm.package","name":"p{n}","defaultChannel":"a"}}"#));
    let digest = format!("sha256:{}", "c".repeat(64)).parse().unwrap();
    let store = &bench.catalogs.store;
    let (content, _lease) = written(store, &digest, &packages.collect::<Vec<_>>().join("\n"));
    let served = Served { content, reference: String::new(), source: None, last_unpacked: 0 };
    store.publish("many", served).unwrap();
    let name = format!("{digest}/packages-gzip");
    for (tag, status) in [(name.as_str(), 304_u16), ("another", 200)] {
        let tag = format!("\"{tag}\"");
        let headers = [("accept-encoding", "gzip"), ("if-none-match", tag.as_str())];
        let (head, body) = bench.raw("GET", "/catalogs/many/api/v1/packages", &headers).await;
        assert_eq!((head.status.as_u16(), body.is_empty()), (status, status == 304), "{tag}");
        assert_eq!(bench.catalogs.cache.get(&name).is_none(), status == 304, "{tag}");
    }
}

#[tokio::test]
async fn http_packages_are_limited() {
    let bench = bench();
    // each channel shows the message, also as the escapes that are six times as long
    for (letter, character, channels, want) in
        [('d', "m", 10, 200_u16), ('e', "m", 20, 500), ('f', r"\u0001", 10, 500)]
    {
        let message = character.repeat(1 << 20);
        let mut lines = vec![format!(
            r#"{{"schema":"olm.deprecations","package":"a","entries":[{{"reference":{{"schema":"olm.bundle","name":"b"}},"message":"{message}"}}]}}"#
        )];
        lines.extend((0..channels).map(|n| {
            format!(r#"{{"schema":"olm.channel","package":"a","name":"c{n}","entries":[{{"name":"b"}}]}}"#)
        }));
        let digest = format!("sha256:{}", letter.to_string().repeat(64)).parse().unwrap();
        let store = &bench.catalogs.store;
        let (content, _lease) = written(store, &digest, &lines.join("\n"));
        let served = Served { content, reference: String::new(), source: None, last_unpacked: 0 };
        store.publish("large", served).unwrap();
        for _ in 0..2 {
            let (head, body) = bench.raw("GET", "/catalogs/large/api/v1/packages", &[]).await;
            assert_eq!(head.status, want, "{channels} channels");
            let text = String::from_utf8(body).unwrap();
            assert_eq!(text.contains("the limit of 16777216 bytes"), want == 500, "{}", text.len());
        }
    }
}

#[tokio::test]
async fn http_filtered_answer_reads_its_own_bytes_only() {
    let bench = bench();
    let served = bench.catalogs.store.get("cat").unwrap();
    let before = served.content.jsonl().bytes_read();
    let (_, body) = bench.raw("GET", "/catalogs/cat/api/v1/metas?schema=olm.package", &[]).await;
    assert_eq!(served.content.jsonl().bytes_read() - before, body.len() as u64);
}

#[tokio::test]
async fn http_answer_in_flight_survives_swap_and_removal() {
    let bench = bench();
    let request =
        Request::get("/catalogs/cat/api/v1/all").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let response = bench.catalogs.handle(request).await;
    let store = &bench.catalogs.store;
    let size = store.get("cat").unwrap().content.jsonl().size();
    store.withdraw("cat").unwrap();
    assert_eq!(store.collect(None).unwrap().contents.len(), 1);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len() as u64, size);
    assert_eq!(bench.raw("GET", "/catalogs/cat/api/v1/all", &[]).await.0.status, 404);
}

#[tokio::test]
async fn http_long_files_are_sent_in_frames() {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(root.path()).unwrap();
    let digest = DIGEST.parse().unwrap();
    let mut want = Vec::new();
    for number in 0..20_000_u32 {
        let line = format!("{{\"n\":{number},\"schema\":\"s{}\"}}\n", number % 3);
        want.push((number % 3, line));
    }
    let lines: String = want.iter().map(|(_, line)| line.as_str()).collect();
    let (content, _lease) = written(&store, &digest, &lines);
    store
        .publish("cat", Served { content, reference: String::new(), source: None, last_unpacked: 0 })
        .unwrap();
    let catalogs = Catalogs::new(store, Endpoints { metas: true, graphql: false });
    let bench = Bench { catalogs, _root: root };
    let (_, all) = bench.raw("GET", "/catalogs/cat/api/v1/all", &[]).await;
    assert!(all.len() > 2 * FRAME);
    assert_eq!(all, want.iter().map(|(_, line)| line.as_str()).collect::<String>().into_bytes());
    let (_, some) = bench.raw("GET", "/catalogs/cat/api/v1/metas?schema=s1", &[]).await;
    let third: String =
        want.iter().filter(|(schema, _)| *schema == 1).map(|(_, line)| line.as_str()).collect();
    assert_eq!(some, third.clone().into_bytes());
    let (head, packed) =
        bench.raw("GET", "/catalogs/cat/api/v1/metas?schema=s1", &[("accept-encoding", "gzip")]).await;
    let mut got = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed.as_slice()), &mut got).unwrap();
    assert_eq!(got, third.into_bytes());
    assert_eq!(head.headers[header::CONTENT_ENCODING], "gzip");
}

impl Bench {
    /// Body of the answer to a GraphQL request body.
    async fn ask(&self, catalog: &str, body: &str) -> String {
        let request = Request::post(format!("/catalogs/{catalog}/api/v1/graphql"));
        let request = request.body(http_body_util::Full::new(bytes::Bytes::from(body.to_owned()))).unwrap();
        let (head, body) = self.catalogs.handle(request).await.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        format!("{} {} {body}", head.status.as_u16(), head.headers[header::CONTENT_TYPE].to_str().unwrap())
    }

    async fn query(&self, catalog: &str, query: &str) -> String {
        format!("{query}\n  {}", self.ask(catalog, &serde_json::json!({ "query": query }).to_string()).await)
    }
}

#[tokio::test]
async fn http_graphql() {
    let bench = bench();
    let lines = [
        r#"{"schema":"olm.package","name":"b","defaultChannel":"stable","icon":{"base64data":"AAAA"}}"#,
        r#"{"schema":"olm.package","name":"c","weight":1.5,"description":"<b>"}"#,
        r#"{"schema":"olm.channel","package":"b","name":"stable","entries":[{"name":"b.v1","skips":["b.v0","b.v-1"]},{"name":"b.v2","replaces":"b.v1","properties":[{"a":1}]}]}"#,
        r#"{"schema":"olm.channel","package":"c","name":"stable","tags":["x",1],"entries":[]}"#,
        r#"{"schema":"3scale.foo","n":1}"#,
        r#"{"schema":"a.b","n":1}"#,
        r#"{"schema":"a-b","n":2}"#,
        r#"{"schema":"query","n":2}"#,
        r#"{"name":"no schema"}"#,
    ];
    let digest = format!("sha256:{}", "c".repeat(64)).parse().unwrap();
    let store = &bench.catalogs.store;
    let (content, _lease) = written(store, &digest, &lines.join("\n"));
    store.publish("g", Served { content, reference: String::new(), source: None, last_unpacked: 0 }).unwrap();
    let mut text = String::new();
    for query in [
        "{ summary { totalSchemas schemas { name totalObjects totalFields } } }",
        "{ olmpackages { name defaultChannel icon weight description } }",
        "{ olmpackages(limit: 1, offset: 1) { name } all: olmpackages(limit: -1, offset: -1) { name } }",
        "{ olmchannels { name tags entries { name replaces skips properties } } }",
        "query q($n: Int) { olmpackages(limit: $n) { ...f } } fragment f on OlmPackage { defaultChannel }",
        "{ schema_3scalefoos { n } abs { n } }",
        "{ queries: querys { n } }",
        "{ nothing }",
        "{ olmpackages { name ",
        "mutation { x }",
        "query a { summary { totalSchemas } } query b { summary { totalSchemas } }",
        "{ __schema { queryType { name fields { name } } } }",
    ] {
        text += &bench.query("g", query).await;
    }
    for body in [
        "",
        "[]",
        "{}",
        r#"{"query":""}"#,
        r#"{"query":7}"#,
        r#"{"QUERY":"{ summary { totalSchemas } }"} trailing"#,
        r#"{"query":"query a { summary { totalSchemas } } query b { olmpackages(limit: 1) { name } }","operationName":"b"}"#,
        r#"{"query":"query q($n: Int) { olmpackages(limit: $n) { name } }","variables":{"n":1}}"#,
    ] {
        write!(text, "{body}\n  {}", bench.ask("g", body).await).unwrap();
    }
    let large = serde_json::json!({ "query": "x".repeat(100_001) }).to_string();
    text += &bench.ask("g", &large).await;
    text += &bench.ask("g", &" ".repeat((1 << 20) + 1)).await;
    text += &bench.query("nothing", "{ summary { totalSchemas } }").await;
    text += &bench.query("nothing", "{ a { ").await;
    insta::assert_snapshot!(text);
}

/// Files are open from the moment they are served, so no permission stands in the way of a request. A disk can.
/// Rule: catalogd §7.4
#[tokio::test]
async fn http_disk_error_is_reported_or_ends_the_answer() {
    let bench = bench();
    let place = |name: &str| bench.catalogs.store.get(name).unwrap().content.dir().join("catalog.jsonl");
    std::fs::File::options().write(true).open(place("cat")).unwrap().set_len(10).unwrap();
    let failed = |text: &str| {
        assert!(text.contains("\n  500 | "), "{text}");
        assert!(text.contains("content-type: text/plain; charset=utf-8"), "{text}");
        assert!(text.ends_with("\n    500 Internal Server Error\n"), "{text}");
    };
    let compressed = [("accept-encoding", "gzip")];
    failed(&bench.show("GET", "/catalogs/cat/api/v1/metas?schema=olm.bundle", &compressed).await);
    failed(&bench.show("GET", "/catalogs/cat/api/v1/packages", &[]).await);
    let answer = bench.query("cat", "{ summary { totalSchemas } }").await;
    assert!(answer.contains("500 Internal Server Error"), "{answer}");
    // the head of what is sent as it lies there has gone by then
    for path in ["all", "metas"] {
        let request = Request::get(format!("/catalogs/cat/api/v1/{path}"));
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        let response = bench.catalogs.handle(request).await;
        assert_eq!(response.status(), 200, "{path}");
        assert!(response.into_body().collect().await.is_err(), "{path} ends as if it were whole");
    }
    let (head, _) = bench.raw("GET", "/catalogs/small/api/v1/packages", &[]).await;
    assert_eq!(head.status, 200, "the others are served");
}

#[tokio::test]
async fn http_graphql_errors_are_in_the_order_of_the_query() {
    let bench = bench();
    let spreads: String = (0..8).map(|n| format!("...f{n} ")).collect();
    let fragments: String = (0..8).map(|n| format!(" fragment f{n} on Query {{ ...nothing{n} }}")).collect();
    let query = format!("{{ {spreads}}}{fragments}");
    let first = bench.query("cat", &query).await;
    let places: Vec<usize> = (0..8).map(|n| first.rfind(&format!("nothing{n}\\\"")).unwrap()).collect();
    assert!(places.is_sorted(), "{first}");
    for _ in 0..10 {
        assert_eq!(bench.query("cat", &query).await, first);
    }
}

#[tokio::test]
async fn http_graphql_leaves_out_only_clashing_schemas() {
    let bench = bench();
    #[rustfmt::skip]
    let clashing = [
        "query", "string", "Int", "catalog.summary", "a.b", "a-b", "olm.bundle.properties", "日本", "--", "1",
    ];
    let mut lines: Vec<String> =
        clashing.iter().map(|schema| format!(r#"{{"schema":"{schema}","name":"{schema}"}}"#)).collect();
    lines
        .push(r#"{"schema":"olm.bundle","name":"x","properties":[{"type":"t","value":{"a":1}}]}"#.to_owned());
    let digest = format!("sha256:{}", "d".repeat(64)).parse().unwrap();
    let (content, _lease) = written(&bench.catalogs.store, &digest, &lines.join("\n"));
    let served = Served { content, reference: String::new(), source: None, last_unpacked: 0 };
    bench.catalogs.store.publish("odd", served).unwrap();
    let ask = async |query: &str| {
        let answer = bench.ask("odd", &serde_json::json!({ "query": query }).to_string()).await;
        let body: serde_json::Value = serde_json::from_str(&answer[answer.find('{').unwrap()..]).unwrap();
        assert!(body.get("errors").is_none(), "{query}: {answer}");
        body["data"].clone()
    };
    // What clashes is left out of the root, never the sound schema beside it.
    let bundles = ask("{ olmbundles { name properties { type value } } }").await;
    assert_eq!(bundles["olmbundles"][0]["properties"][0]["value"], "{\"a\":1}");
    assert_eq!(ask("{ summary { totalSchemas } }").await["summary"]["totalSchemas"], lines.len());
    let fields = ask("{ __schema { queryType { fields { name } } } }").await;
    let fields = fields["__schema"]["queryType"]["fields"].as_array().unwrap();
    let names: Vec<&str> = fields.iter().filter_map(|field| field["name"].as_str()).collect();
    assert!(names.contains(&"olmbundles") && names.contains(&"summary"), "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "abs").count(), 1, "{names:?}");
    assert_eq!(bench.raw("GET", "/catalogs/odd/api/v1/all", &[]).await.0.status, 200);
}

#[tokio::test]
async fn http_disabled_gates_have_no_routes() {
    let Bench { catalogs, _root } = bench();
    let endpoints = Endpoints { metas: false, graphql: false };
    let bench = Bench { catalogs: Catalogs::new(catalogs.store.clone(), endpoints), _root };
    for (method, endpoint, gate) in [
        ("GET", "metas", "APIV1MetasHandler"),
        ("HEAD", "metas", ""),
        ("POST", "metas", "APIV1MetasHandler"),
        ("GET", "packages", "APIV1MetasHandler"),
        ("POST", "graphql", "GraphQLCatalogQueries"),
        ("GET", "graphql", "GraphQLCatalogQueries"),
    ] {
        let (head, body) = bench.raw(method, &format!("/catalogs/cat/api/v1/{endpoint}"), &[]).await;
        assert_eq!(head.status, 404, "{method} {endpoint}");
        let want = format!("404 page not found: it takes the feature gate {gate}, which is off\n");
        let want = if method == "HEAD" { "" } else { &want };
        assert_eq!(String::from_utf8(body.to_vec()).unwrap(), want, "{method} {endpoint}");
    }
    assert_eq!(bench.raw("GET", "/catalogs/cat/api/v1/all", &[]).await.0.status, 200);
}
