//! An extension whose operator runs: installed, upgraded, rolled back, uninstalled; its webhooks answer through their Service.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_integration::package::{Package, entries};
use olm_kit::{BundleImage, Crd, Package as Content, Wait, eventually};
use serde_json::{Value, json};

use crate::site::{LIMIT, OPERATOR, Site, is_ready, report, site};

/// A package of the sample operator.
pub(crate) struct Sample<'a> {
    pub(crate) package: &'a Package,
    /// with the CRD, and webhooks that validate and convert its objects
    pub(crate) webhooks: bool,
}

impl Sample<'_> {
    fn group(&self) -> String {
        format!("{}.kit.test", self.package.name)
    }

    fn bundle(&self, version: &str) -> BundleImage {
        let name = &self.package.name;
        let deployment = format!("{name}-ctrl");
        let manager = json!({
            "name": "manager", "image": OPERATOR, "command": ["/sample-operator"], "args": [format!("--version={version}")],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
            "resources": {"limits": {"memory": "64Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            },
        });
        let spec = json!({
            "replicas": 1, "selector": {"matchLabels": {"app": deployment}},
            "template": {"metadata": {"labels": {"app": deployment}}, "spec": {
                "serviceAccountName": format!("{name}-sa"), "terminationGracePeriodSeconds": 5,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [manager],
            }},
        });
        let bundle = self.package.bundle(version).deployments([json!({"name": deployment, "spec": spec})]);
        if !self.webhooks {
            return bundle;
        }
        let crd = Crd::new("Widget", &self.group())
            .version("v1", true, true)
            .version("v2", true, false)
            .field("replicas", json!({"type": "integer"}));
        let webhook = |kind: &str, name: &str, path: &str, more: Value| {
            let mut definition = json!({
                "type": kind, "generateName": format!("{name}.{}", self.group()), "deploymentName": deployment,
                "containerPort": 443, "targetPort": 9443, "webhookPath": path, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            });
            if let (Some(whole), Value::Object(more)) = (definition.as_object_mut(), more) {
                whole.extend(more);
            }
            definition
        };
        let rules = json!([{"apiGroups": [self.group()], "apiVersions": ["v1", "v2"], "resources": ["widgets"],
            "operations": ["CREATE", "UPDATE"]}]);
        let validating = webhook(
            "ValidatingAdmissionWebhook",
            "v",
            "/validate",
            json!({"failurePolicy": "Fail", "rules": rules}),
        );
        let converting =
            webhook("ConversionWebhook", "c", "/convert", json!({"conversionCRDs": [crd.name()]}));
        bundle.crds([crd]).webhook(validating).webhook(converting)
    }

    /// Creates the namespace, pushes bundles and a catalog, and waits until it is served.
    pub(crate) async fn serve(&self, site: &Site, versions: &[&str]) -> Result<()> {
        let name = &self.package.name;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
            "pod-security.kubernetes.io/enforce": "restricted"}}});
        site.node.cluster.apply(&namespace.to_string()).await?;
        let registry = &site.node.registry;
        let mut content = Content::new(name);
        for version in versions {
            let image = self.package.push(registry, version, &self.bundle(version)).await?;
            content = content.bundle(version, &image);
        }
        let content = content.channel("stable", entries(versions.iter().copied()));
        self.package.serve_packages(registry, &[content]).await
    }

    /// Waits until the only pod of the operator is Ready and reports this version.
    pub(crate) async fn runs(&self, site: &Site, version: &str) -> Result<()> {
        let name = &self.package.name;
        let pods: Api<Pod> = Api::namespaced(site.client().await?, name);
        let selected = ListParams::default().labels(&format!("app={name}-ctrl"));
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        eventually(&format!("the operator of {version} runs"), LIMIT, || async {
            let found = pods.list(&selected).await?.items;
            let [pod] = &found[..] else { bail!("{} pods", found.len()) };
            ensure!(is_ready(pod), "not Ready: {:?}", pod.status);
            let address =
                pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("no address")?;
            let answer = client.get(format!("http://{address}:8081/version")).send().await?.text().await?;
            ensure!(answer.trim() == version, "it reports {answer:?}");
            Ok(())
        })
        .await
    }

    /// Deletes the extension, which removes its operator, and then the catalog.
    pub(crate) async fn remove(&self) -> Result<()> {
        let Package { name, client, extensions, catalogs, .. } = self.package;
        extensions.delete(name, &DeleteParams::default()).await?;
        self.package.gone().await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), name);
        Wait::new(&deployments, &format!("{name}-ctrl")).within(LIMIT).to_be_gone().await?;
        catalogs.delete(name, &DeleteParams::default()).await?;
        Wait::new(catalogs, name).within(LIMIT).to_be_gone().await
    }

    /// Stores a Widget of a size in v1, checks it in v2, and that the operator rejects one that is too large.
    async fn webhooks_answer(&self, site: &Site) -> Result<()> {
        let cluster = &site.node.cluster;
        let widget = |size: u32| {
            json!({"apiVersion": format!("{}/v1", self.group()), "kind": "Widget",
                "metadata": {"name": "w", "namespace": self.package.name}, "spec": {"size": size}})
            .to_string()
        };
        eventually("a Widget is admitted", LIMIT, || async { cluster.apply(&widget(3)).await.map(drop) })
            .await?;
        let resource = format!("widgets.v2.{}", self.group());
        let arguments = ["-n", &self.package.name, "get", &resource, "w", "-o", "json"];
        let converted: Value = serde_json::from_str(&site.kubectl(&arguments).await?)?;
        assert_eq!(converted["spec"], json!({"replicas": 3}), "{converted:#}");
        let rejected = cluster.apply(&widget(11)).await.err().context("a size above 10 was admitted")?;
        assert!(format!("{rejected:#}").contains("spec.size: 11 is above 10"), "{rejected:#}");
        Ok(())
    }
}

#[tokio::test]
async fn node_extension_is_installed_upgraded_rolled_back_removed() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    let package = Package::new(site.client().await?, "webhooks", None);
    let sample = Sample { package: &package, webhooks: true };
    let started = Instant::now();
    sample.serve(site, &["1.0.0", "1.1.0"]).await?;
    report("the catalog is served", started);

    let started = Instant::now();
    package.want_with(json!({}), json!({"version": "1.0.0"})).await?;
    package.installed("1.0.0").await?;
    sample.runs(site, "1.0.0").await?;
    report("1.0.0 is installed and runs", started);
    sample.webhooks_answer(site).await?;

    let started = Instant::now();
    package.want_with(json!({}), json!({"version": "1.1.0"})).await?;
    package.installed("1.1.0").await?;
    sample.runs(site, "1.1.0").await?;
    report("upgraded", started);
    sample.webhooks_answer(site).await?;

    let started = Instant::now();
    package
        .want_with(json!({}), json!({"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"}))
        .await?;
    package.installed("1.0.0").await?;
    sample.runs(site, "1.0.0").await?;
    report("rolled back", started);
    sample.webhooks_answer(site).await?;

    let started = Instant::now();
    sample.remove().await?;
    report("uninstalled", started);
    Ok(())
}
