//! `mirror` where only a mirror answers, and an installation that reaches nothing else.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::Api;
use olm_api::ClusterCatalog;
use olm_integration::package::entries;
use olm_kit::image::Image;
use olm_kit::{BundleImage, Ca, CatalogImage, Options, Package, Registry, RunDir, Stack, Wait};
use serde_json::{Value, json};

use crate::cluster::{LIMIT, User, want};
use crate::support::olm;

/// A registry that images are named after and that is not reachable.
struct Public(String);

impl Public {
    fn new() -> Result<Self> {
        // nothing listens on a port that was free a moment ago
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self(format!("127.0.0.1:{port}/team")))
    }

    /// Pushes the package *demo* with two versions, its catalog, and the images that it runs but for `proxy:v2`, to the mirror alone.
    async fn mirror(&self, mirror: &Registry) -> Result<()> {
        let Self(public) = self;
        let mut package = Package::new("demo").channel("stable", entries(["1.0.0", "1.1.0"]));
        for version in ["1.0.0", "1.1.0"] {
            let bundle = BundleImage::new("demo", version).crds([]).image();
            let pushed = mirror.push("mirror/team/bundle", &format!("v{version}"), &bundle).await?;
            let digest = pushed.by_digest();
            let (_, digest) = digest.split_once('@').context("no digest")?;
            package = package.document(json!({
                "schema": "olm.bundle", "package": "demo", "name": format!("demo.v{version}"),
                "image": format!("{public}/bundle@{digest}"),
                "properties": [{"type": "olm.package", "value": {"packageName": "demo", "version": version}}],
                "relatedImages": [{"name": "main", "image": format!("{public}/main:v1")},
                                  {"name": "proxy", "image": format!("{public}/proxy:v{}", &version[2..3])}],
            }));
        }
        self.push(mirror, "main", "v1").await?;
        self.push(mirror, "proxy", "v0").await?;
        mirror.push("mirror/team/catalog", "latest", &CatalogImage::new().package(&package).image()).await?;
        Ok(())
    }

    async fn push(&self, mirror: &Registry, name: &str, tag: &str) -> Result<()> {
        mirror.push(&format!("mirror/team/{name}"), tag, &Image::new()).await.map(drop)
    }

    /// Writes a registries.conf that leads to the mirror.
    fn lead_to(&self, mirror: &Registry, file: &Path) -> Result<()> {
        let (Self(public), address) = (self, mirror.address());
        let text = format!(
            "[[registry]]\nlocation = \"{public}\"\n[[registry.mirror]]\nlocation = \"{address}/mirror/team\"\n"
        );
        Ok(std::fs::write(file, text)?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_mirror_check_names_missing_images() -> Result<()> {
    let (registry, public, home) = (Registry::start().await?, Public::new()?, RunDir::new("home")?);
    public.mirror(&registry).await?;
    let file = home.path().join("registries.conf");
    public.lead_to(&registry, &file)?;
    let (catalog, ca) = (format!("{}/catalog:latest", public.0), Ca::shared()?.certificate());
    let (file, ca) = (file.to_str().context("path")?, ca.to_str().context("path")?);
    let run = |arguments: &[&str]| {
        let access = ["--image", &catalog, "--registries-conf", file, "--ca-file", ca];
        olm(home.path(), &[&["mirror"], arguments, &access].concat())
    };
    let at = |name: &str| format!("{}/{name}", public.0);

    let (code, out, error) = run(&["list", "demo@1.0.0", "-o", "json"])?;
    let rows: Value = serde_json::from_str(&out).with_context(|| error.clone())?;
    let images: Vec<(&str, &str)> = rows
        .as_array()
        .context("no list")?
        .iter()
        .filter_map(|row| Some((row["role"].as_str()?, row["image"].as_str()?.split('@').next()?)))
        .collect();
    let (bundle, main, proxy) = (at("bundle"), at("main:v1"), at("proxy:v0"));
    let want = [("bundle", bundle.as_str()), ("catalog", &catalog), ("related", &main), ("related", &proxy)];
    assert_eq!((code, images), (0, want.to_vec()), "{error}");

    // everything of 1.0.0 is there
    let (code, out, error) = run(&["check", "demo@1.0.0", "--mirrors-only"])?;
    assert_eq!(code, 0, "{out}{error}");
    assert!(error.contains("checking 4 images\n") && error.contains("all 4 images are reachable"), "{error}");
    assert!(out.contains(&format!("mirror {}/mirror/team/main:v1", registry.address())), "{out}");

    // 1.1.0 needs another proxy
    let (code, out, error) = run(&["check", "demo", "-o", "json"])?;
    let rows: Value = serde_json::from_str(&out).with_context(|| error.clone())?;
    let missing: Vec<&Value> =
        rows.as_array().context("no list")?.iter().filter(|row| row["reachable"] == false).collect();
    assert_eq!((code, missing.len(), &missing[0]["image"]), (1, 1, &json!(at("proxy:v1"))), "{out}");
    assert!(error.contains("not reachable: 1 of 6 images"), "{error}");
    let cause = missing[0]["error"].as_str().context("no cause")?;
    for part in ["Mirrors also failed", "mirror/team/proxy: manifest unknown", "connection refused"] {
        assert!(cause.contains(part), "{part}: {cause}");
    }
    let (code, out, _) = run(&["check", "demo", "-o", "name", "--mirrors-only", "--parallel", "1"])?;
    assert_eq!((code, out), (1, format!("{}\n", at("proxy:v1"))));
    public.push(&registry, "proxy", "v1").await?;
    assert_eq!(run(&["check", "demo", "--mirrors-only"])?.0, 0);

    // an image that no mirror is configured for, one whose reference is none, and one that is complete in other words
    let added = ["--add-image", "other.test/a:1", "--add-image", "Bad/x:", "--add-image", &at("main")];
    public.push(&registry, "main", "latest").await?;
    let (code, out, error) = run(&[&["check", "demo", "--mirrors-only"][..], &added].concat())?;
    assert_eq!(code, 1, "{out}");
    for part in ["no mirror is configured for other.test/a", "invalid reference format"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(error.contains("not reachable: 2 of 9 images"), "{error}");

    // a registry that does not answer, when the catalog is read there
    let (code, _, error) =
        olm(home.path(), &["mirror", "check", "demo", "--image", &catalog, "--ca-file", ca])?;
    assert!(code == 3 && error.contains("connection refused"), "{code} {error}");
    let (code, _, error) = run(&["check", "demo", "--parallel", "0"])?;
    assert_eq!(code, 2, "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn air_gapped_cluster_installs_from_a_mirror() -> Result<()> {
    let (public, folder) = (Public::new()?, RunDir::new("registries")?);
    let file = folder.path().join("registries.conf");
    let path = file.to_str().context("path")?.to_owned();
    // it is read for each pull, so that it may be written once the registry has an address
    std::fs::write(&file, "")?;
    let stack =
        Stack::start_with(&Options::default(), |program| program.env("CONTAINERS_REGISTRIES_CONF", &path))
            .await?;
    public.mirror(&stack.registry).await?;
    public.push(&stack.registry, "proxy", "v1").await?;
    public.lead_to(&stack.registry, &file)?;
    let cas = Ca::shared()?.dir().display().to_string();
    let ca = Ca::shared()?.certificate().display().to_string();
    let user = User::new(
        &stack.cluster,
        &["--catalogd-cas-dir", &cas, "--ca-file", &ca, "--registries-conf", &path],
    )?;
    let objects = json!([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}},
        {"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "operators"},
         "spec": {"source": {"type": "Image", "image": {"ref": format!("{}/catalog:latest", public.0)}}}},
    ]);
    for object in objects.as_array().into_iter().flatten() {
        stack.cluster.apply(&object.to_string()).await?;
    }
    let catalogs: Api<ClusterCatalog> = Api::all(stack.cluster.client().await?);
    Wait::new(&catalogs, "operators").within(LIMIT).for_condition("Serving", "True").await?;

    // the catalog of the cluster is named as its spec names it
    let out = user.output(0, &["mirror", "list", "demo", "-o", "name"])?;
    assert!(out.lines().any(|line| line == format!("{}/catalog:latest", public.0)), "{out}");
    user.output(0, &["mirror", "check", "demo", "--mirrors-only"])?;
    let config = user.output(0, &["mirror", "config", "demo", "--format", "oc-mirror"])?;
    assert!(
        config.contains(&format!("catalog: \"{}/catalog:latest\"", public.0))
            || config.contains(&format!("catalog: {}/catalog:latest", public.0)),
        "{config}"
    );
    want(&stack, "1.0.0").await?;
    want(&stack, "1.1.0").await
}
