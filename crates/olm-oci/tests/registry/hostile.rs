//! Hostile registries: redirects and names to forbidden targets, and responses without end. Threats:
//! docs/threat-model.md. (Failures of honest registries are in `pull.rs`, trust in `trust.rs`.)

use std::time::{Duration, Instant};

use crate::support;
use crate::support::pki::Authority;
use crate::support::{Body, Client, Registry, Reply, image, layer, pull};
use olm_core::ImageRef;

/// A reference names a repository of a host, whatever is written into it.
#[test]
fn reference_rejects_credentials_schemes_and_paths() {
    for text in [
        "user:password@quay.test/x:1",
        "user@quay.test/x:1",
        "http://quay.test/x:1",
        "docker://quay.test/x:1",
        "file:///etc/passwd",
        "quay.test/../../etc/x:1",
        "quay.test/./x:1",
        "quay.test//x:1",
        "/etc/passwd:1",
        "quay.test/x?y=z:1",
        "quay.test/x#y:1",
        "quay.test/x%2f..%2fy:1",
        "quay.test\\@spy.test/x:1",
        "quay.test/x:1@spy.test/y",
        "quay.test/x:1\r\nHost: spy.test",
        "quay.test/x:1 spy.test/y:1",
        "quay.test:80:80/x:1",
        "quay.test/x:../../y",
        "quay.test/x@sha256:../../y",
        "quay.test/x\0:1",
        "qu\u{0430}y.test/x:1",
        "",
    ] {
        let parsed: Result<ImageRef, _> = text.parse();
        assert!(parsed.is_err(), "{text:?} is read as {}", parsed.unwrap());
    }
    // addresses are hosts like others: the author of a reference decides which hosts get requests (docs/threat-model.md)
    for (text, host) in
        [("169.254.169.254/latest/meta-data:1", "169.254.169.254"), ("[::1]:5000/x:1", "[::1]:5000")]
    {
        assert_eq!(text.parse::<ImageRef>().unwrap().registry(), host);
    }
}

/// `urls` of a layer would let an image name any address; they are not used, whatever the layer calls itself.
#[tokio::test]
async fn layer_urls_are_never_requested() {
    let (registry, spy) = (Registry::start().await, Registry::start().await);
    let client = Client::new(&[&registry, &spy]).with_password(&registry);
    let blob = layer(&[("configs/a", "1")]);
    let name = spy.blob(&blob);
    let config = registry.blob(b"{}");
    for kind in [
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"{}","config":{{"digest":"{config}","size":2}},"layers":[
                {{"mediaType":"{kind}","digest":"{name}","size":{},"urls":["http://{}/v2/cat/blobs/{name}"]}}]}}"#,
            support::MANIFEST,
            blob.len(),
            spy.address,
        );
        registry.manifest("cat", Some("1"), support::MANIFEST, manifest.as_bytes());
        let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
        assert!(
            error.contains("blob_unknown") || error.contains("unsupported media type"),
            "{kind}: {error}"
        );
        assert_eq!(spy.take_log(), [""; 0], "{kind}");
    }
}

/// From encryption there is no way into the clear or to another scheme, for no kind of answer.
#[tokio::test]
async fn redirect_never_drops_encryption_or_scheme() {
    let authority = Authority::new("ca");
    let registry = Registry::start_with(Some(authority.server(None))).await;
    let spy = Registry::start().await;
    registry.push("cat", Some("1"), &image());
    spy.push("cat", Some("1"), &image());
    let mut client = Client::new(&[]).with_password(&registry);
    client.trust(&authority);
    let targets = [
        (format!("http://{}", spy.address), "is not https"),
        ("file:///etc/passwd?".to_owned(), "scheme \"file\""),
        ("ftp://127.0.0.1".to_owned(), "scheme \"ftp\""),
        (format!("https://user:password@{}", registry.address), "holds credentials"),
        ("https://[".to_owned(), "is not a URL"),
    ];
    for (target, want) in targets {
        for part in ["/manifests/", "/blobs/"] {
            let to = target.clone();
            registry.hook(move |request| {
                let moved = || Reply::new(307, "").header("Location", format!("{to}{}", request.target));
                request.target.contains(part).then(moved)
            });
            let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
            assert!(error.contains("is refused: ") && error.contains(want), "{part} to {target}: {error}");
        }
        let realm = format!("Bearer realm=\"{target}/token\"");
        registry
            .hook(move |_| Some(Reply::error(401, "UNAUTHORIZED").header("WWW-Authenticate", realm.clone())));
        let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
        assert!(
            error.contains("token service is refused: ") || error.contains("is not a URL"),
            "{target}: {error}"
        );
    }
    assert_eq!(spy.take_log(), [""; 0]);
}

