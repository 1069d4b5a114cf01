//! From the wanted bundle to a revision that holds it: look, pull, render, check, write. Stops at the first thing that is
//! there already.
//!
//! Rules: operator-controller §3.4 (UnpackBundle, Apply), §6.3; revisions §4.2; decisions 9 and 24.

use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::ClusterObjectSet;
use olm_bundle::CertProvider;
use olm_install::desired::{
    Desired, DesiredError, applied_metadata, fingerprint, same_content, same_settings,
};
use olm_install::preflight;
use olm_install::resolution::{BundleFacts, Class, Failure, Wish, revision};
use olm_rollout::{RevisionFacts as Counted, expired, next_number};

use super::attempt::Note;
use super::shell::{Shell, Verified};
use super::writer::WriteError;

/// What delivering came to.
#[derive(Debug)]
pub struct Delivered {
    /// The revision that was written or changed, if any was.
    pub written: Option<ClusterObjectSet>,
    /// What a user should hear of.
    pub notes: Vec<Note>,
    /// Who issues the extension's webhook certificates, once that is chosen.
    pub issuer: Option<CertProvider>,
}

impl Delivered {
    fn nothing(issuer: Option<CertProvider>) -> Self {
        Self { written: None, notes: Vec::new(), issuer }
    }
}

/// Makes the newest revision hold `bundle`. `kept` is the certificate issuer that the status holds.
///
/// # Errors
/// With the text for the `Progressing` condition.
pub async fn deliver(
    shell: &Shell,
    wish: &Wish,
    bundle: &BundleFacts,
    revisions: &[Arc<ClusterObjectSet>],
    kept: Option<CertProvider>,
) -> Result<Delivered, Failure> {
    let about = |failure: Failure| Failure {
        message: format!(
            "error for resolved bundle {:?} with version {:?}: {}",
            bundle.name, bundle.version, failure.message
        ),
        ..failure
    };
    let inputs_with = |issuer| fingerprint(wish, bundle, &shell.bundles.options_text(issuer), crate::VERSION);
    let settled = shell.bundles.settled(kept);
    let inputs = inputs_with(settled);
    let newest = revisions.iter().max_by_key(|set| set.spec.revision);
    if let Some(newest) = newest
        && holds(shell, wish, newest, bundle, &inputs).await?
    {
        return settle(shell, wish, bundle, newest, &inputs, settled).await;
    }
    if let Some(failure) = shell.misfits.get(&wish.uid, bundle, &inputs) {
        return Err(failure);
    }
    let misfit = |error: DesiredError| {
        let failure = about(Failure::new(Class::NeedsChange, error.to_string()));
        shell.misfits.put(&wish.uid, bundle, &inputs, &failure);
        failure
    };

    shell.waiting.wait_for_crds(&wish.name, Vec::new());
    let content = shell.bundles.render(wish, bundle, settled).await.map_err(about)?;
    let issuer = content.issuer;
    let chosen_inputs = inputs_with(issuer);
    let mut notes: Vec<Note> =
        content.warnings.into_iter().map(|text| Note::warning("BundleWarning", text)).collect();
    // before they are read, so that no change is missed
    shell.waiting.wait_for_crds(&wish.name, preflight::names(&content.objects));
    let settings = shell.settings.preflight;
    let findings =
        preflight::check_knowing(&shell.client, &shell.crds, settings, wish, &content.objects, revisions);
    let findings = findings.await.map_err(about)?;
    shell.waiting.wait_for_crds(&wish.name, Vec::new());
    notes.extend(findings.into_iter().map(|text| Note::warning("CRDUpgradeSafety", text)));
    shell.accounts.check(wish, &content.objects).await.map_err(about)?;
    let desired =
        Desired::new(wish, bundle, content.properties.as_deref(), content.objects).map_err(misfit)?;
    let system = &shell.settings.system_namespace;
    if let Some(newest) = newest {
        let compared = desired.numbered(newest.spec.revision, system).map_err(misfit)?;
        if same_content(newest, &compared.set) {
            let stored = if same_settings(newest, &compared.set) {
                None
            } else {
                Some(shell.writer.update(&compared.set).await.map_err(written)?)
            };
            shell.remember(wish, newest, bundle, chosen_inputs);
            return Ok(Delivered { written: stored, notes, issuer });
        }
    }
    let counted: Vec<Counted> = revisions.iter().map(|set| count(set)).collect();
    let next = desired.numbered(next_number(&counted), system).map_err(misfit)?;
    let stored = shell.writer.create(&next, &expired(&counted), &chosen_inputs).await.map_err(written)?;
    tracing::info!(
        extension = wish.name,
        revision = stored.name_any(),
        bundle = bundle.name,
        "revision created"
    );
    shell.remember(wish, &stored, bundle, chosen_inputs);
    notes.push(chosen(bundle, newest, &stored));
    Ok(Delivered { written: Some(stored), notes, issuer })
}

