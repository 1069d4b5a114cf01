//! The rights that writing a revision's objects takes, those that an account lacks, and the roles that would grant them.
//!
//! Objects of an extension that names a service account are written as that account (decision 8). Before a revision is
//! made, its objects are turned into [`Needs`]; rules that bindings grant are collected in [`Granted`]; what is [`missing`]
//! is reported in one message, as lines of [`Roles`], which `kubectl olm rbac` prints ready to apply. The apiserver stays the judge: a right that is missing here is
//! refused there too, and a right that is granted by another authorizer than RBAC is asked about before it counts as missing.
//!
//! It knows RBAC, not who is bound to what: rules arrive as values.

mod handed;
mod missing;
mod needed;
mod roles;
mod rule;
#[cfg(test)]
mod tests;

pub use handed::{HandedOut, NewGrant};
pub use missing::{Granted, missing};
pub use needed::{Handing, Needs, RoleRef, Served, needed, referenced};
pub use roles::{Roles, compact};
pub use rule::{Right, Rule, Scope};
