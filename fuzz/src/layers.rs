//! Answers of a registry: manifests and layers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use olm_oci::fuzz::{self, Manifest};
use olm_oci::{Infallible, Limits, VisitError, Visitor};

use crate::{parts, texts};

/// Content type, manifest, config. Whatever is taken has digests that are read again and sizes that were declared; labels are
/// read twice alike.
pub(crate) fn manifest(input: &[u8]) {
    let [content_type] = texts::<1>(parts::<3>(input)[0]);
    let [_, manifest, config] = parts::<3>(input);
    match (fuzz::manifest(manifest, &content_type), fuzz::manifest(manifest, &content_type)) {
        (Ok(found), Ok(again)) => {
            assert_eq!(found, again);
            let (first, layers) = match found {
                Manifest::Image { config, layers } => (config, layers),
                Manifest::Index(one) => (one, vec![]),
            };
            for descriptor in layers.iter().chain([&first]) {
                assert_eq!(descriptor.digest.to_string().parse().as_ref(), Ok(&descriptor.digest));
                let named = manifest
                    .windows(descriptor.digest.hex().len())
                    .any(|found| found == descriptor.digest.hex().as_bytes());
                assert!(named || manifest.contains(&b'\\'), "a digest that the manifest does not name");
            }
        }
        (Err(one), Err(two)) => assert_eq!(one.to_string(), two.to_string()),
        _ => unreachable!("taken once, refused once"),
    }
    assert_eq!(fuzz::labels(config).ok(), fuzz::labels(config).ok());
}

/// Bytes and entries that the target allows; small, so that a bomb is rejected and is no slow input.
fn limits() -> Limits {
    Limits {
        unpacked_bytes: 1 << 20,
        selected_bytes: 256 << 10,
        file_bytes: 128 << 10,
        entries: 2_000,
        selected_entries: 200,
        ratio_from: 64 << 10,
        name_bytes: 256,
        depth: 16,
        ..Limits::default()
    }
}

/// One to three layers, the uppermost first, separated by `%%%%LAYER%%%%`; the first byte sets the size of the pieces that they
/// arrive in, and whether plain layers are taken as they are or get true checksums and a compression. No name leads out of the
/// image, nothing is announced twice, links lead to files that were given, no limit is passed; and whole layers give what layers
/// in pieces give.
pub(crate) fn layer(input: &[u8]) {
    const BORDER: &[u8] = b"%%%%LAYER%%%%";
    let Some((&piece, mut rest)) = input.split_first() else { return };
    let mut layers: Vec<&[u8]> = Vec::new();
    while let Some(at) =
        rest.windows(BORDER.len()).position(|found| found == BORDER).filter(|_| layers.len() < 2)
    {
        layers.push(&rest[..at]);
        rest = &rest[at + BORDER.len()..];
    }
    layers.push(rest);
    let prepared: Vec<Vec<u8>> = layers.iter().map(|layer| prepare(layer, piece & 3)).collect();
    let layers: Vec<&[u8]> = prepared.iter().map(Vec::as_slice).collect();
    for selection in [&["configs"][..], &["/"]] {
        let whole = outcome(&layers, usize::MAX, selection);
        let pieces = outcome(&layers, usize::from(piece) + 1, selection);
        // damaged or truncated data may pass a limit, too: which of the two is met first depends on the pieces
        let is_damaged = |outcome: &Result<_, String>| {
            outcome.as_ref().is_err_and(|text| text.contains("corrupt ") || text.contains("unexpected EOF"))
        };
        let both_fail = whole.is_err() && pieces.is_err();
        if !(both_fail && (is_damaged(&whole) || is_damaged(&pieces))) {
            assert_eq!(whole, pieces, "pieces matter");
        }
    }
}

/// libFuzzer does not guess checksums, so headers get theirs, and compressions are made here.
fn prepare(layer: &[u8], how: u8) -> Vec<u8> {
    let mut layer = layer.to_vec();
    if how == 0 || layer.starts_with(&[0x1f, 0x8b]) || layer.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return layer;
    }
    for block in layer.as_chunks_mut::<512>().0 {
        if block[257..].starts_with(b"ustar") {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    match how {
        2 => {
            let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
            writer.write_all(&layer).and_then(|()| writer.finish()).unwrap_or_default()
        }
        3 => zstd::encode_all(layer.as_slice(), 1).unwrap_or_default(),
        _ => layer,
    }
}

fn outcome(layers: &[&[u8]], piece: usize, selection: &[&str]) -> Result<BTreeMap<String, u64>, String> {
    let seen = VisitCheck {
        selection: selection.iter().map(|text| (*text).to_owned()).collect(),
        ..VisitCheck::default()
    };
    let seen = fuzz::layers(layers, piece, selection, &limits(), seen)
        .map_err(|error: VisitError<Infallible>| error.into_error().to_string())?;
    assert!(seen.bytes <= limits().selected_bytes, "{} bytes were given", seen.bytes);
    assert!(seen.calls <= limits().selected_entries * 2, "{} names were given", seen.calls);
    Ok(seen.files)
}

/// The files that are there, by name, with a sum over their content.
#[derive(Default)]
struct VisitCheck {
    selection: BTreeSet<String>,
    files: BTreeMap<String, u64>,
    bytes: u64,
    calls: u64,
}

impl VisitCheck {
    fn name(&mut self, path: &str) {
        self.calls += 1;
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        assert!(path.split('/').all(plain) && !path.contains('\0'), "{path:?} leads elsewhere");
        assert!(path.len() <= limits().name_bytes && path.split('/').count() <= limits().depth);
        let is_selected = self.selection.contains("/") || path == "configs" || path.starts_with("configs/");
        assert!(is_selected, "{path:?} was not asked for");
        assert!(!self.files.contains_key(path), "{path:?} is given twice");
        // a file has nothing beneath it, and lies beneath no file
        let mut parent = path;
        while let Some((upper, _)) = parent.rsplit_once('/') {
            assert!(!self.files.contains_key(upper), "{path:?} lies beneath a file");
            parent = upper;
        }
        assert!(
            !self
                .files
                .keys()
                .any(|other| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
        );
    }
}

impl Visitor for VisitCheck {
    type Error = Infallible;

    fn file(&mut self, path: &str, size: u64, content: &mut dyn Read) -> Result<(), Infallible> {
        self.name(path);
        let (mut sum, mut read, mut buffer) = (0_u64, 0_u64, [0; 4096]);
        // a failed read ends the visit with its own cause
        while let Ok(count @ 1..) = content.read(&mut buffer) {
            read += count as u64;
            sum = buffer[..count]
                .iter()
                .fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        }
        assert!(read <= size && size <= limits().file_bytes, "{read} of {size} bytes");
        self.bytes += read;
        self.files.insert(path.to_owned(), sum);
        Ok(())
    }

    fn alias(&mut self, path: &str, target: &str) -> Result<(), Infallible> {
        self.name(path);
        let found = self.files.get(target).copied();
        assert!(found.is_some(), "{path:?} is another name of {target:?}, which was not given");
        self.files.insert(path.to_owned(), found.unwrap_or_default());
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<(), Infallible> {
        self.files.retain(|known, _| {
            known != path && !known.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
        });
        Ok(())
    }
}
