//! The decision about one catalog, from what is observed of it. Pure.
//!
//! Rules: catalogd §4.2, §4.3, §4.5, §4.7 with decision 15 (every replica serves, the leader resolves and reports) and
//! the corrections of §12: only a changed reference or spec (decision 35), a due poll, lost content or the user's request resolves the tag.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use olm_api::cluster_catalog::{AvailabilityMode, ClusterCatalog};
use olm_api::condition::ConditionStatus;
use olm_api::{annotations, condition, finalizers, labels, reason};
use olm_core::{KubernetesVersion, ResolvedTemplate};
use olm_runtime::backoff;

/// Share of the poll interval by which the next poll may be late, so that catalogs do not poll in step.
const JITTER: f64 = 0.01;
/// Pause after an error that needs a change outside of the cluster; shorter if the poll interval is.
pub(crate) const SLOW_RETRY: Duration = Duration::from_secs(300);

/// What is served under the catalog's name on this replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Canonical reference with digest.
    pub reference: String,
    /// The user's reference that led to it, if known.
    pub source: Option<String>,
    /// Seconds since 1970.
    pub last_unpacked: i64,
}

/// What the process remembers about a catalog between two reconciliations.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// When the reference was last resolved and its content stored; moves on by polls.
    pub polled: Option<Instant>,
    /// The last value of the request annotation that was acted upon; the first one seen counts as old.
    pub requested: Option<Option<String>>,
    /// Failures since the last success.
    pub failure: Option<FailedAttempt>,
    /// The generation of the catalog that this process resolved last as leader, or tried to before its failure was dropped.
    pub generation: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The reference that was tried.
    pub reference: String,
    /// The generation of the catalog that asked for it; none if the status did.
    pub generation: Option<i64>,
    /// How many attempts have failed in a row.
    pub attempts: u32,
    /// What went wrong, with the whole chain of causes.
    pub message: String,
    /// Only a change of the object can help.
    pub blocked: bool,
    /// When to try again; never for a terminal error.
    pub retry: Option<Instant>,
    pub quarantine: Quarantine,
}

/// What an attempt means for the quarantine in the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quarantine {
    /// It stays as it is.
    Unchanged,
    /// The image of the attempt is in quarantine.
    Set,
    /// The user lifted it.
    Lifted,
}

/// When another attempt may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Only a changed object can help.
    Never,
    /// A user or administrator has to fix something; retried seldom.
    Slow,
    /// With growing pauses.
    Backoff,
    /// The registry named the pause.
    After(Duration),
}

/// Why a pull is due; for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nothing is served.
    NoContent,
    /// The reference in the spec is another one.
    NewReference,
    /// Another field of the spec has changed (decision 35).
    SpecChanged,
    /// The status names other content than what is served here.
    StatusDiffers,
    /// The poll interval is over.
    PollDue,
    /// The user asked for it.
    Requested,
    /// The last attempt failed.
    Retry,
}

impl Why {
    /// Whether nothing new has happened: the time for another attempt has come.
    #[must_use]
    pub(crate) fn is_repetition(self) -> bool {
        matches!(self, Self::PollDue | Self::Retry)
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Stop serving; the user switched the catalog off. The leader reports it and drops the finalizer.
    SwitchOff,
    /// Stop serving; the catalog is being deleted. The leader reports it and drops the finalizer.
    TearDown,
    /// Being deleted and waiting for finalizers of other components.
    LeaveAlone,
    /// Resolve this reference and serve what it leads to.
    Pull {
        /// The user's reference.
        reference: String,
        /// For the log.
        why: Why,
    },
    /// Serve exactly this content, which the leader has published.
    Follow {
        /// Canonical reference with digest.
        reference: String,
    },
    /// The object cannot be read as a source of content.
    Refuse(String),
    /// Nothing to fetch; the status may still need to be corrected.
    Rest {
        /// When to reconcile again, if ever.
        until: Option<Instant>,
    },
}

/// What the decision depends on.
#[derive(Debug)]
pub struct Observed<'a> {
    pub catalog: &'a ClusterCatalog,
    /// The image to serve ([`desired`]).
    pub desired: Option<&'a str>,
    /// Whether this replica decides and reports.
    pub leader: bool,
    /// What this replica serves.
    pub held: Option<&'a Held>,
    /// What it remembers.
    pub memory: &'a Memory,
    pub now: Instant,
    /// How long a minute of the poll interval is.
    pub minute: Duration,
    /// Random, from 0 to 1, new in each pass: the share of the jitter that is added to the poll interval.
    pub dice: f64,
}

