//! The chart, with catalogd's cache on a PersistentVolumeClaim: the group of the pod may write to a volume of root, and a new pod serves
//! from it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use olm_integration::package::Package;
use olm_kit::{SYSTEM_NAMESPACE, eventually, node, repository};
use serde_json::json;

use crate::extension::Sample;
use crate::site::{LIMIT, PROGRAMS, Site, report, site, values};

/// The groups of all files below a folder.
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

/// A volume that belongs to root, as a new one does.
async fn make_volume(site: &Site, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "catalogd-cache"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "node",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": folder},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [site.node_name().await?]}]}]}},
    }});
    site.node.cluster.apply(&volume.to_string()).await.map(drop)
}

#[tokio::test]
async fn node_chart_keeps_the_cache_on_a_volume_claim() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    let started = Instant::now();
    site.remove().await?;
    report("the overlay is removed", started);

    let folder = site.node.state().join("volumes/catalogd");
    make_volume(site, &folder).await?;
    let file = site.node.state().join("values.json");
    let image = |program: &str| values(Some(&format!("{}/olm/{program}", node::REGISTRY)));
    let mut catalogd = image("catalogd");
    catalogd["replicas"] = json!(1);
    catalogd["cache"] = json!({"persistence": {"enabled": true, "storageClassName": "node", "size": "1Gi"}});
    let chart = json!({"catalogd": catalogd, "operatorController": image("operator-controller")});
    std::fs::write(&file, chart.to_string())?;
    let started = Instant::now();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    site.node.cluster.apply(&namespace.to_string()).await?;
    let chart = repository().join("manifests/chart").display().to_string();
    site.helm(&["install", "olm-rs", &chart, "--values", &file.display().to_string()]).await?;
    site.trust_registry().await?;
    site.rolled_out(&PROGRAMS).await?;
    let pod = site.ready_pods("catalogd", 1, &[]).await?.remove(0).name_any();
    report("the chart is installed and all pods are Ready", started);
    let started = Instant::now();
    site.helm(&["test", "olm-rs", "--timeout", "2m"]).await?;
    report("the pods of helm test have reached both Services", started);

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

    package.install("1.0.0").await?;
    sample.runs(site, "1.0.0").await?;
    sample.remove().await?;
    let started = Instant::now();
    site.helm(&["uninstall", "olm-rs"]).await?;
    site.remove().await?;
    report("the chart is removed", started);
    // for the other tests
    site.install().await
}
