//! What a chosen bundle depends on, asked before anything is written. Nothing is ever installed for it.
//!
//! The judgement is `olm_resolver::dependencies`'s; this room gathers what it needs: the APIs that the cluster serves, what the
//! other extensions have installed, and, only when something is missing, which package of which catalog has it. A bundle that
//! is on its way or installed already is not asked again. Rule: decision 25.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::Discovery;
use kube::{Api, ResourceExt as _};
use olm_api::{ClusterObjectSet, annotations, condition, labels};
use olm_client::resolution::{BundleFacts, Cause, Class, Failure, RevisionStates, Wish, refused, revision};
use olm_core::{CatalogName, PackageName, VersionRelease};
use olm_resolver::{
    DependencyFacts, GvkRef, InstalledPackage, Needed, PackageGraph, Property, Resolution, dependencies,
    needed,
};
use serde_json::Value;

use super::attempt::Note;
use super::shell::Shell;

/// What a missing dependency leads to: `--dependency-check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum DependencyCheck {
    /// The bundle is refused until what it needs is there.
    #[default]
    #[value(name = "Enforce")]
    Enforce,
    /// An event says what is missing, and the bundle is installed.
    #[value(name = "Warn")]
    Warn,
    /// Nothing is looked at.
    #[value(name = "Ignore")]
    Ignore,
    /// A bundle that declares any dependency is refused, as the reference does.
    #[value(name = "Refuse")]
    Refuse,
}

/// How long catalogs may take to say who provides what is missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packages of one catalog that are looked at as providers.
const MOST_PROVIDERS: usize = 8;
/// CRDs of the groups in question that are looked at one by one.
const MOST_CRDS: usize = 64;
/// What a user does about it, after the refusal.
const HELP: &str = "; dependencies are not installed automatically: this goes on as soon as they are there";

/// Whether `chosen` may be delivered; what should be told though it may.
///
/// # Errors
/// The refusal, or that the cluster could not be asked.
pub async fn check(
    shell: &Shell,
    wish: &Wish,
    chosen: &Resolution,
    bundle: &BundleFacts,
    states: &RevisionStates,
) -> Result<Vec<Note>, Failure> {
    shell.waiting.forget(&wish.name);
    let check = shell.settings.dependency_check;
    if check == DependencyCheck::Refuse {
        let refusal = chosen.refuse_dependencies().map_err(|error| refused(&error));
        return refusal
            .map(|()| Vec::new())
            .map_err(|failure| Failure { cause: Cause::Dependencies, ..failure });
    }
    let there = states.newest().is_some_and(|newest| newest.bundle.is_same(bundle));
    if check == DependencyCheck::Ignore || there || chosen.graph.first_dependency(chosen.index).is_none() {
        return Ok(Vec::new());
    }
    let needed = needed(&chosen.graph, chosen.index);
    // before the cluster is asked, so that what appears meanwhile wakes us
    shell.waiting.wait(&wish.name, needed.clone());
    let facts = facts(shell, wish, &needed).await?;
    let mut report = dependencies(&chosen.graph, chosen.index, &facts, &[]);
    if !report.unmet.is_empty() {
        let offers = offers(shell, &needed).await;
        let offers: Vec<(CatalogName, &PackageGraph)> =
            offers.iter().map(|(catalog, graph)| (catalog.clone(), &**graph)).collect();
        report = dependencies(&chosen.graph, chosen.index, &facts, &offers);
    }
    let mut notes: Vec<Note> =
        report.warnings.iter().map(|text| Note::warning("BundleWarning", text.clone())).collect();
    match report.refusal(&bundle.name) {
        Some(refusal) if check == DependencyCheck::Enforce => {
            let failure = Failure::new(
                Class::NeedsChange,
                format!("validating bundle {:?}: {refusal}{HELP}", bundle.name),
            );
            return Err(Failure { cause: Cause::Dependencies, ..failure });
        }
        Some(refusal) => notes.push(Note::warning("DependencyMissing", refusal)),
        None => {}
    }
    shell.waiting.forget(&wish.name);
    Ok(notes)
}

