//! A cold install: manifests, then both processes under their own service accounts, then a package from catalog to removal.
//!
//! They have the rights that the manifests grant. The audit log shows afterwards which of them were used, and that no request
//! was denied.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams, PropagationPolicy,
};
use olm_api::openshift::{CLUSTER_OPERATOR, ClusterOperator};
use olm_api::{ClusterCatalog, condition, labels, secret_types};
use olm_bundle::{SUPPORTED_KINDS, Scope, SupportedKind};
use olm_integration::extension::installed_version;
use olm_kit::{
    BundleImage, Cluster, Crd, Options, Process, Program, Registry, Request, SYSTEM_NAMESPACE, Stack, Wait,
    eventually,
};
use serde_json::{Value, json};

use crate::applied::container_args;
use crate::audit::beyond;
use crate::manifests::{apply, find, prepare, render};
use crate::rights::{granted, least, named, none_refused, of_account, unnamed, without_reads};
use crate::world::{LIMIT, World, current};

pub(crate) const CATALOGD: &str = "catalogd-controller-manager";
pub(crate) const CONTROLLER: &str = "operator-controller-controller-manager";
pub(crate) const REPORTER: &str = "cluster-operator-controller-manager";

/// What is different outside of a pod: addresses, and where CAs of registries are.
const OF_THE_POD: &[&str] =
    &["--metrics-bind-address", "--health-probe-bind-address", "--external-address", "--pull-cas-dir"];

/// Applies an overlay to a new cluster and starts both processes with its settings. Lives as long as the test program.
async fn installed(overlay: &str) -> Result<&'static Stack> {
    let options = Options { audit: true, ..Options::default() };
    let (mut cluster, registry) = tokio::try_join!(Cluster::start_with(&options), Registry::start())?;
    apply(&cluster, overlay)?;
    // so that objects whose owner is of one of the overlay's kinds are collected without delay
    cluster.plane().context("the control plane is another process's")?.restart_controllers().await?;
    let (catalogd, operator_controller) = start_programs(&cluster, &render(overlay)?).await?;
    let stack = Stack { catalogd, operator_controller, cluster_operator: None, registry, cluster };
    Ok(Box::leak(Box::new(stack)))
}

/// Starts catalogd and operator-controller as these manifests, which are applied, describe them.
pub(crate) async fn start_programs(cluster: &Cluster, documents: &[Value]) -> Result<(Process, Process)> {
    let catalogd = as_deployed(Program::catalogd(cluster)?, cluster, documents, CATALOGD).await?;
    let catalogd = catalogd.flag("--global-pull-secret", &format!("{SYSTEM_NAMESPACE}/pull-secret"));
    let controller = Program::operator_controller(cluster)?.without("--catalogd-cas-dir");
    let controller = as_deployed(controller, cluster, documents, CONTROLLER).await?;
    let controller = controller.flag("--tls-self-issued-names", "127.0.0.1");
    tokio::try_join!(catalogd.start(), controller.start())
}

/// The program with the Deployment's flags, under its service account.
pub(crate) async fn as_deployed(
    program: Program,
    cluster: &Cluster,
    documents: &[Value],
    deployment: &str,
) -> Result<Program> {
    let found = find(documents, "Deployment", deployment)?;
    let account =
        found["spec"]["template"]["spec"]["serviceAccountName"].as_str().context("no service account")?;
    let kubeconfig = cluster.kubeconfig_for_service_account(SYSTEM_NAMESPACE, account).await?;
    let flags = container_args(found).map(|arg| arg.split_once('=').unwrap_or((arg, "true")));
    let ours = flags.filter(|(name, _)| !OF_THE_POD.contains(name));
    let program = program.without("--tls-cert").without("--tls-key").kubeconfig(&kubeconfig);
    Ok(ours.fold(program, |program, (name, value)| program.flag(name, value)))
}

