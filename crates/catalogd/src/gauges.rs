//! Metrics about what is served, made when they are asked for (decision 19).

use olm_runtime::metrics::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::store::Store;

/// Adds the metrics of a store.
pub(crate) fn register(metrics: &Metrics, store: Store) {
    metrics.register_collector(Served(store));
}

#[derive(Debug)]
struct Served(Store);

impl Collector for Served {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let serving = self.0.serving();
        let catalogs = ConstGauge::new(i64::try_from(serving.len()).unwrap_or(i64::MAX));
        let name = "catalogd_served_catalogs";
        let out = encoder.encode_descriptor(
            name,
            "Number of catalogs whose content is served",
            None,
            catalogs.metric_type(),
        )?;
        catalogs.encode(out)?;
        for (name, help, of) in [
            ("catalogd_content_bytes", "Size of each served catalog", Measure::Bytes),
            ("catalogd_content_objects", "Number of objects in each served catalog", Measure::Objects),
            (
                "catalogd_content_unpacked_timestamp_seconds",
                "When each served catalog was unpacked",
                Measure::Time,
            ),
        ] {
            let mut out = encoder.encode_descriptor(name, help, None, catalogs.metric_type())?;
            for (catalog, served) in serving.iter() {
                let value = match of {
                    Measure::Bytes => i64::try_from(served.content.jsonl().size()).unwrap_or(i64::MAX),
                    Measure::Objects => i64::try_from(served.content.index().len()).unwrap_or(i64::MAX),
                    Measure::Time => served.last_unpacked,
                };
                let labels = [("catalog", catalog.as_str())];
                ConstGauge::new(value).encode(out.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Measure {
    Bytes,
    Objects,
    Time,
}
