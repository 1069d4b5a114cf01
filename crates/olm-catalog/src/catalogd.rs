//! Requests to catalogd: one package, or a line about each package.
//!
//! `metas?package=…` answers with the lines of one package. Where that route is off (the reference's default), `all` is
//! filtered while it streams, so that memory follows the package and not the catalog (decision 30). Responses name the
//! image digest of their content; a response of another digest is rejected, because a replica may lag behind
//! (decision 15). Rule: operator-controller §7.6.

use std::borrow::Cow;
use std::time::Duration;

use olm_core::{CatalogName, PackageName};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::route::{Response, Route, RouteError};

/// What is encoded in a query: everything that RFC 3986 reserves.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const OK: u16 = 200;
const NOT_MODIFIED: u16 = 304;
const NOT_FOUND: u16 = 404;

/// Header with the digest of the catalog image that a response has content of.
pub(crate) const DIGEST_HEADER: &str = "olm-catalog-digest";
/// Most bytes that one package may have. The largest known one has 4 MB.
pub const MAX_PACKAGE: usize = 64 * 1024 * 1024;
/// Most bytes of one line of a catalog: no object that catalogd accepts is larger.
const MAX_LINE: usize = 8 * 1024 * 1024;

/// Bounds on the size of a response.
#[derive(Debug, Clone, Copy)]
struct SizeLimits {
    /// Bytes of one package, or of a response that is not filtered.
    package: usize,
    /// Bytes of one line.
    line: usize,
}

const SIZE_LIMITS: SizeLimits = SizeLimits { package: MAX_PACKAGE, line: MAX_LINE };

/// The address of a served catalog, and the content to expect there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Name of the ClusterCatalog.
    pub catalog: CatalogName,
    /// `status.urls.base`.
    pub base: String,
    /// `status.resolvedSource.image.ref`: canonical reference with digest.
    pub resolved: String,
}

impl Endpoint {
    /// The digest part of `resolved`; `None` when it has none: then any content is accepted.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.resolved.rsplit_once('@').map(|(_, digest)| digest)
    }
}

/// A package cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The request failed.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Another status than 200.
    #[error("error: received unexpected response status code {0}")]
    Status(u16),
    /// The replica that responded serves other content.
    #[error("catalogd serves content of {found}, {expected} is expected; it is being unpacked")]
    Stale {
        /// Digest that was served.
        found: String,
        /// Digest of the catalog status.
        expected: String,
    },
    /// More bytes than a package may have.
    #[error("package content is larger than {limit} bytes")]
    TooLarge {
        /// The limit of the call.
        limit: usize,
    },
    /// A line of the catalog is no JSON object.
    #[error("error decoding catalog content: {0}")]
    Decode(#[source] serde_json::Error),
    /// The reading task died.
    #[error("reading the catalog did not end: {0}")]
    Task(String),
}

/// Bounds of one fetch: its times, and no redirect. Only the address in the catalog's status is trusted,
/// so a redirect is not followed.
pub fn timeouts(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(60))
        .timeout(Duration::from_secs(300))
}

/// The response of catalogd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The cached content of the caller is current.
    Unchanged,
    /// Content, and the ETag to revalidate it with.
    Lines {
        /// JSON lines. Empty when the catalog does not have the package.
        lines: Vec<u8>,
        /// ETag for the next request.
        tag: Option<String>,
    },
}

/// The JSON lines of one package, as catalogd serves them, at most `limit` bytes. `known` is the ETag of the cached content.
///
/// # Errors
/// Transport, status, staleness, size. A retry can help with each.
pub async fn package_lines(
    route: &Route,
    endpoint: &Endpoint,
    package: &PackageName,
    known: Option<&str>,
    limit: usize,
) -> Result<Fetched, CatalogError> {
    let limits = SizeLimits { package: limit, ..SIZE_LIMITS };
    let query = utf8_percent_encode(package.as_str(), QUERY);
    let rest = format!("/api/v1/metas?package={query}");
    let metas = route.send(&endpoint.base, &rest, known).await?;
    if metas.status != NOT_FOUND {
        return lines(metas, endpoint, None, limits).await;
    }
    let all = route.send(&endpoint.base, "/api/v1/all", known).await?;
    lines(all, endpoint, Some(package), limits).await
}

