//! `list`: the ClusterExtensions of the cluster, how they are, and what they could be upgraded to.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use futures::StreamExt as _;
use kube::{Client, ResourceExt as _};
use olm_api::cluster_extension::UpgradeConstraintPolicy;
use olm_api::{ClusterExtension, ClusterObjectSet, condition, reason};
use olm_catalog::{CatalogReader, Selector};
use olm_core::PackageName;
use olm_install::resolution::{self, ExtensionRequest, revision, validate};
use olm_resolver::{CatalogSource, Ineligible, ReleaseField, Rules};
use serde::Serialize;

use super::act::pause::is_paused;
use super::notices;
use super::output::{Output, Table, bad, counted, or_dash};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::{Controller, Sources};
use crate::watch;

#[derive(Debug, Args)]
#[command(
    after_help = "AVAILABLE is the highest version that the catalog's upgrade edges reach if spec.source.catalog.version allows it; \
                  - means that there is nothing newer, ? that no catalog could be read.\n\n\
                  Examples:\n  kubectl olm list\n  kubectl olm list -o wide\n  kubectl olm list -o json\n\n\
                  Exit codes: 0 listed (also when there are none), 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// Print what changes from now on, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Args)]
#[command(
    after_help = "AVAILABLE is the highest version that can follow the installed one; WHY NOT is the reason why it is not installed yet, and how to \
                  install it. `kubectl olm upgrade --outdated` does that for all.\n\n\
                  Examples:\n  kubectl olm outdated\n  kubectl olm outdated -o name\n\n\
                  Exit codes: 0 listed (also when there are none), 2 bad input, 3 no answer."
)]
pub(crate) struct Outdated {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    sources: Sources,
}

/// Packages that are read at the same time.
const READS: usize = 8;

/// One ClusterExtension. `-o json` prints a list of these.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) package: String,
    /// Namespace of the package's objects.
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<String>,
    /// The installed version with release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Catalogs that hold the installed bundle, the higher priority first.
    catalogs: Vec<String>,
    /// Status of the `Ready` condition: `True`, `False` or `Unknown`.
    ready: String,
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// The versions that the extension allows.
    #[serde(skip_serializing_if = "String::is_empty")]
    range: String,
    /// An upgrade, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<Available>,
    /// Whether the catalogs could be read.
    pub(crate) catalogs_read: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    /// Whether it is being uninstalled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// The message of the catalog for the deprecated package, channel or bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    deprecated: String,
}

/// A bundle that could follow the installed one.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Available {
    bundle: String,
    version: String,
    /// Whether the extension's range allows it, and it has no new major version that is held, so that it is installed automatically.
    allowed: bool,
    /// Why it is not installed automatically; a pause counts first.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<HeldBy>,
    /// Whether its major version is higher than the installed one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    new_major: bool,
}

/// What holds a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum HeldBy {
    Pause,
    Range,
    MajorVersion,
}

impl HeldBy {
    /// From the rule of the extension's request that the best bundle of all versions does not meet; it meets the others.
    fn from_rule(rule: Ineligible) -> Option<Self> {
        match rule {
            Ineligible::NoVersion | Ineligible::OutOfRange => Some(Self::Range),
            Ineligible::MajorVersionHeld => Some(Self::MajorVersion),
            Ineligible::NotInChannel | Ineligible::EnvironmentNotMet => None,
        }
    }
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let client = arguments.sources.cluster.client().await?;
    if arguments.watch {
        return watched(arguments, &client).await;
    }
    let listed = rows(&client, arguments.controller, &arguments.sources).await?;
    if listed.is_empty() {
        print_note("there are no ClusterExtensions; `kubectl olm search` lists what can be installed");
    }
    let names = || listed.iter().map(|row| row.name.clone()).collect();
    Ok(CommandOutput { text: arguments.output.print(&listed, names, |wide| table(&listed, wide)), yes: true })
}

/// The table, then each row that changes, and a row for each extension that is gone.
async fn watched(arguments: &Arguments, client: &Client) -> Result<CommandOutput, CommandError> {
    let printed = std::cell::RefCell::new(Vec::<String>::new());
    let rows_before = std::cell::RefCell::new(Vec::<Row>::new());
    let print = || async {
        let listed = rows(client, arguments.controller, &arguments.sources).await?;
        let names = || listed.iter().map(|row| row.name.clone()).collect();
        let people = |wide| {
            let gone = gone_rows(&rows_before.borrow(), &listed);
            columns(listed.iter().chain(&gone), wide)
        };
        let text = arguments.output.print(&listed, names, people);
        rows_before.replace(listed);
        let now: Vec<String> = text.lines().map(str::to_owned).collect();
        let before = printed.replace(now.clone());
        Ok(match arguments.output.is_for_people() {
            true => new_lines(&before, &now),
            false => (before != now).then_some(text),
        })
    };
    watch::follow(client, None, print).await
}

