//! Copies of ClusterServiceVersions as they are cached: their metadata and hashes, not their content. A global operator has one in every
//! namespace, each as large as the original.
//!
//! Rule: classic-apis §7.8.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use olm_api::classic::ClusterServiceVersion;
use olm_classic::operator_group::copies::{CopyHash, ObservedCsv};
use olm_classic::operator_group::keys;
use olm_runtime::task;
use olm_runtime::watched::{self, Change, Received, Table, Watched, config_of_large_objects};
use tokio_util::task::AbortOnDropHandle;

/// Selects copies.
const COPIES: &str = "olm.copiedFrom";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyRow {
    pub(crate) observed: ObservedCsv,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl CopyRow {
    pub(crate) fn from_csv(csv: &ClusterServiceVersion) -> Self {
        Self {
            observed: ObservedCsv::from_csv(csv),
            uid: csv.uid().unwrap_or_default(),
            resource_version: csv.resource_version().unwrap_or_default(),
        }
    }

    /// A copy that does not fit its type, and so differs from its original.
    fn invalid(metadata: &ObjectMeta) -> Self {
        let observed = ObservedCsv {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            copied_from: metadata.labels.as_ref().and_then(|labels| labels.get(keys::COPIED_FROM)).cloned(),
            hash: CopyHash { content: String::new(), status: String::new() },
        };
        Self {
            observed,
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

fn row(csv: Received<ClusterServiceVersion>) -> (String, CopyRow) {
    let row = match &csv.0 {
        Ok(csv) => CopyRow::from_csv(csv),
        Err(invalid) => CopyRow::invalid(&invalid.metadata),
    };
    (watched::key(csv.meta()), row)
}

/// All copies by `namespace/name`, with an index by name.
#[derive(Debug, Clone)]
pub(crate) struct Copies(Watched<String, CopyRow>);

impl Default for Copies {
    fn default() -> Self {
        let table = Table::with_order(CopyRow::version).grouped_by(|row| Some(&row.observed.name));
        Self(Watched::new(table))
    }
}

impl Copies {
    /// Watches all copies until the handle is dropped.
    pub(crate) fn watch(&self, client: &Client) -> AbortOnDropHandle<()> {
        let api: Api<Received<ClusterServiceVersion>> = Api::all(client.clone());
        let config = config_of_large_objects().labels(COPIES);
        let changes = self.0.follow(api, config, row);
        let follows =
            async move { task::supervised("watch of copied CSVs", changes.for_each(async |_| ())).await };
        AbortOnDropHandle::new(tokio::spawn(follows))
    }

    pub(crate) async fn wait_until_listed(&self) {
        self.0.wait_until_listed().await;
    }

    pub(crate) fn subscribe(&self) -> impl futures::Stream<Item = Change<String, CopyRow>> + Send + use<> {
        self.0.subscribe()
    }

    /// The copies of this name, whatever their original.
    pub(crate) fn named(&self, name: &str) -> Vec<ObservedCsv> {
        self.0.read().group(name).map(|row| row.observed.clone()).collect()
    }

    /// UIDs by namespace of the copies of an original.
    pub(crate) fn uids(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let table = self.0.read();
        let of_original =
            table.group(name).filter(|row| row.observed.copied_from.as_deref() == Some(namespace));
        of_original.map(|row| (row.observed.namespace.clone(), row.uid.clone())).collect()
    }

    pub(crate) fn get(&self, key: &str) -> Option<CopyRow> {
        self.0.get(&key.to_owned())
    }

    /// Shows a copy that was created, before the watch does.
    pub(crate) fn insert(&self, csv: &ClusterServiceVersion) {
        self.0.insert(watched::key(&csv.metadata), CopyRow::from_csv(csv));
    }

    /// Shows a copy that was changed, before the watch does; one that has gone since stays so.
    pub(crate) fn update(&self, csv: &ClusterServiceVersion) {
        self.0.update(watched::key(&csv.metadata), CopyRow::from_csv(csv));
    }

    pub(crate) fn remove(&self, key: &str) {
        self.0.remove(&key.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn copy_that_does_not_fit_its_type_stops_no_watch() {
        let copy = |display_name: Value| -> Received<ClusterServiceVersion> {
            let metadata = json!({"namespace": "b", "name": "demo.v1", "uid": "u", "resourceVersion": "7",
                "labels": {"olm.copiedFrom": "home"}});
            let spec = json!({"displayName": display_name, "install": {"strategy": "deployment"}});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let (valid, invalid) = (row(copy(json!("d"))), row(copy(json!(5))));
        assert_eq!((&valid.0, &valid.1.uid), (&invalid.0, &invalid.1.uid));
        assert_eq!(valid.1.resource_version, invalid.1.resource_version);
        assert_eq!(valid.1.observed.copied_from, invalid.1.observed.copied_from);
        assert_ne!(valid.1.observed.hash, invalid.1.observed.hash, "it is written again");
    }
}
