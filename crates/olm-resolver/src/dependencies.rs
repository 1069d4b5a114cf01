//! Whether what a bundle depends on is there: a check over facts, never an installation.
//!
//! Rule: decision 25, with the meaning of constraints from update-graph §7.2. A need is met when the cluster serves the
//! API, or when one installed bundle, or the bundle itself, satisfies the whole of it.

use std::cell::Cell;
use std::collections::BTreeSet;

use olm_core::{CatalogName, PackageName, Range, VersionRelease, go};
use serde_json::{Value, json};

use crate::constraint::{self, Constraint, Facts, Need, WARN_CONSTRAINT, cel};
use crate::graph::{BundleIndex, GvkRef, PackageGraph, Property};

/// Steps that the constraints of one bundle may take: those of their CEL rules, and entries looked at. The search for packages that
/// provide what is missing has as many.
const MAX_STEPS: usize = 10_000_000;
/// Steps for each byte of a constraint that is read: it may have patterns to compile.
const READING: usize = 50;

/// What is left of [`MAX_STEPS`].
struct Work(Cell<usize>);

impl Work {
    fn new() -> Self {
        Self(Cell::new(MAX_STEPS))
    }

    /// Takes so many steps; `false` if fewer are left, and then none are.
    fn take(&self, steps: usize) -> bool {
        let left = self.0.get().checked_sub(steps);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }

    fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    /// Reads a property that declares a need which decision 25 checks; labels are known to OLM Classic alone.
    fn read(&self, property: &Property) -> Option<Result<Need, String>> {
        match &*property.kind {
            "olm.label.required" => None,
            "olm.constraint" if !self.take(property.value.len() * READING) => None,
            _ => constraint::read(property),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct DependencyFacts {
    /// APIs that the cluster serves, from whatever source.
    pub apis: BTreeSet<GvkRef>,
    pub installed: Vec<InstalledPackage>,
}

#[derive(Debug, Clone)]
pub struct InstalledPackage {
    pub package: PackageName,
    pub version: VersionRelease,
    /// APIs that the bundle provides; `None` if that is not known, then the cluster's APIs stand in.
    pub provides: Option<Vec<GvkRef>>,
    /// Further properties of the bundle, for constraints that look at them.
    pub properties: Vec<Property>,
}

/// A package that would meet a need.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Provider {
    pub package: String,
    pub catalog: String,
    /// The best version that meets the need.
    pub version: String,
}

/// A need that is not met, or that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// Type of the property that declares it.
    pub property: String,
    /// The need in words, or what is wrong with it.
    pub need: String,
    /// The author's message, if there is one.
    pub message: Option<String>,
    /// Packages that would meet it, by name and catalog.
    pub providers: Vec<Provider>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DependencyReport {
    /// Needs that are not met, in the order of the properties.
    pub unmet: Vec<Unmet>,
    /// Things that work but should not be relied on.
    pub warnings: Vec<String>,
}

impl DependencyReport {
    /// The error message: what is missing, and the bundles that provide it. `None` if nothing is missing.
    pub fn error_message(&self, bundle: &str) -> Option<String> {
        if self.unmet.is_empty() {
            return None;
        }
        let texts: Vec<String> = self.unmet.iter().map(Unmet::describe).collect();
        Some(format!("bundle {} has dependencies that are not met: {}", go::quote(bundle), texts.join("; ")))
    }
}

impl Unmet {
    /// The need in words, with the packages that would meet it.
    pub fn describe(&self) -> String {
        let mut text = self.need.clone();
        if let Some(message) = &self.message {
            text = format!("{message} ({text})");
        }
        match self.providers.as_slice() {
            [] => text,
            providers => {
                let names: Vec<String> = providers
                    .iter()
                    .take(3)
                    .map(|Provider { package, catalog, version }| {
                        format!("{package} {version} of catalog {catalog}")
                    })
                    .collect();
                format!("{text}, provided by {}", names.join(", "))
            }
        }
    }
}

/// What the needs of a bundle speak of: where to look for facts and for providers, and what to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needed {
    /// APIs that occur in them, negated ones too.
    pub apis: BTreeSet<GvkRef>,
    pub packages: BTreeSet<String>,
    /// Whether one of them does not name what it looks for (a CEL rule).
    pub opaque: bool,
}

/// What the needs of a bundle speak of. Needs that cannot be understood are left out, and those above the limit of work.
#[must_use]
pub fn needed(graph: &PackageGraph, bundle: BundleIndex) -> Needed {
    needed_by(graph.properties(bundle))
}

/// As [`needed`], for the properties of a bundle.
#[must_use]
pub fn needed_by(properties: &[Property]) -> Needed {
    let mut needed = Needed::default();
    let work = Work::new();
    for need in properties.iter().filter_map(|property| work.read(property)?.ok()) {
        needed.add(&need.constraint);
    }
    needed
}

impl Needed {
    fn add(&mut self, constraint: &Constraint) {
        match constraint {
            Constraint::Gvk(gvk) => {
                self.apis.insert(gvk.clone());
            }
            Constraint::Package { name, .. } => {
                self.packages.insert(name.clone());
            }
            Constraint::All(parts) | Constraint::Any(parts) | Constraint::Not(parts) => {
                parts.iter().for_each(|part| self.add(part));
            }
            Constraint::Cel(..) => self.opaque = true,
            Constraint::Label(_) => {}
        }
    }
}

/// One who may satisfy a need.
struct Candidate<'a> {
    package: Option<&'a str>,
    version: Option<&'a VersionRelease>,
    provides: Option<&'a [GvkRef]>,
    properties: &'a [Property],
    /// Stands in for `provides` when that is not known.
    apis: &'a BTreeSet<GvkRef>,
    work: &'a Work,
}

