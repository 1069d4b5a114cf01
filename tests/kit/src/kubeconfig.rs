//! Writing kubeconfig files, and clients from them.

use std::path::Path;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::pki::{self, Identity};

/// Writes the kubeconfig of a user with a client certificate.
pub(crate) fn write(path: &Path, server: &str, ca: &Path, user: &Identity) -> Result<()> {
    let user = json!({"client-certificate": user.certificate, "client-key": user.key});
    write_value(path, &json!({"server": server, "certificate-authority": ca}), &user)
}

fn write_value(path: &Path, cluster: &Value, user: &Value) -> Result<()> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "user", "user": user}], "contexts": [{"name": "local", "context": {"cluster": "local", "user": "user"}}],
        "current-context": "local",
    });
    // JSON is YAML
    pki::write(path, &serde_json::to_string_pretty(&config)?)
}

/// Copies `from` to `to` with the user replaced: `token` instead of the certificate, or acting as `user` with `groups`.
pub(crate) fn derive(from: &Path, to: &Path, change: &Value) -> Result<()> {
    let text = std::fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?;
    let config: Value = serde_json::from_str(&text).with_context(|| format!("{}", from.display()))?;
    let cluster = &config["clusters"][0]["cluster"];
    let mut user = config["users"][0]["user"].clone();
    if change.get("token").is_some() {
        user = change.clone();
    } else if let (Some(user), Some(change)) = (user.as_object_mut(), change.as_object()) {
        user.extend(change.clone());
    }
    write_value(to, cluster, &user)
}

/// A client for the user of a kubeconfig.
pub(crate) async fn client(path: &Path) -> Result<kube::Client> {
    crate::install_crypto();
    let config = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    kube::Client::try_from(config).context("cannot make a client")
}
