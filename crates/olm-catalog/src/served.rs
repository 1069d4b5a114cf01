//! Content that catalogd serves, read through the cache on disk.
//!
//! Where the catalog's status names a digest, content of that digest is read once and never again. Where it names none,
//! catalogd is asked each time, with the ETag of what is here (rule: decisions 15, 16, 30).

use olm_core::PackageName;

use crate::catalogd::{self, CatalogError, Endpoint, Fetched};
use crate::package_store::{Kept, Key, PackageStore};
use crate::route::Route;

/// The JSON lines of one package; empty when the catalog does not have it.
///
/// # Errors
/// As [`catalogd::package_lines`]. A cache that cannot be read or written is passed over with a log line.
pub async fn package_lines(
    route: &Route,
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
    package: &PackageName,
) -> Result<Vec<u8>, CatalogError> {
    let key = Key { origin: origin(endpoint), part: package.to_string() };
    let kept = kept(store, &key).await;
    if let (Some(kept), Some(_)) = (&kept, endpoint.digest()) {
        return Ok(kept.lines.clone());
    }
    let known = kept.as_ref().and_then(|kept| kept.tag.as_deref());
    let fetched = catalogd::package_lines(route, endpoint, package, known).await?;
    settle(store, key, kept, fetched).await
}

/// One JSON line a package; `None` where catalogd has no such answer.
///
/// # Errors
/// As [`package_lines`].
pub async fn summary_lines(
    route: &Route,
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
) -> Result<Option<Vec<u8>>, CatalogError> {
    let key = Key { origin: origin(endpoint), part: Key::SUMMARY.to_owned() };
    let kept = kept(store, &key).await;
    if let (Some(kept), Some(_)) = (&kept, endpoint.digest()) {
        return Ok(Some(kept.lines.clone()));
    }
    let known = kept.as_ref().and_then(|kept| kept.tag.as_deref());
    match catalogd::summary_lines(route, endpoint, known).await? {
        None => Ok(None),
        Some(fetched) => settle(store, key, kept, fetched).await.map(Some),
    }
}

fn origin(endpoint: &Endpoint) -> String {
    endpoint.digest().unwrap_or(&endpoint.base).to_owned()
}

async fn kept(store: Option<&PackageStore>, key: &Key) -> Option<Kept> {
    let (store, key) = (store?.clone(), key.clone());
    tokio::task::spawn_blocking(move || store.get(&key)).await.ok().flatten()
}

