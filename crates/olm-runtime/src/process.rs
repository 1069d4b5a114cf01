//! The outer shell of every process: an async runtime, the last word when it fails, and which build it is.
//!
//! Rule: catalogd §2.1 (`version`), §2.2 (`Error: ` and exit code 1).

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use crate::args::Command;
use crate::check;

/// How long a process that has ended waits for threads that still write to disk.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Runs what the command line of a program asks for, to its end: `work`, unless it names another job.
pub fn main<E: Display>(
    build: &Build,
    command: Option<Command>,
    work: impl Future<Output = Result<(), E>>,
) -> ExitCode {
    match command {
        Some(Command::Version) => print_line(&build.to_string()),
        Some(Command::Check(args)) => run(check::run(args)),
        None => run(work),
    }
}

/// Runs a process to its end. A failure is printed on standard error, with its causes, and gives exit code 1.
pub fn run<E: Display>(work: impl Future<Output = Result<(), E>>) -> ExitCode {
    #[cfg(unix)]
    raise_open_files();
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

/// Raises the soft limit of open files to the hard one, as Go does at its start. Container runtimes may begin with 1,024, and catalogd alone
/// takes as many connections. If it cannot be raised, it stays.
#[cfg(unix)]
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[expect(clippy::print_stderr, reason = "the last word of the process, where users look for it")]
fn failed(error: &impl Display) -> ExitCode {
    eprintln!("Error: {error:#}");
    ExitCode::FAILURE
}

/// Which build a program is. [`build!`](crate::build) makes it, in the program itself: another commit compiles that crate again, and no other.
#[derive(Debug, Clone, Copy)]
pub struct Build {
    /// Of the package.
    pub version: &'static str,
    /// `OLM_COMMIT` of the environment it was built in.
    pub commit: Option<&'static str>,
    /// `OLM_COMMIT_DATE` of that environment.
    pub date: Option<&'static str>,
    /// `OLM_TREE_STATE` of that environment: `clean` or `dirty`.
    pub state: Option<&'static str>,
}

impl Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [commit, date, state] =
            [self.commit, self.date, self.state].map(|fact| fact.unwrap_or("unknown"));
        write!(f, "version: {:?}, commit: {commit:?}, date: {date:?}, state: {state:?}", self.version)
    }
}

/// The [`process::Build`](crate::process::Build) of the crate that calls it.
#[macro_export]
macro_rules! build {
    () => {
        $crate::process::Build {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("OLM_COMMIT"),
            date: option_env!("OLM_COMMIT_DATE"),
            state: option_env!("OLM_TREE_STATE"),
        }
    };
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

    /// Set in the process with few files: this test program, started again.
    #[cfg(unix)]
    const CHILD: &str = "OLM_TEST_FEW_FILES";

    #[cfg(unix)]
    #[test]
    fn process_raises_its_limit_of_open_files() {
        use rustix::process::{Resource, getrlimit};
        if std::env::var_os(CHILD).is_some() {
            assert_eq!(getrlimit(Resource::Nofile).current, Some(100));
            let _ = run(std::future::ready(Ok::<_, String>(())));
            let limit = getrlimit(Resource::Nofile);
            assert_eq!(limit.current, limit.maximum);
            return;
        }
        let test = "process::tests::process_raises_its_limit_of_open_files";
        let child = std::process::Command::new("sh")
            .args(["-c", "ulimit -S -n 100 && exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && text.contains("1 passed"), "{text}{:?}", child.stderr);
    }

    #[test]
    fn process_build_has_all_four_facts() {
        let build = crate::build!();
        assert_eq!(build.version, env!("CARGO_PKG_VERSION"));
        let build = Build { version: "1.2.3", commit: Some("abc"), date: None, state: Some("clean") };
        let want = r#"version: "1.2.3", commit: "abc", date: "unknown", state: "clean""#;
        assert_eq!(build.to_string(), want);
    }
}
