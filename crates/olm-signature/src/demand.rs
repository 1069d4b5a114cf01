//! The demands of a policy for one image, and the error message for an image that does not comply.

use olm_core::ImageRef;

use crate::policy::{Policy, Requirement, Sigstore};

/// What a policy demands of one image.
#[derive(Debug)]
pub enum Demand<'p> {
    /// The image is accepted, signed or not.
    Nothing,
    /// A signature for each of these.
    Signatures(Vec<&'p Sigstore>),
}

impl Policy {
    /// What the policy demands, before the image is read.
    ///
    /// # Errors
    /// The error message for an image that no signature makes acceptable.
    pub fn demand(&self, asked: &ImageRef) -> Result<Demand<'_>, String> {
        let ruling = self.ruling(asked);
        let decided = || format!("; {ruling} of {} decides", self.origin);
        let mut signatures = Vec::new();
        for requirement in ruling.requirements {
            match requirement {
                Requirement::Accept => {}
                Requirement::Reject => {
                    return Err(format!(
                        "Source image rejected: Running image docker://{asked} is rejected by policy.{}",
                        decided()
                    ));
                }
                Requirement::Unsupported(kind) => {
                    return Err(format!(
                        "Source image rejected: docker://{asked} needs {kind}, which is not supported{}; use sigstoreSigned",
                        decided()
                    ));
                }
                Requirement::Sigstore(sigstore) => signatures.push(sigstore.as_ref()),
            }
        }
        Ok(if signatures.is_empty() { Demand::Nothing } else { Demand::Signatures(signatures) })
    }

    /// The error message for an image without the signatures that the policy demands. It begins as containers/image
    /// writes it, then names image and scope, and what to do. `why` is `None` when there is no signature at all.
    #[must_use]
    pub fn rejection(&self, asked: &ImageRef, canonical: &ImageRef, why: Option<String>) -> String {
        let why = match why {
            None => "A signature was required, but no signature exists".to_owned(),
            Some(why) => format!("None of the signatures were accepted, reasons: {why}"),
        };
        let ruling = self.ruling(asked);
        format!(
            "Source image rejected: {why}; sign {canonical} as {ruling} of {} demands, or change the policy",
            self.origin
        )
    }
}
