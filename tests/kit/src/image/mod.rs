//! OCI images made in memory: layers of files, labels, and the ways in which an image can be wrong.
//!
//! Building is reproducible: the same description gives the same digest.

mod bundle;
mod catalog;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

pub use bundle::{BundleImage, Crd};
pub use catalog::{CatalogImage, Entry, Package};

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Paths and their content.
pub type Files = BTreeMap<String, Vec<u8>>;

/// `sha256:<hex>` of some bytes.
pub fn sha256(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    Gzip,
    Zstd,
    /// a plain tar
    Plain,
}

/// One way in which an image is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// the manifest lists no layers
    NoLayers,
    /// each layer is cut in half; its digest fits
    TruncatedLayer,
    /// each layer is text, not a tar; its digest fits
    NotATar,
    /// one byte of each layer is changed in the registry's storage, so that the digest does not fit
    CorruptBlob,
    /// each layer is removed from the registry's storage
    MissingBlob,
}

#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Layer {
    entries: Vec<(String, Kind)>,
    raw: Option<Vec<u8>>,
    compression: Compression,
}

#[derive(Debug, Clone)]
enum Kind {
    File(Vec<u8>, u32),
    Symlink(String),
}

impl Layer {
    /// An empty layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A layer of files.
    pub fn from_files(files: &Files) -> Self {
        files.iter().fold(Self::new(), |layer, (path, content)| layer.file(path, content))
    }

    /// A layer that is exactly this tar, for what [`tar`] refuses to write.
    pub fn raw(tar: Vec<u8>) -> Self {
        Self { raw: Some(tar), ..Self::default() }
    }

    /// Adds a file, mode 0644. Its folders are added too. Paths are taken as they are (`../x` too).
    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.file_with_mode(path, content, 0o644)
    }

    /// Adds a file with a mode.
    pub fn file_with_mode(mut self, path: &str, content: &[u8], mode: u32) -> Self {
        self.entries.push((path.to_owned(), Kind::File(content.to_vec(), mode)));
        self
    }

    /// Adds a symbolic link.
    pub fn symlink(mut self, path: &str, target: &str) -> Self {
        self.entries.push((path.to_owned(), Kind::Symlink(target.to_owned())));
        self
    }

    /// Adds a whiteout: hides `path` of lower layers.
    pub fn whiteout(self, path: &str) -> Self {
        let marked = match path.rsplit_once('/') {
            Some((folder, name)) => format!("{folder}/.wh.{name}"),
            None => format!(".wh.{path}"),
        };
        self.file(&marked, b"")
    }

    /// Adds an opaque whiteout: hides all of `folder` of lower layers.
    pub fn opaque(self, folder: &str) -> Self {
        self.file(&format!("{folder}/.wh..wh..opq"), b"")
    }

    /// Another compression than gzip.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    fn tar(&self) -> Result<Vec<u8>> {
        if let Some(raw) = &self.raw {
            return Ok(raw.clone());
        }
        let mut archive = tar::Builder::new(Vec::new());
        let mut folders = std::collections::BTreeSet::new();
        for (path, kind) in &self.entries {
            for (at, _) in path.match_indices('/').filter(|&(at, _)| at > 0) {
                if folders.insert(&path[..at]) && !path[..at].ends_with("..") {
                    append(&mut archive, &path[..at], tar::EntryType::Directory, 0o755, "", b"")?;
                }
            }
            match kind {
                Kind::File(content, mode) => {
                    append(&mut archive, path, tar::EntryType::Regular, *mode, "", content)?;
                }
                Kind::Symlink(target) => {
                    append(&mut archive, path, tar::EntryType::Symlink, 0o777, target, b"")?
                }
            }
        }
        Ok(archive.into_inner()?)
    }

    fn packed(&self, tar: &[u8]) -> Result<Vec<u8>> {
        Ok(match self.compression {
            Compression::Plain => tar.to_vec(),
            Compression::Zstd => zstd::encode_all(tar, 3)?,
            Compression::Gzip => {
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packer.write_all(tar)?;
                packer.finish()?
            }
        })
    }
}

