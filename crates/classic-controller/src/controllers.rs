//! The controllers of the process on any client and any source of images, and the table of what wakes each.
//!
//! Objects are named `namespace/name`; the subscription controller works on namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, Resource};
use olm_api::classic::{CatalogSource, InstallPlan};
use olm_classic::install_plan::{PlanPhase, StepStatus};
use olm_runtime::Shutdown;
use olm_runtime::controller::Source;
use olm_runtime::metrics::Metrics;
use olm_runtime::watched::{Change, Object, Objects};
use parking_lot::Mutex;

use crate::args::{ControllerName, ServeArgs};
use crate::catalog::Catalogs;
use crate::cluster::Cluster;
use crate::context::{Context, Settings};
use crate::image_source::ImageSource;
use crate::subscription::Unpacks;
use crate::{catalog, collection, condition, csv, group, operator, plan, subscription};

/// Everything that writes to the cluster, as one future. It does nothing until it is polled. `images` makes the access to images from the
/// ServiceAccounts of the cluster, which name pull secrets.
pub async fn run(
    client: Client,
    args: ServeArgs,
    settings: Settings,
    images: impl FnOnce(Objects<ServiceAccount>) -> Arc<dyn ImageSource>,
    metrics: Metrics,
    stop: Shutdown,
) {
    let cluster = Cluster::new();
    let _watches = cluster.watch(&client);
    let catalogs = Catalogs::new(&client, images(cluster.accounts.clone()));
    let unpacks = Unpacks::new(catalogs.images());
    let context =
        |name, workers| Context::new((name, workers), &client, &cluster, &settings, &metrics, &stop);
    tokio::join!(
        when(
            args.runs(ControllerName::Catalog),
            catalog::controller(context(catalog::NAME, catalog::WORKERS), Arc::clone(&catalogs)),
        ),
        when(
            args.runs(ControllerName::Subscription),
            subscription::controller(
                context(subscription::NAME, subscription::WORKERS),
                Arc::clone(&catalogs),
                Arc::clone(&unpacks),
            ),
        ),
        when(
            args.runs(ControllerName::Plan),
            plan::controller(context(plan::NAME, plan::WORKERS), Arc::clone(&unpacks)),
        ),
        when(args.runs(ControllerName::Csv), csv::controller(context(csv::NAME, csv::WORKERS))),
        when(args.runs(ControllerName::Group), group::controller(context(group::NAME, group::WORKERS))),
        when(
            args.runs(ControllerName::Condition),
            condition::controller(context(condition::NAME, condition::WORKERS)),
        ),
        when(
            args.runs(ControllerName::Operator),
            operator::controller(context(operator::NAME, operator::WORKERS)),
        ),
        stop.run_until_cancelled(collection::run(&cluster, &catalogs, &unpacks)),
    );
}

async fn when(enabled: bool, controller: impl Future<Output = ()>) {
    if enabled {
        controller.await;
    }
}

/// The namespace of what changed.
fn namespace<K: Resource>(change: &Change<String, Object<K>>) -> Option<String> {
    change.latest().and_then(|object| object.meta().namespace.clone())
}

pub(crate) fn catalog_sources(cluster: &Cluster, catalogs: &Arc<Catalogs>) -> Vec<Source> {
    vec![
        Source::new("its specification changed, or it is gone", cluster.catalogs.subscribe(), |change| {
            let concerns = change.concerns(|it| {
                let metadata = it.meta();
                (metadata.uid.clone(), metadata.generation, metadata.annotations.clone())
            });
            concerns.then_some(change.key)
        }),
        Source::new("its connection changed", catalogs.states.names(), |key| [key]),
    ]
}

