//! The proxy of the cluster: object `cluster` of OpenShift's kind Proxy. It is watched only while the definition of the kind is
//! established, so that other clusters get no request for it. Where it may not be listed, as with the ClusterRole of an earlier version,
//! there is no proxy, and the controllers do not wait for it.
//!
//! Rule: classic-apis §3.4.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use olm_api::openshift::GROUP;
use olm_classic::csv::strategy::proxy_variables;
use olm_runtime::watched::{Objects, Watched};
use olm_runtime::{backoff, task};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

/// The only object of the kind that counts.
pub(crate) const CLUSTER: &str = "cluster";
const DEFINITION: &str = "proxies.config.openshift.io";
/// How long a list is forbidden before there is no proxy: an apiserver that starts may not have loaded every right.
const FORBIDDEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The environment variables of each proxy, by name.
pub(crate) type Proxies = Watched<String, BTreeMap<String, String>>;

/// Keeps the table up to date until the handle is dropped: with the object while `definitions` has its kind, empty otherwise.
pub(crate) fn watch(
    proxies: &Proxies,
    client: &Client,
    definitions: &Objects<CustomResourceDefinition>,
) -> AbortOnDropHandle<()> {
    let (proxies, client, definitions) = (proxies.clone(), client.clone(), definitions.clone());
    let follows =
        async move { task::supervised("watch of proxies", follow(&proxies, &client, &definitions)).await };
    AbortOnDropHandle::new(tokio::spawn(follows))
}

async fn follow(proxies: &Proxies, client: &Client, definitions: &Objects<CustomResourceDefinition>) {
    let gvk = GroupVersionKind::gvk(GROUP, "v1", "Proxy");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "proxies");
    let changes = definitions.subscribe().filter(|change| std::future::ready(change.key == DEFINITION));
    // at first, and whenever the definition changed
    let checks = stream::iter([()]).chain(changes.map(|_| ()));
    let mut served = checks.map(|()| is_served(definitions)).boxed();
    definitions.wait_until_listed().await;
    while let Some(is_served) = served.next().await {
        if is_served {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let config = watcher::Config::default().fields(&format!("metadata.name={CLUSTER}"));
            let follows = async {
                wait_until_allowed(&api, proxies).await;
                proxies.follow(api, config, row).for_each(async |_| ()).await;
            };
            let withdrawn = async { while served.next().await == Some(true) {} };
            tokio::select! {
                () = follows => {}
                () = withdrawn => {}
            }
        }
        list_none(proxies);
    }
}

/// Returns when the list is no longer forbidden. After a timeout there is no proxy until then.
async fn wait_until_allowed(api: &Api<DynamicObject>, proxies: &Proxies) {
    let params = ListParams::default().fields(&format!("metadata.name={CLUSTER}"));
    let (begun, mut waits, mut is_reported) = (Instant::now(), backoff::of_watch(), false);
    while let Err(kube::Error::Api(status)) = api.list(&params).await
        && status.code == 403
    {
        if !is_reported && begun.elapsed() >= FORBIDDEN_TIMEOUT {
            let error = status.message;
            tracing::warn!(resource = DEFINITION, error, "operators get no proxy until it may be listed");
            list_none(proxies);
            is_reported = true;
        }
        sleep(waits.next().unwrap_or(FORBIDDEN_TIMEOUT)).await;
    }
}

/// As if the list of a watch had been empty.
fn list_none(proxies: &Proxies) {
    proxies.apply(Event::Init, row);
    proxies.apply(Event::InitDone, row);
}

fn row(proxy: DynamicObject) -> (String, BTreeMap<String, String>) {
    (proxy.name_any(), proxy_variables(&proxy.data["status"]))
}

