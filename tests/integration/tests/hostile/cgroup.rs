//! A memory cgroup with a limit, of version 1 or 2, and the highest resident size of a process.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const MOUNT: &str = "/sys/fs/cgroup";

/// A cgroup of this test's own, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryCgroup {
    dir: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl MemoryCgroup {
    /// `None` where this process may not create one.
    pub(crate) fn create(name: &str, limit: u64) -> Option<Self> {
        let name = olm_kit::unique(name);
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path_of = |controller: &str| {
            let line = own.lines().find(|line| {
                let mut fields = line.split(':');
                fields.nth(1).is_some_and(|names| names.split(',').any(|name| name == controller))
            });
            line.and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or("/").to_owned()
        };
        let one = Path::new(MOUNT).join("memory");
        let candidates = [
            (Version::One, below(&one, &path_of("memory"))),
            (Version::One, one),
            (Version::Two, below(Path::new(MOUNT), &path_of(""))),
            (Version::Two, PathBuf::from(MOUNT)),
        ];
        candidates.into_iter().find_map(|(version, parent)| Self::create_in(version, &parent, &name, limit))
    }

    fn create_in(version: Version, parent: &Path, name: &str, limit: u64) -> Option<Self> {
        let (limit_file, marker) = match version {
            Version::One => ("memory.limit_in_bytes", "memory.limit_in_bytes"),
            Version::Two => ("memory.max", "cgroup.controllers"),
        };
        if !parent.join(marker).exists() {
            return None;
        }
        if version == Version::Two {
            // already there, or refused: then the limit cannot be written
            let _ = std::fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        let dir = parent.join(name);
        std::fs::create_dir(&dir).ok()?;
        let group = Self { dir, version };
        std::fs::write(group.dir.join(limit_file), limit.to_string()).ok()?;
        if version == Version::Two {
            let _ = std::fs::write(group.dir.join("memory.swap.max"), "0");
        }
        Some(group)
    }

    /// A process joins by writing its id into this file.
    pub(crate) fn processes(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// How often the kernel killed a process of the group because of the limit.
    pub(crate) fn kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or_default()
    }

    /// For the summary.
    pub(crate) fn describe(&self) -> &'static str {
        match self.version {
            Version::One => "memory cgroup v1",
            Version::Two => "memory cgroup v2",
        }
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // refused while a process is in it: the kit's watchdog ends those later
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// Makes the kernel measure the highest resident size of a process from now on.
pub(crate) fn reset_peak(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The limit is one: a process beyond it is killed, and counted.
    #[test]
    fn cgroup_kills_a_process_beyond_its_limit() -> Result<()> {
        let Some(group) = MemoryCgroup::create("hostile-self-test", 32 << 20) else {
            crate::report::log(
                "SKIPPED: no memory cgroup can be created here; resident sizes are compared instead",
            );
            return Ok(());
        };
        // `tail` keeps the only line of its input
        let script = "echo $$ >\"$0\" && head -c 100M /dev/zero | tail -c 100M | wc -c";
        let output = Command::new("sh").arg("-c").arg(script).arg(group.processes()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.trim() != (100_u64 << 20).to_string(), "nothing was killed");
        assert!(group.kills() > 0, "{group:?}");
        Ok(())
    }
}
