//! The choice among the candidates, and the explanation when there is none.

use std::collections::{BTreeMap, VecDeque};

use batsat::Lit;
use olm_resolver::GvkRef;

use crate::conflict::{Clause, Conflict};
use crate::error::SolveError;
use crate::namespace::Namespace;
use crate::reach::{Id, ListId, Reach};
use crate::sat::{OutOfBudget, Sat};
use crate::sources::{INSTALLED, Sources};

/// How much work a resolution may be. The default takes some seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries, properties and CEL rules looked at.
    pub steps: u64,
    /// Decisions of the SAT solver.
    pub decisions: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 20_000_000, decisions: 5_000_000 }
    }
}

/// The bundles to install now, by catalog, channel and name. Empty: nothing changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Solution {
    pub bundles: Vec<ChosenBundle>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChosenBundle {
    /// Namespace of the catalog.
    pub namespace: String,
    pub catalog: String,
    pub channel: String,
    pub name: String,
    pub package: String,
    /// The installed CSV that it replaces, or what its entry says if nothing is installed. May be empty.
    pub replaces: String,
}

/// Resolves a namespace.
///
/// # Errors
/// When the rules contradict each other, when something that is reached cannot be used, or beyond the limits.
pub fn solve(namespace: &Namespace, limits: Limits) -> Result<Solution, SolveError> {
    let sources = Sources::new(namespace);
    let reach = Reach::new(namespace, &sources, limits.steps)?;
    let rules = Rules::new(&reach);
    let outcome = match rules.choose(limits.decisions) {
        Ok(None) => rules.explain(limits.decisions).map(Err),
        Ok(Some(chosen)) => Ok(Ok(chosen)),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(chosen) => Ok(solution(&reach, &chosen?)),
        Err(OutOfBudget) => Err(SolveError::TooMuchWork {
            namespace: namespace.name.clone(),
            steps: limits.decisions,
            candidates: reach.candidates.len(),
        }),
    }
}

fn solution(reach: &Reach<'_>, chosen: &[Id]) -> Solution {
    let mut bundles: Vec<ChosenBundle> = chosen
        .iter()
        .filter(|&&id| reach.candidates[id].source != INSTALLED)
        .map(|&id| {
            let candidate = &reach.candidates[id];
            let source = &reach.sources.list[candidate.source];
            let (catalog, entry) = (&source.catalog, candidate.entry);
            let channel = catalog.channel(entry);
            let installed = reach
                .subscriptions
                .iter()
                .find(|it| it.alternatives.as_ref().is_ok_and(|&list| reach.lists[list].contains(&id)));
            let installed = installed.and_then(|it| it.installed).map(|id| &*reach.content(id).name);
            let replaces = installed.or(catalog.entry(entry).replaces.as_deref()).unwrap_or_default();
            ChosenBundle {
                namespace: source.namespace.to_owned(),
                catalog: source.name.to_owned(),
                channel: channel.name.to_string(),
                name: catalog.content(entry).name.to_string(),
                package: channel.package.to_string(),
                replaces: replaces.to_owned(),
            }
        })
        .collect();
    bundles.sort();
    Solution { bundles }
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
struct Rules<'a> {
    reach: &'a Reach<'a>,
    rules: Vec<Rule<'a>>,
}

/// The literals of candidates and Subscriptions in a SAT solver.
struct Encoded {
    sat: Sat,
    candidates: Vec<Lit>,
    /// What switches each rule on; the same for all unless rules are told apart.
    active: Vec<Lit>,
}

impl<'a> Rules<'a> {
    fn new(reach: &'a Reach<'a>) -> Self {
        let mut rules = Vec::new();
        rules.extend(reach.unreferenced.iter().map(|&id| Rule::Unreferenced(id)));
        for (at, subscribed) in reach.subscriptions.iter().enumerate() {
            rules.push(Rule::Exists(at));
            match &subscribed.alternatives {
                Err(problem) => rules.push(Rule::Nothing(at, problem)),
                Ok(list) => {
                    rules.push(Rule::Requires(at, *list));
                    if let Some(installed) = subscribed.installed {
                        let newer = reach.lists[*list].iter().filter(|&&id| id != installed);
                        rules.extend(newer.map(|&id| Rule::Replaces(id, installed)));
                    }
                }
            }
        }
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

    /// All rules as clauses; each with a switch of its own if they are to be told apart.
    fn encode(&self, is_apart: bool, decisions: u64) -> Encoded {
        let mut sat = Sat::new(decisions);
        let candidates: Vec<Lit> = self.reach.candidates.iter().map(|_| sat.new_literal()).collect();
        let subscriptions: Vec<Lit> = self.reach.subscriptions.iter().map(|_| sat.new_literal()).collect();
        // that a list is met; many bundles share one
        let lists: Vec<Lit> = self.reach.lists.iter().map(|_| sat.new_literal()).collect();
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

    /// The bundles that are to be there, in the order in which they are chosen. `None` if the rules contradict each other.
    ///
    /// Lists of alternatives wait in a queue: those of the Subscriptions, then those of each bundle that was chosen. If a list has
    /// a chosen bundle, it is met; otherwise the first alternative is chosen with which all rules can still be met. So the earlier
    /// list wins, and nothing that no list asks for is chosen. Because the SAT solver looks ahead, no choice is ever undone.
    fn choose(&self, decisions: u64) -> Result<Option<Vec<Id>>, OutOfBudget> {
        let Encoded { mut sat, candidates, .. } = self.encode(false, decisions);
        if !sat.solve(&[])? {
            return Ok(None);
        }
        let mut is_chosen = vec![false; candidates.len()];
        let mut chosen = Vec::new();
        let mut queue: VecDeque<ListId> = VecDeque::new();
        let needs = |id: Id| self.reach.candidates[id].needs.iter().map(|need| need.list);
        for &id in &self.reach.unreferenced {
            is_chosen[id] = true;
            chosen.push(id);
            queue.extend(needs(id));
        }
        queue.extend(self.reach.subscriptions.iter().filter_map(|it| it.alternatives.as_ref().ok()));
        while let Some(list) = queue.pop_front() {
            let list = &self.reach.lists[list];
            if list.iter().any(|&id| is_chosen[id]) {
                continue;
            }
            for &id in list {
                let literal = candidates[id];
                if sat.is_impossible(literal) || !(sat.is_true(literal) || sat.solve(&[literal])?) {
                    continue;
                }
                sat.add([literal]);
                is_chosen[id] = true;
                chosen.push(id);
                queue.extend(needs(id));
                break;
            }
        }
        Ok(Some(chosen))
    }

    fn explain(&self, decisions: u64) -> Result<Conflict, OutOfBudget> {
        let rules = self.contradicting(decisions)?;
        let mut clauses: Vec<Clause> = rules.iter().map(|&rule| self.clause(&self.rules[rule])).collect();
        clauses.sort_by_cached_key(Clause::to_string);
        Ok(Conflict { clauses })
    }

    /// Places of rules that contradict each other, none of which can be left out.
    fn contradicting(&self, decisions: u64) -> Result<Vec<usize>, OutOfBudget> {
        let Encoded { mut sat, active, .. } = self.encode(true, decisions);
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
    use crate::testing::recorded_cases;

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
            let found = rules.contradicting(limits.decisions).unwrap();
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
}
