//! RFC 1123 subdomains, with Kubernetes' messages about names that are invalid.

const TOO_LONG: &str = "must be no more than 253 characters";
const SHAPE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Why a name is no RFC 1123 subdomain, sorted; empty when it is one.
pub(crate) fn subdomain_problems(name: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if !name.split('.').all(is_label) {
        problems.push(SHAPE);
    }
    if name.len() > 253 {
        problems.push(TOO_LONG);
    }
    problems
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    label.bytes().all(|byte| inner(byte) || byte == b'-')
        && label.bytes().next().is_some_and(inner)
        && label.bytes().last().is_some_and(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains() {
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
