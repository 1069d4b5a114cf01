//! Serving certificates of webhooks: who issues them ([`provider`]), and the built-in issuer, a controller of its own.
//!
//! For every extension whose status says `built-in` it keeps one Secret for each Service behind which webhooks are served,
//! and the `caBundle`s that trust it. It reads what is needed from the revisions in force ([`needs`]), decides in a pure
//! state machine ([`plan`]) and writes under a field manager of its own: revisions hold neither certificates nor
//! `caBundle`s, so they stay as they are when certificates rotate. It goes on for paused extensions, whose certificates
//! end like all others. Everything is written as the controller itself, never as the extension's ServiceAccount: the
//! Secret is the controller's, and `caBundle`s follow from it. Rule: decision 13.
//!
//! What wakes a pass over an extension:
//! - the extension (its status says who issues) and its revisions, told by [`Wake`];
//! - Secrets of ours and callers of webhooks ([`cluster`]), changed or deleted by anybody;
//! - its own next date: a renewal, a switch, the end of an overlap. Nothing is done periodically.

pub mod caller;
mod cluster;
mod expiries;
mod issuer;
pub mod needs;
pub use olm_install::issuer as provider;
pub mod secret;
#[cfg(test)]
mod testing;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::applier;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource as _, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_install::resolution::revision;
use olm_runtime::backoff::Backoff;
use olm_runtime::events::{Events, NewEvent};
use olm_runtime::metrics::{ControllerMetrics, Outcome};
use olm_runtime::task;
use parking_lot::Mutex;

pub use olm_runtime::tls::issue::{material, plan};

pub use cluster::Wake;
pub use expiries::Expiries;
pub use issuer::{leave_behind, take_away};

use crate::revisions::Revisions;
use crate::watch;
use issuer::{Issuer, Trouble};

/// The controller's name in metrics, logs and events.
pub const NAME: &str = "webhook-certificates";
/// Passes over different extensions that run at the same time.
pub(crate) const WORKERS: u16 = 4;
/// Events of one extension within this time are one pass.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// No date is slept towards for longer: clocks are set.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// When to look again at what only a change in the cluster mends.
const SLOW: Duration = Duration::from_secs(600);

/// What the controller is run with.
pub struct Context {
    /// The controller's own client.
    pub client: Client,
    /// Where content Secrets lie when a reference names no namespace.
    pub system_namespace: String,
    /// How long things take.
    pub timing: plan::Timing,
    /// All extensions.
    pub extensions: watch::Cache<ClusterExtension>,
    /// All revisions.
    pub revisions: Revisions,
    /// Told of changes of both.
    pub wake: Wake,
    /// Counts passes and how they end.
    pub meter: ControllerMetrics,
    /// Where issues and rotations are told as events.
    pub events: Events,
    /// Where the ends of certificates are shown.
    pub expiries: Expiries,
}

type Stored = watch::Stored<ClusterExtension>;

struct Shell {
    issuer: Issuer,
    extensions: watch::Cache<ClusterExtension>,
    revisions: Revisions,
    meter: ControllerMetrics,
    backoff: Backoff<String>,
}

/// Tells the controller of the changes that pass by: `extension` names whom they concern.
pub fn tell<K: Send + 'static>(
    changes: BoxStream<'static, K>,
    wake: Wake,
    extension: impl Fn(&K) -> Option<String> + Send + 'static,
) -> BoxStream<'static, K> {
    changes
        .inspect(move |change| {
            if let Some(name) = extension(change) {
                wake.extension(&name);
            }
        })
        .boxed()
}

