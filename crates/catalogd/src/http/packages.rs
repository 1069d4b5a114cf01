//! `/api/v1/packages`: one line a package, so that a user interface or a dependency check needs one small answer
//! instead of the whole catalog. Additive: the reference has no such endpoint. The lines are [`olm_fbc::PackageSummary`].
//!
//! Made from the stored content at the first request, object by object, and kept until the content changes. What
//! does not fit its schema is left out; nothing is validated here.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use olm_fbc::{Located, Meta, Summariser, schema};

use super::body::{Body, compress_all};
use super::cache::Cache;
use super::conditions::Validators;
use super::encoding::{self, Encoding};
use super::{JSONL, respond, unless_met, with_validators};
use crate::per_content::PerContent;
use crate::store::{COMPRESS_FROM, Content, Served, Store};

/// About how many bytes of memory the summaries of a catalog may take; those of published ones are not above 2 MB.
const MAX_SUMMARY: usize = 16 << 20;

/// The summaries made so far, one for each content that is served; none for a content whose summary is larger than [`MAX_SUMMARY`].
#[derive(Debug, Default)]
pub(crate) struct Summaries(PerContent<Option<Bytes>>);

impl Summaries {
    /// The summary of a content.
    ///
    /// # Errors
    /// When the content cannot be read.
    async fn get(&self, store: &Store, content: &Arc<Content>) -> io::Result<Option<Bytes>> {
        let making = self.0.get_or_make(store, content, |content| {
            let summary = summarise(content, MAX_SUMMARY)?;
            if summary.is_none() {
                let digest = content.digest();
                tracing::warn!(%digest, limit = MAX_SUMMARY, "the summary of a catalog is too large to be served");
            }
            Ok(summary.map(Bytes::from))
        });
        making.await
    }
}

/// Answers a GET or HEAD.
pub(crate) async fn handle(
    method: &Method,
    headers: &HeaderMap,
    served: &Served,
    store: &Store,
    summaries: &Summaries,
    cache: &Cache,
) -> Response<Body> {
    let unreadable = |error: &io::Error| {
        tracing::error!(digest = %served.content.digest(), %error, "cannot summarise catalog content");
        respond::internal()
    };
    let summary = match summaries.get(store, &served.content).await {
        Ok(Some(summary)) => summary,
        Ok(None) => {
            let text = format!(
                "500 Internal Server Error: the summary of this catalog would take more than the limit of {MAX_SUMMARY} bytes; use metas"
            );
            return respond::error(StatusCode::INTERNAL_SERVER_ERROR, &text);
        }
        Err(error) => return unreadable(&error),
    };
    let encoding = match encoding::negotiate(headers) {
        encoding if *method == Method::GET && summary.len() as u64 >= COMPRESS_FROM => encoding,
        _ => Encoding::Identity,
    };
    let name = format!("{}/packages{}", served.content.digest(), encoding.tag_suffix());
    let validators = Validators { tag: format!("\"{name}\""), modified: served.last_unpacked };
    if let Some(response) = unless_met(headers, served, &validators) {
        return response;
    }
    let bytes = match encoding {
        Encoding::Identity => summary,
        encoding => match cache.get_or_make(&name, || compress_all(&summary, encoding)) {
            Ok(bytes) => bytes,
            Err(error) => return unreadable(&error),
        },
    };
    let mut response = with_validators(respond::bare(StatusCode::OK), served, &validators);
    let to = response.headers_mut();
    to.insert(header::CONTENT_TYPE, JSONL);
    to.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    if let Some(encoded) = encoding.name() {
        to.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoded));
    }
    if *method != Method::HEAD {
        *response.body_mut() = Body::Full(bytes);
    }
    response
}

/// All summaries, in order of the names; `None` if they would take more than about `limit` bytes. Slow for large catalogs; not for an
/// async thread. Holds one object at a time.
///
/// # Errors
/// When the content cannot be read.
fn summarise(content: &Content, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let index = content.index();
    let mut by_package: BTreeMap<&str, Vec<Located<'_>>> = BTreeMap::new();
    for object in index.objects() {
        let owner = match object.schema {
            schema::PACKAGE => object.name,
            schema::CHANNEL | schema::BUNDLE | schema::DEPRECATIONS => object.package,
            _ => continue,
        };
        if !owner.is_empty() {
            by_package.entry(owner).or_default().push(object);
        }
    }
    let mut out = Vec::new();
    for (name, objects) in by_package {
        let mut summariser = Summariser::new(name);
        let mut blob = Vec::new();
        for object in objects {
            let Located { schema, package, name, .. } = object;
            blob.resize(usize::try_from(object.length).map_err(io::Error::other)?, 0);
            content.jsonl().read_at(&mut blob, object.offset)?;
            let [schema, package, name] = [schema, package, name].map(str::to_owned);
            let meta = Meta { schema, package, name, blob };
            summariser.add(&meta);
            blob = meta.blob;
            if out.len() + summariser.held() > limit {
                return Ok(None);
            }
        }
        if out.len() + summariser.size() > limit {
            return Ok(None);
        }
        // escapes are longer than what they stand for
        if serde_json::to_writer(Bounded(&mut out, limit), &summariser.finish()).is_err() {
            return Ok(None);
        }
        out.push(b'\n');
    }
    Ok(Some(out))
}

/// Appends as long as there are not more bytes than the limit.
struct Bounded<'a>(&'a mut Vec<u8>, usize);

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > self.1 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
