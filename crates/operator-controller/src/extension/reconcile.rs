//! One pass over a ClusterExtension: gather, validate, resolve, deliver, report.
//!
//! The order of the steps; every decision is made elsewhere. Rule: operator-controller §3.

use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::{ClusterExtension, ClusterObjectSet, condition, finalizers, reason};
use olm_bundle::CertProvider;
use olm_catalog::select;
use olm_install::issuer;
use olm_install::resolution::{
    self, BundleFacts, Cause, Class, ExtensionRequest, PassError, revision, validate,
};
use olm_runtime::backoff::UNFINISHED;
use olm_runtime::controller::{Requeue, Stopping};
use olm_runtime::metrics::Outcome;
use olm_runtime::watched::Object;

use super::adopt::adopt;
use super::context::Context;
use super::deliver::deliver;
use super::report::{ReconcileError, patch_finalizers, report};
use super::result::{Notice, PassResult, Progress, Trace};
use super::writer::StepError;
use super::{record, uninstall};
use crate::certificates::CertificateCheck;

/// One pass.
///
/// # Errors
/// When the apiserver rejects a write; the caller retries with backoff.
pub async fn reconcile(
    object: Object<ClusterExtension>,
    context: Arc<Context>,
) -> Result<(Requeue, Outcome), ReconcileError> {
    let extension = match object.0 {
        Ok(extension) => extension,
        Err(unreadable) => {
            tracing::error!(extension = unreadable.metadata.name, error = %unreadable.error, "object cannot be read");
            return Ok((Requeue::OnChange, Outcome::TerminalError));
        }
    };
    let uid = extension.uid().unwrap_or_default();
    let revisions = context.revisions_of(&extension.name_any(), &uid);
    if extension.metadata.deletion_timestamp.is_some() {
        let requeue = uninstall::uninstall(&extension, &revisions, &context).await?;
        return Ok((requeue, Outcome::RequeueAfter));
    }
    // one that is gone by now would not be uninstalled
    let Some(extension) = ensure_finalizers(&extension, &context).await? else {
        return Ok((Requeue::OnChange, Outcome::Success));
    };
    let extension = &*extension;
    let recorded = record::sync(&context, extension, &revisions).await;

    let mut trace = Trace { notices: Vec::new(), previous: previous(&revisions) };
    let failed =
        |progress| PassResult::unchanged(revision::states(revisions.iter().map(AsRef::as_ref)), progress);
    let result = match (validate(extension), recorded.map_err(ReconcileError::from)) {
        (_, Err(error)) if error.is_conflict() => return Err(error),
        (Ok(_), Err(error)) => failed(Progress::Failed(PassError::new(Class::Transient, error.to_string()))),
        (Ok(request), Ok(())) => {
            resolve_and_deliver(extension, &request, &revisions, &context, &mut trace.notices).await?
        }
        (Err(error), _) => failed(Progress::Invalid(error)),
    };
    let held = report(extension, &result, trace, &context).await?;
    let (requeue, outcome) = next(&result);
    Ok((requeue.within(held), outcome))
}

