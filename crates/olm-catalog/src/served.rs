//! Content that catalogd serves, read through the cache on disk.
//!
//! Where the catalog's status names a digest, content of that digest is fetched once. Where it names none,
//! it is revalidated each time with the ETag of the cached content (rule: decisions 15, 16, 30).

use olm_core::PackageName;

use crate::catalogd::{self, CatalogError, Endpoint, Fetched};
use crate::package_store::{CachedContent, Key, PackageStore};
use crate::route::Route;

/// The JSON lines of one package, at most `limit` bytes; empty when the catalog does not have it.
///
/// # Errors
/// As [`catalogd::package_lines`]. A cache that cannot be read or written is ignored and logged.
pub async fn package_lines(
    route: &Route,
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
    package: &PackageName,
    limit: usize,
) -> Result<Vec<u8>, CatalogError> {
    let fetch = async |known: Option<&str>| {
        catalogd::package_lines(route, endpoint, package, known, limit).await.map(Some)
    };
    read_through(store, endpoint, package.to_string(), limit, fetch).await.map(Option::unwrap_or_default)
}

/// The JSON line of the package itself; empty when the catalog does not have it.
///
/// # Errors
/// As [`package_lines`].
pub(crate) async fn package_object(
    route: &Route,
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
    package: &PackageName,
) -> Result<Vec<u8>, CatalogError> {
    let fetch =
        async |known: Option<&str>| catalogd::package_object(route, endpoint, package, known).await.map(Some);
    // no package has a space in its name
    let part = format!("olm.package {package}");
    read_through(store, endpoint, part, catalogd::MAX_PACKAGE, fetch).await.map(Option::unwrap_or_default)
}

/// One JSON line a package; `None` where catalogd has no such endpoint.
///
/// # Errors
/// As [`package_lines`].
pub async fn summary_lines(
    route: &Route,
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
) -> Result<Option<Vec<u8>>, CatalogError> {
    let fetch = async |known: Option<&str>| catalogd::summary_lines(route, endpoint, known).await;
    read_through(store, endpoint, Key::SUMMARY.to_owned(), catalogd::MAX_PACKAGE, fetch).await
}

/// The cached lines if they are of the digest, else what `fetch` gets with the ETag of the cached ones.
async fn read_through(
    store: Option<&PackageStore>,
    endpoint: &Endpoint,
    part: String,
    limit: usize,
    fetch: impl AsyncFnOnce(Option<&str>) -> Result<Option<Fetched>, CatalogError>,
) -> Result<Option<Vec<u8>>, CatalogError> {
    // content of a digest that one address served does not stand in for what another address serves
    let origin = endpoint
        .digest()
        .map_or_else(|| endpoint.base.clone(), |digest| format!("{} {digest}", endpoint.base));
    let key = Key { origin, part };
    let cached = cached(store, &key, limit).await?;
    match (cached, endpoint.digest()) {
        (Some(cached), Some(_)) => Ok(Some(cached.lines)),
        (cached, _) => match fetch(cached.as_ref().and_then(|cached| cached.tag.as_deref())).await? {
            None => Ok(None),
            Some(fetched) => content_of(store, key, cached, fetched).await.map(Some),
        },
    }
}

async fn cached(
    store: Option<&PackageStore>,
    key: &Key,
    limit: usize,
) -> Result<Option<CachedContent>, CatalogError> {
    let Some(store) = store.cloned() else { return Ok(None) };
    let key = key.clone();
    let reading = tokio::task::spawn_blocking(move || match store.length(&key) {
        Some(length) if length > limit as u64 => Err(CatalogError::TooLarge { limit }),
        _ => Ok(store.get(&key)),
    });
    reading.await.unwrap_or(Ok(None))
}

