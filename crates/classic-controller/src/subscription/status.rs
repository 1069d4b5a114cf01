//! Writing the statuses of the Subscriptions of a namespace.
//!
//! Rule: classic-apis §3.2, §3.3.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt as _};
use olm_api::classic::Subscription;
use olm_api::classic::subscription::SubscriptionStatus;
use olm_classic::install_plan::WAITING_EVENT;
use olm_classic::subscription::{NamespaceFacts, PassOutcome, next_status, subscription_wait};
use olm_runtime::events::NewEvent;
use olm_runtime::watched::{self, Object};
use olm_runtime::write_status;

use super::Subscriptions;
use super::observed::Observed;
use super::pass::Attempt;
use crate::catalog::Snapshot;
use crate::context::MANAGER;

/// How often a status that belongs to a plan is written, if others change the Subscription meanwhile: no later pass finds out what the plan
/// was made for.
const TRIES: u8 = 5;

impl Subscriptions {
    /// Writes the statuses that differ.
    pub(super) async fn write(
        &self,
        observed: &Observed,
        facts: &NamespaceFacts<'_>,
        attempt: &Attempt,
    ) -> Result<(), String> {
        let api: Api<Subscription> = Api::namespaced(self.context.client.clone(), &observed.namespace);
        let now = Timestamp::now();
        let outcome = PassOutcome {
            facts,
            resolution: &attempt.resolution,
            left_out: &attempt.left_out,
            unpack: &attempt.unpack,
            made: attempt.plan.as_ref(),
        };
        for (index, subscription) in observed.subscriptions.iter().enumerate() {
            let values = attempt.values.get(&index);
            let snapshot = self.snapshot(observed, subscription);
            let derive = |it: &Subscription| {
                let deprecated = snapshot.as_ref().map(|snapshot| snapshot.deprecations(&it.spec.package));
                next_status(it, values, &outcome, deprecated, now)
            };
            let tries = if values.is_some() { TRIES } else { 1 };
            if let Some(written) = write_derived(&api, subscription, derive, tries).await? {
                self.report_wait(subscription, &written).await;
                let key = watched::key(&written.metadata);
                self.context.cluster.subscriptions.update(key, Object::new(written));
            }
        }
        Ok(())
    }

    /// `None`: the catalog was not read.
    fn snapshot(&self, observed: &Observed, subscription: &Subscription) -> Option<Arc<Snapshot>> {
        let spec = &subscription.spec;
        self.catalogs.cached(observed.catalog(&spec.source_namespace, &spec.source)?)
    }

    /// Emits an event if the Subscription waits for something else than before.
    async fn report_wait(&self, before: &Subscription, after: &Subscription) {
        let wait = |it: &Subscription| it.status.as_ref().and_then(subscription_wait);
        let Some(note) = wait(after).filter(|note| wait(before).as_ref() != Some(note)) else { return };
        let event = NewEvent { warning: false, reason: WAITING_EVENT, action: "Resolve", note: &note };
        self.context.events.publish(&after.object_ref(&()), event).await;
    }
}

/// Writes what `derive` makes of a Subscription as its status; if it has changed meanwhile, what `derive` makes of it then, up to `tries`
/// times in all. `None`: nothing was written, because the status stays, the Subscription is gone or was created again, or it changed each
/// time. The change itself leads to another pass.
async fn write_derived(
    api: &Api<Subscription>,
    read: &Subscription,
    derive: impl Fn(&Subscription) -> Option<SubscriptionStatus>,
    tries: u8,
) -> Result<Option<Subscription>, String> {
    let mut live = None;
    for left in (0..tries).rev() {
        let current = live.as_ref().unwrap_or(read);
        let Some(status) = derive(current) else { return Ok(None) };
        match write_status(api, current, status, MANAGER).await {
            Ok(written) => return Ok(written),
            Err(error) if error.is_conflict() && left > 0 => {
                live = api.get_opt(&read.name_any()).await.map_err(|error| error.to_string())?;
                if live.as_ref().is_none_or(|live| live.metadata.uid != read.metadata.uid) {
                    return Ok(None);
                }
            }
            Err(error) if error.is_conflict() || error.is_gone() => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use olm_classic::subscription::new_status;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Apiserver, failure};

    fn subscription(version: u8, channel: &str) -> Value {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {"namespace": "ns", "name": "s", "resourceVersion": version.to_string()},
            "spec": {"name": "p", "channel": channel, "source": "c", "sourceNamespace": "ns"},
        })
    }

    /// An apiserver in which the Subscription changes before each of the first `changes` writes.
    fn changing(changes: u8) -> Apiserver {
        let version = AtomicU8::new(0);
        Apiserver::new(move |method, _| match method {
            "GET" => (200, subscription(version.load(Ordering::Relaxed), "beta")),
            _ if version.load(Ordering::Relaxed) < changes => {
                version.fetch_add(1, Ordering::Relaxed);
                failure(409, "Conflict")
            }
            _ => (200, subscription(99, "beta")),
        })
    }

    async fn written(apiserver: &Apiserver, tries: u8) -> Option<Subscription> {
        let api = Api::namespaced(apiserver.client(), "ns");
        let read: Subscription = serde_json::from_value(subscription(0, "stable")).unwrap();
        let derive = |it: &Subscription| {
            let mut status = new_status(Timestamp::UNIX_EPOCH);
            status.current_csv = format!("p.v2 of {}", it.spec.channel);
            Some(status)
        };
        write_derived(&api, &read, derive, tries).await.unwrap()
    }

    #[tokio::test]
    async fn planned_status_survives_a_changed_subscription() {
        for (changes, tries, requests, is_written) in [
            (0, 1, 1, true),
            (1, 1, 1, false),
            (1, TRIES, 3, true),
            (4, TRIES, 9, true),
            (5, TRIES, 9, false),
        ] {
            let apiserver = changing(changes);
            let written = written(&apiserver, tries).await;
            assert_eq!(written.is_some(), is_written, "{changes} changes, {tries} tries");
            let sent = apiserver.requests();
            assert_eq!(sent.len(), requests, "{sent:?}");
            let channel = if requests == 1 { "p.v2 of stable" } else { "p.v2 of beta" };
            assert!(sent.last().unwrap().contains(channel), "it is derived again: {sent:?}");
        }
    }

    #[tokio::test]
    async fn deleted_subscription_gets_no_status() {
        let mut again = subscription(1, "stable");
        again["metadata"]["uid"] = "another".into();
        for (code, live) in [failure(404, "NotFound"), (200, again)] {
            let apiserver = Apiserver::new(move |method, _| match method {
                "GET" => (code, live.clone()),
                _ => failure(409, "Conflict"),
            });
            assert!(written(&apiserver, TRIES).await.is_none());
            assert_eq!(apiserver.requests().len(), 2);
        }
    }
}
