//! The packages of OLM Classic's scenario: a catalog whose heads are published one after another, and the manifests of the bundles.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use classic_controller::image_source::{CatalogContent, FetchError, ImageSource};
use futures::future::BoxFuture;
use olm_api::classic::CatalogSource;
use olm_core::Object;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::harness::{GARDEN, ORCHARD};

/// The packages: the first requires an API of the second, the third has a webhook.
pub const PACKAGES: [&str; 3] = ["apple", "pear", "plum"];
/// The versions of each package, ascending; each replaces the one before.
pub const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "2.0.0"];
/// The catalog and its image.
pub const CATALOG: &str = "fruit";
pub const CATALOG_IMAGE: &str = "registry.example.com/fruit:latest";
/// Another image, with the first version of each package only.
pub const EARLIER_IMAGE: &str = "registry.example.com/fruit:earlier";
/// The default channel of each package, which has all versions.
pub const CHANNEL: &str = "stable";
/// A channel with the first version only.
pub const TRIAL_CHANNEL: &str = "trial";
/// The time that pulling an image takes.
const PULL: Duration = Duration::from_millis(300);

/// What the registry holds.
pub struct Content {
    /// By image reference.
    bundles: BTreeMap<String, Vec<Object>>,
    /// The place in [`VERSIONS`] of the newest version of each package.
    heads: Mutex<BTreeMap<&'static str, usize>>,
    /// The registry does not answer.
    outage: Mutex<bool>,
}

/// The packages that are installed in a namespace.
pub fn packages(namespace: &str) -> &'static [&'static str] {
    match namespace {
        ORCHARD => &PACKAGES[..2],
        GARDEN => &PACKAGES[2..],
        _ => &[],
    }
}

/// The name of a ClusterServiceVersion.
pub fn csv_name(package: &str, version: &str) -> String {
    format!("{package}.v{version}")
}

/// The ConfigMap that only this version has.
pub fn only(package: &str, version: &str) -> String {
    format!("{package}-{}", version.replace('.', "-"))
}

/// The names of the CustomResourceDefinitions of a package; the first one is of its main kind.
pub fn crd_names(package: &str) -> [String; 2] {
    [format!("{package}s.{package}.example.com"), format!("{package}seeds.{package}.example.com")]
}

fn kind_of(package: &str) -> String {
    format!("{}{}", package[..1].to_uppercase(), &package[1..])
}

pub fn custom_resource(package: &str, namespace: &str, number: usize) -> Value {
    json!({
        "apiVersion": format!("{package}.example.com/v1"), "kind": kind_of(package),
        "metadata": {"name": format!("example-{number}"), "namespace": namespace}, "spec": {"number": number},
    })
}

fn image(package: &str, version: &str) -> String {
    format!("registry.example.com/{package}:v{version}")
}

impl Content {
    /// All bundles, and catalogs with the first version of each package.
    pub fn new() -> Result<Arc<Self>> {
        let mut bundles = BTreeMap::new();
        for package in PACKAGES {
            for (at, version) in VERSIONS.iter().enumerate() {
                bundles.insert(image(package, version), bundle(package, at)?);
            }
        }
        let heads = Mutex::new(PACKAGES.map(|package| (package, 0)).into());
        Ok(Arc::new(Self { bundles, heads, outage: Mutex::new(false) }))
    }

    /// Publishes the next version of a package, if there is one.
    pub fn publish(&self, package: &str) {
        if let Some(head) = self.heads.lock().get_mut(package) {
            *head = (*head + 1).min(VERSIONS.len() - 1);
        }
    }

