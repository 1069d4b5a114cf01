//! Scenarios: a text that lists packages, what is installed and what is asked, and what should come of it.
//!
//! The same files are tests here and input of `kubectl olm simulate`. One statement a line, `#` begins a comment,
//! texts with spaces stand in double quotes:
//!
//! ```text
//! title Linear chain
//! package p default stable
//! catalog main priority 10                 # optional; a scenario with one catalog needs no such line
//! channel stable
//!   1.0.0                                  # an entry; its bundle is named p.v1.0.0
//!   1.0.1 replaces 1.0.0
//!   1.0.3 replaces 1.0.1 skips 1.0.2 skipRange ">=1.0.0 <1.0.3"
//! bundle 2.0.0 image quay.io/p:v2          # a bundle in no channel, or more about one
//! deprecated bundle 1.0.0 "use 1.0.3"
//! majorUpdates Automatic                   # of all questions below; else Hold
//! catalog other unreadable "connection refused"
//!
//! v1 installed 1.0.0 channels stable version ">=1.0.0" => 1.0.3
//! v1 installed 1.0.3 policy SelfCertified version 1.0.0 => 1.0.0
//! v1 installed 1.0.3 majorUpdates Hold => stay
//! classic installed none channel stable startingCSV 1.0.0 => 1.0.0
//! both installed 1.0.1 => 1.0.3            # v1 and Classic
//! v1 installed 9.0.0 => error "no bundles found"
//! walk v1 installed 1.0.0 => 1.0.3         # all hops until nothing more is offered
//! paths installed 1.0.0 to 2.0.0 => unreachable
//! ```
//!
//! A question without `=>` is only answered. Answers are a version (`1.0.3`, or `1.0.3@main` with the catalog),
//! `stay` (what is installed remains), `error` with an optional part of the message, or `unreachable`.
//! `catalog main from "NAME"` takes the package from wherever the caller's loader finds `NAME`.

mod parse;
mod run;

pub use parse::{Question, Reply, Scenario, ScenarioError, Who};
pub use run::{Loader, QuestionResult, run};
