//! A system of a test's own with classic-controller, and a package in it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{Api, Client, ResourceExt as _};
use olm_integration::classic::{Package, apply, bundle, group, source_is_ready};
use olm_integration::package::{entries, push_bundle};
use olm_integration::until_collected;
use olm_kit::{BundleImage, Cluster, Crd, Options, Package as Content, Process, Program, Registry, Wait};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::package::LIMIT;
use crate::site::ACCOUNTS;

/// A running system. Dropped, it ends.
pub(crate) struct Site {
    pub(crate) controller: Process,
    pub(crate) registry: Registry,
    /// The control plane, with an audit record.
    pub(crate) cluster: Cluster,
}

impl Site {
    pub(crate) async fn start() -> Result<Self> {
        let options = Options { audit: true, ..Options::default() };
        let (cluster, registry) = tokio::try_join!(Cluster::start_for_classic(&options), Registry::start())?;
        until_collected(&cluster, "operators.coreos.com/v2", "OperatorCondition").await?;
        let kubeconfig: PathBuf = cluster.kubeconfig_that_may_all(ACCOUNTS[0]).await?;
        let controller = Program::classic_controller(&cluster)?.kubeconfig(&kubeconfig).start().await?;
        Ok(Self { controller, registry, cluster })
    }

    /// The system of all tests that need not disturb it as a whole; they use names of their own.
    pub(crate) async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Site> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        self.cluster.client().await
    }

    /// A package with nothing in the cluster yet.
    pub(crate) async fn package(&self, prefix: &str) -> Result<Package> {
        Ok(Package::new(self.client().await?, prefix, Some(self.controller.log())))
    }

    /// A package whose versions 1.0.0 and 1.1.0 are served, with foreign objects in its namespace.
    pub(crate) async fn served(&self, prefix: &str) -> Result<(Package, Foreign)> {
        let package = self.package(prefix).await?;
        package.serve(&self.registry, versions(&package)).await?;
        let foreign = Foreign::make(&package).await?;
        Ok((package, foreign))
    }

    /// The same with a package on which both versions depend, and with a second target namespace, which gets copies.
    pub(crate) async fn served_with_dependency(&self, prefix: &str) -> Result<(Package, Foreign)> {
        let package = self.package(prefix).await?;
        let (base, target) = (format!("{}-base", package.name), format!("{}-target", package.name));
        let image = push_bundle(&self.registry, &base, "1.0.0", &bundle(&base, "1.0.0").crds([])).await?;
        let needed = Content::new(&base).bundle("1.0.0", &image).channel("stable", entries(["1.0.0"]));
        let needs = json!({"type": "olm.package.required", "value": {"packageName": base, "versionRange": ">=1.0.0"}});
        let content = package.content(&self.registry, versions(&package), &[needs]).await?;
        let catalog = package.push_catalog(&self.registry, &[content, needed]).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target}});
        self.cluster.apply(&namespace.to_string()).await?;
        package.furnish().await?;
        apply(&package.groups, &group(&package.name, &[&package.name, &target])).await?;
        package.catalog(&catalog).await?;
        source_is_ready(&package.client, &package.name).await?;
        let foreign = Foreign::make(&package).await?;
        Ok((package, foreign))
    }
}

fn versions(package: &Package) -> [(&'static str, BundleImage); 2] {
    ["1.0.0", "1.1.0"].map(|version| (version, full(package, version)))
}

/// The CRDs of every bundle here.
pub(crate) fn crds(package: &Package) -> Vec<Crd> {
    let group = format!("{}.kit.test", package.name);
    ["Widget", "Gadget", "Gizmo", "Doodad"].map(|kind| Crd::new(kind, &group)).into()
}

/// A bundle with all that can be caught half-way: four CRDs, RBAC, a Deployment, a webhook with its certificate, an object that stays and one
/// that only this version has.
pub(crate) fn full(package: &Package, version: &str) -> BundleImage {
    let group = format!("{}.kit.test", package.name);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
    bundle(&package.name, version)
        .crds(crds(package))
        .extra(map("stays"))
        .extra(map(&format!("only-{version}")))
        .webhook(json!({
            "type": "ValidatingAdmissionWebhook", "generateName": format!("v.{}.example.com", package.name),
            "deploymentName": format!("{}-ctrl", package.name), "containerPort": 443, "targetPort": 9443, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["gadgets"]}],
        }))
}

/// Objects of the test itself, which no controller owns.
pub(crate) struct Foreign {
    maps: Api<ConfigMap>,
    accounts: Api<ServiceAccount>,
    roles: Api<ClusterRole>,
    role: String,
    uids: Vec<Option<String>>,
}

const THEIRS: &str = "theirs";

impl Foreign {
    /// Waits, too, for what Kubernetes itself puts into a namespace.
    async fn make(package: &Package) -> Result<Self> {
        let (client, namespace) = (package.client.clone(), package.name.as_str());
        let mut foreign = Self {
            maps: Api::namespaced(client.clone(), namespace),
            accounts: Api::namespaced(client.clone(), namespace),
            roles: Api::all(client),
            role: format!("{THEIRS}-{namespace}"),
            uids: Vec::new(),
        };
        Wait::new(&foreign.accounts, "default").within(LIMIT).to_exist().await?;
        Wait::new(&foreign.maps, "kube-root-ca.crt").within(LIMIT).to_exist().await?;
        let of = |api: &str, kind: &str, name: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
        apply(&foreign.maps, &of("v1", "ConfigMap", THEIRS)).await?;
        apply(&foreign.accounts, &of("v1", "ServiceAccount", THEIRS)).await?;
        apply(&foreign.roles, &of("rbac.authorization.k8s.io/v1", "ClusterRole", &foreign.role)).await?;
        foreign.uids = foreign.present().await?;
        Ok(foreign)
    }

    async fn present(&self) -> Result<Vec<Option<String>>> {
        Ok(vec![
            self.maps.get(THEIRS).await.context("the foreign ConfigMap")?.uid(),
            self.accounts.get(THEIRS).await.context("the foreign ServiceAccount")?.uid(),
            self.roles.get(&self.role).await.context("the foreign ClusterRole")?.uid(),
        ])
    }

    /// Whether each is still the object that the test made.
    pub(crate) async fn check(&self) -> Result<()> {
        let present = self.present().await?;
        ensure!(present == self.uids, "foreign objects were made again: {present:?}, {:?}", self.uids);
        Ok(())
    }
}
