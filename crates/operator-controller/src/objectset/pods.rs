//! The cause why pods of a Deployment, StatefulSet or DaemonSet do not run.
//!
//! No pods are watched. Those of an object that is not available are listed when its status has changed, and a few times more at growing
//! intervals: what happens to a container after its pod exists changes no status. Then they are left alone until the status changes
//! again. Without the right to list them the condition has what the object itself reports.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use olm_core::{Object, ObjectKey, go};
use olm_rollout::{failing_pod, pod_selector};
use tracing::debug;

use super::errors::text;
use super::live::plain;

/// Pods that are listed.
const MAX_PODS: u32 = 20;
/// When pods are listed, from the change of the status on. A Deployment that starts as usual is available before the first.
const READS: [Duration; 6] = [
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(25),
    Duration::from_secs(55),
    Duration::from_secs(120),
];

/// Whether objects of this kind have pods of their own.
pub(super) fn has_pods(key: &ObjectKey) -> bool {
    key.group == "apps" && matches!(key.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet")
}

/// What is known of the pods of one object that is not available.
#[derive(Debug)]
pub(super) struct PodCause {
    /// Hash of the object's status.
    status: u64,
    /// When this status was first seen.
    since: Instant,
    /// Lists since then.
    reads: usize,
    text: Option<String>,
}

impl PodCause {
    /// `before` is what was known at the last pass.
    pub(super) fn update(before: Option<Self>, object: &Object, now: Instant) -> Self {
        let status = hash(object);
        match before {
            Some(known) if known.status == status => known,
            // what was found stays until the next list
            before => Self { status, since: now, reads: 0, text: before.and_then(|known| known.text) },
        }
    }

    /// The time until the next list; `None` when there will be none before the status changes.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        let at = READS.get(self.reads)?;
        Some(at.saturating_sub(now.duration_since(self.since)))
    }

    /// Lists the pods, if it is time. Returns the text for the condition.
    pub(super) async fn read(&mut self, client: &Client, object: &Object, now: Instant) -> Option<&str> {
        if self.due_in(now).is_some_and(|left| left.is_zero()) {
            // a pass may come late
            let age = now.duration_since(self.since);
            self.reads = READS.iter().filter(|at| **at <= age).count();
            match list(client, object).await {
                Ok(found) => self.text = found,
                Err(error) => {
                    debug!(object = object.name(), error = %text(&error), "pods cannot be listed");
                    self.reads = READS.len();
                }
            }
        }
        self.text.as_deref()
    }
}

/// "0 of 1 replicas available: pod x: …", from the pods that the object's selector picks.
async fn list(client: &Client, object: &Object) -> Result<Option<String>, kube::Error> {
    let (Some(namespace), Some(selector)) = (object.namespace(), pod_selector(object)) else {
        return Ok(None);
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut pods = api.list(&ListParams::default().labels(&selector).limit(MAX_PODS)).await?.items;
    pods.sort_by_key(kube::ResourceExt::name_any);
    let pods: Vec<Object> = pods.into_iter().map(|pod| plain(pod, "v1", "Pod")).collect();
    Ok(failing_pod(&pods).map(|cause| format!("{}{cause}", replicas(object))))
}

/// How many of the object's pods are available, if its status has that.
fn replicas(object: &Object) -> String {
    let number = |part: &str, key: &str| object.0.get(part)?.get(key)?.as_i64();
    let (available, desired) = match object.kind() {
        "DaemonSet" => (number("status", "numberAvailable"), number("status", "desiredNumberScheduled")),
        _ => (number("status", "availableReplicas"), Some(number("spec", "replicas").unwrap_or(1))),
    };
    match desired {
        Some(desired) => format!("{} of {desired} replicas available: ", available.unwrap_or(0)),
        None => String::new(),
    }
}

fn hash(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.0.get("status").map(go::json_string).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Apiserver, failure};

    fn deployment(available: i64) -> Object {
        Object::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "t1"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}},
            "status": {"observedGeneration": 1, "availableReplicas": available},
        }))
        .unwrap()
    }

    fn pods() -> Value {
        let state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let last = json!({"terminated": {"exitCode": 1, "reason": "OOMKilled"}});
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [
            {"metadata": {"name": "x-abc"}, "status": {"containerStatuses": [
                {"name": "manager", "state": state, "lastState": last}]}}]})
    }

    #[tokio::test]
    async fn pods_are_listed_seldom_and_not_at_rest() {
        let apiserver = Apiserver::new(|_, _| (200, pods()));
        let (client, start) = (apiserver.client(), Instant::now());
        let mut cause = None;
        let mut texts = Vec::new();
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            // its status changes once
            let object = deployment(i64::from(second >= 300));
            let mut known = PodCause::update(cause.take(), &object, now);
            let text = known.read(&client, &object, now).await.map(str::to_owned);
            if texts.last() != Some(&text) {
                texts.push(text);
            }
            cause = Some(known);
        }
        let text = |available: i64| {
            Some(format!(
                "{available} of 2 replicas available: pod x-abc: container manager: CrashLoopBackOff (exit code 1, OOMKilled)"
            ))
        };
        assert_eq!(texts, [None, text(0), text(1)]);
        let requests = apiserver.requests();
        assert_eq!(requests.len(), 2 * READS.len(), "{requests:?}");
        assert!(
            requests[0].contains("/api/v1/namespaces/t1/pods?&labelSelector=app%3Dx&limit=20"),
            "{}",
            requests[0]
        );
        assert_eq!(cause.unwrap().due_in(start + Duration::from_secs(600)), None);
    }

    #[tokio::test]
    async fn pods_that_may_not_be_listed_are_asked_for_once() {
        let apiserver = Apiserver::new(|_, _| failure(403, "Forbidden"));
        let (client, start) = (apiserver.client(), Instant::now());
        let mut cause = PodCause::update(None, &deployment(0), start);
        for second in 0..300 {
            let now = start + Duration::from_secs(second);
            assert_eq!(cause.read(&client, &deployment(0), now).await, None);
        }
        assert_eq!(apiserver.requests().len(), 1);
    }
}
