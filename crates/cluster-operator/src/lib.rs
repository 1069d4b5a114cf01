//! cluster-operator: says in the ClusterOperator `olm` how OLM is, and whether installed bundles stand in the way of an update of the
//! cluster to its next minor version.
//!
//! `observe` keeps what the apiserver tells in small tables; `status` and the modules that it calls turn that into one status,
//! as plain functions from values to values; `controller` writes it when it differs. Which bundle runs on which version is
//! decided by `olm_core::openshift`, which `kubectl olm upgrade-check` asks too.
//!
//! It deliberately changes nothing else in the cluster, reads no catalog and no bundle image, and does nothing at all, without
//! asking again and again, where there is no ClusterOperator API.
//!
//! Rule: cluster-operator, decision 17.

pub mod args;
mod controller;
mod deployment;
mod inner;
mod meter;
mod observe;
mod owner;
pub mod run;
mod status;
mod summary;
mod tell;
mod upgradeable;
mod version;
