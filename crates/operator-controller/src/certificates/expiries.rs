//! The ends of webhook certificates, as metrics (decision 19).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use olm_api::observe;
use olm_runtime::metrics::{Metrics, encode_row};
use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use super::needs::SecretRef;
use olm_certificates::material;
use olm_certificates::plan::CertificateState;

type Ends = BTreeMap<(String, SecretRef), i64>;

/// The ends of the certificates that are served with. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Expiries(Arc<RwLock<Ends>>);

impl Expiries {
    /// Shows them among the metrics of the process.
    pub fn register(&self, metrics: &Metrics) {
        metrics.register_collector(self.clone());
    }

    pub(super) fn set(&self, extension: &str, secret: &SecretRef, stored: &CertificateState) {
        let ends = material::check(&stored.current, &[]).map(|lifetime| lifetime.not_after.as_second());
        let key = (extension.to_owned(), secret.clone());
        let mut all = self.0.write();
        match ends {
            Ok(ends) => all.insert(key, ends),
            Err(_) => all.remove(&key),
        };
    }

    /// Removes what the extension has no more.
    pub(super) fn retain(&self, extension: &str, secrets: &BTreeSet<SecretRef>) {
        self.0.write().retain(|(owner, secret), _| owner != extension || secrets.contains(secret));
    }
}

impl Collector for Expiries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let all = self.0.read().clone();
        let mut out = encode_row(&mut encoder, &observe::WEBHOOK_CERTIFICATE_EXPIRY)?;
        for ((extension, (namespace, secret)), ends) in all {
            let labels = [("extension", extension), ("namespace", namespace), ("secret", secret)];
            ConstGauge::new(ends).encode(out.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;

    use super::*;
    use olm_certificates::testing::{NOW, generation};

    #[test]
    fn expiries_are_exported_until_the_secret_goes() {
        let expiries = Expiries::default();
        let metrics = Metrics::new();
        expiries.register(&metrics);
        let stored = CertificateState {
            current: generation(NOW, SignedDuration::from_secs(100)),
            next: None,
            previous: String::new(),
        };
        let secret = ("ns".to_owned(), "s".to_owned());
        expiries.set("demo", &secret, &stored);
        let line = r#"olm_webhook_certificate_expiry_timestamp_seconds{extension="demo",namespace="ns",secret="s"} 1893456100"#;
        assert!(metrics.classic().contains(line), "{}", metrics.classic());
        expiries.retain("other", &BTreeSet::new());
        assert!(metrics.classic().contains(line));
        expiries.retain("demo", &BTreeSet::new());
        assert!(!metrics.classic().contains("extension="));
    }
}
