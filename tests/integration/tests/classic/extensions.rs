//! ClusterExtensions and Subscriptions on one control plane: what one of them has is a conflict of the other, which names it and writes nothing.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource, ResourceExt as _};
use olm_api::classic::ClusterServiceVersion;
use olm_api::condition;
use olm_integration::classic::{self, apply, bundle, group, phase};
use olm_integration::extension::current;
use olm_integration::package::{self, serve_package};
use olm_kit::{BundleImage, Cluster, Crd, Process, Program, Stack};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Both APIs with their controllers.
struct Both {
    classic: Process,
    stack: Stack,
}

impl Both {
    async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Both> = OnceCell::const_new();
        let start = async || {
            let stack = Stack::start().await?;
            stack.cluster.install_classic().await?;
            let program = Program::classic_controller(&stack.cluster)?;
            let classic = program.flag("--install-plan-retry-timeout", "1s").start().await?;
            anyhow::Ok(Self { classic, stack })
        };
        SHARED.get_or_try_init(start).await
    }

    fn cluster(&self) -> &Cluster {
        &self.stack.cluster
    }

    /// A package for ClusterExtensions, with a namespace.
    async fn extension(&self, client: &Client, prefix: &str) -> Result<package::Package> {
        let log = self.stack.operator_controller.log();
        let package = package::Package::new(client.clone(), prefix, Some(log));
        package.make_namespace(self.cluster()).await?;
        Ok(package)
    }

    /// Serves a version of the package, and requests it in a namespace.
    async fn request(&self, package: &package::Package, bundle: BundleImage, namespace: &str) -> Result<()> {
        let (cluster, registry) = (self.cluster(), &self.stack.registry);
        serve_package(cluster, registry, &package.name, [("1.0.0", bundle)]).await?;
        package.want_with(json!({ "namespace": namespace }), json!({})).await
    }

    /// A package for Subscriptions.
    fn subscribed(&self, client: &Client, prefix: &str) -> classic::Package {
        classic::Package::new(client.clone(), prefix, Some(self.classic.log()))
    }
}

/// What must not change.
#[derive(Debug, PartialEq)]
struct Untouched {
    crd: Option<String>,
    /// UID, generation, labels and field managers of the Deployment; its status changes.
    deployment: (Option<String>, Option<i64>, Value, Vec<Option<String>>),
}

impl Untouched {
    async fn read(client: &Client, crd: &Crd, namespace: &str, deployment: &str) -> Result<Self> {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let (crd, deployment) = (crds.get(&crd.name()).await?, deployments.get(deployment).await?);
        let metadata = deployment.meta();
        let entries = metadata.managed_fields.iter().flatten();
        let entries = entries.filter(|entry| entry.subresource.is_none());
        let mut managers: Vec<Option<String>> = entries.map(|entry| entry.manager.clone()).collect();
        managers.retain(|manager| manager.as_deref() != Some("kube-controller-manager"));
        managers.sort();
        let labels = json!(metadata.labels);
        let deployment = (metadata.uid.clone(), metadata.generation, labels, managers);
        Ok(Self { crd: crd.resource_version(), deployment })
    }
}

