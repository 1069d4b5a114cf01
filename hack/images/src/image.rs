//! One image as values: layers, configuration, manifest, index. No IO.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::platform::Platform;

/// Media type of an image's manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of the list of an image's platforms.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// Media type of a bill of materials.
pub const SBOM: &str = "application/vnd.cyclonedx+json";

/// The user that the program runs as: the number that images without a shell use for a user without rights.
const USER: u32 = 65532;
/// The settings of glibc's allocator for a program (decision 42).
fn environment(program: &str) -> &'static [&'static str] {
    match program {
        "operator-controller" | "classic-controller" => {
            &["MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=131072"]
        }
        _ => &["MALLOC_TRIM_THRESHOLD_=131072"],
    }
}

/// The description of a release: in labels and annotations, and as the date of all files.
#[derive(Debug, Clone)]
pub struct About {
    /// `1.2.3`
    pub version: String,
    /// The commit, if known.
    pub revision: Option<String>,
    /// Seconds since 1970.
    pub created: u64,
    /// Where the source is.
    pub source: String,
    /// SPDX expression.
    pub licenses: String,
}

impl About {
    /// `created` as RFC 3339.
    ///
    /// # Errors
    /// When it is no date.
    pub fn date(&self) -> Result<String> {
        let seconds = i64::try_from(self.created).context("the date is too late")?;
        Ok(jiff::Timestamp::from_second(seconds).context("the date is too late")?.to_string())
    }

    /// The annotations that OCI gives names to.
    fn annotations(&self, program: &str, description: &str) -> Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::from([
            ("title", program.to_owned()),
            ("description", description.to_owned()),
            ("version", self.version.clone()),
            ("created", self.date()?),
            ("source", self.source.clone()),
            ("licenses", self.licenses.clone()),
        ]);
        if let Some(revision) = &self.revision {
            all.insert("revision", revision.clone());
        }
        Ok(all.into_iter().map(|(key, value)| (format!("org.opencontainers.image.{key}"), value)).collect())
    }
}

/// Bytes, their media type, and the name that follows from them.
#[derive(Debug, Clone)]
pub struct Blob {
    pub media_type: &'static str,
    /// `sha256:<hex>`
    pub digest: String,
    pub bytes: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        Self { media_type, digest: sha256(&bytes), bytes }
    }

    fn json(media_type: &'static str, value: &Value) -> Self {
        Self::new(media_type, value.to_string().into_bytes())
    }

    /// How a manifest refers to it.
    pub fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len()})
    }
}

/// A manifest with everything that it names.
#[derive(Debug, Clone)]
pub struct Part {
    pub manifest: Blob,
    /// configuration and layers
    pub blobs: Vec<Blob>,
}

/// `sha256:<hex>` of `bytes`.
pub fn sha256(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The image of one program for one platform; its layers are compressed with gzip's `level`, 1 to 9.
///
/// # Errors
/// When the date of `about` is none.
pub fn image(
    name: &str,
    description: &str,
    program: &[u8],
    sbom: &[u8],
    platform: Platform,
    about: &About,
    level: u32,
) -> Result<Part> {
    let base = base_files();
    let own = vec![
        File { path: name.to_owned(), mode: 0o755, content: program.to_vec() },
        File { path: format!("usr/share/sbom/{name}.cdx.json"), mode: 0o644, content: sbom.to_vec() },
    ];
    let mut diff_ids = Vec::new();
    let mut blobs = Vec::new();
    for (files, shared) in [(base, Some(("tmp/", 0o1777))), (own, None)] {
        let tar = tar(&files, shared, about.created)?;
        diff_ids.push(sha256(&tar));
        blobs.push(Blob::new(LAYER, gzip(&tar, level)?));
    }
    let annotations = about.annotations(name, description)?;
    let config = Blob::json(
        CONFIG,
        &json!({
            "created": about.date()?,
            "architecture": platform.architecture(),
            "os": "linux",
            "config": {
                "User": format!("{USER}:{USER}"),
                "Entrypoint": [format!("/{name}")],
                "Env": environment(name),
                "WorkingDir": "/",
                "Labels": annotations,
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [
                {"created": about.date()?, "comment": "certificate authorities, a user"},
                {"created": about.date()?, "comment": format!("{name} {}", about.version)},
            ],
        }),
    );
    let manifest = Blob::json(
        MANIFEST,
        &json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": blobs.iter().map(Blob::descriptor).collect::<Vec<_>>(),
            "annotations": annotations,
        }),
    );
    blobs.insert(0, config);
    Ok(Part { manifest, blobs })
}

