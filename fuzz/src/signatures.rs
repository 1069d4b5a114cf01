//! Signature policies, and signatures that a policy judges.

use std::collections::BTreeMap;

use olm_core::{Digest, ImageRef};
use olm_signature::fuzz::{Signature, Trust};

use crate::{parts, texts};

/// A policy that knows the keys, roots and log that the seeds were made with.
const POLICY: &[u8] = include_bytes!("../trust/policy.json");
const KEY: &[u8] = include_bytes!("../trust/key.pub");
const LOG: &[u8] = include_bytes!("../trust/log.pub");
const ROOT: &[u8] = include_bytes!("../trust/root.pem");
/// All that was ever signed with these keys, as it was signed.
const SIGNED: [&[u8]; 2] = [include_bytes!("../trust/signed.simple"), include_bytes!("../trust/signed.dsse")];
/// The image that was signed.
const IMAGE: &str = "registry.test/demo/catalog:v1";
const DIGEST: &str = "sha256:a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";
/// A moment after the certificates ended.
const NOW: i64 = 1_780_000_000;

fn file(name: &str) -> Option<Vec<u8>> {
    let content = match name {
        "key.pub" => KEY,
        "log.pub" => LOG,
        "root.pem" => ROOT,
        _ => return None,
    };
    Some(content.to_vec())
}

fn annotations(input: &[u8]) -> Option<BTreeMap<String, String>> {
    let [_, annotations, ..] = texts::<4>(input);
    serde_json::from_str(&annotations).ok()
}

/// What is accepted of a signature: the bytes and the signer.
fn judged(trust: &Trust, signature: Signature<'_>) -> Vec<(Vec<u8>, String)> {
    let (Ok(image), Ok(digest)) = (IMAGE.parse(), DIGEST.parse()) else { return vec![] };
    trust.judge(signature, &image, &digest, NOW).unwrap_or_default()
}

/// How many requirements of the seeds' policy an input of [`signature`] fulfils.
pub fn accepted(input: &[u8]) -> usize {
    let [payload, ..] = parts::<4>(input);
    let Ok(trust) = Trust::parse(POLICY, file) else { return 0 };
    judged(&trust, (payload, annotations(input).as_ref())).len()
}

/// Payload or bundle, annotations (JSON) or nothing, policy or nothing, a key or certificate. With the policy of the seeds
/// nothing is accepted but what was signed, for nothing but the digest that it names; any other policy is read or rejected with a
/// message, and decides the same about an image twice.
pub(crate) fn signature(input: &[u8]) {
    let [payload, _, policy, pem] = parts::<4>(input);
    let annotations = annotations(input);
    let signature = (payload, annotations.as_ref());
    let (Ok(image), Ok(digest)) = (IMAGE.parse::<ImageRef>(), DIGEST.parse::<Digest>()) else { return };
    let Ok(trust) = Trust::parse(POLICY, file) else { return };
    for (signed, signer) in judged(&trust, signature) {
        assert!(
            SIGNED.contains(&signed.as_slice()),
            "accepted as signed by {signer}: {}",
            signed.escape_ascii()
        );
        let hex = digest.hex().as_bytes();
        assert!(signed.windows(hex.len()).any(|found| found == hex), "accepted for another digest");
    }
    if let Ok(other) = format!("sha256:{}", "b2".repeat(32)).parse() {
        let accepted = trust.judge(signature, &image, &other, NOW).unwrap_or_default();
        assert!(accepted.is_empty(), "accepted for a digest without a signature");
    }
    if policy.is_empty() {
        return;
    }
    let read = |name: &str| file(name).or_else(|| (name == "given").then(|| pem.to_vec()));
    match (Trust::parse(policy, read), Trust::parse(policy, read)) {
        (Ok(one), Ok(two)) => {
            assert_eq!(one.ruling(&image), two.ruling(&image));
            let _ = one.judge(signature, &image, &digest, NOW);
        }
        (Err(one), Err(two)) => {
            assert_eq!(one.to_string(), two.to_string());
            assert!(one.to_string().contains("policy.json"), "{one}");
        }
        _ => unreachable!("read once, refused once"),
    }
}
