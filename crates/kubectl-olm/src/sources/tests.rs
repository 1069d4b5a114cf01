//! The reason in one line for which a catalog is not served.

use serde_json::json;

use super::*;

#[test]
fn unserved_catalogs_name_their_reason() {
    let catalog = |name: &str, message: &str| -> ClusterCatalog {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterCatalog", "metadata": {"name": name},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example.com/c:v1"}}},
            "status": {"conditions": [{"type": "Progressing", "status": "True", "reason": "Retrying", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap()
    };
    let listed = [catalog("a", "no such host\nmore"), catalog("b", &"x".repeat(200)), catalog("c", "")];
    let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let line =
        |name: &str, why: &str| format!("catalog {name}: not served{why}; see kubectl olm catalogs -o wide");
    let (a, c) = (line("a", ": no such host"), line("c", ": Retrying"));
    let b = line("b", &format!(": {}…", "x".repeat(MAX_REASON - 1)));
    for (given, want) in [
        ("a", vec![a.clone()]),
        ("gone", vec![line("gone", "")]),
        ("a b c d", vec![a.clone(), b.clone(), c.clone(), "… and 1 more catalog is not served".to_owned()]),
        ("a b c d e", vec![a, b, c, "… and 2 more catalogs are not served".to_owned()]),
    ] {
        assert_eq!(unserved_texts(&names(given), &listed), want);
    }
}

#[test]
fn catalogd_url_is_absolute() {
    for (text, want) in [
        ("https://127.0.0.1:8443", true),
        ("http://localhost", true),
        ("nonsense", false),
        ("localhost:8443", false),
        ("ftp://x", false),
        ("https://", false),
    ] {
        assert_eq!(address(text).is_ok(), want, "{text}");
    }
}

#[test]
fn catalogd_url_of_this_machine_needs_no_proxy() {
    for (address, want) in [
        ("https://127.0.0.1:8443", true),
        ("https://LOCALHOST:8443", true),
        ("https://[::1]:8443", true),
        ("https://10.0.0.1", false),
        ("https://localhost.example.com", false),
        ("nonsense", false),
    ] {
        assert_eq!(is_loopback(address), want, "{address}");
    }
}
