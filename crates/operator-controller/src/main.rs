//! Entry point of operator-controller.

use std::process::ExitCode;

use clap::Parser as _;
use olm_runtime::process::{self, Build};
use operator_controller::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Version) => process::say(&Build::this().to_string()),
        None => {
            olm_runtime::memory::give_back_of_few_heaps();
            process::run(operator_controller::run::run(cli.serve))
        }
    }
}
