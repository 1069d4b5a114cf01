//! Watches: a position in the log of a resource, and the events behind it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::request::Call;
use super::selector::Selector;
use super::status::Status;
use super::store::{Requested, Store, rendered};

/// An open watch.
pub(crate) struct Watch {
    pub(crate) request: Requested,
    pub(crate) call: Call,
    selector: Selector,
    instance: u64,
    /// The next entry of the resource's log.
    position: usize,
    /// The events at the start: objects of a watch that begins anywhere, or the error of one that begins too early.
    initial: Vec<Value>,
    is_expired: bool,
    /// The version of the last event, for bookmarks.
    pub(crate) version: u64,
    pub(crate) has_bookmarks: bool,
    pub(crate) ends: Duration,
}

/// What a watch shows next.
pub(crate) enum Next {
    /// An event (a line of the stream).
    Event(Value),
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
        let timeout =
            call.option("timeoutSeconds").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let mut watch = Watch {
            request: request.clone(),
            call: call.clone(),
            selector: Selector::parse(call.option("labelSelector"), call.option("fieldSelector")),
            instance: resource.instance,
            position: resource.log.partition_point(|event| event.version <= from),
            initial: Vec::new(),
            is_expired: from > 0 && from < self.compacted,
            version: from,
            has_bookmarks: call.is_set("allowWatchBookmarks"),
            ends: self.now + timeout.unwrap_or(self.settings.watch_timeout),
        };
        if watch.is_expired {
            watch.expire(from, self.compacted);
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
            let events: Vec<Value> = fitting.map(|(_, object)| watch.event("ADDED", object)).collect();
            watch.initial = events;
            if sends_initial {
                let mut bookmark = watch.bookmark();
                bookmark["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                watch.initial.push(bookmark);
            }
        }
        Ok(watch)
    }
}

impl Watch {
    /// Ends the watch with the error that its version is too old.
    pub(crate) fn expire(&mut self, from: u64, oldest: u64) {
        let status = Status::expired(format!("too old resource version: {from} ({oldest})"));
        self.initial = vec![json!({"type": "ERROR", "object": status.body()})];
        self.is_expired = true;
    }

    fn is_inside(&self, namespace: &str) -> bool {
        self.request.target.namespace.as_deref().is_none_or(|it| it == namespace)
    }

    fn event(&self, kind: &str, object: &Arc<Value>) -> Value {
        json!({"type": kind, "object": *rendered(object, &self.request, &self.call)})
    }

    /// A bookmark at the version that the watch has reached.
    pub(crate) fn bookmark(&self) -> Value {
        let (kind, api_version) = match self.call.is_partial {
            true => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            false => (self.request.kind.kind.clone(), self.request.api_version()),
        };
        json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": api_version,
            "metadata": {"resourceVersion": self.version.to_string(), "creationTimestamp": null}}})
    }

    /// The next event, if its time has come: an event is shown `delay` after its change.
    pub(crate) fn next(&mut self, store: &Store, delay: Duration) -> Next {
        if !self.initial.is_empty() {
            return Next::Event(self.initial.remove(0));
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
                (false, true) => return Next::Event(self.event("ADDED", &event.shown)),
                (true, true) => return Next::Event(self.event("MODIFIED", &event.shown)),
                (true, false) => return Next::Event(self.deleted(event)),
                (false, false) => {}
            }
        }
        self.version = self.version.max(store.version);
        Next::Wait(Some(self.ends))
    }

    /// The last state that fitted, with the version of the change.
    fn deleted(&self, event: &super::store::Event) -> Value {
        let mut object = Value::clone(event.before.as_ref().unwrap_or(&event.shown));
        object["metadata"]["resourceVersion"] = event.version.to_string().into();
        self.event("DELETED", &Arc::new(object))
    }
}
