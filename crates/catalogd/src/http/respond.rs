//! Answers that are not catalog content: errors and redirects, with the bodies that clients know (rule: catalogd §7.4).

use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};

use super::body::Body;

/// Which image the content of an answer was made from (decision 15).
pub(super) const CATALOG_DIGEST: HeaderName = HeaderName::from_static("olm-catalog-digest");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const VARY: HeaderValue = HeaderValue::from_static("Accept-Encoding");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// An answer with the headers that every answer has, and no body.
#[must_use]
pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response.headers_mut().insert(header::VARY, VARY);
    response
}

/// An error with a line of text.
#[must_use]
pub(super) fn error(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = bare(status);
    response.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    *response.body_mut() = Body::text(format!("{text}\n"));
    response
}

/// 404 for a path that names nothing we serve.
#[must_use]
pub(super) fn no_such_page() -> Response<Body> {
    error(
        StatusCode::NOT_FOUND,
        "404 page not found: the paths are /catalogs/<name>/api/v1/all, metas, packages and graphql, without a slash at the end",
    )
}

/// 404 for an endpoint whose feature gate is off.
#[must_use]
pub(super) fn gate_is_off(gate: &str) -> Response<Body> {
    error(
        StatusCode::NOT_FOUND,
        &format!("404 page not found: it takes the feature gate {gate}, which is off"),
    )
}

/// 404 for a catalog without content.
#[must_use]
pub(super) fn no_content() -> Response<Body> {
    error(
        StatusCode::NOT_FOUND,
        "404 Not Found: no catalog of this name is served here; look at the condition Serving of its ClusterCatalog",
    )
}

/// 400 for a query that is not understood, with what is wrong with it.
#[must_use]
pub(super) fn bad_request(why: &str) -> Response<Body> {
    error(StatusCode::BAD_REQUEST, &format!("400 Bad Request: {why}"))
}

/// 500; the cause belongs into the log.
#[must_use]
pub(super) fn internal() -> Response<Body> {
    error(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
}

/// 405 with the methods that would do.
#[must_use]
pub(super) fn wrong_method(allowed: &'static str) -> Response<Body> {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &format!("Method Not Allowed: use {allowed}"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// 307 to the cleaned form of a path.
#[must_use]
pub(super) fn redirect(method: &Method, location: &str) -> Response<Body> {
    // browsers read a backslash as a slash, and `//host` as another server
    let location = &location.replace('\\', "%5C");
    let Ok(value) = HeaderValue::from_str(location) else { return no_such_page() };
    let mut response = bare(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(header::LOCATION, value);
    if matches!(*method, Method::GET | Method::HEAD) {
        response.headers_mut().insert(header::CONTENT_TYPE, HTML);
        *response.body_mut() =
            Body::text(format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", escape(location)));
    }
    response
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
