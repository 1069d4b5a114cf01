//! A control plane with the kinds of OLM Classic, its controller, and one namespace with a catalog.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use olm_kit::{Cluster, Options, Process, Program, eventually, repository};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long the controller may take for anything here.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    process: Process,
    cluster: Cluster,
}

impl Site {
    /// With an OperatorGroup for the namespace itself.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// With more flags of the controller.
    pub(crate) async fn start_with(flags: &[(&str, &str)]) -> Result<Self> {
        let options = Options { api_only: true, ..Options::default() };
        let cluster = Cluster::start_with(&options).await?;
        cluster.apply_dir(&repository().join("manifests/classic")).await?;
        let namespace = cluster.namespace("classic").await?;
        let group = json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"name": "own", "namespace": namespace}, "spec": {"targetNamespaces": [namespace]},
        });
        cluster.apply(&group.to_string()).await?;
        let mut program = Program::classic_controller(&cluster)?;
        for (name, value) in flags {
            program = program.flag(name, value);
        }
        let process = program.flag("--install-plan-retry-timeout", "1s").start().await?;
        Ok(Self { client: cluster.client().await?, namespace, process, cluster })
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.process.log()
    }

    /// The name of one more namespace.
    pub(crate) async fn other_namespace(&self, name: &str) -> Result<String> {
        self.cluster.namespace(name).await
    }

    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        self.cluster.apply(&object.to_string()).await?;
        Ok(())
    }

    /// Package `demo` with these versions, each of which replaces the one before. They own a kind of version `api`.
    pub(crate) async fn catalog(&self, versions: &[&str], api: &str) -> Result<()> {
        let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
        let csv = |(index, version): (usize, &&str)| {
            let replaces = index.checked_sub(1).map(|before| format!("demo.v{}", versions[before]));
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                "metadata": {"name": format!("demo.v{version}")},
                "spec": {
                    "displayName": "demo", "version": format!("{version}.0.0"), "replaces": replaces.unwrap_or_default(),
                    "install": {"strategy": "deployment", "spec": {"deployments": []}},
                    "installModes": modes.map(|mode| json!({"type": mode, "supported": true})),
                    "customresourcedefinitions": {"owned": [{"name": "widgets.demo.test", "version": api, "kind": "Widget"}]},
                },
            })
        };
        let csvs: Vec<Value> = versions.iter().enumerate().map(csv).collect();
        let head = versions.last().map(|version| format!("demo.v{version}"));
        let packages = json!([{"packageName": "demo", "channels": [{"name": "stable", "currentCSV": head}]}]);
        let (config_map, catalog) = (
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "content", "namespace": self.namespace},
                "data": {
                    "packages": packages.to_string(), "clusterServiceVersions": json!(csvs).to_string(),
                    "customResourceDefinitions": json!([definition(api)]).to_string(),
                },
            }),
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
                "metadata": {"name": "main", "namespace": self.namespace}, "spec": {"sourceType": "configmap", "configMap": "content"},
            }),
        );
        self.cluster.apply(&format!("{config_map}\n---\n{catalog}")).await?;
        Ok(())
    }

    /// The definition of the operator with another version, which is stored.
    pub(crate) async fn definition(&self, api: &str) -> Result<()> {
        self.cluster.apply(&definition(api).to_string()).await?;
        Ok(())
    }

    pub(crate) async fn subscribe(&self, approval: &str) -> Result<()> {
        let subscription = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {"name": "demo", "namespace": self.namespace},
            "spec": {
                "name": "demo", "channel": "stable", "source": "main", "sourceNamespace": self.namespace, "installPlanApproval": approval,
            },
        });
        self.cluster.apply(&subscription.to_string()).await?;
        Ok(())
    }

    pub(crate) async fn merge<K>(&self, api: &Api<K>, name: &str, patch: Value) -> Result<()>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Notes of the events with a reason.
    pub(crate) async fn notes(&self, reason: &str) -> Result<Vec<String>> {
        let events: Api<Event> = self.api();
        let all = events.list(&ListParams::default()).await?.items;
        let of_reason = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        Ok(of_reason.filter_map(|event| event.note).collect())
    }

    /// Waits for an event about the kind, with words of its note.
    pub(crate) async fn event(&self, kind: &str, reason: &str, words: &str) -> Result<()> {
        let events: Api<Event> = self.api();
        eventually(&format!("event {reason} of a {kind}"), LIMIT, || async {
            let all = events.list(&ListParams::default()).await?.items;
            let is_it = |event: &&Event| {
                event.reason.as_deref() == Some(reason)
                    && event.regarding.as_ref().is_some_and(|it| it.kind.as_deref() == Some(kind))
                    && event.note.as_deref().is_some_and(|note| note.contains(words))
            };
            ensure!(all.iter().any(|event| is_it(&event)), "{} events", all.len());
            Ok(())
        })
        .await
    }
}

fn definition(api: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.demo.test"},
        "spec": {
            "group": "demo.test", "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": api, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}
