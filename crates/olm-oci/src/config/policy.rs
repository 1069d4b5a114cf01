//! The signature policy: the one that a flag names, or the policy.json of the container tools (decision 18).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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
    let of_user = || Some(get("HOME")?.join(".config/containers/policy.json")).filter(|place| place.exists());
    let of_machine = ["/etc/containers/policy.json", "/usr/share/containers/policy.json"].map(PathBuf::from);
    let found = get("CONTAINERS_POLICY_JSON")
        .or_else(of_user)
        .or_else(|| of_machine.into_iter().find(|place| !is_absent(place)));
    found.map_or(SignaturePolicy::AcceptAnything, SignaturePolicy::File)
}

/// Whether there is no policy in this place. What is no file (a mount may make a directory), or cannot be reached, is an error when it is
/// read: it does not mean that every image is accepted.
fn is_absent(place: &Path) -> bool {
    let is_missing = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
    place.metadata().is_err_and(|error| is_missing(error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_absent_only_where_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "{}").unwrap();
        for (place, is_there) in [
            (file.clone(), true),
            (folder.path().to_owned(), true),
            (folder.path().join("missing"), false),
            (file.join("below"), false),
        ] {
            assert_eq!(is_absent(&place), !is_there, "{}", place.display());
        }
        // as of a mount of a file that is not there
        let place = folder.path().join(".config/containers/policy.json");
        std::fs::create_dir_all(&place).unwrap();
        let found = find(None, |name| (name == "HOME").then(|| folder.path().to_owned()));
        assert_eq!(found, SignaturePolicy::File(place));
    }

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
