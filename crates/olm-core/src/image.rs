//! Image references as OLM writes them: the canonical form of a docker reference, nothing short, nothing implied.
//!
//! Rule: catalogd §3.4. Short names (`library/x`, `docker.io/x`) are refused, not completed; whether a tag or digest
//! is needed is the caller's decision. Nothing is contacted here.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{go, version::split_optional};

/// Longest repository (registry and path) in bytes.
const MAX_REPOSITORY: usize = 255;
/// Longest tag in bytes.
const MAX_TAG: usize = 128;

crate::words! {
    /// The name before the colon.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum DigestAlgorithm {
        /// SHA-256, 64 hex digits.
        Sha256 = "sha256",
        /// SHA-384, 96 hex digits.
        Sha384 = "sha384",
        /// SHA-512, 128 hex digits.
        Sha512 = "sha512",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// The algorithm is none of sha256, sha384, sha512.
    #[error("unsupported digest algorithm")]
    Algorithm,
    /// Too many or too few hex digits for the algorithm.
    #[error("invalid checksum digest length")]
    Length,
    /// No colon, or something else than lower-case hex digits after it.
    #[error("invalid checksum digest format")]
    Format,
}

/// A content digest. Invariant: `sha256:`, `sha384:` or `sha512:` and 64, 96 or 128 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest as text, algorithm first.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn algorithm(&self) -> DigestAlgorithm {
        match self.0.as_bytes().get(3) {
            Some(b'3') => DigestAlgorithm::Sha384,
            Some(b'5') => DigestAlgorithm::Sha512,
            _ => DigestAlgorithm::Sha256,
        }
    }

    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, hex)| hex)
    }

    /// Makes a digest from a finished hash.
    ///
    /// # Errors
    /// When `hash` has not the length of the algorithm.
    pub fn from_hash(algorithm: DigestAlgorithm, hash: &[u8]) -> Result<Self, DigestError> {
        format!("{}:{}", algorithm.as_str(), crate::hex(hash)).parse()
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (algorithm, hex) = text.split_once(':').ok_or(DigestError::Format)?;
        let hex_length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => return Err(DigestError::Algorithm),
        };
        if hex.len() != hex_length {
            return Err(DigestError::Length);
        }
        if !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(DigestError::Format);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_form!(Digest, DigestError, |digest: Digest| digest.0);

/// Why a text is no canonical image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageRefError {
    #[error("Docker references with both a tag and digest are currently not supported")]
    TagAndDigest,
    /// The registry, or `library/`, is left out.
    #[error("repository name must be canonical")]
    NotCanonical,
    #[error("invalid reference format: repository name must be lowercase")]
    Uppercase,
    /// More than 255 bytes of repository.
    #[error("repository name must not be more than {MAX_REPOSITORY} characters")]
    TooLong,
    #[error("repository name must have at least one component")]
    Empty,
    /// Anything else that is no reference.
    #[error("invalid reference format")]
    Format,
    #[error(transparent)]
    Digest(#[from] DigestError),
}

impl ImageRefError {
    /// How the reference would have to look, if a guess is possible.
    pub fn hint(&self, text: &str) -> Option<String> {
        match self {
            Self::TagAndDigest => {
                let (head, digest) = text.split_once('@')?;
                let (repository, _) = head.rsplit_once(':')?;
                Some(format!("drop the tag: {}", go::quote(&format!("{repository}@{digest}"))))
            }
            Self::NotCanonical => Some(format!("write the registry: {}", go::quote(&canonical_guess(text)))),
            Self::Uppercase => Some("use lower case for the repository path".to_owned()),
            Self::Format if text.contains("://") => Some("leave out the scheme".to_owned()),
            Self::TooLong | Self::Empty | Self::Format | Self::Digest(_) => None,
        }
    }
}

fn canonical_guess(text: &str) -> String {
    let rest =
        text.strip_prefix("index.docker.io/").or_else(|| text.strip_prefix("docker.io/")).unwrap_or(text);
    if rest.contains('/') { format!("docker.io/{rest}") } else { format!("docker.io/library/{rest}") }
}

/// The registry of Docker Hub in references.
const DOCKER_HUB: &str = "docker.io";

