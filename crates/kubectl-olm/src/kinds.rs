//! Discovery of the resource of a kind, with a cache.

use std::collections::BTreeMap;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use olm_core::Object;
use olm_rollout::permissions::Served;
use olm_runtime::error_text::chain;

/// Kinds of a cluster and their resources, discovered on first use.
pub(crate) struct Kinds {
    client: Client,
    known: BTreeMap<(String, String), Result<(ApiResource, bool), String>>,
}

impl Kinds {
    /// An empty cache; sends no request.
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone(), known: BTreeMap::new() }
    }

    /// The resource of an object's kind, and whether it lives in namespaces.
    pub(crate) async fn resource_of(&mut self, object: &Object) -> Result<(ApiResource, bool), String> {
        let key = (object.api_version().to_owned(), object.kind().to_owned());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let kind = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
        let found = discovery::oneshot::pinned_kind(&self.client, &kind).await;
        let found = found
            .map(|(resource, capabilities)| (resource, capabilities.scope == Scope::Namespaced))
            .map_err(|error| chain(&error));
        self.known.insert(key, found.clone());
        found
    }

    /// The resource for a permission check; `None` when the cluster does not serve the kind.
    pub(crate) async fn served(&mut self, object: &Object) -> Option<Served> {
        let (resource, namespaced) = self.resource_of(object).await.ok()?;
        Some(Served { plural: resource.plural, namespaced })
    }
}

pub(crate) fn api(
    client: &Client,
    object: &Object,
    resource: &ApiResource,
    namespaced: bool,
) -> Api<DynamicObject> {
    match object.namespace() {
        Some(namespace) if namespaced => Api::namespaced_with(client.clone(), namespace, resource),
        _ => Api::all_with(client.clone(), resource),
    }
}
