//! Entry point of cluster-operator.

use std::process::ExitCode;

use clap::Parser as _;
use cluster_operator::args::{Cli, Command};
use olm_runtime::process::{self, Build};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Version) => process::say(&Build::this().to_string()),
        None => process::run(cluster_operator::run::run(cli.serve)),
    }
}
