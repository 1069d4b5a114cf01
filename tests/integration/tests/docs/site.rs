//! The environment of a reader: an empty cluster, a registry with a few packages, the programs, and files to check.
//!
//! Nodes are simulated, so no container runs; once a page has applied the manifests, catalogd and operator-controller run beside
//! the cluster. They reach nothing but loopback.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use olm_kit::image::Image;
use olm_kit::{
    BundleImage, CLASSIC_NAMESPACE, Ca, CatalogImage, Cluster, Crd, Entry, Package, Process, Program,
    Registry, RunDir, SYSTEM_NAMESPACE, Signer, Stack, Tools, built, repository, sample,
};
use serde_json::{Value, json};

use super::shell::Session;

/// Verbs whose exit code 1 is an answer, as that of `kubectl diff` is.
const ANSWERS: &str = "plan:1|diff:1|upgrade-check:1|migrate:1";

/// The file that leads from public registries to the one of this test, for the controllers and the reader.
const MIRRORS: &str = "registries.conf";

fn mirrors(registry: &str) -> String {
    format!("[[registry]]\nprefix = \"quay.io\"\nlocation = \"{registry}/quay.io\"\n")
}

/// A reader's surroundings.
pub(crate) struct Site {
    pub(crate) stack: Option<Stack>,
    parts: Option<(Cluster, Registry)>,
    home: RunDir,
    programs: RunDir,
    another: Option<Cluster>,
    classic: Option<Process>,
    signer: Signer,
}

