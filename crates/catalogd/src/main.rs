//! Entry point of catalogd.

use std::process::ExitCode;

use catalogd::args::{Cli, Command};
use clap::Parser;
use olm_runtime::process::{self, Build};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        // one Go-quoted string (catalogd §2.1)
        Some(Command::Version) => process::say(&format!("{:?}", Build::this().to_string().replace('"', ""))),
        None => {
            olm_runtime::memory::give_back();
            process::run(catalogd::run::run(cli.serve))
        }
    }
}
