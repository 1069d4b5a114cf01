//! Fixes that are taken out: each patch brings back one defect, which the simulation or tests have to find.
//!
//! A patch is applied to a copy of the checkout, and what looks for its defect is built there.

pub(crate) mod named_tests;
pub(crate) mod simulation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::exercises;

/// Whether every patch applies to the checkout, and the tests exist that patches name.
pub(crate) fn check(root: &Path) -> Result<()> {
    for folder in [simulation::FOLDER, named_tests::FOLDER] {
        for name in names(root, folder)? {
            exercises::check_patch(root, &path(folder, &name))?;
        }
    }
    named_tests::check(root)
}

/// The path of a patch, from the root of the checkout.
fn path(folder: &str, name: &str) -> String {
    format!("{folder}/{name}.patch")
}

fn names(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        names.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// The patches that `only` names; all of them if it is empty.
fn chosen(root: &Path, folder: &str, only: &[&str]) -> Result<Vec<String>> {
    let mut names = names(root, folder)?;
    names.retain(|name| only.is_empty() || only.contains(&name.as_str()));
    ensure!(!names.is_empty(), "no patch of these names in {folder}: {only:?}");
    Ok(names)
}

/// The folder of the copy, which holds the checkout with all fixes.
fn copy_with_all(root: &Path) -> Result<PathBuf> {
    let copy = root.join("target/exercises");
    exercises::refresh(root, &copy)?;
    Ok(copy)
}

/// The folder of the copy, which holds the checkout without the fix.
fn copy_without(root: &Path, folder: &str, name: &str) -> Result<PathBuf> {
    let copy = copy_with_all(root)?;
    exercises::apply(&copy, &root.join(path(folder, name)), None)?;
    Ok(copy)
}

/// cargo in the copy; with `limit`, it and what it starts are ended after so many seconds.
fn cargo(copy: &Path, limit: Option<u64>) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = match limit {
        Some(limit) => {
            let mut timeout = Command::new("timeout");
            timeout.args(["--kill-after=10", &limit.to_string()]).arg(cargo);
            timeout
        }
        None => Command::new(cargo),
    };
    // so that the next build compiles only what its patch changes
    let target = exercises::build_folder(copy);
    command.current_dir(copy).env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "1");
    command
}
