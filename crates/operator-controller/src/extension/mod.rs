//! The ClusterExtension controller: from the spec to a revision, and a status.
//!
//! `reconcile` is one pass, [`deliver`] its steps from a chosen bundle to a revision. [`result`] is the outcome as a value, from which
//! [`status`] derives the conditions and [`events`] the events; [`report`] writes both. [`sources`] lists what wakes a pass.

pub mod adopt;
pub mod context;
pub mod debounce;
pub mod deliver;
pub mod dependencies;
pub mod deprecation;
pub mod durations;
pub mod events;
pub mod eviction;
pub mod reconcile;
pub mod record;
pub mod report;
pub mod result;
pub mod sources;
pub mod state;
pub mod status;
pub mod uninstall;
pub mod writer;

use std::sync::Arc;
use std::time::Duration;

use olm_api::ClusterExtension;
use olm_runtime::controller::{self, Controller, Requeue};
use olm_runtime::metrics::{ControllerMetrics, Outcome};
use olm_runtime::watched::Object;
use tracing::Instrument as _;

use self::context::Context;
use self::reconcile::reconcile;
use self::report::ReconcileError;
pub use self::sources::Feeds;

/// Name of the controller in metrics and logs.
pub const NAME: &str = "controller-operator-cluster-extension-controller";
/// Extensions that are reconciled at the same time; those that wait for a registry or a catalog do not count.
pub(crate) const WORKERS: u16 = 8;
/// Events of one object within this time are one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// Runs until the workers stop; passes that work are finished first, those that wait for a registry or a catalog are given up.
pub async fn run(context: Arc<Context>, feeds: Feeds, metrics: ControllerMetrics) {
    let sources = sources::sources(&context, feeds);
    let controller = Controller {
        debounce: DEBOUNCE,
        unfinished: context.settings.intervals.unfinished,
        describe: {
            let extensions = context.extensions.clone();
            Box::new(move |name| extensions.describe(name))
        },
        ..Controller::new(NAME, Arc::clone(&context.workers), metrics, sources)
    };
    // a pass that sees half of the revisions would take an installed extension for a new one
    let ready = async {
        context.extensions.wait_until_listed().await;
        context.revisions.wait_until_listed().await;
        context.catalogs.wait_until_listed().await;
        // else bundles would be chosen that the cluster does not fit
        context.cluster.wait_until_read().await;
    };
    let passes = controller::run(controller, ready, |name| {
        let extension = context.extensions.get(&name.to_owned())?;
        let span = tracing::info_span!("extension", extension = name);
        Some(pass(extension, Arc::clone(&context)).instrument(span))
    });
    tokio::select! {
        () = passes => {}
        never = eviction::run(Arc::clone(&context)) => match never {},
    }
}

async fn pass(extension: Object<ClusterExtension>, context: Arc<Context>) -> (Requeue, Outcome) {
    match reconcile(extension, context).await {
        Ok(done) => done,
        Err(ReconcileError::Stopping(_)) => (Requeue::OnChange, Outcome::Requeue),
        Err(error) if error.is_conflict() => {
            tracing::debug!(%error, "the object has changed meanwhile");
            (Requeue::Backoff, Outcome::Requeue)
        }
        Err(error) => {
            tracing::warn!(%error, "pass failed");
            (Requeue::Backoff, Outcome::Error)
        }
    }
}
