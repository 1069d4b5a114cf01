//! Access to the cluster as kubectl has it: kubeconfig, context, impersonation, proxies.
//!
//! `proxy-url` of the kubeconfig and `HTTPS_PROXY`/`NO_PROXY` count; credential plugins run as kubectl runs them.

use std::path::PathBuf;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use olm_runtime::error_text::chain;
use olm_runtime::metrics::Metrics;

/// The cluster to connect to, and the identity to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    /// A kubeconfig; else `KUBECONFIG`, `~/.kube/config` or the pod's own account.
    pub kubeconfig: Option<PathBuf>,
    /// A context in it; else the current one.
    pub context: Option<String>,
    /// A cluster in it; else the context's.
    pub cluster: Option<String>,
    /// A user in it; else the context's.
    pub user: Option<String>,
    /// A user to act as.
    pub impersonate: Option<String>,
    /// Groups to act as a member of.
    pub impersonate_groups: Vec<String>,
}

/// The cluster cannot be accessed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No usable configuration.
    #[error("cannot find the cluster: {0}")]
    Configuration(String),
    /// No connection can be set up.
    #[error("cannot make a client for {url}: {why}")]
    Client {
        /// URL of the API server.
        url: String,
        why: String,
    },
}

impl ClusterAccess {
    /// A client. No request is sent yet.
    ///
    /// # Errors
    /// When no configuration is found, or it cannot be used.
    pub async fn client(&self) -> Result<Client, AccessError> {
        let mut config = self.config().await?;
        // for interactive use, an immediate error is better than retries
        config.default_retry = false;
        // the kubeconfig may set impersonation itself
        if self.impersonate.is_some() {
            config.auth_info.impersonate.clone_from(&self.impersonate);
        }
        if !self.impersonate_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(self.impersonate_groups.clone());
        }
        let url = config.cluster_url.to_string();
        olm_runtime::client::client(config, &Metrics::new())
            .map_err(|error| AccessError::Client { url, why: chain(&error) })
    }

    async fn config(&self) -> Result<Config, AccessError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let unusable = |error: &(dyn std::error::Error + 'static)| AccessError::Configuration(chain(error));
        if let Some(path) = &self.kubeconfig {
            let file = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
            return Config::from_custom_kubeconfig(file, &options).await.map_err(|error| unusable(&error));
        }
        match Config::from_kubeconfig(&options).await {
            Ok(config) => Ok(config),
            Err(error) if self.context.is_some() || self.cluster.is_some() || self.user.is_some() => {
                Err(unusable(&error))
            }
            // inside a pod there is no file
            Err(error) => Config::incluster().map_err(|_| unusable(&error)),
        }
    }
}
