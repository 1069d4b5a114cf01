//! The resource that serves a kind: discovery, one request for each group and version, cached until it proves wrong.
//!
//! Discovery is repeated for a kind that is not found, so that a CRD which appears later is seen.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use tokio::sync::Mutex;

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

type Served = Arc<HashMap<String, Kind>>;

/// The kinds that the cluster serves, as far as they were asked for.
pub(crate) struct Kinds {
    client: Client,
    versions: Mutex<HashMap<String, Served>>,
}

impl Kinds {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, versions: Mutex::new(HashMap::new()) }
    }

    /// Looks a kind up.
    pub(crate) async fn find(&self, gvk: &GroupVersionKind) -> Result<Kind, KindError> {
        let api_version = gvk.api_version();
        let mut versions = self.versions.lock().await;
        if let Some(kind) = versions.get(&api_version).and_then(|served| served.get(&gvk.kind)) {
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
                versions.remove(&api_version);
                return Err(no_match());
            }
            Err(error) => return Err(KindError::Unreachable(olm_runtime::apply::message(&error))),
        };
        let served: HashMap<String, Kind> = list
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
        let found = served.get(&gvk.kind).cloned();
        versions.insert(api_version.clone(), Arc::new(served));
        found.ok_or_else(no_match)
    }

    /// Evicts a group and version, because a request for one of its kinds was answered 404.
    pub(crate) async fn evict(&self, gvk: &GroupVersionKind) {
        self.versions.lock().await.remove(&gvk.api_version());
    }
}
