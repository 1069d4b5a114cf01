//! The plan for an extension: what becomes of its newest revision. operator-controller executes it, `kubectl olm plan` prints it.
//!
//! [`plan`] is a function of values: the request, and what was [`Observed`] of the extension's revisions and of its target bundle. It
//! reads no cluster and no clock. [`observe`] reads: it asks an [`Observer`], in a fixed order, and only for what the plan depends on.
//! The two callers differ in their observers (caches and waiting extensions there, the rights of a user here) and in what they do
//! with the plan, and in nothing else.
//!
//! Rules: operator-controller §3.4 (UnpackBundle, Apply), §6.3; revisions §4.2; decisions 9 and 24.

use std::future::Future;
use std::sync::Arc;

use olm_api::{ClusterObjectSet, annotations};
use olm_bundle::CertProvider;
use olm_core::{Cancellation, Digest, Object};
use olm_rollout::{expired, next_number};

use crate::desired::{Desired, Numbered, applied_metadata, same_content, same_settings};
use crate::preflight::Checked;
use crate::render::{RenderSettings, Rendered, differ_in_format};
use crate::resolution::revision::{self, history};
use crate::resolution::{BundleFacts, Class, ExtensionRequest, PassError, Target};
use crate::work;

/// Reason of the notice that the catalog names another image for the installed bundle.
pub const IMAGE_IGNORED: &str = "ImageIgnored";

/// What becomes of the newest revision.
#[derive(Debug, Clone)]
pub struct Plan {
    pub change: Change,
    /// What users are informed of.
    pub notices: Vec<Notice>,
    /// The issuer of the extension's webhook certificates, once it is chosen.
    pub issuer: Option<CertProvider>,
    /// The fingerprint from which the newest revision is rendered once the plan is executed; `None` if that was not compared.
    pub inputs: Option<String>,
    /// The digest of the image, if it was read.
    pub digest: Option<Digest>,
}

/// The change of a plan.
#[derive(Debug, Clone)]
pub enum Change {
    /// Nothing is written.
    Keep,
    /// Settings of the newest revision are applied: annotations, probes, deadline.
    Update(Box<ClusterObjectSet>),
    /// The Secrets of the newest revision are missing; they are created again, with the same content.
    Restore(Box<Numbered>),
    /// A new revision is created.
    Create(Box<NewRevision>),
}

/// A revision to create.
#[derive(Debug, Clone)]
pub struct NewRevision {
    /// The revision and its Secrets.
    pub revision: Numbered,
    /// Its objects, in the order of the rollout.
    pub phases: Vec<olm_rollout::Phase>,
    /// Archived revisions that are deleted before.
    pub expired: Vec<String>,
}

/// An event for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether it needs attention.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    pub text: String,
}

impl Notice {
    /// A notice that needs no attention.
    pub fn normal(reason: &'static str, text: impl Into<String>) -> Self {
        Self { warning: false, reason, text: text.into() }
    }

    /// A notice that needs attention.
    pub fn warning(reason: &'static str, text: impl Into<String>) -> Self {
        Self { warning: true, reason, text: text.into() }
    }
}

/// The state that a plan is made from.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// All revisions of the extension.
    pub revisions: &'a [Arc<ClusterObjectSet>],
    pub target: &'a Target,
    /// Namespace of the Secrets of revisions.
    pub system_namespace: &'a str,
    /// The issuer of webhook certificates, as far as it is chosen.
    pub issuer: Option<CertProvider>,
    /// The content of the target bundle.
    pub content: Content,
}

/// The content of the target bundle, as far as the plan depends on it.
#[derive(Debug, Clone)]
pub enum Content {
    /// The extension is paused.
    Unneeded,
    /// For now the installed bundle cannot be rendered, and it stays as it is: no catalog can be read and nothing shows that its settings
    /// have changed, or only the [format](olm_bundle::FORMAT) of its objects is another one.
    Unread(PassError),
    /// The newest revision was rendered from the same inputs.
    Same {
        /// Their fingerprint.
        inputs: String,
    },
    /// It was rendered, and accepted by all checks.
    Rendered {
        rendered: Rendered,
        /// Findings of CRD upgrade safety that block nothing.
        crds: Checked,
        /// The fingerprint of the inputs.
        inputs: String,
        /// No fingerprint is recorded for the newest revision, though it holds the target bundle: its Secrets may be missing.
        unrecorded: bool,
    },
}

