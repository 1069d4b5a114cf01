//! The bundles that can take part in a resolution, and their dependencies.
//!
//! From the Subscriptions and the installed CSVs along all dependencies, of every candidate, chosen or not. A bundle that cannot be
//! read, or a channel without an order, is a problem as soon as it is reached (update-graph §2, §7.2, §7.3).

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use olm_resolver::constraint::{self, Constraint};
use olm_resolver::{ChannelOrderError, Property};

use crate::catalog::{Catalog, Channel, ChannelIndex, EntryIndex, in_order};
use crate::conflict::describe;
use crate::content::{Content, Weighed};
use crate::error::{InputError, SolveError};
use crate::namespace::{Namespace, Subscription};
use crate::report::CandidateName;
use crate::sources::{INSTALLED, SourceIndex, Sources};

/// Place of a candidate in [`Reach`].
pub(crate) type Id = usize;
/// Place of a list of alternatives in [`Reach`].
pub(crate) type ListId = usize;

/// What [`Reach`] found so far, and the memory of what it looked up.
pub(crate) struct Reach<'a> {
    pub(crate) sources: &'a Sources<'a>,
    pub(crate) candidates: Vec<Candidate>,
    /// Alternatives in the order of preference.
    pub(crate) lists: Vec<Vec<Id>>,
    pub(crate) subscriptions: Vec<Subscribed<'a>>,
    /// Installed CSVs that no Subscription names.
    pub(crate) unreferenced: Vec<Id>,
    pub(crate) steps: u64,
    namespace: &'a Namespace,
    max_steps: u64,
    ids: HashMap<(SourceIndex, EntryIndex), Id>,
    to_follow: VecDeque<Id>,
    need_of: HashMap<Declaration<'a>, Option<Need>>,
    order_of: HashMap<(SourceIndex, ChannelIndex), Vec<EntryIndex>>,
    problems: Vec<InputError>,
}

#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) source: SourceIndex,
    pub(crate) entry: EntryIndex,
    /// Its dependencies, in the order of its properties.
    pub(crate) needs: Vec<Need>,
}

#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) list: ListId,
    /// In words.
    pub(crate) text: Rc<str>,
}

/// The source of a bundle, and type and value of a property. What meets it depends on nothing else.
type Declaration<'a> = (SourceIndex, &'a str, &'a str);

/// A Subscription and what it may come to.
#[derive(Debug)]
pub(crate) struct Subscribed<'a> {
    pub(crate) subscription: &'a Subscription,
    pub(crate) installed: Option<Id>,
    /// The candidates, the installed CSV last; or why there are none.
    pub(crate) alternatives: Result<ListId, String>,
}

/// Found nothing of what a Subscription names, or an order that cannot be determined.
enum SubscriptionError {
    Nothing(String),
    Order(ChannelOrderError),
}

impl<'a> Reach<'a> {
    /// # Errors
    /// With everything that is wrong with what can be reached.
    pub(crate) fn new(
        namespace: &'a Namespace,
        sources: &'a Sources<'a>,
        max_steps: u64,
    ) -> Result<Self, SolveError> {
        let mut reach = Self {
            sources,
            candidates: Vec::new(),
            lists: Vec::new(),
            subscriptions: Vec::new(),
            unreferenced: Vec::new(),
            steps: 0,
            namespace,
            max_steps,
            ids: HashMap::new(),
            to_follow: VecDeque::new(),
            need_of: HashMap::new(),
            order_of: HashMap::new(),
            problems: Vec::new(),
        };
        // three stages: what is wrong in an earlier one hides the later ones
        reach.add_unreferenced()?;
        reach.check_problems()?;
        reach.problems.extend(sources.problems.iter().cloned());
        reach.check_problems()?;
        reach.add_subscriptions()?;
        reach.check_problems()?;
        Ok(reach)
    }

    fn check_problems(&mut self) -> Result<(), SolveError> {
        match std::mem::take(&mut self.problems) {
            problems if problems.is_empty() => Ok(()),
            problems => Err(SolveError::Input(problems)),
        }
    }

    fn add_unreferenced(&mut self) -> Result<(), SolveError> {
        let free = (0..).zip(&self.sources.is_owned).filter(|(_, is_owned)| !**is_owned);
        let free: Vec<EntryIndex> = free.map(|(entry, _)| entry).collect();
        self.unreferenced = free.into_iter().map(|entry| self.id(INSTALLED, entry)).collect();
        self.follow()
    }

