//! Stored content that is used with several credentials.

use std::path::PathBuf;

use olm_core::ImageRef;
use olm_oci::{Error, Keyring, Puller, SharedKeyring, Store};

use crate::support::{self, Client, Registry, Reply, auths, image};
use crate::trust::{BASIC, demand};

/// What a program does before it uses an image. The error beside a result is that of a check that could not be made.
async fn obtain(puller: &Puller, store: &Store, reference: &ImageRef) -> Result<Option<Error>, Error> {
    let canonical = puller.resolve(reference).await?;
    let verified = puller.verify(reference, &canonical).await?;
    let fill = |_: PathBuf| async { puller.open_verified(&verified).await.map(drop) };
    store.get_or_fill(canonical.digest().unwrap(), fill).await?;
    puller.check_stored(store, &verified).await
}

/// A puller of a scope that has this password.
fn scoped(puller: &Puller, registry: &Registry, scope: &str, password: &str) -> Puller {
    let mut keyring = Keyring::new();
    let entry = format!(r#"{{"username":"user","password":"{password}"}}"#);
    keyring.add_config_json(auths(registry, &entry).as_bytes()).unwrap();
    let shared = SharedKeyring::default();
    shared.set(Some(keyring));
    puller.in_scope(scope).with_keyring(shared)
}

#[tokio::test]
async fn stored_content_needs_credentials() {
    let (registry, client) = support::start().await;
    let digest = registry.push("cat", Some("1"), &image());
    registry.hook(|r| (r.header("authorization") != Some(BASIC)).then(|| demand("Basic")));
    let reference = registry.reference(&format!("cat@{digest}"));
    let store = Store::open(&client.path("store")).unwrap();
    let process = client.puller();
    obtain(&scoped(&process, &registry, "a", "password"), &store, &reference).await.unwrap();
    registry.take_log();
    for scope in ["a", "b"] {
        obtain(&scoped(&process, &registry, scope, "password"), &store, &reference).await.unwrap();
    }
    assert!(registry.take_log().is_empty(), "the same credentials pulled it");
    obtain(&process, &store, &reference).await.unwrap();
    assert!(registry.take_log().is_empty(), "without a scope all content is of one user");

    let empty = Store::open(&client.path("empty")).unwrap();
    for (case, puller) in
        [("wrong", scoped(&process, &registry, "b", "wrong")), ("anonymous", process.in_scope("b"))]
    {
        let error = obtain(&puller, &store, &reference).await.unwrap_err();
        assert!(error.is_unauthorized(), "{case}: {error}");
        let pulled = obtain(&puller, &empty, &reference).await.unwrap_err();
        assert_eq!(error.to_string(), pulled.to_string(), "{case}");
    }

    registry.take_log();
    let restarted = scoped(&client.puller(), &registry, "a", "password");
    obtain(&restarted, &store, &reference).await.unwrap();
    let manifest = format!("GET /v2/cat/manifests/{digest}");
    assert_eq!(registry.take_log(), [manifest.as_str(), manifest.as_str()], "without and with credentials");
    obtain(&restarted, &store, &reference).await.unwrap();
    assert!(registry.take_log().is_empty());
    obtain(&restarted, &store, &registry.reference("cat:1")).await.unwrap();
    assert_eq!(registry.take_log(), ["HEAD /v2/cat/manifests/1"], "a poll is one request");
}

/// Any registry can name a digest; only one that has the image has its manifest.
#[tokio::test]
async fn stored_content_is_proved_by_its_manifest() {
    let (registry, other) = (Registry::start().await, Registry::start().await);
    let client = Client::new(&[&registry, &other]);
    let digest = registry.push("cat", Some("1"), &image());
    let store = Store::open(&client.path("store")).unwrap();
    let process = client.puller();
    obtain(&process.in_scope("a"), &store, &registry.reference("cat:1")).await.unwrap();
    for status in [200, 404, 503] {
        let named = digest.to_string();
        other.hook(move |r| {
            Some(match r.method.as_str() {
                "HEAD" => Reply::new(200, "").header("Docker-Content-Digest", named.clone()),
                _ => Reply::new(status, "{}"),
            })
        });
        for reference in ["x:1".to_owned(), format!("x@{digest}")] {
            let got = obtain(&process.in_scope("b"), &store, &other.reference(&reference)).await;
            assert!(got.is_err(), "{status} {reference}");
        }
    }
}

#[tokio::test]
async fn stored_content_stays_in_its_scope_without_the_registry() {
    let (registry, client) = support::start().await;
    let digest = registry.push("cat", None, &image());
    let reference = registry.reference(&format!("cat@{digest}"));
    let store = Store::open(&client.path("store")).unwrap();
    obtain(&client.puller().in_scope("a"), &store, &reference).await.unwrap();
    for (status, scope, want) in
        [(503, "a", true), (503, "b", false), (401, "a", false), (403, "a", false), (404, "a", false)]
    {
        registry.hook(move |_| Some(Reply::error(status, "X")));
        let restarted = client.puller().in_scope(scope);
        let got = obtain(&restarted, &store, &reference).await;
        assert_eq!(got.is_ok(), want, "{status} {scope}: {got:?}");
        let error = got.unwrap_or_else(Some).unwrap();
        assert_eq!(error.is_unavailable(), status == 503, "{status} {scope}: {error}");
    }
    // the process that found no registry requests the manifest again
    let restarted = client.puller().in_scope("a");
    registry.hook(|_| Some(Reply::error(503, "X")));
    assert!(obtain(&restarted, &store, &reference).await.unwrap().is_some());
    registry.hook(|_| None);
    registry.take_log();
    for requests in [1, 0] {
        assert!(obtain(&restarted, &store, &reference).await.unwrap().is_none());
        assert_eq!(registry.take_log().len(), requests);
    }
}

/// A file that cannot be read stops only what needs the registry; a block is an answer.
#[tokio::test]
async fn stored_content_stays_with_unreadable_configuration() {
    let (registry, client) = support::start().await;
    let digest = registry.push("cat", None, &image());
    let reference = registry.reference(&format!("cat@{digest}"));
    let store = Store::open(&client.path("store")).unwrap();
    obtain(&client.puller().in_scope("a"), &store, &reference).await.unwrap();
    let blocked = format!("[[registry]]\nlocation = '{}'\nblocked = true\n", registry.address);
    let client = client.auth("{}");
    for (auth, registries, scope, want) in [
        ("{}", "[[", "a", true),
        ("{}", "[[", "b", false),
        ("{}", blocked.as_str(), "a", false),
        ("{", "", "a", true),
        ("{", "", "b", false),
    ] {
        std::fs::write(client.path("auth.json"), auth).unwrap();
        client.registries_conf(registries);
        let got = obtain(&client.puller().in_scope(scope), &store, &reference).await;
        assert_eq!(got.is_ok(), want, "{auth} {registries} {scope}: {got:?}");
        assert!(got.unwrap_or_else(Some).is_some(), "{auth} {registries} {scope}: not reported");
    }
}
