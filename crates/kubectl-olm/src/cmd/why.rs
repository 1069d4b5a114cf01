//! `resolve` and `explain`: the chosen bundle, and the reasons against the others. The controller's own functions decide;
//! this module prepares their input and prints the result.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use olm_api::{ClusterExtension, condition};
use olm_catalog::Selector;
use olm_install::dependencies::DependencyCheck;
use olm_install::resolution::{
    self, BundleFacts, Class, DeprecationUpdate, ExtensionRequest, RevisionFacts, RevisionStates, Target,
    UpgradeUpdate, revision, validate,
};
use olm_resolver::{
    CatalogOutcome, CatalogSource, CatalogView, DeprecationState, PackageGraph, ReleaseField, ReportView,
    Resolution, Skipped,
};
use serde::Serialize;

use super::act::pause::is_paused;
use super::notices::{Choice, Notice};
use super::output::{Format, Output, Table, bad, bold, condition_message, full_message, indented, or_dash};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::{Controller, Sources, note_unknown_cluster};

/// Most candidates of a catalog in the default output.
const MAX_CANDIDATES: usize = 12;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl olm resolve argocd-operator\n  \
                  kubectl olm resolve argocd-operator --version '>=0.9.0 <1.0.0' --channel alpha\n  \
                  kubectl olm resolve argocd-operator --installed 0.9.1 --policy SelfCertified\n  \
                  kubectl olm resolve my-operator --installed my-operator.v1.0.0 --dir ./catalog -o wide\n\n\
                  Exit codes: 0 a bundle is chosen, 1 none is, 2 bad input, 3 no answer.")]
pub(crate) struct Resolve {
    /// The package
    package: String,
    /// Only versions in this range, as spec.source.catalog.version has it
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Only bundles and edges of this channel; may be repeated
    #[arg(long)]
    channel: Vec<String>,
    /// Whether the catalog's upgrade edges bind
    #[arg(long, value_enum, default_value_t, alias = "upgrade-constraint-policy")]
    policy: Policy,
    /// What is installed: a bundle's name, its version, or NAME@VERSION for a bundle that no catalog has
    #[arg(long, value_name = "BUNDLE")]
    installed: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    sources: Sources,
}

/// `upgradeConstraintPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Only along edges of the catalog
    #[default]
    #[value(name = "CatalogProvided")]
    CatalogProvided,
    /// To any version that matches
    #[value(name = "SelfCertified")]
    SelfCertified,
}

impl Policy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::CatalogProvided => "CatalogProvided",
            Self::SelfCertified => "SelfCertified",
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl olm explain my-extension\n  kubectl olm explain my-extension -o wide\n  \
                  kubectl olm explain my-extension --image quay.io/example/catalog:next\n  \
                  kubectl olm explain -f extension.yaml --installed 1.0.0 --dir ./catalog\n\n\
                  Exit codes: 0 a bundle is chosen, 1 none is or no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Explain {
    /// The ClusterExtension in the cluster
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "CLUSTEREXTENSION")]
    name: Option<String>,
    /// A manifest of a ClusterExtension instead of one in the cluster; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// With --file, what is installed: a bundle's name, its version, or NAME@VERSION
    #[arg(long, value_name = "BUNDLE", requires = "file")]
    installed: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    sources: Sources,
}

/// The decision. `-o json` prints this.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explained {
    /// The ClusterExtension, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    extension: Option<ExtensionState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chosen: Option<Chosen>,
    /// Why none is chosen: the text of the `Progressing` condition.
    #[serde(rename = "refusal", skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// What the chosen bundle depends on: property and value. The controller checks it against the cluster before it installs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dependencies: Vec<String>,
    /// Dependencies that the cluster lacks: the controller rejects the bundle until they exist. Not checked for an image or a
    /// directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unmet: Option<String>,
    /// A bundle with a higher major version that is not installed by itself, and how to take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<String>,
    /// The bundle that skips the chosen one, and why it is not chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    /// A better bundle that the cluster does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unfit: Option<String>,
    /// What is remarkable about the choice: it goes down, has a new major version, is forced, or a higher version is held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notices: Vec<Notice>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) deprecations: Vec<String>,
    /// Catalogs that could not be read, and why.
    #[serde(skip)]
    pub(crate) unread: Vec<String>,
    /// Whether none is chosen because one of them has to be read first: that is no answer.
    #[serde(skip)]
    pub(crate) is_unanswered: bool,
    /// The candidates and the rules that decided. Absent if the request is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<ReportView>,
}

