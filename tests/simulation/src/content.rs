//! The packages of the simulation: their catalog, and what is rendered from their bundles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use olm_bundle::{CertProvider, PROPERTIES_ANNOTATION, RegistryV1, RenderOptions, render_with_report};
use olm_catalog::PackageContent;
use olm_catalog::catalogd::Endpoint;
use olm_core::{Object, PackageName};
use olm_fbc::PackageSummary;
use olm_install::render::Rendered;
use olm_install::resolution::{BundleFacts, Class, ExtensionRequest, PassError};
use olm_resolver::{CatalogReadError, PackageGraph, ReleaseField};
use operator_controller::bundles::BundleSource;
use operator_controller::catalogs::PackageSource;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The packages; an extension has the name of its package, and its own namespace of that name. The last has webhooks.
pub const PACKAGES: [&str; 3] = ["apple", "pear", "plum"];
/// The versions of each package, ascending.
pub const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "2.0.0"];
/// The finalizer on custom resources that the operator of a package removes.
pub const FINALIZER: &str = "operator.example.com/cleanup";
/// The time that pulling and rendering a bundle takes.
const PULL: Duration = Duration::from_millis(300);

/// Everything that the catalog and the registry hold.
pub struct Content {
    graphs: BTreeMap<String, Arc<PackageGraph>>,
    /// By image reference.
    bundles: BTreeMap<String, Rendered>,
    /// The registry and catalogd do not answer.
    outage: Mutex<bool>,
}

/// The name of another extension of the package, in the same namespace.
pub fn rival(package: &str) -> String {
    format!("{package}-rival")
}

/// The ConfigMap that only this version has.
pub fn only(package: &str, version: &str) -> String {
    format!("{package}-{}", version.replace('.', "-"))
}

/// The image of a bundle.
fn image(package: &str, version: &str) -> String {
    let at = VERSIONS.iter().position(|known| *known == version).unwrap_or_default();
    let byte = package.bytes().next().unwrap_or_default().wrapping_add(u8::try_from(at).unwrap_or_default());
    format!("registry.example.com/{package}@sha256:{}", format!("{byte:02x}").repeat(32))
}

impl Content {
    /// All packages.
    pub fn new() -> Result<Arc<Self>> {
        let (mut graphs, mut bundles) = (BTreeMap::new(), BTreeMap::new());
        for package in PACKAGES {
            let name: PackageName = package.parse()?;
            let content = PackageContent::from_lines(&name, catalog(package).as_bytes())?;
            graphs.insert(package.to_owned(), Arc::new(content.into_graph(ReleaseField::Counts)));
            for version in VERSIONS {
                let rendered = rendered(package, version).with_context(|| format!("{package} {version}"))?;
                bundles.insert(image(package, version), rendered);
            }
        }
        Ok(Arc::new(Self { graphs, bundles, outage: Mutex::new(false) }))
    }

    /// The objects of a bundle.
    pub fn objects(&self, package: &str, version: &str) -> &[Object] {
        let bundle = self.bundles.get(&image(package, version));
        bundle.map(|bundle| bundle.objects.as_slice()).unwrap_or_default()
    }

    /// Begins or ends an outage of the registry.
    pub fn set_outage(&self, is_out: bool) {
        *self.outage.lock() = is_out;
    }

    fn check(&self) -> Result<(), &'static str> {
        if *self.outage.lock() { Err("connection refused") } else { Ok(()) }
    }
}

/// The content as a process sees it.
pub struct Source(pub Arc<Content>);

impl BundleSource for Source {
    fn render<'a>(
        &'a self,
        _request: &'a ExtensionRequest,
        bundle: &'a BundleFacts,
        settled: Option<CertProvider>,
    ) -> BoxFuture<'a, Result<Rendered, PassError>> {
        Box::pin(async move {
            tokio::time::sleep(PULL).await;
            self.0.check().map_err(|why| PassError::new(Class::Transient, why))?;
            let known = self.0.bundles.get(&bundle.reference).cloned();
            let rendered = known.ok_or_else(|| PassError::new(Class::NeedsChange, "no such image"))?;
            Ok(Rendered { issuer: rendered.issuer.or(settled), ..rendered })
        })
    }

    fn tidy(&self, _: BTreeSet<String>, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl PackageSource for Source {
    fn graph<'a>(
        &'a self,
        _endpoint: &'a Endpoint,
        package: &'a PackageName,
    ) -> BoxFuture<'a, Result<Arc<PackageGraph>, CatalogReadError>> {
        Box::pin(async move {
            tokio::time::sleep(PULL / 10).await;
            self.0.check().map_err(|why| CatalogReadError::Fetch(why.to_owned()))?;
            let known = self.0.graphs.get(package.as_str());
            Ok(known.cloned().unwrap_or_else(|| Arc::new(PackageGraph::empty())))
        })
    }

    fn summaries<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, Result<Vec<PackageSummary>, String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// The package as lines of a file-based catalog.
