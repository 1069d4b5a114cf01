//! The dependencies of controllers, for tests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use olm_runtime::Shutdown;
use olm_runtime::metrics::Metrics;
pub(crate) use olm_runtime::testing::{Apiserver, failure, failure_with, success};
use olm_runtime::watched::{Object, Objects, key};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::RepairDeployments;
use crate::cluster::Cluster;
use crate::context::{Context, Settings};

/// The dependencies of a controller that uses this apiserver.
pub(crate) fn context(name: &'static str, apiserver: &Apiserver, cluster: &Arc<Cluster>) -> Arc<Context> {
    context_with(name, apiserver, cluster, BTreeSet::new())
}

/// The same with namespaces that keep copies of ClusterServiceVersions although copies are disabled.
pub(crate) fn context_with(
    name: &'static str,
    apiserver: &Apiserver,
    cluster: &Arc<Cluster>,
    protected_namespaces: BTreeSet<String>,
) -> Arc<Context> {
    let settings = Settings {
        global_namespace: "olm".to_owned(),
        plan_retry_window: Duration::ZERO,
        unpack_timeout: Duration::ZERO,
        repair_deployments: RepairDeployments::default(),
        protected_namespaces,
    };
    Context::new((name, 1), &apiserver.client(), cluster, &settings, &Metrics::new(), &Shutdown::new())
}

/// Puts an object into the cache of its kind.
pub(crate) fn put<K>(objects: &Objects<K>, object: Value)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let object: K = serde_json::from_value(object).unwrap();
    objects.insert(key(object.meta()), Object::new(object));
}
