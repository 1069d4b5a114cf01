//! The cluster as a test sees it: its own control plane or one shared with other tests, and what tests do with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::discovery::{ApiCapabilities, ApiResource, Scope};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::audit::Request;
use crate::control_plane::{ControlPlane, Options};
use crate::{SYSTEM_NAMESPACE, Tools, Wait, audit, eventually, kubeconfig, repository, unique};

/// How long the apiserver may take until what it has stored counts.
const COUNTS: Duration = Duration::from_secs(60);

/// A control plane that is ours ([`Cluster::start`]) or another process's ([`Cluster::shared`], [`Cluster::attach`]).
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    // dropping it stops the programs; absent for a cluster of another process
    plane: Option<ControlPlane>,
    record: Mutex<audit::Record>,
}

impl Cluster {
    /// The control plane shared by all tests of this run: the one of folder `OLM_TEST_CLUSTER` (`make test` starts it once
    /// for all test programs), else one for this test program, started at first use and ended with the program.
    ///
    /// Tests keep to their own namespaces and names ([`Cluster::namespace`], [`unique`]).
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| async {
                match std::env::var_os("OLM_TEST_CLUSTER").filter(|dir| !dir.is_empty()) {
                    Some(dir) => Self::attach(Path::new(&dir)),
                    None => Self::start().await,
                }
            })
            .await
    }

    /// A control plane of the caller's own, stopped when dropped. About 4 s.
    pub async fn start() -> Result<Self> {
        Self::start_with(&Options::default()).await
    }

    /// [`Cluster::start`] with options.
    pub async fn start_with(options: &Options) -> Result<Self> {
        let plane = ControlPlane::start(options).await?;
        Ok(Self { dir: plane.dir().to_owned(), plane: Some(plane), record: Mutex::default() })
    }

    /// The cluster whose control plane another process runs in `dir`.
    pub fn attach(dir: &Path) -> Result<Self> {
        if !dir.join("kubeconfig").is_file() {
            bail!("{} is not the folder of a running cluster: it has no kubeconfig", dir.display());
        }
        Ok(Self { dir: dir.to_owned(), plane: None, record: Mutex::default() })
    }

    /// The working folder, with `logs/`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The control plane, when it is ours.
    pub fn plane(&mut self) -> Option<&mut ControlPlane> {
        self.plane.as_mut()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// A client for the administrator. Make one per test: a client belongs to the runtime that made it.
    pub async fn client(&self) -> Result<Client> {
        kubeconfig::client(&self.kubeconfig()).await
    }

    /// A client from any kubeconfig, for instance one of [`Cluster::kubeconfig_as`].
    pub async fn client_from(kubeconfig: &Path) -> Result<Client> {
        kubeconfig::client(kubeconfig).await
    }

    /// A kubeconfig that acts as `user` with `groups` (by impersonation); RBAC applies as to that user.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.dir.join("kubeconfigs").join(unique("user"));
        kubeconfig::derive(&self.kubeconfig(), &path, &json!({"as": user, "as-groups": groups}))?;
        Ok(path)
    }

    /// A kubeconfig with a token of the service account, which is created when absent. The token lives for a day.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(problem) => return Err(problem).context("cannot create the service account"),
        }
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(86_400), ..Default::default() }),
            ..Default::default()
        };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = answer.status.context("no token in the answer")?.token;
        let path = self.dir.join("kubeconfigs").join(unique(name));
        kubeconfig::derive(&self.kubeconfig(), &path, &json!({"token": token}))?;
        Ok(path)
    }

    /// A kubeconfig with a token of a service account of the system namespace that may do everything: the audit log shows its
    /// requests apart from those of others.
    pub async fn kubeconfig_that_may_all(&self, account: &str) -> Result<PathBuf> {
        let kubeconfig = self.kubeconfig_for_service_account(SYSTEM_NAMESPACE, account).await?;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}]});
        self.apply(&binding.to_string()).await?;
        self.until_may_get(&format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{account}"), "/metrics")
            .await?;
        Ok(kubeconfig)
    }

    /// Waits until the user may get the path: the authorizer learns of new roles and bindings through a watch.
    pub async fn until_may_get(&self, user: &str, path: &str) -> Result<()> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.client().await?);
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.to_owned()),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..Default::default()
            },
            ..Default::default()
        };
        eventually(&format!("{user} may get {path}"), COUNTS, || async {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            match answer.status {
                Some(status) if status.allowed => Ok(()),
                status => bail!("{status:?}"),
            }
        })
        .await
    }

    /// Creates a namespace `<prefix>-<random>` and returns its name.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let name = unique(prefix);
        let namespaces: Api<Namespace> = Api::all(self.client().await?);
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        Ok(name)
    }

    /// Applies (server-side, field manager `olm-kit`, forced) every document of a YAML or JSON text, in order. Waits until
    /// the kinds of CustomResourceDefinitions are served.
    pub async fn apply(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        apply_text(&self.client().await?, yaml).await
    }

    /// Applies every `.yaml` file of a folder but for its kustomization, in name order.
    pub async fn apply_dir(&self, dir: &Path) -> Result<Vec<DynamicObject>> {
        apply_folder(&self.client().await?, dir).await
    }

    /// Installs the project's CRDs (`manifests/crds`). Doing it twice is fine.
    pub async fn install_crds(&self) -> Result<()> {
        let applied = self.apply_dir(&repository().join("manifests/crds")).await?;
        if applied.is_empty() {
            bail!("manifests/crds has no CRD");
        }
        Ok(())
    }

    /// Installs what every installation has for its users: the admission policies (`manifests/policies`), and the roles of viewers and
    /// editors.
    pub async fn install_policies_and_roles(&self) -> Result<()> {
        self.apply_dir(&repository().join("manifests/policies")).await?;
        let rbac = repository().join("manifests/base/operator-controller/rbac.yaml");
        let text = std::fs::read_to_string(&rbac).with_context(|| rbac.display().to_string())?;
        let is_for_users =
            |document: &&str| document.contains("-viewer-role\n") || document.contains("-editor-role\n");
        let roles: Vec<&str> = text.split("\n---\n").filter(is_for_users).collect();
        self.apply(&roles.join("\n---\n")).await?;
        Ok(())
    }

    /// Installs the two kinds of OpenShift that cluster-operator knows (`manifests/openshift`). Doing it twice is fine.
    pub async fn install_openshift_kinds(&self) -> Result<()> {
        self.apply_dir(&repository().join("manifests/openshift")).await.map(|_| ())
    }

    /// Sets this version of OpenShift in ClusterVersion `version`.
    pub async fn set_openshift_version(&self, version: &str) -> Result<()> {
        let api: Api<DynamicObject> = {
            let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterVersion");
            Api::all_with(self.client().await?, &ApiResource::from_gvk(&kind))
        };
        let head = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"}});
        let mut object = head.clone();
        object["spec"] = json!({"clusterID": "00000000-0000-4000-8000-000000000000"});
        let params = PatchParams::apply("olm-kit").force();
        api.patch("version", &params, &Patch::Apply(&object)).await?;
        let mut status = head;
        status["status"] = json!({
            "desired": {"version": version, "image": ""}, "observedGeneration": 1, "versionHash": "", "availableUpdates": null,
        });
        api.patch_status("version", &params, &Patch::Apply(&status)).await?;
        Ok(())
    }

    /// Every request so far, when the cluster was started with [`Options::audit`].
    pub fn audit(&self) -> Result<Vec<Request>> {
        self.audited(0, |_| true)
    }

    /// Those after the first `from` of [`Cluster::audit`] that are chosen.
    pub fn audited(&self, from: usize, chosen: impl Fn(&Request) -> bool) -> Result<Vec<Request>> {
        let mut record = self.record.lock();
        let all = record.read(&self.dir)?;
        Ok(all.iter().skip(from).filter(|request| chosen(request)).cloned().collect())
    }

    /// How many requests [`Cluster::audit`] would give.
    pub fn audit_length(&self) -> Result<usize> {
        Ok(self.record.lock().read(&self.dir)?.len())
    }

    /// Every request from now on, as they finish.
    pub fn audit_tail(&self) -> Result<audit::AuditTail> {
        audit::AuditTail::start(&self.dir)
    }

    /// A `kubectl` command for this cluster.
    pub fn kubectl(&self) -> Result<Command> {
        let mut command = Tools::locate()?.command("kubectl")?;
        command.env("KUBECONFIG", self.kubeconfig());
        Ok(command)
    }
}