impl Site {
    /// An empty cluster and a full registry.
    pub(crate) async fn start() -> Result<Self> {
        let (cluster, registry) = tokio::try_join!(Cluster::start(), Registry::start())?;
        let signer = Signer::new()?;
        push(&registry, &signer).await?;
        let programs = RunDir::new("programs")?;
        for name in ["kubectl", "helm"] {
            symlink(Tools::locate()?.program(name)?, programs.path().join(name))?;
        }
        let plugin = programs.path().join("kubectl-olm");
        let real = built("kubectl-olm")?.display().to_string();
        std::fs::write(
            &plugin,
            format!(
                "#!/bin/sh\n'{real}' \"$@\"; code=$?\ncase \"$1:$code\" in {ANSWERS}) exit 0;; esac\nexit $code\n"
            ),
        )?;
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755))?;
        std::fs::write(programs.path().join("authorities.pem"), Ca::shared()?.pem())?;
        std::fs::write(programs.path().join(MIRRORS), mirrors(registry.address()))?;
        let (parts, home) = (Some((cluster, registry)), RunDir::new("home")?);
        Ok(Self { stack: None, parts, home, programs, another: None, classic: None, signer })
    }

    fn cluster(&self) -> Result<&Cluster> {
        let parts = self.parts.as_ref().map(|(cluster, _)| cluster);
        self.stack.as_ref().map(|stack| &stack.cluster).or(parts).context("no cluster")
    }

    fn registry(&self) -> Result<&Registry> {
        let parts = self.parts.as_ref().map(|(_, registry)| registry);
        self.stack.as_ref().map(|stack| &stack.registry).or(parts).context("no registry")
    }

    /// Starts the two controllers as the manifests' overlay `kubernetes` does: with certificates that they issue themselves.
    pub(crate) async fn start_controllers(&mut self) -> Result<()> {
        let Some((mut cluster, registry)) = self.parts.take() else { return Ok(()) };
        // so that objects whose owner is of a kind of OLM are collected without delay
        cluster.plane().context("the control plane is another process's")?.restart_controllers().await?;
        let mirrors = self.programs.path().join(MIRRORS).display().to_string();
        let own = |program: Program, name: &str| {
            program
                .env("CONTAINERS_REGISTRIES_CONF", &mirrors)
                .without("--tls-cert")
                .without("--tls-key")
                .flag("--tls-self-issued", name)
                .env("HTTPS_PROXY", "http://127.0.0.1:9")
                .env("NO_PROXY", "127.0.0.1")
        };
        let catalogd = own(Program::catalogd(&cluster)?, "catalogd-serving-cert")
            .flag("--tls-self-issued-names", "catalogd-service.olmv1-system.svc,127.0.0.1")
            .flag("--feature-gates", "GraphQLCatalogQueries=true");
        let controller = own(Program::operator_controller(&cluster)?, "operator-controller-serving-cert")
            .without("--catalogd-cas-dir")
            .flag("--catalogd-ca-config-map", "catalogd-serving-cert");
        let (catalogd, operator_controller) = tokio::try_join!(catalogd.start(), controller.start())?;
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
        let published = olm_kit::eventually("catalogd publishes its CA", Duration::from_secs(30), || async {
            let found = maps.get("catalogd-serving-cert").await?;
            found.data.and_then(|mut data| data.remove("ca.crt")).context("no ca.crt yet")
        })
        .await?;
        let both = format!("{}\n{published}", Ca::shared()?.pem());
        std::fs::write(self.programs.path().join("authorities.pem"), both)?;
        self.stack = Some(Stack { catalogd, operator_controller, cluster_operator: None, registry, cluster });
        Ok(())
    }

    /// Starts classic-controller as its component does.
    pub(crate) async fn start_classic(&mut self) -> Result<()> {
        let program = Program::classic_controller(self.cluster()?)?
            .without("--tls-cert")
            .without("--tls-key")
            .without("--packages-bind-address")
            .flag("--namespace", SYSTEM_NAMESPACE)
            .flag("--tls-self-issued", "classic-controller-serving-cert")
            .env("GLOBAL_CATALOG_NAMESPACE", CLASSIC_NAMESPACE);
        self.classic = Some(program.start().await?);
        Ok(())
    }

    /// Starts cluster-operator, on a cluster of this version of OpenShift.
    pub(crate) async fn report(&mut self, version: &str) -> Result<()> {
        self.stack.as_mut().context("nothing is installed yet")?.report(version).await
    }

    /// A shell for a page, in a folder that looks like a clone of the repository, with files to check.
    pub(crate) fn shell(&self, fixtures: bool) -> Result<Session> {
        self.shell_for(self.cluster()?, fixtures)
    }

    /// A shell for another cluster, which is empty when this is called first.
    pub(crate) async fn shell_apart(&mut self) -> Result<Session> {
        let cluster = match self.another.take() {
            Some(cluster) => cluster,
            None => Cluster::start().await?,
        };
        let shell = self.shell_for(&cluster, false);
        self.another = Some(cluster);
        shell
    }

    fn shell_for(&self, cluster: &Cluster, fixtures: bool) -> Result<Session> {
        let text = |path: &Path| path.display().to_string();
        let programs = text(self.programs.path());
        let environment = [
            ("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin")),
            ("HOME", text(self.home.path())),
            ("KUBECONFIG", text(&cluster.kubeconfig())),
            ("SSL_CERT_FILE", format!("{programs}/authorities.pem")),
            ("CONTAINERS_REGISTRIES_CONF", format!("{programs}/{MIRRORS}")),
            ("LANG", "C.UTF-8".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).to_vec();
        // what stands in the pages, and what it is here
        let mut names = vec![("registry.example.com".to_owned(), self.registry()?.address().to_owned())];
        if let Some(stack) = &self.stack {
            let address = |url: String| url.replace("https://", "");
            names.push(("127.0.0.1:8443".to_owned(), address(stack.catalogd.content_url())));
            names.push(("127.0.0.1:7443".to_owned(), address(stack.catalogd.metrics_url())));
        }
        let shell = Session::new(environment, names)?;
        furnish(&shell.work(), fixtures)?;
        std::fs::write(shell.work().join("acme.pub"), self.signer.public_key())?;
        std::fs::write(shell.work().join("mirror.crt"), Ca::shared()?.pem())?;
        copy_examples(&shell)?;
        Ok(shell)
    }

    /// The ends of the logs.
    pub(crate) fn logs(&self) -> String {
        let Some(stack) = &self.stack else { return String::new() };
        let processes = [&stack.catalogd, &stack.operator_controller];
        let tail =
            |process: &Process| format!("--- {}\n{}\n", process.name(), olm_kit::tail(&process.log(), 0, 40));
        processes.into_iter().chain(&stack.cluster_operator).chain(&self.classic).map(tail).collect()
    }
}

