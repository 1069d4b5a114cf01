//! Hostile inputs and their expected outcomes.

use anyhow::Result;

use crate::support::Registry;

/// One hostile image, or one at the edge of what is accepted.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Part of the short selection.
    pub(crate) short: bool,
    pub(crate) expect: Expect,
    /// Pushes it to a registry of its own; gives the reference.
    pub(crate) make: fn(&Registry) -> Result<String>,
}

/// What must become of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The message of the status has these words.
    Refused(&'static str),
    Served,
    /// Accepted, or refused for another reason than a limit.
    Within,
}
