//! Entry point of operator-controller.

use std::process::ExitCode;

use clap::Parser as _;
use operator_controller::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(Command::Version) = cli.command {
        return version();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let ended = runtime.block_on(operator_controller::run::run(cli.serve));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of the process, where users look for it")]
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("Error: {error:#}");
    ExitCode::FAILURE
}

#[expect(clippy::print_stdout, reason = "the output that was asked for")]
fn version() -> ExitCode {
    let known = |value: Option<&'static str>| value.unwrap_or("unknown");
    println!(
        "version: {:?}, commit: {:?}, date: {:?}, state: {:?}",
        operator_controller::VERSION,
        known(option_env!("OLM_COMMIT")),
        known(option_env!("OLM_COMMIT_DATE")),
        known(option_env!("OLM_TREE_STATE")),
    );
    ExitCode::SUCCESS
}
