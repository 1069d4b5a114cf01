//! The objects of revisions as they are in the cluster now, and the pods of those that run some.
//!
//! What counts as ready is the rollout engine's word for the kinds that it knows; others are ready when they are there.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ApiResource, ListParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::cluster_object_set::{LifecycleState, PhaseObject};
use olm_api::{ClusterObjectSet, annotations, condition};
use olm_rollout::probe::{Author, Ready, evaluate};
use olm_runtime::error_text::chain;
use serde::Serialize;

use crate::kinds::{Kinds, api};

/// Objects that are asked for at the same time.
const PARALLEL: usize = 8;
/// Pods that are listed of one object.
const PODS: usize = 10;
/// Kinds whose pods are of interest, all with `spec.selector`.
const RUNNERS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// What was found.
pub(crate) struct Looked {
    pub(crate) revisions: Vec<Revision>,
    pub(crate) archived: usize,
}

/// One revision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Revision {
    /// Name of the ClusterObjectSet.
    pub(crate) name: String,
    /// Its number.
    pub(crate) number: i64,
    /// `Active`, `Archived` or `being deleted`.
    pub(crate) state: String,
    /// Its bundle's name.
    pub(crate) bundle: String,
    /// Its bundle's version.
    pub(crate) version: String,
    /// Its conditions, and what could not be read.
    pub(crate) says: Vec<String>,
    /// Its phases, in order.
    pub(crate) phases: Vec<Phase>,
}

/// One phase.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) objects: Vec<Object>,
    /// Objects that were not looked at.
    pub(crate) left_out: usize,
}

/// One object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Object {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// How it is.
    pub(crate) level: Level,
    /// What is missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pods: Vec<PodState>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) pods_left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// How an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Level {
    /// It is there and does what it should.
    Ready,
    /// It is there and does not.
    NotReady,
    /// It is not there.
    Missing,
    /// It could not be looked at.
    Unknown,
}

/// One pod.
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

