//! `kubectl olm` as a process: what its commands print, and their exit codes.

mod bundle;
mod completion;
mod graph;
mod interrupt;
mod pictures;
mod reading;
mod support;
mod verbs;
