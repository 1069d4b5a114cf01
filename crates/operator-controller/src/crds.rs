//! Which CustomResourceDefinitions and API groups there are: names only, for whoever waits for one or is about to read one.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};

/// An API that appears, changes or goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiChange {
    /// Its group.
    pub group: String,
    /// The CRD that changed, when its spec did or it is new or gone; `None` for an APIService or a change of status.
    pub crd: Option<String>,
}

/// UID and generation, which tell a changed spec.
type Edition = (Option<String>, Option<i64>);

/// The CRDs of the cluster by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Crds(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    complete: bool,
    all: HashMap<String, Edition>,
    listing: HashMap<String, Edition>,
}

impl Crds {
    /// Watches CRDs and APIServices while the stream is polled. At its start every one of them is told.
    pub fn watch(client: &Client) -> (Self, BoxStream<'static, ApiChange>) {
        let crds = Self::default();
        let known = crds.clone();
        let definitions =
            events(client, "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
                .flat_map(move |event| futures::stream::iter(known.take(event)));
        let services =
            events(client, "apiregistration.k8s.io", "APIService", "apiservices").flat_map(|event| {
                let named = match event {
                    Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => {
                        group(&object.name_any()).map(|group| ApiChange { group, crd: None })
                    }
                    Event::Init | Event::InitDone => None,
                };
                futures::stream::iter(named)
            });
        (crds, futures::stream::select(definitions, services).boxed())
    }

    /// Whether there may be a CRD of this name: `false` only when all are known and it is not among them.
    #[must_use]
    pub fn may_exist(&self, name: &str) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !known.complete || known.all.contains_key(name)
    }

    fn take(&self, event: Event<PartialObjectMeta<DynamicObject>>) -> Vec<ApiChange> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let edition = |object: &PartialObjectMeta<DynamicObject>| (object.uid(), object.metadata.generation);
        let change = |name: &str, spec: bool| {
            group(name).map(|group| ApiChange { group, crd: spec.then(|| name.to_owned()) })
        };
        let changes = match event {
            Event::Init => {
                known.listing = HashMap::new();
                vec![]
            }
            Event::InitApply(object) => {
                let (name, now) = (object.name_any(), edition(&object));
                let spec = known.all.get(&name) != Some(&now);
                known.listing.insert(name.clone(), now);
                vec![change(&name, spec)]
            }
            Event::InitDone => {
                let now = std::mem::take(&mut known.listing);
                let before = std::mem::replace(&mut known.all, now);
                known.complete = true;
                before
                    .keys()
                    .filter(|name| !known.all.contains_key(*name))
                    .map(|name| change(name, true))
                    .collect()
            }
            Event::Apply(object) => {
                let (name, now) = (object.name_any(), edition(&object));
                let before = known.all.insert(name.clone(), now.clone());
                vec![change(&name, before != Some(now))]
            }
            Event::Delete(object) => {
                let name = object.name_any();
                known.all.remove(&name);
                vec![change(&name, true)]
            }
        };
        changes.into_iter().flatten().collect()
    }
}

/// The group in `<plural>.<group>` or `<version>.<group>`.
fn group(name: &str) -> Option<String> {
    name.split_once('.').map(|(_, group)| group.to_owned())
}

fn events(
    client: &Client,
    group: &str,
    kind: &'static str,
    plural: &str,
) -> BoxStream<'static, Event<PartialObjectMeta<DynamicObject>>> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    events
        .filter_map(move |event| async move {
            event.inspect_err(|error| tracing::warn!(kind, %error, "watch interrupted")).ok()
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd(name: &str, generation: i64) -> PartialObjectMeta<DynamicObject> {
        serde_json::from_value(json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "uid": "u", "generation": generation}}))
        .unwrap()
    }

    #[test]
    fn a_changed_spec_is_told_apart_and_absence_is_known_once_all_are_listed() {
        let crds = Crds::default();
        let told = |event| {
            let changes = crds.take(event).into_iter();
            changes
                .map(|change| format!("{} {}", change.group, change.crd.unwrap_or_default()))
                .collect::<Vec<_>>()
        };
        assert!(crds.may_exist("as.g.io"), "nothing is known yet");
        assert!(told(Event::Init).is_empty());
        assert_eq!(told(Event::InitApply(crd("as.g.io", 1))), ["g.io as.g.io"]);
        assert!(crds.may_exist("bs.g.io"), "the list is not complete");
        assert!(told(Event::InitDone).is_empty());
        assert!(crds.may_exist("as.g.io") && !crds.may_exist("bs.g.io"));
        assert_eq!(told(Event::Apply(crd("as.g.io", 1))), ["g.io "]);
        assert_eq!(told(Event::Apply(crd("as.g.io", 2))), ["g.io as.g.io"]);
        assert_eq!(told(Event::Apply(crd("bs.g.io", 1))), ["g.io bs.g.io"]);
        assert_eq!(told(Event::Delete(crd("bs.g.io", 1))), ["g.io bs.g.io"]);
        assert!(!crds.may_exist("bs.g.io"));
        // a new listing tells what went meanwhile
        told(Event::Init);
        assert_eq!(told(Event::InitDone), ["g.io as.g.io"]);
        assert!(!crds.may_exist("as.g.io"));
    }
}
