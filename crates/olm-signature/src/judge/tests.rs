use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::policy::{Policy, Requirement};
use crate::testing::{
    BEGIN, Certified, EMAIL, Fulcio, ISSUER, Key, LIFE, Rekor, dsse_entry, email, envelope, hashedrekord,
    payload, statement, uri,
};

fn digest() -> String {
    format!("sha256:{}", "a1".repeat(32))
}

/// A policy of this one requirement; `type` and, where it is left out, the lenient identity are added.
fn policy(mut requirement: Value) -> Policy {
    requirement["type"] = json!("sigstoreSigned");
    if requirement.get("signedIdentity").is_none() {
        requirement["signedIdentity"] = json!({ "type": "matchRepository" });
    }
    let text = json!({ "default": [requirement] }).to_string();
    Policy::parse(text.as_bytes(), "policy.json", &mut |path| panic!("reads {}", path.display())).unwrap()
}

fn encoded(pem: &str) -> String {
    STANDARD.encode(pem)
}

fn asked() -> ImageRef {
    "r.test/cat/one:v1".parse().unwrap()
}

/// Judged at a time when the certificates of the tests have long ended.
fn judged(policy: &Policy, claims: Vec<Result<Claim, String>>) -> Result<Accepted, String> {
    let evidence: Vec<Evidence> = claims
        .into_iter()
        .enumerate()
        .map(|(index, claim)| Evidence { place: format!("signature {}", index + 1), claim })
        .collect();
    let asked = asked();
    let digest = digest().parse().unwrap();
    let image = Image { asked: &asked, digest: &digest, now: BEGIN + 1_000_000 };
    let [Requirement::Sigstore(required)] = policy.ruling(&asked).requirements else {
        panic!("one requirement")
    };
    judge(required, &evidence, image).map_err(Option::unwrap_or_default)
}

/// A signature with its annotations, before it is read.
#[derive(Clone)]
struct Layer {
    payload: Vec<u8>,
    annotations: BTreeMap<String, String>,
}

const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const ENTRY: &str = "dev.sigstore.cosign/bundle";

impl Layer {
    fn new(payload: &[u8], signature: &[u8]) -> Self {
        let annotations = BTreeMap::from([(SIGNATURE.to_owned(), STANDARD.encode(signature))]);
        Self { payload: payload.to_owned(), annotations }
    }

    fn annotated(mut self, name: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(name.to_owned(), value.into());
        self
    }

    fn claim(&self) -> Result<Claim, String> {
        Claim::from_cosign(self.payload.clone(), &self.annotations)
    }
}

fn by_key(key: &Key, payload: &[u8]) -> Layer {
    Layer::new(payload, &key.sign(payload))
}

#[test]
#[rustfmt::skip]
fn judge_accepts_key_payload_and_image_together() {
    let (key, other) = (Key::new(), Key::new());
    let right = payload("r.test/cat/one", &digest());
    let good = by_key(&key, &right);
    let one = policy(json!({ "keyData": encoded(&key.public()) }));
    let accepted = judged(&one, vec![good.claim()]).unwrap();
    assert_eq!(accepted, Accepted { signer: "key keyData".into(), lasting: true });
    let both = policy(json!({ "keyDatas": [encoded(&other.public()), encoded(&key.public())] }));
    assert_eq!(judged(&both, vec![good.claim()]).unwrap().signer, "key keyDatas[1]");

    let elsewhere = payload("r.test/cat/one", &digest().replace("a1a1", "a1a2"));
    let foreign = payload("r.test/cat/two", &digest());
    let mut changed = good.clone();
    changed.payload = elsewhere.clone();
    let attestation =
        String::from_utf8(right.clone()).unwrap().replace("cosign container image", "some other");
    for (name, claim, want) in [
        ("other key", by_key(&other, &right).claim(), "it is not made with a key of the policy"),
        ("payload changed after signing", changed.claim(), "or its payload was changed"),
        ("another image's signature", by_key(&key, &elsewhere).claim(), "it is for the digest sha256:a1a2"),
        ("another repository's", by_key(&key, &foreign).claim(), "it is for r.test/cat/two, not for r.test/cat/one"),
        ("another type", by_key(&key, attestation.as_bytes()).claim(), "of the type \"some other signature\""),
        ("no JSON", by_key(&key, b"{").claim(), "not that of a container signature"),
        ("no base64", good.clone().annotated(SIGNATURE, "%%").claim(), "it is no base64"),
        ("empty", good.clone().annotated(SIGNATURE, "").claim(), "it is not made with a key of the policy"),
        ("no annotation", Layer { annotations: BTreeMap::new(), ..good.clone() }.claim(), "has no annotation"),
    ] {
        let got = judged(&one, vec![claim]).unwrap_err();
        assert!(got.contains(want), "{name}: {got}");
    }
    // an invalid one beside a good one is ignored, in any order
    assert!(judged(&one, vec![by_key(&other, &right).claim(), good.claim()]).is_ok());
    assert!(judged(&one, vec![good.claim(), Err("unreadable".into())]).is_ok());
    let many = (0..5).map(|_| by_key(&other, &right).claim()).collect();
    let got = judged(&one, many).unwrap_err();
    assert!(got.contains("signature 3: ") && got.ends_with("; and 2 more"), "{got}");
    assert_eq!(judged(&one, Vec::new()).unwrap_err(), "");
}

