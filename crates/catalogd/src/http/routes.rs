//! Paths to endpoints (rules: catalogd §7.2 and §7.3, first two checks). Pure text work.

use std::borrow::Cow;

use olm_core::dns::subdomain_problems;
use percent_encoding::percent_decode_str;

/// An endpoint of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `/api/v1/all`
    All,
    /// `/api/v1/metas`
    Metas,
    /// `/api/v1/packages`
    Packages,
    /// `/api/v1/graphql`
    Graphql,
}

/// What a path stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// An endpoint of the catalog of this name, percent-decoded and not yet checked.
    Catalog(Cow<'a, str>, Endpoint),
    /// The path has empty, `.` or `..` segments; this is its clean form.
    Unclean(String),
    Nothing,
}

/// Reads a path as the request line has it, percent-encoded.
#[must_use]
pub(super) fn route(path: &str) -> Route<'_> {
    if let Some(clean) = cleaned(path) {
        return Route::Unclean(clean);
    }
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').map(decode);
    let mut is = |want: &str| segments.next().is_some_and(|segment| segment == want);
    if !is("catalogs") {
        return Route::Nothing;
    }
    let Some(name) = segments.next() else { return Route::Nothing };
    let mut is = |want: &str| segments.next().is_some_and(|segment| segment == want);
    if !is("api") || !is("v1") {
        return Route::Nothing;
    }
    let endpoint = match segments.next().as_deref() {
        Some("all") => Endpoint::All,
        Some("metas") => Endpoint::Metas,
        Some("packages") => Endpoint::Packages,
        Some("graphql") => Endpoint::Graphql,
        _ => return Route::Nothing,
    };
    if segments.next().is_none() { Route::Catalog(name, endpoint) } else { Route::Nothing }
}

fn decode(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

/// The path without empty, `.` and `..` segments, if it has any; a slash at the end stays.
fn cleaned(path: &str) -> Option<String> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let (body, slash) = inner.strip_suffix('/').map_or((inner, ""), |body| (body, "/"));
    if inner.is_empty() || !body.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return None;
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in body.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    let clean = kept.join("/");
    Some(if clean.is_empty() { "/".to_owned() } else { format!("/{clean}{slash}") })
}

/// Checks that a text can be the name of a catalog (a DNS-1123 subdomain).
///
/// # Errors
/// The error message that the client gets.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let mut wrong = subdomain_problems(name);
    // the length comes first here
    wrong.reverse();
    if wrong.is_empty() { Ok(()) } else { Err(format!("invalid catalog name: {}", wrong.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_map_paths_to_endpoints() {
        let catalog = |name: &'static str, endpoint| Route::Catalog(name.into(), endpoint);
        let unclean = |path: &str| Route::Unclean(path.to_owned());
        for (path, want) in [
            ("/catalogs/cat/api/v1/all", catalog("cat", Endpoint::All)),
            ("/catalogs/cat/api/v1/metas", catalog("cat", Endpoint::Metas)),
            ("/catalogs/cat/api/v1/packages", catalog("cat", Endpoint::Packages)),
            ("/catalogs/cat/api/v1/graphql", catalog("cat", Endpoint::Graphql)),
            ("/catalogs/%63at/api/v1/a%6cl", catalog("cat", Endpoint::All)),
            ("/catalogs/%2e%2e/api/v1/all", catalog("..", Endpoint::All)),
            ("/catalogs/..%2f..%2fetc/api/v1/all", catalog("../../etc", Endpoint::All)),
            ("/catalogs/cat/api/v1/all/", Route::Nothing),
            ("/catalogs/cat/api/v1/", Route::Nothing),
            ("/catalogs/cat/api/v1", Route::Nothing),
            ("/catalogs/cat/api/v2/all", Route::Nothing),
            ("/catalogs/cat/all.json", Route::Nothing),
            ("/catalogs/", Route::Nothing),
            ("/", Route::Nothing),
            ("*", Route::Nothing),
            ("", Route::Nothing),
            ("/healthz", Route::Nothing),
            ("//catalogs/cat/api/v1/all", unclean("/catalogs/cat/api/v1/all")),
            ("/catalogs//api/v1/all", unclean("/catalogs/api/v1/all")),
            ("/catalogs/../api/v1/all", unclean("/api/v1/all")),
            ("/catalogs/./x/../y/", unclean("/catalogs/y/")),
            ("/../..", unclean("/")),
            ("//", unclean("/")),
        ] {
            assert_eq!(route(path), want, "{path:?}");
        }
    }

    #[test]
    fn routes_check_catalog_names() {
        for good in ["a", "a-b.c", "0", &"a".repeat(253)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "..", "a b", "a/b", "é"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert_eq!(
            check_name(&"a".repeat(254)).unwrap_err(),
            "invalid catalog name: must be no more than 253 characters"
        );
        assert!(check_name(&"A".repeat(254)).unwrap_err().contains("253 characters; a lowercase"));
    }
}