async fn resolve_and_deliver(
    extension: &ClusterExtension,
    request: &ExtensionRequest,
    revisions: &[Arc<ClusterObjectSet>],
    context: &Context,
    notices: &mut Vec<Notice>,
) -> Result<PassResult, ReconcileError> {
    let states = revision::states(revisions.iter().map(AsRef::as_ref));
    let unresolved = |progress| PassResult::unchanged(states.clone(), progress);
    if request.paused {
        return Ok(unresolved(Progress::Paused));
    }
    let adopted = match adopt(context, request, revisions).await {
        Ok(adopted) => adopted,
        Err(StepError::Failed(error)) => return Ok(unresolved(Progress::Failed(error))),
        Err(StepError::Changed(error)) => return Err(error.into()),
    };
    let (adopted, notice) = adopted;
    notices.extend(notice);
    let with_adopted: Vec<Arc<ClusterObjectSet>>;
    let (revisions, states) = if adopted.is_empty() {
        (revisions, states)
    } else {
        let is_adopted =
            |set: &ClusterObjectSet| adopted.iter().any(|one| one.metadata.name == set.metadata.name);
        let mut all: Vec<_> = revisions.iter().filter(|set| !is_adopted(set)).cloned().collect();
        all.extend(adopted.into_iter().map(Arc::new));
        all.sort_by_key(|set| set.spec.revision);
        with_adopted = all;
        (&*with_adopted, revision::states(with_adopted.iter().map(AsRef::as_ref)))
    };
    let catalogs = context.catalogs.all();
    let selected = select(catalogs.iter().map(AsRef::as_ref), &request.selector);
    let begun = tokio::time::Instant::now();
    let read = async {
        let sources = context.packages.sources(&selected, &request.package, states.newest().is_some()).await;
        (sources, context.packages.unread(&selected, &request.package).await)
    };
    let (sources, unread) = context.workers.away(read).await?;
    let settings = context.resolution(request, &sources);
    let resolved = resolution::resolve(request, &states, &sources, &settings);
    context.durations.observe(resolved.target.is_ok(), begun.elapsed());
    let delivered = match &resolved.target {
        Ok(target) => {
            let recorded = issuer::recorded(extension);
            deliver(context, request, target, resolved.chosen.as_ref(), revisions, &states, recorded)
                .await
                .map(|delivered| (target, delivered))
        }
        Err(error) => Err(StepError::Failed(error.clone())),
    };
    let mut unread = unread;
    let (states, progress) = match delivered {
        Ok((target, delivered)) => {
            unread |= delivered.unread;
            notices.extend(delivered.notices);
            let states = match &delivered.written {
                Some(written) => revision::states(current(revisions, written)),
                None => states,
            };
            let reported = reported_error(extension);
            let check = context.refused_certificates.check(&request.name, &request.uid, reported.is_some());
            (states, applied(check, reported, target.bundle(), delivered.issuer))
        }
        // the pass may have stopped to wait for an answer; the next process repeats it
        Err(_) if resolved.target.is_ok() && context.workers.are_stopping() => return Err(Stopping.into()),
        Err(StepError::Changed(error)) => return Err(error.into()),
        Err(StepError::Failed(error)) => (states, Progress::Failed(error)),
    };
    let resolution::Resolved { deprecations, upgrade, .. } = resolved;
    // each field, so that the compiler names this line when one is added
    Ok(PassResult { revisions: states, deprecations, upgrade, progress, unread })
}

/// The progress of a pass that delivered its bundle. The `reported` error holds until certificates are checked.
fn applied(
    check: CertificateCheck,
    reported: Option<String>,
    target: &BundleFacts,
    issuer: Option<CertProvider>,
) -> Progress {
    let refused = match check {
        CertificateCheck::Refused(message) => Some(message),
        CertificateCheck::Awaited => reported,
        CertificateCheck::Accepted => None,
    };
    match refused {
        Some(message) => Progress::Failed(PassError {
            cause: Cause::Certificate,
            ..PassError::new(Class::NeedsChange, message)
        }),
        None => Progress::Applied { target: target.clone(), issuer },
    }
}

/// The error that an earlier process reported about a built-in certificate: until this process has checked those, nothing proves that it
/// is gone.
fn reported_error(extension: &ClusterExtension) -> Option<String> {
    let conditions = &extension.status.as_ref()?.conditions;
    let stalled = condition::find(conditions, condition::STALLED)?;
    // the whole message is that of `Progressing`
    let message = &condition::find(conditions, condition::PROGRESSING)?.message;
    let is_about_certificate = match stalled.reason.as_str() {
        reason::CERTIFICATE_REFUSED => true,
        // builds that did not have that reason; each such message is about a Secret and what is written to it
        reason::RETRYING => message.starts_with("Secret ") && message.contains("certificate"),
        _ => false,
    };
    let holds = issuer::recorded(extension) == Some(CertProvider::BuiltIn)
        && is_about_certificate
        && stalled.observed_generation == extension.metadata.generation;
    holds.then(|| message.clone())
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

/// The revisions with the one that was just written, which the cache may not have yet.
fn current<'a>(
    revisions: &'a [Arc<ClusterObjectSet>],
    written: &'a ClusterObjectSet,
) -> impl Iterator<Item = &'a ClusterObjectSet> {
    revisions
        .iter()
        .map(AsRef::as_ref)
        .filter(|set| set.metadata.name != written.metadata.name)
        .chain(std::iter::once(written))
}