#[test]
#[rustfmt::skip]
fn judge_compares_the_log_entry_with_the_signature() {
    let (key, rekor, forger) = (Key::new(), Rekor::new(), Rekor::new());
    let right = payload("r.test/cat/one", &digest());
    let good = by_key(&key, &right);
    let signature = STANDARD.decode(&good.annotations[SIGNATURE]).unwrap();
    let entry = hashedrekord(&right, &signature, &key.public());
    let required = policy(json!({"keyData": encoded(&key.public()), "rekorPublicKeyData": encoded(&rekor.0.public())}));
    let logged = |annotation: String| good.clone().annotated(ENTRY, annotation).claim();
    assert!(judged(&required, vec![logged(rekor.annotation(&entry, BEGIN))]).is_ok());

    let altered = |change: &dyn Fn(&mut Value)| {
        let mut entry = entry.clone();
        change(&mut entry);
        logged(rekor.annotation(&entry, BEGIN))
    };
    let moved = rekor.annotation(&entry, BEGIN).replace(&BEGIN.to_string(), &(BEGIN + 1).to_string());
    let again = key.sign(&right);
    for (name, claim, want) in [
        ("none", good.claim(), "without a signed entry timestamp"),
        ("another log's", logged(forger.annotation(&entry, BEGIN)), "not of the Rekor key of the policy"),
        ("another time than promised", logged(moved), "not of the Rekor key of the policy"),
        ("no time", logged(rekor.annotation(&entry, -1)), "numbers out of range"),
        ("no JSON", logged("{".into()), "its transparency log entry cannot be read"),
        ("another payload", altered(&|entry| entry["spec"]["data"]["hash"]["value"] = json!("00")), "of another payload"),
        ("another hash", altered(&|entry| entry["spec"]["data"]["hash"]["algorithm"] = json!("sha1")), "of another payload"),
        ("another signature", altered(&|entry| entry["spec"]["signature"]["content"] = json!(STANDARD.encode(&again))),
            "of another signature"),
        ("another signer", altered(&|entry| { entry["spec"]["signature"]["publicKey"]["content"] = json!(encoded(&Key::new().public())); }),
            "of another signer"),
        ("another kind", altered(&|entry| entry["kind"] = json!("rpm")), "of the kind \"rpm\" \"0.0.1\""),
        ("another version", altered(&|entry| entry["apiVersion"] = json!("0.0.2")), "which is not supported"),
        ("half an entry", altered(&|entry| entry["spec"] = json!({})), "cannot be read"),
    ] {
        let got = judged(&required, vec![claim]).unwrap_err();
        assert!(got.contains(want), "{name}: {got}");
    }
}

struct Keyless {
    fulcio: Fulcio,
    rekor: Rekor,
    payload: Vec<u8>,
}

impl Keyless {
    fn new() -> Self {
        let payload = payload("r.test/cat/one", &digest());
        Self { fulcio: Fulcio::new(), rekor: Rekor::new(), payload }
    }

    fn signed(&self, who: &Certified, at: i64) -> Layer {
        let signature = who.key.sign(&self.payload);
        let entry = hashedrekord(&self.payload, &signature, &who.pem);
        Layer::new(&self.payload, &signature)
            .annotated(CERTIFICATE, &who.pem)
            .annotated(CHAIN, format!("{}{}", self.fulcio.intermediate, self.fulcio.root))
            .annotated(ENTRY, self.rekor.annotation(&entry, at))
    }

    fn policy(&self) -> Policy {
        self.policy_with(json!({ "subjectEmail": EMAIL, "oidcIssuer": ISSUER }))
    }

