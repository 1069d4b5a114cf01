//! `report`: a support bundle with OLM's objects, events, logs, metrics and versions, without secrets.
//!
//! Nothing stops it: what cannot be read is listed with its reason. Sizes and numbers are bounded.

mod archive;
mod collect;
mod redact;

use std::path::{Path, PathBuf};

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use olm_install::SYSTEM_NAMESPACE;

use self::archive::write_private;
use self::collect::{Collector, Endpoints};
use super::output::counted;
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(
    after_help = "It holds, the summary first: ClusterExtensions, ClusterCatalogs and ClusterObjectSets (revisions without the content of their \
                  objects), their events, Deployments, Services, Leases and Pods of OLM's namespace with their logs, and versions. Secrets are not \
                  read. Values of variables, annotations and configurations, tokens, passwords, Authorization headers, users in URLs and PEM keys \
                  are replaced by [redacted]. Look through it before you send it on.\n\n\
                  Metrics and profiles take a token that the programs accept: forward the ports of a program, then give --metrics-url and \
                  --metrics-token-file.\n\n\
                  Examples:\n  kubectl olm report\n  kubectl olm report -o report.tar.gz\n  kubectl olm report -o ./report\n  \
                  kubectl olm report --metrics-url https://127.0.0.1:8443 --metrics-token-file token\n\n\
                  Exit codes: 0 written, also if something could not be read, 2 it cannot be written."
)]
pub(crate) struct Arguments {
    /// A file that ends with .tar.gz, or a folder to create [default: olm-report-TIME.tar.gz]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// The namespace of the programs
    #[arg(long, value_name = "NAMESPACE", default_value = SYSTEM_NAMESPACE)]
    system_namespace: String,
    /// Where a program serves /metrics or /debug/pprof; may be repeated
    #[arg(long, value_name = "URL", requires = "metrics_token_file")]
    metrics_url: Vec<String>,
    /// A file with a bearer token that may `get` /metrics and /debug/pprof
    #[arg(long, value_name = "FILE")]
    metrics_token_file: Option<PathBuf>,
    /// A directory with CA certificates to trust for --metrics-url
    #[arg(long, value_name = "DIR")]
    metrics_cas_dir: Option<PathBuf>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Whether the path names an archive, not a folder.
fn is_archive(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

/// The ending of an archive of another format; a folder of that name is not what the user means.
fn other_archive(path: &Path) -> Option<&'static str> {
    let name = path.to_string_lossy().to_lowercase();
    [".zip", ".tar", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z"]
        .into_iter()
        .find(|ending| name.ends_with(ending))
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let now = Timestamp::now();
    let stamp: String = now.to_string().chars().take(19).filter(char::is_ascii_alphanumeric).collect();
    let root = format!("olm-report-{stamp}");
    let path = arguments.output.clone().unwrap_or_else(|| PathBuf::from(format!("{root}.tar.gz")));
    if let Some(ending) = other_archive(&path) {
        return Err(CommandError::Usage(format!(
            "--output {}: {ending} is not written; name a file that ends with .tar.gz, or a folder",
            path.display()
        )));
    }
    if path.exists() {
        return Err(CommandError::Usage(format!("{} exists already; give another --output", path.display())));
    }
    let endpoints = Endpoints {
        urls: arguments.metrics_url.clone(),
        token_file: arguments.metrics_token_file.clone(),
        cas_dir: arguments.metrics_cas_dir.clone(),
    };
    let client = arguments.cluster.client().await;
    let collector = Collector::new(arguments.system_namespace.clone(), now);
    let (files, summary) = collector.collect(client, &endpoints).await;
    let failed = |source| CommandError::WriteFile { path: path.clone(), source };
    if is_archive(&path) {
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let archive = files.archive(&root, &summary, seconds).map_err(failed)?;
        write_private(&path, &archive).map_err(failed)?;
    } else {
        files.write_folder(&path, &summary)?;
    }
    let missing = files.missing();
    if !missing.is_empty() {
        let things = counted(missing.len(), "thing");
        print_note(&format!("{things} could not be read; {} has the reasons", archive::SUMMARY));
    }
    let text = format!("{} ({})\n", path.display(), counted(files.sizes().count() + 1, "file"));
    Ok(CommandOutput { text, yes: true })
}

#[cfg(test)]
mod tests;
