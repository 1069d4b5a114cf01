//! From objects to phases to the next step: everything that a rollout decides.
//!
//! Pure: values in, values out. No Kubernetes client, no CR types, no clock; whoever does the work reads the world,
//! asks here what to do with each object, does it and asks here what to say. Rules: the revisions page of the
//! specification.
//!
//! Making a revision: [`sanitise`] each rendered object, lay them out with [`phases`], [`pack`] them into Secrets, with
//! [`default_probes`], under [`next_number`]. Rolling it out: [`unpack`], [`check_observed`], [`validate`], then for each
//! object [`decide_object`] and [`probe::evaluate`], at the end [`status::statements`]. Giving it up: [`teardown`]. Foretelling all that without
//! doing it: [`forecast()`], [`relinquished`], [`changes()`].

mod applied;
mod changes;
mod desired;
mod digest;
mod fields;
mod forecast;
mod history;
mod images;
pub mod keys;
mod object;
mod pack;
pub mod permissions;
mod phase;
pub mod probe;
pub mod report;
mod sanitise;
pub mod schedule;
pub mod status;
pub mod teardown;
mod validate;

pub use applied::{Drift, converted, drift, needs_conversion, owned};
pub use changes::{FieldChange, changes};
pub use desired::{OwnerRef, Us, adopting, controller_of, desired, enforcing, owner_refs, release_patch};
pub use digest::{ContentChanged, PhaseDigest, check_observed, phase_digest};
pub use forecast::{forecast, newcomer, relinquished};
pub use history::{KEPT_ARCHIVED, RevisionFacts, expired, in_flight, installed, next_number, outdated_by};
pub use images::images;
pub use object::{
    BadMark, Controller, Mark, Protection, Seen, Sibling, Step, conflicting_owner, decide, decide_object, see,
};
pub use pack::{
    MAX_OBJECT, MAX_SECRET, ObjectRef, PackError, Packed, PackedPhase, PackedSecret, UnpackError, pack,
    secret_names, unpack,
};
pub use phase::{MAX_OBJECTS, MAX_PHASES, Phase, TooManyPhases, phases};
pub use probe::{Probe, default_probes};
pub use sanitise::{Stamp, owner_labels, sanitise};
pub use validate::validate;
