//! Kubernetes events: what a user should see in `kubectl describe`, without flooding the apiserver.
//!
//! The same event about the same object is sent at most once in ten minutes; the next one counts those that were held back. Two
//! events of one reason with other words are two events (kube's own recorder would count the second one as the first). An object that
//! has another message each time gets so many events in a row, and then one a minute, of each controller. An event that cannot be
//! sent is logged; no work fails because of it, or waits for it for long.
//!
//! Rule: decision 19.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use olm_api::observe;
use olm_core::message;
use parking_lot::Mutex;

use crate::metrics::Metrics;

/// How long an event is not repeated.
const DEDUP_WINDOW: Duration = Duration::from_secs(600);
/// How many events are remembered, and how many objects; when full, those that may be repeated are evicted, then all.
const MAX_REMEMBERED: usize = 8192;
/// Events about one object that are sent in a row.
const BURST: u32 = 50;
/// After that, one is sent each time that this has passed.
const REFILL: Duration = Duration::from_secs(60);
/// The longest note, in bytes; the API takes 1,024, with the number of events that were held back.
const MAX_NOTE: usize = 960;
/// How long the work that an event is about waits for the answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of an object's name an event's name begins with; the rest distinguishes events of one object.
const MAX_NAME: usize = 220;

/// Sends events. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
    instance: String,
    sent: Arc<Mutex<Sent>>,
    metrics: Option<Metrics>,
}

/// An event about an object, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewEvent<'a> {
    /// A `Warning` rather than a `Normal` event.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: &'a str,
    /// What was being done, one CamelCase word.
    pub action: &'a str,
    /// The message for people; its first line is sent ([`message::fit`]).
    pub note: &'a str,
}

impl Events {
    /// Events reported by `controller`, sent by the process `instance` (the pod's name).
    pub fn new(client: Client, controller: &str, instance: Option<String>) -> Self {
        let controller = controller.to_owned();
        let instance = instance.unwrap_or_else(|| controller.clone());
        Self { client, controller, instance, sent: Arc::default(), metrics: None }
    }

