//! `completion`: a script for the shell.

use clap::Args;
use clap_complete::Shell;

use crate::CommandOutput;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> CommandOutput {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::definition(), "kubectl-olm", &mut script);
    CommandOutput { text: String::from_utf8_lossy(&script).into_owned(), yes: true }
}
