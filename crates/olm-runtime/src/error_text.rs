//! Error chains as one line that stays the same from attempt to attempt.
//!
//! A condition message with a client port in it would change with every retry, and each change wakes every watcher.
//!
//! Rule: operator-controller §3.5.

use std::error::Error;
use std::net::SocketAddr;

/// The error and its causes, `a: b: c`. A cause whose text already ends the line is not repeated. Of an answer of the apiserver only
/// its message is taken; the client's own text repeats it with all internals.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let answer = match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) if !status.message.is_empty() => Some(&status.message),
            _ => None,
        };
        let part = answer.cloned().unwrap_or_else(|| error.to_string());
        if text.is_empty() {
            text = part;
        } else if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = if answer.is_some() { None } else { error.source() };
    }
    text
}

/// The innermost cause in lower case, without the number that the system gives it: `connection refused`.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    olm_core::message::plain(&last.to_string())
}

/// The text without each `(read|write) (tcp|udp) <address>-><address>` and a `: ` behind it.
pub fn stable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['r', 'w']) {
        let (before, here) = rest.split_at(start);
        out.push_str(before);
        if let Some(length) = connection(here) {
            rest = &here[length..];
        } else {
            out.push_str(&here[..1]);
            rest = &here[1..];
        }
    }
    out.push_str(rest);
    out
}

/// The length of the connection text at the start of `text`, if there is one.
fn connection(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("read ").or_else(|| text.strip_prefix("write "))?;
    let rest = rest.strip_prefix("tcp ").or_else(|| rest.strip_prefix("udp "))?;
    let (local, rest) = rest.split_once("->")?;
    let remote = &rest[..rest.find(|c: char| !is_address(c)).unwrap_or(rest.len())];
    // the colon of a following `: ` looks like one before a port
    let remote = remote.trim_end_matches(':');
    if !address(local) || !address(remote) {
        return None;
    }
    let rest = &rest[remote.len()..];
    let rest = rest.strip_prefix(": ").unwrap_or(rest);
    Some(text.len() - rest.len())
}

fn is_address(c: char) -> bool {
    c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']')
}

/// An IPv4 address or an IPv6 address in brackets, with or without a port.
fn address(text: &str) -> bool {
    let bare_v6 = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    text.parse::<SocketAddr>().is_ok()
        || text.parse::<std::net::Ipv4Addr>().is_ok()
        || bare_v6.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Sample {
        #[error("cannot pull image")]
        Outer(#[source] Box<Sample>),
        #[error("registry refuses: quota")]
        Middle(#[source] Box<Sample>),
        #[error("quota")]
        Inner,
    }

    #[test]
    fn error_text_prints_the_whole_chain_once() {
        let error = Sample::Outer(Box::new(Sample::Middle(Box::new(Sample::Inner))));
        assert_eq!(chain(&error), "cannot pull image: registry refuses: quota");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot list catalogs")]
    struct Listing(#[source] kube::Error);

    #[test]
    fn error_text_of_the_apiserver_is_its_message() {
        let status = kube::core::Status::failure("clustercatalogs is forbidden", "Forbidden").with_code(403);
        let error = Listing(kube::Error::Api(status.boxed()));
        assert_eq!(chain(&error), "cannot list catalogs: clustercatalogs is forbidden");
    }

    #[test]
    fn error_text_has_no_addresses_of_connections() {
        for (text, want) in [
            (
                "get: read tcp 10.0.0.1:4711->10.0.0.2:443: connection reset by peer",
                "get: connection reset by peer",
            ),
            ("write udp [::1]:53->[fe80::1]:53: timeout", "timeout"),
            ("read tcp 10.0.0.1->10.0.0.2", ""),
            ("read tcp [::1]->[::2]: x read tcp 1.2.3.4:5->1.2.3.4:6: y", "x y"),
            ("dial tcp 10.0.0.2:443: refused", "dial tcp 10.0.0.2:443: refused"),
            ("read tcp here->there: x", "read tcp here->there: x"),
            ("read tcp 1.2.3.4:5->", "read tcp 1.2.3.4:5->"),
            ("wörter read", "wörter read"),
            ("", ""),
        ] {
            assert_eq!(stable(text), want, "{text}");
        }
    }
}
