//! The namespaces of a node, and what it leaves on the machine: cgroups and files. Everything else ends with process 1.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use super::{CGROUP, search_path};
use crate::{ForeignProcess, Tools, child, eventually, unique, wait_for_exit};

/// The namespaces, and that process 1 is killed with the program `unshare`.
pub(super) const FLAGS: [&str; 8] =
    ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"];
const INIT: &str = include_str!("init.sh");
/// How long the kernel may take to end everything.
const END: Duration = Duration::from_secs(30);
/// Folders that the namespaces cover with empty ones.
const COVERED: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Running namespaces. Dropping them ends every process inside and removes their cgroups; a watchdog does, should this process be
/// killed.
#[derive(Debug)]
pub struct Namespaces {
    unshare: Child,
    process_1: ForeignProcess,
    group: String,
    state: PathBuf,
}

impl Namespaces {
    /// Creates them and runs `command` inside. `state` is the folder of everything that the node writes.
    pub async fn start(state: &Path, command: &[OsString]) -> Result<Self> {
        let tools = Tools::locate()?.bin();
        for folder in command.iter().map(Path::new).chain([state, tools]) {
            if let Some(covered) = COVERED.iter().find(|covered| folder.starts_with(covered)) {
                bail!("{}: the namespaces of a node have a {covered} of their own", folder.display());
            }
        }
        std::fs::create_dir_all(state).with_context(|| format!("cannot create {}", state.display()))?;
        let init = state.join("init.sh");
        std::fs::write(&init, INIT).with_context(|| format!("cannot write {}", init.display()))?;
        let group = unique("olm-kit-node");
        child::remove_cgroups_at_end(&group)?;
        let mut unshare = Command::new("unshare")
            .args(FLAGS)
            .args(["--", "bash"])
            .arg(&init)
            .arg(state)
            .arg(&group)
            .args(command)
            .env("PATH", search_path())
            .env(CGROUP, &group)
            .env("OLM_TOOLS", tools)
            .kill_on_drop(true)
            .spawn()
            .context("cannot run unshare")?;
        let pid = unshare.id().context("unshare ended at its start")?;
        child::kill_at_end(pid)?;
        let process_1 = eventually("process 1 of the node", Duration::from_secs(10), || {
            let found = match unshare.try_wait() {
                Ok(None) => child::first_child(pid),
                ended => Some(Err(anyhow::anyhow!("unshare ended: {ended:?}"))),
            };
            async move { found.context("not yet started") }
        })
        .await??;
        Ok(Self { unshare, process_1, group, state: state.to_owned() })
    }

    /// Process 1, as the machine sees it: what `nsenter` enters.
    pub fn process_1(&self) -> ForeignProcess {
        self.process_1
    }

    /// Waits for the end of the command.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.unshare.wait().await?)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // absent once it was reaped
        let pid = self.unshare.id();
        let _ = self.unshare.start_kill();
        if self.process_1.runs() {
            wait_for_exit(self.process_1.pid(), END);
        }
        if let Some(pid) = pid {
            let _ = self.unshare.try_wait();
            child::do_not_kill_at_end(pid);
        }
        if let Err(problem) = remove_cgroups(&self.group) {
            eprintln!("{problem:#}");
        }
        // layers of images and volumes of pods; logs stay
        for folder in ["containerd", "kubelet", "tmp"] {
            let _ = std::fs::remove_dir_all(self.state.join(folder));
        }
    }
}

/// The existing folders of cgroups with this name.
pub(super) fn cgroups(name: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new("/sys/fs/cgroup");
    let mut found = vec![root.join(name)];
    for entry in std::fs::read_dir(root).context("cannot read /sys/fs/cgroup")? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name() != OsStr::new(name) {
            found.push(entry.path().join(name));
        }
    }
    found.retain(|folder| folder.is_dir());
    Ok(found)
}

fn remove_cgroups(name: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        let mut left = None;
        for folder in cgroups(name)? {
            if let Err(problem) = remove_tree(&folder) {
                left = Some(problem.context(format!("cannot remove the cgroup {}", folder.display())));
            }
        }
        match left {
            None => return Ok(()),
            Some(problem) if started.elapsed() > END => return Err(problem),
            // a process that was killed counts until it has ended
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Folders of cgroups hold files that cannot be removed one by one.
fn remove_tree(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    Ok(std::fs::remove_dir(folder)?)
}
