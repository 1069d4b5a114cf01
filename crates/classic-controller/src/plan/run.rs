//! One run over the steps of a plan.
//!
//! Rules: classic-apis §5.3, §5.4, §5.5.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Api, Client, Resource};
use olm_api::classic::install_plan::Step;
use olm_api::classic::{ClusterServiceVersion, InstallPlan, InstallPlanStatus, Subscription};
use olm_classic::csv::strategy::serving;
use olm_classic::install_plan::{
    PlanRun, PlannedBundle, StepAction, StepError, StepManifest, StepObserved, StepReference, StepStatus,
    bundle_objects, decide_step, has_owner_labels, step_kind, step_object, update_crd, warning_event,
};
use olm_classic::operator::{self, label_component};
use olm_classic::ownership::extension_conflict;
use olm_core::Object;
use olm_resolver::Property;
use olm_runtime::apply::{self, ErrorClass};
use olm_runtime::events::NewEvent;
use olm_runtime::watched::{Object as Cached, Objects};
use olm_solver::ChosenBundle;
use serde::Deserialize;
use serde_json::Value;

use super::request::{self, Written};
use super::{Plans, live_objects};
use crate::context::MANAGER;
use crate::unpacked;
use crate::write::ObjectWriter;

/// How often a step is decided again because the object changed meanwhile.
const ATTEMPTS: usize = 4;

