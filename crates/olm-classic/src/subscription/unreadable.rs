//! Resolution of a namespace while catalogs of it cannot be read.
//!
//! OLM Classic resolves nothing then (classic-apis §2.7). Here what does not need those catalogs is resolved without them: decision 55.

use std::collections::BTreeMap;

use olm_solver::{CatalogSource, ChosenBundle, InputError, Limits, Namespace, Solution, SolveError, solve};

/// What a namespace comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolution {
    pub solution: Solution,
    /// The Subscriptions that need a catalog that cannot be read, by name, with the error of that catalog.
    pub left_out: BTreeMap<String, String>,
}

/// Resolves a namespace. Subscriptions to catalogs that cannot be read are left out: their ClusterServiceVersions stay as they are. Without
/// Subscriptions nothing is to be resolved, whatever catalogs there are.
///
/// # Errors
/// Those of [`solve`] for the whole namespace: if all Subscriptions are left out, if the others cannot be resolved without those
/// catalogs, or if they get a dependency for which one of those catalogs may be preferred.
pub fn resolve(namespace: &Namespace, limits: Limits) -> Result<Resolution, SolveError> {
    if namespace.subscriptions.is_empty() {
        return Ok(Resolution::default());
    }
    let error = match solve(namespace, limits) {
        Ok(solution) => return Ok(Resolution { solution, left_out: BTreeMap::new() }),
        Err(error) => error,
    };
    let Some(part) = Part::new(namespace, &error) else { return Err(error) };
    match solve(&part.namespace, limits) {
        Ok(solution) if solution.bundles.iter().all(|chosen| part.is_certain(chosen, &solution)) => {
            Ok(Resolution { solution, left_out: part.left_out })
        }
        Ok(_) | Err(_) => Err(error),
    }
}

/// A namespace without the catalogs that cannot be read, and without the Subscriptions that need them.
struct Part<'a> {
    namespace: Namespace,
    unreadable: Vec<&'a CatalogSource>,
    left_out: BTreeMap<String, String>,
}

impl<'a> Part<'a> {
    /// `None`: something else is wrong, or nothing is left to resolve.
    fn new(namespace: &'a Namespace, error: &SolveError) -> Option<Self> {
        let SolveError::Input(problems) = error else { return None };
        let mut errors = BTreeMap::new();
        for problem in problems {
            let InputError::NoContent { name, namespace, .. } = problem else { return None };
            errors.insert((namespace.as_str(), name.as_str()), problem.to_string());
        }
        let key = |it: &'a CatalogSource| (it.namespace.as_str(), it.name.as_str());
        let (unreadable, catalogs): (Vec<_>, Vec<_>) =
            namespace.catalogs.iter().partition(|it| errors.contains_key(&key(it)));
        let mut left_out = BTreeMap::new();
        let mut subscriptions = Vec::new();
        for subscription in &namespace.subscriptions {
            let of = (subscription.catalog_namespace.as_str(), subscription.catalog.as_str());
            // without a name it is every catalog
            let needed = if of.1.is_empty() { errors.values().next() } else { errors.get(&of) };
            match needed {
                Some(problem) => _ = left_out.insert(subscription.name.clone(), problem.clone()),
                None => subscriptions.push(subscription.clone()),
            }
        }
        let namespace = Namespace {
            name: namespace.name.clone(),
            global_namespace: namespace.global_namespace.clone(),
            fail_forward: namespace.fail_forward,
            catalogs: catalogs.into_iter().cloned().collect(),
            subscriptions,
            installed: namespace.installed.clone(),
        };
        (!namespace.subscriptions.is_empty()).then_some(Self { namespace, unreadable, left_out })
    }

    /// Whether the catalogs that cannot be read would not have been asked for the bundle before the one that has it: a Subscription names
    /// that one, a bundle of it is the first that depends on it, or it is preferred to them (update-graph §7.3).
    fn is_certain(&self, chosen: &ChosenBundle, solution: &Solution) -> bool {
        let is_subscribed =
            |it: &ChosenBundle| self.namespace.subscriptions.iter().any(|other| other.package == it.package);
        let is_of_same =
            |it: &&ChosenBundle| (&it.namespace, &it.catalog) == (&chosen.namespace, &chosen.catalog);
        let is_own = || solution.bundles.iter().filter(is_of_same).any(is_subscribed);
        let is_preferred = || {
            let (mut catalogs, within) = (self.namespace.catalogs.iter(), &self.namespace.name);
            let of = catalogs.find(|it| (&it.namespace, &it.name) == (&chosen.namespace, &chosen.catalog));
            of.is_some_and(|of| {
                self.unreadable.iter().all(|it| of.preference(within) < it.preference(within))
            })
        };
        is_subscribed(chosen) || is_own() || is_preferred()
    }
}
