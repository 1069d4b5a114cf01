//! Our answers beside those of the programs that users know, built from pinned Go modules: `opm`, and the semver libraries.

mod opm;
mod registry;
mod semver;
mod signatures;
