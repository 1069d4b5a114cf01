//! `WWW-Authenticate`, as registries write it.
//!
//! Several challenges may stand in one header or in several. Only `Bearer` and `Basic` are of interest; anything else is
//! passed over. Pure text work (RFC 9110 §11.6.1).

use std::collections::BTreeMap;

/// The authentication that the registry demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The strongest usable challenge: Bearer before Basic.
pub(crate) fn choose<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for header in headers {
        for (scheme, parameters) in parse(header) {
            match scheme.as_str() {
                "bearer" => {
                    if let Some(realm) = parameters.get("realm").filter(|realm| !realm.is_empty()) {
                        let filled = |key: &str| parameters.get(key).filter(|text| !text.is_empty()).cloned();
                        return Some(Challenge::Bearer {
                            realm: realm.clone(),
                            service: filled("service"),
                            scope: filled("scope"),
                        });
                    }
                }
                "basic" => basic = Some(Challenge::Basic),
                _ => {}
            }
        }
    }
    basic
}

type Parsed = Vec<(String, BTreeMap<String, String>)>;

fn parse(header: &str) -> Parsed {
    let mut found: Parsed = Vec::new();
    let mut rest = header.trim_start();
    while !rest.is_empty() {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            break; // not in this grammar
        }
        let after_space = after.trim_start_matches([' ', '\t']);
        if let Some(value) = after_space.strip_prefix('=') {
            let (value, after) = read_value(value.trim_start_matches([' ', '\t']));
            if let Some((_, parameters)) = found.last_mut() {
                parameters.insert(word.to_ascii_lowercase(), value);
            }
            rest = after;
        } else {
            found.push((word.to_ascii_lowercase(), BTreeMap::new()));
            rest = after;
        }
    }
    found
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn challenge_parses_headers_of_registries() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.into(),
                service: service.map(Into::into),
                scope: scope.map(Into::into),
            })
        };
        for (headers, want) in [
            (
                vec![
                    r#"Bearer realm="https://auth.test/token",service="registry.test",scope="repository:a/b:pull,push""#,
                ],
                bearer("https://auth.test/token", Some("registry.test"), Some("repository:a/b:pull,push")),
            ),
            (vec!["Basic realm=\"x\""], Some(Challenge::Basic)),
            (vec!["Basic"], Some(Challenge::Basic)),
            (
                vec!["Basic realm=x, Bearer realm=\"https://a.test/t\" , service = s"],
                bearer("https://a.test/t", Some("s"), None),
            ),
            (
                vec!["Negotiate", "Basic realm=\"x\"", "bearer Realm=\"https://b.test/\""],
                bearer("https://b.test/", None, None),
            ),
            (vec![r#"Bearer realm="a\"b""#], bearer("a\"b", None, None)),
            (vec!["Bearer service=\"x\""], None),
            (vec!["Negotiate abc=="], None),
            (vec![""], None),
        ] {
            assert_eq!(choose(headers.iter().copied()), want, "{headers:?}");
        }
    }

    proptest! {
        #[test]
        fn challenge_parses_any_header_without_panic(header in "\\PC{0,200}") {
            let _ = choose([header.as_str()]);
        }
    }
}
