//! The policy and account of a ClusterExtension on the content Secrets of its revisions. They count when a revision has no
//! ClusterExtension any more.
//!
//! The Secrets are the controller's own (decision 36); revisions must look as the reference makes them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, labels};
use olm_install::account::Account;
use olm_install::content::secret_key;
use olm_install::resolution::ExtensionRequest;

/// The part of a ClusterExtension that its revisions depend on when it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Its objects stay.
    pub keep: bool,
    /// The account that its objects are written as.
    pub account: Option<Account>,
}

impl Recorded {
    /// What to record of the extension.
    #[must_use]
    pub fn from_extension(extension: &ClusterExtension) -> Self {
        let keep = annotations::keeps_objects(extension.annotations());
        Self { keep, account: Account::from_extension(extension) }
    }

    /// What to record of the extension of a request.
    #[must_use]
    pub fn from_request(request: &ExtensionRequest) -> Self {
        Self { keep: request.keep_objects, account: Account::from_request(request) }
    }

    /// Reads the annotations of a Secret.
    #[must_use]
    pub(crate) fn from_annotations(all: &BTreeMap<String, String>) -> Self {
        let account = all.get(annotations::SERVICE_ACCOUNT).and_then(|text| text.split_once('/'));
        let account = account
            .map(|(namespace, name)| Account { namespace: namespace.to_owned(), name: name.to_owned() });
        Self { keep: annotations::keeps_objects(all), account }
    }

    /// The annotations of a Secret, and those that it must not have.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<String, Option<String>> {
        let keep = self.keep.then(|| annotations::DELETION_POLICY_KEEP.to_owned());
        let account = self.account.as_ref().map(ToString::to_string);
        [(annotations::DELETION_POLICY, keep), (annotations::SERVICE_ACCOUNT, account)]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    /// Reads what the Secrets of a revision record. One LIST, none for a revision without Secrets.
    ///
    /// # Errors
    /// When the apiserver refuses.
    pub async fn read(
        client: &Client,
        system_namespace: &str,
        revision: &ClusterObjectSet,
    ) -> Result<Self, kube::Error> {
        let entries = revision.spec.phases.iter().flat_map(|phase| &phase.objects);
        let used: BTreeSet<String> = entries
            .filter_map(|entry| secret_key(entry, system_namespace))
            .filter_map(|(namespace, name)| (namespace == system_namespace).then_some(name))
            .collect();
        if used.is_empty() {
            return Ok(Self::default());
        }
        let api: Api<Secret> = Api::namespaced(client.clone(), system_namespace);
        let labelled =
            ListParams::default().labels(&format!("{}={}", labels::REVISION_NAME, revision.name_any()));
        let found = api.list_metadata(&labelled).await?.items;
        let of_revision = found.iter().filter(|secret| used.contains(&secret.name_any()));
        Ok(Self::joined(of_revision.map(|secret| Self::from_annotations(secret.annotations()))))
    }

    /// Of several Secrets, the strictest: one that was not written yet takes nothing back.
    fn joined(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |joined, one| Self {
            keep: joined.keep || one.keep,
            account: joined.account.or(one.account),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Apiserver;

    #[test]
    fn recorded_annotations_are_read_back() {
        let account = Account { namespace: "demo".to_owned(), name: "installer".to_owned() };
        for recorded in [
            Recorded::default(),
            Recorded { keep: true, account: Some(account.clone()) },
            Recorded { keep: false, account: Some(account) },
        ] {
            let written = recorded.annotations().into_iter().filter_map(|(key, value)| Some((key, value?)));
            assert_eq!(Recorded::from_annotations(&written.collect()), recorded);
        }
    }

    #[tokio::test]
    async fn recorded_is_read_from_the_secrets_that_a_revision_uses() {
        let secret = |name: &str, annotations: serde_json::Value| json!({"metadata": {"name": name, "annotations": annotations}});
        let apiserver = Apiserver::new(move |_, _| {
            let items = [
                secret("other", json!({(annotations::SERVICE_ACCOUNT): "demo/other"})),
                secret("demo-1-a", json!({})),
                secret(
                    "demo-1-b",
                    json!({(annotations::SERVICE_ACCOUNT): "demo/installer", (annotations::DELETION_POLICY): "keep"}),
                ),
            ];
            (200, json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": items}))
        });
        let read = async |objects: serde_json::Value| {
            let set: ClusterObjectSet = serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": "demo-1"},
                "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
                    "phases": [{"name": "deploy", "objects": objects}]},
            }))
            .unwrap();
            Recorded::read(&apiserver.client(), "olmv1-system", &set).await.unwrap()
        };
        let entry = |name: &str| json!({"ref": {"name": name, "namespace": "olmv1-system", "key": "k"}});
        let account = Account { namespace: "demo".to_owned(), name: "installer".to_owned() };
        let want = Recorded { keep: true, account: Some(account) };
        assert_eq!(read(json!([entry("demo-1-a"), entry("demo-1-b")])).await, want);
        let inline =
            json!([{"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}}]);
        assert_eq!(read(inline).await, Recorded::default());
        let [request] = &apiserver.requests()[..] else { panic!("{:?}", apiserver.requests()) };
        assert!(
            request.contains("labelSelector=olm.operatorframework.io%2Frevision-name%3Ddemo-1"),
            "{request}"
        );
    }
}
