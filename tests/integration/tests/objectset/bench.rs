//! The control plane, the controller and builders of revisions.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use kube::{Client, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_core::Object;
use olm_kit::{Cluster, Options, Wait, eventually, unique};
use olm_rollout::{Phase, pack};
use olm_runtime::Shutdown;
use olm_runtime::metrics::Metrics;
use olm_runtime::watched::Objects;
use operator_controller::objectset;
use operator_controller::revisions::Revisions;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use crate::concurrent_writes::holding;

/// The namespace of content Secrets.
pub(crate) const SYSTEM: &str = "olmv1-system";
/// The account of the controller under test; requests are counted by it.
pub(crate) const ACCOUNT: &str = "objectset-under-test";

/// A minute of a deadline: the CRD demands ten of them.
pub(crate) const MINUTE: Duration = Duration::from_millis(500);

/// The extensions as the controller under test has seen them.
static EXTENSIONS: OnceLock<Objects<ClusterExtension>> = OnceLock::new();

/// The cluster with a running controller.
async fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER
        .get_or_try_init(|| async {
            let cluster = Cluster::start_for_olm(&Options { audit: true, ..Options::default() }).await?;
            cluster
                .apply(&format!(
                    "{{apiVersion: v1, kind: Namespace, metadata: {{name: {SYSTEM}}}}}\n---\n\
                     {{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {{name: {ACCOUNT}}}, \
                     roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}, \
                     subjects: [{{kind: ServiceAccount, name: {ACCOUNT}, namespace: {SYSTEM}}}]}}"
                ))
                .await?;
            let kubeconfig = cluster.kubeconfig_for_service_account(SYSTEM, ACCOUNT).await?;
            // a client belongs to the runtime that made it, and the tests' runtimes end with them
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let client = holding(Cluster::client_from(&kubeconfig).await.expect("a client"));
                    let (revisions, extensions) = (Revisions::default(), Objects::empty());
                    EXTENSIONS.get_or_init(|| extensions.clone());
                    let _watches = (revisions.watch(&client), extensions.watch(&client));
                    let mut context = objectset::Context::new(client, SYSTEM, revisions, extensions);
                    // long enough that the messages of the meantime are read on a busy machine
                    context.custom_resource_wait = Duration::from_secs(20);
                    context.intervals.minute = MINUTE;
                    let metrics = Metrics::new().controller(objectset::NAME, 1);
                    objectset::run(context, metrics, Shutdown::new()).await;
                });
            });
            Ok(cluster)
        })
        .await
}

/// A test's own corner of the cluster.
pub(crate) struct Bench {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The name of its extension (which need not exist).
    pub(crate) extension: String,
}

impl Bench {
    pub(crate) async fn new(prefix: &str) -> Result<Self> {
        let cluster = cluster().await?;
        let client = cluster.client().await?;
        let namespace = cluster.namespace(prefix).await?;
        Ok(Self { cluster, client, namespace, extension: unique(prefix) })
    }

    /// A further extension in the same namespace.
    pub(crate) fn other(&self, prefix: &str) -> Self {
        let (client, namespace) = (self.client.clone(), self.namespace.clone());
        Self { cluster: self.cluster, client, namespace, extension: unique(prefix) }
    }

    pub(crate) fn revisions(&self) -> Api<ClusterObjectSet> {
        Api::all(self.client.clone())
    }

    /// The name of a revision of the test's extension.
    pub(crate) fn name(&self, number: i64) -> String {
        format!("{}-{number}", self.extension)
    }