/// Version 1.0.0 has a webhook, 2.0.0 another Deployment; both have what `extras` makes for the package's name.
async fn package(stack: &'static Stack, extras: fn(&str) -> Vec<Value>) -> Result<World> {
    let world = World::on(stack, "cold").await?;
    let group = format!("{}.example.com", world.name);
    let account = format!("{}-sa", world.name);
    let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]});
    let bundle = |version: &str| -> BundleImage {
        let bundle = world
            .bundle(version)
            .crds([Crd::new("Gadget", &group)])
            .permissions([json!({"serviceAccountName": account, "rules": [rule("configmaps")]})])
            .cluster_permissions([json!({"serviceAccountName": account, "rules": [rule("nodes")]})]);
        extras(&world.name).into_iter().fold(bundle, BundleImage::extra)
    };
    let hook = |kind: &str, prefix: &str| {
        json!({"type": kind, "generateName": format!("{prefix}.{group}"), "deploymentName": format!("{}-ctrl", world.name),
            "containerPort": 443, "targetPort": 9443, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["gizmos"]}]})
    };
    let conversion = json!({"type": "ConversionWebhook", "generateName": format!("c.{group}"), "deploymentName": format!("{}-ctrl", world.name),
        "containerPort": 443, "targetPort": 9443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "conversionCRDs": [Crd::new("Gadget", &group).name()]});
    let first = bundle("1.0.0")
        .webhook(hook("ValidatingAdmissionWebhook", "v"))
        .webhook(hook("MutatingAdmissionWebhook", "m"))
        .webhook(conversion);
    let second = bundle("2.0.0").deployment("another");
    world.serve_chain([("1.0.0", first), ("2.0.0", second)]).await?;
    Ok(world)
}

/// The CA that a process publishes, PEM.
async fn authorities(cluster: &Cluster, process: &str) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    let published = maps.get(&format!("{process}-serving-cert")).await?.data.unwrap_or_default();
    published.get("ca.crt").cloned().context("no CA")
}

/// Fetches from a process, trusting the CA that it publishes; gives the status and the body.
async fn curl(cluster: &Cluster, process: &str, url: &str, token: Option<&str>) -> Result<(u16, String)> {
    let authorities = reqwest::Certificate::from_pem_bundle(authorities(cluster, process).await?.as_bytes())?;
    let client = reqwest::Client::builder().no_proxy().tls_certs_only(authorities).build()?;
    let request = token.into_iter().fold(client.get(url), |request, token| request.bearer_auth(token));
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

/// Catalog content under the URL that the catalog's status names.
async fn curl_the_catalog(world: &World) -> Result<()> {
    let catalogs: Api<ClusterCatalog> = Api::all(world.stack.cluster.client().await?);
    let catalog = catalogs.get(&world.name).await?;
    let base = catalog.status.and_then(|status| status.urls).context("no urls")?.base;
    let (code, content) = curl(&world.stack.cluster, "catalogd", &format!("{base}/api/v1/all"), None).await?;
    ensure!(code == 200 && content.contains(&format!("{}.v2.0.0", world.name)), "{code} {content}");
    // the label that extensions select by
    ensure!(catalog.metadata.labels.unwrap_or_default().get(labels::METADATA_NAME) == Some(&world.name));
    Ok(())
}

/// Metrics are for those who are bound to the role that the manifests have for it.
pub(crate) async fn read_metrics(
    cluster: &Cluster,
    namespace: &str,
    process: &str,
    address: &str,
) -> Result<()> {
    let role = format!("{process}-metrics-reader");
    let url = format!("{address}/metrics");
    let unbound = token_of(cluster, namespace, &role).await?;
    for (token, want) in [(None, 401), (Some(&unbound), 403)] {
        let (code, _) = curl(cluster, process, &url, token.map(String::as_str)).await?;
        ensure!(code == want, "{process}: expected {want}, got {code}");
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": format!("test-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": namespace}],
    });
    cluster.apply(&binding.to_string()).await?;
    cluster.until_may_get(&format!("system:serviceaccount:{namespace}:{role}"), "/metrics").await?;
    // the process remembers for 30 s that it refused the other token
    let bound = token_of(cluster, namespace, &role).await?;
    let (code, _) = curl(cluster, process, &url, Some(&bound)).await?;
    ensure!(code == 200, "{process}: expected 200, got {code}");
    Ok(())
}

