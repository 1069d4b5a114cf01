//! From objects to phases to the next step: everything that a rollout decides.
//!
//! Pure: values in, values out. No Kubernetes client, no CR types, no clock; the caller reads the cluster, gets the step for each
//! object here, carries it out and gets the conditions here. Rules: the revisions page of the
//! specification.
//!
//! Making a revision: [`sanitise`] each rendered object, lay them out with [`phases`], [`pack`] them into Secrets, with
//! [`default_probes`], under [`next_number`]. Rolling it out: [`unpack`], [`check_observed`], [`Validation`], then for each
//! object [`decide_object`] and [`probe::evaluate`], at the end [`status::condition_updates`]. Removing it: [`teardown`].
//! A dry run of all that: [`forecast()`], [`relinquished`], [`changes()`].

mod applied;
mod changes;
mod conversion;
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
mod pod;
pub mod probe;
pub mod report;
mod sanitise;
pub mod schedule;
pub mod status;
pub mod teardown;
mod validate;

pub use applied::owned;
pub use changes::{FieldChange, changes};
pub use conversion::{converted, field_names, keeps_items};
pub use desired::{
    OwnerRef, Revision, adopting, controller_of, desired, enforcing, mark, owner_refs, release_patch,
    resource_version,
};
pub use digest::{PhaseDigest, PhaseDigester, check_observed, phase_digest};
pub use forecast::{forecast, future_revision, relinquished};
pub use history::{MAX_ARCHIVED, RevisionFacts, expired, next_number, outdated_by};
pub use images::images;
pub use object::{BadMark, Protection, Sibling, Step, conflicting_owner, decide_object};
pub use pack::{
    MAX_OBJECT, MAX_SECRET, ObjectRef, PackError, Packed, PackedPhase, PackedSecret, is_packed, pack,
    pack_until, unpack,
};
pub use phase::{MAX_OBJECTS, MAX_PHASES, Phase, TooManyPhases, is_passive, phases};
pub use pod::{PodState, failing_pod, pod_selector, pod_state};
pub use probe::{Probe, default_probes};
pub use sanitise::{Stamp, sanitise};
pub use validate::{Validation, is_addressable};
