//! For which image does a signature speak? `signedIdentity` of containers-policy.json(5).
//!
//! The image is known by the reference that the user wrote (tag or digest), the signature names one of its own. Names
//! compare in their fully expanded form. `matchDigest` is an addition of ours, for signatures that name no repository at
//! all, as cosign 3 makes them by default: the digest, which every signature names, is all that is compared.

use olm_core::{ImageRef, canonical_registry};
use serde::Deserialize;

/// As the policy file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub(crate) enum Raw {
    #[serde(rename = "matchExact")]
    Exact {},
    #[serde(rename = "matchRepoDigestOrExact")]
    RepoDigestOrExact {},
    #[serde(rename = "matchRepository")]
    Repository {},
    #[serde(rename = "exactReference", rename_all = "camelCase")]
    ExactReference { docker_reference: String },
    #[serde(rename = "exactRepository", rename_all = "camelCase")]
    ExactRepository { docker_repository: String },
    #[serde(rename = "remapIdentity", rename_all = "camelCase")]
    Remap { prefix: String, signed_prefix: String },
    #[serde(rename = "matchDigest")]
    Digest {},
}

/// Which names in signatures are right for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The same tag or digest.
    Exact,
    /// The same tag, or any tag or digest in the same repository if the image is asked for by digest.
    RepoDigestOrExact,
    /// The same repository.
    Repository,
    /// This reference, whatever the image is.
    ExactReference(Name),
    /// This repository, whatever the image is.
    ExactRepository(Name),
    /// As `RepoDigestOrExact`, after the beginning of the name was replaced.
    Remap { prefix: String, signed_prefix: String },
    /// The digest alone.
    Digest,
}

/// A docker reference in its fully expanded form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// Registry and repository.
    repository: String,
    /// With tag and digest, if there are any.
    full: String,
}

impl Name {
    /// Expands `busybox` to `docker.io/library/busybox`, as docker does.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (head, digest) = match text.split_once('@') {
            Some((head, digest)) => (head, Some(digest)),
            None => (text, None),
        };
        let (domain, rest) = match head.split_once('/') {
            Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => (first, rest),
            _ => ("docker.io", head),
        };
        let domain = canonical_registry(domain);
        let library = if domain == "docker.io" && !rest.contains('/') { "library/" } else { "" };
        let head = format!("{domain}/{library}{rest}");
        let parsed: ImageRef = head.parse().ok()?;
        let repository = parsed.name();
        let full = match digest {
            None => parsed.to_string(),
            Some(digest) => {
                format!("{repository}@{digest}").parse::<ImageRef>().ok()?;
                format!("{parsed}@{digest}")
            }
        };
        Some(Self { repository, full })
    }

    fn from_image(image: &ImageRef) -> Self {
        Self { repository: image.name(), full: image.to_string() }
    }

    fn names_content(&self) -> bool {
        self.full != self.repository
    }
}

impl TryFrom<Raw> for Identity {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        let name = |field: &str, text: &str| {
            Name::parse(text).ok_or_else(|| format!("{field} {text:?} is no image reference"))
        };
        // a prefix is a host or a name, so the name of anything below it is a name
        let prefix = |field: &str, text: &str| match format!("{text}/x/x").parse::<ImageRef>() {
            Ok(below) => {
                let name = below.name();
                Ok(name.strip_suffix("/x/x").unwrap_or(&name).to_owned())
            }
            Err(_) => Err(format!("{field} {text:?} is no host, namespace or repository")),
        };
        Ok(match raw {
            Raw::Exact {} => Self::Exact,
            Raw::RepoDigestOrExact {} => Self::RepoDigestOrExact,
            Raw::Repository {} => Self::Repository,
            Raw::Digest {} => Self::Digest,
            Raw::ExactReference { docker_reference } => {
                let name = name("dockerReference", &docker_reference)?;
                if !name.names_content() {
                    return Err(format!(
                        "dockerReference {docker_reference:?} has neither a tag nor a digest"
                    ));
                }
                Self::ExactReference(name)
            }
            Raw::ExactRepository { docker_repository } => {
                let name = name("dockerRepository", &docker_repository)?;
                if name.names_content() {
                    return Err(format!(
                        "dockerRepository {docker_repository:?} must have no tag and no digest"
                    ));
                }
                Self::ExactRepository(name)
            }
            Raw::Remap { prefix: from, signed_prefix } => Self::Remap {
                prefix: prefix("prefix", &from)?,
                signed_prefix: prefix("signedPrefix", &signed_prefix)?,
            },
        })
    }
}

