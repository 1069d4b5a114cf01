//! Sources that wake the extension controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kube::ResourceExt as _;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, annotations};
use olm_catalog::CatalogFacts;
use olm_catalog::catalogd::Endpoint;
use olm_core::PackageName;
use olm_runtime::controller::Source;
use olm_runtime::watched::{Change, Object};

use super::context::Context;
use crate::crds::ApiChange;

type Changed<K> = Change<String, Object<K>>;

/// Sources that the process gives, beside the caches.
pub struct Feeds {
    /// Names of extensions whose account lacked rights, when rights change.
    pub rights: BoxStream<'static, String>,
    /// Names of extensions of which a certificate is refused, or is not any more.
    pub refused_certificates: BoxStream<'static, String>,
    /// Changes of the CA of catalogd.
    pub trust: BoxStream<'static, ()>,
    /// APIs that appear, change or go.
    pub apis: BoxStream<'static, ApiChange>,
    /// Packages whose ClusterServiceVersion of OLM Classic changed.
    pub classic_packages: BoxStream<'static, String>,
}

/// The table. Own writes of the status wake no pass, unless the last one failed: if it was executed all the same, only its event shows
/// that the status is another one than the last pass saw.
pub(super) fn sources(context: &Arc<Context>, feeds: Feeds) -> Vec<Source> {
    let [gone, packages, classic, catalogs, apis, trust, constrained] =
        std::array::from_fn(|_| Arc::clone(context));
    let extensions = context.extensions.subscribe();
    vec![
        Source::new("its spec or metadata changed, or it is gone", extensions, move |change| {
            if let (Some(last), None) = (&change.before, &change.after) {
                gone.evict(&change.key, &last.uid());
            }
            let present = change.after.as_ref().map(Object::uid).unwrap_or_default();
            changed(&change, gone.states.is_status_unknown(&present))
        }),
        Source::new("its status mirrors its revisions", context.revisions.subscribe(), |change| {
            owners(&change)
        }),
        Source::new("a package that it needs is installed", context.revisions.subscribe(), move |change| {
            let package = installed(&change);
            package
                .map(|package| packages.states.names(|state| state.needs_package(&package)))
                .unwrap_or_default()
        }),
        Source::new("OLM Classic installs a package that it needs", feeds.classic_packages, move |package| {
            classic.states.names(|state| state.needs_package(&package))
        }),
        Source::new(
            "another catalog content may change its bundle",
            context.catalogs.subscribe().flat_map(move |change| concerned(&catalogs, change)),
            |name| [name],
        ),
        Source::new("catalogs that could not be read may be readable now", feeds.trust, move |()| {
            trust.extensions.names()
        }),
        Source::new(
            "the version or the APIs of the cluster changed, and a bundle of its package asks for some",
            context.cluster.changes(),
            move |()| constrained.states.names(|state| state.has_constraints),
        ),
        Source::new("its account lacked rights, and rights changed", feeds.rights, |name| [name]),
        Source::new("its certificates are refused, or not any more", feeds.refused_certificates, |name| {
            [name]
        }),
        Source::new("it needs an API, or a CRD blocks it", feeds.apis, move |change: ApiChange| {
            let crd = change.crd.as_deref();
            apis.states.names(|state| {
                state.needs_group(&change.group) || crd.is_some_and(|crd| state.needs_crd(crd))
            })
        }),
    ]
}

/// An extension whose spec or metadata changed: what users, GitOps and the garbage collector write; or its status, if it was unknown.
fn changed(change: &Changed<ClusterExtension>, is_status_unknown: bool) -> Option<String> {
    let concerns_status =
        is_status_unknown && change.concerns(|extension| extension.ok().map(|one| one.status.as_ref()));
    let concerns = concerns_status
        || change.concerns(|extension| {
            let metadata = extension.meta();
            let written =
                (metadata.generation, &metadata.annotations, &metadata.labels, &metadata.finalizers);
            (&metadata.uid, written, metadata.deletion_timestamp.is_some())
        });
    concerns.then(|| change.key.clone())
}

/// The owners of a revision that changed in what a status mirrors: not its finalizers. An owner that the garbage collector took off may wait
/// for the revision.
fn owners(change: &Changed<ClusterObjectSet>) -> BTreeSet<String> {
    let concerns = change.concerns(|set| {
        let metadata = set.meta();
        let written = (metadata.generation, &metadata.annotations, &metadata.labels);
        let conditions = set.ok().and_then(|set| set.status.as_ref()).map(|status| {
            let all = status.conditions.iter();
            let parts =
                all.map(|one| (&one.type_, one.status, &one.reason, &one.message, one.observed_generation));
            parts.collect::<Vec<_>>()
        });
        let owned = metadata.owner_references.is_some();
        (&metadata.uid, written, owned, metadata.deletion_timestamp.is_some(), conditions)
    });
    let owners =
        change.states().filter(|_| concerns).flat_map(|set| set.meta().owner_references.iter().flatten());
    owners.filter(|owner| owner.kind == "ClusterExtension").map(|owner| owner.name.clone()).collect()
}