/// The extension with the finalizers of this controller, and with the resourceVersion of that write; `None` if it is gone.
async fn ensure_finalizers(
    extension: &Arc<ClusterExtension>,
    context: &Context,
) -> Result<Option<Arc<ClusterExtension>>, ReconcileError> {
    let own = [finalizers::CLEANUP_UNPACK_CACHE, finalizers::CLEANUP_CONTENT_MANAGER_CACHE];
    let present = extension.finalizers();
    let missing = own.iter().filter(|own| !present.iter().any(|found| found == *own));
    let missing: Vec<String> = missing.map(|own| (*own).to_owned()).collect();
    if missing.is_empty() {
        return Ok(Some(Arc::clone(extension)));
    }
    let all = [present, &missing].concat();
    let Some(version) = patch_finalizers(extension, &all, context).await? else { return Ok(None) };
    let mut extension = ClusterExtension::clone(extension);
    extension.metadata.finalizers = Some(all);
    extension.metadata.resource_version = Some(version);
    Ok(Some(Arc::new(extension)))
}

/// The delay of the next pass without a change, and the outcome that the metrics count.
fn next(result: &PassResult) -> (Requeue, Outcome) {
    let class = match &result.progress {
        Progress::Invalid(PassError { class, .. }) | Progress::Failed(PassError { class, .. }) => {
            Some(*class)
        }
        Progress::Applied { .. } | Progress::Paused | Progress::Uninstalling { .. } => None,
    };
    let outcome = match class {
        None if result.unread => Outcome::RequeueAfter,
        None => Outcome::Success,
        Some(Class::Transient) => Outcome::Error,
        Some(Class::NeedsChange | Class::Blocked | Class::InvalidConfiguration) => Outcome::TerminalError,
    };
    let requeue = match outcome {
        // what was decided was decided without the catalog's present content
        _ if result.unread => Requeue::BackoffWithin(UNFINISHED),
        Outcome::Error => Requeue::Backoff,
        // what helps is watched, and so are the revisions
        Outcome::TerminalError => Requeue::Unfinished,
        _ if !is_finished(result) => Requeue::Unfinished,
        _ => Requeue::OnChange,
    };
    (requeue, outcome)
}

