//! The choice of a provider: once for each extension. cert-manager itself is not here, only its API: that is what counts.

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, ResourceExt as _};
use olm_api::cluster_extension::WebhookCertificateProvider::{self, BuiltIn, CertManager};
use olm_kit::{Entry, Stack};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::site::Site;
use crate::world::LIMIT;

fn stub(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.cert-manager.io")},
        "spec": {"group": "cert-manager.io", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    })
}

async fn chosen(site: &Site) -> Result<WebhookCertificateProvider> {
    let extension = site
        .world
        .until("has a provider", |extension| {
            extension.status.as_ref().is_some_and(|status| status.webhook_certificates.is_some())
        })
        .await?;
    Ok(extension.status.and_then(|status| status.webhook_certificates).context("no provider")?.provider)
}

#[tokio::test]
async fn cert_manager_serves_bundles_installed_after_it() -> Result<()> {
    static STACK: OnceCell<Stack> = OnceCell::const_new();
    let stack = STACK.get_or_try_init(Stack::start).await?;
    let early = Site::on(stack, "early").await?;
    early.world.serve_chain([("1.0.0", early.bundle("1.0.0")), ("1.1.0", early.bundle("1.1.0"))]).await?;
    early.world.install("1.0.0").await?;
    assert_eq!(chosen(&early).await?, BuiltIn);

    for kind in ["Certificate", "Issuer"] {
        stack.cluster.apply(&stub(kind).to_string()).await?;
    }
    let client = stack.cluster.client().await?;
    let certificates = |namespace: &str| -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
    };
    olm_kit::eventually("the API is served", LIMIT, || async {
        certificates("default").list(&ListParams::default()).await?;
        Ok(())
    })
    .await?;

    // who was there before stays with what was chosen, also for a new version
    early.world.install("1.1.0").await?;
    assert_eq!(chosen(&early).await?, BuiltIn);
    early.settled().await?;
    assert_eq!(certificates(&early.world.name).list(&ListParams::default()).await?.items.len(), 0);

    // who comes later gets cert-manager's objects, and nothing of ours
    let late = Site::on(stack, "late").await?;
    late.world.serve([("1.0.0", late.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    late.world.want(json!({})).await?;
    assert_eq!(chosen(&late).await?, CertManager);
    let api = certificates(&late.world.name);
    let certificate = olm_kit::Wait::new(&api, &late.secret()).within(LIMIT).to_exist().await?;
    assert_eq!(certificate.data["spec"]["secretName"], late.secret());
    let crd = late.callers()[2].clone();
    let crds = late.api(&crd).await?;
    let wait = olm_kit::Wait::new(&crds, operator_controller::certificates::caller::Kind::split(&crd).1)
        .within(LIMIT);
    let live = wait.to_exist().await?;
    let from = format!("{}/{}", late.world.name, late.secret());
    assert_eq!(live.annotations().get("cert-manager.io/inject-ca-from"), Some(&from));
    assert_eq!(late.trusted(&crd, &live), "", "cert-manager's CA injector writes it");
    assert!(late.secrets.get_opt(&late.secret()).await?.is_none(), "cert-manager fills the Secret");
    Ok(())
}
