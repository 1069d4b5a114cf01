//! The table of `docs/internals/findings.md`: for each finding of a review the tests that failed before, and the commits that fixed it.
//!
//! Every test exists in the file that the row names, and every commit is an ancestor of HEAD. Where the history is not there (a shallow
//! clone, an archive), commits are not checked, and this is printed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::conformance::{has_test, references};

const PAGE: &str = "docs/internals/findings.md";

/// What the repository knows of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ancestry {
    Ancestor,
    /// It exists, or should exist, and HEAD does not contain it.
    Foreign,
    /// The history is not there.
    Unchecked,
}

pub(crate) fn check(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let read = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    let whole = is_whole(root);
    let mut unchecked = Vec::new();
    let mut ancestry = |commit: &str| {
        let found = ancestry(root, commit, whole);
        if found == Ancestry::Unchecked {
            unchecked.push(commit.to_owned());
        }
        found
    };
    let wrong = faults(&text, &read, &mut ancestry);
    if !unchecked.is_empty() {
        eprintln!(
            "WARNING: {} commits of {PAGE} are UNCHECKED, because the history is not there (shallow clone?); \
             `git fetch --unshallow` gets it: {}",
            unchecked.len(),
            unchecked.join(", ")
        );
    }
    ensure!(wrong.is_empty(), "findings that tests and history do not bear out:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// The findings F1, F2, … in the order of the page.
pub(crate) fn numbered(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let cells = text.lines().filter_map(|line| Some(line.strip_prefix("| ")?.split_once(" | ")?.0));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = cells.filter(|cell| cell.strip_prefix('F').is_some_and(is_number));
    Ok(numbered.map(str::to_owned).collect())
}

/// Whether git has the whole history.
fn is_whole(root: &Path) -> bool {
    let answer =
        Command::new("git").args(["rev-parse", "--is-shallow-repository"]).current_dir(root).output();
    answer.is_ok_and(|answer| answer.status.success() && answer.stdout.trim_ascii() == b"false")
}

fn ancestry(root: &Path, commit: &str, whole: bool) -> Ancestry {
    let arguments = ["merge-base", "--is-ancestor", commit, "HEAD"];
    let answer = Command::new("git").args(arguments).current_dir(root).output();
    match answer.ok().and_then(|answer| answer.status.code()) {
        Some(0) => Ancestry::Ancestor,
        // the end of a shallow history looks like a foreign commit
        _ if !whole => Ancestry::Unchecked,
        _ => Ancestry::Foreign,
    }
}

fn faults(
    text: &str,
    read: &dyn Fn(&str) -> Option<String>,
    ancestry: &mut dyn FnMut(&str) -> Ancestry,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for (number, line) in text.lines().enumerate() {
        let mut fault = |what: String| wrong.push(format!("{PAGE}:{}: {what}", number + 1));
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
        let [finding, _, tests, commits] = cells[..] else {
            fault(format!("has {} columns, not 4", cells.len()));
            continue;
        };
        if finding == "finding" {
            continue;
        }
        rows += 1;
        if references(tests).is_empty() {
            fault(format!("{finding} names no test"));
        }
        for (file, name) in references(tests) {
            match read(file) {
                None => fault(format!("{finding}: there is no file {file}")),
                Some(source) if !has_test(&source, name) => {
                    fault(format!("{finding}: {file} has no test {name}"))
                }
                Some(_) => {}
            }
        }
        let commits: Vec<&str> = commits.split('`').skip(1).step_by(2).collect();
        if commits.is_empty() {
            fault(format!("{finding} names no commit"));
        }
        for commit in commits {
            let is_hash = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_hash {
                fault(format!("{finding}: {commit:?} is not the hash of a commit"));
            } else if ancestry(commit) == Ancestry::Foreign {
                fault(format!("{finding}: HEAD does not contain the commit {commit}"));
            }
        }
    }
    if rows == 0 && wrong.is_empty() {
        wrong.push(format!("{PAGE} has no row"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(row: &str) -> Vec<String> {
        let text = format!("| finding | what | test | commit |\n|---|---|---|---|\n{row}\n");
        let read = |file: &str| (file == "a.rs").then(|| "#[test]\nfn a_b() {}\nfn helper() {}\n".to_owned());
        let mut ancestry = |commit: &str| match commit {
            "aaaaaaa" => Ancestry::Ancestor,
            "bbbbbbb" => Ancestry::Unchecked,
            _ => Ancestry::Foreign,
        };
        faults(&text, &read, &mut ancestry)
    }

    #[test]
    fn findings_need_a_test_and_a_commit_that_exist() {
        for (row, want) in [
            ("| F1 | x | `a.rs::a_b` | `aaaaaaa` |", None),
            ("| F1 | x | `a.rs::a_b` | `aaaaaaa`, `bbbbbbb` |", None),
            ("| F1 | x | `a.rs::helper` | `aaaaaaa` |", Some("a.rs has no test helper")),
            ("| F1 | x | `b.rs::a_b` | `aaaaaaa` |", Some("there is no file b.rs")),
            ("| F1 | x | none | `aaaaaaa` |", Some("F1 names no test")),
            ("| F1 | x | `a.rs::a_b` | none |", Some("F1 names no commit")),
            ("| F1 | x | `a.rs::a_b` | `ccccccc` |", Some("HEAD does not contain the commit ccccccc")),
            ("| F1 | x | `a.rs::a_b` | `later` |", Some("is not the hash of a commit")),
            ("| F1 | `a.rs::a_b` | `aaaaaaa` |", Some("has 3 columns")),
            ("", Some("has no row")),
        ] {
            let got = found(row);
            match want {
                None => assert!(got.is_empty(), "{row}: {got:?}"),
                Some(want) => assert!(got.len() == 1 && got[0].contains(want), "{row}: {got:?}"),
            }
        }
    }

    #[test]
    fn findings_ancestry_is_read_from_git() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let git = |arguments: &[&str]| {
            let identity =
                ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"];
            let output =
                Command::new("git").args(identity).args(arguments).current_dir(path).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "-q", "-b", "main", "whole"]);
        let commit = |text: &str| {
            git(&["-C", "whole", "commit", "-q", "--allow-empty", "-m", text]);
            git(&["-C", "whole", "rev-parse", "HEAD"])
        };
        let first = commit("first");
        commit("second");
        git(&["-C", "whole", "checkout", "-q", "-b", "side"]);
        let side = commit("side");
        git(&["-C", "whole", "checkout", "-q", "main"]);
        let source = format!("file://{}", path.join("whole").display());
        git(&["clone", "-q", "--depth", "1", "-b", "main", &source, "shallow"]);
        let (whole, shallow) = (path.join("whole"), path.join("shallow"));
        assert!(is_whole(&whole) && !is_whole(&shallow));
        assert_eq!(ancestry(&whole, &first, true), Ancestry::Ancestor);
        assert_eq!(ancestry(&whole, &side, true), Ancestry::Foreign);
        assert_eq!(ancestry(&whole, "0123456", true), Ancestry::Foreign);
        assert_eq!(ancestry(&shallow, &first, false), Ancestry::Unchecked);
    }
}
