//! `semver check`: is a version in a range, in either dialect. For authors, and for comparisons with the Go libraries.

use std::io::BufRead;

use clap::{Args, Subcommand, ValueEnum};
use olm_core::CheckError;

use crate::CommandOutput;
use crate::failure::CommandError;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check whether VERSION is in RANGE
    #[command(
        after_help = "Examples:\n  kubectl olm semver check --dialect masterminds '>=1.0.0 <2.0.0' 1.4.2\n  \
        printf '>=1.0.0\\t0.9.0\\n' | kubectl olm semver check --dialect blang\n\n\
        A line of the answer is true, false, range-error: … or version-error: …; with two arguments the exit code is 0 for \
        true, 1 for false, 2 for an error, and what is wrong with a range is pointed at on standard error."
    )]
    Check(Check),
}

/// Which library's rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// `spec.source.catalog.version` of a ClusterExtension; the version may be loose, as v1.2.
    Masterminds,
    /// `skipRange` of a channel entry; the version must be strict.
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

pub(crate) fn run(Verb::Check(check): &Verb, input: impl BufRead) -> Result<CommandOutput, CommandError> {
    if let (Some(range), Some(version)) = (&check.range, &check.version) {
        return match olm_core::check(check.dialect.into(), range, version) {
            Ok(yes) => Ok(CommandOutput { text: format!("{yes}\n"), yes }),
            Err(problem) => {
                let help = match &problem {
                    CheckError::Range(error) => Some(error.explain()),
                    CheckError::Version(_) => None,
                };
                Err(CommandError::Verdict { text: problem.to_string(), help })
            }
        };
    }
    let mut text = String::new();
    for (index, line) in input.lines().enumerate() {
        let line = line.map_err(|source| CommandError::Read { path: "standard input".into(), source })?;
        let (range, version) = line.split_once('\t').ok_or_else(|| {
            CommandError::Usage(format!(
                "line {} of standard input has no tab; write RANGE<TAB>VERSION",
                index + 1
            ))
        })?;
        let answer = olm_core::check(check.dialect.into(), range, version);
        text += &answer.map_or_else(|problem| format!("{problem}\n"), |yes| format!("{yes}\n"));
    }
    Ok(CommandOutput { text, yes: true })
}

impl From<Dialect> for olm_core::Dialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Masterminds => Self::Masterminds,
            Dialect::Blang => Self::Blang,
        }
    }
}
