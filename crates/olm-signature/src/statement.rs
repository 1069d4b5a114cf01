//! The signed content: a simple-signing payload, or an in-toto statement in a DSSE envelope.
//!
//! Read only after the signature over the bytes was verified. Both are read strictly: a field too much in the critical
//! part might mean a restriction that is not understood here.

use std::collections::BTreeMap;

use olm_core::Digest;
use serde::Deserialize;
use serde::de::IgnoredAny;

const COSIGN_TYPE: &str = "cosign container image signature";
const STATEMENTS: [&str; 2] = ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];
const COSIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
/// The payload type of in-toto statements in envelopes.
pub(crate) const IN_TOTO: &str = "application/vnd.in-toto+json";

/// How a payload is signed and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Simple signing; the signature is over the payload itself.
    Simple,
    /// In-toto; the signature is over the pre-authentication encoding of DSSE.
    Dsse,
}

impl Format {
    /// The bytes that were signed.
    pub(crate) fn signed(self, payload: &[u8]) -> Vec<u8> {
        match self {
            Self::Simple => payload.to_owned(),
            Self::Dsse => {
                let mut bytes = format!("DSSEv1 {} {IN_TOTO} {} ", IN_TOTO.len(), payload.len()).into_bytes();
                bytes.extend_from_slice(payload);
                bytes
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simple {
    critical: Critical,
    #[expect(dead_code, reason = "anything the signer likes; only its place is known")]
    optional: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: Image,
    identity: SimpleIdentity,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SimpleIdentity {
    docker_reference: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    name: String,
    #[serde(default)]
    digest: BTreeMap<String, String>,
}

/// Reads a payload; the repository that it names for `digest`, if it names one.
///
/// # Errors
/// When it does not state that the image of this digest is signed.
pub(crate) fn read(format: Format, payload: &[u8], digest: &Digest) -> Result<Option<String>, String> {
    match format {
        Format::Simple => {
            let simple: Simple = serde_json::from_slice(payload)
                .map_err(|error| format!("its payload is not that of a container signature: {error}"))?;
            let Critical { kind, image, identity } = simple.critical;
            if kind != COSIGN_TYPE {
                return Err(format!("its payload is of the type {kind:?}, not {COSIGN_TYPE:?}"));
            }
            if image.docker_manifest_digest != digest.as_str() {
                return Err(format!(
                    "it is for the digest {}, not for {digest}",
                    image.docker_manifest_digest
                ));
            }
            Ok(Some(identity.docker_reference))
        }
        Format::Dsse => {
            let statement: Statement = serde_json::from_slice(payload)
                .map_err(|error| format!("its payload is no in-toto statement: {error}"))?;
            if !STATEMENTS.contains(&statement.kind.as_str()) {
                return Err(format!("its payload is of the type {:?}, no in-toto statement", statement.kind));
            }
            if statement.predicate_type != COSIGN_PREDICATE {
                return Err(format!(
                    "it is an attestation of the type {:?}, not a signature ({COSIGN_PREDICATE})",
                    statement.predicate_type
                ));
            }
            let algorithm = digest.algorithm().as_str();
            let subject = statement
                .subject
                .into_iter()
                .find(|subject| subject.digest.get(algorithm).is_some_and(|hex| hex == digest.hex()));
            match subject {
                Some(subject) => Ok(Some(subject.name).filter(|name| !name.is_empty())),
                None => Err(format!("it is for another digest than {digest}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> Digest {
        format!("sha256:{}", "a1".repeat(32)).parse().unwrap()
    }

    #[test]
    fn statement_simple_signing_is_read_strictly() {
        let good = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"r.test/a"}},"image":{{"docker-manifest-digest":"{}"}},"type":"cosign container image signature"}},"optional":null}}"#,
            digest()
        );
        assert_eq!(read(Format::Simple, good.as_bytes(), &digest()), Ok(Some("r.test/a".to_owned())));
        for (from, to, want) in [
            ("cosign container image signature", "atomic container signature", "of the type \"atomic"),
            ("a1a1", "a1a2", "it is for the digest sha256:a1a2"),
            (r#""optional":null"#, r#""optional":{"creator":"me"}"#, ""),
            (r#""optional":null"#, r#""options":null"#, "unknown field `options`"),
            (r#","type""#, r#","not-after":1,"type""#, "unknown field `not-after`"),
            (r#""critical":{"#, r#""critical":{},"critical":{"#, "missing field"),
            (r#""image":{"#, r#""image":{"docker-manifest-digest":"x","#, "duplicate field"),
            ("null}", "null} ]", "trailing"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            match read(Format::Simple, text.as_bytes(), &digest()) {
                Ok(_) => assert_eq!(want, "", "{text}"),
                Err(got) => assert!(!want.is_empty() && got.contains(want), "{text}: {got}"),
            }
        }
    }

    #[test]
    fn statement_must_be_a_signature_of_the_digest() {
        let good = format!(
            r#"{{"_type":"https://in-toto.io/Statement/v1","subject":[{{"name":"x","digest":{{"sha256":"00"}}}},{{"name":"","digest":{{"sha256":"{}"}}}}],"predicateType":"https://sigstore.dev/cosign/sign/v1","predicate":{{}}}}"#,
            digest().hex()
        );
        assert_eq!(read(Format::Dsse, good.as_bytes(), &digest()), Ok(None));
        let named = good.replacen(r#""name":"""#, r#""name":"r.test/a""#, 1);
        assert_eq!(read(Format::Dsse, named.as_bytes(), &digest()), Ok(Some("r.test/a".to_owned())));
        for (from, to, want) in [
            ("https://sigstore.dev/cosign/sign/v1", "https://slsa.dev/provenance/v1", "it is an attestation"),
            ("Statement/v1", "Statement/v7", "no in-toto statement"),
            ("a1a1", "a1a2", "it is for another digest"),
            (r#""sha256":"a1"#, r#""sha512":"a1"#, "it is for another digest"),
            ("[{", "{", "no in-toto statement"),
        ] {
            let text = good.replacen(from, to, 1);
            let got = read(Format::Dsse, text.as_bytes(), &digest()).unwrap_err();
            assert!(got.contains(want), "{text}: {got}");
        }
    }

    #[test]
    fn statement_envelope_is_signed_with_type_and_length() {
        assert_eq!(Format::Dsse.signed(b"{}"), b"DSSEv1 28 application/vnd.in-toto+json 2 {}");
        assert_eq!(Format::Simple.signed(b"{}"), b"{}");
    }
}
