//! catalogd's cache on a PersistentVolumeClaim: the group of the pod may write to a volume of root, and a new pod serves from it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use olm_integration::package::Package;
use olm_kit::{SYSTEM_NAMESPACE, eventually, node};
use serde_json::json;

use crate::extension::Sample;
use crate::site::{LIMIT, report, site};

/// The files below a folder, and whether each belongs to the group.
fn groups(folder: &Path, files: &mut Vec<u32>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            groups(&entry.path(), files)?;
        } else {
            files.push(meta.gid());
        }
    }
    Ok(())
}

#[tokio::test]
async fn node_cache_on_a_volume_claim_outlives_its_pod() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    let folder = site.node.state().join("volumes/catalogd");
    std::fs::create_dir_all(&folder)?;
    // of root, as a new volume is
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "catalogd-cache"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "node",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": folder},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node::NAME]}]}]}},
    }});
    site.node.cluster.apply(&volume.to_string()).await?;
    let started = Instant::now();
    site.apply("overlay-volume").await?;
    site.rolled_out().await?;
    let pod = site.ready_pods("catalogd", 1, &[]).await?.remove(0).name_any();
    report("catalogd has a volume", started);

    let package = Package::new(site.client().await?, "volume", None);
    let sample = Sample { package: &package, webhooks: false };
    sample.serve(site, &["1.0.0"]).await?;
    let unpacked =
        |status: Option<olm_api::ClusterCatalogStatus>| status.and_then(|status| status.last_unpacked);
    let before = unpacked(package.catalogs.get(&package.name).await?.status).context("not unpacked")?;
    let mut files = Vec::new();
    groups(&folder, &mut files)?;
    ensure!(!files.is_empty() && files.iter().all(|&group| group == 65532), "{files:?}");

    let started = Instant::now();
    site.kubectl(&["-n", SYSTEM_NAMESPACE, "delete", "pod", &pod]).await?;
    site.ready_pods("catalogd", 1, &[pod]).await?;
    let served = eventually("the catalog is served", LIMIT, || site.content(&package.name)).await?;
    report("a new pod serves from the volume", started);
    ensure!(served.contains(&package.name), "{served}");
    let after = unpacked(package.catalogs.get(&package.name).await?.status);
    assert_eq!(after, Some(before), "it was not pulled again");

    // as it was, for the other tests
    site.apply("overlay").await?;
    site.rolled_out().await?;
    site.ready_pods("catalogd", 2, &[]).await.map(drop)
}
