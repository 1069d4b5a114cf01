//! Events about an extension that a pass emits.
//!
//! A steady state emits none, and neither does a retry that fails as before; a state that flaps is reported at most once in a
//! while ([`Event::key`]). The conditions show the present state. Rule: decision 19.

use olm_api::cluster_extension::BundleMetadata;
use olm_api::{ClusterExtensionStatus, Condition, ConditionStatus, annotations, condition, reason};
use olm_core::{VersionRelease, dns_subdomain, message};
use olm_install::resolution::{BundleFacts, Cause, Class, PassError};
use olm_rollout::report;
use olm_rollout::status::Obstacle;

use super::result::{Notice, PassResult, Progress, Trace};

/// One event to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its content.
    pub note: Notice,
    /// Events of one key count as the same, however they are worded.
    pub key: String,
}

impl Event {
    /// Counts as the same only when the text is the same.
    fn exact(note: Notice) -> Self {
        Self { key: format!("{}\0{}", note.reason, note.text), note }
    }

    /// Counts as the same whatever numbers the text has: attempts, seconds and ports change from one try to the next.
    fn numbered(note: Notice) -> Self {
        let text: String = note.text.chars().filter(|c| !c.is_ascii_digit()).collect();
        Self { key: format!("{}\0{text}", note.reason), note }
    }

    /// Counts as the same for its reason alone: the text changes while a state flaps.
    fn rare(note: Notice) -> Self {
        Self { key: note.reason.to_owned(), note }
    }
}

/// Events after a pass. `before` and `after` are the stored and the new status.
#[must_use]
pub fn events(
    before: Option<&ClusterExtensionStatus>,
    after: &ClusterExtensionStatus,
    result: &PassResult,
    trace: Trace,
) -> Vec<Event> {
    let changed = |type_: &str| {
        let now = condition::find(&after.conditions, type_)?;
        let then = before.and_then(|status| condition::find(&status.conditions, type_));
        let same = then.is_some_and(|then| {
            (then.status, &then.reason, &then.message) == (now.status, &now.reason, &now.message)
        });
        (!same).then_some((then, now))
    };
    let mut events: Vec<Event> = trace.notices.into_iter().map(Event::exact).collect();
    let bundle =
        |status: Option<&ClusterExtensionStatus>| status.and_then(|s| s.install.clone()).map(|i| i.bundle);
    let by = result.revisions.installed.as_ref().map(|revision| revision.number);
    let installed = installed(bundle(before), trace.previous, bundle(Some(after)));
    // each revision of a series of upgrades and rollbacks is one
    events.extend(installed.map(|note| Event { key: format!("{}\0{by:?}", note.reason), note }));
    match &result.progress {
        Progress::Invalid(failure) | Progress::Failed(failure) => {
            events.extend(changed(condition::PROGRESSING).map(|_| failed(failure)));
        }
        Progress::Uninstalling { message, obstacle } => {
            let changed = changed(condition::PROGRESSING).and(obstacle.as_ref());
            events.extend(changed.map(|obstacle| held(message, obstacle)));
        }
        Progress::Applied { .. } => {
            events.extend(changed(condition::PROGRESSING).and_then(|(_, now)| stuck(now)));
        }
        Progress::Paused => {}
    }
    // what an invalid annotation means is not known
    if !matches!(result.progress, Progress::Invalid(_)) {
        events.extend(changed(condition::READY).and_then(|(then, now)| paused(then, now)).map(Event::exact));
    }
    let newest = result.revisions.newest().and_then(|revision| revision.condition(condition::AVAILABLE));
    events.extend(changed(condition::READY).and_then(|(_, now)| waiting(now, newest?)).map(Event::rare));
    // while another revision takes its objects over, the installed one is bound to lose sight of them
    if result.revisions.successor().is_none() {
        events.extend(
            changed(condition::AVAILABLE).and_then(|(then, now)| unavailable(then, now)).map(Event::rare),
        );
    }
    events.extend(changed(condition::UPGRADE_AVAILABLE).map(|(_, now)| Event::exact(upgrade_available(now))));
    for spec in condition::of_kind(condition::EXTENSION) {
        let Some(reason) = spec.event else { continue };
        let deprecated = changed(spec.type_).filter(|(_, now)| now.status == ConditionStatus::True);
        events.extend(deprecated.map(|(_, now)| Event::exact(Notice::warning(reason, now.message.clone()))));
    }
    events
}