/// Rows that report the extensions that are no longer listed.
fn gone_rows(before: &[Row], now: &[Row]) -> Vec<Row> {
    let is_gone = |row: &&Row| now.iter().all(|other| other.name != row.name);
    let gone = before.iter().filter(is_gone).map(|row| Row {
        name: row.name.clone(),
        package: row.package.clone(),
        namespace: row.namespace.clone(),
        ready: "-".to_owned(),
        reason: "gone".to_owned(),
        catalogs_read: true,
        ..Row::default()
    });
    gone.collect()
}

/// The lines that the earlier text does not have; of a heading only the first one.
fn new_lines(before: &[String], now: &[String]) -> Option<String> {
    let is_first = before.is_empty();
    let fields = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let known: Vec<_> = before.iter().map(fields).collect();
    let skipped = usize::from(!is_first);
    let lines = now.iter().skip(skipped).filter(|line| !known.contains(&fields(line)));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    (!text.is_empty()).then_some(text)
}

/// All extensions, by name.
pub(crate) async fn rows(
    client: &Client,
    controller: Controller,
    sources: &Sources,
) -> Result<Vec<Row>, CommandError> {
    let (mut all, mut unread) =
        extensions::readable::<ClusterExtension>(client, "read ClusterExtensions").await?;
    all.sort_by_key(ClusterExtension::name_any);
    let (mut revisions, unread_revisions) =
        extensions::readable::<ClusterObjectSet>(client, "read ClusterObjectSets").await?;
    revisions.sort_by_key(|set| set.spec.revision);
    unread.extend(unread_revisions);
    extensions::print_passed_over(&unread);
    Ok(rows_of(&all, &revisions, controller, sources).await)
}

/// The rows of these extensions, in this order. That no catalog can be read is printed to standard error.
pub(crate) async fn rows_of(
    all: &[ClusterExtension],
    revisions: &[ClusterObjectSet],
    controller: Controller,
    sources: &Sources,
) -> Vec<Row> {
    // how extensions are does not depend on catalogs
    let reader = match sources.open().await {
        Ok(reader) => Some(reader),
        Err(failure) => {
            print_note(&format!("upgrades are not known: {failure}"));
            None
        }
    };
    let requests = all.iter().filter_map(|extension| validate(extension).ok());
    let content = Content {
        packages: read_packages(reader.as_ref(), requests.map(|request| request.package).collect()).await,
        reader,
        local: sources.is_local(),
        settings: controller.resolution(sources).await,
    };
    all.iter().map(|extension| row(extension, revisions, &content)).collect()
}

fn version_text(version: &str, release: Option<&str>) -> String {
    match release {
        Some(release) if !release.is_empty() => format!("{version}+{release}"),
        _ => version.to_owned(),
    }
}

impl Row {
    /// Whether a newer version could follow the installed one.
    pub(crate) fn is_outdated(&self) -> bool {
        self.available.is_some() && self.version.is_some()
    }

    /// The newer version, if it is held because of its major version.
    pub(crate) fn held_major(&self) -> Option<&str> {
        let is_held = |available: &&Available| matches!(available.held_by, Some(HeldBy::MajorVersion));
        self.available.as_ref().filter(is_held).map(|available| available.version.as_str())
    }

    /// The newer version, if its major version is higher than the installed one.
    pub(crate) fn new_major(&self) -> Option<&str> {
        self.available
            .as_ref()
            .filter(|available| available.new_major)
            .map(|available| available.version.as_str())
    }

    /// The range that admits the newer version and its updates, and no further major version; none if the present range admits it.
    pub(crate) fn newer_range(&self) -> Option<String> {
        let available = self.available.as_ref().filter(|available| !available.allowed)?;
        let version = available.version.split('+').next()?;
        Some(format!("^{version}"))
    }

