//! From request and catalogs to the target bundle: the resolver's choice, or the installed bundle. Pure.
//!
//! Rules: operator-controller §4, decisions 5, 6 and 7.

use olm_api::cluster_extension::UpgradeConstraintPolicy;
use olm_core::{BundleName, VersionRelease};
use olm_resolver::{
    CatalogSource, Deprecations, Environment, Fallback, FallbackFacts, Held, Installed, MajorUpdates,
    Outcome, Policy, Report, Request, Resolution, ResolveError, Retry, UnfitBundle, deprecation_source,
    deprecations, fallback,
};

use super::error::{Class, PassError};
use super::request::ExtensionRequest;
use super::revision::{BundleFacts, RevisionStates};

/// The outcome of resolution.
#[derive(Debug)]
pub struct Resolved {
    /// The target bundle, or the error that there is none.
    pub target: Result<Target, PassError>,
    /// The resolver's choice, for the check of its dependencies.
    pub chosen: Option<Resolution>,
    pub deprecations: DeprecationUpdate,
    pub upgrade: UpgradeUpdate,
    /// Every candidate and the rule that accepted or rejected it.
    pub report: Option<Report>,
}

/// Deprecations of the package as one pass observed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeprecationUpdate {
    /// A readable catalog holds the package.
    Found(Deprecations),
    /// No catalog could be read in this pass, or perhaps not the one that has the installed bundle: earlier values stay.
    Unchanged,
    /// No selected catalog exists any more: earlier values are removed.
    Removed,
}

/// What would be chosen and is not, as one pass observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeUpdate {
    /// An upgrade that is not made by itself.
    pub held: Option<Held>,
    /// A bundle that the cluster does not fit.
    pub unfit: Option<UnfitBundle>,
    /// Whether all catalogs were read. If not, an earlier value stays, because the others may have its bundle.
    pub is_complete: bool,
    /// The request has a range, so an earlier value about a major version does not stay.
    pub has_range: bool,
}

impl UpgradeUpdate {
    /// Nothing better than the target.
    pub const NONE: Self = Self { held: None, unfit: None, is_complete: true, has_range: false };
    /// Nothing was asked.
    pub const UNCHANGED: Self = Self { held: None, unfit: None, is_complete: false, has_range: false };
}

/// Settings of the controller that a resolution depends on.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Gate BundleReleaseSupport.
    pub separate_release: bool,
    /// `--major-updates`, for extensions without the annotation.
    pub major_updates: MajorUpdates,
    /// `--environment-constraints`, and the cluster.
    pub environment: Environment,
}

/// The target bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Chosen from the catalogs.
    Chosen(BundleFacts),
    /// No catalog can be read, or not the one that has the bundle which is rolling out; the newest revision stays and is maintained.
    Installed(BundleFacts),
}

impl Target {
    #[must_use]
    pub fn bundle(&self) -> &BundleFacts {
        match self {
            Self::Chosen(bundle) | Self::Installed(bundle) => bundle,
        }
    }
}

