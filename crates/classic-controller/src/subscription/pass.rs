//! One pass over a namespace, before its result is written.
//!
//! Rules: classic-apis §4, §5.5; update-graph §7.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Resource as _};
use olm_api::classic::{ClusterServiceVersion, InstallPlan, InstallPlanStatus, Subscription};
use olm_classic::install_plan::{
    PlanError, PlannedBundle, REQUEUE, StepManifest, UnpackNext, UnpackSettings, WAITING_EVENT,
    bundle_lookup, plan_wait,
};
use olm_classic::operator;
use olm_classic::subscription::{
    Conclusion, NamespaceFacts, Pass, PassError, Resolution, ResolutionFact, StateRule, StatusValues,
    UnpackFact, begin_pass, conclude_pass, is_awaiting, is_confirmed, needs_confirmation, new_bundles,
    planned_statuses, resolution_failure, solver_namespace,
};
use olm_core::Object;
use olm_runtime::apply::{self, ErrorClass};
use olm_runtime::backoff::UNFINISHED;
use olm_runtime::events::NewEvent;
use olm_runtime::watched::{self, Object as Cached};
use olm_solver::{ErrorKind, Solution, SolveError};

use super::Subscriptions;
use super::observed::Observed;
use crate::catalog::{BundleContent, Snapshot};
use crate::context::MANAGER;
use crate::unpacked;

