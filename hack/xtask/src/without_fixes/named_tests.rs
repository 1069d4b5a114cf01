//! Patches of `tests/without_fixes`: before its diff each names the tests that have to fail without the fix, and to pass with it.
//!
//! The first line of a patch is what it takes out. Then a line for each test: `test: -p PACKAGE --lib PATH`, or
//! `test: -p PACKAGE --test PROGRAM PATH`. Every finding F1, F2, … of `docs/internals/findings.md` has a patch `f1`, `f1-PART`, ….

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::conformance::has_test;
use crate::{findings, source};

pub(super) const FOLDER: &str = "tests/without_fixes";
/// Time within which a test has to end, seconds.
const LIMIT: u64 = 120;
/// Characters of a message that are printed.
const MAX_MESSAGE: usize = 200;

/// Runs the tests with all fixes, then builds them without each fix and runs them again. Prints a row of a table for each.
pub(crate) fn run(root: &Path, only: &[&str]) -> Result<()> {
    let names = super::chosen(root, FOLDER, only)?;
    let mut texts = Vec::new();
    for name in &names {
        texts.push(std::fs::read_to_string(root.join(super::path(FOLDER, name)))?);
    }
    let mut patches = Vec::new();
    for (name, text) in names.iter().zip(&texts) {
        patches.push(Patch::read(text).with_context(|| name.clone())?);
    }
    check_with_fixes(&super::copy_with_all(root)?, &patches)?;
    let mut wrong = Vec::new();
    for (name, patch) in names.iter().zip(&patches) {
        let copy = super::copy_without(root, FOLDER, name)?;
        for test in &patch.tests {
            match test.run(&copy) {
                Ok(failure) => {
                    let (what, path) = (patch.what, test.path);
                    writeln!(std::io::stdout(), "| {name} | {what} | `{path}` | {failure} |")?;
                }
                Err(error) => wrong.push(format!("{name}: {}: {error:#}", test.path)),
            }
        }
    }
    ensure!(wrong.is_empty(), "tests that did not fail without the fix:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Whether the tests pass while no fix is taken out: one that fails anyway shows nothing.
fn check_with_fixes(copy: &Path, patches: &[Patch<'_>]) -> Result<()> {
    let mut wrong = Vec::new();
    for (program, paths) in programs(patches) {
        let (_, printed) = run_tests(copy, &program, &paths)?;
        wrong.extend(not_passed(&printed, &paths));
    }
    ensure!(wrong.is_empty(), "tests that do not pass with the fix:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// The tests of each program, which one call of cargo runs. A call for several packages would build their dependencies with the features of
/// all, and so twice.
fn programs<'a>(patches: &[Patch<'a>]) -> BTreeMap<Vec<&'a str>, BTreeSet<&'a str>> {
    let mut programs: BTreeMap<Vec<&str>, BTreeSet<&str>> = BTreeMap::new();
    for test in patches.iter().flat_map(|patch| &patch.tests) {
        programs.entry(test.in_cargo()).or_default().insert(test.path);
    }
    programs
}

/// Whether the tests exist that the patches name, and every finding has a patch.
pub(super) fn check(root: &Path) -> Result<()> {
    let packages = source::packages(root)?;
    let names = super::names(root, FOLDER)?;
    let mut wrong = Vec::new();
    for name in &names {
        let path = super::path(FOLDER, name);
        let text = std::fs::read_to_string(root.join(&path))?;
        for test in Patch::read(&text).with_context(|| path.clone())?.tests {
            let package = packages.iter().find(|package| package.name == test.package);
            let files = package.map(|package| test.files(&root.join(&package.folder))).unwrap_or_default();
            let source = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
            if !source.is_some_and(|source| has_test(&source, test.function())) {
                wrong.push(format!("{path}: {} has no test {}", test.package, test.path));
            }
        }
    }
    let findings = findings::numbered(root)?;
    let missing = without_patch(&findings, &names);
    if !missing.is_empty() {
        wrong.push(format!("{FOLDER} has no patch for {missing:?}"));
    }
    ensure!(wrong.is_empty(), "fixes that are not taken out:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// The findings that no patch is named for.
fn without_patch<'a>(findings: &'a [String], names: &[String]) -> Vec<&'a str> {
    let is_patch_of = |name: &str, finding: &str| {
        let rest = name.strip_prefix(&finding.to_lowercase());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let missing = findings.iter().filter(|finding| !names.iter().any(|name| is_patch_of(name, finding)));
    missing.map(String::as_str).collect()
}

/// What stands before the diff of a patch.
#[derive(Debug, PartialEq, Eq)]
struct Patch<'a> {
    /// What is different without the fix.
    what: &'a str,
    tests: Vec<Test<'a>>,
}

impl<'a> Patch<'a> {
    fn read(text: &'a str) -> Result<Self> {
        let mut lines = text.lines().take_while(|line| !line.starts_with("diff "));
        let what = lines.next().unwrap_or_default();
        ensure!(!what.is_empty() && !what.starts_with("test: "), "the first line describes nothing");
        let tests = lines.filter_map(|line| line.strip_prefix("test: ")).map(Test::read);
        let tests = tests.collect::<Result<Vec<_>>>()?;
        ensure!(!tests.is_empty(), "no line `test: …` before the diff");
        Ok(Self { what, tests })
    }
}

/// A test that has to fail.
#[derive(Debug, PartialEq, Eq)]
struct Test<'a> {
    package: &'a str,
    /// The program in the folder `tests` of the package; `None`: its library.
    program: Option<&'a str>,
    /// Modules and function.
    path: &'a str,
}

impl<'a> Test<'a> {
    fn read(line: &'a str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["-p", package, "--lib", path] => Ok(Self { package, program: None, path }),
            ["-p", package, "--test", program, path] => Ok(Self { package, program: Some(program), path }),
            _ => bail!("{line:?} is neither `-p PACKAGE --lib PATH` nor `-p PACKAGE --test PROGRAM PATH`"),
        }
    }

    fn function(&self) -> &'a str {
        self.path.rsplit("::").next().unwrap_or(self.path)
    }

    /// The files that may hold it: its innermost module that is a file of its own comes first.
    fn files(&self, package: &Path) -> Vec<PathBuf> {
        let (folder, roots) = match self.program {
            None => (package.join("src"), vec![package.join("src/lib.rs")]),
            Some(program) => {
                let folder = package.join("tests").join(program);
                let roots = vec![folder.join("main.rs"), folder.with_extension("rs")];
                (folder, roots)
            }
        };
        let modules: Vec<&str> = self.path.split("::").collect();
        let mut files = Vec::new();
        for count in (1..modules.len()).rev() {
            let module = folder.join(modules[..count].join("/"));
            files.extend([module.with_extension("rs"), module.join("mod.rs")]);
        }
        files.extend(roots);
        files
    }

    /// The arguments of cargo that select its program.
    fn in_cargo(&self) -> Vec<&'a str> {
        match self.program {
            None => vec!["-p", self.package, "--lib"],
            Some(program) => vec!["-p", self.package, "--test", program],
        }
    }

    /// Builds it in the copy and runs it. Returns how it failed.
    fn run(&self, copy: &Path) -> Result<String> {
        let (code, printed) = run_tests(copy, &self.in_cargo(), &BTreeSet::from([self.path]))?;
        ensure!(code == Some(101), "cargo returned {code:?}: {}", printed.trim());
        failure(&printed, self.path)
    }
}

