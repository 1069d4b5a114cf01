//! `catalog validate`: all rules of file-based catalogs, for a directory or an image.

use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use olm_catalog::image::{CatalogLimits, catalog_metas};
use olm_fbc::{Catalog, FileError, Finding, Severity, file_findings, load_dir_leniently, validate};
use olm_runtime::error_text::chain;
use serde::Serialize;

use super::output::{Form, Table, counted, or_dash, rows};
use crate::CommandOutput;
use crate::bundle_source::is_directory;
use crate::failure::CommandError;
use crate::sources::{Registry, print_progress};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check a catalog, in a directory or an image
    ///
    /// All findings are printed, errors first, each with the file, line and column of its object. What `opm validate` or the
    /// format refuses is an error; what works but is probably not meant is a warning.
    #[command(
        after_help = "Exit codes: 0 no errors (warnings do not count), 1 errors were found, 2 the catalog could not be read.\n\n\
                      Examples:\n  kubectl olm catalog validate ./catalog\n  \
                      kubectl olm catalog validate quay.io/operatorhubio/catalog:latest -o json"
    )]
    Validate(Validate),
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// Directory of a file-based catalog, or a catalog image with its registry and a tag or digest
    #[arg(value_name = "DIR|IMAGE")]
    source: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportForm,
    #[command(flatten)]
    registry: Registry,
}

/// `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum ReportForm {
    /// One line a finding.
    #[default]
    Text,
    /// Columns.
    Table,
    /// A JSON list.
    Json,
    /// The same as YAML.
    Yaml,
}

#[derive(Serialize)]
struct Row {
    severity: &'static str,
    rule: &'static str,
    package: String,
    schema: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

pub(crate) async fn run(Verb::Validate(arguments): &Verb) -> Result<CommandOutput, CommandError> {
    let (catalog, problems) = load(arguments).await?;
    let mut findings = file_findings(&problems);
    findings.extend(validate(&catalog));
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let found: Vec<Row> = findings.into_iter().map(row).collect();
    let counted = || format!("{}, {}\n", counted(errors, "error"), counted(found.len() - errors, "warning"));
    let text = match arguments.output {
        ReportForm::Text => rows(Form::Text, &found, line) + &counted(),
        ReportForm::Table => table(&found) + &counted(),
        ReportForm::Json => rows(Form::Json, &found, line),
        ReportForm::Yaml => rows(Form::Yaml, &found, line),
    };
    Ok(CommandOutput { text, yes: errors == 0 })
}

async fn load(arguments: &Validate) -> Result<(Catalog, Vec<FileError>), CommandError> {
    let source = arguments.source.as_str();
    let path = Path::new(source);
    let limits = CatalogLimits::default();
    let otherwise =
        "there is no such directory, and an image is named with its registry: quay.io/example/catalog:tag";
    if is_directory(source, otherwise)? {
        return load_dir_leniently(path, limits.content)
            .map_err(|error| CommandError::content(path, chain(&error)));
    }
    let puller = arguments.registry.access().puller();
    let read = catalog_metas(&puller, source, &limits, print_progress).await;
    let read = read.map_err(|error| CommandError::content(path, chain(&error)))?;
    Ok((read.catalog, read.problems))
}

fn row(finding: Finding) -> Row {
    let position = finding.position.as_ref();
    Row {
        line: position.map(|position| position.line),
        column: position.and_then(|position| position.column),
        file: position.map(|position| position.path.clone()),
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

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(["SEVERITY", "RULE", "PACKAGE", "SCHEMA", "NAME", "POSITION", "MESSAGE"]);
    for row in rows {
        let Row { severity, rule, package, schema, name, message, hint, .. } = row;
        let hint = hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        let about = [package, schema, name].map(|text| or_dash(text));
        let [package, schema, name] = about;
        let position = or_dash(&position(row));
        let first = [(*severity).to_owned(), (*rule).to_owned()];
        table.row(first.into_iter().chain([package, schema, name, position, format!("{message}{hint}")]));
    }
    table.text("")
}

/// `file:line:column`, as compilers print it.
fn position(row: &Row) -> String {
    let numbers = [row.line, row.column].into_iter().flatten().map(|number| format!(":{number}"));
    row.file.clone().into_iter().chain(numbers).collect()
}

fn line(row: &Row) -> String {
    let hint = row.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    let about =
        [&row.schema, &row.name].into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
    let about = if about.is_empty() { String::new() } else { format!(" {}:", about.join(" ")) };
    let position = position(row);
    let position = if position.is_empty() { String::new() } else { format!("{position}: ") };
    format!("{position}{}:{about} {}{hint} [{}]", row.severity, row.message, row.rule)
}
