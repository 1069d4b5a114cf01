//! The CA that a server publishes in a ConfigMap, for who calls it: watched, so that a rotation counts at once.
//!
//! It reads what [`super::SelfIssued`] publishes (`ca.crt`), and what OpenShift's service CA injects (`service-ca.crt`).

use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;

use super::CA_KEY;
use crate::Shutdown;
use crate::tls::TlsError;
use crate::tls::pair::certificates;

/// Where OpenShift's service CA writes, when the ConfigMap asks for it by annotation.
const SERVICE_CA_KEY: &str = "service-ca.crt";

/// The CA in a ConfigMap.
#[derive(Debug)]
pub struct PublishedCa {
    namespace: String,
    name: String,
    current: RwLock<Option<String>>,
}

impl PublishedCa {
    /// Nothing is known before [`PublishedCa::watch`] has seen the ConfigMap.
    pub fn new(namespace: &str, name: &str) -> Arc<Self> {
        Arc::new(Self { namespace: namespace.to_owned(), name: name.to_owned(), current: RwLock::default() })
    }

    /// Follows the ConfigMap until shutdown.
    pub async fn watch(self: Arc<Self>, client: Client, stop: Shutdown) {
        let maps: Api<ConfigMap> = Api::namespaced(client, &self.namespace);
        let mut changes = watcher::watch_object(maps, &self.name).default_backoff().boxed();
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.next() => change,
            };
            match change {
                None => return,
                Some(Ok(map)) => self.take(map.as_ref()),
                Some(Err(error)) => tracing::warn!(
                    config_map = self.title(),
                    error = crate::error_text::chain(&error),
                    "cannot watch the ConfigMap with the CA"
                ),
            }
        }
    }

    /// The CA's certificates now.
    ///
    /// # Errors
    /// When the ConfigMap is not there, or holds none, or cannot be parsed.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let place = format!("ConfigMap {}", self.title());
        let found = certificates(place.as_ref(), current.unwrap_or_default().as_bytes())?;
        if found.is_empty() {
            return Err(TlsError::Empty { path: place.into(), what: "certificate" });
        }
        Ok(found)
    }

    fn take(&self, map: Option<&ConfigMap>) {
        let data = map.and_then(|map| map.data.as_ref());
        let text = data.and_then(|data| data.get(CA_KEY).or_else(|| data.get(SERVICE_CA_KEY))).cloned();
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if *current != text {
            tracing::info!(config_map = self.title(), present = text.is_some(), "CA replaced");
            *current = text;
        }
    }

    fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::issue::testing::{NOW, generation};
    use k8s_openapi::jiff::SignedDuration;

    #[test]
    fn takes_either_key_and_says_what_is_missing() {
        let ca = PublishedCa::new("ns", "serving");
        let error = ca.certificates().unwrap_err().to_string();
        assert_eq!(error, "ConfigMap ns/serving holds no certificate in PEM form");
        let pem = generation(NOW, SignedDuration::from_hours(1)).authority;
        for key in ["ca.crt", "service-ca.crt"] {
            let map =
                ConfigMap { data: Some([(key.to_owned(), pem.clone())].into()), ..ConfigMap::default() };
            ca.take(Some(&map));
            assert_eq!(ca.certificates().unwrap().len(), 1, "{key}");
        }
        ca.take(None);
        assert!(ca.certificates().is_err(), "what was withdrawn is not trusted");
    }
}