/// The installed bundle came, went up, or went down.
fn installed(
    before: Option<BundleMetadata>,
    previous: Option<BundleFacts>,
    after: Option<BundleMetadata>,
) -> Option<Notice> {
    let after = after?;
    let previous = previous.map(|bundle| BundleMetadata {
        // as the status has it
        name: dns_subdomain(&bundle.name).into_owned(),
        version: bundle.version,
        release: bundle.release,
    });
    if before.as_ref() == Some(&after) {
        return None;
    }
    let Some(before) = before.or(previous) else {
        return Some(Notice::normal("Installed", format!("bundle {} is installed", after.name)));
    };
    if (&before.name, &before.version) == (&after.name, &after.version) {
        return None; // the same bundle with other settings
    }
    let (old, new) = (&before.name, &after.name);
    Some(if parsed(&after) < parsed(&before) {
        Notice::normal("RolledBack", format!("bundle {new} is installed in place of the higher {old}"))
    } else {
        Notice::normal("Upgraded", format!("bundle {new} is installed in place of {old}"))
    })
}

fn parsed(bundle: &BundleMetadata) -> Option<VersionRelease> {
    VersionRelease::parse(&bundle.version, bundle.release.as_deref()).ok()
}

fn failed(failure: &PassError) -> Event {
    let note = |reason| Notice::warning(reason, failure.message.clone());
    match (failure.cause, failure.class) {
        (_, Class::Transient) => Event::numbered(note("Retrying")),
        (Cause::CrdSafety, _) => Event::exact(note("UpgradeRefused")),
        (Cause::Dependencies, _) => Event::exact(note("DependencyMissing")),
        (Cause::Signature, _) => Event::exact(note("SignatureRefused")),
        (Cause::Other | Cause::Quarantine | Cause::Certificate, Class::NeedsChange) => {
            Event::exact(note("NeedsChange"))
        }
        (Cause::Other | Cause::Quarantine | Cause::Certificate, Class::Blocked) => {
            Event::exact(note(reason::BLOCKED))
        }
        (Cause::Other | Cause::Quarantine | Cause::Certificate, Class::InvalidConfiguration) => {
            Event::exact(note(reason::INVALID_CONFIGURATION))
        }
    }
}

/// A newest revision that does not progress.
fn stuck(progressing: &Condition) -> Option<Event> {
    let note = |reason| Some(Notice::warning(reason, progressing.message.clone()));
    match (progressing.status, progressing.reason.as_str()) {
        (ConditionStatus::False, reason::PROGRESS_DEADLINE_EXCEEDED) => {
            note(reason::PROGRESS_DEADLINE_EXCEEDED)
        }
        (ConditionStatus::False, _) => note(reason::BLOCKED),
        (_, reason::RETRYING) => note(reason::RETRYING),
        _ => None,
    }
    .map(Event::numbered)
}

/// A rollout whose pods fail. `available` is the condition of its revision.
fn waiting(ready: &Condition, available: &Condition) -> Option<Notice> {
    report::cause(message::first_line(&available.message))?;
    let is_rolling_out = ready.reason == reason::ROLLING_OUT && available.status == ConditionStatus::False;
    is_rolling_out.then(|| Notice::warning("RolloutWaiting", ready.message.clone()))
}

/// A removal that something keeps from ending. Numbers change while custom resources go: those events count as the same.
fn held(message: &str, obstacle: &Obstacle) -> Event {
    let obstacle = Event::numbered(Notice::warning("UninstallWaiting", obstacle.text.clone()));
    Event { note: Notice { text: message.to_owned(), ..obstacle.note }, key: obstacle.key }
}

fn paused(then: Option<&Condition>, now: &Condition) -> Option<Notice> {
    let was = then.is_some_and(|then| then.reason == reason::PAUSED);
    match (was, now.reason == reason::PAUSED) {
        (false, true) => {
            let text = format!(
                "nothing is resolved or applied until the annotation {} is removed",
                annotations::PAUSED
            );
            Some(Notice::normal("Paused", text))
        }
        (true, false) => Some(Notice::normal("Resumed", "the extension is reconciled again")),
        _ => None,
    }
}

