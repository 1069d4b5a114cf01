//! A release that was published to the node's registry: nothing but its files installs olm-rs, and a policy verifies its images.
//!
//! `make release-rehearsal` makes and pushes the release, and names the folder of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use olm_integration::package::Package;
use olm_kit::node::{self, EnteredNode};
use olm_kit::{Pushed, SYSTEM_NAMESPACE, Signer, repository};
use serde::Deserialize;
use serde_json::json;

use crate::extension::Sample;
use crate::site::{PROGRAMS, Site, must, report, values};

/// The programs that a release has as images.
const IMAGES: [&str; 4] = ["catalogd", "classic-controller", "cluster-operator", "operator-controller"];

/// A release, and the node that it was published to.
struct Release {
    site: Site,
    /// the files, as a user downloads them
    files: PathBuf,
    /// kubectl-olm, out of its archive
    plugin: PathBuf,
    /// a folder for what the test writes
    work: tempfile::TempDir,
}

impl Release {
    /// The files with their checksums verified; `None`, with a line that reports why, without `make release-rehearsal`.
    async fn open() -> Result<Option<Self>> {
        let (Some(files), Some(node)) =
            (std::env::var_os("OLM_RELEASE_FILES"), EnteredNode::from_environment()?)
        else {
            println!("SKIPPED: no published release; run it by `make release-rehearsal`");
            return Ok(None);
        };
        let site = Site { node };
        site.push_operator().await?;
        let (files, work) = (PathBuf::from(files), tempfile::tempdir()?);
        let mut sums = Command::new("sha256sum");
        sums.args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(&files);
        must(sums).await?;
        let release = Self { plugin: work.path().join("kubectl-olm"), site, files, work };
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(release.file("kubectl-olm", ".tar.gz")?).arg("-C").arg(release.work.path());
        must(unpack).await?;
        Ok(Some(release))
    }

    /// The only file whose name begins and ends so.
    fn file(&self, start: &str, end: &str) -> Result<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.files)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(start) && name.ends_with(end) {
                found.push(path);
            }
        }
        ensure!(found.len() == 1, "{start}*{end}: {found:?}");
        found.pop().context("no file")
    }

    /// The images of `images.txt`, of programs and chart.
    fn images(&self) -> Result<Vec<Pushed>> {
        let text = std::fs::read_to_string(self.files.join("images.txt"))?;
        let image = |line: &str| {
            let (name, digest) = line.split_once('@').context("no digest")?;
            let (repository, tag) = name.rsplit_once(':').context("no tag")?;
            let [repository, tag, digest] = [repository, tag, digest].map(str::to_owned);
            Ok(Pushed { repository, tag, digest })
        };
        text.lines().map(image).collect()
    }

    /// A sample operator, from its catalog to its removal.
    async fn serves_extensions(&self, name: &str) -> Result<()> {
        let package = Package::new(self.site.client().await?, name, None);
        let sample = Sample { package: &package, webhooks: true };
        sample.serve(&self.site, &["1.0.0", "1.1.0"]).await?;
        for (version, policy) in
            [("1.0.0", "CatalogProvided"), ("1.1.0", "CatalogProvided"), ("1.0.0", "SelfCertified")]
        {
            let catalog = json!({"version": version, "upgradeConstraintPolicy": policy});
            package.want_with(json!({}), catalog).await?;
            package.installed(version).await?;
            sample.runs(&self.site, version).await?;
        }
        let mut status = Command::new(&self.plugin);
        status.args(["status", &package.name]).env("KUBECONFIG", self.site.node.cluster.kubeconfig());
        let status = must(status).await?;
        ensure!(status.contains("1.0.0"), "{status}");
        sample.remove().await
    }
}

