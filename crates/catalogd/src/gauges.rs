//! Metrics about what is served, made when they are asked for (decision 19).

use olm_api::observe::metric_named;
use olm_runtime::metrics::{Metrics, encode_row};
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
        catalogs.encode(encode_row(&mut encoder, const { metric_named("catalogd_served_catalogs") })?)?;
        for (row, of) in [
            (const { metric_named("catalogd_content_bytes") }, Measure::Bytes),
            (const { metric_named("catalogd_content_objects") }, Measure::Objects),
            (const { metric_named("catalogd_content_unpacked_timestamp_seconds") }, Measure::Time),
        ] {
            let mut out = encode_row(&mut encoder, row)?;
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