/// APIs and installed packages, as far as they matter for `needed`.
async fn facts(shell: &Shell, wish: &Wish, needed: &Needed) -> Result<DependencyFacts, Failure> {
    let failed = |what: &str, error: &kube::Error| {
        Failure::new(Class::Transient, format!("checking dependencies: {what}: {error}"))
    };
    let discovery = Discovery::new(shell.client.clone())
        .run_aggregated()
        .await
        .map_err(|error| failed("asking the cluster for its APIs", &error))?;
    let served = Served::of(&discovery);
    let mut apis = served.all();
    let missing: Vec<&GvkRef> = needed.apis.iter().filter(|api| !apis.contains(*api)).collect();
    if !missing.is_empty() {
        // the list of APIs follows CRDs with a delay
        let established =
            established(shell, &missing).await.map_err(|error| failed("reading CRDs", &error))?;
        apis.extend(established);
    }
    let owned = owned_crds(shell).await.map_err(|error| failed("listing the CRDs of extensions", &error))?;
    let installed = installed(shell)
        .into_iter()
        .filter(|(extension, _)| *extension != wish.name)
        .filter_map(|(extension, set)| {
            let provides = owned.get(&extension).into_iter().flatten().flat_map(|name| served.kinds(name));
            package(&set, provides.collect())
        })
        .collect();
    Ok(DependencyFacts { apis, installed })
}

/// What the cluster serves, by name of the resource (`<plural>.<group>`).
struct Served(BTreeMap<String, Vec<GvkRef>>);

impl Served {
    fn of(discovery: &Discovery) -> Self {
        let mut all: BTreeMap<String, Vec<GvkRef>> = BTreeMap::new();
        for group in discovery.groups() {
            for version in group.versions() {
                for (resource, _) in group.versioned_resources(version) {
                    let name = format!("{}.{}", resource.plural, resource.group);
                    all.entry(name).or_default().push(gvk(
                        &resource.group,
                        &resource.version,
                        &resource.kind,
                    ));
                }
            }
        }
        Self(all)
    }

    fn all(&self) -> BTreeSet<GvkRef> {
        self.0.values().flatten().cloned().collect()
    }

    fn kinds(&self, name: &str) -> Vec<GvkRef> {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

fn gvk(group: &str, version: &str, kind: &str) -> GvkRef {
    GvkRef { group: group.into(), version: version.into(), kind: kind.into() }
}

fn crds(shell: &Shell) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
    Api::all_with(shell.client.clone(), &resource)
}

/// APIs of established CRDs in the groups of `missing`.
async fn established(shell: &Shell, missing: &[&GvkRef]) -> Result<Vec<GvkRef>, kube::Error> {
    let api = crds(shell);
    let in_question = |name: &str| {
        name.split_once('.').is_some_and(|(_, group)| missing.iter().any(|api| &*api.group == group))
    };
    let names: Vec<String> = api
        .list_metadata(&ListParams::default())
        .await?
        .iter()
        .map(|crd| crd.name_any())
        .filter(|name| in_question(name))
        .take(MOST_CRDS)
        .collect();
    let mut found = Vec::new();
    for name in names {
        found.extend(api.get_opt(&name).await?.map(|crd| established_kinds(&crd.data)).unwrap_or_default());
    }
    Ok(found)
}

/// The APIs of a CRD that the apiserver has accepted.
fn established_kinds(crd: &Value) -> Vec<GvkRef> {
    let list = |pointer: &str| crd.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let established = list("/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    let versions = list("/spec/versions");
    let served = versions.iter().filter(|version| established && version["served"] == true);
    served
        .filter_map(|version| {
            Some(gvk(text("/spec/group"), version["name"].as_str()?, text("/spec/names/kind")))
        })
        .collect()
}

/// Names of the CRDs that each extension manages.
async fn owned_crds(shell: &Shell) -> Result<BTreeMap<String, Vec<String>>, kube::Error> {
    let ours = format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_CLUSTER_EXTENSION);
    let mut owned: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for crd in crds(shell).list_metadata(&ListParams::default().labels(&ours)).await? {
        if let Some(owner) = crd.labels().get(labels::OWNER_NAME) {
            owned.entry(owner.clone()).or_default().push(crd.name_any());
        }
    }
    Ok(owned)
}

/// The installed revision of each extension.
fn installed(shell: &Shell) -> BTreeMap<String, ClusterObjectSet> {
    let mut newest: BTreeMap<String, ClusterObjectSet> = BTreeMap::new();
    for guarded in shell.revisions.state() {
        let Ok(set) = &guarded.0 else { continue };
        let Some(owner) = set.labels().get(labels::OWNER_NAME) else { continue };
        let newer = newest.get(owner).is_none_or(|known| known.spec.revision < set.spec.revision);
        if newer && revision::is_active(set) && has_succeeded(set) {
            newest.insert(owner.clone(), set.clone());
        }
    }
    newest
}

/// Whether the revision is, or was, installed.
pub(super) fn has_succeeded(set: &ClusterObjectSet) -> bool {
    set.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, condition::SUCCEEDED))
}

