//! Files on disk: a catalog's index, and the cache of package content.

use std::cell::RefCell;

use olm_catalog::package_store::{CachedContent, Key, PackageStore};
use olm_fbc::{Index, Query};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

thread_local! {
    static PLACE: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// An index file, or one of the package cache. The checksum of an index is made right, so that what lies behind it is reached:
/// what is read then lies within the catalog and is written as it was read. The cache gives what was kept, or nothing.
pub(crate) fn index_and_cache(input: &[u8]) {
    index(input);
    let mut sealed = input.to_vec();
    seal(&mut sealed);
    index(&sealed);
    // files are slow; what begins otherwise is no file of the cache
    if input.starts_with(b"o") {
        cached(input);
    }
}

fn index(bytes: &[u8]) {
    let Ok(index) = Index::from_bytes(bytes) else { return };
    assert_eq!(index.to_bytes(), bytes, "written another way than read");
    for object in index.objects() {
        assert!(object.offset.checked_add(object.length).is_some_and(|end| end <= index.size()));
        let query = Query { schema: object.schema, package: object.package, name: object.name };
        assert!(
            index
                .sections(&query)
                .iter()
                .all(|section| section.start <= section.end && section.end <= index.size())
        );
    }
    for package in index.packages() {
        assert!(index.package_sections(package).iter().all(|section| section.end <= index.size()));
    }
}

/// Writes length and checksum where an index has them (FNV-1a over words, as in olm-fbc).
fn seal(bytes: &mut [u8]) {
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    let (whole, length) = (bytes.len() as u64, bytes.len());
    let Some((body, trailer)) = bytes.split_last_chunk_mut::<16>() else { return };
    let mut hash = 0xCBF2_9CE4_8422_2325_u64 ^ (length as u64 - 16);
    let (words, rest) = body.as_chunks::<8>();
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    hash ^= hash >> 32;
    trailer[..8].copy_from_slice(&whole.to_le_bytes());
    trailer[8..].copy_from_slice(&hash.to_le_bytes());
}

fn cached(bytes: &[u8]) {
    PLACE.with_borrow_mut(|place| {
        if place.is_none() {
            *place = tempfile::tempdir().ok();
        }
        let Some(root) = place.as_ref().map(TempDir::path) else { return };
        let store = PackageStore::new(root, 1 << 20);
        let key = Key { origin: "sha256:0".to_owned(), part: "demo".to_owned() };
        let name = Sha256::new().chain_update("sha256:0").chain_update([0]).chain_update("demo").finalize();
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        if std::fs::write(root.join(name), bytes).is_err() {
            return;
        }
        if let Some(CachedContent { lines, .. }) = store.get(&key) {
            assert!(bytes.ends_with(&lines), "given is what was not kept");
            let sum: String = Sha256::digest(&lines).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(
                bytes.windows(64).any(|found| found == sum.as_bytes()),
                "the hash is not that of the content"
            );
        }
    });
}
