//! Pull secrets: the global one first, then those of the process's own service account; later ones win per registry.
//!
//! Read from the API before each pull that goes to a registry, so that a pull never runs with credentials that were
//! replaced. Rule: catalogd §5.2 (with §12 row 19: nothing of an entry is dropped).

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use olm_oci::{Keyring, SharedKeyring};
use tokio::sync::mpsc;

/// The namespace and name of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why the credentials are not known.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The API server does not give them.
    #[error("error reading {what} {place}: {source}")]
    Read {
        /// Kind.
        what: &'static str,
        /// Which.
        place: Place,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// The secret's content cannot be read; its text is not shown.
    #[error("error reading pull secret {place}: {source}")]
    Content {
        /// Which.
        place: Place,
        /// Why.
        source: olm_oci::Fault,
    },
}

/// Keeps the puller's credentials up to date.
#[derive(Clone)]
pub struct Credentials {
    client: Client,
    global: Option<Place>,
    account: Option<Place>,
    keyring: SharedKeyring,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("global", &self.global)
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Of the secret named by `--global-pull-secret` and of the service account that the process runs as, as far as
    /// there are any.
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
    /// When one of them cannot be read; what the puller had stays. A secret that does not exist is none.
    pub async fn refresh(&self) -> Result<(), CredentialsError> {
        let mut places: Vec<Place> = self.global.iter().cloned().collect();
        if let Some(account) = &self.account {
            let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &account.namespace);
            let found = api
                .get_opt(&account.name)
                .await
                .map_err(|source| failed("service account", account, source))?;
            let names = found.and_then(|account| account.image_pull_secrets).unwrap_or_default();
            let namespace = &account.namespace;
            places.extend(
                names.into_iter().map(|secret| Place { namespace: namespace.clone(), name: secret.name }),
            );
        }
        let mut keyring = Keyring::new();
        for place in places {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &place.namespace);
            match api.get_opt(&place.name).await.map_err(|source| failed("pull secret", &place, source))? {
                Some(secret) => {
                    add(&mut keyring, &secret)
                        .map_err(|source| CredentialsError::Content { place, source })?;
                }
                None => tracing::debug!(secret = %place, "pull secret does not exist"),
            }
        }
        self.keyring.set((!keyring.is_empty()).then_some(keyring));
        Ok(())
    }
}

/// Wakes whoever listens when a pull secret (or the account that names them) changes, so that a pull refused for want of
/// credentials is tried again at once. Runs until it is dropped; only names and versions are read.
pub async fn watch(client: Client, global: Option<Place>, account: Option<Place>, changed: mpsc::Sender<()>) {
    let mut watches = SelectAll::new();
    if let Some(place) = &global {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &place.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
        watches.push(changes(api, config));
    }
    if let Some(place) = &account {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &place.namespace);
        watches.push(changes(api, watcher::Config::default()));
        let api: Api<PartialObjectMeta<ServiceAccount>> = Api::namespaced(client, &place.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
        watches.push(changes(api, config));
    }
    while watches.next().await.is_some() {
        // A full channel means that a wake-up is on its way already.
        let _ = changed.try_send(());
    }
}

/// One item for each change after the first listing.
fn changes<K>(api: Api<PartialObjectMeta<K>>, config: watcher::Config) -> BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let events = watcher(api, config).default_backoff().filter_map(async |event| match event {
        Ok(Event::Apply(_)) => Some(()),
        Ok(Event::Init | Event::InitApply(_) | Event::InitDone | Event::Delete(_)) => None,
        Err(error) => {
            tracing::debug!(%error, "watching pull secrets failed; the watch will be started again");
            None
        }
    });
    events.boxed()
}

fn failed(what: &'static str, place: &Place, source: kube::Error) -> CredentialsError {
    CredentialsError::Read { what, place: place.clone(), source: Box::new(source) }
}

fn add(keyring: &mut Keyring, secret: &Secret) -> Result<(), olm_oci::Fault> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    if let Some(document) = data(".dockerconfigjson") {
        return keyring.add_config_json(&document.0);
    }
    match data(".dockercfg") {
        Some(document) => keyring.add_dockercfg(&document.0),
        None => {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            tracing::info!(
                secret = name,
                "pull secret has neither .dockerconfigjson nor .dockercfg; it is passed over"
            );
            Ok(())
        }
    }
}

/// The service account of a token, from its `sub`; the token is not verified, it is our own.
///
/// # Errors
/// When it is no token of a service account.
pub fn account_of_token(token: &str) -> Result<Place, String> {
    use base64::Engine as _;
    let malformed = || "service account token is not a JSON web token".to_owned();
    let payload = token.trim().split('.').nth(1).ok_or_else(malformed)?;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).map_err(|_| malformed())?;
    let claims: serde_json::Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    let subject = claims.get("sub").and_then(serde_json::Value::as_str).unwrap_or_default();
    let mut parts =
        subject.strip_prefix("system:serviceaccount:").into_iter().flat_map(|rest| rest.split(':'));
    match (parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(name), None) if !namespace.is_empty() && !name.is_empty() => {
            Ok(Place { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err(format!(
            "badly formatted subject: expected system:serviceaccount:<namespace>:<name>, got {subject}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;

    #[test]
    fn the_subject_names_the_account() {
        let token = |subject: &str| {
            let claims = serde_json::json!({ "sub": subject }).to_string();
            format!("x.{}.y\n", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims))
        };
        let place = account_of_token(&token("system:serviceaccount:olmv1-system:catalogd")).unwrap();
        assert_eq!(place.to_string(), "olmv1-system/catalogd");
        for subject in
            ["system:serviceaccount:a", "system:serviceaccount:a:b:c", "user", "system:serviceaccount::x"]
        {
            let error = account_of_token(&token(subject)).unwrap_err();
            assert!(error.starts_with("badly formatted subject: "), "{error}");
        }
        assert!(account_of_token("abc").is_err() && account_of_token("a.b.c").is_err());
    }
}
