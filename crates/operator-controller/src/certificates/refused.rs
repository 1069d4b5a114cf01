//! Certificates that may not be written, for the conditions of their extensions.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use olm_runtime::controller::Waker;
use parking_lot::Mutex;

/// The error messages by the UID of the extension. Cheap to clone.
#[derive(Clone, Default)]
pub struct RefusedCertificates {
    messages: Arc<Mutex<HashMap<String, String>>>,
    waker: Waker,
}

impl RefusedCertificates {
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
        let refused_certificates = RefusedCertificates::default();
        let mut changes = refused_certificates.changes();
        let mut woken = |message: Option<&str>| {
            refused_certificates.set("demo", "u1", message);
            assert_eq!(refused_certificates.message("u1").as_deref(), message);
            changes.next().now_or_never().flatten()
        };
        assert_eq!(woken(None), None);
        assert_eq!(woken(Some("a")).as_deref(), Some("demo"));
        assert_eq!(woken(Some("a")), None);
        assert_eq!(woken(None).as_deref(), Some("demo"));
        refused_certificates.set("demo", "u1", Some("a"));
        assert_eq!(refused_certificates.message("u2"), None, "another extension of that name");
        refused_certificates.evict("u1");
        assert_eq!(refused_certificates.message("u1"), None);
    }
}
