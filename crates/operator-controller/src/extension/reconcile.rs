//! One pass over a ClusterExtension: gather, validate, resolve, deliver, report.
//!
//! The story of the controller in one function; every decision in it is made elsewhere. Rule: operator-controller §3.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use olm_api::{ClusterExtension, ClusterObjectSet, condition, finalizers};
use olm_bundle::CertProvider;
use olm_catalog::select;
use olm_install::resolution::{
    BundleFacts, Class, Failure, Learnt, Wanted, Wish, revision, validate, wanted,
};
use olm_resolver::Resolution;
use olm_runtime::backoff::Backoff;
use olm_runtime::metrics::Outcome;

use super::adopt::adopt;
use super::attempt::{Attempt, Note, Progress, Story};
use super::deliver::{Delivered, deliver};
use super::report::{ReconcileError, patch_finalizers, report};
use super::shell::Shell;
use super::{dependencies, uninstall};
use crate::certificates::provider;
use crate::watch::Stored;
use crate::workers::Stopping;

/// How long to wait for a change that only a user can make, before looking again.
const SLOW: Duration = Duration::from_secs(600);
/// The longest wait before a catalog that could not be read is asked again.
const UNREAD: Duration = Duration::from_secs(60);

/// One pass.
///
/// # Errors
/// When the apiserver refuses what must be written; the caller tries again with backoff.
pub async fn reconcile(
    stored: Arc<Stored<ClusterExtension>>,
    shell: Arc<Shell>,
) -> Result<(Action, Outcome), ReconcileError> {
    let extension = match &stored.0 {
        Ok(extension) => shell.written.newest(extension),
        Err(unreadable) => {
            tracing::error!(extension = unreadable.metadata.name, error = %unreadable.error, "object cannot be read");
            return Ok((Action::await_change(), Outcome::TerminalError));
        }
    };
    let uid = extension.uid().unwrap_or_default();
    let revisions = shell.revisions_of(&extension.name_any(), &uid);
    if extension.metadata.deletion_timestamp.is_some() {
        let action = uninstall::uninstall(&extension, &revisions, &shell).await?;
        return Ok((action, Outcome::RequeueAfter));
    }
    let extension = &*ensure_finalizers(&extension, &shell).await?;
    shell.policies.copy(extension, &revisions, &shell.writer).await.map_err(ReconcileError::Policy)?;

    let mut story = Story { notes: Vec::new(), previous: previous(&revisions) };
    let attempt = match validate(extension) {
        Ok(wish) => attempt(&wish, kept_issuer(extension), &revisions, &shell, &mut story.notes).await?,
        Err(failure) => Attempt {
            revisions: revision::states(revisions.iter().map(AsRef::as_ref)),
            deprecations: Learnt::Nothing,
            progress: Progress::Invalid(failure),
            unread: false,
        },
    };
    let held = report(extension, &attempt, story, &shell).await?;
    let (wait, outcome) = next(&attempt, &uid, &shell.backoff);
    let wait = wait.into_iter().chain(held).min();
    Ok((wait.map_or_else(Action::await_change, Action::requeue), outcome))
}

