//! Published operators through a Subscription with Manual approval: installed, upgraded twice, removed.
//!
//! The sample has three bundles of each of two operators. `rabbitmq-messaging-topology-operator` 1.9.0 names 1.8.0 as the version that it
//! replaces; the other upgrades follow the order of versions, because the bundles between them are not in the sample. No operator's program
//! runs (kwok), so webhooks are written and not called.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, InstallPlan, Subscription};
use olm_integration::classic::{group, phase, source, source_is_ready, subscription};
use olm_integration::inventory::objects;
use olm_integration::sample;
use olm_kit::image::read_dir;
use olm_kit::{
    BundleImage, CatalogImage, Cluster, Crd, Entry, Options, Package, Process, Program, Registry, Wait,
    eventually,
};
use olm_yaml::{Limits, yaml_to_json};
use serde_json::{Value, json};

use crate::site::LIMIT;

const CATALOG: &str = "real";
/// The package that brings `RabbitmqCluster`; the sample has it not, so it is made.
const RABBITMQ: &str = "rabbitmq-cluster-operator";

struct Operator {
    /// The name of its namespace, too.
    package: &'static str,
    channel: &'static str,
    versions: [&'static str; 3],
    /// Whether it watches its own namespace instead of all.
    is_local: bool,
    /// Whether a user creates the example of its first version.
    has_example: bool,
}

#[rustfmt::skip]
const OPERATORS: [Operator; 2] = [
    Operator { package: "patterns-operator", channel: "fast", versions: ["0.0.63", "0.0.64", "0.0.80"],
        is_local: false, has_example: true },
    Operator { package: "rabbitmq-messaging-topology-operator", channel: "stable", versions: ["1.8.0", "1.9.0", "1.18.2"],
        is_local: true, has_example: false },
];

struct Lab {
    client: Client,
    data: PathBuf,
    controller: Process,
    registry: Registry,
    // last, so that it ends last
    cluster: Cluster,
}

impl Lab {
    async fn start(data: PathBuf) -> Result<Self> {
        let options = Options::default();
        let (cluster, registry) = tokio::try_join!(Cluster::start_for_classic(&options), Registry::start())?;
        let controller = Program::classic_controller(&cluster)?.start().await?;
        Ok(Self { client: cluster.client().await?, data, controller, registry, cluster })
    }

    /// One catalog with the packages of all operators, and with the one that is made.
    async fn serve(&self) -> Result<()> {
        let mut catalog = CatalogImage::new();
        for Operator { package, versions, .. } in &OPERATORS {
            let blobs = sample::pushed(&self.registry, &self.data, package, versions).await?;
            let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
            catalog = catalog.file(&format!("{package}/catalog.json"), &text);
        }
        let crd = Crd::new("RabbitmqCluster", "rabbitmq.com").version("v1beta1", true, true);
        let bundle = BundleImage::new(RABBITMQ, "2.1.0").crds([crd]).install_modes(&["OwnNamespace"]);
        let image = self.registry.push(&format!("bundles/{RABBITMQ}"), "2.1.0", &bundle.image()).await?;
        let provides = json!({"type": "olm.gvk", "value": {"group": "rabbitmq.com", "version": "v1beta1", "kind": "RabbitmqCluster"}});
        let package = Package::new(RABBITMQ).channel("stable", [Entry::new("2.1.0")]);
        let catalog = catalog.package(&package.bundle_with("2.1.0", &image.by_digest(), [provides]));
        let pushed = self.registry.push("catalog", "latest", &catalog.image()).await?;
        self.cluster.apply(&source(CATALOG, &pushed.by_digest()).to_string()).await?;
        source_is_ready(&self.client, CATALOG).await
    }

    /// The namespace of an operator, with all that Kubernetes puts into one.
    async fn furnish(&self, operator: &Operator) -> Result<()> {
        let name = operator.package;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.cluster.apply(&namespace.to_string()).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), name);
        Wait::new(&accounts, "default").within(LIMIT).to_exist().await?;
        Wait::new(&maps, "kube-root-ca.crt").within(LIMIT).to_exist().await?;
        let targets = if operator.is_local { vec![name] } else { Vec::new() };
        self.cluster.apply(&group(name, &targets).to_string()).await?;
        Ok(())
    }
}

