//! The manifest with which krew, the plugin manager of kubectl, installs `kubectl-olm`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::image::sha256;

/// The name of the plugin, and of its manifest's file without `.yaml`.
pub const PLUGIN: &str = "olm";
/// The program in each archive.
pub const PROGRAM: &str = "kubectl-olm";
/// The operating systems and architectures that archives are made for (krew's names), with rustc's target.
const PLATFORMS: [(&str, &str, &str); 4] = [
    ("linux", "amd64", "x86_64-unknown-linux-gnu"),
    ("linux", "arm64", "aarch64-unknown-linux-gnu"),
    ("darwin", "amd64", "x86_64-apple-darwin"),
    ("darwin", "arm64", "aarch64-apple-darwin"),
];

/// A row of [`PLATFORMS`] for a platform written `linux/amd64`.
fn find(platform: &str) -> Result<(&'static str, &'static str, &'static str)> {
    let known = || PLATFORMS.map(|(os, architecture, _)| format!("{os}/{architecture}")).join(", ");
    let found = PLATFORMS
        .into_iter()
        .find(|(os, architecture, _)| platform.split_once('/') == Some((*os, *architecture)));
    found.with_context(|| format!("there is no plugin for {platform:?}; there are {}", known()))
}

/// The name of rustc's target for a platform.
///
/// # Errors
/// When no archive is made for the platform.
pub fn target(platform: &str) -> Result<&'static str> {
    Ok(find(platform)?.2)
}

/// The archive of a version for a platform written `linux/amd64`.
///
/// # Errors
/// When no archive is made for the platform.
pub fn archive_name(version: &str, platform: &str) -> Result<String> {
    let (os, architecture, _) = find(platform)?;
    Ok(format!("{PROGRAM}-{version}-{os}-{architecture}.tar.gz"))
}

/// The manifest of a version whose archives are in `folder` and will be at `<base>/<archive>`. A platform without an archive is
/// left out.
///
/// # Errors
/// When an archive cannot be read, or there is none.
pub fn manifest(folder: &Path, version: &str, base: &str, homepage: &str) -> Result<Value> {
    let mut platforms = Vec::new();
    for (os, architecture, _) in PLATFORMS {
        let name = archive_name(version, &format!("{os}/{architecture}"))?;
        let path: PathBuf = folder.join(&name);
        if !path.exists() {
            continue;
        }
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        platforms.push(json!({
            "selector": {"matchLabels": {"os": os, "arch": architecture}},
            "uri": format!("{}/{name}", base.trim_end_matches('/')),
            "sha256": sha256(&bytes).trim_start_matches("sha256:"),
            "bin": PROGRAM,
            "files": [{"from": PROGRAM, "to": "."}, {"from": "LICENSE", "to": "."}],
        }));
    }
    ensure!(
        !platforms.is_empty(),
        "{} has no archive {PROGRAM}-{version}-<os>-<architecture>.tar.gz",
        folder.display()
    );
    Ok(json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": format!("v{version}"),
            "homepage": homepage,
            "shortDescription": "Search, explain, plan and change OLM v1 extensions",
            "description": "Works on Operator Lifecycle Manager v1 with the controllers' own code.\n\
                Searches catalogs, explains why a version was chosen, plans and makes\n\
                upgrades and rollbacks, and checks bundles and catalogs.\n\
                Catalogs and bundles may be images or folders, without a cluster.\n",
            "platforms": platforms,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn krew_manifest_lists_the_archives_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let none = manifest(folder.path(), "1.2.3", "https://example.com/v1.2.3/", "https://example.com");
        assert!(none.unwrap_err().to_string().contains("has no archive kubectl-olm-1.2.3"));
        for platform in ["linux/amd64", "darwin/arm64"] {
            std::fs::write(folder.path().join(archive_name("1.2.3", platform).unwrap()), platform).unwrap();
        }
        // of another version
        std::fs::write(folder.path().join("kubectl-olm-1.2.2-linux-arm64.tar.gz"), "old").unwrap();
        let made =
            manifest(folder.path(), "1.2.3", "https://example.com/v1.2.3/", "https://example.com").unwrap();
        assert_eq!(made["kind"], "Plugin");
        assert_eq!(made["metadata"], json!({"name": "olm"}));
        assert_eq!(made["spec"]["version"], "v1.2.3");
        let platform = |os: &str, architecture: &str, sum: &str| {
            json!({
                "selector": {"matchLabels": {"os": os, "arch": architecture}},
                "uri": format!("https://example.com/v1.2.3/kubectl-olm-1.2.3-{os}-{architecture}.tar.gz"), "sha256": sum,
                "bin": "kubectl-olm", "files": [{"from": "kubectl-olm", "to": "."}, {"from": "LICENSE", "to": "."}],
            })
        };
        assert_eq!(
            made["spec"]["platforms"],
            json!([
                platform(
                    "linux",
                    "amd64",
                    "baf0239e48ff4c47ebac3ba02b5cf1506b69cd5a0c0d0c825a53ba65976fb942"
                ),
                platform(
                    "darwin",
                    "arm64",
                    "2b42ce3bed293705db91d71982cdd0ac166fc667348d213b7868fab1f74e1495"
                ),
            ])
        );
    }

    #[test]
    fn krew_archive_names_reject_other_platforms() {
        assert_eq!(archive_name("1.2.3", "darwin/arm64").unwrap(), "kubectl-olm-1.2.3-darwin-arm64.tar.gz");
        for platform in ["windows/amd64", "linux", "linux/386"] {
            assert!(archive_name("1.2.3", platform).is_err(), "{platform}");
        }
    }
}
