//! Operators that people really publish: pushed as they are, installed from a real catalog, upgraded, removed.
//!
//! The bundles come from the shared reference material; without it the tests say that they check nothing.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use olm_kit::image::read_dir;
use olm_kit::{BundleImage, CatalogImage, Stack, Wait, condition, shared_material};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);

fn data() -> Option<PathBuf> {
    let data = shared_material().map(|folder| folder.join("data")).filter(|it| it.is_dir());
    if data.is_none() {
        println!("SKIPPED real operators: there is no ../shared/data (OLM_SHARED names another place)");
    }
    data
}

/// Pushes every bundle and the catalog of the given packages, and serves it as ClusterCatalog `real`.
async fn serve(stack: &Stack, data: &Path, packages: &[&str]) {
    let mut catalog = CatalogImage::new();
    for package in packages {
        for version in std::fs::read_dir(data.join("bundles").join(package)).unwrap() {
            let version = version.unwrap();
            let image = BundleImage::from_dir(&version.path()).unwrap().image();
            let repository = format!("bundles/community/{package}");
            stack.registry.push(&repository, &version.file_name().to_string_lossy(), &image).await.unwrap();
        }
        for (path, text) in read_dir(&data.join("bundles-catalog").join(package), "").unwrap() {
            let text = String::from_utf8(text).unwrap();
            let text = text.replace("localhost:5000/", &format!("{}/", stack.registry.address()));
            catalog = catalog.file(&format!("{package}/{path}"), &text);
        }
    }
    let pushed = stack.registry.push("catalog", "latest", &catalog.image()).await.unwrap();
    let source = json!({"type": "Image", "image": {"ref": pushed.by_digest()}});
    let manifest = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": {"name": "real"}, "spec": {"source": source}});
    stack.cluster.apply(&manifest.to_string()).await.unwrap();
    let catalogs = api(stack, "ClusterCatalog").await;
    Wait::new(&catalogs, "real")
        .within(LIMIT)
        .log(stack.catalogd.log())
        .for_condition("Serving", "True")
        .await
        .unwrap();
}

async fn api(stack: &Stack, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("olm.operatorframework.io", "v1", kind);
    Api::all_with(stack.cluster.client().await.unwrap(), &ApiResource::from_gvk(&kind))
}

/// Wants `package` in `version`, in a namespace of the same name, and waits until that is installed and rolled out.
async fn install(stack: &Stack, package: &str, version: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": package}});
    stack.cluster.apply(&namespace.to_string()).await.unwrap();
    let extensions = api(stack, "ClusterExtension").await;
    let wanted = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": package},
        "spec": {"namespace": package, "source": {"sourceType": "Catalog",
            "catalog": {"packageName": package, "version": version}}}});
    extensions.patch(package, &PatchParams::apply("test").force(), &Patch::Apply(&wanted)).await.unwrap();
    let what = format!("{version} is installed");
    let wait = Wait::new(&extensions, package).within(LIMIT).log(stack.operator_controller.log());
    wait.until(&what, |it| {
        let installed = it.data.pointer("/status/install/bundle/version").and_then(Value::as_str);
        installed == Some(version)
            && condition(it, "Installed").is_some_and(|it| it.status == "True")
            && condition(it, "Progressing").is_some_and(|it| it.reason == "Succeeded")
    })
    .await
    .unwrap();
}

async fn deployments(stack: &Stack, namespace: &str) -> Vec<Deployment> {
    let api: Api<Deployment> = Api::namespaced(stack.cluster.client().await.unwrap(), namespace);
    api.list(&ListParams::default()).await.unwrap().items
}

/// Names of the CRDs that belong to an extension.
async fn crds(stack: &Stack, extension: &str) -> Vec<String> {
    let api: Api<CustomResourceDefinition> = Api::all(stack.cluster.client().await.unwrap());
    let of = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={extension}"));
    api.list(&of).await.unwrap().items.into_iter().filter_map(|it| it.metadata.name).collect()
}

async fn remove(stack: &Stack, package: &str) {
    let extensions = api(stack, "ClusterExtension").await;
    extensions.delete(package, &Default::default()).await.unwrap();
    let wait = Wait::new(&extensions, package).within(LIMIT).log(stack.operator_controller.log());
    wait.to_be_gone().await.unwrap();
    let sets = api(stack, "ClusterObjectSet").await;
    let left = sets.list(&ListParams::default()).await.unwrap().items;
    let left: Vec<_> =
        left.into_iter().filter_map(|it| it.metadata.name).filter(|it| it.starts_with(package)).collect();
    for name in left {
        Wait::new(&sets, &name).within(LIMIT).to_be_gone().await.unwrap();
    }
    assert_eq!(crds(stack, package).await, [""; 0], "{package}: CRDs are left");
    let left: Vec<_> =
        deployments(stack, package).await.into_iter().filter_map(|it| it.metadata.name).collect();
    assert_eq!(left, [""; 0], "{package}: Deployments are left");
}

#[tokio::test]
async fn a_real_operator_is_installed_upgraded_and_removed() {
    let Some(data) = data() else { return };
    let stack = Stack::start().await.unwrap();
    serve(&stack, &data, &["patterns-operator"]).await;
    let image = async |stack: &Stack| {
        let all = deployments(stack, "patterns-operator").await;
        let template = all[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        template.containers.iter().filter_map(|it| it.image.clone()).collect::<Vec<_>>()
    };
    install(&stack, "patterns-operator", "0.0.63").await;
    let before = image(&stack).await;
    assert_eq!(crds(&stack, "patterns-operator").await, ["patterns.gitops.hybrid-cloud-patterns.io"]);

    install(&stack, "patterns-operator", "0.0.64").await;
    assert_ne!(image(&stack).await, before, "the upgrade must change the Deployment");

    remove(&stack, "patterns-operator").await;
}

#[tokio::test]
async fn real_operators_live_beside_each_other() {
    let Some(data) = data() else { return };
    let stack = Stack::start().await.unwrap();
    let all = [
        ("authorino-operator", "0.8.0"),
        ("aws-neuron-operator", "0.0.2"),
        ("deployment-validation-operator", "0.2.2"),
    ];
    serve(&stack, &data, &all.map(|(package, _)| package)).await;
    for (package, version) in all {
        install(&stack, package, version).await;
    }
    for (package, _) in all {
        let found = deployments(&stack, package).await;
        assert!(!found.is_empty(), "{package} has no Deployment");
        for deployment in found {
            let status = condition(&deployment, "Available").map(|it| it.status);
            assert_eq!(status.as_deref(), Some("True"), "{package}: {:?}", deployment.metadata.name);
        }
    }
    for (package, _) in all {
        remove(&stack, package).await;
    }
}
