//! Which images were found to be signed as the policy demands, so that a steady cluster asks for nothing.
//!
//! A verdict is about a policy with all its keys, a reference as the user wrote it and a digest; changing any of them
//! makes it another. Only acceptance is remembered, and only what stays true. On disk it lets a restarted process serve
//! what it has while the registry is away; who can write there can write the content beside it as well.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use olm_core::{Digest, ImageRef};
use sha2::Digest as _;

use super::policy::Policy;
use super::rekor::hex;

/// Verdicts remembered; older ones are looked up again.
const MAX_VERDICTS: usize = 4096;
/// A verdict in the file: 64 hex digits and the end of the line.
const LINE: usize = 65;

/// Remembers, in memory and, if there is a place for it, on disk.
#[derive(Debug)]
pub(crate) struct Verdicts {
    file: Option<PathBuf>,
    known: Mutex<Option<VecDeque<String>>>,
}

/// What a verdict is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case(String);

impl Case {
    pub(crate) fn new(policy: &Policy, asked: &ImageRef, digest: &Digest) -> Self {
        let mut hash = sha2::Sha256::new();
        for part in [policy.fingerprint(), &asked.to_string(), digest.as_str()] {
            hash.update(part);
            hash.update([0]);
        }
        Self(hex(&hash.finalize()))
    }
}

impl Verdicts {
    /// Nothing is read yet.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self { file, known: Mutex::default() }
    }

    /// Was it accepted before?
    pub(crate) fn accepted(&self, case: &Case) -> bool {
        self.with(|known| known.contains(&case.0))
    }

    /// Remembers that it was accepted. A disk that does not take it costs another look after a restart.
    pub(crate) fn accept(&self, case: Case) {
        self.with(|known| {
            if known.contains(&case.0) {
                return;
            }
            known.push_back(case.0);
            while known.len() > MAX_VERDICTS {
                known.pop_front();
            }
            if let Some(file) = &self.file
                && let Err(error) = save(file, known)
            {
                tracing::warn!(file = %file.display(), %error, "cannot keep which signatures were verified");
            }
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<String>) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        work(known.get_or_insert_with(|| self.file.as_deref().map(load).unwrap_or_default()))
    }
}

/// What is no verdict is passed over: it accepts nothing.
fn load(file: &Path) -> VecDeque<String> {
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|file| file.take((MAX_VERDICTS * LINE) as u64).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "cannot read which signatures were verified");
            VecDeque::new()
        }
        _ => text.lines().filter(|line| line.len() == LINE - 1).map(str::to_owned).collect(),
    }
}

fn save(file: &Path, known: &VecDeque<String>) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let fresh = file.with_extension("new");
    let mut written = std::fs::File::create(&fresh)?;
    for case in known {
        writeln!(written, "{case}")?;
    }
    written.sync_all()?;
    std::fs::rename(fresh, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(n: usize) -> Case {
        Case(format!("{n:064x}"))
    }

    #[test]
    fn verdicts_survive_and_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("deep/verified");
        let first = Verdicts::new(Some(file.clone()));
        assert!(!first.accepted(&case(1)));
        first.accept(case(1));
        first.accept(case(1));
        first.accept(case(2));
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
        let second = Verdicts::new(Some(file.clone()));
        assert!(second.accepted(&case(1)) && second.accepted(&case(2)) && !second.accepted(&case(3)));

        let many: String = (0..MAX_VERDICTS + 10).map(|n| format!("{n:064x}\n")).collect();
        std::fs::write(&file, many).unwrap();
        let third = Verdicts::new(Some(file.clone()));
        third.accept(case(MAX_VERDICTS + 99));
        assert!(!third.accepted(&case(0)) && third.accepted(&case(MAX_VERDICTS + 99)));
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), MAX_VERDICTS);
    }

    #[test]
    fn damage_accepts_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("verified");
        std::fs::write(&file, [0xff, 0xfe, b'\n']).unwrap();
        assert!(!Verdicts::new(Some(file.clone())).accepted(&case(1)));
        std::fs::write(&file, "short\n").unwrap();
        let verdicts = Verdicts::new(Some(file));
        assert!(!verdicts.accepted(&Case("short".into())));
        assert!(!Verdicts::new(Some(directory.path().to_owned())).accepted(&case(1)));
    }
}