/// Writes the header by hand: the archive builder refuses `..` and absolute paths, which are what tests need. Long paths
/// become GNU long names, as docker and buildah write them.
fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    target: &str,
    content: &[u8],
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(1_700_000_000);
    header.set_size(content.len() as u64);
    if path.len() <= 100 && target.len() <= 100 {
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        archive.append(&header, content)?;
    } else if target.is_empty() {
        archive.append_data(&mut header, path, content)?;
    } else {
        archive.append_link(&mut header, path, target)?;
    }
    Ok(())
}

/// An image: layers, labels, platform.
#[derive(Debug, Clone)]
#[must_use]
pub struct Image {
    layers: Vec<Layer>,
    labels: BTreeMap<String, String>,
    entrypoint: Vec<String>,
    os: String,
    architecture: String,
    docker: bool,
    fault: Option<Defect>,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            layers: Vec::new(),
            labels: BTreeMap::new(),
            entrypoint: Vec::new(),
            os: "linux".to_owned(),
            architecture: host_architecture().to_owned(),
            docker: false,
            fault: None,
        }
    }
}

/// This machine's architecture in the words of OCI.
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An image ready to be sent.
#[derive(Debug)]
pub struct Built {
    /// layers and configuration
    pub blobs: Vec<Vec<u8>>,
    /// the layers alone
    pub layers: Vec<Vec<u8>>,
    pub manifest: Vec<u8>,
    pub media_type: &'static str,
}

impl Image {
    /// An image for linux on this machine's architecture, without layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a layer on top.
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Sets a label of the image configuration.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the program that a container of the image runs.
    pub fn entrypoint(mut self, path: &str) -> Self {
        self.entrypoint = vec![path.to_owned()];
        self
    }

    /// Removes a label.
    pub fn without_label(mut self, key: &str) -> Self {
        self.labels.remove(key);
        self
    }

    /// Another platform.
    pub fn platform(mut self, os: &str, architecture: &str) -> Self {
        os.clone_into(&mut self.os);
        architecture.clone_into(&mut self.architecture);
        self
    }

    /// Docker's media types instead of OCI's.
    pub fn docker(mut self) -> Self {
        self.docker = true;
        self
    }

    /// Compresses all layers in another way than gzip.
    pub fn compression(mut self, compression: Compression) -> Self {
        for layer in &mut self.layers {
            layer.compression = compression;
        }
        self
    }

    /// Breaks the image.
    pub fn fault(mut self, fault: Defect) -> Self {
        self.fault = Some(fault);
        self
    }

    pub(crate) fn stored_fault(&self) -> Option<Defect> {
        self.fault.filter(|fault| matches!(fault, Defect::CorruptBlob | Defect::MissingBlob))
    }

    /// Makes blobs and manifest.
    pub fn build(&self) -> Result<Built> {
        #[rustfmt::skip]
        let (media_type, config_type, layer_type) = match self.docker {
            true => (DOCKER_MANIFEST, "application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar"),
            false => (OCI_MANIFEST, "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"),
        };
        let (mut layers, mut descriptors, mut diff_ids) = (Vec::new(), Vec::new(), Vec::new());
        let sources: &[Layer] = if self.fault == Some(Defect::NoLayers) { &[] } else { &self.layers };
        for layer in sources {
            let mut tar = layer.tar()?;
            diff_ids.push(sha256(&tar));
            if self.fault == Some(Defect::NotATar) {
                tar = b"this is text, not an archive\n".repeat(40);
            }
            let mut packed = layer.packed(&tar)?;
            if self.fault == Some(Defect::TruncatedLayer) {
                packed.truncate(packed.len() / 2);
            }
            let suffix = match (layer.compression, self.docker) {
                (Compression::Plain, _) => "",
                (Compression::Gzip, false) => "+gzip",
                (Compression::Gzip, true) => ".gzip",
                (Compression::Zstd, false) => "+zstd",
                (Compression::Zstd, true) => ".zstd",
            };
            descriptors.push(descriptor(&format!("{layer_type}{suffix}"), &packed));
            layers.push(packed);
        }
        let mut config = json!({
            "architecture": self.architecture, "os": self.os, "config": {"Labels": self.labels},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        if !self.entrypoint.is_empty() {
            config["config"]["Entrypoint"] = json!(self.entrypoint);
        }
        let config = serde_json::to_vec(&config)?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2, "mediaType": media_type, "config": descriptor(config_type, &config), "layers": descriptors,
        }))?;
        let mut blobs = layers.clone();
        blobs.push(config);
        Ok(Built { blobs, layers, manifest, media_type })
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": sha256(bytes), "size": bytes.len()})
}