    fn add_subscriptions(&mut self) -> Result<(), SolveError> {
        let mut subscriptions: Vec<&Subscription> = self.namespace.subscriptions.iter().collect();
        subscriptions.sort_by(|a, b| a.name.cmp(&b.name));
        for subscription in subscriptions {
            let installed = self.installed(&subscription.installed_csv);
            let alternatives = match self.alternatives(subscription, installed) {
                Ok(found) => {
                    let mut ids: Vec<Id> =
                        found.into_iter().map(|(source, entry)| self.id(source, entry)).collect();
                    ids.extend(installed.map(|entry| self.id(INSTALLED, entry)));
                    Ok(self.add_list(ids))
                }
                Err(SubscriptionError::Nothing(problem)) => Err(problem),
                Err(SubscriptionError::Order(source)) => {
                    self.add_problem(InputError::Order { catalog: None, source });
                    continue;
                }
            };
            let installed = installed.map(|entry| self.id(INSTALLED, entry));
            self.subscriptions.push(Subscribed { subscription, installed, alternatives });
            self.follow()?;
        }
        Ok(())
    }

    fn installed(&self, name: &str) -> Option<EntryIndex> {
        let catalog = self.catalog(INSTALLED);
        (0..catalog.len()).find(|&at| &*catalog.content(at).name == name)
    }

