//! Package content on disk, so that neither a restart nor the next call of the CLI fetches it again.
//!
//! One file for each (origin, part): the origin is an address with an image digest, whose content never changes, or an address, whose
//! content is revalidated with its ETag. A file becomes visible by one rename and carries the hash of its content, so
//! a file damaged by a crash or a bad disk is detected, ignored and replaced; nothing is synced, because everything
//! here can be fetched again. The bytes are bounded: the least recently used files are evicted first. Several
//! processes may share a directory. Rules: decisions 15 and 30.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use olm_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Default bound on the bytes of a store.
pub const DEFAULT_BYTES: u64 = 512 * 1024 * 1024;
/// First line of every file; another one means another version of this program.
const MAGIC: &str = "olm-package-1";
/// Longest header.
const MAX_HEADER: u64 = 64 * 1024;
/// An unfinished file of this age belongs to a process that died.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Shortest interval between two updates of the time of use of a file.
const USE_INTERVAL: Duration = Duration::from_secs(60);

/// Identifies the content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// `sha256:…` of the catalog image, or the catalog's address where no digest is known.
    pub origin: String,
    /// A package, or [`Key::SUMMARY`].
    pub part: String,
}

impl Key {
    /// The part with one line about each package. No package has this name.
    pub const SUMMARY: &'static str = "/packages";

    fn file_name(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.origin.as_bytes());
        hash.update([0]);
        hash.update(self.part.as_bytes());
        hex(&hash.finalize())
    }
}

/// Content and its ETag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedContent {
    /// JSON lines.
    pub lines: Vec<u8>,
    /// ETag of the response that it is from.
    pub tag: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    origin: String,
    part: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    length: u64,
    sha256: String,
}

/// The store. Cheap to clone. It blocks on the disk: not for an async thread.
#[derive(Debug, Clone)]
pub struct PackageStore {
    root: Arc<Path>,
    limit: u64,
    /// Estimated bytes on disk; measured at the first write and whenever the limit is passed.
    used: Arc<AtomicU64>,
}

const UNMEASURED: u64 = u64::MAX;

impl PackageStore {
    /// Keeps at most `limit` bytes beneath `root`, which is created when something is written.
    #[must_use]
    pub fn new(root: &Path, limit: u64) -> Self {
        Self { root: root.into(), limit, used: Arc::new(AtomicU64::new(UNMEASURED)) }
    }

    /// The directory of the store.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Bytes of the file that [`Self::get`] would read.
    #[must_use]
    pub fn length(&self, key: &Key) -> Option<u64> {
        std::fs::metadata(self.root.join(key.file_name())).ok().map(|metadata| metadata.len())
    }

