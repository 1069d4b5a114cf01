//! A real node leaves nothing on the machine: compared before it starts, after `make cluster-down`, and after its owner was
//! killed. `make test-node` runs this outside of any node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use olm_kit::{ForeignProcess, Tools, built, eventually};

use crate::site::{LIMIT, must, report};

/// Settings that change by themselves.
#[rustfmt::skip]
const CHANGING: [&str; 6] = [
    "kernel/random/", "kernel/ns_last_pid", "kernel/pty/nr", "kernel/perf_", "vm/stat_refresh", "nf_conntrack_count",
];
/// Folders in which programs of a node could leave something.
const FOLDERS: [&str; 9] =
    ["/", "/etc", "/opt", "/run", "/var/lib", "/var/log", "/var/lib/cni", "/etc/cni", "/var/lib/kubelet"];
/// The folder of mount(8), which makes it when it first runs on a machine and never removes it.
const OF_MOUNT: &str = "/run/mount";
/// Programs that only a node runs, as the kernel cuts their names.
const PROGRAMS: [&str; 6] = ["containerd", "containerd-shim", "coredns", "kube-proxy", "kubelet", "pause"];

/// Lines by what they are about.
type State = BTreeMap<&'static str, BTreeSet<String>>;

fn lines(program: &str, arguments: &[&str]) -> Result<BTreeSet<String>> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Every file below a folder, or only its folders.
fn below(folder: &Path, files: bool, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.is_ok_and(|kind| kind.is_dir()) {
            if !files {
                found.insert(path.display().to_string());
            }
            below(&path, files, found);
        } else if files {
            found.insert(path.display().to_string());
        }
    }
}

fn settings() -> BTreeMap<String, String> {
    let mut files = BTreeSet::new();
    for folder in ["kernel", "net", "vm"] {
        below(&Path::new("/proc/sys").join(folder), true, &mut files);
    }
    files.retain(|file| !CHANGING.iter().any(|part| file.contains(part)));
    // some can only be written
    files
        .into_iter()
        .filter_map(|file| Some((std::fs::read_to_string(&file).ok()?, file)))
        .map(|(value, file)| (file, value))
        .collect()
}

fn state() -> Result<State> {
    let mut cgroups = BTreeSet::new();
    below(Path::new("/sys/fs/cgroup"), false, &mut cgroups);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let mut files = BTreeSet::new();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            files.insert(entry.path().display().to_string());
        }
    }
    files.remove(OF_MOUNT);
    let mut processes = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if PROGRAMS.contains(&name.trim()) {
            processes.insert(format!("{} {}", entry.path().display(), name.trim()));
        }
    }
    Ok(BTreeMap::from([
        ("mounts", mounts.lines().map(str::to_owned).collect()),
        ("cgroups", cgroups),
        ("rules", lines("nft", &["list", "ruleset"])?),
        ("links", lines("ip", &["-brief", "link"])?),
        ("addresses", lines("ip", &["-brief", "address"])?),
        ("routes", lines("ip", &["route", "show", "table", "all"])?),
        (
            "settings",
            settings().into_iter().map(|(file, value)| format!("{file}: {}", value.trim())).collect(),
        ),
        ("files", files),
        ("processes", processes),
    ]))
}

/// Fails with each line that only one of the two has.
fn compare(before: &State, now: &State) -> Result<()> {
    let mut differences = Vec::new();
    for (area, before) in before {
        let now = &now[area];
        differences.extend(before.difference(now).map(|line| format!("{area}: no longer {line}")));
        differences.extend(now.difference(before).map(|line| format!("{area}: now {line}")));
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// Processes in the namespace of processes with this name (`pid:[…]`).
fn processes_in(namespace: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    let inside = entries.filter(|entry| {
        std::fs::read_link(entry.path().join("ns/pid")).is_ok_and(|found| found == namespace)
    });
    Ok(inside.map(|entry| entry.path().display().to_string()).collect())
}

/// `olm-kit cluster …`, which `make cluster-up` and `make cluster-down` run, with the cluster in `folder`.
fn cluster(folder: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(built("olm-kit")?);
    command.arg("cluster").args(arguments).env("OLM_RUN_DIR", folder);
    Ok(command)
}

fn identity(file: &Path) -> Result<ForeignProcess> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    ForeignProcess::parse(&text).with_context(|| format!("{}: {text}", file.display()))
}

/// A container that ran, with a port of the node: network, cgroups, mounts and rules are in use.
async fn use_node(folder: &Path, process_1: ForeignProcess) -> Result<()> {
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "used", "namespace": "default"}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "used", "image": "10.240.0.1:5000/pause:1",
        "ports": [{"containerPort": 80, "hostPort": 8080}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]}}"#;
    let file = folder.join("pod.json");
    std::fs::write(&file, pod)?;
    for arguments in
        [&["apply", "-f", "pod.json"][..], &["wait", "--for=condition=Ready", "--timeout=60s", "pod/used"]]
    {
        let mut command = Command::new("nsenter");
        command.args(["-t", &process_1.pid().to_string(), "-m", "-n", "-p"]);
        command
            .arg(format!("--wd={}", folder.display()))
            .arg(Tools::locate()?.program("kubectl")?)
            .args(arguments);
        command.env("KUBECONFIG", folder.join("cluster/node/control-plane/kubeconfig"));
        must(command).await?;
    }
    Ok(())
}

#[tokio::test]
async fn machine_is_unchanged_after_a_node() -> Result<()> {
    if std::env::var_os("OLM_NODE_MACHINE").is_none() {
        println!("SKIPPED: it starts real nodes; run it by `make test-node`");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("cluster");
    let before = state()?;
    compare(&before, &state()?).context("the machine changes by itself")?;
    for killed in [false, true] {
        let started = Instant::now();
        must(cluster(folder.path(), &["up", "--node", "real"])?).await?;
        report("a real node is up", started);
        let process_1 = identity(&home.join("process-1"))?;
        let namespace = std::fs::read_link(format!("/proc/{}/ns/pid", process_1.pid()))?;
        use_node(folder.path(), process_1).await?;
        ensure!(processes_in(&namespace)?.len() > 8, "the programs of the node run elsewhere");
        ensure!(compare(&before, &state()?).is_err(), "a running node is not noticed");

        let started = Instant::now();
        if killed {
            let mut kill = Command::new("kill");
            kill.args(["-KILL", &identity(&home.join("owner"))?.pid().to_string()]);
            must(kill).await?;
        } else {
            must(cluster(folder.path(), &["down"])?).await?;
            compare(&before, &state()?).context("after `make cluster-down`")?;
        }
        eventually("the machine is as before", LIMIT, || async {
            let left = processes_in(&namespace)?;
            if !left.is_empty() {
                bail!("processes of the node: {left:?}");
            }
            compare(&before, &state()?)
        })
        .await?;
        report(
            if killed { "gone after its owner was killed" } else { "gone after `make cluster-down`" },
            started,
        );
    }
    Ok(())
}