fn package(set: &ClusterObjectSet, provides: Vec<GvkRef>) -> Option<InstalledPackage> {
    let bundle = revision::facts(set).bundle;
    Some(InstalledPackage {
        package: bundle.package.parse().ok()?,
        version: VersionRelease::parse(&bundle.version, bundle.release.as_deref()).ok()?,
        provides: Some(provides),
        properties: properties(set.annotations().get(annotations::PROPERTIES).map_or("", String::as_str)),
    })
}

/// The bundle's properties as its revision keeps them; what cannot be read says nothing.
fn properties(text: &str) -> Vec<Property> {
    let list: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    list.iter()
        .filter_map(|property| {
            Some(Property {
                kind: property["type"].as_str()?.into(),
                value: property["value"].to_string().into(),
            })
        })
        .collect()
}

/// Packages that could meet a need, of every catalog that can be asked in time. Nothing fails for it.
async fn offers(shell: &Shell, needed: &Needed) -> Vec<(CatalogName, Arc<PackageGraph>)> {
    let catalogs = shell.all_catalogs();
    let facts = olm_client::resolution::available(&catalogs);
    let asked = facts.iter().map(|facts| async move {
        let mut names: BTreeSet<PackageName> =
            needed.packages.iter().filter_map(|name| name.parse().ok()).collect();
        if let Ok(endpoint) = &facts.endpoint {
            match tokio::time::timeout(PATIENCE, shell.packages.providers(endpoint, &needed.apis)).await {
                Ok(Ok(found)) => names.extend(found),
                Ok(Err(problem)) => {
                    tracing::warn!(catalog = %facts.name, problem, "catalog does not say what it provides")
                }
                Err(_) => {
                    tracing::warn!(catalog = %facts.name, "catalog takes too long to say what it provides")
                }
            }
        }
        let one = std::slice::from_ref(facts);
        let graphs = names.iter().take(MOST_PROVIDERS).map(|name| shell.packages.sources(one, name, true));
        let all = tokio::time::timeout(PATIENCE, futures::future::join_all(graphs)).await.unwrap_or_default();
        let found = all.into_iter().flatten().filter_map(|source| Some((source.name, source.content.ok()?)));
        found.collect::<Vec<_>>()
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_served_versions_of_established_crds_count() {
        let crd = |established: &str| {
            json!({
                "spec": {"group": "g.io", "names": {"kind": "Foo"}, "versions": [
                    {"name": "v1", "served": true}, {"name": "v1alpha1", "served": false}, {"name": "v2", "served": true}]},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            })
        };
        assert_eq!(established_kinds(&crd("True")), [gvk("g.io", "v1", "Foo"), gvk("g.io", "v2", "Foo")]);
        assert_eq!(established_kinds(&crd("False")), []);
        assert_eq!(established_kinds(&json!({})), []);
    }

    #[test]
    fn properties_of_a_revision_are_read_leniently() {
        let found = properties(r#"[{"type":"a","value":{"x":1}},{"value":2},{"type":"b"}]"#);
        let found: Vec<_> = found.iter().map(|p| (&*p.kind, &*p.value)).collect();
        assert_eq!(found, [("a", "{\"x\":1}"), ("b", "null")]);
        assert!(properties("no json").is_empty());
    }
}
