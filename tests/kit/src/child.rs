//! Child processes that never outlive this one.
//!
//! Three ways end a child: [`Child::stop`] (TERM, then KILL), dropping it (KILL, also while a test panics), and the
//! *watchdog*. The watchdog is one `/bin/sh` per process that uses this crate. It knows the pid and start time of every
//! running child and waits for the end of its standard input. That pipe closes when this process ends, whatever ended it
//! (a `static` that is never dropped, an abort, KILL), and the watchdog then kills what is left and removes the temporary
//! folders. It sits in its own process group, so that Ctrl-C in a terminal does not end it first.
//!
//! A pid is only signalled through [`std::process::Child`] or together with its start time: a reused pid is never hit.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

/// Commands on standard input: `+ <pid> <start time>`, `- <pid>`, `d <folder to remove at the end>`, `g <cgroups to remove at the
/// end, in each hierarchy>`.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP QUIT
pids=' '
dirs=
groups=
newline='
'
while read -r op rest; do
  case $op in
    +) pids="$pids${rest% *}:${rest#* } " ;;
    -) kept=' '
       for p in $pids; do [ "${p%%:*}" = "$rest" ] || kept="$kept$p "; done
       pids=$kept ;;
    d) dirs="$dirs$rest$newline" ;;
    g) groups="$groups$rest$newline" ;;
  esac
done
for p in $pids; do
  pid=${p%%:*}
  read -r stat 2>/dev/null </proc/"$pid"/stat || continue
  set -- ${stat##*) }
  [ "${20}" = "${p#*:}" ] && kill -KILL "$pid" 2>/dev/null
done
IFS=$newline
for group in $groups; do
  case $group in olm-kit-*) ;; *) continue ;; esac
  # the processes in them need a moment to end
  for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=
    for dir in /sys/fs/cgroup/"$group" /sys/fs/cgroup/*/"$group"; do
      [ -d "$dir" ] || continue
      find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null
      [ ! -d "$dir" ] || left=1
    done
    [ -n "$left" ] || break
    sleep 0.5
  done
done
for dir in $dirs; do
  case $dir in */olm-kit-*) rm -rf -- "$dir" ;; esac
done
"#;

static WATCHDOG_INPUT: OnceLock<Mutex<Option<ChildStdin>>> = OnceLock::new();

/// Sends the watchdog one line; starts it at first use. A missing watchdog is an error only for `+`.
fn watchdog(line: &str) -> Result<()> {
    let input = WATCHDOG_INPUT.get_or_init(|| {
        let started = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "olm-kit-watchdog"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn();
        Mutex::new(started.ok().and_then(|mut child| child.stdin.take()))
    });
    let mut input = input.lock();
    let pipe = input.as_mut().context("the watchdog shell /bin/sh did not start")?;
    pipe.write_all(format!("{line}\n").as_bytes()).context("the watchdog shell is gone")
}

/// Has `dir` removed when this process ends without removing it. Only folders named `olm-kit-…` are ever removed.
pub(crate) fn remove_at_end(dir: &Path) -> Result<()> {
    watchdog(&format!("d {}", dir.display()))
}

/// Has the cgroups of this name removed, in each hierarchy, when this process ends without removing them. Only names `olm-kit-…` are
/// ever removed.
pub(crate) fn remove_cgroups_at_end(name: &str) -> Result<()> {
    watchdog(&format!("g {name}"))
}

/// Has the process, a child of this one, killed when this one ends.
pub(crate) fn kill_at_end(pid: u32) -> Result<()> {
    watchdog(&format!("+ {pid} {}", start_time(pid)?))
}

/// Takes back [`kill_at_end`], once the process was reaped.
pub(crate) fn do_not_kill_at_end(pid: u32) {
    let _ = watchdog(&format!("- {pid}"));
}

/// One running program with its log file.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: std::process::Child,
    log: PathBuf,
    log_start: u64,
    exited: Option<ExitStatus>,
}

/// The memory of a process by `/proc`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// resident now
    pub resident: u64,
    /// of it what no file backs: heaps and stacks
    pub anonymous: u64,
    /// the highest resident so far
    pub peak: u64,
}

/// The resources that a process holds at an instant, by `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// resident memory, in bytes
    pub resident: u64,
    /// of it what no file backs: heaps and stacks
    pub anonymous: u64,
    /// open file descriptors
    pub files: usize,
    pub threads: usize,
}

impl Holding {
    /// What this process holds now; an error when it has ended.
    pub fn read(pid: u32) -> Result<Self> {
        let count = |what: &str| -> Result<usize> {
            let path = format!("/proc/{pid}/{what}");
            Ok(std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count())
        };
        Ok(Self {
            resident: status_bytes(pid, "VmRSS:")?,
            anonymous: status_bytes(pid, "RssAnon:")?,
            files: count("fd")?,
            threads: count("task")?,
        })
    }
}

