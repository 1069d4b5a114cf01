//! Pulling from a registry that behaves, and from one that does not.

use std::io::Read;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::{Body, Client, Pushed, Registry, Reply, Request, digest, layer, noise};
use olm_oci::{Error, Image, ImageError, Limits, Puller, Retry, Selection, Visitor};

const LABEL: &str = "operators.operatorframework.io.index.configs.v1";

fn catalog() -> Pushed {
    Pushed::new([
        layer(&[("configs/a.json", "old"), ("configs/gone.json", "x"), ("bin/opm", "binary")]),
        layer(&[("configs/a.json", "new"), ("configs/.wh.gone.json", ""), ("configs/b/b.yaml", "b")]),
    ])
    .label(LABEL, "/configs")
}

async fn files(image: &Image) -> Result<Vec<String>, Error> {
    let selection = Selection::beneath([image.labels.get(LABEL).map_or("", String::as_str)]).unwrap();
    let files = support::read_files(image, selection).await?;
    Ok(files.iter().map(|(path, bytes)| format!("{path}={}", String::from_utf8_lossy(bytes))).collect())
}

async fn pull(puller: &Puller, reference: &olm_core::ImageRef) -> Result<Vec<String>, Error> {
    files(&puller.open(reference).await?).await
}

fn want() -> Vec<String> {
    vec!["configs/a.json=new".into(), "configs/b/b.yaml=b".into()]
}

