//! The manifests as users apply them: accepted by a real apiserver as they stand, with rights that are enough and not more.
//!
//! kwok makes pods Running; no container runs. The processes run beside the cluster, under the service accounts of the
//! manifests and with the flags of their Deployments.

mod accepted;
mod applied;
mod argocd;
mod audit;
mod chart;
mod classic;
mod gitops;
mod guards;
mod helm_test;
mod install;
mod manifests;
mod rights;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../extension/world.rs"]
mod world;