/// An image for several platforms.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Index {
    images: Vec<Image>,
}

impl Index {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image; its platform is that of [`Image::platform`].
    pub fn image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    pub(crate) fn images(&self) -> &[Image] {
        &self.images
    }

    pub(crate) fn manifest(&self) -> Result<Vec<u8>> {
        let mut manifests = Vec::new();
        for image in &self.images {
            let built = image.build()?;
            let mut entry = descriptor(built.media_type, &built.manifest);
            entry["platform"] = json!({"os": image.os, "architecture": image.architecture});
            manifests.push(entry);
        }
        Ok(serde_json::to_vec(&json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}))?)
    }
}

/// Reads a folder into [`Files`], paths relative to it, each with `prefix` in front.
pub fn read_dir(dir: &std::path::Path, prefix: &str) -> Result<Files> {
    let mut files = Files::new();
    let mut open = vec![(dir.to_owned(), prefix.to_owned())];
    while let Some((folder, prefix)) = open.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                open.push((entry.path(), format!("{path}/")));
            } else {
                files.insert(path, std::fs::read(entry.path())?);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(image: &Image) -> Vec<String> {
        let built = image.build().unwrap();
        let unpacked = flate2::read::GzDecoder::new(built.layers[0].as_slice());
        let mut archive = tar::Archive::new(unpacked);
        archive.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string()).collect()
    }

    #[test]
    fn image_folders_come_before_files_once() {
        let image = Image::new().layer(Layer::new().file("a/b/c", b"1").file("a/b/d", b"2").whiteout("a/x"));
        assert_eq!(listed(&image), ["a", "a/b", "a/b/c", "a/b/d", "a/.wh.x"]);
    }

    #[test]
    fn image_digest_depends_on_the_description_only() {
        let image =
            |text: &[u8]| sha256(&Image::new().layer(Layer::new().file("f", text)).build().unwrap().manifest);
        assert_eq!(image(b"1"), image(b"1"));
        assert_ne!(image(b"1"), image(b"2"));
    }

    #[test]
    fn image_media_types_follow_compression_and_dialect() {
        for (compression, docker, want) in [
            (Compression::Gzip, false, "application/vnd.oci.image.layer.v1.tar+gzip"),
            (Compression::Zstd, false, "application/vnd.oci.image.layer.v1.tar+zstd"),
            (Compression::Plain, false, "application/vnd.oci.image.layer.v1.tar"),
            (Compression::Gzip, true, "application/vnd.docker.image.rootfs.diff.tar.gzip"),
        ] {
            let mut image = Image::new().layer(Layer::new().file("f", b"x")).compression(compression);
            if docker {
                image = image.docker();
            }
            let manifest: serde_json::Value =
                serde_json::from_slice(&image.build().unwrap().manifest).unwrap();
            assert_eq!(manifest["layers"][0]["mediaType"], want);
        }
    }

    #[test]
    fn image_long_paths_survive() {
        let path = format!("manifests/{}.yaml", "x".repeat(180));
        assert!(listed(&Image::new().layer(Layer::new().file(&path, b"1"))).contains(&path));
    }

    #[test]
    fn image_hostile_paths_are_written_as_they_are() {
        let image = Image::new().layer(Layer::new().file("../../etc/x", b"1").symlink("out", "/etc/passwd"));
        assert!(listed(&image).contains(&"../../etc/x".to_owned()));
    }
}
