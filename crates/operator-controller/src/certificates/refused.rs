//! Certificates that may not be written, for the conditions of their extensions.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use olm_runtime::controller::Waker;

use crate::extension::state::States;

/// The result of the last pass over the certificates of an extension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CertificateCheck {
    /// This process has not made one yet.
    #[default]
    Awaited,
    /// All may be written.
    Accepted,
    /// One may not be written; with the error message.
    Refused(String),
}

/// The results, in the state of each extension. Cheap to clone.
#[derive(Clone, Default)]
pub struct RefusedCertificates {
    states: Arc<States>,
    waker: Waker,
}

impl RefusedCertificates {
    #[must_use]
    pub fn new(states: Arc<States>) -> Self {
        Self { states, waker: Waker::default() }
    }

    /// The names of extensions whose result changes.
    #[must_use]
    pub fn changes(&self) -> BoxStream<'static, String> {
        self.waker.names().boxed()
    }

    /// The result for an extension. If there is none yet and the extension `waits` for it, that is woken when there is.
    #[must_use]
    pub fn check(&self, name: &str, uid: &str, waits: bool) -> CertificateCheck {
        self.states.update(name, uid, |state| {
            if waits {
                state.certificates.get_or_insert_default().clone()
            } else {
                state.certificates.clone().unwrap_or_default()
            }
        })
    }

    /// Records the result of a pass. Returns whether it differs from the one before.
    pub(super) fn set(&self, name: &str, uid: &str, message: Option<&str>) -> bool {
        let check =
            message.map_or(CertificateCheck::Accepted, |text| CertificateCheck::Refused(text.to_owned()));
        let before = self.states.update(name, uid, |state| state.certificates.replace(check.clone()));
        let is_changed = before.as_ref() != Some(&check);
        // without a result no extension waits
        if is_changed && (before.is_some() || message.is_some()) {
            self.waker.wake(name);
        }
        is_changed
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
        let mut woken = |uid: &str, message: Option<&str>| {
            let is_changed = refused_certificates.set("demo", uid, message);
            let want =
                message.map_or(CertificateCheck::Accepted, |text| CertificateCheck::Refused(text.to_owned()));
            assert_eq!(refused_certificates.check("demo", uid, false), want);
            (is_changed, changes.next().now_or_never().flatten())
        };
        let demo = || Some("demo".to_owned());
        assert_eq!(woken("u1", None), (true, None));
        assert_eq!(woken("u1", Some("a")), (true, demo()));
        assert_eq!(woken("u1", Some("a")), (false, None));
        assert_eq!(woken("u1", Some("b")), (true, demo()));
        assert_eq!(woken("u1", None), (true, demo()));
        let awaited =
            |uid: &str, waits| refused_certificates.check("demo", uid, waits) == CertificateCheck::Awaited;
        assert!(awaited("u2", false) && awaited("u3", true), "others of that name");
        assert_eq!(woken("u2", None), (true, None));
        assert_eq!(woken("u3", None), (true, demo()), "it waits");
    }
}
