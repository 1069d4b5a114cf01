//! The status of a ClusterExtension, derived once from a [`PassResult`] and never patched along the way.
//!
//! Conditions and texts: rule operator-controller §5.1 to §5.3, revisions §9.6; `Ready`, `Reconciling`, `Stalled`: decision 4;
//! deprecation values: decision 7; `UpgradeAvailable`: decisions 32 and 34. It knows no client and no clock.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;
use olm_api::cluster_extension::{BundleMetadata, InstallStatus, RevisionStatus, WebhookCertificates};
use olm_api::{ClusterExtensionStatus, Condition, ConditionStatus, annotations, condition, reason};
use olm_core::{dns_subdomain, message};
use olm_install::resolution::{Cause, Class, PassError, RevisionFacts, RevisionStates, UpgradeUpdate};
use olm_rollout::report;
use olm_rollout::status::Obstacle;

use super::deprecation;
use super::result::{PassResult, Progress};
use crate::certificates::provider;

const NO_BUNDLE: &str = "No bundle installed";

/// The status after `result`.
///
/// `before` is the stored status: it lends transition times, and deprecation values that a transient error must not lose.
/// `report_release`: `install.bundle.release` is a field of its own (gate BundleReleaseSupport).
pub fn derive(
    result: &PassResult,
    before: Option<&ClusterExtensionStatus>,
    generation: i64,
    report_release: bool,
    now: Timestamp,
) -> ClusterExtensionStatus {
    let stored = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let make = ConditionBuilder { generation, now };
    let states = &result.revisions;

    let mut conditions = Vec::new();
    let installed = installed(&result.progress, states, stored, &make);
    let available = states.installed.as_ref().and_then(|revision| revision.condition(condition::AVAILABLE));
    let progressing = progressing(&result.progress, states, stored, &make);
    let ready = ready(&result.progress, states, progressing.as_ref(), available, &make);
    // tools that show one condition show this one or `Stalled`; the details are in `Progressing` (decision 33)
    let ready = Condition { message: message::first_line(&ready.message).to_owned(), ..ready };
    let (reconciling, stalled) = kstatus(&result.progress, progressing.as_ref(), &ready, &make);

    conditions.extend(deprecation::conditions(
        &result.deprecations,
        states.installed.is_some(),
        stored,
        generation,
        now,
    ));
    conditions.extend(installed);
    conditions.extend(progressing);
    conditions.extend(available.map(|found| make.mirror(found)));
    conditions.push(ready);
    conditions.extend(quarantined(&result.progress, stored, &make));
    conditions.extend(upgrade_available(&result.upgrade, states, stored, &make));
    conditions.extend(reconciling);
    conditions.extend(stalled);
    // those of other writers stay
    let is_foreign = |found: &&Condition| condition::spec(condition::EXTENSION, &found.type_).is_none();
    conditions.extend(stored.iter().filter(is_foreign).cloned());

    ClusterExtensionStatus {
        conditions: condition::merge(stored, conditions),
        install: states.installed.as_ref().map(|RevisionFacts { bundle, .. }| InstallStatus {
            bundle: BundleMetadata {
                name: dns_subdomain(&bundle.name).into_owned(),
                version: bundle.version.clone(),
                release: bundle.release.clone().filter(|_| report_release),
            },
        }),
        active_revisions: active_revisions(states, &make),
        webhook_certificates: match &result.progress {
            Progress::Applied { issuer: Some(issuer), .. } => {
                Some(WebhookCertificates { provider: provider::to_status(*issuer) })
            }
            _ => before.and_then(|status| status.webhook_certificates.clone()),
        },
    }
}

struct ConditionBuilder {
    generation: i64,
    now: Timestamp,
}

impl ConditionBuilder {
    fn made(
        &self,
        type_: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
    ) -> Condition {
        Condition::new(type_, status, reason, message, Some(self.generation), self.now)
    }

    /// A revision's condition as the extension shows it: same words and time, the extension's generation.
    fn mirror(&self, found: &Condition) -> Condition {
        Condition { observed_generation: Some(self.generation), ..found.clone() }
    }
}

