//! The pages in the order in which a reader may come to them, on one cluster, and what each takes for granted.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use olm_kit::repository;
use serde_json::Value;

use super::page::{self, Block, ConsoleCommand, Mark};
use super::recording::Recording;
use super::shell::{self, Session};
use super::site::Site;

/// A page and what is there before its first line.
struct Walkthrough {
    page: &'static str,
    /// run first
    before: &'static [&'static str],
    /// the files of kubectl-olm's own tests are in the folder
    fixtures: bool,
    /// cluster-operator runs, on a cluster of this version of OpenShift
    openshift: Option<&'static str>,
}

const PLAIN: Walkthrough = Walkthrough { page: "", before: &[], fixtures: false, openshift: None };

/// A catalog with this name.
macro_rules! catalog {
    ($name:literal, $image:literal) => {
        concat!(
            "kubectl apply -f - <<END\n",
            "{apiVersion: olm.operatorframework.io/v1, kind: ClusterCatalog, metadata: {name: ",
            $name,
            "}, spec: {source: {type: Image, image: {ref: \"registry.example.com/",
            $image,
            "\"}}}}\nEND\nkubectl wait --for=condition=Serving --timeout=2m clustercatalog/",
            $name
        )
    };
}
const CATALOG: &str = catalog!("operators", "catalog:latest");
const LIMITS: &str = catalog!("limits", "limits:latest");
/// The Prometheus Operator is not installed: its account, and a stand-in for the kind that it reads.
const MONITORING: &str = "kubectl create namespace monitoring
kubectl -n monitoring create serviceaccount prometheus
kubectl apply -f - <<END
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: servicemonitors.monitoring.coreos.com}, spec: {
  group: monitoring.coreos.com, scope: Namespaced, names: {kind: ServiceMonitor, plural: servicemonitors}, versions: [{name: v1, served: true,
  storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
END
kubectl wait --for=condition=Established --timeout=1m crd/servicemonitors.monitoring.coreos.com";
const GREETER: &str = catalog!("demo", "greeter-catalog:latest");

/// The cluster is empty before the first one. `install.md` ends with removing everything, so it is the last one.
#[rustfmt::skip]
const WALKTHROUGHS: &[Walkthrough] = &[
    Walkthrough { page: "README.md", ..PLAIN },
    Walkthrough { page: "docs/getting-started.md", ..PLAIN },
    Walkthrough { page: "examples/README.md", before: &[MONITORING], ..PLAIN },
    Walkthrough { page: "docs/upgrading.md", ..PLAIN },
    Walkthrough { page: "docs/how-to/install.md", before: &[CATALOG], ..PLAIN },
    Walkthrough { page: "docs/how-to/roll-back.md", before: &[
        CATALOG,
        "kubectl olm install sample --namespace sample-system --create-namespace --version 1.0.0 --wait
            kubectl olm upgrade sample --version 1.1.0 --wait",
    ], ..PLAIN },
    Walkthrough { page: "docs/how-to/read-a-catalog.md", before: &[CATALOG], ..PLAIN },
    Walkthrough { page: "docs/how-to/query-with-graphql.md", before: &[CATALOG], ..PLAIN },
    Walkthrough { page: "docs/http.md", before: &[CATALOG], ..PLAIN },
    Walkthrough { page: "docs/troubleshooting.md", before: &[
        CATALOG, "kubectl olm install sample --namespace sample-system --create-namespace --wait"], ..PLAIN },
    Walkthrough { page: "docs/certificates.md", before: &[
        CATALOG, "kubectl olm install guard --namespace guard --create-namespace --wait"], ..PLAIN },
    Walkthrough {
        page: "docs/kubectl-olm.md",
        before: &[
            CATALOG,
            LIMITS,
            "kubectl create namespace sample-system
            for name in early late trap; do kubectl olm install $name --namespace sample-system --version 1.0.0; done
            kubectl olm install sample --namespace sample-system --version 1.0.0 --wait
            kubectl olm upgrade sample --version 1.1.0 --wait
            kubectl wait --for=condition=Ready --timeout=2m clusterextension --all",
            // what an upgrade leaves behind goes a moment later: the former revision, and the pod of the former Deployment
            "kubectl wait --for=jsonpath='{.spec.lifecycleState}'=Archived --timeout=2m clusterobjectset/sample-1
            until [ \"$(kubectl -n sample-system get pods -o name | wc -l)\" = 4 ]; do sleep 0.2; done",
        ],
        openshift: Some("4.18.7"),
        fixtures: true,
    },
    Walkthrough { page: "docs/kubectl-olm-graph.md", ..PLAIN },
    Walkthrough { page: "docs/signatures.md", ..PLAIN },
    Walkthrough {
        page: "docs/upgrade-gate.md",
        before: &[
            GREETER,
            "kubectl olm install greeter --namespace greeter --create-namespace --version 1.0.0 --wait
            # false may be what the page before left
            until kubectl get clusteroperator olm -o yaml | grep greeter.v1.0.0 >/dev/null; do sleep 0.2; done",
        ],
        openshift: Some("4.18.5"),
        ..PLAIN
    },
    // what the Go implementation leaves behind
    Walkthrough { page: "docs/migration.md", before: &[
        GREETER, "kubectl apply -f tests/integration/reference/objects.yaml"], ..PLAIN },
    Walkthrough {
        page: "docs/how-to/mirror-images.md",
        // the registry plays quay.io
        before: &["cat > internet.conf <<END
[[registry]]
location = \"quay.io/example\"
[[registry.mirror]]
location = \"registry.example.com/public\"
END
export CONTAINERS_REGISTRIES_CONF=$PWD/internet.conf"],
        ..PLAIN
    },
    Walkthrough { page: "docs/how-to/run-olm-classic.md", ..PLAIN },
    Walkthrough { page: "docs/install.md", before: &["kubectl create namespace team-a"], ..PLAIN },
];

/// After each page. Kubernetes retries the deletion of a namespace with pods in it only after half of their grace period.
const TIDY: &str = "kubectl delete clusterextensions --all --timeout=2m
kubectl delete clustercatalogs --all --timeout=2m
kubectl wait --for=delete pods --all-namespaces --field-selector metadata.namespace!=olmv1-system --timeout=2m
kubectl delete namespace --ignore-not-found --wait=true --timeout=2m sample-system backup guard greeter cert-manager
";

/// The command after which OLM is there.
const INSTALLS: &str = "kubectl apply --server-side -k manifests/overlays/kubernetes";

/// The command after which OLM Classic is there, too.
const ADDS_CLASSIC: &str = "kubectl apply --server-side --force-conflicts -k manifests/components/classic";

/// What became of the blocks.
#[derive(Default)]
struct Tally {
    run: usize,
    left_out: Vec<String>,
    problems: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn docs_blocks_run_or_give_a_reason() -> Result<()> {
    let mut tally = Tally::default();
    let mut site = Site::start().await?;
    let texts = page::texts()?;
    let only = std::env::var("OLM_DOCS").unwrap_or_default();
    for walkthrough in WALKTHROUGHS {
        // the first one installs OLM
        if walkthrough.page != WALKTHROUGHS[0].page && !walkthrough.page.contains(&only) {
            println!("SKIPPED: {} (OLM_DOCS={only})", walkthrough.page);
            continue;
        }
        let (_, text) =
            texts.iter().find(|(name, _)| name == walkthrough.page).with_context(|| walkthrough.page)?;
        let started = Instant::now();
        if let Err(problem) = follow(&mut site, walkthrough, text, &mut tally).await {
            tally.problems.push(format!("{problem:#}\n{}", site.logs()));
        }
        println!("{:5.1} s  {}", started.elapsed().as_secs_f64(), walkthrough.page);
    }
    for (name, text) in &texts {
        if WALKTHROUGHS.iter().any(|walkthrough| walkthrough.page == name) {
            continue;
        }
        for block in page::blocks(name, text)? {
            if block.counts() && !left_out(&block, &mut tally)? {
                tally
                    .problems
                    .push(format!("{}: no walkthrough runs this block; add one or mark it", block.place()));
            }
        }
    }
    println!("{} blocks run, {} left out:", tally.run, tally.left_out.len());
    for line in &tally.left_out {
        println!("  {line}");
    }
    ensure!(tally.problems.is_empty(), "{}", tally.problems.join("\n\n"));
    Ok(())
}

/// Runs a page from the top to the end.
async fn follow(site: &mut Site, walkthrough: &Walkthrough, text: &str, tally: &mut Tally) -> Result<()> {
    if let Some(version) = walkthrough.openshift {
        site.report(version).await?;
    }
    let shell = site.shell(walkthrough.fixtures)?;
    let mut recording = Recording::new(walkthrough.page);
    let outcome: Result<()> = async {
        for script in walkthrough.before {
            shell.must(script).await.with_context(|| format!("before {}", walkthrough.page))?;
        }
        let mut page = text.to_owned();
        for block in page::blocks(walkthrough.page, text)? {
            if !block.counts() || left_out(&block, tally)? {
                continue;
            }
            let apart = match block.mark {
                Some(Mark::Apart) => Some(site.shell_apart().await?),
                _ => None,
            };
            let shell = apart.as_ref().unwrap_or(&shell);
            run(shell, &block, tally, &mut page, &mut recording).await.with_context(|| block.place())?;
            tally.run += 1;
            if block.text.contains(INSTALLS) {
                // pods are simulated: what the Deployments describe runs beside the cluster from here on
                site.start_controllers().await?;
            }
            if block.text.contains(ADDS_CLASSIC) {
                site.start_classic().await?;
            }
        }
        if page != text {
            std::fs::write(repository().join(walkthrough.page), page)?;
        }
        recording.save()
    }
    .await;
    // what this page installed is in no other page's way
    let tidied = match text.contains("kubectl delete -k ") {
        true => Ok(()),
        false => shell.must(TIDY).await.map(|_| ()).with_context(|| format!("after {}", walkthrough.page)),
    };
    outcome.and(tidied)
}

/// Whether a block is marked; a mark that is not true is an error.
fn left_out(block: &Block, tally: &mut Tally) -> Result<bool> {
    match &block.mark {
        None | Some(Mark::Apart) => return Ok(false),
        Some(Mark::NotRun(reason)) => tally.left_out.push(format!("{}: {reason}", block.place())),
        Some(Mark::Ci(step)) => {
            let command = ci_step(step)?;
            let first = block.text.lines().next().unwrap_or_default();
            let first = first.split(" #").next().unwrap_or_default().trim();
            ensure!(
                !first.is_empty() && block.text.lines().count() == 1 && command.starts_with(first),
                "{}: CI step {step} runs {command:?}, not this",
                block.place()
            );
            tally.left_out.push(format!("{}: CI step {step} runs it", block.place()));
        }
    }
    Ok(true)
}

/// The command of a step of `.ci/run`.
fn ci_step(step: &str) -> Result<String> {
    let text = std::fs::read_to_string(repository().join(".ci/run"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("run {step} ")));
    let line = line.with_context(|| format!(".ci/run has no step {step}"))?;
    // behind the pattern of the line that sums up
    let command = match line.strip_prefix('\'') {
        Some(quoted) => quoted.split_once("' ").map(|(_, command)| command),
        None => line.split_once(' ').map(|(_, command)| command),
    };
    Ok(command.with_context(|| format!(".ci/run: {line}"))?.to_owned())
}

async fn run(
    shell: &Session,
    block: &Block,
    tally: &mut Tally,
    page: &mut String,
    recording: &mut Recording,
) -> Result<()> {
    if let Some(name) = &block.file {
        shell.save(name, &block.text)?;
    }
    match block.language.as_str() {
        "sh" => {
            recording.add(&block.text, &shell.must_timed(&block.text).await?);
            Ok(())
        }
        "console" => {
            let all = page::console_commands(&block.text);
            ensure!(!all.is_empty(), "no line begins with `$ `");
            for one in all {
                let (_, lines) = shell.run_timed(&one.command).await?;
                compare(block, &one, &shell::text(&lines), tally, page);
                recording.add(&one.command, &lines);
            }
            Ok(())
        }
        "yaml" => offer(shell, &block.text).await,
        _ => serde_json::from_str::<Value>(&block.text).map(|_| ()).context("not JSON"),
    }
}

/// Compares what a command printed with the page.
fn compare(block: &Block, one: &ConsoleCommand, output: &str, tally: &mut Tally, page: &mut String) {
    let same = one.output.lines().count() == output.lines().count()
        && one.output.lines().zip(output.lines()).all(|(pattern, line)| page::fits(pattern, line));
    if same {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let output: String = output.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let (was, is) = (format!("$ {}{}", one.command, one.output), format!("$ {}{output}", one.command));
        *page = page.replacen(&was, &is, 1);
    } else {
        let mut report =
            format!("{}: $ {}prints\n{output}--- the page shows\n{}", block.place(), one.command, one.output);
        let _ = write!(report, "--- run this test with UPDATE_DOCS=1 and read what it changed");
        tally.problems.push(report);
    }
}

/// Whole objects are taken by the apiserver (dry run, unknown fields refused), kustomizations by kustomize.
async fn offer(shell: &Session, text: &str) -> Result<()> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let kinds: BTreeSet<&str> = documents.iter().filter_map(|it| it["kind"].as_str()).collect();
    if kinds.is_empty() {
        bail!("a part of an object cannot be applied: complete or mark it");
    }
    if kinds.contains("Kustomization") {
        std::fs::create_dir_all(shell.work().join("overlay"))?;
        shell.save("overlay/kustomization.yaml", text)?;
        let rendered = shell.must("kubectl kustomize overlay").await?;
        let images: Vec<&str> = documents[0]["images"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|image| image["newName"].as_str())
            .collect();
        let missing: Vec<_> =
            images.iter().filter(|image| !rendered.contains(&format!("image: {image}"))).collect();
        ensure!(!images.is_empty() && missing.is_empty(), "not in what is rendered: {missing:?}");
        return Ok(());
    }
    shell.save("block.yaml", text)?;
    shell.must("kubectl apply --server-side --dry-run=server --validate=strict -f block.yaml").await?;
    Ok(())
}