/// Of namespaces.
pub(crate) fn subscription_sources(
    cluster: &Arc<Cluster>,
    global_namespace: &str,
    catalogs: &Arc<Catalogs>,
    unpacks: &Arc<Unpacks>,
) -> Vec<Source> {
    let [of_changes, of_contents] = [Arc::clone(cluster), Arc::clone(cluster)];
    let [global, global_of_contents] = [global_namespace.to_owned(), global_namespace.to_owned()];
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
        Source::new(
            "a catalog that it may use came, changed or went",
            cluster.catalogs.subscribe(),
            move |it| catalog_users(&of_changes, &global, &it),
        ),
        Source::new("a catalog that it may use has other content", catalogs.contents.names(), move |key| {
            let of = key.split_once('/').map_or("", |(namespace, _)| namespace);
            users(&of_contents, &global_of_contents, of)
        }),
        Source::new("an image of a bundle was unpacked, or cannot be", unpacks.ended.names(), |it| [it]),
    ]
}

/// The namespaces with Subscriptions that may use the catalogs of this one: all if it is the global one, whose catalogs have dependencies of
/// any Subscription.
fn users(cluster: &Cluster, global_namespace: &str, of: &str) -> BTreeSet<String> {
    let subscriptions = cluster.subscriptions.read();
    let subscriptions = subscriptions.rows().values();
    let uses = |it: &&Object<olm_api::classic::Subscription>| {
        let namespace = it.meta().namespace.as_deref();
        of == global_namespace
            || namespace == Some(of)
            || it.ok().is_some_and(|it| it.spec.source_namespace == of)
    };
    subscriptions.filter(uses).filter_map(|it| it.meta().namespace.clone()).collect()
}

fn catalog_users(
    cluster: &Cluster,
    global_namespace: &str,
    change: &Change<String, Object<CatalogSource>>,
) -> BTreeSet<String> {
    let concerns = change.concerns(|it| (it.meta().uid.clone(), it.meta().generation));
    match namespace(change) {
        Some(of) if concerns => users(cluster, global_namespace, &of),
        Some(_) | None => BTreeSet::new(),
    }
}

pub(crate) fn plan_sources(
    cluster: &Arc<Cluster>,
    rights_changed: &Arc<Mutex<BTreeSet<String>>>,
) -> Vec<Source> {
    let [of_groups, of_definitions] = [Arc::clone(cluster), Arc::clone(cluster)];
    let woken = || {
        let (cluster, rights_changed) = (Arc::clone(cluster), Arc::clone(rights_changed));
        move |of: Option<String>| failed(&cluster, &of.unwrap_or_default(), &rights_changed)
    };
    let [of_roles, of_bindings] = [woken(), woken()];
    vec![
        Source::new("it was created, approved or deleted", cluster.plans.subscribe(), |change| {
            let concerns = change.concerns(|it| {
                let phase = it.ok().and_then(|plan| PlanPhase::from_plan(plan));
                (it.meta().uid.clone(), it.meta().generation, phase)
            });
            concerns.then_some(change.key)
        }),
        Source::new("a Subscription refers to it", cluster.subscriptions.subscribe(), |change| {
            let subscription = change.after.as_ref().and_then(Object::ok)?;
            let plan = subscription.status.as_ref()?.install_plan_ref.as_ref()?;
            let before = change.before.as_ref().and_then(Object::ok).and_then(|it| it.status.as_ref());
            let is_new = before.and_then(|status| status.install_plan_ref.as_ref()) != Some(plan);
            is_new.then(|| {
                format!(
                    "{}/{}",
                    plan.namespace.as_deref().unwrap_or_default(),
                    plan.name.as_deref().unwrap_or_default()
                )
            })
        }),
        Source::new(
            "the account that makes its objects changed",
            cluster.groups.subscribe(),
            move |change| {
                let of = namespace(&change).unwrap_or_default();
                plans(&of_groups, &of, |plan| PlanPhase::from_plan(plan) == Some(PlanPhase::Installing))
            },
        ),
        Source::new("a definition that it waits for is served", cluster.crds.subscribe(), move |change| {
            waiting(&of_definitions, &change)
        }),
        Source::new(
            "rights changed in a namespace whose plan failed",
            cluster.roles.subscribe(),
            move |change| of_roles(namespace(&change)),
        ),
        Source::new(
            "rights changed in a namespace whose plan failed",
            cluster.role_bindings.subscribe(),
            move |change| of_bindings(namespace(&change)),
        ),
    ]
}