impl Identity {
    /// May a signature that names `signed` (nothing, if it names no repository) stand for the image `asked`?
    pub(crate) fn accepts(&self, asked: &ImageRef, signed: Option<&str>) -> Result<(), String> {
        if *self == Self::Digest {
            return Ok(());
        }
        let Some(text) = signed.filter(|text| !text.is_empty()) else {
            return Err("it names no repository, as cosign 3 signs by default; set \"signedIdentity\": \
                        {\"type\": \"matchDigest\"} or sign with --new-bundle-format=false"
                .to_owned());
        };
        let signed = Name::parse(text).ok_or_else(|| format!("it names {text:?}, which is no reference"))?;
        let image = Name::from_image(asked);
        let matches = match self {
            Self::Digest => true,
            Self::Exact => signed.full == image.full,
            Self::RepoDigestOrExact => same(asked, &image, &signed),
            Self::Repository => signed.repository == image.repository,
            Self::ExactReference(reference) => signed.full == reference.full,
            Self::ExactRepository(reference) => signed.repository == reference.repository,
            Self::Remap { prefix, signed_prefix } => {
                let moved = |name: &str| match name.strip_prefix(prefix.as_str()) {
                    Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                        format!("{signed_prefix}{rest}")
                    }
                    _ => name.to_owned(),
                };
                let rest = image.full.strip_prefix(&image.repository).unwrap_or_default();
                let repository = moved(&image.repository);
                let image = Name { full: format!("{repository}{rest}"), repository };
                same(asked, &image, &signed)
            }
        };
        if matches { Ok(()) } else { Err(format!("it is for {text}, not for {asked}")) }
    }
}

