//! OLM Classic with the rights of its component: a life from catalogs to removal, compared with the audit log.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use olm_api::classic::{
    CatalogSource, ClusterServiceVersion, InstallPlan, OlmConfig, Operator, OperatorCondition, Subscription,
};
use olm_kit::{
    BundleImage, CLASSIC_NAMESPACE, CatalogImage, Cluster, Crd, Entry, Options, Package, Program, Registry,
    SYSTEM_NAMESPACE, Wait, eventually,
};
use serde_json::{Value, json};

use crate::install::{as_deployed, one_of_each_kind, read_metrics, serve_foreign_kinds};
use crate::manifests::{apply, find, render};
use crate::rights::{granted, least, named, none_refused, of_account, unnamed, without_reads};
use crate::world::LIMIT;

pub(crate) const CLASSIC: &str = "classic-controller-controller-manager";
/// Deployment and rights.
pub(crate) const COMPONENT: &str = "components/classic";
/// The package with a webhook, an object of each kind and a dependency, and its namespace.
const MAIN: &str = "main";
/// The package that it depends on.
const BASE: &str = "base";
/// The package with an aggregated API, and its namespace.
const SERVED: &str = "served";
/// The namespace whose group names a service account.
const SCOPED: &str = "scoped";

/// What classic-controller may do and does not do here.
#[rustfmt::skip]
pub(crate) const CLASSIC_UNUSED: &[(&str, &str)] = &[
    ("update operators.coreos.com/catalogsources/finalizers", "asked for by an admission plugin that OpenShift switches on"),
    ("update operators.coreos.com/clusterserviceversions/finalizers", "as above"),
    ("update operators.coreos.com/operatorconditions/finalizers", "as above"),
    ("update operators.coreos.com/subscriptions/finalizers", "as above"),
    ("escalate rbac.authorization.k8s.io/clusterroles", "checked when a role is written, and no request of its own"),
    ("escalate rbac.authorization.k8s.io/roles", "as above"),
    ("bind rbac.authorization.k8s.io/clusterroles", "as above"),
    ("bind rbac.authorization.k8s.io/roles", "as above"),
];

/// An object of these is read past the caches only when a write shows that its watch is late.
const READ_AFTER_A_CONFLICT: &[&str] = &[
    "/serviceaccounts",
    "apiregistration.k8s.io/apiservices",
    "apps/deployments",
    "operators.coreos.com/installplans",
    "operators.coreos.com/operatorconditions",
    "operators.coreos.com/operators",
    "operators.coreos.com/subscriptions",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/roles",
];

/// A control plane with the component, and what its catalogs refer to.
struct Site {
    cluster: Cluster,
    registry: Registry,
    client: kube::Client,
}

impl Site {
    async fn start() -> Result<Self> {
        let options = Options { audit: true, ..Options::default() };
        let (mut cluster, registry) = tokio::try_join!(Cluster::start_with(&options), Registry::start())?;
        for namespace in [SYSTEM_NAMESPACE, CLASSIC_NAMESPACE, MAIN, SERVED, SCOPED] {
            cluster
                .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"))
                .await?;
        }
        apply(&cluster, COMPONENT)?;
        serve_foreign_kinds(&cluster).await?;
        cluster.apply(&definition_of_proxies().to_string()).await?;
        // so that objects whose owner is of one of these kinds are collected without delay
        cluster.plane().context("the control plane is another process's")?.restart_controllers().await?;
        let client = cluster.client().await?;
        Ok(Self { cluster, registry, client })
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn apply(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            self.cluster.apply(&object.to_string()).await?;
        }
        Ok(())
    }