/// Resolves `request` over `sources` (the selected, available catalogs).
#[must_use]
pub fn resolve(
    request: &ExtensionRequest,
    states: &RevisionStates,
    sources: &[CatalogSource],
    settings: &Settings,
) -> Resolved {
    let installed = match states.upgraded().map(|revision| recorded(&revision.bundle)).transpose() {
        Ok(installed) => installed,
        Err(error) => {
            return Resolved {
                target: Err(refused(&error)),
                chosen: None,
                deprecations: deprecation_update(request, states, sources, None, None),
                upgrade: UpgradeUpdate::UNCHANGED,
                report: None,
            };
        }
    };
    let mut question = Request {
        package: request.package.clone(),
        channels: request.channels.clone(),
        range: request.range.clone(),
        policy: match request.policy {
            UpgradeConstraintPolicy::CatalogProvided => Policy::CatalogProvided,
            UpgradeConstraintPolicy::SelfCertified => Policy::SelfCertified,
        },
        major_updates: request.major_updates.unwrap_or(settings.major_updates),
        environment: settings.environment.clone(),
        installed: installed.clone(),
    };
    let mut outcome = olm_resolver::resolve(&question, sources);
    if states.installed.is_none() && installed.is_some() {
        // replaced by the rolling one, or archived by hand, and then that one was chosen as for a first install
        let is_rolling = |outcome: &Outcome| {
            let chosen = outcome.result.as_ref().ok().map(|it| facts(it, settings.separate_release));
            chosen.is_some_and(|it| states.rolling.last().is_some_and(|rolling| rolling.bundle.is_same(&it)))
        };
        if !is_rolling(&outcome) {
            question.installed = None;
            let first = olm_resolver::resolve(&question, sources);
            if is_rolling(&first) {
                outcome = first;
            }
        }
    }
    let Outcome { result, report, held, unfit } = outcome;
    let is_complete = sources.iter().all(|source| source.content.is_ok());
    let upgrade = UpgradeUpdate { held, unfit, is_complete, has_range: question.range.is_some() };
    let deprecations = deprecation_update(request, states, sources, result.as_ref().ok(), installed.as_ref());
    let (target, chosen) = match result {
        Ok(resolution) => {
            let chosen = facts(&resolution, settings.separate_release);
            match rolling_out(request, states, sources, &resolution, &chosen) {
                Some(rolling) => (Ok(Target::Installed(rolling.clone())), None),
                None => (Ok(Target::Chosen(chosen)), Some(resolution)),
            }
        }
        Err(error) => {
            let newest = newest(request, states, sources).map(Target::Installed);
            (newest.ok_or_else(|| refused(&error)), None)
        }
    };
    Resolved { target, chosen, deprecations, upgrade, report: Some(report) }
}

/// The bundle that is rolling out, if only a catalog that cannot be read may have it, and that catalog could win: the bundle `chosen` from
/// the others supersedes it then only if it has a higher version (decision 9).
fn rolling_out<'a>(
    request: &ExtensionRequest,
    states: &'a RevisionStates,
    sources: &[CatalogSource],
    resolution: &Resolution,
    chosen: &BundleFacts,
) -> Option<&'a BundleFacts> {
    let rolling = &states.successor()?.bundle;
    let version = recorded(rolling).ok()?.version;
    let is_admitted = request.range.as_ref().is_none_or(|range| range.contains(&version.version));
    let has_it = |source: &CatalogSource| {
        source.content.as_ref().is_ok_and(|graph| graph.find_bundle(&rolling.name).is_some())
    };
    let priority = sources.iter().find(|source| source.name == resolution.catalog)?.priority;
    let could_win = |source: &CatalogSource| {
        source.content.is_err() && (source.priority >= priority || resolution.deprecated)
    };
    let is_lost = sources.iter().any(could_win) && !sources.iter().any(has_it);
    let stays = is_admitted && resolution.version <= version && !rolling.is_same(chosen);
    (is_lost && stays).then_some(rolling)
}

/// The bundle of the newest revision, if no catalog can be read and the range still includes it (decision 6).
fn newest(
    request: &ExtensionRequest,
    states: &RevisionStates,
    sources: &[CatalogSource],
) -> Option<BundleFacts> {
    let newest = states.newest()?;
    let present = recorded(&newest.bundle).ok()?;
    let facts = FallbackFacts {
        installed: Some(&present),
        range: request.range.as_ref(),
        readable_catalogs: sources.iter().filter(|source| source.content.is_ok()).count(),
    };
    match fallback(&facts) {
        Fallback::KeepInstalled => Some(newest.bundle.clone()),
        Fallback::Retry(_) => None,
    }
}

fn recorded(bundle: &BundleFacts) -> Result<Installed, ResolveError> {
    Installed::parse(&bundle.name, &bundle.version, bundle.release.as_deref())
}

