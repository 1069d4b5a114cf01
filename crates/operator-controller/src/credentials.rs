//! The puller's credentials, from the cluster's pull secrets. Read again before each fetch that may go to a registry.

use kube::Client;
use olm_oci::{Keyring, SharedKeyring};
use olm_runtime::error_text::chain;
use olm_runtime::pull_secrets::{self, Document, NamespacedName};

/// Where the pull secrets are and who uses them.
pub struct PullSecrets {
    client: Client,
    global: Option<NamespacedName>,
    account: Option<NamespacedName>,
    keyring: SharedKeyring,
}

impl PullSecrets {
    /// Of the secret named by `--global-pull-secret` and of the service account that the process runs as.
    #[must_use]
    pub fn new(
        client: Client,
        global: Option<NamespacedName>,
        account: Option<NamespacedName>,
        keyring: SharedKeyring,
    ) -> Self {
        Self { client, global, account, keyring }
    }

    /// Reads all secrets again and passes them to the puller.
    ///
    /// # Errors
    /// When one of them cannot be read; what the puller had stays.
    pub async fn refresh(&self) -> Result<(), String> {
        let documents = pull_secrets::read(&self.client, self.global.as_ref(), self.account.as_ref())
            .await
            .map_err(|error| chain(&error))?;
        let keyring = Keyring::of_pull_secrets(documents.iter().map(Document::parts));
        let keyring = keyring.map_err(|error| chain(&error))?;
        self.keyring.set((!keyring.is_empty()).then_some(keyring));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::ByteString;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::testing::{client, failure};

    /// An apiserver whose only Secret holds credentials for `registry`, or that has none.
    fn apiserver(registry: &Arc<Mutex<Option<&'static str>>>) -> Client {
        let registry = Arc::clone(registry);
        client(move |request| {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/secrets/name");
            std::future::ready(match *registry.lock() {
                Some(host) => {
                    let login = json!({"auths": {host: {"username": "u", "password": "p"}}});
                    (200, json!({"data": {".dockerconfigjson": ByteString(login.to_string().into_bytes())}}))
                }
                None => failure(404, "NotFound"),
            })
        })
    }

    #[tokio::test]
    async fn pull_secrets_refresh_follows_the_secret() {
        let registry = Arc::new(Mutex::new(None));
        let keyring = SharedKeyring::default();
        let place = NamespacedName { namespace: "ns".to_owned(), name: "name".to_owned() };
        let secrets = PullSecrets::new(apiserver(&registry), Some(place), None, keyring.clone());
        for host in [Some("a.test"), Some("b.test"), None, Some("a.test")] {
            *registry.lock() = host;
            secrets.refresh().await.unwrap();
            // it prints registries and no credentials
            let held = format!("{keyring:?}");
            for other in ["a.test", "b.test"] {
                assert_eq!(held.contains(other), host == Some(other), "{host:?}: {held}");
            }
        }
    }
}
