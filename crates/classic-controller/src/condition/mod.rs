//! The controller of OperatorConditions: each ClusterServiceVersion has one, with the rights to write it.
//!
//! Rule: classic-apis §8.

use std::sync::Arc;

use kube::{Api, Resource, ResourceExt as _};
use olm_api::classic::OperatorCondition;
use olm_classic::operator::label_component;
use olm_classic::operator_condition;
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::controller::{self, Requeue, Source};
use olm_runtime::watched::{Change, Object};
use olm_runtime::write_status;
use serde_json::json;
use tracing::{Instrument as _, info_span};

use crate::cluster::Cluster;
use crate::context::{Context, MANAGER, ended};
use crate::write::{ObjectWriter, cache_answer, named, object};

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "condition";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 4;

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>) {
    let sources = sources(&context.cluster);
    controller::run(context.controller(sources), context.cluster.wait_until_listed(), |key| {
        let (context, span) = (Arc::clone(&context), info_span!("condition", condition = key));
        let key = key.to_owned();
        Some(async move { ended(reconcile(&context, &key).await) }.instrument(span))
    })
    .await;
}

/// What wakes a pass over a condition. A condition and its ClusterServiceVersion have the same key.
fn sources(cluster: &Cluster) -> Vec<Source> {
    vec![
        Source::new("its ClusterServiceVersion appeared or changed", cluster.csvs.subscribe(), |change| {
            change.concerns(|csv| csv.meta().generation).then_some(change.key)
        }),
        Source::new("it changed, or is gone", cluster.conditions.subscribe(), |change| [change.key]),
        Source::new("its Role changed", cluster.roles.subscribe(), |change| owner(&change)),
        Source::new("its RoleBinding changed", cluster.role_bindings.subscribe(), |change| owner(&change)),
    ]
}

/// The condition that owns an object.
fn owner<K: Resource>(change: &Change<String, Object<K>>) -> Option<String> {
    let meta = change.latest()?.meta();
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.kind == "OperatorCondition")?;
    Some(format!("{}/{}", meta.namespace.as_deref()?, owner.name))
}

async fn reconcile(context: &Context, key: &str) -> kube::Result<Requeue> {
    let cluster = &context.cluster;
    let writer = ObjectWriter::new(context.client.clone());
    let csv = cluster.csvs.find(key).filter(|csv| csv.metadata.deletion_timestamp.is_none());
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let mut is_new = false;
    let condition = match (cluster.conditions.find(key), &csv) {
        // it does not fit its type, and stays as it is
        (None, _) if cluster.conditions.meta(key, |_| ()).is_some() => return Ok(Requeue::OnChange),
        (None, None) => return Ok(Requeue::Gone),
        (None, Some(csv)) => {
            let mut desired = object(&operator_condition::object(csv));
            label_component(&mut desired, csv.labels().keys().map(String::as_str), Some(csv));
            let created = match writer.create(&desired).await {
                // the watch is late, and what an administrator wrote into it stays
                Err(error) if classify(&error) == ErrorClass::AlreadyExists => return Ok(Requeue::Backoff),
                answer => answer?,
            };
            is_new = true;
            let created = decoded(created)?;
            cluster.conditions.insert(key.to_owned(), Object(Ok(Arc::clone(&created))));
            created
        }
        (Some(condition), None) => condition,
        (Some(condition), Some(csv)) => match operator_condition::repaired(&condition, csv) {
            None => condition,
            Some(spec) => {
                let target = named("operators.coreos.com/v2", "OperatorCondition", Some(namespace), name);
                let patch = json!({
                    "metadata": { "resourceVersion": condition.resource_version() },
                    "spec": { "serviceAccounts": spec.service_accounts, "deployments": spec.deployments },
                });
                let written = decoded(writer.patch(&target, &patch).await?)?;
                cluster.conditions.update(key.to_owned(), Object(Ok(Arc::clone(&written))));
                written
            }
        },
    };
    if condition.metadata.deletion_timestamp.is_some() {
        return Ok(Requeue::OnChange);
    }
    let (role, binding) = (cluster.roles.find(key), cluster.role_bindings.find(key));
    let lacks_rights = role.is_none() || binding.is_none();
    if lacks_rights && !is_new && !is_present(context, &condition).await? {
        // Kubernetes deletes what the owner of another UID has as soon as it is made
        return Ok(Requeue::Unfinished);
    }
    let live = role.map(|role| object(&*role));
    let written = writer.ensure(&operator_condition::role(&condition), live.as_ref()).await?;
    cache_answer(&cluster.roles, live.is_none(), written);
    let live = binding.map(|binding| object(&*binding));
    let written = writer.ensure(&operator_condition::role_binding(&condition), live.as_ref()).await?;
    cache_answer(&cluster.role_bindings, live.is_none(), written);
    if let Some(status) = operator_condition::status(&condition) {
        let api: Api<OperatorCondition> = Api::namespaced(context.client.clone(), namespace);
        let written = write_status(&api, &*condition, status, MANAGER).await.map_err(|error| error.0)?;
        if let Some(written) = written {
            cluster.conditions.update(key.to_owned(), Object::new(written));
        }
    }
    Ok(Requeue::OnChange)
}