/// Builds the program in the copy and runs these of its tests. Returns the exit code of cargo, and what the program printed.
fn run_tests(copy: &Path, program: &[&str], paths: &BTreeSet<&str>) -> Result<(Option<i32>, String)> {
    let built = super::cargo(copy, None).args(["test", "--locked"]).args(program).arg("--no-run").status()?;
    ensure!(built.success(), "the build failed: {}", program.join(" "));
    let limit = LIMIT * paths.len() as u64;
    let mut cargo = super::cargo(copy, Some(limit));
    cargo.args(["test", "--locked"]).args(program).args(["--", "--exact"]).args(paths);
    let output = cargo.env("RUST_BACKTRACE", "0").output().context("cannot start `timeout`")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        // 124 from `timeout`; without a code if it had to kill, itself included
        None | Some(124 | 137) => bail!("cargo did not end within {limit} s: {}", printed.trim()),
        code => Ok((code, printed)),
    }
}

/// What the program reports of a test: `ok`, `FAILED`, `ignored`.
fn outcome<'a>(printed: &'a str, path: &str) -> Option<&'a str> {
    let prefix = format!("test {path} ... ");
    printed.lines().find_map(|line| line.strip_prefix(prefix.as_str()))
}

/// The tests that did not pass, and why.
fn not_passed(printed: &str, paths: &BTreeSet<&str>) -> Vec<String> {
    let wrong = paths.iter().filter(|path| outcome(printed, path) != Some("ok"));
    let why = |path: &str| failure(printed, path).unwrap_or_else(|error| error.to_string());
    wrong.map(|path| format!("{path}: {}", why(path))).collect()
}

/// How the test failed, as the cell of a table.
fn failure(printed: &str, path: &str) -> Result<String> {
    let has_failed = outcome(printed, path) == Some("FAILED");
    ensure!(has_failed, "no line `test {path} ... FAILED`:\n{}", printed.trim());
    let message: String = message(printed, path).chars().take(MAX_MESSAGE).collect();
    Ok(message.replace('|', "\\|"))
}