pub(super) struct Run<'a> {
    plans: &'a Plans,
    plan: &'a InstallPlan,
    namespace: &'a str,
    /// Acts as the account of the group, if there is one.
    acting: Client,
    /// UIDs of ClusterServiceVersions that this run created.
    created: BTreeMap<String, String>,
    /// Roles and bindings that this run wrote and that are deleted with a ClusterServiceVersion by their labels, with the places of their
    /// steps.
    rights: Vec<(usize, Object)>,
    /// Objects of bundles whose steps have references.
    unpacked: BTreeMap<String, Arc<Vec<Object>>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(plans: &'a Plans, plan: &'a InstallPlan, acting: Client) -> Self {
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        let (created, rights, unpacked) = Default::default();
        Self { plans, plan, namespace, acting, created, rights, unpacked }
    }

    /// Tries the steps in order, up to the first error.
    pub(super) async fn all(mut self, status: &InstallPlanStatus) -> PlanRun {
        let steps = status.plan.iter().map(|step| StepStatus::parse(&step.status));
        let mut run = PlanRun { steps: steps.collect(), error: None };
        for (index, step) in status.plan.iter().enumerate() {
            match self.step(index, step).await {
                Ok(done) => run.steps[index] = done,
                Err(error) => {
                    if matches!(error, StepError::Unsupported { .. }) {
                        run.steps[index] = StepStatus::UnsupportedResource;
                    }
                    run.error = Some(error);
                    break;
                }
            }
        }
        let client = &self.plans.context.client;
        let revoked =
            revoke_abandoned(client, self.namespace, &status.plan, &self.rights, &mut run.steps).await;
        if let Err(error) = revoked {
            run.error.get_or_insert(error);
        }
        run
    }

    async fn step(&mut self, index: usize, step: &Step) -> Result<StepStatus, StepError> {
        let status = StepStatus::parse(&step.status);
        if status.is_done() {
            return Ok(status);
        }
        let unpacked = self.unpacked(index, step).await?;
        let manifest = step_object(index, step, &unpacked)?;
        let failed = |error: &kube::Error| {
            let is_forbidden = apply::classify(error) == ErrorClass::Forbidden;
            StepError::from_api(step, &apply::message(error), is_forbidden)
        };
        let mut named = manifest.clone();
        if let Some(kind) = step_kind(&step.resource.group, &step.resource.kind) {
            kind.place(&mut named, self.namespace);
        }
        let mut existing = self.cached(&named);
        if existing.is_none() && self.is_known(&named) {
            // what cannot be read is reported when it cannot be created either
            existing = request::read(self.client_of(&named), &named).await.ok().flatten();
        }
        let subscribed = match (named.kind(), &existing) {
            ("Subscription", None) => self.subscribed_packages().await.map_err(|error| failed(&error))?,
            _ => Vec::new(),
        };
        for _ in 0..ATTEMPTS {
            // those of now: another plan that runs may have made the one that owns what exists
            let csvs = self.plans.context.cluster.own_csvs(self.namespace);
            let observed = StepObserved {
                existing: existing.as_ref(),
                owner_uid: self.owner_uid(&step.resolving, &csvs),
                csvs: &csvs,
                subscribed: &subscribed,
                global_namespace: &self.plans.context.settings.global_namespace,
            };
            let action = decide_step(self.plan, index, &manifest, observed)?;
            let status = action.status();
            match self.execute(index, step, action).await {
                Ok(()) => return Ok(status),
                Err(Failed::Step(error)) => return Err(error),
                Err(Failed::Api(error)) => match apply::classify(&error) {
                    ErrorClass::AlreadyExists | ErrorClass::Conflict => {
                        let found = request::read(self.client_of(&named), &named).await;
                        existing = found.map_err(|error| failed(&error))?;
                    }
                    ErrorClass::NotFound if existing.is_some() => existing = None,
                    ErrorClass::NotFound if is_url_missing(&error) => return Err(StepError::no_api(&named)),
                    _ => return Err(failed(&error)),
                },
            }
        }
        let message = "the object changes while it is written".to_owned();
        Err(StepError::from_api(step, &message, false))
    }

    /// Definitions are the controller's own matter; all else is done as the account of the group.
    fn client_of(&self, object: &Object) -> &Client {
        match object.kind() {
            "CustomResourceDefinition" => &self.plans.context.client,
            _ => &self.acting,
        }
    }

    /// Labels of the operator whose Subscription waits for the ClusterServiceVersion of a step.
    fn component_labels(&self, step: &Step) -> Vec<String> {
        let here = self.plans.context.cluster.subscriptions.in_namespace(self.namespace);
        let waits = |it: &&Arc<Subscription>| {
            it.status.as_ref().is_some_and(|status| status.current_csv == step.resolving)
        };
        let name = |it: &Arc<Subscription>| operator::name(&it.spec.package, self.namespace);
        here.iter().filter(waits).map(|it| operator::label(&name(it))).collect()
    }

    /// The packages of all Subscriptions of the namespace, also of those that do not fit their type, as the apiserver has them: the watch
    /// may not show yet to what a user has just subscribed.
    async fn subscribed_packages(&self) -> Result<Vec<String>, kube::Error> {
        let (client, resource) = (self.plans.context.client.clone(), ApiResource::erase::<Subscription>(&()));
        let api: Api<DynamicObject> = Api::namespaced_with(client, self.namespace, &resource);
        let found = api.list(&ListParams::default()).await?.items;
        Ok(found.iter().filter_map(|it| it.data["spec"]["name"].as_str().map(str::to_owned)).collect())
    }

    fn owner_uid<'b>(&'b self, csv: &str, csvs: &'b [Arc<ClusterServiceVersion>]) -> Option<&'b str> {
        let created = self.created.get(csv).map(String::as_str);
        let is_it = |it: &&Arc<ClusterServiceVersion>| it.metadata.name.as_deref() == Some(csv);
        created.or_else(|| csvs.iter().find(is_it)?.metadata.uid.as_deref())
    }

    /// The object as far as its kind is cached; that of another kind is found when it is created.
    fn cached(&self, object: &Object) -> Option<Object> {
        let cluster = &self.plans.context.cluster;
        let key = match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name()),
            None => object.name().to_owned(),
        };
        match (object.group(), object.kind()) {
            (_, "ClusterServiceVersion") => cached_object(&cluster.csvs, &key),
            (_, "CustomResourceDefinition") => cached_object(&cluster.crds, &key),
            (_, "Subscription") => cached_object(&cluster.subscriptions, &key),
            ("", "ServiceAccount") => cached_object(&cluster.accounts, &key),
            (_, "Role") => cached_object(&cluster.roles, &key),
            (_, "RoleBinding") => cached_object(&cluster.role_bindings, &key),
            (_, "ClusterRole") => cached_object(&cluster.cluster_roles, &key),
            (_, "ClusterRoleBinding") => cached_object(&cluster.cluster_role_bindings, &key),
            _ => None,
        }
    }

    /// Whether a cache without content has the object, so that its creation would fail.
    fn is_known(&self, object: &Object) -> bool {
        let key = format!("{}/{}", object.namespace().unwrap_or_default(), object.name());
        object.kind() == "ConfigMap" && self.plans.context.cluster.config_maps.find(&key).is_some()
    }

    async fn execute(&mut self, index: usize, step: &Step, action: StepAction) -> Result<(), Failed> {
        match action {
            StepAction::Done(_) | StepAction::Keep | StepAction::AwaitApi => Ok(()),
            StepAction::Create(mut object) => {
                let labels = self.component_labels(step);
                let csv =
                    self.plans.context.cluster.csvs.find(&format!("{}/{}", self.namespace, step.resolving));
                label_component(&mut object, labels.iter().map(String::as_str), csv.as_deref());
                let written = request::create(self.client_of(&object), &object).await?;
                self.warn(index, step, &written).await;
                self.cache_created(&written);
                self.record_rights(index, step, written);
                Ok(())
            }
            StepAction::Update(object) => {
                let written = request::replace(self.client_of(&object), &object).await?;
                self.warn(index, step, &written).await;
                self.record_rights(index, step, written);
                Ok(())
            }
            StepAction::CompareCrd(object) => self.update_definition(index, step, &object).await,
            StepAction::CopySecret { name, from } => self.copy_secret(&name, &from).await,
        }
    }

    /// Caches what was created, so that later steps and controllers see it.
    fn cache_created(&mut self, written: &Written) {
        let cluster = &self.plans.context.cluster;
        let object = &written.object;
        if object.kind() == "ClusterServiceVersion"
            && let Ok(csv) = serde_json::from_value::<ClusterServiceVersion>(object.to_value())
        {
            let uid = csv.metadata.uid.clone().unwrap_or_default();
            self.created.insert(object.name().to_owned(), uid);
            let key = olm_runtime::watched::key(&csv.metadata);
            cluster.csvs.insert(key, Cached::new(csv));
        }
    }

    fn record_rights(&mut self, index: usize, step: &Step, written: Written) {
        let is_right = ["ClusterRole", "ClusterRoleBinding"].contains(&written.object.kind());
        if is_right && has_owner_labels(&written.object, &step.resolving, self.namespace) {
            self.rights.push((index, written.object));
        }
    }

    async fn warn(&self, index: usize, step: &Step, written: &Written) {
        if written.warnings.is_empty() {
            return;
        }
        self.plans.warnings.inc();
        let (field_path, message) = warning_event(index, step, &written.warnings);
        let mut about = self.plan.object_ref(&());
        about.field_path = Some(field_path);
        let event =
            NewEvent { warning: true, reason: "AppliedWithWarnings", action: "Apply", note: &message };
        self.plans.context.events.publish(&about, event).await;
    }

    async fn update_definition(&self, index: usize, step: &Step, new: &Object) -> Result<(), Failed> {
        let client = &self.plans.context.client;
        let Some(existing) = request::read(client, new).await? else {
            let missing = kube::core::Status::failure("the definition is gone", "NotFound").with_code(404);
            return Err(Failed::Api(kube::Error::Api(missing.boxed())));
        };
        // the cache, by which the step was decided, may be older
        if let Some(conflict) = extension_conflict(&existing) {
            return Err(StepError::OfExtension(conflict).into());
        }
        let cluster = &self.plans.context.cluster;
        let csvs = cluster.csvs.names().into_iter().collect::<BTreeSet<_>>();
        let owner = (self.namespace, step.resolving.as_str());
        let own = cluster.own_csvs(self.namespace);
        let is_converted = own.iter().any(|csv| serving::converted(csv).contains_key(new.name()));
        let update = update_crd(&existing, new, owner, &csvs, is_converted).map_err(StepError::from)?;
        let warnings = live_objects::check(client, &existing, new, is_converted).await?;
        let warnings = warnings.iter().map(|note| (true, "CRDValidation", note));
        let notices = update.notices.iter().map(|note| (false, "CRDChanged", note));
        for (warning, reason, note) in warnings.chain(notices) {
            let about = self.plan.object_ref(&());
            let event = NewEvent { warning, reason, action: "Apply", note };
            self.plans.context.events.publish(&about, event).await;
        }
        if let Some(object) = &update.object {
            let written = request::replace(client, object).await?;
            self.warn(index, step, &written).await;
        }
        Ok(())
    }

    /// Copies a pull secret of the namespace `from`.
    async fn copy_secret(&self, name: &str, from: &str) -> Result<(), Failed> {
        let context = &self.plans.context;
        let secrets: Api<Secret> = Api::namespaced(context.client.clone(), from);
        let secret = secrets.get(name).await?;
        let mut copy = Secret { metadata: Default::default(), ..secret };
        copy.metadata.name = Some(name.to_owned());
        copy.metadata.namespace = Some(self.namespace.to_owned());
        copy.metadata.labels = Some([("olm.managed".to_owned(), "true".to_owned())].into());
        let api: Api<Secret> = Api::namespaced(context.client.clone(), self.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        api.create(&params, &copy).await?;
        Ok(())
    }

    /// The objects of the bundle of a step whose manifest is a reference.
    async fn unpacked(&mut self, index: usize, step: &Step) -> Result<Arc<Vec<Object>>, StepError> {
        let StepManifest::Reference(reference) = StepManifest::read(index, step)? else {
            return Ok(Arc::default());
        };
        if let Some(unpacked) = self.unpacked.get(&step.resolving) {
            return Ok(Arc::clone(unpacked));
        }
        let objects = self.referenced(step, &reference).await;
        let objects = objects.map_err(|problem| StepError::from_api(step, &problem, false))?;
        let objects = Arc::new(objects);
        self.unpacked.insert(step.resolving.clone(), Arc::clone(&objects));
        Ok(objects)
    }

    async fn referenced(&self, step: &Step, reference: &StepReference) -> Result<Vec<Object>, String> {
        let (catalog, namespace) = (&reference.catalog_source_name, &reference.catalog_source_namespace);
        let lookups = self.plan.status.iter().flat_map(|status| &status.bundle_lookups);
        let image = lookups.into_iter().find(|lookup| lookup.identifier == step.resolving);
        let image = image.map(|lookup| lookup.path.as_str());
        let cached =
            image.and_then(|image| self.plans.unpacks.in_memory(&format!("{namespace}/{catalog}"), image));
        let written = match &cached {
            Some(_) => cached,
            None => unpacked::read(&self.plans.context.client, reference).await?.map(Arc::new),
        };
        let raw = match (written, image) {
            (Some(objects), _) => objects,
            (None, Some(image)) => {
                let source = self.plans.context.cluster.catalogs.find(&format!("{namespace}/{catalog}"));
                let source = source.ok_or_else(|| format!("CatalogSource {namespace}/{catalog} is gone"))?;
                self.plans.unpacks.objects(&source, image).await?
            }
            (None, None) => {
                let place = format!("{}/{}", reference.namespace, reference.name);
                return Err(format!("ConfigMap {place} is gone; delete the InstallPlan, a new one is made"));
            }
        };
        let chosen = ChosenBundle {
            namespace: namespace.clone(),
            catalog: catalog.clone(),
            channel: String::new(),
            name: step.resolving.clone(),
            package: String::new(),
            replaces: reference.replaces.clone(),
        };
        let properties = properties(&reference.properties)?;
        let bundle = PlannedBundle { chosen: &chosen, objects: &raw, properties: &properties, image };
        bundle_objects(&bundle, self.namespace, &[]).map_err(|error| error.to_string())
    }
}

