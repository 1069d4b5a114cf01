//! Decision 34: a bundle that needs another Kubernetes version or other APIs than the cluster has is skipped.

use anyhow::Result;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use olm_api::{ClusterExtension, condition};
use olm_kit::{Crd, Entry, Options, Package, Program, Stack};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::world::{World, current};

/// A stack whose controller reads the version and the APIs of the cluster every second.
async fn attentive() -> Result<&'static Stack> {
    static STACK: OnceCell<Stack> = OnceCell::const_new();
    let start = || async {
        let flag = |program: Program| program.flag("--test-intervals", "cluster=1s");
        Stack::start_with(&Options::default(), flag).await
    };
    STACK.get_or_try_init(start).await
}

/// The message about a bundle that is skipped.
fn unfit(extension: &ClusterExtension) -> Option<String> {
    let found = current(extension, condition::UPGRADE_AVAILABLE)?;
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("True", "EnvironmentNotMet"));
    Some(found.message.clone())
}

#[tokio::test]
async fn bundle_is_skipped_until_the_cluster_fits_it() -> Result<()> {
    let world = World::on(attentive().await?, "environment").await?;
    let crd = Crd::new("Gadget", &format!("{}.example.com", world.name));
    let api = json!({"group": format!("{}.example.com", world.name), "version": "v1", "kind": "Gadget"});
    let entries =
        [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0"), Entry::new("1.2.0").replaces("1.1.0")];
    let mut package = Package::new(&world.name).channel("stable", entries);
    for (version, metadata) in [
        ("1.0.0", json!({})),
        ("1.1.0", json!({"minKubeVersion": "1.20.0", "nativeAPIs": [api]})),
        ("1.2.0", json!({"minKubeVersion": "99.0.0"})),
    ] {
        let pushed = world.push(version, &world.bundle(version)).await?;
        let property = json!({"type": "olm.csv.metadata", "value": metadata});
        package = package.bundle_with(version, &pushed, [property]);
    }
    world.serve_package(&package).await?;

    // a first install takes the next best one
    world.install_any("1.0.0").await?;
    let version = world.client.apiserver_version().await?.git_version;
    let version = version.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default().to_owned();
    let needs = format!(
        "bundle {0}.v1.2.0 of catalog {0} is skipped: it needs Kubernetes 99.0.0 or later (minKubeVersion), and the cluster has {version}",
        world.name
    );
    // 1.2.0 does not follow 1.0.0
    let lacks = format!(
        "bundle {0}.v1.1.0 of catalog {0} is skipped: it needs the API {0}.example.com/v1 Gadget (nativeAPIs), which the cluster does \
         not serve",
        world.name
    );
    let reports = async |message: &str| {
        world.until(message, |extension| unfit(extension).as_deref() == Some(message)).await.map(drop)
    };
    reports(&lacks).await?;

    // the cluster changes, and nothing else
    world.stack.cluster.apply(&crd.manifest().to_string()).await?;
    world.installed("1.1.0").await?;
    reports(&needs).await?;

    // what is installed is not judged again
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let kind = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
    let crds: Api<DynamicObject> = Api::all_with(world.client.clone(), &kind);
    crds.delete(&crd.name(), &DeleteParams::default()).await?;
    let lowered = json!({"channels": ["stable"], "upgradeConstraintPolicy": "SelfCertified"});
    world.want(lowered).await?;
    world.installed("1.1.0").await?;
    reports(&needs).await?;
    assert_eq!(world.revisions().await?.len(), 2);
    let notes = world.events("EnvironmentNotMet").await?;
    assert!(notes.contains(&needs) && notes.contains(&lacks), "{notes:?}");
    Ok(())
}
