//! The store on a disk that stops working, fills up or loses data, under collectors, and under concurrent writers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use olm_core::{Digest, DigestAlgorithm, ImageRef};

use super::disk::{Disk, Lock, RealDisk};
use super::tags::{MAX_SCOPES, MAX_TAGS};
use super::{Staging, Store, StoreError};
use crate::layer::hash_of;

fn digest(text: &str) -> Digest {
    hash_of(DigestAlgorithm::Sha256, text.as_bytes()).unwrap()
}

fn fill(path: &Path, text: &str) {
    std::fs::create_dir_all(path.join("sub/dir")).unwrap();
    std::fs::write(path.join("a"), text).unwrap();
    std::fs::write(path.join("sub/dir/b"), text.repeat(1000)).unwrap();
}

fn put(store: &Store, text: &str) -> Result<super::Lease, StoreError> {
    let staging = store.begin(&digest(text))?;
    fill(staging.path(), text);
    staging.commit()
}

fn holds(store: &Store, text: &str) -> bool {
    match store.get(&digest(text)).unwrap() {
        None => false,
        Some(lease) => {
            assert_eq!(std::fs::read_to_string(lease.path().join("a")).unwrap(), text);
            assert_eq!(std::fs::read_to_string(lease.path().join("sub/dir/b")).unwrap(), text.repeat(1000));
            true
        }
    }
}

fn entries(path: &Path) -> Vec<String> {
    let mut names = super::names(path).unwrap();
    names.sort();
    names
}

/// A disk that works for a number of operations; the one after that is done by half, and then nothing happens any more, as
/// if the process were dead (its clean-up included).
#[derive(Debug, Clone)]
struct Dying {
    left: Arc<AtomicUsize>,
    dead: Arc<AtomicBool>,
}

impl Dying {
    fn after(operations: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(operations)), dead: Arc::default() }
    }

    fn step(&self, whole: impl FnOnce() -> io::Result<()>, half: impl FnOnce()) -> io::Result<()> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(io::Error::other("dead"));
        }
        if self.left.load(Ordering::SeqCst) == 0 {
            self.dead.store(true, Ordering::SeqCst);
            half();
            return Err(io::Error::other("dead"));
        }
        self.left.fetch_sub(1, Ordering::SeqCst);
        whole()
    }
}

impl Disk for Dying {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|| RealDisk.create_dir(path), || ())
    }
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step(|| RealDisk.write(path, bytes), || drop(RealDisk.write(path, &bytes[..bytes.len() / 2])))
    }
    fn sync(&self, path: &Path) -> io::Result<()> {
        self.step(|| RealDisk.sync(path), || ())
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| RealDisk.rename(from, to), || ())
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.step(
            || RealDisk.remove_dir_all(path),
            || drop(std::fs::remove_file(path.join("a"))), // one file is gone, the rest is there
        )
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step(|| RealDisk.remove_file(path), || ())
    }
}

/// Stops after every possible number of operations; then a new process opens the store.
fn die_everywhere(work: impl Fn(&Store) -> Result<(), StoreError>, check: impl Fn(&Store, bool)) -> usize {
    for operations in 0.. {
        let directory = tempfile::tempdir().unwrap();
        put(&Store::open(directory.path()).unwrap(), "before").unwrap();
        let done = Store::open_on(directory.path(), Box::new(Dying::after(operations)))
            .and_then(|store| work(&store))
            .is_ok();
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(entries(&store.staging()), Vec::<String>::new(), "swept after {operations}");
        check(&store, done);
        store.collect(|_| false).unwrap();
        for place in [store.content(), store.staging(), store.locks()] {
            assert_eq!(entries(&place), Vec::<String>::new(), "nothing is left after {operations}");
        }
        if done {
            return operations;
        }
    }
    unreachable!()
}

#[test]
fn store_commit_is_atomic_at_every_step() {
    let points = die_everywhere(
        |store| put(store, "new").map(|_| ()),
        |store, done| {
            assert!(holds(store, "before"));
            let there = holds(store, "new");
            assert!(there || !done, "what was reported as stored is there");
            assert!(put(store, "new").is_ok() && holds(store, "new"), "and can be stored again");
        },
    );
    assert!(points >= 12, "{points} points");
}

#[test]
fn store_remove_is_atomic_at_every_step() {
    let points = die_everywhere(
        |store| {
            put(store, "other")?;
            store.remove(&digest("before")).map(|_| ())
        },
        |store, done| {
            let there = holds(store, "before");
            assert!(!(there && done));
        },
    );
    assert!(points >= 14, "{points} points");
}

