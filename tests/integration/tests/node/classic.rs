//! Operators of OLM Classic whose pods run: one with a validating and a conversion webhook, one with an aggregated API. Their certificates are
//! made, used and rotated, while calls that must not fail continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::SignedDuration;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client};
use olm_integration::classic::{Package, apply, group, source_is_ready};
use olm_kit::{BundleImage, CLASSIC_NAMESPACE, Wait, eventually};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::certificates::{Callers, Served};
use crate::sample;
use crate::site::{LIMIT, Site, report, site};

/// How long a certificate is valid that is due: half of it passes before another one is served, in the other half pods are replaced.
const LEFT: SignedDuration = SignedDuration::from_secs(40);
/// The time between two calls of a kind.
const BEAT: Duration = Duration::from_millis(20);
/// Calls of each kind, at least: fewer were no continuous use.
const MIN_CALLS: usize = 200;

/// What the operators answer to.
#[derive(Debug, Clone, Copy)]
enum Call {
    Validation,
    Conversion,
    AggregatedApi,
}

const CALLS: [Call; 3] = [Call::Validation, Call::Conversion, Call::AggregatedApi];

/// Calls both operators through the apiserver.
#[derive(Clone)]
struct Caller {
    client: Client,
    hooks: String,
    served: String,
}

impl Caller {
    fn widgets(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(&sample::group(&self.hooks), version, "Widget");
        Api::namespaced_with(self.client.clone(), &self.hooks, &ApiResource::from_gvk(&kind))
    }

    async fn call(&self, call: Call) -> Result<()> {
        match call {
            Call::Validation => {
                let mut widget = sample::widget(&self.hooks, 11);
                widget["metadata"]["name"] = json!("large");
                let params = PostParams { dry_run: true, ..PostParams::default() };
                let answer = self.widgets("v1").create(&params, &serde_json::from_value(widget)?).await;
                let rejected = answer.err().context("a size above 10 was admitted")?;
                ensure!(rejected.to_string().contains(sample::TOO_LARGE), "{rejected}");
            }
            Call::Conversion => {
                let converted = self.widgets("v2").get("w").await?;
                ensure!(converted.data["spec"] == json!({"replicas": 3}), "{}", converted.data);
            }
            Call::AggregatedApi => {
                let path = format!("/apis/{}/v1/things", sample::group(&self.served));
                let list: Value = self.client.request(http::Request::get(path).body(Vec::new())?).await?;
                ensure!(list["items"][0]["spec"]["version"] == "1.0.0", "{list}");
            }
        }
        Ok(())
    }
}

/// Calls of all kinds, until they are stopped.
struct Calls {
    done: Arc<AtomicBool>,
    running: JoinSet<Result<String>>,
}

impl Calls {
    fn start(client: &Caller) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        for call in CALLS {
            let (client, done, started) = (client.clone(), Arc::clone(&done), Instant::now());
            running.spawn(async move {
                let (mut count, mut beat) = (0_usize, tokio::time::interval(BEAT));
                while !done.load(Ordering::Relaxed) {
                    beat.tick().await;
                    let answer = client.call(call).await;
                    answer.with_context(|| {
                        format!("{call:?} failed after {count} calls and {:.1?}", started.elapsed())
                    })?;
                    count += 1;
                }
                ensure!(count >= MIN_CALLS, "{call:?}: only {count} calls");
                Ok(format!("{count} calls of {call:?}"))
            });
        }
        Self { done, running }
    }

    /// Ends the calls, none of which may have failed.
    async fn stop(mut self) -> Result<String> {
        self.done.store(true, Ordering::Relaxed);
        let mut counts = Vec::new();
        while let Some(ended) = self.running.join_next().await {
            counts.push(ended??);
        }
        counts.sort();
        Ok(counts.join(", "))
    }
}

