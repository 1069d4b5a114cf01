//! The APIs that the cluster serves and the packages that extensions have installed, as far as a bundle depends on them.
//!
//! `olm_resolver::dependencies` decides whether they are enough. Rule: decision 25.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kube::api::ListParams;
use kube::discovery::Discovery;
use kube::{Api, Client, ResourceExt as _};
use olm_api::classic::ClusterServiceVersion;
use olm_api::{ClusterObjectSet, annotations, labels};
use olm_core::openshift::RECORDED_PROPERTIES;
use olm_core::{CatalogName, VersionRelease};
use olm_resolver::{
    DependencyFacts, DependencyReport, GvkRef, InstalledPackage, Needed, PackageGraph, Property, Resolution,
    Unmet, dependencies_of_installed, needed_by,
};
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::watched::Received;
use serde_json::Value;

use crate::preflight::crds;
use crate::resolution::{BundleFacts, Class, PassError, RevisionStates, revision};
use crate::work;

/// ClusterServiceVersions of one page.
const MAX_CSVS: u32 = 50;
/// CRDs of a required group that are read.
const MAX_CRDS: usize = 64;

/// What a missing dependency leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DependencyCheck {
    /// The bundle is rejected until its dependencies are met.
    #[default]
    Enforce,
    /// An event names what is missing, and the bundle is installed.
    Warn,
    /// Nothing is checked.
    Ignore,
    /// A bundle that declares any dependency is rejected, as the reference does.
    Refuse,
}

/// A text that is no value of [`DependencyCheck`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of Enforce, Warn, Ignore and Refuse")]
pub struct UnknownDependencyCheck(String);

impl fmt::Display for DependencyCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Enforce => "Enforce",
            Self::Warn => "Warn",
            Self::Ignore => "Ignore",
            Self::Refuse => "Refuse",
        })
    }
}

impl FromStr for DependencyCheck {
    type Err = UnknownDependencyCheck;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Enforce, Self::Warn, Self::Ignore, Self::Refuse]
            .into_iter()
            .find(|value| value.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownDependencyCheck(text.to_owned()))
    }
}

/// Whether the dependencies of `chosen` have to be checked: not those of a bundle that is installed or rolling out.
#[must_use]
pub fn are_due(chosen: &Resolution, bundle: &BundleFacts, states: &RevisionStates) -> bool {
    let present = states.newest().is_some_and(|newest| newest.bundle.is_same(bundle));
    !present && chosen.graph.first_dependency(chosen.index).is_some()
}

/// Checks what `chosen` needs, on a thread of its own if that is much. `offers` as for `olm_resolver::dependencies`.
///
/// # Errors
/// When it takes too long.
pub async fn check(
    chosen: &Resolution,
    facts: &Arc<DependencyFacts>,
    offers: Vec<(CatalogName, Arc<PackageGraph>)>,
) -> Result<DependencyReport, PassError> {
    let (graph, bundle, facts) = (Arc::clone(&chosen.graph), chosen.index, Arc::clone(facts));
    let size = graph.properties(bundle).iter().map(|property| property.value.len()).sum();
    work::run("checking its dependencies", size, move |_| {
        let offers: Vec<(CatalogName, &PackageGraph)> =
            offers.iter().map(|(catalog, graph)| (catalog.clone(), &**graph)).collect();
        olm_resolver::dependencies(&graph, bundle, &facts, &offers)
    })
    .await
}

/// APIs and installed packages, as far as they matter for `needed`.
///
/// `revisions` are those of all extensions; what the extension `except` provides does not count.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn facts<'a>(
    client: &Client,
    revisions: impl IntoIterator<Item = &'a ClusterObjectSet>,
    except: &str,
    needed: &Needed,
) -> Result<DependencyFacts, PassError> {
    let Found { apis, mut extensions, classic } = read(client, revisions, needed).await?;
    extensions.remove(except);
    Ok(DependencyFacts { apis, installed: extensions.into_values().chain(classic).collect() })
}

/// What other extensions need and lack once the extension `gone` is uninstalled. Only needs in the properties that their revisions record
/// are considered: those of `dependencies.yaml` and of the CSV are in catalogs alone.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn dependents(
    client: &Client,
    revisions: &[ClusterObjectSet],
    gone: &str,
) -> Result<BTreeMap<String, Vec<Unmet>>, PassError> {
    let others = installed(revisions).into_iter().filter(|(extension, _)| extension != gone);
    let mut packages = BTreeSet::new();
    let mut is_any = false;
    for (_, set) in others {
        let needed = needed_by(&revision_properties(set));
        is_any |= needed != Needed::default();
        packages.extend(needed.packages);
    }
    if !is_any {
        return Ok(BTreeMap::new());
    }
    // without APIs: those that discovery does not list yet are no reason to read CRDs
    let found = read(client, revisions, &Needed { packages, ..Needed::default() }).await?;
    Ok(found.unmet_without(gone))
}