/// What a token service is sent stays with it, and what it answers is bounded.
#[tokio::test]
async fn token_service_redirects_and_bodies_are_bounded() {
    let (registry, spy) = (Registry::start().await, Registry::start().await);
    let client = Client::new(&[&registry, &spy]).with_password(&registry);
    let (address, elsewhere) = (registry.address, spy.address);
    let serve = |token: Box<dyn Fn() -> Reply + Send>| {
        registry.hook(move |request| {
            if request.target.starts_with("/token") {
                return Some(token());
            }
            let realm = format!("Bearer realm=\"http://{address}/token\"");
            Some(Reply::error(401, "UNAUTHORIZED").header("WWW-Authenticate", realm))
        });
    };
    let to = format!("http://{elsewhere}/token");
    serve(Box::new(move || Reply::new(307, "").header("Location", to.clone())));
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("requesting a token: "), "{error}");
    assert_eq!(spy.take_log(), [""; 0], "a redirect of the token service is not followed");

    serve(Box::new(|| Reply::body(Body::Endless(vec![b' '; 65_536]))));
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("exceeds the limit of 1048576 bytes"), "{error}");

    serve(Box::new(|| Reply::new(200, r#"{"token":"a\r\nX-Injected: b"}"#)));
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("control characters"), "{error}");
    assert!(registry.take_requests().iter().all(|request| request.header("x-injected").is_none()));
}

/// Answers that would take memory or time without end.
#[tokio::test]
async fn registry_headers_and_documents_are_bounded() {
    let (registry, mut client) = support::start().await;
    client.config.timeouts.answer = Duration::from_secs(2);
    client.config.retries.server_error = 0;
    let huge = || Reply::new(200, "{}").header("X-Huge", "a".repeat(4 << 20));
    let many = || (0..5_000).fold(Reply::new(200, "{}"), |reply, n| reply.header(&format!("X-{n}"), "y"));
    let drip = || Reply::body(Body::Drip { bytes: vec![b' '; 10_000], pause: Duration::from_millis(200) });
    let stall = || Reply::body(Body::Stall { bytes: b"{".to_vec(), declared: 100 });
    let lies = || Reply::body(Body::Cut { bytes: b"{}".to_vec(), declared: usize::MAX >> 1 });
    type Case = (&'static str, fn() -> Reply);
    let cases: [Case; 5] = [("huge", huge), ("many", many), ("drip", drip), ("stall", stall), ("lies", lies)];
    for (name, reply) in cases {
        registry.hook(move |_| Some(reply()));
        let began = Instant::now();
        let error = client.puller().open(&registry.reference("cat:1")).await.err();
        assert!(error.is_some(), "{name}");
        assert!(began.elapsed() < Duration::from_secs(15), "{name}: {:?}", began.elapsed());
    }
    // messages of registries go into conditions: one line, short, without control characters
    let body =
        format!(r#"{{"errors":[{{"code":"DENIED","message":"{}\n\u001b[2J{}"}}]}}"#, "a", "b".repeat(5_000));
    registry.hook(move |_| Some(Reply::new(403, body.clone())));
    let error = client.puller().open(&registry.reference("cat:1")).await.err().unwrap().to_string();
    assert!(error.len() < 500 && !error.chars().any(char::is_control), "{error:?}");
}
