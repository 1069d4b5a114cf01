//! `demo`: the main job on real parts, each command and its outcome shown. The sample operator is in `hack/demo`.
//!
//! Commands that are printed are run as printed (kubectl and curl as programs); what is waited for is printed in words.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use olm_kit::{
    Ca, CatalogImage, Cluster, Options, Process, Program, Registry, Tools, Wait, condition, repository,
    sample,
};
use serde_json::{Value, json};

use super::environment::Environment;
use super::{Home, interruption, print_line, print_usage, step};

pub(super) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn down() -> Result<ExitCode> {
    print_line(if Home::named("demo").stop()? { "the demo is stopped" } else { "no demo is running" });
    Ok(ExitCode::SUCCESS)
}

/// `catalog` is an image or a folder, instead of the sample.
pub(crate) async fn run(oneshot: bool, catalog: Option<&str>) -> Result<ExitCode> {
    until_stopped(oneshot, async |home| {
        let demo = Demo::start(home, catalog).await?;
        let outcome = match catalog {
            Some(_) => demo.show_catalog().await,
            None => demo.walk().await,
        };
        if let Err(problem) = outcome {
            return Ok(Err(failed(problem, &demo.logs())));
        }
        demo.sum_up()?;
        Ok(Ok(demo))
    })
    .await
}

/// The error after the ends of the logs.
pub(super) fn failed(problem: anyhow::Error, logs: &str) -> anyhow::Error {
    eprintln!("\n{logs}");
    problem
}

/// Shows a demo in its folder, and keeps what it returns, unless it is to end after the last step.
pub(super) async fn until_stopped<T>(
    oneshot: bool,
    show: impl AsyncFnOnce(&Path) -> Result<Result<T>>,
) -> Result<ExitCode> {
    let home = Home::named("demo");
    home.take().context("`make demo-down` ends a running demo")?;
    let signal = interruption();
    let work = async {
        let _running = match show(home.path()).await? {
            Ok(running) => running,
            Err(problem) => {
                eprintln!("error: {problem:#}");
                eprintln!(
                    "FAILED: the demo did not have the expected outcome; all logs are in {}",
                    home.path().display()
                );
                return Ok(ExitCode::FAILURE);
            }
        };
        if !oneshot {
            print_line("Everything keeps running. Ctrl-C here or `make demo-down` stops it.");
            std::future::pending::<()>().await;
        }
        Ok(ExitCode::SUCCESS)
    };
    // whatever ends first, dropping `work` stops every process that it started
    tokio::select! {
        outcome = work => outcome,
        signal = signal => {
            print_line("\nstopping");
            let number = signal?.0;
            Ok(if oneshot { ExitCode::from(128 + number) } else { ExitCode::SUCCESS })
        }
    }
}

struct Demo {
    environment: Environment,
    catalogd: Process,
    operator_controller: Process,
    cluster_operator: Process,
    catalog_image: String,
    dir: PathBuf,
    ca: PathBuf,
    client: Client,
    // dropped after the processes that use them
    registry: Registry,
    cluster: Cluster,
}

