//! catalogd on a real control plane: the controller, the process, registries that fail, and signature policies.

mod cluster;
mod faults;
mod process;
mod signatures;
