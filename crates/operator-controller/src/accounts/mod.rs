//! Service accounts that extensions name: who they are, what they lack, and clients that act as them (decision 8).
//!
//! The extension controller asks [`Accounts::check`] before it makes a revision; the revision controller asks for clients
//! through [`Identities`]. The rights of an account are checked by [`olm_install::account`].
//! Nothing here decides what is written.

mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use kube::Client;
use kube::core::GroupVersionKind;
use olm_api::ClusterExtension;
use olm_core::{Object, ObjectKey};
use olm_install::account::{self, Account};
use olm_install::resolution::{Class, ExtensionRequest, PassError};
use olm_rollout::permissions::Served;
use olm_runtime::watched::Objects;
use parking_lot::Mutex;

use crate::kinds::{Kind, KindError, Kinds};
use crate::objectset::{Identities, Purpose};
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

/// The accounts of all extensions.
pub struct Accounts {
    client: Client,
    mode: Mode,
    extensions: Objects<ClusterExtension>,
    kinds: Kinds,
    rights: Rights,
    existence: Mutex<HashMap<Account, (Instant, bool)>>,
}

impl Accounts {
    /// Accounts as `extensions` name them. `rights` wakes the extensions whose account lacked something.
    #[must_use]
    pub fn new(client: Client, mode: Mode, extensions: Objects<ClusterExtension>, rights: Rights) -> Self {
        Self {
            kinds: Kinds::new(client.clone()),
            client,
            mode,
            extensions,
            rights,
            existence: Mutex::default(),
        }
    }

    /// Evicts an extension that is gone.
    pub fn evict(&self, extension: &str) {
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
        self.check_exists(account).await
    }

    /// Asks the apiserver whether the account exists.
    async fn check_exists(&self, account: &Account) -> Result<bool, kube::Error> {
        let exists = account.exists(&self.client).await?;
        let mut existence = self.existence.lock();
        existence.retain(|_, (when, _)| when.elapsed() < EXISTENCE_HOLDS);
        existence.insert(account.clone(), (Instant::now(), exists));
        Ok(exists)
    }

    /// Whether the objects may be written as the account that the extension names, or as the controller.
    ///
    /// # Errors
    /// With the text for the `Progressing` condition; the extension is reconciled again when rights change.
    pub async fn check(&self, request: &ExtensionRequest, objects: &[Object]) -> Result<(), PassError> {
        let Some(account) = Account::from_request(request) else {
            self.rights.settled(&request.name);
            return match self.mode {
                Mode::Impersonate | Mode::Ignore => Ok(()),
                Mode::Require => Err(PassError::new(
                    Class::NeedsChange,
                    "spec.serviceAccount is not set, and this cluster installs nothing without one; name an account in \
                     spec.serviceAccount.name that may write the objects of the package",
                )),
            };
        };
        if self.mode == Mode::Ignore {
            return Ok(());
        }
        // before anything is read, so that no change is missed while others wait too
        self.rights.wait(&request.name);
        let unreadable = |error: kube::Error| account::unreadable(&account, &error);
        let exists = self.check_exists(&account).await.map_err(unreadable)?;
        let served = self.served(objects).await.map_err(unreadable)?;
        let checked = account::check(&self.client, &request.name, &account, exists, objects, &served).await;
        match &checked {
            Ok(()) => self.rights.settled(&request.name),
            Err(error) if error.class == Class::NeedsChange => self.rights.watch(),
            Err(_) => {}
        }
        checked
    }

    /// How the cluster serves the kinds of the objects; those that it does not serve are left out.
    async fn served(&self, objects: &[Object]) -> Result<HashMap<ObjectKey, Served>, kube::Error> {
        let mut served = HashMap::new();
        for object in objects {
            let key = object.key();
            let kind = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            match self.kinds.find(&kind).await {
                Ok(Kind { resource, namespaced }) => {
                    served.insert(key, Served { plural: resource.plural, namespaced });
                }
                Err(KindError::NoMatch { .. }) => {}
                Err(KindError::Unreachable(error)) => return Err(kube::Error::Service(error.into())),
            }
        }
        Ok(served)
    }

    async fn identity(&self, extension: Option<&str>, purpose: Purpose) -> Result<Client, String> {
        let own = || Ok(self.client.clone());
        if self.mode == Mode::Ignore {
            return own();
        }
        let account = match extension {
            None => None,
            Some(extension) => {
                self.extensions.wait_until_listed().await;
                let found = self.extensions.get(&extension.to_owned());
                match (found.as_ref().map(|found| &found.0), purpose) {
                    (Some(Ok(found)), _) => Account::from_extension(found),
                    // its account is not known, and no other one may stand in
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
