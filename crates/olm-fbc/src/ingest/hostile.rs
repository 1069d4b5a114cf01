//! Small images that would cost much: each ends with an error that names the limit and the file.

use std::{io::Write as _, process::Command};

use super::*;

/// Names the hostile catalog that this program reads instead of testing; see [`ingest_memory_stays_small`].
const CATALOG: &str = "OLM_FBC_TEST_CATALOG";
/// Peak memory of a process that reads a hostile catalog, in MiB; a container of catalogd has 512.
const MEMORY: u64 = 128;

type Outcome = Result<Summary, String>;

fn read(
    limits: IngestLimits,
    fill: impl FnOnce(&mut Ingest<io::Sink>) -> Result<(), IngestError>,
) -> Outcome {
    let mut ingest = Ingest::new(io::sink(), limits);
    let filled = fill(&mut ingest).and_then(|()| ingest.finish());
    filled.map(|ingested| ingested.summary).map_err(|error| {
        assert!(error.is_permanent(), "{error}");
        error.to_string()
    })
}

fn deep(name: &str) -> String {
    format!("{}{name}", "d/".repeat(60))
}

/// 1 MiB of patterns, 60 directories down.
fn deep_patterns(limits: IngestLimits) -> Outcome {
    read(limits, |ingest| ingest.file(&deep(FILE_NAME), &mut "a\n".repeat(1 << 19).as_bytes()))
}

/// Six million objects of three bytes.
fn tiny_objects(limits: IngestLimits) -> Outcome {
    read(limits, |ingest| ingest.file("c.json", &mut "{}\n".repeat(6_000_000).as_bytes()))
}

/// 500 files of 1 MiB, each without a pattern.
fn many_ignore_files(limits: IngestLimits) -> Outcome {
    let text = "#\n".repeat(1 << 19);
    read(limits, |ingest| {
        (0..500).try_for_each(|n| ingest.file(&format!("{n}/{FILE_NAME}"), &mut text.as_bytes()))
    })
}

/// One file of 1 MiB without a pattern, and 500 other names for it.
fn many_ignore_links(limits: IngestLimits) -> Outcome {
    let text = "#\n".repeat(1 << 19);
    read(limits, |ingest| {
        ingest.file(FILE_NAME, &mut text.as_bytes())?;
        (0..500).try_for_each(|n| ingest.hard_link(&format!("{n}/{FILE_NAME}"), FILE_NAME))
    })
}

/// So many objects, each with a name of its own.
fn names(count: u32, limits: IngestLimits) -> Outcome {
    let text: String = (0..count).map(|n| format!("{{\"name\":\"{n}\"}}\n")).collect();
    read(limits, |ingest| ingest.file("c.json", &mut text.as_bytes()))
}

fn many_names(limits: IngestLimits) -> Outcome {
    names(300_000, limits)
}

#[test]
fn ingest_refuses_many_patterns() {
    let want = format!(
        "the catalog has more than 10000 patterns in .indexignore files; in file {:?}",
        deep(FILE_NAME)
    );
    assert_eq!(deep_patterns(IngestLimits::default()), Err(want));
    // all files together
    let limits = IngestLimits { ignore_patterns: 4, ..IngestLimits::default() };
    let outcome = read(limits, |ingest| {
        ["a", "b", "c"]
            .iter()
            .try_for_each(|n| ingest.file(&format!("{n}/{FILE_NAME}"), &mut &b"# x\n\ny\nz"[..]))
    });
    let want = "the catalog has more than 4 patterns in .indexignore files; in file \"c/.indexignore\"";
    assert_eq!(outcome, Err(want.to_owned()));
}

#[test]
fn ingest_refuses_many_ignore_bytes() {
    let want = |n: u32| {
        format!("the catalog has more than 1048576 bytes in .indexignore files; in file \"{n}/.indexignore\"")
    };
    assert_eq!(many_ignore_files(IngestLimits::default()), Err(want(1)));
    assert_eq!(many_ignore_links(IngestLimits::default()), Err(want(0)));
}

#[test]
fn ingest_shares_ignore_files_among_links() {
    let mut ingest = Ingest::new(io::sink(), IngestLimits::default());
    ingest.file(FILE_NAME, &mut &b"a"[..]).unwrap();
    ingest.hard_link("b/.indexignore", FILE_NAME).unwrap();
    let texts: Vec<&Arc<[u8]>> = (ingest.entries.values())
        .filter_map(|entry| if let Content::Ignore(text) = &entry.content { Some(text) } else { None })
        .collect();
    assert!(texts.len() == 2 && Arc::ptr_eq(texts[0], texts[1]));
}

