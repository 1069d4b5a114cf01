//! The catalogs: what they offer by now, and pushing more of it under the same tag.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use olm_bundle::{RegistryV1, RenderOptions, render};
use olm_core::Object;
use olm_kit::{BundleImage, CatalogImage, Entry, Package, Registry};
use serde_json::json;

/// Versions that a catalog keeps of each package, beside those to which an extension is pinned.
const OFFERED: usize = 4;

/// One catalog. Version `1.n.0` is the number n.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// Of the catalog, its repository and its label.
    pub(crate) name: String,
    packages: BTreeMap<String, BTreeMap<u32, String>>,
    /// What the tag points to by now.
    pub(crate) digest: String,
    /// Times that it was pushed.
    pub(crate) pushes: u32,
}

impl Shelf {
    /// Nothing is pushed yet.
    pub(crate) fn new(name: &str, packages: impl IntoIterator<Item = String>) -> Self {
        let packages = packages.into_iter().map(|package| (package, BTreeMap::new())).collect();
        Self { name: name.to_owned(), packages, digest: String::new(), pushes: 0 }
    }

    pub(crate) fn packages(&self) -> Vec<String> {
        self.packages.keys().cloned().collect()
    }

    /// Versions that it offers of a package, ascending; none when it has no such package.
    pub(crate) fn offers(&self, package: &str) -> Vec<u32> {
        self.packages.get(package).map(|versions| versions.keys().copied().collect()).unwrap_or_default()
    }

    /// Pushes the next version of these packages and the catalog with it. Versions in `pinned` stay on offer.
    pub(crate) async fn push(
        &mut self,
        registry: &Registry,
        packages: &[String],
        pinned: &BTreeSet<(String, u32)>,
    ) -> Result<()> {
        for package in packages {
            let versions = self.packages.get_mut(package).context("the catalog has no such package")?;
            let next = versions.keys().next_back().map_or(0, |last| last + 1);
            let tag = format!("v{}", version(next));
            let pushed =
                registry.push(&format!("{package}/bundle"), &tag, &bundle(package, next).image()).await?;
            versions.insert(next, pushed.by_digest());
            let old = versions.len().saturating_sub(OFFERED);
            let old: Vec<u32> = versions.keys().copied().take(old).collect();
            for number in old {
                if !pinned.contains(&(package.clone(), number)) {
                    versions.remove(&number);
                }
            }
        }
        let mut catalog = CatalogImage::new();
        for (name, versions) in &self.packages {
            let mut before = None;
            let entries = versions.keys().map(|number| {
                // from everything below, as what was installed may be off the shelf
                let entry = Entry::new(&version(*number)).skip_range(&format!("<{}", version(*number)));
                let before = before.replace(*number);
                before.map_or(entry.clone(), |before| entry.replaces(&version(before)))
            });
            let mut package = Package::new(name).channel("stable", entries);
            for (number, image) in versions {
                package = package.bundle(&version(*number), image);
            }
            catalog = catalog.package(&package);
        }
        self.digest = registry.push(&self.name, "latest", &catalog.image()).await?.digest;
        self.pushes += 1;
        Ok(())
    }
}

/// `1.n.0`
pub(crate) fn version(number: u32) -> String {
    format!("1.{number}.0")
}

pub(crate) fn number(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.strip_suffix(".0")?.parse().ok()
}

/// A CRD, an account with rights, a Deployment, a ConfigMap with the version; a ConfigMap that comes and goes with
/// versions; some have a webhook and thus a certificate.
fn bundle(package: &str, number: u32) -> BundleImage {
    let note = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{package}-note-{}", number % 3)},
        "data": {"a": "b"}});
    let bundle = BundleImage::new(package, &version(number)).extra(note);
    if !has_webhook(package) {
        return bundle;
    }
    bundle.webhook(json!({
        "type": "ValidatingAdmissionWebhook", "generateName": format!("v.{package}.kit.test"),
        "deploymentName": format!("{package}-ctrl"), "containerPort": 443, "targetPort": 9443,
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        "rules": [{"apiGroups": [format!("{package}.kit.test")], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["widgets"]}],
    }))
}

/// Every fourth package.
pub(crate) fn has_webhook(package: &str) -> bool {
    package.bytes().last().is_some_and(|digit| digit.is_multiple_of(4))
}

/// What installing this version makes, in the namespace of the package's name.
pub(crate) fn objects(package: &str, number: u32) -> Result<Vec<Object>> {
    let files = bundle(package, number).files();
    let registry = RegistryV1::from_files(files.iter().map(|(path, text)| (path.clone(), text)))?;
    Ok(render(&registry, &RenderOptions::new(package))?)
}

#[test]
fn soak_versions_are_numbers() {
    assert_eq!(number(&version(12)), Some(12));
    assert_eq!(number("2.0.0"), None);
    let of = |number| objects("soak-00", number).unwrap().len();
    assert_eq!(of(0), of(1));
    assert!(of(0) > objects("soak-01", 0).unwrap().len(), "the one has a webhook");
}
