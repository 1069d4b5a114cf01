//! `classic`: namespaces of OLM Classic, from files or from a cluster.

mod objects;
mod resolve;

use clap::Subcommand;

use crate::CommandOutput;
use crate::failure::CommandError;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show what the Subscriptions of a namespace would install, or why they contradict each other
    Resolve(Box<resolve::Arguments>),
}

pub(crate) async fn run(verb: &Verb) -> Result<CommandOutput, CommandError> {
    match verb {
        Verb::Resolve(arguments) => resolve::run(arguments).await,
    }
}