/// Reads the state of the cluster and the registry for [`observe`].
pub trait Observer: Send {
    /// The fingerprint that is recorded for the newest revision; `None` if it cannot be trusted or read.
    fn recorded_inputs(
        &mut self,
        newest: &ClusterObjectSet,
    ) -> impl Future<Output = Result<Option<String>, PassError>> + Send;

    /// Fetches and renders a bundle. `inputs` is the fingerprint with the settled issuer.
    fn render(
        &mut self,
        bundle: &BundleFacts,
        settled: Option<CertProvider>,
        inputs: &str,
    ) -> impl Future<Output = Result<Rendered, PassError>> + Send;

    /// Checks the CRDs among the objects of a bundle ([`crate::preflight::check`]).
    fn check_crds(
        &mut self,
        bundle: &BundleFacts,
        rendered: &Arc<Rendered>,
    ) -> impl Future<Output = Result<Checked, PassError>> + Send;

    /// Checks the rights of the extension's ServiceAccount ([`crate::account::check`]).
    fn check_account(
        &mut self,
        bundle: &BundleFacts,
        objects: &[Object],
    ) -> impl Future<Output = Result<(), PassError>> + Send;
}

/// Observes what the plan for `target` depends on. `recorded` is the certificate issuer of the extension's status.
///
/// # Errors
/// With the text for the `Progressing` condition: the target cannot be rendered, or a check rejects it.
pub async fn observe<'a>(
    observer: &mut impl Observer,
    settings: RenderSettings,
    system_namespace: &'a str,
    request: &ExtensionRequest,
    target: &'a Target,
    revisions: &'a [Arc<ClusterObjectSet>],
    recorded: Option<CertProvider>,
) -> Result<Observed<'a>, PassError> {
    let observed = |issuer, content| Observed { revisions, target, system_namespace, issuer, content };
    if request.paused {
        return Ok(observed(recorded, Content::Unneeded));
    }
    let bundle = target.bundle();
    let settled = settings.settled(recorded);
    let inputs = settings.fingerprint(request, bundle, settled);
    let newest = revision::newest(revisions);
    let holds = |newest: &&Arc<ClusterObjectSet>| {
        revision::is_active(newest) && revision::facts(newest).bundle.is_same(bundle)
    };
    let (mut unrecorded, mut is_other_format, mut has_new_settings) = (false, false, false);
    if let Some(newest) = newest.filter(holds) {
        let recorded = observer.recorded_inputs(newest).await?;
        if recorded.as_ref() == Some(&inputs) {
            return Ok(observed(settled, Content::Same { inputs }));
        }
        unrecorded = recorded.is_none();
        is_other_format = recorded.is_some_and(|recorded| differ_in_format(&recorded, &inputs));
        has_new_settings = !unrecorded && !is_other_format;
    }
    // a change that a user asked for is reported as pending
    let may_wait = is_other_format || matches!(target, Target::Installed(_)) && !has_new_settings;
    let (rendered, crds) = match render_checked(observer, bundle, settled, &inputs).await {
        Ok(accepted) => accepted,
        Err(error) if may_wait && error.class == Class::Transient => {
            return Ok(observed(recorded, Content::Unread(error)));
        }
        Err(error) => return Err(error),
    };
    let inputs = settings.fingerprint(request, bundle, rendered.issuer);
    Ok(observed(rendered.issuer, Content::Rendered { rendered, crds, inputs, unrecorded }))
}

