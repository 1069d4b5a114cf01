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
mod help;
mod interrupt;
mod kinds;
mod live;
mod remedy;
mod rights;
mod similar;
mod sources;
#[cfg(test)]
mod stand_in;
mod terminal;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, ready};

use crate::cmd::output::cut;
use crate::cmd::{
    act, bundle, catalog, classic, complete, completion, config, crd, diff, graph, image, list, migrate,
    mirror, paths, plan, rbac, report, search, semver, show, simulate, status, upgrade_check, version,
    versions, why,
};
use crate::failure::{CommandError, print_note, print_result, wait};

/// Characters of an error message: a file without line breaks may be quoted in it.
const MAX_ERROR: usize = 8000;

/// Install, explain and check what OLM does.
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
    /// Show which bundle would be chosen for a package
    Resolve(why::Resolve),
    /// Show which bundle is chosen for a ClusterExtension, and why not another one
    Explain(why::Explain),
    /// List ClusterExtensions, how they are and what they could be upgraded to
    List(list::Arguments),
    /// List what has a newer version, and why it is not installed
    Outdated(list::Outdated),
    /// Show a ClusterExtension with its revisions, objects and pods
    Status(status::Arguments),
    /// Check whether installed bundles stand in the way of an update of an OpenShift cluster
    UpgradeCheck(upgrade_check::Arguments),
    /// Install a package
    Install(Box<act::install::Arguments>),
    /// Show what the controller would do, by dry runs in the cluster
    Plan(Box<plan::Arguments>),
    /// Compare a ClusterExtension with the cluster, or two of its revisions
    Diff(diff::Arguments),
    /// Change versions, channels, catalog or configuration of ClusterExtensions
    Upgrade(Box<act::upgrade::Arguments>),
    /// Go back to an earlier revision's version
    Rollback(Box<act::rollback::Rollback>),
    /// Suspend a ClusterExtension: nothing is resolved, applied or corrected
    Pause(act::pause::Pause),
    /// Let the controller work on a paused ClusterExtension again
    Resume(act::pause::Resume),
    /// Let the controller try again now
    Retry(act::pause::Retry),
    /// List catalogs and their packages; add, refresh and remove them
    Catalogs(Box<act::catalogs::Arguments>),
    /// List the revisions of a ClusterExtension
    History(act::rollback::History),
    /// Delete a ClusterExtension
    Uninstall(act::uninstall::Arguments),
    /// Migrate a cluster from another implementation of OLM
    #[command(subcommand)]
    Migrate(migrate::Verb),
    /// Print the least roles for the service account of a ClusterExtension
    Rbac(rbac::Arguments),
    /// Write a support bundle: objects, events, logs and versions, without secrets
    Report(Box<report::Arguments>),
    /// Check catalogs
    #[command(subcommand)]
    Catalog(catalog::Verb),
    /// Look into bundles
    #[command(subcommand)]
    Bundle(bundle::Verb),
    /// Look into namespaces of OLM Classic
    #[command(subcommand)]
    Classic(classic::Verb),
    /// Check images
    #[command(subcommand)]
    Image(image::Verb),
    /// List the images of packages for a cluster without a way to the internet, and check its mirrors
    #[command(subcommand)]
    Mirror(mirror::Verb),
    /// Show how a bundle can be configured, and check a configuration
    #[command(subcommand)]
    Config(config::Verb),
    /// Compare CustomResourceDefinitions
    #[command(subcommand)]
    Crd(crd::Verb),
    /// Draw the upgrade graph of a package
    Graph(Box<graph::Arguments>),
    /// Show how an installed version gets to another one, by v1's rules and by OLM Classic's
    Paths(Box<paths::Arguments>),
    /// Try versions against ranges
    #[command(subcommand)]
    Semver(semver::Verb),
    /// Answer the questions of a scenario file with the resolver
    Simulate(simulate::Arguments),
    /// Print a completion script for a shell
    Completion(completion::Arguments),
    /// Print the version of the plugin
    Version(version::Arguments),
}

/// The result of a verb: its output, and whether it succeeded.
struct CommandOutput {
    text: String,
    yes: bool,
}