    /// Pushes the bundles and the catalog of these versions of [`MAIN`], and of the other packages.
    async fn serve(&self, tag: &str, versions: &[&str]) -> Result<String> {
        let mut package = Package::new(MAIN);
        for version in versions {
            let pushed = self.registry.push("classic/main", version, &main(version).image()).await?;
            let needs = json!({"type": "olm.package.required", "value": {"packageName": BASE, "versionRange": ">=1.0.0"}});
            package = package.bundle_with(version, &pushed.by_digest(), [needs]);
        }
        let entries = versions.iter().enumerate().map(|(at, version)| match at {
            0 => Entry::new(version),
            _ => Entry::new(version).replaces(versions[at - 1]),
        });
        let package = package.channel("stable", entries);
        let mut catalog = CatalogImage::new().package(&package);
        for (name, bundle) in [(BASE, base()), (SERVED, served())] {
            let pushed = self.registry.push(&format!("classic/{name}"), "1.0.0", &bundle.image()).await?;
            let package = Package::new(name).bundle("1.0.0", &pushed.by_digest());
            catalog = catalog.package(&package.channel("stable", [Entry::new("1.0.0")]));
        }
        Ok(self.registry.push("classic/catalog", tag, &catalog.image()).await?.by_tag())
    }

    /// The plan of [`MAIN`] that has this ClusterServiceVersion and waits for approval.
    async fn pending_plan(&self, csv: &str) -> Result<String> {
        let plans: Api<InstallPlan> = self.api(MAIN);
        eventually(&format!("a plan for {csv} waits for approval"), LIMIT, || async {
            let plans = plans.list(&ListParams::default()).await?;
            let waiting = plans.items.into_iter().find(|plan| {
                plan.status.as_ref().is_some_and(|status| status.phase == "RequiresApproval")
                    && plan.spec.cluster_service_version_names.iter().any(|name| name == csv)
            });
            waiting.and_then(|plan| plan.metadata.name).context("none")
        })
        .await
    }

    async fn approve(&self, csv: &str) -> Result<()> {
        let plans: Api<InstallPlan> = self.api(MAIN);
        let name = self.pending_plan(csv).await?;
        let approved = json!({"spec": {"approved": true}});
        plans.patch(&name, &PatchParams::default(), &Patch::Merge(approved)).await?;
        Ok(())
    }

    async fn succeeded(&self, namespace: &str, name: &str) -> Result<()> {
        let csvs: Api<ClusterServiceVersion> = self.api(namespace);
        let is_succeeded = |csv: &ClusterServiceVersion| {
            csv.status.as_ref().is_some_and(|status| status.phase == "Succeeded")
        };
        Wait::new(&csvs, name).within(LIMIT).until("is Succeeded", is_succeeded).await.map(|_| ())
    }
}

/// A bundle of [`MAIN`]: 1.0.0 has a webhook of each type; 2.0.0 another field in its definition, another Deployment and no webhook.
fn main(version: &str) -> BundleImage {
    let group = "main.example.com";
    let account = "main-sa";
    let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]});
    let bundle = BundleImage::new(MAIN, version)
        .permissions([json!({"serviceAccountName": account, "rules": [rule("configmaps")]})])
        .cluster_permissions([json!({"serviceAccountName": account, "rules": [rule("nodes")]})]);
    let extras = one_of_each_kind(MAIN).into_iter().filter(|object| object["kind"] != "PodMonitor");
    let bundle = extras.fold(bundle, BundleImage::extra);
    let crd = Crd::new("Gadget", group);
    if version != "1.0.0" {
        let replaces = json!({"spec": {"replaces": format!("{MAIN}.v1.0.0")}});
        return bundle
            .crds([crd.field("color", json!({"type": "string"}))])
            .deployment("another")
            .csv_patch(replaces);
    }
    let hook = |kind: &str, prefix: &str| {
        json!({"type": kind, "generateName": format!("{prefix}.{group}"), "deploymentName": "main-ctrl",
            "containerPort": 443, "targetPort": 9443, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["gizmos"]}]})
    };
    bundle
        .crds([crd])
        .webhook(hook("ValidatingAdmissionWebhook", "v"))
        .webhook(hook("MutatingAdmissionWebhook", "m"))
}

fn base() -> BundleImage {
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    BundleImage::new(BASE, "1.0.0").install_modes(&modes)
}