#[test]
fn store_collect_is_atomic_at_every_step() {
    die_everywhere(
        |store| store.collect(|_| false).map(|_| ()),
        |store, done| {
            assert!(!(holds(store, "before") && done));
        },
    );
}

#[derive(Debug)]
struct Full;

impl Disk for Full {
    fn write(&self, _: &Path, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn store_reports_full_disk_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_on(directory.path(), Box::new(Full)).unwrap();
    let error = put(&store, "x").unwrap_err();
    assert!(error.to_string().ends_with(": no space left on device"), "{error}");
    assert_eq!(entries(&store.staging()), Vec::<String>::new());
    assert_eq!(store.digests().unwrap(), []);
}

fn tag(name: impl std::fmt::Display) -> ImageRef {
    format!("registry.test/c:{name}").parse().unwrap()
}

/// Has all entries of a folder be used last a long time ago.
fn age(folder: &Path) {
    for name in entries(folder) {
        let entry = std::fs::File::open(folder.join(name)).unwrap();
        entry.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
}

#[test]
fn tag_record_is_atomic_at_every_step() {
    for operations in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.record_tag("ns", &tag("v1"), &digest("before")).unwrap();
        let dying = Box::new(Dying::after(operations));
        let recorded = Store::open_on(directory.path(), dying)
            .and_then(|store| store.record_tag("ns", &tag("v1"), &digest("new")));
        let found = store.tag_digest("ns", &tag("v1")).unwrap();
        let is_new = found == digest("new");
        assert!(is_new || found == digest("before"), "{operations}: {found}");
        assert!(is_new || recorded.is_err(), "{operations}: what was reported as recorded is there");
        assert_eq!(store.tag_digest("other", &tag("v1")), None);
        if recorded.is_ok() {
            assert!(operations >= 4, "{operations}");
            return;
        }
    }
}

#[test]
fn tag_records_are_bounded_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let record = |scope: &str, number: usize| store.record_tag(scope, &tag(number), &digest("x")).unwrap();
    let found = |scope: &str, number: usize| store.tag_digest(scope, &tag(number));
    record("other", 0);
    age(&store.tags_in("other"));
    (0..MAX_TAGS).for_each(|number| record("ns", number));
    let folder = store.tags_in("ns");
    age(&folder);
    assert_eq!(found("ns", 0), Some(digest("x")), "a lookup is a use");
    record("ns", 1);
    (MAX_TAGS..MAX_TAGS * 2 - 2).for_each(|number| record("ns", number));
    assert_eq!(entries(&folder).len(), MAX_TAGS);
    assert_eq!([0, 1, 2, MAX_TAGS].map(|number| found("ns", number).is_some()), [true, true, false, true]);
    assert_eq!(found("other", 0), Some(digest("x")), "no scope evicts the tags of another");
    for name in entries(&folder) {
        std::fs::write(folder.join(name), "sha256:0").unwrap();
    }
    assert_eq!(found("ns", 0), None, "it is no digest");
}

#[test]
fn use_records_are_bounded_by_scopes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let record = |scope: &str| {
        store.record_tag(scope, &tag("v1"), &digest("x")).unwrap();
        store.record_use(scope, &digest("x")).unwrap();
    };
    let found =
        |scope: &str| (store.tag_digest(scope, &tag("v1")).is_some(), store.was_used(scope, &digest("x")));
    record("ns");
    (0..300).for_each(|number: usize| store.record_use("other", &digest(&number.to_string())).unwrap());
    assert!(store.was_used("ns", &digest("x")) && store.was_used("other", &digest("0")));
    assert!(!store.was_used("ns", &digest("0")) && !store.was_used("other", &digest("x")));
    let folders = [store.tags(), store.uses_of(&digest("x"))];
    for number in 0..MAX_SCOPES {
        std::fs::create_dir(folders[0].join(number.to_string())).unwrap();
        std::fs::write(folders[1].join(number.to_string()), "").unwrap();
    }
    folders.iter().for_each(|folder| age(folder));
    assert_eq!(found("ns"), (true, true), "a lookup is a use");
    record("new");
    assert_eq!(folders.map(|folder| entries(&folder).len()), [MAX_SCOPES, MAX_SCOPES]);
    assert_eq!([found("ns"), found("new")], [(true, true), (true, true)]);
    let uses = store.uses_of(&digest("x"));
    age(&uses);
    store.renew_use("new", &digest("x"));
    store.renew_use("never", &digest("x"));
    let renewed = entries(&uses).into_iter().filter(|name| {
        let modified = std::fs::metadata(uses.join(name)).and_then(|it| it.modified());
        modified.unwrap() > std::time::SystemTime::UNIX_EPOCH
    });
    assert_eq!(renewed.count(), 1, "no record is made");
}

