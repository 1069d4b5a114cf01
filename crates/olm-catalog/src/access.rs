//! Access to the cluster as kubectl has it: kubeconfig, context, impersonation, proxies.
//!
//! `proxy-url` of the kubeconfig and `HTTPS_PROXY`/`NO_PROXY` count; credential plugins run as kubectl runs them.

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use olm_runtime::client::{config_from, naming_address};
use olm_runtime::error_text::{chain, innermost};
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
    /// The longest wait for the start of an answer; `None` waits for ever.
    pub request_timeout: Option<Duration>,
}

/// The cluster cannot be accessed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No usable configuration.
    #[error("cannot find the cluster: {0}")]
    Configuration(String),
    /// A kubeconfig cannot be read.
    #[error("cannot read kubeconfig {}: {why}", path.display())]
    Kubeconfig { path: PathBuf, why: String },
    /// Groups are given and no user, neither here nor in the kubeconfig; the apiserver rejects that.
    #[error("groups are acted as together with a user")]
    GroupsWithoutUser,
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
        // the kubeconfig may set impersonation itself
        if self.impersonate.is_some() {
            config.auth_info.impersonate.clone_from(&self.impersonate);
        }
        if !self.impersonate_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(self.impersonate_groups.clone());
            if config.auth_info.impersonate.is_none() {
                return Err(AccessError::GroupsWithoutUser);
            }
        }
        let url = config.cluster_url.to_string();
        let client = olm_runtime::client::client_within(config, &Metrics::new(), self.request_timeout);
        match client {
            Ok(client) => Ok(naming_address(&client, url.trim_end_matches('/'))),
            Err(error) => Err(AccessError::Client { url, why: chain(&error) }),
        }
    }

    async fn config(&self) -> Result<Config, AccessError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let unusable = |error: &KubeconfigError| match error {
            KubeconfigError::ReadConfig(cause, path) => {
                AccessError::Kubeconfig { path: path.clone(), why: innermost(cause) }
            }
            _ => AccessError::Configuration(chain(error)),
        };
        if let Some(path) = &self.kubeconfig {
            let file = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
            return config_from(file, &options).await.map_err(|error| unusable(&error));
        }
        let found = match Kubeconfig::read() {
            Ok(file) => config_from(file, &options).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(config) => Ok(config),
            Err(error) if self.context.is_some() || self.cluster.is_some() || self.user.is_some() => {
                Err(unusable(&error))
            }
            // inside a pod there is no file
            Err(error) => Config::incluster().map_err(|_| unusable(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn access_errors_name_file_and_address() {
        let path = PathBuf::from("/no/such/kubeconfig");
        let access = ClusterAccess { kubeconfig: Some(path), ..ClusterAccess::default() };
        let error = access.client().await.err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("cannot read kubeconfig /no/such/kubeconfig: no such file or directory")
        );

        olm_runtime::tls::install_provider();
        // nothing listens on a port that was free a moment ago
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("https://127.0.0.1:{port}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: '{url}'}}}}], users: [{{name: a, user: {{}}}}]}}"
        );
        std::fs::write(&path, text).unwrap();
        let mut access = ClusterAccess { kubeconfig: Some(path), ..ClusterAccess::default() };
        access.impersonate_groups = vec!["g".to_owned()];
        assert!(matches!(access.client().await, Err(AccessError::GroupsWithoutUser)));
        access.impersonate = Some("u".to_owned());
        let error = access.client().await.unwrap().apiserver_version().await.unwrap_err();
        let found = olm_runtime::client::ConnectionError::behind(&error).unwrap();
        assert_eq!((found.url.as_str(), found.why.as_str()), (url.as_str(), "connection refused"));
    }
}
