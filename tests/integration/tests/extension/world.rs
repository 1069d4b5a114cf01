//! One package in one catalog for one test, on the stack that all tests of this program share.

use std::ops::Deref;

use anyhow::{Context as _, Result};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, Condition, condition, labels};
pub(crate) use olm_integration::extension::current;
pub(crate) use olm_integration::package::LIMIT;
use olm_integration::package::serve_package;
use olm_kit::{BundleImage, Entry, LogsOnPanic, Package, Stack, Wait, eventually, unique};
use serde_json::{Value, json};

/// A test's own package, catalog and namespace; all have one unique name, the extension too.
pub(crate) struct World {
    /// The shared stack.
    pub(crate) stack: &'static Stack,
    package: olm_integration::package::Package,
    _logs: LogsOnPanic,
}

impl Deref for World {
    type Target = olm_integration::package::Package;

    fn deref(&self) -> &Self::Target {
        &self.package
    }
}

impl World {
    /// A namespace and a name to use.
    pub(crate) async fn new(prefix: &str) -> Result<Self> {
        Self::on(Stack::shared().await?, prefix).await
    }

    /// The same on another stack than the shared one.
    pub(crate) async fn on(stack: &'static Stack, prefix: &str) -> Result<Self> {
        let log = Some(stack.operator_controller.log());
        let package = olm_integration::package::Package::new(stack.cluster.client().await?, prefix, log);
        package.make_namespace(&stack.cluster).await?;
        Ok(Self { _logs: stack.logs_on_failure(), stack, package })
    }

