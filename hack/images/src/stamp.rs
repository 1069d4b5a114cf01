//! The version and the registry that manifests, the chart and pages name.
//!
//! The version has one source, `workspace.package.version` in Cargo.toml. Every other place is text in one of the [`Form`]s, so one
//! function finds them all: `xtask` compares them with Cargo.toml, and a release of another version or registry rewrites a copy.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// Where the images of a release are, as the repository's files name it.
pub const REGISTRY: &str = "ghcr.io/olm-rs";

/// The file with the name and version of a chart.
const CHART: &str = "Chart.yaml";

/// One way to write the version in a line: directly after `before`, in a line that also contains `within`.
struct Form {
    before: &'static str,
    within: &'static str,
    /// only in files of this name
    file: Option<&'static str>,
    /// only where the line begins
    leading: bool,
}

const fn form(before: &'static str, within: &'static str) -> Form {
    Form { before, within, file: None, leading: false }
}

const fn chart(before: &'static str) -> Form {
    Form { before, within: "", file: Some(CHART), leading: true }
}

const FORMS: &[Form] = &[
    chart("version: "),
    chart("appVersion: "),
    // images of kustomize: {name: ghcr.io/olm-rs/catalogd, …, newTag: 0.1.0}
    form("newTag: ", "ghcr.io/olm-rs/"),
    // a remote base of kustomize
    form("?ref=v", "github.com/olm-rs/olm-rs"),
    // the tag that Flux and Argo CD follow
    form("tag: v", ""),
    form("targetRevision: v", ""),
    // a file of the release's page
    form("/releases/download/v", "github.com/olm-rs/olm-rs"),
    // the chart in a registry
    form("--version ", "oci://ghcr.io/olm-rs/"),
    form("app.kubernetes.io/version: ", ""),
    form("helm.sh/chart: olm-rs-", ""),
];

/// A version that a text names: bytes `start..end` of it, in line `line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    pub line: usize,
    pub start: usize,
    pub end: usize,
}

/// Every place of `text` that names a version of olm-rs; `file` is the name of its file.
pub fn places(file: &str, text: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        for start in starts(file, line) {
            let quoted = usize::from(line[start..].starts_with(['"', '\'']));
            let start = start + quoted;
            let length = version_length(&line[start..]);
            let place = Mention { line: number + 1, start: begin + start, end: begin + start + length };
            if length > 0 && !found.contains(&place) {
                found.push(place);
            }
        }
        begin += line.len();
    }
    found.sort_by_key(|place| place.start);
    found
}

/// Where a version may begin in a line.
fn starts(file: &str, line: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for form in FORMS {
        let fits = line.contains(form.within) && form.file.is_none_or(|name| name == file);
        if fits && form.leading && line.starts_with(form.before) {
            found.push(form.before.len());
        } else if fits && !form.leading {
            found.extend(line.match_indices(form.before).map(|(at, text)| at + text.len()));
        }
    }
    // an image: ghcr.io/olm-rs/catalogd:0.1.0
    let prefix = format!("{REGISTRY}/");
    for (at, _) in line.match_indices(&prefix) {
        let name = &line[at + prefix.len()..];
        let length = name.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(name.len());
        if name[length..].starts_with(':') {
            found.push(at + prefix.len() + length + 1);
        }
    }
    found
}

/// The length of `1.2.3` or `1.2.3-rc.1` at the beginning of `text`; 0 if none is there.
fn version_length(text: &str) -> usize {
    let run =
        text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-')).unwrap_or(text.len());
    let candidate = text[..run].trim_end_matches(['.', '-']);
    if is_version(candidate) { candidate.len() } else { 0 }
}

/// Whether `text` is a version that is also the tag of an image: `major.minor.patch`, then at most a prerelease.
fn is_version(text: &str) -> bool {
    let (core, rest) = text.split_once('-').map_or((text, None), |(core, rest)| (core, Some(rest)));
    let numbers: Vec<&str> = core.split('.').collect();
    let digits =
        |part: &&str| !part.is_empty() && part.len() < 10 && part.bytes().all(|byte| byte.is_ascii_digit());
    numbers.len() == 3
        && numbers.iter().all(digits)
        && rest.is_none_or(|rest| {
            rest.split('.').all(|part| {
                !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            })
        })
}

/// Checks a version before anything is named after it.
///
/// # Errors
/// When it is none, or has build metadata, which no tag of an image may contain.
pub fn check_version(version: &str) -> Result<()> {
    ensure!(is_version(version), "{version:?} is no version like 1.2.3 or 1.2.3-rc.1");
    Ok(())
}

/// `text` with `version` in all its places, and with images in `registry`.
pub fn stamped(file: &str, text: &str, version: &str, registry: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for place in places(file, text) {
        out.push_str(&text[from..place.start]);
        out.push_str(version);
        from = place.end;
    }
    out.push_str(&text[from..]);
    out.replace(&format!("{REGISTRY}/"), &format!("{}/", registry.trim_end_matches('/')))
}

/// Rewrites the files below `folder`, a copy of `manifests`. Gives the number of files that name a version or an image.
///
/// # Errors
/// When a file cannot be read or written, or no file names anything.
pub fn stamp(folder: &Path, version: &str, registry: &str) -> Result<usize> {
    check_version(version)?;
    if registry.is_empty() || registry.contains("://") {
        bail!("{registry:?} is no registry and path like {REGISTRY}");
    }
    let changed = stamp_below(folder, version, registry)?;
    ensure!(changed > 0, "no file below {} names a version or an image", folder.display());
    Ok(changed)
}