/// The next step for the catalog.
#[must_use]
pub fn plan(observed: &Observed<'_>) -> Plan {
    let catalog = observed.catalog;
    let finalized = catalog.finalizers().iter().any(|name| name == finalizers::DELETE_SERVER_CACHE);
    let deleted = catalog.metadata.deletion_timestamp.is_some();
    match (catalog.spec.availability_mode, deleted, finalized) {
        (AvailabilityMode::Unavailable, ..) => return Plan::SwitchOff,
        (AvailabilityMode::Available, true, true) => return Plan::TearDown,
        (AvailabilityMode::Available, true, false) => return Plan::LeaveAlone,
        (AvailabilityMode::Available, false, _) => {}
    }
    if !observed.leader {
        return follow(observed);
    }
    let Some(reference) = observed.desired.map(str::to_owned) else {
        let name = catalog.name_any();
        return Plan::Refuse(format!(
            "terminal error: error parsing ClusterCatalog \"{name}\", image source is nil"
        ));
    };
    let generation = catalog.metadata.generation;
    let interval = interval(catalog, observed.minute);
    if requested(catalog, observed.memory) {
        return Plan::Pull { reference, why: Why::Requested };
    }
    let is_same =
        |failure: &&FailedAttempt| failure.reference == reference && failure.generation == generation;
    if let Some(failure) = observed.memory.failure.as_ref().filter(is_same) {
        return match failure.retry {
            Some(when) if when <= observed.now => Plan::Pull { reference, why: Why::Retry },
            until => Plan::Rest { until },
        };
    }
    let why = match observed.held {
        None => Some(Why::NoContent),
        Some(held) if held.source.as_ref() != Some(&reference) => Some(Why::NewReference),
        Some(held) if resolved(catalog).is_some_and(|status| digest(status) != digest(&held.reference)) => {
            Some(Why::StatusDiffers)
        }
        Some(_) if resolved_generation(observed).is_some_and(|known| Some(known) != generation) => {
            Some(Why::SpecChanged)
        }
        Some(_) if has_failed_before(observed) => Some(Why::Retry),
        Some(_) => None,
    };
    if let Some(why) = why {
        return Plan::Pull { reference, why };
    }
    match (interval, observed.memory.polled) {
        (None, _) => Plan::Rest { until: None },
        (Some(_), None) => Plan::Pull { reference, why: Why::PollDue },
        (Some(interval), Some(polled)) => {
            let due = polled.checked_add(interval.mul_f64(1.0 + JITTER * observed.dice));
            match due {
                Some(due) if due <= observed.now => Plan::Pull { reference, why: Why::PollDue },
                until => Plan::Rest { until },
            }
        }
    }
}

/// The generation whose reference was resolved last: by this process, else by the status.
fn resolved_generation(observed: &Observed<'_>) -> Option<i64> {
    let reported = || {
        let conditions = &observed.catalog.status.as_ref()?.conditions;
        condition::find(conditions, condition::PROGRESSING)?.observed_generation
    };
    observed.memory.generation.or_else(reported)
}

/// Whether the last attempt has failed, by the status, and this process has made none: it began later, or did not lead.
fn has_failed_before(observed: &Observed<'_>) -> bool {
    let conditions = observed.catalog.status.as_ref().map(|status| status.conditions.as_slice());
    let progressing = condition::find(conditions.unwrap_or_default(), condition::PROGRESSING);
    observed.memory.generation.is_none()
        && progressing.is_some_and(|progressing| progressing.reason != reason::SUCCEEDED)
}

/// A replica that does not lead serves what the status names.
fn follow(observed: &Observed<'_>) -> Plan {
    let Some(published) = resolved(observed.catalog) else { return Plan::Rest { until: None } };
    if observed.held.is_some_and(|held| digest(&held.reference) == digest(published)) {
        return Plan::Rest { until: None };
    }
    let reference = published.to_owned();
    match observed.memory.failure.as_ref().filter(|failure| failure.reference == reference) {
        Some(FailedAttempt { retry: Some(when), .. }) if *when > observed.now => {
            Plan::Rest { until: Some(*when) }
        }
        Some(FailedAttempt { retry: None, .. }) => Plan::Rest { until: None },
        _ => Plan::Follow { reference },
    }
}

/// Whether the user has asked for an attempt since the last reconciliation.
#[must_use]
pub fn requested(catalog: &ClusterCatalog, memory: &Memory) -> bool {
    let asked = catalog.annotations().get(annotations::REQUESTED_AT);
    match &memory.requested {
        Some(known) => asked.is_some() && known.as_ref() != asked,
        None => false,
    }
}

/// The message about the image that is not read again, if there is one. It names the digest.
#[must_use]
pub fn quarantine(catalog: &ClusterCatalog) -> Option<&str> {
    let conditions = &catalog.status.as_ref()?.conditions;
    let found = condition::find(conditions, condition::QUARANTINED)?;
    (found.status == ConditionStatus::True).then_some(found.message.as_str())
}

/// Whether the status reports how it stands with the content.
#[must_use]
pub fn is_reported(catalog: &ClusterCatalog) -> bool {
    let conditions = catalog.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, condition::PROGRESSING).is_some()
}

