//! From wish and catalogs to the wanted bundle: the resolver's answer, or the bundle that is there already. Pure.
//!
//! Rules: operator-controller §4, decisions 5, 6 and 7.

use olm_api::cluster_extension::UpgradeConstraintPolicy;
use olm_core::VersionRelease;
use olm_resolver::{
    CatalogSource, Deprecations, Fallback, FallbackFacts, Installed, Outcome, Policy, Report, Request,
    Resolution, ResolveError, Retry, deprecation_source, deprecations, fallback, resolve,
};

use super::failure::{Class, Failure};
use super::revision::{BundleFacts, RevisionStates};
use super::wish::Wish;

/// What resolution came to.
#[derive(Debug)]
pub struct Resolved {
    /// The wanted bundle, or why there is none.
    pub wanted: Result<Wanted, Failure>,
    /// The resolver's choice, from which its dependencies can be looked up; they are not judged here.
    pub chosen: Option<Resolution>,
    /// What is known of deprecations.
    pub learnt: Learnt,
    /// Every candidate and the rule that kept or dropped it.
    pub report: Option<Report>,
}

/// What one pass learnt of the package's deprecations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Learnt {
    /// A readable catalog holds the package.
    Known(Deprecations),
    /// Nothing could be read in this pass: earlier values stay.
    Nothing,
    /// No selected catalog exists any more: nothing is known.
    Gone,
}

/// The wanted bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Chosen from the catalogs.
    Chosen(BundleFacts),
    /// No catalog could be asked; what is there stays and is maintained.
    Kept(BundleFacts),
}

impl Wanted {
    /// The bundle.
    #[must_use]
    pub fn bundle(&self) -> &BundleFacts {
        match self {
            Self::Chosen(bundle) | Self::Kept(bundle) => bundle,
        }
    }
}

/// Resolves `wish` over `sources` (the selected, available catalogs).
#[must_use]
pub fn wanted(
    wish: &Wish,
    states: &RevisionStates,
    sources: &[CatalogSource],
    separate_release: bool,
) -> Resolved {
    let installed = match states.installed.as_ref().map(|revision| recorded(&revision.bundle)).transpose() {
        Ok(installed) => installed,
        Err(error) => {
            let failure = refused(&error);
            return Resolved {
                wanted: Err(failure),
                chosen: None,
                learnt: learnt(wish, sources, None, None),
                report: None,
            };
        }
    };
    let request = Request {
        package: wish.package.clone(),
        channels: wish.channels.clone(),
        range: wish.range.clone(),
        policy: match wish.policy {
            UpgradeConstraintPolicy::CatalogProvided => Policy::CatalogProvided,
            UpgradeConstraintPolicy::SelfCertified => Policy::SelfCertified,
        },
        installed: installed.clone(),
    };
    let Outcome { result, report } = resolve(&request, sources);
    let learnt = learnt(wish, sources, result.as_ref().ok(), installed.as_ref());
    let wanted = match &result {
        Ok(resolution) => Ok(Wanted::Chosen(facts(resolution, separate_release))),
        Err(error) => keep(wish, states, sources).map(Wanted::Kept).ok_or_else(|| refused(error)),
    };
    Resolved { wanted, chosen: result.ok(), learnt, report: Some(report) }
}

/// The newest bundle on its way or installed, when no catalog can be asked and the range still holds (decision 6).
fn keep(wish: &Wish, states: &RevisionStates, sources: &[CatalogSource]) -> Option<BundleFacts> {
    let newest = states.newest()?;
    let present = recorded(&newest.bundle).ok()?;
    let facts = FallbackFacts {
        installed: Some(&present),
        range: wish.range.as_ref(),
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

/// The resolver's refusal as the end of a pass.
#[must_use]
pub fn refused(error: &ResolveError) -> Failure {
    let class = match error.retry() {
        Retry::OnChange => Class::NeedsChange,
        Retry::Backoff => Class::Transient,
    };
    Failure::new(class, error.condition_message())
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

fn learnt(
    wish: &Wish,
    sources: &[CatalogSource],
    chosen: Option<&Resolution>,
    installed: Option<&Installed>,
) -> Learnt {
    let name = installed.map(|installed| &installed.name);
    match deprecation_source(sources, chosen.map(|resolution| &resolution.catalog), installed) {
        Some(graph) => Learnt::Known(deprecations(Some(graph), &wish.channels, name)),
        None if sources.iter().any(|source| source.content.is_err()) => Learnt::Nothing,
        None => Learnt::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rule: operator-controller §4.11, case 52
    #[test]
    fn reported_version_with_and_without_the_gate() {
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
