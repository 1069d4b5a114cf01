//! Resolutions of namespaces, each done once: while nothing that the solver reads has changed, its outcome stays.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use olm_classic::subscription::{Resolution, resolve};
use olm_solver::{Catalog, CatalogSource, ErrorKind, Limits, Namespace, SolveError};
use parking_lot::Mutex;

use super::metrics::Recorded;
use crate::compute::compute;

type Outcome = Result<Resolution, SolveError>;

/// The last outcome for each namespace.
#[derive(Debug, Default)]
pub(super) struct Solved(Mutex<BTreeMap<String, (Input, Outcome)>>);

/// What the solver read. Catalogs are compared by identity, and are not kept in memory: other content is another catalog.
#[derive(Debug)]
struct Input {
    /// Without catalogs.
    namespace: Namespace,
    catalogs: Vec<(CatalogKey, Result<Weak<Catalog>, String>)>,
}

/// Namespace, name and priority.
type CatalogKey = (String, String, i32);

impl Input {
    fn new(namespace: &Namespace) -> Self {
        let catalog = |it: &CatalogSource| {
            let key = (it.namespace.clone(), it.name.clone(), it.priority);
            (key, it.content.as_ref().map(Arc::downgrade).map_err(String::clone))
        };
        let catalogs = namespace.catalogs.iter().map(catalog).collect();
        let without = Namespace {
            name: namespace.name.clone(),
            global_namespace: namespace.global_namespace.clone(),
            fail_forward: namespace.fail_forward,
            catalogs: Vec::new(),
            subscriptions: namespace.subscriptions.clone(),
            installed: namespace.installed.clone(),
        };
        Self { namespace: without, catalogs }
    }

    fn is_same(&self, other: &Self) -> bool {
        let (namespace, others) = (&self.namespace, &other.namespace);
        let same_catalogs = self.catalogs.len() == other.catalogs.len()
            && self.catalogs.iter().zip(&other.catalogs).all(|((key, content), (other_key, other))| {
                key == other_key
                    && match (content, other) {
                        (Ok(content), Ok(other)) => Weak::ptr_eq(content, other),
                        (Err(problem), Err(other)) => problem == other,
                        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
                    }
            });
        same_catalogs
            && namespace.global_namespace == others.global_namespace
            && namespace.fail_forward == others.fail_forward
            && namespace.subscriptions == others.subscriptions
            && namespace.installed == others.installed
    }
}

impl Solved {
    /// The outcome of the solver. What may come out otherwise without a change is not remembered.
    ///
    /// # Errors
    /// When the solver did not end.
    pub(super) async fn solve(&self, namespace: Namespace, recorded: &Recorded) -> Result<Outcome, String> {
        let input = Input::new(&namespace);
        if let Some((known, outcome)) = self.0.lock().get(&namespace.name)
            && known.is_same(&input)
        {
            return Ok(outcome.clone());
        }
        let (name, begin) = (namespace.name.clone(), Instant::now());
        let solved = compute(move || resolve(&namespace, Limits::default())).await;
        let outcome = solved.map_err(|error| format!("the resolution did not end: {error}"))?;
        recorded.resolved(begin.elapsed(), outcome.is_ok());
        let is_final = outcome.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Unsatisfiable);
        let mut outcomes = self.0.lock();
        if is_final {
            outcomes.insert(name, (input, outcome.clone()));
        } else {
            outcomes.remove(&name);
        }
        Ok(outcome)
    }

    /// Removes the outcome of a namespace without Subscriptions.
    pub(super) fn evict(&self, namespace: &str) {
        self.0.lock().remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use olm_api::classic::observe;
    use olm_runtime::metrics::Metrics;
    use olm_solver::{BundleDraft, ChannelDraft, PackageDraft, Subscription};

    use super::super::metrics::register;
    use super::*;
    use crate::cluster::Cluster;

    fn catalog(names: &[&str]) -> Arc<Catalog> {
        let entry = |name: &&str| olm_resolver::ChannelEntry {
            name: (*name).to_owned(),
            ..olm_resolver::ChannelEntry::default()
        };
        let bundle = |name: &&str| BundleDraft {
            name: (*name).to_owned(),
            version: "1.0.0".to_owned(),
            ..BundleDraft::default()
        };
        let channel = ChannelDraft { name: "stable".to_owned(), entries: names.iter().map(entry).collect() };
        Arc::new(Catalog::new(vec![PackageDraft {
            name: "p".to_owned(),
            default_channel: "stable".to_owned(),
            channels: vec![channel],
            bundles: names.iter().map(bundle).collect(),
        }]))
    }

    fn namespace(content: Result<Arc<Catalog>, String>, starting_csv: &str) -> Namespace {
        let (name, of) = ("main".to_owned(), "ns".to_owned());
        let subscription = Subscription {
            name: "s".to_owned(),
            package: "p".to_owned(),
            channel: "stable".to_owned(),
            catalog: name.clone(),
            catalog_namespace: of.clone(),
            starting_csv: starting_csv.to_owned(),
            installed_csv: String::new(),
        };
        Namespace {
            name: of.clone(),
            catalogs: vec![CatalogSource { name, namespace: of, priority: 0, content }],
            subscriptions: vec![subscription],
            ..Namespace::default()
        }
    }

    #[tokio::test]
    async fn namespace_is_solved_again_when_its_input_differs() {
        let metrics = Metrics::new();
        let (solved, recorded) = (Solved::default(), register(&metrics, &Cluster::new()));
        let solves = || {
            let prefix = format!("{}_count", observe::RESOLUTION_DURATION.name);
            let text = metrics.classic();
            let counts = text.lines().filter(|line| line.starts_with(&prefix));
            counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()).sum::<u32>()
        };
        let first = catalog(&["p.v1"]);
        let same = catalog(&["p.v1"]);
        for (case, input, is_ok, want) in [
            ("new", namespace(Ok(Arc::clone(&first)), ""), true, 1),
            ("the same", namespace(Ok(Arc::clone(&first)), ""), true, 1),
            ("another Subscription", namespace(Ok(Arc::clone(&first)), "p.v2"), false, 2),
            ("unsatisfiable again", namespace(Ok(first), "p.v2"), false, 2),
            ("read again", namespace(Ok(same), "p.v2"), false, 3),
            ("unreadable", namespace(Err("down".to_owned()), ""), false, 4),
            ("an error is tried again", namespace(Err("down".to_owned()), ""), false, 5),
        ] {
            let outcome = solved.solve(input, &recorded).await.unwrap();
            assert_eq!((outcome.is_ok(), solves()), (is_ok, want), "{case}: {outcome:?}");
        }
        solved.solve(namespace(Ok(catalog(&["p.v1"])), ""), &recorded).await.unwrap().unwrap();
        solved.evict("ns");
        assert!(solved.0.lock().is_empty());
    }
}