/// A new token of a service account.
async fn token_of(cluster: &Cluster, namespace: &str, account: &str) -> Result<String> {
    let kubeconfig = cluster.kubeconfig_for_service_account(namespace, account).await?;
    let kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)
        .map_err(|problem| anyhow::anyhow!("{problem}"))?;
    Ok(kubeconfig["users"][0]["user"]["token"].as_str().context("no token")?.to_owned())
}

/// Removes extension and catalog and waits until both are gone, then stops both processes as a rollout does.
async fn remove(world: &World) -> Result<()> {
    let catalogs: Api<ClusterCatalog> = Api::all(world.stack.cluster.client().await?);
    world.extensions.delete(&world.name, &DeleteParams::default()).await?;
    Wait::new(&world.extensions, &world.name)
        .within(LIMIT)
        .log(world.stack.operator_controller.log())
        .to_be_gone()
        .await?;
    catalogs.delete(&world.name, &DeleteParams::default()).await?;
    Wait::new(&catalogs, &world.name).within(LIMIT).to_be_gone().await?;
    Ok(())
}

/// What catalogd may do and does not do here.
pub(crate) const CATALOGD_UNUSED: &[(&str, &str)] = &[
    ("get /serviceaccounts in olmv1-system", "only a process in a pod knows its own account"),
    ("list /serviceaccounts in olmv1-system", "as above"),
    ("watch /serviceaccounts in olmv1-system", "as above"),
];

#[tokio::test]
async fn install_takes_a_package_from_catalog_to_removal() -> Result<()> {
    let stack = installed("overlays/kubernetes").await?;
    pull_secret(&stack.cluster, "e30=").await?;
    let world = package(stack, |_| Vec::new()).await?;
    curl_the_catalog(&world).await?;
    world.install("1.0.0").await?;
    world.install("2.0.0").await?;
    read_metrics(&stack.cluster, &world.name, "catalogd", &stack.catalogd.metrics_url()).await?;
    let address = stack.operator_controller.metrics_url();
    read_metrics(&stack.cluster, &world.name, "operator-controller", &address).await?;
    // a reference that cannot be read is reported by an event
    world.catalog("localhost:1/nothing:v1").await?;
    world.catalog_progressing("Retrying", "").await?;
    pull_secret(&stack.cluster, "e30K").await?;
    remove(&world).await?;

    let documents = render("overlays/kubernetes")?;
    let requests = requests_until_renewal(&stack.cluster, CATALOGD).await?;
    named(&requests, "catalogd")?;
    none_refused(&requests)?;
    least(&granted(&documents, CATALOGD)?, &requests, CATALOGD_UNUSED)?;
    let requests = requests_until_renewal(&stack.cluster, CONTROLLER).await?;
    named(&requests, "operator-controller")?;
    none_refused(&requests)?;
    let restricted = granted(&render("overlays/restricted")?, CONTROLLER)?;
    let used = beyond(&restricted, &requests);
    eprintln!("used as cluster-admin beyond what `restricted` grants: {used:#?}");
    ensure!(!used.is_empty(), "as cluster-admin it wrote nothing");
    let strange: Vec<_> = used
        .iter()
        .filter(|(resource, verbs)| {
            let writes = |verb: &String| ["create", "patch", "delete"].contains(&verb.as_str());
            !EXTENSIONS_ONLY.contains(&resource.as_str()) || !verbs.iter().all(writes)
        })
        .collect();
    ensure!(strange.is_empty(), "this is no part of a package: {strange:#?}");
    Ok(())
}

/// The requests of a program from its start on, with the first renewal of its lease.
async fn requests_until_renewal(cluster: &Cluster, account: &str) -> Result<Vec<Request>> {
    eventually("the lease is renewed", LIMIT, || async {
        let requests = of_account(cluster.audit()?, account);
        let renewed = requests.iter().any(|request| request.verb == "update" && request.resource == "leases");
        ensure!(renewed, "{account} has made {} requests, none of which renews its lease", requests.len());
        Ok(requests)
    })
    .await
}

