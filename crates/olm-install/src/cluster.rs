//! The version of the cluster and the APIs that it serves, as far as bundles may ask for them (decision 34).

use std::collections::BTreeSet;

use kube::Client;
use kube::discovery::Discovery;
use olm_resolver::{ClusterFacts, GvkRef};
use olm_runtime::polled::answered;

/// Asks the cluster for both. What it has no answer to is not known.
///
/// # Errors
/// When the cluster cannot be asked.
pub async fn facts(client: &Client) -> Result<ClusterFacts, kube::Error> {
    let version = answered(client.apiserver_version().await)?;
    let discovery = answered(Discovery::new(client.clone()).run_aggregated().await)?;
    Ok(ClusterFacts {
        version: version.and_then(|version| version.git_version.parse().ok()),
        apis: discovery.as_ref().map(served),
    })
}

fn served(discovery: &Discovery) -> BTreeSet<GvkRef> {
    let mut all = BTreeSet::new();
    for group in discovery.groups() {
        for version in group.versions() {
            all.extend(group.versioned_resources(version).into_iter().map(|(resource, _)| GvkRef {
                group: resource.group.into(),
                version: resource.version.into(),
                kind: resource.kind.into(),
            }));
        }
    }
    all
}