#[tokio::test]
async fn classic_names_the_extension_that_has_an_object() -> Result<()> {
    let both = Both::shared().await?;
    let client = both.cluster().client().await?;
    let shop = both.extension(&client, "shop").await?;
    let crd = Crd::new("Widget", &format!("{}.example.com", shop.name));
    both.request(&shop, shop.bundle("1.0.0").crds([crd.clone()]), &shop.name).await?;
    shop.installed("1.0.0").await?;
    let deployment = format!("{}-ctrl", shop.name);
    let before = Untouched::read(&client, &crd, &shop.name, &deployment).await?;
    let conflict = |object: &str| {
        format!("{object} belongs to ClusterExtension {} of OLM v1; uninstall one of the two", shop.name)
    };

    // by a Subscription, with another schema
    let rival = both.subscribed(&client, "rival");
    let desired = crd.clone().field("color", json!({"type": "string"}));
    let content = bundle(&rival.name, "1.0.0").crds([desired]);
    rival.serve(&both.stack.registry, [("1.0.0", content)]).await?;
    rival.subscribe("1.0.0").await?;
    let text = conflict(&format!("CustomResourceDefinition {}", crd.name()));
    rival
        .subscription_until("names the extension that has the CRD", |status| {
            status.conditions.iter().any(|it| it.type_ == "InstallPlanFailed" && it.message.contains(&text))
        })
        .await?;

    // by a ClusterServiceVersion beside the extension
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(client.clone(), &shop.name);
    let groups = Api::namespaced(client.clone(), &shop.name);
    apply::<olm_api::classic::OperatorGroup>(&groups, &group(&shop.name, &[&shop.name])).await?;
    let second = bundle(&shop.name, "9.0.0").crds([]).permissions([]).cluster_permissions([]);
    apply(&csvs, &second.csv()).await?;
    let text = conflict(&format!("Deployment {deployment}"));
    olm_kit::Wait::new(&csvs, &format!("{}.v9.0.0", shop.name))
        .log(both.classic.log())
        .until("names the extension that has the Deployment", |csv| {
            let message = csv.status.as_ref().map_or("", |status| status.message.as_str());
            phase(csv) == "Failed" && message.contains(&text)
        })
        .await?;

    shop.installed("1.0.0").await?;
    let after = Untouched::read(&client, &crd, &shop.name, &deployment).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

#[tokio::test]
async fn extension_names_the_csv_that_has_an_object() -> Result<()> {
    let both = Both::shared().await?;
    let client = both.cluster().client().await?;
    let owner = both.subscribed(&client, "owner");
    let content = bundle(&owner.name, "1.0.0");
    let crd = Crd::new("Widget", &format!("{}.kit.test", owner.name));
    owner.serve(&both.stack.registry, [("1.0.0", content.clone())]).await?;
    owner.subscribe("1.0.0").await?;
    let installed = owner.installed("1.0.0").await?;
    let deployment = format!("{}-ctrl", owner.name);
    let before = Untouched::read(&client, &crd, &owner.name, &deployment).await?;

    let definition = both.extension(&client, "definition").await?;
    let desired = crd.clone().field("color", json!({"type": "string"}));
    let of_crd = definition.bundle("1.0.0").crds([desired]);
    both.request(&definition, of_crd, &definition.name).await?;
    let workload = both.extension(&client, "workload").await?;
    let mut desired = content.csv()["spec"]["install"]["spec"]["deployments"][0].take();
    let account = desired.pointer_mut("/spec/template/spec/serviceAccountName");
    *account.context("the Deployment has an account")? = format!("{}-sa", workload.name).into();
    let of_deployment = workload.bundle("1.0.0").deployments([desired]);
    both.request(&workload, of_deployment, &owner.name).await?;

    for (extension, object) in [
        (&definition, format!("CustomResourceDefinition {}", crd.name())),
        (&workload, format!("Deployment {}/{deployment}", owner.name)),
    ] {
        let csv = format!("{}/{}", owner.name, owner.csv("1.0.0"));
        let text = format!(
            "{object} belongs to ClusterServiceVersion {csv} of OLM Classic; uninstall one of the two"
        );
        extension
            .until("names the ClusterServiceVersion", |extension| {
                let found = current(extension, condition::PROGRESSING);
                found.is_some_and(|found| found.message.contains(&text))
            })
            .await
            .with_context(|| text.clone())?;
    }

    let again = owner.installed("1.0.0").await?;
    ensure!(again.uid() == installed.uid() && phase(&again) == "Succeeded", "{again:?}");
    let after = Untouched::read(&client, &crd, &owner.name, &deployment).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}