    fn catalog(&self, source: SourceIndex) -> &'a Catalog {
        &self.sources.list[source].catalog
    }

    fn step(&mut self, count: usize) -> Result<(), SolveError> {
        self.steps += count as u64;
        if self.steps <= self.max_steps {
            return Ok(());
        }
        let (namespace, candidates) = (self.namespace.name.clone(), self.candidates.len());
        Err(SolveError::TooMuchWork { namespace, steps: self.max_steps, candidates })
    }

    fn add_problem(&mut self, problem: InputError) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn add_list(&mut self, ids: Vec<Id>) -> ListId {
        self.lists.push(ids);
        self.lists.len() - 1
    }

    /// The candidate; one that is new is followed later.
    fn id(&mut self, source: SourceIndex, entry: EntryIndex) -> Id {
        let next = self.candidates.len();
        let id = *self.ids.entry((source, entry)).or_insert(next);
        if id == next {
            self.candidates.push(Candidate { source, entry, needs: Vec::new() });
            self.to_follow.push_back(id);
        }
        id
    }

    fn follow(&mut self) -> Result<(), SolveError> {
        while let Some(id) = self.to_follow.pop_front() {
            let (source, entry) = (self.candidates[id].source, self.candidates[id].entry);
            let content = self.catalog(source).content(entry);
            self.step(1 + content.properties.len())?;
            for property in &content.properties {
                if let Some(need) = self.need(id, source, property)? {
                    self.candidates[id].needs.push(need);
                }
            }
        }
        Ok(())
    }

    /// The dependency that a property declares. Bundles of a source that declare the same share the list.
    fn need(
        &mut self,
        id: Id,
        source: SourceIndex,
        property: &'a Property,
    ) -> Result<Option<Need>, SolveError> {
        let key = (source, &*property.kind, &*property.value);
        if let Some(known) = self.need_of.get(&key) {
            return Ok(known.clone());
        }
        let need = match constraint::read(property) {
            None => return Ok(None),
            Some(Err(problem)) => {
                self.add_problem(InputError::Property { bundle: self.name(id), problem });
                None
            }
            Some(Ok(need)) => {
                let ids = self.providers(source, &need.constraint)?;
                Some(Need { list: self.add_list(ids), text: describe(&need.constraint).into() })
            }
        };
        self.need_of.insert(key, need.clone());
        Ok(need)
    }

    /// What meets a dependency of a bundle of this source, in the order of preference.
    fn providers(&mut self, own: SourceIndex, constraint: &Constraint) -> Result<Vec<Id>, SolveError> {
        let mut ids = Vec::new();
        for source in self.sources.preferred_by(own) {
            let matching = self.matching(source, constraint)?;
            if source == INSTALLED {
                self.add_installed_providers(&matching, &mut ids);
                continue;
            }
            let catalog = self.catalog(source);
            let mut channels: Vec<ChannelIndex> =
                matching.iter().map(|&entry| catalog.entry(entry).channel).collect();
            channels.sort_unstable();
            channels.dedup();
            channels.sort_by_key(|&channel| place(&catalog.channels[channel as usize]));
            let matching: HashSet<EntryIndex> = matching.into_iter().collect();
            for channel in channels {
                let order = self.order(source, channel).to_vec();
                self.step(order.len())?;
                for entry in order.into_iter().filter(|entry| matching.contains(entry)) {
                    let id = self.id(source, entry);
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }

    /// OLM Classic takes CSVs of one package for entries of one channel; of those without a Subscription it sees only one.
    fn add_installed_providers(&mut self, matching: &[EntryIndex], ids: &mut Vec<Id>) {
        let catalog = self.catalog(INSTALLED);
        let mut of_package: Vec<(&str, Vec<(&Catalog, EntryIndex)>)> = Vec::new();
        for &entry in matching {
            let package = &*catalog.channel(entry).package;
            let place = of_package.iter().position(|(known, _)| *known == package).unwrap_or_else(|| {
                of_package.push((package, Vec::new()));
                of_package.len() - 1
            });
            let group = &mut of_package[place].1;
            let is_owned = |at: EntryIndex| self.sources.is_owned[at as usize];
            if is_owned(entry) || group.iter().all(|&(_, known)| is_owned(known)) {
                group.push((catalog, entry));
            }
        }
        of_package.sort_by_key(|(package, _)| *package);
        for (package, group) in of_package {
            match in_order(&group, package, "") {
                Ok(order) => ids.extend(order.into_iter().map(|at| self.id(INSTALLED, group[at].1))),
                Err(source) => self.add_problem(InputError::Order { catalog: None, source }),
            }
        }
    }

    /// The channel from head to tail; empty, and a problem, if that cannot be determined.
    fn order(&mut self, source: SourceIndex, channel: ChannelIndex) -> &[EntryIndex] {
        if !self.order_of.contains_key(&(source, channel)) {
            let order = self.catalog(source).channel_in_order(channel).unwrap_or_else(|error| {
                let of = &self.sources.list[source];
                let catalog = Some(format!("{}/{}", of.namespace, of.name));
                self.add_problem(InputError::Order { catalog, source: error });
                Vec::new()
            });
            self.order_of.insert((source, channel), order);
        }
        self.order_of.get(&(source, channel)).map_or(&[], Vec::as_slice)
    }

    fn matching(
        &mut self,
        source: SourceIndex,
        constraint: &Constraint,
    ) -> Result<Vec<EntryIndex>, SolveError> {
        let catalog = self.catalog(source);
        let narrow = narrow(catalog, constraint).unwrap_or_else(|| (0..catalog.len()).collect());
        self.step(narrow.len())?;
        // one check for a bundle that is in several channels
        let mut known: HashMap<*const Content, bool> = HashMap::new();
        let mut matching = Vec::new();
        for entry in narrow {
            let content = catalog.content(entry);
            let is_match = match known.get(&std::ptr::from_ref(content)) {
                Some(known) => *known,
                None => {
                    let weighed = Weighed { content, steps: Cell::new(0) };
                    let is_match = constraint.holds_for(&weighed);
                    self.step(weighed.steps.get())?;
                    known.insert(content, is_match);
                    is_match
                }
            };
            matching.extend(is_match.then_some(entry));
        }
        Ok(matching)
    }

    /// What a Subscription may install: the whole channel, or what follows the installed CSV.
    fn alternatives(
        &mut self,
        subscription: &Subscription,
        installed: Option<EntryIndex>,
    ) -> Result<Vec<(SourceIndex, EntryIndex)>, SubscriptionError> {
        let Subscription { name, package, channel, catalog, catalog_namespace, starting_csv, .. } =
            subscription;
        let is_any = catalog.is_empty() && catalog_namespace.is_empty();
        let is_named = |source: &SourceIndex| {
            let source = &self.sources.list[*source];
            is_any || (source.name == catalog && source.namespace == catalog_namespace)
        };
        let sources: Vec<SourceIndex> = (1..self.sources.list.len()).filter(is_named).collect();
        let nothing = |what: String| Err(SubscriptionError::Nothing(format!("no operators found {what}")));
        let referenced = format!("referenced by subscription {name}");
        if sources.iter().all(|&source| self.catalog(source).is_empty()) {
            return nothing(format!("from catalog {catalog} in namespace {catalog_namespace} {referenced}"));
        }
        let in_package = sources.iter().flat_map(|&source| {
            self.catalog(source).of_package(package).iter().map(move |&entry| (source, entry))
        });
        let mut found: Vec<(SourceIndex, EntryIndex)> = in_package.collect();
        if found.is_empty() {
            return nothing(format!("in package {package} in the catalog {referenced}"));
        }
        found.retain(|&(source, entry)| {
            channel.is_empty() || *self.catalog(source).channel(entry).name == **channel
        });
        if found.is_empty() {
            return nothing(format!("in channel {channel} of package {package} in the catalog {referenced}"));
        }
        if installed.is_none() && !starting_csv.is_empty() {
            found.retain(|&(source, entry)| *self.catalog(source).content(entry).name == **starting_csv);
            if found.is_empty() {
                return nothing(format!(
                    "with name {starting_csv} in channel {channel} of package {package} in the catalog {referenced}"
                ));
            }
        }
        let ordered = self.in_order(found).map_err(SubscriptionError::Order)?;
        let Some(installed) = installed else { return Ok(ordered) };
        let installed = self.catalog(INSTALLED).content(installed);
        let (name, version) = (&*installed.name, installed.version.as_ref());
        Ok(ordered
            .into_iter()
            .filter(|&(source, entry)| self.catalog(source).follows(entry, name, version))
            .collect())
    }

    /// Default channels first, then by package and channel; whatever the catalog. Entries that then come one after the other and whose
    /// channels have one name are ordered together, also if the channel is the default in some catalogs only.
    fn in_order(
        &self,
        mut entries: Vec<(SourceIndex, EntryIndex)>,
    ) -> Result<Vec<(SourceIndex, EntryIndex)>, ChannelOrderError> {
        let place = |&(source, entry): &(SourceIndex, EntryIndex)| place(self.catalog(source).channel(entry));
        entries.sort_by_key(place);
        let mut ordered = Vec::with_capacity(entries.len());
        let name = |&(source, entry): &(SourceIndex, EntryIndex)| &*self.catalog(source).channel(entry).name;
        for group in entries.chunk_by(|a, b| name(a) == name(b)) {
            let Some(&(source, entry)) = group.first() else { continue };
            let channel = self.catalog(source).channel(entry);
            let links: Vec<_> = group.iter().map(|&(source, entry)| (self.catalog(source), entry)).collect();
            let order = in_order(&links, &channel.package, &channel.name)?;
            ordered.extend(order.into_iter().map(|at| group[at]));
        }
        Ok(ordered)
    }

    /// Candidates of a Subscription, each with the installed CSV that it would replace.
    pub(crate) fn replacements(&self) -> impl Iterator<Item = (Id, Id)> {
        self.subscriptions.iter().flat_map(|subscribed| {
            let pair = subscribed.alternatives.as_ref().ok().zip(subscribed.installed);
            pair.into_iter().flat_map(|(&list, installed)| {
                self.lists[list].iter().filter(move |&&id| id != installed).map(move |&id| (id, installed))
            })
        })
    }

    pub(crate) fn content(&self, id: Id) -> &'a Content {
        let Candidate { source, entry, .. } = self.candidates[id];
        self.catalog(source).content(entry)
    }

    pub(crate) fn candidate_name(&self, id: Id) -> CandidateName {
        let Candidate { source, entry, .. } = self.candidates[id];
        let (of, catalog) = (&self.sources.list[source], self.catalog(source));
        CandidateName {
            catalog: of.name.to_owned(),
            namespace: of.namespace.to_owned(),
            channel: catalog.channel(entry).name.to_string(),
            name: catalog.content(entry).name.to_string(),
        }
    }

    /// `catalog/namespace/channel/name`
    pub(crate) fn name(&self, id: Id) -> String {
        self.candidate_name(id).to_string()
    }
}

fn place(channel: &Channel) -> (bool, &str, &str) {
    (!channel.is_default, &channel.package, &channel.name)
}

/// A superset of the entries that satisfy a constraint, from the indexes; `None` if they do not help.
fn narrow(catalog: &Catalog, constraint: &Constraint) -> Option<Vec<EntryIndex>> {
    match constraint {
        Constraint::Gvk(gvk) => Some(catalog.providers(gvk).to_vec()),
        Constraint::Package { name, .. } => Some(catalog.of_package(name).to_vec()),
        Constraint::All(parts) => parts.iter().filter_map(|part| narrow(catalog, part)).min_by_key(Vec::len),
        Constraint::Any(parts) => {
            let mut all: Vec<EntryIndex> =
                parts.iter().map(|part| narrow(catalog, part)).collect::<Option<Vec<_>>>()?.concat();
            all.sort_unstable();
            all.dedup();
            Some(all)
        }
        Constraint::Label(_) | Constraint::Not(_) | Constraint::Cel(..) => None,
    }
}
