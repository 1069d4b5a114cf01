//! The controller of ClusterServiceVersions.

use std::sync::Arc;

use olm_runtime::controller::{self, Requeue};
use olm_runtime::metrics::Outcome;

use crate::context::Context;
use crate::controllers;

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "clusterserviceversion";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 4;

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>) {
    let runner = context.controller(controllers::csv_sources(&context.cluster));
    let ready = context.cluster.wait_until_listed();
    controller::run(runner, ready, |name| {
        let name = name.to_owned();
        Some(async move {
            tracing::debug!(name, "nothing is decided yet");
            (Requeue::OnChange, Outcome::Success)
        })
    })
    .await;
}
