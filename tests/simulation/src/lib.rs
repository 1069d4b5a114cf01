//! Deterministic simulation: the real controllers on a simulated apiserver, under tokio's paused clock and one seed.

pub mod apiserver;
pub mod classic;
pub mod command;
pub mod content;
pub mod disturbance;
pub mod harness;
pub mod invariants;
pub mod lease;
pub mod outcome;
pub mod processes;
pub mod scenario;
pub mod schedule;
mod worker;

pub use apiserver::{
    ApiServer, Endpoint, Faults, InjectedError, Match, Request, Settings, USER, Verb, Write, documents,
};