/// `None` leaves the condition out: nothing was installed, and the reference leaves it out too.
fn installed(
    progress: &Progress,
    states: &RevisionStates,
    stored: &[Condition],
    make: &ConditionBuilder,
) -> Option<Condition> {
    let type_ = condition::INSTALLED;
    if let Some(revision) = &states.installed {
        let bundle = &revision.bundle;
        let mut message = format!("Installed bundle {} successfully", bundle.reference);
        // the schema of the field would refuse the whole status; rule: operator-controller §9.1 row 29
        if let Cow::Owned(reported) = dns_subdomain(&bundle.name) {
            message.push_str(&format!(
                "; the bundle's name {:?} is no DNS subdomain, so status.install.bundle.name is {reported:?}",
                bundle.name
            ));
        }
        return Some(make.made(type_, ConditionStatus::True, reason::SUCCEEDED, message));
    }
    if let Progress::Failed(PassError { class: Class::InvalidConfiguration, .. }) = progress {
        let found = condition::find(stored, type_);
        // a bundle that is gone is not installed any more, whatever the configuration is
        if found.is_none_or(|found| found.status != ConditionStatus::True) {
            return found.map(|found| make.mirror(found));
        }
    }
    let waiting = states.rolling.last().is_some_and(|revision| {
        revision.condition(condition::PROGRESSING).is_none_or(|found| found.reason != reason::RETRYING)
    });
    let reason = if waiting { reason::ABSENT } else { reason::FAILED };
    Some(make.made(type_, ConditionStatus::False, reason, NO_BUNDLE))
}

fn progressing(
    progress: &Progress,
    states: &RevisionStates,
    stored: &[Condition],
    make: &ConditionBuilder,
) -> Option<Condition> {
    let type_ = condition::PROGRESSING;
    let failed = |failure: &PassError| {
        let (status, reason) = match failure.class {
            Class::Transient | Class::NeedsChange => (ConditionStatus::True, reason::RETRYING),
            Class::Blocked => (ConditionStatus::False, reason::BLOCKED),
            Class::InvalidConfiguration => (ConditionStatus::False, reason::INVALID_CONFIGURATION),
        };
        make.made(type_, status, reason, fit(&failure.message))
    };
    match progress {
        Progress::Invalid(failure) | Progress::Failed(failure) => Some(failed(failure)),
        Progress::Applied { .. } => rollout(states, make).or_else(|| teardown(states, make)),
        Progress::Paused => rollout(states, make).or_else(|| condition::find(stored, type_).cloned()),
        Progress::Uninstalling { message, .. } => {
            Some(make.made(type_, ConditionStatus::True, reason::ROLLING_OUT, fit(message)))
        }
    }
}

/// Present while a bundle is not read again. Errors of other steps that may pass by themselves have no effect on it.
fn quarantined(progress: &Progress, stored: &[Condition], make: &ConditionBuilder) -> Option<Condition> {
    let type_ = condition::QUARANTINED;
    match progress {
        Progress::Failed(failure) if failure.cause == Cause::Quarantine => {
            let message = fit(&failure.message);
            Some(make.made(type_, ConditionStatus::True, reason::READING_ENDED_THE_PROCESS, message))
        }
        Progress::Failed(PassError { class: Class::Transient, .. }) | Progress::Paused => {
            condition::find(stored, type_).cloned()
        }
        Progress::Failed(_)
        | Progress::Invalid(_)
        | Progress::Applied { .. }
        | Progress::Uninstalling { .. } => None,
    }
}

