//! Deterministic simulation: the real controllers on a simulated apiserver, under tokio's paused clock and one seed.

pub mod apiserver;
pub mod command;
pub mod content;
pub mod harness;
pub mod invariants;
pub mod scenario;
pub mod schedule;

pub use apiserver::{
    ApiServer, Endpoint, Faults, InjectedError, Match, Request, Settings, USER, Verb, Write,
};
