//! The exercises of CONTRIBUTING.md: changes that newcomers make first, as patches in `tests/exercises`.
//!
//! Each is applied to a copy of the checkout, where the tests that it names have to pass. Then every file of the patch is left out
//! once: now the compiler or a test has to fail and to print what `exercise.toml` names for that file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The most product files that an exercise may touch.
const MOST_FILES: usize = 5;

/// `tests/exercises/<name>/exercise.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exercise {
    /// The task, as in CONTRIBUTING.md.
    task: String,
    /// Packages whose unit tests are run.
    packages: Vec<String>,
    /// A filter of their tests.
    tests: Vec<String>,
    /// Every product file of the patch, with what is printed when it is left out.
    files: BTreeMap<String, String>,
}

/// Whether every patch applies to the checkout.
pub(crate) fn check(root: &Path) -> Result<()> {
    for name in names(root)? {
        check_patch(root, &format!("tests/exercises/{name}/change.patch"))?;
    }
    Ok(())
}

/// Whether a patch applies to the checkout.
pub(crate) fn check_patch(root: &Path, patch: &str) -> Result<()> {
    let output = Command::new("git").args(["apply", "--check", patch]).current_dir(root).output()?;
    ensure!(output.status.success(), "{patch}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn names(root: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(root.join("tests/exercises"))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

pub(crate) fn run(root: &Path, only: &[&str]) -> Result<()> {
    let folder = root.join("tests/exercises");
    let mut names = names(root)?;
    names.retain(|name| only.is_empty() || only.contains(&name.as_str()));
    names.sort();
    ensure!(!names.is_empty(), "no exercise of these names in tests/exercises: {only:?}");
    let copy = root.join("target/exercises");
    let mut failed = Vec::new();
    for name in &names {
        if let Err(error) = exercise(root, &copy, &folder.join(name)) {
            eprintln!("{name}: {error:#}");
            failed.push(name.as_str());
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    eprintln!("exercises: {} passed", names.len());
    Ok(())
}

fn exercise(root: &Path, copy: &Path, folder: &Path) -> Result<()> {
    let text = fs::read_to_string(folder.join("exercise.toml"))?;
    let exercise: Exercise = toml::from_str(&text)?;
    let patch = folder.join("change.patch");
    let touched = touched(&fs::read_to_string(&patch)?);
    let product: Vec<&String> = touched.iter().filter(|path| !path.contains("tests")).collect();
    ensure!(
        product.len() <= MOST_FILES,
        "the patch touches {} product files, at most {MOST_FILES}",
        product.len()
    );
    let listed: Vec<&String> = exercise.files.keys().collect();
    ensure!(product == listed, "the patch touches {product:?}, exercise.toml lists {listed:?}");

    eprintln!("{}: {} product files", exercise.task, product.len());
    refresh(root, copy)?;
    apply(copy, &patch, None)?;
    let (passed, output) = tests(copy, &exercise)?;
    ensure!(passed, "the tests fail with the whole patch\n{output}");
    for (file, printed) in &exercise.files {
        refresh(root, copy)?;
        apply(copy, &patch, Some(file))?;
        let (passed, output) = tests(copy, &exercise)?;
        ensure!(!passed, "nothing fails without {file}");
        ensure!(output.contains(printed), "without {file} the output has no {printed:?}\n{output}");
        eprintln!("  without {file}: {printed}");
    }
    Ok(())
}

/// The files that a patch changes, by name.
fn touched(patch: &str) -> Vec<String> {
    let mut found: Vec<String> =
        patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(str::to_owned).collect();
    found.sort();
    found
}

/// Makes `copy` hold the files that git tracks. Files that are equal are not written, so that little is compiled again.
pub(crate) fn refresh(root: &Path, copy: &Path) -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    for path in String::from_utf8(listed.stdout)?.split('\0').filter(|path| !path.is_empty()) {
        let (from, to) = (root.join(path), copy.join(path));
        if !from.is_file() {
            continue;
        }
        let content = fs::read(&from).with_context(|| from.display().to_string())?;
        if fs::read(&to).is_ok_and(|present| present == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, content).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

pub(crate) fn apply(copy: &Path, patch: &Path, without: Option<&str>) -> Result<()> {
    let mut git = Command::new("git");
    // the copy lies in a folder that git ignores; so it must not see that it is in a checkout
    git.env("GIT_CEILING_DIRECTORIES", copy.parent().unwrap_or(copy)).current_dir(copy).arg("apply");
    git.args(without.map(|path| format!("--exclude={path}"))).arg(patch);
    let output = git.output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} does not apply: {printed}", patch.display());
    Ok(())
}

/// Where the copy is built. cargo takes packages of two checkouts for the same ones if they are built into one folder, and would later
/// use what was built from the copy.
pub(crate) fn build_folder(copy: &Path) -> PathBuf {
    copy.join("target")
}

/// Whether the tests of an exercise pass, and what was printed.
fn tests(copy: &Path, exercise: &Exercise) -> Result<(bool, String)> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(copy).env("CARGO_TARGET_DIR", build_folder(copy)).args([
        "test",
        "--locked",
        "--no-fail-fast",
    ]);
    cargo.arg("--lib").args(exercise.packages.iter().flat_map(|package| ["-p", package]));
    cargo.arg("--").args(&exercise.tests);
    let output = cargo.output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exercise_patches_list_their_files() {
        let patch = "--- a/x/b.rs\n+++ b/x/b.rs\n@@ -1 +1 @@\n-a\n+b\n--- a/a.rs\n+++ b/a.rs\n";
        assert_eq!(touched(patch), ["a.rs", "x/b.rs"]);
    }
}
