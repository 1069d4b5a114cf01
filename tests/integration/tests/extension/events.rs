//! Events: every decision once, and nothing while nothing happens.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use olm_kit::{Crd, Entry, Package};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn events_report_upgrade_and_rollback_but_no_steady_state() -> Result<()> {
    let world = World::new("told").await?;
    world.serve_chain([("1.0.0", world.bundle("1.0.0")), ("1.1.0", world.bundle("1.1.0"))]).await?;
    // otherwise the first event might be that there is no such package
    world.catalog_is_known().await?;
    let name = &world.name;
    world.install("1.0.0").await?;
    world.install("1.1.0").await?;
    world.want(json!({"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"})).await?;
    world.installed("1.0.0").await?;
    let want = [
        ("Installed", format!("bundle {name}.v1.0.0 is installed")),
        (
            "Resolved",
            format!("bundle {name}.v1.0.0 was chosen after {name}.v1.1.0; revision {name}-3 rolls it out"),
        ),
        ("Resolved", format!("bundle {name}.v1.0.0 was chosen; revision {name}-1 installs it")),
        (
            "Resolved",
            format!("bundle {name}.v1.1.0 was chosen after {name}.v1.0.0; revision {name}-2 rolls it out"),
        ),
        ("RolledBack", format!("bundle {name}.v1.0.0 is installed in place of the higher {name}.v1.1.0")),
        ("Upgraded", format!("bundle {name}.v1.1.0 is installed in place of {name}.v1.0.0")),
    ];
    let want: Vec<_> = want.into_iter().map(|(reason, note)| (reason.to_owned(), note, 1)).collect();
    world.until_event_count(want.len()).await?;
    assert_eq!(world.all_events().await?, want);

    // each of these passes finds everything as it should be, and is waited for
    for pass in 0..20 {
        let mut same = json!({"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"});
        if pass % 2 == 0 {
            same["channels"] = json!(["stable"]);
        }
        world.want(same).await?;
        world.installed("1.0.0").await?;
    }
    assert_eq!(world.all_events().await?, want);
    Ok(())
}

#[tokio::test]
async fn event_of_a_rejected_upgrade_is_emitted_once() -> Result<()> {
    let world = World::new("refused").await?;
    let group = format!("{}.example.com", world.name);
    let (old, new) = (Crd::new("Gadget", &group), Crd::new("Gadget", &group).without_field("size"));
    let bundles =
        [("1.0.0", world.bundle("1.0.0").crds([old])), ("1.1.0", world.bundle("1.1.0").crds([new]))];
    world.serve_chain(bundles).await?;
    world.install("1.0.0").await?;
    world.want(json!({})).await?;
    world.progressing("Retrying", "removed field : v1.^.spec.size").await?;
    for pass in 0..10 {
        let same = if pass % 2 == 0 { json!({"channels": ["stable"]}) } else { json!({}) };
        world.want(same).await?;
        world.progressing("Retrying", "removed field : v1.^.spec.size").await?;
    }
    let events = world.events("UpgradeRefused").await?;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains(&format!("the change of CRD gadgets.{group} is not safe")), "{events:?}");
    assert!(events[0].ends_with(" the annotation in Progressing accepts it"), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn event_of_an_unavailable_registry_is_emitted_once() -> Result<()> {
    let world = World::new("no-answer").await?;
    let address = format!("127.0.0.1:{}", olm_kit::free_port()?);
    let nowhere = format!("{address}/bundle:v1");
    let package =
        Package::new(&world.name).channel("stable", [Entry::new("1.0.0")]).bundle("1.0.0", &nowhere);
    world.serve_package(&package).await?;
    // otherwise the first event might be that there is no such package
    world.catalog_is_known().await?;
    world.want(json!({})).await?;
    world.progressing("Retrying", &address).await?;
    for _ in 0..10 {
        world.again().await?;
    }
    world.want(json!({"channels": ["stable"]})).await?;
    world.progressing("Retrying", &address).await?;
    let events = world.all_events().await?;
    assert!(matches!(events.as_slice(), [(reason, _, 1)] if reason == "Retrying"), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn event_reports_that_a_changed_bundle_image_is_ignored() -> Result<()> {
    let world = World::new("other-image").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;
    let other = world.bundle("1.0.0").config_map("other", "content");
    world.serve([("1.0.0", other)], [Entry::new("1.0.0")]).await?;
    world.until_event("ImageIgnored").await?;
    world.again().await?;
    let patch = json!({"metadata": {"annotations": {"olm.operatorframework.io/paused": "true"}}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    world.until_event("Paused").await?;
    let events = world.events("ImageIgnored").await?;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with(&format!("bundle {}.v1.0.0 was installed from ", world.name)),
        "{events:?}"
    );
    assert_eq!(world.revisions().await?.len(), 1);
    Ok(())
}
