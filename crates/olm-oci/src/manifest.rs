//! Manifests and configs, Docker and OCI: the parts of an image.
//!
//! Pure parsing. Docker schema 1 and encrypted or foreign layers are rejected with an error message; a media type in the
//! document has precedence over the one in the HTTP header, because only the document is covered by the digest.

use std::collections::BTreeMap;
use std::fmt;

use olm_core::Digest;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::config::Platform;
use crate::error::ImageError;

/// Largest manifest and config (rule: catalogd §5.5).
pub(crate) const MAX_DOCUMENT: usize = 4 << 20;

/// Most labels of a config.
const MAX_LABELS: usize = 1_000;

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// `Accept` of manifest requests.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// A blob or manifest by digest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// As declared.
    #[serde(default)]
    pub media_type: String,
    /// Digest of the bytes as stored in the registry (compressed, for layers).
    pub digest: Digest,
    /// Number of those bytes.
    pub size: u64,
}

/// What a manifest document is.
#[derive(Debug, PartialEq, Eq)]
pub enum Document {
    Image {
        config: Descriptor,
        layers: Vec<Descriptor>,
    },
    /// The manifest for the configured platform.
    Index(Descriptor),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema_version: Option<u32>,
    #[serde(default)]
    media_type: String,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
    manifests: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: i64,
    platform: Option<RawPlatform>,
}

#[derive(Deserialize)]
struct RawPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: String,
}

impl RawDescriptor {
    fn checked(&self, what: &str) -> Result<Descriptor, ImageError> {
        let digest = self.digest.parse().map_err(|error| {
            ImageError::Content(format!("manifest has a bad digest {:?} for {what}: {error}", self.digest))
        })?;
        let size = u64::try_from(self.size)
            .map_err(|_| ImageError::Content(format!("manifest has the size {} for {what}", self.size)))?;
        Ok(Descriptor { media_type: self.media_type.clone(), digest, size })
    }
}

/// Reads a manifest; `header` is the answer's `Content-Type`.
pub(crate) fn parse(bytes: &[u8], header: &str, platform: &Platform) -> Result<Document, ImageError> {
    let raw: Raw = serde_json::from_slice(bytes)
        .map_err(|error| ImageError::Content(format!("manifest is not valid JSON of its kind: {error}")))?;
    let header = header.split(';').next().unwrap_or_default().trim();
    let media_type = if raw.media_type.is_empty() { header } else { raw.media_type.as_str() };
    if raw.schema_version == Some(1) {
        return Err(ImageError::Unsupported(
            "manifest has the Docker schema 1, which is no longer supported; push the image again".into(),
        ));
    }
    if raw.manifests.is_some() && raw.layers.is_some() {
        return Err(ImageError::Content("manifest has both layers and manifests".into()));
    }
    match media_type {
        OCI_MANIFEST | DOCKER_MANIFEST => image(&raw),
        OCI_INDEX | DOCKER_LIST => index(&raw, platform),
        // OCI manifests need not name their type, and some registries send a general one
        _ if raw.media_type.is_empty() && raw.layers.is_some() => image(&raw),
        _ if raw.media_type.is_empty() && raw.manifests.is_some() => index(&raw, platform),
        other => Err(ImageError::Unsupported(format!("manifest has the unsupported media type {other:?}"))),
    }
}

fn image(raw: &Raw) -> Result<Document, ImageError> {
    let config = raw
        .config
        .as_ref()
        .ok_or_else(|| ImageError::Content("manifest has no config".into()))?
        .checked("the config")?;
    let layers = raw
        .layers
        .iter()
        .flatten()
        .enumerate()
        .map(|(index, layer)| layer.checked(&format!("layer {index}")))
        .collect::<Result<_, _>>()?;
    Ok(Document::Image { config, layers })
}

