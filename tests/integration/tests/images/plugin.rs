//! The kubectl plugin: krew's own programs check the manifest and install from it: download, checksum, unpack, link, run.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract;
use axum::http::StatusCode;
use axum::routing::get;
use olm_images::krew;
use olm_kit::{Tools, repository};

use super::must;

/// Serves the files of a folder on loopback for as long as the test runs; gives the address.
pub(crate) async fn serve(folder: &Path) -> Result<String> {
    let folder = folder.to_owned();
    let file = move |extract::Path(name): extract::Path<String>| {
        let path = folder.join(name);
        async move { std::fs::read(path).map_err(|_| StatusCode::NOT_FOUND) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/{name}", get(file))).await });
    Ok(format!("http://{address}"))
}

/// A user's folder and programs: kubectl, with krew as its plugin.
pub(crate) struct Krew {
    home: tempfile::TempDir,
}

impl Krew {
    pub(crate) fn new() -> Result<Self> {
        let home = tempfile::tempdir()?;
        std::fs::create_dir(home.path().join("programs"))?;
        let tools = Tools::locate()?;
        for (name, program) in [("kubectl", "kubectl"), ("kubectl-krew", "krew")] {
            symlink(tools.program(program)?, home.path().join("programs").join(name))?;
        }
        Ok(Self { home })
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("krew")
    }

    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut path = OsString::from(self.home.path().join("programs"));
        path.push(":");
        path.push(self.root().join("bin"));
        path.push(":/usr/local/bin:/usr/bin:/bin");
        let mut command = Command::new(program);
        command.env_clear().env("PATH", path).env("HOME", self.home.path()).env("KREW_ROOT", self.root());
        command
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.home.path().join("programs/kubectl"));
        command.args(arguments);
        command
    }

    /// `kubectl krew install --manifest=…`
    pub(crate) fn install(&self, manifest: &Path) -> Command {
        let mut command = self.kubectl(&["krew", "install"]);
        command.arg(format!("--manifest={}", manifest.display()));
        command
    }
}

/// krew's check of a manifest: its structure, that platforms do not overlap, and an install for each of them.
pub(crate) fn validate(krew: &Krew, manifest: &Path) -> Result<String> {
    must(krew.command(&Tools::locate()?.program("validate-krew-manifest")?).arg("-manifest").arg(manifest))
}

/// An archive of a program that prints `text`.
fn stand_in(folder: &Path, archive: &str, text: &str) -> Result<()> {
    let content = tempfile::tempdir()?;
    let program = content.path().join(krew::PROGRAM);
    std::fs::write(&program, format!("#!/bin/sh\necho {text}\n"))?;
    must(Command::new("chmod").arg("755").arg(&program))?;
    std::fs::copy(repository().join("LICENSE"), content.path().join("LICENSE"))?;
    let archive = folder.join(archive);
    let mut tar = Command::new("tar");
    must(tar.arg("-czf").arg(archive).arg("-C").arg(content.path()).args([krew::PROGRAM, "LICENSE"]))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_plugin_manifest_installs_on_every_platform() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for platform in ["linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"] {
        stand_in(folder.path(), &krew::archive_name("1.2.3", platform)?, platform)?;
    }
    let base = serve(folder.path()).await?;
    let manifest = folder.path().join(format!("{}.yaml", krew::PLUGIN));
    let made = krew::manifest(folder.path(), "1.2.3", &base, "https://example.com")?;
    std::fs::write(&manifest, serde_saphyr::to_string(&made)?)?;

    validate(&Krew::new()?, &manifest)?;
    for (os, architecture) in [("linux", "amd64"), ("darwin", "arm64")] {
        let krew = Krew::new()?;
        must(krew.install(&manifest).env("KREW_OS", os).env("KREW_ARCH", architecture))?;
        let printed = must(&mut krew.kubectl(&["olm"]))?;
        assert_eq!(printed.trim(), format!("{os}/{architecture}"));
    }

    // an archive that is not the one whose checksum the manifest has
    stand_in(folder.path(), &krew::archive_name("1.2.3", "linux/amd64")?, "changed")?;
    let krew = Krew::new()?;
    let output = krew.install(&manifest).env("KREW_OS", "linux").env("KREW_ARCH", "amd64").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && text.contains("checksum"), "{}: {text}", output.status);
    ensure!(!krew.root().join("bin/kubectl-olm").exists(), "krew installed it all the same");
    // a manifest that lacks what krew needs
    let broken = folder.path().join("other.yaml");
    std::fs::write(&broken, std::fs::read_to_string(&manifest)?)?;
    let problem = validate(&krew, &broken).err().context("the name of the file is not that of the plugin")?;
    ensure!(problem.to_string().contains("plugin should be named"), "{problem}");
    Ok(())
}
