//! `cluster up|down|status`: a control plane and a registry for playing with, kept by a process of their own.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use olm_kit::{Ca, Cluster, Options, Registry, Tools, eventually, repository};

use super::{Home, interruption, print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Start (or show what runs)
    Up,
    /// Stop
    Down,
    /// Show what runs; exit code 1 when nothing does
    Status,
    /// Keep it in the foreground
    #[command(hide = true)]
    Serve,
}

pub(crate) async fn run(action: Action) -> Result<ExitCode> {
    let home = Home::named("cluster");
    match action {
        Action::Up => up(&home).await,
        Action::Status => Ok(if show(&home)? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Action::Serve => serve(&home).await,
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

async fn up(home: &Home) -> Result<ExitCode> {
    if home.owner().is_none() {
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
            .args(["cluster", "serve"])
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
    print_line(format_args!(
        "registry: {} (certificates of {})",
        registry.trim(),
        home.path().join("ca/ca.crt").display()
    ));
    print_line(format_args!("logs:     {}", home.path().join("control-plane/logs").display()));
    print_line(format_args!("programs: {}", Tools::locate()?.bin().display()));
    print_line(format_args!("export KUBECONFIG={}", home.path().join("control-plane/kubeconfig").display()));
    Ok(true)
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
