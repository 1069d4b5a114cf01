//! `catalog validate`: every rule of file-based catalogs at once.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use olm_fbc::{Finding, IngestLimits, Severity, file_findings, load_dir_leniently, validate};
use serde::Serialize;

use super::output::{Form, rows};
use crate::Answer;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check a catalog directory; exit code 1 when there are errors
    #[command(after_help = "Example:\n  kubectl olm catalog validate ./catalog")]
    Validate(Validate),
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// Directory of a file-based catalog
    directory: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

#[derive(Serialize)]
struct Row {
    severity: &'static str,
    rule: &'static str,
    package: String,
    schema: String,
    name: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

pub(crate) fn run(Verb::Validate(arguments): &Verb) -> Result<Answer, Failure> {
    let directory = &arguments.directory;
    let (catalog, problems) = load_dir_leniently(directory, IngestLimits::default())
        .map_err(|error| Failure::content(directory, error))?;
    let mut findings = file_findings(&problems);
    findings.extend(validate(&catalog));
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let found: Vec<Row> = findings.into_iter().map(row).collect();
    let mut text = rows(arguments.output, &found, line);
    if arguments.output == Form::Text {
        text.push_str(&format!("{errors} errors, {} warnings\n", found.len() - errors));
    }
    Ok(Answer { text, yes: errors == 0 })
}

fn row(finding: Finding) -> Row {
    Row {
        severity: match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        rule: finding.rule,
        package: finding.subject.package,
        schema: finding.subject.schema,
        name: finding.subject.name,
        message: finding.path.into_iter().chain([finding.message]).collect::<Vec<_>>().join(": "),
        hint: finding.hint,
    }
}

fn line(row: &Row) -> String {
    let hint = row.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    let about =
        [&row.schema, &row.name].into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
    let about = if about.is_empty() { String::new() } else { format!(" {}:", about.join(" ")) };
    format!("{}:{about} {}{hint} [{}]", row.severity, row.message, row.rule)
}