/// The state of the extension in the cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExtensionState {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    installed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progressing: Option<String>,
    paused: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chosen {
    pub(crate) bundle: String,
    pub(crate) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<String>,
    pub(crate) image: String,
    /// The catalog that has it; absent if no catalog is available and the installed bundle stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) catalog: Option<String>,
    pub(crate) why: String,
}

pub(crate) async fn resolve(arguments: &Resolve) -> Result<CommandOutput, CommandError> {
    let extension = asked(arguments)?;
    let installed = arguments.installed.as_deref();
    let explained =
        decide(&extension, None, installed, arguments.controller, &arguments.sources).await?.explained;
    output_of(&explained, arguments.output, |wide| text(&explained, wide.then_some(usize::MAX)))
}

pub(crate) async fn explain(arguments: &Explain) -> Result<CommandOutput, CommandError> {
    let explained = if let Some(file) = &arguments.file {
        let extension = extensions::from_file(file)?;
        decide(&extension, None, arguments.installed.as_deref(), arguments.controller, &arguments.sources)
            .await?
            .explained
    } else {
        let name = arguments.name.as_deref().unwrap_or_default();
        let (_, extension, revisions) = extensions::with_revisions(&arguments.sources.cluster, name).await?;
        let decided = decide(
            &extension,
            Some(revision::states(&revisions)),
            None,
            arguments.controller,
            &arguments.sources,
        )
        .await?;
        Explained { extension: Some(state_of(&extension)), ..decided.explained }
    };
    output_of(&explained, arguments.output, |wide| {
        text(&explained, Some(if wide { usize::MAX } else { MAX_CANDIDATES }))
    })
}

fn output_of(
    explained: &Explained,
    output: Output,
    people: impl FnOnce(bool) -> String,
) -> Result<CommandOutput, CommandError> {
    let names = || explained.chosen.iter().map(|chosen| chosen.bundle.clone()).collect();
    let text = output.print(explained, names, people);
    // the only form that has no place for it
    if let (Format::Name, Some(error)) = (output.format, &explained.error) {
        print_note(&format!("error: {error}"));
    }
    match explained.is_unanswered {
        true => Err(CommandError::unanswered(text)),
        false => Ok(CommandOutput { text, yes: explained.chosen.is_some() }),
    }
}

fn asked(arguments: &Resolve) -> Result<ClusterExtension, CommandError> {
    let policy = arguments.policy.as_str();
    let value = serde_json::json!({
        "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "question"},
        "spec": {"namespace": "question", "source": {"sourceType": "Catalog", "catalog": {
            "packageName": arguments.package, "version": arguments.version.clone().unwrap_or_default(),
            "channels": arguments.channel, "upgradeConstraintPolicy": policy,
        }}},
    });
    serde_json::from_value(value).map_err(|error| CommandError::Usage(error.to_string()))
}

/// The decision, for output and as values for further steps.
pub(crate) struct Decided {
    pub(crate) explained: Explained,
    /// The request, if it is valid.
    pub(crate) request: Option<ExtensionRequest>,
    /// The bundle that is to be installed.
    pub(crate) target: Option<Target>,
    /// The resolution; absent if no catalog is available and the installed bundle stays.
    pub(crate) resolution: Option<Resolution>,
}