#[tokio::test]
async fn resolve_costs_one_request_per_tag() {
    let (registry, client) = support::start().await;
    let digest = registry.push("cat", Some("latest"), &catalog());
    let puller = client.puller();
    for _ in 0..3 {
        let resolved = puller.resolve(&registry.reference("cat:latest")).await.unwrap();
        assert_eq!(resolved, registry.reference(&format!("cat@{digest}")));
        assert_eq!(registry.take_log(), ["HEAD /v2/cat/manifests/latest"]);
        assert_eq!(puller.resolve(&resolved).await.unwrap(), resolved);
        assert_eq!(registry.take_log(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn resolve_reads_manifest_without_head_or_digest_header() {
    let (registry, client) = support::start().await;
    let pushed = registry.push("cat", Some("latest"), &catalog());
    for status in [200, 404, 405] {
        registry.hook(move |request| (request.method == "HEAD").then(|| Reply::new(status, "")));
        let resolved = client.puller().resolve(&registry.reference("cat:latest")).await.unwrap();
        assert_eq!(resolved.digest(), Some(&pushed), "HEAD answers {status}");
    }
}

#[tokio::test]
async fn image_reads_docker_and_oci() {
    let (registry, client) = support::start().await;
    for docker in [false, true] {
        let image = Pushed { docker, ..catalog() };
        let plain = registry.push("plain", Some("1"), &image);
        let (media_type, list) = if docker {
            (support::DOCKER_MANIFEST, support::DOCKER_LIST)
        } else {
            (support::MANIFEST, support::INDEX)
        };
        let body = format!(
            r#"{{"schemaVersion":2,"mediaType":"{list}","manifests":[
                {{"mediaType":"{media_type}","digest":"{}","size":1,"platform":{{"os":"linux","architecture":"arm64"}}}},
                {{"mediaType":"{media_type}","digest":"{plain}","size":1,"platform":{{"os":"linux","architecture":"amd64"}}}}]}}"#,
            digest(b"other")
        );
        let index = registry.manifest("plain", Some("multi"), list, body.as_bytes());
        for (tag, top) in [("1", &plain), ("multi", &index)] {
            let image = client.puller().open(&registry.reference(&format!("plain:{tag}"))).await.unwrap();
            assert_eq!(image.canonical, registry.reference(&format!("plain@{top}")));
            assert_eq!(image.labels.get(LABEL).map(String::as_str), Some("/configs"));
            assert_eq!(image.layers.len(), 2);
            assert_eq!(files(&image).await.unwrap(), want());
        }
    }
}

#[tokio::test]
async fn unpack_writes_selected_files() {
    let (registry, client) = support::start().await;
    registry.push("cat", Some("1"), &catalog());
    let image = client.puller().open(&registry.reference("cat:1")).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let selection = Selection::beneath(["configs/b/", "bin"]).unwrap();
    image.unpack_to(directory.path(), selection, &Limits::bundle()).await.unwrap();
    for (path, want) in [("configs/b/b.yaml", "b"), ("bin/opm", "binary")] {
        assert_eq!(std::fs::read_to_string(directory.path().join(path)).unwrap(), want);
    }
    assert!(!directory.path().join("configs/a.json").exists());
}

#[tokio::test]
async fn pull_errors_name_missing_content() {
    let (registry, client) = support::start().await;
    let place = format!("{}/bundles/x", registry.address);
    for result in [
        client.puller().resolve(&registry.reference("bundles/x:v1")).await.map(|_| ()),
        client.puller().open(&registry.reference("bundles/x:v1")).await.map(|_| ()),
    ] {
        let error = result.unwrap_err();
        let want = format!("error creating image source: reading manifest v1 in {place}: manifest unknown");
        assert_eq!(error.to_string(), want);
        assert_eq!(error.retry(), Retry::Backoff);
    }
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let reference = format!("{gone}/x:1").parse().unwrap();
    let error = client.puller().resolve(&reference).await.unwrap_err();
    let text = error.to_string();
    let want = format!("error creating image source: reading manifest 1 in {gone}/x: connection refused");
    assert_eq!(text, want);
}

type MakeReply = Box<dyn Fn(Vec<u8>) -> Reply + Send>;

/// A hook that spoils the answers to blob requests (of more than 1000 bytes) `times` times.
fn spoil(
    registry: &Registry,
    times: usize,
    reply: impl Fn(Vec<u8>) -> Reply + Send + 'static,
    blob: Vec<u8>,
) {
    let name = digest(&blob).to_string();
    let mut left = times;
    registry.hook(move |request: &Request| {
        if !request.target.ends_with(&name) || left == 0 {
            return None;
        }
        left -= 1;
        Some(reply(blob.clone()))
    });
}

fn big() -> (Pushed, Vec<u8>, Vec<String>) {
    let text = noise(200_000);
    let layer = layer(&[("configs/big", &text)]);
    (Pushed::new([layer.clone()]).label(LABEL, "/configs"), layer, vec![format!("configs/big={text}")])
}

#[tokio::test]
async fn download_resumes_where_it_broke() {
    let (registry, client) = support::start().await;
    let (image, layer, want) = big();
    registry.push("cat", Some("1"), &image);
    let half = layer.len() / 2;
    #[rustfmt::skip]
    let cases: [(&str, MakeReply); 5] = [
        ("cut", Box::new(move |b| Reply::body(Body::Cut { bytes: b[..half].to_vec(), declared: b.len() }))),
        ("stalled", Box::new(move |b| Reply::body(Body::Stall { bytes: b[..half].to_vec(), declared: b.len() }))),
        ("short without length", Box::new(move |b| Reply::new(200, &b[..half]))),
        ("server error", Box::new(|_| Reply::new(503, ""))),
        ("busy", Box::new(|_| Reply::new(429, "").header("Retry-After", "0"))),
    ];
    for (name, reply) in cases {
        spoil(&registry, 1, reply, layer.clone());
        assert_eq!(pull(&client.puller(), &registry.reference("cat:1")).await.unwrap(), want, "{name}");
        let ranges: Vec<_> =
            registry.take_requests().iter().filter_map(|r| r.header("range").map(str::to_owned)).collect();
        if matches!(name, "cut" | "stalled" | "short without length") {
            assert_eq!(ranges, [format!("bytes={half}-")], "{name}");
        } else {
            assert_eq!(ranges, Vec::<String>::new(), "{name}");
        }
    }
}

#[tokio::test]
async fn request_is_retried_once_on_broken_connection() {
    let (registry, client) = support::start().await;
    registry.push("cat", Some("1"), &catalog());
    let puller = client.puller();
    puller.resolve(&registry.reference("cat:1")).await.unwrap();
    for (breaks, works) in [(1, true), (2, false)] {
        registry.take_log();
        let mut count = 0;
        registry.hook(move |_| {
            count += 1;
            (count <= breaks).then(|| Reply::body(Body::Hangup))
        });
        assert_eq!(puller.resolve(&registry.reference("cat:1")).await.is_ok(), works, "{breaks}");
    }
}

#[tokio::test]
async fn download_restarts_without_range_support() {
    let (registry, client) = support::start().await;
    let (image, layer, want) = big();
    registry.push("cat", Some("1"), &image);
    let name = digest(&layer).to_string();
    let mut count = 0;
    registry.hook(move |request| {
        if !request.target.ends_with(&name) {
            return None;
        }
        count += 1;
        // the range is ignored: the whole blob again
        Some(match count {
            1 => Reply::body(Body::Cut { bytes: layer[..layer.len() / 3].to_vec(), declared: layer.len() }),
            _ => Reply::new(200, layer.clone()),
        })
    });
    assert_eq!(pull(&client.puller(), &registry.reference("cat:1")).await.unwrap(), want);
}

/// Bytes of another range are rejected, and the error message names the range, not a digest mismatch.
#[tokio::test]
async fn download_rejects_another_range() {
    for range in [Some("bytes 0-9/10"), Some("rest"), None] {
        let registry = Registry::start().await;
        let mut client = Client::new(&[&registry]);
        client.config.retries.resume = 1;
        let (image, layer, _) = big();
        registry.push("cat", Some("1"), &image);
        let name = digest(&layer).to_string();
        let mut count = 0;
        registry.hook(move |request| {
            if !request.target.ends_with(&name) {
                return None;
            }
            count += 1;
            let third = layer.len() / 3;
            Some(match (count, range) {
                (1, _) => Reply::body(Body::Cut { bytes: layer[..third].to_vec(), declared: layer.len() }),
                (_, Some(range)) => Reply::new(206, layer[third..].to_vec()).header("Content-Range", range),
                (_, None) => Reply::new(206, layer[third..].to_vec()),
            })
        });
        let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
        assert!(error.contains("the registry sent another range than asked for"), "{range:?}: {error}");
    }
}

#[tokio::test]
async fn download_gives_up_with_error_message() {
    let (registry, mut client) = support::start().await;
    client.config.retries.resume = 1;
    client.config.retries.server_error = 1;
    let (image, layer, _) = big();
    registry.push("cat", Some("1"), &image);
    let size = layer.len();
    let wrong = noise(size).into_bytes();
    #[rustfmt::skip]
    let cases: [(&str, MakeReply, &str, Retry); 8] = [
        ("stall", Box::new(move |_| Reply::body(Body::Stall { bytes: vec![], declared: size })), "stalled: 0 bytes in 0 s", Retry::Backoff),
        ("drip", Box::new(move |b| Reply::body(Body::Drip { bytes: b, pause: Duration::from_millis(100) })), "stalled: ", Retry::Backoff),
        ("cut", Box::new(move |_| Reply::body(Body::Cut { bytes: vec![], declared: size })), "error copying image: reading blob sha256:",
            Retry::Backoff),
        ("server error", Box::new(|_| Reply::new(500, "<html>")), "unexpected HTTP status 500", Retry::Backoff),
        ("gone", Box::new(|_| Reply::error(404, "BLOB_UNKNOWN")), "blob_unknown: blob_unknown (HTTP status 404)", Retry::Backoff),
        ("long wait", Box::new(|_| Reply::new(429, "").header("Retry-After", "3600")), "toomanyrequests",
            Retry::After(Duration::from_secs(3600))),
        ("too long", Box::new(|b| Reply::new(200, [b, vec![0; 10]].concat())), "longer than the", Retry::Backoff),
        ("endless", Box::new(move |_| Reply::body(Body::Endless(wrong.clone()))), "longer than the", Retry::Backoff),
    ];
    for (name, reply, want, retry) in cases {
        spoil(&registry, usize::MAX, reply, layer.clone());
        let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err();
        assert!(error.to_string().contains(want), "{name}: {error}");
        assert!(error.to_string().starts_with("error copying image: "), "{name}: {error}");
        assert_eq!(error.retry(), retry, "{name}");
    }
}

#[tokio::test]
async fn download_rejects_digest_mismatch() {
    let (registry, client) = support::start().await;
    let good = layer(&[("configs/a", "good")]);
    let evil = layer(&[("configs/a", "evil")]);
    assert_eq!(good.len(), evil.len());
    registry.push("cat", Some("1"), &Pushed::new([good.clone()]).label(LABEL, "/configs"));
    spoil(&registry, usize::MAX, move |_| Reply::new(200, evil.clone()), good);
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err();
    assert!(matches!(&error, Error::Copy(ImageError::Digest { .. })), "{error}");

    // a manifest by digest
    registry.hook(|request| request.target.contains("/manifests/").then(|| Reply::new(200, "{}")));
    let pinned = registry.reference(&format!("cat@{}", digest(b"x")));
    let error = client.puller().open(&pinned).await.unwrap_err();
    assert!(matches!(&error, Error::Source(ImageError::Digest { .. })), "{error}");
}

#[tokio::test]
async fn manifest_size_is_bounded() {
    let (registry, client) = support::start().await;
    registry.hook(|_| Some(Reply::body(Body::Endless(vec![b' '; 65536]))));
    let error = client.puller().open(&registry.reference("cat:1")).await.unwrap_err();
    assert!(error.to_string().contains("exceeds the limit of 4194304 bytes"), "{error}");
    for (size, want) in [(4 << 20, "not valid JSON"), ((4 << 20) + 1, "exceeds the limit of 4194304 bytes")] {
        registry.hook(move |_| Some(Reply::new(200, vec![b' '; size])));
        let error = client.puller().open(&registry.reference("cat:1")).await.unwrap_err();
        assert!(error.to_string().contains(want), "{size}: {error}");
    }
}

#[tokio::test]
async fn download_size_is_limited() {
    let (registry, client) = support::start().await;
    registry.push("cat", Some("1"), &support::image());
    let image = client.puller().open(&registry.reference("cat:1")).await.unwrap();
    let size = image.download_size();
    for (limit, want) in [
        (size, Ok(())),
        (size - 1, Err(format!("download of {size} bytes exceeds the limit of {} bytes", size - 1))),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits { download_bytes: limit, ..Limits::default() };
        let got = image.unpack_to(directory.path(), Selection::everything(), &limits).await;
        match (got, want) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(want)) => assert!(error.to_string().contains(&want), "{error}"),
            (got, want) => panic!("{got:?} instead of {want:?}"),
        }
    }
}

