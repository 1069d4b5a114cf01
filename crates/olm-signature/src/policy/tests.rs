use serde_json::{Value, json};

use super::*;
use crate::testing::{Fulcio, Key, Rekor};

fn parse(text: &str) -> Result<Policy, PolicyError> {
    Policy::parse(text.as_bytes(), "p.json", &mut |path| {
        let source = std::io::ErrorKind::NotFound.into();
        Err(PolicyError::Io { path: path.to_owned(), source })
    })
}

#[test]
fn policy_uses_the_most_specific_scope() {
    let digest = format!("sha256:{}", "a1".repeat(32));
    let text = json!({
        "default": [{"type": "reject"}],
        "transports": {
            "docker": {
                "quay.io/good": [{"type": "insecureAcceptAnything"}], "quay.io/good/evil": [{"type": "reject"}],
                "quay.io/good/one:v1": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/k"}],
                format!("quay.io/good/one@{digest}"): [{"type": "reject"}], "*.corp.test": [{"type": "insecureAcceptAnything"}],
                "a.corp.test:5000": [{"type": "reject"}],
            },
            "docker-daemon": {"": [{"type": "insecureAcceptAnything"}]},
        },
    });
    let policy = parse(&text.to_string()).unwrap();
    for (image, scope) in [
        ("quay.io/good/x:1", Some("quay.io/good")),
        ("quay.io/good/x/y/z:1", Some("quay.io/good")),
        ("quay.io/goods/x:1", None),
        ("quay.io/good/evil:1", Some("quay.io/good/evil")),
        ("quay.io/good/one:v1", Some("quay.io/good/one:v1")),
        ("quay.io/good/one:v2", Some("quay.io/good")),
        (&format!("quay.io/good/one@{digest}"), Some(&format!("quay.io/good/one@{digest}"))),
        ("a.corp.test/x:1", Some("*.corp.test")),
        ("a.b.corp.test:443/x:1", Some("*.corp.test")),
        ("a.corp.test:5000/x:1", Some("a.corp.test:5000")),
        ("corp.test/x:1", None),
    ] {
        assert_eq!(policy.ruling(&image.parse().unwrap()).scope, scope, "{image}");
    }
    let everywhere =
        parse(r#"{"default":[{"type":"reject"}],"transports":{"docker":{"":[{"type":"reject"}]}}}"#);
    let everywhere = everywhere.unwrap();
    assert_eq!(everywhere.ruling(&"a.test/b:1".parse().unwrap()).to_string(), "the default for docker");
    assert_eq!(policy.ruling(&"a.test/b:1".parse().unwrap()).to_string(), "the default");
}

/// A registry has several spellings; a scope applies to all of them, however it is spelt itself.
#[test]
fn policy_scope_applies_to_every_spelling_of_a_registry() {
    let policy = |scope: &str| {
        let reject = r#"[{"type":"reject"}]"#;
        let accept = r#"[{"type":"insecureAcceptAnything"}]"#;
        parse(&format!(r#"{{"default":{accept},"transports":{{"docker":{{"{scope}":{reject}}}}}}}"#)).unwrap()
    };
    for (scope, images) in [
        ("quay.io/evil", &["quay.io/evil/x:1", "QUAY.IO/evil/x:1", "quay.io:443/evil/x:1"][..]),
        ("Quay.io:443/evil", &["quay.io/evil/x:1", "quay.io:0443/evil/x:1"]),
        (
            "docker.io/evil",
            &["docker.io/evil/x:1", "registry-1.docker.io/evil/x:1", "Docker.io:443/evil/x:1"],
        ),
        ("registry-1.docker.io", &["docker.io/evil/x:1"]),
        ("index.docker.io/evil", &["docker.io/evil/x:1", "registry-1.docker.io/evil/x:1"]),
        ("*.Corp.test", &["a.corp.test/x:1", "A.CORP.TEST:443/x:1"]),
        ("myregistry", &["MyRegistry/x:1", "myregistry:443/x:1"]),
    ] {
        for image in images {
            let (policy, image) = (policy(scope), image.parse().unwrap());
            assert!(policy.ruling(&image).scope.is_some(), "{scope} of {image}");
        }
    }
    assert_eq!(policy("quay.io").ruling(&"quay.io:5000/x:1".parse().unwrap()).scope, None, "another port");
}

#[test]
#[rustfmt::skip]
fn policy_reports_every_mistake() {
    let missing = SignaturePolicy::File("/nonexistent/policy.json".into());
    assert!(Policy::load(&missing).is_err());
    let accept = r#"[{"type":"insecureAcceptAnything"}]"#;
    let docker =
        |scope: &str| format!(r#"{{"default":{accept},"transports":{{"docker":{{"{scope}":{accept}}}}}}}"#);
    for (text, want) in [
        ("{}".to_owned(), "missing field `default`"),
        (r#"{"default":[]}"#.into(), "no requirements for default"),
        (r#"{"default":[{"type":"acceptMaybe"}]}"#.into(), "unknown variant `acceptMaybe`"),
        (r#"{"default":[{"type":"reject","why":"x"}]}"#.into(), "unknown field `why`"),
        (r#"{"default":[{"type":"reject"}],"transport":{}}"#.into(), "unknown field"),
        (format!(r#"{{"default":{accept},"default":{accept}}}"#), "duplicate field"),
        (format!(r#"{{"default":{accept},"transports":{{"docker":{{"a.test":{accept},"a.test":{accept}}}}}}}"#),
            "\"a.test\" is there twice"),
        (format!(r#"{{"default":{accept},"transports":{{"oci":{{"":[]}}}}}}"#), "no requirements for oci"),
        ("reject".into(), "invalid policy in p.json"),
        (docker("https://a.test"), "leave out the scheme"),
        (docker("a.test/b/"), "leave out the slash"),
        (docker("a.test/*"), "a * is only possible as *."),
        (docker("*.a.test/b"), "a scope with *. is a domain"),
        (docker("*.a.test:5000"), "a scope with *. is a domain"),
        (docker(" a.test"), "leave out the blanks"),
        (format!(r#"{{"default":{accept},"transports":{{"docker":{{"a.test":{accept},"A.test:443":{accept}}}}}}}"#),
            "is there twice, as \"a.test\""),
    ] {
        let got = parse(&text).unwrap_err().to_string();
        assert!(got.contains(want), "{text}: {got}");
    }
    assert!(parse(&docker("a.test:5000/b")).is_ok());
}

#[test]
fn policy_requirement_is_complete_and_of_one_kind() {
    use base64::Engine as _;
    let encoded = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    let (key, ca) = (encoded(&Key::new().public()), encoded(&Fulcio::new().root));
    let rekor = encoded(&Rekor::new().0.public());
    let fulcio = json!({ "caData": ca, "oidcIssuer": "https://i.test", "subjectEmail": "a@b.test" });
    let with = |field: &str, value: Value| {
        let mut changed = fulcio.clone();
        changed[field] = value;
        json!({ "fulcio": changed, "rekorPublicKeyData": rekor })
    };
    for (requirement, want) in [
        (json!({ "keyData": key }), ""),
        (json!({ "keyDatas": [key, key] }), ""),
        (json!({ "fulcio": fulcio, "rekorPublicKeyData": rekor }), ""),
        (json!({ "pki": { "caRootsData": ca, "subjectHostname": "a.test" } }), ""),
        (json!({}), "needs exactly one of keyPath"),
        (json!({ "keyData": key, "fulcio": fulcio, "rekorPublicKeyData": rekor }), "needs exactly one of"),
        (json!({ "keyData": key, "keyDatas": [key] }), "only one of keyData and keyDatas"),
        (json!({ "keyDatas": [] }), "keyDatas is empty"),
        (json!({ "keyPath": "/missing" }), "default: /missing: "),
        (json!({ "keyPaths": ["/missing"] }), "/missing: "),
        (json!({ "keyData": "%" }), "keyData is no base64"),
        (json!({ "keyData": ca }), "keyData holds no PEM block \"PUBLIC KEY\""),
        (json!({ "keyData": key, "rekorPublicKeyData": ca }), "rekorPublicKeyData holds no PEM block"),
        (json!({ "keyData": key, "signedIdentity": { "type": "x" } }), "unknown variant `x`"),
        (json!({ "keyData": key, "keytype": 1 }), "unknown field `keytype`"),
        (json!({ "keyDatas": vec![&key; 65] }), "more than 64 keys"),
        (json!({ "fulcio": fulcio }), "fulcio needs rekorPublicKeyPath"),
        (with("caData", Value::Null), "fulcio needs caPath or caData"),
        (with("caData", json!(key)), "caData holds no PEM block \"CERTIFICATE\""),
        (with("oidcIssuer", Value::Null), "fulcio needs oidcIssuer"),
        (with("oidcIssuer", json!("")), "fulcio needs oidcIssuer"),
        (with("subjectEmail", Value::Null), "exactly one of subjectEmail and subjectURI"),
        (with("subjectURI", json!("x")), "exactly one of subjectEmail and subjectURI"),
        (with("subject", json!("x")), "unknown field `subject`"),
        (json!({ "pki": { "caRootsData": ca } }), "exactly one of subjectEmail and subjectHostname"),
        (json!({ "pki": { "subjectHostname": "a" } }), "pki needs caRootsPath or caRootsData"),
    ] {
        let mut requirement = requirement;
        requirement["type"] = json!("sigstoreSigned");
        let got = parse(&json!({ "default": [requirement] }).to_string());
        match got {
            Ok(_) => assert_eq!(want, "", "{requirement}"),
            Err(got) => {
                let got = got.to_string();
                assert!(!want.is_empty() && got.contains(want), "{requirement}: {got}");
            }
        }
    }
}

#[test]
fn policy_includes_the_files_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.json");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("policy.json", r#"{"default":[{"type":"sigstoreSigned","keyPath":"k.pub"}]}"#);
    let source = SignaturePolicy::File(file);
    let load = || Policy::load(&source).map(Option::unwrap);
    assert!(load().unwrap_err().to_string().contains("k.pub: "));
    write("k.pub", &Key::new().public());
    let first = load().unwrap();
    assert_eq!(first.fingerprint, load().unwrap().fingerprint);
    write("k.pub", &Key::new().public());
    assert_ne!(first.fingerprint, load().unwrap().fingerprint, "another key is another policy");
    write("k.pub", &"x".repeat(1 << 20 | 1));
    assert!(load().unwrap_err().to_string().contains("exceeds the limit of 1048576 bytes"));
    assert!(Policy::load(&SignaturePolicy::AcceptAnything).unwrap().is_none());
}