impl Demo {
    async fn start(dir: &Path, catalog: Option<&str>) -> Result<Self> {
        Tools::locate()?;
        let ca = Ca::create(dir, "olm-rs demo")?;
        let options = Options { dir: Some(dir.join("control-plane")), ..Options::default() };
        let cluster = step(1, 4, "starting a Kubernetes control plane", async {
            let cluster = Cluster::start_with(&options).await?;
            cluster.install_olm().await?;
            cluster.install_policies_and_roles().await?;
            Ok(cluster)
        })
        .await?;
        let registry_dir = dir.join("registry");
        let registry =
            step(2, 4, "starting an OCI registry", Registry::launch(&ca, Some(&registry_dir), false)).await?;
        let push = match catalog {
            None => format!("pushing {} bundle images and a catalog image", sample::VERSIONS.len()),
            Some(catalog) => format!("catalog {catalog}"),
        };
        let catalog_image = step(3, 4, &push, catalog_image(catalog, &registry)).await?;
        let programs = (
            Program::catalogd_in(&cluster, &ca, Some(&dir.join("catalogd")))?,
            Program::operator_controller_in(&cluster, &ca, Some(&dir.join("operator-controller")))?,
            Program::cluster_operator_in(&cluster, &ca, Some(&dir.join("cluster-operator")))?,
        );
        let (catalogd, operator_controller, cluster_operator) =
            step(4, 4, "starting catalogd, operator-controller and cluster-operator", async {
                tokio::try_join!(programs.0.start(), programs.1.start(), programs.2.start())
            })
            .await?;
        let environment = Environment::new(dir, &cluster, &ca)?;
        let (client, ca, dir) = (cluster.client().await?, ca.certificate(), dir.to_owned());
        #[rustfmt::skip]
        let demo = Self {
            environment, catalogd, operator_controller, cluster_operator, catalog_image, ca, dir, client,
            registry, cluster,
        };
        Ok(demo)
    }

    async fn walk(&self) -> Result<()> {
        let started = Instant::now();
        title("1. A catalog, and an operator from it in a version range");
        let catalog = self.manifest("catalog.yaml")?;
        let extension = self.manifest("extension.yaml")?;
        show_file(&catalog)?;
        self.kubectl(&["apply", "-f", &catalog.display().to_string()])?;
        self.wait("ClusterCatalog", "demo", "catalog demo is served (Serving=True)", |it| {
            is(it, "Serving", "True", "Available")
        })
        .await?;
        show_file(&extension)?;
        self.kubectl(&["apply", "-f", &extension.display().to_string()])?;
        self.installed("1.0.1", "the highest of 1.0.x, 1.0.1").await?;
        self.kubectl(&["get", "clustercatalogs,clusterextensions,clusterobjectsets"])?;
        let (until, limit) = ("--for=condition=Available", "--timeout=60s");
        self.kubectl(&["-n", "greeter", "wait", until, limit, "deployment/greeter-controller"])?;
        self.kubectl(&["-n", "greeter", "get", "deployments,pods,configmaps,serviceaccounts"])?;

        title("2. The content of the catalog, over HTTPS");
        self.query_catalog().await?;

        title("3. An upgrade, by widening the range");
        self.patch(&json!({"version": "1.x"}))?;
        self.installed("1.1.0", "1.1.0, which skips 1.0.1").await?;
        self.revision("greeter-1", "Archived").await?;
        self.revision("greeter-2", "Active").await?;
        let maps = self.api("ConfigMap", "", "v1").await?;
        waiting("what 1.1.0 no longer has is gone (ConfigMap greeter-legacy-phrases)", async {
            Wait::new(&maps, "greeter-legacy-phrases").within(LIMIT).to_be_gone().await
        })
        .await?;
        self.kubectl(&["get", "clusterobjectsets"])?;

        title("4. A downgrade is refused, and then forced");
        self.patch(&json!({"version": "1.0.0"}))?;
        let error = "error upgrading from currently installed version \"1.1.0\": no bundles found for package \"greeter\" \
                       matching version \"1.0.0\"";
        let refused = self
            .wait("ClusterExtension", "greeter", "it is refused (Progressing=True/Retrying)", |it| {
                is(it, "Progressing", "True", "Retrying")
                    && condition(it, "Progressing").is_some_and(|it| it.message.starts_with(error))
            })
            .await?;
        for kind in ["Installed", "Progressing"] {
            print_line(format_args!(
                "  {kind}: {}",
                condition(&refused, kind).map(|it| it.message).unwrap_or_default()
            ));
        }
        let version = installed_version(&refused);
        ensure!(version == "1.1.0", "a refused downgrade must leave 1.1.0 installed, but it is {version:?}");
        self.patch(&json!({"upgradeConstraintPolicy": "SelfCertified"}))?;
        self.installed("1.0.0", "1.0.0, as demanded").await?;
        waiting("what 1.0.0 has is back (ConfigMap greeter-legacy-phrases)", async {
            Wait::new(&maps, "greeter-legacy-phrases").within(LIMIT).to_exist().await
        })
        .await?;
        self.kubectl(&["get", "clusterextensions,clusterobjectsets"])?;

        title("5. The plugin: what there is, what would happen, and why");
        self.plugin()?;

        title("6. An update of an OpenShift cluster waits for the operator");
        self.gate().await?;
        let took = started.elapsed().as_secs_f64();
        print_line(format_args!("\nAll steps had the expected outcome ({took:.1} s)."));
        Ok(())
    }

