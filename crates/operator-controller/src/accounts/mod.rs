//! Service accounts that extensions name: who they are, what they lack, and clients that act as them (decision 8).
//!
//! The extension controller asks [`Accounts::check`] before it makes a revision; the revision controller asks for clients
//! through [`Identities`]. What an account may do is read from RBAC ([`granted`]) and compared by `olm_rollout::permissions`.
//! Nothing here decides what is written.

mod check;
mod granted;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};
use olm_api::ClusterExtension;
use parking_lot::Mutex;

use crate::kinds::Kinds;
use crate::objectset::{Identities, Purpose};
use crate::watch::Cache;
pub use watch::Rights;

/// How long the answer to "does the account exist?" is used again.
const EXISTENCE_HOLDS: Duration = Duration::from_secs(2);

/// What `spec.serviceAccount` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Mode {
    /// Objects are written as the account if one is named, else as the controller
    #[default]
    Impersonate,
    /// The field is ignored, as in the reference
    Ignore,
    /// As Impersonate, and an extension that names no account is refused
    Require,
}

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// Its namespace: that of the extension.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// The account that an extension names.
    #[must_use]
    pub fn of(extension: &ClusterExtension) -> Option<Self> {
        let name = extension.spec.service_account.as_ref()?.name.clone()?;
        Some(Self { namespace: extension.spec.namespace.clone(), name })
    }

    /// The name by which the apiserver knows the account as a user.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that the apiserver gives to it.
    fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// All that there is to know of accounts.
pub struct Accounts {
    client: Client,
    mode: Mode,
    extensions: Cache<ClusterExtension>,
    kinds: Kinds,
    rights: Rights,
    existence: Mutex<HashMap<Account, (Instant, bool)>>,
}

impl Accounts {
    /// Accounts as `extensions` name them. `rights` wakes the extensions whose account lacked something.
    #[must_use]
    pub fn new(client: Client, mode: Mode, extensions: Cache<ClusterExtension>, rights: Rights) -> Self {
        Self {
            kinds: Kinds::new(client.clone()),
            client,
            mode,
            extensions,
            rights,
            existence: Mutex::default(),
        }
    }

    /// The extension is gone, and waits for nothing.
    pub fn forget(&self, extension: &str) {
        self.rights.settled(extension);
    }

    /// Whether the account exists; the answer may be two seconds old.
    async fn exists(&self, account: &Account) -> Result<bool, kube::Error> {
        let known = self.existence.lock().get(account).copied();
        if let Some((when, exists)) = known
            && when.elapsed() < EXISTENCE_HOLDS
        {
            return Ok(exists);
        }
        self.look(account).await
    }

    /// Asks the apiserver whether the account exists.
    async fn look(&self, account: &Account) -> Result<bool, kube::Error> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &account.namespace);
        let exists = api.get_metadata_opt(&account.name).await?.is_some();
        let mut existence = self.existence.lock();
        existence.retain(|_, (when, _)| when.elapsed() < EXISTENCE_HOLDS);
        existence.insert(account.clone(), (Instant::now(), exists));
        Ok(exists)
    }

    async fn identity(&self, extension: Option<&str>, purpose: Purpose) -> Result<Client, String> {
        let own = || Ok(self.client.clone());
        if self.mode == Mode::Ignore {
            return own();
        }
        let account = match extension {
            None => None,
            Some(extension) => {
                // an error means that the process ends
                let _ = self.extensions.wait_until_ready().await;
                let found = self.extensions.get(&ObjectRef::new(extension));
                match (found.as_ref().map(|found| &found.0), purpose) {
                    (Some(Ok(found)), _) => Account::of(found),
                    // whom it names is not known, so nobody stands in
                    (Some(Err(unreadable)), Purpose::Apply) => {
                        let why = &unreadable.error;
                        return Err(format!("ClusterExtension {extension} cannot be read: {why}"));
                    }
                    (Some(Err(_)), Purpose::Remove) | (None, _) => None,
                }
            }
        };
        let Some(account) = account else {
            let who = match extension {
                Some(extension) => format!("ClusterExtension {extension}"),
                None => "this revision is of no ClusterExtension and".to_owned(),
            };
            return match (self.mode, purpose) {
                (Mode::Require, Purpose::Apply) => Err(format!(
                    "{who} names no service account, and this cluster writes nothing without one; name an account in \
                     spec.serviceAccount.name of the extension"
                )),
                (Mode::Require | Mode::Impersonate | Mode::Ignore, _) => own(),
            };
        };
        let exists = self
            .exists(&account)
            .await
            .map_err(|error| format!("looking for service account {account}: {error}"))?;
        match (exists, purpose) {
            (true, _) => Ok(olm_runtime::client::impersonating(&self.client, &account.user())),
            (false, Purpose::Remove) => own(),
            (false, Purpose::Apply) => Err(format!(
                "service account {account} does not exist; create it, or clear spec.serviceAccount of the extension"
            )),
        }
    }
}

/// The seam of the revision controller.
impl Identities for Arc<Accounts> {
    fn client<'a>(
        &'a self,
        extension: Option<&'a str>,
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Client, String>> {
        Box::pin(self.identity(extension, purpose))
    }
}