/// The package of a revision that has succeeded from now on.
fn installed(change: &Changed<ClusterObjectSet>) -> Option<String> {
    let has_succeeded = |set: &Object<ClusterObjectSet>| {
        set.ok().is_some_and(|set| olm_install::resolution::revision::has_succeeded(set))
    };
    let set = change.after.as_ref()?;
    let is_new = has_succeeded(set) && !change.before.as_ref().is_some_and(has_succeeded);
    (is_new && set.meta().deletion_timestamp.is_none())
        .then(|| set.meta().annotations.as_ref()?.get(annotations::PACKAGE_NAME).cloned())?
}

/// How many packages are compared at the same time.
const COMPARED: usize = 8;
/// How long a package is waited for before its extensions are reconciled without knowing whether it has changed.
const COMPARISON_TIMEOUT: Duration = Duration::from_secs(5);

/// The extensions that a change of a catalog concerns. If nothing but its content has changed, those are the ones whose package is
/// not what it was, and those that wait for other packages.
fn concerned(context: &Arc<Context>, change: Changed<ClusterCatalog>) -> BoxStream<'static, String> {
    if change.after.is_none() {
        context.evict_unused_packages();
    }
    if !selects(&change) {
        return stream::empty().boxed();
    }
    let Some(endpoint) = other_content(&change) else {
        return stream::iter(context.extensions.names()).boxed();
    };
    let (by_package, mut others) = by_package(context.extensions.all());
    others.extend(context.states.names(|state| state.needs.is_some()));
    // what one package cannot be read from, others cannot either
    let (context, unread) = (Arc::clone(context), Arc::new(AtomicBool::new(false)));
    let changed = stream::iter(by_package).map(move |(package, names)| {
        let (context, endpoint, unread) = (Arc::clone(&context), endpoint.clone(), Arc::clone(&unread));
        async move {
            if unread.load(Ordering::Relaxed) {
                return names;
            }
            let comparing = context.packages.has_changed(&endpoint, &package);
            match tokio::time::timeout(COMPARISON_TIMEOUT, comparing).await {
                Ok(true) => names,
                Ok(false) => Vec::new(),
                Err(_) => {
                    unread.store(true, Ordering::Relaxed);
                    names
                }
            }
        }
    });
    let changed = changed.buffer_unordered(COMPARED).flat_map(stream::iter);
    stream::iter(others).chain(changed).boxed()
}

/// The names of extensions by package, and those whose package is not valid.
fn by_package(
    extensions: impl IntoIterator<Item = Arc<ClusterExtension>>,
) -> (BTreeMap<PackageName, Vec<String>>, Vec<String>) {
    let (mut by_package, mut others) = (BTreeMap::<PackageName, Vec<String>>::new(), Vec::new());
    for extension in extensions {
        let package =
            extension.spec.source.catalog.as_ref().map(|catalog| catalog.package_name.parse::<PackageName>());
        match package {
            Some(Ok(package)) => by_package.entry(package).or_default().push(extension.name_any()),
            Some(Err(_)) | None => others.push(extension.name_any()),
        }
    }
    (by_package, others)
}

/// Where the content of a served catalog is, if nothing but its content has changed.
fn other_content(change: &Changed<ClusterCatalog>) -> Option<Endpoint> {
    let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
    let facts = |catalog: &Object<ClusterCatalog>| CatalogFacts::from_catalog(catalog.ok()?);
    let (mut served, now) = (facts(before)?, facts(after)?);
    let endpoint = now.endpoint.clone().ok()?;
    served.endpoint.as_mut().ok()?.resolved.clone_from(&endpoint.resolved);
    (served == now && requested_at(before) == requested_at(after)).then_some(endpoint)
}

fn requested_at(catalog: &Object<ClusterCatalog>) -> Option<&String> {
    catalog.meta().annotations.as_ref()?.get(annotations::REQUESTED_AT)
}

/// Whether the content, selection or availability of a catalog changed, or it is gone.
fn selects(change: &Changed<ClusterCatalog>) -> bool {
    change.concerns(|catalog| {
        let facts = catalog.ok().map(|catalog| CatalogFacts::from_catalog(catalog));
        (facts, requested_at(catalog), catalog.meta().deletion_timestamp.is_some())
    })
}

#[cfg(test)]
mod tests {
    use olm_runtime::watched::Received;
    use serde_json::{Value, json};

    use super::*;

    const API: &str = "olm.operatorframework.io/v1";

    fn parsed<K: kube::Resource + serde::de::DeserializeOwned>(object: Value) -> Object<K> {
        Object::from(serde_json::from_value::<Received<K>>(object).unwrap())
    }