#[tokio::test]
async fn rehearsal_release_installs_from_its_files() -> Result<()> {
    let Some(release) = Release::open().await? else { return Ok(()) };
    let site = &release.site;

    // the install file, with the authority of the private registry added as docs/install.md describes it
    let started = Instant::now();
    let folder = release.work.path().join("overlay");
    std::fs::create_dir(&folder)?;
    std::fs::copy(release.files.join("install-kubernetes.yaml"), folder.join("install.yaml"))?;
    let patch = "tests/integration/tests/node/overlay/registry-ca.patch.yaml";
    std::fs::copy(repository().join(patch), folder.join("registry-ca.patch.yaml"))?;
    let overlay = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["install.yaml"],
        "patches": [{"path": "registry-ca.patch.yaml", "target": {"kind": "Deployment", "namespace": SYSTEM_NAMESPACE}}],
    });
    std::fs::write(folder.join("kustomization.yaml"), overlay.to_string())?;
    let folder = folder.display().to_string();
    site.kubectl(&["apply", "--server-side", "-k", &folder]).await?;
    site.trust_registry().await?;
    site.rolled_out(&PROGRAMS).await?;
    report("install-kubernetes.yaml is applied and all pods are Ready", started);
    let started = Instant::now();
    release.serves_extensions("from-file").await?;
    report("an operator was installed, upgraded, rolled back and removed", started);
    site.remove().await?;

    // the chart of the registry
    let started = Instant::now();
    let images = release.images()?;
    let chart =
        images.iter().find(|image| image.repository.ends_with("/charts/olm-rs")).context("no chart")?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    site.node.cluster.apply(&namespace.to_string()).await?;
    let file = release.work.path().join("values.json");
    let program = values(None);
    std::fs::write(&file, json!({"catalogd": program, "operatorController": program}).to_string())?;
    let (name, authority) = (format!("oci://{}", chart.repository), site.node.authority());
    let (file, authority) = (file.display().to_string(), authority.display().to_string());
    let flags = ["--version", &chart.tag, "--ca-file", &authority, "--values", &file];
    site.helm(&[&["install", "olm-rs", &name][..], &flags].concat()).await?;
    site.trust_registry().await?;
    site.rolled_out(&PROGRAMS).await?;
    report("the chart is installed and all pods are Ready", started);
    release.serves_extensions("from-chart").await?;
    site.helm(&["uninstall", "olm-rs"]).await?;
    site.remove().await
}

#[tokio::test]
async fn rehearsal_images_verify_by_signature_policy() -> Result<()> {
    let Some(release) = Release::open().await? else { return Ok(()) };
    let (signer, other) = (Signer::new()?, Signer::new()?);
    let images = release.images()?;
    let programs: Vec<&Pushed> = IMAGES
        .iter()
        .flat_map(|name| images.iter().filter(move |it| it.repository.ends_with(name)))
        .collect();
    ensure!(programs.len() == IMAGES.len(), "{images:?}");
    for image in &programs {
        release.site.node.registry.sign(image, &signer).await?;
    }
    for (key, accepted) in [(&signer, true), (&other, false)] {
        let policy = release.work.path().join("policy.json");
        let scope = format!("{}/olm", node::REGISTRY);
        let rules =
            json!({"default": [{"type": "reject"}], "transports": {"docker": {scope: [key.requirement()]}}});
        std::fs::write(&policy, rules.to_string())?;
        for image in &programs {
            let mut verify = Command::new(&release.plugin);
            verify.args(["image", "verify", &format!("{}@{}", image.repository, image.digest)]);
            verify.arg("--signature-policy").arg(&policy);
            verify.arg("--ca-file").arg(release.site.node.authority());
            let output = verify.output()?;
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            ensure!(output.status.code() == Some(i32::from(!accepted)), "{}: {text}", image.repository);
        }
        println!("{} images verified: accepted: {accepted}", programs.len());
    }
    Ok(())
}

#[derive(Deserialize)]
struct Bill {
    components: Vec<Component>,
}

#[derive(Deserialize)]
struct Component {
    name: String,
    version: String,
    #[serde(default)]
    hashes: Vec<Hash>,
}

#[derive(Deserialize)]
struct Hash {
    content: String,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Names and versions of the crates that a program is made of, as cargo prints them.
async fn crates_of(program: &str) -> Result<BTreeSet<(String, String)>> {
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--offline", "--locked", "-p", program, "-e", "normal", "--prefix", "none"]);
    tree.args(["--format", "{p}"]).current_dir(repository());
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.next()?.trim_start_matches('v').to_owned()))
    };
    Ok(must(tree).await?.lines().filter_map(line).filter(|(name, _)| name != program).collect())
}

#[tokio::test]
async fn rehearsal_bills_name_the_crates_of_the_lock_file() -> Result<()> {
    let Some(release) = Release::open().await? else { return Ok(()) };
    let lock: Lock = toml::from_str(&std::fs::read_to_string(repository().join("Cargo.lock"))?)?;
    let locked: BTreeMap<_, _> =
        lock.package.into_iter().map(|it| ((it.name, it.version), it.checksum)).collect();
    let read = |path: &Path| -> Result<Bill> { Ok(serde_json::from_slice(&std::fs::read(path)?)?) };
    for program in IMAGES.iter().copied().chain(["kubectl-olm"]) {
        let components = read(&release.file(program, ".cdx.json")?)?.components;
        let mut named = BTreeSet::new();
        for Component { name, version, hashes } in components {
            let checksum = locked.get(&(name.clone(), version.clone()));
            let checksum = checksum.with_context(|| format!("{name} {version} is not in Cargo.lock"))?;
            let hash = hashes.into_iter().next().map(|hash| hash.content);
            assert_eq!(&hash, checksum, "{name} {version}");
            named.insert((name, version));
        }
        let missing: Vec<_> = crates_of(program).await?.difference(&named).cloned().collect();
        assert!(missing.is_empty(), "{program}: {missing:?}");
        println!("{program}: {} crates, with the checksums of Cargo.lock", named.len());
    }
    Ok(())
}
