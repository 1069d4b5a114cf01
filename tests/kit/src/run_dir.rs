//! Temporary folders that are gone after the run, also when the run was killed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A fresh folder below the system's temporary folder, removed on drop. `OLM_KEEP=1` keeps it (its path is printed).
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    keep: bool,
}

impl RunDir {
    /// Creates one whose name begins with `olm-kit-<purpose>-`.
    pub fn new(purpose: &str) -> Result<Self> {
        let keep = std::env::var_os("OLM_KEEP").is_some_and(|value| !value.is_empty() && value != "0");
        let path = tempfile::Builder::new()
            .prefix(&format!("olm-kit-{purpose}-"))
            .tempdir()
            .context("cannot create a temporary folder")?
            .keep();
        if keep {
            eprintln!("kept: {}", path.display());
        } else {
            crate::child::remove_at_end(&path)?;
        }
        Ok(Self { path, keep })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
