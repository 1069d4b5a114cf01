//! What is asked of catalogd: one package, or a line about each package.
//!
//! `metas?package=…` answers with the lines of one package. Where that route is off (the reference's default), `all` is
//! filtered while it streams, so that memory follows the package and not the catalog (decision 30). Answers name the
//! image digest they are about; an answer about another digest is refused, because a replica may lag behind
//! (decision 15). Rule: operator-controller §7.6.

use std::time::Duration;

use olm_core::{CatalogName, PackageName};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::route::{Answer, Ask, Route, RouteError};

/// What is encoded in a query: everything that RFC 3986 reserves.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const OK: u16 = 200;
const NOT_MODIFIED: u16 = 304;
const NOT_FOUND: u16 = 404;

/// Header with the digest of the catalog image that an answer is about.
pub const DIGEST_HEADER: &str = "olm-catalog-digest";
/// Most bytes that one package may have.
pub const MAX_PACKAGE: usize = 256 * 1024 * 1024;
/// Most bytes of one line of a catalog.
const MAX_LINE: usize = 64 * 1024 * 1024;

/// How much of an answer is kept.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// Bytes of one package, or of an answer that is taken whole.
    package: usize,
    /// Bytes of one line.
    line: usize,
}

const MOST: Most = Most { package: MAX_PACKAGE, line: MAX_LINE };

/// Where a catalog is served, and which content is wanted.
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
    /// The digest part of `resolved`; `None` when it has none, so that nobody knows what content is wanted.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.resolved.rsplit_once('@').map(|(_, digest)| digest)
    }
}

/// Why a package could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The request did not get through.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Another status than 200.
    #[error("error: received unexpected response status code {0}")]
    Status(u16),
    /// The replica that answered serves other content.
    #[error("catalogd serves content of {found}, {wanted} is wanted; it is being unpacked")]
    Stale {
        /// Digest that was served.
        found: String,
        /// Digest that is wanted.
        wanted: String,
    },
    /// More bytes than a package may have.
    #[error("package content is larger than {MAX_PACKAGE} bytes")]
    TooLarge,
    /// A line of the catalog is no JSON object.
    #[error("error decoding catalog content: {0}")]
    Decode(#[source] serde_json::Error),
    /// The reading task died.
    #[error("reading the catalog did not end: {0}")]
    Task(String),
}

/// Bounds of one fetch: its times, and no redirect. The address in a catalog's status is the one to ask, and a server that
/// sends the caller elsewhere is not believed.
pub fn timeouts(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(60))
        .timeout(Duration::from_secs(300))
}

/// What catalogd answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// What the caller has is still right.
    Unchanged,
    /// Content, and the ETag under which it can be asked for again.
    Lines {
        /// JSON lines. Empty when the catalog has nothing of what was asked for.
        lines: Vec<u8>,
        /// For the next time.
        tag: Option<String>,
    },
}

/// The JSON lines of one package, as catalogd serves them. `known` is the ETag of what the caller has.
///
/// # Errors
/// Transport, status, staleness, size. All may pass by themselves.
pub async fn package_lines(
    route: &Route,
    endpoint: &Endpoint,
    package: &PackageName,
    known: Option<&str>,
) -> Result<Fetched, CatalogError> {
    let query = utf8_percent_encode(package.as_str(), QUERY);
    let rest = format!("/api/v1/metas?package={query}");
    let metas = route.send(&Ask { base: &endpoint.base, rest: &rest, known }).await?;
    if metas.status != NOT_FOUND {
        return whole(metas, endpoint, MOST).await;
    }
    let ask = Ask { base: &endpoint.base, rest: "/api/v1/all", known };
    filtered(route.send(&ask).await?, endpoint, package, MOST).await
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
    let answer = route.send(&Ask { base: &endpoint.base, rest: "/api/v1/packages", known }).await?;
    if answer.status == NOT_FOUND {
        return Ok(None);
    }
    whole(answer, endpoint, MOST).await.map(Some)
}

/// The whole catalog. Much; only for what no smaller answer tells.
///
/// # Errors
/// As [`package_lines`].
pub async fn all_lines(route: &Route, endpoint: &Endpoint) -> Result<Vec<u8>, CatalogError> {
    let answer = route.send(&Ask { base: &endpoint.base, rest: "/api/v1/all", known: None }).await?;
    match whole(answer, endpoint, MOST).await? {
        Fetched::Lines { lines, .. } => Ok(lines),
        Fetched::Unchanged => Err(CatalogError::Status(NOT_MODIFIED)),
    }
}