/// What operator-controller writes as cluster-admin beyond the rights of `restricted`: what the package consists of.
pub(crate) const EXTENSIONS_ONLY: &[&str] = &[
    "/configmaps",
    "/serviceaccounts",
    "/services",
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "apiextensions.k8s.io/customresourcedefinitions",
    "apps/deployments",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/roles",
];

/// A pull secret without registries, changed by each call with other text.
async fn pull_secret(cluster: &Cluster, noise: &str) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull-secret", "namespace": SYSTEM_NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eyJhdXRocyI6e319", "noise": noise}});
    cluster.apply(&secret.to_string()).await?;
    Ok(())
}

/// What operator-controller may do under `restricted` and does not do here.
#[rustfmt::skip]
pub(crate) const CONTROLLER_UNUSED: &[(&str, &str)] = &[
    ("update olm.operatorframework.io/clusterextensions/finalizers", "asked for by an admission plugin that OpenShift switches on"),
    ("update olm.operatorframework.io/clusterobjectsets/finalizers", "as above"),
    ("create olm.operatorframework.io/clusterobjectsets", "an apply that creates is checked for it, but recorded as a patch"),
    ("list operators.coreos.com/clusterserviceversions", "where OLM Classic is installed"),
    ("watch operators.coreos.com/clusterserviceversions", "as above"),
];

/// An object of these, which are the content of bundles, is read past the caches only after a conflict, and while its revision has no
/// extension.
const READ_AFTER_A_CONFLICT: &[&str] = &[
    "/configmaps",
    "/services",
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "apps/deployments",
    "autoscaling.k8s.io/verticalpodautoscalers",
    "console.openshift.io/consoleclidownloads",
    "console.openshift.io/consolelinks",
    "console.openshift.io/consoleplugins",
    "console.openshift.io/consolequickstarts",
    "console.openshift.io/consoleyamlsamples",
    "monitoring.coreos.com/podmonitors",
    "monitoring.coreos.com/prometheusrules",
    "monitoring.coreos.com/servicemonitors",
    "networking.k8s.io/networkpolicies",
    "policy/poddisruptionbudgets",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/rolebindings",
    "scheduling.k8s.io/priorityclasses",
];

/// An object of each kind that a bundle may ship.
pub(crate) fn one_of_each_kind(package: &str) -> Vec<Value> {
    let kinds = SUPPORTED_KINDS.iter();
    let objects = kinds.map(|SupportedKind { kind, usual_api_version, .. }| {
        let role = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": format!("{package}-extra")});
        let members = match *kind {
            "ClusterRoleBinding" => json!({"roleRef": role("ClusterRole")}),
            "RoleBinding" => json!({"roleRef": role("Role")}),
            "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
            "PriorityClass" => json!({"value": 1}),
            "NetworkPolicy" => json!({"spec": {"podSelector": {}}}),
            "PodDisruptionBudget" => json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
            _ => json!({}),
        };
        let mut object = json!({"apiVersion": usual_api_version, "kind": kind, "metadata": {"name": format!("{package}-extra")}});
        object.as_object_mut().into_iter().for_each(|object| object.extend(members.as_object().cloned().unwrap_or_default()));
        object
    });
    objects.collect()
}

