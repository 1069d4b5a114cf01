//! `cluster up|down|status`: a control plane and a registry for playing with, kept by a process of their own.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use olm_kit::{Ca, Cluster, ForeignProcess, Options, Registry, Tools, eventually, node, repository};

use super::node::{inside, needs};
use super::{Home, interruption, print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Start (or show what runs)
    Up {
        /// the node of a new cluster
        #[arg(long, default_value = "emulated")]
        node: Kind,
    },
    /// Stop
    Down,
    /// Show what runs; exit code 1 when nothing does
    Status,
    /// Keep it in the foreground
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        node: Kind,
    },
}

/// What runs pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// kwok: pods become Ready, nothing is executed
    Emulated,
    /// kubelet and containerd, in namespaces of their own (root on Linux)
    Real,
}

pub(crate) async fn run(action: Action) -> Result<ExitCode> {
    let home = Home::named("cluster");
    match action {
        Action::Up { node } => up(&home, node).await,
        Action::Status => Ok(if show(&home)? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Action::Serve { node: Kind::Emulated } => serve(&home).await,
        Action::Serve { node: Kind::Real } => serve_real(&home).await,
        Action::Down => {
            print_line(if home.stop()? {
                "the local cluster is stopped"
            } else {
                "no local cluster is running"
            });
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn up(home: &Home, node: Kind) -> Result<ExitCode> {
    if home.owner().is_none() {
        if node == Kind::Real
            && let Some(needs) = needs()
        {
            bail!("{needs}");
        }
        // found (or built) here, where its progress can be seen
        let tools = Tools::locate()?;
        let ready = home.path().join("ready");
        // the file of a run that was killed is not about the new one
        let _ = std::fs::remove_file(&ready);
        let log_dir = home.path().parent().context("no parent folder")?;
        std::fs::create_dir_all(log_dir)?;
        let log_path = log_dir.join("cluster.log");
        let log = File::create(&log_path)?;
        let mut server = Command::new(std::env::current_exe()?)
            .args(["cluster", "serve", "--node"])
            .arg(node.to_possible_value().context("no name")?.get_name())
            .env("OLM_TOOLS", tools.bin())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let started = eventually("the local cluster is up", Duration::from_secs(180), || {
            let state = server.try_wait().map(|it| it.is_some()).unwrap_or(true) || ready.is_file();
            async move { if state { Ok(()) } else { bail!("starting") } }
        })
        .await;
        if started.is_err() || !ready.is_file() {
            let _ = server.kill();
            bail!(
                "the local cluster did not start:\n{}",
                std::fs::read_to_string(&log_path).unwrap_or_default()
            );
        }
    }
    show(home)?;
    Ok(ExitCode::SUCCESS)
}

fn show(home: &Home) -> Result<bool> {
    let ready = home.path().join("ready");
    let (Some(_), Ok(registry)) = (home.owner(), std::fs::read_to_string(ready)) else {
        print_line("no local cluster is running; `make cluster-up` starts one");
        return Ok(false);
    };
    let process_1 = std::fs::read_to_string(home.path().join(PROCESS_1)).ok();
    let process_1 = process_1.and_then(|text| ForeignProcess::parse(&text));
    let state = process_1.map_or_else(|| home.path().to_owned(), |_| state(home));
    let tools = Tools::locate()?;
    let kubeconfig = state.join("control-plane/kubeconfig");
    print_line(format_args!(
        "registry: {} (certificates of {})",
        registry.trim(),
        state.join("ca/ca.crt").display()
    ));
    print_line(format_args!("logs:     {}", state.join("control-plane/logs").display()));
    print_line(format_args!("programs: {}", tools.bin().display()));
    match process_1 {
        None => print_line(format_args!("export KUBECONFIG={}", kubeconfig.display())),
        Some(process_1) => print_line(format_args!(
            "enter it: nsenter -t {} -m -n -p env KUBECONFIG={} PATH={}:\"$PATH\" bash",
            process_1.pid(),
            kubeconfig.display(),
            tools.bin().display()
        )),
    }
    Ok(true)
}

/// The file with process 1 of a real node.
const PROCESS_1: &str = "process-1";

fn state(home: &Home) -> std::path::PathBuf {
    home.path().join("node")
}

/// [`serve`] with a real node: the programs are inside its namespaces, and those end with this process.
async fn serve_real(home: &Home) -> Result<ExitCode> {
    home.take()?;
    let stopped = interruption();
    let work = async {
        let command = inside(&state(home), Some(&home.path().join("ready")), &[])?;
        let mut namespaces = node::Namespaces::start(&state(home), &command).await?;
        std::fs::write(home.path().join(PROCESS_1), namespaces.process_1().to_string())?;
        let status = namespaces.wait().await?;
        bail!("the node ended: {status}")
    };
    tokio::select! {
        outcome = work => outcome,
        signal = stopped => signal.map(|_| ExitCode::SUCCESS),
    }
}

/// Everything is owned by this process: it stops with it, however it ends.
async fn serve(home: &Home) -> Result<ExitCode> {
    home.take()?;
    let stopped = interruption();
    let work = async {
        let ca = Ca::create(home.path(), "olm-rs local cluster")?;
        let options = Options { dir: Some(home.path().join("control-plane")), ..Options::default() };
        let registry_dir = home.path().join("registry");
        let (cluster, registry) = tokio::try_join!(
            Cluster::start_with(&options),
            Registry::launch(&ca, Some(&registry_dir), false)
        )?;
        if repository().join("manifests/crds").is_dir() {
            cluster.install_olm().await?;
        }
        std::fs::write(home.path().join("ready"), registry.address())?;
        std::future::pending::<()>().await;
        drop((cluster, registry));
        Ok(())
    };
    tokio::select! {
        outcome = work => outcome.map(|()| ExitCode::SUCCESS),
        signal = stopped => signal.map(|_| ExitCode::SUCCESS),
    }
}
