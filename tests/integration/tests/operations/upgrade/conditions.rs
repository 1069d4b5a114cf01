//! Watches that record every change of a condition, however short.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;

use super::snapshot::now;

/// Kinds whose conditions users and tools rely on.
const KINDS: [(&str, &str, &str); 4] = [
    ("olm.operatorframework.io", "v1", "ClusterExtension"),
    ("olm.operatorframework.io", "v1", "ClusterCatalog"),
    ("olm.operatorframework.io", "v1", "ClusterObjectSet"),
    ("config.openshift.io", "v1", "ClusterOperator"),
];

#[derive(Debug, Default)]
struct Observed {
    /// By object and type: status, reason and time of transition.
    conditions: BTreeMap<(String, String), String>,
    changes: Vec<String>,
}

impl Observed {
    fn take(&mut self, object: &str, conditions: Option<&Value>) {
        for condition in conditions.and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            let value =
                format!("{} ({}) since {}", text("status"), text("reason"), text("lastTransitionTime"));
            let key = (object.to_owned(), text("type"));
            match self.conditions.insert(key, value.clone()) {
                Some(before) if before != value => {
                    let (time, type_, message) = (now(), text("type"), text("message"));
                    let line = format!("{time} {object} {type_}: {before} -> {value}: {message}");
                    self.changes.push(line);
                }
                Some(_) | None => {}
            }
        }
    }
}

/// The running watches; they end when this is dropped.
pub(crate) struct ConditionWatch {
    observed: Arc<Mutex<Observed>>,
    _tasks: JoinSet<()>,
}

impl ConditionWatch {
    pub(crate) fn start(client: &Client) -> Self {
        let observed: Arc<Mutex<Observed>> = Arc::default();
        let mut tasks = JoinSet::new();
        for (group, version, kind) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let observed = Arc::clone(&observed);
            tasks.spawn(async move {
                let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
                let mut events = std::pin::pin!(events);
                while let Some(event) = events.next().await {
                    let Ok(object) = event else { continue };
                    let name = format!("{kind} {}", object.name_any());
                    let mut observed = observed.lock();
                    observed.take(&name, object.data.pointer("/status/conditions"));
                }
            });
        }
        Self { observed, _tasks: tasks }
    }

    /// Conditions that are watched by now.
    pub(crate) fn count(&self) -> usize {
        self.observed.lock().conditions.len()
    }

    /// Changes since the last call: when, object, type, and both values.
    pub(crate) fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.observed.lock().changes)
    }
}

#[test]
fn upgrade_condition_that_flips_and_returns_is_recorded() {
    use serde_json::json;
    let conditions = |status: &str, time: &str, message: &str| json!([{"type": "Ready", "status": status, "reason": "R", "lastTransitionTime": time, "message": message}]);
    let mut observed = Observed::default();
    for (status, time, message, changes) in [
        ("True", "t1", "m", 0),
        ("True", "t1", "another message", 0),
        ("False", "t2", "m", 1),
        ("True", "t3", "m", 2),
    ] {
        observed.take("ClusterExtension a", Some(&conditions(status, time, message)));
        assert_eq!(observed.changes.len(), changes, "{status} {time} {message}");
    }
}
