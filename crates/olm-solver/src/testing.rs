//! Cases for this resolver as lines of JSON, in the format of the recorded answers of OLM Classic: for tests, benches and the example
//! `cases`.
//!
//! [`generate`] makes such cases, [`oracle`] compares the answers with those of OLM Classic.

pub mod generate;
pub mod oracle;
pub(crate) mod plain;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use olm_resolver::{ChannelEntry, GvkRef, Property};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{
    BundleDraft, Catalog, CatalogSource, ChannelDraft, ErrorKind, InstalledCsv, Namespace, PackageDraft,
    Solution, SolveError, Subscription,
};

/// A namespace with the name of the case, and the recorded answer if there is one.
#[derive(Debug)]
pub struct Case {
    pub id: String,
    pub profile: String,
    pub tags: Vec<String>,
    pub namespace: Namespace,
    pub expect: Option<Value>,
}

impl Case {
    /// # Errors
    /// With what is no case about the line.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        let raw: RawCase<'_> = serde_json::from_str(line)?;
        let catalogs = raw.catalogs.into_iter().map(RawCatalog::into_source).collect();
        let namespace = Namespace {
            name: raw.namespace,
            global_namespace: (!raw.exclude_global).then_some(raw.global_namespace),
            fail_forward: raw.fail_forward,
            catalogs,
            subscriptions: raw
                .subscriptions
                .unwrap_or_default()
                .into_iter()
                .map(RawSubscription::into)
                .collect(),
            installed: raw.installed.unwrap_or_default().into_iter().map(RawInstalled::into).collect(),
        };
        Ok(Self {
            id: raw.id,
            profile: raw.profile,
            tags: raw.tags.unwrap_or_default(),
            namespace,
            expect: raw.expect,
        })
    }
}

/// The folder of the shared reference material: `$OLM_SHARED`, else `../shared` beside the repository.
#[expect(clippy::disallowed_methods, reason = "the one setting of tests")]
pub fn shared_material() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("OLM_SHARED").map_or_else(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

/// The recorded cases; without the shared material there are none, and that is printed.
#[expect(clippy::print_stdout, clippy::unwrap_used, reason = "a test that cannot read its cases fails")]
pub fn recorded_cases() -> Option<Vec<Case>> {
    let file = shared_material().map(|shared| shared.join("classic/solver/cases.jsonl.gz"));
    let Some(file) = file.filter(|file| file.is_file()) else {
        println!("SKIPPED: recorded resolutions of OLM Classic: no cases (set OLM_SHARED)");
        return None;
    };
    let lines = BufReader::new(GzDecoder::new(std::fs::File::open(file).unwrap())).lines();
    Some(lines.map(|line| Case::parse(&line.unwrap()).unwrap()).collect())
}

/// An answer in the format of the recorded ones.
pub fn render_answer(id: &str, result: &Result<Solution, SolveError>) -> Value {
    match result {
        Ok(solution) => {
            let bundles: Vec<Value> = solution
                .bundles
                .iter()
                .map(|it| {
                    json!({
                        "namespace": it.namespace, "catalog": it.catalog, "channel": it.channel, "name": it.name,
                        "package": it.package, "replaces": it.replaces,
                    })
                })
                .collect();
            json!({"id": id, "solution": bundles})
        }
        Err(error) => {
            let clauses: Vec<String> = match error {
                SolveError::Unsatisfiable(conflict) => {
                    conflict.clauses.iter().map(ToString::to_string).collect()
                }
                SolveError::Input(_) | SolveError::TooMuchWork { .. } => Vec::new(),
            };
            json!({"id": id, "error": error.to_string(), "kind": kind(error.kind()), "clauses": clauses})
        }
    }
}

/// What two answers must share: the bundles, or the kind of error.
pub fn agreement_key(answer: &Value) -> String {
    let Some(bundles) = answer["solution"].as_array() else {
        return answer["kind"].as_str().unwrap_or("no kind").to_owned();
    };
    let text = |bundle: &Value, member: &str| bundle[member].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<String> = bundles
        .iter()
        .map(|it| ["namespace", "catalog", "channel", "name"].map(|member| text(it, member)).join("/"))
        .collect();
    names.sort();
    names.dedup();
    format!("[{}]", names.join(", "))
}

fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unsatisfiable => "unsatisfiable",
        ErrorKind::Ambiguous => "ambiguous",
        ErrorKind::Other => "other",
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCase<'a> {
    id: String,
    #[serde(default)]
    profile: String,
    tags: Option<Vec<String>>,
    namespace: String,
    #[serde(default)]
    global_namespace: String,
    #[serde(default)]
    exclude_global: bool,
    #[serde(default)]
    fail_forward: bool,
    #[serde(borrow)]
    catalogs: Vec<RawCatalog<'a>>,
    subscriptions: Option<Vec<RawSubscription>>,
    #[serde(borrow)]
    installed: Option<Vec<RawInstalled<'a>>>,
    expect: Option<Value>,
}

