//! Reading one package from catalogd over HTTP, and nothing else of it.
//!
//! `metas?package=…` answers with the lines of one package. Where that route is off (the reference's default), `all` is
//! filtered while it streams, so that memory follows the package and not the catalog (decision 30). Answers name the
//! image digest they are about; an answer about another digest is refused, because a replica may lag behind
//! (decision 15). Rule: resolution §7.6.

use std::time::Duration;

use olm_core::{CatalogName, PackageName};
use reqwest::{Client, StatusCode};
use serde::Deserialize;

/// Header with the digest of the catalog image that an answer is about.
pub const DIGEST_HEADER: &str = "olm-catalog-digest";
/// Most bytes that one package may have.
pub const MAX_PACKAGE: usize = 256 * 1024 * 1024;
/// Most bytes of one line of a catalog.
const MAX_LINE: usize = 64 * 1024 * 1024;

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
    /// The digest part of `resolved`, or all of it.
    #[must_use]
    pub fn digest(&self) -> &str {
        self.resolved.rsplit_once('@').map_or(self.resolved.as_str(), |(_, digest)| digest)
    }
}

/// Why a package could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The request did not get through.
    #[error("error performing request: {}", chain(.0))]
    Transport(#[source] reqwest::Error),
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
}

fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Timeouts of one fetch.
pub fn timeouts(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(60))
        .timeout(Duration::from_secs(300))
}

/// The JSON lines of one package, as catalogd serves them. Empty when the catalog does not have it.
///
/// # Errors
/// Transport, status, staleness, size. All may pass by themselves.
pub async fn package_lines(
    client: &Client,
    endpoint: &Endpoint,
    package: &PackageName,
) -> Result<Vec<u8>, CatalogError> {
    let base = endpoint.base.trim_end_matches('/');
    let metas = client
        .get(format!("{base}/api/v1/metas"))
        .query(&[("package", package.as_str())])
        .send()
        .await
        .map_err(CatalogError::Transport)?;
    if metas.status() != StatusCode::NOT_FOUND {
        return whole(checked(metas, endpoint)?).await;
    }
    let all = client.get(format!("{base}/api/v1/all")).send().await.map_err(CatalogError::Transport)?;
    filtered(checked(all, endpoint)?, package).await
}

fn checked(response: reqwest::Response, endpoint: &Endpoint) -> Result<reqwest::Response, CatalogError> {
    if response.status() != StatusCode::OK {
        return Err(CatalogError::Status(response.status().as_u16()));
    }
    let served = response.headers().get(DIGEST_HEADER).and_then(|value| value.to_str().ok());
    match served {
        Some(found) if found != endpoint.digest() => {
            Err(CatalogError::Stale { found: found.to_owned(), wanted: endpoint.digest().to_owned() })
        }
        _ => Ok(response),
    }
}

async fn whole(mut response: reqwest::Response) -> Result<Vec<u8>, CatalogError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(CatalogError::Transport)? {
        if body.len() + chunk.len() > MAX_PACKAGE {
            return Err(CatalogError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

async fn filtered(mut response: reqwest::Response, package: &PackageName) -> Result<Vec<u8>, CatalogError> {
    let mut kept = Vec::new();
    let mut open = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(CatalogError::Transport)? {
        let mut rest: &[u8] = &chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            open.extend_from_slice(&rest[..=end]);
            rest = &rest[end + 1..];
            keep(&mut open, package, &mut kept)?;
        }
        open.extend_from_slice(rest);
        if open.len() > MAX_LINE || kept.len() > MAX_PACKAGE {
            return Err(CatalogError::TooLarge);
        }
    }
    keep(&mut open, package, &mut kept)?;
    Ok(kept)
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

    #[test]
    fn the_digest_is_what_follows_the_at_sign() {
        let endpoint = |resolved: &str| Endpoint {
            catalog: "c".parse().unwrap(),
            base: String::new(),
            resolved: resolved.to_owned(),
        };
        assert_eq!(endpoint("host:5000/cat@sha256:ab").digest(), "sha256:ab");
        assert_eq!(endpoint("odd").digest(), "odd");
    }
}
