//! Metrics of an installation, read through its Services.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use olm_kit::{SYSTEM_NAMESPACE, eventually};
use serde_json::json;

use crate::site::{LIMIT, site};

#[tokio::test]
async fn node_metrics_are_scraped_through_services() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    site.kubectl(&["-n", "default", "create", "serviceaccount", "scraper"]).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(site.client().await?, "default");
    let token = accounts.create_token_request("scraper", &PostParams::default(), &Default::default()).await?;
    let token = token.status.and_then(|status| status.token).context("no token")?;
    for (program, port, series) in [
        ("catalogd", 7443, "catalogd_served_catalogs"),
        ("operator-controller", 8443, "leader_election_master_status"),
        ("classic-controller", 8443, "leader_election_master_status"),
    ] {
        let role = format!("{program}-metrics-reader");
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("scraper-{program}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}]});
        site.node.cluster.apply(&binding.to_string()).await?;
        let service = format!("{program}-service");
        let client = site.http(&service, &format!("{program}-serving-cert")).await?;
        let url = format!("https://{service}.{SYSTEM_NAMESPACE}.svc:{port}/metrics");
        let metrics = eventually(&format!("{program} shows metrics"), LIMIT, || async {
            Ok(client.get(&url).bearer_auth(&token).send().await?.error_for_status()?.text().await?)
        })
        .await?;
        ensure!(metrics.contains(&format!("# TYPE {series} ")), "{metrics}");
        assert_eq!(client.get(&url).send().await?.status(), 401, "{program}");
    }
    Ok(())
}
