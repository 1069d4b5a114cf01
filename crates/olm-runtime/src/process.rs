//! The outer shell of every process: an async runtime, the last word when it fails, and which build it is.
//!
//! Rule: catalogd §2.1 (`version`), §2.2 (`Error: ` and exit code 1).

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

/// How long a process that has ended waits for threads that still write to disk.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Runs a process to its end. A failure is printed on standard error, with its causes, and gives exit code 1.
pub fn run<E: Display>(work: impl Future<Output = Result<(), E>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let ended = runtime.block_on(work);
    crate::telemetry::traces::finish();
    runtime.shutdown_timeout(EXIT_GRACE_PERIOD);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of the process, where users look for it")]
fn failed(error: &impl Display) -> ExitCode {
    eprintln!("Error: {error:#}");
    ExitCode::FAILURE
}

/// Which build this is: `OLM_COMMIT`, `OLM_COMMIT_DATE` and `OLM_TREE_STATE` of the environment it was built in.
#[must_use]
pub fn build() -> String {
    let known = |value: Option<&'static str>| value.unwrap_or("unknown");
    let (version, commit) = (env!("CARGO_PKG_VERSION"), known(option_env!("OLM_COMMIT")));
    let (date, state) = (known(option_env!("OLM_COMMIT_DATE")), known(option_env!("OLM_TREE_STATE")));
    format!("version: {version:?}, commit: {commit:?}, date: {date:?}, state: {state:?}")
}

/// Prints one line that was asked for.
#[expect(clippy::print_stdout, reason = "the output that was asked for")]
pub fn print_line(line: &str) -> ExitCode {
    println!("{line}");
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_build_has_all_four_facts() {
        let build = build();
        let facts: Vec<&str> =
            build.split(", ").filter_map(|fact| Some(fact.split_once(": \"")?.0)).collect();
        assert_eq!(facts, ["version", "commit", "date", "state"], "{build}");
        assert!(build.contains(concat!("version: \"", env!("CARGO_PKG_VERSION"), "\"")), "{build}");
    }
}
