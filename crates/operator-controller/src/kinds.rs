//! The resource that serves a kind: discovery, one request for each group and version, cached until it proves wrong.
//!
//! Discovery is repeated for a kind that is not found, so that a CRD which appears later is seen.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;

/// A served kind.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// Group, version, kind and plural.
    pub(crate) resource: ApiResource,
    /// Lives in namespaces.
    pub(crate) namespaced: bool,
}

/// Why a kind is not known.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum KindError {
    /// The cluster does not serve it.
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    NoMatch { kind: String, api_version: String },
    /// The cluster could not be asked.
    #[error("{0}")]
    Unreachable(String),
}

/// The kinds of one group and version; empty before they are read, which one pass does for all. An apiserver that does not answer for one
/// version holds up no other.
type Served = Arc<tokio::sync::Mutex<HashMap<String, Kind>>>;

/// The kinds that the cluster serves, as far as they were asked for.
pub(crate) struct Kinds {
    client: Client,
    versions: Mutex<HashMap<String, Served>>,
}

impl Kinds {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, versions: Mutex::default() }
    }

    /// Looks a kind up.
    pub(crate) async fn find(&self, gvk: &GroupVersionKind) -> Result<Kind, KindError> {
        let api_version = gvk.api_version();
        let version = Arc::clone(self.versions.lock().entry(api_version.clone()).or_default());
        let mut served = version.lock().await;
        if let Some(kind) = served.get(&gvk.kind) {
            return Ok(kind.clone());
        }
        let no_match = || KindError::NoMatch { kind: gvk.kind.clone(), api_version: api_version.clone() };
        let answer = if gvk.group.is_empty() {
            self.client.list_core_api_resources(&gvk.version).await
        } else {
            self.client.list_api_group_resources(&api_version).await
        };
        let list = match answer {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.evict(gvk);
                return Err(no_match());
            }
            Err(error) => return Err(KindError::Unreachable(olm_runtime::apply::message(&error))),
        };
        *served = list
            .resources
            .into_iter()
            .filter(|resource| !resource.name.contains('/'))
            .map(|found| {
                let resource = ApiResource {
                    group: gvk.group.clone(),
                    version: gvk.version.clone(),
                    api_version: api_version.clone(),
                    kind: found.kind.clone(),
                    plural: found.name,
                };
                (found.kind, Kind { resource, namespaced: found.namespaced })
            })
            .collect();
        served.get(&gvk.kind).cloned().ok_or_else(no_match)
    }

    /// Evicts a group and version, because a request for one of its kinds was answered 404.
    pub(crate) fn evict(&self, gvk: &GroupVersionKind) {
        self.versions.lock().remove(&gvk.api_version());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::testing::Apiserver;

    #[tokio::test]
    async fn kind_lookup_waits_for_no_other_group() {
        let apiserver = Apiserver::new(|_, uri| {
            let resource =
                json!({"name": "ks", "kind": "K", "namespaced": true, "verbs": [], "singularName": ""});
            (200, json!({"groupVersion": uri.trim_start_matches("/apis/"), "resources": [resource]}))
        });
        let kinds = Kinds::new(apiserver.client());
        let [slow, fast] = ["slow.io", "fast.io"].map(|group| GroupVersionKind::gvk(group, "v1", "K"));
        let mut first = Box::pin(kinds.find(&slow));
        assert!(futures::poll!(&mut first).is_pending(), "its answer has not come");
        let second = tokio::time::timeout(Duration::from_secs(10), kinds.find(&fast)).await;
        assert_eq!(second.unwrap().unwrap().resource.plural, "ks");
        assert!(first.await.is_ok());
        kinds.find(&slow).await.unwrap();
        assert_eq!(apiserver.requests().len(), 2, "one for each group and version");
    }
}
