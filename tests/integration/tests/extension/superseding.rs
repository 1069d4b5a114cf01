//! Decisions 9 and 10: a newer version supersedes a stuck rollout, and large phases are split.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use olm_kit::Entry;
use serde_json::json;

use crate::world::{World, stuck_deployment};

#[tokio::test]
async fn superseding_replaces_a_first_install_that_is_stuck() -> Result<()> {
    let world = World::new("stuck-first").await?;
    let stuck = world.bundle("1.0.0").deployments([stuck_deployment("main")]);
    world.serve_chain([("1.0.0", stuck), ("1.1.0", world.bundle("1.1.0"))]).await?;
    world.want(json!({"version": "1.0.0"})).await?;
    world.progressing("RollingOut", "").await?;

    world.install("1.1.0").await?;
    let want = [(1, "Archived".to_owned(), false), (2, "Active".to_owned(), true)];
    assert_eq!(world.revisions().await?, want);
    Ok(())
}

#[tokio::test]
async fn superseding_replaces_an_upgrade_that_is_stuck() -> Result<()> {
    let world = World::new("stuck-upgrade").await?;
    let stuck = world.bundle("1.1.0").deployments([stuck_deployment("main")]);
    let entries = [
        Entry::new("1.0.0"),
        Entry::new("1.1.0").replaces("1.0.0"),
        Entry::new("1.2.0").replaces("1.1.0").skips("1.0.0"),
    ];
    let bundles = [("1.0.0", world.bundle("1.0.0")), ("1.1.0", stuck), ("1.2.0", world.bundle("1.2.0"))];
    world.serve(bundles, entries).await?;
    world.install("1.0.0").await?;
    world.want(json!({"version": "1.1.0"})).await?;
    let rolling = world.until("1.1.0 rolls out beside 1.0.0", |extension| {
        extension.status.as_ref().is_some_and(|status| status.active_revisions.len() == 2)
    });
    assert_eq!(
        rolling.await?.status.unwrap_or_default().install.map(|i| i.bundle.version).as_deref(),
        Some("1.0.0")
    );

    world.install("1.2.0").await?;
    let states: Vec<_> = world.revisions().await?.into_iter().map(|(n, state, _)| (n, state)).collect();
    assert_eq!(states, [(1, "Archived".to_owned()), (2, "Archived".to_owned()), (3, "Active".to_owned())]);
    Ok(())
}

#[tokio::test]
async fn phase_with_more_than_fifty_objects_is_split() -> Result<()> {
    let world = World::new("bulk").await?;
    let mut bundle = world.bundle("1.0.0").without_config_map();
    for index in 0..61 {
        bundle = bundle.extra(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("bulk-{index:02}")}, "data": {"a": "b"},
        }));
    }
    world.serve([("1.0.0", bundle)], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;
    let set = world.sets.get(&format!("{}-1", world.name)).await?;
    let sizes: Vec<_> =
        set.spec.phases.iter().map(|phase| (phase.name.as_str(), phase.objects.len())).collect();
    assert!(sizes.contains(&("configuration", 50)) && sizes.contains(&("configuration-2", 11)), "{sizes:?}");
    let maps: Api<ConfigMap> = Api::namespaced(world.stack.cluster.client().await?, &world.name);
    let owned = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={}", world.name));
    assert_eq!(maps.list(&owned).await?.items.len(), 61);
    Ok(())
}