/// The one spelling of a registry, so that policies, mirrors, credentials and certificates of a registry apply however a reference
/// writes it: lower case, without the port 443, `docker.io` for the other names of Docker Hub, addresses as they are usually written.
///
/// A host of one label has the port 443 added instead: without a port it would not be a registry in a reference.
#[must_use]
pub fn canonical_registry(text: &str) -> String {
    let host = canonical_host(text);
    match host.as_str() {
        "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => DOCKER_HUB.to_owned(),
        "" => host,
        _ if is_registry_like(&host) => host,
        _ => format!("{host}:443"),
    }
}

/// The host in lower case, without the port 443 and without zeros before a port.
fn canonical_host(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) && is_whole(host) => {
            let host = canonical_address(host);
            match port.trim_start_matches('0') {
                "443" => host,
                "" => format!("{host}:0"),
                port => format!("{host}:{port}"),
            }
        }
        _ => canonical_address(&text),
    }
}

/// Not the first half of an IPv6 address.
fn is_whole(host: &str) -> bool {
    !host.starts_with('[') || host.ends_with(']')
}

/// An address in its usual form: `10.0.0.5` for `10.5`, `0xa000005` and `[::ffff:a00:5]`, which all lead there.
fn canonical_address(host: &str) -> String {
    let Some(bracketed) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return ipv4(host).map_or_else(|| host.to_owned(), |address| address.to_string());
    };
    match bracketed.parse::<Ipv6Addr>() {
        Ok(address) => match address.to_ipv4_mapped() {
            Some(mapped) => mapped.to_string(),
            None => format!("[{address}]"),
        },
        Err(_) => host.to_owned(),
    }
}

/// The IPv4 address that URLs take a host for: up to four numbers, decimal, octal or hexadecimal, of which the last stands for all bytes
/// that are left.
fn ipv4(host: &str) -> Option<Ipv4Addr> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some("") => Some(0),
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    };
    let numbers: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, bytes) = numbers.split_last()?;
    let left = u32::try_from(4_usize.checked_sub(bytes.len())?).ok()?;
    let fits = u64::from(*last) < 256_u64.checked_pow(left)? && left > 0;
    if !fits || bytes.iter().any(|byte| *byte > 255) {
        return None;
    }
    let mut address = *last;
    for (at, byte) in (0_u32..).zip(bytes) {
        address |= byte << (24 - 8 * at);
    }
    Some(Ipv4Addr::from(address))
}

/// A canonical image reference: registry (host and optional port), repository path, and a tag or a digest or neither.
///
/// Invariant: the registry is [`canonical_registry`] of itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ImageRef {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageRef {
    /// Host and optional port, for example `quay.io` or `localhost:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Path inside the registry, for example `operatorhubio/catalog`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Registry and repository without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The same repository at a digest, without tag.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            tag: None,
            digest: Some(digest),
        }
    }

    /// The same tag and digest in another place (a mirror).
    ///
    /// # Errors
    /// When `name` is no canonical `registry/repository`.
    pub fn with_name(&self, name: &str) -> Result<Self, ImageRefError> {
        let other: Self = name.parse()?;
        if other.tag.is_some() || other.digest.is_some() {
            return Err(ImageRefError::Format);
        }
        Ok(Self { tag: self.tag.clone(), digest: self.digest.clone(), ..other })
    }
}

impl FromStr for ImageRef {
    type Err = ImageRefError;

    fn from_str(text: &str) -> Result<Self, ImageRefError> {
        if text.is_empty() {
            return Err(ImageRefError::Empty);
        }
        let (head, digest) = split_optional(text, '@');
        let (name, tag) = split_tag(head);
        // a name without registry stands for one of docker.io, which makes it a name, but no canonical one
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if is_registry_like(first) => (first, rest),
            _ => ("", name),
        };
        if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(ImageRefError::Uppercase);
        }
        let tag_ok = tag.is_none_or(is_tag);
        let digest_ok = digest.is_none_or(is_digest_shape);
        let registry_ok = registry.is_empty() || is_registry(registry);
        if !(tag_ok && digest_ok && registry_ok && repository.split('/').all(is_component)) {
            return Err(ImageRefError::Format);
        }
        let given = canonical_host(registry);
        let registry = canonical_registry(registry);
        // the canonical name too: what is printed can be read again
        let canonical = registry.len() + usize::from(!registry.is_empty()) + repository.len();
        if name.len().max(canonical) > MAX_REPOSITORY {
            return Err(ImageRefError::TooLong);
        }
        let digest = digest.map(str::parse::<Digest>).transpose()?;
        if matches!(given.as_str(), "" | "index.docker.io")
            || (registry == DOCKER_HUB && !repository.contains('/'))
        {
            return Err(ImageRefError::NotCanonical);
        }
        if tag.is_some() && digest.is_some() {
            return Err(ImageRefError::TagAndDigest);
        }
        Ok(Self { registry, repository: repository.to_owned(), tag: tag.map(str::to_owned), digest })
    }
}