async fn settle(
    store: Option<&PackageStore>,
    key: Key,
    kept: Option<Kept>,
    fetched: Fetched,
) -> Result<Vec<u8>, CatalogError> {
    match (fetched, kept) {
        (Fetched::Unchanged, Some(kept)) => Ok(kept.lines),
        (Fetched::Unchanged, None) => Err(CatalogError::Status(304)),
        (Fetched::Lines { lines, tag }, _) => {
            let Some(store) = store.cloned() else { return Ok(lines) };
            let kept = Kept { lines, tag };
            let written = tokio::task::spawn_blocking(move || {
                if let Err(error) = store.put(&key, &kept) {
                    tracing::warn!(path = %store.root().display(), %error, "package content cannot be cached");
                }
                kept.lines
            });
            written.await.map_err(|error| CatalogError::Task(error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    const MINE: &str = "{\"schema\":\"olm.package\",\"name\":\"demo\"}\n";
    const OTHER: &str = "{\"schema\":\"olm.package\",\"name\":\"other\"}\n";

    /// A stand-in for catalogd: each request's head is kept, each answer is what `answer` makes of it.
    struct Server {
        base: String,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        async fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let base = format!("http://{}/catalogs/c", listener.local_addr().unwrap());
            let asked = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&asked);
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => break,
                        }
                    }
                    let head = String::from_utf8(head).unwrap().to_lowercase();
                    let said = answer(&head);
                    kept.lock().push(head);
                    let _ = stream.write_all(said.as_bytes()).await;
                }
            });
            Self { base, asked }
        }

        fn endpoint(&self, resolved: &str) -> Endpoint {
            Endpoint { catalog: "c".parse().unwrap(), base: self.base.clone(), resolved: resolved.to_owned() }
        }

        /// First lines of the requests since the last look.
        fn asked(&self) -> Vec<String> {
            let asked = std::mem::take(&mut *self.asked.lock());
            asked
                .iter()
                .map(|head| head.lines().next().unwrap_or_default().replace(" http/1.1", ""))
                .collect()
        }
    }

    fn http(status: &str, headers: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
    }

    fn route() -> Route {
        olm_runtime::tls::install_provider();
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        Route::Direct(crate::catalogd::timeouts(builder).build().unwrap())
    }

    fn store() -> (tempfile::TempDir, PackageStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(dir.path(), crate::package_store::DEFAULT_BYTES);
        (dir, store)
    }

    #[tokio::test]
    async fn content_of_a_digest_is_read_once_also_by_the_next_process() {
        let server =
            Server::start(|_| http("200 OK", &format!("olm-catalog-digest: {DIGEST}\r\n"), MINE)).await;
        let (dir, store) = store();
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        let (route, package) = (route(), "demo".parse().unwrap());
        let read = async |store: &PackageStore| {
            package_lines(&route, Some(store), &endpoint, &package).await.unwrap()
        };
        assert_eq!(read(&store).await, MINE.as_bytes());
        assert_eq!(server.asked(), ["get /catalogs/c/api/v1/metas?package=demo"]);
        let next = PackageStore::new(dir.path(), crate::package_store::DEFAULT_BYTES);
        assert_eq!(read(&next).await, MINE.as_bytes());
        assert!(server.asked().is_empty());
        // without a store, and for another package, catalogd is asked
        package_lines(&route, None, &endpoint, &package).await.unwrap();
        package_lines(&route, Some(&store), &endpoint, &"a b/c".parse().unwrap()).await.unwrap();
        assert_eq!(
            server.asked(),
            ["get /catalogs/c/api/v1/metas?package=demo", "get /catalogs/c/api/v1/metas?package=a%20b%2fc"]
        );
    }

    #[tokio::test]
    async fn a_server_that_sends_us_elsewhere_is_not_followed() {
        let spy = Server::start(|_| http("200 OK", "", MINE)).await;
        let to = spy.endpoint("x").base;
        let moved = http("307 Temporary Redirect", &format!("location: {to}/api/v1/metas\r\n"), "");
        let server = Server::start(move |_| moved.clone()).await;
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        let error = package_lines(&route(), None, &endpoint, &"demo".parse().unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), "error: received unexpected response status code 307");
        assert!(spy.asked().is_empty());
    }

    #[tokio::test]
    async fn content_without_a_digest_is_asked_for_again_by_its_etag() {
        let server = Server::start(|head| match head.contains("if-none-match: \"one\"") {
            true if head.contains("package=changed") => http("200 OK", "etag: \"two\"\r\n", OTHER),
            true => http("304 Not Modified", "etag: \"one\"\r\n", ""),
            false => http("200 OK", "etag: \"one\"\r\n", MINE),
        })
        .await;
        let (_dir, store) = store();
        let endpoint = server.endpoint("no digest");
        for (package, wanted) in [("demo", [MINE, MINE]), ("changed", [MINE, OTHER])] {
            for wanted in wanted {
                let read = package_lines(&route(), Some(&store), &endpoint, &package.parse().unwrap()).await;
                assert_eq!(String::from_utf8(read.unwrap()).unwrap(), wanted, "{package}");
            }
        }
        assert_eq!(server.asked().len(), 4);
    }

    #[tokio::test]
    async fn content_of_another_digest_and_failures_are_not_kept() {
        let server = Server::start(|head| match head.contains("package=stale") {
            true => http("200 OK", "olm-catalog-digest: sha256:22\r\n", MINE),
            false => http("503 Service Unavailable", "", "{}"),
        })
        .await;
        let (dir, store) = store();
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        for (package, wanted) in [
            (
                "stale",
                format!("catalogd serves content of sha256:22, {DIGEST} is wanted; it is being unpacked"),
            ),
            ("down", "error: received unexpected response status code 503".to_owned()),
        ] {
            let read = package_lines(&route(), Some(&store), &endpoint, &package.parse().unwrap()).await;
            assert_eq!(read.unwrap_err().to_string(), wanted);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn the_reference_is_read_whole_and_its_package_kept() {
        let server = Server::start(|head| match head.contains("/api/v1/all") {
            true => http("200 OK", "", &format!("{OTHER}{MINE}{OTHER}")),
            false => http("404 Not Found", "", ""),
        })
        .await;
        let (_dir, store) = store();
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        for _ in 0..2 {
            let read = package_lines(&route(), Some(&store), &endpoint, &"demo".parse().unwrap()).await;
            assert_eq!(read.unwrap(), MINE.as_bytes());
        }
        assert_eq!(
            server.asked(),
            ["get /catalogs/c/api/v1/metas?package=demo", "get /catalogs/c/api/v1/all"]
        );
        assert_eq!(summary_lines(&route(), Some(&store), &endpoint).await.unwrap(), None);
    }
}
