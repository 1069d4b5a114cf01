//! The controller of Subscriptions: one pass resolves a namespace, makes its InstallPlan and writes the statuses of its Subscriptions.
//!
//! Rules: classic-apis §3, §4.

pub(crate) mod metrics;
mod observed;
mod pass;
mod plans;
mod solved;
mod status;
#[cfg(test)]
mod testing;
mod unpacks;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use olm_classic::subscription::UnpackFact;
use olm_runtime::controller::{self, Controller, Requeue};
use olm_runtime::events::NewEvent;
use olm_runtime::metrics::Outcome;

use self::observed::Observed;
use self::pass::{Attempt, Next};
use self::solved::Solved;
pub(crate) use self::unpacks::Unpacks;
use crate::catalog::Catalogs;
use crate::context::Context;
use crate::controllers;

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "subscription";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 8;
/// Subscriptions of a namespace that are created within this time of each other get one InstallPlan.
const DEBOUNCE: Duration = Duration::from_millis(500);

/// What a pass needs.
struct Subscriptions {
    context: Arc<Context>,
    catalogs: Arc<Catalogs>,
    unpacks: Arc<Unpacks>,
    solved: Solved,
    recorded: metrics::Recorded,
}

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>, catalogs: Arc<Catalogs>, unpacks: Arc<Unpacks>) {
    let sources = controllers::subscription_sources(
        &context.cluster,
        &context.settings.global_namespace,
        &catalogs,
        &unpacks,
    );
    let runner = Controller { debounce: DEBOUNCE, ..context.controller(sources) };
    let cluster = Arc::clone(&context.cluster);
    let recorded = metrics::register(&context.metrics, &cluster);
    let solved = Solved::default();
    let shared = Arc::new(Subscriptions { context, catalogs, unpacks, solved, recorded });
    controller::run(runner, cluster.wait_until_listed(), |namespace| {
        if cluster.subscriptions.in_namespace(namespace).is_empty() {
            shared.solved.evict(namespace);
            return None;
        }
        let (shared, namespace) = (Arc::clone(&shared), namespace.to_owned());
        Some(async move {
            match shared.reconcile(&namespace).await {
                Ok(Next::OnChange) => (Requeue::OnChange, Outcome::Success),
                Ok(Next::After(wait)) => (Requeue::After(wait), Outcome::RequeueAfter),
                Ok(Next::Backoff) => (Requeue::Backoff, Outcome::Requeue),
                Err(error) => {
                    tracing::warn!(namespace, error, "cannot reconcile the Subscriptions of a namespace");
                    (Requeue::Backoff, Outcome::Error)
                }
            }
        })
    })
    .await;
}

impl Subscriptions {
    async fn reconcile(&self, namespace: &str) -> Result<Next, String> {
        let observed = Observed::read(&self.context, &self.catalogs, namespace);
        observed.subscriptions.iter().for_each(|subscription| self.recorded.sync(subscription));
        self.delete_expired(&observed).await;
        let catalogs = observed.catalog_facts();
        let facts = observed.facts(&self.context.settings.global_namespace, &catalogs);
        let attempt = self.attempt(&observed, &facts).await;
        self.report(&observed, &attempt).await;
        let next = attempt.next;
        self.write(&observed, &facts, &attempt).await?;
        Ok(next)
    }

    async fn report(&self, observed: &Observed, attempt: &Attempt) {
        for (index, reason, note) in &attempt.events {
            let about = observed.subscriptions[*index].object_ref(&());
            let event = NewEvent { warning: false, reason, action: "Resolve", note };
            self.context.events.publish(&about, event).await;
        }
        if let (Some(message), [_]) = (attempt.failure(), observed.groups.as_slice()) {
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: Some(observed.namespace.clone()),
                ..ObjectReference::default()
            };
            let event =
                NewEvent { warning: true, reason: "ResolutionFailed", action: "Resolve", note: &message };
            self.context.events.publish(&about, event).await;
        }
        if let UnpackFact::Failed { reason: reason @ "BundleUnpackFailed", message } = &attempt.unpack {
            for subscription in &observed.subscriptions {
                let about = subscription.object_ref(&());
                let event = NewEvent { warning: true, reason, action: "Unpack", note: message };
                self.context.events.publish(&about, event).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use olm_classic::subscription::ResolutionFact;
    use serde_json::{Value, json};

    use super::testing::{subscribed, subscriptions};
    use super::*;
    use crate::testing::Apiserver;

    #[tokio::test]
    async fn pass_that_failed_is_an_event_of_the_reference() {
        let unpacked = |reason| UnpackFact::Failed { reason, message: "no image".to_owned() };
        let unsolved =
            ResolutionFact::Failed { reason: "ConstraintsNotSatisfiable", message: "no b".to_owned() };
        for (resolution, unpack, want) in [
            (unsolved, UnpackFact::NotTried, Some(("Namespace", "ResolutionFailed", "no b"))),
            (
                ResolutionFact::Resolved,
                unpacked("BundleUnpackFailed"),
                Some(("Subscription", "BundleUnpackFailed", "no image")),
            ),
            (ResolutionFact::Resolved, unpacked("EnsureInstallPlanFailed"), None),
        ] {
            let apiserver = Apiserver::new(|_, _| (201, json!({"metadata": {"name": "e"}})));
            let cluster = subscribed(&["a"], &Value::Null);
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            let attempt = Attempt {
                values: BTreeMap::new(),
                resolution,
                left_out: BTreeMap::new(),
                unpack,
                plan: None,
                events: Vec::new(),
                next: Next::OnChange,
            };
            subscriptions.report(&observed, &attempt).await;
            let events = apiserver.requests();
            let Some((kind, reason, note)) = want else {
                assert!(events.is_empty(), "{events:?}");
                continue;
            };
            let [event] = events.as_slice() else { panic!("{reason}: {events:?}") };
            for part in [
                format!(r#""kind":"{kind}""#),
                format!(r#""reason":"{reason}""#),
                format!(r#""note":"{note}""#),
                r#""type":"Warning""#.to_owned(),
            ] {
                assert!(event.contains(&part), "{part}: {event}");
            }
        }
    }
}
