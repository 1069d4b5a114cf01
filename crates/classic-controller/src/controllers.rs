//! The controllers of the process, and the table of what wakes each.
//!
//! Objects are named `namespace/name`; the subscription controller works on namespaces.

use std::sync::Arc;

use kube::{Client, Resource};
use olm_runtime::Shutdown;
use olm_runtime::controller::Source;
use olm_runtime::metrics::Metrics;
use olm_runtime::watched::{Change, Object, Objects};

use crate::args::{ControllerName, ServeArgs};
use crate::cluster::Cluster;
use crate::context::{Context, Settings};
use crate::{catalog, condition, csv, group, plan, subscription};

/// Everything that writes to the cluster, as one future. It does nothing until it is polled.
pub(crate) async fn run(
    client: Client,
    args: ServeArgs,
    settings: Settings,
    metrics: Metrics,
    stop: Shutdown,
) {
    let cluster = Cluster::new();
    let _watches = cluster.watch(&client);
    let context =
        |name, workers| Context::new((name, workers), &client, &cluster, &settings, &metrics, &stop);
    tokio::join!(
        when(
            args.runs(ControllerName::Catalog),
            catalog::controller(context(catalog::NAME, catalog::WORKERS))
        ),
        when(
            args.runs(ControllerName::Subscription),
            subscription::controller(context(subscription::NAME, subscription::WORKERS)),
        ),
        when(args.runs(ControllerName::Plan), plan::controller(context(plan::NAME, plan::WORKERS))),
        when(args.runs(ControllerName::Csv), csv::controller(context(csv::NAME, csv::WORKERS))),
        when(args.runs(ControllerName::Group), group::controller(context(group::NAME, group::WORKERS))),
        when(
            args.runs(ControllerName::Condition),
            condition::controller(context(condition::NAME, condition::WORKERS)),
        ),
    );
}

async fn when(enabled: bool, controller: impl Future<Output = ()>) {
    if enabled {
        controller.await;
    }
}

/// Changes of a kind wake the object that changed.
fn itself<K>(reason: &'static str, objects: &Objects<K>) -> Source
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    Source::new(reason, objects.subscribe(), |change| [change.key])
}

/// The namespace of what changed.
fn namespace<K: Resource>(change: &Change<String, Object<K>>) -> Option<String> {
    change.latest().and_then(|object| object.meta().namespace.clone())
}

pub(crate) fn catalog_sources(cluster: &Cluster) -> Vec<Source> {
    vec![itself("its spec changed, or it is gone", &cluster.catalogs)]
}

pub(crate) fn subscription_sources(cluster: &Cluster) -> Vec<Source> {
    vec![
        Source::new("a Subscription of the namespace changed", cluster.subscriptions.subscribe(), |it| {
            namespace(&it)
        }),
        Source::new("its OperatorGroup changed", cluster.groups.subscribe(), |it| namespace(&it)),
        Source::new("a ClusterServiceVersion of the namespace changed", cluster.csvs.subscribe(), |it| {
            namespace(&it)
        }),
        Source::new("an InstallPlan of the namespace changed", cluster.plans.subscribe(), |it| {
            namespace(&it)
        }),
    ]
}

pub(crate) fn plan_sources(cluster: &Cluster) -> Vec<Source> {
    vec![itself("it was created, approved or deleted", &cluster.plans)]
}

pub(crate) fn csv_sources(cluster: &Cluster) -> Vec<Source> {
    vec![itself("it changed, or is gone", &cluster.csvs)]
}

pub(crate) fn group_sources(cluster: &Cluster) -> Vec<Source> {
    vec![itself("it changed, or is gone", &cluster.groups)]
}

pub(crate) fn condition_sources(cluster: &Cluster) -> Vec<Source> {
    vec![itself("it changed, or is gone", &cluster.conditions)]
}
