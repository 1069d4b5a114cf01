//! The controller of Operators: the roll-up of all components of an operator.
//!
//! A pass labels what belongs to the operator of a Subscription, and lists everything with the label in the status.
//!
//! Rules: classic-apis §1, §12.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Resource, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, Operator, OperatorSpec, Subscription};
use olm_classic::operator::{self, belonged, belongs, label, operators_of};
use olm_classic::operator_group::keys;
use olm_core::Object;
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::controller::{self, Controller, Requeue, Source};
use olm_runtime::watched::{self, Change, Objects};
use olm_runtime::write_status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{Instrument as _, info_span};

use crate::cluster::Cluster;
use crate::context::{Context, MANAGER, ended};
use crate::write::{ObjectWriter, object};

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "operator";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 2;
/// Components of an operator that change together, as in an install, are listed together.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>) {
    let controller = Controller { debounce: DEBOUNCE, ..context.controller(sources(&context.cluster)) };
    controller::run(controller, context.cluster.wait_until_listed(), |name| {
        let (context, span) = (Arc::clone(&context), info_span!("operator", operator = name));
        let name = name.to_owned();
        Some(async move { ended(reconcile(&context, &name).await) }.instrument(span))
    })
    .await;
}

/// Evaluates an expression for the cache of each kind whose objects are components of an operator, apart from its Subscriptions.
macro_rules! for_each_kind {
    ($cluster:expr, $objects:ident => $do:expr) => {
        for_each_kind!(
            $cluster, $objects => $do, csvs plans conditions deployments services config_maps secrets accounts roles role_bindings
            cluster_roles cluster_role_bindings crds api_services
        );
    };
    ($cluster:expr, $objects:ident => $do:expr, $($kind:ident)+) => {
        $({
            let $objects = &$cluster.$kind;
            $do;
        })+
    };
}

/// What wakes a pass over an Operator: its components.
fn sources(cluster: &Arc<Cluster>) -> Vec<Source> {
    let mut sources = vec![
        Source::new("it changed, or is gone", cluster.operators.subscribe(), |change| [change.key]),
        Source::new("a Subscription of its package changed", cluster.subscriptions.subscribe(), |change| {
            let subscriptions = change.states().filter_map(watched::Object::ok);
            let names = subscriptions.map(|it| operator_of(it));
            names.collect::<BTreeSet<_>>()
        }),
    ];
    for_each_kind!(cluster, objects => sources.push(component(cluster, objects)));
    sources
}

fn component<K>(cluster: &Arc<Cluster>, objects: &Objects<K>) -> Source
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let cluster = Arc::clone(cluster);
    Source::new("a component of it changed", objects.subscribe(), move |change| operators(&cluster, &change))
}

/// The Operators of an object, by its own labels and by those of the CSV that owns it.
fn operators<K: Resource>(
    cluster: &Cluster,
    change: &Change<String, watched::Object<K>>,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for meta in change.states().map(watched::Object::meta) {
        let labels = |labels: Option<&std::collections::BTreeMap<String, String>>| -> Vec<String> {
            let names = labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix(keys::COMPONENT));
            names.map(str::to_owned).collect()
        };
        found.extend(labels(meta.labels.as_ref()));
        let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
        let by_label = label(keys::OWNER).zip(label(keys::OWNER_NAMESPACE));
        let by_label = by_label.map(|(name, namespace)| format!("{namespace}/{name}"));
        let references = meta.owner_references.iter().flatten();
        let references = references.filter(|owner| owner.kind == "ClusterServiceVersion");
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let csvs = references.map(|owner| format!("{namespace}/{}", owner.name)).chain(by_label);
        for csv in csvs.filter_map(|key| cluster.csvs.find(&key)) {
            found.extend(labels(csv.metadata.labels.as_ref()));
        }
    }
    found.into_iter().flat_map(|name| named(cluster, name)).collect()
}