fn unavailable(then: Option<&Condition>, now: &Condition) -> Option<Notice> {
    // the status of an object that was just written is not a state; it becomes one
    let lags = |condition: &Condition| {
        condition.status == ConditionStatus::Unknown
            || report::is_lagging(message::first_line(&condition.message))
    };
    let was = then.is_some_and(|then| then.status == ConditionStatus::True || lags(then));
    (was && now.status == ConditionStatus::False && !lags(now))
        .then(|| Notice::warning(reason::UNAVAILABLE, now.message.clone()))
}

fn upgrade_available(now: &Condition) -> Notice {
    let known = [reason::MAJOR_VERSION_HELD, reason::ENVIRONMENT_NOT_MET];
    let reason = known.into_iter().find(|reason| *reason == now.reason).unwrap_or(reason::MAJOR_VERSION_HELD);
    Notice::normal(reason, now.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::status;
    use k8s_openapi::jiff::Timestamp;
    use olm_install::resolution::{BundleFacts, RevisionFacts, RevisionStates, UpgradeUpdate};

    fn bundle(version: &str) -> BundleFacts {
        BundleFacts {
            name: format!("demo.v{version}"),
            package: "demo".to_owned(),
            version: version.to_owned(),
            release: None,
            reference: format!("reg/demo:v{version}"),
        }
    }

    fn condition(type_: &str, status: ConditionStatus, reason: &str, message: &str) -> Condition {
        Condition::new(type_, status, reason, message, Some(1), Timestamp::UNIX_EPOCH)
    }

    /// A revision that has succeeded and is available, or one with this progress.
    fn revision(
        number: i64,
        version: &str,
        progressing: Option<(ConditionStatus, &str, &str)>,
    ) -> RevisionFacts {
        use ConditionStatus::True;
        let conditions = match progressing {
            None => vec![
                condition(condition::SUCCEEDED, True, reason::SUCCEEDED, ""),
                condition(condition::PROGRESSING, True, reason::SUCCEEDED, "done"),
                condition(condition::AVAILABLE, True, reason::PROBES_SUCCEEDED, ""),
            ],
            Some((status, reason, message)) => {
                vec![condition(condition::PROGRESSING, status, reason, message)]
            }
        };
        RevisionFacts { name: format!("x-{number}"), number, bundle: bundle(version), conditions }
    }

    fn result(revisions: Vec<RevisionFacts>, progress: Progress) -> PassResult {
        let revisions = RevisionStates::split(revisions);
        PassResult { upgrade: UpgradeUpdate::NONE, ..PassResult::unchanged(revisions, progress) }
    }

    fn applied(version: &str) -> Progress {
        Progress::Applied { target: bundle(version), issuer: None }
    }

    /// Runs results one after the other; the events of each, as `Reason` or `!Reason` for a warning.
    fn reasons(results: &[PassResult]) -> Vec<String> {
        let mut before: Option<ClusterExtensionStatus> = None;
        results
            .iter()
            .map(|result| {
                let after = status::derive(result, before.as_ref(), 1, false, Timestamp::UNIX_EPOCH);
                let emitted = events(before.as_ref(), &after, result, Trace::default());
                before = Some(after);
                let words = emitted
                    .iter()
                    .map(|e| format!("{}{}", if e.note.warning { "!" } else { "" }, e.note.reason));
                words.collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    #[test]
    #[rustfmt::skip]
    fn events_report_every_decision() {
        use ConditionStatus::{False, True};
        let failing = |class, cause, text: &str| {
            let failure = PassError { cause, ..PassError::new(class, text) };
            result(vec![revision(1, "1.0.0", None)], Progress::Failed(failure))
        };
        let good = |version| result(vec![revision(1, version, None)], applied(version));
        let rolling = |state| {
            result(vec![revision(1, "1.0.0", None), revision(2, "1.1.0", Some(state))], applied("1.1.0"))
        };
        for (case, results, want) in [
            ("steady", vec![good("1.0.0"), good("1.0.0"), good("1.0.0")], vec!["Installed", "", ""]),
            ("up and down", vec![good("1.0.0"), good("1.1.0"), good("1.0.0")], vec!["Installed", "Upgraded", "RolledBack"]),
            ("a refused upgrade, twice the same, then other findings",
                vec![good("1.0.0"), failing(Class::NeedsChange, Cause::CrdSafety, "a"), failing(Class::NeedsChange, Cause::CrdSafety, "a"),
                    failing(Class::NeedsChange, Cause::CrdSafety, "b")],
                vec!["Installed", "!UpgradeRefused", "", "!UpgradeRefused"]),
            ("each kind of failure",
                vec![failing(Class::NeedsChange, Cause::Dependencies, "a"), failing(Class::NeedsChange, Cause::Signature, "s"),
                    failing(Class::NeedsChange, Cause::Other, "b"), failing(Class::Blocked, Cause::Other, "c"),
                    failing(Class::InvalidConfiguration, Cause::Other, "d"), failing(Class::Transient, Cause::Other, "e"),
                    failing(Class::Transient, Cause::CrdSafety, "f")],
                vec!["Installed !DependencyMissing", "!SignatureRefused", "!NeedsChange", "!Blocked", "!InvalidConfiguration", "!Retrying",
                    "!Retrying"]),
            ("a rollout that sticks",
                vec![good("1.0.0"), rolling((True, reason::ROLLING_OUT, "going")), rolling((True, reason::RETRYING, "collision")),
                    rolling((False, reason::PROGRESS_DEADLINE_EXCEEDED, "late")),
                    rolling((False, reason::PROGRESS_DEADLINE_EXCEEDED, "late")), rolling((False, reason::BLOCKED, "no"))],
                vec!["Installed", "", "!Retrying", "!ProgressDeadlineExceeded", "", "!Blocked"]),
            ("paused and resumed", vec![good("1.0.0"), result(vec![revision(1, "1.0.0", None)], Progress::Paused), good("1.0.0")],
                vec!["Installed", "Paused", "Resumed"]),
            ("an annotation whose value is neither",
                vec![result(vec![revision(1, "1.0.0", None)], Progress::Paused),
                    result(vec![revision(1, "1.0.0", None)], Progress::Invalid(PassError::new(Class::NeedsChange, "paused=yes"))),
                    good("1.0.0")],
                vec!["Installed Paused", "!NeedsChange", ""]),
        ] {
            assert_eq!(reasons(&results), want, "{case}");
        }
    }

    #[test]
    fn events_name_no_state_that_is_only_late() {
        use ConditionStatus::{False, True, Unknown};
        let is = |status, text: &str| condition(condition::AVAILABLE, status, "x", text);
        let object = "Object Deployment.apps/v1 n/x: ";
        let late = |text: &str| is(False, &format!("{object}{text}"));
        let down = is(False, &format!("{object}.status.condition[\"Available\"] is False"));
        for (then, now, reported) in [
            (is(True, ""), down.clone(), true),
            (is(True, ""), late(".status outdated"), false),
            (is(True, ""), late("missing .status.conditions"), false),
            (late(".status outdated"), down.clone(), true),
            (is(Unknown, ""), down.clone(), true),
            (down.clone(), is(False, "another object"), false),
        ] {
            assert_eq!(unavailable(Some(&then), &now).is_some(), reported, "{then:?} {now:?}");
        }
        assert_eq!(unavailable(None, &down), None);
    }

    #[test]
    fn events_name_failing_pods_of_a_rollout() {
        use ConditionStatus::{False, True};
        let ready = |reason| condition(condition::READY, False, reason, "Revision 1.0.0 is rolling out: …");
        let line = |status, rest: &str| {
            let text =
                format!("Object Deployment.apps/v1 n/x: .status.condition[\"Available\"] is False{rest}");
            condition(condition::AVAILABLE, status, reason::PROBE_FAILURE, &text)
        };
        for (reason, available, want) in [
            (reason::ROLLING_OUT, line(False, "; 0 of 1 replicas available: pod x: ImagePullBackOff"), true),
            (reason::ROLLING_OUT, line(False, "; FailedCreate: exceeded quota: q"), true),
            (reason::ROLLING_OUT, line(False, ""), false),
            (reason::ROLLING_OUT, line(True, "; FailedCreate: exceeded quota: q"), false),
            (reason::UNAVAILABLE, line(False, "; FailedCreate: exceeded quota: q"), false),
        ] {
            assert_eq!(waiting(&ready(reason), &available).is_some(), want, "{reason} {}", available.message);
        }
    }

    #[test]
    fn events_of_failures_are_the_same_but_for_numbers() {
        let key = |text: &str| failed(&PassError::new(Class::Transient, text)).key;
        assert_eq!(key("attempt 1: no answer within 30 s"), key("attempt 12: no answer within 60 s"));
        assert_ne!(key("namespaces \"a\" not found"), key("catalog \"a\" is not being served"));
    }

    #[test]
    fn events_of_each_revision_are_sent() {
        let after = |number| {
            let result = result(vec![revision(number, "1.0.0", None)], applied("1.0.0"));
            let status = status::derive(&result, None, 1, false, Timestamp::UNIX_EPOCH);
            let all = events(None, &status, &result, Trace::default());
            all.into_iter().find(|event| event.note.reason == "Installed").unwrap()
        };
        assert_eq!(after(1).note, after(3).note);
        assert_ne!(after(1).key, after(3).key, "a second rollback within ten minutes");
    }

    #[test]
    fn events_report_an_obstacle_of_an_uninstall_once() {
        let waiting = |text: &str| {
            let obstacle = Some(Obstacle { text: text.to_owned(), lasts: true });
            result(vec![], Progress::Uninstalling { message: format!("uninstalling: {text}"), obstacle })
        };
        let begun = Progress::Uninstalling { message: "uninstalling: waiting".to_owned(), obstacle: None };
        let found = reasons(&[
            result(vec![], begun),
            waiting("3 greetings"),
            waiting("3 greetings"),
            waiting("2 greetings"),
        ]);
        assert_eq!(found, ["", "!UninstallWaiting", "", "!UninstallWaiting"]);
        let key = |text: &str| held("", &Obstacle { text: text.to_owned(), lasts: true }).key;
        assert_eq!(key("3 greetings"), key("2 greetings"), "sent once");
        assert_ne!(key("3 greetings"), key("x is forbidden"));
    }

    #[test]
    fn events_know_an_upgrade_from_revisions() {
        let metadata = |version: &str| BundleMetadata {
            name: dns_subdomain(&bundle(version).name).into_owned(),
            version: version.to_owned(),
            release: None,
        };
        for (before, previous, after, want) in [
            (None, None, "1.0.0", "Installed"),
            (None, Some("1.0.0"), "1.1.0", "Upgraded"),
            (None, Some("1.1.0"), "1.0.0", "RolledBack"),
            (None, Some("1.1.0"), "1.1.0", ""),
            (Some("1.1.0"), Some("1.0.0"), "1.1.0", ""),
            (Some("1.0.0"), Some("0.9.0"), "1.1.0", "Upgraded"),
            // the name is no DNS subdomain, so the status has another one
            (None, Some("1.0.0+2"), "1.0.0+2", ""),
            (None, Some("1.0.0+2"), "1.1.0+1", "Upgraded"),
        ] {
            let emitted = installed(before.map(metadata), previous.map(bundle), Some(metadata(after)));
            assert_eq!(emitted.map_or("", |note| note.reason), want, "{before:?} {previous:?} {after}");
        }
    }

    #[test]
    fn events_of_a_retry_have_one_key() {
        let key = |class, text: &str| failed(&PassError::new(class, text)).key;
        assert_eq!(key(Class::Transient, "try 1"), key(Class::Transient, "try 2"));
        assert_ne!(key(Class::NeedsChange, "range 1"), key(Class::NeedsChange, "range 2"));
    }

    #[test]
    fn events_report_unavailability_and_deprecation() {
        let status = |conditions| ClusterExtensionStatus { conditions, ..ClusterExtensionStatus::default() };
        let good = result(vec![], Progress::Paused);
        let available = |value| condition(condition::AVAILABLE, value, "x", "0 of 1 ready");
        let deprecated = |value| condition(condition::BUNDLE_DEPRECATED, value, "x", "use 2.0.0");
        let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
        let emitted = |then: Vec<Condition>, now: Vec<Condition>| {
            events(Some(&status(then)), &status(now), &good, Trace::default())
                .into_iter()
                .map(|e| e.note)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            emitted(vec![available(yes)], vec![available(no)]),
            [Notice::warning("Unavailable", "0 of 1 ready")]
        );
        assert_eq!(emitted(vec![available(no)], vec![available(yes)]), []);
        assert_eq!(emitted(vec![], vec![available(no)]), []);
        assert_eq!(emitted(vec![available(yes)], vec![available(ConditionStatus::Unknown)]), []);
        assert_eq!(
            emitted(vec![deprecated(no)], vec![deprecated(yes)]),
            [Notice::warning("Deprecated", "use 2.0.0")]
        );
        assert_eq!(emitted(vec![deprecated(yes)], vec![deprecated(yes)]), []);
    }
}