/// The examples of the repository, with the names that hold here.
fn copy_examples(shell: &Session) -> Result<()> {
    for path in super::examples::files()? {
        let name = format!("examples/{}", path.display());
        std::fs::create_dir_all(shell.work().join(&name).parent().context("no folder")?)?;
        shell.save(&name, &std::fs::read_to_string(repository().join(&name))?)?;
    }
    Ok(())
}

/// The entries of the repository, a catalog, a bundle and two versions of a definition.
fn furnish(work: &Path, fixtures: bool) -> Result<()> {
    for entry in ["manifests", "crates", "docs", "hack", "tests", "Makefile"] {
        symlink(repository().join(entry), work.join(entry))?;
    }
    if fixtures {
        let files = repository().join("crates/kubectl-olm/tests/fixtures");
        symlink(files.join("catalog"), work.join("catalog"))?;
        symlink(files.join("extension.yaml"), work.join("extension.yaml"))?;
        return Ok(());
    }
    let package = Package::new("mine")
        .bundle("1.0.0", "registry.example.com/mine:v1")
        .channel("stable", [Entry::new("1.0.0")]);
    std::fs::create_dir(work.join("catalog"))?;
    std::fs::write(work.join("catalog/catalog.json"), package.text())?;
    let shape = json!({"type": "string"});
    let crds =
        [Crd::new("Widget", "mine.kit.test"), Crd::new("Widget", "mine.kit.test").field("colour", shape)];
    for (path, content) in BundleImage::new("mine", "1.0.0").files() {
        let path = work.join("bundle").join(path);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(path, content)?;
    }
    for (name, crd) in ["old.yaml", "new.yaml"].into_iter().zip(crds) {
        std::fs::write(work.join(name), crd.manifest().to_string())?;
    }
    Ok(())
}

