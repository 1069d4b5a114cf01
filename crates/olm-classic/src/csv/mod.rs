//! ClusterServiceVersions: phases, requirements, replacement chains and the objects of the install strategy.
//!
//! [`decide`] is one step of the phase machine: the first row of [`TABLE`] whose guard holds. A controller observes the cluster into
//! [`Observed`], with [`requirements`], [`chain`] and [`health`] for its parts, carries out the actions of the step and writes the status of
//! [`Step::apply`]. With unchanged inputs the machine rests after a few steps: where the reference loops, a row here stays in the failure.
//!
//! The ServiceAccounts, Roles and bindings of the permissions are those of the install plan; the roles in target namespaces are those of
//! the operator group. [`strategy`] has the rest: Deployments, and what serves webhooks and aggregated APIs.
//!
//! Rules: classic-apis §6, §3.4, §9.

pub mod chain;
mod decide;
pub mod edits;
pub mod health;
mod labels;
mod observed;
mod phase;
pub mod requirements;
pub mod rights;
mod spec_hash;
pub mod strategy;
mod table;
#[cfg(test)]
mod tests;
pub mod webhooks;

pub use chain::{Neighbor, Neighbors, OwnerConflict};
pub use decide::{Action, HISTORY, INSTALL_TIMEOUT, Step, Transition, decide};
pub use health::Health;
pub use observed::{ApiServices, Certificates, GroupState, InstallResult, Observed, UpgradeGate};
pub use phase::{Phase, Reason};
pub use requirements::Requirements;
pub use table::{Evidence, Row, TABLE};
