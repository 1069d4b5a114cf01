//! Trust: credentials, certificates, redirects, mirrors, proxies, policy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support;
use crate::support::pki::Authority;
use crate::support::{Body, Client, Registry, Reply, Request, auths, image, pull};
use olm_oci::{ImageError, Keyring, Proxies, Retry, Selection, SharedKeyring};
use rcgen::ExtendedKeyUsagePurpose;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// `user:password`.
pub(super) const BASIC: &str = "Basic dXNlcjpwYXNzd29yZA==";

pub(super) fn demand(header: &str) -> Reply {
    Reply::error(401, "UNAUTHORIZED").header("WWW-Authenticate", header)
}

#[tokio::test]
async fn credentials_are_sent_when_asked_for() {
    let registry = Registry::start().await;
    registry.push("cat", Some("1"), &image());
    registry.hook(|r| (r.header("authorization") != Some(BASIC)).then(|| demand("Basic realm=\"x\"")));
    let reference = registry.reference("cat:1");
    for (entry, want) in [
        (r#"{"auth":"dXNlcjpwYXNzd29yZA=="}"#, Ok(1)),
        (r#"{"username":"user","password":"password"}"#, Ok(1)),
        (r#"{"username":"user","password":"wrong"}"#, Err("unauthorized: unauthorized (HTTP status 401)")),
        (r#"{}"#, Err("unauthorized")),
    ] {
        let client = Client::new(&[&registry]).auth(&auths(&registry, entry));
        let got = pull(&client.puller(), &reference).await.map_err(|error| error.to_string());
        match want {
            Ok(n) => assert_eq!(got, Ok(n), "{entry}"),
            Err(text) => assert!(got.as_ref().is_err_and(|got| got.contains(text)), "{entry}: {got:?}"),
        }
    }
    // the registry demands the credentials once, then they are cached
    let client = Client::new(&[&registry]).auth(&auths(&registry, r#"{"auth":"dXNlcjpwYXNzd29yZA=="}"#));
    registry.take_log();
    let puller = client.puller();
    puller.resolve(&reference).await.unwrap();
    assert_eq!(registry.take_log().len(), 2);
    puller.resolve(&reference).await.unwrap();
    assert_eq!(registry.take_log().len(), 1, "a poll is one request");
}

#[tokio::test]
async fn credentials_change_applies_to_next_pull() {
    let (registry, mut client) = support::start().await;
    registry.push("cat", Some("1"), &image());
    registry.hook(|r| (r.header("authorization") != Some(BASIC)).then(|| demand("Basic")));
    let shared = SharedKeyring::default();
    client.config.credentials.shared = Some(shared.clone());
    let puller = client.puller();
    let reference = registry.reference("cat:1");
    let error = pull(&puller, &reference).await.unwrap_err();
    assert_eq!(error.cause().and_then(ImageError::status), Some(401));
    let mut keyring = Keyring::new();
    keyring
        .add_config_json(auths(&registry, r#"{"username":"user","password":"password"}"#).as_bytes())
        .unwrap();
    shared.set(Some(keyring));
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1);
    shared.set(None);
    assert!(pull(&puller, &reference).await.is_err(), "credentials taken away are not used any more");
}

#[tokio::test]
async fn credentials_file_error_is_distinct() {
    let registry = Registry::start().await;
    let client = Client::new(&[&registry]).auth("{");
    let error = client.puller().resolve(&registry.reference("cat:1")).await.unwrap_err();
    assert!(error.to_string().starts_with("could not stat auth file, error: "), "{error}");
    assert!(registry.take_log().is_empty());
}

/// A registry with a token service at `/token`: tokens name the scope they were given for.
fn token_service(registry: &Registry, scope_of_registry: &'static str) {
    let address = registry.address;
    registry.hook(move |r: &Request| {
        if let Some(query) = r.target.strip_prefix("/token") {
            let scope = url::form_urlencoded::parse(query.trim_start_matches('?').as_bytes())
                .chain(url::form_urlencoded::parse(r.body.as_bytes()))
                .find(|(key, _)| key == "scope")
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default();
            let allowed = r.header("authorization") == Some(BASIC) || r.body.contains("refresh_token=identity");
            return Some(match allowed {
                true => Reply::new(200, format!(r#"{{"token":"for {scope}","expires_in":300}}"#)),
                false => Reply::new(401, r#"{"details":"incorrect username or password"}"#),
            });
        }
        let got = r.header("authorization").unwrap_or_default();
        (got != format!("Bearer for {scope_of_registry}")).then(|| {
            demand(&format!(
                r#"Bearer realm="http://{address}/token",service="registry.test",scope="{scope_of_registry}",error="insufficient_scope""#
            ))
        })
    });
}

#[tokio::test]
async fn token_is_fetched_once_per_repository() {
    let registry = Registry::start().await;
    registry.push("cat", Some("1"), &image());
    token_service(&registry, "repository:cat:pull");
    for entry in [r#"{"username":"user","password":"password"}"#, r#"{"identitytoken":"identity"}"#] {
        let client = Client::new(&[&registry]).auth(&auths(&registry, entry));
        let puller = client.puller();
        registry.take_log();
        for _ in 0..2 {
            assert_eq!(pull(&puller, &registry.reference("cat:1")).await.unwrap(), 1, "{entry}");
        }
        let log = registry.take_requests();
        let tokens: Vec<_> = log.iter().filter(|r| r.target.starts_with("/token")).collect();
        assert_eq!(tokens.len(), 1, "{entry}");
        if entry.contains("identity") {
            assert_eq!(tokens[0].method, "POST");
            assert!(tokens[0].body.contains("grant_type=refresh_token"));
        } else {
            assert_eq!(tokens[0].target, "/token?scope=repository%3Acat%3Apull&service=registry.test");
        }
        assert_eq!(log.len(), 1 + 1 + 2 * 3, "challenge, token, and manifest, config, layer twice");
    }
    let client = Client::new(&[&registry]).auth(&auths(&registry, r#"{"username":"user","password":"no"}"#));
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("requesting a token: unauthorized: incorrect username or password"), "{error}");
}

#[tokio::test]
async fn pull_bounds_token_answers_and_error_bodies() {
    let (registry, client) = support::start().await;
    let address = registry.address;
    registry.hook(move |r: &Request| {
        Some(match r.target.starts_with("/token") {
            true => Reply::body(Body::Endless(vec![b' '; 65536])),
            false => demand(&format!(r#"Bearer realm="http://{address}/token",service="registry.test""#)),
        })
    });
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("exceeds the limit of 1048576 bytes"), "{error}");

    for (size, shown) in [(100, true), (64 << 10, false)] {
        registry.hook(move |_| {
            let filler = " ".repeat(size);
            Some(Reply::new(404, format!(r#"{{"errors":[{{"code":"ODD_CODE"}}]{filler}}}"#)))
        });
        let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err();
        assert_eq!(error.cause().and_then(ImageError::status), Some(404), "{size}");
        assert_eq!(format!("{error:?}").contains("ODD_CODE"), shown, "{size}: {error:?}");
    }
}

#[tokio::test]
async fn token_uses_scope_of_the_challenge() {
    let registry = Registry::start().await;
    registry.push("cat", Some("1"), &image());
    token_service(&registry, "repository:cat:pull repository:base:pull");
    let client = Client::new(&[&registry]).with_password(&registry);
    let puller = client.puller();
    assert_eq!(pull(&puller, &registry.reference("cat:1")).await.unwrap(), 1);
    // the scope changes: the old token is rejected, a new one is fetched
    token_service(&registry, "repository:cat:pull,metadata");
    assert_eq!(pull(&puller, &registry.reference("cat:1")).await.unwrap(), 1);
}

#[tokio::test]
async fn credentials_are_never_sent_in_the_clear() {
    let authority = Authority::new("ca");
    let registry = Registry::start_with(Some(authority.server(None))).await;
    let spy = Registry::start().await;
    let realm = format!("Bearer realm=\"http://{}/token\"", spy.address);
    registry.hook(move |_| Some(demand(&realm)));
    let mut client = Client::new(&[]).with_password(&registry);
    client.trust(&authority);
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("token service is refused: 127.0.0.1 is not https"), "{error}");
    assert!(spy.take_log().is_empty());
}

#[tokio::test]
async fn redirect_to_another_host_drops_credentials() {
    let (registry, store) = (Registry::start().await, Registry::start().await);
    let pushed = image();
    registry.push("cat", Some("1"), &pushed);
    store.push("cat", Some("1"), &pushed);
    let elsewhere = store.address;
    registry.hook(move |r| {
        if r.header("authorization") != Some(BASIC) {
            return Some(demand("Basic"));
        }
        if !r.target.contains("/blobs/") {
            return None;
        }
        let to = format!("http://{elsewhere}{}", r.target);
        Some(Reply::new(307, "").header("Location", to))
    });
    let client = Client::new(&[&registry]).with_password(&registry);
    assert_eq!(pull(&client.puller(), &registry.reference("cat:1")).await.unwrap(), 1);
    let seen = store.take_requests();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|r| r.header("authorization").is_none()), "{seen:?}");

    // the response of a foreign host is not shown, and cannot demand credentials
    store.hook(|_| Some(Reply::error(401, "SECRET").header("WWW-Authenticate", "Basic")));
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(
        error.contains("unauthorized (HTTP status 401)") && !error.to_lowercase().contains("secret"),
        "{error}"
    );
    assert!(store.take_requests().iter().all(|r| r.header("authorization").is_none()));
}

#[tokio::test]
async fn redirect_within_registry_keeps_credentials() {
    let registry = Registry::start().await;
    registry.push("cat", Some("1"), &image());
    registry.push("moved", Some("1"), &image());
    registry.hook(|r| {
        if r.header("authorization") != Some(BASIC) {
            return Some(demand("Basic"));
        }
        let target = r.target.strip_prefix("/v2/cat/")?;
        Some(Reply::new(302, "").header("Location", format!("/v2/moved/{target}")))
    });
    let client = Client::new(&[&registry]).with_password(&registry);
    assert_eq!(pull(&client.puller(), &registry.reference("cat:1")).await.unwrap(), 1);
    registry.hook(|r| Some(Reply::new(302, "").header("Location", r.target.clone())));
    registry.take_log();
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("more than 5 redirects"), "{error}");
    assert_eq!(registry.take_log().len(), 6, "the request and five redirects");
    registry.hook(|_| Some(Reply::new(302, "").header("Location", "ftp://127.0.0.1/x")));
    let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("redirect of 127.0.0.1 is refused: scheme \"ftp\""), "{error}");
}

#[tokio::test]
async fn certificates_are_checked_and_rotate_without_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let registry = Registry::start_with(Some(old.server(None))).await;
    registry.push("cat", Some("1"), &image());
    let reference = registry.reference("cat:1");

    let untrusting = Client::new(&[]);
    let error = pull(&untrusting.puller(), &reference).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    assert_eq!(error.retry(), Retry::Backoff);

    let mut client = Client::new(&[]);
    client.trust(&old);
    let puller = client.puller();
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1);

    registry.set_tls(new.server(None));
    let fresh = client.puller();
    assert!(pull(&fresh, &reference).await.is_err(), "the new certificate is not trusted yet");
    std::fs::write(client.path("cas/ca.crt"), &new.pem).unwrap();
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1, "the same puller after the directory changed");
    assert_eq!(pull(&fresh, &reference).await.unwrap(), 1);
}

#[tokio::test]
async fn tls_errors_have_familiar_words() {
    let (trusted, other) = (Authority::new("ca"), Authority::new("other"));
    let mut client = Client::new(&[]);
    client.trust(&trusted);
    let name =
        trusted.issue(&["registry.invalid", "*.registry.invalid"], ExtendedKeyUsagePurpose::ServerAuth);
    let same_name = Authority::new("ca");
    for (server, want) in [
        (other.server(None), "certificate signed by unknown authority"),
        (same_name.server(None), "certificate signed by unknown authority: the trusted CA of that name"),
        (trusted.expired().server(None), "certificate has expired"),
        (name.server(None), "certificate is valid for registry.invalid, *.registry.invalid, not 127.0.0.1"),
        (trusted.pair().server(None), "server presents a CA certificate as its own; use a certificate"),
    ] {
        let registry = Registry::start_with(Some(server)).await;
        let error = pull(&client.puller(), &registry.reference("cat:1")).await.unwrap_err();
        let place = format!("error creating image source: reading manifest 1 in {}/cat: ", registry.address);
        let text = error.to_string();
        let cause = text.strip_prefix(&place);
        assert!(cause.is_some_and(|cause| cause.starts_with(want)), "{text}");
        assert_eq!(error.retry(), Retry::Backoff);
    }
}

#[tokio::test]
async fn plain_http_registry_is_named_as_such() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut hello = [0; 4096];
        assert!(socket.read(&mut hello).await.unwrap() > 0);
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await.unwrap();
        while socket.read(&mut hello).await.is_ok_and(|count| count > 0) {}
    };
    let (client, reference) = (Client::new(&[]), format!("{address}/cat:1").parse().unwrap());
    let puller = client.puller();
    let (error, ()) = tokio::join!(puller.resolve(&reference), server);
    assert_eq!(
        error.unwrap_err().to_string(),
        format!(
            "error creating image source: reading manifest 1 in {address}/cat: server gave HTTP response to HTTPS client; \
             to allow plain HTTP, set insecure = true for it in registries.conf"
        )
    );
}

#[tokio::test]
async fn insecure_allows_plain_http_and_any_certificate() {
    let authority = Authority::new("ca");
    let tls = Registry::start_with(Some(authority.server(None))).await;
    let plain = Registry::start().await;
    for registry in [&tls, &plain] {
        registry.push("cat", Some("1"), &image());
        let strict = Client::new(&[]);
        assert!(pull(&strict.puller(), &registry.reference("cat:1")).await.is_err());
        assert!(registry.take_log().is_empty(), "not one request without trust");
        let lax = Client::new(&[registry]);
        assert_eq!(pull(&lax.puller(), &registry.reference("cat:1")).await.unwrap(), 1);
        let mut lenient = Client::new(&[]);
        lenient.config.insecure = true;
        assert_eq!(pull(&lenient.puller(), &registry.reference("cat:1")).await.unwrap(), 1);
    }
    let mut trusting = Client::new(&[]);
    let file = trusting.path("my-ca");
    std::fs::write(&file, &authority.pem).unwrap();
    trusting.config.certificates.files = vec![file.clone()];
    assert_eq!(pull(&trusting.puller(), &tls.reference("cat:1")).await.unwrap(), 1);
    std::fs::remove_file(file).unwrap();
    let error = pull(&trusting.puller(), &tls.reference("cat:1")).await.unwrap_err().to_string();
    assert!(error.contains("my-ca"), "{error}");
}

#[tokio::test]
async fn client_certificate_is_for_the_registry_only() {
    let (authority, clients) = (Authority::new("ca"), Authority::new("clients"));
    let registry = Registry::start_with(Some(authority.server(Some(&clients)))).await;
    registry.push("cat", Some("1"), &image());
    let mut client = Client::new(&[]);
    client.trust(&authority);
    assert!(pull(&client.puller(), &registry.reference("cat:1")).await.is_err());
    let pair = clients.issue(&["client"], ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::write(client.path("cas/me.cert"), &pair.certificate).unwrap();
    std::fs::write(client.path("cas/me.key"), &pair.key).unwrap();
    let puller = client.puller();
    assert_eq!(pull(&puller, &registry.reference("cat:1")).await.unwrap(), 1);

    // an object store that demands the same certificate does not get it
    let store = Registry::start_with(Some(authority.server(Some(&clients)))).await;
    store.push("cat", Some("1"), &image());
    let elsewhere = store.address;
    registry.hook(move |r| {
        r.target
            .contains("/blobs/")
            .then(|| Reply::new(307, "").header("Location", format!("https://{elsewhere}{}", r.target)))
    });
    assert!(pull(&puller, &registry.reference("cat:1")).await.is_err());
    assert!(store.take_log().is_empty());
    store.set_tls(authority.server(None));
    assert_eq!(pull(&puller, &registry.reference("cat:1")).await.unwrap(), 1);
}

#[tokio::test]
async fn mirrors_are_tried_first() {
    let (mirror, origin) = (Registry::start().await, Registry::start().await);
    let client = Client::new(&[]);
    client.registries_conf(&format!(
        "[[registry]]\nprefix = 'quay.test/team'\nlocation = '{}'\ninsecure = true\n[[registry.mirror]]\nlocation = '{}/copy'\ninsecure = true\n",
        origin.address, mirror.address
    ));
    let reference: olm_core::ImageRef = "quay.test/team/cat:1".parse().unwrap();
    let puller = client.puller();

    let error = pull(&puller, &reference).await.unwrap_err().to_string();
    let want = format!(
        "error creating image source: (Mirrors also failed: [{m}/copy/cat:1: reading manifest 1 in {m}/copy/cat: manifest unknown]): \
         {o}/cat:1: reading manifest 1 in {o}/cat: manifest unknown",
        m = mirror.address,
        o = origin.address
    );
    assert_eq!(error, want);

    let digest = origin.push("cat", Some("1"), &image());
    let opened = puller.open(&reference).await.unwrap();
    assert_eq!(opened.canonical.to_string(), format!("quay.test/team/cat@{digest}"));
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1);

    mirror.push("copy/cat", Some("1"), &image());
    origin.take_log();
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1);
    assert_eq!(origin.take_log(), Vec::<String>::new(), "the mirror has everything");

    // a mirror that has the manifest but lost a blob: the origin serves it
    mirror.hook(|r| r.target.contains("/blobs/").then(|| Reply::error(404, "BLOB_UNKNOWN")));
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1);

    // read again for every pull
    client.registries_conf("[[registry]]\nlocation = 'quay.test'\nblocked = true\n");
    let error = puller.resolve(&reference).await.unwrap_err();
    assert!(error.to_string().contains("registry quay.test is blocked in "), "{error}");
    assert_eq!(error.retry(), Retry::Slow);
}

#[tokio::test]
async fn blocked_registry_is_pulled_from_its_mirrors() {
    let (mirror, origin) = (Registry::start().await, Registry::start().await);
    let client = Client::new(&[]);
    let (m, o) = (&mirror.address, &origin.address);
    client.registries_conf(&format!(
        "[[registry]]\nlocation = '{o}'\ninsecure = true\nblocked = true\n[[registry.mirror]]\nlocation = '{m}/copy'\ninsecure = true\n"
    ));
    origin.push("cat", Some("1"), &image());
    let (puller, reference) = (client.puller(), origin.reference("cat:1"));
    let error = pull(&puller, &reference).await.unwrap_err();
    assert!(error.to_string().ends_with(&format!("in {m}/copy/cat: manifest unknown")), "{error}");
    assert_eq!(error.retry(), Retry::Backoff);
    mirror.push("copy/cat", Some("1"), &image());
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1);
    assert_eq!(origin.take_log(), Vec::<String>::new(), "the source is blocked");
}

#[tokio::test]
async fn tag_mirror_serves_the_content_of_the_tag() {
    let (mirror, origin) = (Registry::start().await, Registry::start().await);
    let client = Client::new(&[]);
    let (m, o) = (&mirror.address, &origin.address);
    client.registries_conf(&format!(
        "[[registry]]\nlocation = '{o}'\ninsecure = true\n[[registry.mirror]]\nlocation = '{m}/copy'\ninsecure = true\npull-from-mirror = 'tag-only'\n"
    ));
    mirror.push("copy/cat", Some("1"), &image());
    let (puller, tag) = (client.puller(), origin.reference("cat:1"));
    let canonical = puller.resolve(&tag).await.unwrap();
    let verified = puller.verify(&tag, &canonical).await.unwrap();
    let opened = puller.open_verified(&verified).await.unwrap();
    assert_eq!(opened.canonical, canonical);
    let files = support::read_files(&opened, Selection::everything()).await.unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(origin.take_log(), Vec::<String>::new(), "the mirror has everything");
    // a digest that the user wrote is not for this mirror
    let verified = puller.verify(&canonical, &canonical).await.unwrap();
    let error = puller.open_verified(&verified).await.unwrap_err().to_string();
    assert!(error.ends_with(&format!("in {o}/cat: manifest unknown")), "{error}");
}

#[tokio::test]
async fn find_names_the_location_that_has_the_manifest() {
    let (mirror, origin) = (Registry::start().await, Registry::start().await);
    let client = Client::new(&[]);
    let (m, o) = (&mirror.address, &origin.address);
    client.registries_conf(&format!(
        "[[registry]]\nlocation = '{o}'\ninsecure = true\n[[registry.mirror]]\nlocation = '{m}/copy'\ninsecure = true\n"
    ));
    let puller = client.puller();
    let tag = origin.reference("cat:1");
    let digest = origin.push("cat", Some("1"), &image());
    let by_digest = origin.reference(&format!("cat@{digest}"));
    for reference in [&tag, &by_digest] {
        let found = puller.find(reference, false).await.unwrap();
        assert_eq!((&found.location, found.is_mirror, &found.digest), (reference, false, &digest));
        origin.take_log();
        let error = puller.find(reference, true).await.unwrap_err().to_string();
        assert!(error.contains(&format!("in {m}/copy/cat: manifest unknown")), "{error}");
        assert_eq!(origin.take_log(), Vec::<String>::new(), "only mirrors are asked");
    }
    mirror.push("copy/cat", Some("1"), &image());
    for (reference, at) in [(&tag, format!("{m}/copy/cat:1")), (&by_digest, format!("{m}/copy/cat@{digest}"))]
    {
        for mirrors_only in [false, true] {
            let found = puller.find(reference, mirrors_only).await.unwrap();
            let got = (found.location.to_string(), found.is_mirror, &found.digest);
            assert_eq!(got, (at.clone(), true, &digest), "{mirrors_only}");
        }
    }
    assert_eq!(origin.take_log(), Vec::<String>::new());
    // other bytes under the digest do not count
    mirror.hook(|request| request.target.contains("/manifests/sha256:").then(|| Reply::new(200, "{}")));
    let error = puller.find(&by_digest, true).await.unwrap_err().to_string();
    assert!(error.contains("digest mismatch"), "{error}");

    let error = puller.find(&"other.test/cat:1".parse().unwrap(), true).await.unwrap_err().to_string();
    assert_eq!(error, "error creating image source: no mirror is configured for other.test/cat");
}

#[tokio::test]
async fn credentials_are_looked_up_per_location() {
    let registry = Registry::start().await;
    registry.push("cat", Some("1"), &image());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    registry.hook(move |r| {
        log.lock().unwrap().push(r.header("authorization").map(str::to_owned));
        (r.header("authorization") != Some(BASIC)).then(|| demand("Basic"))
    });
    let document = format!(
        r#"{{"auths":{{"quay.test":{{"username":"origin","password":"secret"}},"{}":{{"username":"user","password":"password"}}}}}}"#,
        registry.address
    );
    let client = Client::new(&[]).auth(&document);
    client.registries_conf(&format!(
        "[[registry]]\nprefix = 'quay.test'\nlocation = '{}'\ninsecure = true\n",
        registry.address
    ));
    assert_eq!(pull(&client.puller(), &"quay.test/cat:1".parse().unwrap()).await.unwrap(), 1);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().flatten().all(|header| header == BASIC), "{seen:?}");
}

#[tokio::test]
async fn proxies_carry_remote_requests() {
    let proxy = Registry::start().await;
    proxy.push("cat", Some("1"), &image());
    let mut client = Client::new(&[&proxy]);
    client.config.proxies = Proxies {
        http: Some(format!("http://{}", proxy.address)),
        https: None,
        no_proxy: "direct.invalid".into(),
    };
    client.config.timeouts.connect = Duration::from_secs(2);
    client.registries_conf(
        "[[registry]]\nlocation = 'registry.invalid'\ninsecure = true\n[[registry]]\nlocation = 'direct.invalid'\ninsecure = true\n",
    );
    let puller = client.puller();
    assert_eq!(pull(&puller, &"registry.invalid/cat:1".parse().unwrap()).await.unwrap(), 1);
    let log = proxy.take_log();
    assert!(
        !log.is_empty() && log.iter().all(|line| line.contains(" http://registry.invalid/v2/cat/")),
        "{log:?}"
    );
    assert!(pull(&puller, &"direct.invalid/cat:1".parse().unwrap()).await.is_err());
    assert!(proxy.take_log().is_empty());

    client.registries_conf(&format!("[[registry]]\nlocation = '{}'\ninsecure = true\n", proxy.address));
    assert_eq!(pull(&puller, &proxy.reference("cat:1")).await.unwrap(), 1);
    assert!(proxy.take_log().iter().all(|line| line.contains(" /v2/cat/")), "loopback is reached directly");
}

/// Accepts one `CONNECT` after the other and joins them to `registry`; records the requested names.
async fn tunnel(registry: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(socket.read_u8().await.unwrap());
                }
                log.lock().unwrap().push(String::from_utf8(head).unwrap());
                let mut there = tokio::net::TcpStream::connect(registry).await.unwrap();
                socket.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut socket, &mut there).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn proxies_tunnel_encrypted_registries() {
    let authority = Authority::new("ca");
    let registry = Registry::start_with(Some(authority.server(None))).await;
    registry.push("cat", Some("1"), &image());
    let (proxy, asked) = tunnel(registry.address).await;
    let mut client = Client::new(&[]);
    client.trust(&authority);
    client.config.proxies =
        Proxies { http: None, https: Some(format!("http://user:pass@{proxy}")), no_proxy: String::new() };
    assert_eq!(pull(&client.puller(), &"registry.invalid/cat:1".parse().unwrap()).await.unwrap(), 1);
    let asked = asked.lock().unwrap().join("");
    assert!(asked.starts_with("CONNECT registry.invalid:443 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_lowercase().contains("proxy-authorization: basic dxnlcjpwyxnz"), "{asked}");
    assert!(registry.take_requests().iter().all(|r| r.header("proxy-authorization").is_none()));
}

#[tokio::test]
async fn policy_is_checked_before_the_registry() {
    let (registry, mut client) = support::start().await;
    registry.push("cat", Some("1"), &image());
    let file = client.path("policy.json");
    client.config.signature_policy = file.to_str().unwrap().parse().unwrap();
    let puller = client.puller();
    let reference = registry.reference("cat:1");

    let error = puller.open(&reference).await.unwrap_err();
    assert!(error.to_string().starts_with("error loading policy context: "), "{error}");
    std::fs::write(&file, r#"{"default":[{"type":"reject"}]}"#).unwrap();
    let error = puller.open(&reference).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "error copying image: Source image rejected: Running image docker://{reference} is rejected by policy.; \
             the default of {} decides",
            file.display()
        )
    );
    std::fs::write(&file, r#"{"default":[{"type":"sigstoreSigned","keyPath":"/k"}]}"#).unwrap();
    let error = puller.open(&reference).await.unwrap_err();
    assert!(error.to_string().starts_with("error loading policy context: invalid policy in "), "{error}");
    assert!(puller.check_policy().is_err(), "a missing key is found before the first image");
    std::fs::write(&file, r#"{"default":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/k"}]}"#).unwrap();
    let error = puller.open(&reference).await.unwrap_err();
    assert!(error.to_string().contains("needs signedBy, which is not supported"), "{error}");
    assert_eq!(error.retry(), Retry::Slow);
    assert!(registry.take_log().is_empty());
    std::fs::write(&file, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
    assert_eq!(pull(&puller, &reference).await.unwrap(), 1);
}