#[test]
fn ingest_refuses_many_objects() {
    let limits = IngestLimits { objects: 1000, bytes: 1 << 20, ..IngestLimits::default() };
    let want = |what: &str, path: &str| Err(format!("the catalog has more than {what}; in file {path:?}"));
    assert_eq!(tiny_objects(limits), want("1000 objects", "c.json"));
    // links name the objects of a file again
    let linked = |count: usize, pad: usize| {
        let text = format!("{{\"x\":\"{}\"}}\n", "y".repeat(pad)).repeat(count);
        read(limits, |ingest| {
            ingest.file("a", &mut text.as_bytes())?;
            ["b", "c"].iter().try_for_each(|path| ingest.hard_link(path, "a"))?;
            ingest.link("d", "a")
        })
    };
    assert_eq!(linked(250, 0).map(|summary| summary.objects), Ok(1000));
    assert_eq!(linked(251, 0), want("1000 objects", "d"));
    assert_eq!(linked(1, 400_000), want("1048576 bytes", "c"));
}

#[test]
fn ingest_refuses_many_names() {
    let want = "the catalog has more than 16777216 bytes of memory for the schemas, packages and names of its \
                objects; in file \"c.json\"";
    assert_eq!(many_names(IngestLimits::default()), Err(want.to_owned()));
    // about 140 bytes each
    let fitting = names(110_000, IngestLimits::default());
    assert_eq!(fitting.map(|summary| summary.objects), Ok(110_000));
}

#[test]
fn ingest_bounds_pattern_matching() {
    let limits = IngestLimits { match_steps: 1_000_000, ..IngestLimits::default() };
    let path = |n: usize| deep(&format!("{n:060}"));
    let files = |pattern: &str, patterns: usize, files: usize| {
        read(limits, |ingest| {
            ingest.file(FILE_NAME, &mut format!("{pattern}\n").repeat(patterns).as_bytes())?;
            (0..files).try_for_each(|n| ingest.file(&path(n), &mut io::empty()))
        })
    };
    let want = |n: usize| {
        let what = "steps of matching files with the patterns of .indexignore files";
        Err(format!("the catalog has more than 1000000 {what}; in file {:?}", path(n)))
    };
    // 61 components with one step each
    assert_eq!(files("x", 1000, 1000), want(16));
    assert_eq!(files("/x/y", 1000, 1000), want(333));
    assert_eq!(files(&format!("{}x", "*0".repeat(40)), 1000, 1000), want(3));
    assert_eq!(files(&format!("[{}", "a-z".repeat(10_000)), 30, 1000), want(0));
    // the default is a thousand times as much
    assert_eq!(files("*.md", 10, 200).map(|summary| summary.files), Ok(200));
}

#[test]
fn ingest_stops_when_cancelled() {
    let mut ingest = Ingest::new(io::sink(), IngestLimits::default());
    ingest.file("a", &mut &b"{}"[..]).unwrap();
    let cancellation = ingest.cancellation().clone();
    // in the middle of a file: the reader never ends
    struct Endless(Cancellation);
    impl Read for Endless {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.cancel();
            out.fill(b'1');
            out.iter_mut().step_by(2).for_each(|byte| *byte = b'\n');
            Ok(out.len())
        }
    }
    let limits = |error| matches!(error, IngestError::Cancelled);
    let objects = io::Cursor::new("{}\n".repeat(100_000)).chain(Endless(cancellation.clone()));
    let error = ingest.file("b", &mut Box::new(objects) as &mut dyn Read).unwrap_err();
    assert!(limits(error));
    assert!(limits(ingest.file("c", &mut io::empty()).unwrap_err()));
    assert!(limits(ingest.hard_link("d", "a").unwrap_err()));
    assert!(limits(ingest.finish().unwrap_err()));
    // in the middle of matching
    let mut ignore = IndexIgnore::default();
    ignore.add("", "a\n".repeat(100_000).as_bytes());
    let mut budget = MatchBudget::new(u64::MAX, &cancellation);
    assert_eq!(ignore.ignores_within("b", &mut budget), Err(MatchError::Cancelled));
    let guarded = Cancellation::default();
    drop(guarded.drop_guard());
    assert!(guarded.is_cancelled());
}

/// Not a test of its own: the process whose memory the test below measures.
#[test]
#[expect(clippy::disallowed_methods, reason = "how a test reaches the process that it starts")]
fn ingest_memory_child() {
    let Ok(catalog) = std::env::var(CATALOG) else { return };
    let read = match catalog.as_str() {
        "deep patterns" => deep_patterns,
        "tiny objects" => tiny_objects,
        "many ignore files" => many_ignore_files,
        "many ignore links" => many_ignore_links,
        _ => many_names,
    };
    let outcome = read(IngestLimits::default());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    writeln!(io::stdout(), "\npeak {} {outcome:?}", peak.replace("kB", "").trim()).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn ingest_memory_stays_small() {
    for catalog in ["deep patterns", "tiny objects", "many ignore files", "many ignore links", "many names"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "ingest::hostile::ingest_memory_child", "--nocapture"]).env(CATALOG, catalog);
        let output = String::from_utf8(child.output().unwrap().stdout).unwrap();
        let line = output.lines().find_map(|line| line.strip_prefix("peak ")).unwrap();
        let (peak, outcome) = line.split_once(' ').unwrap();
        let peak = peak.parse::<u64>().unwrap() >> 10;
        assert!(peak <= MEMORY, "{catalog}: {peak} MiB, then {outcome}");
        assert!(outcome.contains("the catalog has more than"), "{catalog}: {outcome}");
    }
}
