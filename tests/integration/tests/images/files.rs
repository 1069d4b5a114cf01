//! The files of a release: none is missing, none is changed, and what they name is in the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use olm_images::{image, krew};
use olm_kit::{Ca, Registry, Tools, repository};
use serde_json::Value;

use super::plugin::{self, Krew};
use super::{PROGRAMS, get_bytes, here, must};

/// The namespace that the chart is rendered for.
const NAMESPACE: &str = "olmv1-system";

/// A release that was made and pushed.
pub(crate) struct Published<'a> {
    pub(crate) files: &'a Path,
    pub(crate) version: &'a str,
    pub(crate) registry: &'a Registry,
    /// The registry and path that were pushed to.
    pub(crate) to: String,
    /// Of the images that were pushed, by program.
    pub(crate) digests: &'a BTreeMap<String, String>,
    /// The folder with the credentials of the registry.
    pub(crate) docker_config: &'a Path,
}

impl Published<'_> {
    /// Checks all files.
    pub(crate) async fn check(&self) -> Result<()> {
        must(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(self.files))?;
        assert_eq!(self.names()?, self.expected()?);
        self.programs()?;
        self.install_files()?;
        self.chart()?;
        self.images().await?;
        self.plugin()
    }

    fn names(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(self.files)? {
            names.insert(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn programs_archive(&self) -> String {
        format!("olm-rs-{}-linux-{}", self.version, here().architecture())
    }

    fn chart_archive(&self) -> String {
        format!("olm-rs-chart-{}.tgz", self.version)
    }

    fn expected(&self) -> Result<BTreeSet<String>> {
        let architecture = here().architecture();
        let plugin = krew::archive_name(self.version, &here().to_string())?;
        let bill = format!("{}.cdx.json", plugin.trim_end_matches(".tar.gz"));
        let mut expected: BTreeSet<String> =
            ["SHA256SUMS", "images.txt", "olm.yaml"].map(str::to_owned).into();
        expected.extend([format!("{}.tar.gz", self.programs_archive()), self.chart_archive(), plugin, bill]);
        expected.extend(PROGRAMS.iter().map(|program| format!("{program}-{architecture}.cdx.json")));
        for entry in std::fs::read_dir(repository().join("manifests/overlays"))? {
            let overlay = entry?.file_name().to_string_lossy().into_owned();
            // its images are those of a machine on which olm-rs is developed
            if overlay != "dev" {
                expected.insert(format!("install-{overlay}.yaml"));
            }
        }
        Ok(expected)
    }

    /// The programs start, and their bills of materials name every crate that has left a trace in them.
    fn programs(&self) -> Result<()> {
        let folder = self.files.join(self.programs_archive());
        let archive = folder.with_file_name(format!("{}.tar.gz", self.programs_archive()));
        must(Command::new("tar").arg("-xzf").arg(archive).current_dir(self.files))?;
        let plugin_bill = krew::archive_name(self.version, &here().to_string())?;
        for program in PROGRAMS.iter().chain(&[krew::PROGRAM]) {
            let path = folder.join(program);
            let arguments: &[&str] = if *program == krew::PROGRAM { &["--version"] } else { &["version"] };
            let printed = must(Command::new(&path).args(arguments))?;
            ensure!(!printed.trim().is_empty(), "{program} prints nothing");
            let bill = if *program == krew::PROGRAM {
                format!("{}.cdx.json", plugin_bill.trim_end_matches(".tar.gz"))
            } else {
                format!("{program}-{}.cdx.json", here().architecture())
            };
            let bill: Value = serde_json::from_slice(&std::fs::read(self.files.join(bill))?)?;
            let components = bill["components"].as_array().context("no components")?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = |it: &Value| format!("{}-{}", text(&it["name"]), text(&it["version"]));
            let named: BTreeSet<String> = components.iter().map(name).collect();
            let traces = crates_in(&std::fs::read(&path)?);
            ensure!(traces.len() > 20, "{program} has traces of {} crates only: {traces:?}", traces.len());
            let missing: Vec<&String> = traces.difference(&named).collect();
            ensure!(missing.is_empty(), "the bill of {program} does not name {missing:?}");
        }
        std::fs::remove_dir_all(folder)?;
        Ok(())
    }

    /// The reference of a program's image.
    fn reference(&self, program: &str) -> String {
        format!("{}/{program}:{}", self.to, self.version)
    }

    /// Checks that objects have the images that were pushed, and no others; `least` is the number of Deployments.
    fn objects(&self, name: &str, text: &str, least: usize) -> Result<()> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        let mut deployments = 0;
        for object in documents.iter().filter(|it| it["kind"] == "Deployment") {
            deployments += 1;
            for container in object["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten()
            {
                let image = container["image"].as_str().context("no image")?;
                let pushed = self.digests.keys().any(|program| image == self.reference(program));
                ensure!(pushed, "{name} names {image}, which was not pushed");
            }
        }
        ensure!(deployments >= least, "{name} has {deployments} Deployments");
        // also in arguments and annotations
        ensure!(!text.contains("ghcr.io/olm-rs"), "{name} names images of another registry");
        Ok(())
    }

    fn install_files(&self) -> Result<()> {
        let files: Vec<String> =
            self.names()?.into_iter().filter(|name| name.starts_with("install-")).collect();
        ensure!(files.len() >= 4, "{files:?}");
        for name in files {
            let text = std::fs::read_to_string(self.files.join(&name))?;
            self.objects(&name, &text, if name == "install-openshift.yaml" { 3 } else { 2 })?;
        }
        Ok(())
    }

    fn helm(&self, arguments: &[&str]) -> Result<String> {
        let home = tempfile::tempdir()?;
        let mut command = Tools::locate()?.command("helm")?;
        command.args(arguments).current_dir(self.files).env("HOME", home.path());
        must(command.env("DOCKER_CONFIG", self.docker_config))
    }

    /// The chart, from its file and from the registry.
    fn chart(&self) -> Result<()> {
        let archive = self.chart_archive();
        self.objects(&archive, &self.helm(&["template", "olm-rs", &archive, "--namespace", NAMESPACE])?, 2)?;
        let preset = ["-xzOf", &archive, "olm-rs/presets/openshift.yaml"];
        let values = must(Command::new("tar").args(preset).current_dir(self.files))?;
        let preset = tempfile::NamedTempFile::new()?;
        std::fs::write(preset.path(), values)?;
        let preset = preset.path().display().to_string();
        let install = ["template", "olm-rs", &archive, "--namespace", NAMESPACE, "--values", &preset];
        self.objects(&archive, &self.helm(&install)?, 3)?;

        let address = format!("oci://{}/charts/olm-rs", self.to);
        let ca_file = format!("--ca-file={}", Ca::shared()?.certificate().display());
        let from = ["--version", self.version, &ca_file];
        let rendered =
            self.helm(&[&["template", "olm-rs", &address, "--namespace", NAMESPACE][..], &from].concat())?;
        self.objects(&address, &rendered, 2)?;
        let chart = self.helm(&[&["show", "chart", &address][..], &from].concat())?;
        let chart: Value = serde_saphyr::from_str(&chart)?;
        assert_eq!(chart["version"], self.version);
        assert_eq!(chart["appVersion"], self.version);
        Ok(())
    }

    /// Each reference of images.txt names a manifest with its digest.
    async fn images(&self) -> Result<()> {
        let text = std::fs::read_to_string(self.files.join("images.txt"))?;
        let mut found = BTreeSet::new();
        for line in text.lines() {
            let (reference, digest) = line.split_once('@').context("no digest")?;
            let (path, tag) = reference.rsplit_once(':').context("no tag")?;
            let name =
                path.strip_prefix(&format!("{}/", self.registry.address())).context("another registry")?;
            let manifest = get_bytes(self.registry, &format!("{name}/manifests/{tag}")).await?;
            assert_eq!(image::sha256(&manifest), digest, "{line}");
            let program = path.rsplit('/').next().unwrap_or(path);
            if program != "olm-rs" {
                assert_eq!(self.digests.get(program).map(String::as_str), Some(digest), "{line}");
            }
            found.insert(program.to_owned());
        }
        let expected: BTreeSet<String> =
            PROGRAMS.iter().chain(&["olm-rs"]).map(|&name| name.to_owned()).collect();
        assert_eq!(found, expected);
        Ok(())
    }

    /// krew downloads the plugin, checks it, unpacks it, and kubectl runs it.
    fn plugin(&self) -> Result<()> {
        let manifest = self.files.join("olm.yaml");
        let krew = Krew::new()?;
        plugin::validate(&krew, &manifest)?;
        must(&mut krew.install(&manifest))?;
        let printed = must(&mut krew.kubectl(&["olm", "--version"]))?;
        ensure!(printed.contains(env!("CARGO_PKG_VERSION")), "{printed}");
        let scenario = repository().join("crates/olm-resolver/tests/scenarios/t01-linear-chain.scn");
        let printed = must(krew.kubectl(&["olm", "simulate"]).arg(scenario))?;
        if printed.trim().is_empty() {
            bail!("the plugin prints nothing");
        }
        Ok(())
    }
}

/// Names and versions of crates whose paths are in a program (where it may panic): `…/registry/src/<index>/<name>-<version>/…`.
fn crates_in(program: &[u8]) -> BTreeSet<String> {
    const MARK: &[u8] = b"/registry/src/";
    let mut found = BTreeSet::new();
    for at in memchr::memmem::find_iter(program, MARK) {
        let rest = &program[at + MARK.len()..program.len().min(at + 300)];
        // in debug information the next text follows a zero, without a slash
        let name = rest.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
        let name = name.split(|byte| !byte.is_ascii_alphanumeric() && !b"_.+-".contains(byte)).next();
        if let Ok(name) = std::str::from_utf8(name.unwrap_or_default())
            && !name.is_empty()
        {
            found.insert(name.to_owned());
        }
    }
    found
}

#[test]
fn images_traces_of_crates_are_found() {
    let program = b"\0/home/x/.cargo/registry/src/index-1/serde_json-1.0.1+a/src/de.rs\0/registry/src/i/ring-0.17.8\0crates";
    let expected = ["ring-0.17.8".to_owned(), "serde_json-1.0.1+a".to_owned()];
    assert_eq!(crates_in(program), expected.into());
}
