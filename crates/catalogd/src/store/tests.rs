//! The store on a real directory: what survives a restart, what is refused, what is collected.

use std::mem::ManuallyDrop;

use super::*;

fn digest(letter: char) -> Digest {
    format!("sha256:{}", letter.to_string().repeat(64)).parse().unwrap()
}

fn line(name: &str) -> Vec<u8> {
    format!("{{\"name\":\"{name}\",\"schema\":\"olm.package\",\"x\":\"{}\"}}\n", "y".repeat(600)).into_bytes()
}

fn empty() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(root.path()).unwrap();
    (root, store)
}

fn to_write(dir: &Path, file: &str) -> File {
    File::options().write(true).open(dir.join(file)).unwrap()
}

/// Writes lines of JSON as one file, like an image that holds it.
fn write(staging: Staging, lines: &[u8]) -> Result<(Arc<Content>, Lease), StoreError> {
    let mut ingest = olm_fbc::Ingest::new(staging.spool()?, olm_fbc::IngestLimits::default());
    ingest.file("catalog.json", &mut &lines[..]).unwrap();
    staging.commit(ingest.finish().unwrap())
}

fn store_one(store: &Store, letter: char, names: &[&str]) -> (Arc<Content>, Lease) {
    let lines: Vec<u8> = names.iter().flat_map(|name| line(name)).collect();
    write(store.stage(store.lease(&digest(letter))).unwrap(), &lines).unwrap()
}

fn served(content: Arc<Content>) -> Served {
    Served {
        reference: format!("example.com/c@{}", content.digest()),
        source: None,
        content,
        last_unpacked: 1_700_000_000,
    }
}

fn is_full(error: &StoreError) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    matches!(error, StoreError::Write(error) if full.contains(&error.kind()))
}

fn body(content: &Content) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(content.jsonl().size()).unwrap()];
    content.jsonl().read_at(&mut bytes, 0).unwrap();
    bytes
}

fn entries(root: &Path, dir: &str) -> Vec<String> {
    names::list(&root.join(dir)).unwrap()
}

#[test]
fn store_serves_content_again_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let (store, opened) = Store::open(root.path()).unwrap();
    assert!(opened.served.is_empty());
    let (content, _lease) = store_one(&store, 'a', &["one", "two"]);
    assert_eq!(body(&content), [line("one"), line("two")].concat());
    assert!(content.gzip().is_some() && content.zstd().is_some());
    content.verify().unwrap();
    store.publish("cat", served(content)).unwrap();
    assert!(matches!(Store::open(root.path()), Err(StoreError::InUse(_))), "one process a directory");
    drop((_lease, store));

    let (store, opened) = Store::open(root.path()).unwrap();
    assert_eq!((opened.served, opened.lost), (vec!["cat".to_owned()], vec![]));
    let again = store.get("cat").unwrap();
    assert_eq!(again.last_unpacked, 1_700_000_000);
    assert_eq!(again.content.index().len(), 2);
    assert_eq!(body(&again.content), [line("one"), line("two")].concat());
}

#[test]
fn store_small_and_empty_catalogs_have_no_copies() {
    let (_root, store) = empty();
    let (content, _lease) = store_one(&store, 'a', &[]);
    assert_eq!(content.jsonl().size(), 0);
    assert!(content.gzip().is_none() && content.zstd().is_none());
}

#[test]
fn store_compressed_copies_have_equal_bytes() {
    let (_root, store) = empty();
    let (content, _lease) = store_one(&store, 'a', &["one", "two", "three"]);
    assert_eq!(gunzipped(&content), body(&content));
    assert_eq!(zstd::decode_all(all(content.zstd().unwrap()).as_slice()).unwrap(), body(&content));
}

fn all(blob: &Blob) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(blob.size()).unwrap()];
    blob.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn gunzipped(content: &Content) -> Vec<u8> {
    let (gzip, mut plain) = (all(content.gzip().unwrap()), Vec::new());
    io::Read::read_to_end(&mut flate2::read::GzDecoder::new(gzip.as_slice()), &mut plain).unwrap();
    plain
}