/// Deletes rights in the cluster that a run wrote for a ClusterServiceVersion which was deleted meanwhile: no owner reference binds them to
/// it, and with it only those were deleted that existed then. The apiserver is asked after they were written: a ClusterServiceVersion that
/// exists then deletes them when it goes. `rights` have the places of their steps, which count as not done when they are deleted.
async fn revoke_abandoned(
    client: &Client,
    namespace: &str,
    steps: &[Step],
    rights: &[(usize, Object)],
    done: &mut [StepStatus],
) -> Result<(), StepError> {
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(client.clone(), namespace);
    let mut present = BTreeMap::new();
    let mut result = Ok(());
    for (index, right) in rights {
        let step = &steps[*index];
        let failed = |error: kube::Error| StepError::from_api(step, &apply::message(&error), false);
        let csv = step.resolving.as_str();
        if !present.contains_key(csv) {
            let found = csvs.get_metadata_opt(csv).await.map_err(failed)?;
            present.insert(csv, found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()));
        }
        if present[csv] {
            continue;
        }
        ObjectWriter::new(client.clone()).delete(right).await.map_err(failed)?;
        done[*index] = StepStatus::Unknown;
        result = Err(StepError::no_owner(step));
    }
    result
}

/// Whether the apiserver has no such URL, rather than no such object.
fn is_url_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// Why a step was not carried out.
#[derive(Debug)]
pub(super) enum Failed {
    Step(StepError),
    Api(kube::Error),
}