/// Whether the apiserver has this condition, and no other one of its name: the watch may be late.
async fn is_present(context: &Context, condition: &OperatorCondition) -> kube::Result<bool> {
    let namespace = condition.namespace().unwrap_or_default();
    let api: Api<OperatorCondition> = Api::namespaced(context.client.clone(), &namespace);
    let found = api.get_opt(&condition.name_any()).await?;
    Ok(found.is_some_and(|found| found.uid() == condition.uid()))
}

/// A condition as the apiserver answered it.
fn decoded(answer: olm_core::Object) -> kube::Result<Arc<OperatorCondition>> {
    let condition: OperatorCondition =
        serde_json::from_value(answer.into_value()).map_err(kube::Error::SerdeError)?;
    Ok(Arc::new(olm_runtime::watched::slim(condition)))
}

#[cfg(test)]
mod tests {
    use olm_api::classic::ClusterServiceVersion;
    use olm_runtime::watched::Received;

    use super::*;
    use crate::testing::{self, Apiserver, failure};

    fn csv() -> ClusterServiceVersion {
        serde_json::from_value(json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "a.v1", "namespace": "ns", "uid": "u"},
            "spec": {"displayName": "a", "install": {"strategy": "deployment"}},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn condition_that_does_not_fit_its_type_costs_no_request() {
        let apiserver = Apiserver::new(|_, _| (500, json!({})));
        let cluster = Cluster::new();
        cluster.csvs.insert("ns/a.v1".to_owned(), Object::new(csv()));
        let condition = json!({"metadata": {"name": "a.v1", "namespace": "ns"}, "spec": {"deployments": 5}});
        let condition: Received<OperatorCondition> = serde_json::from_value(condition).unwrap();
        cluster.conditions.insert("ns/a.v1".to_owned(), Object::from(condition));
        let context = testing::context(NAME, &apiserver, &cluster);
        assert_eq!(reconcile(&context, "ns/a.v1").await.unwrap(), Requeue::OnChange);
        assert_eq!(apiserver.requests(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn condition_of_an_administrator_is_not_replaced() {
        let apiserver = Apiserver::new(|_, _| failure(409, "AlreadyExists"));
        let cluster = Cluster::new();
        cluster.csvs.insert("ns/a.v1".to_owned(), Object::new(csv()));
        let context = testing::context(NAME, &apiserver, &cluster);
        assert_eq!(reconcile(&context, "ns/a.v1").await.unwrap(), Requeue::Backoff);
        let requests = apiserver.requests();
        assert!(requests.len() == 1 && requests[0].starts_with("POST "), "{requests:?}");
    }
}
