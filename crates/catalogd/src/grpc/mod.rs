//! The registry of OLM Classic over gRPC: the service `api.Registry`, health and reflection, for every catalog of the store.
//!
//! A request names no catalog, so each catalog is an address: the first label of the authority names it. Knows the store and the
//! protocol; not Kubernetes, not registries of images. Rules: fbc §10.7, decision 51.

mod bundle;
mod graph;
mod health;
mod registry;
pub mod server;
#[cfg(test)]
mod tests;

pub use registry::Registry;
