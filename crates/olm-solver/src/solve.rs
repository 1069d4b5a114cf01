//! The choice among the candidates.
//!
//! How the search goes and why looking ahead ends at the same choice as going back: decision 50.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;

use olm_resolver::GvkRef;

use crate::error::SolveError;
use crate::namespace::Namespace;
use crate::reach::{Id, ListId, Reach};
use crate::rules::{ChoiceError, Rules};
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
    /// The installed CSV that it replaces, or the one that its entry replaces if nothing is installed. May be empty.
    pub replaces: String,
}

/// Resolves a namespace.
///
/// # Errors
/// When the rules contradict each other, when something that is reached cannot be used, or beyond the limits.
pub fn solve(namespace: &Namespace, limits: Limits) -> Result<Solution, SolveError> {
    let sources = Sources::new(namespace);
    let reach = Reach::new(namespace, &sources, limits.steps)?;
    let chosen = chosen(&reach, limits).map_err(|error| error.within(namespace, &reach, limits))?;
    let mut bundles: Vec<ChosenBundle> = chosen.iter().filter_map(|&id| bundle(&reach, id)).collect();
    bundles.sort();
    Ok(Solution { bundles })
}

/// What the first walk takes, or, at its dead end, what looking ahead does.
pub(crate) fn chosen(reach: &Reach<'_>, limits: Limits) -> Result<Vec<Id>, ChoiceError> {
    let mut selection = Selection::new(reach);
    let straight: Result<_, Infallible> = choose(reach, |id| Ok(selection.take(id)));
    match straight {
        Ok(Some(chosen)) => Ok(chosen),
        Ok(None) => Rules::new(reach).choose_or_explain(limits.decisions),
    }
}

/// The bundles that are to be there, in the order in which they are chosen; `None` at a list of which no alternative can be taken.
///
/// Lists of alternatives wait in a queue: those of the Subscriptions, then those of each bundle that was chosen. If a list has a chosen
/// bundle, it is met; otherwise the first alternative that can be taken is chosen. So the earlier list wins, and nothing that no list
/// asks for is chosen.
pub(crate) fn choose<Error>(
    reach: &Reach<'_>,
    mut take: impl FnMut(Id) -> Result<bool, Error>,
) -> Result<Option<Vec<Id>>, Error> {
    let mut is_chosen = vec![false; reach.candidates.len()];
    let mut chosen = Vec::new();
    let mut queue: VecDeque<ListId> = VecDeque::new();
    let needs = |id: Id| reach.candidates[id].needs.iter().map(|need| need.list);
    for &id in &reach.unreferenced {
        if !take(id)? {
            return Ok(None);
        }
        is_chosen[id] = true;
        chosen.push(id);
        queue.extend(needs(id));
    }
    for subscribed in &reach.subscriptions {
        let Ok(list) = subscribed.alternatives else { return Ok(None) };
        queue.push_back(list);
    }
    while let Some(list) = queue.pop_front() {
        let list = &reach.lists[list];
        if list.iter().any(|&id| is_chosen[id]) {
            continue;
        }
        let mut first = None;
        for &id in list {
            if take(id)? {
                first = Some(id);
                break;
            }
        }
        let Some(id) = first else { return Ok(None) };
        is_chosen[id] = true;
        chosen.push(id);
        queue.extend(needs(id));
    }
    Ok(Some(chosen))
}

/// Bundles that do not contradict each other, taken without looking ahead.
///
/// If that leads to an end, it is the choice that looking ahead makes, too: what was taken can be met, by that end, and what was passed
/// over cannot. Most namespaces need no more.
#[derive(Clone)]
pub(crate) struct Selection<'a> {
    reach: &'a Reach<'a>,
    packages: HashSet<&'a str>,
    provided: HashSet<&'a GvkRef>,
    /// What goes with none of those taken, because one would replace the other.
    replaced: HashSet<Id>,
}

impl<'a> Selection<'a> {
    pub(crate) fn new(reach: &'a Reach<'a>) -> Self {
        Self { reach, packages: HashSet::new(), provided: HashSet::new(), replaced: HashSet::new() }
    }

    pub(crate) fn take(&mut self, id: Id) -> bool {
        let content = self.reach.content(id);
        let is_taken = content.packages.iter().any(|it| self.packages.contains(&**it))
            || content.provides.iter().any(|it| self.provided.contains(it));
        if is_taken || content.is_deprecated || self.replaced.contains(&id) {
            return false;
        }
        self.packages.extend(content.packages.iter().map(|it| &**it));
        self.provided.extend(&content.provides);
        for (newer, installed) in self.reach.replacements() {
            if id == newer {
                self.replaced.insert(installed);
            } else if id == installed {
                self.replaced.insert(newer);
            }
        }
        true
    }
}

/// `None`: it is installed.
pub(crate) fn bundle(reach: &Reach<'_>, id: Id) -> Option<ChosenBundle> {
    let candidate = &reach.candidates[id];
    if candidate.source == INSTALLED {
        return None;
    }
    let source = &reach.sources.list[candidate.source];
    let (catalog, entry) = (&source.catalog, candidate.entry);
    let channel = catalog.channel(entry);
    let installed = reach
        .subscriptions
        .iter()
        .find(|it| it.alternatives.as_ref().is_ok_and(|&list| reach.lists[list].contains(&id)));
    let installed = installed.and_then(|it| it.installed).map(|id| &*reach.content(id).name);
    let replaces = installed.or(catalog.entry(entry).replaces.as_deref()).unwrap_or_default();
    Some(ChosenBundle {
        namespace: source.namespace.to_owned(),
        catalog: source.name.to_owned(),
        channel: channel.name.to_string(),
        name: catalog.content(entry).name.to_string(),
        package: channel.package.to_string(),
        replaces: replaces.to_owned(),
    })
}
