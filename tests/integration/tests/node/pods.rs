//! Our pods as they run: rights, limits and root file system as the kernel has them, and what happens when they are deleted.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use olm_integration::package::Package;
use olm_kit::{SYSTEM_NAMESPACE, eventually};
use serde_json::json;

use crate::extension::Sample;
use crate::site::{LIMIT, OVERLAY_PROGRAMS, PROGRAMS, Site, is_ready, report, site};

/// The memory limit of the manifests.
const MEMORY: u64 = 512 << 20;

/// The processes whose program is `/<name>`; containers of the node are below this process in the tree of namespaces.
fn processes(name: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        if line.split(|&byte| byte == 0).next() == Some(format!("/{name}").as_bytes()) {
            found.push(path);
        }
    }
    Ok(found)
}

/// The limit of the memory of a process's cgroup.
fn memory_limit(process: &Path) -> Result<u64> {
    let groups = std::fs::read_to_string(process.join("cgroup"))?;
    let group = |controller: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let root = Path::new("/sys/fs/cgroup");
    let file = match group("memory") {
        Some(path) => root.join("memory").join(path).join("memory.limit_in_bytes"),
        None => root.join(group("").context("no cgroup")?).join("memory.max"),
    };
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    text.trim().parse().with_context(|| format!("{}: {text}", file.display()))
}

/// Waits until kubelet's probes of these pods have succeeded, by its own metrics, and checks that none of liveness has failed.
async fn probes_succeed(site: &Site, pods: &[String]) -> Result<()> {
    let path = format!("/api/v1/nodes/{}/proxy/metrics/probes", site.node_name().await?);
    eventually("all probes have succeeded", LIMIT, || async {
        let metrics = site.kubectl(&["get", "--raw", &path]).await?;
        let counted = |pod: &str, kind: &str, result: &str| {
            let labels = [("pod", pod), ("probe_type", kind), ("result", result)];
            let labels = labels.map(|(name, value)| format!("{name}=\"{value}\""));
            let mut lines = metrics.lines().filter(|line| line.starts_with("prober_probe_total{"));
            lines.any(|line| labels.iter().all(|label| line.contains(label)))
        };
        for pod in pods {
            for kind in ["Readiness", "Liveness"] {
                ensure!(counted(pod, kind, "successful"), "{pod}: {kind}");
            }
            ensure!(!counted(pod, "Liveness", "failed"), "{pod} did not live");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn node_pods_have_the_rights_and_limits_of_the_manifests() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    for program in OVERLAY_PROGRAMS {
        let pods = site.ready_pods(program, 2, &[]).await?;
        probes_succeed(site, &pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>()).await?;
        let processes = processes(program)?;
        ensure!(processes.len() == pods.len(), "{program}: {processes:?}");
        for process in processes {
            let status = std::fs::read_to_string(process.join("status"))?;
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
            };
            assert_eq!(field("Uid"), "65532", "{program}");
            assert_eq!(u64::from_str_radix(&field("CapEff"), 16)?, 0, "{program}: capabilities");
            assert_eq!(field("NoNewPrivs"), "1", "{program}");
            assert_eq!(field("Seccomp"), "2", "{program}: filtered");
            assert_eq!(memory_limit(&process)?, MEMORY, "{program}");
            let mounts = std::fs::read_to_string(process.join("mountinfo"))?;
            let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).context("no root")?;
            assert!(root.split(' ').nth(5).is_some_and(|it| it.starts_with("ro")), "{program}: {root}");
        }
    }
    // the namespace admits nothing else
    let pod = ["run", "privileged", "--image=10.240.0.1:5000/pause:1", "--privileged"];
    let rejected = site.kubectl(&[&["-n", SYSTEM_NAMESPACE][..], &pod].concat()).await;
    let rejected = rejected.err().context("a privileged pod was admitted")?;
    assert!(format!("{rejected:#}").contains("violates PodSecurity \"restricted"), "{rejected:#}");
    Ok(())
}

#[tokio::test]
async fn node_deleted_pods_are_replaced_and_work_continues() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    let package = Package::new(site.client().await?, "replaced", None);
    let sample = Sample { package: &package, webhooks: false };
    sample.serve(site, &["1.0.0", "1.1.0"]).await?;
    package.install("1.0.0").await?;
    let content = site.content(&package.name).await?;
    ensure!(content.contains("olm.package"), "{content}");

    for program in PROGRAMS {
        for pod in site.ready_pods(program, 2, &[]).await? {
            let (name, started) = (pod.name_any(), Instant::now());
            site.kubectl(&["-n", SYSTEM_NAMESPACE, "delete", "pod", &name, "--wait=false"]).await?;
            site.ready_pods(program, 2, std::slice::from_ref(&name)).await?;
            report(&format!("pod {name} is replaced"), started);
            // by the Service, which no longer leads to the pod that is gone
            let served = eventually("the catalog is served", LIMIT, || site.content(&package.name)).await?;
            assert_eq!(served, content);
        }
    }
    // whichever replica leads now
    let started = Instant::now();
    package.install("1.1.0").await?;
    report("upgraded by the new leader", started);
    sample.runs(site, "1.1.0").await?;
    sample.remove().await
}

#[tokio::test]
async fn node_drain_keeps_one_replica_of_each() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    let package = Package::new(site.client().await?, "drained", None);
    let sample = Sample { package: &package, webhooks: false };
    sample.serve(site, &["1.0.0", "1.1.0"]).await?;
    package.install("1.0.0").await?;
    for program in OVERLAY_PROGRAMS {
        site.ready_pods(program, 2, &[]).await?;
    }

    // there is no other node: pods that were evicted wait, and the budgets hold the drain
    package.want_with(json!({}), json!({"version": "1.1.0"})).await?;
    let selector = "--pod-selector=app.kubernetes.io/part-of=olm";
    let node = site.node_name().await?;
    let drained = site.kubectl(&["drain", &node, selector, "--delete-emptydir-data", "--timeout=15s"]).await;
    let held = drained.err().context("the budgets did not hold the drain")?;
    ensure!(format!("{held:#}").contains("disruption budget"), "{held:#}");
    for program in OVERLAY_PROGRAMS {
        let pods = site.pods(program).await?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        assert_eq!((pods.len(), ready), (2, 1), "{program}");
    }
    ensure!(site.content(&package.name).await?.contains("olm.package"), "the catalog is not served");

    let started = Instant::now();
    site.kubectl(&["uncordon", &node]).await?;
    for program in OVERLAY_PROGRAMS {
        site.ready_pods(program, 2, &[]).await?;
    }
    package.installed("1.1.0").await?;
    sample.runs(site, "1.1.0").await?;
    report("upgraded once the node takes pods again", started);
    sample.remove().await
}
