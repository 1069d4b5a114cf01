//! `semver check`: is a version in a range, in either dialect. For authors, and for checking us.

use std::io::BufRead;

use clap::{Args, Subcommand, ValueEnum};
use olm_core::{Range, Version};

use crate::Answer;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Say whether VERSION is in RANGE
    #[command(
        after_help = "Examples:\n  kubectl olm semver check --dialect masterminds '>=1.0.0 <2.0.0' 1.4.2\n  \
        printf '>=1.0.0\\t0.9.0\\n' | kubectl olm semver check --dialect blang\n\n\
        A line of the answer is true, false, range-error: … or version-error: …; with two arguments the exit code is 0 for \
        true, 1 for false, 2 for an error."
    )]
    Check(Check),
}

/// Which library's rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// `spec.source.catalog.version` of a ClusterExtension.
    Masterminds,
    /// `skipRange` of a channel entry.
    Blang,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Whose rules
    #[arg(long, value_enum)]
    dialect: Dialect,
    /// The range; without it, lines `RANGE<TAB>VERSION` are read from standard input
    #[arg(requires = "version")]
    range: Option<String>,
    /// The version
    version: Option<String>,
}

pub(crate) fn run(Verb::Check(check): &Verb, input: impl BufRead) -> Result<Answer, Failure> {
    if let (Some(range), Some(version)) = (&check.range, &check.version) {
        return match verdict(check.dialect, range, version) {
            Ok(yes) => Ok(Answer { text: format!("{yes}\n"), yes }),
            Err(text) => Err(Failure::Usage(text)),
        };
    }
    let mut text = String::new();
    for (index, line) in input.lines().enumerate() {
        let line = line.map_err(|source| Failure::Read { path: "standard input".into(), source })?;
        let (range, version) = line.split_once('\t').ok_or_else(|| {
            Failure::Usage(format!(
                "line {} of standard input has no tab; write RANGE<TAB>VERSION",
                index + 1
            ))
        })?;
        match verdict(check.dialect, range, version) {
            Ok(yes) => text.push_str(&format!("{yes}\n")),
            Err(problem) => text.push_str(&format!("{problem}\n")),
        }
    }
    Ok(Answer { text, yes: true })
}

fn verdict(dialect: Dialect, range: &str, version: &str) -> Result<bool, String> {
    let range = match dialect {
        Dialect::Masterminds => Range::masterminds(range),
        Dialect::Blang => Range::blang(range),
    };
    let range = range.map_err(|error| format!("range-error: {error}"))?;
    let version: Version = version.parse().map_err(|error| format!("version-error: {error}"))?;
    Ok(range.contains(&version))
}
