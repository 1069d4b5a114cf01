//! The version of olm-rs: Cargo.toml has it, and each file of [`FOLDERS`] that names it is written from there.
//!
//! How a place looks is known to `olm_images::stamp`, which a release uses, too. `generate` writes the places, so that
//! raising the version is one line of Cargo.toml; `verify` fails if one of them differs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use olm_images::stamp;

/// Where the version may be named. Pages below [`EVIDENCE`] report runs, so they may name any version.
const FOLDERS: [&str; 4] = ["README.md", "docs", "examples", "manifests"];
const EVIDENCE: [&str; 2] = ["docs/decisions", "docs/internals"];
/// Files that must name it, and how often at least: without them a release would install something else.
const REQUIRED: [(&str, usize); 5] = [
    ("manifests/base/catalogd/deployment.yaml", 1),
    ("manifests/base/classic-controller/deployment.yaml", 1),
    ("manifests/base/cluster-operator/deployment.yaml", 1),
    ("manifests/base/operator-controller/deployment.yaml", 1),
    ("manifests/chart/Chart.yaml", 2),
];

/// The files that name the version, with Cargo.toml's.
pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let version = version(root)?;
    stamp::check_version(&version).context("the version of Cargo.toml")?;
    let mut found = Vec::new();
    for (path, text) in texts(root)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !stamp::places(&name, &text).is_empty() {
            let stamped = stamp::stamped(&name, &text, &version, stamp::REGISTRY);
            found.push((path, stamped));
        }
    }
    Ok(found)
}

/// Fails if a required place is gone, for instance because it is written in another way.
pub(crate) fn check(root: &Path) -> Result<()> {
    for (path, least) in REQUIRED {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let found = stamp::places(name, &text).len();
        ensure!(
            found >= least,
            "{path} names the version {found} times instead of {least}; if it is written in another way, add the form to \
             hack/images/src/stamp.rs"
        );
    }
    Ok(())
}

/// `version`: prints the version and every place that names it.
pub(crate) fn print(root: &Path) -> Result<()> {
    let mut out = format!("{}\n", version(root)?);
    for (path, text) in texts(root)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for place in stamp::places(&name, &text) {
            out += &format!("{}:{}: {}\n", path.display(), place.line, &text[place.start..place.end]);
        }
    }
    Ok(std::io::Write::write_all(&mut std::io::stdout(), out.as_bytes())?)
}

/// `workspace.package.version` of Cargo.toml.
fn version(root: &Path) -> Result<String> {
    let text = std::fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest: toml::Value = toml::from_str(&text).context("cannot read Cargo.toml")?;
    let version = manifest.get("workspace").and_then(|it| it.get("package")).and_then(|it| it.get("version"));
    Ok(version
        .and_then(toml::Value::as_str)
        .context("Cargo.toml has no workspace.package.version")?
        .to_owned())
}

/// The texts below [`FOLDERS`], by path from the root. Links (of the chart to the files of kustomize) are not followed.
fn texts(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    while let Some(path) = next.pop() {
        if EVIDENCE.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let Ok(metadata) = std::fs::symlink_metadata(root.join(&path)) else { continue };
        if metadata.is_dir() {
            for entry in std::fs::read_dir(root.join(&path))? {
                next.push(path.join(entry?.file_name()));
            }
        } else if metadata.is_file()
            && let Ok(text) = std::fs::read_to_string(root.join(&path))
        {
            found.push((path, text));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout(version: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("Cargo.toml", &format!("[workspace.package]\nversion = \"{version}\"\n"));
        for name in ["catalogd", "classic-controller", "cluster-operator", "operator-controller"] {
            write(
                &format!("manifests/base/{name}/deployment.yaml"),
                &format!("image: ghcr.io/olm-rs/{name}:0.1.0\n"),
            );
        }
        write("manifests/chart/Chart.yaml", "version: 0.1.0\nappVersion: \"0.1.0\"\n");
        write("docs/install.md", "`ghcr.io/olm-rs/catalogd:0.1.0`\n");
        write("docs/internals/run.md", "`ghcr.io/olm-rs/catalogd:0.0.9`\n");
        write("docs/other.md", "nothing\n");
        std::os::unix::fs::symlink("../base", folder.path().join("manifests/chart/files")).unwrap();
        folder
    }

    #[test]
    fn version_of_cargo_toml_is_written_to_every_place() {
        let folder = checkout("0.2.0");
        let files = files(folder.path()).unwrap();
        let paths: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(
            paths,
            [
                "docs/install.md",
                "manifests/base/catalogd/deployment.yaml",
                "manifests/base/classic-controller/deployment.yaml",
                "manifests/base/cluster-operator/deployment.yaml",
                "manifests/base/operator-controller/deployment.yaml",
                "manifests/chart/Chart.yaml",
            ]
        );
        assert!(files.iter().all(|(_, text)| text.contains("0.2.0") && !text.contains("0.1.0")));
        check(folder.path()).unwrap();
    }

    #[test]
    fn version_check_names_a_place_that_is_gone() {
        let folder = checkout("0.1.0");
        std::fs::write(folder.path().join("manifests/chart/Chart.yaml"), "version: 0.1.0\n").unwrap();
        let problem = check(folder.path()).unwrap_err().to_string();
        assert!(problem.starts_with("manifests/chart/Chart.yaml names the version 1 times"), "{problem}");
    }

    #[test]
    fn version_of_cargo_toml_must_be_a_tag() {
        let folder = checkout("0.2.0+build");
        assert!(files(folder.path()).unwrap_err().to_string().contains("the version of Cargo.toml"));
    }
}
