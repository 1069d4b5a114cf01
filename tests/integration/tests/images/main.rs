//! Release images: made from the built programs, pushed to a real registry, pulled again by OLM's own puller and started.
//!
//! `make test` uses the programs that all tests use, which need the libraries of this machine, and the library of `olm-images`.
//! `make test-images` runs `make images` and `make release` as a user types them, in the profile `OLM_IMAGES_PROFILE`, and starts the
//! programs from the layers that the registry serves, in a root that holds nothing else.

mod files;
mod plugin;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_images::image::{About, INDEX, MANIFEST, SBOM};
use olm_images::platform::Platform;
use olm_images::push::Way;
use olm_images::release::{self, Made, Order, Target};
use olm_kit::{Ca, PASSWORD, Registry, USER, built, repository, without_build_variables};
use olm_oci::{CertificateDirs, Config, Credentials, Limits, Puller, Selection};
use serde_json::Value;

const PROGRAMS: &[&str] = &["catalogd", "operator-controller", "cluster-operator", "classic-controller"];

fn here() -> Platform {
    if cfg!(target_arch = "aarch64") { Platform::Arm64 } else { Platform::Amd64 }
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
        dynamic: true,
        compression: 1,
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

fn version_of(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("version").output()?;
    ensure!(output.status.success(), "{} version ended with {}", program.display(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

async fn get(registry: &Registry, path: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&get_bytes(registry, path).await?)?)
}

async fn get_bytes(registry: &Registry, path: &str) -> Result<Vec<u8>> {
    let url = format!("https://{}/v2/{path}", registry.address());
    let answer = Ca::shared()?
        .http_client()?
        .get(url)
        .basic_auth(USER, Some(PASSWORD))
        .header("accept", format!("{MANIFEST}, {INDEX}"))
        .send()
        .await?;
    Ok(answer.error_for_status()?.bytes().await?.to_vec())
}

/// Runs a command that has to succeed and gives its standard output.
fn must(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?} ended with {}\n{errors}{out}", output.status);
    Ok(out.into_owned())
}

/// `make …`, as a user types it.
fn make(target: &str, settings: &[String]) -> Command {
    let mut command = Command::new("make");
    without_build_variables(command.current_dir(repository()).arg(target).args(settings));
    command
}

/// The configuration of an image, and its root as a container runtime unpacks it, from the content of the registry.
async fn root(registry: &Registry, name: &str, tag: &str, into: &Path) -> Result<Value> {
    let index = get(registry, &format!("{name}/manifests/{tag}")).await?;
    let image = index["manifests"][0]["digest"].as_str().context("no digest")?.to_owned();
    let manifest = get(registry, &format!("{name}/manifests/{image}")).await?;
    std::fs::create_dir_all(into)?;
    for layer in manifest["layers"].as_array().context("no layers")? {
        let digest = layer["digest"].as_str().context("no digest")?;
        let archive = into.with_extension("layer");
        std::fs::write(&archive, get_bytes(registry, &format!("{name}/blobs/{digest}")).await?)?;
        must(Command::new("tar").arg("-xzpf").arg(&archive).arg("-C").arg(into))?;
        std::fs::remove_file(&archive)?;
    }
    let config = manifest["config"]["digest"].as_str().context("no digest")?;
    get(registry, &format!("{name}/blobs/{config}")).await.map(|mut config| config["config"].take())
}

/// A command whose root is `root`, as the image's user. Root changes to it; another user asks the kernel for a namespace
/// in which it is that user.
fn within(root: &Path, user: &str) -> Result<Command> {
    let (uid, gid) = user.split_once(':').unwrap_or((user, user));
    if must(Command::new("id").arg("-u"))?.trim() == "0" {
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={uid}:{gid}")).arg(root);
        return Ok(command);
    }
    let mut command = Command::new("unshare");
    command.arg(format!("--map-user={uid}")).arg(format!("--map-group={gid}"));
    command.arg(format!("--root={}", root.display()));
    Ok(command)
}

#[tokio::test]
async fn images_pushed_and_pulled_hold_their_programs() -> Result<()> {
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
        // the puller writes content, not permissions; unit tests cover those of the image. Another process copies the program:
        // a file that this process has open for writing may be open in a child of another test, too, and cannot be executed then.
        let run = dir.path().join(program);
        let copied = Command::new("install").args(["-m", "755"]).args([&ours, &run]).status()?;
        ensure!(copied.success(), "install: {copied}");
        assert_eq!(version_of(&run)?, version_of(&original)?);
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

        // the content of the registry: an index, and beside the image its bill of materials
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

/// `make images PUSH=…`: the programs of the registry start, as the user and with the entry point that the image names.
/// `make release PUSH=…`: the same images again, and files that fit their checksums, work, and name what is in the registry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_and_release_of_make_start_programs() -> Result<()> {
    let Ok(profile) = std::env::var("OLM_IMAGES_PROFILE") else {
        println!("SKIPPED: static programs take minutes to build; run it by `make test-images`");
        return Ok(());
    };
    const VERSION: &str = "0.0.1-test";
    let registry = Registry::start_with_auth().await?;
    let dir = tempfile::tempdir()?;
    // the image's user must reach its root
    must(Command::new("chmod").args(["755"]).arg(dir.path()))?;
    let way = way(dir.path(), &registry)?;
    let settings = [format!("PROFILE={profile}"), format!("VERSION={VERSION}")];
    let built_dir = if profile == "dev" { "debug" } else { &profile };
    let built_dir = target_dir().join("static").join(here().architecture()).join(built_dir);
    let push = [
        format!("PUSH={}/olm", registry.address()),
        format!("CA_FILE={}", Ca::shared()?.certificate().display()),
    ];
    let login = ("DOCKER_CONFIG", dir.path());

    let first = made(&must(make("images", &[&settings[..], &push].concat()).env(login.0, login.1))?);
    assert_eq!(first.keys().map(String::as_str).collect::<BTreeSet<_>>(), PROGRAMS.iter().copied().collect());
    for (program, digest) in &first {
        let reference = format!("{}/olm/{program}:{VERSION}", registry.address());
        let pulled = dir.path().join("pulled").join(program);
        unpack(&reference, &way, &pulled).await?;
        let original = built_dir.join(program);
        assert!(
            std::fs::read(pulled.join(program))? == std::fs::read(&original)?,
            "{program} arrived changed"
        );

        let root_dir = dir.path().join("root").join(program);
        let config = root(&registry, &format!("olm/{program}"), digest, &root_dir).await?;
        assert_eq!(config["User"], "65532:65532");
        let entry = config["Entrypoint"][0].as_str().context("no entry point")?;
        let mut command = within(&root_dir, config["User"].as_str().context("no user")?)?;
        let printed = must(command.arg(entry).arg("version"))?;
        assert_eq!(printed, version_of(&original)?);
        // it starts, reads its flags and asks for a cluster
        let mut command = within(&root_dir, "65532:65532")?;
        let output = command
            .arg(entry)
            .args(["--tls-self-issued=x", "--kubeconfig=/nonexistent/kubeconfig"])
            .output()?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success() && text.contains("/nonexistent/kubeconfig"), "{program}: {text}");
    }

    let files = dir.path().join("files");
    let plugins = [format!("PLUGIN_URL={}", plugin::serve(&files).await?)];
    let mut release = make("release", &[&settings[..], &push, &plugins].concat());
    let again = made(&must(release.env(login.0, login.1))?);
    assert_eq!(first, again, "the same commit gives the same images");
    let made_files = target_dir().join("release-files");
    must(Command::new("cp").arg("-r").arg(&made_files).arg(&files))?;
    let (files, digests, docker_config) = (&files, &first, dir.path());
    let (registry, to) = (&registry, format!("{}/olm", registry.address()));
    files::Published { files, version: VERSION, registry, to, digests, docker_config }.check().await
}

