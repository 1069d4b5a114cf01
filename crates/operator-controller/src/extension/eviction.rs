//! Eviction, now and then, of bundles on disk and state of extensions that are gone or have moved to other bundles.
//!
//! No decision needs it; what is evicted too early is fetched again. Rule: operator-controller §7.7.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use olm_api::{ClusterObjectSet, annotations};
use olm_install::resolution::revision;
use olm_runtime::watched::Object;

use super::context::Context;

/// Bundles that were used within this time stay, and so do all after a start: all extensions are reconciled then.
const GRACE_PERIOD: Duration = Duration::from_secs(120);

/// Runs until it is dropped.
pub async fn run(context: Arc<Context>) -> Infallible {
    let mut ticks = tokio::time::interval(context.settings.intervals.eviction);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        evict(&context).await;
    }
}

async fn evict(context: &Context) {
    let uids: BTreeSet<String> = context.extensions.read().rows().values().map(Object::uid).collect();
    context.evict_unused_packages();
    context.states.retain(&uids);
    let mut used = images(&context.revisions.all());
    used.extend(context.states.images());
    context.bundles.tidy(used, GRACE_PERIOD).await;
}

/// Images of bundles in active revisions.
fn images(revisions: &[Arc<ClusterObjectSet>]) -> BTreeSet<String> {
    let active = revisions.iter().filter(|set| revision::is_active(set));
    active.filter_map(|set| set.annotations().get(annotations::BUNDLE_REFERENCE).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn eviction_keeps_bundles_of_active_revisions() {
        let revision = |number: i64, state: &str| {
            let set = json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                "metadata": {"name": format!("a-{number}"), "annotations": {
                    annotations::BUNDLE_REFERENCE: format!("example.com/b:v{number}")}},
                "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent", "phases": []},
            });
            Arc::new(serde_json::from_value(set).unwrap())
        };
        let images = images(&[revision(1, "Archived"), revision(2, "Active")]);
        assert_eq!(images, BTreeSet::from(["example.com/b:v2".to_owned()]));
    }
}
