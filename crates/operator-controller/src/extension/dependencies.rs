//! The dependencies of a chosen bundle, checked before anything is written. No dependency is ever installed.
//!
//! `olm_install::dependencies` reads the cluster and lets `olm_resolver::dependencies` decide; this module calls it and, only if
//! something is missing, finds the packages of catalogs that provide it. Rule: decision 25.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use olm_api::annotations;
use olm_core::{CatalogName, PackageName};
use olm_install::dependencies::{self, DependencyCheck, are_due, facts};
use olm_install::resolution::{
    BundleFacts, Cause, Class, ExtensionRequest, PassError, RevisionStates, refused,
};
use olm_resolver::{Needed, PackageGraph, Resolution, needed};

use super::context::Context;
use super::result::Notice;

/// Time in which catalogs list the providers of a missing dependency.
const CATALOG_TIMEOUT: Duration = Duration::from_secs(10);
/// Packages of one catalog that are read as providers.
const MAX_PROVIDERS: usize = 8;
/// The end of the error message: what happens next.
const HELP: &str = "; install them, dependencies are not installed automatically";

/// Checks the dependencies of `chosen`. Returns warnings.
///
/// # Errors
/// When a dependency is missing, or the cluster cannot be read.
pub async fn check(
    context: &Context,
    request: &ExtensionRequest,
    chosen: &Resolution,
    bundle: &BundleFacts,
    states: &RevisionStates,
) -> Result<Vec<Notice>, PassError> {
    context.wait_for(request, None);
    let check = request.dependency_check.unwrap_or(context.settings.dependency_check);
    if check == DependencyCheck::Refuse {
        let checked = chosen.refuse_dependencies().map(|()| Vec::new());
        return checked.map_err(|error| PassError { cause: Cause::Dependencies, ..refused(&error) });
    }
    if !are_due(chosen, bundle, states) {
        return Ok(Vec::new());
    }
    if check == DependencyCheck::Ignore {
        return Ok(unchecked(request, bundle).into_iter().collect());
    }
    let needed = needed(&chosen.graph, chosen.index);
    // before the cluster is read, so that what appears meanwhile wakes the extension
    context.wait_for(request, Some(needed.clone()));
    let known = context.revisions.all();
    let revisions = known.iter().map(AsRef::as_ref);
    let facts = Arc::new(facts(&context.client, revisions, &request.name, &needed).await?);
    let mut report = dependencies::check(chosen, &facts, Vec::new()).await?;
    if !report.unmet.is_empty() {
        let offers = context.workers.away(offers(context, &needed)).await.unwrap_or_default();
        report = dependencies::check(chosen, &facts, offers).await?;
    }
    let mut notices: Vec<Notice> =
        report.warnings.iter().map(|text| Notice::warning("BundleWarning", text.clone())).collect();
    match report.error_message(&bundle.name) {
        Some(missing) if check == DependencyCheck::Enforce => {
            let text = format!("validating bundle {:?}: {missing}{HELP}", bundle.name);
            let error = PassError::new(Class::NeedsChange, text);
            return Err(PassError { cause: Cause::Dependencies, ..error });
        }
        Some(missing) => notices.push(Notice::warning("DependencyMissing", missing)),
        None => {}
    }
    context.wait_for(request, None);
    Ok(notices)
}

/// The notice that the extension's annotation suspends the check.
fn unchecked(request: &ExtensionRequest, bundle: &BundleFacts) -> Option<Notice> {
    let text = format!(
        "what bundle {} depends on is not checked, because the annotation {} is Ignore",
        bundle.name,
        annotations::DEPENDENCY_CHECK
    );
    request.dependency_check.map(|_| Notice::warning("DependencyCheckSkipped", text))
}

/// Packages that could provide what is needed, of every catalog that answers in time.
async fn offers(context: &Context, needed: &Needed) -> Vec<(CatalogName, Arc<PackageGraph>)> {
    let catalogs = context.catalogs.all();
    let facts = olm_catalog::available(catalogs.iter().map(AsRef::as_ref));
    let asked = facts.iter().map(|facts| async move {
        let mut names: BTreeSet<PackageName> =
            needed.packages.iter().filter_map(|name| name.parse().ok()).collect();
        if let Ok(endpoint) = &facts.endpoint {
            match tokio::time::timeout(CATALOG_TIMEOUT, context.packages.providers(endpoint, &needed.apis))
                .await
            {
                Ok(Ok(found)) => names.extend(found),
                Ok(Err(problem)) => {
                    tracing::warn!(catalog = %facts.name, problem, "catalog does not list its providers")
                }
                Err(_) => {
                    tracing::warn!(catalog = %facts.name, "catalog does not list its providers in time")
                }
            }
        }
        let one = std::slice::from_ref(facts);
        let graphs = names.iter().take(MAX_PROVIDERS).map(|name| context.packages.sources(one, name, true));
        let all = tokio::time::timeout(CATALOG_TIMEOUT, futures::future::join_all(graphs))
            .await
            .unwrap_or_default();
        let found = all.into_iter().flatten().filter_map(|source| Some((source.name, source.content.ok()?)));
        found.collect::<Vec<_>>()
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}
