//! The CustomResourceDefinitions and API groups of the cluster: an extension that waits for one is reconciled when it appears, and
//! one that is about to read a CRD learns that it does not exist without a request.

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use olm_install::preflight::{self, OwnedCrd};
use olm_runtime::watched::{Change, Watched};

/// An API that appears, changes or goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiChange {
    pub group: String,
    /// The CRD that changed, when its spec did or it is new or gone; `None` for an APIService or a change of status.
    pub crd: Option<String>,
}

/// The CRDs of the cluster by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Crds(Watched<String, Definition>);

/// What is stored of a CRD.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Definition {
    uid: Option<String>,
    generation: Option<i64>,
    resource_version: Option<String>,
    /// The extension whose labels it carries, and what the checks need of it.
    owner: Option<(String, OwnedCrd)>,
}

impl Definition {
    fn row(crd: PartialObjectMeta<DynamicObject>) -> (String, Self) {
        let owner =
            OwnedCrd::extension(&crd).map(|extension| (extension.to_owned(), OwnedCrd::from_metadata(&crd)));
        let generation = crd.metadata.generation;
        (crd.name_any(), Self { uid: crd.uid(), generation, resource_version: crd.resource_version(), owner })
    }

    /// UID and generation: they differ when the spec does.
    fn spec(&self) -> (Option<&str>, Option<i64>) {
        (self.uid.as_deref(), self.generation)
    }
}

impl Crds {
    /// Counts the times that the watch of CRDs was interrupted, as by an apiserver that starts again.
    pub fn interruptions(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.interruptions()
    }

    /// Whether the CRD of this name is there: each time that it appears, changes or goes.
    pub fn presence(&self, name: &'static str) -> impl Stream<Item = bool> + Send + use<> {
        let is_present = move |change: Change<String, Definition>| {
            std::future::ready((change.key == name).then_some(change.after.is_some()))
        };
        self.0.subscribe().filter_map(is_present)
    }

    /// Watches CRDs and APIServices while the stream is polled. It begins with a change for each of them.
    pub fn watch(client: &Client) -> (Self, BoxStream<'static, ApiChange>) {
        let crds = Self::default();
        let definitions = crds.0.follow(
            api(client, "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
            watcher::Config::default(),
            Definition::row,
        );
        let services = Watched::default().follow(
            api(client, "apiregistration.k8s.io", "APIService", "apiservices"),
            watcher::Config::default(),
            |service| (service.name_any(), service.resource_version()),
        );
        let changes = futures::stream::select(
            definitions.filter_map(async |change| crd_change(change)),
            services.filter_map(async |change| {
                Some(ApiChange { group: group(&change.key)?.to_owned(), crd: None })
            }),
        );
        (crds, changes.boxed())
    }
}

impl preflight::CrdCache for Crds {
    /// `false` only when all are listed and it is not among them.
    fn may_exist(&self, name: &str) -> bool {
        let table = self.0.read();
        !table.is_listed() || table.rows().contains_key(name)
    }

    fn of_extension(&self, extension: &str) -> Option<Vec<OwnedCrd>> {
        let table = self.0.read();
        let owned = table.rows().values().filter_map(|definition| definition.owner.as_ref());
        let owned = owned.filter(|(owner, _)| owner == extension).map(|(_, crd)| crd.clone());
        table.is_listed().then(|| owned.collect())
    }
}

fn crd_change(change: Change<String, Definition>) -> Option<ApiChange> {
    let group = group(&change.key)?.to_owned();
    let is_status = match (&change.before, &change.after) {
        (Some(before), Some(after)) => before.spec() == after.spec(),
        _ => false,
    };
    Some(ApiChange { group, crd: (!is_status).then_some(change.key) })
}

/// The group in `<plural>.<group>` or `<version>.<group>`.
fn group(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, group)| group)
}

fn api(client: &Client, group: &str, kind: &str, plural: &str) -> Api<PartialObjectMeta<DynamicObject>> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
    Api::all_with(client.clone(), &resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event;
    use olm_install::preflight::CrdCache as _;
    use serde_json::json;

    type Crd = PartialObjectMeta<DynamicObject>;

    fn crd(name: &str, generation: i64, version: &str) -> Crd {
        let metadata =
            json!({"name": name, "uid": "u", "generation": generation, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn owned(name: &str, extension: &str) -> Crd {
        let labels = json!({"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": extension});
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    }

    /// What the events change, each as its group and, when the spec changed, the name.
    fn changes(crds: &Crds, events: impl IntoIterator<Item = Event<Crd>>) -> Vec<String> {
        let changes = events.into_iter().flat_map(|event| crds.0.apply(event, Definition::row));
        let changes = changes.filter_map(crd_change);
        changes.map(|change| format!("{} {}", change.group, change.crd.unwrap_or_default())).collect()
    }

    #[test]
    fn owned_crds_are_found_once_all_are_listed() {
        let crds = Crds::default();
        let count = |extension: &str| crds.of_extension(extension).map(|all| all.len());
        let listing = [owned("as.g.io", "x"), owned("bs.g.io", "y"), crd("cs.g.io", 1, "1")];
        changes(&crds, listing.map(Event::InitApply));
        assert_eq!(count("x"), None, "the listing is not complete");
        changes(&crds, [Event::InitDone]);
        assert_eq!((count("x"), count("y"), count("z")), (Some(1), Some(1), Some(0)));
        changes(&crds, [Event::Apply(owned("bs.g.io", "x"))]);
        assert_eq!((count("x"), count("y")), (Some(2), Some(0)));
        changes(&crds, [Event::Delete(owned("bs.g.io", "x"))]);
        assert_eq!(count("x"), Some(1));
    }

    #[test]
    fn crd_change_names_the_crd_when_its_spec_changed() {
        let crds = Crds::default();
        let all = |events: &[Event<Crd>]| changes(&crds, events.to_vec());
        assert!(crds.may_exist("as.g.io"), "nothing is listed yet");
        assert!(all(&[Event::Init, Event::InitApply(crd("as.g.io", 1, "1"))]).is_empty());
        assert!(crds.may_exist("bs.g.io"), "the listing is not complete");
        assert_eq!(all(&[Event::InitDone]), ["g.io as.g.io"]);
        assert!(crds.may_exist("as.g.io") && !crds.may_exist("bs.g.io"));
        assert!(all(&[Event::Apply(crd("as.g.io", 1, "1"))]).is_empty());
        assert_eq!(all(&[Event::Apply(crd("as.g.io", 1, "2"))]), ["g.io "]);
        assert_eq!(all(&[Event::Apply(crd("as.g.io", 2, "3"))]), ["g.io as.g.io"]);
        assert_eq!(all(&[Event::Apply(crd("bs.g.io", 1, "4"))]), ["g.io bs.g.io"]);
        assert_eq!(all(&[Event::Delete(crd("bs.g.io", 1, "5"))]), ["g.io bs.g.io"]);
        assert!(!crds.may_exist("bs.g.io"));
        // what went while the watch was interrupted
        assert_eq!(all(&[Event::Init, Event::InitDone]), ["g.io as.g.io"]);
        assert!(!crds.may_exist("as.g.io"));
    }
}
