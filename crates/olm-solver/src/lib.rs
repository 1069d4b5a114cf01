//! The dependency resolver of OLM Classic: which bundles of many packages a namespace gets together, or why none.
//!
//! [`solve`] takes a [`Namespace`]: catalogs, Subscriptions and installed CSVs. It works in three steps, one module each:
//! `reach` collects the candidates of the Subscriptions and, along all dependencies, of the candidates themselves; `solve` takes
//! alternatives by preference; if that comes to a dead end, `rules` asks a SAT solver with which alternatives the rules can still be
//! met, or for a smallest set of rules that contradict each other, which `conflict` prints in Classic's words. [`explain`] (`report`) has the
//! reasons for each choice, too.
//!
//! Pure: no clock, no client, and the same answer for the same input in any order. The work is bounded by [`Limits`].
//! Rules: update-graph §2 and §7; where this crate differs from OLM Classic: decision 50.

mod catalog;
mod conflict;
mod content;
mod draft;
mod error;
mod namespace;
mod reach;
mod report;
mod rules;
mod sat;
mod solve;
mod sources;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use catalog::Catalog;
pub use conflict::{Clause, Conflict};
pub use draft::entry_memory;
pub use error::{ErrorKind, InputError, SolveError};
pub use namespace::{
    BundleDraft, CatalogSource, ChannelDraft, InstalledCsv, Namespace, PackageDraft, Subscription,
};
pub use olm_resolver::{ChannelEntry, ChannelOrderError, GvkRef, Property};
pub use report::{CandidateName, Choice, Reason, Rejected, explain};
pub use solve::{ChosenBundle, Limits, Solution, solve};
