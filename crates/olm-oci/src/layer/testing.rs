//! A builder of tar archives, and an image read from memory.

use std::io::Write as _;

use bytes::Bytes;
use olm_core::DigestAlgorithm;

use super::{Applier, Selection, Unpacker, Verified, VisitError, Visitor, hash_of};
use crate::error::{Error, ImageError};
use crate::limits::Limits;

/// A tar archive under construction. Names go into the header as they are: nothing is tidied.
#[derive(Default)]
pub(crate) struct TarOf(Vec<u8>);

impl TarOf {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.entry(b'0', name, "", content.as_ref())
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.entry(b'5', name, "", b"")
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name, target, b"")
    }

    pub(crate) fn entry(self, flag: u8, name: impl AsRef<[u8]>, link: &str, content: &[u8]) -> Self {
        let size = content.len() as u64;
        self.header(flag, name.as_ref(), link, size).raw(content).pad()
    }

    /// A header that promises `size` bytes.
    pub(crate) fn header(mut self, flag: u8, name: &[u8], link: &str, size: u64) -> Self {
        let mut block = [0_u8; 512];
        block[..name.len()].copy_from_slice(name);
        block[100..108].copy_from_slice(b"0000644\0");
        block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        block[156] = flag;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..263].copy_from_slice(b"ustar\0");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&block);
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn pad(mut self) -> Self {
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn tar(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }

    /// Without the end mark.
    pub(crate) fn unfinished(self) -> Vec<u8> {
        self.0
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A frame whose header declares a window of 2^`log` bytes.
pub(crate) fn zstd_with_window(bytes: &[u8], log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(log).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A blob with the right digest, in chunks of `chunk` bytes.
pub(crate) fn blob(bytes: &[u8], chunk: usize) -> Verified<std::vec::IntoIter<Bytes>> {
    let digest = hash_of(DigestAlgorithm::Sha256, bytes).unwrap();
    let chunks: Vec<Bytes> = bytes.chunks(chunk).map(Bytes::copy_from_slice).collect();
    Verified::new(chunks.into_iter(), digest, bytes.len() as u64)
}

/// Reads layers (lowest first) through `visitor`.
pub(crate) fn visit<V: Visitor>(
    layers: &[Vec<u8>],
    selection: &[&str],
    limits: &Limits,
    visitor: V,
) -> Result<V, VisitError<V::Error>> {
    let selection = Selection::beneath(selection).unwrap();
    let mut applier = Applier::new(visitor, selection, limits.clone());
    for (index, layer) in layers.iter().enumerate().rev() {
        applier.layer(index, blob(layer, 1000))?;
    }
    applier.finish()
}

/// Unpacks layers and lists `path=content` of all files, sorted.
pub(crate) fn unpacked(
    layers: &[Vec<u8>],
    selection: &[&str],
    limits: &Limits,
) -> Result<Vec<String>, Error> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let result = visit(layers, selection, limits, Unpacker::new(&root));
    let outside: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(outside, ["root"], "nothing is written beside the root");
    result.map_err(VisitError::<ImageError>::into_error)?;
    let mut files = Vec::new();
    let mut todo = vec![root.clone()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            } else {
                assert!(entry.file_type().unwrap().is_file(), "{:?}", entry.path());
                let content = std::fs::read(entry.path()).unwrap();
                let name = entry.path().strip_prefix(&root).unwrap().display().to_string();
                files.push(format!("{name}={}", String::from_utf8_lossy(&content)));
            }
        }
    }
    files.sort();
    Ok(files)
}
