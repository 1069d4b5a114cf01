//! Generated catalogs on disk: the layer as a registry would have it, and the same files one after the other.
//!
//! Kept between runs under the target directory; the name holds all that they depend on.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use olm_core::Digest;
use olm_fbc::testing::{Format, generate};
use sha2::{Digest as _, Sha256};

/// A layer file and what is known about it.
#[derive(Debug, Clone)]
pub(crate) struct Catalog {
    /// gzip'd tar
    pub layer: PathBuf,
    /// its files, one after the other
    pub source: PathBuf,
    /// of the layer
    pub digest: Digest,
    /// bytes of the source
    pub bytes: u64,
}

/// Where generated files are kept.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("content-bench")
}

/// A catalog of about this many bytes of source.
pub(crate) fn generated(bytes: u64, format: Format) -> Result<Catalog> {
    let name = format!("{}-{bytes}-seed1", if format == Format::Json { "json" } else { "yaml" });
    let (layer, source) = (folder().join(format!("{name}.tar.gz")), folder().join(format!("{name}.src")));
    if !layer.exists() || !source.exists() {
        eprintln!("generating {name}");
        std::fs::create_dir_all(folder())?;
        write(bytes, format, &layer, &source).with_context(|| format!("cannot generate {name}"))?;
    }
    let bytes = std::fs::metadata(&source)?.len();
    Ok(Catalog { digest: digest_of(&layer)?, layer, source, bytes })
}

fn write(bytes: u64, format: Format, layer: &Path, source: &Path) -> Result<()> {
    let draft = layer.with_extension("draft");
    // level 6 is what image builders write
    let packed = GzEncoder::new(BufWriter::new(File::create(&draft)?), Compression::new(6));
    let mut archive = tar::Builder::new(packed);
    let mut plain = BufWriter::new(File::create(source)?);
    let mut failed = None;
    generate(bytes, format, 1, |path, text| {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        let put = archive.append_data(&mut header, format!("configs/{path}"), text.as_bytes());
        let put = put.and_then(|()| plain.write_all(text.as_bytes()));
        failed = failed.take().or(put.err());
    });
    failed.map_or(Ok(()), Err)?;
    archive.into_inner()?.finish()?.flush()?;
    plain.flush()?;
    std::fs::rename(draft, layer)?;
    Ok(())
}

/// The catalogs of the shared reference material as one layer, when they are at hand, and their JSON and YAML apart.
pub(crate) fn shared() -> Result<Option<(Catalog, PathBuf, PathBuf)>> {
    let Some(data) = olm_kit::shared_material().map(|folder| folder.join("data/catalog")) else {
        return Ok(None);
    };
    std::fs::create_dir_all(folder())?;
    let place = |name: &str| folder().join(name);
    let (layer, json, yaml) = (place("shared.tar.gz"), place("shared-json.src"), place("shared-yaml.src"));
    let packed = GzEncoder::new(BufWriter::new(File::create(&layer)?), Compression::new(6));
    let mut archive = tar::Builder::new(packed);
    let (mut jsons, mut yamls) = (Vec::new(), Vec::new());
    for (path, content) in olm_kit::image::read_dir(&data, "configs/")? {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, &path, content.as_slice())?;
        if path.ends_with(".json") {
            jsons.extend(content);
        } else {
            yamls.extend(b"\n---\n");
            yamls.extend(content);
        }
    }
    archive.into_inner()?.finish()?.flush()?;
    std::fs::write(&json, &jsons)?;
    std::fs::write(&yaml, &yamls)?;
    let bytes = (jsons.len() + yamls.len()) as u64;
    Ok(Some((Catalog { digest: digest_of(&layer)?, layer, source: json.clone(), bytes }, json, yaml)))
}

/// The digest of a file.
pub(crate) fn digest_of(path: &Path) -> Result<Digest> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{hex}").parse()?)
}