/// Whether the definition is established, and is not being deleted.
fn is_served(definitions: &Objects<CustomResourceDefinition>) -> bool {
    definitions.find(DEFINITION).is_some_and(|definition| {
        let mut conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_established = conditions.any(|it| it.type_ == "Established" && it.status == "True");
        is_established && definition.metadata.deletion_timestamp.is_none()
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use olm_runtime::watched::Object;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{Apiserver, failure};

    fn definition(version: &str, established: &str) -> CustomResourceDefinition {
        let names = json!({"kind": "Proxy", "plural": "proxies"});
        let spec =
            json!({"group": "config.openshift.io", "scope": "Cluster", "names": names, "versions": []});
        let conditions = json!([{"type": "Established", "status": established}]);
        let metadata = json!({"name": DEFINITION, "resourceVersion": version});
        let object = json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}});
        serde_json::from_value(object).unwrap()
    }

    /// The list of the proxies.
    fn listed() -> Value {
        let status = json!({"httpProxy": "http://p", "httpsProxy": "", "noProxy": ".svc"});
        let proxy =
            json!({"metadata": {"name": CLUSTER}, "spec": {"httpsProxy": "unused"}, "status": status});
        json!({"metadata": {"resourceVersion": "1"}, "items": [proxy]})
    }

    #[tokio::test(start_paused = true)]
    async fn proxy_is_absent_while_it_may_not_be_listed() {
        let allowed = Arc::new(AtomicBool::new(false));
        let is_allowed = Arc::clone(&allowed);
        let apiserver =
            Apiserver::new(move |_, uri| match (is_allowed.load(Ordering::SeqCst), uri.contains("watch=")) {
                (true, false) => (200, listed()),
                (true, true) => failure(404, "NotFound"),
                (false, _) => failure(403, "Forbidden"),
            });
        let cluster = Cluster::new();
        let mut changes = pin!(cluster.proxies.subscribe());
        let _watch = watch(&cluster.proxies, &apiserver.client(), &cluster.crds);
        for event in [Event::Init, Event::InitApply(definition("1", "True")), Event::InitDone] {
            cluster.crds.apply(event, |it| (it.name_any(), Object::new(it)));
        }
        let begun = Instant::now();
        cluster.proxies.wait_until_listed().await;
        assert!(begun.elapsed() >= FORBIDDEN_TIMEOUT, "{:?}: rights may not be loaded yet", begun.elapsed());
        assert!(begun.elapsed() < FORBIDDEN_TIMEOUT * 2, "{:?}: the controllers wait", begun.elapsed());
        assert_eq!(cluster.proxy(), BTreeMap::new());

        allowed.store(true, Ordering::SeqCst);
        assert!(changes.next().await.is_some_and(|change| change.key == CLUSTER));
        assert_eq!(cluster.proxy().len(), 2);
    }

    #[tokio::test]
    async fn proxy_is_watched_while_its_definition_is_established() {
        let apiserver = Apiserver::new(|_, uri| match uri.contains("watch=") {
            true => failure(404, "NotFound"),
            false => (200, listed()),
        });
        let cluster = Cluster::new();
        let event = |event: Event<CustomResourceDefinition>| {
            cluster.crds.apply(event, |it| (it.name_any(), Object::new(it)));
        };
        let script = async {
            let mut changes = pin!(cluster.proxies.subscribe());
            let _watch = watch(&cluster.proxies, &apiserver.client(), &cluster.crds);
            event(Event::Init);
            event(Event::InitDone);
            cluster.proxies.wait_until_listed().await;
            assert_eq!(apiserver.requests(), Vec::<String>::new(), "nothing is asked of other clusters");
            assert_eq!(cluster.proxy(), BTreeMap::new());

            event(Event::Apply(definition("1", "True")));
            assert!(
                changes.next().await.is_some_and(|change| change.key == CLUSTER && change.before.is_none())
            );
            let want = [("HTTP_PROXY", "http://p"), ("NO_PROXY", ".svc")];
            let want = BTreeMap::from(want.map(|(name, value)| (name.to_owned(), value.to_owned())));
            assert_eq!(cluster.proxy(), want);
            let listed = apiserver.requests().remove(0);
            let path = "GET /apis/config.openshift.io/v1/proxies?";
            assert!(
                listed.starts_with(path) && listed.contains("fieldSelector=metadata.name%3Dcluster"),
                "{listed}"
            );

            event(Event::Apply(definition("2", "False")));
            assert!(changes.next().await.is_some_and(|change| change.after.is_none()));
            assert_eq!(cluster.proxy(), BTreeMap::new());
        };
        tokio::time::timeout(Duration::from_secs(10), script).await.unwrap();
    }
}
