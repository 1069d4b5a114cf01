//! Tests of the resolver over small catalogs: the worked cases of the specification, decision by decision.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod brute_force;
mod common;
mod dependency;
mod deprecation;
mod environment;
mod hostile;
mod real;
mod report;
mod scenarios;
mod slow;
mod table;
mod ways;
