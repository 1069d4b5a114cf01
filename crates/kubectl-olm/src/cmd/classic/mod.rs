//! `classic`: namespaces of OLM Classic, from files or from a cluster.

mod content;
mod graph;
mod objects;
mod plan;
mod resolve;
mod space;
mod status;

use clap::Subcommand;

use crate::CommandOutput;
use crate::failure::CommandError;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show what the Subscriptions of a namespace would install and why, or why they contradict each other
    Resolve(Box<resolve::Arguments>),
    /// Draw the upgrade graph of a package as the resolution of a namespace sees it
    Graph(Box<graph::Arguments>),
    /// Show the InstallPlan that a namespace would get: bundles, steps in order, approval
    Plan(Box<plan::Arguments>),
    /// Show the Subscriptions of a namespace: what they installed, what they wait for, edited Deployments, and what to do
    Status(Box<status::Arguments>),
}

pub(crate) async fn run(verb: &Verb) -> Result<CommandOutput, CommandError> {
    match verb {
        Verb::Resolve(arguments) => resolve::run(arguments).await,
        Verb::Graph(arguments) => graph::run(arguments).await,
        Verb::Plan(arguments) => plan::run(arguments).await,
        Verb::Status(arguments) => status::run(arguments).await,
    }
}
