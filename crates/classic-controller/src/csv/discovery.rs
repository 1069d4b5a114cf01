//! The version of the cluster and the kinds that it serves, as far as requirements name them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use olm_classic::csv::requirements::Api;
use olm_core::KubernetesVersion;
use olm_runtime::apply::{ErrorClass, classify};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an answer counts.
const LIFETIME: Duration = Duration::from_secs(30);
/// How long it counts that a kind is not served: what a user has just added is found when a CSV is checked again.
const ABSENT_LIFETIME: Duration = Duration::from_secs(2);

type Dated<T> = Option<(Instant, T)>;
/// Kinds of a group and version, and when they were read.
type Kinds = (Instant, BTreeSet<String>);

pub(super) struct Discovery {
    client: Client,
    version: Mutex<Dated<KubernetesVersion>>,
    /// Kinds by group and version.
    kinds: Mutex<BTreeMap<(String, String), Kinds>>,
}

impl Discovery {
    pub(super) fn new(client: Client) -> Self {
        Self { client, version: Mutex::default(), kinds: Mutex::default() }
    }

    pub(super) async fn version(&self) -> kube::Result<KubernetesVersion> {
        let cached = *self.version.lock();
        if let Some((at, version)) = cached
            && at.elapsed() < LIFETIME
        {
            return Ok(version);
        }
        let answer = self.client.apiserver_version().await?;
        // vendors add to the minor version, and to the patch version after a sign
        let text: String = answer.git_version.chars().take_while(|it| !matches!(it, '+' | '-')).collect();
        let version = text.parse().unwrap_or(KubernetesVersion { major: 0, minor: 0, patch: 0 });
        *self.version.lock() = Some((Instant::now(), version));
        Ok(version)
    }

    /// Those of `apis` that the cluster serves.
    pub(super) async fn served(&self, apis: BTreeSet<Api>) -> kube::Result<BTreeSet<Api>> {
        let mut served = BTreeSet::new();
        for api in apis {
            if self.is_served(&api).await? {
                served.insert(api);
            }
        }
        Ok(served)
    }

    async fn is_served(&self, (group, version, kind): &Api) -> kube::Result<bool> {
        let key = (group.clone(), version.clone());
        let cached = self.kinds.lock().get(&key).map(|(at, kinds)| (at.elapsed(), kinds.contains(kind)));
        if let Some((age, is_served)) = cached
            && age < if is_served { LIFETIME } else { ABSENT_LIFETIME }
        {
            return Ok(is_served);
        }
        let answer = if group.is_empty() {
            self.client.list_core_api_resources(version).await
        } else {
            self.client.list_api_group_resources(&format!("{group}/{version}")).await
        };
        let kinds: BTreeSet<String> = match answer {
            Ok(list) => list.resources.into_iter().map(|resource| resource.kind).collect(),
            Err(error) if classify(&error) == ErrorClass::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let is_served = kinds.contains(kind);
        let mut cached = self.kinds.lock();
        // CSVs that are gone named some of them
        cached.retain(|_, (at, _)| at.elapsed() < LIFETIME);
        cached.insert(key, (Instant::now(), kinds));
        Ok(is_served)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::*;
    use crate::testing::{Apiserver, failure};

    #[tokio::test(start_paused = true)]
    async fn discovery_evicts_what_does_not_count_any_more() {
        let apiserver = Apiserver::new(|_, _| failure(404, "NotFound"));
        let discovery = Discovery::new(apiserver.client());
        for version in ["v1", "v2", "v3"] {
            let api: Api = ("a.test".to_owned(), version.to_owned(), "A".to_owned());
            assert!(!discovery.is_served(&api).await.unwrap(), "{version}");
            assert_eq!(discovery.kinds.lock().len(), 1, "{version}");
            tokio::time::advance(LIFETIME).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_finds_a_kind_that_was_just_added() {
        let is_there = Arc::new(AtomicBool::new(false));
        let apiserver = Apiserver::new({
            let is_there = Arc::clone(&is_there);
            move |_, _| match is_there.load(Ordering::Relaxed) {
                true => {
                    let resource = json!({"name": "as", "singularName": "a", "namespaced": true, "kind": "A", "verbs": []});
                    let list = json!({"kind": "APIResourceList", "groupVersion": "a.test/v1", "resources": [resource]});
                    (200, list)
                }
                false => failure(404, "NotFound"),
            }
        });
        let discovery = Discovery::new(apiserver.client());
        let api: Api = ("a.test".to_owned(), "v1".to_owned(), "A".to_owned());
        for (after, is_added, want, requests) in [
            (0, false, false, 1),
            (1, true, false, 1),
            (2, true, true, 2),
            (LIFETIME.as_secs() - 1, true, true, 2),
            (LIFETIME.as_secs(), true, true, 3),
        ] {
            is_there.store(is_added, Ordering::Relaxed);
            tokio::time::advance(Duration::from_secs(after)).await;
            assert_eq!(discovery.is_served(&api).await.unwrap(), want, "{after}");
            assert_eq!(apiserver.requests().len(), requests, "{after}");
        }
    }
}