/// The YAML files of a folder but for its kustomization, sorted by name.
pub(crate) fn yaml_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.extension().is_some_and(|it| it == "yaml") && !path.ends_with("kustomization.yaml")
        })
        .collect();
    files.sort();
    Ok(files)
}

/// The documents of a YAML text; empty ones are left out.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    Ok(all.into_iter().filter(|document| !document.is_null()).collect())
}

/// An [`Api`] for the kind of `document`, in its namespace (or `default`).
pub(crate) async fn api_for(client: &Client, document: &Value) -> Result<Api<DynamicObject>> {
    let text =
        |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let found: (ApiResource, ApiCapabilities) =
        kube::discovery::pinned_kind(client, &GroupVersionKind::gvk(group, version, &kind))
            .await
            .with_context(|| format!("the cluster has no kind {kind} in {group}/{version}"))?;
    Ok(match (found.1.scope, text("/metadata/namespace")) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &found.0),
        (Scope::Namespaced, namespace) => {
            let namespace = if namespace.is_empty() { "default" } else { &namespace };
            Api::namespaced_with(client.clone(), namespace, &found.0)
        }
    })
}

async fn apply_text(client: &Client, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for document in documents(yaml)? {
        applied.push(apply_one(client, &document).await?);
    }
    Ok(applied)
}

/// See [`Cluster::apply_dir`].
pub(crate) async fn apply_folder(client: &Client, dir: &Path) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for path in yaml_files(dir)? {
        let text = std::fs::read_to_string(&path)?;
        applied.extend(apply_text(client, &text).await.with_context(|| path.display().to_string())?);
    }
    Ok(applied)
}

async fn apply_one(client: &Client, document: &Value) -> Result<DynamicObject> {
    let name = document
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .context("a manifest without metadata.name")?;
    let api = api_for(client, document).await?;
    let applied = api.patch(name, &PatchParams::apply("olm-kit").force(), &Patch::Apply(document)).await?;
    if document["kind"] == "CustomResourceDefinition" {
        Wait::new(&api, name).within(COUNTS).for_condition("Established", "True").await?;
        // the condition is written first; what answers requests, and what lists kinds, follows it through a watch
        for kind in served(document) {
            eventually(&format!("{kind:?} is served"), COUNTS, || async {
                Ok(kube::discovery::pinned_kind(client, &kind).await.map(drop)?)
            })
            .await?;
        }
    }
    Ok(applied)
}

/// The kinds, by version, that a CustomResourceDefinition brings.
fn served(crd: &Value) -> Vec<GroupVersionKind> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .map(|version| {
            let (group, kind) = (&crd["spec"]["group"], &crd["spec"]["names"]["kind"]);
            GroupVersionKind::gvk(&text(group), &text(&version["name"]), &text(kind))
        })
        .collect()
}
