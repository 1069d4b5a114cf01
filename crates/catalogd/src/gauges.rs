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
        let catalogs = ConstGauge::new(number(serving.len()));
        catalogs.encode(encode_row(&mut encoder, const { metric_named("catalogd_served_catalogs") })?)?;
        type Measure = fn(&crate::store::Served) -> i64;
        let measures: [(_, Measure); 3] = [
            (const { metric_named("catalogd_content_bytes") }, |served| {
                number(served.content.jsonl().size())
            }),
            (const { metric_named("catalogd_content_objects") }, |served| {
                number(served.content.index().len())
            }),
            (const { metric_named("catalogd_content_unpacked_timestamp_seconds") }, |served| {
                served.last_unpacked
            }),
        ];
        for (row, measure) in measures {
            let mut out = encode_row(&mut encoder, row)?;
            for (catalog, served) in serving.iter() {
                let labels = [("catalog", catalog.as_str())];
                ConstGauge::new(measure(served)).encode(out.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