/// A bundle with an aggregated API.
fn served() -> BundleImage {
    let owned = json!({"group": "served.example.com", "version": "v1", "kind": "Thing", "name": "things",
        "deploymentName": "served-ctrl", "containerPort": 5443});
    BundleImage::new(SERVED, "1.0.0")
        .crds([])
        .csv_patch(json!({"spec": {"apiservicedefinitions": {"owned": [owned]}}}))
}

fn catalog(namespace: &str, spec: &Value) -> Value {
    json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
        "metadata": {"name": "sample", "namespace": namespace}, "spec": spec})
}

fn group(namespace: &str, spec: &Value) -> Value {
    json!({"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": {"name": "group", "namespace": namespace}, "spec": spec})
}

fn subscription(namespace: &str, package: &str, approval: &str) -> Value {
    json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": {"name": package, "namespace": namespace},
        "spec": {"name": package, "channel": "stable", "source": "sample", "sourceNamespace": CLASSIC_NAMESPACE,
            "installPlanApproval": approval}})
}

/// OpenShift's kind Proxy.
fn definition_of_proxies() -> Value {
    let mut definition = Crd::new("Proxy", "config.openshift.io").cluster_scoped().manifest();
    definition["metadata"]["name"] = json!("proxies.config.openshift.io");
    definition["spec"]["names"]["plural"] = json!("proxies");
    definition
}

/// A service account that may do everything, for the group of [`SCOPED`].
fn installer() -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": SCOPED}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": SCOPED}]}),
    ]
}

#[tokio::test]
async fn classic_needs_no_more_than_the_rights_of_its_component() -> Result<()> {
    let began = Instant::now();
    let site = Site::start().await?;
    let documents = render(COMPONENT)?;
    let program = Program::classic_controller(&site.cluster)?.without("--packages-bind-address");
    let program = as_deployed(program, &site.cluster, &documents, CLASSIC).await?;
    let environment =
        &find(&documents, "Deployment", CLASSIC)?["spec"]["template"]["spec"]["containers"][0]["env"][0];
    ensure!(environment["name"] == "GLOBAL_CATALOG_NAMESPACE" && environment["value"] == CLASSIC_NAMESPACE);
    let mut process = program
        .flag("--tls-self-issued-names", "127.0.0.1")
        .env("GLOBAL_CATALOG_NAMESPACE", CLASSIC_NAMESPACE)
        .start()
        .await?;
    println!("started after {:.1?}", began.elapsed());
    install_and_upgrade(&site).await?;
    println!("upgraded after {:.1?}", began.elapsed());
    proxy_of_the_cluster(&site).await?;
    service_of_an_operator(&site).await?;
    aggregated_api(&site).await?;
    as_the_account_of_the_group(&site).await?;
    config_map_catalog(&site).await?;
    println!("all installed after {:.1?}", began.elapsed());
    remove(&site).await?;
    println!("removed after {:.1?}", began.elapsed());
    read_metrics(&site.cluster, "default", "classic-controller", &process.metrics_url()).await?;
    ensure!(process.stop(), "it did not end by itself");

    let requests = of_account(site.cluster.audit()?, CLASSIC);
    named(&requests, "classic-controller")?;
    none_refused(&requests)?;
    let rights = granted(&documents, CLASSIC)?;
    least(&without_reads(&rights, READ_AFTER_A_CONFLICT)?, &requests, CLASSIC_UNUSED)?;
    let unnamed = unnamed(&rights, &requests);
    ensure!(
        unnamed.iter().all(|request| request == "list main.example.com/gadgets") && !unnamed.is_empty(),
        "no rule names the resource of these requests: {unnamed:#?}"
    );
    // what a plan made in the namespace with an account was made by the account
    let foreign: Vec<_> = requests
        .iter()
        .filter(|request| {
            request.namespace == SCOPED && request.acting_as.is_empty() && request.verb == "create"
        })
        .filter(|request| ["deployments", "serviceaccounts"].contains(&request.resource.as_str()))
        .collect();
    ensure!(foreign.is_empty(), "{foreign:#?}");
    rights_match_the_threat_model(&site).await
}