#[tokio::test]
async fn retry_waits_as_registry_asks() {
    let (registry, client) = support::start().await;
    registry.push("cat", Some("1"), &catalog());
    let mut first = true;
    registry
        .hook(move |_| std::mem::take(&mut first).then(|| Reply::new(429, "").header("Retry-After", "1")));
    let began = Instant::now();
    client.puller().resolve(&registry.reference("cat:1")).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(registry.take_log().len(), 2);

    registry.hook(|_| Some(Reply::new(429, "")));
    let error = client.puller().resolve(&registry.reference("cat:1")).await.unwrap_err();
    assert!(error.to_string().contains("toomanyrequests"), "{error}");
    assert_eq!(registry.take_log().len(), 6, "five more attempts");

    registry.hook(|_| Some(Reply::new(502, "")));
    client.puller().resolve(&registry.reference("cat:1")).await.unwrap_err();
    assert_eq!(registry.take_log().len(), 4, "three more attempts");
}

#[tokio::test]
async fn retry_leaves_long_pauses_to_the_caller() {
    let (registry, mut client) = support::start().await;
    client.config.retries.first_pause = Duration::from_millis(400);
    client.config.retries.longest_pause = Duration::from_millis(1100);
    for (header, pause, requests) in [
        (Some("1"), Duration::from_secs(1), 2),
        (None, Duration::from_millis(800), 2),
        (Some("18446744073709551615"), Duration::from_secs(u64::MAX), 1),
    ] {
        registry.hook(move |_| {
            let busy = Reply::new(429, "");
            Some(match header {
                Some(seconds) => busy.header("Retry-After", seconds),
                None => busy,
            })
        });
        let error = client.puller().resolve(&registry.reference("cat:1")).await.unwrap_err();
        assert_eq!(error.retry(), Retry::After(pause), "{header:?}");
        assert_eq!(registry.take_log().len(), requests, "{header:?}");
    }
}