    /// Why the newer version is not installed, and what to do.
    pub(crate) fn why_not(&self) -> String {
        let name = &self.name;
        let upgrade =
            || self.newer_range().map(|range| format!("`kubectl olm upgrade {name} --version '{range}'`"));
        match (&self.available, upgrade()) {
            _ if self.paused => format!("paused; `kubectl olm resume {name}`"),
            (Some(available), Some(upgrade)) if !available.allowed && self.range.is_empty() => {
                format!("a new major version is held; {upgrade}")
            }
            (Some(available), Some(upgrade)) if !available.allowed => {
                let major = if available.new_major { ", a new major version" } else { "" };
                format!("not in range {}{major}; {upgrade}", self.range)
            }
            _ if self.ready != "True" => format!("{}; `kubectl olm status {name}`", self.reason),
            _ => "it is being installed".to_owned(),
        }
    }
}

/// What all catalogs hold of each of these packages. They are read at the same time, so that a catalogd that gives no answer is waited for
/// once.
async fn read_packages(
    reader: Option<&CatalogReader>,
    packages: BTreeSet<PackageName>,
) -> BTreeMap<PackageName, Vec<CatalogSource>> {
    let Some(reader) = reader else { return BTreeMap::new() };
    let everything = reader.select(&Selector::default());
    let read = packages.into_iter().map(|package| {
        let everything = &everything;
        async move {
            let sources = reader.sources(everything, &package, ReleaseField::Counts).await;
            (package, sources)
        }
    });
    futures::stream::iter(read).buffer_unordered(READS).collect().await
}

struct Content {
    reader: Option<CatalogReader>,
    local: bool,
    settings: resolution::Settings,
    packages: BTreeMap<PackageName, Vec<CatalogSource>>,
}

impl Content {
    /// What the selected catalogs hold of the package.
    fn sources_of(&self, request: &ExtensionRequest) -> Vec<CatalogSource> {
        let Some(reader) = &self.reader else { return Vec::new() };
        let everything = Selector::default();
        let selected = reader.select(if self.local { &everything } else { &request.selector });
        let read = self.packages.get(&request.package).into_iter().flatten();
        read.filter(|source| selected.iter().any(|facts| facts.name == source.name)).cloned().collect()
    }
}

fn row(extension: &ClusterExtension, revisions: &[ClusterObjectSet], content: &Content) -> Row {
    let installed = extension.status.as_ref().and_then(|status| status.install.as_ref());
    let ready = extensions::condition_of(extension, condition::READY);
    let ready = ready.or_else(|| extensions::condition_of(extension, condition::INSTALLED));
    let catalog = extension.spec.source.catalog.as_ref();
    let text = |version: &str, release: &Option<String>| version_text(version, release.as_deref());
    let mut row = Row {
        name: extension.name_any(),
        package: catalog.map(|catalog| catalog.package_name.clone()).unwrap_or_default(),
        namespace: extension.spec.namespace.clone(),
        bundle: installed.map(|install| install.bundle.name.clone()),
        version: installed.map(|install| text(&install.bundle.version, &install.bundle.release)),
        catalogs: Vec::new(),
        ready: ready.map_or("Unknown", |found| found.status.as_str()).to_owned(),
        reason: ready.map(|found| found.reason.clone()).unwrap_or_default(),
        message: ready.map(|found| found.message.clone()).unwrap_or_default(),
        range: catalog.and_then(|catalog| catalog.version.clone()).unwrap_or_default(),
        available: None,
        catalogs_read: false,
        paused: is_paused(extension),
        deleted: extensions::is_deleted(extension),
        deprecated: deprecated(extension),
    };
    if row.deleted {
        row.reason = "Uninstalling".to_owned();
    }
    let Ok(request) = validate(extension) else { return row };
    let states = revision::states(extensions::revisions_of(extension, revisions));
    let mut sources = content.sources_of(&request);
    sources.sort_by_key(|source| std::cmp::Reverse(source.priority));
    row.catalogs_read = sources.iter().any(|source| source.content.is_ok());
    if let Some(bundle) = &row.bundle {
        let holds = |source: &&CatalogSource| {
            source.content.as_ref().is_ok_and(|graph| graph.find_bundle(bundle).is_some())
        };
        row.catalogs = sources.iter().filter(holds).map(|source| source.name.to_string()).collect();
    }
    let settings = &content.settings;
    if row.deleted {
        return row;
    }
    let now = states.installed.as_ref().and_then(|revision| notices::version_of(&revision.bundle));
    // `upgrade` sets the policy back, so only what the edges reach can be recommended
    let upgrade = ExtensionRequest { policy: UpgradeConstraintPolicy::CatalogProvided, ..request.clone() };
    let best = notices::best(&upgrade, &states, &sources, settings);
    if let Some((best, chosen)) = best.filter(|(_, chosen)| Some(&chosen.version) > now.as_ref()) {
        let own = resolution::resolve(&request, &states, &sources, settings).report;
        let rule = own.and_then(|own| Rules::new(&own.request, &chosen.graph).eligible(chosen.index).err());
        let held = rule.and_then(HeldBy::from_rule);
        row.available = Some(Available {
            version: text(&best.version, &best.release),
            bundle: best.name,
            allowed: held.is_none(),
            held_by: row.paused.then_some(HeldBy::Pause).or(held),
            new_major: now.is_some_and(|now| chosen.version.version.major() > now.version.major()),
        });
    }
    row
}

