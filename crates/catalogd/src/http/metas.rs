//! `/api/v1/metas`: the objects that have a given schema, package and name, found by the index and copied from the
//! file (rules: catalogd §7.6 and §6.4, decision 27 for malformed queries). Nothing else is read.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use olm_fbc::Query;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::body::{Body, Compressed, ContentFile, FileBody, Piece};
use super::cache::Cache;
use super::conditions::Validators;
use super::encoding::{self, Encoding};
use super::{JSONL, respond, unless_met, with_length, with_validators};
use crate::store::{COMPRESS_FROM, Content, Section, Served};

/// Answers up to this size are compressed whole before they are sent, longer ones while they are sent; the next request
/// finds both in the cache.
const WHOLE: u64 = 512 * 1024;
/// The characters of a query value that an entity tag does not escape.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// What a query asks for; empty words constrain nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    schema: String,
    package: String,
    name: String,
}

impl Filter {
    fn query(&self) -> Query<'_> {
        Query { schema: &self.schema, package: &self.package, name: &self.name }
    }
}

/// Reads the query part of a URL. A repeated key's first value counts, an empty value is none.
///
/// # Errors
/// When a key is unknown or a pair cannot be decoded: what is wrong with it.
pub(super) fn query(text: &str) -> Result<Filter, String> {
    let mut first: [Option<String>; 3] = [None, None, None];
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if pair.contains(';') {
            return Err(format!(
                "{pair:?} has a semicolon; parameters are separated by &, and ; is written %3B"
            ));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let slot = match decode(key)?.as_str() {
            "schema" => 0,
            "package" => 1,
            "name" => 2,
            other => return Err(format!("unknown parameter {other:?}; schema, package and name are known")),
        };
        let value = decode(value)?;
        first[slot].get_or_insert(value);
    }
    let [schema, package, name] = first.map(Option::unwrap_or_default);
    Ok(Filter { schema, package, name })
}

