//! `node check|run`: a real node for the time of a command, inside its namespaces.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use olm_kit::node::{self, Namespaces, RealNode};
use olm_kit::{RunDir, Tools, shared_material};

use super::{interruption, print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Report what this machine lacks; exit code 2 when something is missing, 1 when it must not be
    Check,
    /// Start a node, run a command inside, and end both
    Run {
        /// start no node but a registry at 10.240.0.1:5000, and run the command here, for the node of this cluster
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// The process inside the namespaces that starts the programs
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        state: PathBuf,
        /// the file to write the registry's address to
        #[arg(long)]
        ready: Option<PathBuf>,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
}

pub(crate) async fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Check => Ok(check()),
        Action::Run { kubeconfig: None, command } => run_inside(&command).await,
        Action::Run { kubeconfig: Some(file), command } => run_beside(&file, &command).await,
        Action::Serve { state, ready, command } => serve(&state, ready.as_deref(), &command).await,
    }
}

/// What a real node needs and this machine lacks, in one line.
pub(crate) fn needs() -> Option<String> {
    let missing = node::missing();
    (!missing.is_empty()).then(|| format!("a real node needs {}", missing.join(", ")))
}

fn check() -> ExitCode {
    let Some(needs) = needs() else { return ExitCode::SUCCESS };
    print_line(format_args!("SKIPPED: {needs}"));
    if shared_material().is_some() {
        print_line("FAILED: tests were skipped although the shared reference material is there");
        return ExitCode::FAILURE;
    }
    ExitCode::from(2)
}

/// The command that [`Namespaces`] run: this program.
pub(crate) fn inside(state: &Path, ready: Option<&Path>, command: &[OsString]) -> Result<Vec<OsString>> {
    let mut line: Vec<OsString> = vec![std::env::current_exe()?.into()];
    line.extend(["node", "serve", "--state"].map(OsString::from));
    line.push(state.into());
    if let Some(ready) = ready {
        line.extend(["--ready".into(), ready.into()]);
    }
    if !command.is_empty() {
        line.push("--".into());
        line.extend_from_slice(command);
    }
    Ok(line)
}

async fn run_inside(command: &[OsString]) -> Result<ExitCode> {
    if let Some(needs) = needs() {
        bail!("{needs}");
    }
    // found (or built) here: inside there is no network
    let tools = Tools::locate()?;
    for program in ["containerd", "coredns", "kubelet", "pause"] {
        tools.program(program)?;
    }
    let stopped = interruption();
    let state = RunDir::new("node")?;
    let mut namespaces = Namespaces::start(state.path(), &inside(state.path(), None, command)?).await?;
    tokio::select! {
        status = namespaces.wait() => Ok(code(status?)),
        signal = stopped => Ok(ExitCode::from(128 + signal?.0)),
    }
}

async fn serve(state: &Path, ready: Option<&Path>, command: &[OsString]) -> Result<ExitCode> {
    let started = Instant::now();
    let node = RealNode::start(state).await?;
    let seconds = started.elapsed().as_secs_f64();
    print_line(format_args!(
        "a real node is Ready after {seconds:.1} s; its files are in {}",
        state.display()
    ));
    if let Some(ready) = ready {
        std::fs::write(ready, node.registry().address())?;
    }
    if command.is_empty() {
        std::future::pending::<()>().await;
    }
    let status = finish(command, state).await?;
    if !status.success() {
        eprintln!("{}", node.log_ends());
    }
    Ok(code(status))
}

/// Runs the command for the node of another cluster.
async fn run_beside(kubeconfig: &Path, command: &[OsString]) -> Result<ExitCode> {
    let stopped = interruption();
    let state = RunDir::new("node")?;
    let _registry = node::registry_for(kubeconfig, state.path()).await?;
    tokio::select! {
        status = finish(command, state.path()) => Ok(code(status?)),
        signal = stopped => Ok(ExitCode::from(128 + signal?.0)),
    }
}

/// Runs a command that uses a node until it ends.
async fn finish(command: &[OsString], state: &Path) -> Result<ExitStatus> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut run = tokio::process::Command::from(node::command(program, state)?);
    let status = run.args(arguments).kill_on_drop(true).status().await;
    status.with_context(|| format!("cannot run {}", program.display()))
}

fn code(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
