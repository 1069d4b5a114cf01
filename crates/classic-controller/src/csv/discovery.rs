//! The version of the cluster and the kinds that it serves, as far as requirements name them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use olm_classic::csv::requirements::Api;
use olm_core::KubernetesVersion;
use olm_runtime::apply::{ErrorClass, classify};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an answer counts. CSVs whose requirements are not met are checked again every minute.
const LIFETIME: Duration = Duration::from_secs(30);

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
            if self.kinds(&api.0, &api.1).await?.contains(&api.2) {
                served.insert(api);
            }
        }
        Ok(served)
    }

    async fn kinds(&self, group: &str, version: &str) -> kube::Result<BTreeSet<String>> {
        let key = (group.to_owned(), version.to_owned());
        let cached = self.kinds.lock().get(&key).cloned();
        if let Some((at, kinds)) = cached
            && at.elapsed() < LIFETIME
        {
            return Ok(kinds);
        }
        let answer = if group.is_empty() {
            self.client.list_core_api_resources(version).await
        } else {
            self.client.list_api_group_resources(&format!("{group}/{version}")).await
        };
        let kinds = match answer {
            Ok(list) => list.resources.into_iter().map(|resource| resource.kind).collect(),
            Err(error) if classify(&error) == ErrorClass::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        self.kinds.lock().insert(key, (Instant::now(), BTreeSet::clone(&kinds)));
        Ok(kinds)
    }
}