/// The rights that `docs/threat-model.md` lists for a compromised classic-controller.
async fn rights_match_the_threat_model(site: &Site) -> Result<()> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let reviews: Api<SubjectAccessReview> = Api::all(site.client.clone());
    for (verb, group, resource, subresource, expected) in [
        ("escalate", RBAC, "clusterroles", "", true),
        ("bind", RBAC, "clusterroles", "", true),
        ("create", RBAC, "clusterrolebindings", "", true),
        ("impersonate", "", "serviceaccounts", "", true),
        ("list", "example.com", "anythings", "", true),
        ("get", "", "secrets", "", true),
        ("create", "apps", "deployments", "", true),
        ("impersonate", "", "users", "", false),
        ("create", "", "pods", "", false),
        ("create", "", "pods", "exec", false),
        ("create", "", "serviceaccounts", "token", false),
        ("delete", "", "secrets", "", false),
        ("delete", "apiextensions.k8s.io", "customresourcedefinitions", "", false),
        ("get", "example.com", "anythings", "", false),
    ] {
        let review = json!({"spec": {
            "user": format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{CLASSIC}"),
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "default"},
        }});
        let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        ensure!(allowed == expected, "{verb} {group}/{resource}/{subresource}: allowed is {allowed}");
    }
    Ok(())
}