    /// Reading verbs of the plugin, through kubectl.
    fn plugin(&self) -> Result<()> {
        for (arguments, code) in [
            (&["olm", "search"][..], 0),
            (&["olm", "list"], 0),
            (&["olm", "explain", "greeter"], 0),
            // 1: something would change
            (&["olm", "plan", "greeter", "--version", "1.1.0", "--policy", "CatalogProvided"], 1),
            (&["olm", "graph", "greeter"], 0),
        ] {
            let mut command = self.cluster.kubectl()?;
            command.args(arguments).envs(self.environment.variables());
            print_command("kubectl", arguments);
            let output = command.output().context("cannot run kubectl")?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            for line in text(&output.stdout).lines() {
                print_line(format_args!("  {}", clip(line, 160)));
            }
            let (status, errors) = (output.status, text(&output.stderr));
            ensure!(status.code() == Some(code), "it ended with {status}: {errors}");
        }
        Ok(())
    }

    /// A catalog of your own is served.
    async fn show_catalog(&self) -> Result<()> {
        title("The catalog");
        let catalog = self.manifest("catalog.yaml")?;
        self.kubectl(&["apply", "-f", &catalog.display().to_string()])?;
        self.wait("ClusterCatalog", "demo", "catalog demo is served (Serving=True)", |it| {
            is(it, "Serving", "True", "Available")
        })
        .await?;
        let mut command = self.cluster.kubectl()?;
        command.args(["olm", "catalogs"]).envs(self.environment.variables());
        run_printed("kubectl", &["olm", "catalogs"], &mut command)?;
        print_line("\nAll steps had the expected outcome.");
        Ok(())
    }