/// The list of one program's platforms, in the order given.
///
/// # Errors
/// When the date of `about` is none.
pub fn index(name: &str, description: &str, parts: &[(Platform, Part)], about: &About) -> Result<Blob> {
    let manifests: Vec<Value> = parts
        .iter()
        .map(|(platform, part)| {
            let mut descriptor = part.manifest.descriptor();
            descriptor["platform"] = json!({"os": "linux", "architecture": platform.architecture()});
            descriptor
        })
        .collect();
    Ok(Blob::json(
        INDEX,
        &json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": manifests,
            "annotations": about.annotations(name, description)?,
        }),
    ))
}

/// A bill of materials as an artifact that refers to the `subject`: what registries list as its referrer.
pub fn referrer(sbom: &[u8], subject: &Blob) -> Part {
    let empty = Blob::new(EMPTY, b"{}".to_vec());
    let content = Blob::new(SBOM, sbom.to_vec());
    let manifest = Blob::json(
        MANIFEST,
        &json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": SBOM,
            "config": empty.descriptor(),
            "layers": [content.descriptor()],
            "subject": subject.descriptor(),
        }),
    );
    Part { manifest, blobs: vec![empty, content] }
}

struct File {
    path: String,
    mode: u32,
    content: Vec<u8>,
}

/// What every image has beside its program.
fn base_files() -> Vec<File> {
    let file =
        |path: &str, text: String| File { path: path.to_owned(), mode: 0o644, content: text.into_bytes() };
    vec![
        file("etc/group", format!("root:x:0:\nnonroot:x:{USER}:\n")),
        file("etc/nsswitch.conf", "hosts: files dns\n".to_owned()),
        file(
            "etc/passwd",
            format!("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/tmp:/sbin/nologin\n"),
        ),
        file("etc/ssl/certs/ca-certificates.crt", authorities()),
    ]
}

