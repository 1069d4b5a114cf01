//! `crd diff`: is a changed CRD safe for the objects that exist. For authors' CI.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use olm_core::Object;
use olm_crd_safety::{Place, Policy, Profile, compare};
use serde::Serialize;

use super::bundle::document;
use super::output::{Form, rows};
use crate::Answer;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Compare an old CRD with its new form; exit code 1 when the change is dangerous
    #[command(after_help = "Example:\n  kubectl olm crd diff old/crd.yaml new/crd.yaml")]
    Diff(Diff),
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The CRD as it is in the cluster
    old: PathBuf,
    /// The CRD as it shall become
    new: PathBuf,
    /// Block everything that the Go reference blocks, harmless changes included
    #[arg(long)]
    parity: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

#[derive(Serialize)]
struct Row {
    place: String,
    path: String,
    check: &'static str,
    message: String,
    danger: &'static str,
    mend: &'static str,
}

pub(crate) fn run(Verb::Diff(arguments): &Verb) -> Result<Answer, Failure> {
    let read = |path: &PathBuf| {
        let object = Object::from_value(document(path)?).map_err(|error| Failure::content(path, error))?;
        if object.kind() == "CustomResourceDefinition" {
            Ok(object)
        } else {
            Err(Failure::content(path, format!("kind is {:?}, not CustomResourceDefinition", object.kind())))
        }
    };
    let profile = if arguments.parity { Profile::Parity } else { Profile::Corrected };
    let findings = compare(&read(&arguments.old)?, &read(&arguments.new)?, Policy { profile });
    let found: Vec<Row> = findings
        .iter()
        .map(|finding| {
            let (place, path) = match &finding.place {
                Place::Crd => (String::new(), String::new()),
                Place::Version { version, path } => (version.clone(), path.clone()),
                Place::Served { pair, path } => (pair.clone(), path.clone()),
            };
            let (danger, mend) = (finding.danger(), finding.mend());
            Row { place, path, check: finding.check, message: finding.message.clone(), danger, mend }
        })
        .collect();
    let text = rows(arguments.output, &found, |row| {
        let at =
            [&row.place, &row.path].into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
        let at = if at.is_empty() { String::new() } else { at.join(": ") + ": " };
        format!("{at}{}: {}\n  {}; {}", row.check, row.message, row.danger, row.mend)
    });
    Ok(Answer { text, yes: found.is_empty() })
}
