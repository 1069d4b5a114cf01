//! The first seconds of containers after an extension became Ready: without a readiness probe a pod counts as ready as soon as its
//! containers run, also those that end a moment later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, stream};

use kube::api::DynamicObject;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_install::resolution::revision;
use olm_rollout::{PodState, pod_selector};
use olm_runtime::error_text::chain;

use crate::failure::{CommandError, print_note};
use crate::live::{is_runner, phase_of, pod_api, state_of};
use crate::rights::in_words;
use crate::{extensions, interrupt};

/// Watches the containers of the installed revision. Returns what is wrong with the first one that fails or restarts. `undo` is the command that
/// takes the change back.
pub(super) async fn watch(
    client: &Client,
    extension: &ClusterExtension,
    time: Duration,
    undo: &str,
) -> Result<Option<String>, CommandError> {
    if time.is_zero() {
        return Ok(None);
    }
    let all = extensions::revisions(client, Some(&extension.name_any())).await?;
    let own: Vec<_> =
        extensions::revisions_of(extension, &all).filter(|set| revision::is_active(set)).collect();
    let Some(newest) = revision::newest(&own) else { return Ok(None) };
    let objects = match extensions::content_reader(client).objects(newest).await {
        Ok(objects) => objects,
        Err(error) => {
            let Some(right) = extensions::missing_right(&error) else {
                return Err(extensions::unreadable(&error));
            };
            print_note(&format!("containers are not watched: {right}"));
            return Ok(None);
        }
    };
    let runners: Vec<(String, String)> = objects
        .iter()
        .filter(|object| is_runner(object.api_version(), object.kind()))
        .filter_map(|object| Some((object.namespace()?.to_owned(), pod_selector(object)?)))
        .collect();
    if runners.is_empty() {
        return Ok(None);
    }
    let watches = runners.iter().map(|(namespace, selector)| {
        watcher(pod_api(client, namespace), watcher::Config::default().labels(selector)).boxed()
    });
    let follow = follow(stream::select_all(watches));
    tokio::select! {
        found = tokio::time::timeout(time, follow) => Ok(found.unwrap_or(None)),
        () = interrupt::received() => {
            print_note(&format!("\ninterrupted; {} is Ready. To undo: {undo}", extension.name_any()));
            Err(CommandError::Interrupted)
        }
    }
}

/// Returns what is wrong with the first pod that fails or restarts; `None` if pods cannot be watched. A pod that ended before, such as an
/// evicted one, does not count: its controller leaves it behind and runs another one.
async fn follow(
    mut events: impl stream::Stream<Item = watcher::Result<watcher::Event<DynamicObject>>> + Unpin,
) -> Option<String> {
    let (mut first, mut ended) = (BTreeMap::new(), BTreeSet::new());
    while let Some(event) = events.next().await {
        let (pod, is_initial) = match event {
            Ok(watcher::Event::InitApply(pod)) => (pod, true),
            Ok(watcher::Event::Apply(pod)) => (pod, false),
            Ok(watcher::Event::Init | watcher::Event::InitDone | watcher::Event::Delete(_)) => continue,
            Err(error) => {
                print_note(&format!("containers are not watched: {}", in_words(&chain(&error))));
                return None;
            }
        };
        if is_initial && has_ended(&pod) {
            ended.insert(pod.uid());
        }
        if ended.contains(&pod.uid()) {
            continue;
        }
        let pod = state_of(&pod);
        // a pod that is created later has not restarted before
        let before = *first.entry(pod.name.clone()).or_insert(if is_initial { pod.restarts } else { 0 });
        if let Some(failure) = failure(before, &pod) {
            return Some(failure);
        }
    }
    None
}

fn has_ended(pod: &DynamicObject) -> bool {
    matches!(phase_of(pod), Some("Failed" | "Succeeded"))
}

/// What is wrong with a pod with a container that failed, or restarted since there were `before` restarts.
fn failure(before: i64, pod: &PodState) -> Option<String> {
    if pod.terminating || !(pod.failed || pod.restarts > before) {
        return None;
    }
    let cause = pod.cause.clone().unwrap_or_else(|| format!("{} restarts", pod.restarts));
    Some(format!("pod {}: {cause}", pod.name))
}

#[cfg(test)]
mod tests {
    use olm_core::Object;
    use olm_rollout::pod_state;
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
            assert_eq!(failure(1, &pod).as_deref(), want, "{case}");
        }
    }

    #[tokio::test]
    async fn settle_passes_over_pods_that_ended_before() {
        use watcher::Event::{Apply, InitApply, InitDone};
        let pod = |uid: &str, status: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "x", "uid": uid}, "status": status})).unwrap()
        };
        let evicted =
            |uid: &str| pod(uid, json!({"phase": "Failed", "reason": "Evicted", "message": "low memory"}));
        let running = |uid: &str| {
            pod(uid, json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}))
        };
        let failed = Some("pod x: Evicted: low memory");
        for (case, events, want) in [
            ("before", vec![InitApply(evicted("u")), InitDone, Apply(evicted("u"))], None),
            ("now", vec![InitApply(running("u")), InitDone, Apply(evicted("u"))], failed),
            ("the next of its name", vec![InitApply(evicted("u")), InitDone, Apply(evicted("v"))], failed),
        ] {
            let found = follow(stream::iter(events.into_iter().map(Ok))).await;
            assert_eq!(found.as_deref(), want, "{case}");
        }
    }
}