/// The public certificate authorities as PEM, without which no public registry can be asked.
fn authorities() -> String {
    let mut pem = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = base64::engine::general_purpose::STANDARD.encode(certificate);
        for line in text.as_bytes().chunks(64) {
            pem.extend(line.iter().copied().map(char::from));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

/// The files with their folders and one `more`, owned by root.
fn tar(files: &[File], more: Option<(&str, u32)>, date: u64) -> Result<Vec<u8>> {
    let mut folders: BTreeMap<String, u32> =
        more.map(|(path, mode)| (path.to_owned(), mode)).into_iter().collect();
    for file in files {
        for (end, _) in file.path.match_indices('/') {
            folders.insert(file.path[..=end].to_owned(), 0o755);
        }
    }
    let mut out = tar::Builder::new(Vec::new());
    let header = |kind, mode, size| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(date);
        header.set_uid(0);
        header.set_gid(0);
        header
    };
    for (path, mode) in folders {
        out.append_data(&mut header(tar::EntryType::Directory, mode, 0), path, std::io::empty())?;
    }
    for file in files {
        let size = u64::try_from(file.content.len())?;
        out.append_data(
            &mut header(tar::EntryType::Regular, file.mode, size),
            &file.path,
            file.content.as_slice(),
        )?;
    }
    Ok(out.into_inner()?)
}

fn gzip(bytes: &[u8], level: u32) -> Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::new(level));
    out.write_all(bytes)?;
    Ok(out.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn about() -> About {
        About {
            version: "1.2.3".to_owned(),
            revision: Some("0123abc".to_owned()),
            created: 1_700_000_000,
            source: "https://example.com/olm-rs".to_owned(),
            licenses: "Apache-2.0".to_owned(),
        }
    }

    fn made() -> Part {
        image("catalogd", "serves", b"a program", b"{}", Platform::Amd64, &about(), 6).unwrap()
    }

    fn entries(part: &Part) -> Vec<String> {
        let mut found = Vec::new();
        for layer in part.blobs.iter().filter(|blob| blob.media_type == LAYER) {
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(layer.bytes.as_slice()).read_to_end(&mut bytes).unwrap();
            for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
                let entry = entry.unwrap();
                let header = entry.header();
                found.push(format!(
                    "{:o} {}:{} {} {}",
                    header.mode().unwrap(),
                    header.uid().unwrap(),
                    header.gid().unwrap(),
                    header.mtime().unwrap(),
                    entry.path().unwrap().display()
                ));
            }
            found.push("--".to_owned());
        }
        found
    }

    #[test]
    fn image_holds_the_program_and_little_else() {
        insta::assert_snapshot!(entries(&made()).join("\n"));
    }

    #[test]
    fn image_configuration_of_the_program() {
        let mut config: Value = serde_json::from_slice(&made().blobs[0].bytes).unwrap();
        // it changes with the list of authorities
        config["rootfs"]["diff_ids"][0] = json!("(the first layer's)");
        insta::assert_json_snapshot!(config);
    }

    /// The settings of a stage of the Dockerfile with those of the stages that it begins with, as an image's configuration has them.
    fn stage(dockerfile: &str, name: &str) -> Value {
        let mut config = json!({"User": "", "Entrypoint": [], "Env": [], "WorkingDir": ""});
        let mut within = false;
        for line in dockerfile.lines() {
            let (instruction, rest) = line.split_once(' ').unwrap_or((line, ""));
            match instruction {
                "FROM" => {
                    let (base, stage) = rest.split_once(" AS ").unwrap();
                    within = stage == name;
                    if within && base != "scratch" {
                        config = self::stage(dockerfile, base);
                    }
                }
                "USER" if within => config["User"] = json!(rest),
                "WORKDIR" if within => config["WorkingDir"] = json!(rest),
                "ENTRYPOINT" if within => config["Entrypoint"] = serde_json::from_str(rest).unwrap(),
                "ENV" if within => config["Env"].as_array_mut().unwrap().push(json!(rest)),
                _ => {}
            }
        }
        config["Env"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
        config
    }

    #[test]
    fn image_of_the_dockerfile_is_configured_alike() {
        let dockerfile = include_str!("../Dockerfile");
        for program in ["catalogd", "operator-controller", "cluster-operator", "classic-controller"] {
            let made = image(program, "serves", b"a program", b"{}", Platform::Amd64, &about(), 6).unwrap();
            let mut config: Value = serde_json::from_slice(&made.blobs[0].bytes).unwrap();
            config["config"].as_object_mut().unwrap().remove("Labels");
            assert_eq!(stage(dockerfile, program), config["config"], "{program}");
        }
        for file in base_files().iter().filter(|file| file.path != "etc/ssl/certs/ca-certificates.crt") {
            let content = String::from_utf8(file.content.clone()).unwrap().trim_end().replace('\n', "\\n");
            assert!(dockerfile.contains(&content), "{}: {content}", file.path);
        }
        let toolchain: toml::Value = toml::from_str(include_str!("../../../rust-toolchain.toml")).unwrap();
        let rust = toolchain["toolchain"]["channel"].as_str().unwrap();
        assert!(dockerfile.contains(&format!("FROM rust:{rust}-")), "the builder is not Rust {rust}");
    }

    #[test]
    fn image_of_the_same_release_is_equal() {
        assert_eq!(made().manifest.digest, made().manifest.digest);
        let other = About { created: 1_700_000_001, ..about() };
        let later = image("catalogd", "serves", b"a program", b"{}", Platform::Amd64, &other, 6).unwrap();
        assert_ne!(made().manifest.digest, later.manifest.digest);
    }

    #[test]
    fn image_index_lists_platforms_and_a_referrer_names_it() {
        let arm = image("catalogd", "serves", b"other", b"{}", Platform::Arm64, &about(), 6).unwrap();
        let parts = [(Platform::Amd64, made()), (Platform::Arm64, arm)];
        let index = index("catalogd", "serves", &parts, &about()).unwrap();
        let value: Value = serde_json::from_slice(&index.bytes).unwrap();
        assert_eq!(value["manifests"][0]["digest"], parts[0].1.manifest.digest);
        assert_eq!(value["manifests"][1]["platform"], json!({"os": "linux", "architecture": "arm64"}));
        let referrer = referrer(b"{\"bomFormat\":\"CycloneDX\"}", &index);
        let value: Value = serde_json::from_slice(&referrer.manifest.bytes).unwrap();
        assert_eq!(value["subject"]["digest"], index.digest);
        assert_eq!(value["artifactType"], SBOM);
        assert_eq!(value["config"]["size"], 2);
    }

    #[test]
    fn image_authorities_are_certificates() {
        let pem = authorities();
        let count = pem.matches("-----BEGIN CERTIFICATE-----").count();
        assert!(count > 50, "{count}");
        assert!(pem.lines().all(|line| line.len() <= 64));
    }
}
