//! Entrances for fuzzers: a policy, and a signature that it judges, without registry and without disk. Not for products.

use std::collections::BTreeMap;
use std::path::Path;

use olm_core::{Digest, ImageRef};

use crate::evidence::{Claim, Evidence};
use crate::judge::{Image, judge};
use crate::policy::{Policy, PolicyError, Requirement};

/// A signature policy.
#[derive(Debug)]
pub struct Trust(Policy);

impl Trust {
    /// Reads a policy.json. `read` knows the files that it names.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8], read: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Self, PolicyError> {
        let mut read = |path: &Path| {
            read(&path.to_string_lossy()).ok_or_else(|| PolicyError::Io {
                path: path.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            })
        };
        Policy::parse(bytes, "policy.json", &mut read).map(Self)
    }

    /// The ruling about an image: its scope, and the requirements in words.
    #[must_use]
    pub fn ruling(&self, image: &ImageRef) -> (String, Vec<String>) {
        let ruling = self.0.ruling(image);
        (ruling.to_string(), ruling.requirements.iter().map(|it| format!("{it:?}")).collect())
    }

    /// Judges one signature of the image `asked` with this digest by each requirement that needs one: the signed bytes and
    /// the signer for each requirement that is fulfilled.
    ///
    /// # Errors
    /// Why the signature cannot be read.
    pub fn judge(
        &self,
        (bytes, annotations): Signature<'_>,
        asked: &ImageRef,
        digest: &Digest,
        now: i64,
    ) -> Result<Vec<(Vec<u8>, String)>, String> {
        let claim = match annotations {
            Some(annotations) => Claim::from_cosign(bytes.to_vec(), annotations),
            None => Claim::from_bundle(bytes),
        }?;
        let signed = claim.format.signed(&claim.payload);
        let evidence = [Evidence { place: "here".to_owned(), claim: Ok(claim) }];
        let requirements =
            self.0.ruling(asked).requirements.iter().filter_map(|requirement| match requirement {
                Requirement::Sigstore(required) => Some(required),
                _ => None,
            });
        let image = Image { asked, digest, now };
        let accepted = requirements.filter_map(|required| judge(required, &evidence, image).ok());
        Ok(accepted.map(|accepted| (signed.clone(), accepted.signer)).collect())
    }
}

/// A signature as a registry keeps it: cosign's payload with the annotations of its layer, or a sigstore bundle alone.
pub type Signature<'a> = (&'a [u8], Option<&'a BTreeMap<String, String>>);
