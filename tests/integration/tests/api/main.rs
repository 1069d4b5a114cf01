//! The API types against a real apiserver: what it accepts, what it refuses and with which words, defaults, immutability, status
//! rules; and the parts of olm-runtime that only an apiserver can prove.
//!
//! Rule: operator-controller §1, catalogd §3, revisions §2; decisions 2 and 3.

mod cases;
mod catalog;
mod classic;
mod extension;
mod object_set;
mod recorded;
mod runtime;
mod schema;

use anyhow::Result;
use kube::Client;
use olm_kit::Cluster;

/// The shared cluster with the project's CRDs, and a client for this test.
async fn cluster() -> Result<(&'static Cluster, Client)> {
    let cluster = Cluster::shared().await?;
    cluster.install_crds().await?;
    Ok((cluster, cluster.client().await?))
}
