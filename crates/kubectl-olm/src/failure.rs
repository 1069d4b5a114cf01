//! Errors of commands: a message that names the object and what to do, and an exit code for the kind of error.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use kube::core::Status;
use olm_runtime::client::ConnectionError;
use olm_runtime::error_text::{chain, innermost};

use crate::rights::{in_words, is_missing_right, role_for};
use crate::{CommandOutput, VerbFuture};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("{0}")]
    NotFound(String),
    #[error("cannot read {}: {source}", path_text(path))]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}: {source}", path.display())]
    WriteFile { path: PathBuf, source: std::io::Error },
    #[error("{}: {message}", path_text(path))]
    Content { path: PathBuf, message: String },
    /// A result that is an error of the input.
    #[error("{text}")]
    Verdict {
        /// The result, for standard output.
        text: String,
        /// An explanation, for standard error.
        help: Option<String>,
    },
    #[error("{0}")]
    Usage(String),
    /// Standard output cannot be written.
    #[error("cannot write the result: {1}")]
    Write(std::io::ErrorKind, String),
    /// The cluster, catalogd or a registry could not be reached.
    #[error("{0}")]
    Unreachable(String),
    /// A result with the exit code of errors that are printed or part of it, such as those about some of several objects.
    #[error("{text}")]
    Partial {
        /// The result, for standard output.
        text: String,
        code: u8,
    },
    /// Ctrl-C; what to do then was printed.
    #[error("interrupted")]
    Interrupted,
}

/// The cluster does not serve the kinds of OLM.
pub(crate) const NOT_INSTALLED: &str = "OLM is not installed in this cluster";
/// The cluster serves ClusterExtensions, and not their revisions: the standard manifests of the Go implementation do not have the kind.
pub(crate) const NO_REVISIONS: &str = "this cluster serves no ClusterObjectSets";

impl CommandError {
    /// A request that failed; `doing` is the verb and object, such as `read ClusterExtensions`.
    pub(crate) fn from_request(doing: &str, error: &kube::Error) -> Self {
        if let Some(ConnectionError { url, why }) = ConnectionError::behind(error) {
            let preposition = if is_read(doing) { "from" } else { "at" };
            return Self::Unreachable(format!("cannot {doing} {preposition} {url}: {why}"));
        }
        let text = chain(error);
        match error {
            kube::Error::Api(status) if is_kind_missing(status) => {
                Self::Unreachable(format!("{}, or use another --context", not_served(doing)))
            }
            kube::Error::Api(status) if is_denied_by_admission(doing, status) => {
                Self::Usage(format!("cannot {doing}: {text}"))
            }
            kube::Error::Api(status) if status.code == 403 && role_for(doing).is_some() => {
                let role = role_for(doing).unwrap_or_default();
                Self::Unreachable(format!("{}; ClusterRole {role} allows it", in_words(&text)))
            }
            kube::Error::Api(status) if status.code == 401 || status.code == 403 => {
                Self::Unreachable(format!("{text}; ask for the right to {doing}, or use another --context"))
            }
            _ => Self::Unreachable(format!("cannot {doing}: {text}")),
        }
    }

    /// A result that only reports that catalogs could not be read.
    pub(crate) fn unanswered(text: String) -> Self {
        Self::Partial { text, code: Self::Unreachable(String::new()).code() }
    }

    pub(crate) fn content(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::Content { path: path.to_owned(), message: error.to_string() }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NotFound(_) | Self::Write(..) => 1,
            Self::Read { .. }
            | Self::WriteFile { .. }
            | Self::Content { .. }
            | Self::Verdict { .. }
            | Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::Partial { code, .. } => *code,
            // 128 and the number of SIGINT, as a shell reports it
            Self::Interrupted => 130,
        }
    }
}

/// Whether an answer means that the kind is not served, rather than that an object is missing.
pub(crate) fn is_kind_missing(status: &Status) -> bool {
    let names_an_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !names_an_object
}

/// The kinds of OLM Classic, as requests name them.
const CLASSIC_KINDS: [&str; 5] =
    ["catalogsources", "clusterserviceversions", "installplans", "operatorgroups", "subscriptions"];

