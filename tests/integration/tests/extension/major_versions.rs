//! Decision 32: the next major version is held until it is asked for.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterExtension, annotations, condition};
use olm_kit::Entry;
use serde_json::json;

use crate::world::World;

const RANGE: &str = "<3.0.0";

/// 1.0.0 and 2.0.0, whose skipRange leads from one to the other; 3.0.0 skips 2.0.0. 2.0.0 is installed, by a range.
async fn at_second_major(prefix: &str, major_updates: Option<&str>) -> Result<World> {
    let world = World::new(prefix).await?;
    let versions = ["1.0.0", "2.0.0", "3.0.0"].map(|version| (version, world.bundle(version)));
    let entries = [
        Entry::new("1.0.0"),
        Entry::new("2.0.0").skip_range(">=1.0.0 <2.0.0"),
        Entry::new("3.0.0").skips("2.0.0"),
    ];
    world.serve(versions, entries).await?;
    world.install("1.0.0").await?;
    annotate(&world, major_updates).await?;
    world.want(json!({"version": RANGE})).await?;
    world.installed("2.0.0").await?;
    Ok(world)
}

async fn annotate(world: &World, major_updates: Option<&str>) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {(annotations::MAJOR_UPDATES): major_updates}}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

fn held(extension: &ClusterExtension) -> Option<&str> {
    let conditions = &extension.status.as_ref()?.conditions;
    let found = condition::find(conditions, condition::UPGRADE_AVAILABLE)?;
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("True", "MajorVersionHeld"));
    Some(&found.message)
}

#[tokio::test]
async fn major_version_is_held_until_it_is_asked_for() -> Result<()> {
    let world = at_second_major("major-held", None).await?;
    let before = world.extensions.get(&world.name).await?;
    assert_eq!(held(&before), None, "a range holds nothing");

    world.want(json!({})).await?;
    let holds = |extension: &ClusterExtension| {
        let status = extension.status.as_ref();
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let current = condition::find(conditions, condition::UPGRADE_AVAILABLE)
            .is_some_and(|found| found.observed_generation == extension.metadata.generation);
        current
            && held(extension).is_some_and(|message| message.contains("3.0.0") && message.contains("^3.0.0"))
    };
    let after = world.until("3.0.0 is held", holds).await?;
    let others = |extension: &ClusterExtension| -> Vec<(String, String, String, String)> {
        let conditions = extension.status.clone().unwrap_or_default().conditions;
        let shown = conditions.into_iter().filter(|found| found.type_ != condition::UPGRADE_AVAILABLE);
        let mut shown: Vec<_> =
            shown.map(|found| (found.type_, found.status.to_string(), found.reason, found.message)).collect();
        shown.sort();
        shown
    };
    assert_eq!(others(&after), others(&before), "as if the candidate did not exist");
    assert_eq!(world.revisions().await?.len(), 2);
    world.until_event("MajorVersionHeld").await?;

    world.want(json!({"version": "^3.0.0"})).await?;
    world.installed("3.0.0").await?;
    world.until("nothing is held", |extension| held(extension).is_none()).await?;
    assert_eq!(world.events("MajorVersionHeld").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn major_version_follows_if_the_annotation_is_automatic() -> Result<()> {
    let world = at_second_major("major-automatic", Some("Automatic")).await?;
    world.install_any("3.0.0").await?;
    assert!(world.events("MajorVersionHeld").await?.is_empty());

    annotate(&world, Some("automatic")).await?;
    let message = world.progressing("Retrying", "neither Hold nor Automatic").await?;
    assert!(message.contains(annotations::MAJOR_UPDATES), "{message}");
    Ok(())
}
