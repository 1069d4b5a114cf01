//! From objects to phases to the next step: everything that a rollout decides.
//!
//! Pure: values in, values out. No Kubernetes client, no CR types, no clock; whoever does the work reads the world,
//! asks here what to do with each object, does it and asks here what to say. Rules: the revisions page.

mod digest;
mod history;
pub mod keys;
mod pack;
mod phase;
pub mod probe;
mod sanitise;

pub use digest::{ContentChanged, PhaseDigest, check_observed, phase_digest};
pub use history::{KEPT_ARCHIVED, RevisionFacts, expired, in_flight, installed, next_number, outdated_by};
pub use pack::{
    MAX_OBJECT, MAX_SECRET, ObjectRef, PackError, Packed, PackedPhase, PackedSecret, UnpackError, pack,
    secret_names, unpack,
};
pub use phase::{MAX_OBJECTS, MAX_PHASES, Phase, TooManyPhases, phases};
pub use probe::{Probe, default_probes};
pub use sanitise::{Stamp, owner_labels, sanitise};
