//! The signature policy: the one that a flag names, or the policy.json of the container tools (decision 18).

use std::path::PathBuf;

use olm_signature::SignaturePolicy;

/// The policy of `--signature-policy`. Without the flag the policy.json that the container tools obey, if there is one (catalogd §5.3).
pub(crate) fn find_signature_policy(flag: Option<&str>) -> SignaturePolicy {
    find(flag, |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn find(flag: Option<&str>, get: impl Fn(&str) -> Option<PathBuf>) -> SignaturePolicy {
    if let Some(flag) = flag {
        let Ok(named) = flag.parse();
        return named;
    }
    let of_user = || get("HOME").map(|home| home.join(".config/containers/policy.json"));
    let of_machine = ["/etc/containers/policy.json", "/usr/share/containers/policy.json"].map(PathBuf::from);
    let found = get("CONTAINERS_POLICY_JSON")
        .or_else(|| of_user().into_iter().chain(of_machine).find(|file| file.is_file()));
    found.map_or(SignaturePolicy::AcceptAnything, SignaturePolicy::File)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_of_a_flag_comes_before_the_standard_places() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join(".config/containers/policy.json");
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(&own, "{}").unwrap();
        let variable = |name: &str| match name {
            "CONTAINERS_POLICY_JSON" => Some(PathBuf::from("/nonexistent/named.json")),
            "HOME" => Some(home.path().to_owned()),
            _ => None,
        };
        let home_only = |name: &str| variable(name).filter(|_| name == "HOME");
        assert_eq!(find(None, variable), SignaturePolicy::File("/nonexistent/named.json".into()));
        assert_eq!(find(None, home_only), SignaturePolicy::File(own));
        assert_eq!(find(Some("insecureAcceptAnything"), variable), SignaturePolicy::AcceptAnything);
        assert_eq!(find(Some("/p.json"), variable), SignaturePolicy::File("/p.json".into()));
    }
}
