//! Service accounts that extensions name: who they are, what they lack, and clients that act as them (decision 8).
//!
//! The extension controller asks [`Accounts::check`] before it makes a revision; the revision controller asks for clients
//! through [`Identities`]. The rights of an account are checked by [`olm_install::account`].
//! Nothing here decides what is written.

mod watch;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_core::{Object, ObjectKey};
use olm_install::account::{self, Account};
use olm_install::resolution::{BundleFacts, Class, ExtensionRequest, PassError};
use olm_rollout::permissions::Served;
use olm_runtime::apply;
use olm_runtime::watched::Objects;
use parking_lot::Mutex;

use crate::kinds::{Kind, KindError, Kinds};
use crate::objectset::{Identities, IdentityError, Owner, Purpose};
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
    pub async fn check(
        &self,
        request: &ExtensionRequest,
        bundle: &BundleFacts,
        objects: &[Object],
    ) -> Result<(), PassError> {
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
        let (client, name) = (&self.client, &request.name);
        let checked = account::check(client, name, &account, exists, bundle, objects, &served).await;
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

    /// The account of the extension with this UID. An error if it cannot be known: no other identity may stand in then.
    async fn of_extension(&self, name: &str, uid: &str) -> Result<Option<Account>, IdentityError> {
        let unreadable = |problem: &dyn Display| format!("ClusterExtension {name} cannot be read: {problem}");
        self.extensions.wait_until_listed().await;
        let cached = self.extensions.get(&name.to_owned()).filter(|cached| cached.uid() == uid);
        let found = match cached {
            Some(cached) => {
                cached.0.map_err(|invalid| IdentityError::NoExtension(unreadable(&invalid.error)))?
            }
            // the cache may be behind
            None => {
                let api: Api<ClusterExtension> = Api::all(self.client.clone());
                let found = api.get_opt(name).await.map_err(|error| {
                    let problem = unreadable(&apply::message(&error));
                    match error {
                        kube::Error::SerdeError(_) => IdentityError::NoExtension(problem),
                        _ => IdentityError::Failed(problem),
                    }
                })?;
                let found = found.filter(|found| found.metadata.uid.as_deref() == Some(uid)).map(Arc::new);
                found.ok_or_else(|| {
                    let problem = format!("the one with the UID {uid}, which owns this revision, is gone");
                    IdentityError::NoExtension(unreadable(&problem))
                })?
            }
        };
        Ok(Account::from_extension(&found))
    }

    async fn identity(&self, owner: &Owner, purpose: Purpose) -> Result<Client, IdentityError> {
        let own = || Ok(self.client.clone());
        if self.mode == Mode::Ignore {
            return own();
        }
        let account = match owner {
            Owner::Extension { name, uid } => self.of_extension(name, uid).await?,
            Owner::None(account) => account.clone(),
        };
        let Some(account) = account else {
            let who = match owner {
                Owner::Extension { name, .. } => format!("ClusterExtension {name}"),
                Owner::None(_) => "this revision is of no ClusterExtension and".to_owned(),
            };
            return match (self.mode, purpose) {
                (Mode::Require, Purpose::Apply) => Err(IdentityError::Failed(format!(
                    "{who} names no service account, and this cluster writes nothing without one; name an account in \
                     spec.serviceAccount.name of the extension"
                ))),
                (Mode::Require | Mode::Impersonate | Mode::Ignore, _) => own(),
            };
        };
        let exists = self.exists(&account).await.map_err(|error| {
            IdentityError::Failed(format!(
                "looking for service account {account}: {}",
                apply::message(&error)
            ))
        })?;
        match (exists, purpose) {
            (true, _) => Ok(olm_runtime::client::impersonating(&self.client, &account.user())),
            (false, Purpose::Remove) => own(),
            (false, Purpose::Apply) => Err(IdentityError::Failed(format!(
                "service account {account} does not exist; create it, or clear spec.serviceAccount of the extension"
            ))),
        }
    }
}

/// The seam of the revision controller.
impl Identities for Arc<Accounts> {
    fn client<'a>(
        &'a self,
        owner: &'a Owner,
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Client, IdentityError>> {
        Box::pin(self.identity(owner, purpose))
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use olm_runtime::watched::Object as CachedObject;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Apiserver, failure, failure_with};