/// Runs the controller until `stop` resolves; running passes are finished first.
pub async fn run(context: Context, stop: impl Future<Output = ()> + Send + Sync + 'static) {
    let Context { client, system_namespace, timing, extensions, revisions, wake, meter, events, expiries } =
        context;
    let mut tasks = tokio::task::JoinSet::new();
    let cluster = cluster::Cluster::start(&client, &wake, &mut tasks);
    let issuer = Issuer {
        client,
        system_namespace,
        timing,
        events,
        expiries,
        cluster,
        contents: Mutex::default(),
        disputes: issuer::Disputes::default(),
    };
    let store = extensions.reader();
    let shell = Arc::new(Shell { issuer, extensions, revisions, meter, backoff: Backoff::new() });
    let queue = wake
        .names()
        .filter(|name| std::future::ready(!name.is_empty()))
        .map(|name| Ok::<_, Infallible>(ObjectRef::<Stored>::new(&name)))
        .take_until(stop);
    let config = controller::Config::default().concurrency(WORKERS).debounce(DEBOUNCE);
    let passes = applier(
        |extension: Arc<Stored>, shell: Arc<Shell>| {
            async move { Ok::<_, Infallible>(spawn(extension, shell).await) }.boxed()
        },
        |_, error: &Infallible, _| match *error {},
        shell,
        store,
        queue,
        config,
    );
    passes.for_each(|_| std::future::ready(())).await;
    tasks.shutdown().await;
}

/// A pass on its own task: one that panics takes nothing with it.
async fn spawn(extension: Arc<Stored>, shell: Arc<Shell>) -> Action {
    let (name, uid) = (extension.name_any(), extension.uid().unwrap_or_default());
    let span = tracing::info_span!("certificates", extension = name);
    let passes = Arc::clone(&shell);
    let pass = async move { passes.metered(&extension).await };
    task::pass(tracing::Instrument::instrument(pass, span)).await.unwrap_or_else(|error| {
        tracing::error!(extension = name, %error, "pass panicked");
        Action::requeue(shell.backoff.panicked(uid))
    })
}

impl Shell {
    async fn metered(&self, stored: &Stored) -> Action {
        let running = self.meter.start();
        let (action, outcome) = self.pass(stored).await;
        running.finish(outcome);
        action
    }

    async fn pass(&self, stored: &Stored) -> (Action, Outcome) {
        let Ok(extension) = &stored.0 else { return (Action::await_change(), Outcome::TerminalError) };
        if self.extensions.wait_until_ready().await.is_err()
            || self.revisions.store.wait_until_ready().await.is_err()
        {
            return (Action::await_change(), Outcome::Success); // the process ends
        }
        let uid = extension.uid().unwrap_or_default();
        let revisions = self.in_force(&extension.name_any(), &uid);
        match self.issuer.pass(extension, &revisions).await {
            Ok(look_again) => {
                self.backoff.reset(&uid);
                let action = look_again.map_or_else(Action::await_change, |at| Action::requeue(until(at)));
                (action, Outcome::Success)
            }
            Err(Trouble::Refused(sentence)) => {
                let event = NewEvent {
                    warning: true,
                    reason: "CertificateRefused",
                    action: "IssueCertificate",
                    note: &sentence,
                };
                self.issuer.events.publish(&extension.object_ref(&()), event).await;
                (Action::requeue(SLOW), Outcome::TerminalError)
            }
            Err(Trouble::Failed(problem)) => {
                tracing::warn!(problem, "pass failed");
                (Action::requeue(self.backoff.failed(uid)), Outcome::Error)
            }
        }
    }

    /// The extension's revisions in force, oldest first.
    fn in_force(&self, name: &str, uid: &str) -> Vec<Arc<ClusterObjectSet>> {
        self.issuer.forget_some(self.revisions.store.len(), |uid| self.revisions.has(uid));
        let mut found = self.revisions.of(name);
        found.retain(|set| revision::is_owned_by(set, uid) && revision::is_active(set));
        found
    }
}

fn until(at: Timestamp) -> Duration {
    let seconds = at.duration_since(Timestamp::now()).as_millis();
    Duration::from_millis(u64::try_from(seconds).unwrap_or_default())
        .clamp(Duration::from_millis(100), LONGEST)
}
