//! One pass over a namespace, before its result is written.
//!
//! Rules: classic-apis §4, §5.5; update-graph §7.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use olm_api::classic::{ClusterServiceVersion, InstallPlan};
use olm_classic::install_plan::{PlannedBundle, REQUEUE, UnpackNext, UnpackSettings};
use olm_classic::subscription::{
    Conclusion, NamespaceFacts, Pass, PassError, Resolution, ResolutionFact, StateRule, StatusValues,
    UnpackFact, begin_pass, conclude_pass, is_awaiting, is_confirmed, needs_confirmation, new_bundles,
    resolution_failure, solver_namespace,
};
use olm_core::Object;
use olm_runtime::backoff::UNFINISHED;
use olm_solver::{ErrorKind, SolveError};

use super::Subscriptions;
use super::observed::Observed;
use super::plans::superseded_events;
use crate::catalog::{BundleContent, Snapshot};

/// How far a pass came.
pub(super) struct Attempt {
    /// New values of statuses, by the places of the Subscriptions.
    pub(super) values: BTreeMap<usize, StatusValues>,
    pub(super) resolution: ResolutionFact,
    /// Why Subscriptions were left out of it, by name.
    pub(super) left_out: BTreeMap<String, String>,
    pub(super) unpack: UnpackFact,
    /// The plan that was made.
    pub(super) plan: Option<InstallPlan>,
    /// Normal events of Subscriptions: their places, reason and note.
    pub(super) events: Vec<(usize, &'static str, String)>,
    pub(super) next: Next,
}

/// When the namespace is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    OnChange,
    After(Duration),
    Backoff,
}

impl Next {
    /// No later than after `limit`.
    fn within(self, limit: Duration) -> Self {
        match self {
            Self::OnChange => Self::After(limit),
            Self::After(wait) => Self::After(wait.min(limit)),
            Self::Backoff => Self::Backoff,
        }
    }
}

impl Attempt {
    fn new(next: Next) -> Self {
        Self {
            values: BTreeMap::new(),
            resolution: ResolutionFact::NotTried,
            left_out: BTreeMap::new(),
            unpack: UnpackFact::NotTried,
            plan: None,
            events: Vec::new(),
            next,
        }
    }

    fn failed(reason: &'static str, message: String, next: Next) -> Self {
        Self { resolution: ResolutionFact::Failed { reason, message }, ..Self::new(next) }
    }

    /// Why the namespace, or a part of it, was not resolved.
    pub(super) fn failure(&self) -> Option<String> {
        if let ResolutionFact::Failed { message, .. } = &self.resolution {
            return Some(message.clone());
        }
        let problems: BTreeSet<&str> = self.left_out.values().map(String::as_str).collect();
        (!problems.is_empty()).then(|| problems.into_iter().collect::<Vec<_>>().join("\n"))
    }
}

/// A bundle of a solution with its content.
struct Gathered {
    content: BundleContent,
    /// Of an image.
    unpacked: Option<Arc<Vec<Object>>>,
}

/// Namespace and name of a catalog.
type CatalogKey = (String, String);
/// The content of each catalog, or why it cannot be read.
type Contents = BTreeMap<CatalogKey, Result<Arc<Snapshot>, String>>;

/// The content of the bundles that a plan has to install, or what it waits for.
enum Gathering {
    All(Vec<Gathered>),
    Waits(UnpackFact, Next),
    /// A catalog that has a bundle does not return it.
    Unreadable(CatalogKey, String),
    Failed(String),
}

impl Subscriptions {
    /// Resolves the namespace and makes its plan, as far as that is due.
    pub(super) async fn attempt(&self, observed: &Observed, facts: &NamespaceFacts<'_>) -> Attempt {
        match begin_pass(facts, Timestamp::now()) {
            Err(error @ PassError::GroupCount(_)) => {
                tracing::info!(namespace = observed.namespace, %error, "the namespace is not resolved");
                Attempt::failed("ErrorPreventedResolution", error.to_string(), Next::OnChange)
            }
            Ok(Pass::Stop(rule)) => {
                tracing::debug!(namespace = observed.namespace, ?rule, "nothing to resolve");
                Attempt::new(Next::OnChange)
            }
            Ok(Pass::Write(changes)) => {
                let mut attempt = Attempt::new(Next::OnChange);
                for (index, rule, values) in changes {
                    let csv = &values.current_csv;
                    if !self.is_confirmed(observed, rule, csv).await {
                        attempt.next = Next::Backoff;
                        continue;
                    }
                    if rule == StateRule::Adopted {
                        let note = format!("continues with ClusterServiceVersion {csv}, which is installed");
                        attempt.events.push((index, "Adopted", note));
                    }
                    attempt.values.insert(index, values);
                }
                attempt
            }
            Ok(Pass::Resolve) => self.resolve(observed, facts).await,
        }
    }

