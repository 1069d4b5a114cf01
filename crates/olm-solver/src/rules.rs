//! The rules between all candidates: what can still be met, and which rules contradict each other.

use std::collections::BTreeMap;

use batsat::Lit;
use olm_resolver::GvkRef;

use crate::conflict::{Clause, Conflict};
use crate::error::SolveError;
use crate::namespace::Namespace;
use crate::reach::{Id, ListId, Reach};
use crate::sat::{OutOfBudget, Sat};
use crate::solve::{Limits, choose};

/// Why there is no choice.
#[derive(Debug)]
pub(crate) enum ChoiceError {
    Conflict(Conflict),
    OutOfBudget,
}

impl ChoiceError {
    pub(crate) fn within(self, namespace: &Namespace, reach: &Reach<'_>, limits: Limits) -> SolveError {
        match self {
            Self::Conflict(conflict) => conflict.into(),
            Self::OutOfBudget => SolveError::TooMuchWork {
                namespace: namespace.name.clone(),
                steps: limits.decisions,
                candidates: reach.candidates.len(),
            },
        }
    }
}

impl From<OutOfBudget> for ChoiceError {
    fn from(OutOfBudget: OutOfBudget) -> Self {
        Self::OutOfBudget
    }
}

enum Rule<'a> {
    Exists(usize),
    Nothing(usize, &'a str),
    Requires(usize, ListId),
    Unreferenced(Id),
    Needs(Id, usize),
    Deprecated(Id),
    OnePackage(&'a str, Vec<Id>),
    OneProvider(&'a GvkRef, Vec<Id>),
    Replaces(Id, Id),
}

/// The rules between all candidates, each of which can become a clause of a conflict.
pub(crate) struct Rules<'a> {
    reach: &'a Reach<'a>,
    rules: Vec<Rule<'a>>,
}

/// The literals of candidates and Subscriptions in a SAT solver.
struct Encoded {
    sat: Sat,
    candidates: Vec<Lit>,
    /// What switches each rule on; the same for all if no conflict is explained.
    active: Vec<Lit>,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(reach: &'a Reach<'a>) -> Self {
        let mut rules = Vec::new();
        rules.extend(reach.unreferenced.iter().map(|&id| Rule::Unreferenced(id)));
        for (at, subscribed) in reach.subscriptions.iter().enumerate() {
            rules.push(Rule::Exists(at));
            match &subscribed.alternatives {
                Err(problem) => rules.push(Rule::Nothing(at, problem)),
                Ok(list) => rules.push(Rule::Requires(at, *list)),
            }
        }
        rules.extend(reach.replacements().map(|(newer, installed)| Rule::Replaces(newer, installed)));
        let mut of_package: BTreeMap<&str, Vec<Id>> = BTreeMap::new();
        let mut of_gvk: BTreeMap<&GvkRef, Vec<Id>> = BTreeMap::new();
        for (id, candidate) in reach.candidates.iter().enumerate() {
            let content = reach.content(id);
            rules.extend((0..candidate.needs.len()).map(|need| Rule::Needs(id, need)));
            rules.extend(content.is_deprecated.then_some(Rule::Deprecated(id)));
            content.packages.iter().for_each(|package| of_package.entry(package).or_default().push(id));
            content.provides.iter().for_each(|gvk| of_gvk.entry(gvk).or_default().push(id));
        }
        let several = |ids: &Vec<Id>| ids.len() > 1;
        let of_package = of_package.into_iter().filter(|(_, ids)| several(ids));
        let of_gvk = of_gvk.into_iter().filter(|(_, ids)| several(ids));
        rules.extend(of_package.map(|(package, ids)| Rule::OnePackage(package, ids)));
        rules.extend(of_gvk.map(|(gvk, ids)| Rule::OneProvider(gvk, ids)));
        Self { reach, rules }
    }

    /// All rules as clauses; each with a switch of its own if a conflict is to be explained.
    fn encode(&self, is_apart: bool, decisions: u64) -> Encoded {
        let mut sat = Sat::new(decisions);
        let candidates: Vec<Lit> = self.reach.candidates.iter().map(|_| sat.new_literal()).collect();
        let subscriptions: Vec<Lit> = self.reach.subscriptions.iter().map(|_| sat.new_literal()).collect();
        // that a list is met; many bundles share one
        let lists: Vec<Lit> = self.reach.lists.iter().map(|_| sat.new_auxiliary()).collect();
        for (&met, list) in lists.iter().zip(&self.reach.lists) {
            sat.add([!met].into_iter().chain(list.iter().map(|&id| candidates[id])));
        }
        let always = sat.new_literal();
        if !is_apart {
            sat.add([always]);
        }
        let mut switches = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            let active = if is_apart { sat.new_literal() } else { always };
            switches.push(active);
            let literals = |ids: &[Id]| -> Vec<Lit> { ids.iter().map(|&id| candidates[id]).collect() };
            match rule {
                Rule::Exists(at) => sat.add([!active, subscriptions[*at]]),
                Rule::Nothing(at, _) => sat.add([!active, !subscriptions[*at]]),
                Rule::Requires(at, list) => sat.add([!active, !subscriptions[*at], lists[*list]]),
                Rule::Unreferenced(id) => sat.add([!active, candidates[*id]]),
                Rule::Needs(id, need) => {
                    let list = self.reach.candidates[*id].needs[*need].list;
                    sat.add([!active, !candidates[*id], lists[list]]);
                }
                Rule::Deprecated(id) => sat.add([!active, !candidates[*id]]),
                Rule::OnePackage(_, ids) => sat.add_at_most_one(active, &literals(ids)),
                Rule::OneProvider(_, ids) => sat.add_at_most_one(active, &literals(ids)),
                Rule::Replaces(one, other) => sat.add([!active, !candidates[*one], !candidates[*other]]),
            }
        }
        Encoded { sat, candidates, active: switches }
    }

    /// The choice with which all rules can be met, or why there is none.
    pub(crate) fn choose_or_explain(&self, decisions: u64) -> Result<Vec<Id>, ChoiceError> {
        let Encoded { mut sat, candidates, .. } = self.encode(false, decisions);
        let can_be_met = sat.solve(&[])?;
        // no choice is undone: the solver knows whether the rules can still be met with it
        let take = |id: Id| -> Result<bool, OutOfBudget> {
            let literal = candidates[id];
            let can_be_met =
                !sat.is_impossible(literal) && (sat.is_true(literal) || sat.solve(&[literal])?);
            if can_be_met {
                sat.add([literal]);
            }
            Ok(can_be_met)
        };
        let chosen = if can_be_met { choose(self.reach, take)? } else { None };
        match chosen {
            Some(chosen) => Ok(chosen),
            None => Err(ChoiceError::Conflict(self.explain(decisions)?)),
        }
    }

    fn explain(&self, decisions: u64) -> Result<Conflict, OutOfBudget> {
        Ok(Conflict { clauses: self.clauses(&self.contradicting(&[], decisions)?) })
    }

    /// The clauses for which a candidate cannot be chosen beside others; in the order of their texts.
    pub(crate) fn forbidding(
        &self,
        chosen: &[Id],
        candidate: Id,
        decisions: u64,
    ) -> Result<Vec<Clause>, OutOfBudget> {
        let together: Vec<Id> = chosen.iter().copied().chain([candidate]).collect();
        Ok(self.clauses(&self.contradicting(&together, decisions)?))
    }

    fn clauses(&self, rules: &[usize]) -> Vec<Clause> {
        let mut clauses: Vec<Clause> = rules.iter().map(|&rule| self.clause(&self.rules[rule])).collect();
        clauses.sort_by_cached_key(Clause::to_string);
        clauses
    }

    /// Places of rules that contradict each other if these candidates are chosen, none of which can be left out.
    fn contradicting(&self, chosen: &[Id], decisions: u64) -> Result<Vec<usize>, OutOfBudget> {
        let Encoded { mut sat, candidates, active } = self.encode(true, decisions);
        chosen.iter().for_each(|&id| sat.add([candidates[id]]));
        let mut left: Vec<usize> = (0..self.rules.len()).collect();
        let all: Vec<Lit> = left.iter().map(|&rule| active[rule]).collect();
        if !sat.solve(&all)? {
            left.retain(|&rule| sat.is_to_blame(active[rule]));
        }
        let mut needed = 0;
        while needed < left.len() {
            let at = left.len() - 1 - needed;
            let dropped = left.remove(at);
            let others: Vec<Lit> = left.iter().map(|&rule| active[rule]).collect();
            if sat.solve(&others)? {
                left.insert(at, dropped);
                needed += 1;
            } else {
                left.retain(|&rule| sat.is_to_blame(active[rule]));
            }
        }
        Ok(left)
    }

    fn clause(&self, rule: &Rule<'_>) -> Clause {
        let subscription = |at: usize| self.reach.subscriptions[at].subscription.name.clone();
        let names = |ids: &[Id]| ids.iter().map(|&id| self.reach.name(id)).collect();
        let sorted = |ids: &[Id]| -> Vec<String> {
            let mut names: Vec<String> = names(ids);
            names.sort();
            names
        };
        match rule {
            Rule::Exists(at) => Clause::SubscriptionExists { subscription: subscription(*at) },
            Rule::Nothing(_, problem) => Clause::NoOperators { problem: (*problem).to_owned() },
            Rule::Requires(at, list) => Clause::SubscriptionRequires {
                subscription: subscription(*at),
                candidates: names(&self.reach.lists[*list]),
            },
            Rule::Unreferenced(id) => Clause::Unreferenced { csv: self.reach.content(*id).name.to_string() },
            Rule::Needs(id, need) => Clause::Requires {
                bundle: self.reach.content(*id).name.to_string(),
                need: self.reach.candidates[*id].needs[*need].text.to_string(),
            },
            Rule::Deprecated(id) => Clause::Deprecated { candidate: self.reach.name(*id) },
            Rule::OnePackage(package, ids) => {
                Clause::OnePackage { candidates: sorted(ids), package: (*package).to_owned() }
            }
            Rule::OneProvider(gvk, ids) => {
                Clause::OneProvider { candidates: sorted(ids), gvk: (*gvk).clone() }
            }
            Rule::Replaces(one, other) => {
                Clause::Replaces { candidate: self.reach.name(*one), installed: self.reach.name(*other) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve::{Limits, Selection};
    use crate::sources::Sources;
    use crate::testing::{plain, recorded_cases};

    #[test]
    fn conflicts_are_contradictory_and_minimal() {
        let Some(cases) = recorded_cases() else { return };
        let mut checked = 0;
        for case in
            cases.iter().filter(|case| case.expect.as_ref().is_some_and(|it| it["kind"] == "unsatisfiable"))
        {
            let sources = Sources::new(&case.namespace);
            let limits = Limits::default();
            let reach = Reach::new(&case.namespace, &sources, limits.steps).unwrap();
            let rules = Rules::new(&reach);
            let found = rules.contradicting(&[], limits.decisions).unwrap();
            // a fresh solver each time, which knows nothing of the search
            let is_met_without = |left_out: Option<usize>| {
                let Encoded { mut sat, active, .. } = rules.encode(true, limits.decisions);
                let left = found.iter().filter(|&&rule| Some(rule) != left_out);
                sat.solve(&left.map(|&rule| active[rule]).collect::<Vec<_>>()).unwrap()
            };
            assert!(!is_met_without(None), "{}: not contradictory", case.id);
            for &rule in &found {
                assert!(
                    is_met_without(Some(rule)),
                    "{}: {} can be left out",
                    case.id,
                    rules.clause(&rules.rules[rule])
                );
            }
            checked += 1;
        }
        assert!(checked > 400, "{checked}");
    }

    #[test]
    fn choice_is_the_same_when_it_goes_back() {
        let Some(cases) = recorded_cases() else { return };
        let limits = Limits::default();
        let (mut compared, mut dead_ends) = (0, 0);
        for case in &cases {
            let sources = Sources::new(&case.namespace);
            let Ok(reach) = Reach::new(&case.namespace, &sources, limits.steps) else { continue };
            let Some(found) = plain::choose(&reach) else { continue };
            let ahead = Rules::new(&reach).choose_or_explain(limits.decisions).ok();
            assert_eq!(found, ahead, "{}", case.id);
            compared += 1;
            let mut selection = Selection::new(&reach);
            let straight = choose(&reach, |id| Ok::<bool, OutOfBudget>(selection.take(id))).unwrap();
            dead_ends += usize::from(straight.is_none());
        }
        assert!(compared > 2000 && dead_ends > 300, "{compared}, {dead_ends}");
    }

    #[test]
    fn choice_is_the_same_with_and_without_looking_ahead() {
        let Some(cases) = recorded_cases() else { return };
        let limits = Limits::default();
        let mut compared = 0;
        for case in &cases {
            let sources = Sources::new(&case.namespace);
            let Ok(reach) = Reach::new(&case.namespace, &sources, limits.steps) else { continue };
            let mut selection = Selection::new(&reach);
            let Some(chosen) = choose(&reach, |id| Ok::<bool, OutOfBudget>(selection.take(id))).unwrap()
            else {
                continue;
            };
            let ahead = Rules::new(&reach).choose_or_explain(limits.decisions);
            assert!(ahead.is_ok_and(|ahead| ahead == chosen), "{}", case.id);
            compared += 1;
        }
        assert!(compared > 1000, "{compared}");
    }
}
