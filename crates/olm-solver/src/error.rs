//! Errors of a resolution.

use olm_core::go;
use olm_resolver::ChannelOrderError;

use crate::conflict::Conflict;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SolveError {
    /// The rules contradict each other.
    #[error(transparent)]
    Unsatisfiable(#[from] Conflict),
    /// Something that the resolution reaches cannot be used; all of it.
    #[error("{}", join(.0))]
    Input(Vec<InputError>),
    /// More work than [`crate::Limits`] allow.
    #[error(
        "resolution of namespace {} was given up after {steps} steps with {candidates} candidates; \
         resolve fewer Subscriptions in one namespace, or fewer catalogs",
        go::quote(namespace)
    )]
    TooMuchWork { namespace: String, steps: u64, candidates: usize },
}

/// What OLM Classic distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Unsatisfiable,
    /// The order of channels cannot be determined.
    Ambiguous,
    Other,
}

impl SolveError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unsatisfiable(_) => ErrorKind::Unsatisfiable,
            Self::Input(problems) if problems.iter().all(|it| matches!(it, InputError::Order { .. })) => {
                ErrorKind::Ambiguous
            }
            Self::Input(_) | Self::TooMuchWork { .. } => ErrorKind::Other,
        }
    }
}

/// An object that cannot be used, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("error using catalogsource {namespace}/{name}: {problem}; fix or delete the CatalogSource")]
    NoContent { name: String, namespace: String, problem: String },
    #[error(
        "csv {csv} in phase {phase} instead of Replacing, although {by} replaces it; wait, or delete one of the \
         ClusterServiceVersions"
    )]
    NotReplacing { csv: String, phase: String, by: String },
    #[error(
        "csv {csv} replaces itself through spec.replaces of other ClusterServiceVersions; delete one of them"
    )]
    ReplacesLoop { csv: String },
    /// `None`: the Subscription names no catalog, or CSVs of the namespace are meant.
    #[error("{}{source}; fix the channel in the catalog", .catalog.as_ref().map(|it| format!("catalogsource {it}: ")).unwrap_or_default())]
    Order { catalog: Option<String>, source: ChannelOrderError },
    #[error("bundle {bundle}: {problem}; publish the bundle with a property that can be read")]
    Property { bundle: String, problem: String },
}

fn join(problems: &[InputError]) -> String {
    let texts: Vec<String> = problems.iter().map(InputError::to_string).collect();
    texts.join("\n")
}