/// One operator in the cluster.
struct Life<'a> {
    lab: &'a Lab,
    operator: &'static Operator,
    subscriptions: Api<Subscription>,
    plans: Api<InstallPlan>,
    csvs: Api<ClusterServiceVersion>,
    deployments: Api<Deployment>,
}

impl<'a> Life<'a> {
    fn new(lab: &'a Lab, operator: &'static Operator) -> Self {
        let (client, namespace) = (&lab.client, operator.package);
        Self {
            lab,
            operator,
            subscriptions: Api::namespaced(client.clone(), namespace),
            plans: Api::namespaced(client.clone(), namespace),
            csvs: Api::namespaced(client.clone(), namespace),
            deployments: Api::namespaced(client.clone(), namespace),
        }
    }

    /// Until the newest version is installed. Returns what outlives it: its CRDs and what the user made of them with their UIDs, and, as with the
    /// reference, accounts and rights that bundles have as manifests.
    async fn until_newest(&self) -> Result<BTreeMap<String, Option<String>>> {
        let Operator { package, channel, versions, .. } = self.operator;
        let mut desired = subscription(package, package, CATALOG, channel);
        desired["spec"]["startingCSV"] = csv_name(package, versions[0]).into();
        desired["spec"]["installPlanApproval"] = "Manual".into();
        self.lab.cluster.apply(&desired.to_string()).await?;
        let mut stays = BTreeMap::new();
        for (index, version) in versions.iter().enumerate() {
            self.step(index, version).await.with_context(|| format!("{package} {version}"))?;
            let manifests = manifests(&self.lab.data.join("bundles").join(package).join(version))?;
            stays.extend(self.crds(&manifests).await.with_context(|| format!("{package} {version}"))?);
            self.has_deployments(version, &manifests)
                .await
                .with_context(|| format!("{package} {version}"))?;
            stays.extend(manifests.iter().filter_map(|it| Some((self.account_or_right(it)?, None))));
            if index == 0 && self.operator.has_example {
                let example = self.example(&manifests).await?;
                stays.insert(key(&example), example.uid());
            }
        }
        Ok(stays)
    }

    /// Approves the plan for a version, and waits until nothing but it is installed.
    async fn step(&self, index: usize, version: &str) -> Result<()> {
        let name = csv_name(self.operator.package, version);
        let plan = eventually("its plan waits for approval", LIMIT, || async {
            let plans = self.plans.list(&ListParams::default()).await?.items;
            let waits = |plan: &InstallPlan| {
                plan.status.as_ref().is_some_and(|status| status.phase == "RequiresApproval")
                    && plan.spec.cluster_service_version_names.contains(&name)
            };
            let found = plans.iter().find(|plan| waits(plan)).map(|plan| plan.name_any());
            found.with_context(|| format!("{:?}", plans.iter().map(|plan| &plan.status).collect::<Vec<_>>()))
        })
        .await?;
        let before = self.csvs.list(&originals()).await?.items.len();
        ensure!(before <= index, "something was installed without approval: {before} versions");
        let approved = Patch::Merge(json!({"spec": {"approved": true}}));
        self.plans.patch(&plan, &PatchParams::default(), &approved).await?;
        let wait = Wait::new(&self.csvs, &name).within(LIMIT).log(self.lab.controller.log());
        wait.until("is Succeeded", |csv| phase(csv) == "Succeeded").await?;
        if let Some(old) = index.checked_sub(1) {
            let old = csv_name(self.operator.package, self.operator.versions[old]);
            Wait::new(&self.csvs, &old).within(LIMIT).log(self.lab.controller.log()).to_be_gone().await?;
        }
        let wait = Wait::new(&self.subscriptions, self.operator.package).within(LIMIT);
        let has_it =
            |it: &Subscription| it.status.as_ref().is_some_and(|status| status.installed_csv == name);
        wait.until("has the version installed", has_it).await.map(drop)
    }

