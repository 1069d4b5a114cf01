//! The puller's credentials, from the cluster's pull secrets. Read anew before each fetch that may go to a registry.

use kube::Client;
use olm_oci::{Keyring, SharedKeyring};
use olm_runtime::error_text::chain;
use olm_runtime::pull_secrets::{self, Document, Place};

/// Where the pull secrets are and who uses them.
pub struct PullSecrets {
    client: Client,
    global: Option<Place>,
    account: Option<Place>,
    keyring: SharedKeyring,
}

impl PullSecrets {
    /// Of the secret named by `--global-pull-secret` and of the service account that the process runs as.
    #[must_use]
    pub fn new(
        client: Client,
        global: Option<Place>,
        account: Option<Place>,
        keyring: SharedKeyring,
    ) -> Self {
        Self { client, global, account, keyring }
    }

    /// Reads all secrets anew and hands them to the puller.
    ///
    /// # Errors
    /// When one of them cannot be read; what the puller had stays.
    pub async fn refresh(&self) -> Result<(), String> {
        let documents = pull_secrets::read(&self.client, self.global.as_ref(), self.account.as_ref())
            .await
            .map_err(|error| chain(&error))?;
        let mut keyring = Keyring::new();
        for (place, document) in &documents {
            let added = match document {
                Document::ConfigJson(bytes) => keyring.add_config_json(bytes),
                Document::DockerCfg(bytes) => keyring.add_dockercfg(bytes),
            };
            added.map_err(|error| format!("error reading pull secret {place}: {}", chain(&error)))?;
        }
        self.keyring.set((!keyring.is_empty()).then_some(keyring));
        Ok(())
    }
}
