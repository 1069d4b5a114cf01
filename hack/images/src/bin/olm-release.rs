//! `olm-release`: what `hack/release.sh` needs beside the images: files that name them, the notes, bills of materials, and the
//! manifest of the kubectl plugin.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use olm_images::image::About;
use olm_images::sbom::Crates;
use olm_images::{krew, notes, stamp};

/// Makes the files of a release that are neither programs nor images.
#[derive(Debug, Parser)]
#[command(name = "olm-release")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// write the version and the registry into a copy of manifests/
    Stamp {
        folder: PathBuf,
        #[arg(long)]
        version: String,
        /// the registry and path of the images, without their names
        #[arg(long, default_value = stamp::REGISTRY)]
        registry: String,
    },
    /// print the changelog's section of the version
    Notes {
        #[arg(long)]
        version: String,
        #[arg(long, default_value = "CHANGELOG.md", value_name = "FILE")]
        changelog: PathBuf,
    },
    /// print the name of the plugin's archive for a platform (linux/amd64, darwin/arm64, …)
    Archive {
        platform: String,
        #[arg(long)]
        version: String,
    },
    /// print the bill of materials of a program (CycloneDX) for a platform
    Bill {
        program: String,
        platform: String,
        #[arg(long)]
        version: String,
        /// its date, in seconds since 1970
        #[arg(long, env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
        created: u64,
    },
    /// print the plugin manifest for krew, of the archives in a folder
    Krew {
        folder: PathBuf,
        #[arg(long)]
        version: String,
        /// the address below which the archives will be; default: that of the release's page
        #[arg(long, value_name = "URL")]
        base: Option<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(text) => {
            let _closed_pipe = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("error: {problem:#}");
            ExitCode::FAILURE
        }
    }
}

/// What to print.
fn run(command: Command) -> Result<String> {
    let repository = env!("CARGO_PKG_REPOSITORY");
    match command {
        Command::Stamp { folder, version, registry } => {
            stamp::stamp(&folder, &version, &registry)?;
            Ok(String::new())
        }
        Command::Notes { version, changelog } => {
            let text = std::fs::read_to_string(&changelog)
                .with_context(|| format!("cannot read {}", changelog.display()))?;
            notes::section(&text, &version, &format!("{repository}/blob/v{version}"))
        }
        Command::Archive { platform, version } => {
            stamp::check_version(&version)?;
            Ok(format!("{}\n", krew::archive_name(&version, &platform)?))
        }
        Command::Bill { program, platform, version, created } => {
            let about = About {
                version,
                revision: None,
                created,
                source: repository.to_owned(),
                licenses: env!("CARGO_PKG_LICENSE").to_owned(),
            };
            let crates = Crates::read_workspace(&std::env::current_dir()?, krew::target(&platform)?)?;
            Ok(String::from_utf8(crates.bill(&program, &about)?)?)
        }
        Command::Krew { folder, version, base } => {
            stamp::check_version(&version)?;
            let base = base.unwrap_or_else(|| format!("{repository}/releases/download/v{version}"));
            Ok(serde_saphyr::to_string(&krew::manifest(&folder, &version, &base, repository)?)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn release_args_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn release_errors_name_the_fix() {
        for (words, part) in [
            (&["stamp", "/nonexistent", "--version=1.2.3"][..], "cannot read /nonexistent"),
            (&["stamp", "/nonexistent", "--version=1.2.3+x"], "is no version like 1.2.3"),
            (&["notes", "--version=1.2.3", "--changelog=/nonexistent"], "cannot read /nonexistent"),
            (&["archive", "windows/amd64", "--version=1.2.3"], "there is no plugin for \"windows/amd64\""),
            (&["krew", "/nonexistent", "--version=1.2.3"], "has no archive kubectl-olm-1.2.3"),
            (
                &["bill", "catalogd", "plan9/amd64", "--version=1.2.3"],
                "there is no plugin for \"plan9/amd64\"",
            ),
        ] {
            let arguments = Arguments::try_parse_from(["olm-release"].iter().chain(words)).unwrap();
            let problem = format!("{:#}", run(arguments.command).unwrap_err());
            assert!(problem.contains(part), "{words:?}: {problem}");
        }
    }
}
