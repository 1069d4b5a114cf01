//! `catalog validate`: every rule of file-based catalogs at once, for a directory or an image.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use olm_client::image::{Access, CatalogLimits, Step, catalog_metas};
use olm_fbc::{Catalog, FileError, Finding, Severity, file_findings, load_dir_leniently, validate};
use olm_runtime::error_text::chain;
use serde::Serialize;

use super::output::{Form, rows};
use crate::Answer;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check a catalog, in a directory or an image
    ///
    /// All findings are printed, errors first. What `opm validate` refuses is an error; what works but is probably not meant
    /// is a warning.
    #[command(
        after_help = "Exit codes: 0 no errors (warnings do not count), 1 errors were found, 2 the catalog could not be had.\n\n\
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
    #[command(flatten)]
    registry: Registry,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// How registries are reached. Credentials, mirrors, proxies and certificates of the container tools are used anyway.
#[derive(Debug, Args)]
#[command(next_help_heading = "Registry")]
struct Registry {
    /// A docker or containers credentials file, instead of the usual places
    #[arg(long, value_name = "FILE")]
    authfile: Option<PathBuf>,
    /// A file with CA certificates to trust
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A directory with CA certificates (*.crt) and client certificates (*.cert and *.key)
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Allow plain HTTP and certificates that nobody vouches for
    #[arg(long)]
    insecure: bool,
}

impl Registry {
    fn access(&self) -> Access {
        Access {
            auth_file: self.authfile.clone(),
            cert_dir: self.cert_dir.clone(),
            ca_file: self.ca_file.clone(),
            insecure: self.insecure,
        }
    }
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
    let (catalog, problems) = load(arguments)?;
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

/// A path that exists is a directory, or is meant to be one; everything else is an image.
fn load(arguments: &Validate) -> Result<(Catalog, Vec<FileError>), Failure> {
    let source = arguments.source.as_str();
    let path = Path::new(source);
    let limits = CatalogLimits::default();
    if path.exists() || source.starts_with(['/', '.']) {
        return load_dir_leniently(path, limits.content)
            .map_err(|error| Failure::content(path, chain(&error)));
    }
    if !source.contains('/') {
        let message = "there is no such directory, and an image is named with its registry: quay.io/example/catalog:tag";
        return Err(Failure::content(path, message));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    let runtime = runtime.map_err(|error| Failure::Usage(format!("cannot start: {error}")))?;
    let puller = arguments.registry.access().puller();
    let read = runtime.block_on(catalog_metas(&puller, source, &limits, tell));
    let read = read.map_err(|error| Failure::content(path, chain(&error)))?;
    Ok((read.catalog, read.problems))
}

#[expect(clippy::print_stderr, reason = "progress, for the person who waits")]
fn tell(step: Step) {
    match step {
        Step::Resolved { reference } => eprintln!("reading {reference}"),
        Step::Reading { bytes, layers } => {
            let plural = if layers == 1 { "" } else { "s" };
            eprintln!("downloading {:.1} MB in {layers} layer{plural}", bytes as f64 / 1e6);
        }
    }
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
