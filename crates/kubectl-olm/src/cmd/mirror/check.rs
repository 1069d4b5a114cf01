//! `mirror check`: requests the manifest of each image from the locations of the registry configuration.

use std::time::{Duration, Instant};

use clap::Args;
use futures::StreamExt as _;
use olm_oci::{Error, Puller};
use olm_runtime::error_text::chain;
use serde::Serialize;

use super::super::output::{Output, Table, counted};
use super::images::{ImageRow, completed};
use super::selection::Selection;
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};

/// The time between two lines about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// The longest wait for a connection, and for an answer: there may be hundreds of images behind a registry that is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only ask mirrors: an image that only the registry in its name has counts as missing
    #[arg(long)]
    mirrors_only: bool,
    /// Images that are asked for at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    parallel: u8,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    selection: Selection,
}

/// An image, and whether it is reachable. `-o json` prints a list of these.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    #[serde(flatten)]
    row: ImageRow,
    reachable: bool,
    /// The reference that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    /// Whether that is a mirror.
    mirror: bool,
    /// The digest of its manifest there.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The cause if it is not reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) async fn run(arguments: &Check) -> Result<CommandOutput, CommandError> {
    let (_, rows) = super::read(&arguments.selection).await?;
    let mut config = arguments.selection.sources.registry.access().config();
    config.timeouts.connect = CONNECT_TIMEOUT;
    config.timeouts.answer = ANSWER_TIMEOUT;
    config.retries.server_error = 1;
    let puller = Puller::new(config);
    let total = rows.len();
    print_note(&format!("checking {}", counted(total, "image")));
    let checks = rows.into_iter().map(|row| check(&puller, row, arguments.mirrors_only));
    let mut running = futures::stream::iter(checks).buffer_unordered(usize::from(arguments.parallel));
    let (mut checked, mut printed) = (Vec::with_capacity(total), Instant::now());
    while let Some(found) = running.next().await {
        checked.push(found);
        if printed.elapsed() >= PROGRESS_INTERVAL && checked.len() < total {
            print_note(&format!("checked {} of {}", checked.len(), counted(total, "image")));
            printed = Instant::now();
        }
    }
    checked.sort_by(|a, b| a.row.image.cmp(&b.row.image));
    let missing = checked.iter().filter(|checked| !checked.reachable).count();
    print_note(&match missing {
        0 if total == 1 => "the image is reachable".to_owned(),
        0 => format!("all {total} images are reachable"),
        missing => format!("not reachable: {missing} of {}", counted(total, "image")),
    });
    let names = || {
        let missing = checked.iter().filter(|checked| !checked.reachable);
        missing.map(|checked| checked.row.image.clone()).collect()
    };
    let text = arguments.output.print(&checked, names, |wide| table(&checked, wide));
    Ok(CommandOutput { text, yes: missing == 0 })
}

async fn check(puller: &Puller, row: ImageRow, mirrors_only: bool) -> Checked {
    let found = match completed(&row.image) {
        Ok(reference) => puller.find(&reference, mirrors_only).await.map_err(|error| cause(&error)),
        Err(error) => Err(error.to_string()),
    };
    let unreachable = |error| Checked {
        row: row.clone(),
        reachable: false,
        location: None,
        mirror: false,
        digest: None,
        error: Some(error),
    };
    found.map_or_else(unreachable, |found| Checked {
        row: row.clone(),
        reachable: true,
        location: Some(found.location.to_string()),
        mirror: found.is_mirror,
        digest: Some(found.digest.to_string()),
        error: None,
    })
}

/// The cause without the name of the step: there is only one.
fn cause(error: &Error) -> String {
    error.cause().map_or_else(|| chain(error), |cause| chain(cause))
}

fn table(checked: &[Checked], wide: bool) -> String {
    let heads = ["IMAGE", "REACHABLE", "LOCATION", "USED BY"];
    let mut table = Table::new(heads.into_iter().take(if wide { 4 } else { 3 }));
    for Checked { row, reachable, location, mirror, error, .. } in checked {
        let location = match (location, error) {
            (Some(location), _) if *mirror => format!("mirror {location}"),
            (Some(_), _) => "the registry that it names".to_owned(),
            (None, error) => error.clone().unwrap_or_default(),
        };
        table.row([
            row.image.clone(),
            if *reachable { "yes".to_owned() } else { "no".to_owned() },
            location,
            row.used_by.join(","),
        ]);
    }
    table.text("")
}