fn index(raw: &Raw, platform: &Platform) -> Result<Document, ImageError> {
    let entries = raw.manifests.as_deref().unwrap_or_default();
    let best = entries
        .iter()
        .filter_map(|entry| {
            let has = entry.platform.as_ref()?;
            (has.os == platform.os && has.architecture == platform.architecture)
                .then(|| (variant_rank(&platform.architecture, &has.variant), entry))
        })
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, entry)| entry);
    // an index of one image that names no platform is that image
    let only = match entries {
        [one] if one.platform.is_none() => Some(one),
        _ => None,
    };
    let entry = best.or(only).ok_or_else(|| {
        ImageError::Content(format!(
            "no image found in image index for architecture {:?}, variant \"\", OS {:?}",
            platform.architecture, platform.os
        ))
    })?;
    entry.checked("the image of the platform").map(Document::Index)
}

/// Lower is better: what runs on every machine of the architecture first.
fn variant_rank(architecture: &str, variant: &str) -> u8 {
    let number = |text: &str| text.trim_start_matches('v').parse().unwrap_or(u8::MAX);
    match (architecture, variant) {
        (_, "") => 0,
        ("arm64", "v8") | ("amd64", "v1") => 0,
        // 32-bit ARM: newer is better, and everything that runs containers today is v7
        ("arm", variant) => 10_u8.saturating_sub(number(variant)),
        (_, variant) => number(variant),
    }
}

/// Refuses layers that are not tar archives, by their media type; compression is detected by the bytes.
pub(crate) fn check_layer(layer: &Descriptor) -> Result<(), ImageError> {
    let kind = layer.media_type.as_str();
    let is_tar = kind.starts_with("application/vnd.oci.image.layer.v1.tar")
        || kind.starts_with("application/vnd.docker.image.rootfs.diff.tar")
        || kind.starts_with("application/vnd.oci.image.layer.nondistributable.v1.tar");
    if kind.contains("+encrypted") {
        return Err(ImageError::Unsupported(format!(
            "layer has the media type {kind:?}: encrypted layers are not supported"
        )));
    }
    if !is_tar {
        return Err(ImageError::Unsupported(format!("layer has the unsupported media type {kind:?}")));
    }
    Ok(())
}