/// Present while the catalogs have an upgrade that is not made by itself (decision 32), or that the cluster does not fit (decision 34).
fn upgrade_available(
    update: &UpgradeUpdate,
    states: &RevisionStates,
    stored: &[Condition],
    make: &ConditionBuilder,
) -> Option<Condition> {
    let type_ = condition::UPGRADE_AVAILABLE;
    let UpgradeUpdate { held, unfit, is_complete, has_range } = update;
    let is_found = held.is_some() || unfit.is_some();
    let is_taken = |earlier: &Condition| {
        let mut revisions = [states.installed.as_ref(), states.newest()].into_iter().flatten();
        revisions.any(|revision| names_bundle(earlier, &revision.bundle.name))
    };
    let stays = |earlier: &&Condition| {
        // what is found counts for a spec that has changed since
        let is_current = earlier.observed_generation == Some(make.generation);
        (is_current || !is_found)
            && (!has_range || earlier.reason == reason::ENVIRONMENT_NOT_MET)
            && !is_taken(earlier)
    };
    if !is_complete && let Some(earlier) = condition::find(stored, type_).filter(stays) {
        // with its own generation: it is not known what the catalogs have for this one
        return Some(earlier.clone());
    }
    let held = held.as_ref().map(|held| {
        let follow = format!(
            "to follow to each major version, set the annotation {} to Automatic",
            annotations::MAJOR_UPDATES
        );
        (reason::MAJOR_VERSION_HELD, format!("{held}\n{follow}"))
    });
    let unfit = unfit.as_ref().map(|unfit| (reason::ENVIRONMENT_NOT_MET, unfit.to_string()));
    let all: Vec<_> = held.into_iter().chain(unfit).collect();
    let text: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    let (reason, _) = all.first()?;
    Some(make.made(type_, ConditionStatus::True, reason, message::fit(&text.join("\n"))))
}

/// Whether a line of the condition is about this bundle. The message is read because the status has the bundle nowhere else: after a restart,
/// or in another replica, nothing remembers it, and it cannot be resolved again while a catalog is unread.
fn names_bundle(found: &Condition, bundle: &str) -> bool {
    found.message.lines().any(|line| olm_resolver::printed_bundle(line) == Some(bundle))
}

/// The condition of the newest revision: an older one that still rolls out does not count. A revision without conditions has just been
/// created.
fn rollout(states: &RevisionStates, make: &ConditionBuilder) -> Option<Condition> {
    let source = states.newest()?;
    Some(match source.condition(condition::PROGRESSING) {
        Some(found) => make.mirror(found),
        None => make.made(
            condition::PROGRESSING,
            ConditionStatus::True,
            reason::ROLLING_OUT,
            format!("Revision {} is rolling out.", source.bundle.version),
        ),
    })
}

/// While a revision that a user deleted is torn down, nothing is rolled out yet.
fn teardown(states: &RevisionStates, make: &ConditionBuilder) -> Option<Condition> {
    let deleted = states.deleted.as_ref()?;
    let obstacle = deleted.condition(condition::PROGRESSING).and_then(|found| Obstacle::read(&found.message));
    let rest = match obstacle {
        Some(obstacle) => format!(": {}", obstacle.text),
        None => format!("; bundle {} is installed again after that", deleted.bundle.name),
    };
    let message = fit(&format!("revision {} was deleted and is torn down{rest}", deleted.name));
    Some(make.made(condition::PROGRESSING, ConditionStatus::True, reason::ROLLING_OUT, message))
}