/// Resolves the extension as the controller does.
pub(crate) async fn decide(
    extension: &ClusterExtension,
    states: Option<RevisionStates>,
    installed: Option<&str>,
    controller: Controller,
    sources: &Sources,
) -> Result<Decided, CommandError> {
    let mut request = match validate(extension) {
        Ok(request) => request,
        // an invalid argument is a usage error; an invalid extension in the cluster is a result
        Err(failure) if states.is_none() => return Err(CommandError::Usage(failure.message)),
        Err(failure) => {
            let explained = Explained { error: Some(failure.message), ..Explained::default() };
            return Ok(Decided { explained, request: None, target: None, resolution: None });
        }
    };
    let reader = sources.open().await?;
    if sources.is_local() {
        // only catalogs of a cluster have labels
        request.selector = Selector::default();
    }
    let catalogs = reader.select(&request.selector);
    let content = reader.sources(&catalogs, &request.package, ReleaseField::Counts).await;
    let states = match (states, installed) {
        (Some(states), _) => states,
        (None, None) => RevisionStates::default(),
        (None, Some(text)) => present(text, request.package.as_str(), &content)?,
    };
    let settings = controller.resolution(sources).await;
    let graphs = content.iter().filter_map(|source| source.content.as_deref().ok());
    note_unknown_cluster(&settings.environment, graphs);
    let unread = content.iter().filter_map(|source| {
        let error = source.content.as_ref().err()?;
        Some(error.describe(&source.name, &request.package))
    });
    let unread = unread.collect();
    let resolved = resolution::resolve(&request, &states, &content, &settings);
    let dependencies = resolved.chosen.as_ref().map(dependencies).unwrap_or_default();
    let view = resolved.report.as_ref().map(olm_resolver::Report::view);
    let target = resolved.target.as_ref().ok().cloned();
    let is_unanswered = resolved.target.as_ref().is_err_and(|failure| failure.class == Class::Transient);
    let (chosen, error) = match resolved.target {
        Ok(Target::Installed(bundle)) => {
            let why = match states.installed {
                _ if content.iter().any(|source| source.content.is_ok()) => {
                    "no catalog that may have it could be read, so its rollout continues"
                }
                Some(_) => "no catalog could be read, so the installed bundle stays",
                None => "no catalog could be read, so its rollout continues; nothing is installed yet",
            };
            (Some(chosen(bundle, None, why.to_owned())), None)
        }
        Ok(Target::Chosen(bundle)) => {
            let from = resolved.report.as_ref().and_then(|report| {
                report.catalogs.iter().position(|catalog| catalog.outcome == CatalogOutcome::Chosen)
            });
            let from = from.and_then(|at| view.as_ref()?.catalogs.get(at));
            let why = from.and_then(|catalog| catalog.candidates.iter().find(|candidate| candidate.kept));
            let why = why.map(|candidate| candidate.why.clone()).unwrap_or_default();
            (Some(chosen(bundle, from.map(|catalog| catalog.name.clone()), why)), None)
        }
        Err(failure) => (None, Some(failure.message)),
    };
    let is_enforced =
        !matches!(request.dependency_check, Some(DependencyCheck::Warn | DependencyCheck::Ignore));
    let unmet = match &resolved.chosen {
        Some(chosen) if !dependencies.is_empty() && !sources.is_local() && is_enforced => {
            unmet(chosen, &request, sources).await
        }
        _ => None,
    };
    let UpgradeUpdate { held, unfit, .. } = &resolved.upgrade;
    let (held, unfit) = (held.as_ref().map(ToString::to_string), unfit.as_ref().map(ToString::to_string));
    let facts = (resolved.chosen.as_ref(), target.as_ref().map(Target::bundle));
    let choice = Choice::new((&request, &states), &content, &settings, facts, &resolved.upgrade);
    let explained = Explained {
        extension: None,
        notices: choice.notices(),
        chosen,
        error,
        dependencies,
        unmet,
        skipped: resolved.chosen.as_ref().and_then(|chosen| {
            let skipped = Skipped::find(chosen, &request.channels, request.range.as_ref())?;
            Some(skipped.to_string())
        }),
        held,
        unfit,
        deprecations: deprecations(&resolved.deprecations),
        unread,
        is_unanswered,
        report: view,
    };
    Ok(Decided { explained, request: Some(request), target, resolution: resolved.chosen })
}

/// The error message of the controller about dependencies that the cluster lacks. Prints a notice to standard error if the
/// cluster cannot be read.
async fn unmet(chosen: &Resolution, request: &ExtensionRequest, sources: &Sources) -> Option<String> {
    let judged = async {
        let client = sources.cluster.client().await?;
        let revisions = extensions::revisions(&client, None).await?;
        let needed = olm_resolver::needed(&chosen.graph, chosen.index);
        let facts = olm_install::dependencies::facts(&client, &revisions, &request.name, &needed);
        let facts = facts.await.map_err(|failure| CommandError::Unreachable(failure.message))?;
        let report = olm_resolver::dependencies(&chosen.graph, chosen.index, &facts, &[]);
        Ok::<_, CommandError>(report.error_message(chosen.graph.bundle_name(chosen.index)))
    };
    judged.await.unwrap_or_else(|failure| {
        print_note(&format!("dependencies were not checked: {failure}"));
        None
    })
}

fn chosen(bundle: BundleFacts, catalog: Option<String>, why: String) -> Chosen {
    let BundleFacts { name, version, release, reference, .. } = bundle;
    Chosen { bundle: name, version, release, image: reference, catalog, why }
}