/// The JSON line of the package itself, which [`package_lines`] does not have: it belongs to no package. Empty where that route is off.
///
/// # Errors
/// As [`package_lines`].
pub(crate) async fn package_object(
    route: &Route,
    endpoint: &Endpoint,
    package: &PackageName,
    known: Option<&str>,
) -> Result<Fetched, CatalogError> {
    let query = utf8_percent_encode(package.as_str(), QUERY);
    let rest = format!("/api/v1/metas?schema=olm.package&name={query}");
    let response = route.send(&endpoint.base, &rest, known).await?;
    if response.status == NOT_FOUND {
        return Ok(Fetched::Lines { lines: Vec::new(), tag: None });
    }
    lines(response, endpoint, None, SIZE_LIMITS).await
}

/// One JSON line a package, as catalogd's `packages` endpoint serves them; `None` where there is no such endpoint.
///
/// # Errors
/// As [`package_lines`].
pub async fn summary_lines(
    route: &Route,
    endpoint: &Endpoint,
    known: Option<&str>,
) -> Result<Option<Fetched>, CatalogError> {
    let response = route.send(&endpoint.base, "/api/v1/packages", known).await?;
    if response.status == NOT_FOUND {
        return Ok(None);
    }
    lines(response, endpoint, None, SIZE_LIMITS).await.map(Some)
}

/// The whole catalog. Expensive; only for catalogd without the smaller endpoints.
///
/// # Errors
/// As [`package_lines`].
pub(crate) async fn all_lines(route: &Route, endpoint: &Endpoint) -> Result<Vec<u8>, CatalogError> {
    let response = route.send(&endpoint.base, "/api/v1/all", None).await?;
    match lines(response, endpoint, None, SIZE_LIMITS).await? {
        Fetched::Lines { lines, .. } => Ok(lines),
        Fetched::Unchanged => Err(CatalogError::Status(NOT_MODIFIED)),
    }
}

/// Checks status and digest. Returns whether there is a body to read.
fn checked(response: &Response, endpoint: &Endpoint) -> Result<bool, CatalogError> {
    if response.status != OK && response.status != NOT_MODIFIED {
        return Err(CatalogError::Status(response.status));
    }
    match (response.header(DIGEST_HEADER), endpoint.digest()) {
        (Some(found), Some(expected)) if found != expected => {
            Err(CatalogError::Stale { found: found.to_owned(), expected: expected.to_owned() })
        }
        _ => Ok(response.status == OK),
    }
}

/// The lines of a response; with `package` only its own, filtered while they arrive.
async fn lines(
    mut response: Response,
    endpoint: &Endpoint,
    package: Option<&PackageName>,
    limits: SizeLimits,
) -> Result<Fetched, CatalogError> {
    if !checked(&response, endpoint)? {
        return Ok(Fetched::Unchanged);
    }
    let tag = response.header("etag").map(str::to_owned);
    let (mut lines, mut open) = (Vec::new(), Vec::new());
    while let Some(chunk) = response.chunk().await? {
        match package {
            None => lines.extend_from_slice(&chunk),
            Some(package) => {
                let mut rest: &[u8] = &chunk;
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    open.extend_from_slice(&rest[..=end]);
                    rest = &rest[end + 1..];
                    keep(&mut open, package, &mut lines)?;
                }
                open.extend_from_slice(rest);
            }
        }
        if open.len() > limits.line || lines.len() > limits.package {
            return Err(CatalogError::TooLarge { limit: limits.package });
        }
    }
    if let Some(package) = package {
        keep(&mut open, package, &mut lines)?;
    }
    Ok(Fetched::Lines { lines, tag })
}