/// Why there is a new revision.
fn chosen(bundle: &BundleFacts, newest: Option<&Arc<ClusterObjectSet>>, stored: &ClusterObjectSet) -> Note {
    let name = &bundle.name;
    let revision = stored.name_any();
    let before = newest.map(|set| revision::facts(set));
    Note::normal(
        "Resolved",
        match before {
            None => format!("bundle {name} was chosen; revision {revision} installs it"),
            Some(before) if before.bundle.is_same(bundle) => {
                format!(
                    "the content of bundle {name} changed with its settings; revision {revision} rolls it out"
                )
            }
            Some(before) => {
                format!(
                    "bundle {name} was chosen after {}; revision {revision} rolls it out",
                    before.bundle.name
                )
            }
        },
    )
}

/// An installed bundle keeps the content it was installed with, whatever image bears its name now (decision 24).
fn other_image(bundle: &BundleFacts, newest: &ClusterObjectSet) -> Option<Note> {
    let present = revision::facts(newest).bundle;
    (present.is_same(bundle) && present.reference != bundle.reference).then(|| {
        Note::warning(
            "ImageIgnored",
            format!(
                "bundle {} was installed from {} and is kept; the catalog now names {} for it, which a bundle with a new \
                 version would bring",
                bundle.name, present.reference, bundle.reference
            ),
        )
    })
}

/// Whether the newest revision was made from the same bundle and the same inputs: this process remembers, or the
/// revision's Secrets say so. Another account than the remembered one is checked first.
async fn holds(
    shell: &Shell,
    wish: &Wish,
    newest: &ClusterObjectSet,
    bundle: &BundleFacts,
    inputs: &str,
) -> Result<bool, Failure> {
    if !revision::is_active(newest) || !revision::facts(newest).bundle.is_same(bundle) {
        return Ok(false);
    }
    if let Some(verified) = shell.verified(newest) {
        return Ok(verified.inputs == inputs && verified.account == wish.service_account);
    }
    let found = shell.writer.own_secrets(newest).await.map_err(written)?;
    Ok(found.as_deref() == Some(inputs))
}

/// The content is right; only the settings that live beside it may differ.
async fn settle(
    shell: &Shell,
    wish: &Wish,
    bundle: &BundleFacts,
    newest: &ClusterObjectSet,
    inputs: &str,
    issuer: Option<CertProvider>,
) -> Result<Delivered, Failure> {
    let mut delivered = Delivered::nothing(issuer);
    if shell.verified(newest).is_none_or(|verified| verified.bundle.reference != bundle.reference) {
        delivered.notes.extend(other_image(bundle, newest));
    }
    if newest.spec.progress_deadline_minutes != wish.progress_deadline_minutes {
        let mut wanted = newest.clone();
        wanted.spec.progress_deadline_minutes = wish.progress_deadline_minutes;
        wanted.status = None;
        wanted.metadata = applied_metadata(&newest.metadata);
        delivered.written = Some(shell.writer.update(&wanted).await.map_err(written)?);
    }
    shell.remember(wish, newest, bundle, inputs.to_owned());
    Ok(delivered)
}

fn count(set: &ClusterObjectSet) -> Counted {
    Counted {
        name: set.name_any(),
        number: set.spec.revision,
        archived: set.spec.lifecycle_state == olm_api::cluster_object_set::LifecycleState::Archived,
        succeeded: set.status.as_ref().is_some_and(|status| {
            olm_api::condition::is_true(&status.conditions, olm_api::condition::SUCCEEDED)
        }),
    }
}

fn written(error: WriteError) -> Failure {
    Failure::new(Class::Transient, error.to_string())
}

/// Remembered for the extension with this UID.
impl Verified {
    /// Whether it is about this revision.
    #[must_use]
    pub fn is_about(&self, set: &ClusterObjectSet) -> bool {
        self.revision_uid.as_deref() == set.metadata.uid.as_deref()
    }
}
