//! `/metrics` of every process: who may see it is the apiserver's to say.

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use olm_kit::{Ca, Stack};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_whom_the_apiserver_allows() -> Result<()> {
    let stack = Stack::shared().await?;
    let _logs = stack.logs_on_failure();
    let namespace = stack.cluster.namespace("scrape").await?;
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "scraper", "namespace": namespace}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": namespace},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": namespace}]}),
    ] {
        stack.cluster.apply(&object.to_string()).await?;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(stack.cluster.client().await?, &namespace);
    let token = |name: &'static str| {
        let accounts = accounts.clone();
        async move {
            let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
            let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
            answer.status.and_then(|status| status.token).context("no token")
        }
    };
    let (nobody, scraper) = (token("nobody").await?, token("scraper").await?);
    let client = Ca::shared()?.http_client()?;
    let denied = format!("Authorization denied for user system:serviceaccount:{namespace}:nobody\n");
    for process in [&stack.catalogd, &stack.operator_controller] {
        for (case, token, status, body) in [
            ("no token", None, 401, "Unauthorized\n"),
            ("no such token", Some("made-up"), 401, "Unauthorized\n"),
            ("a token that may not", Some(nobody.as_str()), 403, denied.as_str()),
            ("a token that may", Some(scraper.as_str()), 200, ""),
        ] {
            let mut request = client.get(format!("{}/metrics", process.metrics_url()));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let answer = request.send().await?;
            assert_eq!(answer.status(), status, "{} {case}", process.name());
            let text = answer.text().await?;
            if status == 200 {
                assert!(text.contains("\ncontroller_runtime_reconcile_total{"), "{}: {text}", process.name());
            } else {
                assert_eq!(text, body, "{} {case}", process.name());
            }
        }
    }
    Ok(())
}