/// The resolver's error as the error of the pass.
#[must_use]
pub fn refused(error: &ResolveError) -> PassError {
    let class = match error.retry() {
        Retry::OnChange => Class::NeedsChange,
        Retry::Backoff => Class::Transient,
    };
    PassError::new(class, error.condition_message())
}

fn facts(resolution: &Resolution, separate_release: bool) -> BundleFacts {
    let (version, release) = reported(&resolution.version, separate_release);
    BundleFacts {
        name: resolution.bundle.to_string(),
        package: resolution.package.to_string(),
        version,
        release,
        reference: resolution.image.clone(),
    }
}

/// Version and release as revisions and status hold them: with the gate apart, without it as build metadata of the version.
fn reported(found: &VersionRelease, separate_release: bool) -> (String, Option<String>) {
    if separate_release {
        (found.version.to_string(), found.release.as_ref().map(ToString::to_string))
    } else {
        (found.folded().to_string(), None)
    }
}

fn deprecation_update(
    request: &ExtensionRequest,
    states: &RevisionStates,
    sources: &[CatalogSource],
    chosen: Option<&Resolution>,
    upgraded: Option<&Installed>,
) -> DeprecationUpdate {
    let name = upgraded.map(|upgraded| &upgraded.name);
    // what an upgrade starts from is not installed any more once it is archived
    let installed = states.installed.as_ref();
    let installed = installed.and_then(|revision| revision.bundle.name.parse::<BundleName>().ok());
    let is_unread = sources.iter().any(|source| source.content.is_err());
    match deprecation_source(sources, chosen.map(|resolution| &resolution.catalog), upgraded) {
        // the catalog that has the installed bundle may be the one that cannot be read
        Some(graph)
            if is_unread
                && chosen.is_none()
                && name.is_some_and(|name| graph.find_bundle(name.as_str()).is_none()) =>
        {
            DeprecationUpdate::Unchanged
        }
        Some(graph) => {
            DeprecationUpdate::Found(deprecations(Some(graph), &request.channels, installed.as_ref()))
        }
        None if is_unread => DeprecationUpdate::Unchanged,
        None => DeprecationUpdate::Removed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_catalog::PackageContent;
    use olm_resolver::{CatalogReadError, DeprecationState, ReleaseField};
    use serde_json::json;

    use super::*;
    use crate::resolution::{RevisionFacts, validate};

    /// Three versions, each of which replaces the one before.
    fn source() -> CatalogSource {
        source_of(["1.0.0", "1.1.0", "1.2.0"])
    }

    fn source_of(versions: [&str; 3]) -> CatalogSource {
        let [first, second, third] = versions.map(|version| format!("demo.v{version}"));
        let entries = json!([{"name": first}, {"name": second, "replaces": first},
            {"name": third, "replaces": second}]);
        let mut lines = vec![
            json!({"schema": "olm.package", "name": "demo", "defaultChannel": "stable"}),
            json!({"schema": "olm.channel", "package": "demo", "name": "stable", "entries": entries}),
        ];
        lines.extend(versions.map(|version| {
            let value = json!({"packageName": "demo", "version": version});
            json!({"schema": "olm.bundle", "package": "demo", "name": format!("demo.v{version}"),
                "image": format!("r/demo:{version}"), "properties": [{"type": "olm.package", "value": value}]})
        }));
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let content = PackageContent::from_lines(&"demo".parse().unwrap(), lines.join("\n").as_bytes());
        let graph = content.unwrap().into_graph(ReleaseField::Counts);
        CatalogSource { name: "main".parse().unwrap(), priority: 0, content: Ok(Arc::new(graph)) }
    }

    fn request(catalog: serde_json::Value) -> ExtensionRequest {
        let extension = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "demo", "uid": "u1"},
            "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": catalog}},
        });
        validate(&serde_json::from_value(extension).unwrap()).unwrap()
    }

    fn revision(number: i64, version: &str) -> RevisionFacts {
        RevisionFacts {
            name: format!("demo-{number}"),
            number,
            bundle: BundleFacts {
                name: format!("demo.v{version}"),
                package: "demo".to_owned(),
                version: version.to_owned(),
                release: None,
                reference: String::new(),
            },
            conditions: Vec::new(),
        }
    }

    /// A catalog that cannot be read.
    fn away(priority: i32) -> CatalogSource {
        let content = Err(CatalogReadError::NotServing);
        CatalogSource { name: "away".parse().unwrap(), priority, content }
    }

    fn plain() -> serde_json::Value {
        json!({"packageName": "demo"})
    }

    fn ranged(range: &str) -> serde_json::Value {
        json!({"packageName": "demo", "version": range})
    }

    /// After a restart of a node, catalogs may not be served yet; what they had still holds.
    #[test]
    fn upgrade_stays_unknown_while_a_catalog_is_unreadable() {
        let states = RevisionStates { installed: Some(revision(1, "1.0.0")), ..RevisionStates::default() };
        let ranged_away = || UpgradeUpdate { has_range: true, ..UpgradeUpdate::UNCHANGED };
        let next_major = || source_of(["1.0.0", "2.0.0", "3.0.0"]);
        let held = resolve(&request(plain()), &states, &[next_major()], &Settings::default()).upgrade;
        assert!(held.held.is_some() && held.is_complete, "{held:?}");
        let held_away = UpgradeUpdate { is_complete: false, ..held };
        for (catalog, sources, want) in [
            (plain(), vec![source()], UpgradeUpdate::NONE),
            (plain(), vec![source(), away(0)], UpgradeUpdate::UNCHANGED),
            (plain(), vec![next_major(), away(0)], held_away),
            (ranged("1.x"), vec![source()], UpgradeUpdate { has_range: true, ..UpgradeUpdate::NONE }),
            (ranged("1.x"), vec![source(), away(0)], ranged_away()),
            (ranged("1.x"), vec![away(0)], ranged_away()),
        ] {
            let resolved = resolve(&request(catalog.clone()), &states, &sources, &Settings::default());
            assert_eq!(resolved.upgrade, want, "{catalog} {}", sources.len());
        }
    }

    /// decision 7: a transient error keeps the last values
    #[test]
    fn deprecations_stay_while_their_catalog_is_unreadable() {
        for (installed, sources, is_found) in [
            ("0.9.0", vec![source()], true),
            ("0.9.0", vec![source(), away(0)], false),
            ("1.2.0", vec![source(), away(0)], true),
            ("1.2.0", vec![away(0)], false),
        ] {
            let installed = Some(revision(1, installed));
            let states = RevisionStates { installed, ..RevisionStates::default() };
            let found = resolve(&request(plain()), &states, &sources, &Settings::default()).deprecations;
            let want = is_found != (found == DeprecationUpdate::Unchanged);
            assert!(want, "{:?} {}: {found:?}", states.installed, sources.len());
        }
    }

    /// rule: operator-controller §5.2
    #[test]
    fn deprecations_are_of_no_bundle_that_is_archived() {
        for (installed, replaced, want) in [
            (Some("1.0.0"), None, DeprecationState::NotDeprecated),
            (None, Some("1.0.0"), DeprecationState::Absent),
            (None, None, DeprecationState::Absent),
        ] {
            let states = RevisionStates {
                installed: installed.map(|version| revision(1, version)),
                replaced: replaced.map(|version| revision(1, version)),
                rolling: vec![revision(2, "1.1.0")],
                ..RevisionStates::default()
            };
            let update = resolve(&request(plain()), &states, &[source()], &Settings::default()).deprecations;
            let DeprecationUpdate::Found(found) = update else { panic!("{installed:?} {replaced:?}") };
            assert_eq!(found.bundle, want, "{installed:?} {replaced:?}");
        }
    }

    /// decision 9: what rolls out from a catalog that cannot be read now is superseded by no bundle of another one
    #[test]
    fn target_stays_while_the_catalog_of_a_rollout_is_unreadable() {
        for (case, catalog, rolling, sources, want) in [
            ("only the other one may have it", plain(), "1.3.0", vec![source(), away(0)], "1.3.0"),
            ("the other one could not win", plain(), "1.3.0", vec![source(), away(-1)], "1.1.0"),
            ("all are read", plain(), "1.3.0", vec![source()], "1.1.0"),
            ("the range asks for another one", ranged("<1.3.0"), "1.3.0", vec![source(), away(0)], "1.1.0"),
            ("one that is read has it", plain(), "1.2.0", vec![source(), away(0)], "1.1.0"),
            ("the choice is newer", plain(), "1.0.5", vec![source(), away(0)], "1.1.0"),
            ("it is the choice", plain(), "1.1.0", vec![source(), away(0)], "1.1.0"),
        ] {
            let states = RevisionStates {
                installed: Some(revision(1, "1.0.0")),
                rolling: vec![revision(2, rolling)],
                ..RevisionStates::default()
            };
            let resolved = resolve(&request(catalog), &states, &sources, &Settings::default());
            assert_eq!(resolved.target.as_ref().unwrap().bundle().version, want, "{case}");
            let is_chosen = matches!(resolved.target, Ok(Target::Chosen(_)));
            assert_eq!((is_chosen, resolved.chosen.is_some()), (want == "1.1.0", want == "1.1.0"), "{case}");
        }
    }

    /// rule: revisions §4.2: a revision that was archived by hand is followed by another, and by one only
    #[test]
    fn target_stays_while_an_archived_bundle_is_followed() {
        let request = request(json!({"packageName": "demo"}));
        for (archived, rolling, want) in [
            (None, None, Some("1.2.0")),
            // an upgrade
            (Some("1.0.0"), Some("1.1.0"), Some("1.1.0")),
            // archived by hand, and followed by the choice of a first install
            (Some("1.0.0"), Some("1.2.0"), Some("1.2.0")),
            (Some("0.1.0"), Some("1.2.0"), Some("1.2.0")),
            // the catalog does not have the one that is rolling any more
            (Some("1.0.0"), Some("1.3.0"), Some("1.1.0")),
            (Some("0.1.0"), Some("1.3.0"), None),
        ] {
            let states = RevisionStates {
                replaced: archived.map(|version| revision(1, version)),
                rolling: rolling.map(|version| revision(2, version)).into_iter().collect(),
                ..RevisionStates::default()
            };
            let target = resolve(&request, &states, &[source()], &Settings::default()).target;
            let version = target.map(|target| target.bundle().version.clone());
            assert_eq!(version.ok().as_deref(), want, "{archived:?} {rolling:?}");
        }
    }

    /// rule: operator-controller §4.11, case 52
    #[test]
    fn target_version_with_and_without_the_gate() {
        for (version, release, apart, together) in [
            ("1.0.0", Some("2"), ("1.0.0", Some("2")), "1.0.0+2"),
            ("1.0.0-rc.1", Some("a.1"), ("1.0.0-rc.1", Some("a.1")), "1.0.0-rc.1+a.1"),
            ("1.0.0+build", None, ("1.0.0", Some("build")), "1.0.0+build"),
            ("1.0.0+001", None, ("1.0.0+001", None), "1.0.0+001"),
            ("1.0.0", None, ("1.0.0", None), "1.0.0"),
        ] {
            let found = VersionRelease::parse(version, release).unwrap();
            let apart = (apart.0.to_owned(), apart.1.map(str::to_owned));
            assert_eq!(reported(&found, true), apart, "{version} {release:?}, gate on");
            assert_eq!(
                reported(&found, false),
                (together.to_owned(), None),
                "{version} {release:?}, gate off"
            );
        }
    }
}
