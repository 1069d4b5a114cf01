//! Certificates that may not be written, for the conditions of their extensions.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use olm_runtime::controller::Waker;
use parking_lot::Mutex;

/// The error messages by the UID of the extension. Cheap to clone.
#[derive(Clone, Default)]
pub struct Refusals {
    messages: Arc<Mutex<HashMap<String, String>>>,
    waker: Waker,
}

impl Refusals {
    /// The names of extensions whose message changes.
    #[must_use]
    pub fn changes(&self) -> BoxStream<'static, String> {
        self.waker.names().boxed()
    }

    /// The message of an extension.
    #[must_use]
    pub fn message(&self, uid: &str) -> Option<String> {
        self.messages.lock().get(uid).cloned()
    }

    /// Evicts an extension that is gone.
    pub fn evict(&self, uid: &str) {
        self.messages.lock().remove(uid);
    }

    pub(super) fn set(&self, name: &str, uid: &str, message: Option<&str>) {
        let mut messages = self.messages.lock();
        let before = match message {
            Some(message) => messages.insert(uid.to_owned(), message.to_owned()),
            None => messages.remove(uid),
        };
        if before.as_deref() != message {
            self.waker.wake(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn certificate_error_wakes_the_extension() {
        let refusals = Refusals::default();
        let mut changes = refusals.changes();
        let mut woken = |message: Option<&str>| {
            refusals.set("demo", "u1", message);
            assert_eq!(refusals.message("u1").as_deref(), message);
            changes.next().now_or_never().flatten()
        };
        assert_eq!(woken(None), None);
        assert_eq!(woken(Some("a")).as_deref(), Some("demo"));
        assert_eq!(woken(Some("a")), None);
        assert_eq!(woken(None).as_deref(), Some("demo"));
        refusals.set("demo", "u1", Some("a"));
        assert_eq!(refusals.message("u2"), None, "another extension of that name");
        refusals.evict("u1");
        assert_eq!(refusals.message("u1"), None);
    }
}
