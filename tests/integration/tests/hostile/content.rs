//! Bytes of hostile layers, made of compressed blocks that are repeated: gigabytes of content are kilobytes here.

use std::io::Write as _;

use anyhow::Result;
use tar::EntryType;

/// A layer: a tar in several gzip members or zstd frames.
#[derive(Debug, Default, Clone)]
pub(crate) struct Layer {
    bytes: Vec<u8>,
}

impl Layer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// These tar bytes, as they are.
    pub(crate) fn raw(mut self, tar: &[u8]) -> Self {
        self.bytes.extend(gzip(tar));
        self
    }

    /// These tar bytes, `times` times; compressed once.
    pub(crate) fn repeated(mut self, tar: &[u8], times: usize) -> Self {
        self.bytes.extend(gzip(tar).repeat(times));
        self
    }

    /// Tar bytes that [`gzip`] has compressed.
    pub(crate) fn packed(mut self, member: &[u8]) -> Self {
        self.bytes.extend_from_slice(member);
        self
    }

    /// A file outside of the content whose bytes do not compress: it keeps the ratio of the layer low.
    pub(crate) fn noise(self, bytes: usize) -> Self {
        self.file("noise", &noise(bytes))
    }

    pub(crate) fn file(self, path: &str, content: &[u8]) -> Self {
        self.raw(&entry(path, EntryType::Regular, "", content))
    }

    /// A file whose content is `block`, `times` times.
    pub(crate) fn blocks(self, path: &str, block: &[u8], times: usize) -> Self {
        let size = block.len() * times;
        self.raw(&header(path, EntryType::Regular, "", size as u64))
            .repeated(block, times)
            .raw(&vec![0; size.next_multiple_of(512) - size])
    }

    /// The layer with the end mark of the archive.
    pub(crate) fn end(self) -> Vec<u8> {
        self.raw(&[0; 1024]).bytes
    }
}

/// One gzip member.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // a vector takes everything
    let _ = packer.write_all(bytes);
    packer.finish().unwrap_or_default()
}

/// One zstd frame that declares a window of 2^`window_log` bytes.
pub(crate) fn zstd(bytes: &[u8], window_log: u32) -> Result<Vec<u8>> {
    let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 3)?;
    packer.window_log(window_log)?;
    packer.long_distance_matching(true)?;
    packer.write_all(bytes)?;
    Ok(packer.finish()?)
}

/// A header and the content, padded.
pub(crate) fn entry(path: &str, kind: EntryType, target: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(path, kind, target, content.len() as u64);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A header; long names and targets are records before it.
pub(crate) fn header(path: &str, kind: EntryType, target: &str, size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (flag, text) in [(b'L', path), (b'K', target)] {
        if text.len() > 100 {
            bytes.extend(record(flag, text.as_bytes()));
        }
    }
    bytes.extend(block(path.as_bytes(), kind.as_byte(), target.as_bytes(), size));
    bytes
}

/// An entry that describes the next one: `L` and `K` (GNU), `x` and `g` (PAX).
pub(crate) fn record(flag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = block(b"record", flag, b"", content.len() as u64);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A PAX record: `<length> <key>=<value>\n`.
pub(crate) fn pax(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len() + 1;
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}").into_bytes()
}

fn block(name: &[u8], flag: u8, target: &[u8], size: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    for (at, text) in [(0, name), (157, target)] {
        let text = &text[..text.len().min(100)];
        block[at..at + text.len()].copy_from_slice(text);
    }
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"14524454400\0");
    block[148..156].fill(b' ');
    block[156] = flag;
    block[257..265].copy_from_slice(b"ustar  \0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Text that does not compress.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