/// Makes the cluster serve the kinds that a bundle may ship and that Kubernetes lacks.
pub(crate) async fn serve_foreign_kinds(cluster: &Cluster) -> Result<()> {
    for SupportedKind { kind, usual_api_version, scope } in SUPPORTED_KINDS {
        let Some((group, _)) = usual_api_version.split_once('/') else { continue };
        if !["autoscaling.k8s.io", "console.openshift.io", "monitoring.coreos.com"].contains(&group) {
            continue;
        }
        let crd = Crd::new(kind, group);
        let crd = if *scope == Scope::Cluster { crd.cluster_scoped() } else { crd };
        let mut manifest = crd.manifest();
        manifest["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
        cluster.apply(&manifest.to_string()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn install_restricted_acts_as_extension_accounts_only() -> Result<()> {
    let stack = installed("overlays/restricted").await?;
    serve_foreign_kinds(&stack.cluster).await?;
    let world = package(stack, one_of_each_kind).await?;
    curl_the_catalog(&world).await?;
    world.want(json!({"version": "1.0.0"})).await?;
    let refused = world.progressing("Retrying", "this cluster installs nothing without one").await?;
    ensure!(refused.contains("this cluster installs nothing without one"), "{refused}");

    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": world.name}});
    stack.cluster.apply(&account.to_string()).await?;
    install_as_account(&world, "1.0.0").await?;
    webhook_certificates_are_made(&world).await?;
    make_custom_resource(&world).await?;
    // leaves the objects to an extension that comes later
    world.until_revisions_are_collected().await?;
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    world.extensions.delete(&world.name, &orphan).await?;
    world.gone().await?;
    ensure!(!world.revisions().await?.is_empty(), "the revisions went with their extension");
    install_as_account(&world, "1.0.0").await?;
    install_as_account(&world, "2.0.0").await?;
    // back
    install_as_account(&world, "1.0.0").await?;
    webhook_certificates_are_made(&world).await?;
    let address = stack.operator_controller.metrics_url();
    read_metrics(&stack.cluster, &world.name, "operator-controller", &address).await?;
    leave_content(&world).await?;
    remove(&world).await?;
    ensure!(world.revisions().await?.is_empty(), "revisions are left");

    let requests = requests_until_renewal(&stack.cluster, CONTROLLER).await?;
    named(&requests, "operator-controller")?;
    none_refused(&requests)?;
    let rights = granted(&render("overlays/restricted")?, CONTROLLER)?;
    least(&without_reads(&rights, READ_AFTER_A_CONFLICT)?, &requests, CONTROLLER_UNUSED)?;
    let gadgets = format!("list {}.example.com/gadgets", world.name);
    let unnamed = unnamed(&rights, &requests);
    ensure!(
        unnamed == BTreeSet::from([gadgets]),
        "no rule names the resource of these requests: {unnamed:#?}"
    );
    // whatever an extension consists of was written by its account
    let foreign = requests.iter().filter(|request| {
        request.writes()
            && request.namespace != SYSTEM_NAMESPACE
            && request.acting_as.is_empty()
            && ["deployments", "configmaps", "roles", "services"].contains(&request.resource.as_str())
    });
    let foreign: Vec<_> = foreign.collect();
    ensure!(foreign.is_empty(), "{foreign:#?}");
    controller_rights_match_the_threat_model(&stack.cluster).await
}

/// Asks for the version, and gives the account `installer` the roles that `kubectl olm rbac` prints.
async fn install_as_account(world: &World, version: &str) -> Result<()> {
    let catalog = json!({"version": version, "upgradeConstraintPolicy": "SelfCertified"});
    world.want_with(json!({"serviceAccount": {"name": "installer"}}), catalog).await?;
    let extension = world
        .until("lacks rights or has the version", |extension| {
            let ready =
                current(extension, condition::READY).is_some_and(|ready| ready.status.as_str() == "True");
            lacks_rights(extension) || (ready && installed_version(extension) == Some(version))
        })
        .await?;
    if lacks_rights(&extension) {
        let authorities = authorities(&world.stack.cluster, "catalogd").await?;
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("ca.crt"), authorities)?;
        world.stack.cluster.apply(&world.stack.roles(&world.name, Some(dir.path())).await?).await?;
    }
    world.installed(version).await.map(|_| ())
}

/// A content Secret as a controller leaves it that dies before it has made the revision.
async fn leave_content(world: &World) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": secret_types::OBJECT_DATA, "immutable": true,
        "metadata": {"name": format!("{}-9-0123456789abcdef", world.name), "namespace": SYSTEM_NAMESPACE, "labels": {
            (labels::OWNER_NAME): world.name, (labels::REVISION_NAME): format!("{}-9", world.name)}},
    });
    world.stack.cluster.apply(&secret.to_string()).await?;
    Ok(())
}