/// The message of the panic that ended the test, or of the error that it returned.
fn message(printed: &str, path: &str) -> String {
    let lines: Vec<&str> = printed.lines().collect();
    let own = format!("thread '{path}' ");
    let panics = |line: &str| line.contains(" panicked at ");
    let panic = lines.iter().position(|line| line.starts_with(&own) && panics(line));
    // a test may start threads that panic on purpose
    let Some(at) = panic.or_else(|| lines.iter().position(|line| panics(line))) else {
        let error = lines.iter().copied().find(|line| line.starts_with("Error: "));
        return error.unwrap_or("without a message").to_owned();
    };
    let is_last = |line: &str| line.is_empty() || line.starts_with("note: ");
    let text = lines[at + 1..].iter().map(|line| line.trim()).take_while(|line| !is_last(line));
    text.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Test<'_> {
        Test::read(line).unwrap()
    }

    #[test]
    fn named_tests_are_read_from_the_patch() {
        let diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\ntest: -p a --lib b\n";
        let text = format!("no limit\n\ntest: -p x --lib a::b\ntest: -p y --test z c\n\n{diff}");
        let tests = vec![
            Test { package: "x", program: None, path: "a::b" },
            Test { package: "y", program: Some("z"), path: "c" },
        ];
        assert_eq!(Patch::read(&text).unwrap(), Patch { what: "no limit", tests });
        for (text, want) in [
            (diff.to_owned(), "describes nothing"),
            (format!("test: -p x --lib a::b\n{diff}"), "describes nothing"),
            (format!("no limit\n{diff}"), "no line `test: …`"),
            (format!("no limit\ntest: -p x a::b\n{diff}"), "is neither"),
        ] {
            let error = Patch::read(&text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn named_tests_are_looked_up_in_their_modules() {
        let files = |line: &str| {
            let files = read(line).files(Path::new("p"));
            files.into_iter().map(|file| file.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            files("-p x --lib a::tests::b"),
            ["p/src/a/tests.rs", "p/src/a/tests/mod.rs", "p/src/a.rs", "p/src/a/mod.rs", "p/src/lib.rs"]
        );
        assert_eq!(files("-p x --test y b"), ["p/tests/y/main.rs", "p/tests/y.rs"]);
        assert_eq!(read("-p x --lib a::b").function(), "b");
    }

    #[test]
    fn named_tests_need_a_patch_for_each_finding() {
        let findings = ["F1", "F2", "F10"].map(str::to_owned);
        let names = ["f1-nodes", "f10"].map(str::to_owned);
        assert_eq!(without_patch(&findings, &names), ["F2"]);
        assert_eq!(without_patch(&findings, &names[1..]), ["F1", "F2"]);
    }

    #[test]
    fn named_tests_of_a_program_run_together() {
        let lines =
            ["-p x --lib a::b", "-p x --test y c", "-p x --lib d", "-p z --lib a::b", "-p x --lib a::b"];
        let patches = [&lines[..2], &lines[2..]]
            .map(|lines| Patch { what: "no limit", tests: lines.iter().map(|line| read(line)).collect() });
        let want = [
            (vec!["-p", "x", "--lib"], BTreeSet::from(["a::b", "d"])),
            (vec!["-p", "x", "--test", "y"], BTreeSet::from(["c"])),
            (vec!["-p", "z", "--lib"], BTreeSet::from(["a::b"])),
        ];
        assert_eq!(programs(&patches), BTreeMap::from(want));
    }

    #[test]
    fn named_tests_have_to_pass_with_the_fixes() {
        let printed = "\nrunning 4 tests\ntest a ... ok\ntest b ... ignored\ntest c ... FAILED\ntest de ... ok\n\n\
            ---- c stdout ----\nthread 'c' (1) panicked at src/c.rs:9:5:\non purpose\n\n";
        let wrong = not_passed(printed, &BTreeSet::from(["a", "b", "c", "d"]));
        let want = ["b: no line `test b ... FAILED`", "c: on purpose", "d: no line `test d ... FAILED`"];
        assert_eq!(wrong.len(), want.len(), "{wrong:?}");
        for (wrong, want) in wrong.iter().zip(want) {
            assert!(wrong.starts_with(want), "{wrong}");
        }
        assert!(not_passed(printed, &BTreeSet::from(["a", "de"])).is_empty());
    }

    #[test]
    fn named_tests_report_how_they_failed() {
        let head = "\nrunning 1 test\ntest a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n";
        let other = "\nthread 'worker' (2) panicked at src/a.rs:1:1:\non purpose\n";
        let own = "\nthread 'a::b' (1) panicked at src/a.rs:9:5:\n\
            assertion `left == right` failed: a|b\n  left: 1\n right: 2\n\
            note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\n";
        let failed = "assertion `left == right` failed: a\\|b left: 1 right: 2";
        for (printed, want) in [
            (format!("{head}{own}"), failed),
            (format!("{head}{other}{own}"), failed),
            (format!("{head}{other}"), "on purpose"),
            (format!("{head}Error: not found\n"), "Error: not found"),
            (head.to_owned(), "without a message"),
        ] {
            assert_eq!(failure(&printed, "a::b").unwrap(), want, "{printed}");
        }
        let long = format!("{head}Error: {}\n", "x".repeat(500));
        assert_eq!(failure(&long, "a::b").unwrap().len(), MAX_MESSAGE);
        for printed in ["test a::b ... ok\n", "running 0 tests\n", "test a::bc ... FAILED\n"] {
            assert!(failure(printed, "a::b").is_err(), "{printed}");
        }
    }
}