/// The installed bundle: found by name or version in the catalogs, or given in full.
fn present(text: &str, package: &str, sources: &[CatalogSource]) -> Result<RevisionStates, CommandError> {
    let graphs = || sources.iter().filter_map(|source| source.content.as_ref().ok());
    let by = |graph: &Arc<PackageGraph>| {
        let version = |bundle| {
            graph.version(bundle).ok().map(|version| (version.version.to_string(), version.to_string()))
        };
        let found = graph.find_bundle(text).or_else(|| {
            graph
                .bundles()
                .find(|bundle| version(*bundle).is_some_and(|(short, long)| short == text || long == text))
        })?;
        let version = graph.version(found).ok()?;
        Some(BundleFacts {
            name: graph.bundle_name(found).to_owned(),
            package: package.to_owned(),
            version: version.version.to_string(),
            release: version.release.as_ref().map(ToString::to_string),
            reference: graph.image(found).to_owned(),
        })
    };
    let given = || {
        let (name, version) = text.split_once('@')?;
        let (name, version) = (name.to_owned(), version.to_owned());
        Some(BundleFacts { name, package: package.to_owned(), version, ..BundleFacts::default() })
    };
    let bundle = graphs().find_map(by).or_else(given).ok_or_else(|| {
        CommandError::Usage(format!(
            "no catalog has a bundle or version {text:?} of {package}; write NAME@VERSION for one that no catalog has"
        ))
    })?;
    let revision = RevisionFacts { name: String::new(), number: 1, bundle, conditions: Vec::new() };
    Ok(RevisionStates { installed: Some(revision), ..RevisionStates::default() })
}

fn dependencies(chosen: &Resolution) -> Vec<String> {
    let declares =
        |kind: &str| matches!(kind, "olm.package.required" | "olm.gvk.required" | "olm.constraint");
    let properties = chosen.graph.properties(chosen.index).iter();
    let declared = properties.filter(|property| declares(&property.kind));
    declared.map(|property| format!("{} {}", property.kind, property.value)).collect()
}

fn deprecations(update: &DeprecationUpdate) -> Vec<String> {
    let DeprecationUpdate::Found(found) = update else { return Vec::new() };
    let scopes =
        [("package", &found.package), ("channel", &found.channel), ("installed bundle", &found.bundle)];
    scopes
        .into_iter()
        .filter_map(|(what, state)| {
            let DeprecationState::Deprecated(text) = state else { return None };
            Some(format!("{what}: {text}"))
        })
        .collect()
}

fn state_of(extension: &ClusterExtension) -> ExtensionState {
    let describe = |type_: &str| {
        extensions::condition_of(extension, type_)
            .map(|found| format!("{}/{}: {}", found.status.as_str(), found.reason, found.message))
    };
    let installed = extension.status.as_ref().and_then(|status| status.install.as_ref());
    ExtensionState {
        name: extension.metadata.name.clone().unwrap_or_default(),
        installed: installed.map(|install| install.bundle.name.clone()),
        ready: describe(condition::READY),
        progressing: describe(condition::PROGRESSING),
        paused: is_paused(extension),
    }
}

/// The state of a condition for people; `state` and `progressing` are status, reason and message as in [`ExtensionState`].
fn stated(type_: &str, state: &str, progressing: &str) -> String {
    let (_, progressing) = progressing.split_once(": ").unwrap_or_default();
    match state.split_once(": ") {
        Some((head, message)) => format!("{head}: {}", condition_message(type_, message, progressing)),
        None => state.to_owned(),
    }
}