/// APIs and installed packages, before anything is left out.
#[derive(Debug)]
struct Found {
    apis: BTreeSet<GvkRef>,
    /// By the name of the extension.
    extensions: BTreeMap<String, InstalledPackage>,
    /// Packages of OLM Classic.
    classic: Vec<InstalledPackage>,
}

impl Found {
    /// Needs of the other extensions that are met now, and are not without `gone` and the APIs of its CRDs.
    fn unmet_without(&self, gone: &str) -> BTreeMap<String, Vec<Unmet>> {
        let provided = self.extensions.get(gone).and_then(|bundle| bundle.provides.as_deref());
        let is_left = |api: &&GvkRef| provided.is_none_or(|provided| !provided.contains(api));
        let installed = |without: Option<&str>| {
            let extensions = self.extensions.iter().filter(move |(name, _)| Some(name.as_str()) != without);
            extensions.map(|(_, bundle)| bundle).chain(&self.classic).cloned().collect()
        };
        let before = DependencyFacts { apis: self.apis.clone(), installed: installed(None) };
        let after = DependencyFacts {
            apis: self.apis.iter().filter(is_left).cloned().collect(),
            installed: installed(Some(gone)),
        };
        let others = self.extensions.iter().filter(|(name, _)| *name != gone);
        let unmet = others.map(|(name, bundle)| {
            let now = dependencies_of_installed(bundle, &before).unmet;
            let mut then = dependencies_of_installed(bundle, &after).unmet;
            then.retain(|need| !now.contains(need));
            (name.clone(), then)
        });
        unmet.filter(|(_, then)| !then.is_empty()).collect()
    }
}

async fn read<'a>(
    client: &Client,
    revisions: impl IntoIterator<Item = &'a ClusterObjectSet>,
    needed: &Needed,
) -> Result<Found, PassError> {
    let failed = |what: &str, error: &kube::Error| {
        PassError::new(
            Class::Transient,
            format!("checking dependencies: {what}: {}", olm_runtime::apply::message(error)),
        )
    };
    let discovery = Discovery::new(client.clone())
        .run_aggregated()
        .await
        .map_err(|error| failed("asking the cluster for its APIs", &error))?;
    let served = served_kinds(&discovery);
    let mut apis: BTreeSet<GvkRef> = served.values().flatten().cloned().collect();
    let missing: Vec<&GvkRef> = needed.apis.iter().filter(|api| !apis.contains(*api)).collect();
    if !missing.is_empty() {
        // the list of APIs follows CRDs with a delay
        let established =
            established(client, &missing).await.map_err(|error| failed("reading CRDs", &error))?;
        apis.extend(established);
    }
    let owned = owned_crds(client).await.map_err(|error| failed("listing the CRDs of extensions", &error))?;
    let extensions = installed(revisions)
        .into_iter()
        .filter_map(|(extension, set)| {
            let provides = owned.get(&extension).into_iter().flatten().filter_map(|name| served.get(name));
            let bundle = package(set, provides.flatten().cloned().collect())?;
            Some((extension, bundle))
        })
        .collect();
    let classic = if !needed.packages.is_empty() && discovery.has_group(olm_api::classic::GROUP) {
        of_classic(client).await.map_err(|error| failed("listing ClusterServiceVersions", &error))?
    } else {
        Vec::new()
    };
    Ok(Found { apis, extensions, classic })
}