#[test]
fn tag_records_go_with_their_content() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    drop((put(&store, "a").unwrap(), put(&store, "b").unwrap()));
    for (name, text) in [("1", "a"), ("2", "a"), ("3", "b")] {
        store.record_tag("ns", &tag(name), &digest(text)).unwrap();
        store.record_use("ns", &digest(text)).unwrap();
    }
    let earlier_layout = store.tags().join("0".repeat(64));
    std::fs::write(&earlier_layout, digest("b").as_str()).unwrap();
    store.collect(|known| *known == digest("b")).unwrap();
    let found = ["1", "2", "3"].map(|name| store.tag_digest("ns", &tag(name)));
    assert_eq!(found, [None, None, Some(digest("b"))]);
    assert_eq!(["a", "b"].map(|text| store.was_used("ns", &digest(text))), [false, true]);
    assert!(!store.uses_of(&digest("a")).exists() && !earlier_layout.exists());
}

/// A thread that records tags evicts the scopes that were not used for the longest time.
#[test]
fn store_collect_ignores_records_that_vanish() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.record_tag("ns", &tag("v1"), &digest("x")).unwrap();
    let (evicted, is_done) = (store.tags_in("evicted"), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                std::fs::create_dir(&evicted).unwrap();
                std::fs::write(evicted.join("record"), "sha256:0").unwrap();
                std::fs::remove_dir_all(&evicted).unwrap();
            }
        });
        let failed = (0..2000).find_map(|_| store.collect(|_| true).err());
        is_done.store(true, Ordering::SeqCst);
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn staging_leaves_nothing_when_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let staging = store.begin(&digest("x")).unwrap();
    fill(staging.path(), "x");
    drop(staging);
    assert_eq!(entries(&store.staging()), Vec::<String>::new());
}

#[test]
fn store_collect_keeps_leased_content() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    // a second opening stands for another process: the locks are the system's
    let other = Store::open(directory.path()).unwrap();
    let lease = put(&store, "a").unwrap();
    put(&store, "b").unwrap();
    put(&store, "c").unwrap();
    let clone = lease.clone();
    drop(lease);
    let done = other.collect(|known| *known == digest("c")).unwrap();
    assert_eq!(done, [digest("b")]);
    assert!(holds(&store, "a") && holds(&store, "c") && !holds(&store, "b"));
    drop(clone);
    assert_eq!(other.collect(|_| false).unwrap().len(), 2);
    assert_eq!(store.digests().unwrap(), []);
    assert_eq!(entries(&store.locks()), Vec::<String>::new());
    assert!(store.remove(&digest("never")).unwrap());
}

#[test]
fn store_collect_keeps_content_being_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let staging: Staging = store.begin(&digest("x")).unwrap();
    fill(staging.path(), "x");
    Store::open(directory.path()).unwrap().collect(|_| false).unwrap();
    let lease = staging.commit().unwrap();
    assert!(holds(&store, "x"));
    assert!(!store.remove(&digest("x")).unwrap(), "leased from its first moment");
    drop(lease);
}

#[test]
fn store_concurrent_commits_share_one_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let (first, second) = (store.begin(&digest("x")).unwrap(), store.begin(&digest("x")).unwrap());
    fill(first.path(), "x");
    fill(second.path(), "x");
    let first = first.commit().unwrap();
    let second = second.commit().unwrap();
    assert_eq!(first.path(), second.path());
    assert!(holds(&store, "x"));
    assert_eq!(entries(&store.staging()), Vec::<String>::new());
}