/// The same tag; or, for an image asked for by digest, any tag or digest of the same repository. A signature that names a
/// repository and nothing in it is not enough, as in containers/image.
fn same(asked: &ImageRef, image: &Name, signed: &Name) -> bool {
    if asked.digest().is_some() {
        signed.repository == image.repository && signed.names_content()
    } else {
        signed.full == image.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(json: &str) -> Result<Identity, String> {
        serde_json::from_str::<Raw>(json).map_err(|error| error.to_string())?.try_into()
    }

    #[test]
    fn identity_kinds_compare_their_names() {
        let digest = format!("sha256:{}", "a1".repeat(32));
        let by_digest = format!("r.test/a/b@{digest}");
        let other = format!("r.test/a/b@sha256:{}", "b2".repeat(32));
        let remap = r#"{"type":"remapIdentity","prefix":"r.test/a","signedPrefix":"up.test/x/y"}"#;
        let exact = r#"{"type":"exactReference","dockerReference":"up.test/a/b:1"}"#;
        let hub = r#"{"type":"exactRepository","dockerRepository":"busybox"}"#;
        let plain = |kind: &str| format!(r#"{{"type":"{kind}"}}"#);
        for (kind, asked, signed, want) in [
            (plain("matchExact"), "r.test/a/b:1", "r.test/a/b:1", true),
            (plain("matchExact"), "r.test/a/b:1", "r.test/a/b:2", false),
            (plain("matchExact"), "r.test/a/b:1", "r.test/a/b", false),
            (plain("matchExact"), &by_digest, &by_digest, true),
            (plain("matchExact"), &by_digest, "r.test/a/b:1", false),
            (plain("matchRepoDigestOrExact"), "r.test/a/b:1", "r.test/a/b:1", true),
            (plain("matchRepoDigestOrExact"), "r.test/a/b:1", "r.test/a/b", false),
            (plain("matchRepoDigestOrExact"), "r.test/a/b:1", "r.test/a/b:2", false),
            (plain("matchRepoDigestOrExact"), &by_digest, "r.test/a/b:2", true),
            (plain("matchRepoDigestOrExact"), &by_digest, "r.test/a/b", false),
            (plain("matchRepoDigestOrExact"), &by_digest, &other, true),
            (plain("matchRepoDigestOrExact"), &by_digest, "r.test/a/c", false),
            (plain("matchRepository"), "r.test/a/b:1", "r.test/a/b", true),
            (plain("matchRepository"), "r.test/a/b:1", "r.test/a/b:9", true),
            (plain("matchRepository"), "r.test/a/b:1", "r.test/a", false),
            (plain("matchRepository"), "r.test/a/b:1", "r.test/a/bb", false),
            (plain("matchRepository"), "r.test/a/b:1", "r.test:5/a/b", false),
            (exact.to_owned(), "r.test/a/b:7", "up.test/a/b:1", true),
            (exact.to_owned(), "r.test/a/b:1", "r.test/a/b:1", false),
            (exact.to_owned(), "r.test/a/b:1", "up.test/a/b", false),
            (hub.to_owned(), "r.test/a/b:1", "busybox:3", true),
            (hub.to_owned(), "r.test/a/b:1", "index.docker.io/library/busybox", true),
            (hub.to_owned(), "r.test/a/b:1", "docker.io/x/busybox", false),
            (remap.to_owned(), "r.test/a/b:1", "up.test/x/y/b:1", true),
            (remap.to_owned(), "r.test/a/b:1", "up.test/x/y/b", false),
            (remap.to_owned(), &by_digest, "up.test/x/y/b:3", true),
            (remap.to_owned(), &by_digest, "up.test/x/y/b", false),
            (remap.to_owned(), "r.test/ab/b:1", "r.test/ab/b:1", true),
            (remap.replace("r.test", "R.Test:443"), "r.test/a/b:1", "UP.test:443/x/y/b:1", true),
            (plain("matchExact"), "R.test:443/a/b:1", "r.test/a/b:1", true),
            (plain("matchRepository"), "docker.io/a/b:1", "registry-1.docker.io/a/b", true),
            (remap.to_owned(), "r.test/a/b:1", "r.test/a/b:1", false),
            (plain("matchDigest"), "r.test/a/b:1", "somewhere/else", true),
            (plain("matchDigest"), "r.test/a/b:1", "", true),
            (plain("matchRepository"), "r.test/a/b:1", "", false),
            (plain("matchRepository"), "r.test/a/b:1", "Not A Name", false),
        ] {
            let got = identity(&kind).unwrap().accepts(&asked.parse().unwrap(), Some(signed));
            assert_eq!(got.is_ok(), want, "{kind}: {asked} signed as {signed:?}: {got:?}");
        }
        let nameless = Identity::Repository.accepts(&by_digest.parse().unwrap(), None).unwrap_err();
        assert!(nameless.contains("matchDigest"), "{nameless}");
    }

    #[test]
    fn identity_rejects_invalid_values() {
        for (json, want) in [
            (r#"{"type":"matchSome"}"#, "unknown variant"),
            (r#"{"type":"matchExact","prefix":"x"}"#, "unknown field"),
            (r#"{"type":"exactReference"}"#, "missing field `dockerReference`"),
            (r#"{"type":"exactReference","dockerReference":"a.test/b"}"#, "neither a tag nor a digest"),
            (r#"{"type":"exactReference","dockerReference":"A B"}"#, "is no image reference"),
            (r#"{"type":"exactRepository","dockerRepository":"a.test/b:1"}"#, "no tag and no digest"),
            (r#"{"type":"remapIdentity","prefix":"","signedPrefix":"a.test"}"#, "prefix \"\" is no host"),
            (r#"{"type":"remapIdentity","prefix":"a.test","signedPrefix":"b.test/c:1"}"#, "signedPrefix"),
        ] {
            let got = identity(json).unwrap_err();
            assert!(got.contains(want), "{json}: {got}");
        }
    }
}
