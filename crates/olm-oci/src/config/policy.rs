//! The policy.json of the container tools: the reference obeys it, this project reads only the policy that its flag names
//! (decision 18). A file that would make a difference is found here, to be named in a warning.

use std::collections::BTreeMap;
use std::path::PathBuf;

use olm_signature::ACCEPT_ANYTHING;
use serde::Deserialize;

/// The policy.json that the reference would read (catalogd §5.3), if it does not accept every image.
pub(crate) fn unread_policy() -> Option<PathBuf> {
    unread(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn unread(get: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let places = match get("CONTAINERS_POLICY_JSON") {
        Some(file) => vec![file],
        None => get("HOME")
            .map(|home| home.join(".config/containers/policy.json"))
            .into_iter()
            .chain(["/etc/containers/policy.json".into(), "/usr/share/containers/policy.json".into()])
            .collect(),
    };
    let file = places.into_iter().find(|file| file.is_file())?;
    let accepts_all = std::fs::read(&file).is_ok_and(|document| accepts_all(&document));
    (!accepts_all).then_some(file)
}

#[derive(Deserialize)]
struct Document {
    default: Vec<Requirement>,
    #[serde(default)]
    transports: BTreeMap<String, BTreeMap<String, Vec<Requirement>>>,
}

#[derive(Deserialize)]
struct Requirement {
    #[serde(rename = "type")]
    kind: String,
}

fn accepts_all(document: &[u8]) -> bool {
    let Ok(document) = serde_json::from_slice::<Document>(document) else { return false };
    let of_registries = document.transports.get("docker").into_iter().flat_map(BTreeMap::values);
    of_registries.chain([&document.default]).flatten().all(|requirement| requirement.kind == ACCEPT_ANYTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_in_a_standard_place_is_found_unless_it_accepts_all() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        let (named, own) = (directory.path().join("named.json"), home.join(".config/containers/policy.json"));
        std::fs::create_dir_all(home.join(".config/containers")).unwrap();
        let accept = r#"{"default":[{"type":"insecureAcceptAnything"}],
            "transports":{"docker-daemon":{"":[{"type":"reject"}]}}}"#;
        let signed = r#"{"default":[{"type":"insecureAcceptAnything"}],
            "transports":{"docker":{"quay.io":[{"type":"sigstoreSigned","keyPath":"k"}]}}}"#;
        for (variable, document, is_found) in [
            ("CONTAINERS_POLICY_JSON", r#"{"default":[{"type":"reject"}]}"#, true),
            ("CONTAINERS_POLICY_JSON", signed, true),
            ("CONTAINERS_POLICY_JSON", "{", true),
            ("CONTAINERS_POLICY_JSON", accept, false),
            ("HOME", signed, true),
            ("HOME", accept, false),
        ] {
            let (file, value) = if variable == "HOME" { (&own, &home) } else { (&named, &named) };
            std::fs::write(file, document).unwrap();
            let found = unread(|name| (name == variable).then(|| value.clone()));
            assert_eq!(found.as_ref(), is_found.then_some(file), "{variable} {document}");
        }
        assert_eq!(unread(|name| (name == "CONTAINERS_POLICY_JSON").then(|| "/nonexistent".into())), None);
    }
}