/// A bundle of an operator, whose pods serve on for a while after the signal to end, as those of webhooks should.
fn bundle(served: &Served<'_>, version: &str) -> BundleImage {
    let name = &served.package.name;
    let mut flags = vec!["--linger=2s".to_owned()];
    let bundle = BundleImage::new(name, version).crds([]);
    if served.callers == Callers::Webhooks {
        let bundle = bundle.deployments([sample::deployment(name, version, &flags)]);
        return sample::with_webhooks(bundle, name);
    }
    flags.push(format!("--api={}/v1", sample::group(name)));
    let owned = json!({"group": sample::group(name), "version": "v1", "kind": "Thing", "name": "things",
        "deploymentName": sample::deployment_name(name), "containerPort": 5443});
    bundle
        .deployments([sample::deployment(name, version, &flags)])
        .csv_patch(json!({"spec": {"apiservicedefinitions": {"owned": [owned]}}}))
}

/// Catalog, namespace and group of an operator; returns when version 1.0.0 is installed and runs.
async fn install(site: &Site, served: &Served<'_>) -> Result<()> {
    let package = served.package;
    let bundles = ["1.0.0", "1.1.0"].map(|version| (version, bundle(served, version)));
    let catalog = package.push(&site.node.registry, bundles).await?;
    site.node.cluster.apply(&sample::namespace(&package.name).to_string()).await?;
    apply(&package.groups, &group(&package.name, &[])).await?;
    package.catalog(&catalog).await?;
    source_is_ready(&package.client, &package.name).await?;
    package.subscribe("1.0.0").await?;
    package.installed("1.0.0").await?;
    sample::runs(site, &package.name, "1.0.0").await
}

/// Makes the certificate due; returns when new pods serve with its successor.
async fn rotate(served: &Served<'_>) -> Result<()> {
    let first = served.certificate_state().await?.current;
    served.make_due(LEFT).await?;
    let ending = served.certificate_state().await?.current;
    let rotated = served.serves_another(&[&first.authority, &ending.authority]).await?;
    served.pods_are_of(&rotated.current.authority).await?;
    for trusted in served.trusted().await? {
        ensure!(trusted.contains(rotated.current.authority.trim()), "{trusted}");
    }
    Ok(())
}

/// Deletes the Secret of the certificate; returns when new pods serve with another one.
async fn replace(served: &Served<'_>) -> Result<()> {
    let first = served.certificate_state().await?.current;
    served.delete_secret().await?;
    let second = served.serves_another(&[&first.authority]).await?;
    served.pods_are_of(&second.current.authority).await
}

/// The objects of a kind that only labels bind to the ClusterServiceVersions of a namespace.
async fn labelled<K>(client: &Client, namespace: &str) -> Result<Vec<String>>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let labels = format!("olm.owner.kind=ClusterServiceVersion,olm.owner.namespace={namespace}");
    let found = Api::<K>::all(client.clone()).list(&ListParams::default().labels(&labels)).await?;
    Ok(found.items.into_iter().filter_map(|it| it.meta().name.clone()).collect())
}

/// Deletes Subscription and ClusterServiceVersion, and waits until what they brought is gone.
async fn remove(served: &Served<'_>, version: &str) -> Result<()> {
    let Package { client, name, .. } = served.package;
    let params = DeleteParams::default();
    served.package.subscriptions.delete(name, &params).await?;
    let csv = served.package.csv(version);
    served.package.csvs.delete(&csv, &params).await?;
    Wait::new(&served.package.csvs, &csv).within(LIMIT).to_be_gone().await?;
    eventually(&format!("nothing of {name} is left"), LIMIT, || async {
        let left = [
            labelled::<ValidatingWebhookConfiguration>(client, name).await?,
            labelled::<APIService>(client, name).await?,
            labelled::<ClusterRole>(client, name).await?,
            labelled::<ClusterRoleBinding>(client, name).await?,
            labelled::<RoleBinding>(client, name).await?,
        ];
        ensure!(left.iter().all(Vec::is_empty), "{left:?}");
        Ok(())
    })
    .await?;
    let deployment = sample::deployment_name(name);
    let (deployments, services, secrets): (Api<Deployment>, Api<Service>, Api<Secret>) = (
        Api::namespaced(client.clone(), name),
        Api::namespaced(client.clone(), name),
        Api::namespaced(client.clone(), name),
    );
    Wait::new(&deployments, &deployment).within(LIMIT).to_be_gone().await?;
    Wait::new(&services, &format!("{deployment}-service")).within(LIMIT).to_be_gone().await?;
    Wait::new(&secrets, &served.secret()).within(LIMIT).to_be_gone().await?;
    served.package.groups.delete(name, &params).await?;
    served.package.delete_catalog().await
}

