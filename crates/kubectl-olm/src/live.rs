//! The objects of revisions as they are in the cluster now, and the pods of those that run some.
//!
//! The probes of the rollout decide what is ready; objects of other kinds are ready when they exist.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterObjectSet, annotations, condition};
use olm_install::content::ContentError;
use olm_install::probes;
use olm_rollout::probe::{Author, Probe, Ready, evaluate};
use olm_rollout::{controller_of, owner_refs, pod_selector, pod_state};
use olm_runtime::error_text::chain;
use serde::Serialize;

use crate::extensions;
use crate::kinds::{Kinds, NoResource, api};
use crate::rights::in_words;

/// Objects that are read at the same time.
const PARALLEL_READS: usize = 8;
/// Pods of one object in the answer.
const MAX_PODS: usize = 10;
/// Kinds whose pods are listed, all with `spec.selector`.
const RUNNERS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// Whether an object of this kind has pods of its own, which its selector picks.
pub(crate) fn is_runner(api_version: &str, kind: &str) -> bool {
    RUNNERS.contains(&kind) && api_version.starts_with("apps/")
}

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
    /// Objects that were not read.
    pub(crate) left_out: usize,
    /// Those of them that are beyond the limit.
    #[serde(skip)]
    pub(crate) beyond_limit: usize,
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
    /// It exists, and a probe fails or it belongs to another owner.
    NotReady,
    Missing,
    Unknown,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodState {
    pub(crate) name: String,
    pub(crate) phase: String,
    /// The reason of the pod or of its first failing container, else the phase.
    pub(crate) reason: String,
    pub(crate) ready: bool,
    pub(crate) restarts: i64,
    /// The container, its reason, exit code and image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

/// Reads the objects of all revisions in force, at most `limit` of them.
pub(crate) async fn read(client: &Client, revisions: &[ClusterObjectSet], limit: usize) -> LiveRevisions {
    let mut live = LiveRevisions { revisions: Vec::new(), archived: 0 };
    let mut kinds = Kinds::new(client);
    let mut budget = limit;
    let uids: BTreeSet<String> = revisions.iter().filter_map(kube::ResourceExt::uid).collect();
    // the newest first: it counts most if the limit is reached
    for set in revisions.iter().rev() {
        let deleted = set.metadata.deletion_timestamp.is_some();
        if set.spec.lifecycle_state == LifecycleState::Archived && !deleted {
            live.archived += 1;
            continue;
        }
        live.revisions.push(revision(client, set, &uids, &mut kinds, &mut budget).await);
    }
    live.revisions.reverse();
    live
}

async fn revision(
    client: &Client,
    set: &ClusterObjectSet,
    uids: &BTreeSet<String>,
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
    let probes = probes::probes(&set.spec.progression_probes).unwrap_or_else(|message| {
        messages.push(message);
        Vec::new()
    });
    let rules = Rules { probes, author: probes::author(set), uids };
    let mut reader = extensions::content_reader(client);
    let mut phases = Vec::new();
    for phase in &set.spec.phases {
        let mut desired = Vec::new();
        for object in phase.objects.iter().take(*budget) {
            match reader.object(object).await.map_err(|error| not_shown(&error)) {
                Ok(object) => desired.push(object),
                Err(message) if messages.contains(&message) => {}
                Err(message) => messages.push(message),
            }
        }
        let left_out = phase.objects.len() - desired.len();
        let beyond_limit = phase.objects.len().saturating_sub(*budget);
        *budget -= desired.len().min(*budget);
        let mut requests = Vec::new();
        for object in desired {
            let kind = kinds.resource_of(&object).await;
            requests.push(live_object(client, &rules, object, kind));
        }
        let objects = futures::stream::iter(requests).buffered(PARALLEL_READS).collect().await;
        phases.push(Phase { name: phase.name.clone(), objects, left_out, beyond_limit });
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

/// Why objects of a revision are not shown; the same text for all that lack the same right.
fn not_shown(error: &ContentError) -> String {
    if let Some(right) = extensions::missing_right(error) {
        return format!("objects are not shown: {right}");
    }
    if extensions::is_content_gone(error) {
        return "objects are not shown: the content of the revision is gone".to_owned();
    }
    in_words(&chain(error))
}

/// What decides whether an object is ready.
struct Rules<'a> {
    /// The probes of the revision.
    probes: Vec<Probe>,
    author: Author,
    /// UIDs of all revisions of the extension.
    uids: &'a BTreeSet<String>,
}

impl Rules<'_> {
    fn judge(&self, live: &olm_core::Object) -> (Level, String) {
        if !owner_refs(live).iter().any(|owner| self.uids.contains(&owner.uid)) {
            let message = match controller_of(live) {
                Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
                None => "was not made by this extension".to_owned(),
            };
            return (Level::NotReady, message);
        }
        let verdict = evaluate(&self.probes, self.author, live);
        match verdict.ready {
            Ready::Yes => (Level::Ready, String::new()),
            // an unknown one is there, and has not shown yet that it is ready
            Ready::No | Ready::Unknown => (Level::NotReady, verdict.messages.join("; ")),
        }
    }
}

async fn live_object(
    client: &Client,
    rules: &Rules<'_>,
    desired: olm_core::Object,
    kind: Result<(ApiResource, bool), NoResource>,
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
        Err(NoResource::NotServed(message)) => return Object { level: Level::Missing, message, ..object },
        Err(NoResource::Unknown(message)) => return Object { message, ..object },
    };
    let api = api(client, &desired, &resource, namespaced);
    let live = match api.get_opt(&object.name).await {
        Ok(Some(live)) => serde_json::to_value(live).unwrap_or_default(),
        Ok(None) => return Object { level: Level::Missing, ..object },
        Err(error) => return Object { message: in_words(&chain(&error)), ..object },
    };
    let Ok(live) = olm_core::Object::from_value(live) else { return object };
    let (level, message) = rules.judge(&live);
    let mut object = Object { level, message, ..object };
    if is_runner(&object.api_version, &object.kind) {
        pods(client, &live, &mut object).await;
    }
    object
}