/// Resolve and deliver: how far did we get?
async fn attempt(
    wish: &Wish,
    kept: Option<CertProvider>,
    revisions: &[Arc<ClusterObjectSet>],
    shell: &Shell,
    notes: &mut Vec<Note>,
) -> Result<Attempt, Stopping> {
    let states = revision::states(revisions.iter().map(AsRef::as_ref));
    if wish.paused {
        let progress = Progress::Paused;
        return Ok(Attempt { revisions: states, deprecations: Learnt::Nothing, progress, unread: false });
    }
    let adopted = match adopt(shell, wish, revisions).await {
        Ok(adopted) => adopted,
        Err(failure) => {
            let progress = Progress::Failed(failure);
            return Ok(Attempt { revisions: states, deprecations: Learnt::Nothing, progress, unread: false });
        }
    };
    let taken_over: Vec<Arc<ClusterObjectSet>>;
    let (revisions, states) = match adopted {
        None => (revisions, states),
        Some(adopted) => {
            notes.extend(adopted.note);
            taken_over = with(revisions, &adopted.set).map(|set| Arc::new(set.clone())).collect();
            (&*taken_over, revision::states(taken_over.iter().map(AsRef::as_ref)))
        }
    };
    let catalogs = shell.all_catalogs();
    let selected = select(catalogs.iter().map(AsRef::as_ref), &wish.selector);
    let read = async {
        let sources = shell.packages.sources(&selected, &wish.package, states.newest().is_some()).await;
        (sources, shell.packages.unread(&selected, &wish.package).await)
    };
    let (sources, unread) = shell.workers.away(read).await?;
    let resolved = wanted(wish, &states, &sources, shell.settings.separate_release);
    let (states, progress) = match resolved.wanted {
        Err(failure) => (states, Progress::Failed(failure)),
        Ok(Wanted::Kept(bundle)) => {
            notes.push(Note::warning(
                "CatalogsUnavailable",
                format!("no selected catalog can be read; bundle {} is kept", bundle.name),
            ));
            (states, Progress::Applied { wanted: bundle, issuer: kept })
        }
        Ok(Wanted::Chosen(bundle)) => {
            match checked(shell, wish, &resolved.chosen, &bundle, revisions, kept).await {
                Ok(delivered) => {
                    notes.extend(delivered.notes);
                    let states = match &delivered.written {
                        Some(written) => revision::states(with(revisions, written)),
                        None => states,
                    };
                    (states, Progress::Applied { wanted: bundle, issuer: delivered.issuer })
                }
                // it may be that an answer was not waited for; the next process will see
                Err(_) if shell.workers.are_stopping() => return Err(Stopping),
                Err(failure) => (states, Progress::Failed(failure)),
            }
        }
    };
    Ok(Attempt { revisions: states, deprecations: resolved.learnt, progress, unread })
}

/// Dependencies first, then delivery.
async fn checked(
    shell: &Shell,
    wish: &Wish,
    chosen: &Option<Resolution>,
    bundle: &BundleFacts,
    revisions: &[Arc<ClusterObjectSet>],
    kept: Option<CertProvider>,
) -> Result<Delivered, Failure> {
    let states = revision::states(revisions.iter().map(AsRef::as_ref));
    let notes = match chosen {
        Some(chosen) => dependencies::check(shell, wish, chosen, bundle, &states).await?,
        None => Vec::new(),
    };
    let mut delivered = deliver(shell, wish, bundle, revisions, kept).await?;
    delivered.notes.splice(0..0, notes);
    Ok(delivered)
}

/// The certificate issuer that the status holds.
fn kept_issuer(extension: &ClusterExtension) -> Option<CertProvider> {
    let certificates = extension.status.as_ref()?.webhook_certificates.as_ref()?;
    Some(provider::from_status(certificates.provider))
}

/// The bundle of the newest revision that has succeeded and that is not the installed one, archived ones included.
fn previous(revisions: &[Arc<ClusterObjectSet>]) -> Option<BundleFacts> {
    let installed = revision::states(revisions.iter().map(AsRef::as_ref)).installed;
    let number = installed.map_or(i64::MAX, |installed| installed.number);
    let mut older = revisions.iter().rev().map(|set| revision::facts(set));
    older
        .find(|facts| facts.number < number && condition::is_true(&facts.conditions, condition::SUCCEEDED))
        .map(|facts| facts.bundle)
}

/// The revisions with the one that was just written, which the cache may not show yet.
fn with<'a>(
    revisions: &'a [Arc<ClusterObjectSet>],
    written: &'a ClusterObjectSet,
) -> impl Iterator<Item = &'a ClusterObjectSet> {
    revisions
        .iter()
        .map(AsRef::as_ref)
        .filter(|set| set.metadata.name != written.metadata.name)
        .chain(std::iter::once(written))
}

