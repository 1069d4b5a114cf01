//! Serving certificates of webhooks: their providers ([`provider`]), and the built-in issuer, a controller of its own.
//!
//! For every extension whose status names `built-in` it keeps one Secret for each Service behind which webhooks are served,
//! and the `caBundle`s that trust it. It reads what is needed from the revisions in force ([`needs`]); [`olm_certificates`] decides and
//! writes, under a field manager of its own: revisions hold neither certificates nor
//! `caBundle`s, so they stay as they are when certificates rotate. It continues for paused extensions, whose certificates
//! end like all others. Everything is written as the controller itself, never as the extension's ServiceAccount: the
//! Secret belongs to the controller, and `caBundle`s follow from it. Rule: decision 13.
//!
//! What wakes a pass over an extension: `sources`. Nothing is done periodically.

pub mod caller;
mod cluster;
mod expiries;
mod issuer;
pub mod needs;
pub use olm_install::issuer as provider;
mod refused;
pub mod secret;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource as _, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet, field_managers, labels};
use olm_certificates::plan::Timing;
use olm_certificates::{Executor, ExecutorError};
use olm_install::resolution::revision;
use olm_runtime::Shutdown;
use olm_runtime::controller::{self, Controller, Requeue, Source, Waker, Workers};
use olm_runtime::events::{Events, NewEvent};
use olm_runtime::metrics::{ControllerMetrics, Outcome};
use olm_runtime::watched::{Change, Object, Objects};
use parking_lot::Mutex;
use tracing::Instrument as _;

pub use expiries::Expiries;
pub use issuer::{leave_behind, take_away};
pub use refused::{CertificateCheck, RefusedCertificates};

use crate::revisions::Revisions;
use issuer::{Issuer, PassOutcome};

/// The controller's name in metrics, logs and events.
pub const NAME: &str = "webhook-certificates";
/// Passes over different extensions that run at the same time.
pub(crate) const WORKERS: u16 = 4;
/// Events of one extension within this time are one pass.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// No date is slept towards for longer: clocks are set.
const MAX_SLEEP: Duration = Duration::from_secs(12 * 3600);
/// When to retry what only a change in the cluster fixes.
const REFUSED_RETRY: Duration = Duration::from_secs(600);

/// What the controller is run with.
pub struct Context {
    /// The controller's own client.
    pub client: Client,
    /// Where content Secrets lie when a reference names no namespace.
    pub system_namespace: String,
    pub timing: Timing,
    pub extensions: Objects<ClusterExtension>,
    pub revisions: Revisions,
    /// Counts passes and how they end.
    pub meter: ControllerMetrics,
    /// The recorder of issues and rotations.
    pub events: Events,
    /// The ends of certificates, as metrics.
    pub expiries: Expiries,
    /// Certificates that may not be written, for conditions.
    pub refused_certificates: RefusedCertificates,
}

/// What wakes the controller. Beside it, a pass asks to be repeated for its next date: a renewal, a switch, the end of an overlap.
fn sources(extensions: &Objects<ClusterExtension>, revisions: &Revisions, waker: &Waker) -> Vec<Source> {
    vec![
        Source::new("its status names the issuer", extensions.subscribe(), |change| [change.key]),
        Source::new("its revisions name the certificates it needs", revisions.subscribe(), |change| {
            owners(&change)
        }),
        Source::new("one of its certificates or webhooks changed", waker.names(), |name| {
            Some(name).filter(|name| !name.is_empty())
        }),
    ]
}

fn owners(change: &Change<String, Object<ClusterObjectSet>>) -> Vec<String> {
    change.latest().and_then(|set| set.label(labels::OWNER_NAME)).map(str::to_owned).into_iter().collect()
}

/// Runs the controller until `stop`; running passes are finished first.
pub async fn run(context: Context, stop: Shutdown) {
    let mut tasks = tokio::task::JoinSet::new();
    let waker = Waker::default();
    let cluster = cluster::Cluster::start(&context.client, &waker, &mut tasks);
    let executor =
        Executor::new(context.client.clone(), field_managers::WEBHOOK_CERTIFICATES).slow_when_disputed();
    let (extensions, meter) = (context.extensions.clone(), context.meter.clone());
    let issuer = Arc::new(Issuer { context, cluster, executor, contents: Mutex::default() });
    let revisions = &issuer.context.revisions;
    let sources = sources(&extensions, revisions, &waker);
    let ready = async {
        extensions.wait_until_listed().await;
        revisions.wait_until_listed().await;
    };
    let controller = Controller {
        debounce: DEBOUNCE,
        ..Controller::new(NAME, Workers::new(WORKERS, stop), meter, sources)
    };
    controller::run(controller, ready, |name| {
        let extension = extensions.get(&name.to_owned())?;
        let (issuer, span) = (Arc::clone(&issuer), tracing::info_span!("certificates", extension = name));
        Some(async move { pass(&issuer, &extension).await }.instrument(span))
    })
    .await;
    tasks.shutdown().await;
}

async fn pass(issuer: &Issuer, object: &Object<ClusterExtension>) -> (Requeue, Outcome) {
    let Ok(extension) = &object.0 else { return (Requeue::OnChange, Outcome::TerminalError) };
    let uid = extension.uid().unwrap_or_default();
    let revisions = in_force(issuer, &extension.name_any(), &uid);
    let PassOutcome { recheck_at, refused, failure } = issuer.pass(extension, &revisions).await;
    // after a failure, that all may be written cannot be known
    let is_known = refused.is_some() || failure.is_none();
    let checks = &issuer.context.refused_certificates;
    let is_changed = is_known && checks.set(&extension.name_any(), &uid, refused.as_deref());
    // a retry that ends as before emits none
    if let Some(note) = refused.as_ref().filter(|_| is_changed) {
        let event =
            NewEvent { warning: true, reason: "CertificateRefused", action: "IssueCertificate", note };
        issuer.context.events.publish(&extension.object_ref(&()), event).await;
    }
    if let Some(error) = &failure {
        tracing::warn!(problem = %error, "pass failed");
    }
    let recheck = recheck_at.map(until);
    match (failure, refused) {
        // nothing was tried, and passes that other events wake try nothing either
        (Some(ExecutorError::Disputed { wait, .. }), _) => (Requeue::After(wait), Outcome::Error),
        (Some(_), _) => (Requeue::Backoff, Outcome::Error),
        (None, Some(_)) => (Requeue::After(REFUSED_RETRY).within(recheck), Outcome::TerminalError),
        (None, None) => (Requeue::OnChange.within(recheck), Outcome::Success),
    }
}

/// The extension's revisions in force, oldest first.
fn in_force(issuer: &Issuer, name: &str, uid: &str) -> Vec<Arc<ClusterObjectSet>> {
    issuer.evict_contents(issuer.context.revisions.read().rows().len(), |uid| {
        issuer.context.revisions.has_uid(uid)
    });
    let mut found = issuer.context.revisions.of_extension(name);
    found.retain(|set| revision::is_owned_by(set, uid) && revision::is_active(set));
    found
}

fn until(at: Timestamp) -> Duration {
    let seconds = at.duration_since(Timestamp::now()).as_millis();
    Duration::from_millis(u64::try_from(seconds).unwrap_or_default())
        .clamp(Duration::from_millis(100), MAX_SLEEP)
}