/// The packages that OLM Classic has installed: of ClusterServiceVersions that are Succeeded, without copies and without those that do not
/// fit their type. None for a user who may not list them.
async fn of_classic(client: &Client) -> Result<Vec<InstalledPackage>, kube::Error> {
    let csvs: Api<Received<ClusterServiceVersion>> = Api::all(client.clone());
    let mut params = ListParams::default().labels("!olm.copiedFrom").limit(MAX_CSVS);
    let mut packages = Vec::new();
    loop {
        let page = match csvs.list(&params).await {
            Err(error) if classify(&error) == ErrorClass::Forbidden => return Ok(packages),
            answer => answer?,
        };
        packages.extend(page.items.iter().filter_map(|csv| csv_package(csv.0.as_ref().ok()?)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(packages),
        }
    }
}

/// The name of the package of a ClusterServiceVersion, as its plan recorded it.
pub fn recorded_package(csv: &impl kube::ResourceExt) -> Option<String> {
    package_property(&recorded_properties(csv)?)?["packageName"].as_str().map(str::to_owned)
}

fn recorded_properties(csv: &impl kube::ResourceExt) -> Option<Vec<Property>> {
    let recorded: Value = serde_json::from_str(csv.annotations().get(RECORDED_PROPERTIES)?).ok()?;
    Some(properties(&recorded["properties"].to_string()))
}

fn package_property(properties: &[Property]) -> Option<Value> {
    let package = properties.iter().find(|property| &*property.kind == "olm.package")?;
    serde_json::from_str(&package.value).ok()
}

/// The package of a ClusterServiceVersion that is Succeeded, from the properties that its plan recorded; `None` if it has none.
fn csv_package(csv: &ClusterServiceVersion) -> Option<InstalledPackage> {
    csv.status.as_ref().filter(|status| status.phase == "Succeeded")?;
    let properties = recorded_properties(csv)?;
    let package = package_property(&properties)?;
    Some(InstalledPackage {
        package: package["packageName"].as_str()?.parse().ok()?,
        version: VersionRelease::parse(package["version"].as_str()?, None).ok()?,
        // the served APIs are read from discovery
        provides: None,
        properties,
    })
}

/// Served kinds by name of the resource (`<plural>.<group>`).
fn served_kinds(discovery: &Discovery) -> BTreeMap<String, Vec<GvkRef>> {
    let mut all: BTreeMap<String, Vec<GvkRef>> = BTreeMap::new();
    for group in discovery.groups() {
        for version in group.versions() {
            for (resource, _) in group.versioned_resources(version) {
                let name = format!("{}.{}", resource.plural, resource.group);
                let kind = gvk(&resource.group, &resource.version, &resource.kind);
                all.entry(name).or_default().push(kind);
            }
        }
    }
    all
}

fn gvk(group: &str, version: &str, kind: &str) -> GvkRef {
    GvkRef { group: group.into(), version: version.into(), kind: kind.into() }
}

/// APIs of established CRDs in the groups of `missing`.
async fn established(client: &Client, missing: &[&GvkRef]) -> Result<Vec<GvkRef>, kube::Error> {
    let api = crds(client);
    let in_question = |name: &str| {
        name.split_once('.').is_some_and(|(_, group)| missing.iter().any(|api| &*api.group == group))
    };
    let names: Vec<String> = api
        .list_metadata(&ListParams::default())
        .await?
        .iter()
        .map(|crd| crd.name_any())
        .filter(|name| in_question(name))
        .take(MAX_CRDS)
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
async fn owned_crds(client: &Client) -> Result<BTreeMap<String, Vec<String>>, kube::Error> {
    let ours = format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_CLUSTER_EXTENSION);
    let mut owned: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for crd in crds(client).list_metadata(&ListParams::default().labels(&ours)).await? {
        if let Some(owner) = crd.labels().get(labels::OWNER_NAME) {
            owned.entry(owner.clone()).or_default().push(crd.name_any());
        }
    }
    Ok(owned)
}

/// The installed revision of each extension.
fn installed<'a>(
    revisions: impl IntoIterator<Item = &'a ClusterObjectSet>,
) -> BTreeMap<String, &'a ClusterObjectSet> {
    let mut newest: BTreeMap<String, &ClusterObjectSet> = BTreeMap::new();
    for set in revisions {
        let Some(owner) = set.labels().get(labels::OWNER_NAME) else { continue };
        let newer = newest.get(owner).is_none_or(|known| known.spec.revision < set.spec.revision);
        if newer && revision::is_active(set) && revision::has_succeeded(set) {
            newest.insert(owner.clone(), set);
        }
    }
    newest
}

fn package(set: &ClusterObjectSet, provides: Vec<GvkRef>) -> Option<InstalledPackage> {
    let bundle = revision::facts(set).bundle;
    Some(InstalledPackage {
        package: bundle.package.parse().ok()?,
        version: VersionRelease::parse(&bundle.version, bundle.release.as_deref()).ok()?,
        provides: Some(provides),
        properties: revision_properties(set),
    })
}

/// The bundle's properties as recorded in its revision; unreadable ones are ignored.
fn revision_properties(set: &ClusterObjectSet) -> Vec<Property> {
    properties(set.annotations().get(annotations::PROPERTIES).map_or("", String::as_str))
}

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

#[cfg(test)]
mod tests {
    use olm_runtime::testing;
    use serde_json::json;