/// The labels of a config blob. A config of another kind (artifacts) has none.
///
/// # Errors
/// It is no JSON of its kind.
pub fn labels(bytes: &[u8]) -> Result<BTreeMap<String, String>, ImageError> {
    #[derive(Deserialize)]
    struct Blob {
        config: Option<Inner>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Inner {
        labels: Option<Labels>,
    }
    let blob: Blob = serde_json::from_slice(bytes).map_err(|error| {
        ImageError::Content(format!("image config is not valid JSON of its kind: {error}"))
    })?;
    Ok(blob.config.and_then(|config| config.labels).map(|labels| labels.0).unwrap_or_default())
}

/// At most [`MAX_LABELS`]; more are an error before they take memory.
struct Labels(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Labels, A::Error> {
                let mut labels = BTreeMap::new();
                while let Some((name, value)) = members.next_entry()? {
                    labels.insert(name, value);
                    if labels.len() > MAX_LABELS {
                        return Err(A::Error::custom(format_args!("more than {MAX_LABELS} labels")));
                    }
                }
                Ok(Labels(labels))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> String {
        format!("sha256:{}", format!("{n:02x}").repeat(32))
    }

    fn platform(architecture: &str) -> Platform {
        Platform { os: "linux".into(), architecture: architecture.into() }
    }

    fn chosen(manifests: &str, architecture: &str) -> Result<String, String> {
        let text = format!(r#"{{"schemaVersion":2,"mediaType":"{OCI_INDEX}","manifests":[{manifests}]}}"#);
        match parse(text.as_bytes(), "", &platform(architecture)).map_err(|cause| cause.to_string())? {
            Document::Index(descriptor) => Ok(descriptor.digest.to_string()),
            Document::Image { .. } => Err("an image".into()),
        }
    }

    fn entry(n: u8, os: &str, architecture: &str, variant: &str) -> String {
        format!(
            r#"{{"digest":"{}","size":1,"platform":{{"os":"{os}","architecture":"{architecture}","variant":"{variant}"}}}}"#,
            digest(n)
        )
    }

    #[test]
    fn index_selects_image_of_platform() {
        let all = [
            entry(0, "windows", "amd64", ""),
            entry(1, "linux", "amd64", "v3"),
            entry(2, "linux", "amd64", ""),
            entry(3, "linux", "arm64", "v8"),
            entry(4, "linux", "arm", "v6"),
            entry(5, "linux", "arm", "v7"),
            entry(6, "unknown", "unknown", ""),
        ]
        .join(",");
        for (architecture, want) in [("amd64", 2), ("arm64", 3), ("arm", 5)] {
            assert_eq!(chosen(&all, architecture), Ok(digest(want)), "{architecture}");
        }
        assert_eq!(
            chosen(&all, "s390x").unwrap_err(),
            r#"no image found in image index for architecture "s390x", variant "", OS "linux""#
        );
        let bare = format!(r#"{{"digest":"{}","size":1}}"#, digest(9));
        assert_eq!(chosen(&bare, "s390x"), Ok(digest(9)));
        assert!(chosen(&format!("{bare},{bare}"), "s390x").is_err());
    }

    #[test]
    fn manifest_parses_docker_and_oci() {
        let body = |head: &str| {
            format!(
                r#"{{{head} "config":{{"digest":"{}","size":2}},"layers":[{{"mediaType":"x","digest":"{}","size":3}}]}}"#,
                digest(1),
                digest(2)
            )
        };
        for (head, header, want) in [
            (format!(r#""schemaVersion":2,"mediaType":"{DOCKER_MANIFEST}","#), "", Ok(())),
            (r#""schemaVersion":2,"#.into(), OCI_MANIFEST, Ok(())),
            (r#""schemaVersion":2,"#.into(), "application/json; charset=utf-8", Ok(())),
            (r#""schemaVersion":1,"#.into(), "", Err("Docker schema 1")),
            (
                r#""mediaType":"application/x","#.into(),
                OCI_MANIFEST,
                Err("unsupported media type \"application/x\""),
            ),
            (r#""manifests":[],"#.into(), OCI_MANIFEST, Err("both layers and manifests")),
        ] as [(String, &str, Result<(), &str>); 6]
        {
            let got = parse(body(&head).as_bytes(), header, &platform("amd64"));
            match (got, want) {
                (Ok(Document::Image { layers, .. }), Ok(())) => assert_eq!(layers.len(), 1, "{head}"),
                (Err(cause), Err(want)) => assert!(cause.to_string().contains(want), "{head}: {cause}"),
                (got, _) => panic!("{head}: {got:?}"),
            }
        }
    }

    #[test]
    fn manifest_error_names_the_defect() {
        let bad_digest = r#"{"config":{"digest":"sha256:x","size":1},"layers":[]}"#;
        let negative = format!(r#"{{"config":{{"digest":"{}","size":-1}},"layers":[]}}"#, digest(0));
        for (text, want) in [
            ("", "manifest is not valid JSON"),
            ("{}", "manifest has the unsupported media type \"\""),
            (r#"{"layers":[]}"#, "manifest has no config"),
            (bad_digest, "bad digest \"sha256:x\" for the config: invalid checksum digest length"),
            (&negative, "manifest has the size -1 for the config"),
        ] {
            let got = parse(text.as_bytes(), "", &platform("amd64")).unwrap_err().to_string();
            assert!(got.contains(want), "{text}: {got}");
        }
    }

    #[test]
    fn config_labels_may_be_absent() {
        for (text, want) in [
            (r#"{"config":{"Labels":{"a":"b"}}}"#, 1),
            (r#"{"config":{"Labels":null}}"#, 0),
            (r#"{"config":{}}"#, 0),
            ("{}", 0),
        ] {
            assert_eq!(labels(text.as_bytes()).unwrap().len(), want, "{text}");
        }
        assert!(labels(b"[").is_err());
        let many = |count: usize| {
            let labels: Vec<String> = (0..count).map(|at| format!("\"l{at}\":\"\"")).collect();
            format!("{{\"config\":{{\"Labels\":{{{}}}}}}}", labels.join(","))
        };
        assert_eq!(labels(many(MAX_LABELS).as_bytes()).unwrap().len(), MAX_LABELS);
        let error = labels(many(MAX_LABELS + 1).as_bytes()).unwrap_err().to_string();
        assert!(error.contains("more than 1000 labels"), "{error}");
    }
}
