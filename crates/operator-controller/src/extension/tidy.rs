//! Letting go, now and then, of what caches hold for extensions that are gone or have moved on: bundles on disk, notes in memory.
//!
//! Nothing here is needed for a decision; what is dropped too early is fetched again. Rule: operator-controller §7.7.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_install::resolution::revision;

use super::shell::Shell;
use crate::watch::Stored;

/// Bundles that were used within this time stay, and so does everything after a start: all extensions are looked at then.
const SPARE: Duration = Duration::from_secs(120);

/// Runs until it is dropped.
pub async fn run(shell: Arc<Shell>) -> Infallible {
    let mut ticks = tokio::time::interval(shell.settings.intervals.eviction);
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
    let used = Used::of(&shell.extensions.state(), &shell.revisions.store.state());
    shell.keep_packages_in_use(None);
    shell.retain(&used.uids);
    shell.bundles.tidy(&used.uids, used.images, SPARE);
}

/// What the cluster has use for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    /// Of extensions.
    uids: BTreeSet<String>,
    /// Of bundles in active revisions.
    images: BTreeSet<String>,
}

impl Used {
    fn of(extensions: &[Arc<Stored<ClusterExtension>>], revisions: &[Arc<Stored<ClusterObjectSet>>]) -> Self {
        let readable = revisions.iter().filter_map(|stored| stored.0.as_ref().ok());
        let images = readable
            .filter(|set| revision::is_active(set))
            .filter_map(|set| set.annotations().get(annotations::BUNDLE_REFERENCE).cloned());
        Self { uids: extensions.iter().filter_map(|stored| stored.uid()).collect(), images: images.collect() }
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
    fn bundles_are_used_by_active_revisions() {
        let extension = stored(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"namespace": "a", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
        }));
        let revision = |number: i64, state: &str| {
            stored(json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                "metadata": {"name": format!("a-{number}"), "annotations": {
                    annotations::BUNDLE_REFERENCE: format!("example.com/b:v{number}")}},
                "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent", "phases": []},
            }))
        };
        let used = Used::of(&[extension], &[revision(1, "Archived"), revision(2, "Active")]);
        let set = |one: &str| BTreeSet::from([one.to_owned()]);
        assert_eq!(used, Used { uids: set("u"), images: set("example.com/b:v2") });
    }
}
