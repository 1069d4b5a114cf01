//! Deprecations that a catalog declares, in the conditions of an extension; and bundles that it skips.

use anyhow::Result;
use olm_api::condition;
use olm_kit::{Entry, Package};
use serde_json::json;

use crate::world::World;

const PACKAGE: &str = "The package is end of life. Please use another one for support.";
const CHANNEL: &str = "The 'alpha' channel is no longer supported. Please switch to the 'stable' channel.";
const BUNDLE: &str = "1.68.0 is deprecated. Uninstall it and install 1.72.0 for support.";

/// The sample of the format: a package, one of its channels and one of its bundles. rule: operator-controller §5.2, fbc §5.4
#[tokio::test]
async fn deprecations_of_all_scopes_are_conditions() -> Result<()> {
    let world = World::new("deprecated").await?;
    let mut package = Package::new(&world.name)
        .channel("alpha", [Entry::new("1.68.0")])
        .channel("stable", [Entry::new("1.68.0"), Entry::new("1.72.0").replaces("1.68.0")]);
    let old = package.bundle_name("1.68.0");
    for version in ["1.68.0", "1.72.0"] {
        package = package.bundle(version, &world.push(version, &world.bundle(version)).await?);
    }
    let package = package.deprecations([
        (json!({"schema": "olm.package"}), PACKAGE),
        (json!({"schema": "olm.channel", "name": "alpha"}), CHANNEL),
        (json!({"schema": "olm.bundle", "name": old}), BUNDLE),
    ]);
    world.serve_package(&package).await?;

    let none = "not deprecated";
    for (catalog, version, channel, bundle) in [
        (json!({"version": "1.68.0", "channels": ["alpha"]}), "1.68.0", CHANNEL, BUNDLE),
        (json!({"version": "1.68.0", "channels": ["stable"]}), "1.68.0", none, BUNDLE),
        (json!({"channels": ["stable"]}), "1.72.0", none, none),
    ] {
        world.want(catalog.clone()).await?;
        world.installed(version).await?;
        let all = [PACKAGE, channel, bundle].into_iter().filter(|text| *text != none);
        let rollup = all.collect::<Vec<_>>().join("\n");
        let desired = [
            (condition::PACKAGE_DEPRECATED, PACKAGE.to_owned()),
            (condition::CHANNEL_DEPRECATED, channel.to_owned()),
            (condition::BUNDLE_DEPRECATED, bundle.to_owned()),
            (condition::DEPRECATED, rollup),
        ];
        world
            .until(&format!("the deprecations of {catalog}"), |extension| {
                let conditions = extension.status.as_ref().map(|status| status.conditions.as_slice());
                desired.iter().all(|(type_, message)| {
                    let found = condition::find(conditions.unwrap_or_default(), type_);
                    found.is_some_and(|found| match message.as_str() {
                        "not deprecated" => {
                            found.status.as_str() == "False" && found.reason == "NotDeprecated"
                        }
                        text => {
                            found.status.as_str() == "True"
                                && found.reason == "Deprecated"
                                && found.message == text
                        }
                    })
                })
            })
            .await?;
    }
    Ok(())
}

/// A range that leaves the head out leads to a bundle that the head skips.
#[tokio::test]
async fn skipped_bundle_is_installed_with_an_event() -> Result<()> {
    let world = World::new("skipped").await?;
    let versions = ["1.1.0", "1.2.0"].map(|version| (version, world.bundle(version)));
    world.serve(versions, [Entry::new("1.1.0"), Entry::new("1.2.0").skips("1.1.0")]).await?;
    world.want(json!({"version": "<1.2.0"})).await?;
    world.installed("1.1.0").await?;
    world.until_event("BundleSkipped").await?;
    world.install_any("1.2.0").await?;
    assert_eq!(world.events("BundleSkipped").await?.len(), 1);
    Ok(())
}