/// What a verb runs.
type VerbFuture<'a> = LocalBoxFuture<'a, Result<CommandOutput, CommandError>>;

/// The definitions of all verbs and flags.
pub fn definition() -> clap::Command {
    help::grouped(Cli::command())
}

/// The command line. Flags of the cluster may stand before the verb.
fn parsed(words: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, clap::Error> {
    let mut definition = help::without_empty_variables(definition());
    let words: Vec<_> = words.into_iter().collect();
    let matches = definition
        .try_get_matches_from_mut(&words)
        .map_err(|error| help::with_usage_of_verb(error, &words))?;
    if let Some(error) = help::namespace_without_effect(&mut definition, &matches) {
        return Err(error);
    }
    Cli::from_arg_matches(&matches)
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let done = match words.get(1).is_some_and(|verb| verb == complete::VERB) {
        // the words are an unfinished line, not arguments
        true => wait(complete::run(&words[2..]).boxed_local()),
        false => match parsed(words.clone()) {
            Ok(cli) => wait(execute(&cli.verb)),
            Err(error) if lacks_verb(&error) => Ok(help_of(&words)),
            Err(error) => error.exit(),
        },
    };
    let printed = done.and_then(|answer| {
        print_result(&answer.text)?;
        Ok(answer.yes)
    });
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // a reader that closes the pipe early, like `head`, needs no message
        Err(CommandError::Write(std::io::ErrorKind::BrokenPipe, _)) => ExitCode::from(1),
        Err(failure) => print_failure(&failure),
    }
}

/// Whether the command line ends before a verb. clap has two kinds for it: the second one if a flag is set in the environment.
fn lacks_verb(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand)
}

/// The help of the verb that needs another one after it. As with kubectl it is no error.
fn help_of(words: &[std::ffi::OsString]) -> CommandOutput {
    CommandOutput { text: help::verb_of(words).render_help().to_string(), yes: true }
}

/// The future of a verb. Each is in a box, so that the compiler does not make one function of all verbs.
fn execute(verb: &Verb) -> VerbFuture<'_> {
    match verb {
        Verb::Search(arguments) => search::run(arguments).boxed_local(),
        Verb::Show(arguments) => show::run(arguments).boxed_local(),
        Verb::Versions(arguments) => versions::run(arguments).boxed_local(),
        Verb::Resolve(arguments) => why::resolve(arguments).boxed_local(),
        Verb::Explain(arguments) => why::explain(arguments).boxed_local(),
        Verb::List(arguments) => list::run(arguments).boxed_local(),
        Verb::Outdated(arguments) => list::outdated(arguments).boxed_local(),
        Verb::Status(arguments) => status::run(arguments).boxed_local(),
        Verb::UpgradeCheck(arguments) => upgrade_check::run(arguments).boxed_local(),
        Verb::Install(arguments) => act::install::run(arguments).boxed_local(),
        Verb::Plan(arguments) => plan::run(arguments).boxed_local(),
        Verb::Diff(arguments) => diff::run(arguments).boxed_local(),
        Verb::Upgrade(arguments) => act::upgrade::run(arguments).boxed_local(),
        Verb::Rollback(arguments) => act::rollback::rollback(arguments).boxed_local(),
        Verb::Pause(arguments) => act::pause::pause(arguments).boxed_local(),
        Verb::Resume(arguments) => act::pause::resume(arguments).boxed_local(),
        Verb::Retry(arguments) => act::pause::retry(arguments).boxed_local(),
        Verb::Catalogs(arguments) => act::catalogs::run(arguments).boxed_local(),
        Verb::History(arguments) => act::rollback::history(arguments).boxed_local(),
        Verb::Uninstall(arguments) => act::uninstall::run(arguments).boxed_local(),
        Verb::Rbac(arguments) => rbac::run(arguments).boxed_local(),
        Verb::Report(arguments) => report::run(arguments).boxed_local(),
        Verb::Catalog(verb) => catalog::run(verb).boxed_local(),
        Verb::Bundle(verb) => bundle::run(verb).boxed_local(),
        Verb::Classic(verb) => classic::run(verb).boxed_local(),
        Verb::Image(verb) => image::run(verb).boxed_local(),
        Verb::Migrate(verb) => migrate::run(verb).boxed_local(),
        Verb::Mirror(verb) => mirror::run(verb).boxed_local(),
        Verb::Config(verb) => config::run(verb).boxed_local(),
        Verb::Crd(verb) => crd::run(verb).boxed_local(),
        Verb::Graph(arguments) => graph::run(arguments).boxed_local(),
        Verb::Paths(arguments) => paths::run(arguments).boxed_local(),
        Verb::Semver(verb) => ready(semver::run(verb, std::io::stdin().lock())).boxed_local(),
        Verb::Simulate(arguments) => ready(simulate::run(arguments)).boxed_local(),
        Verb::Completion(arguments) => ready(Ok(completion::run(arguments))).boxed_local(),
        Verb::Version(arguments) => ready(Ok(version::run(arguments))).boxed_local(),
    }
}