/// Checks what a bundle needs. `catalogs` are the packages that could be installed instead of what is missing; they
/// are looked at only if something is.
pub fn dependencies(
    graph: &PackageGraph,
    bundle: BundleIndex,
    facts: &DependencyFacts,
    catalogs: &[(CatalogName, &PackageGraph)],
) -> DependencyReport {
    let (nothing, work) = (BTreeSet::new(), Work::new());
    check(of_bundle(graph, bundle, &nothing, &work), facts, catalogs)
}

/// Checks what an installed bundle needs.
pub fn dependencies_of_installed(bundle: &InstalledPackage, facts: &DependencyFacts) -> DependencyReport {
    let (nothing, work) = (BTreeSet::new(), Work::new());
    check(of_installed(bundle, &nothing, &work), facts, &[])
}

fn check<'a>(
    own: Candidate<'a>,
    facts: &'a DependencyFacts,
    catalogs: &[(CatalogName, &PackageGraph)],
) -> DependencyReport {
    let (properties, work, offers) = (own.properties, own.work, Work::new());
    let cluster =
        Candidate { package: None, version: None, provides: None, properties: &[], apis: &facts.apis, work };
    let installed = facts.installed.iter().map(|installed| of_installed(installed, &facts.apis, work));
    let there: Vec<Candidate<'_>> = [own, cluster].into_iter().chain(installed).collect();
    let mut report = DependencyReport::default();
    for property in properties {
        let read = work.read(property);
        let is_met = |need: &Need| there.iter().any(|candidate| need.constraint.holds_for(candidate));
        let is_met = read.as_ref().is_some_and(|read| read.as_ref().is_ok_and(is_met));
        // then it is not known
        if work.is_spent() {
            report.unmet.push(too_much_work(property));
            break;
        }
        let Some(read) = read else { continue };
        if &*property.kind == "olm.constraint" && property.value.len() > WARN_CONSTRAINT {
            report.warnings.push(format!(
                "an olm.constraint of {} bytes is larger than the documented {WARN_CONSTRAINT}",
                property.value.len()
            ));
        }
        let unmet = match read {
            Err(problem) => Some((problem, None, Vec::new())),
            Ok(_) if is_met => None,
            Ok(need) => {
                let providers = providers(&need, catalogs, &offers);
                Some((need.constraint.describe(), need.message, providers))
            }
        };
        if let Some((need, message, providers)) = unmet {
            report.unmet.push(Unmet { property: property.kind.to_string(), need, message, providers });
        }
    }
    report
}