impl Object {
    /// Kind, namespace and name.
    pub(crate) fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

/// Looks at the objects of all revisions in force, at most `limit` of them.
pub(crate) async fn look(client: &Client, revisions: &[&ClusterObjectSet], limit: usize) -> Looked {
    let mut looked = Looked { revisions: Vec::new(), archived: 0 };
    let mut kinds = Kinds::new(client);
    let mut budget = limit;
    // the newest tells the most
    for set in revisions.iter().rev() {
        let deleted = set.metadata.deletion_timestamp.is_some();
        if set.spec.lifecycle_state == LifecycleState::Archived && !deleted {
            looked.archived += 1;
            continue;
        }
        looked.revisions.push(revision(client, set, &mut kinds, &mut budget).await);
    }
    looked.revisions.reverse();
    looked
}

/// The objects of a revision.
pub(crate) async fn content(
    client: &Client,
    set: &ClusterObjectSet,
) -> Result<Vec<olm_core::Object>, String> {
    let mut secrets = Secrets { client: client.clone(), read: BTreeMap::new() };
    let mut objects = Vec::new();
    for object in set.spec.phases.iter().flat_map(|phase| &phase.objects) {
        objects.push(secrets.object(object).await?);
    }
    Ok(objects)
}

async fn revision(
    client: &Client,
    set: &ClusterObjectSet,
    kinds: &mut Kinds,
    budget: &mut usize,
) -> Revision {
    let text = |key: &str| set.annotations().get(key).cloned().unwrap_or_default();
    let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut says: Vec<String> = [condition::PROGRESSING, condition::AVAILABLE, condition::SUCCEEDED]
        .into_iter()
        .filter_map(|type_| condition::find(conditions, type_))
        .map(|found| format!("{}={} {}: {}", found.type_, found.status.as_str(), found.reason, found.message))
        .map(|line| line.trim_end_matches([':', ' ']).to_owned())
        .collect();
    let mut secrets = Secrets { client: client.clone(), read: BTreeMap::new() };
    let mut phases = Vec::new();
    for phase in &set.spec.phases {
        let mut wanted = Vec::new();
        for object in phase.objects.iter().take(*budget) {
            match secrets.object(object).await {
                Ok(object) => wanted.push(object),
                Err(why) if says.contains(&why) => {}
                Err(why) => says.push(why),
            }
        }
        let left_out = phase.objects.len() - wanted.len();
        *budget -= wanted.len().min(*budget);
        let mut asked = Vec::new();
        for object in wanted {
            let kind = kinds.of(&object).await;
            asked.push(one(client, object, kind));
        }
        let objects = futures::stream::iter(asked).buffered(PARALLEL).collect().await;
        phases.push(Phase { name: phase.name.clone(), objects, left_out });
    }
    let state = match (set.metadata.deletion_timestamp.is_some(), set.spec.lifecycle_state) {
        (true, _) => "being deleted",
        (false, LifecycleState::Active) => "Active",
        (false, LifecycleState::Archived) => "Archived",
    };
    Revision {
        name: set.name_any(),
        number: set.spec.revision,
        state: state.to_owned(),
        bundle: text(annotations::BUNDLE_NAME),
        version: text(annotations::BUNDLE_VERSION),
        says,
        phases,
    }
}

/// Secrets with objects, each read once.
struct Secrets {
    client: Client,
    read: BTreeMap<(String, String), Result<Secret, String>>,
}

impl Secrets {
    async fn object(&mut self, object: &PhaseObject) -> Result<olm_core::Object, String> {
        if let Some(inline) = &object.object {
            return olm_core::Object::from_value(inline.clone().into()).map_err(|error| error.to_string());
        }
        let reference = object.reference.as_ref().ok_or("a phase has an object without content")?;
        let namespace = reference.namespace.clone().ok_or("an object's Secret has no namespace")?;
        let place = (namespace, reference.name.clone());
        if !self.read.contains_key(&place) {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &place.0);
            let read = api.get(&place.1).await;
            let read = read.map_err(|error| format!("objects cannot be read: {}", chain(&error)));
            self.read.insert(place.clone(), read);
        }
        let secret = match self.read.get(&place) {
            Some(Ok(secret)) => secret,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err(format!("Secret {}/{} was not read", place.0, place.1)),
        };
        let value = secret.data.as_ref().and_then(|data| data.get(&reference.key));
        let value =
            value.ok_or_else(|| format!("Secret {}/{} lacks key {}", place.0, place.1, reference.key))?;
        olm_rollout::unpack(&value.0, &reference.key, &reference.name).map_err(|error| error.to_string())
    }
}

async fn one(client: &Client, wanted: olm_core::Object, kind: Result<(ApiResource, bool), String>) -> Object {
    let mut object = Object {
        api_version: wanted.api_version().to_owned(),
        kind: wanted.kind().to_owned(),
        namespace: wanted.namespace().map(str::to_owned),
        name: wanted.name().to_owned(),
        level: Level::Unknown,
        message: String::new(),
        pods: Vec::new(),
        pods_left_out: 0,
    };
    let (resource, namespaced) = match kind {
        Ok(kind) => kind,
        Err(why) => {
            object.message = why;
            return object;
        }
    };
    let api = api(client, &wanted, &resource, namespaced);
    let live = match api.get_opt(&object.name).await {
        Ok(Some(live)) => serde_json::to_value(live).unwrap_or_default(),
        Ok(None) => {
            object.level = Level::Missing;
            return object;
        }
        Err(error) => {
            object.message = chain(&error);
            return object;
        }
    };
    let Ok(live) = olm_core::Object::from_value(live) else { return object };
    let verdict = evaluate(&[], Author::Extension, &live);
    object.level = match verdict.ready {
        Ready::Yes => Level::Ready,
        Ready::No => Level::NotReady,
        Ready::Unknown => Level::Unknown,
    };
    object.message = verdict.messages.join("; ");
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
    object.pods_left_out = listed.len().saturating_sub(PODS);
    // those that are not ready first
    let mut states: Vec<PodState> = listed.iter().map(pod).collect();
    states.sort_by(|a, b| (a.ready, &a.name).cmp(&(b.ready, &b.name)));
    states.truncate(PODS);
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
