//! `kubectl olm`: queries, explains and checks with the same code that the controllers decide with.
//!
//! Reading verbs query a cluster (through catalogd), a catalog image or a directory; verbs for authors work on files.
//!
//! Exit codes: 0 yes or fine, 1 no, not found or findings, 2 bad input, 3 the cluster, catalogd or a registry gave no answer.
//!
//! A library only so that the reference of its flags can be made from their definitions.

mod bundle_source;
mod cmd;
mod draw;
mod dry_run;
mod extensions;
mod failure;
mod kinds;
mod live;
mod remedy;
mod similar;
mod sources;
mod terminal;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::cmd::{
    act, bundle, catalog, completion, config, crd, diff, graph, image, list, paths, plan, rbac, search,
    semver, show, simulate, status, upgrade_check, versions, why,
};
use crate::failure::{CommandError, wait};

/// Ask, explain and check what OLM does.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-olm",
    bin_name = "kubectl olm",
    version,
    after_help = "Exit codes: 0 yes or fine, 1 no, not found or findings, 2 bad input, 3 the cluster, catalogd or a registry gave no answer."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List packages of catalogs
    Search(search::Arguments),
    /// Show what a package offers: channels, versions, APIs, images
    Show(Box<show::Arguments>),
    /// List the versions of a package
    Versions(versions::Arguments),
    /// Say which bundle would be chosen for a package
    Resolve(why::Resolve),
    /// Say which bundle is chosen for a ClusterExtension, and why not another one
    Explain(why::Explain),
    /// List ClusterExtensions, how they are and what they could be upgraded to
    List(list::Arguments),
    /// Show a ClusterExtension with its revisions, objects and pods
    Status(status::Arguments),
    /// Say whether installed bundles stand in the way of an update of an OpenShift cluster
    UpgradeCheck(upgrade_check::Arguments),
    /// Install a package
    Install(Box<act::install::Arguments>),
    /// Say what the controller would do, by dry runs in the cluster
    Plan(Box<plan::Arguments>),
    /// Compare a ClusterExtension with the cluster, or two of its revisions
    Diff(diff::Arguments),
    /// Change which versions a ClusterExtension may have
    Upgrade(Box<act::upgrade::Arguments>),
    /// Go back to an earlier revision's version
    Rollback(Box<act::rollback::Rollback>),
    /// List the revisions of a ClusterExtension
    History(act::rollback::History),
    /// Delete a ClusterExtension
    Uninstall(act::uninstall::Arguments),
    /// Print the least roles for the service account of a ClusterExtension
    Rbac(rbac::Arguments),
    /// Check catalogs
    #[command(subcommand)]
    Catalog(catalog::Verb),
    /// Look into bundles
    #[command(subcommand)]
    Bundle(bundle::Verb),
    /// Check images
    #[command(subcommand)]
    Image(image::Verb),
    /// Say how a bundle can be configured, and check a configuration
    #[command(subcommand)]
    Config(config::Verb),
    /// Compare CustomResourceDefinitions
    #[command(subcommand)]
    Crd(crd::Verb),
    /// Draw the upgrade graph of a package
    Graph(Box<graph::Arguments>),
    /// Say how an installed version gets to another one, by v1's rules and by OLM Classic's
    Paths(Box<paths::Arguments>),
    /// Try versions against ranges
    #[command(subcommand)]
    Semver(semver::Verb),
    /// Answer the questions of a scenario file with the resolver
    Simulate(simulate::Arguments),
    /// Print a completion script for a shell
    Completion(completion::Arguments),
}

/// The result of a verb: its output, and whether it succeeded.
struct CommandOutput {
    text: String,
    yes: bool,
}

/// The definitions of all verbs and flags.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    match wait(execute(&Cli::parse().verb)) {
        // a reader that closes the pipe early, like `head`, is no error
        Ok(answer) => {
            match std::io::stdout().lock().write_all(terminal::printable(&answer.text).as_bytes()) {
                Ok(()) if answer.yes => ExitCode::SUCCESS,
                _ => ExitCode::from(1),
            }
        }
        Err(failure) => print_failure(&failure),
    }
}

async fn execute(verb: &Verb) -> Result<CommandOutput, CommandError> {
    match verb {
        Verb::Search(arguments) => search::run(arguments).await,
        Verb::Show(arguments) => show::run(arguments).await,
        Verb::Versions(arguments) => versions::run(arguments).await,
        Verb::Resolve(arguments) => why::resolve(arguments).await,
        Verb::Explain(arguments) => why::explain(arguments).await,
        Verb::List(arguments) => list::run(arguments).await,
        Verb::Status(arguments) => status::run(arguments).await,
        Verb::UpgradeCheck(arguments) => upgrade_check::run(arguments).await,
        Verb::Install(arguments) => act::install::run(arguments).await,
        Verb::Plan(arguments) => plan::run(arguments).await,
        Verb::Diff(arguments) => diff::run(arguments).await,
        Verb::Upgrade(arguments) => act::upgrade::run(arguments).await,
        Verb::Rollback(arguments) => act::rollback::rollback(arguments).await,
        Verb::History(arguments) => act::rollback::history(arguments).await,
        Verb::Uninstall(arguments) => act::uninstall::run(arguments).await,
        Verb::Rbac(arguments) => rbac::run(arguments).await,
        Verb::Catalog(verb) => catalog::run(verb).await,
        Verb::Bundle(verb) => bundle::run(verb).await,
        Verb::Image(verb) => image::run(verb).await,
        Verb::Config(verb) => config::run(verb).await,
        Verb::Crd(verb) => crd::run(verb).await,
        Verb::Graph(arguments) => graph::run(arguments).await,
        Verb::Paths(arguments) => paths::run(arguments).await,
        Verb::Semver(verb) => semver::run(verb, std::io::stdin().lock()),
        Verb::Simulate(arguments) => simulate::run(arguments),
        Verb::Completion(arguments) => Ok(completion::run(arguments)),
    }
}

#[expect(clippy::print_stderr, reason = "where users look for errors")]
fn print_failure(failure: &CommandError) -> ExitCode {
    match failure {
        CommandError::Verdict { text, help } => {
            // standard output may be closed; the exit code stays the same
            let _ = writeln!(std::io::stdout().lock(), "{}", terminal::printable(text));
            if let Some(help) = help {
                eprintln!("{}", terminal::harmless(help));
            }
        }
        other => eprintln!("error: {}", terminal::harmless(&other.to_string())),
    }
    ExitCode::from(failure.code())
}

#[cfg(test)]
mod tests {
    #[test]
    fn cli_arguments_are_consistent() {
        super::definition().debug_assert();
    }
}