/// The pods that an object's selector picks.
async fn pods(client: &Client, live: &olm_core::Object, object: &mut Object) {
    let (Some(namespace), Some(labels)) = (&object.namespace, pod_selector(live)) else { return };
    let listed = match pod_api(client, namespace).list(&ListParams::default().labels(&labels)).await {
        Ok(listed) => listed.items,
        Err(error) => {
            object.message =
                [object.message.as_str(), &format!("pods cannot be read: {}", in_words(&chain(&error)))]
                    .join(" ");
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

/// The pods of a namespace, as JSON: to compile all types below theirs takes long, and what is read of them is JSON anyway.
pub(crate) fn pod_api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()))
}

/// `status.phase` of a pod.
pub(crate) fn phase_of(pod: &DynamicObject) -> Option<&str> {
    pod.data["status"]["phase"].as_str()
}

/// The state of a pod and of its containers.
pub(crate) fn state_of(pod: &DynamicObject) -> olm_rollout::PodState {
    let value = serde_json::to_value(pod).unwrap_or_default();
    pod_state(&olm_core::Object::from_value(value).unwrap_or_default())
}

fn pod(pod: &DynamicObject) -> PodState {
    let state = state_of(pod);
    PodState {
        name: state.name,
        phase: phase_of(pod).unwrap_or("Pending").to_owned(),
        reason: state.reason,
        ready: state.ready,
        restarts: state.restarts,
        message: state.cause.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_rollout::default_probes;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn status_explains_objects_that_are_not_shown() {
        let error = |code: u16, message: &str| ContentError::Secret {
            namespace: "n".to_owned(),
            name: "x-1".to_owned(),
            source: Arc::new(kube::Error::Api(Box::new(kube::core::Status {
                code,
                message: message.to_owned(),
                ..kube::core::Status::default()
            }))),
        };
        let forbidden = "secrets \"x-1\" is forbidden: User \"u\" cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"";
        for (error, want) in [
            (error(403, forbidden), "objects are not shown: you may not get secrets in namespace n"),
            (
                error(404, "secrets \"x-1\" not found"),
                "objects are not shown: the content of the revision is gone",
            ),
            (
                ContentError::Invalid("key \"k\" not found in Secret n/x-1".to_owned()),
                "key \"k\" not found in Secret n/x-1",
            ),
        ] {
            assert_eq!(not_shown(&error), want);
            assert_eq!(extensions::missing_right(&error).is_some(), want.contains("may not"), "{want}");
        }
        assert!(not_shown(&error(500, "etcd is down")).starts_with("getting Secret n/x-1: "));
    }

    #[test]
    fn status_judges_by_probes_and_owner() {
        let uids = BTreeSet::from(["own".to_owned()]);
        let rules = Rules { probes: default_probes(), author: Author::Extension, uids: &uids };
        let available = |status: &str| json!({"replicas": 1, "updatedReplicas": 1, "conditions": [{"type": "Available", "status": status}]});
        for (owner, status, want) in [
            (Some("own"), available("True"), (Level::Ready, "")),
            (Some("own"), available("False"), (Level::NotReady, ".status.condition[\"Available\"] is False")),
            (
                Some("own"),
                json!({"replicas": 1, "updatedReplicas": 1}),
                (Level::NotReady, "missing .status.conditions"),
            ),
            (Some("other"), available("True"), (Level::NotReady, "belongs to ClusterObjectSet dup1-1")),
            (None, available("True"), (Level::NotReady, "was not made by this extension")),
        ] {
            let owners: Vec<Value> = owner
                .iter()
                .map(|uid| json!({"apiVersion": "v1", "kind": "ClusterObjectSet", "name": "dup1-1", "uid": uid, "controller": true}))
                .collect();
            let live = olm_core::Object::from_value(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "ownerReferences": owners},
                "spec": {"replicas": 1}, "status": status,
            }));
            let (level, message) = rules.judge(&live.unwrap());
            assert_eq!((level, message.as_str()), want, "{owner:?} {status}");
        }
    }
}
