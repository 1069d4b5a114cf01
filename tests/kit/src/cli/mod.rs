//! The commands of the program, and what they share: output, folders of long-running programs, signals.

pub(crate) mod acceptance;
pub(crate) mod classic_demo;
pub(crate) mod cluster;
pub(crate) mod demo;
mod environment;
pub(crate) mod node;
pub(crate) mod test;

use std::fmt::Display;
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use olm_kit::{ForeignProcess, Process, repository};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Writes a line to standard output; a closed pipe is no reason to fail.
pub(crate) fn print_line(line: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints what a process takes.
pub(crate) fn print_usage(process: &Process) -> Result<()> {
    let (name, memory, cpu) = (process.name(), process.memory()?, process.cpu()?.as_secs_f64());
    let (resident, peak) = (memory.resident >> 20, memory.peak >> 20);
    print_line(format_args!(
        "{name:<20} {resident:>4} MiB resident, {peak:>4} MiB at most, {cpu:.1} s of processor time"
    ));
    Ok(())
}

/// Runs one step of several and prints how long it took.
pub(crate) async fn step<T>(
    number: usize,
    of: usize,
    what: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let started = Instant::now();
    {
        let mut out = std::io::stdout().lock();
        let _ = write!(out, "[{number}/{of}] {what} …").and_then(|()| out.flush());
    }
    let outcome = work.await;
    let word = if outcome.is_ok() { "" } else { " failed after" };
    print_line(format_args!("{word} {:.1} s", started.elapsed().as_secs_f64()));
    outcome
}

/// The folder of a program that runs until it is stopped, with the identity of its owner in it.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
}

impl Home {
    /// `<repository>/.run/<name>`, or below `OLM_RUN_DIR`.
    pub(crate) fn named(name: &str) -> Self {
        let base = match std::env::var_os("OLM_RUN_DIR").filter(|dir| !dir.is_empty()) {
            Some(dir) => PathBuf::from(dir),
            None => repository().join(".run"),
        };
        Self { path: base.join(name) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The process that runs here, if it still does.
    pub(crate) fn owner(&self) -> Option<ForeignProcess> {
        let text = std::fs::read_to_string(self.path.join("owner")).ok()?;
        ForeignProcess::parse(&text).filter(|owner| owner.runs())
    }

    /// Takes the folder: fails when a process runs here, and removes what an earlier run left.
    pub(crate) fn take(&self) -> Result<()> {
        if let Some(owner) = self.owner() {
            bail!("{} is in use (process {owner})", self.path.display());
        }
        match std::fs::remove_dir_all(&self.path) {
            Err(problem) if problem.kind() != std::io::ErrorKind::NotFound => {
                return Err(problem).with_context(|| format!("cannot remove {}", self.path.display()));
            }
            _ => {}
        }
        std::fs::create_dir_all(&self.path)
            .with_context(|| format!("cannot create {}", self.path.display()))?;
        std::fs::write(self.path.join("owner"), ForeignProcess::me()?.to_string())?;
        Ok(())
    }

    /// Ends the process that runs here; false when there is none.
    pub(crate) fn stop(&self) -> Result<bool> {
        let Some(owner) = self.owner() else { return Ok(false) };
        if !owner.stop(Duration::from_secs(60)) {
            bail!("process {owner} did not end within 60 s");
        }
        Ok(true)
    }
}

/// The signal that asked this process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupted(pub(crate) u8);

/// Resolves at INT, TERM or HUP.
pub(crate) async fn interruption() -> Result<Interrupted> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(Interrupted(tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
        _ = hang_up.recv() => 1,
    }))
}

/// A program with all that it starts, in a process group of its own. Dropped before its end, the whole group gets TERM, and
/// the program up to 30 s to end what it started itself.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
}

impl Group {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        Ok(Self { child: command.process_group(0).spawn()? })
    }

    /// Its standard output, when it was piped.
    pub(crate) fn stdout(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().context("its output is not piped")
    }

    pub(crate) async fn wait(&mut self) -> Result<std::process::ExitStatus> {
        Ok(self.child.wait().await?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // `id` is absent once it was reaped; until then the number cannot belong to another process
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process_group(pid, Signal::TERM);
            olm_kit::wait_for_exit(pid.as_raw_nonzero().get().cast_unsigned(), Duration::from_secs(30));
        }
    }
}
