//! Names of DNS as Kubernetes allows them for its objects (RFC 1123, in lower case), its messages about other names, and values of labels.

const TOO_LONG: &str = "must be no more than 253 characters";
/// What is wrong with a text that has not the form of a subdomain.
pub const SHAPE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Why a name is no subdomain, sorted; empty when it is one.
#[must_use]
pub fn subdomain_problems(name: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if !is_subdomain(name) {
        problems.push(SHAPE);
    }
    if name.len() > 253 {
        problems.push(TOO_LONG);
    }
    problems
}

/// Whether all parts between dots are labels. The length is not looked at.
#[must_use]
pub fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

/// Whether a text is a label. The length is not looked at.
#[must_use]
pub fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    label.bytes().all(|byte| inner(byte) || byte == b'-')
        && label.bytes().next().is_some_and(inner)
        && label.bytes().last().is_some_and(inner)
}

/// Whether a text has the form of a label's value, or of the name in a label's key. The length is not looked at.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_subdomains_have_kubernetes_form() {
        let long = "a".repeat(254);
        for name in ["a", "a.b", "a-b.0", "vwebhooktest-v1.kb.io", &"a".repeat(253)] {
            assert_eq!(subdomain_problems(name), Vec::<&str>::new(), "{name}");
        }
        for name in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "a.b-", "é"] {
            assert_eq!(subdomain_problems(name), [SHAPE], "{name}");
        }
        assert_eq!(subdomain_problems(&long), [TOO_LONG]);
        assert_eq!(subdomain_problems(&format!("{long}-")), [SHAPE, TOO_LONG]);
    }
}