/// Renders a bundle and lets all checks judge it.
async fn render_checked(
    observer: &mut impl Observer,
    bundle: &BundleFacts,
    settled: Option<CertProvider>,
    inputs: &str,
) -> Result<(Rendered, Checked), PassError> {
    let about = |error| about(bundle, error);
    let rendered = Arc::new(observer.render(bundle, settled, inputs).await.map_err(about)?);
    let crds = observer.check_crds(bundle, &rendered).await.map_err(about)?;
    // the message of the check begins with the account, and names the bundle in its details
    observer.check_account(bundle, &rendered.objects).await?;
    // no thread of a check that has ended holds it
    Ok((Arc::unwrap_or_clone(rendered), crds))
}

/// The error with the name of the target bundle.
#[must_use]
pub fn about(bundle: &BundleFacts, error: PassError) -> PassError {
    let (name, version) = (&bundle.name, &bundle.version);
    let message = format!("error for resolved bundle {name:?} with version {version:?}: {}", error.message);
    PassError { message, ..error }
}

/// As [`plan`], on a thread for blocking work and for a bounded time if the objects are large.
///
/// # Errors
/// When it took too long; inside, the error of [`plan`].
pub async fn plan_in_time(
    request: &ExtensionRequest,
    observed: Observed<'_>,
) -> Result<Result<Plan, PassError>, PassError> {
    let Observed { revisions, target, system_namespace, issuer, content } = observed;
    let size = match &content {
        Content::Rendered { rendered, .. } => work::size(&rendered.objects),
        Content::Unneeded | Content::Unread(_) | Content::Same { .. } => 0,
    };
    let (request, revisions, target) = (request.clone(), revisions.to_vec(), target.clone());
    let system_namespace = system_namespace.to_owned();
    let plan = move |cancellation: &Cancellation| {
        let (revisions, target, system_namespace) = (&revisions[..], &target, &system_namespace[..]);
        plan_until(&request, Observed { revisions, target, system_namespace, issuer, content }, cancellation)
    };
    work::run("packing its objects into Secrets", size, plan).await
}

/// The plan.
///
/// # Errors
/// When the objects of the target do not fit into a revision.
pub fn plan(request: &ExtensionRequest, observed: Observed<'_>) -> Result<Plan, PassError> {
    plan_until(request, observed, &Cancellation::default())
}

fn plan_until(
    request: &ExtensionRequest,
    observed: Observed<'_>,
    cancellation: &Cancellation,
) -> Result<Plan, PassError> {
    let Observed { revisions, target, system_namespace, issuer, content } = observed;
    let newest = revision::newest(revisions);
    let bundle = target.bundle();
    let keep = Plan { change: Change::Keep, notices: Vec::new(), issuer, inputs: None, digest: None };
    let unavailable = |more: &str| {
        let name = &bundle.name;
        let text = format!("no selected catalog that may have bundle {name} can be read; it is kept{more}");
        Notice::warning("CatalogsUnavailable", text)
    };
    let kept = matches!(target, Target::Installed(_)).then(|| unavailable(""));
    match content {
        Content::Unneeded => Ok(keep),
        Content::Unread(error) => {
            let notice = match target {
                Target::Installed(_) => {
                    let error = error.message;
                    unavailable(&format!(
                        ", and its settings do not count before its image can be read: {error}"
                    ))
                }
                Target::Chosen(_) => Notice::warning(
                    "BundleUnavailable",
                    format!(
                        "bundle {} is kept as another version of olm-rs rendered it; it is rendered again once it can be read: {}",
                        bundle.name, error.message
                    ),
                ),
            };
            Ok(Plan { change: with_deadline(request, newest), notices: vec![notice], ..keep })
        }
        Content::Same { inputs } => {
            let ignored = newest.and_then(|newest| image_ignored(bundle, newest));
            let notices = ignored.into_iter().chain(kept).collect();
            Ok(Plan { change: with_deadline(request, newest), notices, inputs: Some(inputs), ..keep })
        }
        Content::Rendered { rendered, crds, inputs, unrecorded } => {
            let warnings = rendered.warnings.into_iter().map(|text| Notice::warning("BundleWarning", text));
            let accepted = crds.accepted.into_iter().map(|text| {
                let text = format!("accepted by the annotation {}: {text}", annotations::ACCEPT_CRD_CHANGE);
                Notice::warning("CRDChangeAccepted", text)
            });
            let crds = crds.warnings.into_iter().map(|text| Notice::warning("CRDUpgradeSafety", text));
            let mut notices: Vec<Notice> = warnings.chain(crds).chain(accepted).chain(kept).collect();
            let digest = Some(rendered.digest);
            let desired = Desired::new(request, bundle, rendered.properties.as_deref(), rendered.objects)?;
            let inputs = Some(inputs);
            if let Some(newest) = newest {
                let compared =
                    desired.numbered_until(newest.spec.revision, system_namespace, cancellation)?;
                if same_content(newest, &compared.set) {
                    let change = match same_settings(newest, &compared.set) {
                        _ if unrecorded => Change::Restore(Box::new(compared)),
                        true => Change::Keep,
                        false => Change::Update(Box::new(compared.set)),
                    };
                    return Ok(Plan { change, notices, inputs, digest, ..keep });
                }
            }
            let history = history(revisions);
            let number = next_number(&history);
            let revision = desired.numbered_until(number, system_namespace, cancellation)?;
            notices.push(resolved(bundle, newest, &revision.set));
            let expired = expired(&history).into_iter().map(str::to_owned).collect();
            let phases = desired.into_phases();
            let change = Change::Create(Box::new(NewRevision { revision, phases, expired }));
            Ok(Plan { change, notices, inputs, digest, ..keep })
        }
    }
}