/// Moves the line to `kept` if it belongs to the package; empties it.
fn keep(line: &mut Vec<u8>, package: &PackageName, kept: &mut Vec<u8>) -> Result<(), CatalogError> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, default)]
        schema: Cow<'a, str>,
        #[serde(borrow, default)]
        package: Cow<'a, str>,
        #[serde(borrow, default)]
        name: Cow<'a, str>,
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        line.clear();
        return Ok(());
    }
    let head: Head<'_> = serde_json::from_slice(line).map_err(CatalogError::Decode)?;
    let owner = if head.schema == "olm.package" { head.name } else { head.package };
    if owner == package.as_str() {
        kept.extend_from_slice(line);
    }
    line.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_lines_exclude_other_packages() {
        let package: PackageName = "demo".parse().unwrap();
        let mut kept = Vec::new();
        for (line, mine) in [
            (r#"{"schema":"olm.package","name":"demo"}"#, true),
            (r#"{"schema":"olm.package","name":"other","package":"demo"}"#, false),
            (r#"{"schema":"olm.bundle","name":"demo","package":"other"}"#, false),
            (r#"{"schema":"olm.bundle","name":"x","package":"demo"}"#, true),
            (r#"{"schema":"custom","x":[1,2]}"#, false),
            ("", false),
        ] {
            let before = kept.len();
            let mut open = format!("{line}\n").into_bytes();
            keep(&mut open, &package, &mut kept).unwrap();
            assert!(open.is_empty());
            assert_eq!(kept.len() > before, mine, "{line}");
        }
        assert!(keep(&mut b"not json".to_vec(), &package, &mut kept).is_err());
    }

    #[tokio::test]
    async fn package_lines_reject_oversized_content() {
        let package: PackageName = "demo".parse().unwrap();
        let endpoint = Endpoint {
            catalog: "c".parse().unwrap(),
            base: String::new(),
            resolved: "c@sha256:ab".to_owned(),
        };
        let line = |package: &str| {
            format!("{{\"name\":\"x\",\"package\":\"{package}\",\"schema\":\"olm.bundle\"}}\n")
        };
        let (mine, other) = (line("demo"), line("other"));
        let limits = SizeLimits { package: mine.len() + 10, line: 2 * mine.len() };
        for (case, chunks, as_a_whole, of_all) in [
            ("one line", vec![mine.clone()], true, true),
            ("two lines", vec![mine.clone(), mine.clone()], false, false),
            ("lines of others", vec![other.clone(), mine.clone(), other.repeat(20)], false, true),
            ("a line in pieces", mine.chars().map(String::from).collect(), true, true),
            ("a line without end", vec!["x".repeat(50); 10], false, false),
        ] {
            let response = || Response::from_chunks(OK, chunks.clone());
            let got = lines(response(), &endpoint, None, limits).await;
            assert_eq!(got.is_ok(), as_a_whole, "{case}: {got:?}");
            assert!(as_a_whole || matches!(got, Err(CatalogError::TooLarge { .. })), "{case}: {got:?}");
            let got = lines(response(), &endpoint, Some(&package), limits).await;
            assert!(of_all || matches!(got, Err(CatalogError::TooLarge { .. })), "{case}: {got:?}");
            if of_all {
                let lines = mine.clone().into_bytes();
                assert_eq!(got.unwrap(), Fetched::Lines { lines, tag: None }, "{case}");
            }
        }
    }

    #[test]
    fn endpoint_digest_follows_the_at_sign() {
        let endpoint = |resolved: &str| Endpoint {
            catalog: "c".parse().unwrap(),
            base: String::new(),
            resolved: resolved.to_owned(),
        };
        assert_eq!(endpoint("host:5000/cat@sha256:ab").digest(), Some("sha256:ab"));
        assert_eq!(endpoint("no-digest").digest(), None);
    }
}