    /// Whether the apiserver confirms what the caches show of a ClusterServiceVersion, as far as a decision needs that.
    async fn is_confirmed(&self, observed: &Observed, rule: StateRule, csv: &str) -> bool {
        if !needs_confirmation(rule) {
            return true;
        }
        let namespace = observed.namespace.as_str();
        let api: Api<ClusterServiceVersion> = Api::namespaced(self.context.client.clone(), namespace);
        match api.get_metadata_opt(csv).await {
            Ok(live) => {
                let cached = observed.csvs.iter().find(|it| it.metadata.name.as_deref() == Some(csv));
                let live = live.as_ref().map(|it| &it.metadata);
                is_confirmed(rule, cached.map(|it| &it.metadata), live)
            }
            Err(error) => {
                tracing::warn!(namespace, csv, %error, "cannot read the ClusterServiceVersion of a Subscription");
                false
            }
        }
    }

    async fn resolve(&self, observed: &Observed, facts: &NamespaceFacts<'_>) -> Attempt {
        let mut contents = self.contents(observed, facts).await;
        loop {
            // each round has one catalog less
            match self.resolve_from(&contents, observed, facts).await {
                Ok(attempt) => return attempt,
                Err((catalog, problem)) => {
                    let (namespace, name) = (&catalog.0, &catalog.1);
                    tracing::info!(namespace, name, problem, "a catalog does not return a bundle");
                    contents.insert(catalog, Err(problem));
                }
            }
        }
    }

