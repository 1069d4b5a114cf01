//! When webhook certificates end, as metrics (decision 19).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use olm_api::observe;
use olm_runtime::metrics::Metrics;
use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use super::material;
use super::needs::Place;
use super::plan::CertificateState;

type Known = BTreeMap<(String, Place), i64>;

/// The ends of the certificates that are served with. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Expiries(Arc<RwLock<Known>>);

impl Expiries {
    /// Shows them among the metrics of the process.
    pub fn register(&self, metrics: &Metrics) {
        metrics.register_collector(self.clone());
    }

    pub(super) fn set(&self, extension: &str, place: &Place, stored: &CertificateState) {
        let ends = material::check(&stored.current, &[]).map(|lifetime| lifetime.not_after.as_second());
        let key = (extension.to_owned(), place.clone());
        let mut known = self.0.write();
        match ends {
            Ok(ends) => known.insert(key, ends),
            Err(_) => known.remove(&key),
        };
    }

    /// Forgets what the extension has no more.
    pub(super) fn keep(&self, extension: &str, places: &BTreeSet<Place>) {
        let mut known = self.0.write();
        known.retain(|(owner, place), _| owner != extension || places.contains(place));
    }
}

impl Collector for Expiries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let known = self.0.read().clone();
        let mut out = encoder.encode_descriptor(
            observe::WEBHOOK_CERTIFICATE_EXPIRY.name,
            observe::WEBHOOK_CERTIFICATE_EXPIRY.help,
            None,
            ConstGauge::new(0_i64).metric_type(),
        )?;
        for ((extension, (namespace, secret)), ends) in known {
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
    use crate::certificates::testing::{NOW, generation};

    #[test]
    fn ends_are_shown_as_long_as_they_matter() {
        let expiries = Expiries::default();
        let metrics = Metrics::new();
        expiries.register(&metrics);
        let stored = CertificateState {
            current: generation(NOW, SignedDuration::from_secs(100)),
            next: None,
            previous: String::new(),
        };
        let place = ("ns".to_owned(), "s".to_owned());
        expiries.set("demo", &place, &stored);
        let line = r#"olm_webhook_certificate_expiry_timestamp_seconds{extension="demo",namespace="ns",secret="s"} 1893456100"#;
        assert!(metrics.classic().contains(line), "{}", metrics.classic());
        expiries.keep("other", &BTreeSet::new());
        assert!(metrics.classic().contains(line));
        expiries.keep("demo", &BTreeSet::new());
        assert!(!metrics.classic().contains("extension="));
    }
}