    /// A ConfigMap with the marks of content.
    pub(crate) fn config_map(&self, name: &str, data: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name, "namespace": self.namespace, "labels": self.labels()},
        })
    }

    /// A Deployment that becomes available without a delay.
    pub(crate) fn deployment(&self, name: &str, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": self.namespace, "labels": self.labels()},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "manager", "image": image, "ports": [{"containerPort": 80}],
                                             "resources": {"limits": {"cpu": "0.1"}}}]},
                },
            },
        })
    }

    /// A CRD of the group `<extension>.test`.
    pub(crate) fn crd(&self, kind: &str) -> Value {
        let (group, plural) = (self.group(), format!("{}s", kind.to_lowercase()));
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "labels": self.labels()},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        })
    }

    /// The group of the test's CRDs.
    pub(crate) fn group(&self) -> String {
        format!("{}.test", self.extension)
    }

    /// A custom resource of [`Bench::crd`].
    pub(crate) fn custom_resource(&self, kind: &str, name: &str) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group()), "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace, "labels": self.labels()}, "spec": {"size": 1},
        })
    }

    pub(crate) fn labels(&self) -> Value {
        json!({
            "olm.operatorframework.io/owner-kind": "ClusterExtension",
            "olm.operatorframework.io/owner-name": self.extension,
        })
    }

    /// A revision of the test's extension, to be filled and created.
    pub(crate) fn revision(&self, number: i64) -> Revision<'_> {
        let spec = json!({"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"});
        Revision { bench: self, spec, phases: vec![], number, parent: None, labels: self.labels() }
    }

    /// The API of a kind in the test's namespace, for any manifest of it.
    pub(crate) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "CustomResourceDefinition" | "Namespace" | "ClusterRole" | "ValidatingAdmissionPolicyBinding" => {
                Api::all_with(self.client.clone(), &resource)
            }
            _ => Api::namespaced_with(self.client.clone(), &self.namespace, &resource),
        }
    }

    /// ConfigMaps of the test's namespace.
    pub(crate) fn config_maps(&self) -> Api<DynamicObject> {
        self.api("v1", "ConfigMap")
    }

    /// Creates an object as a user would.
    pub(crate) async fn create(&self, object: &Value) -> Result<DynamicObject> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let api = self.api(text("/apiVersion"), text("/kind"));
        Ok(api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?)
    }

    /// Changes an object as a user would.
    pub(crate) async fn patch(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        patch: Value,
    ) -> Result<DynamicObject> {
        let params = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
        Ok(api.patch(name, &params, &Patch::Merge(&patch)).await?)
    }

    /// Waits until a revision has rolled out.
    pub(crate) async fn succeeded(&self, number: i64) -> Result<ClusterObjectSet> {
        self.reason(number, "Progressing", "True", "Succeeded").await
    }

    /// Deletes a revision.
    pub(crate) async fn delete(&self, number: i64) -> Result<()> {
        self.revisions().delete(&self.name(number), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until a revision is gone.
    pub(crate) async fn gone(&self, number: i64) -> Result<()> {
        Wait::new(&self.revisions(), &self.name(number)).to_be_gone().await
    }

    /// Whether there is such a ConfigMap.
    pub(crate) async fn has_config_map(&self, name: &str) -> Result<bool> {
        Ok(self.config_maps().get_opt(name).await?.is_some())
    }

    /// A value of a ConfigMap's data.
    pub(crate) async fn data(&self, name: &str, key: &str) -> Result<Value> {
        Ok(self.config_maps().get(name).await?.data["data"][key].clone())
    }

    /// Waits until a value of a ConfigMap is this one.
    pub(crate) async fn until_data(&self, name: &str, key: &str, value: &str) -> Result<DynamicObject> {
        let what = format!("{key} is {value}");
        Wait::new(&self.config_maps(), name).until(&what, |found| found.data["data"][key] == value).await
    }

    /// Waits for a condition with status and reason.
    pub(crate) async fn reason(
        &self,
        number: i64,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<ClusterObjectSet> {
        Wait::new(&self.revisions(), &self.name(number)).for_reason(kind, status, reason).await
    }

    /// Waits for a text in a condition's message.
    pub(crate) async fn message(&self, number: i64, kind: &str, text: &str) -> Result<ClusterObjectSet> {
        Wait::new(&self.revisions(), &self.name(number))
            .until(&format!("{kind} has {text:?}"), |revision| {
                olm_kit::condition(revision, kind).is_some_and(|condition| condition.message.contains(text))
            })
            .await
    }

    /// An extension of the test's name, for its annotations; nothing installs it. The controller has seen it then. Returns its UID.
    pub(crate) async fn extension(&self, annotations: Value) -> Result<String> {
        let extension = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
            "metadata": {"name": self.extension, "annotations": annotations},
            "spec": {"namespace": self.namespace, "source": {"sourceType": "Catalog", "catalog": {"packageName": "none"}}},
        });
        let applied = self.cluster.apply(&extension.to_string()).await?;
        let version = applied.first().and_then(ResourceExt::resource_version);
        self.until_cached("as applied", |metadata| metadata.resource_version == version).await?;
        Ok(applied.first().and_then(ResourceExt::uid).unwrap_or_default())
    }

    /// Waits until the controller's cache has the extension in this state. Extensions, revisions and objects arrive by watches of
    /// their own.
    pub(crate) async fn until_cached(&self, what: &str, like: impl Fn(&ObjectMeta) -> bool) -> Result<()> {
        eventually(&format!("the extension is seen {what}"), Duration::from_secs(60), || async {
            let extensions = EXTENSIONS.get().context("the controller has not started")?;
            let found = extensions.get(&self.extension).context("no extension")?;
            ensure!(like(found.meta()), "{:?}", found.meta());
            Ok(())
        })
        .await
    }
}

/// A revision to be created.
pub(crate) struct Revision<'a> {
    bench: &'a Bench,
    spec: Value,
    phases: Vec<(String, Vec<Value>)>,
    number: i64,
    parent: Option<String>,
    labels: Value,
}