    /// # Errors
    /// The catalog that has a bundle of the solution and does not return it, with the cause.
    async fn resolve_from(
        &self,
        contents: &Contents,
        observed: &Observed,
        facts: &NamespaceFacts<'_>,
    ) -> Result<Attempt, (CatalogKey, String)> {
        let input = solver_namespace(facts, |namespace, name| {
            let content = contents.get(&(namespace.to_owned(), name.to_owned())).cloned();
            let content = content.unwrap_or_else(|| Err("its content was not read in this pass".to_owned()));
            content.map(|snapshot| Arc::clone(&snapshot.catalog))
        });
        let Resolution { solution, left_out } = match self.solved.solve(input, &self.recorded).await {
            Ok(Ok(resolution)) => resolution,
            Ok(Err(error)) => return Ok(unresolved(&error)),
            Err(message) => {
                return Ok(Attempt::failed("ErrorPreventedResolution", message, Next::Backoff));
            }
        };
        let resolved = |unpack, next| Attempt {
            resolution: ResolutionFact::Resolved,
            left_out: left_out.clone(),
            unpack,
            // why a catalog could not be read may end without a change that wakes the pass
            ..Attempt::new(if left_out.is_empty() { next } else { next.within(UNFINISHED) })
        };
        let new = new_bundles(facts, &solution);
        if is_awaiting(facts, &new, &left_out) {
            return Ok(resolved(UnpackFact::None, Next::OnChange));
        }
        let gathered = match self.gather(observed, &new, contents).await {
            Gathering::All(gathered) => gathered,
            Gathering::Waits(unpack, next) => return Ok(resolved(unpack, next)),
            Gathering::Unreadable(catalog, problem) => return Err((catalog, problem)),
            Gathering::Failed(message) => {
                return Ok(Attempt::failed("ErrorPreventedResolution", message, Next::Backoff));
            }
        };
        let planned = new.iter().zip(&gathered).map(|(chosen, gathered)| PlannedBundle {
            chosen,
            objects: gathered
                .unpacked
                .as_ref()
                .map_or(gathered.content.objects.as_slice(), |it| it.as_slice()),
            properties: &gathered.content.properties,
            image: Some(gathered.content.image.as_str()).filter(|image| !image.is_empty()),
        });
        let planned: Vec<PlannedBundle<'_>> = planned.collect();
        let unpack = UnpackFact::None;
        Ok(match conclude_pass(facts, &solution, &planned, &left_out) {
            Ok(Conclusion::NothingNew) => resolved(unpack, Next::OnChange),
            Ok(conclusion) => {
                let superseded = conclusion.superseded().to_vec();
                let versions: Vec<&str> = new.iter().map(|chosen| chosen.name.as_str()).collect();
                match self.delete_superseded(facts, &superseded, &versions.join(", ")).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(resolved(unpack, Next::Backoff)),
                    Err(message) => return Ok(resolved(unplanned(message), Next::Backoff)),
                }
                match self.plan(observed, facts, &solution, &planned, conclusion).await {
                    Ok((plan, values)) => {
                        let events = superseded_events(facts, &values, &superseded);
                        Attempt { plan: Some(plan), values, events, ..resolved(unpack, Next::OnChange) }
                    }
                    Err(message) => resolved(unplanned(message), Next::Backoff),
                }
            }
            // the content of a bundle cannot be installed; another bundle may
            Err(error) => resolved(unplanned(error.to_string()), Next::OnChange),
        })
    }

    /// The content of the catalogs that the namespace may use.
    async fn contents(&self, observed: &Observed, facts: &NamespaceFacts<'_>) -> Contents {
        let visible = observed.catalogs.iter().map(|(source, _)| source).filter(|source| {
            let of = source.metadata.namespace.as_deref();
            of == Some(facts.namespace) || of == facts.global_namespace
        });
        let read = visible.map(async |source| {
            let key = (
                source.metadata.namespace.clone().unwrap_or_default(),
                source.metadata.name.clone().unwrap_or_default(),
            );
            (key, self.catalogs.content(source).await)
        });
        join_all(read).await.into_iter().collect()
    }

    async fn gather(
        &self,
        observed: &Observed,
        new: &[&olm_solver::ChosenBundle],
        contents: &Contents,
    ) -> Gathering {
        let settings = UnpackSettings {
            timeout: Some(self.context.settings.unpack_timeout).filter(|timeout| !timeout.is_zero()),
            ..UnpackSettings::default()
        };
        let settings = match observed.groups.first().map(|group| settings.for_group(group)) {
            Some(Ok(settings)) => settings,
            Some(Err(error)) => {
                let fact =
                    UnpackFact::Failed { reason: "ErrorPreventedUnpacking", message: error.to_string() };
                return Gathering::Waits(fact, Next::OnChange);
            }
            None => settings,
        };
        let (mut gathered, mut running, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let mut wait: Option<Duration> = None;
        for chosen in new {
            let key = (chosen.namespace.clone(), chosen.catalog.clone());
            let (Some(Ok(snapshot)), Some(source)) =
                (contents.get(&key), observed.catalog(&chosen.namespace, &chosen.catalog))
            else {
                return Gathering::Failed(format!("catalog {}/{} is gone", key.0, key.1));
            };
            let content = match snapshot.bundle(chosen).await {
                Ok(content) => content,
                Err(error) => return Gathering::Unreadable(key, error),
            };
            let mut unpacked = None;
            if !content.image.is_empty() {
                let (decision, objects) = self.unpacks.step(
                    source,
                    &content.image,
                    settings,
                    &observed.namespace,
                    &observed.subscriptions,
                );
                unpacked = objects;
                if decision.is_failed() {
                    failed.push(decision.message.clone());
                } else if decision.next != UnpackNext::Use {
                    running.push(decision.message.clone());
                }
                let due = match decision.next {
                    UnpackNext::Start | UnpackNext::Stop => Some(REQUEUE),
                    UnpackNext::Wait(wait) => Some(wait),
                    UnpackNext::Use => None,
                };
                wait = wait.into_iter().chain(due).min();
            }
            gathered.push(Gathered { content, unpacked });
        }
        let next = wait.map_or(Next::OnChange, Next::After);
        if !failed.is_empty() {
            let message = failed.join("; ");
            return Gathering::Waits(UnpackFact::Failed { reason: "BundleUnpackFailed", message }, next);
        }
        if !running.is_empty() {
            return Gathering::Waits(UnpackFact::InProgress { message: running.join("; ") }, next);
        }
        Gathering::All(gathered)
    }
}

fn unresolved(error: &SolveError) -> Attempt {
    let next = match error.kind() {
        ErrorKind::Unsatisfiable => Next::OnChange,
        ErrorKind::Ambiguous | ErrorKind::Other => Next::Backoff,
    };
    Attempt { resolution: resolution_failure(error), ..Attempt::new(next) }
}

/// What was resolved gets no plan.
fn unplanned(message: String) -> UnpackFact {
    UnpackFact::Failed { reason: "EnsureInstallPlanFailed", message }
}

#[cfg(test)]
mod tests {
    use olm_classic::operator_group::keys::COPIED_FROM;
    use serde_json::{Value, json};

    use super::super::testing::{subscribed, subscriptions};
    use super::*;
    use crate::testing::{Apiserver, failure, put};

