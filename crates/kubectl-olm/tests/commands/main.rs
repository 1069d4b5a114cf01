//! `kubectl olm` as a process: what its commands print, and their exit codes.

mod bundle;
mod cluster;
mod completion;
mod graph;
mod pictures;
mod reading;
mod support;
mod verbs;