/// A catalog by template, a Subscription with Manual approval and a dependency, a plan that gives way to a newer version, an upgrade that
/// changes a definition, copies.
async fn install_and_upgrade(site: &Site) -> Result<()> {
    let image = site.serve("v1", &["0.9.0"]).await?;
    let template = image.replace(":v1", ":v{kube_major_version}");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": CLASSIC_NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eyJhdXRocyI6e319"}});
    let mut source = catalog(
        CLASSIC_NAMESPACE,
        &json!({"sourceType": "grpc", "image": "localhost:1/none:v0", "secrets": ["pull"],
        "updateStrategy": {"registryPoll": {"interval": "2s"}}}),
    );
    source["metadata"]["annotations"] = json!({"olm.catalogImageTemplate": template});
    site.apply(&[secret, source, group(MAIN, &json!({})), subscription(MAIN, MAIN, "Manual")]).await?;
    let superseded = site.pending_plan("main.v0.9.0").await?;
    site.serve("v1", &["1.0.0"]).await?;
    let plans: Api<InstallPlan> = site.api(MAIN);
    Wait::new(&plans, &superseded).within(LIMIT).to_be_gone().await?;
    site.approve("main.v1.0.0").await?;
    site.succeeded(MAIN, "main.v1.0.0").await?;
    site.succeeded(MAIN, "base.v1.0.0").await?;
    let (csvs, copies): (Api<ClusterServiceVersion>, Api<ClusterServiceVersion>) =
        (site.api(MAIN), site.api(SERVED));
    Wait::new(&copies, "main.v1.0.0").within(LIMIT).to_exist().await?;
    let webhooks = csvs.get("main.v1.0.0").await?.spec.webhook_definitions.into_iter().map(|webhook| {
        let mut webhook = json!(webhook);
        webhook["timeoutSeconds"] = json!(7);
        webhook
    });
    let webhooks: Vec<Value> = webhooks.collect();
    let edited = json!({"spec": {"webhookdefinitions": webhooks}});
    csvs.patch("main.v1.0.0", &PatchParams::default(), &Patch::Merge(edited)).await?;
    eventually("both webhooks have the timeout of the CSV", LIMIT, || async {
        let of = ListParams::default().labels("olm.owner=main.v1.0.0");
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(site.client.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(site.client.clone());
        let text = json!([validating.list(&of).await?.items, mutating.list(&of).await?.items]).to_string();
        ensure!(text.matches("\"timeoutSeconds\":7").count() == 2, "{text}");
        Ok(())
    })
    .await?;
    let operators: Api<Operator> = Api::all(site.client.clone());
    Wait::new(&operators, &format!("{MAIN}.{MAIN}")).within(LIMIT).to_exist().await?;
    let gadget = json!({"apiVersion": "main.example.com/v1", "kind": "Gadget", "metadata": {"name": "one", "namespace": MAIN},
        "spec": {"size": 1}});
    site.apply(&[gadget]).await?;

    site.serve("v1", &["1.0.0", "2.0.0"]).await?;
    site.approve("main.v2.0.0").await?;
    site.succeeded(MAIN, "main.v2.0.0").await?;
    let mut deployments =
        csvs.get("main.v2.0.0").await?.spec.install.spec.context("no strategy")?.deployments;
    deployments.retain(|deployment| deployment.name != "another");
    let mut deployments = json!(deployments);
    deployments[0]["spec"]["replicas"] = json!(2);
    let edited =
        json!({"spec": {"displayName": "edited", "install": {"spec": {"deployments": deployments}}}});
    csvs.patch("main.v2.0.0", &PatchParams::default(), &Patch::Merge(edited)).await?;
    let is_edited = |copy: &ClusterServiceVersion| copy.spec.display_name == "edited";
    Wait::new(&copies, "main.v2.0.0").within(LIMIT).until("is edited as its original", is_edited).await?;
    let running: Api<Deployment> = site.api(MAIN);
    Wait::new(&running, "another").within(LIMIT).to_be_gone().await?;
    let conditions: Api<OperatorCondition> = site.api(MAIN);
    let reported = json!({"spec": {"conditions": [{"type": "Upgradeable", "status": "False", "reason": "Busy", "message": "busy",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    conditions.patch("main.v2.0.0", &PatchParams::default(), &Patch::Merge(reported)).await?;
    let is_taken_over = |condition: &OperatorCondition| {
        condition.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
    };
    Wait::new(&conditions, "main.v2.0.0").within(LIMIT).until("has the condition", is_taken_over).await?;
    Ok(())
}

/// A proxy that is set when the Deployment is there.
async fn proxy_of_the_cluster(site: &Site) -> Result<()> {
    const ADDRESS: &str = "http://proxy.example.com:3128";
    let proxy = json!({"apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": {"name": "cluster"},
        "status": {"httpProxy": ADDRESS}});
    site.apply(&[proxy]).await?;
    let deployments: Api<Deployment> = site.api(MAIN);
    let has_proxy = |deployment: &Deployment| json!(deployment.spec).to_string().contains(ADDRESS);
    Wait::new(&deployments, "main-ctrl").within(LIMIT).until("has the proxy", has_proxy).await?;
    Ok(())
}

/// A Service that an operator makes itself.
async fn service_of_an_operator(site: &Site) -> Result<()> {
    const NAME: &str = "made-by-the-operator";
    let csvs: Api<ClusterServiceVersion> = site.api(MAIN);
    let uid = csvs.get("main.v2.0.0").await?.metadata.uid;
    let owner = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "main.v2.0.0", "uid": uid});
    let service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 443}]},
        "metadata": {"name": NAME, "namespace": MAIN, "labels": {"olm.managed": "true"}, "ownerReferences": [owner]}});
    site.apply(&[service]).await?;
    let services: Api<Service> = site.api(MAIN);
    let label = format!("operators.coreos.com/{MAIN}.{MAIN}");
    let is_component =
        |it: &Service| it.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(&label));
    Wait::new(&services, NAME).within(LIMIT).until("has the label of its operator", is_component).await?;
    Ok(())
}

/// The APIService and what stands behind it. (No container answers, so the CSV does not succeed.)
async fn aggregated_api(site: &Site) -> Result<()> {
    site.apply(&[group(SERVED, &json!({"targetNamespaces": []})), subscription(SERVED, SERVED, "Automatic")])
        .await?;
    let services: Api<APIService> = Api::all(site.client.clone());
    Wait::new(&services, "v1.served.example.com").within(LIMIT).to_exist().await?;
    let subscriptions: Api<Subscription> = site.api(SERVED);
    let configured = json!({"spec": {"config": {"annotations": {"example.com/note": "new"}}}});
    subscriptions.patch(SERVED, &PatchParams::default(), &Patch::Merge(configured)).await?;
    let is_annotated = |service: &APIService| {
        service.metadata.annotations.as_ref().is_some_and(|it| it.contains_key("example.com/note"))
    };
    Wait::new(&services, "v1.served.example.com").within(LIMIT).until("is annotated", is_annotated).await?;
    Ok(())
}