fn print_failure(failure: &CommandError) -> ExitCode {
    match failure {
        CommandError::Verdict { text, help } => {
            // standard output may be closed; the exit code stays the same
            let _ = writeln!(std::io::stdout().lock(), "{}", terminal::printable(text));
            if let Some(help) = help {
                print_note(help);
            }
        }
        // as above
        CommandError::Partial { text, .. } => drop(print_result(text)),
        CommandError::Interrupted => {}
        other => print_note(&format!("error: {}", cut(&other.to_string(), MAX_ERROR))),
    }
    ExitCode::from(failure.code())
}

#[cfg(test)]
mod tests {
    #[test]
    fn cli_arguments_are_consistent() {
        super::definition().debug_assert();
    }

    fn cli(line: &str) -> Result<super::Cli, String> {
        let words = std::iter::once("kubectl-olm").chain(line.split(' ')).map(Into::into);
        super::parsed(words).map_err(|error| error.to_string())
    }

    #[test]
    fn cli_global_flags_before_and_after_the_verb() {
        for (before, after) in [
            ("--context prod list", "list --context prod"),
            ("--as x --as-group g --as-group h status a", "status a --as x --as-group g --as-group h"),
            ("--kubeconfig f --request-timeout 5 show a", "show a --request-timeout 5s --kubeconfig f"),
            ("-n here install a", "install a -n here"),
            ("--namespace here bundle render dir", "bundle render dir -n here"),
            // one name for one flag, and its old form
            ("plan a --policy SelfCertified", "plan a --upgrade-constraint-policy SelfCertified"),
            (
                "paths a --from 1.0.0 --policy SelfCertified",
                "paths a --from 1.0.0 --upgrade-constraint-policy SelfCertified",
            ),
        ] {
            let [one, other] = [before, after].map(|line| format!("{:?}", cli(line).unwrap()));
            assert_eq!(one, other, "{before}");
        }
        for (line, want) in [
            ("-n here list", "--namespace has no effect on `kubectl olm list`"),
            ("--request-timeout soon list", "invalid duration \"soon\""),
            ("search --authfile /no/such/file", "no such file or directory"),
            ("search --ca-file /no/such/file", "'--ca-file <FILE>': no such file or directory"),
            ("search --cert-dir Cargo.toml", "'--cert-dir <DIR>': it is no directory"),
            ("show --request-timeout 5", "Usage: kubectl olm show [OPTIONS] <PACKAGE>"),
            ("catalogs refresh --context x", "Usage: kubectl olm catalogs refresh [OPTIONS] <NAME>..."),
            ("search --catalogd-url nonsense", "write an address such as https://127.0.0.1:8443"),
            ("catalogs add x https://r.example.com/c", "leave out https://"),
            ("install --package x", "the package is the first argument"),
            ("diff a b", "'[REVISION]...': write a number that `kubectl olm history` shows"),
            ("rollback a --to-revision v2", "write a number that `kubectl olm history` shows"),
            ("bundle render dir -n A_b", "'--namespace <NAMESPACE>': no namespace has such a name"),
        ] {
            let error = cli(line).unwrap_err();
            assert!(error.contains(want), "{line}: {error}");
        }
    }
}
