//! `olm-kit`: what the Makefile runs. The demo, a cluster to play with, a real node, the test run and the acceptance lab.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The local cluster, the demo and the test run of olm-rs. Each command is a make target; see `make help`.
#[derive(Debug, Parser)]
#[command(name = "olm-kit")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A control plane and a registry that stay until `cluster down`
    Cluster {
        #[command(subcommand)]
        action: cli::cluster::Action,
    },
    /// A real node with a control plane and a registry, in namespaces of its own
    Node {
        #[command(subcommand)]
        action: cli::node::Action,
    },
    /// Install, query, upgrade, roll back: the main job on a cluster of its own
    Demo {
        /// end after the last step (exit code 0 only if every step had the expected outcome)
        #[arg(long)]
        oneshot: bool,
        /// show this catalog instead of the sample: an image, or a folder with a file-based catalog
        #[arg(long)]
        catalog: Option<String>,
        /// OLM Classic instead: a Subscription with a dependency, approved and upgraded by hand
        #[arg(long, conflicts_with = "catalog")]
        classic: bool,
    },
    /// End a running demo
    DemoDown,
    /// Build and run the tests of a tier, with one control plane for all of them, and sum up
    Test {
        /// which tests
        tier: cli::test::Tier,
    },
    /// Run the acceptance lab and compare with what passed before
    Acceptance(cli::acceptance::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Cluster { action } => cli::cluster::run(action).await,
        Command::Node { action } => cli::node::run(action).await,
        Command::Demo { oneshot, classic: true, .. } => cli::classic_demo::run(oneshot).await,
        Command::Demo { oneshot, catalog, classic: false } => {
            cli::demo::run(oneshot, catalog.as_deref()).await
        }
        Command::DemoDown => cli::demo::down(),
        Command::Test { tier } => cli::test::run(tier).await,
        Command::Acceptance(arguments) => cli::acceptance::run(&arguments).await,
    };
    match outcome {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("error: {problem:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn args_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn args_of_the_makefile_are_accepted() {
        #[rustfmt::skip]
        let lines = [
            "cluster up", "cluster up --node real", "cluster down", "node check", "demo", "demo --oneshot", "demo --catalog ./catalog",
            "demo --oneshot --classic", "demo-down", "test core", "test rest",
            "node run -- cargo test --workspace --test node -- --nocapture",
            "node run --kubeconfig k -- cargo test --workspace --test node -- --nocapture",
            "acceptance --python python3 --programs target/debug --rbac",
            "acceptance --python python3 --programs target/debug --only t01 --jobs 4 --update --save target/lab --rbac",
        ];
        for line in lines {
            let words = ["olm-kit"].into_iter().chain(line.split(' '));
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{line}: {error}");
            }
        }
    }
}
