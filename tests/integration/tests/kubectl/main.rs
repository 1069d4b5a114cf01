//! kubectl-olm against a real control plane and a real registry: what a user sees, and the exit codes.

mod acting;
mod bundle_image;
mod catalog_image;
mod classic;
mod cluster;
mod image;
mod mirror;
mod planning;
mod support;
mod upgrade_check;
mod viewer;
