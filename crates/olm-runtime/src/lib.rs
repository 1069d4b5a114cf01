//! The base of every process of the project: flags, logs, health, metrics, TLS, leader election, the client,
//! and the few write patterns (apply, status, events) that all controllers share.
//!
//! What it deliberately does not know: any OLM rule. This crate knows no catalogs and no extensions.
//!
//! One TLS provider (ring) serves all; [`tls::install_provider`] comes first in every `main`.

pub mod apply;
pub mod args;
pub mod backoff;
pub mod check;
pub mod client;
pub mod controller;
pub mod duration;
pub mod error_text;
pub mod events;
pub mod features;
mod fence;
pub mod foreign;
pub mod health;
pub mod intervals;
pub mod leader;
pub mod listen;
pub mod metrics;
pub mod namespace;
pub mod polled;
pub mod process;
pub mod profile;
pub mod pull_secrets;
mod report;
pub mod serve;
pub mod shutdown;
pub mod status;
pub mod task;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
pub mod watched;

pub use features::FeatureGates;
pub use intervals::Intervals;
pub use polled::Polled;
pub use shutdown::Shutdown;
pub use status::write_status;
