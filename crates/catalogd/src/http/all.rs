//! `/api/v1/all`: the whole catalog as a static file, with ranges and precompressed copies (rules: catalogd §7.5, §7.8).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

use super::body::{Body, ContentFile, FileBody, Piece};
use super::conditions::{self, Validators};
use super::encoding::{self, Encoding};
use super::range::{self, Ranges};
use super::respond;
use super::{JSONL, unless_met, with_length, with_validators};
use crate::store::{Section, Served, Store};

/// Answers a GET or HEAD.
#[must_use]
pub(super) fn handle(method: &Method, headers: &HeaderMap, served: &Served, store: &Store) -> Response<Body> {
    let content = &served.content;
    let size = content.jsonl().size();
    // without a value it is none, as in Go's file server
    let range = headers.get(header::RANGE).filter(|range| !range.is_empty());
    // Parts are always parts of the plain file, and HEAD describes it (catalogd §7.8, §7.9).
    let mut encoding = Encoding::Identity;
    let mut copy = ContentFile::Plain;
    if *method == Method::GET && range.is_none() {
        for accepted in encoding::accepted(headers) {
            let file = ContentFile::in_encoding(accepted);
            if file.blob(content).is_some() {
                (encoding, copy) = (accepted, file);
                break;
            }
            if accepted == Encoding::Zstd {
                store.request_zstd(content);
            }
        }
    }
    let validators = Validators {
        tag: format!("\"{}{}\"", content.digest(), encoding.tag_suffix()),
        modified: served.last_unpacked,
    };
    if let Some(mut response) = unless_met(headers, served, &validators) {
        if response.status() == StatusCode::PRECONDITION_FAILED {
            response.headers_mut().insert(header::CONTENT_TYPE, JSONL);
        }
        return response;
    }
    if let Some(range) = range.filter(|_| conditions::range_allowed(headers, &validators)) {
        match range::parse(range.to_str().unwrap_or(""), size) {
            Ranges::Whole => {}
            Ranges::Malformed => return beyond(served, "invalid range", size),
            Ranges::Beyond => return beyond(served, "invalid range: failed to overlap", size),
            Ranges::Parts(parts) => return partial(method, served, &validators, &parts, size),
        }
    }
    let length = copy.blob(content).map_or(size, crate::store::Blob::size);
    let mut response = with_validators(respond::bare(StatusCode::OK), served, &validators);
    let to = response.headers_mut();
    to.insert(header::CONTENT_TYPE, JSONL);
    match encoding.name() {
        Some(name) => {
            to.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        None => {
            to.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        }
    }
    let whole = [Piece::File(Section { start: 0, len: length })];
    with_length(method, response, length, || FileBody::new(Arc::clone(content), copy, whole))
}

/// 416.
fn beyond(served: &Served, text: &str, size: u64) -> Response<Body> {
    let mut response = respond::error(StatusCode::RANGE_NOT_SATISFIABLE, text);
    if let Ok(value) = HeaderValue::try_from(format!("bytes */{size}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    super::name_digest(&mut response, served);
    response
}

/// 206 with one part, or with several in a `multipart/byteranges` body.
fn partial(
    method: &Method,
    served: &Served,
    validators: &Validators,
    parts: &[Section],
    size: u64,
) -> Response<Body> {
    let content = &served.content;
    let mut response = with_validators(respond::bare(StatusCode::PARTIAL_CONTENT), served, validators);
    response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let place = |part: &Section| format!("bytes {}-{}/{size}", part.start, part.start + part.len - 1);
    let (kind, pieces) = if let [part] = parts {
        if let Ok(value) = HeaderValue::try_from(place(part)) {
            response.headers_mut().insert(header::CONTENT_RANGE, value);
        }
        (JSONL, vec![Piece::File(*part)])
    } else {
        let boundary = format!("{:032x}{:028x}", rand::random::<u128>(), rand::random::<u64>());
        let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
        for (at, part) in parts.iter().enumerate() {
            let head = format!(
                "{}--{boundary}\r\nContent-Range: {}\r\nContent-Type: application/jsonl\r\n\r\n",
                if at == 0 { "" } else { "\r\n" },
                place(part)
            );
            pieces.push(Piece::Bytes(Bytes::from(head)));
            pieces.push(Piece::File(*part));
        }
        pieces.push(Piece::Bytes(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
        let kind = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
        (kind.unwrap_or(JSONL), pieces)
    };
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    let body = FileBody::new(Arc::clone(content), ContentFile::Plain, pieces);
    let length = body.left();
    with_length(method, response, length, || body)
}
