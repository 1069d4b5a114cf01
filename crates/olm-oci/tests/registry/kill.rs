//! A process that stores and collects is killed (SIGKILL) at many different moments; what it leaves must be whole.
//!
//! The child is this test binary again, marked by an environment variable. It writes a byte before each step; the parent
//! kills it after reading so many of them, so the moments are spread over all steps without any clock.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use olm_core::{Digest, DigestAlgorithm};
use olm_oci::Store;
use sha2::Digest as _;

const CHILD: &str = "OLM_OCI_TEST_STORE";
const FILES: usize = 6;

fn digest(n: usize) -> Digest {
    let hash = sha2::Sha256::digest(n.to_string());
    Digest::from_hash(DigestAlgorithm::Sha256, hash.as_slice()).unwrap()
}

fn content(n: usize, file: usize) -> Vec<u8> {
    format!("{n} {file}").repeat(4000).into_bytes()
}

/// Stores digest after digest, keeps three, collects the rest.
fn work(root: &Path, mut report_step: impl FnMut()) {
    let store = Store::open(root).unwrap();
    for n in 0.. {
        report_step();
        let staging = store.begin(&digest(n)).unwrap();
        for file in 0..FILES {
            report_step();
            std::fs::create_dir_all(staging.path().join("d")).unwrap();
            std::fs::write(staging.path().join(format!("d/{file}")), content(n, file)).unwrap();
        }
        report_step();
        staging.commit().unwrap();
        report_step();
        let keep: Vec<Digest> = (n.saturating_sub(2)..=n).map(digest).collect();
        store.collect(|known| keep.contains(known)).unwrap();
    }
}

#[test]
fn store_child_runs_until_killed() {
    // does nothing unless the parent test started it
    let Some(root) = std::env::var_os(CHILD) else { return };
    let mut pipe = std::fs::File::options().write(true).open("/dev/stderr").unwrap();
    work(Path::new(&root), || pipe.write_all(b".").unwrap());
}

#[test]
fn store_survives_killed_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for round in 0..60_usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::store_child_runs_until_killed", "--exact", "--nocapture"])
            .env(CHILD, directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // 9 steps per digest: every residue is met, and later rounds go further
        let mut steps = vec![0; 1 + (round * 7) % 40];
        let read = child.stderr.take().unwrap().read_exact(&mut steps);
        child.kill().unwrap();
        child.wait().unwrap();
        read.unwrap();

        let store = Store::open(directory.path()).unwrap();
        let there = store.digests().unwrap();
        for known in &there {
            let lease =
                store.get(known).unwrap().unwrap_or_else(|| panic!("round {round}: {known} is damaged"));
            // the child continues until it is killed, so its last digest is not known
            let n = (0..1_000_000).find(|n| digest(*n) == *known).unwrap();
            for file in 0..FILES {
                assert_eq!(std::fs::read(lease.path().join(format!("d/{file}"))).unwrap(), content(n, file));
            }
            seen += 1;
        }
        let staging: Vec<_> = std::fs::read_dir(directory.path().join("staging")).unwrap().collect();
        assert!(staging.is_empty(), "round {round}: {staging:?}");
    }
    assert!(seen > 30, "contents were found after {seen} kills");
}
