//! Discovery of the resource of a kind, with a cache.

use std::collections::BTreeMap;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{self, Scope};
use kube::error::DiscoveryError;
use kube::{Api, Client};
use olm_core::Object;
use olm_rollout::permissions::Served;
use olm_runtime::error_text::chain;

/// Kinds of a cluster and their resources, discovered on first use.
pub(crate) struct Kinds {
    client: Client,
    known: BTreeMap<(String, String), Result<(ApiResource, bool), NoResource>>,
}

/// Why the resource of a kind is not known, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoResource {
    /// The cluster does not serve the kind.
    NotServed(String),
    /// The question was not answered.
    Unknown(String),
}

impl NoResource {
    /// The error of discovery: the apiserver serves no such group and version, or no such kind in it, or gives no answer.
    fn from_discovery(object: &Object, error: &kube::Error) -> Self {
        let is_missing = match error {
            kube::Error::Api(status) => status.code == 404,
            kube::Error::Discovery(DiscoveryError::MissingKind(_)) => true,
            _ => false,
        };
        let (kind, api_version) = (object.kind(), object.api_version());
        match is_missing {
            true => Self::NotServed(format!("the cluster serves no {kind} ({api_version})")),
            false => Self::Unknown(format!(
                "the resource of {kind} ({api_version}) is not known: {}",
                chain(error)
            )),
        }
    }
}

impl Kinds {
    /// An empty cache; sends no request.
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone(), known: BTreeMap::new() }
    }

    /// The resource of an object's kind, and whether it lives in namespaces.
    pub(crate) async fn resource_of(&mut self, object: &Object) -> Result<(ApiResource, bool), NoResource> {
        let key = (object.api_version().to_owned(), object.kind().to_owned());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let kind = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
        let found = discovery::oneshot::pinned_kind(&self.client, &kind).await;
        let found = found
            .map(|(resource, capabilities)| (resource, capabilities.scope == Scope::Namespaced))
            .map_err(|error| NoResource::from_discovery(object, &error));
        self.known.insert(key, found.clone());
        found
    }

    /// The resource for a permission check; `None` when the cluster does not serve the kind. An error is why that is not known.
    pub(crate) async fn served(&mut self, object: &Object) -> Result<Option<Served>, String> {
        match self.resource_of(object).await {
            Ok((resource, namespaced)) => Ok(Some(Served { plural: resource.plural, namespaced })),
            Err(NoResource::NotServed(_)) => Ok(None),
            Err(NoResource::Unknown(why)) => Err(why),
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stand_in;

    #[tokio::test]
    #[rustfmt::skip]
    async fn kinds_that_are_not_served_differ_from_unanswered_questions() {
        let client = stand_in::cluster(|request| {
            let empty = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": []});
            Some(match request {
                "GET /apis/monitoring.coreos.com/v1" => (404, "404 page not found\n".to_owned()),
                "GET /apis/apps/v1" => (200, empty.to_string()),
                _ => stand_in::failure(503, "the server is away"),
            })
        });
        let mut kinds = Kinds::new(&client);
        for (api_version, kind, want) in [
            ("monitoring.coreos.com/v1", "ServiceMonitor", Ok("the cluster serves no ServiceMonitor (monitoring.coreos.com/v1)")),
            ("apps/v1", "Sidecar", Ok("the cluster serves no Sidecar (apps/v1)")),
            ("metrics.k8s.io/v1beta1", "PodMetrics", Err("the resource of PodMetrics (metrics.k8s.io/v1beta1) is not known: ")),
        ] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
            let object = Object::from_value(object).unwrap();
            let found = kinds.resource_of(&object).await.map_err(|why| match why {
                NoResource::NotServed(text) => Ok(text),
                NoResource::Unknown(text) => Err(text),
            });
            match (found, want) {
                (Err(Ok(text)), Ok(want)) => assert_eq!(text, want),
                (Err(Err(text)), Err(want)) => {
                    assert!(text.starts_with(want) && text.contains("the server is away"), "{text}");
                }
                (found, _) => panic!("{kind}: {:?}", found.is_ok()),
            }
            assert_eq!(kinds.served(&object).await.is_ok(), want.is_ok(), "{kind}");
        }
    }
}