impl Child {
    /// Starts `command`, in its own process group, with standard output and error appended to `log`.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        if let Some(parent) = log.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        let log_start = file.metadata().map_or(0, |meta| meta.len());
        let process = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.get_program().display()))?;
        let mut child = Self { name: name.to_owned(), process, log: log.to_owned(), log_start, exited: None };
        let registered =
            start_time(child.pid()).and_then(|start| watchdog(&format!("+ {} {start}", child.pid())));
        if let Err(problem) = registered {
            child.kill();
            bail!("{problem:#}; {}", child.describe_end());
        }
        Ok(child)
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The log file; a restarted program appends to it.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The exit status if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.exited.is_none()
            && let Ok(Some(status)) = self.process.try_wait()
        {
            self.note_exit(status);
        }
        self.exited
    }

    /// Sends TERM, waits up to `grace`, then KILL. Blocks; returns how it ended.
    pub fn stop(&mut self, grace: Duration) -> Option<ExitStatus> {
        if self.exited().is_some() {
            return self.exited;
        }
        self.signal(Signal::TERM);
        if !self.wait(grace) {
            self.kill();
        }
        self.exited
    }

    /// Sends TERM (or another signal) without waiting.
    pub fn signal(&mut self, signal: Signal) {
        // not yet reaped, so the pid is still ours
        if self.exited().is_none()
            && let Some(pid) = Pid::from_raw(self.process.id().cast_signed())
        {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Stops it in the middle of what it does.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets it continue when it is frozen.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends KILL and reaps.
    pub fn kill(&mut self) {
        if self.exited().is_none() {
            let _ = self.process.kill();
            if let Ok(status) = self.process.wait() {
                self.note_exit(status);
            }
        }
    }

    /// Waits for its end; false when it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> bool {
        if self.exited().is_some() {
            return true;
        }
        wait_for_exit(self.pid(), limit);
        self.exited().is_some()
    }

    /// Resident memory.
    pub fn memory(&self) -> Result<Memory> {
        let field = |key| status_bytes(self.pid(), key).with_context(|| self.name.clone());
        Ok(Memory { resident: field("VmRSS:")?, anonymous: field("RssAnon:")?, peak: field("VmHWM:")? })
    }

    /// Processor time used so far, user and system.
    pub fn cpu(&self) -> Result<Duration> {
        let fields = stat_fields(self.pid())?;
        let ticks: u64 = [11, 12].iter().filter_map(|&at| fields.get(at)?.parse::<u64>().ok()).sum();
        // Linux reports these in USER_HZ, which is 100 on every platform that runs this
        Ok(Duration::from_millis(ticks * 10))
    }

    /// The last `lines` lines that this start wrote to its log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, self.log_start, lines)
    }

    /// Everything that this start wrote to its log.
    pub fn log_text(&self) -> String {
        tail(&self.log, self.log_start, usize::MAX)
    }

    /// One paragraph for an error message: how it ended and the end of its log.
    pub fn describe_end(&mut self) -> String {
        let state = match self.exited() {
            Some(status) => format!("{} ended with {status}", self.name),
            None => format!("{} is still running", self.name),
        };
        format!("{state}; end of its log {}:\n{}", self.log.display(), self.log_tail(30))
    }

    fn note_exit(&mut self, status: ExitStatus) {
        self.exited = Some(status);
        let _ = watchdog(&format!("- {}", self.process.id()));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last `lines` lines of the file `path` from byte `start` on; at most 256 KiB are read unless all is asked for.
pub fn tail(path: &Path, start: u64, lines: usize) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let from = if lines == usize::MAX { start } else { start.max(length.saturating_sub(256 * 1024)) };
        file.seek(SeekFrom::Start(from.min(length)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|problem| format!("(cannot read {}: {problem})", path.display()));
    if lines == usize::MAX {
        return text;
    }
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A process that is not our child, distinguished from a later one with the same pid by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignProcess {
    pid: u32,
    start: u64,
}

impl ForeignProcess {
    /// This very process, to be written to a file that [`ForeignProcess::parse`] reads.
    pub fn me() -> Result<Self> {
        Self::with_pid(std::process::id())
    }

    /// Another process that runs now.
    pub fn with_pid(pid: u32) -> Result<Self> {
        Ok(Self { pid, start: start_time(pid)? })
    }

    /// The process id.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let (pid, start) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }

    /// Whether this very process still runs.
    pub fn runs(self) -> bool {
        start_time(self.pid).is_ok_and(|start| start == self.start)
    }

    /// Sends TERM and waits up to `limit`; true when it is gone.
    pub fn stop(self, limit: Duration) -> bool {
        let Some(pid) = Pid::from_raw(self.pid.cast_signed()) else { return true };
        // the handle is taken first, the identity checked after: from then on the pid cannot change hands
        let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return true };
        if !self.runs() {
            return true;
        }
        let _ = rustix::process::pidfd_send_signal(&handle, Signal::TERM);
        wait_for_exit(self.pid, limit);
        !self.runs()
    }
}

impl std::fmt::Display for ForeignProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.pid, self.start)
    }
}

