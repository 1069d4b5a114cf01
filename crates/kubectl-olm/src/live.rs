//! The objects of revisions as they are in the cluster now, and the pods of those that run some.
//!
//! The probes of the rollout decide what is ready; objects of other kinds are ready when they exist.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, ListParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterObjectSet, annotations, condition};
use olm_install::SYSTEM_NAMESPACE;
use olm_install::content::ContentReader;
use olm_rollout::probe::{Author, Ready, evaluate};
use olm_runtime::error_text::chain;
use serde::Serialize;

use crate::extensions;
use crate::kinds::{Kinds, api};

/// Objects that are read at the same time.
const PARALLEL_READS: usize = 8;
/// Pods of one object in the answer.
const MAX_PODS: usize = 10;
/// Kinds whose pods are listed, all with `spec.selector`.
const RUNNERS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// The revisions in force, and the number of archived ones.
pub(crate) struct LiveRevisions {
    pub(crate) revisions: Vec<Revision>,
    pub(crate) archived: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Revision {
    pub(crate) name: String,
    pub(crate) number: i64,
    /// `Active`, `Archived` or `being deleted`.
    pub(crate) state: String,
    pub(crate) bundle: String,
    pub(crate) version: String,
    /// Its conditions, and the errors of reading its objects.
    #[serde(rename = "says")]
    pub(crate) messages: Vec<String>,
    pub(crate) phases: Vec<Phase>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) objects: Vec<Object>,
    /// Objects beyond the limit.
    pub(crate) left_out: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Object {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) level: Level,
    /// The missing condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pods: Vec<PodState>,
    /// Pods beyond the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pods_left_out: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Level {
    /// It exists, and its probes succeed.
    Ready,
    /// It exists, and a probe fails.
    NotReady,
    Missing,
    Unknown,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodState {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) ready: bool,
    pub(crate) restarts: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

/// Reads the objects of all revisions in force, at most `limit` of them.
pub(crate) async fn read(client: &Client, revisions: &[ClusterObjectSet], limit: usize) -> LiveRevisions {
    let mut live = LiveRevisions { revisions: Vec::new(), archived: 0 };
    let mut kinds = Kinds::new(client);
    let mut budget = limit;
    // the newest first: it counts most if the limit is reached
    for set in revisions.iter().rev() {
        let deleted = set.metadata.deletion_timestamp.is_some();
        if set.spec.lifecycle_state == LifecycleState::Archived && !deleted {
            live.archived += 1;
            continue;
        }
        live.revisions.push(revision(client, set, &mut kinds, &mut budget).await);
    }
    live.revisions.reverse();
    live
}

async fn revision(
    client: &Client,
    set: &ClusterObjectSet,
    kinds: &mut Kinds,
    budget: &mut usize,
) -> Revision {
    let text = |key: &str| set.annotations().get(key).cloned().unwrap_or_default();
    let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut messages: Vec<String> = [condition::PROGRESSING, condition::AVAILABLE, condition::SUCCEEDED]
        .into_iter()
        .filter_map(|type_| condition::find(conditions, type_))
        .map(|found| format!("{}={} {}: {}", found.type_, found.status.as_str(), found.reason, found.message))
        .map(|line| line.trim_end_matches([':', ' ']).to_owned())
        .collect();
    let mut reader = ContentReader::new(client, SYSTEM_NAMESPACE);
    let mut phases = Vec::new();
    for phase in &set.spec.phases {
        let mut desired = Vec::new();
        for object in phase.objects.iter().take(*budget) {
            match reader.object(object).await.map_err(|error| chain(&error)) {
                Ok(object) => desired.push(object),
                Err(message) if messages.contains(&message) => {}
                Err(message) => messages.push(message),
            }
        }
        let left_out = phase.objects.len() - desired.len();
        *budget -= desired.len().min(*budget);
        let mut requests = Vec::new();
        for object in desired {
            let kind = kinds.resource_of(&object).await;
            requests.push(live_object(client, object, kind));
        }
        let objects = futures::stream::iter(requests).buffered(PARALLEL_READS).collect().await;
        phases.push(Phase { name: phase.name.clone(), objects, left_out });
    }
    Revision {
        name: set.name_any(),
        number: set.spec.revision,
        state: extensions::state(set, "being deleted").to_owned(),
        bundle: text(annotations::BUNDLE_NAME),
        version: text(annotations::BUNDLE_VERSION),
        messages,
        phases,
    }
}

async fn live_object(
    client: &Client,
    desired: olm_core::Object,
    kind: Result<(ApiResource, bool), String>,
) -> Object {
    let object = Object {
        api_version: desired.api_version().to_owned(),
        kind: desired.kind().to_owned(),
        namespace: desired.namespace().map(str::to_owned),
        name: desired.name().to_owned(),
        level: Level::Unknown,
        message: String::new(),
        pods: Vec::new(),
        pods_left_out: None,
    };
    let (resource, namespaced) = match kind {
        Ok(kind) => kind,
        Err(message) => return Object { message, ..object },
    };
    let api = api(client, &desired, &resource, namespaced);
    let live = match api.get_opt(&object.name).await {
        Ok(Some(live)) => serde_json::to_value(live).unwrap_or_default(),
        Ok(None) => return Object { level: Level::Missing, ..object },
        Err(error) => return Object { message: chain(&error), ..object },
    };
    let Ok(live) = olm_core::Object::from_value(live) else { return object };
    let verdict = evaluate(&[], Author::Extension, &live);
    let level = match verdict.ready {
        Ready::Yes => Level::Ready,
        Ready::No => Level::NotReady,
        Ready::Unknown => Level::Unknown,
    };
    let mut object = Object { level, message: verdict.messages.join("; "), ..object };
    if RUNNERS.contains(&object.kind.as_str()) && object.api_version.starts_with("apps/") {
        pods(client, &live, &mut object).await;
    }
    object
}

/// The pods that an object's selector picks.
async fn pods(client: &Client, live: &olm_core::Object, object: &mut Object) {
    let value = live.to_value();
    let labels = value["spec"]["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    let Some(namespace) = &object.namespace else { return };
    if labels.is_empty() {
        return;
    }
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = match api.list(&ListParams::default().labels(&labels.join(","))).await {
        Ok(listed) => listed.items,
        Err(error) => {
            object.message =
                [object.message.as_str(), &format!("pods cannot be read: {}", chain(&error))].join(" ");
            return;
        }
    };
    object.pods_left_out = listed.len().checked_sub(MAX_PODS).filter(|more| *more > 0);
    // those that are not ready first
    let mut states: Vec<PodState> = listed.iter().map(pod).collect();
    states.sort_by(|a, b| (a.ready, &a.name).cmp(&(b.ready, &b.name)));
    states.truncate(MAX_PODS);
    object.pods = states;
}

fn pod(pod: &Pod) -> PodState {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let is_ready = conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True");
    let waiting = containers.iter().find_map(|container| container.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.map(|waiting| {
        [waiting.reason.as_deref(), waiting.message.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(": ")
    });
    let unscheduled = || {
        let found =
            conditions.iter().find(|found| found.type_ == "PodScheduled" && found.status != "True")?;
        found.message.clone().or_else(|| found.reason.clone())
    };
    PodState {
        name: pod.name_any(),
        phase: status.phase.unwrap_or_else(|| "Pending".to_owned()),
        ready: is_ready,
        restarts: containers.iter().map(|container| container.restart_count).sum(),
        message: waiting.or_else(unscheduled).unwrap_or_default(),
    }
}