fn too_much_work(property: &Property) -> Unmet {
    let need = format!(
        "its constraints take more work than the limit of {MAX_STEPS} steps; the bundle must have fewer or simpler ones"
    );
    Unmet { property: property.kind.to_string(), need, message: None, providers: Vec::new() }
}

/// The best bundle of each package that meets a need, as far as the limit of work allows. The parts of `all` may come from several.
fn providers(need: &Need, catalogs: &[(CatalogName, &PackageGraph)], work: &Work) -> Vec<Provider> {
    let nothing = BTreeSet::new();
    let mut found: Vec<Provider> = catalogs
        .iter()
        .filter_map(|(catalog, graph)| {
            let bundle = graph
                .preference()
                .iter()
                .take_while(|_| !work.is_spent())
                .find(|&&bundle| need.constraint.holds_for(&of_bundle(graph, bundle, &nothing, work)))
                .filter(|_| !work.is_spent())?;
            Some(Provider {
                package: graph.package().to_owned(),
                catalog: catalog.to_string(),
                version: graph.version(*bundle).map(ToString::to_string).unwrap_or_default(),
            })
        })
        .collect();
    found.sort();
    found
}

fn of_bundle<'a>(
    graph: &'a PackageGraph,
    bundle: BundleIndex,
    nothing: &'a BTreeSet<GvkRef>,
    work: &'a Work,
) -> Candidate<'a> {
    Candidate {
        package: Some(graph.package()),
        version: graph.version(bundle).ok(),
        provides: Some(graph.provides(bundle)),
        properties: graph.properties(bundle),
        apis: nothing,
        work,
    }
}

fn of_installed<'a>(
    installed: &'a InstalledPackage,
    apis: &'a BTreeSet<GvkRef>,
    work: &'a Work,
) -> Candidate<'a> {
    Candidate {
        package: Some(installed.package.as_str()),
        version: Some(&installed.version),
        provides: installed.provides.as_deref(),
        properties: &installed.properties,
        apis,
        work,
    }
}

impl Facts for Candidate<'_> {
    fn provides(&self, gvk: &GvkRef) -> bool {
        match self.provides {
            Some(provides) => self.work.take(provides.len()) && provides.contains(gvk),
            None => self.work.take(1) && self.apis.contains(gvk),
        }
    }

    fn is_of(&self, package: &str, range: &Range) -> bool {
        self.work.take(1)
            && self.package == Some(package)
            && self.version.is_some_and(|version| range.contains(&version.version))
    }

    /// Labels are no dependencies here.
    fn has_label(&self, _: &str) -> bool {
        true
    }

    fn meets(&self, rule: &cel::Rule) -> bool {
        let bytes: usize = self.properties.iter().map(|property| property.value.len()).sum();
        let seen = bytes / 16 + self.properties.len() + self.provides.map_or(0, <[_]>::len);
        if self.package.is_none() || !self.work.take(seen) {
            return false;
        }
        let (is_true, steps) = rule.evaluate(&self.seen_by_rules());
        self.work.take(steps) && is_true
    }
}

impl Candidate<'_> {
    /// All properties, those included that a graph keeps in another form.
    fn seen_by_rules(&self) -> Vec<(&str, Value)> {
        let package = self.package.zip(self.version).map(|(package, version)| {
            ("olm.package", json!({"packageName": package, "version": version.to_string()}))
        });
        let provided = self.provides.unwrap_or_default().iter().map(|gvk| {
            ("olm.gvk", json!({"group": &*gvk.group, "version": &*gvk.version, "kind": &*gvk.kind}))
        });
        let others = self
            .properties
            .iter()
            .map(|property| (&*property.kind, serde_json::from_str(&property.value).unwrap_or(Value::Null)));
        package.into_iter().chain(provided).chain(others).collect()
    }
}
