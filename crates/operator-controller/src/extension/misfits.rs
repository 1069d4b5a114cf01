//! Bundles whose objects do not fit into a revision: too many of them, or one too large for a Secret.
//!
//! What a bundle renders to depends on nothing but its inputs, so the refusal stays true as long as they do. It is remembered: an
//! extension that is woken for another reason then renders nothing and asks nothing. One refusal for each extension, in memory.

use std::collections::HashMap;

use olm_install::resolution::{BundleFacts, Failure};
use parking_lot::Mutex;

/// The refusals, by UID of the extension.
#[derive(Debug, Default)]
pub struct Misfits(Mutex<HashMap<String, Misfit>>);

#[derive(Debug)]
struct Misfit {
    bundle: BundleFacts,
    inputs: String,
    failure: Failure,
}

impl Misfits {
    /// The refusal, if this bundle with these inputs was refused last.
    #[must_use]
    pub fn get(&self, uid: &str, bundle: &BundleFacts, inputs: &str) -> Option<Failure> {
        let all = self.0.lock();
        let known = all.get(uid)?;
        (known.bundle == *bundle && known.inputs == inputs).then(|| known.failure.clone())
    }

    /// Remembers a refusal, unless the image behind the bundle's reference may become another one.
    pub fn put(&self, uid: &str, bundle: &BundleFacts, inputs: &str, failure: &Failure) {
        if !bundle.reference.contains('@') {
            return;
        }
        let known = Misfit { bundle: bundle.clone(), inputs: inputs.to_owned(), failure: failure.clone() };
        self.0.lock().insert(uid.to_owned(), known);
    }

    /// The extension has another bundle by now, or is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_install::resolution::Class;

    #[test]
    fn a_refusal_counts_for_the_same_bundle_and_inputs_only() {
        let bundle = |reference: &str| BundleFacts {
            name: "a.v1".to_owned(),
            package: "a".to_owned(),
            version: "1.0.0".to_owned(),
            release: None,
            reference: reference.to_owned(),
        };
        let failure = Failure::new(Class::NeedsChange, "too large");
        for (reference, uid, asked, inputs, want) in [
            ("r/a@sha256:1", "u", "r/a@sha256:1", "i", true),
            ("r/a@sha256:1", "u", "r/a@sha256:2", "i", false),
            ("r/a@sha256:1", "u", "r/a@sha256:1", "j", false),
            ("r/a@sha256:1", "v", "r/a@sha256:1", "i", false),
            ("r/a:tag", "u", "r/a:tag", "i", false),
        ] {
            let misfits = Misfits::default();
            misfits.put("u", &bundle(reference), "i", &failure);
            let got = misfits.get(uid, &bundle(asked), inputs);
            assert_eq!(got.is_some(), want, "{reference} {uid} {asked} {inputs}");
            misfits.forget("u");
            assert!(misfits.get(uid, &bundle(asked), inputs).is_none());
        }
    }
}