    fn policy_with(&self, mut fulcio: Value) -> Policy {
        if fulcio.get("caData").is_none() {
            fulcio["caData"] = json!(encoded(&self.fulcio.root));
        }
        policy(json!({ "fulcio": fulcio, "rekorPublicKeyData": encoded(&self.rekor.0.public()) }))
    }
}

#[test]
#[rustfmt::skip]
fn judge_keyless_needs_identity_and_logged_time() {
    let keyless = Keyless::new();
    let fulcio = &keyless.fulcio;
    let who = fulcio.certify(email(EMAIL), ISSUER);
    let required = keyless.policy();
    let good = keyless.signed(&who, BEGIN + 30);
    let accepted = judged(&required, vec![good.claim()]).unwrap();
    assert_eq!(accepted.signer, format!("{EMAIL:?} of {ISSUER}"));
    assert!(accepted.lasting);
    let workflow = "https://forge.test/olm/.forge/release.yaml@refs/tags/v1";
    let by_uri = keyless.policy_with(json!({ "subjectURI": workflow, "oidcIssuer": ISSUER }));
    let robot = fulcio.certify(uri(workflow), ISSUER);
    assert!(judged(&by_uri, vec![keyless.signed(&robot, BEGIN).claim()]).is_ok());
    let only_plain = fulcio.certify_with(email(EMAIL), |params| {
        params.custom_extensions = vec![rcgen::CustomExtension::from_oid_content(
            &[1, 3, 6, 1, 4, 1, 57264, 1, 1],
            ISSUER.as_bytes().to_vec(),
        )];
    });
    assert!(judged(&required, vec![keyless.signed(&only_plain, BEGIN).claim()]).is_ok());

    let end = BEGIN + i64::try_from(LIFE).unwrap();
    let foreign = Keyless { fulcio: Fulcio::new(), rekor: Rekor::new(), payload: keyless.payload.clone() };
    let theirs = foreign.fulcio.certify(email(EMAIL), ISSUER);
    let mut unlogged = good.clone();
    unlogged.annotations.remove(ENTRY);
    let mut bare = good.clone();
    bare.annotations.remove(CERTIFICATE);
    let mut rootless = good.clone();
    rootless.annotations.remove(CHAIN);
    let second = fulcio.certify(email(EMAIL), ISSUER);
    let swapped = good.clone().annotated(CERTIFICATE, &second.pem);
    let relogged = {
        let signature = STANDARD.decode(&good.annotations[SIGNATURE]).unwrap();
        let entry = hashedrekord(&keyless.payload, &signature, &second.pem);
        swapped.clone().annotated(ENTRY, keyless.rekor.annotation(&entry, BEGIN))
    };
    let server = fulcio.certify_with(email(EMAIL), |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let unnamed = fulcio.certify_with(email(EMAIL), |_| {});
    let two_faced = fulcio.certify_with(email(EMAIL), |params| {
        let extension = |last: u64, content: &[u8]| {
            rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, last], content.to_vec())
        };
        params.custom_extensions = vec![extension(1, b"https://evil.test"), extension(8, b"\x0c\x01x")];
    });
    let twice = format!("{}{}", who.pem, second.pem);
    for (name, claim, want) in [
        ("too late", keyless.signed(&who, end + 1).claim(), "but had ended at"),
        ("too early", keyless.signed(&who, BEGIN - 1).claim(), "but began only at"),
        ("before the root", keyless.signed(&who, 1_000_000).claim(), "its certificate is not trusted"),
        ("not logged", unlogged.claim(), "without a signed entry timestamp"),
        ("another log", good.clone().annotated(ENTRY, foreign.signed(&who, BEGIN).annotations[ENTRY].clone()).claim(),
            "not of the Rekor key"),
        ("no certificate", bare.claim(), "it comes without a certificate"),
        ("no chain", rootless.claim(), "it does not lead to a root of the policy"),
        ("another authority", keyless.signed(&theirs, BEGIN).claim(), "it does not lead to a root of the policy"),
        ("its own root",
            keyless.signed(&theirs, BEGIN).annotated(CHAIN, format!("{}{}", foreign.fulcio.intermediate, foreign.fulcio.root)).claim(),
            "it does not lead to a root of the policy"),
        ("another certificate", swapped.claim(), "of another signer"),
        ("another certificate, logged", relogged.claim(), "not made with the key of its certificate"),
        ("another person", keyless.signed(&fulcio.certify(email("evil@olm.test"), ISSUER), BEGIN).claim(),
            "it is signed by \"evil@olm.test\", not by the email \"release@olm.test\""),
        ("the person as URI", keyless.signed(&fulcio.certify(uri(EMAIL), ISSUER), BEGIN).claim(), "not by the email"),
        ("another provider", keyless.signed(&fulcio.certify(email(EMAIL), "https://evil.test"), BEGIN).claim(),
            "is \"https://evil.test\", not \"https://issuer.test\""),
        ("no provider", keyless.signed(&unnamed, BEGIN).claim(), "names no identity provider"),
        ("two providers", keyless.signed(&two_faced, BEGIN).claim(), "names two identity providers"),
        ("a server's certificate", keyless.signed(&server, BEGIN).claim(), "is not for code signing"),
        ("two certificates", good.clone().annotated(CERTIFICATE, twice).claim(), "holds 2 certificates, not one"),
        ("rubbish", good.clone().annotated(CERTIFICATE, "rubbish").claim(), "holds no PEM block"),
        ("endless chain", good.clone().annotated(CHAIN, fulcio.intermediate.repeat(9)).claim(), "more than 8 certificates"),
    ] {
        let got = judged(&required, vec![claim]).unwrap_err();
        assert!(got.contains(want), "{name}: {got}");
    }
    // signed keyless is not signed by key, and the other way round
    let by_key_required = policy(json!({ "keyData": encoded(&Key::new().public()) }));
    assert!(judged(&by_key_required, vec![good.claim()]).is_err());
    assert!(judged(&required, vec![by_key(&Key::new(), &keyless.payload).claim()]).is_err());
    // a root that had ended when it was used
    let old = Keyless { fulcio: Fulcio::valid_from(2010), ..Keyless::new() };
    let got =
        judged(&old.policy(), vec![old.signed(&old.fulcio.certify(email(EMAIL), ISSUER), BEGIN).claim()]);
    assert!(got.is_err(), "{got:?}");
}