fn catalog(package: &str) -> String {
    let name = |version: &str| format!("{package}.v{version}");
    let entry = |(at, version): (usize, &&str)| match at.checked_sub(1) {
        Some(before) => json!({"name": name(version), "replaces": name(VERSIONS[before])}),
        None => json!({"name": name(version)}),
    };
    let entries: Vec<Value> = VERSIONS.iter().enumerate().map(entry).collect();
    let mut lines = vec![
        json!({"schema": "olm.package", "name": package, "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "package": package, "name": "stable", "entries": entries}),
    ];
    lines.extend(VERSIONS.map(|version| {
        let property = json!({"type": "olm.package", "value": {"packageName": package, "version": version}});
        json!({"schema": "olm.bundle", "package": package, "name": name(version), "image": image(package, version),
            "properties": [property]})
    }));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The bundle, rendered for the namespace of its package. A new version changes every kind of object but the CRD, brings one and
/// takes one away.
fn rendered(package: &str, version: &str) -> Result<Rendered> {
    let group = format!("{package}.example.com");
    let kind = format!("{}{}", package[..1].to_uppercase(), &package[1..]);
    let crd_name = format!("{package}s.{group}");
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("{package}.v{version}"), "annotations": {"version": version}},
        "spec": {
            "version": version,
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": [{"name": crd_name, "kind": kind, "version": "v1"}]},
            "install": {"strategy": "deployment", "spec": {
                "clusterPermissions": [{"serviceAccountName": package, "rules": [
                    {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]},
                    {"apiGroups": [""], "resources": [format!("version-{version}")], "verbs": ["get"]}]}],
                "deployments": [{"name": package, "spec": {
                    "selector": {"matchLabels": {"app": package}},
                    "template": {"metadata": {"labels": {"app": package}}, "spec": {
                        "serviceAccountName": package,
                        "containers": [{"name": "manager", "image": format!("registry.example.com/{package}:{version}")}]}}}}],
            }},
        },
    });
    if package == PACKAGES[2] {
        csv["spec"]["webhookdefinitions"] = json!([{
            "type": "ValidatingAdmissionWebhook", "generateName": format!("v.{group}"), "deploymentName": package,
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "containerPort": 443, "targetPort": 9443,
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [format!("{package}s")]}],
        }]);
    }
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": crd_name},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{package}s"), "singular": package},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}],
        },
    });
    let settings = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"version": version}});
    let monitor = json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": package},
        "spec": {"selector": {"matchLabels": {"app": package}}, "endpoints": [{"port": version}]}});
    let annotations = json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": package}});
    let files = [
        ("metadata/annotations.yaml", annotations),
        ("manifests/csv.yaml", csv),
        ("manifests/crd.yaml", crd),
        ("manifests/settings.yaml", settings(&format!("{package}-settings"))),
        ("manifests/only.yaml", settings(&only(package, version))),
        ("manifests/monitor.yaml", monitor),
    ];
    let registry = RegistryV1::from_files(files.map(|(path, file)| (path, file.to_string())))?;
    let has_webhooks = !registry.csv.webhooks.is_empty();
    let issuer = has_webhooks.then_some(CertProvider::BuiltIn);
    let options = RenderOptions { cert_provider: issuer, ..RenderOptions::new(package) };
    let properties = registry.csv.annotations.get(PROPERTIES_ANNOTATION).cloned();
    let olm_bundle::Rendered { objects, warnings, .. } = render_with_report(&registry, &options)?;
    let digest = image(package, version).split_once('@').map(|(_, digest)| digest.parse());
    let digest = digest.context("no digest")?.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(Rendered { objects, properties, warnings, issuer, digest, turn: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_all_versions_renders() {
        let content = Content::new().unwrap();
        for package in PACKAGES {
            for version in VERSIONS {
                assert!(!content.objects(package, version).is_empty(), "{package} {version}");
            }
        }
    }
}