/// Splits at the last colon behind the last slash; a colon before it belongs to the port.
fn split_tag(head: &str) -> (&str, Option<&str>) {
    let path = head.rfind('/').map_or(0, |slash| slash + 1);
    match head.get(path..).and_then(|last| last.find(':')) {
        Some(colon) => (&head[..path + colon], Some(&head[path + colon + 1..])),
        None => (head, None),
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = tag.as_bytes();
    tag.len() <= MAX_TAG
        && bytes.first().copied().is_some_and(word)
        && bytes.iter().all(|&byte| word(byte) || matches!(byte, b'.' | b'-'))
}

/// `algorithm:hex` by the pattern of a reference; the digest's own rules come after it.
fn is_digest_shape(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    algorithm.split(['-', '_', '+', '.']).all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }) && hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether the first part of a path stands for a registry at all.
fn is_registry_like(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(registry: &str) -> bool {
    if let Some(bracketed) = registry.strip_prefix('[') {
        let Some((address, rest)) = bracketed.split_once(']') else { return false };
        let ip6 = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
        return ip6 && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = split_optional(registry, ':');
    port.is_none_or(is_port)
        && host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Lower-case alphanumerics, separated by one dot, one or two underscores, or any number of dashes.
fn is_component(component: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut rest = component.as_bytes();
    loop {
        let word = rest.iter().take_while(|byte| alphanumeric(byte)).count();
        if word == 0 {
            return false;
        }
        rest = &rest[word..];
        let separator = rest.iter().take_while(|byte| !alphanumeric(byte)).count();
        match &rest[..separator] {
            [] => return rest.is_empty(),
            [b'.' | b'_'] | [b'_', b'_'] => {}
            dashes if dashes.iter().all(|&byte| byte == b'-') => {}
            _ => return false,
        }
        rest = &rest[separator..];
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

text_form!(ImageRef, ImageRefError, |image: ImageRef| image.to_string());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_reference_round_trips() {
        let sha256 = format!("quay.io/operatorhubio/catalog@sha256:{}", "a1".repeat(32));
        let sha512 = format!("quay.io/cat@sha512:{}", "a1".repeat(64));
        for text in [
            "quay.io/operatorhubio/catalog:latest",
            &sha256,
            &sha512,
            "localhost:5000/cat:1",
            "localhost/cat:1",
            "10.0.0.1:5000/cat:1",
            "[::1]:5000/cat:1",
            "docker.io/library/foo:1",
            "quay.io/operatorhubio/catalog",
            "quay.io/a.b/c__d/e---f/g_h:V1.2-x",
            "registry:443/cat:1",
        ] {
            let image: ImageRef = text.parse().unwrap();
            assert_eq!(image.to_string(), text);
        }
        let image: ImageRef = "localhost:5000/a/b:1".parse().unwrap();
        assert_eq!((image.registry(), image.repository(), image.tag()), ("localhost:5000", "a/b", Some("1")));
        let moved = image.with_name("mirror.example/x").unwrap();
        assert_eq!(moved.to_string(), "mirror.example/x:1");
        let digest: Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        assert_eq!(image.with_digest(digest.clone()).to_string(), format!("localhost:5000/a/b@{digest}"));
    }

    #[test]
    fn image_registry_has_one_spelling() {
        for (text, want) in [
            ("QUAY.io/a/b:V1", "quay.io/a/b:V1"),
            ("quay.io:443/a/b:1", "quay.io/a/b:1"),
            ("Quay.IO:0443/a/b:1", "quay.io/a/b:1"),
            ("quay.io:05000/a/b:1", "quay.io:5000/a/b:1"),
            ("registry-1.docker.io/library/foo:1", "docker.io/library/foo:1"),
            ("Docker.io:443/library/foo:1", "docker.io/library/foo:1"),
            ("MyRegistry/cat:1", "myregistry:443/cat:1"),
            ("myregistry:443/cat:1", "myregistry:443/cat:1"),
            ("LocalHost:443/cat:1", "localhost/cat:1"),
            ("[FD00::1]:443/cat:1", "[fd00::1]/cat:1"),
            ("registry.hub.docker.com/library/foo:1", "docker.io/library/foo:1"),
            ("10.5:5000/cat:1", "10.0.0.5:5000/cat:1"),
            ("0x0A.0.0.5:5000/cat:1", "10.0.0.5:5000/cat:1"),
            ("012.0.0.05/cat:1", "10.0.0.5/cat:1"),
            ("167772165:443/cat:1", "10.0.0.5/cat:1"),
            ("10.0.256:5000/cat:1", "10.0.1.0:5000/cat:1"),
            ("[0FD:0::0:0:01]:5000/cat:1", "[fd::1]:5000/cat:1"),
            ("[::ffff:a00:5]:5000/cat:1", "10.0.0.5:5000/cat:1"),
            ("[::1]/cat:1", "[::1]/cat:1"),
            // no addresses
            ("10.0.0.5.example.com/cat:1", "10.0.0.5.example.com/cat:1"),
            ("10.0.0.256:5000/cat:1", "10.0.0.256:5000/cat:1"),
            ("10.0.0.08:5000/cat:1", "10.0.0.08:5000/cat:1"),
            ("1.2.3.4.5/cat:1", "1.2.3.4.5/cat:1"),
        ] {
            let image: ImageRef = text.parse().unwrap();
            assert_eq!(image.to_string(), want, "{text}");
            assert_eq!(want.parse::<ImageRef>().unwrap(), image, "{text}");
        }
    }

    #[test]
    fn image_reference_error_names_the_fault() {
        let both = format!("quay.io/a/b:v1@sha256:{}", "0".repeat(64));
        let md5 = format!("quay.io/cat@md5:{}", "0".repeat(32));
        let short = format!("quay.io/cat@sha256:{}", "0".repeat(40));
        let upper = format!("quay.io/cat@sha256:{}", "A".repeat(64));
        let long = format!("quay.io/{}:1", "a".repeat(250));
        let tag = format!("quay.io/a:{}", "1".repeat(129));
        for (text, want) in [
            (both.as_str(), "Docker references with both a tag and digest are currently not supported"),
            ("library/catalog:latest", "repository name must be canonical"),
            ("myregistry/cat:1", "repository name must be canonical"),
            ("docker.io/foo:1", "repository name must be canonical"),
            ("index.docker.io/library/foo:1", "repository name must be canonical"),
            ("Index.Docker.io:443/library/foo:1", "repository name must be canonical"),
            ("registry-1.docker.io/foo:1", "repository name must be canonical"),
            ("quay.io/foo/Cat:1", "invalid reference format: repository name must be lowercase"),
            ("https://quay.io/cat:1", "invalid reference format"),
            ("quay.io//cat:1", "invalid reference format"),
            ("quay.io/cat:a:b", "invalid reference format"),
            ("quay.io/ca$t:1", "invalid reference format"),
            ("quay.io/cat:", "invalid reference format"),
            ("quay.io/cat@sha256:abc", "invalid reference format"),
            (&md5, "unsupported digest algorithm"),
            (&short, "invalid checksum digest length"),
            (&upper, "invalid checksum digest format"),
            (&long, "repository name must not be more than 255 characters"),
            (&tag, "invalid reference format"),
            ("Not A Reference", "invalid reference format: repository name must be lowercase"),
            ("", "repository name must have at least one component"),
        ] {
            assert_eq!(text.parse::<ImageRef>().unwrap_err().to_string(), want, "{text}");
        }
        assert_eq!(
            ImageRefError::NotCanonical.hint("docker.io/foo:1").unwrap(),
            r#"write the registry: "docker.io/library/foo:1""#
        );
        assert!(ImageRefError::TagAndDigest.hint(&both).unwrap().contains("quay.io/a/b@sha256:"));
    }

    #[test]
    fn digest_parses() {
        let digest = Digest::from_hash(DigestAlgorithm::Sha256, &[7; 32]).unwrap();
        assert_eq!(digest.as_str(), format!("sha256:{}", "07".repeat(32)));
        assert_eq!(digest.algorithm(), DigestAlgorithm::Sha256);
        assert_eq!(digest.hex().len(), 64);
        assert_eq!(Digest::from_hash(DigestAlgorithm::Sha512, &[7; 32]).unwrap_err(), DigestError::Length);
        assert_eq!("sha256".parse::<Digest>().unwrap_err(), DigestError::Format);
    }
}
