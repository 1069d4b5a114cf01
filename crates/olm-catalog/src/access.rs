//! Access to the cluster as kubectl has it: kubeconfig, context, impersonation, proxies.
//!
//! `proxy-url` of the kubeconfig and `HTTPS_PROXY`/`NO_PROXY` count; credential plugins run as kubectl runs them.

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use olm_runtime::client::{config_from, naming_address, without_quotes};
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
    /// The kubeconfig has no context, cluster or user of this name.
    #[error("{kind} {name:?} not found in the kubeconfig; available: {known}")]
    NoEntry {
        kind: &'static str,
        name: String,
        /// The names that it has.
        known: String,
    },
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
        if let Some(path) = &self.kubeconfig {
            return self.config_of(Kubeconfig::read_from(path)).await;
        }
        match self.config_of(Kubeconfig::read()).await {
            // inside a pod there is no file
            Err(error) if self.context.is_none() && self.cluster.is_none() && self.user.is_none() => {
                Config::incluster().map_err(|_| error)
            }
            found => found,
        }
    }

    async fn config_of(&self, read: Result<Kubeconfig, KubeconfigError>) -> Result<Config, AccessError> {
        let file = read.map_err(|error| self.unusable(&error))?;
        self.check_names(&file)?;
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        config_from(file, &options).await.map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &KubeconfigError) -> AccessError {
        let (path, why) = match error {
            KubeconfigError::ReadConfig(cause, path) => (Some(path), innermost(cause)),
            KubeconfigError::Parse(cause) => {
                let line = without_quotes(&**cause);
                (self.kubeconfig.as_ref(), line.trim_start_matches("error: ").to_owned())
            }
            _ => return AccessError::Configuration(chain(error)),
        };
        match path {
            Some(path) => AccessError::Kubeconfig { path: path.clone(), why },
            None => AccessError::Configuration(format!("the kubeconfig cannot be read: {why}")),
        }
    }

    /// Rejects a context, cluster or user that the file does not have. For a missing user the client would send requests without
    /// credentials. As with kubectl, only `self.user` has to exist, not the user of the context.
    fn check_names(&self, file: &Kubeconfig) -> Result<(), AccessError> {
        let Some(context) = self.context.as_ref().or(file.current_context.as_ref()) else { return Ok(()) };
        check("context", context, file.contexts.iter().map(|named| &named.name))?;
        let found = file.contexts.iter().find(|named| &named.name == context);
        let found = found.and_then(|named| named.context.as_ref());
        if let Some(cluster) = self.cluster.as_ref().or(found.map(|context| &context.cluster)) {
            check("cluster", cluster, file.clusters.iter().map(|named| &named.name))?;
        }
        match &self.user {
            Some(user) => check("user", user, file.auth_infos.iter().map(|named| &named.name)),
            None => Ok(()),
        }
    }
}

/// An error if `name` is not one of `known`.
fn check<'a>(
    kind: &'static str,
    name: &str,
    known: impl Iterator<Item = &'a String>,
) -> Result<(), AccessError> {
    let known: Vec<&str> = known.map(String::as_str).collect();
    if known.contains(&name) {
        return Ok(());
    }
    Err(AccessError::NoEntry { kind, name: name.to_owned(), known: known.join(", ") })
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

    #[tokio::test]
    async fn access_names_must_be_in_the_kubeconfig() {
        olm_runtime::tls::install_provider();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], \
                    users: [{name: u, user: {}}], contexts: [{name: a, context: {cluster: c, user: absent}}, {name: b, context: {cluster: d}}]}";
        std::fs::write(&path, text).unwrap();
        for (context, cluster, user, want) in [
            ("", "", "", ""),
            ("a", "c", "u", ""),
            ("z", "", "", "context \"z\" not found in the kubeconfig; available: a, b"),
            ("b", "", "", "cluster \"d\" not found in the kubeconfig; available: c"),
            ("", "z", "", "cluster \"z\" not found in the kubeconfig; available: c"),
            ("", "", "z", "user \"z\" not found in the kubeconfig; available: u"),
        ] {
            let given = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
            let access = ClusterAccess {
                kubeconfig: Some(path.clone()),
                context: given(context),
                cluster: given(cluster),
                user: given(user),
                ..ClusterAccess::default()
            };
            let error = access.client().await.err().map(|error| error.to_string());
            assert_eq!(error.unwrap_or_default(), want, "{context} {cluster} {user}");
        }

        let broken = "apiVersion: v1\nusers:\n- name: u\n  user:\n    token: secret\n    x: [\n";
        std::fs::write(&path, broken).unwrap();
        let access = ClusterAccess { kubeconfig: Some(path.clone()), ..ClusterAccess::default() };
        let error = access.client().await.err().map(|error| error.to_string()).unwrap_or_default();
        let begin = format!("cannot read kubeconfig {}: line ", path.display());
        assert!(error.starts_with(&begin) && !error.contains("secret") && !error.contains('\n'), "{error}");
    }
}
