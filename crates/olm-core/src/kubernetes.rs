//! Versions of Kubernetes: that of a server, and the lowest one that a bundle needs.

use std::fmt;
use std::str::FromStr;

use crate::version::Version;

/// The version of an apiserver. What providers append (`v1.27.3-gke.100`, `v1.33.1+k3s1`) and pre-releases do not count: they are
/// versions of the build, and a pre-release serves what the release will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
}

/// A text that is no version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no version of Kubernetes; write it like 1.33 or v1.33.1")]
pub struct KubernetesVersionError(String);

impl KubernetesVersion {
    /// Whether a bundle with this lowest version runs here.
    #[must_use]
    pub fn is_at_least(&self, lowest: &Version) -> bool {
        let release = (self.major, self.minor, self.patch);
        let needed = (lowest.major(), lowest.minor(), lowest.patch());
        // a pre-release of the lowest version is lower than its release
        release >= needed
    }
}

impl FromStr for KubernetesVersion {
    type Err = KubernetesVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let version = lowest_kubernetes(text)?;
        Ok(Self { major: version.major(), minor: version.minor(), patch: version.patch() })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}.{}", self.major, self.minor, self.patch))
    }
}

/// Reads a `minKubeVersion`: catalogs also write `v1.17.0` and `1.19.0-0`, and some leave out the patch version.
///
/// # Errors
/// When the text is no version.
pub fn lowest_kubernetes(text: &str) -> Result<Version, KubernetesVersionError> {
    let failed = || KubernetesVersionError(text.to_owned());
    let plain = text.trim();
    let plain = plain.strip_prefix('v').unwrap_or(plain);
    let (numbers, rest) =
        plain.find(['-', '+']).map_or((plain, ""), |at| (plain.get(..at).unwrap_or(plain), &plain[at..]));
    let patch = if numbers.matches('.').count() == 1 { ".0" } else { "" };
    format!("{numbers}{patch}{rest}").parse().map_err(|_| failed())
}

/// A template of an image reference after its variables were replaced (classic-apis §2.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTemplate {
    /// The text with every variable replaced that has a value.
    pub image: String,
    /// Why it names no image, if it does not.
    pub error: Option<String>,
}

/// Replaces `{kube_major_version}`, `{kube_minor_version}` and `{kube_patch_version}` by those of the cluster; `None` is a version that is
/// not known yet.
#[must_use]
pub fn resolve_image_template(template: &str, version: Option<KubernetesVersion>) -> ResolvedTemplate {
    let variables = [
        ("{kube_major_version}", version.map(|version| version.major)),
        ("{kube_minor_version}", version.map(|version| version.minor)),
        ("{kube_patch_version}", version.map(|version| version.patch)),
    ];
    let (mut image, mut rest, mut unresolved) = (template.to_owned(), template.to_owned(), Vec::new());
    for (variable, value) in variables {
        if !template.contains(variable) {
            continue;
        }
        rest = rest.replace(variable, "");
        match value {
            Some(value) => image = image.replace(variable, &value.to_string()),
            None => unresolved.push(variable),
        }
    }
    let unresolved = (!unresolved.is_empty())
        .then(|| format!("variable(s) {:?} could not be resolved", unresolved.join(", ")));
    let malformed =
        rest.contains(['{', '}']).then(|| "one or more template(s) has improper syntax".to_owned());
    let problems: Vec<String> = unresolved.into_iter().chain(malformed).collect();
    let error = (!problems.is_empty())
        .then(|| format!("cannot construct catalog image reference, because {}", problems.join(" and ")));
    ResolvedTemplate { image, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_versions_are_compared_without_suffix() {
        for (server, lowest, runs) in [
            ("v1.33.1", "1.33.1", true),
            ("v1.33.1", "1.33.2", false),
            ("v1.33.1", "v1.17.0", true),
            ("v1.9.0", "1.10.0", false),
            ("v1.19.0", "1.19.0-0", true),
            ("v1.18.9", "1.19.0-0", false),
            ("v1.27.3-gke.100", "1.27.3", true),
            ("v1.33.1+k3s1", "1.33.1", true),
            ("v1.34.0-alpha.1", "1.34.0", true),
            ("1.30", "1.30.0", true),
            ("1.30", "1.31", false),
            ("v2.0.0", "1.99.0", true),
        ] {
            let server: KubernetesVersion = server.parse().unwrap();
            assert_eq!(server.is_at_least(&lowest_kubernetes(lowest).unwrap()), runs, "{server} {lowest}");
        }
        for text in ["", "1", "one", "v", "1.2.3.4", "1.x", ">=1.20", "-"] {
            let want = format!("{text:?} is no version of Kubernetes; write it like 1.33 or v1.33.1");
            assert_eq!(text.parse::<KubernetesVersion>().unwrap_err().to_string(), want);
        }
        assert_eq!("v1.27.3-gke.100".parse::<KubernetesVersion>().unwrap().to_string(), "1.27.3");
    }

    /// rule: classic-apis §2.6
    #[test]
    #[rustfmt::skip]
    fn image_templates_are_resolved_by_the_version() {
        let version = "v1.25.3-gke.1".parse().ok();
        let failed = |why: &str| Some(format!("cannot construct catalog image reference, because {why}"));
        let syntax = "one or more template(s) has improper syntax";
        for (template, version, image, error) in [
            ("q.io/c:v{kube_major_version}.{kube_minor_version}", version, "q.io/c:v1.25", None),
            ("q.io/c:{kube_patch_version}-{kube_patch_version}", version, "q.io/c:3-3", None),
            ("q.io/c:v1", version, "q.io/c:v1", None),
            ("q.io/c:v1", None, "q.io/c:v1", None),
            ("q.io/c:{foo}", version, "q.io/c:{foo}", failed(syntax)),
            ("q.io/c:{kube_major_version", version, "q.io/c:{kube_major_version", failed(syntax)),
            ("q.io/c:v{kube_minor_version}{foo}", version, "q.io/c:v25{foo}", failed(syntax)),
            ("q.io/c:{kube_minor_version}", None, "q.io/c:{kube_minor_version}",
                failed("variable(s) \"{kube_minor_version}\" could not be resolved")),
            ("q.io/c:{kube_major_version}.{kube_minor_version}}", None, "q.io/c:{kube_major_version}.{kube_minor_version}}",
                failed(&format!("variable(s) \"{{kube_major_version}}, {{kube_minor_version}}\" could not be resolved and {syntax}"))),
        ] {
            let want = ResolvedTemplate { image: image.to_owned(), error };
            assert_eq!(resolve_image_template(template, version), want, "{template}");
        }
    }
}