/// Reason of the Normal event of an InstallPlan that was deleted for a newer one, and of the Subscriptions that referred to it.
const SUPERSEDED_EVENT: &str = "PlanSuperseded";

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
            Ok(Conclusion::Make { plan, superseded })
                if !superseded.is_empty() && !self.delete_superseded(facts, &superseded, &plan).await =>
            {
                resolved(unpack, Next::Backoff)
            }
            Ok(conclusion) => {
                let superseded = match &conclusion {
                    Conclusion::Make { superseded, .. } => superseded.clone(),
                    Conclusion::NothingNew | Conclusion::UseAgain { .. } => Vec::new(),
                };
                match self.plan(observed, facts, &solution, &planned, conclusion).await {
                    Ok((plan, values)) => {
                        let events = superseded_events(facts, &values, &superseded);
                        Attempt { plan: Some(plan), values, events, ..resolved(unpack, Next::OnChange) }
                    }
                    Err(message) => {
                        let unpack = UnpackFact::Failed { reason: "EnsureInstallPlanFailed", message };
                        resolved(unpack, Next::Backoff)
                    }
                }
            }
            Err(error) => resolved(unusable(&error), Next::OnChange),
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
                let lookup = bundle_lookup(chosen, &content.image, String::new());
                let (decision, objects) = self.unpacks.step(
                    source,
                    &lookup,
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

    /// Writes the ConfigMaps to which the steps of a plan refer.
    async fn write_manifests(
        &self,
        observed: &Observed,
        bundles: &[PlannedBundle<'_>],
        status: Option<&InstallPlanStatus>,
    ) -> Result<(), String> {
        let mut written = BTreeSet::new();
        for (index, step) in status.iter().flat_map(|status| &status.plan).enumerate() {
            let manifest = StepManifest::read(index, step).map_err(|error| error.to_string())?;
            let StepManifest::Reference(reference) = manifest else { continue };
            let bundle = bundles.iter().find(|bundle| bundle.chosen.name == step.resolving);
            let source =
                observed.catalog(&reference.catalog_source_namespace, &reference.catalog_source_name);
            if let (Some(bundle), Some(source)) = (bundle, source)
                && written.insert(reference.name.clone())
            {
                unpacked::write(&self.context.client, &reference, source, bundle.objects).await?;
            }
        }
        Ok(())
    }

    /// Deletes plans whose steps have not begun, so that `new` takes their place. `false`: one of them changed meanwhile, or cannot be
    /// deleted; it may be approved.
    async fn delete_superseded(
        &self,
        facts: &NamespaceFacts<'_>,
        names: &[String],
        new: &InstallPlan,
    ) -> bool {
        let versions = new.spec.cluster_service_version_names.join(", ");
        let note =
            format!("deleted before its steps began: a newer InstallPlan takes its place, for {versions}");
        let event = NewEvent { warning: false, reason: SUPERSEDED_EVENT, action: "Resolve", note: &note };
        let api: Api<InstallPlan> = Api::namespaced(self.context.client.clone(), facts.namespace);
        for plan in facts.plans {
            let Some(name) = plan.metadata.name.as_ref().filter(|name| names.contains(name)) else {
                continue;
            };
            let as_read = Preconditions {
                uid: plan.metadata.uid.clone(),
                resource_version: plan.metadata.resource_version.clone(),
            };
            match api.delete(name, &DeleteParams::background().preconditions(as_read)).await {
                Ok(_) => self.context.events.publish(&plan.object_ref(&()), event.clone()).await,
                Err(error) if apply::classify(&error) == ErrorClass::NotFound => {}
                Err(error) => {
                    tracing::info!(plan = name, error = apply::message(&error), "a plan does not give way");
                    return false;
                }
            }
            self.context.cluster.plans.remove(&watched::key(&plan.metadata));
        }
        true
    }

    /// Creates the plan, or uses one that is there again.
    async fn plan(
        &self,
        observed: &Observed,
        facts: &NamespaceFacts<'_>,
        solution: &Solution,
        bundles: &[PlannedBundle<'_>],
        conclusion: Conclusion,
    ) -> Result<(InstallPlan, BTreeMap<usize, StatusValues>), String> {
        let api: Api<InstallPlan> = Api::namespaced(self.context.client.clone(), &observed.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let failed = |error: kube::Error| apply::message(&error);
        let (plan, status) = match conclusion {
            Conclusion::Make { mut plan, .. } => {
                let status = plan.status.take();
                let planned = planned_statuses(facts, solution, &plan).into_iter();
                let packages = planned.map(|(index, _)| facts.subscriptions[index].spec.package.as_str());
                operator::announce(&mut plan, &observed.namespace, packages);
                self.write_manifests(observed, bundles, status.as_ref()).await?;
                (api.create(&params, &plan).await.map_err(failed)?, status)
            }
            Conclusion::UseAgain { name, status } => {
                let found = facts.plans.iter().find(|plan| plan.metadata.name.as_ref() == Some(&name));
                let plan = found.ok_or_else(|| format!("InstallPlan {name} is gone"))?;
                (InstallPlan::clone(plan), status.map(|status| *status))
            }
            Conclusion::NothingNew => return Err("there is nothing to plan".to_owned()),
        };
        let plan = match status {
            Some(status) => {
                let name = plan.metadata.name.clone().unwrap_or_default();
                let mut with_status = InstallPlan { status: Some(status), ..plan };
                match api.replace_status(&name, &params, &with_status).await {
                    Err(error) if apply::classify(&error) == ErrorClass::Conflict => {
                        let found = api.get(&name).await.map_err(failed)?;
                        if found.metadata.uid != with_status.metadata.uid {
                            return Err(format!("InstallPlan {name} was deleted and created again"));
                        }
                        if found.status.is_some() {
                            // the answer to an earlier write was lost
                            found
                        } else {
                            with_status.metadata = found.metadata;
                            api.replace_status(&name, &params, &with_status).await.map_err(failed)?
                        }
                    }
                    written => written.map_err(failed)?,
                }
            }
            None => plan,
        };
        self.context.cluster.plans.insert(watched::key(&plan.metadata), Cached::new(plan.clone()));
        if let Some(note) = plan_wait(&plan) {
            let event = NewEvent { warning: false, reason: WAITING_EVENT, action: "Resolve", note: &note };
            self.context.events.publish(&plan.object_ref(&()), event).await;
        }
        let values = planned_statuses(facts, solution, &plan).into_iter().collect();
        Ok((plan, values))
    }
}

fn unresolved(error: &SolveError) -> Attempt {
    let next = match error.kind() {
        ErrorKind::Unsatisfiable => Next::OnChange,
        ErrorKind::Ambiguous | ErrorKind::Other => Next::Backoff,
    };
    Attempt { resolution: resolution_failure(error), ..Attempt::new(next) }
}

/// One for each Subscription that waited for the approval of one of these plans, which were deleted.
fn superseded_events(
    facts: &NamespaceFacts<'_>,
    values: &BTreeMap<usize, StatusValues>,
    superseded: &[String],
) -> Vec<(usize, &'static str, String)> {
    let of = |(index, subscription): (usize, &Arc<Subscription>)| {
        let status = subscription.status.as_ref().filter(|status| status.state == "UpgradePending")?;
        let plan =
            status.install_plan_ref.as_ref()?.name.as_ref().filter(|plan| superseded.contains(plan))?;
        let old = &status.current_csv;
        let note = match values.get(&index).map(|values| &values.current_csv) {
            Some(new) if new != old => format!("{new} takes the place of {old}, which waited for approval"),
            Some(_) | None => {
                format!(
                    "InstallPlan {plan} for {old} waited for approval, and was deleted: a newer one takes its place"
                )
            }
        };
        Some((index, SUPERSEDED_EVENT, note))
    };
    facts.subscriptions.iter().enumerate().filter_map(of).collect()
}

/// The content of a bundle cannot be installed; another bundle may.
fn unusable(error: &PlanError) -> UnpackFact {
    UnpackFact::Failed { reason: "EnsureInstallPlanFailed", message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use olm_api::classic::CatalogSource;
    use olm_classic::operator_group::keys::COPIED_FROM;
    use serde_json::{Value, json};

    use super::super::{NAME, Solved, Unpacks, metrics};
    use super::*;
    use crate::catalog::Catalogs;
    use crate::cluster::Cluster;
    use crate::image_source::{CatalogContent, FetchError, ImageSource};
    use crate::testing::{self, Apiserver};

    /// Images with one package each, which has the name of the image.
    struct Registry;

    struct Content {
        package: String,
        reads: AtomicU32,
    }

    impl ImageSource for Registry {
        fn catalog<'a>(
            &'a self,
            _: &'a CatalogSource,
            reference: &'a str,
        ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, String>> {
            let content = Content { package: reference.to_owned(), reads: AtomicU32::new(0) };
            async move { Ok(Arc::new(content) as Arc<dyn CatalogContent>) }.boxed()
        }

        fn bundle<'a>(
            &'a self,
            _: &'a CatalogSource,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>> {
            futures::future::pending().boxed()
        }
    }

    impl CatalogContent for Content {
        fn reference(&self) -> &str {
            &self.package
        }

        fn packages(&self) -> Vec<String> {
            vec![self.package.clone()]
        }

        /// That of `z` can be read once.
        fn package_lines(&self, package: &str) -> io::Result<Vec<u8>> {
            if self.reads.fetch_add(1, Ordering::Relaxed) > 0 && package == "z" {
                return Err(io::Error::other("disk full"));
            }
            let name = format!("{package}.v1");
            let property =
                json!({"type": "olm.package", "value": {"packageName": package, "version": "1.0.0"}});
            let lines = [
                json!({"schema": "olm.package", "name": package, "defaultChannel": "stable"}),
                json!({"schema": "olm.channel", "package": package, "name": "stable", "entries": [{"name": name}]}),
                json!({"schema": "olm.bundle", "package": package, "name": name, "image": "registry.test/bundle:v1",
                    "properties": [property]}),
            ];
            Ok(lines.map(|line| format!("{line}\n")).concat().into_bytes())
        }
    }

    fn subscriptions(apiserver: &Apiserver, cluster: &Arc<Cluster>) -> Subscriptions {
        let images: Arc<dyn ImageSource> = Arc::new(Registry);
        let context = testing::context(NAME, apiserver, cluster);
        Subscriptions {
            catalogs: Catalogs::new(&apiserver.client(), Arc::clone(&images)),
            unpacks: Unpacks::new(&images),
            solved: Solved::default(),
            recorded: metrics::register(&context.metrics, cluster),
            context,
        }
    }

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
        let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        for (code, live, is_adopted) in [
            (200, csv("u", Value::Null), true),
            (200, csv("u", json!("2026-01-01T00:00:00Z")), false),
            (200, csv("created again", Value::Null), false),
            (404, gone, false),
            (500, json!({}), false),
        ] {
            let apiserver = Apiserver::new(move |_, _| (code, live.clone()));
            let cluster = Cluster::new();
            let group = json!({"metadata": {"namespace": "ns", "name": "g"}, "spec": {}});
            cluster.groups.insert("ns/g".to_owned(), Cached::new(serde_json::from_value(group).unwrap()));
            let spec = json!({"name": "a", "source": "a", "sourceNamespace": "ns"});
            let subscription = json!({"metadata": {"namespace": "ns", "name": "a"}, "spec": spec});
            let subscription = Cached::new(serde_json::from_value(subscription).unwrap());
            cluster.subscriptions.insert("ns/a".to_owned(), subscription);
            let cached = Cached::new(serde_json::from_value(csv("u", Value::Null)).unwrap());
            cluster.csvs.insert("ns/a.v1".to_owned(), cached);
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
        let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        for (code, live, is_reported) in [
            (200, csv(Value::Null, Value::Null), false),
            (200, csv(Value::Null, json!({(COPIED_FROM): "other"})), true),
            (200, csv(json!("2026-01-01T00:00:00Z"), Value::Null), true),
            (404, gone, true),
            (500, json!({}), false),
        ] {
            let apiserver = Apiserver::new(move |_, _| (code, live.clone()));
            let cluster = Cluster::new();
            let group = json!({"metadata": {"namespace": "ns", "name": "g"}, "spec": {}});
            cluster.groups.insert("ns/g".to_owned(), Cached::new(serde_json::from_value(group).unwrap()));
            let plan = json!({
                "metadata": {"namespace": "ns", "name": "p"}, "status": {"phase": "Complete", "catalogSources": []},
                "spec": {"clusterServiceVersionNames": ["a.v1"], "approval": "Automatic", "approved": true, "generation": 1},
            });
            cluster.plans.insert("ns/p".to_owned(), Cached::new(serde_json::from_value(plan).unwrap()));
            let subscription = json!({
                "metadata": {"namespace": "ns", "name": "a"}, "spec": {"name": "a", "source": "a", "sourceNamespace": "ns"},
                "status": {"state": "UpgradePending", "currentCSV": "a.v1", "installPlanRef": {"name": "p"},
                    "lastUpdated": "2026-01-01T00:00:00Z"},
            });
            let subscription = Cached::new(serde_json::from_value(subscription).unwrap());
            cluster.subscriptions.insert("ns/a".to_owned(), subscription);
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            let catalogs = observed.catalog_facts();
            let attempt = subscriptions.attempt(&observed, &observed.facts("olm", &catalogs)).await;
            assert_eq!(attempt.values.len(), usize::from(is_reported), "{code}");
            assert_eq!(matches!(attempt.next, Next::Backoff), !is_reported, "{code}");
        }
    }

    /// The plan changes while its status is written, or is deleted and created again.
    #[tokio::test]
    async fn plan_that_was_created_again_gets_no_status() {
        let plan = |uid: &str, version: &str| {
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
                "metadata": {"namespace": "ns", "name": "p", "uid": uid, "resourceVersion": version},
                "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true, "generation": 1},
            })
        };
        for (live, writes) in [("u", 2), ("created again", 1)] {
            let (found, tried) = (plan(live, "2"), AtomicU32::new(0));
            let apiserver = Apiserver::new(move |method, _| match method {
                "PUT" if tried.fetch_add(1, Ordering::Relaxed) == 0 => {
                    (409, json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}))
                }
                _ => (200, found.clone()),
            });
            let cluster = Cluster::new();
            let cached = Cached::new(serde_json::from_value(plan("u", "1")).unwrap());
            cluster.plans.insert("ns/p".to_owned(), cached);
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            let catalogs = observed.catalog_facts();
            let facts = observed.facts("olm", &catalogs);
            let status = json!({"phase": "Installing", "catalogSources": []});
            let status = Some(Box::new(serde_json::from_value(status).unwrap()));
            let conclusion = Conclusion::UseAgain { name: "p".to_owned(), status };
            let written = subscriptions.plan(&observed, &facts, &Solution::default(), &[], conclusion).await;
            assert_eq!(written.is_ok(), writes == 2, "{live}: {written:?}");
            let requests = apiserver.requests();
            let sent = requests.iter().filter(|line| line.starts_with("PUT ")).count();
            assert_eq!(sent, writes, "{live}: {requests:?}");
        }
    }

    #[tokio::test]
    async fn plan_of_the_history_is_deleted_as_it_was_read() {
        for (code, status, reason) in
            [(200, "Success", ""), (404, "Failure", "NotFound"), (409, "Failure", "Conflict")]
        {
            let answer = json!({"kind": "Status", "status": status, "reason": reason, "code": code});
            let apiserver = Apiserver::new(move |_, _| (code, answer.clone()));
            let cluster = Cluster::new();
            for number in 1..=6 {
                let plan = json!({
                    "metadata": {"namespace": "ns", "name": format!("p{number}"), "uid": format!("u{number}"), "resourceVersion": "7"},
                    "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true, "generation": number},
                    "status": {"phase": "Complete", "catalogSources": []},
                });
                let plan = Cached::new(serde_json::from_value(plan).unwrap());
                cluster.plans.insert(format!("ns/p{number}"), plan);
            }
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            subscriptions.delete_expired(&observed).await.unwrap();
            let requests = apiserver.requests();
            assert!(requests.len() == 1 && requests[0].starts_with("DELETE "), "{requests:?}");
            for part in ["/installplans/p1", r#""uid":"u1""#, r#""resourceVersion":"7""#] {
                assert!(requests[0].contains(part), "{part}: {requests:?}");
            }
        }
    }

    #[tokio::test]
    async fn bundle_that_cannot_be_read_stops_only_its_catalog() {
        let apiserver = Apiserver::new(|_, _| (404, json!({})));
        let cluster = Cluster::new();
        let group = json!({"metadata": {"namespace": "ns", "name": "g"}, "spec": {}});
        cluster.groups.insert("ns/g".to_owned(), Cached::new(serde_json::from_value(group).unwrap()));
        for name in ["a", "z"] {
            let metadata = json!({"namespace": "ns", "name": name});
            let source = json!({"metadata": metadata, "spec": {"sourceType": "grpc", "image": name}});
            let spec = json!({"name": name, "channel": "stable", "source": name, "sourceNamespace": "ns"});
            let subscription = json!({"metadata": metadata, "spec": spec});
            let key = format!("ns/{name}");
            cluster.catalogs.insert(key.clone(), Cached::new(serde_json::from_value(source).unwrap()));
            cluster.subscriptions.insert(key, Cached::new(serde_json::from_value(subscription).unwrap()));
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
    fn superseded_plan_is_an_event_of_each_subscription() {
        let subscription = |name: &str, state: &str, plan: &str| -> Arc<Subscription> {
            let spec = json!({"name": name, "source": "c", "sourceNamespace": "ns"});
            let status = json!({"state": state, "currentCSV": format!("{name}.v1"), "installPlanRef": {"name": plan},
                "lastUpdated": "2026-01-01T00:00:00Z"});
            let value =
                json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let subscriptions = [
            subscription("a", "UpgradePending", "p"),
            subscription("b", "UpgradePending", "p"),
            subscription("c", "UpgradePending", "other"),
            subscription("d", "AtLatestKnown", "p"),
        ];
        let facts = NamespaceFacts {
            namespace: "ns",
            global_namespace: None,
            groups: &[],
            subscriptions: &subscriptions,
            csvs: &[],
            plans: &[],
            catalogs: &[],
        };
        let values = StatusValues { current_csv: "a.v2".to_owned(), ..StatusValues::default() };
        let events = superseded_events(&facts, &BTreeMap::from([(0, values)]), &["p".to_owned()]);
        let notes: Vec<(usize, &str)> =
            events.iter().map(|(index, _, note)| (*index, note.as_str())).collect();
        let of_b = "InstallPlan p for b.v1 waited for approval, and was deleted: a newer one takes its place";
        assert_eq!(notes, [(0, "a.v2 takes the place of a.v1, which waited for approval"), (1, of_b)]);
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
