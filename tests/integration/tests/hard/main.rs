//! Fault-injection tests on the real control plane: crashes, outages, rivals and rejections, each followed by convergence.
//!
//! `OLM_HARD=3` (the default) bounds how often a random case runs, `OLM_HARD=all` runs each as often as it asks for (`make
//! test-hard`). `OLM_HARD_SEED` repeats a run's random choices; a failing test prints its seed. With `OLM_HARD_TABLE=<file>`
//! every case appends its row.
//!
//! kwok makes pods Running, so no container runs: what an operator does, a test does in its place.

mod classic;
mod clocks;
mod control_plane;
mod crds;
mod finalizers;
mod kills;
mod late_watches;
mod outages;
mod package;
mod proxy;
mod quarantine;
mod refused;
mod replicas;
mod runs;
mod site;
mod writers;
