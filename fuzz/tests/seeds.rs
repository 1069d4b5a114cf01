//! The committed seeds through the functions that the fuzzer calls: what was found once stays fixed, without libFuzzer.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use olm_fuzz::TARGETS;

/// Bytes of all seeds together.
const MOST_BYTES: u64 = 300_000;
/// No seed may take longer; the slowest takes a hundredth of this.
const MOST_TIME: Duration = Duration::from_secs(20);

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn seeds_and_programs_exist_for_each_target() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&folder("targets")), known);
    assert_eq!(names(&folder("seeds")), known);
    for name in &known {
        let program = std::fs::read_to_string(folder("targets").join(format!("{name}.rs"))).unwrap();
        assert!(program.contains(&format!("run(\"{name}\"")), "{name} runs another target");
    }
    assert!(names(&folder("dictionaries")).is_subset(&known));
}

#[test]
fn seeds_keep_the_invariants() {
    let mut bytes = 0;
    for (name, target) in TARGETS {
        let mut seeds: Vec<PathBuf> = std::fs::read_dir(folder("seeds").join(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        seeds.sort();
        for seed in &seeds {
            eprintln!("{}", seed.display());
            let input = std::fs::read(seed).unwrap();
            bytes += input.len() as u64;
            let begun = Instant::now();
            target(&input);
            assert!(begun.elapsed() < MOST_TIME, "{} takes {:?}", seed.display(), begun.elapsed());
            // cut short, as a broken download is
            target(&input[..input.len() / 2]);
        }
        assert!(!seeds.is_empty(), "{name} has no seeds");
        target(b"");
    }
    assert!(bytes < MOST_BYTES, "the seeds have {bytes} bytes");
}

#[test]
fn seeds_reach_what_they_are_for() {
    // a seed that is rejected early tests nothing: these are accepted
    let trust =
        |seed: &str| olm_fuzz::accepted(&std::fs::read(folder("seeds/signature").join(seed)).unwrap());
    for (seed, want) in [
        ("simple-key", 1),
        ("bundle-key", 1),
        ("simple-certificate", 1),
        ("bundle-certificate", 1),
        ("policy", 0),
    ] {
        assert_eq!(trust(seed), want, "requirements of the policy that {seed} fulfils");
    }
}
