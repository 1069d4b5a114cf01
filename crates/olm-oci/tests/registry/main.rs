//! The puller and the store against registries on loopback that the tests write themselves.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod hostile;
mod kill;
mod pull;
mod signed;
mod stored;
mod support;
mod trust;
