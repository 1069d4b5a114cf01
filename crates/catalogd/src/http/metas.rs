//! `/api/v1/metas`: the objects that have a given schema, package and name, found by the index and copied from the
//! file (rules: catalogd §7.6 and §6.4, decision 27 for malformed queries). Nothing else is read.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use olm_fbc::Query;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::body::{Body, Compressed, Copy, Piece, Stored};
use super::cache::Cache;
use super::conditions::{self, Validators, Verdict};
use super::encoding::{self, Encoding};
use super::{JSONL, respond, with_length, with_validators};
use crate::store::{COMPRESS_FROM, Section, Served};

/// Answers up to this size are compressed whole before they are sent, longer ones while they are sent; the next request
/// finds both in the cache.
const WHOLE: u64 = 512 * 1024;
/// What an entity tag spells out of a query value.
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
/// When a key is unknown or a pair cannot be decoded.
pub(super) fn query(text: &str) -> Result<Filter, ()> {
    let mut first: [Option<String>; 3] = [None, None, None];
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if pair.contains(';') {
            return Err(());
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let slot = match decode(key)?.as_str() {
            "schema" => 0,
            "package" => 1,
            "name" => 2,
            _ => return Err(()),
        };
        let value = decode(value)?;
        first[slot].get_or_insert(value);
    }
    let [schema, package, name] = first.map(Option::unwrap_or_default);
    Ok(Filter { schema, package, name })
}

fn decode(text: &str) -> Result<String, ()> {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if *byte == b'%' && !(hex(at + 1) && hex(at + 2)) {
            return Err(());
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
pub(super) fn answer(
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
    let name = format!("{}{}{}", content.digest(), canonical(filter), encoding.tag_suffix());
    let validators = Validators { tag: format!("\"{name}\""), modified: served.last_unpacked };
    match conditions::evaluate(headers, &validators) {
        Verdict::NotModified => {
            return with_validators(respond::bare(StatusCode::NOT_MODIFIED), served, &validators);
        }
        Verdict::Failed => {
            return with_validators(respond::bare(StatusCode::PRECONDITION_FAILED), served, &validators);
        }
        Verdict::Proceed => {}
    }
    let mut response = with_validators(respond::bare(StatusCode::OK), served, &validators);
    response.headers_mut().insert(header::CONTENT_TYPE, JSONL);
    let source = |copy, sections: Vec<Section>| {
        Stored::new(Arc::clone(content), copy, sections.into_iter().map(Piece::File))
    };
    let Some(encoded) = encoding.name() else {
        return with_length(method, response, size, || source(Copy::Plain, sections));
    };
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoded));
    let copy = if encoding == Encoding::Gzip { Copy::Gzip } else { Copy::Zstd };
    if let Some(blob) = copy.of(content).filter(|_| query.is_all()) {
        let whole = vec![Section { start: 0, len: blob.size() }];
        return with_length(method, response, blob.size(), || source(copy, whole));
    }
    let compress = || Compressed::new(source(Copy::Plain, sections), encoding);
    let known = match cache.get(&name) {
        Some(known) => Ok(known),
        None if size > WHOLE => {
            return match compress() {
                Ok(body) => {
                    let body = body.collected(cache.collect(&name));
                    response.map(|_| Body::Compressed(Box::new(body)))
                }
                Err(error) => failed(served, &error),
            };
        }
        None => cache.get_or_make(&name, || compress()?.all()),
    };
    match known {
        Ok(bytes) => {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            response.map(|_| Body::Full(bytes))
        }
        Err(error) => failed(served, &error),
    }
}

fn failed(served: &Served, error: &std::io::Error) -> Response<Body> {
    tracing::error!(digest = %served.content.digest(), %error, "cannot read catalog content");
    respond::internal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read() {
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
            ("Schema=a", Err(())),
            ("foo=1", Err(())),
            ("foo", Err(())),
            ("schema=a&foo=1", Err(())),
            ("schema=%zz", Err(())),
            ("schema=%2", Err(())),
            ("a;b", Err(())),
            ("schema=a;package=b", Err(())),
            ("=x", Err(())),
        ] {
            assert_eq!(query(text), want, "{text:?}");
        }
    }

    #[test]
    fn the_canonical_form_has_no_quotes_or_spaces() {
        let filter = query("name=%22x%22%20y%26&schema=olm.bundle").unwrap();
        assert_eq!(canonical(&filter), "?schema=olm.bundle&name=%22x%22%20y%26");
    }
}
