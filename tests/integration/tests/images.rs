//! Release images: made from the built programs, pushed to a real registry, pulled again by our own puller and started.
//!
//! `make test` uses the programs that all tests use, which need the libraries of this machine; with `OLM_STATIC=1`
//! (`make test-images`) they must start in an image that has none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_images::image::{About, INDEX, MANIFEST, SBOM};
use olm_images::platform::Platform;
use olm_images::push::Way;
use olm_images::release::{self, Made, Order, Target};
use olm_kit::{Ca, PASSWORD, Registry, USER, built, repository};
use olm_oci::{CertificateDirs, Config, Credentials, Limits, Puller, Selection};
use serde_json::Value;

const PROGRAMS: &[&str] = &["catalogd", "operator-controller", "cluster-operator"];

fn here() -> Platform {
    if cfg!(target_arch = "aarch64") { Platform::Arm64 } else { Platform::Amd64 }
}

fn only_static() -> bool {
    std::env::var_os("OLM_STATIC").is_some_and(|value| value == "1")
}

fn order(output: &Path) -> Result<Order> {
    let folder = built(PROGRAMS[0])?.parent().context("no folder")?.to_owned();
    for program in PROGRAMS {
        built(program)?;
    }
    Ok(Order {
        workspace: repository(),
        programs: PROGRAMS.iter().map(|&name| name.to_owned()).collect(),
        platforms: vec![(here(), folder)],
        about: About {
            version: "0.0.1-test".to_owned(),
            revision: Some("0123abc".to_owned()),
            created: 1_700_000_000,
            source: "https://example.com/olm-rs".to_owned(),
            licenses: "Apache-2.0".to_owned(),
        },
        output: output.to_owned(),
        dynamic: !only_static(),
    })
}

fn way(dir: &Path, registry: &Registry) -> Result<Way> {
    let docker_config = dir.join("config.json");
    std::fs::write(&docker_config, registry.docker_config())?;
    Ok(Way {
        ca_file: Some(Ca::shared()?.certificate()),
        docker_config: Some(docker_config),
        ..Way::default()
    })
}

/// The image's files in a folder, as a container runtime would have them.
async fn unpack(reference: &str, way: &Way, into: &Path) -> Result<()> {
    let config = Config {
        certificates: CertificateDirs {
            files: way.ca_file.iter().cloned().collect(),
            ..CertificateDirs::default()
        },
        credentials: Credentials { file: way.docker_config.clone(), ..Credentials::default() },
        ..Config::default()
    };
    let image = Puller::new(config).open(&olm_oci::parse_reference(reference)?).await?;
    std::fs::create_dir_all(into)?;
    image.unpack_to(into, Selection::everything(), &Limits::default()).await?;
    Ok(())
}

fn says(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("version").output()?;
    ensure!(output.status.success(), "{} version ended with {}", program.display(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

async fn get(registry: &Registry, path: &str) -> Result<Value> {
    let url = format!("https://{}/v2/{path}", registry.address());
    let answer = Ca::shared()?
        .http_client()?
        .get(url)
        .basic_auth(USER, Some(PASSWORD))
        .header("accept", format!("{MANIFEST}, {INDEX}"))
        .send()
        .await?;
    Ok(serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?)
}

#[tokio::test]
async fn an_image_that_was_pushed_and_pulled_holds_the_program() -> Result<()> {
    let registry = Registry::start_with_auth().await?;
    let dir = tempfile::tempdir()?;
    let way = way(dir.path(), &registry)?;
    let order = order(&dir.path().join("images"))?;
    let target = Target { to: format!("{}/olm", registry.address()), way: way.clone() };

    let made = release::make(&order, Some(&target)).await?;

    for Made { program, digest, pushed, .. } in &made {
        let reference = pushed.as_deref().context("not pushed")?;
        assert_eq!(reference, format!("{}/olm/{program}:0.0.1-test", registry.address()));
        let root = dir.path().join("root").join(program);
        unpack(reference, &way, &root).await?;
        let ours = root.join(program);
        let original = built(program)?;
        assert!(std::fs::read(&ours)? == std::fs::read(&original)?, "{program} arrived changed");
        // our puller writes content, not permissions; the image's own are a unit test's matter. Another process makes what is run:
        // what this one has open for writing, a child that another test starts may have open, too, and nobody can run it then.
        let run = dir.path().join(program);
        let copied = Command::new("install").args(["-m", "755"]).args([&ours, &run]).status()?;
        ensure!(copied.success(), "install: {copied}");
        assert_eq!(says(&run)?, says(&original)?);
        assert!(root.join("etc/ssl/certs/ca-certificates.crt").is_file());
        let bill: Value =
            serde_json::from_slice(&std::fs::read(root.join(format!("usr/share/sbom/{program}.cdx.json")))?)?;
        let named: BTreeSet<&str> = bill["components"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["name"].as_str())
            .collect();
        assert!(named.contains("rustls") && named.contains("kube"), "{named:?}");
        assert!(!named.contains("olm-kit") && !named.contains("insta"), "{named:?}");

        // what the registry says: an index, and beside the image its bill
        let index = get(&registry, &format!("olm/{program}/manifests/{digest}")).await?;
        assert_eq!(index["manifests"][0]["platform"]["architecture"], here().architecture());
        let image = index["manifests"][0]["digest"].as_str().context("no digest")?;
        let layout: Value =
            serde_json::from_slice(&std::fs::read(order.output.join(program).join("index.json"))?)?;
        let referrer = layout["manifests"][1]["digest"].as_str().context("no referrer")?;
        let referrer = get(&registry, &format!("olm/{program}/manifests/{referrer}")).await?;
        assert_eq!(referrer["artifactType"], SBOM);
        assert_eq!(referrer["subject"]["digest"], image);
    }

    // once more: nothing differs, nothing is sent twice
    let again = release::make(&order, Some(&target)).await?;
    assert_eq!(made, again);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_made_is_said() -> Result<()> {
    let registry = Registry::start_with_auth().await?;
    let dir = tempfile::tempdir()?;
    let good = order(&dir.path().join("images"))?;
    let to = format!("{}/olm", registry.address());

    let order = Order { platforms: vec![(here(), dir.path().to_owned())], ..good.clone() };
    let problem = release::make(&order, None).await.err().context("there is no program")?;
    assert!(problem.to_string().contains("build it first"), "{problem:#}");

    let order = Order { programs: vec!["nothing".to_owned()], ..good.clone() };
    let problem = release::make(&order, None).await.err().context("there is no such package")?;
    assert_eq!(problem.to_string(), "the workspace has no package nothing");

    if !only_static() {
        let order = Order { dynamic: false, ..good.clone() };
        let problem = release::make(&order, None).await.err().context("it is linked dynamically")?;
        assert!(problem.to_string().contains("crt-static"), "{problem:#}");
    }

    let wrong = dir.path().join("wrong.json");
    // kit:wrong
    let auths = serde_json::json!({"auths": {registry.address(): {"auth": "a2l0Ondyb25n"}}});
    std::fs::write(&wrong, auths.to_string())?;
    for (config, why) in [
        (Some(wrong), "somebody with another password"),
        (Some(PathBuf::from("/nonexistent/config.json")), "a file that is not there"),
    ] {
        let way = Way { docker_config: config, ..way(dir.path(), &registry)? };
        let target = Target { to: to.clone(), way };
        let problem = release::make(&good, Some(&target)).await.err().context(why)?;
        let text = format!("{problem:#}");
        assert!(text.contains("UNAUTHORIZED") || text.contains("cannot read"), "{why}: {text}");
    }
    Ok(())
}