/// Installs in a namespace whose group names a service account.
async fn as_the_account_of_the_group(site: &Site) -> Result<()> {
    site.apply(&installer()).await?;
    let spec = json!({"serviceAccountName": "installer", "targetNamespaces": [SCOPED]});
    site.apply(&[group(SCOPED, &spec), subscription(SCOPED, BASE, "Automatic")]).await?;
    let subscriptions: Api<Subscription> = site.api(SCOPED);
    let has_plan = |subscription: &Subscription| {
        subscription.status.as_ref().is_some_and(|status| status.install_plan_ref.is_some())
    };
    Wait::new(&subscriptions, BASE).within(LIMIT).until("has a plan", has_plan).await?;
    let csvs: Api<ClusterServiceVersion> = site.api(SCOPED);
    Wait::new(&csvs, "base.v1.0.0").within(LIMIT).to_exist().await?;
    Ok(())
}

/// A catalog in a ConfigMap, which it then owns.
async fn config_map_catalog(site: &Site) -> Result<()> {
    let content = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "content", "namespace": SCOPED},
        "data": {"customResourceDefinitions": "[]", "clusterServiceVersions": "[]", "packages": "[]"}});
    let source = catalog(SCOPED, &json!({"sourceType": "configmap", "configMap": "content"}));
    site.apply(&[content, source]).await?;
    let maps: Api<ConfigMap> = site.api(SCOPED);
    let is_owned = |map: &ConfigMap| map.metadata.owner_references.as_ref().is_some_and(|it| !it.is_empty());
    Wait::new(&maps, "content").within(LIMIT).until("is owned by its catalog", is_owned).await?;
    Ok(())
}

/// Copies off, then everything away.
async fn remove(site: &Site) -> Result<()> {
    let copies: Api<ClusterServiceVersion> = site.api(SERVED);
    let config = json!({"apiVersion": "operators.coreos.com/v1", "kind": "OLMConfig", "metadata": {"name": "cluster"},
        "spec": {"features": {"disableCopiedCSVs": true}}});
    site.apply(&[config]).await?;
    Wait::new(&copies, "main.v2.0.0").within(LIMIT).to_be_gone().await?;
    let configs: Api<OlmConfig> = Api::all(site.client.clone());
    let has_status = |config: &OlmConfig| config.status.is_some();
    Wait::new(&configs, "cluster").within(LIMIT).until("has a status", has_status).await?;
    for namespace in [MAIN, SERVED, SCOPED] {
        let subscriptions: Api<Subscription> = site.api(namespace);
        let csvs: Api<ClusterServiceVersion> = site.api(namespace);
        let groups: Api<olm_api::classic::OperatorGroup> = site.api(namespace);
        subscriptions.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let names =
            csvs.list(&ListParams::default()).await?.items.into_iter().filter_map(|csv| csv.metadata.name);
        csvs.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        for name in names {
            Wait::new(&csvs, &name).within(LIMIT).to_be_gone().await?;
        }
        groups.delete("group", &DeleteParams::default()).await?;
    }
    let roles: Api<ClusterRole> = Api::all(site.client.clone());
    eventually("no role of a group is left", LIMIT, || async {
        let of_groups = ListParams::default().labels("olm.owner.kind=OperatorGroup");
        let left = roles.list(&of_groups).await?.items;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    let services: Api<APIService> = Api::all(site.client.clone());
    Wait::new(&services, "v1.served.example.com").within(LIMIT).to_be_gone().await?;
    let sources: Api<CatalogSource> = site.api(CLASSIC_NAMESPACE);
    sources.delete("sample", &DeleteParams::default()).await?;
    Ok(())
}
