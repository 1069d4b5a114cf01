//! The use of stored content by several users, each with credentials of its own.
//!
//! A [`Store`] has content once for all of them, and a digest is no secret. So a puller of a scope makes sure that its own credentials would
//! bring the content, too.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use olm_core::ImageRef;
use parking_lot::Mutex;

use crate::config::Credential;
use crate::error::Error;
use crate::http::Endpoint;
use crate::puller::Puller;
use crate::signature::Verified;
use crate::store::{Store, off_thread};

/// Most remembered images.
const MAX_ACCEPTED: usize = 10_000;

/// The images whose manifests were sent for some credentials, as hashes that only this process can compute.
#[derive(Debug, Default)]
pub(crate) struct Access {
    seed: RandomState,
    accepted: Mutex<HashSet<u64>>,
}

impl Access {
    /// The manifest of `image` came from one of these endpoints.
    pub(crate) fn accept(&self, image: &ImageRef, endpoints: &[Endpoint]) {
        let key = self.key(image, endpoints);
        let mut accepted = self.accepted.lock();
        if accepted.len() >= MAX_ACCEPTED {
            accepted.clear(); // what is evicted is requested again
        }
        accepted.insert(key);
    }

    fn is_accepted(&self, image: &ImageRef, endpoints: &[Endpoint]) -> bool {
        let key = self.key(image, endpoints);
        self.accepted.lock().contains(&key)
    }

    fn key(&self, image: &ImageRef, endpoints: &[Endpoint]) -> u64 {
        let asked: Vec<(String, &Option<Credential>)> = endpoints
            .iter()
            .map(|endpoint| (endpoint.location.reference.to_string(), &endpoint.credential))
            .collect();
        self.seed.hash_one((image.to_string(), asked))
    }
}

impl Puller {
    /// The same for one of several users of a store: see [`Puller::check_stored`].
    #[must_use]
    pub fn in_scope(&self, scope: &str) -> Self {
        Self { scope: Some(scope.into()), ..self.clone() }
    }

    /// Makes sure that the credentials of this puller would bring what `store` has of an image. A puller without a scope is the only user
    /// of its stores, and sends no request; in a scope the manifest is requested once in the life of the process for the same
    /// credentials, also by a pull. A digest in a response to HEAD would not do: any registry can send it.
    ///
    /// While the registry is not available, or credentials or the configuration of registries cannot be read, content is accepted that the
    /// scope has used before by its digest, which the store records. Then the error is returned, for the caller to report, and the next check
    /// requests the manifest again.
    ///
    /// An answer decides: content whose manifest the registry does not send (401, 403, 404) is not accepted, whatever was used before. Rule:
    /// decision 53.
    ///
    /// # Errors
    /// As [`Puller::open_verified`].
    pub async fn check_stored(&self, store: &Store, image: &Verified) -> Result<Option<Error>, Error> {
        let Some(scope) = &self.scope else { return Ok(None) };
        let (canonical, sent) = (image.canonical(), self.check_access(image).await);
        // the registry of a tag has just been asked
        let Some(digest) = canonical.digest().filter(|_| !image.from_tag).cloned() else {
            return sent.map(|()| None);
        };
        let (store, scope) = (store.clone(), Arc::clone(scope));
        match sent {
            Ok(()) => {
                if let Err(error) = off_thread(move || store.record_use(&scope, &digest)).await {
                    tracing::warn!(image = %canonical, %error, "cannot record the use of an image");
                }
                Ok(None)
            }
            Err(error) if error.is_unavailable() => {
                match off_thread(move || Ok(store.was_used(&scope, &digest))).await? {
                    true => Ok(Some(error)),
                    false => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Requests the manifest, unless it was sent for these credentials before.
    async fn check_access(&self, image: &Verified) -> Result<(), Error> {
        let canonical = image.canonical();
        let endpoints = self.endpoints(canonical, image.from_tag)?;
        if !self.access.is_accepted(canonical, &endpoints) {
            self.first_manifest(&endpoints, canonical).await.map_err(Error::Source)?;
            self.access.accept(canonical, &endpoints);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Keyring;
    use crate::config::registries::Location;

    #[test]
    fn access_is_of_image_location_and_credential() {
        let endpoint = |reference: &str, password: Option<&str>| {
            let reference: ImageRef = reference.parse().unwrap();
            let location = Location { reference, insecure: false, configured: false };
            let mut endpoint = Endpoint::new(location, &Keyring::new());
            endpoint.credential =
                password.map(|it| Credential::Basic { username: "user".to_owned(), password: it.to_owned() });
            endpoint
        };
        let at = |place: &str, digit: &str| format!("{place}@sha256:{}", digit.repeat(64));
        let (image, mirror) = (at("r.test/c", "1"), at("m.test/c", "1"));
        let access = Access::default();
        access.accept(&image.parse().unwrap(), &[endpoint(&mirror, None), endpoint(&image, Some("a"))]);
        for (case, asked, endpoints, want) in [
            ("the same", &image, vec![endpoint(&mirror, None), endpoint(&image, Some("a"))], true),
            ("other password", &image, vec![endpoint(&mirror, None), endpoint(&image, Some("b"))], false),
            ("no password", &image, vec![endpoint(&mirror, None), endpoint(&image, None)], false),
            ("no mirror", &image, vec![endpoint(&image, Some("a"))], false),
            ("with a login", &image, vec![endpoint(&mirror, Some("a")), endpoint(&image, Some("a"))], false),
            ("other image", &mirror, vec![endpoint(&mirror, None), endpoint(&image, Some("a"))], false),
        ] {
            assert_eq!(access.is_accepted(&asked.parse().unwrap(), &endpoints), want, "{case}");
        }
        for number in 0..MAX_ACCEPTED {
            access.accept(&format!("r.test/c:{number}").parse().unwrap(), &[]);
        }
        assert!(access.accepted.lock().len() <= MAX_ACCEPTED);
    }
}