    use super::*;

    #[test]
    fn dependencies_count_served_versions_of_established_crds() {
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
    fn dependents_lack_what_only_the_removed_one_provides() {
        let foo = gvk("g.io", "v1", "Foo");
        let bundle = |package: &str, provides: &[GvkRef], needs: &str| InstalledPackage {
            package: package.parse().unwrap(),
            version: VersionRelease::parse("1.2.0", None).unwrap(),
            provides: Some(provides.to_vec()),
            properties: properties(needs),
        };
        let of_package =
            r#"[{"type":"olm.package.required","value":{"packageName":"blue","versionRange":">=1.0.0"}}]"#;
        let of_api = r#"[{"type":"olm.gvk.required","value":{"group":"g.io","version":"v1","kind":"Foo"}}]"#;
        let of_another =
            r#"[{"type":"olm.package.required","value":{"packageName":"green","versionRange":">=1.0.0"}}]"#;
        let mut found = Found {
            apis: BTreeSet::from([foo.clone()]),
            extensions: [
                ("blue", bundle("blue", std::slice::from_ref(&foo), "[]")),
                ("by-package", bundle("a", &[], of_package)),
                ("by-api", bundle("b", &[], of_api)),
                // it lacks that with and without blue
                ("other", bundle("c", &[], of_another)),
                ("itself", bundle("d", std::slice::from_ref(&foo), of_api)),
            ]
            .map(|(name, bundle)| (name.to_owned(), bundle))
            .into(),
            classic: Vec::new(),
        };
        let names =
            |found: &Found, gone: &str| -> Vec<String> { found.unmet_without(gone).into_keys().collect() };
        assert_eq!(names(&found, "by-api"), [""; 0]);
        // another extension has a CRD with that API
        assert_eq!(names(&found, "blue"), ["by-package"]);
        found.extensions.remove("itself");
        assert_eq!(names(&found, "blue"), ["by-api", "by-package"]);
        found.classic.push(bundle("blue", &[], "[]"));
        assert_eq!(names(&found, "blue"), ["by-api"]);
    }

    #[test]
    fn dependencies_see_succeeded_packages_of_classic() {
        let csv = |phase: &str, properties: &str| -> ClusterServiceVersion {
            let value = json!({
                "metadata": {"name": "blue.v1.2.0", "namespace": "ns", "annotations": {RECORDED_PROPERTIES: properties}},
                "spec": {"displayName": "blue", "install": {"strategy": "deployment"}}, "status": {"phase": phase},
            });
            serde_json::from_value(value).unwrap()
        };
        let recorded =
            r#"{"properties":[{"type":"olm.package","value":{"packageName":"blue","version":"1.2.0"}}]}"#;
        let found = csv_package(&csv("Succeeded", recorded)).unwrap();
        assert_eq!((found.package.to_string().as_str(), found.provides), ("blue", None));
        assert_eq!(found.version, VersionRelease::parse("1.2.0", None).unwrap());
        for (phase, properties) in [("Installing", recorded), ("Succeeded", "{}"), ("Succeeded", "no json")] {
            assert!(csv_package(&csv(phase, properties)).is_none(), "{phase} {properties}");
        }
    }

    #[tokio::test]
    async fn dependencies_pass_over_csvs_that_cannot_be_read() {
        let client = testing::client(|_| async {
            let csv = |name: &str, install: Value| {
                let recorded = format!(
                    r#"{{"properties":[{{"type":"olm.package","value":{{"packageName":"{name}","version":"1.2.0"}}}}]}}"#
                );
                json!({
                    "metadata": {"name": name, "namespace": "ns", "annotations": {RECORDED_PROPERTIES: recorded}},
                    "spec": {"displayName": name, "install": install}, "status": {"phase": "Succeeded"},
                })
            };
            let items =
                json!([csv("red", json!("deployment")), csv("blue", json!({"strategy": "deployment"}))]);
            (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
        });
        let found = of_classic(&client).await.unwrap();
        let names: Vec<String> = found.iter().map(|it| it.package.to_string()).collect();
        assert_eq!(names, ["blue"]);
    }

    #[test]
    fn dependencies_read_properties_leniently() {
        let found = properties(r#"[{"type":"a","value":{"x":1}},{"value":2},{"type":"b"}]"#);
        let found: Vec<_> = found.iter().map(|p| (&*p.kind, &*p.value)).collect();
        assert_eq!(found, [("a", "{\"x\":1}"), ("b", "null")]);
        assert!(properties("no json").is_empty());
    }
}
