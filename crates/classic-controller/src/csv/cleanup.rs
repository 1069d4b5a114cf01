//! The end of a ClusterServiceVersion: objects that only labels bind to it are deleted, then its finalizer is removed.
//!
//! Rule: classic-apis §6.6.

use kube::{Resource as _, ResourceExt as _};
use olm_api::classic::ClusterServiceVersion;
use olm_classic::csv::strategy::serving::abandoned;
use olm_core::Object;
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::controller::Requeue;
use serde_json::json;

use super::install::is_owned;
use super::{Csvs, FINALIZER, target};
use crate::write::{named, object};

impl Csvs {
    /// Deletes what does not go with the CSV by itself, and lets the CSV go.
    pub(super) async fn release(&self, csv: &ClusterServiceVersion) -> kube::Result<Requeue> {
        let finalizers = csv.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Requeue::OnChange);
        }
        for leftover in self.leftovers(csv) {
            self.writer.delete(&leftover).await?;
        }
        self.delete_webhooks(csv, |_| false).await?;
        self.end_conversions(csv).await?;
        let others: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let version = csv.meta().resource_version.clone();
        let patch = json!({ "metadata": { "finalizers": others, "resourceVersion": version } });
        self.writer.patch(&target(csv), &patch).await?;
        Ok(Requeue::OnChange)
    }

    /// Definitions whose conversion calls a Service of the CSV are not converted any more: with a webhook that is gone, their objects could
    /// be neither read nor deleted.
    async fn end_conversions(&self, csv: &ClusterServiceVersion) -> kube::Result<()> {
        let (cluster, namespace) = (&self.context.cluster, csv.namespace().unwrap_or_default());
        for (name, service) in abandoned(csv, &cluster.own_csvs(&namespace)) {
            let Some(crd) = cluster.crds.find(name) else { continue };
            let webhook = crd.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
            let called = webhook.and_then(|webhook| webhook.client_config.as_ref()?.service.as_ref());
            if !called.is_some_and(|called| called.namespace == namespace && called.name == service) {
                continue;
            }
            let patch = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
            let target = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, name);
            match self.writer.patch(&target, &patch).await {
                Err(error) if classify(&error) == ErrorClass::NotFound => {}
                answer => answer.map(drop)?,
            }
        }
        Ok(())
    }

    /// Objects of the cluster, and of other namespaces, that are a CSV's by label.
    fn leftovers(&self, csv: &ClusterServiceVersion) -> Vec<Object> {
        let cluster = &self.context.cluster;
        let own = csv.namespace();
        let roles = cluster.cluster_roles.all();
        let bindings = cluster.cluster_role_bindings.all();
        let elsewhere = cluster.role_bindings.all();
        let services = cluster.api_services.all();
        let mut found: Vec<Object> = Vec::new();
        found.extend(roles.iter().filter(|it| is_owned(&***it, csv)).map(|it| object(&**it)));
        found.extend(bindings.iter().filter(|it| is_owned(&***it, csv)).map(|it| object(&**it)));
        found.extend(services.iter().filter(|it| is_owned(&***it, csv)).map(|it| object(&**it)));
        let elsewhere = elsewhere.iter().filter(|it| it.namespace() != own && is_owned(&***it, csv));
        found.extend(elsewhere.map(|it| object(&**it)));
        found
    }
}