impl Revision<'_> {
    pub(crate) fn phase(mut self, name: &str, objects: impl IntoIterator<Item = Value>) -> Self {
        self.phases.push((name.to_owned(), objects.into_iter().collect()));
        self
    }

    pub(crate) fn protection(mut self, protection: &str) -> Self {
        self.spec["collisionProtection"] = json!(protection);
        self
    }

    /// It belongs to no extension.
    pub(crate) fn unlabelled(mut self) -> Self {
        self.labels = json!({});
        self
    }

    /// It belongs to the extension with this UID.
    pub(crate) fn owned_by(mut self, uid: &str) -> Self {
        self.parent = Some(uid.to_owned());
        self
    }

    /// A probe: objects of this kind must have this value at this path.
    pub(crate) fn probe(mut self, group: &str, kind: &str, path: &str, value: &str) -> Self {
        self.spec["progressionProbes"] = json!([{
            "selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": kind}},
            "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": path, "value": value}}],
        }]);
        self
    }

    /// The probe that the extension controller writes for Deployments and CRDs.
    pub(crate) fn default_probes(mut self) -> Self {
        let condition = |group: &str, kind: &str, condition: &str| {
            json!({
                "selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": kind}},
                "assertions": [{"type": "ConditionEqual", "conditionEqual": {"type": condition, "status": "True"}}],
            })
        };
        self.spec["progressionProbes"] = json!([
            condition("apiextensions.k8s.io", "CustomResourceDefinition", "Established"),
            condition("apps", "Deployment", "Available"),
        ]);
        self
    }

    fn object(&self, phases: Value) -> Result<ClusterObjectSet> {
        let mut spec = self.spec.clone();
        spec["phases"] = phases;
        let owners: Vec<Value> = self
            .parent
            .iter()
            .map(|uid| {
                json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": self.bench.extension, "uid": uid,
                       "controller": true, "blockOwnerDeletion": true})
            })
            .collect();
        Ok(serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet",
            "metadata": {
                "name": self.bench.name(self.number), "labels": self.labels,
                "ownerReferences": owners,
                "annotations": {"olm.operatorframework.io/bundle-version": format!("{}.0.0", self.number)},
            },
            "spec": spec,
        }))?)
    }

    /// Creates it with inline objects.
    pub(crate) async fn create(self) -> Result<ClusterObjectSet> {
        let phases: Vec<Value> = self
            .phases
            .iter()
            .map(|(name, objects)| {
                let objects: Vec<Value> = objects.iter().map(|object| json!({"object": object})).collect();
                json!({"name": name, "objects": objects})
            })
            .collect();
        let object = self.object(json!(phases))?;
        self.bench
            .revisions()
            .create(&PostParams::default(), &object)
            .await
            .context("cannot create the revision")
    }

    /// Creates it and waits until it has rolled out.
    pub(crate) async fn roll_out(self) -> Result<ClusterObjectSet> {
        let (bench, number) = (self.bench, self.number);
        self.create().await?;
        bench.succeeded(number).await
    }

    /// The Secrets of the content and the revision that refers to them, not created.
    pub(crate) fn packed(self) -> Result<(Vec<Value>, ClusterObjectSet)> {
        let phases = self.phases.iter().map(|(name, objects)| {
            let objects = objects.iter().filter_map(|object| Object::from_value(object.clone()).ok());
            Phase { name: name.clone(), objects: objects.collect() }
        });
        let packed = pack(&self.bench.name(self.number), &phases.collect::<Vec<_>>())?;
        let text = |value: &[u8]| Value::from(String::from_utf8_lossy(value).into_owned());
        let secrets = packed.secrets.iter().map(|secret| {
            let data = secret.data.iter().map(|(key, value)| (key.clone(), text(value)));
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": true,
                "metadata": {"name": secret.name, "namespace": SYSTEM, "labels": {
                    "olm.operatorframework.io/revision-name": self.bench.name(self.number),
                    "olm.operatorframework.io/owner-name": self.bench.extension,
                }},
                "stringData": data.collect::<Map<String, Value>>(),
            })
        });
        let phases = packed.phases.iter().map(|phase| {
            let objects = phase.objects.iter();
            let refs =
                objects.map(|object| json!({"name": object.secret, "namespace": SYSTEM, "key": object.key}));
            json!({"name": phase.name, "objects": refs.map(|it| json!({"ref": it})).collect::<Vec<_>>()})
        });
        let object = self.object(phases.collect())?;
        Ok((secrets.collect(), object))
    }
}

/// Secrets of the system namespace.
pub(crate) fn secrets(bench: &Bench) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    Api::namespaced_with(bench.client.clone(), SYSTEM, &resource)
}

/// Names of the owners of an object, the controller first marked with `*`.
pub(crate) fn owners(object: &DynamicObject) -> Vec<String> {
    let mark = |controller| if controller == Some(true) { "*" } else { "" };
    let owners = object.owner_references().iter();
    owners.map(|owner| format!("{}{}", owner.name, mark(owner.controller))).collect()
}
