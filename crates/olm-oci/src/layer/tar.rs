//! A tar reader with bounded memory.
//!
//! Reads ustar, GNU (long names) and PAX (path, linkpath, size) archives as a stream. It interprets names no further
//! than that: what a name may be is decided in [`super::tree`]. Extended headers are read into memory only up to a bound,
//! which is why this is not the `tar` crate (it reads a long-name record of any size); that crate is the second opinion
//! in the tests. Sparse files are recognised, not read.

use std::io::{self, Read};

use super::from_io;
use crate::error::{ImageError, check_limit};

const BLOCK: usize = 512;
/// Largest PAX header; its records other than path, linkpath and size are skipped.
const MAX_PAX: u64 = 1 << 20;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    CharacterDevice,
    BlockDevice,
    Fifo,
    Sparse,
    Other(u8),
}

/// One entry; its content is read from the reader before the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// Target of a link; empty otherwise.
    pub(crate) link: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
struct Extended {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

/// The archive; as `Read` it is the content of the current entry.
pub(crate) struct Archive<R> {
    inner: R,
    /// Content bytes of the current entry not yet read.
    left: u64,
    padding: u64,
    global: Extended,
    max_name: u64,
    scratch: Vec<u8>,
    entries: u64,
    max_entries: u64,
    /// Bytes of extended headers so far.
    extended: u64,
    max_extended: u64,
}

impl<R: Read> Archive<R> {
    /// `max_entries` counts headers of any kind, so that an endless row of them ends too; `extended` is how many
    /// bytes they had beside themselves in earlier layers, and may have.
    pub(crate) fn new(inner: R, max_name: usize, max_entries: u64, extended: (u64, u64)) -> Self {
        Self {
            inner,
            left: 0,
            padding: 0,
            global: Extended::default(),
            max_name: max_name as u64,
            scratch: Vec::new(),
            entries: 0,
            max_entries,
            extended: extended.0,
            max_extended: extended.1,
        }
    }