/// Prints how many extensions may be outdated because no catalog of theirs could be read, which is an error if that is so for all. Returns what
/// to print if no other one is outdated.
pub(crate) fn check_read(listed: &[Row]) -> Result<&'static str, CommandError> {
    let unknown = listed.iter().filter(|row| !row.catalogs_read).count();
    if unknown == 0 {
        return Ok("nothing is outdated");
    }
    let text = "no catalog is selected, or none could be read, for";
    let text = format!("{text} {}; `kubectl olm catalogs` lists them", counted(unknown, "ClusterExtension"));
    if unknown == listed.len() {
        return Err(CommandError::Unreachable(text));
    }
    print_note(&text);
    Ok("no other one is outdated")
}

pub(crate) async fn outdated(arguments: &Outdated) -> Result<CommandOutput, CommandError> {
    let client = arguments.sources.cluster.client().await?;
    let mut listed = rows(&client, arguments.controller, &arguments.sources).await?;
    let nothing = check_read(&listed)?;
    listed.retain(Row::is_outdated);
    if listed.is_empty() {
        print_note(nothing);
    }
    let names = || listed.iter().map(|row| row.name.clone()).collect();
    let text = arguments.output.print(&listed, names, |_| outdated_table(&listed));
    Ok(CommandOutput { text, yes: true })
}

fn outdated_table(listed: &[Row]) -> String {
    let mut table = Table::new(["NAME", "PACKAGE", "VERSION", "AVAILABLE", "WHY NOT"]);
    for row in listed {
        table.row([
            row.name.clone(),
            row.package.clone(),
            or_dash(row.version.as_deref().unwrap_or_default()),
            row.available.as_ref().map(|available| available.version.clone()).unwrap_or_default(),
            row.why_not(),
        ]);
    }
    table.text("")
}

fn table(listed: &[Row], wide: bool) -> String {
    let text = columns(listed, wide);
    let is_only_paused = |row: &Row| row.paused && row.reason == reason::PAUSED;
    let not_ready = || listed.iter().filter(|row| row.ready != "True");
    let paused = not_ready().filter(|row| is_only_paused(row)).count();
    let broken = not_ready().count() - paused;
    let summary = match (broken, paused) {
        (0, 0) => return text,
        (0, paused) => format!("{paused} paused"),
        (broken, paused) => {
            let paused = if paused == 0 { String::new() } else { format!(", {paused} paused") };
            let broken = format!("{broken} of {} not ready{paused}", listed.len());
            bad(&format!("{broken}; `kubectl olm status NAME` shows why"))
        }
    };
    format!("{text}\n{summary}\n")
}

/// The messages of the conditions about deprecation that are True.
fn deprecated(extension: &ClusterExtension) -> String {
    let kinds = [condition::PACKAGE_DEPRECATED, condition::CHANNEL_DEPRECATED, condition::BUNDLE_DEPRECATED];
    let found = kinds.into_iter().filter_map(|type_| extensions::condition_of(extension, type_));
    let found = found.filter(|found| found.status.as_str() == "True").map(|found| found.message.as_str());
    found.collect::<Vec<_>>().join("; ")
}

fn version_cell(row: &Row) -> String {
    let version = or_dash(row.version.as_deref().unwrap_or_default());
    if row.deprecated.is_empty() { version } else { format!("{version} (deprecated)") }
}