/// An object of the kind that the package's CRD defines.
async fn make_custom_resource(world: &World) -> Result<()> {
    let gadget = json!({"apiVersion": format!("{}.example.com/v1", world.name), "kind": "Gadget",
        "metadata": {"name": "gadget", "namespace": world.name}, "spec": {"size": 1}});
    world.stack.cluster.apply(&gadget.to_string()).await?;
    Ok(())
}

/// The rights that `docs/threat-model.md` lists for a compromised controller under `restricted`.
async fn controller_rights_match_the_threat_model(cluster: &Cluster) -> Result<()> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    const ADMISSION: &str = "admissionregistration.k8s.io";
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client().await?);
    for (verb, group, resource, subresource, expected) in [
        ("impersonate", "", "serviceaccounts", "", true),
        ("list", "example.com", "anythings", "", true),
        ("create", "", "secrets", "", true),
        ("get", "", "secrets", "", true),
        ("patch", ADMISSION, "mutatingwebhookconfigurations", "", true),
        ("patch", "apiextensions.k8s.io", "customresourcedefinitions", "", true),
        ("create", ADMISSION, "mutatingwebhookconfigurations", "", false),
        ("create", "apiextensions.k8s.io", "customresourcedefinitions", "", false),
        ("get", "example.com", "anythings", "", false),
        ("get", "", "pods", "exec", false),
        ("create", "", "pods", "exec", false),
        ("get", "", "pods", "attach", false),
        ("get", "", "pods", "portforward", false),
        ("get", "", "pods", "proxy", false),
        ("get", "", "services", "proxy", false),
        ("get", "", "nodes", "proxy", false),
        ("create", "", "pods", "", false),
        ("create", "", "serviceaccounts", "token", false),
        ("impersonate", "", "users", "", false),
        ("impersonate", "", "groups", "", false),
        ("create", RBAC, "clusterrolebindings", "", false),
        ("update", RBAC, "clusterroles", "", false),
        ("escalate", RBAC, "clusterroles", "", false),
        ("bind", RBAC, "clusterroles", "", false),
    ] {
        let review = json!({"spec": {
            "user": format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{CONTROLLER}"),
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "default"},
        }});
        let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        ensure!(allowed == expected, "{verb} {group}/{resource}/{subresource}: allowed is {allowed}");
    }
    // Kubernetes fills a Secret of this type with a token of the account that it names
    let kubeconfig = cluster.kubeconfig_for_service_account(SYSTEM_NAMESPACE, CONTROLLER).await?;
    let secrets: Api<Secret> = Api::namespaced(Cluster::client_from(&kubeconfig).await?, "default");
    let secret = json!({"metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let has_token = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data.contains_key("token"));
    Wait::new(&secrets, "token").within(LIMIT).until("holds a token", has_token).await?;
    Ok(())
}

fn lacks_rights(extension: &olm_api::ClusterExtension) -> bool {
    current(extension, condition::PROGRESSING).is_some_and(|found| found.message.contains("lacks rights"))
}

/// Issued, and published to all callers of webhooks; the next version has no webhook.
async fn webhook_certificates_are_made(world: &World) -> Result<()> {
    let client = world.stack.cluster.client().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &world.name);
    Wait::new(&secrets, &format!("{}-ctrl-service-cert", world.name)).within(LIMIT).to_exist().await?;
    let of = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, world.name));
    for (group, kind) in [
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        eventually(&format!("{kind} has a caBundle"), LIMIT, || async {
            let found = serde_json::to_string(&api.list(&of).await?.items)?;
            ensure!(found.contains("\"caBundle\""), "{found}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn cluster_operator_reports_with_the_rights_of_its_manifests() -> Result<()> {
    let cluster = Cluster::start_with(&Options { audit: true, ..Options::default() }).await?;
    prepare(&cluster).await?;
    cluster.install_openshift_kinds().await?;
    cluster.install_classic().await?;
    cluster.set_openshift_version("4.19.3").await?;
    apply(&cluster, "overlays/openshift")?;
    let documents = render("overlays/openshift")?;
    let program = as_deployed(Program::cluster_operator(&cluster)?, &cluster, &documents, REPORTER).await?;
    let mut process = program.flag("--tls-self-issued-names", "127.0.0.1").start().await?;
    let operators: Api<ClusterOperator> = Api::all(cluster.client().await?);
    Wait::new(&operators, CLUSTER_OPERATOR)
        .within(LIMIT)
        .log(process.log())
        .until("has conditions", |operator: &ClusterOperator| {
            operator.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
        })
        .await?;
    read_metrics(&cluster, "default", "cluster-operator", &process.metrics_url()).await?;
    ensure!(process.stop(), "it did not end by itself");
    let requests = of_account(cluster.audit()?, REPORTER);
    named(&requests, "cluster-operator")?;
    none_refused(&requests)?;
    least(&granted(&documents, REPORTER)?, &requests, &[])
}

/// Scrapes as Prometheus does with the ServiceMonitors: the token and the CA are those that they name.
#[tokio::test]
async fn service_monitors_have_a_token_that_reads_metrics() -> Result<()> {
    let stack = installed("overlays/kubernetes").await?;
    let cluster = &stack.cluster;
    prepare(cluster).await?;
    apply(cluster, "options/prometheus")?;
    cluster
        .until_may_get(&format!("system:serviceaccount:{SYSTEM_NAMESPACE}:metrics-reader"), "/metrics")
        .await?;
    let (installed, monitors) = (render("overlays/kubernetes")?, render("options/prometheus")?);
    let secrets: Api<Secret> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    for process in [&stack.catalogd, &stack.operator_controller] {
        let name = process.name();
        let monitor = find(&monitors, "ServiceMonitor", &format!("{name}-metrics-monitor"))?;
        let endpoint = &monitor["spec"]["endpoints"][0];
        let service = find(&installed, "Service", &format!("{name}-service"))?;
        let selector = monitor["spec"]["selector"]["matchLabels"].as_object().context("no selector")?;
        ensure!(
            selector.iter().all(|(key, value)| service["metadata"]["labels"][key] == *value),
            "{service}"
        );
        let selects = |other: &&Value| {
            other["kind"] == "Service"
                && selector.iter().all(|(key, value)| other["metadata"]["labels"][key] == *value)
        };
        ensure!(installed.iter().filter(selects).count() == 1, "{name}: another Service is selected, too");
        let ports = service["spec"]["ports"].as_array().context("no ports")?;
        ensure!(
            ports.iter().any(|port| port["name"] == endpoint["port"]),
            "{name}: no such port: {endpoint}"
        );
        let host = format!("{name}-service.{SYSTEM_NAMESPACE}.svc");
        ensure!(endpoint["tlsConfig"]["serverName"] == host, "{name}: {endpoint}");
        let authority = json!({"configMap": {"name": format!("{name}-serving-cert"), "key": "ca.crt"}});
        ensure!(endpoint["tlsConfig"]["ca"] == authority, "{name}: {endpoint}");

        let credentials = &endpoint["authorization"]["credentials"];
        let (secret, key) = (credentials["name"].as_str(), credentials["key"].as_str());
        let (secret, key) = (secret.context("no Secret")?, key.context("no key")?);
        let token = eventually("Kubernetes writes the token", LIMIT, || async {
            let data = secrets.get(secret).await?.data.unwrap_or_default();
            Ok(String::from_utf8(data.get(key).context("no token")?.0.clone())?)
        })
        .await?;
        let url = format!("{}/metrics", process.metrics_url());
        let (code, text) = curl(cluster, name, &url, Some(&token)).await?;
        ensure!(
            code == 200 && text.contains("\nolm_serving_certificate_expiry_timestamp_seconds "),
            "{name}: {code} {text}"
        );
    }
    Ok(())
}