fn decode(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if *byte == b'%' && !(hex(at + 1) && hex(at + 2)) {
            return Err(format!("{text:?} has a % without two hexadecimal digits; write %25"));
        }
    }
    let spaced = text.replace('+', " ");
    Ok(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// The query in its canonical form: fixed order of keys, everything unusual percent-encoded.
fn canonical(filter: &Filter) -> String {
    let fields = [("schema", &filter.schema), ("package", &filter.package), ("name", &filter.name)];
    let mut text = String::new();
    for (key, value) in fields {
        if !value.is_empty() {
            text.push(if text.is_empty() { '?' } else { '&' });
            text.push_str(key);
            text.push('=');
            text.extend(utf8_percent_encode(value, PLAIN));
        }
    }
    text
}

/// Answers a GET or HEAD.
#[must_use]
pub(super) fn handle(
    method: &Method,
    headers: &HeaderMap,
    served: &Served,
    filter: &Filter,
    cache: &Cache,
) -> Response<Body> {
    let content = &served.content;
    let query = filter.query();
    let sections: Vec<Section> = (content.index().sections(&query).into_iter())
        .map(|range| Section { start: range.start, len: range.end - range.start })
        .collect();
    let size: u64 = sections.iter().map(|section| section.len).sum();
    let encoding = match encoding::negotiate(headers) {
        encoding if *method == Method::GET && size >= COMPRESS_FROM => encoding,
        _ => Encoding::Identity,
    };
    if let Some(response) = unless_met(headers, served, &validators(served, filter, encoding)) {
        return response;
    }
    let found = Found { content, all: query.is_all(), sections: &sections, size };
    let body = match found.encoded(encoding, &name(served, filter, encoding), cache) {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(digest = %content.digest(), %error, "cannot read catalog content");
            return respond::internal();
        }
    };
    let sent = if body.is_some() { encoding } else { Encoding::Identity };
    let mut response =
        with_validators(respond::bare(StatusCode::OK), served, &validators(served, filter, sent));
    let to = response.headers_mut();
    to.insert(header::CONTENT_TYPE, JSONL);
    if let Some(name) = sent.name() {
        to.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    match body {
        None => with_length(method, response, size, || found.plain()),
        Some((length, body)) => {
            if let Some(length) = length {
                to.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
            response.map(|_| body)
        }
    }
}

/// What names an answer in an encoding.
fn name(served: &Served, filter: &Filter, encoding: Encoding) -> String {
    format!("{}{}{}", served.content.digest(), canonical(filter), encoding.tag_suffix())
}

fn validators(served: &Served, filter: &Filter, encoding: Encoding) -> Validators {
    Validators { tag: format!("\"{}\"", name(served, filter, encoding)), modified: served.last_unpacked }
}

/// What a query has found.
struct Found<'a> {
    content: &'a Arc<Content>,
    /// Nothing was constrained.
    all: bool,
    sections: &'a [Section],
    size: u64,
}

impl Found<'_> {
    fn plain(&self) -> FileBody {
        let pieces = self.sections.iter().copied().map(Piece::File);
        FileBody::new(Arc::clone(self.content), ContentFile::Plain, pieces)
    }

    /// The answer compressed, with its length if that is known: the stored copy, what is remembered, or made now. `None`
    /// for identity, and for a long answer when enough others are being compressed.
    fn encoded(
        &self,
        encoding: Encoding,
        name: &str,
        cache: &Cache,
    ) -> io::Result<Option<(Option<u64>, Body)>> {
        let copy = match encoding {
            Encoding::Identity => return Ok(None),
            Encoding::Gzip => ContentFile::Gzip,
            Encoding::Zstd => ContentFile::Zstd,
        };
        if let Some(blob) = copy.blob(self.content).filter(|_| self.all) {
            let whole = [Piece::File(Section { start: 0, len: blob.size() })];
            let body = FileBody::new(Arc::clone(self.content), copy, whole);
            return Ok(Some((Some(blob.size()), Body::Stored(body))));
        }
        let full = |bytes: Bytes| Some((Some(bytes.len() as u64), Body::Full(bytes)));
        if let Some(bytes) = cache.get(name) {
            return Ok(full(bytes));
        }
        let compress = || Compressed::new(self.plain(), encoding);
        if self.size <= WHOLE {
            return cache.get_or_make(name, || compress()?.all()).map(full);
        }
        let Some(permit) = cache.encoder() else { return Ok(None) };
        let body = compress()?.on_the_way(permit, cache.collect(name));
        Ok(Some((None, Body::Compressed(Box::new(body)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metas_queries_are_parsed() {
        let want = |schema: &str, package: &str, name: &str| {
            Ok(Filter { schema: schema.to_owned(), package: package.to_owned(), name: name.to_owned() })
        };
        for (text, want) in [
            ("", want("", "", "")),
            ("schema=olm.bundle", want("olm.bundle", "", "")),
            ("schema=a&package=b&name=c", want("a", "b", "c")),
            ("name=c&schema=a", want("a", "", "c")),
            ("schema=a&schema=b", want("a", "", "")),
            ("schema=&schema=b", want("", "", "")),
            ("schema", want("", "", "")),
            ("&&schema=a&", want("a", "", "")),
            ("schema=a%20b+c%2Bd", want("a b c+d", "", "")),
            ("sch%65ma=x", want("x", "", "")),
            ("schema=a=b", want("a=b", "", "")),
        ] {
            assert_eq!(query(text), want, "{text:?}");
        }
        for (text, want) in [
            ("Schema=a", "unknown parameter \"Schema\"; schema, package and name are known"),
            ("foo=1", "unknown parameter \"foo\";"),
            ("foo", "unknown parameter \"foo\";"),
            ("schema=a&foo=1", "unknown parameter \"foo\";"),
            ("schema=%zz", "\"%zz\" has a % without two hexadecimal digits; write %25"),
            ("schema=%2", "\"%2\" has a %"),
            ("a;b", "\"a;b\" has a semicolon;"),
            ("schema=a;package=b", "\"schema=a;package=b\" has a semicolon;"),
            ("=x", "unknown parameter \"\";"),
        ] {
            let why = query(text).unwrap_err();
            assert!(why.starts_with(want), "{text:?}: {why}");
        }
    }

    #[test]
    fn metas_canonical_form_has_no_quotes_or_spaces() {
        let filter = query("name=%22x%22%20y%26&schema=olm.bundle").unwrap();
        assert_eq!(canonical(&filter), "?schema=olm.bundle&name=%22x%22%20y%26");
    }

    #[tokio::test]
    async fn metas_long_answers_are_compressed_while_sent_and_cached() {
        use http_body_util::BodyExt;
        use std::io::Read;

        let root = tempfile::tempdir().unwrap();
        let (store, _) = crate::store::Store::open(root.path()).unwrap();
        let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let lines: String = (0..10_000)
            .map(|n| format!("{{\"name\":\"n{n}\",\"pad\":\"{n:0>90}\",\"schema\":\"s\"}}\n"))
            .collect();
        assert!(lines.len() as u64 > WHOLE);
        let staging = store.stage(store.lease(&digest)).unwrap();
        let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        ingest.file("catalog.json", &mut lines.as_bytes()).unwrap();
        let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
        let served = Served { content, reference: String::new(), source: None, last_unpacked: 1 };
        let filter = query("schema=s").unwrap();
        let cache = Cache::new(8 << 20);
        let ask = |accepted: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            handle(&Method::GET, &headers, &served, &filter, &cache)
        };
        let body = async |response: Response<Body>| response.into_body().collect().await.unwrap().to_bytes();
        for (accepted, suffix) in [("gzip", "-gzip"), ("zstd", "-zstd")] {
            let first = ask(accepted);
            assert!(!first.headers().contains_key(header::CONTENT_LENGTH), "sent while it is made");
            let tag = first.headers()[header::ETAG].clone();
            assert!(tag.to_str().unwrap().contains(suffix));
            let sent = body(first).await;
            let plain = if accepted == "gzip" {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&*sent).read_to_end(&mut plain).unwrap();
                plain
            } else {
                zstd::decode_all(&*sent).unwrap()
            };
            assert!(plain == lines.as_bytes(), "{accepted}");
            let read = served.content.jsonl().bytes_read();
            let second = ask(accepted);
            assert_eq!(second.headers()[header::CONTENT_LENGTH], sent.len().to_string());
            assert_eq!(second.headers()[header::ETAG], tag);
            assert_eq!(body(second).await, sent);
            assert_eq!(served.content.jsonl().bytes_read(), read, "the second is answered from memory");
        }
        let cache = Cache::new(8 << 20);
        let permits: Vec<_> = std::iter::from_fn(|| cache.encoder()).collect();
        let ask = |accepted: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            handle(&Method::GET, &headers, &served, &filter, &cache)
        };
        let crowded = ask("gzip");
        assert!(!crowded.headers().contains_key(header::CONTENT_ENCODING));
        assert!(!crowded.headers()[header::ETAG].to_str().unwrap().contains("-gzip"));
        assert!(body(crowded).await == lines.as_bytes());
        drop(permits);
        assert_eq!(ask("gzip").headers()[header::CONTENT_ENCODING], "gzip");
    }
}