/// The Operators for which the name in a label stands: it is cut where theirs is too long for a label.
fn named(cluster: &Cluster, name: String) -> Vec<String> {
    if cluster.operators.meta(&name, |_| ()).is_some() {
        return vec![name];
    }
    let label_of = label(&name);
    let subscribed = cluster.subscriptions.all().into_iter().map(|it| operator_of(&it));
    let whole = subscribed.chain(cluster.operators.names()).filter(|whole| label(whole) == label_of);
    whole.chain([name]).collect()
}

fn operator_of(subscription: &Subscription) -> String {
    operator::name(&subscription.spec.package, &subscription.namespace().unwrap_or_default())
}

/// A Subscription of the operator, and its installed CSV.
type Installed = (Arc<Subscription>, Option<Arc<ClusterServiceVersion>>);

async fn reconcile(context: &Context, name: &str) -> kube::Result<Requeue> {
    let cluster = &context.cluster;
    let mut installed: Vec<Installed> = Vec::new();
    for subscription in cluster.subscriptions.all() {
        if operator_of(&subscription) == name {
            let csv = subscription.status.as_ref().map(|status| status.installed_csv.clone());
            let namespace = subscription.namespace().unwrap_or_default();
            let csv = csv.and_then(|csv| cluster.csvs.find(&format!("{namespace}/{csv}")));
            installed.push((subscription, csv));
        }
    }
    let mut components = candidates(cluster, name, &installed);
    let writer = ObjectWriter::new(context.client.clone());
    let key = label(name);
    let mut rejected = None;
    for component in &mut components {
        let is_former = |(subscription, _): &Installed| belonged(component, subscription);
        let is_former = !installed.is_empty() && installed.iter().all(is_former);
        let value = match (component.labels().contains_key(key.as_str()), is_former) {
            (true, false) | (false, true) => continue,
            (true, true) => Value::Null,
            (false, false) => "".into(),
        };
        // one that was created again may be another operator's
        let uid = component.metadata().and_then(|metadata| metadata.get("uid"));
        let patch = json!({ "metadata": { "uid": uid, "labels": { key.as_str(): value } } });
        match writer.patch(component, &patch).await {
            Ok(written) => *component = written,
            Err(error) => match classify(&error) {
                ErrorClass::NotFound => {}
                // the others do not depend on it
                ErrorClass::Forbidden | ErrorClass::Invalid => rejected = Some(error),
                _ => return Err(error),
            },
        }
    }
    components.retain(|component| operators_of(component).contains(key.trim_start_matches(keys::COMPONENT)));
    let present = match cluster.operators.find(name) {
        Some(present) => present,
        None if installed.is_empty() => return Ok(Requeue::Gone),
        None => {
            let created = writer.ensure(&object(&Operator::new(name, OperatorSpec::default())), None).await?;
            let created: Option<Operator> =
                created.and_then(|it| serde_json::from_value(it.into_value()).ok());
            let Some(created) = created else { return Ok(Requeue::Unfinished) };
            let created = Arc::new(created);
            cluster.operators.insert(name.to_owned(), watched::Object(Ok(Arc::clone(&created))));
            created
        }
    };
    let api: Api<Operator> = Api::all(context.client.clone());
    let status = operator::status(name, &components);
    let written = write_status(&api, &*present, status, MANAGER).await.map_err(|error| error.0)?;
    if let Some(written) = written {
        cluster.operators.update(name.to_owned(), watched::Object::new(written));
    }
    rejected.map_or(Ok(Requeue::OnChange), Err)
}

/// All objects of the caches with the label of an Operator, and those that belong to it and lack the label.
fn candidates(cluster: &Cluster, name: &str, installed: &[Installed]) -> Vec<Object> {
    let mut found = Vec::new();
    collect(&mut found, &cluster.subscriptions, name, installed);
    for_each_kind!(cluster, objects => collect(&mut found, objects, name, installed));
    found
}

fn collect<K>(found: &mut Vec<Object>, objects: &Objects<K>, name: &str, installed: &[Installed])
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static,
{
    let key = label(name);
    for candidate in objects.read().rows().values().filter_map(watched::Object::ok) {
        let is_labelled = candidate.labels().contains_key(&key);
        if !is_labelled && !may_belong(&**candidate, installed) {
            continue;
        }
        let candidate = object(&**candidate);
        let owned = |(subscription, csv): &Installed| belongs(&candidate, subscription, csv.as_deref());
        if is_labelled || installed.iter().any(owned) {
            found.push(candidate);
        }
    }
}