/// The reference that is served, by the status.
#[must_use]
pub fn resolved(catalog: &ClusterCatalog) -> Option<&str> {
    Some(catalog.status.as_ref()?.resolved_source.as_ref()?.image.reference.as_str())
}

/// The poll interval, if the user wants polling; `minute` is the length of one of its minutes.
#[must_use]
pub fn interval(catalog: &ClusterCatalog, minute: Duration) -> Option<Duration> {
    let minutes = catalog.spec.source.image.as_ref()?.poll_interval_minutes?;
    let minutes = u64::try_from(minutes).ok()?;
    Some(minute.saturating_mul(u32::try_from(minutes).unwrap_or(u32::MAX)))
}

/// The part behind `@`.
fn digest(reference: &str) -> &str {
    reference.split_once('@').map_or(reference, |(_, digest)| digest)
}

/// The user's reference that led to what the status names, as far as the status proves it: its last success was about
/// the present generation.
#[must_use]
pub(crate) fn source_of_status(catalog: &ClusterCatalog) -> Option<String> {
    let status = catalog.status.as_ref()?;
    let progressing = condition::find(&status.conditions, condition::PROGRESSING)?;
    let proven = progressing.reason == reason::SUCCEEDED
        && progressing.observed_generation.is_some()
        && progressing.observed_generation == catalog.metadata.generation;
    // written together with what it led to; the annotation may have changed since
    let template = condition::find(&status.conditions, condition::RESOLVED_IMAGE);
    let template = template.filter(|found| found.status == ConditionStatus::True);
    let image = catalog.spec.source.image.as_ref().map(|image| &image.reference);
    template.map(|found| &found.message).or(image).filter(|_| proven).cloned()
}

/// The template of the image that an annotation has, resolved by the version of the cluster (classic-apis §2.6).
#[must_use]
pub fn template(catalog: &ClusterCatalog, version: Option<KubernetesVersion>) -> Option<ResolvedTemplate> {
    let template = catalog.annotations().get(annotations::CATALOG_IMAGE_TEMPLATE)?;
    Some(olm_core::resolve_image_template(template, version))
}

/// The image that a template names, if that is a reference.
#[must_use]
pub fn image_of(template: &ResolvedTemplate) -> Option<&str> {
    (template.error.is_none() && olm_oci::parse_reference(&template.image).is_ok()).then_some(&template.image)
}

/// The image to serve: that of the template, else that of the spec, which stays as it is.
#[must_use]
pub fn desired<'a>(catalog: &'a ClusterCatalog, template: Option<&'a ResolvedTemplate>) -> Option<&'a str> {
    let spec = || Some(catalog.spec.source.image.as_ref()?.reference.as_str());
    template.and_then(image_of).or_else(spec)
}

/// Whether an attempt at another image failed, while what is served comes from the image to serve.
#[must_use]
pub fn is_outdated(failure: &FailedAttempt, desired: Option<&str>, held: Option<&Held>) -> bool {
    desired.is_some_and(|desired| {
        failure.reference != desired && held.is_some_and(|held| held.source.as_deref() == Some(desired))
    })
}

/// Whether the label that carries the catalog's name is missing or wrong (decision 14).
#[must_use]
pub(crate) fn mislabelled(catalog: &ClusterCatalog) -> bool {
    catalog.labels().get(labels::METADATA_NAME) != Some(&catalog.name_any())
}

/// `status.lastUnpacked` of the content that the status names, if it is the content of `reference`: the same content has
/// the same date on every replica.
#[must_use]
pub(crate) fn known_date(catalog: &ClusterCatalog, reference: &str) -> Option<i64> {
    let date: Timestamp = catalog.status.as_ref()?.last_unpacked.as_ref()?.0;
    (digest(resolved(catalog)?) == digest(reference)).then(|| date.as_second())
}

/// The date of content: that of the same content in the status, else the date that this replica has served it with, else
/// `now`, but always later than the content that it replaces. A clock that was set back must not let a client take new
/// content for what it has (`If-Modified-Since` compares seconds).
#[must_use]
pub fn dated(known: Option<i64>, before: Option<(&Held, bool)>, now: i64) -> i64 {
    match (known, before) {
        (Some(known), _) => known,
        (None, Some((before, true))) => before.last_unpacked,
        (None, Some((before, false))) => now.max(before.last_unpacked.saturating_add(1)),
        (None, None) => now,
    }
}

/// The pause after the `attempts`-th failure in a row, counted from 1.
#[must_use]
pub fn pause(retry: Retry, attempts: u32, interval: Option<Duration>) -> Option<Duration> {
    let backoff = || backoff::delay(attempts.saturating_sub(1));
    match retry {
        Retry::Never => None,
        Retry::Slow => Some(interval.map_or(SLOW_RETRY, |interval| interval.min(SLOW_RETRY)).max(backoff())),
        Retry::Backoff => Some(backoff()),
        Retry::After(pause) => Some(pause.clamp(backoff(), backoff::CAP)),
    }
}

#[cfg(test)]
mod tests;