#[tokio::test(flavor = "multi_thread")]
async fn node_classic_certificates_rotate_without_a_failed_call() -> Result<()> {
    let Some(site) = site().await? else { return Ok(()) };
    match life(site).await {
        Ok(()) => Ok(()),
        Err(problem) => Err(problem.context(site.describe("classic-controller").await)),
    }
}

/// Two operators from their installation to their removal.
async fn life(site: &Site) -> Result<()> {
    let (cluster, client) = (&site.node.cluster, site.client().await?);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLASSIC_NAMESPACE}});
    cluster.apply(&namespace.to_string()).await?;
    let (hooks, api) =
        (Package::new(client.clone(), "hooks", None), Package::new(client.clone(), "api", None));
    let hooks = Served { package: &hooks, callers: Callers::Webhooks };
    let api = Served { package: &api, callers: Callers::Aggregator };
    let started = Instant::now();
    tokio::try_join!(install(site, &hooks), install(site, &api))?;
    report("both operators are installed and run", started);

    let (hooks_name, api_name) = (&hooks.package.name, &api.package.name);
    let services: Api<APIService> = Api::all(client.clone());
    let service = format!("v1.{}", sample::group(api_name));
    Wait::new(&services, &service).within(LIMIT).for_condition("Available", "True").await?;
    let discovery = site.kubectl(&["get", "--raw", &format!("/apis/{}/v1", sample::group(api_name))]).await?;
    ensure!(discovery.contains("\"things\""), "{discovery}");
    for served in [&hooks, &api] {
        served.serves_another(&[]).await?;
    }
    let widget = sample::widget(hooks_name, 3).to_string();
    eventually("a Widget is admitted", LIMIT, || async { cluster.apply(&widget).await.map(drop) }).await?;
    let caller = Caller { client: client.clone(), hooks: hooks_name.clone(), served: api_name.clone() };
    for call in CALLS {
        eventually(&format!("{call:?} is answered"), LIMIT, || caller.call(call)).await?;
    }

    let calls = Calls::start(&caller);
    let started = Instant::now();
    tokio::try_join!(rotate(&hooks), rotate(&api))?;
    report("both certificates are rotated", started);
    let started = Instant::now();
    tokio::try_join!(replace(&hooks), replace(&api))?;
    report("both certificates are replaced after their Secrets were deleted", started);
    let started = Instant::now();
    hooks.package.subscribe("1.1.0").await?;
    hooks.package.installed("1.1.0").await?;
    sample::runs(site, hooks_name, "1.1.0").await?;
    Wait::new(&hooks.package.csvs, &hooks.package.csv("1.0.0")).within(LIMIT).to_be_gone().await?;
    let webhooks = labelled::<ValidatingWebhookConfiguration>(&client, hooks_name).await?;
    ensure!(webhooks.len() == 1, "those of the first version are left: {webhooks:?}");
    report("one operator is upgraded", started);
    println!("{}; none failed", calls.stop().await?);

    let started = Instant::now();
    tokio::try_join!(remove(&hooks, "1.1.0"), remove(&api, "1.0.0"))?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = crds.get(&sample::crd(hooks_name).name()).await?;
    ensure!(
        crd.spec.conversion.is_some_and(|it| it.strategy == "None"),
        "conversion calls a Service that is gone"
    );
    ensure!(caller.widgets("v1").get("w").await?.data["spec"] == json!({"size": 3}), "the Widget is lost");
    report("both operators are removed", started);
    Ok(())
}
