//! The CA that a server publishes in a ConfigMap, for its clients: watched, so that a rotation is noticed.
//!
//! It reads what [`super::SelfIssued`] publishes (`ca.crt`), and what OpenShift's service CA injects (`service-ca.crt`).

use std::pin::pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

use olm_runtime::tls::{TlsError, certificates};
use olm_runtime::{Shutdown, watched};

use crate::self_issued::CA_KEY;

/// Where OpenShift's service CA writes, when the ConfigMap asks for it by annotation.
const SERVICE_CA_KEY: &str = "service-ca.crt";

/// The CA in a ConfigMap.
#[derive(Debug)]
pub struct PublishedCa {
    namespace: String,
    name: String,
    current: watch::Sender<Option<String>>,
}

impl PublishedCa {
    /// Nothing is known before [`PublishedCa::watch`] has seen the ConfigMap.
    pub fn new(namespace: &str, name: &str) -> Arc<Self> {
        Arc::new(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            current: watch::Sender::default(),
        })
    }

    /// Follows the ConfigMap until shutdown.
    pub async fn watch(self: Arc<Self>, client: Client, stop: Shutdown) {
        let maps: Api<ConfigMap> = Api::namespaced(client, &self.namespace);
        let mut changes = pin!(watched::single(maps, &self.name).take_until(stop.cancelled()));
        while let Some(change) = changes.next().await {
            if let Ok(map) = change {
                self.take(map.as_ref());
            }
        }
    }

    /// The CA's certificates now.
    ///
    /// # Errors
    /// When the ConfigMap is not there, or holds none, or cannot be parsed.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let current = self.current.borrow().clone();
        let place = format!("ConfigMap {}", self.title());
        let found = certificates(place.as_ref(), current.unwrap_or_default().as_bytes())?;
        if found.is_empty() {
            return Err(TlsError::Empty { path: place.into(), what: "certificate" });
        }
        Ok(found)
    }

    /// One item for each change of the CA from now on. Ends only with the process.
    pub fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        stream::unfold(self.current.subscribe(), |mut changes| async move {
            changes.changed().await.ok().map(|()| ((), changes))
        })
    }

    fn take(&self, map: Option<&ConfigMap>) {
        let data = map.and_then(|map| map.data.as_ref());
        let text = data.and_then(|data| data.get(CA_KEY).or_else(|| data.get(SERVICE_CA_KEY))).cloned();
        let present = text.is_some();
        let changed = self.current.send_if_modified(|current| {
            let differs = *current != text;
            *current = text;
            differs
        });
        if changed {
            tracing::info!(config_map = self.title(), present, "CA replaced");
        }
    }

    fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, generation};
    use k8s_openapi::jiff::SignedDuration;

    #[tokio::test]
    async fn published_ca_reads_either_key_and_names_what_is_missing() {
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
        let mut changes = std::pin::pin!(ca.changes());
        ca.take(None);
        ca.take(None);
        assert!(changes.next().await.is_some());
        assert!(futures::poll!(changes.next()).is_pending(), "the same once more is no change");
        assert!(ca.certificates().is_err(), "what was withdrawn is not trusted");
    }
}
