//! The API types against a real apiserver: what it accepts, what it refuses and with which words, defaults, immutability, status
//! rules; and the parts of olm-runtime that only an apiserver can prove.
//!
//! Rule: operator-controller §1, catalogd §3, revisions §2; decisions 2 and 3.

mod catalog;
mod extension;
mod object_set;
mod recorded;
mod runtime;
mod schema;

use anyhow::{Result, bail};
use kube::Client;
use kube::api::{Api, DynamicObject};
use olm_integration::{Want, check, offer};
use olm_kit::Cluster;
use serde_json::Value;

/// The shared cluster with the project's CRDs, and a client for this test.
async fn cluster() -> Result<(&'static Cluster, Client)> {
    let cluster = Cluster::shared().await?;
    cluster.install_crds().await?;
    Ok((cluster, cluster.client().await?))
}

/// What a case changes in the smallest object: JSON pointers and values.
type Changes = Vec<(&'static str, Value)>;

/// Offers every object and reports all that went otherwise than wanted.
async fn offer_all(api: &Api<DynamicObject>, cases: Vec<(String, Value, Want)>) -> Result<()> {
    let count = cases.len();
    let mut wrong = Vec::new();
    for (case, object, want) in cases {
        if let Err(error) = check(&case, want, &offer(api, object).await?) {
            wrong.push(error.to_string());
        }
    }
    report(count, &wrong)
}

fn report(count: usize, wrong: &[String]) -> Result<()> {
    #[expect(clippy::print_stdout, reason = "how much was really asked belongs into the log of a run")]
    {
        println!("{count} objects offered, {} not answered as wanted", wrong.len());
    }
    if !wrong.is_empty() {
        bail!("{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}