/// The extension with our finalizers on it, and with the resourceVersion that this gave it.
async fn ensure_finalizers(
    extension: &Arc<ClusterExtension>,
    shell: &Shell,
) -> Result<Arc<ClusterExtension>, ReconcileError> {
    let wanted = [finalizers::CLEANUP_UNPACK_CACHE, finalizers::CLEANUP_CONTENT_MANAGER_CACHE];
    let present = extension.finalizers();
    let missing = wanted.iter().filter(|wanted| !present.iter().any(|found| found == *wanted));
    let missing: Vec<String> = missing.map(|wanted| (*wanted).to_owned()).collect();
    if missing.is_empty() {
        return Ok(Arc::clone(extension));
    }
    let all = [present, &missing].concat();
    let version = patch_finalizers(extension, &all, shell).await?;
    let mut extension = ClusterExtension::clone(extension);
    extension.metadata.finalizers = Some(all);
    extension.metadata.resource_version = version.or(extension.metadata.resource_version);
    Ok(Arc::new(extension))
}

/// After which time to look again without a change, if at all, and how the pass counts.
fn next(attempt: &Attempt, uid: &str, backoff: &Backoff<String>) -> (Option<Duration>, Outcome) {
    let class = match &attempt.progress {
        Progress::Invalid(Failure { class, .. }) | Progress::Failed(Failure { class, .. }) => Some(*class),
        Progress::Applied { .. } | Progress::Paused | Progress::Uninstalling { .. } => None,
    };
    let outcome = match class {
        None if attempt.unread => Outcome::RequeueAfter,
        None => Outcome::Success,
        Some(Class::Transient) => Outcome::Error,
        Some(Class::NeedsChange | Class::Blocked | Class::InvalidConfiguration) => Outcome::TerminalError,
    };
    let wait = match outcome {
        // what was decided was decided without the catalog's present content
        _ if attempt.unread => Some(backoff.failed(uid.to_owned()).min(UNREAD)),
        Outcome::Error => Some(backoff.failed(uid.to_owned())),
        Outcome::TerminalError => Some(SLOW),
        _ => {
            backoff.reset(&uid.to_owned());
            None
        }
    };
    (wait, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_install::resolution::RevisionStates;

    #[test]
    fn requeue_after_each_class_of_failure() {
        let ten_minutes = Some(Duration::from_secs(10 * 60));
        for (class, want) in [
            (Class::NeedsChange, (ten_minutes, Outcome::TerminalError)),
            (Class::Blocked, (ten_minutes, Outcome::TerminalError)),
            (Class::InvalidConfiguration, (ten_minutes, Outcome::TerminalError)),
            (Class::Transient, (Some(Duration::from_millis(5)), Outcome::Error)),
        ] {
            for progress in [Progress::Invalid, Progress::Failed] {
                let attempt = Attempt {
                    revisions: RevisionStates::split(Vec::new()),
                    deprecations: Learnt::Nothing,
                    progress: progress(Failure::new(class, "x")),
                    unread: false,
                };
                assert_eq!(next(&attempt, "uid", &Backoff::new()), want, "{:?}", attempt.progress);
            }
        }
    }

    /// An extension that goes on with older content of a catalog learns of the new content by asking only.
    #[test]
    fn a_catalog_that_could_not_be_read_is_asked_again() {
        let attempt = |progress, unread| Attempt {
            revisions: RevisionStates::split(Vec::new()),
            deprecations: Learnt::Nothing,
            progress,
            unread,
        };
        let applied = || Progress::Applied { wanted: BundleFacts::default(), issuer: None };
        let backoff = Backoff::new();
        let next = |attempt: &Attempt| next(attempt, "uid", &backoff);
        let first = (Some(Duration::from_millis(5)), Outcome::RequeueAfter);
        assert_eq!(next(&attempt(applied(), true)), first);
        let second = (Some(Duration::from_millis(10)), Outcome::RequeueAfter);
        assert_eq!(next(&attempt(applied(), true)), second);
        // nothing in the older content fits: the new content may
        let failed = Progress::Failed(Failure::new(Class::NeedsChange, "no bundles found"));
        for _ in 0..20 {
            next(&attempt(failed.clone(), true));
        }
        assert_eq!(next(&attempt(failed.clone(), true)), (Some(UNREAD), Outcome::TerminalError));
        assert_eq!(next(&attempt(failed, false)), (Some(SLOW), Outcome::TerminalError));
        assert_eq!(next(&attempt(applied(), false)), (None, Outcome::Success));
        assert_eq!(next(&attempt(applied(), true)), first, "a success is a new beginning");
    }
}