    /// Counts them, too (`olm_events_total`).
    #[must_use]
    pub fn counted(self, metrics: &Metrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..self }
    }

    /// Sends the event unless the same was sent a moment ago.
    pub async fn publish(&self, about: &ObjectReference, new: NewEvent<'_>) {
        let line = fitting_line(new.note);
        let same = format!("{}\0{}\0{line}", new.reason, new.action);
        self.send(about, &same, new, line).await;
    }

    /// As [`Events::publish`]; the first line is sent as it is, up to 960 bytes, because scripts match it.
    pub async fn publish_whole(&self, about: &ObjectReference, new: NewEvent<'_>) {
        let line = message::first_line(new.note);
        let line = line[..line.floor_char_boundary(MAX_NOTE)].to_owned();
        let same = format!("{}\0{}\0{line}", new.reason, new.action);
        self.send(about, &same, new, line).await;
    }

    /// Sends the event unless one with this `key` about the same object was sent a moment ago, whatever its words. The next one that is
    /// sent counts those that were not.
    pub async fn publish_once(&self, about: &ObjectReference, key: &str, new: NewEvent<'_>) {
        let line = fitting_line(new.note);
        self.send(about, key, new, line).await;
    }

    async fn send(&self, about: &ObjectReference, key: &str, new: NewEvent<'_>, line: String) {
        let (due, is_allowed) = {
            let (mut sent, now) = (self.sent.lock(), Instant::now());
            let due = sent.due(&key_about(about, key), now);
            (due, due.is_some() && sent.spend(&key_about(about, ""), now))
        };
        if due.is_some() || !new.warning {
            log(about, &new);
        }
        let Some(held) = due.filter(|_| is_allowed) else { return };
        let note = counted(line, held);
        let new = NewEvent { note: &note, ..new };
        if !observe::is_known(about.kind.as_deref().unwrap_or_default(), new.reason) {
            tracing::error!(
                kind = about.kind,
                reason = new.reason,
                "event is not in the table of olm_api::observe"
            );
        }
        if let Some(metrics) = &self.metrics {
            metrics.event(new.reason, new.warning);
        }
        // events about cluster-scoped objects live in this namespace
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let event = self.event(about, namespace, &new, Timestamp::now());
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let error = match tokio::time::timeout(SEND_TIMEOUT, api.create(&params, &event)).await {
            Ok(sent) => sent.err().map(|error| crate::apply::message(&error)),
            Err(_) => Some(format!("no answer within {} s", SEND_TIMEOUT.as_secs())),
        };
        if let Some(error) = error {
            tracing::warn!(
                error,
                reason = new.reason,
                object = about.name.as_deref().unwrap_or_default(),
                "cannot send an event"
            );
        }
    }

    fn event(&self, about: &ObjectReference, namespace: &str, new: &NewEvent<'_>, now: Timestamp) -> Event {
        let name = about.name.as_deref().unwrap_or(&self.controller);
        Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}.{:x}",
                    &name[..name.floor_char_boundary(MAX_NAME)],
                    now.as_nanosecond()
                )),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(if new.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(new.reason.to_owned()),
            action: Some(new.action.to_owned()),
            note: Some(new.note.to_owned()),
            event_time: Some(MicroTime(now)),
            regarding: Some(about.clone()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// The line of the log for an event: operators of OLM read logs, users read events. What is done again and again has a line each
/// time; a failure that lasts has one for each event.
fn log(about: &ObjectReference, new: &NewEvent<'_>) {
    let (kind, name) = (about.kind.as_deref().unwrap_or_default(), about.name.as_deref().unwrap_or_default());
    let reason = new.reason;
    let lines: Vec<&str> = new.note.lines().collect();
    let (message, details) =
        lines.split_first().map_or((new.note, String::new()), |(first, rest)| (*first, rest.join("; ")));
    let details = Some(details).filter(|details| !details.is_empty());
    if new.warning {
        tracing::warn!(kind, name, reason, details, "{message}");
    } else {
        tracing::info!(kind, name, reason, details, "{message}");
    }
}

fn key_about(about: &ObjectReference, key: &str) -> String {
    let about = [&about.kind, &about.namespace, &about.name, &about.uid]
        .map(|part| part.as_deref().unwrap_or_default());
    // a NUL cannot occur in any of the parts that the apiserver knows
    format!("{}\0{key}", about.join("\0"))
}

/// The line of a message that is sent.
#[must_use]
pub fn fitting_line(text: &str) -> String {
    message::first_line(&message::fit(text)).to_owned()
}

/// The note with the number of events like it that were held back.
fn counted(note: String, held: u32) -> String {
    match held {
        0 => note,
        1 => format!("{note} (once more since the last such event)"),
        held => format!("{note} ({held} times more since the last such event)"),
    }
}

/// When what was sent last, by a hash of it: the words themselves would be most of what the process remembers.
#[derive(Debug, Default)]
struct Sent {
    hasher: RandomState,
    /// The time, and how many were held back since.
    last: HashMap<u64, (Instant, u32)>,
    /// By object, how many events it has had, less one for each [`REFILL`] until this time.
    spent: HashMap<u64, (Instant, u32)>,
}

/// What an object has spent by now.
fn refilled((since, spent): (Instant, u32), now: Instant) -> (Instant, u32) {
    let refills = now.duration_since(since).as_secs() / REFILL.as_secs();
    let refills = u32::try_from(refills).unwrap_or(u32::MAX);
    match spent.saturating_sub(refills) {
        0 => (now, 0),
        left => (since + REFILL * refills, left),
    }
}

impl Sent {
    /// How many events of this key were held back since the last one, if one may be sent now; it is remembered.
    fn due(&mut self, key: &str, now: Instant) -> Option<u32> {
        let key = self.hasher.hash_one(key);
        let mut before = 0;
        if let Some((at, held)) = self.last.get_mut(&key) {
            if now.duration_since(*at) < DEDUP_WINDOW {
                *held = held.saturating_add(1);
                return None;
            }
            before = *held;
        }
        if self.last.len() >= MAX_REMEMBERED {
            self.last.retain(|_, (at, _)| now.duration_since(*at) < DEDUP_WINDOW);
            if self.last.len() >= MAX_REMEMBERED {
                self.last.clear();
            }
        }
        self.last.insert(key, (now, 0));
        Some(before)
    }

    /// Whether an event about the object may be sent now; it is counted then.
    fn spend(&mut self, object: &str, now: Instant) -> bool {
        let key = self.hasher.hash_one(object);
        let (since, spent) = self.spent.get(&key).map_or((now, 0), |before| refilled(*before, now));
        if self.spent.len() >= MAX_REMEMBERED {
            self.spent.retain(|_, before| refilled(*before, now).1 > 0);
            if self.spent.len() >= MAX_REMEMBERED {
                self.spent.clear();
            }
        }
        let is_allowed = spent < BURST;
        self.spent.insert(key, (since, spent + u32::from(is_allowed)));
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn events_are_not_repeated_within_the_window() {
        let mut sent = Sent::default();
        let start = Instant::now();
        for (seconds, name, want) in [
            (0, "a", Some(0)),
            (1, "a", None),
            (1, "b", Some(0)),
            (599, "a", None),
            (600, "a", Some(2)),
            (601, "a", None),
            (601, "b", Some(0)),
            (1200, "a", Some(1)),
        ] {
            let about = ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
            let due = sent.due(&key_about(&about, "Installed"), start + Duration::from_secs(seconds));
            assert_eq!(due, want, "{name} after {seconds} s");
        }
    }

    #[test]
    fn events_about_one_object_are_limited() {
        let mut sent = Sent::default();
        let start = Instant::now();
        let mut spend = |object: &str, seconds| sent.spend(object, start + Duration::from_secs(seconds));
        assert!((0..BURST).all(|_| spend("a", 0)), "in a row");
        for (object, seconds, want) in [
            ("a", 1, false),
            ("b", 1, true),
            ("a", 59, false),
            ("a", 60, true),
            ("a", 61, false),
            ("a", 240, true),
            ("a", 240, true),
            ("a", 240, true),
            ("a", 241, false),
        ] {
            assert_eq!(spend(object, seconds), want, "{object} after {seconds} s");
        }
        assert!((0..BURST).all(|_| spend("a", 7200)), "after a while it has all of them again");
        assert!(!spend("a", 7200));
    }

    /// Sends one event after the other; the notes that the apiserver received, and the log.
    async fn sent(all: &[(bool, &str)], whole: bool) -> (Vec<String>, Vec<String>) {
        let received = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&received);
        let client = testing::client(move |request| {
            let event: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
            notes.lock().push(event["note"].as_str().unwrap_or_default().to_owned());
            std::future::ready((200, event))
        });
        let events = Events::new(client, "test", None);
        let about =
            ObjectReference { kind: Some("ClusterExtension".to_owned()), ..ObjectReference::default() };
        let is_own = |metadata: &tracing::Metadata<'_>| {
            metadata.target() == module_path!().trim_end_matches("::tests")
        };
        let (lines, _guard) = testing::logged(is_own, &["message", "details"]);
        for (warning, note) in all {
            let event = NewEvent { warning: *warning, reason: "Retrying", action: "Test", note };
            match whole {
                true => events.publish_whole(&about, event).await,
                false => events.publish(&about, event).await,
            }
        }
        let (received, lines) = (received.lock().clone(), lines.lock().clone());
        (received, lines)
    }

    #[tokio::test]
    async fn events_held_back_are_logged_if_something_was_done() {
        // what is done again is a line each time; a failure that lasts is one, whatever its details
        let done = sent(&[(false, "put back a"), (false, "put back a"), (false, "put back b")], false).await;
        assert_eq!(done.0, ["put back a", "put back b"]);
        assert_eq!(done.1, ["put back a", "put back a", "put back b"]);
        let failed = sent(&[(true, "a failed\n1 of 2"), (true, "a failed\n2 of 2")], false).await;
        assert_eq!(failed.0, ["a failed"]);
        assert_eq!(failed.1, ["a failed", "\"1 of 2\""]);
    }

    #[tokio::test]
    async fn events_beyond_the_limit_are_logged_only() {
        let notes: Vec<String> = (0..60).map(|n| format!("attempt {n} failed")).collect();
        let all: Vec<(bool, &str)> = notes.iter().map(|note| (true, note.as_str())).collect();
        let (received, logged) = sent(&all, false).await;
        assert_eq!((received.len(), logged.len()), (50, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn events_without_an_answer_are_given_up() {
        let events = Events::new(testing::client(|_| std::future::pending()), "test", None);
        let about =
            ObjectReference { kind: Some("ClusterExtension".to_owned()), ..ObjectReference::default() };
        let event = NewEvent { warning: true, reason: "Retrying", action: "Test", note: "a failed" };
        let sent = tokio::time::timeout(2 * SEND_TIMEOUT, events.publish(&about, event)).await;
        sent.unwrap();
    }

    #[tokio::test]
    async fn events_have_the_line_that_fits_unless_whole() {
        let note = format!("Status changed: {}", "word ".repeat(60));
        let (fitting, _) = sent(&[(false, &note)], false).await;
        assert_eq!(fitting, [fitting_line(&note)]);
        assert!(fitting[0].chars().count() <= message::MAX_FIRST_LINE);
        assert_eq!(sent(&[(false, &note)], true).await.0, std::slice::from_ref(&note));
        assert_eq!(sent(&[(false, &"é".repeat(600))], true).await.0, ["é".repeat(MAX_NOTE / 2)]);
    }

    #[test]
    fn events_memory_is_bounded() {
        let mut sent = Sent::default();
        let now = Instant::now();
        for n in 0..3 * MAX_REMEMBERED {
            assert_eq!(sent.due(&n.to_string(), now), Some(0));
            assert!(sent.spend(&n.to_string(), now));
            assert!(sent.last.len() <= MAX_REMEMBERED && sent.spent.len() <= MAX_REMEMBERED);
        }
    }

    #[test]
    fn events_count_those_held_back() {
        assert_eq!(counted("x".to_owned(), 0), "x");
        assert_eq!(counted("x".to_owned(), 1), "x (once more since the last such event)");
        assert_eq!(counted("x".to_owned(), 4), "x (4 times more since the last such event)");
    }
}