/// A catalog that is served before it has copies.
fn large(store: &Store, letter: char) -> (Arc<Content>, Lease) {
    let names: Vec<String> = (0..=COMPRESS_BEFORE_SERVING / 600).map(|n| format!("n{n}")).collect();
    store_one(store, letter, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn store_large_catalogs_get_copies_later() {
    let (root, store) = empty();
    let (content, lease) = large(&store, 'a');
    assert!(content.lacks_copies() && content.gzip().is_none());
    assert!(store.uncompressed().is_empty(), "not served yet");
    store.publish("x", served(content.clone())).unwrap();
    store.publish("y", served(content.clone())).unwrap();
    drop(lease);
    assert_eq!(store.uncompressed().len(), 1, "one digest is compressed once");

    assert!(store.compress(&content, &|| true).is_err(), "stopped");
    assert!(content.lacks_copies() && entries(root.path(), "staging").is_empty());
    store.compress(&content, &|| false).unwrap();
    assert!(store.uncompressed().is_empty() && entries(root.path(), "staging").is_empty());
    content.verify().unwrap();
    assert_eq!(gunzipped(&content), body(&content));
    drop((content, store));

    let (store, opened) = Store::open(root.path()).unwrap();
    assert!(opened.lost.is_empty() && store.get("x").unwrap().content.gzip().is_some());
}

#[test]
fn store_zstd_copy_of_a_large_catalog_waits_for_a_client() {
    let (root, store) = empty();
    let (content, lease) = large(&store, 'a');
    store.publish("x", served(content.clone())).unwrap();
    drop(lease);
    store.compress(&content, &|| false).unwrap();
    assert!(content.zstd().is_none() && store.uncompressed().is_empty());

    store.request_zstd(&content);
    assert_eq!(store.uncompressed().len(), 1);
    store.compress(&content, &|| false).unwrap();
    assert!(store.uncompressed().is_empty() && entries(root.path(), "staging").is_empty());
    assert_eq!(zstd::decode_all(all(content.zstd().unwrap()).as_slice()).unwrap(), body(&content));
    let dir = content.dir().to_owned();
    drop((content, store));

    // found after a restart, also where an earlier version put it
    for earlier in [false, true] {
        if earlier {
            std::fs::remove_dir_all(dir.join("copies")).unwrap();
            std::fs::remove_dir_all(dir.join("copy-zstd")).unwrap();
            let plain =
                Blob::open(&dir, content::CATALOG, &files::Manifest::read(&dir, &digest('a')).unwrap())
                    .unwrap();
            let both = [Coding::Gzip, Coding::Zstd];
            copies::write(&plain, &dir.join("copies"), &digest('a'), &both, &|| false).unwrap();
        }
        let (store, opened) = Store::open(root.path()).unwrap();
        let content = store.get("x").unwrap().content.clone();
        assert!(opened.lost.is_empty() && content.zstd().is_some(), "earlier: {earlier}");
        assert_eq!(gunzipped(&content), body(&content));
        content.verify().unwrap();
    }
}

/// Files in the order of an archive, and which of them come before others when the catalog is read.
#[test]
fn store_writes_content_once_in_whatever_order_it_comes() {
    let many: Vec<String> = (0..1200).rev().map(|n| format!("{n:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (case, files, is_kept) in [
        ("in order", &["a", "b", "c"][..], true),
        ("in another order", &["c", "a", "b"], true),
        ("in many parts", &many, false),
        ("with a file that is replaced", &["j", "a", "b", "c", "d", "e", "f", "g", "h", "i", "a"], true),
        ("with many such files", &["c", "a", "b", "b", "b", "a"], false),
    ] {
        let (root, store) = empty();
        let staging = store.stage(store.lease(&digest('a'))).unwrap();
        let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        let lines = |name: &str| [line(name), line("x")].concat().repeat(3);
        for name in files {
            ingest.file(&format!("{name}.json"), &mut lines(name).as_slice()).unwrap();
        }
        let written: Vec<u8> = files.iter().flat_map(|name| lines(name)).collect();
        let (content, lease) = staging.commit(ingest.finish().unwrap()).unwrap();
        let mut sorted = files.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let want: Vec<u8> = sorted.iter().flat_map(|name| lines(name)).collect();
        store.publish("x", served(content)).unwrap();
        drop((lease, store));

        let (store, opened) = Store::open(root.path()).unwrap();
        assert!(opened.lost.is_empty(), "{case}: {:?}", opened.lost);
        let content = store.get("x").unwrap().content.clone();
        assert_eq!(body(&content), want, "{case}");
        for at in [0, 700, want.len() - 1] {
            let mut part = vec![0; (want.len() - at).min(2000)];
            content.jsonl().read_at(&mut part, at as u64).unwrap();
            assert_eq!(part, want[at..at + part.len()], "{case}: from {at}");
        }
        assert!(content.jsonl().read_at(&mut [0; 2], want.len() as u64 - 1).is_err(), "{case}");
        store.compress(&content, &|| false).unwrap();
        assert_eq!(gunzipped(&content), want, "{case}");
        content.verify().unwrap();
        let stored = std::fs::read(content.dir().join("catalog.jsonl")).unwrap();
        assert_eq!(stored == written, is_kept, "{case}");
        // a damaged byte is found wherever it lies
        let file = to_write(content.dir(), "catalog.jsonl");
        std::os::unix::fs::FileExt::write_all_at(&file, b"!", 3).unwrap();
        assert!(content.verify().is_err(), "{case}");
    }
}

#[test]
fn store_content_removed_while_compressed_stays_removed() {
    let (root, store) = empty();
    let (content, lease) = large(&store, 'a');
    drop(lease);
    // A collection in the middle spares what is being compressed; damage does not.
    let collect_then_condemn = || {
        assert_eq!(store.collect(None).unwrap(), Collected::default(), "the lease protects both");
        false
    };
    store.compress(&content, &collect_then_condemn).unwrap();
    assert!(!content.lacks_copies());
    let (content, lease) = large(&store, 'b');
    let condemned = || {
        store.condemn(content.digest()).1.unwrap();
        false
    };
    store.compress(&content, &condemned).unwrap();
    drop(lease);
    assert!(content.lacks_copies());
    store.collect(None).unwrap();
    assert!(entries(root.path(), "content").is_empty() && entries(root.path(), "staging").is_empty());
}

#[test]
fn store_incomplete_copies_are_made_again() {
    let damages: [fn(&Path); 3] = [
        |dir| std::fs::remove_file(dir.join("manifest.json")).unwrap(),
        |dir| to_write(dir, "catalog.jsonl.gz").set_len(9).unwrap(),
        |dir| std::fs::remove_file(dir.join("catalog.jsonl.zst")).unwrap(),
    ];
    for damage in damages {
        let (root, store) = empty();
        let (content, lease) = store_one(&store, 'a', &["one", "two"]);
        damage(&content.dir().join("copies"));
        store.publish("cat", served(content)).unwrap();
        drop((lease, store));
        let (store, opened) = Store::open(root.path()).unwrap();
        assert!(opened.lost.is_empty(), "{:?}", opened.lost);
        let content = store.get("cat").unwrap().content.clone();
        assert!(content.gzip().is_none());
        store.request_zstd(&content);
        store.compress(&content, &|| false).unwrap();
        assert!(content.gzip().is_some() && content.zstd().is_some());
        content.verify().unwrap();
    }
}

#[test]
fn store_full_disk_leaves_the_plain_catalog() {
    let (root, store) = empty();
    let (content, _lease) = large(&store, 'a');
    let fill = || {
        for dir in entries(root.path(), "staging") {
            // Every write to this device fails as on a full disk.
            let manifest = root.path().join("staging").join(dir).join("manifest.json");
            let _ = std::os::unix::fs::symlink("/dev/full", manifest);
        }
        false
    };
    assert!(is_full(&store.compress(&content, &fill).unwrap_err()));
    assert!(content.gzip().is_none() && entries(root.path(), "staging").is_empty());
    store.compress(&content, &|| false).unwrap();
    assert!(content.gzip().is_some());
}

#[test]
fn store_puts_files_into_walk_order() {
    let (_root, store) = empty();
    let staging = store.stage(store.lease(&digest('a'))).unwrap();
    let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
    for name in ["c", "a", "b"] {
        ingest.file(&format!("{name}.json"), &mut line(name).as_slice()).unwrap();
    }
    let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
    assert_eq!(body(&content), [line("a"), line("b"), line("c")].concat());
    content.verify().unwrap();
    let files = names::list(content.dir()).unwrap();
    assert_eq!(files, ["catalog.jsonl", "copies", "index", "manifest.json"]);
    let files = names::list(&content.dir().join("copies")).unwrap();
    assert_eq!(files, ["catalog.jsonl.gz", "catalog.jsonl.zst", "manifest.json"]);
}

#[test]
fn store_abandoned_writer_leaves_nothing() {
    let (root, store) = empty();
    let staging = store.stage(store.lease(&digest('a'))).unwrap();
    let mut spool = staging.spool().unwrap();
    io::Write::write_all(&mut spool, b"{}\n").unwrap();
    drop((spool, staging));
    assert!(entries(root.path(), "staging").is_empty());
    assert!(entries(root.path(), "content").is_empty());
}

#[test]
fn store_start_removes_leftovers_of_a_killed_process() {
    let (root, store) = empty();
    let _writer = ManuallyDrop::new(store.stage(store.lease(&digest('a'))).unwrap());
    assert_eq!(entries(root.path(), "staging").len(), 1);
    // The leaked writer keeps the store alive; a new process would find the lock free.
    store.0._lock.unlock().unwrap();
    let _ = Store::open(root.path()).unwrap();
    assert!(entries(root.path(), "staging").is_empty());
}

#[test]
fn store_names_of_one_digest_share_its_content() {
    let (root, store) = empty();
    let (first, lease) = store_one(&store, 'a', &["one"]);
    store.publish("x", served(first.clone())).unwrap();
    let (second, _) = store_one(&store, 'a', &["one"]);
    assert!(Arc::ptr_eq(&first, &second), "open files are shared");
    store.publish("y", served(second)).unwrap();
    drop(lease);
    assert_eq!(entries(root.path(), "content").len(), 1);
    assert!(store.withdraw("x").unwrap());
    assert_eq!(store.collect(None).unwrap(), Collected::default(), "y still needs it");
    assert!(store.withdraw("y").unwrap());
    assert_eq!(store.collect(None).unwrap().contents.len(), 1);
    assert_eq!(body(&first), line("one"), "a reader that holds it can still read it");
}

#[test]
fn store_collection_spares_writers_and_leases() {
    let (root, store) = empty();
    let (content, lease) = store_one(&store, 'a', &["one"]);
    let staging = store.stage(store.lease(&digest('b'))).unwrap();
    assert_eq!(store.collect(None).unwrap(), Collected::default());
    let (other, other_lease) = write(staging, &line("n")).unwrap();
    store.publish("other", served(other)).unwrap();
    store.publish("gone", served(content)).unwrap();
    drop((lease, other_lease));
    let collected = store.collect(Some(&|name| name == "other")).unwrap();
    assert_eq!(
        (collected.names, collected.contents),
        (vec!["gone".to_owned()], vec![digest('a').to_string()])
    );
    assert!(store.get("gone").is_none() && store.get("other").is_some());
    assert!(entries(root.path(), "staging").is_empty());
}

#[test]
fn store_finds_damage() {
    use std::os::unix::fs::FileExt;
    type Damage = fn(&Path);
    #[rustfmt::skip]
    let cases: [(&str, Damage, bool); 6] = [
        ("no manifest", |dir| std::fs::remove_file(dir.join("manifest.json")).unwrap(), false),
        ("cut manifest", |dir| to_write(dir, "manifest.json").set_len(40).unwrap(), false),
        ("cut catalog", |dir| to_write(dir, "catalog.jsonl").set_len(9).unwrap(), false),
        ("changed index", |dir| to_write(dir, "index").write_all_at(b"x", 30).unwrap(), false),
        ("changed catalog", |dir| to_write(dir, "catalog.jsonl").write_all_at(b"x", 30).unwrap(), true),
        ("changed copy", |dir| to_write(dir, "copies/catalog.jsonl.gz").write_all_at(b"x", 30).unwrap(), true),
    ];
    for (case, damage, only_by_checksum) in cases {
        let (root, store) = empty();
        let (content, lease) = store_one(&store, 'a', &["one", "two"]);
        damage(content.dir());
        store.publish("cat", served(content)).unwrap();
        drop((lease, store));
        let (store, opened) = Store::open(root.path()).unwrap();
        assert_eq!(opened.lost.len(), usize::from(!only_by_checksum), "{case}");
        if only_by_checksum {
            let content = store.get("cat").unwrap().content.clone();
            assert!(
                matches!(content.verify(), Err(ContentError::Damaged { file }) if file.starts_with("catalog.jsonl")),
                "{case}"
            );
            let (names, removed) = store.condemn(content.digest());
            removed.unwrap();
            assert_eq!(names, ["cat"]);
        }
        assert!(store.get("cat").is_none(), "{case}");
        let (content, _lease) = store_one(&store, 'a', &["one", "two"]);
        content.verify().unwrap();
    }
}

#[test]
fn store_damaged_content_goes_though_a_name_stays() {
    let (root, store) = empty();
    let (content, _lease) = store_one(&store, 'a', &["one"]);
    for name in ["x", "y"] {
        store.publish(name, served(content.clone())).unwrap();
    }
    // what is no file cannot be removed as one
    let name = root.path().join("names/x");
    std::fs::remove_file(&name).unwrap();
    std::fs::create_dir(&name).unwrap();
    let (names, removed) = store.condemn(content.digest());
    assert!(removed.is_err());
    assert_eq!(names, ["x", "y"], "both are to be pulled again");
    assert!(store.serving().is_empty());
    assert_eq!(entries(root.path(), "names"), ["x"]);
    assert!(entries(root.path(), "content").is_empty());
    // by a pass that had found it before
    let published = store.publish("z", served(content));
    assert!(matches!(published, Err(StoreError::Content(ContentError::Damaged { .. }))), "{published:?}");
    assert!(store.serving().is_empty());
}

#[test]
fn store_name_moves_between_digests() {
    let (root, store) = empty();
    for letter in ['a', 'b', 'a'] {
        let (content, _lease) = store_one(&store, letter, &[&letter.to_string()]);
        store.publish("cat", served(content)).unwrap();
        assert_eq!(store.get("cat").unwrap().content.digest(), &digest(letter));
    }
    store.collect(None).unwrap();
    assert_eq!(entries(root.path(), "content"), [digest('a').to_string()]);
}

#[test]
fn store_rejects_names_that_are_paths() {
    let (_root, store) = empty();
    let (content, _lease) = store_one(&store, 'a', &["one"]);
    for name in ["", "..", ".", "a/b"] {
        assert!(matches!(store.publish(name, served(content.clone())), Err(StoreError::Name(_))), "{name:?}");
        assert!(store.get(name).is_none(), "{name:?}");
    }
}

#[test]
fn store_full_disk_loses_nothing_and_leaves_nothing() {
    for file in ["spool", "catalog.jsonl", "index", "manifest.json"] {
        let (root, store) = empty();
        let (content, lease) = store_one(&store, 'a', &["one"]);
        store.publish("cat", served(content)).unwrap();
        drop(lease);
        let staging = store.stage(store.lease(&digest('b'))).unwrap();
        let dir = entries(root.path(), "staging").pop().unwrap();
        // Every write to this device fails as on a full disk.
        let place = root.path().join("staging").join(dir).join(file);
        std::os::unix::fs::symlink("/dev/full", place).unwrap();
        let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        // So much is replaced that the catalog is a file of its own.
        for name in ["b", "a", "b", "b"] {
            ingest.file(&format!("{name}.json"), &mut line(name).as_slice()).unwrap();
        }
        let error = match ingest.finish() {
            Ok(ingested) => staging.commit(ingested).unwrap_err(),
            Err(olm_fbc::IngestError::Write(error)) => {
                drop(staging);
                StoreError::Write(error)
            }
            Err(error) => panic!("{file}: {error}"),
        };
        assert!(is_full(&error), "{file}: {error}");
        assert_eq!(body(&store.get("cat").unwrap().content), line("one"), "{file}");
        assert!(entries(root.path(), "staging").is_empty(), "{file}");
        assert_eq!(entries(root.path(), "content"), [digest('a').to_string()], "{file}");
        let (content, _lease) = store_one(&store, 'b', &["a", "b"]);
        content.verify().unwrap();
    }
}

#[test]
fn store_attempts_count_ends_of_the_process() {
    let (root, store) = empty();
    let digest = digest('a');
    let die = |store: &Store| ManuallyDrop::new(store.attempt(&digest).unwrap());
    // a process that dies leaves its attempts; the next one reads what is on disk
    let restarted = |store: Store| {
        store.0._lock.unlock().unwrap();
        Store::open(root.path()).unwrap().0
    };
    die(&store);
    die(&store);
    assert_eq!(store.unfinished_attempts(&digest), 0, "they still run");
    let store = restarted(store);
    assert_eq!(store.unfinished_attempts(&digest), 1, "two attempts in one process are one death");
    drop(store.attempt(&digest).unwrap());
    assert_eq!(store.unfinished_attempts(&digest), 1, "given up");
    die(&store);
    let store = restarted(store);
    assert_eq!(store.unfinished_attempts(&digest), 2);
    let (first, second) = (store.attempt(&digest).unwrap(), store.attempt(&digest).unwrap());
    first.finish();
    drop(second);
    assert_eq!(store.unfinished_attempts(&digest), 0);
    assert!(entries(root.path(), "attempts").is_empty());
    die(&store);
    let store = restarted(store);
    store.clear_attempts(&digest).unwrap();
    assert_eq!(store.unfinished_attempts(&digest), 0);

    // torn or foreign files count as none, and there are never many
    for n in 0..300 {
        std::fs::write(root.path().join(format!("attempts/{n}")), "x").unwrap();
    }
    let _store = restarted(store);
    assert_eq!(entries(root.path(), "attempts").len(), 256);
}