    /// The cached content, if it is intact. A damaged file is removed.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<CachedContent> {
        let path = self.root.join(key.file_name());
        match read(&path, key) {
            Ok(Some(cached)) => {
                record_use(&path);
                Some(cached)
            }
            Ok(None) => {
                tracing::warn!(path = %path.display(), "cached package content is damaged; it is fetched again");
                let _ = std::fs::remove_file(&path);
                None
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "cached package content cannot be read; it is fetched again");
                }
                None
            }
        }
    }

    /// Writes content. Content larger than a quarter of the limit is not cached.
    ///
    /// # Errors
    /// When the file cannot be written. The content can be fetched again.
    pub fn put(&self, key: &Key, cached: &CachedContent) -> io::Result<()> {
        if cached.lines.len() as u64 > self.limit / 4 {
            return Ok(());
        }
        std::fs::create_dir_all(&self.root)?;
        let header = Header {
            origin: key.origin.clone(),
            part: key.part.clone(),
            tag: cached.tag.clone(),
            length: cached.lines.len() as u64,
            sha256: hex(&Sha256::digest(&cached.lines)),
        };
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.root)?;
        let head = format!("{MAGIC}\n{}\n", serde_json::to_string(&header).map_err(io::Error::other)?);
        file.write_all(head.as_bytes())?;
        file.write_all(&cached.lines)?;
        file.persist(self.root.join(key.file_name())).map_err(|error| error.error)?;
        let added = head.len() as u64 + cached.lines.len() as u64;
        let before = self.used.load(Ordering::Relaxed);
        if before == UNMEASURED || before.saturating_add(added) > self.limit {
            self.used.store(self.evict()?, Ordering::Relaxed);
        } else {
            self.used.store(before + added, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes the least recently used files until nine tenths of the limit are left. Returns the bytes that remain.
    fn evict(&self) -> io::Result<u64> {
        let now = SystemTime::now();
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            // another process may remove a file meanwhile
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let unfinished = entry.file_name().as_encoded_bytes().starts_with(b".");
            if unfinished {
                if now.duration_since(modified).is_ok_and(|age| age > ABANDONED) {
                    let _ = std::fs::remove_file(entry.path());
                }
                continue;
            }
            files.push((modified, metadata.len(), entry.path()));
        }
        let mut used: u64 = files.iter().map(|(_, size, _)| size).sum();
        if used <= self.limit {
            return Ok(used);
        }
        files.sort();
        for (_, size, path) in files {
            if used <= self.limit / 10 * 9 {
                break;
            }
            match std::fs::remove_file(&path) {
                Ok(()) => used -= size,
                Err(error) if error.kind() == io::ErrorKind::NotFound => used -= size,
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }
}

/// `None` for a damaged file, or one of another key.
fn read(path: &Path, key: &Key) -> io::Result<Option<CachedContent>> {
    let mut file = io::BufReader::new(std::fs::File::open(path)?);
    let size = file.get_ref().metadata()?.len();
    let (Some(magic), Some(header)) = (line(&mut file)?, line(&mut file)?) else { return Ok(None) };
    let Ok(header) = serde_json::from_slice::<Header>(&header) else { return Ok(None) };
    let ours = magic == MAGIC.as_bytes() && header.origin == key.origin && header.part == key.part;
    if !ours || header.length > size {
        return Ok(None);
    }
    let mut lines = Vec::with_capacity(usize::try_from(header.length).unwrap_or_default());
    file.read_to_end(&mut lines)?;
    if lines.len() as u64 != header.length || hex(&Sha256::digest(&lines)) != header.sha256 {
        return Ok(None);
    }
    Ok(Some(CachedContent { lines, tag: header.tag }))
}

/// A line of the head, without its end.
fn line(file: &mut impl io::BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    file.take(MAX_HEADER).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}

/// Sets the modification time, which is the time of the last use.
fn record_use(path: &Path) {
    let now = SystemTime::now();
    let file = std::fs::File::options().append(true).open(path);
    let Ok(file) = file else { return };
    let recent = file
        .metadata()
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age < USE_INTERVAL));
    if !recent {
        // on failure only the order of eviction is wrong
        let _ = file.set_modified(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(part: &str) -> Key {
        Key { origin: "sha256:ab".to_owned(), part: part.to_owned() }
    }

    fn cached(text: &str) -> CachedContent {
        CachedContent { lines: text.as_bytes().to_vec(), tag: Some("\"t\"".to_owned()) }
    }

    #[test]
    fn package_store_returns_content_by_key() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(&dir.path().join("deep/er"), DEFAULT_BYTES);
        assert_eq!(store.get(&key("a")), None);
        store.put(&key("a"), &cached("{}\n")).unwrap();
        store.put(&key("none"), &CachedContent { lines: Vec::new(), tag: None }).unwrap();
        assert_eq!(store.get(&key("a")), Some(cached("{}\n")));
        assert_eq!(store.get(&key("none")), Some(CachedContent { lines: Vec::new(), tag: None }));
        assert_eq!(store.get(&key("b")), None);
        assert_eq!(store.get(&Key { origin: "sha256:cd".to_owned(), ..key("a") }), None);
        store.put(&key("a"), &cached("new")).unwrap();
        assert_eq!(PackageStore::new(store.root(), 1).get(&key("a")), Some(cached("new")));

        // the same package of two catalogs, and a file under the name of another
        let other = Key { origin: "sha256:cd".to_owned(), ..key("a") };
        store.put(&other, &cached("other")).unwrap();
        assert_eq!((store.get(&key("a")), store.get(&other)), (Some(cached("new")), Some(cached("other"))));
        for stray in [key("none"), other] {
            std::fs::copy(store.root().join(key("a").file_name()), store.root().join(stray.file_name()))
                .unwrap();
            assert_eq!(store.get(&stray), None, "{stray:?}");
        }
    }

    #[test]
    fn package_store_keeps_names_that_are_paths_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(&dir.path().join("store"), DEFAULT_BYTES);
        let names =
            ["../out", "/out", "a/b", "a\\b", "..", ".", "", "a\0b", Key::SUMMARY, &"x".repeat(5_000)];
        for name in names {
            for key in [key(name), Key { origin: name.to_owned(), part: "a".to_owned() }] {
                store.put(&key, &cached(name)).unwrap();
                assert_eq!(store.get(&key), Some(cached(name)), "{name:?}");
            }
        }
        let list = |path: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
        };
        assert_eq!(list(dir.path()), ["store"], "nothing is written outside of the folder");
        let files = list(store.root());
        assert_eq!(files.len(), 2 * names.len());
        let is_hash = |name: &String| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(files.iter().all(is_hash), "{files:?}");
    }

    #[test]
    fn package_store_replaces_damaged_content() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(dir.path(), DEFAULT_BYTES);
        store.put(&key("a"), &cached("{\"schema\":\"olm.package\"}\n")).unwrap();
        let path = dir.path().join(key("a").file_name());
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            for damaged in [&flipped[..], &whole[..at]] {
                std::fs::write(&path, damaged).unwrap();
                let found = store.get(&key("a"));
                // the ETag alone is not hashed: a wrong one only costs a fetch
                let harmless = found.is_none()
                    || found
                        .is_some_and(|found| found.lines == cached("{\"schema\":\"olm.package\"}\n").lines);
                assert!(harmless, "byte {at}");
            }
        }
        std::fs::write(&path, b"").unwrap();
        assert_eq!(store.get(&key("a")), None);
        assert!(!path.exists());
        store.put(&key("a"), &cached("x")).unwrap();
        assert_eq!(store.get(&key("a")), Some(cached("x")));
    }

    #[test]
    fn package_store_evicts_least_recently_used() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(dir.path(), 10_000);
        let text = "x".repeat(1_000);
        let old = SystemTime::now() - Duration::from_secs(10_000);
        for number in 0..6_u32 {
            store.put(&key(&number.to_string()), &cached(&text)).unwrap();
            let file = std::fs::File::options()
                .append(true)
                .open(dir.path().join(key(&number.to_string()).file_name()));
            file.unwrap().set_modified(old + Duration::from_secs(u64::from(number))).unwrap();
        }
        // used again: the first is now the youngest
        assert!(store.get(&key("0")).is_some());
        std::fs::write(dir.path().join(".new-left"), "half").unwrap();
        let left = std::fs::File::options().append(true).open(dir.path().join(".new-left")).unwrap();
        left.set_modified(old).unwrap();
        for number in 6..10_u32 {
            store.put(&key(&number.to_string()), &cached(&text)).unwrap();
        }
        let there = |number: u32| store.get(&key(&number.to_string())).is_some();
        assert!(there(0) && there(9) && !there(1), "{:?}", (0..10).map(there).collect::<Vec<_>>());
        assert!(!dir.path().join(".new-left").exists());
        let bytes: u64 = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes <= 10_000, "{bytes}");
        // too large to be cached
        store.put(&key("huge"), &cached(&"x".repeat(3_000))).unwrap();
        assert!(store.get(&key("huge")).is_none());
    }
}
