//! Real published operators on the real control plane: every bundle of the sample is rendered and offered to the
//! apiserver, and every package is installed, upgraded and removed through the whole system.
//!
//! The sample is in the shared reference material; without it the tests print that they were skipped. What comes of each bundle
//! and package is written into `docs/internals/real-content.md` with `OLM_WRITE_DOCS=1`, and compared with it otherwise.
//!
//! `OLM_REAL_ONLY=name,name` picks packages, to inspect one; then nothing is compared.
//!
//! kwok makes pods Running, so no operator's program runs: that is not what is asked here.

mod bundles;
mod operators;
mod page;
mod plan;
mod sample;
