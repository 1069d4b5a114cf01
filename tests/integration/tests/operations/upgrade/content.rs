//! The installed content: 20 extensions from 5 catalogs.

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterCatalog, ClusterExtension, condition};
use olm_integration::extension::{current, installed_version};
use olm_kit::{BundleImage, CatalogImage, Crd, Entry, Package, Registry, Wait};
use serde_json::{Value, json};

use super::system::{LIMIT, System};

pub(crate) const CATALOGS: usize = 5;
/// Extensions; each has a package, a namespace and an account of its name.
pub(crate) const EXTENSIONS: usize = 20;
/// Repositories of catalogs begin with this.
pub(crate) const CATALOG_REPOSITORY: &str = "catalogs/";
/// Every package has these.
const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "1.2.0"];

/// Every fifth bundle has webhooks, and so a certificate of the built-in issuer.
pub(crate) fn has_webhooks(index: usize) -> bool {
    index.is_multiple_of(5)
}

/// Every fourth extension names a service account.
pub(crate) fn has_account(index: usize) -> bool {
    index % 4 == 1
}

/// Every third extension is upgraded twice, and so has three revisions.
pub(crate) fn is_upgraded(index: usize) -> bool {
    index.is_multiple_of(3)
}

/// The name of a catalog.
pub(crate) fn catalog(index: usize) -> String {
    format!("catalog-{index}")
}

/// The name of an extension.
pub(crate) fn extension(index: usize) -> String {
    format!("ext-{index:02}")
}

fn bundle(index: usize, version: &str) -> BundleImage {
    let name = extension(index);
    let bundle = BundleImage::new(&name, version);
    if !has_webhooks(index) {
        return bundle;
    }
    let crd = Crd::new("Gadget", &format!("{name}.example.com"));
    // nothing serves the webhooks here, so the rules are about the package's own group alone
    let rules = json!([{"apiGroups": [format!("{name}.example.com")], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["gadgets"]}]);
    let webhook = |kind: &str, prefix: &str, key: &str, value: Value| {
        let mut definition = json!({"type": kind, "generateName": format!("{prefix}.{name}.example.com"),
            "deploymentName": format!("{name}-ctrl"), "containerPort": 443, "targetPort": 9443,
            "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        definition[key] = value;
        definition
    };
    bundle
        .webhook(webhook("ValidatingAdmissionWebhook", "v", "rules", rules.clone()))
        .webhook(webhook("MutatingAdmissionWebhook", "m", "rules", rules))
        .webhook(webhook("ConversionWebhook", "c", "conversionCRDs", json!([crd.name()])))
        .crds([crd])
}

/// Pushes a catalog with its share of the packages; gives its reference.
async fn push(registry: &Registry, number: usize) -> Result<String> {
    let mut image = CatalogImage::new();
    for index in (0..EXTENSIONS).filter(|index| index % CATALOGS == number) {
        let name = extension(index);
        let entries = VERSIONS.iter().enumerate().map(|(at, version)| match at.checked_sub(1) {
            Some(before) => Entry::new(version).replaces(VERSIONS[before]),
            None => Entry::new(version),
        });
        let mut package = Package::new(&name).channel("stable", entries);
        for version in VERSIONS {
            let tag = format!("v{version}");
            let bundle = bundle(index, version).image();
            let pushed = registry.push(&format!("bundles/{name}"), &tag, &bundle).await?;
            package = package.bundle(version, &pushed.by_digest());
        }
        image = image.package(&package);
    }
    let repository = format!("{CATALOG_REPOSITORY}{}", catalog(number));
    let pushed = registry.push(&repository, "latest", &image.image()).await?;
    // some are polled
    Ok(if number < 2 { pushed.by_tag() } else { pushed.by_digest() })
}

/// Creates all of it, and waits until everything is installed.
pub(crate) async fn install(system: &System) -> Result<()> {
    let client = system.cluster.client().await?;
    let params = PatchParams::apply("test").force();
    let catalogs: Api<ClusterCatalog> = Api::all(client.clone());
    for number in 0..CATALOGS {
        let name = catalog(number);
        let mut image = json!({"ref": push(&system.registry, number).await?});
        if number < 2 {
            image["pollIntervalMinutes"] = 1.into();
        }
        let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name}, "spec": {"source": {"type": "Image", "image": image}}});
        catalogs.patch(&name, &params, &Patch::Apply(&object)).await?;
    }
    for number in 0..CATALOGS {
        Wait::new(&catalogs, &catalog(number)).within(LIMIT).for_condition("Serving", "True").await?;
    }
    let extensions: Api<ClusterExtension> = Api::all(client);
    for index in 0..EXTENSIONS {
        prepare(system, index).await?;
    }
    for version in VERSIONS {
        let upgraded = (0..EXTENSIONS).filter(|index| version == VERSIONS[0] || is_upgraded(*index));
        let work = upgraded.map(|index| install_version(&extensions, index, version));
        futures::stream::iter(work).buffer_unordered(EXTENSIONS).try_collect::<()>().await?;
    }
    let all = extensions.list(&kube::api::ListParams::default()).await?.items;
    ensure!(all.len() == EXTENSIONS, "{} extensions", all.len());
    Ok(())
}

async fn prepare(system: &System, index: usize) -> Result<()> {
    let name = extension(index);
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})];
    if has_account(index) {
        objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": name}}));
        objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{name}-installer")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": name}]}));
    }
    for object in objects {
        system.cluster.apply(&object.to_string()).await?;
    }
    Ok(())
}

async fn install_version(extensions: &Api<ClusterExtension>, index: usize, version: &str) -> Result<()> {
    let name = extension(index);
    let mut spec = json!({"namespace": name, "source": {"sourceType": "Catalog", "catalog": {"packageName": name, "version": version}}});
    if has_account(index) {
        spec["serviceAccount"] = json!({"name": "installer"});
    }
    let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name}, "spec": spec});
    extensions.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await?;
    Wait::new(extensions, &name)
        .within(LIMIT)
        .until(&format!("{version} is installed and Ready"), |extension: &ClusterExtension| {
            installed_version(extension) == Some(version)
                && current(extension, condition::READY).is_some_and(|found| found.status.as_str() == "True")
        })
        .await?;
    Ok(())
}
