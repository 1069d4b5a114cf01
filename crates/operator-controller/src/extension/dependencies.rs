//! What a chosen bundle depends on, asked before anything is written. Nothing is ever installed for it.
//!
//! The judgement is `olm_resolver::dependencies`'s, what it needs to know of the cluster `olm_install::dependencies`'s; this room
//! asks for both and, only when something is missing, which package of which catalog has it. A bundle that
//! is on its way or installed already is not asked again. Rule: decision 25.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use olm_core::{CatalogName, PackageName};
use olm_install::dependencies::facts;
use olm_install::resolution::{BundleFacts, Cause, Class, Failure, RevisionStates, Wish, refused};
use olm_resolver::{Needed, PackageGraph, Resolution, dependencies, needed};

use super::attempt::Note;
use super::shell::{DependencyCheck, Shell};

/// How long catalogs may take to say who provides what is missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packages of one catalog that are looked at as providers.
const MOST_PROVIDERS: usize = 8;
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
    let known = shell.revisions.store.state();
    let revisions = known.iter().filter_map(|stored| stored.0.as_deref().ok());
    let facts = facts(&shell.client, revisions, &wish.name, &needed).await?;
    let mut report = dependencies(&chosen.graph, chosen.index, &facts, &[]);
    if !report.unmet.is_empty() {
        let offers = shell.workers.away(offers(shell, &needed)).await.unwrap_or_default();
        let offers: Vec<(CatalogName, &PackageGraph)> =
            offers.iter().map(|(catalog, graph)| (catalog.clone(), &**graph)).collect();
        report = dependencies(&chosen.graph, chosen.index, &facts, &offers);
    }
    let mut notes: Vec<Note> =
        report.warnings.iter().map(|text| Note::warning("BundleWarning", text.clone())).collect();
    match report.error_message(&bundle.name) {
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

/// Packages that could meet a need, of every catalog that can be asked in time. Nothing fails for it.
async fn offers(shell: &Shell, needed: &Needed) -> Vec<(CatalogName, Arc<PackageGraph>)> {
    let catalogs = shell.all_catalogs();
    let facts = olm_catalog::available(catalogs.iter().map(AsRef::as_ref));
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