#[tokio::test]
async fn stalled_registry_does_not_block_others() {
    let (bad, good) = (Registry::start().await, Registry::start().await);
    let mut client = Client::new(&[&bad, &good]);
    client.config.timeouts.stall = Duration::from_secs(3600);
    for registry in [&bad, &good] {
        registry.push("cat", Some("1"), &catalog());
    }
    let (asked, mut was_asked) = tokio::sync::mpsc::unbounded_channel();
    bad.hook(move |request| {
        request.target.contains("/blobs/").then(|| {
            let _ = asked.send(());
            Reply::body(Body::Stall { bytes: vec![], declared: 100 })
        })
    });
    let puller = client.puller();
    let stuck = {
        let (puller, reference) = (puller.clone(), bad.reference("cat:1"));
        tokio::spawn(async move { pull(&puller, &reference).await })
    };
    was_asked.recv().await.unwrap();
    assert_eq!(pull(&puller, &good.reference("cat:1")).await.unwrap(), want());
    assert!(!stuck.is_finished());
    stuck.abort();
}

#[tokio::test]
async fn download_keeps_order_and_bounds_parallel_layers() {
    let (registry, client) = support::start().await;
    let layers: Vec<Vec<u8>> = (0..20)
        .map(|n| layer(&[("configs/same", &n.to_string()), (&format!("configs/{n:02}"), &noise(50_000))]))
        .collect();
    registry.push("cat", Some("1"), &Pushed::new(layers).label(LABEL, "/configs"));
    let files = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap();
    assert_eq!(files.len(), 21);
    assert!(files.contains(&"configs/same=19".to_owned()));
}

