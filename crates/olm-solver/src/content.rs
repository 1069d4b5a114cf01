//! Bundles and installed CSVs as the rules see them: packages, versions, APIs and properties.
//!
//! Rule: update-graph §7.1.

use std::cell::Cell;
use std::collections::HashSet;

use olm_core::{Range, Version};
use olm_resolver::constraint::{Facts, cel};
use olm_resolver::{GvkRef, Property};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::namespace::{BundleDraft, InstalledCsv};

const PACKAGE: &str = "olm.package";
const GVK: &str = "olm.gvk";
const DEPRECATED: &str = "olm.deprecated";

#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) name: Box<str>,
    /// Read tolerantly; `None` if there is none or it cannot be read.
    pub(crate) version: Option<Version>,
    /// Names in its `olm.package` properties, each once.
    pub(crate) packages: Vec<Box<str>>,
    /// APIs in its `olm.gvk` properties, each once.
    pub(crate) provides: Vec<GvkRef>,
    /// All properties, in order; dependencies among them.
    pub(crate) properties: Vec<Property>,
    pub(crate) is_deprecated: bool,
    /// The package that publishes it, if no property names that.
    published: Option<Box<str>>,
    /// Versions in its `olm.package` properties.
    package_versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PackageValue {
    package_name: String,
    version: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GvkValue {
    group: String,
    version: String,
    kind: String,
}

impl Content {
    /// `None` if an entry of `dependencies` has the wrong shape: such a bundle is not offered.
    pub(crate) fn from_bundle(package: &str, bundle: BundleDraft) -> Option<Self> {
        let mut properties = bundle.properties;
        if properties.is_empty() {
            properties.extend(bundle.provided_apis.iter().map(|gvk| gvk_property(GVK, gvk)));
        }
        if bundle.dependencies.is_empty() {
            properties.extend(required_properties(bundle.required_apis));
        } else {
            for dependency in bundle.dependencies {
                properties.extend(from_dependency(dependency).ok()?);
            }
        }
        if !properties.iter().any(|property| &*property.kind == PACKAGE) {
            properties.push(package_property(package, &bundle.version));
        }
        let mut content = Self::from_properties(&bundle.name, &bundle.version, properties);
        content.published = (!content.packages.iter().any(|it| **it == *package)).then(|| package.into());
        Some(content)
    }

    /// `package` is the one that its Subscriptions agree on.
    pub(crate) fn from_installed(csv: &InstalledCsv, package: Option<&str>) -> Self {
        let properties = csv.properties.clone().unwrap_or_else(|| {
            let provided = csv.provided_apis.iter().map(|gvk| gvk_property(GVK, gvk));
            let required = required_properties(csv.required_apis.clone());
            let package = package.map(|package| package_property(package, &csv.version));
            provided.chain(required).chain(package).collect()
        });
        Self::from_properties(&csv.name, &csv.version, properties)
    }

    fn from_properties(name: &str, version: &str, properties: Vec<Property>) -> Self {
        let mut content = Self {
            name: name.into(),
            version: Version::tolerant(version).ok(),
            packages: Vec::new(),
            provides: Vec::new(),
            properties: Vec::new(),
            is_deprecated: false,
            published: None,
            package_versions: Vec::new(),
        };
        for property in &properties {
            content.add(property);
        }
        let (mut packages, mut apis) = (HashSet::new(), HashSet::new());
        content.packages.retain(|package| packages.insert(package.clone()));
        content.provides.retain(|gvk| apis.insert(gvk.clone()));
        content.properties = properties;
        content
    }

    /// The packages that it can be asked for by.
    pub(crate) fn package_names(&self) -> impl Iterator<Item = &str> {
        self.packages.iter().chain(&self.published).map(|it| &**it)
    }

    /// A value of the wrong shape counts as if it were not there. Packages and APIs may come more than once.
    fn add(&mut self, property: &Property) {
        match &*property.kind {
            PACKAGE => {
                let Ok(value) = serde_json::from_str::<Option<PackageValue>>(&property.value) else { return };
                let PackageValue { package_name, version } = value.unwrap_or_default();
                self.packages.push(package_name.into());
                self.package_versions.extend(version.parse::<Version>().ok());
            }
            GVK => {
                let Ok(value) = serde_json::from_str::<Option<GvkValue>>(&property.value) else { return };
                let GvkValue { group, version, kind } = value.unwrap_or_default();
                self.provides.push(GvkRef {
                    group: group.into(),
                    version: version.into(),
                    kind: kind.into(),
                });
            }
            DEPRECATED => self.is_deprecated = true,
            _ => {}
        }
    }
}

/// A content that constraints are held against, and the work that it was.
pub(crate) struct Weighed<'a> {
    pub(crate) content: &'a Content,
    /// Steps of CEL rules.
    pub(crate) steps: Cell<usize>,
}

impl Facts for Weighed<'_> {
    fn provides(&self, gvk: &GvkRef) -> bool {
        self.content.provides.contains(gvk)
    }

    /// Name and range need not be met by the same `olm.package` property.
    fn is_of(&self, package: &str, range: &Range) -> bool {
        self.content.package_names().any(|known| known == package)
            && self
                .content
                .version
                .iter()
                .chain(&self.content.package_versions)
                .any(|version| range.contains(version))
    }

    fn has_label(&self, label: &str) -> bool {
        let is_label = |value: Value| value.get("label").and_then(Value::as_str) == Some(label);
        self.content.properties.iter().any(|property| {
            &*property.kind == "olm.label" && serde_json::from_str(&property.value).is_ok_and(is_label)
        })
    }

    fn meets(&self, rule: &cel::Rule) -> bool {
        let value = |property: &Property| serde_json::from_str(&property.value).unwrap_or(Value::Null);
        let properties: Vec<(&str, Value)> =
            self.content.properties.iter().map(|property| (&*property.kind, value(property))).collect();
        let (is_true, steps) = rule.evaluate(&properties);
        self.steps.set(self.steps.get() + steps);
        is_true
    }
}

fn property(kind: &str, value: &Value) -> Property {
    Property { kind: kind.into(), value: value.to_string().into() }
}

fn package_property(package: &str, version: &str) -> Property {
    property(PACKAGE, &json!({"packageName": package, "version": version}))
}

fn gvk_property(kind: &str, gvk: &GvkRef) -> Property {
    property(kind, &json!({"group": &*gvk.group, "version": &*gvk.version, "kind": &*gvk.kind}))
}

fn required_properties(mut apis: Vec<GvkRef>) -> impl Iterator<Item = Property> {
    apis.sort();
    apis.into_iter().map(|gvk| gvk_property("olm.gvk.required", &gvk))
}

/// An entry of `dependencies` as a property; unknown types have none.
fn from_dependency(dependency: Property) -> Result<Option<Property>, serde_json::Error> {
    Ok(match &*dependency.kind {
        PACKAGE => {
            let PackageValue { package_name, version } = serde_json::from_str(&dependency.value)?;
            let value = json!({"packageName": package_name, "versionRange": version});
            Some(property("olm.package.required", &value))
        }
        GVK => {
            let GvkValue { group, version, kind } = serde_json::from_str(&dependency.value)?;
            let gvk = GvkRef { group: group.into(), version: version.into(), kind: kind.into() };
            Some(gvk_property("olm.gvk.required", &gvk))
        }
        "olm.label" => Some(Property { kind: "olm.label.required".into(), ..dependency }),
        "olm.constraint" => Some(dependency),
        _ => None,
    })
}