#[test]
fn judge_private_pki_is_checked_now_or_at_logged_time() {
    let keyless = Keyless::new();
    let short = keyless.fulcio.certify(email(EMAIL), ISSUER);
    let long = keyless.fulcio.certify_with(email(EMAIL), |params| {
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    });
    let pki = json!({
        "caRootsData": encoded(&keyless.fulcio.root), "caIntermediatesData": encoded(&keyless.fulcio.intermediate), "subjectEmail": EMAIL,
    });
    let now = policy(json!({ "pki": pki }));
    let logged = policy(json!({ "pki": pki, "rekorPublicKeyData": encoded(&keyless.rekor.0.public()) }));
    let mut layer = keyless.signed(&long, BEGIN);
    layer.annotations.remove(CHAIN);
    let accepted = judged(&now, vec![layer.claim()]).unwrap();
    assert!(!accepted.lasting, "the certificate will end");
    let got = judged(&now, vec![keyless.signed(&short, BEGIN).claim()]).unwrap_err();
    assert!(got.contains("but had ended at"), "{got}");
    assert!(judged(&logged, vec![keyless.signed(&short, BEGIN).claim()]).unwrap().lasting);
    let other = policy(
        json!({"pki": {"caRootsData": encoded(&keyless.fulcio.root), "subjectHostname": "build.test"}}),
    );
    let got = judged(&other, vec![keyless.signed(&long, BEGIN).claim()]).unwrap_err();
    assert!(got.contains("not by the host name \"build.test\""), "{got}");
}