/// The digests by program that `olm-images` printed, among what make printed.
fn made(printed: &str) -> BTreeMap<String, String> {
    let lines = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter_map(|words| match words[..] {
            [program, _, "MiB", digest, ..] => Some((program.to_owned(), digest.to_owned())),
            _ => None,
        })
        .collect()
}

fn target_dir() -> PathBuf {
    repository().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

#[tokio::test]
async fn images_report_what_cannot_be_made() -> Result<()> {
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

    // as this test is, whatever the programs are
    let dynamic = dir.path().join("dynamic");
    std::fs::create_dir(&dynamic)?;
    for program in &good.programs {
        std::os::unix::fs::symlink(std::env::current_exe()?, dynamic.join(program))?;
    }
    let order = Order { dynamic: false, platforms: vec![(here(), dynamic)], ..good.clone() };
    let problem = release::make(&order, None).await.err().context("it is linked dynamically")?;
    assert!(problem.to_string().contains("crt-static"), "{problem:#}");

    let wrong = dir.path().join("wrong.json");
    // kit:wrong
    let auths = serde_json::json!({"auths": {registry.address(): {"auth": "a2l0Ondyb25n"}}});
    std::fs::write(&wrong, auths.to_string())?;
    for (config, why) in [
        (Some(wrong), "a user with another password"),
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
