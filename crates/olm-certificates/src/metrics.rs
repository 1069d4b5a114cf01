//! Metrics and profiles of a program that serves nothing else with its certificate.

use kube::Client;
use olm_runtime::Shutdown;
use olm_runtime::args::{Serving, service_names};
use olm_runtime::listen::{self, ListenError};
use olm_runtime::metrics::{self, Metrics};
use olm_runtime::tls::{TlsError, TlsSettings};

use crate::Source;

/// Where they are served, and with which certificate; made from flags.
#[derive(Debug)]
pub struct MetricsServer<'a> {
    /// Without a certificate nothing is served.
    pub serving: Option<Serving>,
    pub settings: TlsSettings,
    /// The address of the metrics; `None` if they are off.
    pub address: Option<&'a str>,
    /// The address of the profiles, which may be off.
    pub profiles: &'a str,
    /// The namespace of a self-issued certificate.
    pub namespace: &'a str,
    /// The Service that a self-issued certificate is for.
    pub service: &'a str,
}

/// Why they cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsServerError {
    #[error("failed to initialize certificate watcher")]
    Certificate(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

impl MetricsServer<'_> {
    /// Listens. Returns the work that serves until `stop`; `None` if there is nothing to serve.
    ///
    /// # Errors
    /// If the certificate cannot be read, or the system refuses to listen.
    pub async fn listen(
        self,
        client: &Client,
        metrics: &Metrics,
        stop: &Shutdown,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<>>, MetricsServerError> {
        let Some(serving) = self.serving else {
            tracing::warn!(
                "neither metrics nor profiles are served: no certificate is given and none is self-issued"
            );
            return Ok(None);
        };
        if self.address.is_none() && listen::is_off(self.profiles) {
            return Ok(None);
        }
        let names = service_names(self.service, self.namespace);
        let certificate = Source::open(&serving, client, self.namespace, names)?;
        let address = self.address.unwrap_or_default();
        let listeners = (listen::optional(address).await?, listen::optional(self.profiles).await?);
        let certificate = certificate.pair(stop.clone());
        let (client, metrics, stop) = (client.clone(), metrics.clone(), stop.clone());
        Ok(Some(metrics::serve(certificate, self.settings, listeners, client, metrics, stop)))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;
    use olm_runtime::args::SelfIssuing;
    use olm_runtime::testing;

    use super::*;

    #[tokio::test]
    async fn metrics_server_serves_profiles_without_metrics() {
        let client = testing::client(|_| std::future::pending());
        let flags = SelfIssuing {
            secret: "s".to_owned(),
            names: Vec::new(),
            validity: SignedDuration::from_hours(24),
        };
        let any = "127.0.0.1:0";
        for (is_issued, address, profiles, want) in [
            (true, Some(any), "0", true),
            (true, None, any, true),
            (true, None, "0", false),
            (true, None, "", false),
            (false, None, any, false),
        ] {
            let serving = is_issued.then(|| Serving::SelfIssued(flags.clone()));
            let settings = TlsSettings::default();
            let server =
                MetricsServer { serving, settings, address, profiles, namespace: "n", service: "service" };
            let served = server.listen(&client, &Metrics::new(), &Shutdown::new()).await.unwrap();
            assert_eq!(served.is_some(), want, "{is_issued} {address:?} {profiles}");
        }
    }
}