#[test]
fn judge_bundles_may_name_no_repository() {
    let keyless = Keyless::new();
    let who = keyless.fulcio.certify(email(EMAIL), ISSUER);
    let made = |name: &str, digest: &str| {
        let statement = statement(name, digest);
        let signature = who.key.sign(&envelope(&statement));
        let log = keyless.rekor.bundled(&dsse_entry(&statement, &signature, &who.pem), BEGIN + 1);
        let mut bundle = crate::testing::bundle(&statement, &signature, Some(&who.der), Some(log));
        // Fulcio's chain is the policy's business in bundles of this version
        bundle["verificationMaterial"]["x509CertificateChain"] = json!({ "certificates": [
            bundle["verificationMaterial"]["certificate"],
            { "rawBytes": STANDARD.encode(&keyless.fulcio.intermediate_der) },
        ]});
        bundle["verificationMaterial"]["certificate"].take();
        bundle
    };
    let read = |bundle: &Value| Claim::from_bundle(bundle.to_string().as_bytes());
    let fulcio =
        json!({"caData": encoded(&keyless.fulcio.root), "subjectEmail": EMAIL, "oidcIssuer": ISSUER});
    let with = |identity: &str| {
        policy(
            json!({"fulcio": fulcio, "rekorPublicKeyData": encoded(&keyless.rekor.0.public()), "signedIdentity": {"type": identity}}),
        )
    };
    let nameless = made("", &digest());
    assert!(judged(&with("matchDigest"), vec![read(&nameless)]).is_ok());
    let got = judged(&with("matchRepository"), vec![read(&nameless)]).unwrap_err();
    assert!(got.contains("it names no repository"), "{got}");
    assert!(judged(&with("matchRepository"), vec![read(&made("r.test/cat/one", &digest()))]).is_ok());
    assert!(judged(&with("matchRepository"), vec![read(&made("r.test/cat/two", &digest()))]).is_err());
    // trusting the intermediate needs no chain
    let both = format!("{}{}", keyless.fulcio.root, keyless.fulcio.intermediate);
    let trusting = policy(json!({
        "fulcio": {"caData": encoded(&both), "subjectEmail": EMAIL, "oidcIssuer": ISSUER},
        "rekorPublicKeyData": encoded(&keyless.rekor.0.public()), "signedIdentity": {"type": "matchDigest"},
    }));
    let mut alone = nameless.clone();
    alone["verificationMaterial"]["x509CertificateChain"]["certificates"].as_array_mut().unwrap().truncate(1);
    assert!(judged(&trusting, vec![read(&alone)]).is_ok());
    assert!(judged(&with("matchDigest"), vec![read(&alone)]).is_err());

    let required = with("matchDigest");
    type Change = fn(&mut Value);
    #[rustfmt::skip]
    let changes: [(&str, Change, &str); 12] = [
        ("another version", |b| b["mediaType"] = json!("application/vnd.dev.sigstore.bundle+json;version=0.1"), "only 0.3 is supported"),
        ("no envelope", |b| b["dsseEnvelope"] = Value::Null, "without DSSE envelope"),
        ("another payload type", |b| b["dsseEnvelope"]["payloadType"] = json!("text/plain"), "no in-toto statement"),
        (
            "two signatures",
            |b| {
                let one = b["dsseEnvelope"]["signatures"][0].clone();
                b["dsseEnvelope"]["signatures"].as_array_mut().unwrap().push(one);
            },
            "2 signatures, not one",
        ),
        ("no signature", |b| b["dsseEnvelope"]["signatures"] = json!([]), "0 signatures, not one"),
        (
            "two entries",
            |b| {
                let one = b["verificationMaterial"]["tlogEntries"][0].clone();
                b["verificationMaterial"]["tlogEntries"].as_array_mut().unwrap().push(one);
            },
            "several transparency log entries",
        ),
        ("no entry", |b| b["verificationMaterial"]["tlogEntries"] = json!([]), "without a signed entry timestamp"),
        ("no promise", |b| b["verificationMaterial"]["tlogEntries"][0]["inclusionPromise"] = Value::Null,
            "without a signed entry timestamp"),
        ("another time", |b| b["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = json!("1772323999"), "not of the Rekor key"),
        ("time in words", |b| b["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = json!("noon"), "no sigstore bundle"),
        ("changed payload", |b| b["dsseEnvelope"]["payload"] = json!(STANDARD.encode("{}")), "of another payload"),
        ("no material", |b| b["verificationMaterial"] = json!({}), "without a certificate"),
    ];
    for (name, change, want) in changes {
        let mut bundle = nameless.clone();
        change(&mut bundle);
        let got = judged(&required, vec![read(&bundle)]).unwrap_err();
        assert!(got.contains(want), "{name}: {got}");
    }
    let got = judged(&required, vec![read(&made("", &digest().replace("a1a1", "a1a2")))]).unwrap_err();
    assert!(got.contains("it is for another digest"), "{got}");

    // by key, without any log
    let key = Key::new();
    let by_key =
        policy(json!({"keyData": encoded(&key.public()), "signedIdentity": {"type": "matchDigest"}}));
    let signed = statement("", &digest());
    let bundle = crate::testing::bundle(&signed, &key.sign(&envelope(&signed)), None, None);
    assert!(judged(&by_key, vec![read(&bundle)]).is_ok());
    // a signature over the bare payload is not one over the envelope
    let bundle = crate::testing::bundle(&signed, &key.sign(&signed), None, None);
    assert!(judged(&by_key, vec![read(&bundle)]).is_err());
}
