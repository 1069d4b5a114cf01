//! Catalog images: file-based catalogs from text, folders or a small description.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Files, Image, Layer, read_dir};

const LABEL: &str = "operators.operatorframework.io.index.configs.v1";

/// A channel entry; the bundle's name is `<package>.v<version>`.
#[derive(Debug, Clone)]
#[must_use]
pub struct Entry {
    version: String,
    replaces: Option<String>,
    skips: Vec<String>,
    skip_range: Option<String>,
}

impl Entry {
    /// An entry without edges.
    pub fn new(version: &str) -> Self {
        Self { version: version.to_owned(), replaces: None, skips: Vec::new(), skip_range: None }
    }

    /// Replaces the bundle of that version.
    pub fn replaces(mut self, version: &str) -> Self {
        self.replaces = Some(version.to_owned());
        self
    }

    /// Skips the bundle of that version.
    pub fn skips(mut self, version: &str) -> Self {
        self.skips.push(version.to_owned());
        self
    }

    /// Can be reached from every version in the range.
    pub fn skip_range(mut self, range: &str) -> Self {
        self.skip_range = Some(range.to_owned());
        self
    }
}

/// One package: documents of a file-based catalog.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Package {
    name: String,
    default_channel: Option<String>,
    channels: Vec<Value>,
    bundles: Vec<Value>,
    others: Vec<Value>,
}

impl Package {
    /// An empty package. The default channel is the first one.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Another default channel than the first.
    pub fn default_channel(mut self, name: &str) -> Self {
        self.default_channel = Some(name.to_owned());
        self
    }

    /// Adds a channel.
    pub fn channel(mut self, name: &str, entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries: Vec<Value> = entries
            .into_iter()
            .map(|entry| {
                let mut it = json!({"name": self.bundle_name(&entry.version)});
                if let Some(replaces) = &entry.replaces {
                    it["replaces"] = json!(self.bundle_name(replaces));
                }
                if !entry.skips.is_empty() {
                    it["skips"] = entry.skips.iter().map(|version| self.bundle_name(version)).collect();
                }
                if let Some(range) = &entry.skip_range {
                    it["skipRange"] = json!(range);
                }
                it
            })
            .collect();
        let channel =
            json!({"schema": "olm.channel", "package": self.name, "name": name, "entries": entries});
        self.default_channel.get_or_insert_with(|| name.to_owned());
        self.channels.push(channel);
        self
    }

    /// Adds a bundle.
    pub fn bundle(self, version: &str, image: &str) -> Self {
        self.bundle_with(version, image, [])
    }

    /// Adds a bundle with further properties `{type, value}`.
    pub fn bundle_with(
        mut self,
        version: &str,
        image: &str,
        properties: impl IntoIterator<Item = Value>,
    ) -> Self {
        let own = json!({"type": "olm.package", "value": {"packageName": self.name, "version": version}});
        let properties: Vec<Value> = std::iter::once(own).chain(properties).collect();
        self.bundles.push(json!({
            "schema": "olm.bundle", "package": self.name, "name": self.bundle_name(version), "image": image, "properties": properties,
        }));
        self
    }

    /// Adds a document of any schema.
    pub fn document(mut self, document: Value) -> Self {
        self.others.push(document);
        self
    }

    /// Adds deprecations: (reference such as `{"schema": "olm.channel", "name": "old"}`, message).
    pub fn deprecations(self, entries: impl IntoIterator<Item = (Value, &'static str)>) -> Self {
        let entries: Vec<Value> = entries
            .into_iter()
            .map(|(reference, message)| json!({"reference": reference, "message": message}))
            .collect();
        let package = self.name.clone();
        self.document(json!({"schema": "olm.deprecations", "package": package, "entries": entries}))
    }

    /// `<package>.v<version>`
    pub fn bundle_name(&self, version: &str) -> String {
        format!("{}.v{version}", self.name)
    }

    /// The documents in order: package, channels, bundles, others.
    pub fn documents(&self) -> Vec<Value> {
        let package =
            json!({"schema": "olm.package", "name": self.name, "defaultChannel": self.default_channel});
        let mut all = vec![package];
        all.extend(self.channels.iter().chain(&self.bundles).chain(&self.others).cloned());
        all
    }

    /// The documents as a YAML stream (each document is JSON, which YAML includes).
    pub fn text(&self) -> String {
        self.documents().iter().map(|document| format!("---\n{document:#}\n")).collect()
    }
}

/// A catalog image: files below `/configs`, and the label that names the folder.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct CatalogImage {
    files: Files,
    label: Option<Option<String>>,
}

impl CatalogImage {
    /// An empty catalog.
    pub fn new() -> Self {
        Self::default()
    }

    /// One file `catalog.yaml` with this text.
    pub fn from_text(text: &str) -> Self {
        Self::new().file("catalog.yaml", text)
    }

    /// All files of a folder.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        Ok(Self { files: read_dir(dir, "configs/")?, label: None })
    }

    /// Adds `<package>/catalog.yaml`.
    pub fn package(self, package: &Package) -> Self {
        let text = package.text();
        self.file(&format!("{}/catalog.yaml", package.name), &text)
    }

    /// Adds a file; the path is below `/configs`.
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(format!("configs/{path}"), text.as_bytes().to_vec());
        self
    }

    /// Leaves the label out.
    pub fn without_label(mut self) -> Self {
        self.label = Some(None);
        self
    }

    /// Another value of the label than `/configs`.
    pub fn label(mut self, value: &str) -> Self {
        self.label = Some(Some(value.to_owned()));
        self
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The image: one layer and the label.
    pub fn image(&self) -> Image {
        let image = Image::new().layer(Layer::from_files(&self.files));
        match &self.label {
            Some(None) => image,
            Some(Some(value)) => image.label(LABEL, value),
            None => image.label(LABEL, "/configs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_package_becomes_documents() {
        let package = Package::new("demo")
            .channel("stable", [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0").skips("1.0.1")])
            .bundle("1.0.0", "example.invalid/demo:v1.0.0");
        let documents = package.documents();
        assert_eq!(documents[0]["defaultChannel"], "stable");
        assert_eq!(
            documents[1]["entries"][1],
            json!({"name": "demo.v1.1.0", "replaces": "demo.v1.0.0", "skips": ["demo.v1.0.1"]})
        );
        assert_eq!(documents[2]["name"], "demo.v1.0.0");
        assert_eq!(package.text().matches("---\n").count(), 3);
    }

    #[test]
    fn image_catalog_label_can_be_changed_and_left_out() {
        let catalog = CatalogImage::from_text("{}");
        assert!(catalog.files().contains_key("configs/catalog.yaml"));
        let label = |catalog: CatalogImage| catalog.image().labels.get(LABEL).cloned();
        assert_eq!(label(catalog.clone()).as_deref(), Some("/configs"));
        assert_eq!(label(catalog.clone().label("/else")).as_deref(), Some("/else"));
        assert_eq!(label(catalog.without_label()), None);
    }
}
