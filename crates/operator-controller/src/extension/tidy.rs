//! Letting go, now and then, of what caches hold for extensions and catalogs that are gone: bundles on disk, package graphs
//! and notes in memory.
//!
//! Nothing here is needed for a decision; what is dropped too early is fetched again. Rule: operator-controller §7.7.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, annotations};
use olm_client::resolution::revision;

use super::shell::Shell;
use crate::watch::Stored;

/// How often.
const EVERY: Duration = Duration::from_secs(60);
/// Bundles that were used within this time stay, and so does everything after a start: all extensions are looked at then.
const SPARE: Duration = Duration::from_secs(120);

/// Runs until it is dropped.
pub async fn run(shell: Arc<Shell>) -> Infallible {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let shell = Arc::clone(&shell);
        if let Err(error) = tokio::task::spawn_blocking(move || tidy(&shell)).await {
            tracing::warn!(%error, "caches could not be tidied");
        }
    }
}

fn tidy(shell: &Shell) {
    let mut used =
        Used::of(&shell.extensions.state(), &shell.catalogs.state(), &shell.revisions.store.state());
    used.packages.extend(shell.waiting.packages());
    shell.packages.retain(|catalog, package| {
        used.catalogs.contains(catalog.as_str()) && used.packages.contains(package.as_str())
    });
    shell.retain(&used.uids);
    shell.bundles.tidy(&used.uids, used.images, SPARE);
}

/// What the cluster has use for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    /// Of extensions.
    uids: BTreeSet<String>,
    packages: BTreeSet<String>,
    catalogs: BTreeSet<String>,
    /// Of bundles in active revisions.
    images: BTreeSet<String>,
}

impl Used {
    fn of(
        extensions: &[Arc<Stored<ClusterExtension>>],
        catalogs: &[Arc<Stored<ClusterCatalog>>],
        revisions: &[Arc<Stored<ClusterObjectSet>>],
    ) -> Self {
        let mut used = Self::default();
        for stored in extensions {
            used.uids.extend(stored.uid());
            let source = stored.0.as_ref().ok().and_then(|extension| extension.spec.source.catalog.as_ref());
            used.packages.extend(source.map(|source| source.package_name.clone()));
        }
        used.catalogs.extend(catalogs.iter().map(|stored| stored.name_any()));
        let readable = revisions.iter().filter_map(|stored| stored.0.as_ref().ok());
        for set in readable.filter(|set| revision::is_active(set)) {
            used.images.extend(set.annotations().get(annotations::BUNDLE_REFERENCE).cloned());
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> Arc<Stored<K>> {
        Arc::new(Stored(Ok(Arc::new(serde_json::from_value(value).unwrap()))))
    }

    #[test]
    fn what_is_used_is_what_extensions_name_and_active_revisions_hold() {
        let extension = stored(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"namespace": "a", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
        }));
        let catalog = stored(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "c"},
            "spec": {"source": {"type": "Image", "image": {"ref": "example.com/c:v1"}}},
        }));
        let revision = |number: i64, state: &str| {
            stored(json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                "metadata": {"name": format!("a-{number}"), "annotations": {
                    annotations::BUNDLE_REFERENCE: format!("example.com/b:v{number}")}},
                "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent", "phases": []},
            }))
        };
        let used = Used::of(&[extension], &[catalog], &[revision(1, "Archived"), revision(2, "Active")]);
        let set = |one: &str| BTreeSet::from([one.to_owned()]);
        assert_eq!(
            used,
            Used { uids: set("u"), packages: set("p"), catalogs: set("c"), images: set("example.com/b:v2") }
        );
    }
}
