//! Contradictions between rules, in the words of OLM Classic (update-graph §7.4).

use std::fmt;

use olm_resolver::GvkRef;
use olm_resolver::constraint::Constraint;

/// Clauses that contradict each other; without any one of them they would not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Conflict {
    /// In the order of their texts.
    pub clauses: Vec<Clause>,
}

/// A rule that takes part in a conflict. Candidates are written `catalog/namespace/channel/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clause {
    SubscriptionExists {
        subscription: String,
    },
    /// The catalog, package, channel or startingCSV of the Subscription is not there; in full.
    NoOperators {
        problem: String,
    },
    SubscriptionRequires {
        subscription: String,
        candidates: Vec<String>,
    },
    Unreferenced {
        csv: String,
    },
    Requires {
        bundle: String,
        need: String,
    },
    Deprecated {
        candidate: String,
    },
    OnePackage {
        candidates: Vec<String>,
        package: String,
    },
    OneProvider {
        candidates: Vec<String>,
        gvk: GvkRef,
    },
    Replaces {
        candidate: String,
        installed: String,
    },
}

impl Clause {
    /// What would take the clause out of the conflict.
    pub fn hint(&self) -> String {
        match self {
            Self::SubscriptionExists { subscription } => {
                format!("delete Subscription {subscription}, or move it to a namespace of its own")
            }
            Self::NoOperators { .. } => "name a catalog, package, channel and startingCSV that exist, in \
                                         spec.source, spec.name, spec.channel and spec.startingCSV"
                .to_owned(),
            Self::SubscriptionRequires { subscription, .. } => format!(
                "let spec.channel or spec.startingCSV of Subscription {subscription} allow other bundles"
            ),
            Self::Unreferenced { csv } => {
                format!("delete ClusterServiceVersion {csv}, or create a Subscription to its package")
            }
            Self::Requires { bundle, .. } => {
                format!("add a catalog that has what {bundle} requires, or choose another version of it")
            }
            Self::Deprecated { candidate } => format!("choose a newer bundle than {candidate}"),
            Self::OnePackage { package, .. } => {
                format!("ask for package {package} once, in one version that suits all who need it")
            }
            Self::OneProvider { gvk, .. } => format!("install one of the operators that provide {gvk}"),
            Self::Replaces { candidate, installed } => {
                format!("keep {installed}, or upgrade to {candidate}: both cannot be there")
            }
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.clauses.iter().map(Clause::to_string).collect();
        write!(f, "constraints not satisfiable: {}", texts.join(", "))
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SubscriptionExists { subscription } => write!(f, "subscription {subscription} exists"),
            Self::NoOperators { problem } => f.write_str(problem),
            Self::SubscriptionRequires { subscription, candidates } => match candidates.as_slice() {
                [only] => write!(f, "subscription {subscription} requires {only}"),
                several => {
                    write!(f, "subscription {subscription} requires at least one of {}", list(several, "or"))
                }
            },
            Self::Unreferenced { csv } => {
                write!(f, "clusterserviceversion {csv} exists and is not referenced by a subscription")
            }
            Self::Requires { bundle, need } => write!(f, "bundle {bundle} requires an operator {need}"),
            Self::Deprecated { candidate } => write!(f, "bundle {candidate} is deprecated"),
            Self::OnePackage { candidates, package } => {
                write!(f, "{} originate from package {package}", list(candidates, "and"))
            }
            Self::OneProvider { candidates, gvk } => write!(f, "{} provide {gvk}", list(candidates, "and")),
            Self::Replaces { candidate, installed } => write!(f, "{candidate} conflicts with {installed}"),
        }
    }
}

fn list(texts: &[String], word: &str) -> String {
    match texts {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} {word} {last}", most.join(", ")),
    }
}

/// A dependency as OLM Classic prints it.
pub(crate) fn describe(constraint: &Constraint) -> String {
    let join = |parts: &[Constraint], word: &str| {
        let texts: Vec<String> = parts.iter().map(describe).collect();
        texts.join(word)
    };
    match constraint {
        Constraint::Gvk(gvk) => format!(
            "providing an API with group: {}, version: {}, kind: {}",
            gvk.group, gvk.version, gvk.kind
        ),
        Constraint::Package { name, range } => {
            format!("with package: {name} and with version in range: {range}")
        }
        Constraint::Label(label) => format!("with label: {label}"),
        Constraint::All(parts) => join(parts, " and "),
        Constraint::Any(parts) => join(parts, " or "),
        Constraint::Not(parts) => {
            let texts: Vec<String> = parts.iter().map(|part| format!("not {}", describe(part))).collect();
            texts.join(" and ")
        }
        Constraint::Cel(rule, message) => {
            format!("with constraint: \"{}\" and message: \"{message}\"", rule.as_str())
        }
    }
}
