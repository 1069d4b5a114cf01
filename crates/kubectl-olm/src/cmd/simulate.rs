//! `simulate`: a text file lists packages, what is installed and what is asked; the resolver answers.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use olm_fbc::{IngestLimits, load_dir};
use olm_resolver::scenario::{self, Scenario};
use olm_resolver::{PackageGraph, ReleaseField};
use olm_runtime::error_text::chain;

use crate::CommandOutput;
use crate::failure::{CommandError, read};

#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 when an answer is not the one that the file expects after `=>`.")]
pub(crate) struct Arguments {
    /// The scenario
    file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let path = &arguments.file;
    let text = String::from_utf8(read(path)?).map_err(|error| CommandError::content(path, error))?;
    let scenario = Scenario::parse(&text).map_err(|error| CommandError::content(path, error))?;
    let beside = path.parent().unwrap_or(std::path::Path::new("."));
    let loader = |package: &str, from: &str| {
        let directory = beside.join(from);
        let catalog = load_dir(&directory, IngestLimits::default())
            .map_err(|error| format!("{}: {}", directory.display(), chain(&error)))?;
        let (contents, findings) = catalog.package(package).map_err(|error| error.to_string())?;
        Ok(Arc::new(PackageGraph::new(contents, findings, ReleaseField::Counts)))
    };
    let answers = scenario::run(&scenario, &loader).map_err(|error| CommandError::content(path, error))?;
    let mut text = String::new();
    for answer in &answers {
        let mark = if answer.as_expected { "" } else { "   (not as expected)" };
        text.push_str(&format!("{}: {} => {}{mark}\n", answer.line, answer.question, answer.got));
    }
    Ok(CommandOutput { text, yes: answers.iter().all(|answer| answer.as_expected) })
}
