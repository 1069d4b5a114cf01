//! `mirror`: the images that a cluster without a way to the internet needs, files for the programs that copy them, and whether the
//! mirrors have them.
//!
//! Nothing is copied here: oc-mirror and skopeo do that.

mod check;
mod config;
mod images;
mod selection;

use clap::{Args, Subcommand, ValueEnum};

use self::images::{ImageRow, images_of};
use self::selection::{PackageChoice, Selection};
use super::output::{MAX_NOTE, Output, Table, cut};
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the images that packages need: catalog, bundles and what they run
    #[command(after_help = "Examples:\n  kubectl olm mirror list argocd-operator\n  \
                      kubectl olm mirror list 'argocd-operator/alpha@>=0.9.0 <0.11.0' grafana-operator -o name\n  \
                      kubectl olm mirror list my-operator --heads --dir ./catalog\n\n\
                      Exit codes: 0 there are some, 1 no such package, channel or version, 2 bad input, 3 no answer.")]
    List(Box<List>),
    /// Print a file for the program that copies the images
    #[command(
        after_help = "Examples:\n  kubectl olm mirror config argocd-operator --format oc-mirror > imageset.yaml\n  \
                      kubectl olm mirror config argocd-operator --format skopeo > sync.yaml\n\n\
                      Exit codes: 0 printed, 1 no such package, channel or version, 2 bad input, 3 no answer."
    )]
    Config(Box<Config>),
    /// Check that each image is reachable through the configured mirrors
    #[command(after_help = "Examples:\n  kubectl olm mirror check argocd-operator\n  \
                      kubectl olm mirror check argocd-operator --registries-conf registries.conf --mirrors-only\n  \
                      kubectl olm mirror check argocd-operator -o name    # those that are missing\n\n\
                      Exit codes: 0 each image is reachable, 1 one is not, 2 bad input, 3 the catalog gave no answer.")]
    Check(Box<check::Check>),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    selection: Selection,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    /// The program that reads the file
    #[arg(long, value_enum)]
    format: Format,
    #[command(flatten)]
    selection: Selection,
}

/// The programs that copy images.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// An ImageSetConfiguration of oc-mirror, mirror.openshift.io/v2alpha1.
    OcMirror,
    /// A file for `skopeo sync --src yaml`.
    Skopeo,
}

pub(crate) async fn run(verb: &Verb) -> Result<CommandOutput, CommandError> {
    match verb {
        Verb::List(arguments) => list(arguments).await,
        Verb::Config(arguments) => config(arguments).await,
        Verb::Check(arguments) => check::run(arguments).await,
    }
}

/// The chosen packages and their images. Prints what is not among them to standard error.
async fn read(selection: &Selection) -> Result<(Vec<PackageChoice>, Vec<ImageRow>), CommandError> {
    let choices = selection.read().await?;
    for note in images::notes(&choices) {
        print_note(&note);
    }
    let rows = images_of(&choices, selection.added());
    Ok((choices, rows))
}

async fn list(List { selection, output }: &List) -> Result<CommandOutput, CommandError> {
    let (_, rows) = read(selection).await?;
    let names = || rows.iter().map(|row| row.image.clone()).collect();
    let text = output.print(&rows, names, |wide| table(&rows, wide));
    Ok(CommandOutput { text, yes: true })
}

async fn config(Config { format, selection }: &Config) -> Result<CommandOutput, CommandError> {
    let (choices, rows) = read(selection).await?;
    let (text, notes) = match format {
        Format::OcMirror => config::oc_mirror(&choices, selection.added(), selection.heads)?,
        Format::Skopeo => config::skopeo(&rows),
    };
    for note in notes {
        print_note(&note);
    }
    Ok(CommandOutput { text, yes: true })
}

fn table(rows: &[ImageRow], wide: bool) -> String {
    let mut table = Table::new(["IMAGE", "ROLE", "USED BY"]);
    for row in rows {
        let used_by = row.used_by.join(",");
        let used_by = if wide { used_by } else { cut(&used_by, MAX_NOTE) };
        table.row([row.image.clone(), row.role.to_string(), used_by]);
    }
    table.text("")
}
