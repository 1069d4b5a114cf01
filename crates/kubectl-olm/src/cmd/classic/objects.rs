//! The objects that decide a resolution, from manifests or from a cluster.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use olm_api::classic::{
    CatalogSource, ClusterServiceVersion, GROUP, InstallPlan, OperatorGroup, Subscription,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{CommandError, print_note, read};

/// Objects of OLM Classic, those of a namespace and the catalogs of another.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) catalogs: Vec<CatalogSource>,
    pub(super) subscriptions: Vec<Arc<Subscription>>,
    pub(super) csvs: Vec<Arc<ClusterServiceVersion>>,
    pub(super) groups: Vec<Arc<OperatorGroup>>,
    pub(super) plans: Vec<Arc<InstallPlan>>,
}

impl Objects {
    /// Reads manifests; prints the kinds that were passed over to standard error.
    pub(super) fn from_files(files: &[PathBuf]) -> Result<Self, CommandError> {
        let mut objects = Self::default();
        for path in files {
            let bytes = read(path)?;
            for document in olm_yaml::Documents::from_bytes(&bytes, olm_yaml::Limits::default()) {
                let document = document.map_err(|error| CommandError::content(path, error))?;
                let value: Value =
                    serde_json::from_slice(&document).map_err(|error| CommandError::content(path, error))?;
                objects.add(path, value)?;
            }
        }
        Ok(objects)
    }

    /// Adds an object, or the items of a List.
    fn add(&mut self, path: &Path, value: Value) -> Result<(), CommandError> {
        fn decode<T: DeserializeOwned>(path: &Path, kind: &str, value: Value) -> Result<T, CommandError> {
            let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let problem = |error| CommandError::content(path, format!("{kind} {name:?}: {error}"));
            serde_json::from_value(value).map_err(problem)
        }
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        // other APIs have kinds of these names, such as the Subscription of Knative
        let is_foreign = !api_version.is_empty() && api_version.split('/').next() != Some(GROUP);
        match kind.as_str() {
            "CatalogSource" | "Subscription" | "ClusterServiceVersion" | "OperatorGroup" | "InstallPlan"
                if is_foreign =>
            {
                print_note(&format!("passed over: {} has a {kind:?} of {api_version}", path.display()));
            }
            "CatalogSource" => self.catalogs.push(decode(path, &kind, value)?),
            "Subscription" => self.subscriptions.push(Arc::new(decode(path, &kind, value)?)),
            "ClusterServiceVersion" => self.csvs.push(Arc::new(decode(path, &kind, value)?)),
            "OperatorGroup" => self.groups.push(Arc::new(decode(path, &kind, value)?)),
            "InstallPlan" => self.plans.push(Arc::new(decode(path, &kind, value)?)),
            "List" => {
                let Value::Object(mut list) = value else { return Ok(()) };
                if let Some(Value::Array(items)) = list.remove("items") {
                    items.into_iter().try_for_each(|item| self.add(path, item))?;
                }
            }
            other => print_note(&format!("passed over: {} has a {other:?}", path.display())),
        }
        Ok(())
    }

    /// Lists the objects of the namespace, and the catalogs of the global namespace.
    pub(super) async fn from_cluster(
        client: &Client,
        namespace: &str,
        global_namespace: &str,
    ) -> Result<Self, CommandError> {
        let mut catalogs = list(client, Some(namespace), "").await?;
        if global_namespace != namespace {
            catalogs.extend(list(client, Some(global_namespace), "").await?);
        }
        Ok(Self {
            catalogs,
            subscriptions: shared(client, namespace).await?,
            csvs: shared(client, namespace).await?,
            groups: shared(client, namespace).await?,
            plans: shared(client, namespace).await?,
        })
    }

    /// Without the objects of other namespaces, which other manifests may have; catalogs excepted.
    pub(super) fn within(mut self, namespace: &str) -> Self {
        let is_within = |of: Option<&String>| of.is_none_or(|of| of == namespace);
        self.subscriptions.retain(|it| is_within(it.metadata.namespace.as_ref()));
        self.csvs.retain(|it| is_within(it.metadata.namespace.as_ref()));
        self.groups.retain(|it| is_within(it.metadata.namespace.as_ref()));
        self.plans.retain(|it| is_within(it.metadata.namespace.as_ref()));
        for catalog in &mut self.catalogs {
            catalog.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
        }
        self
    }
}

async fn shared<T>(client: &Client, namespace: &str) -> Result<Vec<Arc<T>>, CommandError>
where
    T: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(list(client, Some(namespace), "").await?.into_iter().map(Arc::new).collect())
}

/// The objects of a namespace, or of all, with these labels.
pub(super) async fn list<T>(
    client: &Client,
    namespace: Option<&str>,
    labels: &str,
) -> Result<Vec<T>, CommandError>
where
    T: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<T> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let listed = api.list(&ListParams::default().labels(labels)).await;
    let doing = format!("list {}", T::plural(&()));
    Ok(listed.map_err(|error| CommandError::from_request(&doing, &error))?.items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_objects_of_other_groups_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.yaml");
        let text = "kind: Subscription\napiVersion: messaging.knative.dev/v1\nmetadata: {name: k}\nspec: {channel: {kind: C}}\n---\n\
                    kind: List\napiVersion: v1\nitems:\n- kind: Subscription\n  apiVersion: operators.coreos.com/v1alpha1\n  \
                    metadata: {name: o}\n  spec: {name: p, source: s, sourceNamespace: ns}\n";
        std::fs::write(&file, text).unwrap();
        let objects = Objects::from_files(&[file]).unwrap();
        let names: Vec<_> = objects.subscriptions.iter().map(|it| it.metadata.name.as_deref()).collect();
        assert_eq!(names, [Some("o")]);
    }
}
