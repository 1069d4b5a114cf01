//! The exercises of CONTRIBUTING.md: changes that newcomers make first, as patches in `tests/exercises`.
//!
//! Each is applied to a copy of the checkout, where the tests that it names have to pass. Then every file of the patch is left out
//! once: now the compiler or a test has to fail and to print what `exercise.toml` names for that file.

use std::collections::{BTreeMap, BTreeSet};
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

/// Makes `copy` hold the files that git tracks, and besides only what was built. Files that are equal are not written, so that little is
/// compiled again.
pub(crate) fn refresh(root: &Path, copy: &Path) -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout)?;
    let paths = listed.split('\0').filter(|path| !path.is_empty()).map(Path::new);
    let files: BTreeSet<&Path> = paths.filter(|path| root.join(path).is_file()).collect();
    fs::create_dir_all(copy)?;
    // first: a file may have become a folder, or a folder a file
    let folders = files.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    remove_others(copy, Path::new(""), &files, &folders)?;
    for path in files {
        let to = copy.join(path);
        let from = root.join(path);
        let content = fs::read(&from).with_context(|| path.display().to_string())?;
        if fs::read(&to).is_ok_and(|present| present == content) {
            // tests run the scripts of the copy
            fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&from, &to).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// Removes what is below `folder` of the copy, and neither one of `files`, nor one of `folders`, nor what was built.
fn remove_others(
    copy: &Path,
    folder: &Path,
    files: &BTreeSet<&Path>,
    folders: &BTreeSet<&Path>,
) -> Result<()> {
    for entry in fs::read_dir(copy.join(folder))? {
        let entry = entry?;
        let (present, path) = (entry.path(), folder.join(entry.file_name()));
        if present == build_folder(copy) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true if folders.contains(path.as_path()) => remove_others(copy, &path, files, folders)?,
            true => fs::remove_dir_all(&present).with_context(|| present.display().to_string())?,
            false if files.contains(path.as_path()) => {}
            false => fs::remove_file(&present).with_context(|| present.display().to_string())?,
        }
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn exercise_patches_list_their_files() {
        let patch = "--- a/x/b.rs\n+++ b/x/b.rs\n@@ -1 +1 @@\n-a\n+b\n--- a/a.rs\n+++ b/a.rs\n";
        assert_eq!(touched(patch), ["a.rs", "x/b.rs"]);
    }

    #[test]
    fn exercise_copy_loses_what_the_checkout_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (root, copy) = (folder.path().join("checkout"), folder.path().join("copy"));
        let git = |arguments: &[&str]| {
            let output = Command::new("git").args(arguments).current_dir(&root).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let write = |path: PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        let remove = |path: &str| fs::remove_file(root.join(path)).unwrap();
        for path in ["src/foo.rs", "src/bar/mod.rs", "gone/a.rs", "gone.rs", "stays.rs"] {
            write(root.join(path));
        }
        git(&["init", "-q"]);
        git(&["add", "."]);
        refresh(&root, &copy).unwrap();
        write(build_folder(&copy).join("debug/built"));
        write(copy.join("src/of_a_patch.rs"));

        let executable = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o111 != 0;
        fs::set_permissions(root.join("stays.rs"), fs::Permissions::from_mode(0o755)).unwrap();
        remove("src/foo.rs");
        write(root.join("src/foo/mod.rs"));
        fs::remove_dir_all(root.join("src/bar")).unwrap();
        write(root.join("src/bar"));
        remove("gone/a.rs");
        git(&["add", "."]);
        // still in the index of git
        remove("gone.rs");
        refresh(&root, &copy).unwrap();
        for (path, want) in [
            ("src/foo/mod.rs", true),
            ("src/foo.rs", false),
            ("src/bar", true),
            ("src/of_a_patch.rs", false),
            ("gone", false),
            ("gone.rs", false),
            ("stays.rs", true),
            ("target/debug/built", true),
        ] {
            assert_eq!(copy.join(path).exists(), want, "{path}");
        }
        assert!(copy.join("src/bar").is_file());
        assert!(executable(copy.join("stays.rs")) && !executable(copy.join("src/bar")));
    }
}