#[test]
fn store_detects_damaged_content() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    type Spoil = fn(&Path);
    let cheap: [(&str, Spoil); 6] = [
        ("shorter", |path| std::fs::write(path.join("a"), "").unwrap()),
        ("missing", |path| std::fs::remove_file(path.join("a")).unwrap()),
        ("added", |path| std::fs::write(path.join("new"), "x").unwrap()),
        ("no seal", |path| std::fs::remove_file(path.join(".seal")).unwrap()),
        ("half a seal", |path| {
            let seal = std::fs::read(path.join(".seal")).unwrap();
            std::fs::write(path.join(".seal"), &seal[..seal.len() / 2]).unwrap();
        }),
        ("another seal", |path| {
            let seal = std::fs::read_to_string(path.join(".seal")).unwrap();
            std::fs::write(path.join(".seal"), seal.replace("\"format\":1", "\"format\":2")).unwrap();
        }),
    ];
    for (name, spoil) in cheap {
        let lease = put(&store, "x").unwrap();
        spoil(lease.path());
        drop(lease);
        assert!(!holds(&store, "x"), "{name}");
        assert_eq!(store.digests().unwrap(), [], "{name}: damaged content is taken away");
    }
    // also under a lease
    let lease = put(&store, "x").unwrap();
    std::fs::write(lease.path().join("a"), "").unwrap();
    assert!(store.get(&digest("x")).unwrap().is_none());
}

#[test]
fn store_rejects_content_of_another_digest() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    drop(put(&store, "x").unwrap());
    std::fs::rename(store.place(&digest("x")), store.place(&digest("y"))).unwrap();
    assert!(store.get(&digest("y")).unwrap().is_none());
}

#[test]
fn store_rejects_symlinks() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let staging = store.begin(&digest("x")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", staging.path().join("link")).unwrap();
    let text = staging.commit().unwrap_err().to_string();
    assert!(text.contains("neither a regular file nor a directory"), "{text}");
}

#[test]
fn store_keeps_foreign_entries() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    std::fs::create_dir(directory.path().join("lost+found")).unwrap();
    std::fs::create_dir(store.content().join("something")).unwrap();
    put(&store, "x").unwrap();
    store.collect(|_| false).unwrap();
    assert_eq!(entries(&store.content()), ["something"]);
    assert!(directory.path().join("lost+found").is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn store_fills_content_once_for_concurrent_callers() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let filled = Arc::new(AtomicUsize::new(0));
    let fails_first = Arc::new(AtomicBool::new(true));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (store, filled, fails_first) = (store.clone(), Arc::clone(&filled), Arc::clone(&fails_first));
            tokio::spawn(async move {
                let fill_it = async |path: std::path::PathBuf| {
                    filled.fetch_add(1, Ordering::SeqCst);
                    fill(&path, "x");
                    tokio::task::yield_now().await;
                    match fails_first.swap(false, Ordering::SeqCst) {
                        true => Err(StoreError::Cancelled),
                        false => Ok(()),
                    }
                };
                store.get_or_fill(&digest("x"), fill_it).await.is_ok()
            })
        })
        .collect();
    let mut succeeded = 0;
    for task in tasks {
        succeeded += usize::from(task.await.unwrap());
    }
    assert_eq!((filled.load(Ordering::SeqCst), succeeded), (2, 7), "one failed, one filled, six found it");
    assert!(holds(&store, "x"));
    assert_eq!(entries(&store.staging()), Vec::<String>::new());
}

/// A lock of another process is waited for on a thread that may block, so that other tasks run meanwhile.
#[tokio::test]
async fn store_lock_of_another_process_blocks_no_task() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    put(&store, "x").unwrap();
    let path = store.locks().join(super::name_of(&digest("x")));
    let held = super::locked(&path, Lock::ExclusiveNow).unwrap().unwrap();
    let (release, released) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        let has_run = released.recv_timeout(Duration::from_secs(30)).is_ok();
        drop(held);
        has_run
    });
    let key = digest("x");
    let read = store.get_or_fill(&key, async |_: std::path::PathBuf| Err::<(), _>(StoreError::Cancelled));
    // `read` is polled first
    let (read, ()) = tokio::join!(biased; read, async move { _ = release.send(()) });
    assert!(read.is_ok(), "{read:?}");
    assert!(holder.join().unwrap(), "the other task ran");
}

/// Threads that store, read, collect and discard the same few digests at random: no wrong byte, no error but damage.
#[test]
fn store_never_shows_partial_content() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let root = directory.path();
            scope.spawn(move || {
                let store = Store::open(root).unwrap();
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for _ in 0..150 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let text = ["a", "b", "c"][(state % 3) as usize];
                    match (state >> 8) % 4 {
                        0 | 1 => drop(put(&store, text).unwrap()),
                        2 => {
                            holds(&store, text);
                        }
                        _ => {
                            store.collect(|_| false).unwrap();
                        }
                    }
                }
            });
        }
    });
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(entries(&store.staging()), Vec::<String>::new());
}