fn stamp_below(folder: &Path, version: &str, registry: &str) -> Result<usize> {
    let mut changed = 0;
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            changed += stamp_below(&path, version, registry)?;
            continue;
        }
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // a picture, for instance
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        if places(&file, &text).is_empty() && !text.contains(REGISTRY) {
            continue;
        }
        std::fs::write(&path, stamped(&file, &text, version, registry))
            .with_context(|| format!("cannot write {}", path.display()))?;
        changed += 1;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn stamp_finds_every_form_of_the_version() {
        for (file, line, after) in [
            ("deployment.yaml", "image: ghcr.io/olm-rs/catalogd:0.1.0", "image: r/x/catalogd:2.0.0-rc.1"),
            ("values.yaml", "  image: \"ghcr.io/olm-rs/operator-controller:0.1.0\"", "  image: \"r/x/operator-controller:2.0.0-rc.1\""),
            ("values.yaml", "    repository: ghcr.io/olm-rs/catalogd", "    repository: r/x/catalogd"),
            ("Chart.yaml", "version: 0.1.0", "version: 2.0.0-rc.1"),
            ("Chart.yaml", "appVersion: \"0.1.0\"", "appVersion: \"2.0.0-rc.1\""),
            ("Chart.yaml", "kubeVersion: \">=1.31.0-0\"", "kubeVersion: \">=1.31.0-0\""),
            ("other.yaml", "version: 0.1.0", "version: 0.1.0"),
            ("install.md", "- {name: ghcr.io/olm-rs/catalogd, newName: registry.example.com/olm/catalogd, newTag: 0.1.0}",
                "- {name: r/x/catalogd, newName: registry.example.com/olm/catalogd, newTag: 2.0.0-rc.1}"),
            ("install.md", "newTag: 0.1.0", "newTag: 0.1.0"),
            ("install.md", "[\"https://github.com/olm-rs/olm-rs//manifests/overlays/kubernetes?ref=v0.1.0\"]",
                "[\"https://github.com/olm-rs/olm-rs//manifests/overlays/kubernetes?ref=v2.0.0-rc.1\"]"),
            ("install.md", "helm install olm-rs oci://ghcr.io/olm-rs/charts/olm-rs --version 0.1.0 --wait",
                "helm install olm-rs oci://r/x/charts/olm-rs --version 2.0.0-rc.1 --wait"),
            ("install.md", "https://github.com/olm-rs/olm-rs/releases/download/v0.1.0/install-kubernetes.yaml.",
                "https://github.com/olm-rs/olm-rs/releases/download/v2.0.0-rc.1/install-kubernetes.yaml."),
            ("labels.yaml", "app.kubernetes.io/version: \"0.1.0\"", "app.kubernetes.io/version: \"2.0.0-rc.1\""),
            ("page.md", "Use ghcr.io/olm-rs/catalogd:0.1.0.", "Use r/x/catalogd:2.0.0-rc.1."),
            ("page.md", "Kubernetes 1.31.0, kwok 0.7.0", "Kubernetes 1.31.0, kwok 0.7.0"),
            ("page.md", "ghcr.io/olm-rs/catalogd:latest", "r/x/catalogd:latest"),
        ] {
            assert_eq!(stamped(file, line, "2.0.0-rc.1", "r/x/"), after, "{file}: {line}");
        }
    }

    #[test]
    fn stamp_places_have_lines_and_are_found_once() {
        let text = "# chart\nversion: 0.1.0\nappVersion: '0.1.0'\n";
        let found = places("Chart.yaml", text);
        assert_eq!(found.iter().map(|place| place.line).collect::<Vec<_>>(), [2, 3]);
        assert!(found.iter().all(|place| &text[place.start..place.end] == "0.1.0"));
        let twice = "x: [ghcr.io/olm-rs/catalogd:0.1.0, ghcr.io/olm-rs/catalogd:0.2.0]";
        assert_eq!(places("values.yaml", twice).len(), 2);
    }

    #[test]
    fn stamp_rejects_versions_that_are_no_tags() {
        for version in ["1.2", "v1.2.3", "1.2.3+build", "1.2.3-", "", "1.2.3-a..b", "1.2.x"] {
            assert!(check_version(version).is_err(), "{version}");
        }
        for version in ["0.1.0", "1.2.3-rc.1", "10.20.30-alpha-2"] {
            check_version(version).unwrap();
        }
    }

    #[test]
    fn stamp_of_a_folder_reports_nothing_to_do() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("base")).unwrap();
        let file = folder.path().join("base/deployment.yaml");
        std::fs::write(&file, "image: ghcr.io/olm-rs/catalogd:0.1.0\n").unwrap();
        assert_eq!(stamp(folder.path(), "0.2.0", "registry.example.com/olm").unwrap(), 1);
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "image: registry.example.com/olm/catalogd:0.2.0\n"
        );
        let problem = stamp(folder.path(), "0.2.0", "registry.example.com/olm").unwrap_err();
        assert!(problem.to_string().contains("names a version or an image"), "{problem}");
        let problem = stamp(folder.path(), "0.2.0", "https://registry.example.com").unwrap_err();
        assert!(problem.to_string().contains("is no registry and path"), "{problem}");
    }
}