/// A cheap test before an object is converted: it is in the namespace of a Subscription, or names the CSV in a label or as its definition.
fn may_belong<K: Resource<DynamicType = ()>>(candidate: &K, installed: &[Installed]) -> bool {
    let metadata = candidate.meta();
    let owner = candidate.labels().get(keys::OWNER);
    installed.iter().any(|(subscription, csv)| {
        let is_beside = metadata.namespace.is_some() && metadata.namespace == subscription.metadata.namespace;
        is_beside
            || csv.as_ref().is_some_and(|csv| {
                let mut owned = csv.spec.custom_resource_definitions.iter().flat_map(|crds| &crds.owned);
                (owner.is_some() && owner == csv.metadata.name.as_ref())
                    || owned.any(|crd| Some(&crd.name) == metadata.name.as_ref())
            })
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;

    use super::*;
    use crate::testing::{self, Apiserver, failure_with};

    fn subscribe(cluster: &Cluster, package: &str, namespace: &str) {
        let subscription = json!({
            "metadata": {"name": "s", "namespace": namespace},
            "spec": {"name": package, "source": "c", "sourceNamespace": "ns"},
            "status": {"installedCSV": "demo.v1", "lastUpdated": "2026-01-01T00:00:00Z"},
        });
        testing::put(&cluster.subscriptions, subscription);
    }

    #[test]
    fn operator_is_woken_by_a_label_that_is_cut() {
        let (cluster, namespace) = (Cluster::new(), "n".repeat(40));
        let package = "p".repeat(40);
        subscribe(&cluster, &package, &namespace);
        let whole = operator::name(&package, &namespace);
        let account = json!({"metadata": {"name": "sa", "labels": {(label(&whole)): ""}}});
        let account: ServiceAccount = serde_json::from_value(account).unwrap();
        let after = Some(watched::Object::new(account));
        let change = Change { key: "x/sa".to_owned(), before: None, after, is_answer: false };
        assert!(operators(&cluster, &change).contains(&whole));
    }

    #[tokio::test]
    async fn operator_is_written_although_a_component_is_rejected() {
        let cluster = Cluster::new();
        subscribe(&cluster, "demo", "ns");
        let csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "demo.v1", "namespace": "ns", "labels": {"operators.coreos.com/demo.ns": ""}},
            "spec": {"displayName": "demo", "install": {"strategy": "deployment"}},
        });
        testing::put(&cluster.csvs, csv);
        let owners = json!([{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "demo.v1", "uid": "u"}]);
        let account =
            json!({"metadata": {"name": "sa", "namespace": "ns", "uid": "a", "ownerReferences": owners}});
        testing::put(&cluster.accounts, account);
        let operator = json!({"apiVersion": "operators.coreos.com/v1", "kind": "Operator", "metadata": {"name": "demo.ns"}, "spec": {}});
        testing::put(&cluster.operators, operator.clone());
        let apiserver = Apiserver::new(move |_, uri| match uri.contains("/serviceaccounts/") {
            true => failure_with(403, "Forbidden", "no"),
            false => (200, operator.clone()),
        });
        let context = testing::context(NAME, &apiserver, &cluster);
        let error = reconcile(&context, "demo.ns").await.unwrap_err();
        assert_eq!(classify(&error), ErrorClass::Forbidden, "it is tried again");
        let requests = apiserver.requests();
        let labelled = requests.iter().find(|line| line.contains("/serviceaccounts/sa")).unwrap();
        assert!(labelled.contains(r#""uid":"a""#), "this very object: {requests:?}");
        let status = requests.iter().find(|line| line.starts_with("PUT ")).unwrap();
        assert!(status.contains("/operators/demo.ns/status") && status.contains("demo.v1"), "{requests:?}");
    }
}
