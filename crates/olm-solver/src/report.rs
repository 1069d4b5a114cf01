//! The reasons for each choice of the solver, and the rules against the alternatives that are preferred to it.

use std::collections::VecDeque;
use std::fmt;

use olm_core::Range;

use crate::conflict::Clause;
use crate::error::SolveError;
use crate::namespace::Namespace;
use crate::reach::{Id, ListId, Reach};
use crate::rules::{ChoiceError, Rules};
use crate::solve::{ChosenBundle, Limits, bundle, chosen};
use crate::sources::Sources;

/// A bundle or CSV that the namespace has after the resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub candidate: CandidateName,
    /// `None`: it is installed, and stays.
    pub bundle: Option<ChosenBundle>,
    /// Names that its entry skips.
    pub skips: Vec<String>,
    /// As the catalog writes it; empty without one.
    pub skip_range: String,
    /// Why it is there, the reason for which it was chosen first.
    pub reasons: Vec<Reason>,
    /// The alternatives that are preferred to it, best first.
    pub rejected: Vec<Rejected>,
}

/// Displayed as in conflicts: `catalog/namespace/channel/name`. What is installed has the catalog `@existing` and no channel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CandidateName {
    pub catalog: String,
    /// Namespace of the catalog.
    pub namespace: String,
    pub channel: String,
    pub name: String,
}

/// What asks for a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Subscription {
        name: String,
    },
    /// The dependency in words, as in conflicts.
    Dependency {
        bundle: String,
        need: String,
    },
    /// It is installed, and no Subscription names it.
    Unreferenced,
}

/// An alternative that was not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    pub candidate: CandidateName,
    /// The rules that forbid it beside what was chosen before; without any one of them they would not.
    pub clauses: Vec<Clause>,
}

impl fmt::Display for CandidateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.catalog, self.namespace, self.channel, self.name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subscription { name } => write!(f, "subscription {name}"),
            Self::Dependency { bundle, need } => write!(f, "{bundle} requires an operator {need}"),
            Self::Unreferenced => f.write_str("installed without a subscription"),
        }
    }
}

/// Resolves a namespace as [`crate::solve`] does, and explains the answer: all choices, in the order in which they were made.
///
/// # Errors
/// As [`crate::solve`].
pub fn explain(namespace: &Namespace, limits: Limits) -> Result<Vec<Choice>, SolveError> {
    let sources = Sources::new(namespace);
    let reach = Reach::new(namespace, &sources, limits.steps)?;
    let explained = chosen(&reach, limits).and_then(|chosen| {
        let rules = Rules::new(&reach);
        steps(&reach, &chosen).into_iter().map(|step| choice(&reach, &rules, step, limits)).collect()
    });
    explained.map_err(|error| error.within(namespace, &reach, limits))
}

/// A choice, before it is put into words.
struct Step {
    id: Id,
    reasons: Vec<Reason>,
    rejected: Vec<Id>,
    /// What was chosen before it.
    before: Vec<Id>,
}

/// The way to what was chosen: the lists in their order, each with the reason for it.
fn steps(reach: &Reach<'_>, chosen: &[Id]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut queue: VecDeque<(Reason, ListId)> = VecDeque::new();
    let needs = |id: Id| {
        let bundle = reach.content(id).name.to_string();
        reach.candidates[id].needs.iter().map(move |need| {
            (Reason::Dependency { bundle: bundle.clone(), need: need.text.to_string() }, need.list)
        })
    };
    let before = |steps: &[Step]| steps.iter().map(|step| step.id).collect::<Vec<_>>();
    for &id in &reach.unreferenced {
        let before = before(&steps);
        steps.push(Step { id, reasons: vec![Reason::Unreferenced], rejected: Vec::new(), before });
        queue.extend(needs(id));
    }
    for subscribed in &reach.subscriptions {
        let name = subscribed.subscription.name.clone();
        queue.extend(
            subscribed.alternatives.iter().map(|&list| (Reason::Subscription { name: name.clone() }, list)),
        );
    }
    while let Some((reason, list)) = queue.pop_front() {
        let list = &reach.lists[list];
        if let Some(met) = steps.iter_mut().find(|step| list.contains(&step.id)) {
            met.reasons.push(reason);
            continue;
        }
        let Some(at) = list.iter().position(|id| chosen.contains(id)) else { continue };
        let (id, before) = (list[at], before(&steps));
        steps.push(Step { id, reasons: vec![reason], rejected: list[..at].to_vec(), before });
        queue.extend(needs(id));
    }
    steps
}

fn choice(reach: &Reach<'_>, rules: &Rules<'_>, step: Step, limits: Limits) -> Result<Choice, ChoiceError> {
    let Step { id, reasons, rejected, before } = step;
    let mut explained = Vec::with_capacity(rejected.len());
    for other in rejected {
        let clauses = match direct(reach, &before, other) {
            Some(clause) => vec![clause],
            None => rules.forbidding(&before, other, limits.decisions)?,
        };
        explained.push(Rejected { candidate: reach.candidate_name(other), clauses });
    }
    let candidate = &reach.candidates[id];
    let entry = reach.sources.list[candidate.source].catalog.entry(candidate.entry);
    Ok(Choice {
        candidate: reach.candidate_name(id),
        bundle: bundle(reach, id),
        skips: entry.skips.iter().map(ToString::to_string).collect(),
        skip_range: entry.skip_range.as_ref().map(Range::to_string).unwrap_or_default(),
        reasons,
        rejected: explained,
    })
}

/// The rule between a candidate and one of those that were chosen before, without further dependencies.
fn direct(reach: &Reach<'_>, before: &[Id], id: Id) -> Option<Clause> {
    let content = reach.content(id);
    if content.is_deprecated {
        return Some(Clause::Deprecated { candidate: reach.name(id) });
    }
    before.iter().find_map(|&other| {
        let taken = reach.content(other);
        let both = || {
            let mut both = vec![reach.name(id), reach.name(other)];
            both.sort();
            both
        };
        let package = content.packages.iter().find(|it| taken.packages.contains(it));
        let one_package =
            package.map(|it| Clause::OnePackage { candidates: both(), package: it.to_string() });
        let gvk = content.provides.iter().find(|it| taken.provides.contains(it));
        let one_provider = || gvk.map(|it| Clause::OneProvider { candidates: both(), gvk: it.clone() });
        let replaces = || {
            let mut pairs = reach.replacements();
            let pair = pairs.find(|&pair| pair == (id, other) || pair == (other, id))?;
            Some(Clause::Replaces { candidate: reach.name(pair.0), installed: reach.name(pair.1) })
        };
        one_package.or_else(one_provider).or_else(replaces)
    })
}
