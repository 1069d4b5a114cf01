//! Image references as `opm` wants them: short names are fine, so are tag and digest together.

use olm_core::{ImageRef, ImageRefError};

/// Longest repository name, registry included.
const MAX_REPOSITORY: usize = 255;

/// Why a text is no image reference, if it is none.
pub(super) fn problem(text: &str) -> Option<String> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Some(format!("invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"));
    }
    let first = text.split('/').next().unwrap_or_default();
    let upper = first.bytes().any(|b| b.is_ascii_uppercase());
    if text.contains('/') && upper && !first.contains(['.', ':']) {
        let lower = text.to_ascii_lowercase();
        return Some(match problem(&lower) {
            Some(_) => "invalid reference format".to_owned(),
            None => ImageRefError::Uppercase.to_string(),
        });
    }
    match text.parse::<ImageRef>() {
        Ok(_) | Err(ImageRefError::NotCanonical | ImageRefError::TagAndDigest) => {
            let name = text.split('@').next().unwrap_or_default();
            let path = name.rfind('/').map_or(0, |slash| slash + 1);
            let name = name[path..].find(':').map_or(name, |colon| &name[..path + colon]);
            let added = match name.split_once('/') {
                None => "docker.io/library/".len(),
                Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
                    if host == "docker.io" && !rest.contains('/') { "library/".len() } else { 0 }
                }
                Some(_) => "docker.io/".len(),
            };
            (name.len() + added > MAX_REPOSITORY).then(|| ImageRefError::TooLong.to_string())
        }
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_answers_are_those_of_opm() {
        let digest = |algorithm: &str, length: usize| format!("foo@{algorithm}:{}", "a".repeat(length));
        let format = Some("invalid reference format");
        let lower = Some("invalid reference format: repository name must be lowercase");
        let long = Some("repository name must not be more than 255 characters");
        let cases: &[(&str, Option<&str>)] = &[
            ("foo", None),
            ("Foo", lower),
            ("quay.io/Foo/bar", lower),
            ("FOO/bar", lower),
            ("Localhost/foo", lower),
            ("FOO.com/bar", None),
            ("FOO:5000/bar", None),
            ("foo.com:5000", None),
            ("quay.io/foo:", format),
            (" quay.io/foo", format),
            ("quay.io/foo/", format),
            ("http://quay.io/foo", format),
            ("foo___bar", format),
            ("foo__bar", None),
            ("foo:v1@", format),
            (":v1", format),
            (&digest("sha256", 64), None),
            (&format!("quay.io/foo:v1@sha256:{}", "a".repeat(64)), None),
            (&digest("sha256", 63), Some("invalid checksum digest length")),
            (&digest("sha256", 3), format),
            (&digest("sha512", 128), None),
            (&digest("md5", 32), Some("unsupported digest algorithm")),
            (&"b".repeat(237), None),
            (&"b".repeat(239), long),
            (&format!("docker.io/{}", "b".repeat(246)), long),
            (&format!("quay.io/{}", "b".repeat(247)), None),
        ];
        for (text, want) in cases {
            assert_eq!(problem(text).as_deref(), *want, "{text}");
        }
        assert!(problem(&"a".repeat(64)).unwrap().contains("64-byte hexadecimal"));
    }
}
