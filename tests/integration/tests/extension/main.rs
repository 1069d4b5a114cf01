//! The ClusterExtension controller with everything real around it: control plane, registry, catalogd.
//!
//! kwok makes pods Running, so a Deployment becomes Available unless no node fits it; no container runs.

mod accounts;
mod adoption;
mod crds;
mod dependencies;
mod deprecations;
mod deputies;
mod environment;
mod error_messages;
mod events;
mod helm;
mod major_versions;
mod many;
mod migration;
mod signatures;
mod status;
mod steady_state;
mod superseding;
mod uninstall;
mod user_roles;
mod world;