impl From<StepError> for Failed {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

fn cached_object<K>(objects: &Objects<K>, key: &str) -> Option<Object>
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize
        + Send
        + Sync
        + 'static,
{
    let found = objects.find(key)?;
    request::to_object(&*found).ok()
}

#[derive(Deserialize)]
struct Properties {
    properties: Vec<TypeAndValue>,
}

#[derive(Deserialize)]
struct TypeAndValue {
    #[serde(rename = "type")]
    type_: String,
    value: Value,
}

fn properties(text: &str) -> Result<Vec<Property>, String> {
    let read: Properties =
        serde_json::from_str(text).map_err(|error| format!("properties of a step: {error}"))?;
    let property = |it: TypeAndValue| Property { kind: it.type_.into(), value: it.value.to_string().into() };
    Ok(read.properties.into_iter().map(property).collect())
}

#[cfg(test)]
mod tests {
    use olm_api::labels;
    use serde_json::json;

    use super::*;
    use crate::testing::Apiserver;

    fn role_step(csv: &str, name: &str) -> Step {
        let resource = json!({"sourceName": "s", "sourceNamespace": "olm", "group": "rbac.authorization.k8s.io", "version": "v1",
            "kind": "ClusterRole", "name": name, "manifest": ""});
        serde_json::from_value(json!({"resolving": csv, "resource": resource, "status": "Unknown"})).unwrap()
    }