    /// A change of `object`, of which the members at the keys of `with` are replaced.
    fn change<K: kube::Resource + serde::de::DeserializeOwned>(object: &Value, with: &Value) -> Changed<K> {
        let mut after = object.clone();
        for (key, value) in with.as_object().unwrap() {
            let (parent, name) = key.rsplit_once('/').unwrap();
            match after.pointer_mut(key) {
                Some(found) => *found = value.clone(),
                None => after.pointer_mut(parent).unwrap()[name] = value.clone(),
            }
        }
        let (before, after) = (Some(parsed(object.clone())), Some(parsed(after)));
        Change { key: "a".to_owned(), before, after, is_answer: false }
    }

    fn requested(when: &str) -> Value {
        json!({"/metadata/annotations": {(annotations::REQUESTED_AT): when}})
    }

    #[test]
    fn sources_own_changes() {
        let extension = json!({"apiVersion": API, "kind": "ClusterExtension",
            "metadata": {"name": "a", "uid": "a", "generation": 1, "resourceVersion": "1"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}}});
        for (case, with, wakes) in [
            ("resourceVersion", json!({"/metadata/resourceVersion": "2"}), false),
            ("spec", json!({"/metadata/generation": 2}), true),
            ("requested-at", requested("now"), true),
            ("label", json!({"/metadata/labels": {"a": "b"}}), true),
            ("finalizer", json!({"/metadata/finalizers": ["x/y"]}), true),
            ("deletion", json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}), true),
        ] {
            assert_eq!(changed(&change(&extension, &with), false).is_some(), wakes, "{case}");
        }
        // the event of a write that seemed to have failed
        for is_unknown in [false, true] {
            let status = change(&extension, &json!({"/status": {"conditions": []}}));
            assert_eq!(changed(&status, is_unknown).is_some(), is_unknown);
        }
        for (before, after) in [(true, false), (false, true)] {
            let Change { key, before: then, after: now, is_answer } = change(&extension, &json!({}));
            let change =
                Change { key, before: then.filter(|_| before), after: now.filter(|_| after), is_answer };
            assert!(changed(&change, false).is_some());
        }
    }

    #[test]
    fn sources_catalog_changes() {
        let catalog = json!({"apiVersion": API, "kind": "ClusterCatalog",
            "metadata": {"name": "a", "uid": "c", "generation": 1, "resourceVersion": "1", "labels": {"a": "b"}},
            "spec": {"priority": 0, "source": {"type": "Image", "image": {"ref": "example.com/c:v1"}}},
            "status": {
                "conditions": [{"type": "Serving", "status": "True", "reason": "Available", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "urls": {"base": "https://example.com/c"},
                "resolvedSource": {"type": "Image", "image": {"ref": "example.com/c@sha256:1"}},
                "lastUnpacked": "2026-01-01T00:00:00Z"}});
        let content = "/status/resolvedSource/image/ref";
        for (case, with, wakes, only_content) in [
            ("resourceVersion", json!({"/metadata/resourceVersion": "2"}), false, true),
            ("content", json!({(content): "example.com/c@sha256:2"}), true, true),
            ("availability", json!({"/status/conditions/0/status": "False"}), true, false),
            ("address", json!({"/status/urls/base": "https://example.com/d"}), true, false),
            ("priority", json!({"/spec/priority": 1}), true, false),
            ("labels", json!({"/metadata/labels": {"a": "c"}}), true, false),
            (
                "content and labels",
                json!({(content): "e@sha256:2", "/metadata/labels": {"a": "c"}}),
                true,
                false,
            ),
            ("requested-at", requested("now"), true, false),
        ] {
            let change = change(&catalog, &with);
            assert_eq!(selects(&change), wakes, "{case}");
            assert_eq!(other_content(&change).is_some(), only_content, "{case}");
        }
        let gone = Change { after: None, ..change(&catalog, &json!({})) };
        assert!(selects(&gone));
    }

    #[test]
    fn sources_revision_changes() {
        let succeeded = json!([{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let set = json!({"apiVersion": API, "kind": "ClusterObjectSet",
            "metadata": {"name": "a-1", "uid": "a-1", "generation": 1, "resourceVersion": "1",
                "annotations": {(annotations::PACKAGE_NAME): "p"},
                "ownerReferences": [
                    {"apiVersion": API, "kind": "ClusterExtension", "name": "a", "uid": "a"},
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "no", "uid": "no"}]},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"}});
        for (case, with, wakes, package) in [
            ("resourceVersion", json!({"/metadata/resourceVersion": "2"}), &[][..], None),
            ("finalizers", json!({"/metadata/finalizers": ["x/y"]}), &[], None),
            ("spec", json!({"/metadata/generation": 2}), &["a"], None),
            ("a condition", json!({"/status": {"conditions": succeeded}}), &["a"], Some("p")),
            ("owners", json!({"/metadata/ownerReferences": null}), &["a"], None),
        ] {
            let change = change(&set, &with);
            assert!(owners(&change).iter().eq(wakes), "{case}");
            assert_eq!(installed(&change).as_deref(), package, "{case}");
            let gone = Change { before: change.before, after: None, ..change };
            assert!(owners(&gone).iter().eq(["a"]) && installed(&gone).is_none(), "{case}");
        }
    }
}