struct Blocked {
    started: tokio::sync::mpsc::UnboundedSender<()>,
    ended: mpsc::Sender<&'static str>,
}

impl Visitor for Blocked {
    type Error = std::io::Error;
    fn file(&mut self, _: &str, _: u64, content: &mut dyn Read) -> Result<(), Self::Error> {
        let _ = self.started.send(());
        content.read_to_end(&mut Vec::new()).map(|_| ())
    }
    fn alias(&mut self, _: &str, _: &str) -> Result<(), Self::Error> {
        Ok(())
    }
    fn remove(&mut self, _: &str) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = self.ended.send("ended");
    }
}

#[tokio::test]
async fn visitor_ends_when_pull_is_dropped() {
    let (registry, mut client) = support::start().await;
    client.config.timeouts.stall = Duration::from_secs(3600);
    let (image, layer, _) = big();
    registry.push("cat", Some("1"), &image);
    let half = layer.len() / 2;
    spoil(
        &registry,
        usize::MAX,
        move |b| Reply::body(Body::Stall { bytes: b[..half].to_vec(), declared: b.len() }),
        layer,
    );
    let image = client.puller().open(&registry.reference("cat:1")).await.unwrap();
    let (started, mut has_started) = tokio::sync::mpsc::unbounded_channel();
    let (ended, has_ended) = mpsc::channel();
    let visiting = tokio::spawn(async move {
        let visitor = Blocked { started, ended };
        image.visit(Selection::everything(), &Limits::default(), visitor).await.map(|_| ()).err().map(|_| ())
    });
    has_started.recv().await.unwrap();
    visiting.abort();
    let ended = tokio::task::spawn_blocking(move || has_ended.recv_timeout(Duration::from_secs(20)));
    assert_eq!(ended.await.unwrap(), Ok("ended"));
}