/// The deadline of an active revision changes in place, and without the content of the bundle.
fn with_deadline(request: &ExtensionRequest, newest: Option<&Arc<ClusterObjectSet>>) -> Change {
    let deadline = request.progress_deadline_minutes;
    let active = newest.filter(|newest| revision::is_active(newest));
    let changed = active.filter(|newest| newest.spec.progress_deadline_minutes != deadline);
    changed.map_or(Change::Keep, |newest| {
        let mut set = ClusterObjectSet::clone(newest);
        set.spec.progress_deadline_minutes = deadline;
        set.status = None;
        set.metadata = applied_metadata(&newest.metadata);
        Change::Update(Box::new(set))
    })
}

/// The reason for a new revision.
fn resolved(bundle: &BundleFacts, newest: Option<&Arc<ClusterObjectSet>>, next: &ClusterObjectSet) -> Notice {
    let name = &bundle.name;
    let revision = next.metadata.name.as_deref().unwrap_or_default();
    let before = newest.map(|set| revision::facts(set).bundle);
    let is_active = newest.is_some_and(|newest| revision::is_active(newest));
    let text = match before {
        None => format!("bundle {name} was chosen; revision {revision} installs it"),
        Some(before) if before.is_same(bundle) && !is_active => {
            format!(
                "the last revision of bundle {name} is no longer active; revision {revision} rolls it out again"
            )
        }
        Some(before) if before.is_same(bundle) => {
            format!(
                "the content of bundle {name} changed with its settings; revision {revision} rolls it out"
            )
        }
        Some(before) => {
            format!("bundle {name} was chosen after {}; revision {revision} rolls it out", before.name)
        }
    };
    Notice::normal("Resolved", text)
}

/// An installed bundle keeps the content it was installed with, whatever image the catalog names for it now (decision 24).
fn image_ignored(bundle: &BundleFacts, newest: &ClusterObjectSet) -> Option<Notice> {
    let present = revision::facts(newest).bundle;
    let text = || {
        format!(
            "bundle {} was installed from {} and is kept; the catalog now names {} for it, which a bundle with a new version \
             would bring",
            bundle.name, present.reference, bundle.reference
        )
    };
    (present.is_same(bundle) && present.reference != bundle.reference)
        .then(|| Notice::warning(IMAGE_IGNORED, text()))
}

#[cfg(test)]
mod tests;