    /// Checks that the CRDs of a version are those of the cluster; gives them with their UIDs.
    async fn crds(&self, manifests: &[Value]) -> Result<BTreeMap<String, Option<String>>> {
        let kind = ApiResource::erase::<CustomResourceDefinition>(&());
        let live: Api<DynamicObject> = Api::all_with(self.lab.client.clone(), &kind);
        let mut all = BTreeMap::new();
        for crd in manifests.iter().filter(|it| it["kind"] == "CustomResourceDefinition") {
            let name = crd["metadata"]["name"].as_str().context("a CRD without name")?;
            let found = live.get(name).await?;
            let lacks = lacking(name, &found.data["spec"]["versions"], &crd["spec"]["versions"]);
            ensure!(lacks.is_none(), "{lacks:?}");
            all.insert(key(&found), found.uid());
        }
        ensure!(!all.is_empty(), "a version without CRDs");
        Ok(all)
    }

    /// A manifest that is an account or a right, as [`objects`] names it.
    fn account_or_right(&self, manifest: &Value) -> Option<String> {
        let kind = manifest["kind"].as_str()?;
        let namespace = match kind {
            "ServiceAccount" | "Role" | "RoleBinding" => self.operator.package,
            "ClusterRole" | "ClusterRoleBinding" => "",
            _ => return None,
        };
        let (version, name) = (manifest["apiVersion"].as_str()?, manifest["metadata"]["name"].as_str()?);
        Some(format!("{version} {kind} {namespace}/{name}"))
    }

    /// Checks that the Deployments of the version run, and no other ones.
    async fn has_deployments(&self, version: &str, manifests: &[Value]) -> Result<()> {
        let csv = manifests.iter().find(|it| it["kind"] == "ClusterServiceVersion").context("no version")?;
        let desired = csv.pointer("/spec/install/spec/deployments").and_then(Value::as_array);
        let desired = desired.context("no Deployments")?.iter();
        let mut desired: Vec<(Value, Vec<Value>)> =
            desired.map(|it| (it["name"].clone(), images(&it["spec"]))).collect();
        desired.sort_by_key(|(name, _)| name.to_string());
        let of =
            ListParams::default().labels(&format!("olm.owner={}", csv_name(self.operator.package, version)));
        let mut found = Vec::new();
        for deployment in self.deployments.list(&of).await?.items {
            let spec = serde_json::to_value(&deployment.spec)?;
            found.push((json!(deployment.name_any()), images(&spec)));
        }
        found.sort_by_key(|(name, _)| name.to_string());
        ensure!(desired == found, "{desired:?}, but {found:?}");
        Ok(())
    }

    /// Creates the first example of a version, as a user does.
    async fn example(&self, manifests: &[Value]) -> Result<DynamicObject> {
        let csv = manifests.iter().find(|it| it["kind"] == "ClusterServiceVersion").context("no version")?;
        let examples = csv["metadata"]["annotations"]["alm-examples"].as_str().context("no examples")?;
        let mut example: Value = serde_json::from_str::<Vec<Value>>(examples)?.swap_remove(0);
        example["metadata"]["namespace"] = self.operator.package.into();
        Ok(self.lab.cluster.apply(&example.to_string()).await?.remove(0))
    }

    async fn remove(&self) -> Result<()> {
        let params = DeleteParams::default();
        self.subscriptions.delete_collection(&params, &ListParams::default()).await?;
        self.csvs.delete_collection(&params, &originals()).await?;
        Ok(())
    }
}

/// An object as [`objects`] names it.
fn key(object: &DynamicObject) -> String {
    let types = object.types.clone().unwrap_or_default();
    let namespace = object.namespace().unwrap_or_default();
    format!("{} {} {namespace}/{}", types.api_version, types.kind, object.name_any())
}

/// ClusterServiceVersions that are no copies of another namespace's.
fn originals() -> ListParams {
    ListParams::default().labels("!olm.copiedFrom")
}

fn csv_name(package: &str, version: &str) -> String {
    format!("{package}.v{version}")
}

/// The images of the containers of a Deployment.
fn images(spec: &Value) -> Vec<Value> {
    let containers = spec.pointer("/template/spec/containers").and_then(Value::as_array);
    containers.into_iter().flatten().map(|container| container["image"].clone()).collect()
}

/// The manifests of a bundle.
fn manifests(folder: &Path) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (path, text) in read_dir(&folder.join("manifests"), "")? {
        let mut json = Vec::new();
        yaml_to_json(&text, &mut json, &Limits::default())
            .map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
        all.push(serde_json::from_slice(&json)?);
    }
    Ok(all)
}

