//! The source of the signature policy; [`crate::policy`] reads and applies it.
//!
//! Decision 18: either everything, by an explicit name (`insecureAcceptAnything`), or a file that must be readable.

use std::path::PathBuf;
use std::str::FromStr;

/// The name that switches checks off.
pub const ACCEPT_ANYTHING: &str = "insecureAcceptAnything";

/// Where the policy comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// Every image is accepted, signed or not.
    #[default]
    AcceptAnything,
    /// A policy.json, as containers-policy.json(5) describes it.
    File(PathBuf),
}

impl FromStr for SignaturePolicy {
    type Err = std::convert::Infallible;

    /// The value of `--signature-policy`: the name [`ACCEPT_ANYTHING`], else a path.
    fn from_str(value: &str) -> Result<Self, Self::Err> {
        Ok(if value == ACCEPT_ANYTHING { Self::AcceptAnything } else { Self::File(value.into()) })
    }
}