/// Whether nothing is to be expected but a change: the newest revision has rolled out, or the extension is paused.
fn is_finished(result: &PassResult) -> bool {
    let rolled_out = result.revisions.newest().and_then(|newest| newest.condition(condition::PROGRESSING));
    matches!(result.progress, Progress::Paused)
        || rolled_out.is_some_and(|found| found.reason == reason::SUCCEEDED)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use futures::future::BoxFuture;
    use k8s_openapi::jiff::Timestamp;
    use kube::runtime::watcher::Event;
    use olm_api::{Condition, ConditionStatus, labels};
    use olm_catalog::catalogd::Endpoint;
    use olm_core::PackageName;
    use olm_fbc::PackageSummary;
    use olm_install::dependencies::DependencyCheck;
    use olm_install::preflight;
    use olm_install::render::{RenderSettings, Rendered};
    use olm_install::resolution::{RevisionFacts, RevisionStates};
    use olm_resolver::{CatalogReadError, ClusterFacts, PackageGraph};
    use olm_runtime::controller::Workers;
    use olm_runtime::events::Events;
    use olm_runtime::metrics::Metrics;
    use olm_runtime::watched::Objects;
    use olm_runtime::{Intervals, Polled, Shutdown};
    use serde_json::{Value, json};

    use super::*;
    use crate::accounts::{Accounts, Mode, Rights};
    use crate::bundles::BundleSource;
    use crate::catalogs::{PackageCache, PackageSource};
    use crate::crds::Crds;
    use crate::extension::context::Settings;
    use crate::extension::durations::ResolutionDurations;
    use crate::extension::writer::RevisionWriter;
    use crate::revisions::Revisions;
    use crate::secret_cache::SecretCache;
    use crate::testing::{Apiserver, failure_with};

    /// Neither a registry nor a catalog can be read.
    struct Unreachable;

    impl BundleSource for Unreachable {
        fn render<'a>(
            &'a self,
            _: &'a ExtensionRequest,
            _: &'a BundleFacts,
            _: Option<CertProvider>,
        ) -> BoxFuture<'a, Result<Rendered, PassError>> {
            Box::pin(async { Err(PassError::new(Class::Transient, "unreachable")) })
        }

        fn tidy(&self, _: BTreeSet<String>, _: Duration) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    impl PackageSource for Unreachable {
        fn graph<'a>(
            &'a self,
            _: &'a Endpoint,
            _: &'a PackageName,
        ) -> BoxFuture<'a, Result<Arc<PackageGraph>, CatalogReadError>> {
            Box::pin(async { Err(CatalogReadError::Fetch("unreachable".to_owned())) })
        }

        fn summaries<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, Result<Vec<PackageSummary>, String>> {
            Box::pin(async { Err("unreachable".to_owned()) })
        }
    }

    /// A process that has just started.
    fn context(apiserver: &Apiserver) -> Context {
        let (client, extensions) = (apiserver.client(), Objects::empty());
        let (rights, _) = Rights::new(client.clone());
        Context {
            settings: Settings {
                system_namespace: "olmv1-system".to_owned(),
                service_account_mode: Mode::default(),
                render: RenderSettings::default(),
                resolution: resolution::Settings::default(),
                dependency_check: DependencyCheck::default(),
                preflight: preflight::Settings { existing_objects: true },
                intervals: Intervals::default(),
            },
            accounts: Arc::new(Accounts::new(client.clone(), Mode::default(), extensions.clone(), rights)),
            extensions,
            revisions: Revisions::default(),
            catalogs: Objects::empty(),
            packages: PackageCache::new(Box::new(Unreachable)),
            bundles: Box::new(Unreachable),
            writer: RevisionWriter::new(client.clone(), "olmv1-system", SecretCache::default()),
            workers: Workers::new(1, Shutdown::new()),
            crds: Crds::default(),
            cluster: Polled::fixed(ClusterFacts::default()),
            refused_certificates: Default::default(),
            events: Events::new(client.clone(), "test", None),
            durations: ResolutionDurations::register(&Metrics::new()),
            states: Default::default(),
            client,
        }
    }

    fn demo() -> Value {
        json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
            "metadata": {"name": "demo", "uid": "u1", "resourceVersion": "5", "generation": 1,
                "finalizers": [finalizers::CLEANUP_UNPACK_CACHE, finalizers::CLEANUP_CONTENT_MANAGER_CACHE]},
            "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
        })
    }

    /// The revision of [`demo`] with these owners.
    fn demo_revision(owners: Value) -> ClusterObjectSet {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
            "metadata": {"name": "demo-1", "uid": "r1", "labels": {(labels::OWNER_NAME): "demo"}, "ownerReferences": owners},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        }))
        .unwrap()
    }

    /// The cache may be late: with `--cascade=orphan` revisions lose their owner before the extension goes.
    #[tokio::test]
    async fn reconcile_adopts_no_revision_for_a_deleted_extension() {
        for (deleted, is_adopted) in [(json!(null), true), (json!("2030-01-01T00:00:00Z"), false)] {
            let (mut live, orphan) = (demo(), demo_revision(json!([])));
            live["metadata"]["deletionTimestamp"] = deleted;
            let stored = serde_json::to_value(&orphan).unwrap();
            let apiserver = Apiserver::new(move |_, uri| match uri.contains("/clusterobjectsets/") {
                true => (200, stored.clone()),
                false => (200, live.clone()),
            });
            let context = Arc::new(context(&apiserver));
            context.revisions.apply(Event::Apply(Object::new(orphan)), |set| (set.name(), set));
            let object = Object::new(serde_json::from_value(demo()).unwrap());
            let done = reconcile(object, context).await;
            assert_eq!(done.is_err_and(|error| error.is_conflict()), !is_adopted);
            let requests = apiserver.requests();
            let adopts = |line: &String| line.starts_with("PATCH ") && line.contains("ownerReferences");
            assert_eq!(requests.iter().any(adopts), is_adopted, "{requests:?}");
        }
    }

    /// The Secrets of a revision record what counts when its extension is gone. Without it the extension is not reconciled further.
    #[tokio::test]
    async fn reconcile_reports_content_secrets_that_are_not_synced() {
        let extension = demo();
        let revision = demo_revision(json!([
            {"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "demo", "uid": "u1"}]));
        let message = "patching ownerReferences on ref Secrets: secrets is forbidden: no";
        for (code, reason, want, reported) in [
            (403, "Forbidden", Ok((Requeue::Backoff, Outcome::Error)), Some(message)),
            // another writer was faster: the next pass reads what it wrote
            (409, "Conflict", Err(true), None),
        ] {
            let stored = extension.clone();
            let apiserver = Apiserver::new(move |_, uri| match uri.contains("/secrets") {
                true => failure_with(code, reason, "secrets is forbidden: no"),
                false => (200, stored.clone()),
            });
            let context = Arc::new(context(&apiserver));
            context.revisions.apply(Event::Apply(Object::new(revision.clone())), |set| (set.name(), set));
            let object = Object::new(serde_json::from_value(extension.clone()).unwrap());
            let done = reconcile(object, Arc::clone(&context)).await;
            assert_eq!(done.map_err(|error| error.is_conflict()), want, "{code}");
            let requests = apiserver.requests();
            let status = requests.iter().find(|line| line.starts_with("PUT ") && line.contains("/status?"));
            let status = status.and_then(|line| line.splitn(3, ' ').nth(2));
            let status = status.map(|body| serde_json::from_str::<Value>(body).unwrap());
            let progressing = status.and_then(|object| {
                let conditions = object["status"]["conditions"].as_array().unwrap().clone();
                conditions.into_iter().find(|found| found["type"] == condition::PROGRESSING)
            });
            let found = progressing.as_ref().map(|found| {
                assert_eq!((&found["status"], &found["reason"]), (&json!("True"), &json!("Retrying")));
                found["message"].as_str().unwrap()
            });
            assert_eq!(found, reported, "{code}: {requests:?}");
            // the next pass tries again
            context.states.update("demo", "u1", |state| assert_eq!(state.recorded, None, "{code}"));
        }
    }

    /// A certificate was refused before the process started: `Ready` is not True before it is checked again.
    #[test]
    fn progress_keeps_an_error_until_certificates_are_checked() {
        use CertificateCheck::{Accepted, Awaited, Refused};
        let reported =
            "Secret n/s is immutable; delete it, so that webhook certificates can be written to it";
        let status_of = |message: &str, provider: &str, stalled: &str, generation: i64| {
            let made = |type_: &str, reason: &str| {
                json!({"type": type_, "status": "True", "reason": reason, "message": message,
                    "observedGeneration": generation, "lastTransitionTime": "2000-01-01T00:00:00Z"})
            };
            json!({"webhookCertificates": {"provider": provider},
                "conditions": [made("Progressing", "Retrying"), made("Stalled", stalled)]})
        };
        let status = |provider: &str, stalled: &str, generation: i64| {
            status_of(reported, provider, stalled, generation)
        };
        let refused = || status("built-in", "CertificateRefused", 2);
        let other = "Secret n/s is immutable";
        for (case, check, status, want) in [
            ("not checked yet", Awaited, refused(), Some(reported)),
            ("of a build without the reason", Awaited, status("built-in", "Retrying", 2), Some(reported)),
            ("another error about a Secret", Awaited, status_of(other, "built-in", "Retrying", 2), None),
            ("checked", Accepted, refused(), None),
            ("refused again", Refused("again".to_owned()), refused(), Some("again")),
            ("of another provider", Awaited, status("cert-manager", "CertificateRefused", 2), None),
            ("the rollout is blocked", Awaited, status("built-in", "Blocked", 2), None),
            ("the spec has changed", Awaited, status("built-in", "CertificateRefused", 1), None),
            ("no status", Awaited, json!({}), None),
        ] {
            let extension: ClusterExtension = serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
                "metadata": {"name": "demo", "generation": 2}, "status": status,
                "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
            }))
            .unwrap();
            let progress = applied(check, reported_error(&extension), &BundleFacts::default(), None);
            let found = match &progress {
                Progress::Failed(error) if error.cause == Cause::Certificate => Some(&*error.message),
                _ => None,
            };
            assert_eq!(found, want, "{case}: {progress:?}");
        }
    }

    /// The revisions of an extension of which one has succeeded, and the newest reports this.
    fn revisions(progressing: &str) -> RevisionStates {
        let condition = |type_, reason| {
            Condition::new(type_, ConditionStatus::True, reason, "", Some(1), Timestamp::UNIX_EPOCH)
        };
        let rolled_out = condition(condition::PROGRESSING, progressing);
        let succeeded = condition(condition::SUCCEEDED, reason::SUCCEEDED);
        let revision = RevisionFacts {
            name: "a-1".to_owned(),
            number: 1,
            bundle: BundleFacts::default(),
            conditions: vec![rolled_out, succeeded],
        };
        RevisionStates::split(vec![revision])
    }

    #[test]
    fn requeue_after_each_result() {
        let applied = Progress::Applied { target: BundleFacts::default(), issuer: None };
        let failed = |class| Progress::Failed(PassError::new(class, "x"));
        let invalid = Progress::Invalid(PassError::new(Class::NeedsChange, "x"));
        let (done, rolling) = (|| revisions(reason::SUCCEEDED), || revisions(reason::ROLLING_OUT));
        let none = || RevisionStates::split(Vec::new());
        let (unfinished, unread) = (Requeue::Unfinished, Requeue::BackoffWithin(UNFINISHED));
        for (progress, revisions, is_unread, want) in [
            (invalid, done(), false, (unfinished, Outcome::TerminalError)),
            (failed(Class::NeedsChange), done(), false, (unfinished, Outcome::TerminalError)),
            (failed(Class::Blocked), done(), false, (unfinished, Outcome::TerminalError)),
            (failed(Class::InvalidConfiguration), none(), false, (unfinished, Outcome::TerminalError)),
            (failed(Class::Transient), done(), false, (Requeue::Backoff, Outcome::Error)),
            (applied.clone(), done(), false, (Requeue::OnChange, Outcome::Success)),
            (applied.clone(), rolling(), false, (unfinished, Outcome::Success)),
            (applied.clone(), none(), false, (unfinished, Outcome::Success)),
            (Progress::Paused, rolling(), false, (Requeue::OnChange, Outcome::Success)),
            // an extension that uses older content of a catalog gets the new content by a retry only
            (applied, done(), true, (unread, Outcome::RequeueAfter)),
            (failed(Class::NeedsChange), done(), true, (unread, Outcome::TerminalError)),
        ] {
            let result = PassResult { unread: is_unread, ..PassResult::unchanged(revisions, progress) };
            assert_eq!(next(&result), want, "{:?} {is_unread}", result.progress);
        }
    }
}