fn columns<'a>(listed: impl IntoIterator<Item = &'a Row>, wide: bool) -> String {
    let heads = ["NAME", "PACKAGE", "VERSION", "CATALOG", "READY", "REASON", "AVAILABLE"];
    let more = ["NAMESPACE", "RANGE", "BUNDLE", "DEPRECATED", "MESSAGE"].into_iter().filter(|_| wide);
    let mut table = Table::new(heads.into_iter().chain(more));
    for row in listed {
        let available = match &row.available {
            Some(available) if available.allowed => available.version.clone(),
            Some(available) if row.range.is_empty() => format!("{} (held)", available.version),
            Some(available) => format!("{} (not in range)", available.version),
            None if row.catalogs_read || row.deleted => "-".to_owned(),
            None => "?".to_owned(),
        };
        table.row([
            row.name.clone(),
            or_dash(&row.package),
            version_cell(row),
            or_dash(&row.catalogs.join(",")),
            row.ready.clone(),
            or_dash(&row.reason),
            available,
            row.namespace.clone(),
            or_dash(&row.range),
            or_dash(row.bundle.as_deref().unwrap_or_default()),
            or_dash(&row.deprecated),
            or_dash(&row.message),
        ]);
    }
    table.text("")
}

#[cfg(test)]
mod tests {
    use olm_api::annotations;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn list_watch_prints_changed_rows() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let first = lines("NAME   READY\na      True\nb      False");
        assert_eq!(new_lines(&[], &first).as_deref(), Some("NAME   READY\na      True\nb      False\n"));
        assert_eq!(new_lines(&first, &first), None);
        // a column that became wider changes no row
        let second = lines("NAME      READY\na         True\nb         True\nlonger    True");
        assert_eq!(new_lines(&first, &second).as_deref(), Some("b         True\nlonger    True\n"));
        assert_eq!(new_lines(&[], &[]), None);
    }

    #[test]
    fn list_watch_prints_extensions_that_are_gone() {
        let row = |name: &str| Row { name: name.to_owned(), package: "p".to_owned(), ..Row::default() };
        let (before, now) = ([row("a"), row("b")], [row("b"), row("c")]);
        let gone = gone_rows(&before, &now);
        let text = columns(&gone, false);
        let fields: Vec<&str> = text.lines().last().unwrap_or_default().split_whitespace().collect();
        assert_eq!(fields, ["a", "p", "-", "-", "-", "gone", "-"]);
        assert_eq!(gone_rows(&now, &now).len(), 0);
    }

    #[test]
    fn list_summary_counts_paused_extensions_apart() {
        let row = |ready: &str, reason: &str, paused| Row {
            name: "x".to_owned(),
            ready: ready.to_owned(),
            reason: reason.to_owned(),
            paused,
            ..Row::default()
        };
        let (ready, paused, broken) = (
            || row("True", "Succeeded", false),
            || row("False", "Paused", true),
            || row("False", "Retrying", false),
        );
        for (rows, want) in [
            (vec![ready(), ready()], None),
            (vec![ready(), paused()], Some("1 paused")),
            (vec![ready(), broken()], Some("1 of 2 not ready; `kubectl olm status NAME` shows why")),
            (
                vec![paused(), broken()],
                Some("1 of 2 not ready, 1 paused; `kubectl olm status NAME` shows why"),
            ),
        ] {
            let text = table(&rows, false);
            assert_eq!(text.split_once("\n\n").map(|(_, summary)| summary.trim_end()), want);
        }
    }

    /// An extension after a rollback, which set the policy SelfCertified, and one that was never installed.
    #[tokio::test]
    async fn outdated_is_what_upgrade_reaches() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = |version: &str| {
            json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": "example.com/p:v1",
                "properties": [{"type": "olm.package", "value": {"packageName": "p", "version": version}}]})
        };
        let entries = json!([{"name": "p.v1.0.0"}, {"name": "p.v1.1.0", "replaces": "p.v1.0.0"},
            {"name": "p.v2.0.0", "replaces": "p.v1.1.0"}]);
        let lines = [
            json!({"schema": "olm.package", "name": "p", "defaultChannel": "stable"}),
            json!({"schema": "olm.channel", "package": "p", "name": "stable", "entries": entries}),
            bundle("1.0.0"),
            bundle("1.1.0"),
            bundle("2.0.0"),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(dir.path().join("catalog.json"), text).unwrap();
        let reader = CatalogReader::directory(dir.path()).await.unwrap();
        let content = Content {
            packages: read_packages(Some(&reader), BTreeSet::from(["p".parse().unwrap()])).await,
            reader: Some(reader),
            local: true,
            settings: resolution::Settings { separate_release: true, ..resolution::Settings::default() },
        };
        let installed = json!({"bundle": {"name": "p.v1.0.0", "version": "1.0.0"}});
        let extension_with = |install: &Value, annotations: Value, catalog: Value| -> ClusterExtension {
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
                "metadata": {"name": "x", "uid": "u", "generation": 1, "annotations": annotations},
                "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": catalog}},
                "status": {"conditions": [], "install": install},
            }))
            .unwrap()
        };
        let extension = |install: &Value| {
            let catalog =
                json!({"packageName": "p", "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"});
            extension_with(install, json!({}), catalog)
        };
        let revision = |version: &str| -> ClusterObjectSet {
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
                "metadata": {"name": "x-1", "ownerReferences": [
                    {"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "x", "uid": "u"}],
                    "annotations": {annotations::BUNDLE_NAME: format!("p.v{version}"), annotations::BUNDLE_VERSION: version,
                        annotations::PACKAGE_NAME: "p"}},
                "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
                "status": {"conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap()
        };
        let outdated = row(&extension(&installed), &[revision("1.0.0")], &content);
        assert!(outdated.is_outdated(), "{outdated:?}");
        assert_eq!(outdated.available.as_ref().map(|available| available.version.as_str()), Some("1.1.0"));
        assert_eq!(outdated.newer_range().as_deref(), Some("^1.1.0"));
        let new = row(&extension(&Value::Null), &[], &content);
        assert!(new.available.is_some() && !new.is_outdated(), "{new:?}");
        // the next major version
        let installed = json!({"bundle": {"name": "p.v1.1.0", "version": "1.1.0"}});
        for (annotations, range, want) in [
            (json!({}), "", Some(HeldBy::MajorVersion)),
            (json!({annotations::MAJOR_UPDATES: "Automatic"}), "", None),
            (json!({}), "1.x", Some(HeldBy::Range)),
            (json!({}), ">=1.0.0", None),
            (json!({annotations::PAUSED: "true"}), "1.x", Some(HeldBy::Pause)),
        ] {
            let extension =
                extension_with(&installed, annotations, json!({"packageName": "p", "version": range}));
            let available = row(&extension, &[revision("1.1.0")], &content).available.unwrap();
            assert_eq!((available.held_by, available.version.as_str()), (want, "2.0.0"), "{range:?}");
        }
    }

    #[test]
    fn outdated_without_a_catalog_is_no_answer() {
        let row = |catalogs_read| Row { catalogs_read, ..Row::default() };
        for (read, want) in [
            (vec![], Ok("nothing is outdated")),
            (vec![true, true], Ok("nothing is outdated")),
            (vec![true, false], Ok("no other one is outdated")),
            (vec![false, false], Err(3)),
        ] {
            let rows: Vec<Row> = read.iter().copied().map(row).collect();
            assert_eq!(check_read(&rows).map_err(|failure| failure.code()), want, "{read:?}");
        }
    }

    #[test]
    fn outdated_prints_reason_and_remedy() {
        let row = |range: &str, allowed, ready: &str, paused| Row {
            name: "x".to_owned(),
            range: range.to_owned(),
            ready: ready.to_owned(),
            reason: "Retrying".to_owned(),
            available: Some(Available {
                bundle: "x.v2".to_owned(),
                version: "2.1.0+3".to_owned(),
                allowed,
                held_by: None,
                new_major: true,
            }),
            paused,
            ..Row::default()
        };
        let upgrade = "`kubectl olm upgrade x --version '^2.1.0'`";
        for (row, why, range) in [
            (
                row("1.x", false, "True", false),
                format!("not in range 1.x, a new major version; {upgrade}"),
                true,
            ),
            (row("", false, "True", false), format!("a new major version is held; {upgrade}"), true),
            (row("1.x", false, "True", true), "paused; `kubectl olm resume x`".to_owned(), true),
            (row("", true, "False", false), "Retrying; `kubectl olm status x`".to_owned(), false),
            (row("", true, "True", false), "it is being installed".to_owned(), false),
        ] {
            assert_eq!(row.why_not(), why);
            assert_eq!(row.newer_range().as_deref(), range.then_some("^2.1.0"), "{row:?}");
        }
    }
}