    /// Headers read so far.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of extended headers so far, those of earlier layers included.
    pub(crate) fn extended(&self) -> u64 {
        self.extended
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// The next entry; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut extended = self.global.clone();
        loop {
            self.skip_rest()?;
            let Some(header) = self.header()? else { return Ok(None) };
            self.entries += 1;
            check_limit(self.entries, self.max_entries, "entries", "number of tar entries")?;
            let size = number(&header[124..136], "size")?;
            match header[156] {
                b'L' => extended.name = Some(self.long(size, "name")?),
                b'K' => extended.link = Some(self.long(size, "link name")?),
                b'x' => self.pax(size, &mut extended)?,
                b'g' => {
                    extended = self.global.clone();
                    self.pax(size, &mut extended)?;
                    self.global = extended.clone();
                }
                flag => return self.entry(&header, flag, size, extended).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &[u8; BLOCK],
        flag: u8,
        size: u64,
        extended: Extended,
    ) -> Result<Entry, ImageError> {
        let name = extended.name.unwrap_or_else(|| short_name(header));
        let kind = match flag {
            b'S' => Kind::Sparse,
            0 | b'0' | b'7' if extended.sparse => Kind::Sparse,
            0 | b'0' | b'7' if name.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharacterDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => Kind::Other(other),
        };
        let size = match kind {
            Kind::File | Kind::Sparse | Kind::Other(_) => extended.size.unwrap_or(size),
            _ => 0,
        };
        let link = match kind {
            Kind::HardLink | Kind::Symlink => {
                extended.link.unwrap_or_else(|| until_nul(&header[157..257]).to_vec())
            }
            _ => Vec::new(),
        };
        self.expect(size)?;
        Ok(Entry { name, kind, size, link })
    }

    /// One header block; `None` at the end mark or at a clean end of the stream.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, ImageError> {
        let mut block = [0_u8; BLOCK];
        let mut have = 0;
        while have < BLOCK {
            match self.inner.read(&mut block[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(ImageError::UnexpectedEof),
                Ok(n) => have += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(from_io(error)),
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let want = number(&block[148..156], "checksum")?;
        let unsigned: u64 = sum(&block, i64::from).unsigned_abs();
        // some very old writers added signed bytes
        let signed = sum(&block, |byte| i64::from(byte.cast_signed()));
        if want != unsigned && i64::try_from(want) != Ok(signed) {
            return Err(ImageError::Content("invalid tar header: wrong checksum".into()));
        }
        Ok(Some(block))
    }

    fn expect(&mut self, size: u64) -> Result<(), ImageError> {
        if size > i64::MAX as u64 {
            return Err(ImageError::Content("invalid tar header: size out of range".into()));
        }
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
        Ok(())
    }

    fn skip_rest(&mut self) -> Result<(), ImageError> {
        let mut left = self.left + self.padding;
        self.left = 0;
        self.padding = 0;
        if left > 0 && self.scratch.is_empty() {
            self.scratch = vec![0; 64 << 10];
        }
        while left > 0 {
            let want = self.scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.inner.read(&mut self.scratch[..want]) {
                Ok(0) => return Err(ImageError::UnexpectedEof),
                Ok(n) => left -= n as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(from_io(error)),
            }
        }
        Ok(())
    }

    fn small(&mut self, size: u64, limit: u64, what: &str) -> Result<Vec<u8>, ImageError> {
        check_limit(size, limit, "bytes", format_args!("tar {what} record"))?;
        self.extended += size;
        check_limit(self.extended, self.max_extended, "bytes", "extended headers in the image")?;
        self.expect(size)?;
        let mut bytes = Vec::new();
        self.by_ref().take(size).read_to_end(&mut bytes).map_err(from_io)?;
        Ok(bytes)
    }

    fn long(&mut self, size: u64, what: &str) -> Result<Vec<u8>, ImageError> {
        let limit = self.max_name + 1;
        let bytes = self.small(size, limit, what)?;
        Ok(until_nul(&bytes).to_vec())
    }

    fn pax(&mut self, size: u64, into: &mut Extended) -> Result<(), ImageError> {
        let bytes = self.small(size, MAX_PAX, "pax header")?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (key, value, after) = record(rest)
                .ok_or_else(|| ImageError::Content("invalid tar header: malformed pax record".into()))?;
            rest = after;
            match key {
                // an empty value takes the key back
                b"path" => into.name = (!value.is_empty()).then(|| value.to_vec()),
                b"linkpath" => into.link = (!value.is_empty()).then(|| value.to_vec()),
                b"size" => {
                    let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    if parsed.is_none() && !value.is_empty() {
                        return Err(ImageError::Content("invalid tar header: malformed pax size".into()));
                    }
                    into.size = parsed;
                }
                key if key.starts_with(b"GNU.sparse.") => into.sparse = true,
                _ => {}
            }
        }
        for name in [&into.name, &into.link].into_iter().flatten() {
            check_limit(name.len() as u64, self.max_name + 1, "bytes", "tar name record")?;
            if name.contains(&0) {
                return Err(ImageError::Content("invalid tar header: NUL in a pax path".into()));
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Archive<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || out.is_empty() {
            return Ok(0);
        }
        let want = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.inner.read(&mut out[..want])?;
        if n == 0 {
            return Err(super::to_io(ImageError::UnexpectedEof));
        }
        self.left -= n as u64;
        Ok(n)
    }
}

fn sum(block: &[u8; BLOCK], weigh: impl Fn(u8) -> i64) -> i64 {
    block
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { i64::from(b' ') } else { weigh(*byte) })
        .sum()
}

/// `NNN key=value\n` → key, value, what follows.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let body = bytes.get(space + 1..length)?;
    let (last, body) = body.split_last()?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    (*last == b'\n').then_some((&body[..equals], &body[equals + 1..], &bytes[length..]))
}

fn short_name(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    let prefix = until_nul(&header[345..500]);
    // only POSIX archives have a prefix; GNU ones keep times there
    if &header[257..263] == b"ustar\0" && !prefix.is_empty() {
        [prefix, b"/", name].concat()
    } else {
        name.to_vec()
    }
}

fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// Octal text, or the base-256 form of GNU.
fn number(field: &[u8], what: &str) -> Result<u64, ImageError> {
    let bad = || ImageError::Content(format!("invalid tar header: malformed {what}"));
    let (first, rest) = field.split_first().ok_or_else(bad)?;
    if first & 0x80 != 0 {
        if first & 0x40 != 0 {
            return Err(bad()); // negative
        }
        return rest.iter().try_fold(u64::from(first & 0x3f), |value, byte| {
            value.checked_mul(256).map(|value| value | u64::from(*byte)).ok_or_else(bad)
        });
    }
    let text: Vec<u8> = field.iter().copied().skip_while(|byte| *byte == b' ').collect();
    let digits = text.iter().take_while(|byte| !matches!(byte, 0 | b' '));
    digits.into_iter().try_fold(0_u64, |value, byte| match byte {
        b'0'..=b'7' => {
            value.checked_mul(8).and_then(|value| value.checked_add(u64::from(byte - b'0'))).ok_or_else(bad)
        }
        _ => Err(bad()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, ImageError> {
        let mut archive = Archive::new(bytes, 4096, 10_000, (0, 1 << 20));
        let mut all = Vec::new();
        while let Some(entry) = archive.next()? {
            let mut content = Vec::new();
            archive.read_to_end(&mut content).map_err(from_io)?;
            all.push((entry, content));
        }
        Ok(all)
    }

    fn archive_of(name: &str, content: &[u8], kind: ::tar::EntryType) -> Vec<u8> {
        let mut builder = ::tar::Builder::new(Vec::new());
        let mut header = ::tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_entry_type(kind);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn tar_reads_long_names() {
        let name = format!("{}/end", "d".repeat(300));
        let all = read_all(&archive_of(&name, b"x", ::tar::EntryType::Regular)).unwrap();
        assert_eq!(all[0].0.name, name.as_bytes());
        assert_eq!(all[0].1, b"x");
    }

    #[test]
    fn tar_pax_records_override_the_header() {
        let mut builder = ::tar::Builder::new(Vec::new());
        builder.append_pax_extensions([("path", b"real/name".as_slice()), ("size", b"3")]).unwrap();
        let mut header = ::tar::Header::new_ustar();
        header.set_path("short").unwrap();
        header.set_size(0);
        header.set_cksum();
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&[b"abc".as_slice(), &[0; 509], &[0; 1024]].concat());
        let all = read_all(&bytes).unwrap();
        assert_eq!((all[0].0.name.as_slice(), all[0].1.as_slice()), (&b"real/name"[..], &b"abc"[..]));
    }

    #[test]
    fn tar_error_names_the_defect() {
        let good = archive_of("a", &[7; 600], ::tar::EntryType::Regular);
        let mut bad_sum = good.clone();
        bad_sum[0] = b'b';
        let mut bad_size = good.clone();
        bad_size[124..136].fill(b'9');
        let mut huge_name = good.clone();
        huge_name[156] = b'L';
        huge_name[124..136].copy_from_slice(b"77777777777\0");
        fix_checksum(&mut bad_size);
        fix_checksum(&mut huge_name);
        for (name, bytes, want) in [
            ("cut in a header", &good[..100], "unexpected EOF"),
            ("cut in the content", &good[..700], "unexpected EOF"),
            ("cut in the padding", &good[..1400], "unexpected EOF"),
            ("checksum", &bad_sum[..], "invalid tar header: wrong checksum"),
            ("size", &bad_size[..], "invalid tar header: malformed size"),
            ("text", &b"this is not a tar archive, only text\n".repeat(50)[..], "invalid tar header"),
            ("8 GiB of name", &huge_name[..], "tar name record exceeds the limit of 4097 bytes"),
        ] {
            let got = read_all(bytes).unwrap_err().to_string();
            assert!(got.contains(want), "{name}: {got}");
        }
    }

    fn fix_checksum(bytes: &mut [u8]) {
        bytes[148..156].fill(b' ');
        let sum: u32 = bytes[..512].iter().map(|byte| u32::from(*byte)).sum();
        bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    #[test]
    fn tar_limits_number_of_headers() {
        let one = &archive_of("a", b"", ::tar::EntryType::Regular)[..512];
        let got = read_all(&one.repeat(10_001)).unwrap_err().to_string();
        assert_eq!(got, "number of tar entries exceeds the limit of 10000 entries");
        let most = [one.repeat(10_000), vec![0; 1024]].concat();
        assert_eq!(read_all(&most).unwrap().len(), 10_000);
    }

    #[test]
    fn tar_limits_a_pax_header() {
        let most = usize::try_from(MAX_PAX).unwrap();
        let refused = Err("tar pax header record exceeds the limit of 1048576 bytes".to_owned());
        for (size, want) in [(most, Ok(1)), (most + 1, refused)] {
            let value = "v".repeat(size - size.to_string().len() - " a=\n".len());
            let record = format!("{size} a={value}\n");
            let mut bytes = archive_of("x", record.as_bytes(), ::tar::EntryType::XHeader);
            bytes.truncate(bytes.len() - 1024);
            bytes.extend(archive_of("f", b"", ::tar::EntryType::Regular));
            let got = read_all(&bytes).map(|all| all.len()).map_err(|error| error.to_string());
            assert_eq!(got, want, "{size}");
        }
    }

    #[test]
    fn tar_reads_base_256_sizes() {
        let mut field = [0_u8; 12];
        field[0] = 0x80;
        field[11] = 5;
        field[10] = 1;
        assert_eq!(number(&field, "size").unwrap(), 261);
        assert!(number(&[0xff; 12], "size").is_err());
    }

    proptest! {
        /// The `tar` crate and this reader see the same entries.
        #[test]
        fn tar_agrees_with_the_tar_crate(
            files in prop::collection::vec(("[a-zA-Z0-9_.-]{1,90}(/[a-z]{1,120}){0,3}", prop::collection::vec(any::<u8>(), 0..2000)), 0..8)
        ) {
            let mut builder = ::tar::Builder::new(Vec::new());
            let mut want = Vec::new();
            for (name, content) in &files {
                let mut header = ::tar::Header::new_gnu();
                header.set_size(content.len() as u64);
                header.set_mode(0o644);
                if builder.append_data(&mut header, name, content.as_slice()).is_ok() {
                    want.push((name.clone().into_bytes(), content.clone()));
                }
            }
            let bytes = builder.into_inner().unwrap();
            let got: Vec<_> = read_all(&bytes).unwrap().into_iter().map(|(entry, content)| (entry.name, content)).collect();
            let mut second = ::tar::Archive::new(bytes.as_slice());
            let other: Vec<_> = second.entries().unwrap().map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path_bytes().into_owned(), content)
            }).collect();
            prop_assert_eq!(&got, &other);
            prop_assert_eq!(got.len(), want.len());
        }

        /// Any bytes: a result, no panic, no hang.
        #[test]
        fn tar_reads_any_bytes_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..4096), fix in any::<bool>(), flag in any::<u8>()) {
            if fix && bytes.len() >= 512 {
                bytes[124..136].copy_from_slice(b"00000001000\0");
                bytes[156] = flag;
                fix_checksum(&mut bytes);
            }
            let _ = read_all(&bytes);
        }
    }
}