    #[tokio::test]
    async fn csv_that_is_gone_is_not_adopted() {
        let csv = |uid: &str, deleted: Value| {
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                "metadata": {"namespace": "ns", "name": "a.v1", "uid": uid, "labels": {"operators.coreos.com/a.ns": ""},
                    "deletionTimestamp": deleted},
                "spec": {"displayName": "a", "install": {"strategy": "deployment"}}, "status": {"phase": "Succeeded"},
            })
        };
        for (code, live, is_adopted) in [
            (200, csv("u", Value::Null), true),
            (200, csv("u", json!("2026-01-01T00:00:00Z")), false),
            (200, csv("created again", Value::Null), false),
            (404, failure(404, "NotFound").1, false),
            (500, json!({}), false),
        ] {
            let apiserver = Apiserver::new(move |_, _| (code, live.clone()));
            let cluster = subscribed(&["a"], &Value::Null);
            put(&cluster.csvs, csv("u", Value::Null));
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            let catalogs = observed.catalog_facts();
            let attempt = subscriptions.attempt(&observed, &observed.facts("olm", &catalogs)).await;
            assert_eq!(
                (attempt.values.len(), attempt.events.len()),
                (is_adopted.into(), is_adopted.into()),
                "{code}"
            );
            assert_eq!(matches!(attempt.next, Next::Backoff), !is_adopted, "{code}");
        }
    }

    /// A plan has made a ClusterServiceVersion, and no watch shows it.
    #[tokio::test]
    async fn csv_that_a_late_watch_lacks_does_not_count_as_deleted() {
        let csv = |deleted: Value, labels: Value| {
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                "metadata": {"namespace": "ns", "name": "a.v1", "uid": "u", "deletionTimestamp": deleted, "labels": labels},
            })
        };
        for (code, live, is_reported) in [
            (200, csv(Value::Null, Value::Null), false),
            (200, csv(Value::Null, json!({(COPIED_FROM): "other"})), true),
            (200, csv(json!("2026-01-01T00:00:00Z"), Value::Null), true),
            (404, failure(404, "NotFound").1, true),
            (500, json!({}), false),
        ] {
            let apiserver = Apiserver::new(move |_, _| (code, live.clone()));
            let status = json!({"state": "UpgradePending", "currentCSV": "a.v1", "installPlanRef": {"name": "p"},
                "lastUpdated": "2026-01-01T00:00:00Z"});
            let cluster = subscribed(&["a"], &status);
            let plan = json!({
                "metadata": {"namespace": "ns", "name": "p"}, "status": {"phase": "Complete", "catalogSources": []},
                "spec": {"clusterServiceVersionNames": ["a.v1"], "approval": "Automatic", "approved": true, "generation": 1},
            });
            put(&cluster.plans, plan);
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            let catalogs = observed.catalog_facts();
            let attempt = subscriptions.attempt(&observed, &observed.facts("olm", &catalogs)).await;
            assert_eq!(attempt.values.len(), usize::from(is_reported), "{code}");
            assert_eq!(matches!(attempt.next, Next::Backoff), !is_reported, "{code}");
        }
    }

    #[tokio::test]
    async fn bundle_that_cannot_be_read_stops_only_its_catalog() {
        let apiserver = Apiserver::new(|_, _| (404, json!({})));
        let cluster = subscribed(&["a", "z"], &Value::Null);
        for name in ["a", "z"] {
            let source = json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"sourceType": "grpc", "image": name}});
            put(&cluster.catalogs, source);
        }
        let subscriptions = subscriptions(&apiserver, &cluster);
        let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
        let catalogs = observed.catalog_facts();
        let attempt = subscriptions.resolve(&observed, &observed.facts("olm", &catalogs)).await;
        let problem = "error using catalogsource ns/z: cannot read package \"z\": disk full; fix or delete the CatalogSource";
        assert_eq!(attempt.left_out, [("z".to_owned(), problem.to_owned())].into());
        assert!(matches!(attempt.resolution, ResolutionFact::Resolved), "{:?}", attempt.failure());
        let UnpackFact::InProgress { message } = &attempt.unpack else { panic!("a.v1 is not unpacked") };
        assert!(message.contains("registry.test/bundle:v1"), "{message}");
    }

    #[test]
    fn next_is_within_a_minute_of_what_was_left_out() {
        let minute = UNFINISHED;
        for (next, want) in [
            (Next::OnChange, Some(minute)),
            (Next::After(minute * 2), Some(minute)),
            (Next::After(minute / 2), Some(minute / 2)),
            (Next::Backoff, None),
        ] {
            let got = match next.within(minute) {
                Next::After(wait) => Some(wait),
                Next::OnChange | Next::Backoff => None,
            };
            assert_eq!(got, want);
        }
    }
}
