//! The images of selected packages, and what is not among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use olm_core::{ImageRef, ImageRefError};
use olm_fbc::property::{self, PackageRequired};
use serde::Serialize;

use super::super::output::counted;
use super::selection::PackageChoice;

/// Bundles that a note names.
const MAX_NAMED: usize = 3;

/// What an image is for. If it is for several things, the first one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// The content of a ClusterCatalog.
    Catalog,
    /// The manifests of a version.
    Bundle,
    /// What a bundle names as a related image: what its pods run.
    Related,
    /// Given with `--add-image`.
    Added,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Catalog => "catalog",
            Self::Bundle => "bundle",
            Self::Related => "related",
            Self::Added => "added",
        })
    }
}

/// An image, once. `-o json` prints a list of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageRow {
    /// As the catalog writes it.
    pub(super) image: String,
    pub(super) role: Role,
    /// Catalogs and bundles that use it.
    pub(super) used_by: Vec<String>,
}

/// Roles and users of images, by image.
#[derive(Default)]
struct Images<'a>(BTreeMap<&'a str, (Role, BTreeSet<&'a str>)>);

impl<'a> Images<'a> {
    fn add(&mut self, image: &'a str, role: Role, user: &'a str) {
        if image.is_empty() {
            return;
        }
        let (known, users) = self.0.entry(image).or_insert((role, BTreeSet::new()));
        *known = role.min(*known);
        users.insert(user);
    }
}

/// All images, by name.
pub(super) fn images_of(choices: &[PackageChoice], added: &[String]) -> Vec<ImageRow> {
    let mut images = Images::default();
    for choice in choices {
        images.add(choice.catalog_image.as_deref().unwrap_or_default(), Role::Catalog, &choice.catalog);
        for bundle in choice.bundles() {
            images.add(&bundle.image, Role::Bundle, &bundle.name);
            for related in &bundle.related_images {
                images.add(&related.image, Role::Related, &bundle.name);
            }
        }
    }
    for image in added {
        images.add(image, Role::Added, "--add-image");
    }
    let row = |(image, (role, users)): (&str, (Role, BTreeSet<&str>))| ImageRow {
        image: image.to_owned(),
        role,
        used_by: users.into_iter().map(str::to_owned).collect(),
    };
    images.0.into_iter().map(row).collect()
}

/// Images that the catalog does not name, and packages that are needed and not selected.
pub(super) fn notes(choices: &[PackageChoice]) -> Vec<String> {
    let mut notes = Vec::new();
    let selected: BTreeSet<&str> = choices.iter().map(|choice| choice.package.as_str()).collect();
    let mut without = BTreeSet::new();
    let mut needed: BTreeMap<(String, String), &str> = BTreeMap::new();
    for bundle in choices.iter().flat_map(PackageChoice::bundles) {
        if bundle
            .related_images
            .iter()
            .all(|related| related.image.is_empty() || related.image == bundle.image)
        {
            without.insert(bundle.name.as_str());
        }
        let required = bundle.properties_of(property::PACKAGE_REQUIRED);
        for required in required.filter_map(|property| property.read::<PackageRequired>(0).ok()) {
            if !selected.contains(required.package_name.as_str()) {
                needed.insert((required.package_name, required.version_range), &bundle.name);
            }
        }
    }
    if !without.is_empty() {
        let named: Vec<&str> = without.iter().copied().take(MAX_NAMED).collect();
        let more = match without.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (names, them) = match without.len() {
            1 => ("names", "it runs"),
            _ => ("name", "they run"),
        };
        notes.push(format!(
            "{}{more} {names} no related images: add what {them} with --add-image; `kubectl olm bundle inspect` shows it",
            named.join(", ")
        ));
    }
    for ((package, range), bundle) in needed {
        let required = format!("{package} {range}");
        notes.push(format!("{bundle} needs package {}, which is not selected", required.trim_end()));
    }
    notes
}

/// The reference as a container runtime completes it: `docker.io` and `latest` where they are left out; a digest wins over a tag.
pub(super) fn completed(image: &str) -> Result<ImageRef, ImageRefError> {
    let reference = match image.parse::<ImageRef>() {
        Err(ImageRefError::TagAndDigest) => {
            let (named, digest) = image.split_once('@').unwrap_or((image, ""));
            let untagged = named.rsplit_once(':').map_or(named, |(name, _)| name);
            return completed(&format!("{untagged}@{digest}"));
        }
        Err(ImageRefError::NotCanonical) => {
            let path = image.strip_prefix("docker.io/").unwrap_or(image);
            let library = if path.contains('/') { "" } else { "library/" };
            let whole = format!("docker.io/{library}{path}");
            return if whole == image { Err(ImageRefError::NotCanonical) } else { completed(&whole) };
        }
        other => other?,
    };
    if reference.tag().is_some() || reference.digest().is_some() {
        return Ok(reference);
    }
    format!("{reference}:latest").parse()
}

/// The note about images whose references cannot be read.
pub(super) fn invalid(images: &[String]) -> Option<String> {
    let (first, _) = images.split_first()?;
    Some(format!(
        "{} left out, because the reference cannot be read, such as {first:?}",
        counted(images.len(), "image")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_completed() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (image, want) in [
            ("quay.io/a/b:1", Some("quay.io/a/b:1".to_owned())),
            ("quay.io/a/b", Some("quay.io/a/b:latest".to_owned())),
            ("nginx:1", Some("docker.io/library/nginx:1".to_owned())),
            ("docker.io/nginx", Some("docker.io/library/nginx:latest".to_owned())),
            ("grafana/grafana:9", Some("docker.io/grafana/grafana:9".to_owned())),
            (&format!("quay.io/a/b:1@{digest}"), Some(format!("quay.io/a/b@{digest}"))),
            (&format!("localhost:5000/b:1@{digest}"), Some(format!("localhost:5000/b@{digest}"))),
            (&format!("nginx:1@{digest}"), Some(format!("docker.io/library/nginx@{digest}"))),
            ("Foo/x:", None),
            ("quay.io/a b", None),
        ] {
            assert_eq!(completed(image).ok().map(|found| found.to_string()), want, "{image}");
        }
    }
}