    /// An extension with an account, as a cache or the apiserver has it.
    fn extension(uid: &str, account: &str) -> Value {
        json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "demo", "uid": uid},
            "spec": {"namespace": "ns", "serviceAccount": {"name": account},
                "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
        })
    }

    /// The user as whom a revision is written, empty for the controller itself.
    async fn writes_as(
        cached: Option<Value>,
        live: Option<Value>,
        owner: Owner,
        purpose: Purpose,
    ) -> Result<String, IdentityError> {
        let apiserver = Apiserver::new(move |_, uri| match &live {
            Some(live) if uri.contains("/clusterextensions/") => (200, live.clone()),
            _ if uri.contains("/serviceaccounts/") => (
                200,
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}}),
            ),
            _ => failure(404, "NotFound"),
        });
        let extensions = Objects::empty();
        let row = |object: CachedObject<ClusterExtension>| (object.name(), object);
        extensions.apply(Event::Init, row);
        if let Some(cached) = cached {
            let cached = CachedObject::new(serde_json::from_value(cached).unwrap());
            extensions.apply(Event::InitApply(cached), row);
        }
        extensions.apply(Event::InitDone, row);
        let (rights, _woken) = Rights::new(apiserver.client());
        let accounts = Accounts::new(apiserver.client(), Mode::Impersonate, extensions, rights);
        let client = accounts.identity(&owner, purpose).await?;
        let request = http::Request::get("/who").body(kube::client::Body::empty()).unwrap();
        let _ = client.send(request).await;
        Ok(apiserver.last_user())
    }

    #[tokio::test]
    #[rustfmt::skip]
    async fn account_follows_the_owner_by_uid() {
        let of = |uid: &str| Owner::Extension { name: "demo".to_owned(), uid: uid.to_owned() };
        let recorded = Account { namespace: "ns".to_owned(), name: "recorded".to_owned() };
        let user = |name: &str| Ok(format!("system:serviceaccount:ns:{name}"));
        let (own, gone) = (Ok(String::new()), Err("gone"));
        for (case, cached, live, owner, purpose, want) in [
            ("cached", Some("u1"), None, of("u1"), Purpose::Apply, user("a")),
            ("cache is behind", None, Some("u1"), of("u1"), Purpose::Apply, user("b")),
            ("another one is cached", Some("u2"), Some("u1"), of("u1"), Purpose::Apply, user("b")),
            ("another one has the name", Some("u2"), Some("u2"), of("u1"), Purpose::Apply, gone.clone()),
            ("gone", None, None, of("u1"), Purpose::Apply, gone.clone()),
            ("gone", None, None, of("u1"), Purpose::Remove, gone.clone()),
            ("another one has the name", Some("u2"), Some("u2"), of("u1"), Purpose::Remove, gone.clone()),
            ("cached", Some("u1"), None, of("u1"), Purpose::Remove, user("a")),
            ("orphaned", Some("u2"), Some("u2"), Owner::None(Some(recorded)), Purpose::Apply, user("recorded")),
            ("never had one", Some("u2"), Some("u2"), Owner::None(None), Purpose::Apply, own),
        ] {
            let (cached, live) = (cached.map(|uid| extension(uid, "a")), live.map(|uid| extension(uid, "b")));
            let got = writes_as(cached, live, owner, purpose).await;
            let got = got.map_err(|error| match error {
                IdentityError::NoExtension(_) => "gone",
                IdentityError::Failed(_) => "another error",
            });
            assert_eq!(got, want, "{case}");
        }
    }

    #[tokio::test]
    async fn account_errors_have_the_words_of_the_apiserver() {
        let apiserver = Apiserver::new(|_, _| failure_with(500, "InternalError", "etcd is gone"));
        let extensions = Objects::empty();
        let row = |object: CachedObject<ClusterExtension>| (object.name(), object);
        extensions.apply(Event::Init, row);
        extensions.apply(Event::InitDone, row);
        let (rights, _woken) = Rights::new(apiserver.client());
        let accounts = Accounts::new(apiserver.client(), Mode::Impersonate, extensions, rights);
        let recorded = Account { namespace: "ns".to_owned(), name: "a".to_owned() };
        for (owner, want) in [
            (
                Owner::Extension { name: "demo".to_owned(), uid: "u1".to_owned() },
                "ClusterExtension demo cannot be read: etcd is gone",
            ),
            (Owner::None(Some(recorded)), "looking for service account ns/a: etcd is gone"),
        ] {
            let error = accounts.identity(&owner, Purpose::Apply).await.err().unwrap();
            assert_eq!(error.to_string(), want);
        }
    }
}
