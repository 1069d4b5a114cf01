//! The processes as they run in production, on a real control plane: certificates that they issue themselves, metrics behind
//! authentication, leaders that fail, traces, and what must not be in a log.

mod failover;
mod foreign;
mod metrics;
mod proxy;
mod report;
mod restore;
mod secrets;
mod serving;
mod traces;
mod unread;
mod upgrade;
#[path = "../extension/world.rs"]
#[expect(dead_code, reason = "shared with the tests of extensions")]
mod world;