    /// The kinds of OpenShift appear, the installed version turns out to run on 4.18 at most, and is upgraded.
    async fn gate(&self) -> Result<()> {
        self.kubectl(&["apply", "-f", &repository().join("manifests/openshift").display().to_string()])?;
        for kind in ["clusteroperators", "clusterversions"] {
            let definition = format!("crd/{kind}.config.openshift.io");
            self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &definition])?;
        }
        self.kubectl(&["apply", "-f", &self.manifest("clusterversion.yaml")?.display().to_string()])?;
        let status = json!({"status": {
            "desired": {"version": "4.18.5", "image": ""}, "observedGeneration": 1, "versionHash": "", "availableUpdates": [],
        }});
        let patch = ["patch", "clusterversion", "version", "--subresource=status", "--type=merge", "-p"];
        self.kubectl(&[&patch[..], &[&status.to_string()]].concat())?;
        let closed = self
            .operator("1.0.0 runs on 4.18 at most, so the gate is closed (Upgradeable=False)", |it| {
                condition(it, "Upgradeable").is_some_and(|it| {
                    it.status == "False"
                        && it.message.contains("bundle \"greeter.v1.0.0\" for ClusterExtension \"greeter\".")
                })
            })
            .await?;
        let why = condition(&closed, "Upgradeable").map(|it| it.message).unwrap_or_default();
        print_line(format_args!("  Upgradeable: {why}"));
        self.kubectl(&["get", "co", "olm"])?;
        self.patch(&json!({"version": "1.1.0"}))?;
        self.installed("1.1.0", "1.1.0, which declares no limit").await?;
        self.operator("the gate is open (Upgradeable=True)", |it| {
            condition(it, "Upgradeable").is_some_and(|it| it.status == "True")
        })
        .await?;
        self.kubectl(&["get", "co", "olm"])
    }

    async fn operator(
        &self,
        what: &str,
        reached: impl FnMut(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        let api = self.api("ClusterOperator", "config.openshift.io", "v1").await?;
        waiting(what, Wait::new(&api, "olm").within(LIMIT).until(what, reached)).await
    }

    fn sum_up(&self) -> Result<()> {
        title("What is running");
        for process in [&self.catalogd, &self.operator_controller, &self.cluster_operator] {
            print_usage(process)?;
        }
        print_line(format_args!("logs                 {}", self.dir.display()));
        print_line(format_args!("registry             {}", self.registry.address()));
        print_line(format_args!("catalog              {}", self.catalog_url()));
        print_line(format_args!("kubectl              {}", Tools::locate()?.program("kubectl")?.display()));
        print_line(format_args!("\n  curl --cacert {} {}", self.ca.display(), self.catalog_url()));
        self.environment.write()?;
        print_line("  kubectl olm search\n");
        Ok(())
    }

    fn catalog_url(&self) -> String {
        format!("{}/catalogs/demo/api/v1/all", self.catalogd.content_url())
    }

    /// A manifest of `hack/demo/cluster` with the image's name in it.
    fn manifest(&self, name: &str) -> Result<PathBuf> {
        let text = std::fs::read_to_string(sample::source().join("cluster").join(name))?;
        let path = self.dir.join(name);
        std::fs::write(&path, text.replace("${CATALOG_IMAGE}", &self.catalog_image))?;
        Ok(path)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.cluster.kubectl()?;
        command.args(arguments);
        run_printed("kubectl", arguments, &mut command).map(|_| ())
    }

    fn patch(&self, catalog: &Value) -> Result<()> {
        let patch = json!({"spec": {"source": {"catalog": catalog}}}).to_string();
        self.kubectl(&["patch", "clusterextension", "greeter", "--type=merge", "-p", &patch])
    }

    async fn installed(&self, version: &str, words: &str) -> Result<()> {
        let what = format!("installed is {words}");
        self.wait("ClusterExtension", "greeter", &what, |it| {
            installed_version(it) == version
                && is(it, "Installed", "True", "Succeeded")
                && is(it, "Progressing", "True", "Succeeded")
        })
        .await?;
        Ok(())
    }

    async fn revision(&self, name: &str, state: &str) -> Result<()> {
        self.wait("ClusterObjectSet", name, &format!("revision {name} is {state}"), |it| {
            it.data.pointer("/spec/lifecycleState").and_then(Value::as_str) == Some(state)
        })
        .await?;
        Ok(())
    }

    async fn wait(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        reached: impl FnMut(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        let api = self.api(kind, "olm.operatorframework.io", "v1").await?;
        waiting(what, Wait::new(&api, name).within(LIMIT).until(what, reached)).await
    }

    async fn api(&self, kind: &str, group: &str, version: &str) -> Result<Api<DynamicObject>> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Ok(if group.is_empty() {
            Api::namespaced_with(self.client.clone(), "greeter", &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        })
    }

    async fn query_catalog(&self) -> Result<()> {
        let (ca, url) = (self.ca.display().to_string(), self.catalog_url());
        let arguments = ["--silent", "--show-error", "--fail", "--cacert", &ca, &url];
        let curl = Command::new("curl").arg("--version").output().is_ok_and(|it| it.status.success());
        let text = if curl {
            let mut command = Command::new("curl");
            command.args(arguments).env("NO_PROXY", "127.0.0.1");
            print_line(format_args!("$ curl {}", arguments.join(" ")));
            run_quietly(&mut command)?
        } else {
            print_line("(there is no curl here, so this program asks)");
            print_line(format_args!("$ curl {}", arguments.join(" ")));
            let answer = reqwest::Client::builder()
                .no_proxy()
                .tls_certs_only([reqwest::Certificate::from_pem(&std::fs::read(&self.ca)?)?])
                .build()?
                .get(&url)
                .send()
                .await?;
            answer.error_for_status()?.text().await?
        };
        let mut found: Vec<(String, usize)> = Vec::new();
        for line in text.lines() {
            print_line(format_args!("  {}", clip(line, 150)));
            let document: Value = serde_json::from_str(line).context("a line of the answer is not JSON")?;
            let schema = document["schema"].as_str().context("a line of the answer has no schema")?;
            match found.iter_mut().find(|(name, _)| name == schema) {
                Some((_, count)) => *count += 1,
                None => found.push((schema.to_owned(), 1)),
            }
        }
        found.sort();
        let expected = [("olm.bundle", sample::VERSIONS.len()), ("olm.channel", 2), ("olm.package", 1)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        ensure!(found == expected, "the catalog should hold {expected:?}, but it holds {found:?}");
        print_line("  => one package, two channels, five bundles: ok");
        Ok(())
    }

    fn logs(&self) -> String {
        [&self.catalogd, &self.operator_controller, &self.cluster_operator]
            .map(|process| {
                let text = process.log_text();
                let lines: Vec<&str> = text.lines().collect();
                let end = lines[lines.len().saturating_sub(30)..].join("\n");
                format!("--- end of the log of {}:\n{end}\n", process.name())
            })
            .concat()
    }
}

fn is(object: &DynamicObject, kind: &str, status: &str, reason: &str) -> bool {
    let current = object.metadata.generation;
    condition(object, kind).is_some_and(|it| {
        it.status == status
            && it.reason == reason
            && it.observed_generation.is_none_or(|seen| Some(seen) == current)
    })
}

fn installed_version(object: &DynamicObject) -> &str {
    object.data.pointer("/status/install/bundle/version").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn title(text: &str) {
    print_line(format_args!("\n{text}\n{}", "─".repeat(text.chars().count())));
}

pub(super) fn show_file(path: &Path) -> Result<()> {
    print_line(format_args!("$ cat {}", relative(path)));
    for line in std::fs::read_to_string(path)?.lines() {
        print_line(format_args!("  {line}"));
    }
    Ok(())
}

pub(super) fn relative(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).display().to_string()
}

/// Prints what is waited for and how it ended.
pub(super) async fn waiting<T>(what: &str, wait: impl Future<Output = Result<T>>) -> Result<T> {
    let started = Instant::now();
    let outcome = wait.await;
    let word = if outcome.is_ok() { "ok" } else { "NOT REACHED" };
    print_line(format_args!("  => {what}: {word} ({:.1} s)", started.elapsed().as_secs_f64()));
    outcome
}

/// The catalog's image: the sample, an image of your own, or a folder that is packed and pushed.
async fn catalog_image(catalog: Option<&str>, registry: &Registry) -> Result<String> {
    match catalog {
        None => sample::push(registry).await,
        Some(folder) if Path::new(folder).is_dir() => {
            let image = CatalogImage::from_dir(Path::new(folder))?.image();
            Ok(registry.push("catalog", "latest", &image).await?.by_tag())
        }
        Some(image) => Ok(image.to_owned()),
    }
}

fn print_command(name: &str, arguments: &[&str]) {
    let words: Vec<String> = arguments
        .iter()
        .map(|&word| relative(Path::new(word)))
        .map(|word| if word.contains(['{', ' ', '*']) { format!("'{word}'") } else { word })
        .collect();
    print_line(format_args!("$ {name} {}", words.join(" ")));
}

/// Prints a command, runs it, prints its output; a failing command is an error.
pub(super) fn run_printed(name: &str, arguments: &[&str], command: &mut Command) -> Result<String> {
    print_command(name, arguments);
    let output = run_quietly(command)?;
    for line in output.lines() {
        print_line(format_args!("  {}", clip(line, 160)));
    }
    Ok(output)
}

fn run_quietly(command: &mut Command) -> Result<String> {
    let output =
        command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{} ended with {}: {out}{err}", command.get_program().display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn clip(line: &str, length: usize) -> String {
    match line.char_indices().nth(length) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