    /// Pushes bundles and a catalog with one channel `stable`, and waits until it is served.
    pub(crate) async fn serve(
        &self,
        bundles: impl IntoIterator<Item = (&str, BundleImage)>,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<()> {
        let mut package = Package::new(&self.name).channel("stable", entries);
        for (version, bundle) in bundles {
            package = package.bundle(version, &self.push(version, &bundle).await?);
        }
        self.serve_package(&package).await
    }

    /// The same, where each bundle replaces the one before.
    pub(crate) async fn serve_chain(
        &self,
        bundles: impl IntoIterator<Item = (&str, BundleImage)>,
    ) -> Result<()> {
        serve_package(&self.stack.cluster, &self.stack.registry, &self.name, bundles).await
    }

    /// Pushes a bundle; returns its reference with digest.
    pub(crate) async fn push(&self, version: &str, bundle: &BundleImage) -> Result<String> {
        self.package.push(&self.stack.registry, version, bundle).await
    }

    /// Pushes a catalog with this package, and waits until it is served.
    pub(crate) async fn serve_package(&self, package: &Package) -> Result<()> {
        self.serve_packages(std::slice::from_ref(package)).await
    }

    /// Pushes a catalog with these packages, and waits until it is served.
    pub(crate) async fn serve_packages(&self, packages: &[Package]) -> Result<()> {
        self.package.serve_packages(&self.stack.registry, packages).await
    }

    /// Waits until the catalog's Progressing has this reason and its message contains `about`; returns the condition. (The same
    /// reason may be given for another cause before: a registry that is busy.)
    pub(crate) async fn catalog_progressing(&self, reason: &str, about: &str) -> Result<Condition> {
        let catalog = Wait::new(&self.catalogs, &self.name)
            .within(LIMIT)
            .until(&format!("Progressing/{reason}: …{about}…"), |catalog: &ClusterCatalog| {
                let conditions = catalog.status.as_ref().map(|status| status.conditions.as_slice());
                condition::find(conditions.unwrap_or_default(), condition::PROGRESSING)
                    .is_some_and(|found| found.reason == reason && found.message.contains(about))
            })
            .await?;
        let conditions = catalog.status.unwrap_or_default().conditions;
        condition::find(&conditions, condition::PROGRESSING).cloned().context("no condition")
    }

    /// Waits until operator-controller has read the catalog: catalogs arrive through another watch than extensions, and are
    /// read over the network. Another extension shows it, with a configuration that fits no bundle, so that nothing is
    /// written for it.
    pub(crate) async fn catalog_is_known(&self) -> Result<()> {
        let name = format!("{}-scout", self.name);
        let scout = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {
                "namespace": self.name,
                "config": {"configType": "Inline", "inline": {"noSuchField": true}},
                "source": {"sourceType": "Catalog", "catalog": {
                    "packageName": self.name, "selector": {"matchLabels": {"test": self.name}}}},
            },
        });
        let params = PatchParams::apply("test").force();
        self.extensions.patch(&name, &params, &Patch::Apply(&scout)).await?;
        Wait::new(&self.extensions, &name)
            .within(LIMIT)
            .log(self.stack.operator_controller.log())
            .until("a bundle is chosen and refused", |extension: &ClusterExtension| {
                current(extension, condition::PROGRESSING)
                    .is_some_and(|found| found.message.contains("error for resolved bundle"))
            })
            .await?;
        Ok(())
    }

    /// Creates the extension, or replaces its catalog part. `catalog` is merged over the package's name and selector.
    pub(crate) async fn want(&self, catalog: Value) -> Result<()> {
        self.want_with(json!({}), catalog).await
    }

    /// Waits until Progressing has this reason for the present generation and its message contains `about`; returns the message.
    /// (The same reason may be given for another cause before: a catalog that is not read yet, an apiserver that is busy.)
    pub(crate) async fn progressing(&self, reason: &str, about: &str) -> Result<String> {
        let extension = self
            .until(&format!("Progressing/{reason}: …{about}…"), |extension| {
                current(extension, condition::PROGRESSING)
                    .is_some_and(|found| found.reason == reason && found.message.contains(about))
            })
            .await?;
        Ok(current(&extension, condition::PROGRESSING).map(|found| found.message.clone()).unwrap_or_default())
    }

    /// Pauses the extension, which is created if it does not exist, or resumes it.
    pub(crate) async fn pause(&self, paused: bool) -> Result<()> {
        if self.extensions.get_opt(&self.name).await?.is_none() {
            let catalog = json!({"packageName": self.name, "selector": {"matchLabels": {"test": self.name}}});
            let extension = json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                "metadata": {"name": self.name, "annotations": {"olm.operatorframework.io/paused": "true"}},
                "spec": {"namespace": self.name, "source": {"sourceType": "Catalog", "catalog": catalog}},
            });
            self.extensions.create(&PostParams::default(), &serde_json::from_value(extension)?).await?;
        }
        let value = paused.then_some("true");
        let patch = json!({"metadata": {"annotations": {"olm.operatorframework.io/paused": value}}});
        self.extensions.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Requests another pass.
    pub(crate) async fn again(&self) -> Result<()> {
        let asked = unique("again");
        let again = json!({"metadata": {"annotations": {"olm.operatorframework.io/requested-at": asked}}});
        self.extensions.patch(&self.name, &PatchParams::default(), &Patch::Merge(again)).await?;
        Ok(())
    }

    /// Events about the extension, sorted: reason, note and how often.
    pub(crate) async fn all_events(&self) -> Result<Vec<(String, String, i32)>> {
        // events about cluster-scoped objects live in this namespace
        let api: Api<Event> = Api::namespaced(self.stack.cluster.client().await?, "default");
        let about = format!("regarding.name={},regarding.kind=ClusterExtension", self.name);
        let list = api.list(&ListParams::default().fields(&about)).await?;
        let summary = |event: Event| {
            let times = event.series.map_or(1, |series| series.count);
            (event.reason.unwrap_or_default(), event.note.unwrap_or_default(), times)
        };
        let mut all: Vec<_> = list.items.into_iter().map(summary).collect();
        all.sort();
        Ok(all)
    }

    /// Notes of the events with this reason.
    pub(crate) async fn events(&self, reason: &str) -> Result<Vec<String>> {
        let all = self.all_events().await?;
        Ok(all.into_iter().filter(|(found, _, _)| found == reason).map(|(_, note, _)| note).collect())
    }

    /// Waits for an event with this reason.
    pub(crate) async fn until_event(&self, reason: &str) -> Result<()> {
        eventually(&format!("an event {reason}"), LIMIT, || async {
            let all = self.all_events().await?;
            anyhow::ensure!(all.iter().any(|(found, _, _)| found == reason), "{all:?}");
            Ok(())
        })
        .await
    }

    /// Waits until there are so many events.
    pub(crate) async fn until_event_count(&self, number: usize) -> Result<()> {
        eventually(&format!("{number} events"), LIMIT, || async {
            let all = self.all_events().await?;
            anyhow::ensure!(all.len() >= number, "{all:?}");
            Ok(())
        })
        .await
    }

    /// Revisions of the extension, ascending: number, lifecycle state and whether it succeeded.
    pub(crate) async fn revisions(&self) -> Result<Vec<(i64, String, bool)>> {
        let of = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, self.name));
        let mut all: Vec<_> = self.sets.list(&of).await?.items;
        all.sort_by_key(|set| set.spec.revision);
        let succeeded = |set: &ClusterObjectSet| {
            set.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, condition::SUCCEEDED))
        };
        Ok(all
            .iter()
            .map(|s| (s.spec.revision, format!("{:?}", s.spec.lifecycle_state), succeeded(s)))
            .collect())
    }
}

/// A Deployment that no node fits, so that it never becomes available.
pub(crate) fn stuck_deployment(name: &str) -> Value {
    json!({
        "name": name,
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"nodeSelector": {"no.such/node": "true"}, "containers": [{"name": "main", "image": "example.invalid/main:v1"}]},
            },
        },
    })
}