fn ready(
    progress: &Progress,
    states: &RevisionStates,
    progressing: Option<&Condition>,
    available: Option<&Condition>,
    make: &ConditionBuilder,
) -> Condition {
    let no =
        |reason: &str, message: String| make.made(condition::READY, ConditionStatus::False, reason, message);
    let message = || progressing.map(|found| found.message.clone()).unwrap_or_default();
    let rolling_out = || {
        let available = states.newest().and_then(|newest| newest.condition(condition::AVAILABLE));
        let waits_for = available.filter(|found| found.reason == reason::PROBE_FAILURE).map(cause);
        let message = message();
        match waits_for {
            Some(cause) => format!("{}: {cause}", message.trim_end_matches('.')),
            None => message,
        }
    };
    match progress {
        Progress::Paused => no(
            reason::PAUSED,
            format!("reconciliation is paused by annotation {}; remove it to continue", annotations::PAUSED),
        ),
        Progress::Uninstalling { message, .. } => no(reason::ROLLING_OUT, fit(message)),
        Progress::Invalid(failure) | Progress::Failed(failure) => {
            let reason = match failure.class {
                Class::Transient | Class::NeedsChange => reason::RETRYING,
                Class::Blocked | Class::InvalidConfiguration => reason::BLOCKED,
            };
            no(reason, fit(&failure.message))
        }
        Progress::Applied { target, .. } => {
            let state = progressing.map(|found| (found.status, found.reason.as_str()));
            match (state, &states.installed) {
                (Some((ConditionStatus::False, _)), _) => no(reason::BLOCKED, message()),
                (Some((_, reason::RETRYING)), _) => no(reason::RETRYING, message()),
                (_, _) if states.successor().is_some() => no(reason::ROLLING_OUT, rolling_out()),
                (_, None) => no(reason::ROLLING_OUT, rolling_out()),
                (_, Some(installed)) if !installed.bundle.is_same(target) => no(
                    reason::UPGRADE_PENDING,
                    format!("bundle {} is installed, {} is desired", installed.bundle.name, target.name),
                ),
                (_, Some(_)) if available.is_none_or(|found| found.status != ConditionStatus::True) => {
                    no(reason::UNAVAILABLE, available.map(cause).unwrap_or_default())
                }
                (Some((_, reason::SUCCEEDED)), Some(installed)) => make.made(
                    condition::READY,
                    ConditionStatus::True,
                    reason::SUCCEEDED,
                    format!("bundle {} is installed and available", installed.bundle.name),
                ),
                (_, Some(_)) => no(reason::ROLLING_OUT, message()),
            }
        }
    }
}

/// The first object that is not ready, with its cause, from the `Available` condition of a revision.
fn cause(available: &Condition) -> String {
    report::readable(available.message.lines().next().unwrap_or_default())
}

/// kstatus conditions: present only while they hold.
fn kstatus(
    progress: &Progress,
    progressing: Option<&Condition>,
    ready: &Condition,
    make: &ConditionBuilder,
) -> (Option<Condition>, Option<Condition>) {
    let on = |type_: &str, reason: &str| {
        Some(make.made(type_, ConditionStatus::True, reason, ready.message.clone()))
    };
    let stalled = match progress {
        Progress::Invalid(failure) | Progress::Failed(failure) => failure.class != Class::Transient,
        Progress::Applied { .. } => progressing.is_some_and(|found| found.status == ConditionStatus::False),
        Progress::Paused | Progress::Uninstalling { .. } => false,
    };
    let idle = ready.status == ConditionStatus::True || matches!(progress, Progress::Paused);
    match (stalled, idle) {
        (true, _) => (None, on(condition::STALLED, stalled_reason(progress).unwrap_or(&ready.reason))),
        (false, true) => (None, None),
        (false, false) => (on(condition::RECONCILING, &ready.reason), None),
    }
}

/// The reason by which the next process finds that the error was about a certificate.
fn stalled_reason(progress: &Progress) -> Option<&'static str> {
    match progress {
        Progress::Failed(PassError { cause: Cause::Certificate, .. }) => Some(reason::CERTIFICATE_REFUSED),
        Progress::Failed(_)
        | Progress::Invalid(_)
        | Progress::Applied { .. }
        | Progress::Paused
        | Progress::Uninstalling { .. } => None,
    }
}

fn active_revisions(states: &RevisionStates, make: &ConditionBuilder) -> Vec<RevisionStatus> {
    let installed = states
        .installed
        .iter()
        .map(|revision| RevisionStatus { name: revision.name.clone(), conditions: Vec::new() });
    let rolling = states.rolling.iter().map(|revision| {
        let mirrored = [condition::AVAILABLE, condition::PROGRESSING].into_iter();
        let mirrored = mirrored.filter_map(|type_| revision.condition(type_)).map(|found| make.mirror(found));
        RevisionStatus { name: revision.name.clone(), conditions: mirrored.collect() }
    });
    installed.chain(rolling).collect()
}

/// An error text without what changes from try to try, in the form of all messages. Rule: operator-controller §3.5, decision 33.
fn fit(text: &str) -> String {
    message::fit(&olm_runtime::error_text::stable(text))
}

#[cfg(test)]
mod tests;