    /// The newest version of a package.
    pub fn head(&self, package: &str) -> &'static str {
        VERSIONS[self.heads.lock().get(package).copied().unwrap_or_default()]
    }

    /// The objects of a bundle, its ClusterServiceVersion first.
    pub fn objects(&self, package: &str, version: &str) -> &[Object] {
        self.bundles.get(&image(package, version)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Begins or ends an outage of the registry.
    pub fn set_outage(&self, is_out: bool) {
        *self.outage.lock() = is_out;
    }

    fn check(&self) -> Result<(), String> {
        if *self.outage.lock() { Err("connection refused".to_owned()) } else { Ok(()) }
    }
}

impl ImageSource for Content {
    fn catalog<'a>(
        &'a self,
        _: &'a CatalogSource,
        reference: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, FetchError>> {
        Box::pin(async move {
            tokio::time::sleep(PULL).await;
            let failed = |message| FetchError { message, is_final: false };
            self.check().map_err(failed)?;
            let served = match reference {
                CATALOG_IMAGE => Served::new("fruit", &self.heads.lock()),
                EARLIER_IMAGE => {
                    Served::new("earlier", &BTreeMap::from(PACKAGES.map(|package| (package, 0))))
                }
                _ => return Err(failed(format!("{reference} not found"))),
            };
            Ok(Arc::new(served) as _)
        })
    }

    fn bundle<'a>(
        &'a self,
        _: &'a CatalogSource,
        image: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>> {
        Box::pin(async move {
            tokio::time::sleep(PULL).await;
            self.check().map_err(|message| FetchError { message, is_final: false })?;
            let missing = || FetchError { message: format!("{image} not found"), is_final: true };
            self.bundles.get(image).cloned().ok_or_else(missing)
        })
    }
}

/// The catalog with the versions up to a head for each package.
struct Served {
    reference: String,
    heads: BTreeMap<&'static str, usize>,
}

impl Served {
    fn new(repository: &str, heads: &BTreeMap<&'static str, usize>) -> Self {
        let digits: String = heads.values().map(usize::to_string).collect();
        let reference = format!("registry.example.com/{repository}@sha256:{digits:0>64}");
        Self { reference, heads: heads.clone() }
    }
}

impl CatalogContent for Served {
    fn reference(&self) -> &str {
        &self.reference
    }

    fn packages(&self) -> Vec<String> {
        self.heads.keys().map(|package| (*package).to_owned()).collect()
    }

    fn package_lines(&self, package: &str) -> io::Result<Vec<u8>> {
        let head = self.heads.get(package).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(catalog(package, &VERSIONS[..=head]).into_bytes())
    }
}

/// The package as lines of a file-based catalog.
fn catalog(package: &str, versions: &[&str]) -> String {
    let name = |version: &str| csv_name(package, version);
    let entry = |(at, version): (usize, &&str)| match at.checked_sub(1) {
        Some(before) => json!({"name": name(version), "replaces": name(versions[before])}),
        None => json!({"name": name(version)}),
    };
    let entries: Vec<Value> = versions.iter().enumerate().map(entry).collect();
    let channel = |name: &str, entries: &[Value]| json!({"schema": "olm.channel", "package": package, "name": name, "entries": entries});
    let mut lines = vec![
        json!({"schema": "olm.package", "name": package, "defaultChannel": CHANNEL}),
        channel(CHANNEL, &entries),
        channel(TRIAL_CHANNEL, &entries[..1]),
    ];
    let gvk = |package: &str| json!({"group": format!("{package}.example.com"), "version": "v1", "kind": kind_of(package)});
    lines.extend(versions.iter().map(|version| {
        let mut properties = vec![
            json!({"type": "olm.package", "value": {"packageName": package, "version": version}}),
            json!({"type": "olm.gvk", "value": gvk(package)}),
        ];
        if package == PACKAGES[0] {
            properties.push(json!({"type": "olm.gvk.required", "value": gvk(PACKAGES[1])}));
        }
        json!({"schema": "olm.bundle", "package": package, "name": name(version), "image": image(package, version),
            "properties": properties})
    }));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The manifests of a bundle. A new version changes every kind of object but the CRDs, brings a ConfigMap and takes one away.
fn bundle(package: &str, at: usize) -> Result<Vec<Object>> {
    let version = VERSIONS[at];
    let group = format!("{package}.example.com");
    let crds = crd_names(package);
    let owned = |(name, kind): (&String, String)| json!({"name": name, "kind": kind, "version": "v1"});
    let kinds = [kind_of(package), format!("{}Seed", kind_of(package))];
    let owned: Vec<Value> = crds.iter().zip(kinds.clone()).map(owned).collect();
    let mut definitions = json!({ "owned": owned });
    if package == PACKAGES[0] {
        let required = PACKAGES[1];
        definitions["required"] =
            json!([{"name": crd_names(required)[0], "kind": kind_of(required), "version": "v1"}]);
    }
    let rules =
        |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]}]);
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    let modes = modes.map(|mode| json!({"type": mode, "supported": true}));
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": csv_name(package, version), "annotations": {"version": version}},
        "spec": {
            "displayName": package, "version": version, "installModes": modes,
            "customresourcedefinitions": definitions,
            "install": {"strategy": "deployment", "spec": {
                "permissions": [{"serviceAccountName": package, "rules": rules(&format!("version-{version}"))}],
                "clusterPermissions": [{"serviceAccountName": package, "rules": [
                    {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}]}],
                "deployments": [{"name": package, "spec": {
                    "selector": {"matchLabels": {"app": package}},
                    "template": {"metadata": {"labels": {"app": package}}, "spec": {
                        "serviceAccountName": package,
                        "containers": [{"name": "manager", "image": format!("registry.example.com/{package}:{version}")}]}}}}],
            }},
        },
    });
    if let Some(before) = at.checked_sub(1) {
        csv["spec"]["replaces"] = csv_name(package, VERSIONS[before]).into();
    }
    if package == PACKAGES[2] {
        csv["spec"]["webhookdefinitions"] = json!([{
            "type": "ValidatingAdmissionWebhook", "generateName": format!("v.{group}"), "deploymentName": package,
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "containerPort": 443, "targetPort": 9443,
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [format!("{package}s")]}],
        }]);
    }
    let mut manifests = vec![csv];
    manifests.extend(crds.iter().zip(&kinds).map(|(name, kind)| {
        let plural = name.split_once('.').map_or(name.as_str(), |(plural, _)| plural);
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}],
            },
        })
    }));
    for name in [format!("{package}-settings"), only(package, version)] {
        manifests.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"version": version}}));
    }
    let object = |value| Object::from_value(value).map_err(|error| anyhow::anyhow!("{error}"));
    manifests.into_iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_classic_serves_versions_up_to_the_head() {
        let content = Content::new().unwrap();
        let names = || {
            let served = Served::new("fruit", &content.heads.lock());
            let lines = String::from_utf8(served.package_lines("pear").unwrap()).unwrap();
            let names = VERSIONS.map(|version| lines.contains(&image("pear", version)));
            (served.reference, names)
        };
        let (first, served) = names();
        assert_eq!((content.head("pear"), served), ("1.0.0", [true, false, false]));
        content.publish("pear");
        let (second, served) = names();
        assert_eq!((content.head("pear"), served), ("1.1.0", [true, true, false]));
        assert_ne!(first, second, "another content is another digest");
    }
}
