//! Generated names and the hash inside them, byte for byte as the reference makes them: they are what survives when a
//! cluster managed by it is taken over. Rule: bundle-rendering §8.
//!
//! Only Service names differ, in the one case where the reference's name is too long for a Service
//! (bundle-rendering §16 row 6).

use olm_core::digits;
use sha2::{Digest as _, Sha224};

/// Longest name the builder aims at, in bytes.
const LIMIT: usize = 63;

/// `<base>-<suffix>`, the base cut so that both without the dash stay within 63 bytes.
///
/// When base and suffix together are exactly 63 bytes nothing is cut and the name has 64 bytes; RBAC, Certificate and
/// Secret names may be that long, and changing it would rename them.
pub(crate) fn name(base: &str, suffix: &str) -> String {
    let kept =
        if base.len() + suffix.len() > LIMIT { LIMIT.saturating_sub(suffix.len() + 1) } else { base.len() };
    format!("{}-{suffix}", cut(base, kept))
}

/// The name of the Service in front of a deployment that serves webhooks. Never longer than 63 bytes: a Service of 64
/// bytes is refused by every cluster, so nothing can exist under the uncut name.
pub(crate) fn service(deployment: &str) -> String {
    const SUFFIX: &str = "service";
    let base = deployment.replace('.', "-");
    let kept = base.len().min(LIMIT - SUFFIX.len() - 1);
    format!("{}-{SUFFIX}", cut(&base, kept))
}

/// The name of the Secret that holds a serving certificate, and of the cert-manager Certificate that fills it.
pub(crate) fn certificate(service: &str) -> String {
    name(service, "cert")
}

/// The name of the cert-manager Issuer behind a Certificate.
pub(crate) fn issuer(certificate: &str) -> String {
    name(certificate, "selfsigned-issuer")
}

/// Cuts at `length` bytes, or before it where that would split a character.
fn cut(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The SHA-224 of a Go-encoded JSON text plus its trailing newline, as one big-endian number in base 36.
pub(crate) fn object_hash(go_json: &str) -> String {
    let mut digest = Sha224::new();
    digest.update(go_json.as_bytes());
    digest.update(b"\n");
    digits(&digest.finalize(), 36)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_hashes_of_the_reference() {
        for (json, want) in [
            (r#""a""#, "1lu1qv1451mq7gv9upu1cx8ffffi07rel5xvbvvc44dh"),
            (r#""b""#, "1ija85ah4gd0beltpfhszipkxfyqqxhp94tf2mjfgq61"),
            ("null", "2im0kl1kwvzn46sr4cdtkvmdzrlurvj51xdzhwdht8l0"),
            ("{}", "16jfjhihxbzhfhs1k5mimq740kvioi98pfbea9q6qtf9"),
            (
                r#"{"Str":"foobar","Num":22,"Obj":{"Foo":"bar"},"Arr":[0,1],"B":true,"N":null}"#,
                "gta1bt5sybll5qjqxdiekmjm7py93glrinmnrfb31fj",
            ),
        ] {
            assert_eq!(object_hash(json), want, "{json}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn names_of_webhook_objects() {
        let a = |count: usize| "a".repeat(count);
        for (deployment, want_service, want_certificate, want_issuer) in [
            ("webhook-operator-controller-manager".to_owned(), "webhook-operator-controller-manager-service".to_owned(),
                "webhook-operator-controller-manager-service-cert".to_owned(),
                "webhook-operator-controller-manager-service-c-selfsigned-issuer".to_owned()),
            ("my.dotted.deployment".to_owned(), "my-dotted-deployment-service".to_owned(), "my-dotted-deployment-service-cert".to_owned(),
                "my-dotted-deployment-service-cert-selfsigned-issuer".to_owned()),
            (a(55), format!("{}-service", a(55)), format!("{}-se-cert", a(55)), format!("{}-selfsigned-issuer", a(45))),
            // 56: the reference's Service name has 64 bytes, which no cluster accepts
            (a(56), format!("{}-service", a(55)), format!("{}-se-cert", a(55)), format!("{}-selfsigned-issuer", a(45))),
            ("this-is-a-very-long-deployment-name-for-a-webhook-operator-x".to_owned(),
                "this-is-a-very-long-deployment-name-for-a-webhook-opera-service".to_owned(),
                "this-is-a-very-long-deployment-name-for-a-webhook-opera-se-cert".to_owned(),
                "this-is-a-very-long-deployment-name-for-a-web-selfsigned-issuer".to_owned()),
        ] {
            let service = service(&deployment);
            let certificate = certificate(&service);
            assert_eq!(
                (service.as_str(), service.len() <= 63),
                (want_service.as_str(), true),
                "{deployment}"
            );
            assert_eq!(certificate, want_certificate, "{deployment}");
            assert_eq!(issuer(&certificate), want_issuer, "{deployment}");
        }
    }

    #[test]
    fn name_of_63_bytes_is_not_cut() {
        assert_eq!(name(&"a".repeat(59), "cert").len(), 64);
        assert_eq!(name(&"a".repeat(60), "cert").len(), 63);
        assert_eq!(name("ééééé", &"s".repeat(60)), format!("é-{}", "s".repeat(60)), "no character is split");
        assert_eq!(name("a", &"s".repeat(80)), format!("-{}", "s".repeat(80)));
    }
}