/// The first value that is not the desired one; an empty one may be absent.
fn lacking(at: &str, live: &Value, desired: &Value) -> Option<String> {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired.iter().find_map(|(key, desired)| {
            lacking(&format!("{at} .{key}"), live.get(key).unwrap_or(&Value::Null), desired)
        }),
        (Value::Array(desired), Value::Array(live)) if desired.len() == live.len() => {
            let mut pairs = desired.iter().zip(live).enumerate();
            pairs.find_map(|(index, (desired, live))| lacking(&format!("{at}[{index}]"), live, desired))
        }
        (desired, Value::Null) => {
            let is_empty = matches!(desired, Value::Null)
                || [json!(""), json!(false), json!({}), json!([])].contains(desired);
            (!is_empty).then(|| format!("{at}: {desired} is absent"))
        }
        (desired, live) => (desired != live).then(|| format!("{at}: {desired} is {live}")),
    }
}

/// Whether an object may be there after all operators were removed: the CRDs of the dependency, roles and registrations for kinds, what groups
/// have, the roll-up, and bundles that were read.
fn may_stay(object: &DynamicObject) -> bool {
    let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
    let is_crd = |owner: &OwnerReference| owner.kind.eq_ignore_ascii_case("CustomResourceDefinition");
    let of_crd = object.owner_references().iter().any(is_crd);
    let of_group = object.labels().get("olm.owner.kind").is_some_and(|kind| kind == "OperatorGroup");
    let is_registered = object.labels().contains_key("kube-aggregator.kubernetes.io/automanaged");
    let is_read = kind == "ConfigMap" && object.namespace().as_deref() == Some(olm_kit::CLASSIC_NAMESPACE);
    ["CustomResourceDefinition", "Operator"].contains(&kind) || of_crd || of_group || is_registered || is_read
}

#[tokio::test]
async fn classic_real_operators_are_upgraded_and_removed() -> Result<()> {
    let Some(data) = sample::data() else { return Ok(()) };
    let began = Instant::now();
    let lab = Lab::start(data).await?;
    lab.serve().await?;
    for operator in &OPERATORS {
        lab.furnish(operator).await?;
    }
    let before = objects(&lab.client).await?;
    println!("ready after {:.0?}", began.elapsed());

    let lives = OPERATORS.each_ref().map(|operator| Life::new(&lab, operator));
    let newest = futures::future::try_join_all(lives.iter().map(Life::until_newest)).await?;
    println!("upgraded after {:.0?}", began.elapsed());
    let csvs = lives[1].csvs.list(&ListParams::default()).await?;
    ensure!(
        csvs.iter().any(|csv| csv.name_any() == csv_name(RABBITMQ, "2.1.0")),
        "the dependency is missing"
    );
    let copies: Api<ClusterServiceVersion> = Api::namespaced(lab.client.clone(), "default");
    let copy = csv_name(OPERATORS[0].package, OPERATORS[0].versions[2]);
    Wait::new(&copies, &copy).within(LIMIT).to_exist().await.context("a copy of the global operator")?;

    for life in &lives {
        life.remove().await?;
    }
    let stays: BTreeMap<String, Option<String>> = newest.into_iter().flatten().collect();
    eventually("what the operators had is gone", LIMIT, || async {
        let after = objects(&lab.client).await?;
        let is_new = |key: &str| !before.contains_key(key) && !stays.contains_key(key);
        let more = after.iter().filter(|(key, object)| is_new(key) && !may_stay(object));
        let more: Vec<&String> = more.map(|(key, _)| key).collect();
        let less: Vec<&String> = before.keys().filter(|key| !after.contains_key(*key)).collect();
        ensure!(more.is_empty() && less.is_empty(), "left: {more:#?}, lost: {less:#?}");
        let is_it = |found: &DynamicObject, uid: &Option<String>| uid.is_none() || found.uid() == *uid;
        let is_there = |key: &str, uid| after.get(key).is_some_and(|found| is_it(found, uid));
        let gone: Vec<&String> =
            stays.iter().filter(|(key, uid)| !is_there(key, uid)).map(|(key, _)| key).collect();
        ensure!(gone.is_empty(), "gone or made again: {gone:#?}");
        Ok(())
    })
    .await?;
    println!("removed after {:.0?}", began.elapsed());
    Ok(())
}
