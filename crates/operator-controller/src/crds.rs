//! Which CustomResourceDefinitions and API groups there are: names, and whose they are, for whoever waits for one or is about to
//! read one.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use olm_install::preflight::{self, OwnedCrd};

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
    all: HashMap<String, Seen>,
    listing: HashMap<String, Seen>,
}

/// What is kept of a CRD.
#[derive(Debug, Clone)]
struct Seen {
    edition: Edition,
    /// The extension whose labels it carries, and what counts of it then.
    of: Option<(String, OwnedCrd)>,
}

impl Seen {
    fn new(crd: &PartialObjectMeta<DynamicObject>) -> Self {
        Self {
            edition: (crd.uid(), crd.metadata.generation),
            of: OwnedCrd::extension(crd).map(|extension| (extension.to_owned(), OwnedCrd::of(crd))),
        }
    }
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

    fn take(&self, event: Event<PartialObjectMeta<DynamicObject>>) -> Vec<ApiChange> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let change = |name: &str, spec: bool| {
            group(name).map(|group| ApiChange { group, crd: spec.then(|| name.to_owned()) })
        };
        let changes = match event {
            Event::Init => {
                known.listing = HashMap::new();
                vec![]
            }
            Event::InitApply(object) => {
                let (name, now) = (object.name_any(), Seen::new(&object));
                let spec = known.all.get(&name).map(|before| &before.edition) != Some(&now.edition);
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
                let (name, now) = (object.name_any(), Seen::new(&object));
                let edition = now.edition.clone();
                let before = known.all.insert(name.clone(), now).map(|before| before.edition);
                vec![change(&name, before != Some(edition))]
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

impl preflight::Known for Crds {
    /// `false` only when all are known and it is not among them.
    fn may_exist(&self, name: &str) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !known.complete || known.all.contains_key(name)
    }

    fn of_extension(&self, extension: &str) -> Option<Vec<OwnedCrd>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let all = known.all.values().filter_map(|seen| seen.of.as_ref());
        known.complete.then(|| all.filter(|(of, _)| of == extension).map(|(_, crd)| crd.clone()).collect())
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
    let events = watcher::watcher(api, watcher::Config::default()).backoff(olm_runtime::backoff::of_watch());
    events
        .filter_map(move |event| async move {
            event.inspect_err(|error| tracing::warn!(kind, %error, "watch interrupted")).ok()
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_install::preflight::Known as _;
    use serde_json::json;

    fn crd(name: &str, generation: i64) -> PartialObjectMeta<DynamicObject> {
        serde_json::from_value(json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "uid": "u", "generation": generation}}))
        .unwrap()
    }

    #[test]
    fn the_crds_of_an_extension_are_known_once_all_are_listed() {
        let crds = Crds::default();
        let of = |name: &str, extension: &str| -> PartialObjectMeta<DynamicObject> {
            let labels = json!({"olm.operatorframework.io/owner-kind": "ClusterExtension",
                "olm.operatorframework.io/owner-name": extension});
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        };
        crds.take(Event::InitApply(of("as.g.io", "x")));
        crds.take(Event::InitApply(of("bs.g.io", "y")));
        crds.take(Event::InitApply(crd("cs.g.io", 1)));
        assert_eq!(crds.of_extension("x"), None, "the list is not complete");
        crds.take(Event::InitDone);
        let known = |extension: &str| crds.of_extension(extension).map(|all| all.len());
        assert_eq!((known("x"), known("y"), known("z")), (Some(1), Some(1), Some(0)));
        crds.take(Event::Apply(of("bs.g.io", "x")));
        assert_eq!((known("x"), known("y")), (Some(2), Some(0)));
        crds.take(Event::Delete(of("bs.g.io", "x")));
        assert_eq!(known("x"), Some(1));
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