/// The text output; `candidates` bounds how many of each catalog are shown, `None` shows none.
fn text(explained: &Explained, candidates: Option<usize>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let value = indented(value, &" ".repeat(14));
            text.push_str(&format!("{:<13} {value}\n", format!("{name}:")));
        }
    };
    if let Some(extension) = &explained.extension {
        line("Extension", &extension.name);
        line("Installed", &or_dash(extension.installed.as_deref().unwrap_or_default()));
        let progressing = extension.progressing.as_deref().unwrap_or_default();
        line("Ready", &stated(condition::READY, extension.ready.as_deref().unwrap_or_default(), progressing));
        line("Progressing", &stated(condition::PROGRESSING, progressing, progressing));
        if extension.paused {
            line("Paused", &format!("yes; `kubectl olm resume {}` ends that", extension.name));
        }
    }
    if let Some(report) = &explained.report {
        let mut requested = report.package.clone();
        if let Some(range) = &report.range {
            requested.push_str(&format!(", version {range}"));
        }
        if !report.channels.is_empty() {
            requested.push_str(&format!(", channels {}", report.channels.join(", ")));
        }
        line("Requested", &format!("{requested}, {}", report.policy));
        if let Some(installed) = &report.installed {
            line("From", installed);
        }
    }
    match (&explained.chosen, &explained.error) {
        (Some(chosen), _) => {
            line("Chosen", &format!("{} {}", chosen.bundle, chosen.version));
            line("Because", &chosen.why);
            line("Catalog", chosen.catalog.as_deref().unwrap_or_default());
            line("Image", &chosen.image);
        }
        (None, error) => line("Refused", &bad(full_message(error.as_deref().unwrap_or_default()))),
    }
    for needed in &explained.dependencies {
        line("Depends on", needed);
    }
    if let Some(unmet) = &explained.unmet {
        line("Missing", &bad(unmet));
    }
    for notice in &explained.notices {
        line(notice.kind.label(), &notice.text);
    }
    line("Skipped", explained.skipped.as_deref().unwrap_or_default());
    for deprecation in &explained.deprecations {
        line("Deprecated", deprecation);
    }
    let Some(report) = &explained.report else { return text };
    let is_in_error = |text: &str| explained.error.as_ref().is_some_and(|error| error.contains(text));
    for miss in report.nearest_misses.iter().filter(|miss| !is_in_error(&miss.text)) {
        let of = if miss.catalog.is_empty() { String::new() } else { format!(" (catalog {})", miss.catalog) };
        line("Not chosen", &format!("{}{of}", miss.text));
    }
    if let Some(path) = report.upgrade_path.as_ref().filter(|path| path.len() > 1) {
        let steps: Vec<String> =
            path.iter().map(|step| format!("{} ({} in {})", step.version, step.by, step.channel)).collect();
        line("Path", &steps.join(" -> "));
    }
    if let Some(most) = candidates {
        report.catalogs.iter().for_each(|catalog| text.push_str(&catalog_text(catalog, most)));
    }
    text
}

fn catalog_text(catalog: &CatalogView, most: usize) -> String {
    let mut text = format!(
        "\n{}\n",
        bold(&format!("Catalog {} (priority {}): {}", catalog.name, catalog.priority, catalog.outcome))
    );
    let mut table = Table::new(["", "VERSION", "BUNDLE", "RULE", "WHY"]);
    for candidate in catalog.candidates.iter().take(most) {
        let deprecated = if candidate.deprecated { " (deprecated)" } else { "" };
        table.row([
            (if candidate.kept { "*" } else { "" }).to_owned(),
            or_dash(candidate.version.as_deref().unwrap_or_default()),
            format!("{}{deprecated}", candidate.bundle),
            candidate.rule.to_owned(),
            candidate.why.clone(),
        ]);
    }
    text.push_str(&table.text("  "));
    let more = catalog.candidates.len().saturating_sub(most);
    if more > 0 {
        text.push_str(&format!("  … {more} more; -o wide shows all\n"));
    }
    for finding in &catalog.findings {
        text.push_str(&format!("  {} {finding}\n", bad("finding:")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explain_names_the_command_that_resumes() {
        let paused = |value: &str| {
            let extension: ClusterExtension = serde_json::from_value(serde_json::json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
                "metadata": {"name": "x", "annotations": {olm_api::annotations::PAUSED: value}},
                "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
            }))
            .unwrap();
            let explained = Explained { extension: Some(state_of(&extension)), ..Explained::default() };
            text(&explained, None)
        };
        assert!(paused("true").contains("yes; `kubectl olm resume x` ends that"), "{}", paused("true"));
        assert!(!paused("false").contains("Paused"), "{}", paused("false"));
    }

    #[test]
    fn explain_indents_lines_of_conditions() {
        let extension = ExtensionState {
            name: "x".to_owned(),
            installed: None,
            ready: Some("False/Retrying: cannot upgrade".to_owned()),
            progressing: Some("True/Retrying: cannot upgrade\ndetail".to_owned()),
            paused: false,
        };
        let explained = Explained {
            extension: Some(extension),
            error: Some("no bundle\nfor x".to_owned()),
            ..Explained::default()
        };
        assert_eq!(
            text(&explained, None),
            "Extension:    x\nInstalled:    -\nReady:        False/Retrying: as Progressing\n\
             Progressing:  True/Retrying: cannot upgrade\n              detail\n\
             Refused:      no bundle\n              for x\n"
        );
    }
}