    #[tokio::test]
    async fn definition_of_an_extension_is_not_updated() {
        let crd = |labels: Value| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "widgets.example.com", "labels": labels}, "spec": {"versions": []}})
        };
        let owned = crd(
            json!({(labels::OWNER_KIND): labels::OWNER_KIND_CLUSTER_EXTENSION, (labels::OWNER_NAME): "shop"}),
        );
        let apiserver = Apiserver::new(move |_, _| (200, owned.clone()));
        let (plans, _cache) = super::super::tests::plans(&apiserver);
        let plan = plan();
        let run = Run::new(&plans, &plan, apiserver.client());
        let new = Object::from_value(crd(json!({}))).unwrap();
        let ended = run.update_definition(0, &role_step("a.v1", "r"), &new).await;
        assert!(matches!(ended, Err(Failed::Step(StepError::OfExtension(_)))), "{ended:?}");
        assert_eq!(apiserver.requests().len(), 1, "it is only read");
    }

    fn plan() -> InstallPlan {
        let spec = json!({"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true});
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})).unwrap()
    }

    #[tokio::test]
    async fn cluster_role_with_a_namespace_is_written_without_it() {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r", "namespace": "elsewhere"}});
        let mut step = role_step("a.v1", "r");
        step.resource.manifest = role.to_string();
        let apiserver = Apiserver::new(move |method, _| match method {
            "POST" => {
                (409, json!({"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "code": 409}))
            }
            _ => (200, role.clone()),
        });
        let (plans, _cache) = super::super::tests::plans(&apiserver);
        let mut plan = plan();
        plan.status = Some(InstallPlanStatus { plan: vec![step.clone()], ..InstallPlanStatus::default() });
        let mut run = Run::new(&plans, &plan, apiserver.client());
        assert_eq!(run.step(0, &step).await, Ok(StepStatus::Present));
        let requests = apiserver.requests();
        assert_eq!(requests.len(), 3, "created, read, replaced: {requests:?}");
        assert!(requests.iter().all(|it| !it.contains("/namespaces/")), "{requests:?}");
    }

    #[tokio::test]
    async fn unreadable_subscription_counts_as_subscribed() {
        let subscription = |name: &str, spec: Value| {
            json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": {"name": name, "namespace": "ns"},
                "spec": spec})
        };
        let unreadable = subscription("mine", json!({"name": "pear", "source": 1}));
        let bare = subscription("bare", Value::Null);
        let list = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "SubscriptionList", "metadata": {},
            "items": [bare, unreadable]});
        let created = subscription("other", json!({}));
        let apiserver = Apiserver::new(move |method, _| match method {
            "GET" => (200, list.clone()),
            _ => (201, created.clone()),
        });
        let (plans, _cache) = super::super::tests::plans(&apiserver);
        for (package, want) in [("pear", StepStatus::Present), ("apple", StepStatus::Created)] {
            let name = format!("{package}-stable-s-olm");
            let mut step = role_step("a.v1", &name);
            (step.resource.group, step.resource.kind) =
                ("operators.coreos.com".to_owned(), "Subscription".to_owned());
            let spec = json!({"name": package, "source": "s", "sourceNamespace": "olm"});
            step.resource.manifest = subscription(&name, spec).to_string();
            let mut plan = plan();
            plan.status =
                Some(InstallPlanStatus { plan: vec![step.clone()], ..InstallPlanStatus::default() });
            let mut run = Run::new(&plans, &plan, apiserver.client());
            assert_eq!(run.step(0, &step).await, Ok(want), "{package}");
        }
    }

    #[tokio::test]
    async fn plan_warnings_are_events_and_counted() {
        let apiserver = Apiserver::new(|_, _| (201, json!({"metadata": {"name": "e"}})));
        let (plans, _cache) = super::super::tests::plans(&apiserver);
        let plan = plan();
        let run = Run::new(&plans, &plan, apiserver.client());
        for warnings in [vec![], vec!["old API".to_owned(), "soon gone".to_owned()]] {
            let written = Written { object: Object::default(), warnings };
            run.warn(2, &role_step("a.v1", "r"), &written).await;
        }
        let requests = apiserver.requests();
        let [event] = requests.as_slice() else { panic!("{requests:?}") };
        for part in [
            r#""reason":"AppliedWithWarnings""#,
            r#""type":"Warning""#,
            r#""fieldPath":"status.plan[2]""#,
            "old API",
            "soon gone",
        ] {
            assert!(event.contains(part), "{part}: {event}");
        }
        let metrics = plans.context.metrics.classic();
        let is_counted = metrics.lines().any(|line| line == "installplan_warnings_total 1");
        assert!(is_counted, "one for the step: {metrics}");
    }

    #[tokio::test]
    async fn plan_changes_of_a_definition_are_events() {
        let crd = |maximum: u8, is_served: bool| {
            let version = |name: &str, served: bool, maximum: u8| {
                let size = json!({"type": "integer", "maximum": maximum});
                let spec = json!({"type": "object", "properties": {"size": size}});
                let schema = json!({"type": "object", "properties": {"spec": spec}});
                json!({"name": name, "served": served, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
            };
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "widgets.example.com"}, "status": {"storedVersions": ["v1"]},
                "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"}, "scope": "Namespaced",
                    "versions": [version("v1", true, maximum), version("v2", is_served, 9)]}})
        };
        let existing = crd(9, true);
        let problem = json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500,
            "message": "conversion webhook for example.com/v1, Kind=Widget failed: no endpoints"});
        let apiserver = Apiserver::new(move |_, uri| match uri {
            uri if uri.contains("/customresourcedefinitions/") => (200, existing.clone()),
            uri if uri.contains("/widgets?") => (500, problem.clone()),
            _ => (201, json!({"metadata": {"name": "e"}})),
        });
        let (plans, _cache) = super::super::tests::plans(&apiserver);
        let plan = plan();
        let run = Run::new(&plans, &plan, apiserver.client());
        let new = Object::from_value(crd(3, false)).unwrap();
        run.update_definition(0, &role_step("a.v1", "r"), &new).await.unwrap();
        let requests = apiserver.requests();
        for (reason, note) in [
            ("CRDValidation", "objects of widgets.example.com were not checked in version v1"),
            ("CRDChanged", "version v2 is no longer served"),
        ] {
            let reason = format!(r#""reason":"{reason}""#);
            let is_event = |line: &String| line.contains(&reason) && line.contains(note);
            assert!(requests.iter().any(is_event), "{reason}: {requests:#?}");
        }
    }

    #[tokio::test]
    async fn rights_of_a_csv_that_went_are_deleted() {
        let apiserver = Apiserver::new(|method, uri| {
            let metadata = |metadata: Value| json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
            match (method, uri) {
                ("GET", uri) if uri.contains("/there") => (200, metadata(json!({"name": "there"}))),
                ("GET", uri) if uri.contains("/going") => {
                    (200, metadata(json!({"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"})))
                }
                ("GET", _) => {
                    (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}))
                }
                _ => (200, json!({"kind": "Status", "status": "Success"})),
            }
        });
        let steps = [
            role_step("there", "a"),
            role_step("gone", "b"),
            role_step("gone", "c"),
            role_step("going", "d"),
        ];
        let role = |name: &str| {
            Object::from_value(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name, "uid": "u"}}))
            .unwrap()
        };
        let rights: Vec<(usize, Object)> = ["a", "b", "c", "d"].map(role).into_iter().enumerate().collect();
        let mut done = [StepStatus::Created; 4];
        let error =
            revoke_abandoned(&apiserver.client(), "ns", &steps, &rights, &mut done).await.unwrap_err();
        assert!(matches!(&error, StepError::NoOwner { csv, .. } if csv == "going"), "{error}");
        assert_eq!(
            done,
            [StepStatus::Created, StepStatus::Unknown, StepStatus::Unknown, StepStatus::Unknown]
        );
        let requests = apiserver.requests();
        let of = |method: &str| requests.iter().filter(|it| it.starts_with(method)).count();
        assert_eq!((of("GET"), of("DELETE")), (3, 3), "{requests:?}");
        assert!(revoke_abandoned(&apiserver.client(), "ns", &steps, &rights[..1], &mut done).await.is_ok());
    }
}