#[derive(Deserialize)]
struct RawCatalog<'a> {
    name: String,
    namespace: String,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    unhealthy: bool,
    #[serde(borrow)]
    packages: Option<Vec<RawPackage<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPackage<'a> {
    name: String,
    #[serde(default)]
    default_channel: String,
    channels: Option<Vec<RawChannel>>,
    #[serde(borrow)]
    bundles: Option<Vec<RawBundle<'a>>>,
}

#[derive(Deserialize)]
struct RawChannel {
    name: String,
    entries: Option<Vec<RawEntry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry {
    name: String,
    #[serde(default)]
    replaces: String,
    skips: Option<Vec<String>>,
    #[serde(default)]
    skip_range: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBundle<'a> {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(borrow)]
    properties: Option<Vec<RawProperty<'a>>>,
    #[serde(borrow)]
    dependencies: Option<Vec<RawProperty<'a>>>,
    #[serde(rename = "providedAPIs")]
    provided_apis: Option<Vec<RawGvk>>,
    #[serde(rename = "requiredAPIs")]
    required_apis: Option<Vec<RawGvk>>,
}

#[derive(Deserialize)]
struct RawProperty<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawGvk {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSubscription {
    name: String,
    #[serde(default)]
    package: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    catalog: String,
    #[serde(default)]
    catalog_namespace: String,
    #[serde(default, rename = "startingCSV")]
    starting_csv: String,
    #[serde(default, rename = "installedCSV")]
    installed_csv: String,
}

#[derive(Deserialize)]
struct RawInstalled<'a> {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    replaces: String,
    #[serde(default)]
    phase: String,
    #[serde(default)]
    copied: bool,
    #[serde(borrow)]
    properties: Option<Vec<RawProperty<'a>>>,
    #[serde(rename = "providedAPIs")]
    provided_apis: Option<Vec<RawGvk>>,
    #[serde(rename = "requiredAPIs")]
    required_apis: Option<Vec<RawGvk>>,
}

fn list<Raw, Made>(raw: Option<Vec<Raw>>, make: fn(Raw) -> Made) -> Vec<Made> {
    raw.unwrap_or_default().into_iter().map(make).collect()
}

impl RawCatalog<'_> {
    fn into_source(self) -> CatalogSource {
        let content = match self.unhealthy {
            true => Err(format!(
                "no registry client established for catalogsource {}/{}",
                self.namespace, self.name
            )),
            false => Ok(Arc::new(Catalog::new(list(self.packages, RawPackage::into)))),
        };
        CatalogSource { name: self.name, namespace: self.namespace, priority: self.priority, content }
    }
}

impl From<RawPackage<'_>> for PackageDraft {
    fn from(raw: RawPackage<'_>) -> Self {
        let channel =
            |it: RawChannel| ChannelDraft { name: it.name, entries: list(it.entries, RawEntry::into) };
        Self {
            name: raw.name,
            default_channel: raw.default_channel,
            channels: list(raw.channels, channel),
            bundles: list(raw.bundles, RawBundle::into),
        }
    }
}

impl From<RawEntry> for ChannelEntry {
    fn from(raw: RawEntry) -> Self {
        Self {
            name: raw.name,
            replaces: raw.replaces,
            skips: raw.skips.unwrap_or_default(),
            skip_range: raw.skip_range,
        }
    }
}

impl From<RawBundle<'_>> for BundleDraft {
    fn from(raw: RawBundle<'_>) -> Self {
        Self {
            name: raw.name,
            version: raw.version,
            properties: list(raw.properties, RawProperty::into),
            dependencies: list(raw.dependencies, RawProperty::into),
            provided_apis: list(raw.provided_apis, RawGvk::into),
            required_apis: list(raw.required_apis, RawGvk::into),
        }
    }
}

impl From<RawProperty<'_>> for Property {
    fn from(raw: RawProperty<'_>) -> Self {
        Self { kind: raw.kind.into(), value: raw.value.map_or("null", RawValue::get).into() }
    }
}

impl From<RawGvk> for GvkRef {
    fn from(raw: RawGvk) -> Self {
        Self { group: raw.group.into(), version: raw.version.into(), kind: raw.kind.into() }
    }
}

impl From<RawSubscription> for Subscription {
    fn from(raw: RawSubscription) -> Self {
        Self {
            name: raw.name,
            package: raw.package,
            channel: raw.channel,
            catalog: raw.catalog,
            catalog_namespace: raw.catalog_namespace,
            starting_csv: raw.starting_csv,
            installed_csv: raw.installed_csv,
        }
    }
}

impl From<RawInstalled<'_>> for InstalledCsv {
    fn from(raw: RawInstalled<'_>) -> Self {
        Self {
            name: raw.name,
            version: raw.version,
            replaces: raw.replaces,
            phase: raw.phase,
            is_copied: raw.copied,
            properties: raw.properties.map(|properties| list(Some(properties), RawProperty::into)),
            provided_apis: list(raw.provided_apis, RawGvk::into),
            required_apis: list(raw.required_apis, RawGvk::into),
        }
    }
}
