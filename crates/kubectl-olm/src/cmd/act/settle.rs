//! The first seconds of containers after an extension became Ready: without a readiness probe a pod counts as ready as soon as its
//! containers run, also those that end a moment later.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_core::Object;
use olm_install::resolution::revision;
use olm_rollout::{PodState, pod_selector, pod_state};
use olm_runtime::error_text::chain;

use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::live::is_runner;

/// How often pods are listed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watches the containers of the installed revision. Returns what is wrong with the first one that fails or restarts.
pub(super) async fn watch(
    client: &Client,
    extension: &ClusterExtension,
    time: Duration,
) -> Result<Option<String>, CommandError> {
    if time.is_zero() {
        return Ok(None);
    }
    let all = extensions::revisions(client, Some(&extension.name_any())).await?;
    let own: Vec<_> =
        extensions::revisions_of(extension, &all).filter(|set| revision::is_active(set)).collect();
    let Some(newest) = own.last() else { return Ok(None) };
    let objects = extensions::objects(client, newest).await?;
    let runners: Vec<(String, String)> = objects
        .iter()
        .filter(|object| is_runner(object.api_version(), object.kind()))
        .filter_map(|object| Some((object.namespace()?.to_owned(), pod_selector(object)?)))
        .collect();
    if runners.is_empty() {
        return Ok(None);
    }
    let end = tokio::time::Instant::now() + time;
    let mut first: Option<BTreeMap<String, i64>> = None;
    loop {
        let mut pods = Vec::new();
        for (namespace, selector) in &runners {
            let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
            match api.list(&ListParams::default().labels(selector)).await {
                Ok(listed) => pods.extend(listed.items.iter().map(state)),
                Err(error) => {
                    print_note(&format!("containers are not watched: {}", chain(&error)));
                    return Ok(None);
                }
            }
        }
        let restarts =
            first.get_or_insert_with(|| pods.iter().map(|pod| (pod.name.clone(), pod.restarts)).collect());
        if let Some(failure) = failure(restarts, &pods) {
            return Ok(Some(failure));
        }
        if tokio::time::Instant::now() >= end {
            return Ok(None);
        }
        tokio::time::sleep_until(end.min(tokio::time::Instant::now() + INTERVAL)).await;
    }
}

fn state(pod: &Pod) -> PodState {
    let value = serde_json::to_value(pod).unwrap_or_default();
    pod_state(&Object::from_value(value).unwrap_or_default())
}

/// The first pod with a container that failed, or restarted since it was first seen.
fn failure(first: &BTreeMap<String, i64>, pods: &[PodState]) -> Option<String> {
    let fails = |pod: &&PodState| {
        let before = first.get(&pod.name).copied().unwrap_or(0);
        !pod.terminating && (pod.failed || pod.restarts > before)
    };
    let pod = pods.iter().find(fails)?;
    let cause = pod.cause.clone().unwrap_or_else(|| format!("{} restarts", pod.restarts));
    Some(format!("pod {}: {cause}", pod.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(restarts: i64, state: serde_json::Value, last: serde_json::Value, ready: &str) -> PodState {
        let pod = json!({"metadata": {"name": "x"}, "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "m", "restartCount": restarts, "state": state, "lastState": last}]}});
        pod_state(&Object::from_value(pod).unwrap())
    }

    #[test]
    fn settle_reports_containers_that_restart() {
        let running = || json!({"running": {}});
        let ended = |code: i64| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        let first = BTreeMap::from([("x".to_owned(), 1)]);
        for (case, pod, want) in [
            ("restarted before", pod(1, running(), ended(1), "True"), None),
            (
                "restarts now",
                pod(2, running(), ended(1), "True"),
                Some("pod x: container m: restarted (exit code 1)"),
            ),
            ("ended", pod(1, ended(3), json!({}), "False"), Some("pod x: container m: Error (exit code 3)")),
            (
                "backs off",
                pod(1, json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended(3), "False"),
                Some("pod x: container m: CrashLoopBackOff (exit code 3)"),
            ),
            ("not ready for a moment", pod(1, running(), json!({}), "False"), None),
        ] {
            assert_eq!(failure(&first, &[pod]).as_deref(), want, "{case}");
        }
    }
}
