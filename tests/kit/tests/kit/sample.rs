//! The demo's sample operator, according to others: opm reads the catalog, the apiserver takes the manifests.

use olm_kit::image::sha256;
use olm_kit::{Cluster, RunDir, Tools, sample};

#[test]
fn sample_catalog_is_valid_for_opm() {
    let digests: Vec<String> = sample::VERSIONS.iter().map(|version| sha256(version.as_bytes())).collect();
    let text = sample::catalog("registry.example.com", &digests).unwrap();
    for part in ["replaces:", "skips:", "skipRange:", "name: stable", "name: candidate"] {
        assert!(text.contains(part), "the demo is to show {part}");
    }
    let dir = RunDir::new("catalog").unwrap();
    std::fs::write(dir.path().join("catalog.yaml"), text).unwrap();
    let output =
        Tools::locate().unwrap().command("opm").unwrap().arg("validate").arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn sample_manifests_are_accepted_by_the_apiserver() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("sample").await.unwrap();
    for version in sample::VERSIONS {
        let files = sample::bundle(version).unwrap().files();
        let (csv, others): (Vec<_>, Vec<_>) = files
            .iter()
            .filter(|(path, _)| path.starts_with("manifests/"))
            .partition(|(path, _)| path.contains("clusterservice"));
        assert_eq!(csv.len(), 1, "{version}");
        for (path, content) in others {
            let text = String::from_utf8(content.clone()).unwrap();
            assert!(!text.contains("${"), "{version}: {path} has a placeholder that nothing fills");
            let dir = RunDir::new("manifest").unwrap();
            let file = dir.path().join("manifest.yaml");
            std::fs::write(&file, text).unwrap();
            let mut kubectl = cluster.kubectl().unwrap();
            kubectl.args(["-n", &namespace, "apply", "--server-side", "--dry-run=server", "-f"]).arg(&file);
            let output = kubectl.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{version}: {path}: {errors}");
        }
    }
}