#[tokio::test]
async fn visitor_error_is_returned() {
    struct Picky;
    impl Visitor for Picky {
        type Error = String;
        fn file(&mut self, path: &str, _: u64, _: &mut dyn Read) -> Result<(), String> {
            Err(format!("not {path}"))
        }
        fn alias(&mut self, _: &str, _: &str) -> Result<(), String> {
            Ok(())
        }
        fn remove(&mut self, _: &str) -> Result<(), String> {
            Ok(())
        }
    }
    let (registry, client) = support::start().await;
    registry.push("cat", Some("1"), &catalog());
    let image = client.puller().open(&registry.reference("cat:1")).await.unwrap();
    let result = image.visit(Selection::everything(), &Limits::default(), Picky).await;
    assert!(matches!(result, Err(olm_oci::VisitError::Visitor(text)) if text == "not configs/a.json"));
}

#[tokio::test]
#[rustfmt::skip]
async fn manifest_rejects_unsupported_content() {
    let (registry, client) = support::start().await;
    let blob = registry.blob(b"{}");
    let layer = |media_type: &str| {
        format!(
            r#"{{"schemaVersion":2,"mediaType":"{}","config":{{"digest":"{blob}","size":2}},"layers":[{{"mediaType":"{media_type}","digest":"{blob}","size":2}}]}}"#,
            support::MANIFEST
        )
    };
    let index = |digest: &olm_core::Digest| {
        format!(r#"{{"mediaType":"{}","manifests":[{{"digest":"{digest}","size":1}}]}}"#, support::INDEX)
    };
    let mut nested = registry.manifest("odd", None, support::INDEX, index(&digest(b"x")).as_bytes());
    for _ in 0..3 {
        nested = registry.manifest("odd", None, support::INDEX, index(&nested).as_bytes());
    }
    let huge = format!(
        r#"{{"mediaType":"{}","config":{{"digest":"{blob}","size":2}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{blob}","size":9223372036854775807}}]}}"#,
        support::MANIFEST
    );
    let bad_config = format!(
        r#"{{"mediaType":"{}","config":{{"digest":"{blob}","size":99999999}},"layers":[]}}"#,
        support::MANIFEST
    );
    let one =
        format!(r#"{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{blob}","size":2}}"#);
    let layers = vec![one; 509].join(",");
    let many = format!(
        r#"{{"mediaType":"{}","config":{{"digest":"{blob}","size":2}},"layers":[{layers}]}}"#,
        support::MANIFEST
    );
    for (name, body, want) in [
        ("many layers", many, "image with 509 layers exceeds the limit of 508 layers"),
        ("artifact", layer("application/vnd.cncf.helm.chart"),
            r#"error applying image: error reading layer[0]: layer has the unsupported media type "application/vnd.cncf.helm.chart""#),
        ("encrypted", layer("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"), "encrypted layers are not supported"),
        ("nested", index(&nested), "image indexes are nested more than 3 deep"),
        ("broken", "{".into(), "error getting manifest: manifest is not valid JSON"),
        ("schema 1", r#"{"schemaVersion":1,"name":"x","tag":"y"}"#.into(), "Docker schema 1"),
        ("huge", huge, "download of 9223372036854775807 bytes exceeds the limit of"),
        ("huge config", bad_config, "exceeds the limit of 4194304 bytes"),
        ("other platforms", format!(r#"{{"mediaType":"{}","manifests":[]}}"#, support::INDEX),
            r#"no image found in image index for architecture "amd64""#),
    ] {
        registry.manifest("odd", Some("1"), support::MANIFEST, body.as_bytes());
        let error = pull(&client.puller(), &registry.reference("odd:1")).await.unwrap_err();
        assert!(error.to_string().contains(want), "{name}: {error}");
    }
}