/// Blocks until the process has ended, at most `limit`.
pub fn wait_for_exit(pid: u32, limit: Duration) {
    let Some(pid) = Pid::from_raw(pid.cast_signed()) else { return };
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let _ = rustix::event::poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit));
}

/// A size in `/proc/<pid>/status`, in bytes.
fn status_bytes(pid: u32, key: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("no process {pid}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .with_context(|| format!("no {key} for process {pid}"))
}

/// The fields of `/proc/<pid>/stat` after the command name; the first is the state (field 3 of proc(5)).
fn stat_fields(pid: u32) -> Result<Vec<String>> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("no process {pid}"))?;
    let (_, rest) = text.rsplit_once(") ").context("unreadable /proc stat line")?;
    Ok(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

/// The child of a process, the first one found; `None` when it has none.
pub(crate) fn first_child(parent: u32) -> Option<Result<ForeignProcess>> {
    let parent = parent.to_string();
    let pids =
        std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut children =
        pids.filter(|&pid: &u32| stat_fields(pid).is_ok_and(|fields| fields.get(1) == Some(&parent)));
    Some(ForeignProcess::with_pid(children.next()?))
}

/// Start time in clock ticks since boot; an ended process that is not reaped yet counts as gone.
fn start_time(pid: u32) -> Result<u64> {
    let fields = stat_fields(pid)?;
    if fields.first().is_some_and(|state| state == "Z" || state == "X") {
        bail!("process {pid} has ended");
    }
    fields.get(19).and_then(|field| field.parse().ok()).context("no start time in the /proc stat line")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path) -> Child {
        Child::spawn("sleeper", Command::new("sleep").arg("600"), &dir.join("log")).unwrap()
    }

    #[test]
    fn child_stops_with_term() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = sleeper(dir.path());
        assert!(child.exited().is_none());
        let status = child.stop(Duration::from_secs(5)).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    }

    #[test]
    fn child_that_ignores_term_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; echo up; while :; do sleep 0.05; done";
        let mut child =
            Child::spawn("stubborn", Command::new("sh").args(["-c", script]), &dir.path().join("log"))
                .unwrap();
        while child.log_text().is_empty() {
            std::thread::yield_now();
        }
        let status = child.stop(Duration::from_millis(200)).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[test]
    fn child_ends_with_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let (sender, receiver) = std::sync::mpsc::channel();
        let outcome = std::thread::spawn(move || {
            let child = sleeper(&path);
            sender.send(child.pid()).unwrap();
            panic!("on purpose");
        })
        .join();
        assert!(outcome.is_err());
        assert!(start_time(receiver.recv().unwrap()).is_err(), "the child still runs");
    }

    #[test]
    fn child_watchdog_kills_registered_processes_only() {
        let dir = tempfile::Builder::new().prefix("olm-kit-watchdog-test").tempdir().unwrap();
        let registered = Command::new("sleep").arg("600").spawn().unwrap();
        let released = Command::new("sleep").arg("600").spawn().unwrap();
        let reused = Command::new("sleep").arg("600").spawn().unwrap();
        let mut children = [registered, released, reused];
        let start = |at: usize| start_time(children[at].id()).unwrap();
        let mut lines = format!("+ {} {}\n", children[0].id(), start(0));
        lines += &format!("+ {} {}\n", children[1].id(), start(1));
        lines += &format!("+ {} {}\n", children[2].id(), start(2) - 1);
        lines += &format!("- {}\nd {}\n", children[1].id(), dir.path().display());
        let mut shell = Command::new("/bin/sh").args(["-c", WATCHDOG]).stdin(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success() || !dir.path().exists());
        assert!(!children[0].wait().unwrap().success());
        for child in &mut children[1..] {
            assert!(child.try_wait().unwrap().is_none(), "a process that was not registered was killed");
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!dir.path().exists());
    }

    #[test]
    fn child_foreign_process_is_identified_by_start_time() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let it = ForeignProcess { pid: child.id(), start: start_time(child.id()).unwrap() };
        assert_eq!(ForeignProcess::parse(&it.to_string()), Some(it));
        let other = ForeignProcess { start: it.start + 1, ..it };
        assert!(other.stop(Duration::ZERO), "a reused pid counts as gone");
        assert!(child.try_wait().unwrap().is_none(), "and is not signalled");
        assert!(it.runs());
        it.stop(Duration::from_secs(5));
        child.wait().unwrap();
        assert!(!it.runs());
    }

    #[test]
    fn child_memory_and_cpu_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let child = sleeper(dir.path());
        // until it sleeps it may not have touched any of its memory
        while stat_fields(child.pid()).unwrap().first().is_none_or(|state| state != "S") {
            std::thread::yield_now();
        }
        let memory = child.memory().unwrap();
        assert!(memory.resident > 0 && memory.peak >= memory.resident);
        assert!(child.cpu().unwrap() < Duration::from_secs(5));
        let held = Holding::read(child.pid()).unwrap();
        assert!(held.files >= 3 && held.threads == 1 && held.resident > held.anonymous, "{held:?}");
    }
}