/// What is missing in a cluster that does not serve the kind of a request, and what to do.
fn not_served(doing: &str) -> String {
    let kind = doing.split(' ').nth(1).unwrap_or_default();
    if kind == "ClusterObjectSets" {
        let replace = "`kubectl olm migrate reference plan` shows how to replace";
        return format!("{NO_REVISIONS}: its OLM is another one, which {replace}");
    }
    if CLASSIC_KINDS.contains(&kind) {
        let text =
            "OLM Classic is not installed in this cluster; look at `kubectl olm list` for ClusterExtensions";
        return text.to_owned();
    }
    format!("{NOT_INSTALLED}; install it")
}

/// Whether a request changes nothing.
fn is_read(doing: &str) -> bool {
    matches!(doing.split(' ').next(), Some("read" | "list"))
}

/// Whether a write is refused although no right is missing, such as by a webhook.
fn is_denied_by_admission(doing: &str, status: &Status) -> bool {
    status.code == 403 && !is_read(doing) && !is_missing_right(&status.message)
}

/// A path as it is printed; `-` is standard input.
fn path_text(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// The bytes of a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    let read = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map_err(|source| CommandError::Read { path: path.to_owned(), source })
}

/// An error if a path is no directory.
pub(crate) fn check_directory(path: &Path) -> Result<(), CommandError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(CommandError::content(path, "it is a file, not a directory")),
        Err(source) => Err(CommandError::Read { path: path.to_owned(), source }),
    }
}

/// Prints a result to standard output.
pub(crate) fn print_result(text: &str) -> Result<(), CommandError> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(crate::terminal::printable(text).as_bytes()).and_then(|()| output.flush());
    written.map_err(|error| CommandError::Write(error.kind(), innermost(&error)))
}

/// Prints a notice to standard error. If that is closed, as by `2>&1 | head`, a change is still completed, and its exit code stays.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", crate::terminal::harmless(text));
}

/// Runs a verb.
pub(crate) fn wait(work: VerbFuture<'_>) -> Result<CommandOutput, CommandError> {
    olm_runtime::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    let runtime = runtime.map_err(|error| CommandError::Usage(format!("cannot start: {error}")))?;
    let done = runtime.block_on(work);
    // after Ctrl-C a thread may still wait for an answer on the terminal
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_what_is_not_installed() {
        for (doing, want) in [
            ("read ClusterExtensions", NOT_INSTALLED),
            ("read ClusterObjectSets", NO_REVISIONS),
            ("list subscriptions", "OLM Classic is not installed in this cluster"),
        ] {
            let status = Status::failure("404 page not found", "NotFound").with_code(404);
            let failure = CommandError::from_request(doing, &kube::Error::Api(status.boxed()));
            let text = failure.to_string();
            assert!(text.starts_with(want) && text.ends_with(", or use another --context"), "{text}");
            assert_eq!(failure.code(), 3, "{text}");
        }
    }

    #[test]
    fn error_names_the_address_of_an_unreachable_apiserver() {
        for (doing, want) in [
            ("read namespaces", "cannot read namespaces from https://a: connection refused"),
            (
                "write ClusterExtension \"x\"",
                "cannot write ClusterExtension \"x\" at https://a: connection refused",
            ),
        ] {
            let cause = ConnectionError { url: "https://a".to_owned(), why: "connection refused".to_owned() };
            let failure = CommandError::from_request(doing, &kube::Error::Service(Box::new(cause)));
            assert_eq!((failure.code(), failure.to_string().as_str()), (3, want));
        }
    }

    #[test]
    fn error_of_admission_is_no_missing_right() {
        let webhook = "admission webhook \"policy.example.com\" denied the request: add a label";
        let right = "clusterextensions.olm.operatorframework.io \"x\" is forbidden: User \"u\" cannot patch resource \
                     \"clusterextensions\" in API group \"olm.operatorframework.io\" at the cluster scope";
        let write = "write ClusterExtension \"x\"";
        for (doing, message, want) in [
            (write, webhook, (2, format!("cannot {write}: {webhook}"))),
            ("create namespace \"n\"", webhook, (2, format!("cannot create namespace \"n\": {webhook}"))),
            (
                write,
                right,
                (
                    3,
                    "you may not patch clusterextensions.olm.operatorframework.io; ClusterRole \
                     operator-controller-clusterextension-editor-role allows it"
                        .to_owned(),
                ),
            ),
        ] {
            let status = Status::failure(message, "Forbidden").with_code(403);
            let failure = CommandError::from_request(doing, &kube::Error::Api(status.boxed()));
            assert_eq!((failure.code(), failure.to_string()), want);
        }
    }
}
