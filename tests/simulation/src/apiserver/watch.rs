//! Watches: a position in the log of a resource, and the events behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::request::Call;
use super::selector::Selector;
use super::status::Status;
use super::store::{Event, Requested, Store, rendered, text};

/// An open watch.
pub(crate) struct Watch {
    pub(crate) request: Requested,
    pub(crate) call: Call,
    selector: Selector,
    instance: u64,
    /// The next entry of the resource's log.
    position: usize,
    /// The events at the start: objects of a watch that begins anywhere, or the error of one that begins too early.
    initial: VecDeque<Bytes>,
    is_expired: bool,
    /// The version of the last event, for bookmarks.
    pub(crate) version: u64,
    pub(crate) has_bookmarks: bool,
    pub(crate) ends: Duration,
}

/// What a watch shows next.
pub(crate) enum Next {
    /// An event (a line of the stream).
    Event(Bytes),
    /// Nothing before this time, unless something changes.
    Wait(Option<Duration>),
    /// The server ends the stream.
    End,
}

impl Store {
    pub(crate) fn watch(&mut self, request: &Requested, call: &Call) -> Result<Watch, Status> {
        let Some(resource) = self.resources.get(&request.key) else { return Err(Status::no_route()) };
        let from = call.option("resourceVersion").unwrap_or("0");
        let Ok(from) = from.parse::<u64>() else {
            return Err(Status::bad_request(format!("Invalid value: {from:?}: must be a version")));
        };
        let oldest = self.compacted.max(resource.since);
        let timeout =
            call.option("timeoutSeconds").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let mut watch = Watch {
            request: request.clone(),
            call: call.clone(),
            selector: Selector::parse(call.option("labelSelector"), call.option("fieldSelector")),
            instance: resource.instance,
            position: resource.log.partition_point(|event| event.version <= from),
            initial: VecDeque::new(),
            is_expired: from > 0 && from < oldest,
            version: from,
            has_bookmarks: call.is_set("allowWatchBookmarks"),
            ends: self.now + timeout.unwrap_or(self.settings.watch_timeout),
        };
        if watch.is_expired {
            watch.expire(from, oldest);
            return Ok(watch);
        }
        let sends_initial = call.is_set("sendInitialEvents");
        if sends_initial || from == 0 {
            watch.position = resource.log.len();
            watch.version = self.version;
            let fitting = resource
                .objects
                .iter()
                .filter(|((namespace, _), object)| watch.is_inside(namespace) && watch.selector.fits(object));
            let events: VecDeque<Bytes> = fitting.map(|(_, object)| watch.show("ADDED", object)).collect();
            watch.initial = events;
            if sends_initial {
                let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
                watch.initial.push_back(watch.bookmark_with(end));
            }
        }
        Ok(watch)
    }
}

impl Watch {
    /// Ends the watch with the error that its version is too old.
    pub(crate) fn expire(&mut self, from: u64, oldest: u64) {
        let status = Status::expired(format!("too old resource version: {from} ({oldest})"));
        self.initial = VecDeque::from([event("ERROR", &text(&status.body()))]);
        self.is_expired = true;
    }

    fn is_inside(&self, namespace: &str) -> bool {
        self.request.target.namespace.as_deref().is_none_or(|it| it == namespace)
    }

    fn show(&self, kind: &str, object: &Arc<Value>) -> Bytes {
        event(kind, &text(&rendered(object, &self.request, &self.call)))
    }

    /// Shows the state of an event, whose text is made once for all watches.
    fn show_event(&self, kind: &str, shown: &Event) -> Bytes {
        let is_partial = self.call.is_partial;
        if is_partial || shown.shown["apiVersion"] == self.request.api_version() {
            return event(kind, shown.text(is_partial));
        }
        self.show(kind, &shown.shown)
    }

    /// A bookmark at the version that the watch has reached.
    pub(crate) fn bookmark(&self) -> Bytes {
        self.bookmark_with("")
    }

    /// The same with more metadata.
    fn bookmark_with(&self, metadata: &str) -> Bytes {
        let (kind, api_version) = match self.call.is_partial {
            true => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            false => (self.request.kind.kind.as_str(), self.request.api_version()),
        };
        let version = self.version;
        let object = format!(
            r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}","creationTimestamp":null{metadata}}}}}"#
        );
        event("BOOKMARK", object.as_bytes())
    }

    /// The next event, if its time has come: an event is shown `delay` after its change.
    pub(crate) fn next(&mut self, store: &Store, delay: Duration) -> Next {
        if let Some(line) = self.initial.pop_front() {
            return Next::Event(line);
        }
        let Some(resource) = store.resources.get(&self.request.key) else { return Next::End };
        if self.is_expired || resource.instance != self.instance || store.now >= self.ends {
            return Next::End;
        }
        while let Some(event) = resource.log.get(self.position) {
            let due = event.at + delay;
            if due > store.now {
                return Next::Wait(Some(due.min(self.ends)));
            }
            self.position += 1;
            self.version = event.version;
            let namespace = event.shown["metadata"]["namespace"].as_str().unwrap_or_default();
            if !self.is_inside(namespace) {
                continue;
            }
            let fits = |object: &Option<Arc<Value>>| object.as_ref().is_some_and(|it| self.selector.fits(it));
            match (fits(&event.before), fits(&event.after)) {
                (false, true) => return Next::Event(self.show_event("ADDED", event)),
                (true, true) => return Next::Event(self.show_event("MODIFIED", event)),
                (true, false) => return Next::Event(self.deleted(event)),
                (false, false) => {}
            }
        }
        self.version = self.version.max(store.version);
        Next::Wait(Some(self.ends))
    }

    /// The last state that fitted, with the version of the change.
    fn deleted(&self, event: &Event) -> Bytes {
        if event.after.is_none() {
            return self.show_event("DELETED", event);
        }
        let mut object = Value::clone(event.before.as_ref().unwrap_or(&event.shown));
        object["metadata"]["resourceVersion"] = event.version.to_string().into();
        self.show("DELETED", &Arc::new(object))
    }
}

fn event(kind: &str, object: &[u8]) -> Bytes {
    [format!(r#"{{"type":"{kind}","object":"#).as_bytes(), object, b"}\n".as_slice()].concat().into()
}