/// `catalog:latest` has the packages *sample* (three versions), *backup* and *guard* (with a webhook); `catalog:next` a later
/// *sample*; `limits:latest` packages that declare the last version of OpenShift that they run on; `greeter-catalog:latest` the
/// demo's operator; `acme/catalog:1.0.0` is signed; `quay.io/operatorhubio/catalog:latest` has *cert-manager* with the names and edges of the
/// community's catalog.
async fn push(registry: &Registry, signer: &Signer) -> Result<()> {
    let bundle = async |image: BundleImage, package: &str, version: &str| -> Result<String> {
        let repository = format!("{package}/bundle");
        Ok(registry.push(&repository, &format!("v{version}"), &image.image()).await?.by_digest())
    };
    let plain = async |package: &str, version: &str| {
        bundle(BundleImage::new(package, version), package, version).await
    };
    let chain = |to: usize| {
        let all = [
            Entry::new("1.0.0"),
            Entry::new("1.1.0").replaces("1.0.0"),
            Entry::new("2.0.0").replaces("1.1.0"),
            Entry::new("3.0.0").replaces("2.0.0"),
        ];
        all.into_iter().take(to)
    };
    let mut sample = Package::new("sample");
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        sample = sample.bundle(version, &plain("sample", version).await?);
    }
    let next = sample.clone().bundle("3.0.0", &plain("sample", "3.0.0").await?).channel("stable", chain(4));
    let sample = sample.channel("stable", chain(3));
    let single = |name: &str, image: &str| {
        Package::new(name).bundle("1.0.0", image).channel("stable", [Entry::new("1.0.0")])
    };
    let backup = single("backup", &plain("backup", "1.0.0").await?);
    let hook = json!({"type": "ValidatingAdmissionWebhook", "generateName": "v.guard.kit.test", "deploymentName": "guard-ctrl",
        "containerPort": 443, "targetPort": 9443, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        "rules": [{"apiGroups": ["guard.kit.test"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["gizmos"]}]});
    let guard =
        single("guard", &bundle(BundleImage::new("guard", "1.0.0").webhook(hook), "guard", "1.0.0").await?);
    let latest = CatalogImage::new().package(&sample).package(&backup).package(&guard);
    registry.push("catalog", "latest", &latest.image()).await?;
    let signed = registry.push("acme/catalog", "1.0.0", &latest.image()).await?;
    registry.sign(&signed, signer).await?;
    registry.push("catalog", "next", &CatalogImage::new().package(&next).image()).await?;

    let mut community = Package::new("cert-manager");
    for version in ["1.15.2", "1.16.1", "1.16.5"] {
        community = community.bundle(version, &plain("cert-manager", version).await?);
    }
    let entries = [
        Entry::new("1.15.2"),
        Entry::new("1.16.1").replaces("1.15.2"),
        Entry::new("1.16.5").replaces("1.16.1"),
    ];
    let community = community.channel("stable", entries);
    registry
        .push("quay.io/operatorhubio/catalog", "latest", &CatalogImage::new().package(&community).image())
        .await?;

    let mut limits = CatalogImage::new();
    for (name, limit) in [
        ("early", Some(json!("4.18"))),
        ("late", Some(json!("4.20"))),
        ("trap", Some(json!(4.2))),
        ("free", None),
    ] {
        let property = |value: &Value| json!({"type": "olm.maxOpenShiftVersion", "value": value});
        let mut image = BundleImage::new(name, "1.0.0");
        if let Some(limit) = &limit {
            image = image.property("olm.maxOpenShiftVersion", limit.clone());
        }
        let image = bundle(image, name, "1.0.0").await?;
        let mut package = Package::new(name).bundle_with("1.0.0", &image, limit.iter().map(property));
        let mut entries = vec![Entry::new("1.0.0")];
        if name == "early" {
            package = package.bundle("1.1.0", &plain(name, "1.1.0").await?);
            entries.push(Entry::new("1.1.0").replaces("1.0.0"));
        }
        limits = limits.package(&package.channel("stable", entries));
    }
    registry.push("limits", "latest", &limits.image()).await?;
    push_mirrored(registry).await?;
    sample::push(registry).await.map(|_| ())
}

/// `quay.io/example/catalog:latest` with the package *sample* in three versions, where the page about mirrors reads it: in `public/`, which
/// plays the internet, and in `mirror/quay.io/example/` without what 2.0.0 needs.
async fn push_mirrored(registry: &Registry) -> Result<()> {
    let versions = ["1.0.0", "1.1.0", "2.0.0"];
    let mut package = Package::new("sample").channel(
        "stable",
        [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0"), Entry::new("2.0.0").replaces("1.1.0")],
    );
    let push = async |name: &str, tag: &str, image: &Image, mirrored: bool| -> Result<String> {
        let pushed = registry.push(&format!("public/{name}"), tag, image).await?;
        if mirrored {
            registry.push(&format!("mirror/quay.io/example/{name}"), tag, image).await?;
        }
        let digest = pushed.by_digest();
        Ok(digest.split_once('@').context("no digest")?.1.to_owned())
    };
    for version in versions {
        let mirrored = version != "2.0.0";
        let tag = format!("v{version}");
        let bundle =
            push("sample-bundle", &tag, &BundleImage::new("sample", version).image(), mirrored).await?;
        push("sample", &tag, &Image::new().label("version", version), mirrored).await?;
        package = package.document(json!({
            "schema": "olm.bundle", "package": "sample", "name": format!("sample.v{version}"),
            "image": format!("quay.io/example/sample-bundle@{bundle}"),
            "properties": [{"type": "olm.package", "value": {"packageName": "sample", "version": version}}],
            "relatedImages": [{"name": "operator", "image": format!("quay.io/example/sample:{tag}")}],
        }));
    }
    push("catalog", "latest", &CatalogImage::new().package(&package).image(), true).await.map(drop)
}