/// Whether there is a body to read, and of the wanted content.
fn checked(answer: &Answer, endpoint: &Endpoint) -> Result<bool, CatalogError> {
    if answer.status != OK && answer.status != NOT_MODIFIED {
        return Err(CatalogError::Status(answer.status));
    }
    match (answer.header(DIGEST_HEADER), endpoint.digest()) {
        (Some(found), Some(wanted)) if found != wanted => {
            Err(CatalogError::Stale { found: found.to_owned(), wanted: wanted.to_owned() })
        }
        _ => Ok(answer.status == OK),
    }
}

async fn whole(mut answer: Answer, endpoint: &Endpoint, most: Most) -> Result<Fetched, CatalogError> {
    if !checked(&answer, endpoint)? {
        return Ok(Fetched::Unchanged);
    }
    let tag = answer.header("etag").map(str::to_owned);
    let mut lines = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if lines.len() + chunk.len() > most.package {
            return Err(CatalogError::TooLarge);
        }
        lines.extend_from_slice(&chunk);
    }
    Ok(Fetched::Lines { lines, tag })
}

async fn filtered(
    mut answer: Answer,
    endpoint: &Endpoint,
    package: &PackageName,
    most: Most,
) -> Result<Fetched, CatalogError> {
    if !checked(&answer, endpoint)? {
        return Ok(Fetched::Unchanged);
    }
    let tag = answer.header("etag").map(str::to_owned);
    let mut lines = Vec::new();
    let mut open = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        let mut rest: &[u8] = &chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            open.extend_from_slice(&rest[..=end]);
            rest = &rest[end + 1..];
            keep(&mut open, package, &mut lines)?;
        }
        open.extend_from_slice(rest);
        if open.len() > most.line || lines.len() > most.package {
            return Err(CatalogError::TooLarge);
        }
    }
    keep(&mut open, package, &mut lines)?;
    Ok(Fetched::Lines { lines, tag })
}

/// Moves the line to `kept` if it belongs to the package; empties it.
fn keep(line: &mut Vec<u8>, package: &PackageName, kept: &mut Vec<u8>) -> Result<(), CatalogError> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, default)]
        schema: std::borrow::Cow<'a, str>,
        #[serde(borrow, default)]
        package: std::borrow::Cow<'a, str>,
        #[serde(borrow, default)]
        name: std::borrow::Cow<'a, str>,
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
    fn lines_of_other_packages_are_left_out() {
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
    async fn what_is_too_large_is_not_kept() {
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
        let most = Most { package: mine.len() + 10, line: 2 * mine.len() };
        for (case, chunks, as_a_whole, of_all) in [
            ("one line", vec![mine.clone()], true, true),
            ("two lines", vec![mine.clone(), mine.clone()], false, false),
            ("lines of others", vec![other.clone(), mine.clone(), other.repeat(20)], false, true),
            ("a line in pieces", mine.chars().map(String::from).collect(), true, true),
            ("a line without end", vec!["x".repeat(50); 10], false, false),
        ] {
            let answer = || Answer::of(OK, chunks.clone());
            let got = whole(answer(), &endpoint, most).await;
            assert_eq!(got.is_ok(), as_a_whole, "{case}: {got:?}");
            assert!(as_a_whole || matches!(got, Err(CatalogError::TooLarge)), "{case}: {got:?}");
            let got = filtered(answer(), &endpoint, &package, most).await;
            assert!(of_all || matches!(got, Err(CatalogError::TooLarge)), "{case}: {got:?}");
            if of_all {
                let lines = mine.clone().into_bytes();
                assert_eq!(got.unwrap(), Fetched::Lines { lines, tag: None }, "{case}");
            }
        }
    }

    #[test]
    fn the_digest_is_what_follows_the_at_sign() {
        let endpoint = |resolved: &str| Endpoint {
            catalog: "c".parse().unwrap(),
            base: String::new(),
            resolved: resolved.to_owned(),
        };
        assert_eq!(endpoint("host:5000/cat@sha256:ab").digest(), Some("sha256:ab"));
        assert_eq!(endpoint("odd").digest(), None);
    }
}