fn plans(cluster: &Cluster, namespace: &str, is_concerned: impl Fn(&InstallPlan) -> bool) -> Vec<String> {
    let plans = cluster.plans.read();
    let plans = plans.group(namespace).filter(|it| it.ok().is_some_and(|plan| is_concerned(plan)));
    plans.map(Object::key).collect()
}

fn failed(cluster: &Cluster, namespace: &str, rights_changed: &Mutex<BTreeSet<String>>) -> Vec<String> {
    let failed = plans(cluster, namespace, |plan| {
        let status = plan.status.as_ref();
        PlanPhase::from_plan(plan) == Some(PlanPhase::Failed)
            && status.is_some_and(|status| status.attenuated_service_account_ref.is_some())
    });
    rights_changed.lock().extend(failed.iter().cloned());
    failed
}

/// The plans that wait for the API of a definition.
fn waiting(cluster: &Cluster, change: &Change<String, Object<CustomResourceDefinition>>) -> Vec<String> {
    let waits = |plan: &InstallPlan| {
        let mut steps = plan.status.iter().flat_map(|status| &status.plan);
        steps.any(|step| {
            step.resource.kind == "CustomResourceDefinition"
                && step.resource.name == change.key
                && StepStatus::parse(&step.status) == StepStatus::WaitingForApi
        })
    };
    let plans = cluster.plans.read();
    let plans = plans.rows().values().filter(|it| it.ok().is_some_and(|plan| waits(plan)));
    plans.map(Object::key).collect()
}

#[cfg(test)]
mod tests {
    use olm_api::classic::observe::METRICS;
    use olm_bundle::BundleLimits;
    use serde_json::json;

    use super::*;
    use crate::images::Images;
    use crate::testing::{Apiserver, put};

    #[tokio::test]
    async fn classic_metrics_have_the_names_of_the_reference() {
        let client = Apiserver::new(|_, _| (404, json!({}))).client();
        let (metrics, cluster, cache) = (Metrics::new(), Cluster::new(), tempfile::tempdir().unwrap());
        let limits = (olm_oci::Limits::bundle(), BundleLimits::default());
        let images = Images::open(client.clone(), cache.path(), olm_oci::Config::default(), limits).unwrap();
        let before = metrics.classic();
        catalog::metrics::register(&metrics, &cluster, &Catalogs::new(&client, Arc::new(images)));
        csv::metrics::register(&metrics, &cluster, &csv::edits::Edits::default());
        plan::metrics::register(&metrics, &cluster);
        subscription::metrics::register(&metrics, &cluster);
        let text = metrics.classic();
        let types = text.lines().filter(|line| line.starts_with("# TYPE ") && !before.contains(line));
        let mut types: Vec<&str> = types.map(|line| &line["# TYPE ".len()..]).collect();
        types.sort_unstable();
        let reference = [
            "catalog_source_count gauge",
            "catalog_source_snapshots_total counter",
            "catalogsource_ready gauge",
            "csv_abnormal gauge",
            "csv_count gauge",
            "csv_succeeded gauge",
            "csv_upgrade_count counter",
            "install_plan_count gauge",
            "installplan_warnings_total counter",
            "olm_resolution_duration_seconds summary",
            "subscription_count gauge",
            "subscription_sync_total counter",
        ];
        let additional = ["csv_edited_deployments gauge"];
        let mut all = [&reference[..], &additional].concat();
        all.sort_unstable();
        assert_eq!(types, all);
        let mut rows: Vec<String> =
            METRICS.iter().map(|row| format!("{} {}", row.name, row.kind.name())).collect();
        rows.sort_unstable();
        assert_eq!(rows, all, "the table");
    }

    #[test]
    fn global_catalog_wakes_all_namespaces_with_subscriptions() {
        let cluster = Cluster::new();
        for (namespace, of) in [("a", "olm"), ("b", "b")] {
            let subscription = json!({"metadata": {"name": "s", "namespace": namespace},
                "spec": {"name": "p", "source": "c", "sourceNamespace": of}});
            put(&cluster.subscriptions, subscription);
        }
        for (of, want) in [("olm", &["a", "b"][..]), ("b", &["b"]), ("c", &[])] {
            assert!(users(&cluster, "olm", of).iter().eq(want), "{of}");
        }
    }
}