/// The fetched lines, which are written to the cache, or the cached ones if they are current.
async fn content_of(
    store: Option<&PackageStore>,
    key: Key,
    cached: Option<CachedContent>,
    fetched: Fetched,
) -> Result<Vec<u8>, CatalogError> {
    match (fetched, cached) {
        (Fetched::Unchanged, Some(cached)) => Ok(cached.lines),
        (Fetched::Unchanged, None) => Err(CatalogError::Status(304)),
        (Fetched::Lines { lines, tag }, _) => {
            let Some(store) = store.cloned() else { return Ok(lines) };
            let cached = CachedContent { lines, tag };
            let written = tokio::task::spawn_blocking(move || {
                if let Err(error) = store.put(&key, &cached) {
                    tracing::warn!(path = %store.root().display(), %error, "package content cannot be cached");
                }
                cached.lines
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
    use crate::catalogd::MAX_PACKAGE;

    const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    const MINE: &str = "{\"schema\":\"olm.package\",\"name\":\"demo\"}\n";
    const OTHER: &str = "{\"schema\":\"olm.package\",\"name\":\"other\"}\n";

    /// A stand-in for catalogd: records the head of each request and responds with the result of `answer`.
    struct Server {
        base: String,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        async fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let base = format!("http://{}/catalogs/c", listener.local_addr().unwrap());
            let asked = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&asked);
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
                    let response = answer(&head);
                    log.lock().push(head);
                    let _ = stream.write_all(response.as_bytes()).await;
                }
            });
            Self { base, asked }
        }

        fn endpoint(&self, resolved: &str) -> Endpoint {
            Endpoint { catalog: "c".parse().unwrap(), base: self.base.clone(), resolved: resolved.to_owned() }
        }

        /// First lines of the requests since the last call.
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
    async fn served_content_of_digest_is_fetched_once() {
        let server =
            Server::start(|_| http("200 OK", &format!("olm-catalog-digest: {DIGEST}\r\n"), MINE)).await;
        let (dir, store) = store();
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        let (route, package) = (route(), "demo".parse().unwrap());
        let read = async |store: &PackageStore| {
            package_lines(&route, Some(store), &endpoint, &package, MAX_PACKAGE).await.unwrap()
        };
        assert_eq!(read(&store).await, MINE.as_bytes());
        assert_eq!(server.asked(), ["get /catalogs/c/api/v1/metas?package=demo"]);
        let next = PackageStore::new(dir.path(), crate::package_store::DEFAULT_BYTES);
        assert_eq!(read(&next).await, MINE.as_bytes());
        assert!(server.asked().is_empty());
        // without a store, and for another package, there is a request
        package_lines(&route, None, &endpoint, &package, MAX_PACKAGE).await.unwrap();
        package_lines(&route, Some(&store), &endpoint, &"a b/c".parse().unwrap(), MAX_PACKAGE).await.unwrap();
        assert_eq!(
            server.asked(),
            ["get /catalogs/c/api/v1/metas?package=demo", "get /catalogs/c/api/v1/metas?package=a%20b%2fc"]
        );
    }

    #[tokio::test]
    async fn served_package_object_is_found_by_schema_and_name() {
        let server = Server::start(|head| {
            let code = if head.contains("name=demo") { "200 OK" } else { "404 Not Found" };
            http(code, &format!("olm-catalog-digest: {DIGEST}\r\n"), MINE)
        })
        .await;
        let (_dir, store) = store();
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        let (route, demo) = (route(), "demo".parse().unwrap());
        for _ in 0..2 {
            let line = package_object(&route, Some(&store), &endpoint, &demo).await.unwrap();
            assert_eq!(line, MINE.as_bytes());
        }
        assert_eq!(server.asked(), ["get /catalogs/c/api/v1/metas?schema=olm.package&name=demo"]);
        let other = "a b".parse().unwrap();
        assert_eq!(
            package_object(&route, Some(&store), &endpoint, &other).await.unwrap(),
            b"",
            "the route is off"
        );
    }

    #[tokio::test]
    async fn served_content_is_cached_for_its_address() {
        let digest = format!("olm-catalog-digest: {DIGEST}\r\n");
        let (first, second) = (http("200 OK", &digest, MINE), http("200 OK", &digest, OTHER));
        let first = Server::start(move |_| first.clone()).await;
        let second = Server::start(move |_| second.clone()).await;
        let (_dir, store) = store();
        let (route, package) = (route(), "demo".parse().unwrap());
        for (server, want) in [(&first, MINE), (&second, OTHER)] {
            let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
            let read = package_lines(&route, Some(&store), &endpoint, &package, usize::MAX).await.unwrap();
            assert_eq!(String::from_utf8(read).unwrap(), want);
        }
    }

    #[tokio::test]
    async fn served_redirects_are_not_followed() {
        let spy = Server::start(|_| http("200 OK", "", MINE)).await;
        let to = spy.endpoint("x").base;
        let moved = http("307 Temporary Redirect", &format!("location: {to}/api/v1/metas\r\n"), "");
        let server = Server::start(move |_| moved.clone()).await;
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        let error = package_lines(&route(), None, &endpoint, &"demo".parse().unwrap(), MAX_PACKAGE)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "error: received unexpected response status code 307");
        assert!(spy.asked().is_empty());
    }

    #[tokio::test]
    async fn served_content_without_digest_is_revalidated_by_etag() {
        let server = Server::start(|head| match head.contains("if-none-match: \"one\"") {
            true if head.contains("package=changed") => http("200 OK", "etag: \"two\"\r\n", OTHER),
            true => http("304 Not Modified", "etag: \"one\"\r\n", ""),
            false => http("200 OK", "etag: \"one\"\r\n", MINE),
        })
        .await;
        let (_dir, store) = store();
        let endpoint = server.endpoint("no digest");
        for (package, want) in [("demo", [MINE, MINE]), ("changed", [MINE, OTHER])] {
            for want in want {
                let read =
                    package_lines(&route(), Some(&store), &endpoint, &package.parse().unwrap(), MAX_PACKAGE)
                        .await;
                assert_eq!(String::from_utf8(read.unwrap()).unwrap(), want, "{package}");
            }
        }
        assert_eq!(server.asked().len(), 4);
    }

    #[tokio::test]
    async fn served_stale_content_and_errors_are_not_cached() {
        let server = Server::start(|head| match head.contains("package=stale") {
            true => http("200 OK", "olm-catalog-digest: sha256:22\r\n", MINE),
            false => http("503 Service Unavailable", "", "{}"),
        })
        .await;
        let (dir, store) = store();
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        for (package, want) in [
            (
                "stale",
                format!("catalogd serves content of sha256:22, {DIGEST} is expected; it is being unpacked"),
            ),
            ("down", "error: received unexpected response status code 503".to_owned()),
        ] {
            let read =
                package_lines(&route(), Some(&store), &endpoint, &package.parse().unwrap(), MAX_PACKAGE)
                    .await;
            assert_eq!(read.unwrap_err().to_string(), want);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn served_package_is_filtered_from_whole_catalog() {
        let server = Server::start(|head| match head.contains("/api/v1/all") {
            true => http("200 OK", "", &format!("{OTHER}{MINE}{OTHER}")),
            false => http("404 Not Found", "", ""),
        })
        .await;
        let (_dir, store) = store();
        let endpoint = server.endpoint(&format!("example.com/c@{DIGEST}"));
        for _ in 0..2 {
            let read =
                package_lines(&route(), Some(&store), &endpoint, &"demo".parse().unwrap(), MAX_PACKAGE).await;
            assert_eq!(read.unwrap(), MINE.as_bytes());
        }
        assert_eq!(
            server.asked(),
            ["get /catalogs/c/api/v1/metas?package=demo", "get /catalogs/c/api/v1/all"]
        );
        assert_eq!(summary_lines(&route(), Some(&store), &endpoint).await.unwrap(), None);
    }
}
