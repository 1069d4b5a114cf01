//! Our answers beside those of the programs that users know, built from pinned Go modules: `opm`, OLM Classic's resolver, and the
//! semver libraries.

mod classic;
mod opm;
mod registry;
mod registry_process;
mod semver;
mod signatures;
