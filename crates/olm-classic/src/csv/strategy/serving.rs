//! Objects around Deployments that serve webhooks or aggregated APIs: Service, Secret, the right to read it, webhook configurations,
//! conversion of CustomResourceDefinitions, APIServices.
//!
//! Certificates are issued elsewhere: the Secret here has no data.
//!
//! Rule: classic-apis §9.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::ClusterServiceVersion;
use olm_api::classic::cluster_service_version::{ApiServiceDescription, WebhookDescription};
use olm_core::{Object, digits};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::super::labels::{managed, namespace, refer_to_owner, set_owner, text};
use super::super::spec_hash;
use super::super::webhooks::CONVERSION;
use super::CA_HASH;

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_VERSION: &str = "rbac.authorization.k8s.io/v1";
const DEFAULT_PORT: i32 = 443;
/// The namespace with the Role that lets aggregated APIs read the configuration of authentication.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// Names of the Deployments that webhooks and owned APIServices name, whether or not the strategy has them.
#[must_use]
pub fn deployments(csv: &ClusterServiceVersion) -> BTreeSet<&str> {
    let webhooks = csv.spec.webhook_definitions.iter().map(|webhook| webhook.deployment_name.as_str());
    let services = csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned);
    webhooks.chain(services.map(|service| service.deployment_name.as_str())).collect()
}

/// The Service in front of a Deployment.
#[must_use]
pub fn service_name(deployment: &str) -> String {
    format!("{}-service", deployment.replace('.', "-"))
}

/// The CustomResourceDefinitions that the webhooks of a CSV convert, each with the Service that it calls.
#[must_use]
pub fn converted(csv: &ClusterServiceVersion) -> BTreeMap<&str, String> {
    let webhooks = csv.spec.webhook_definitions.iter().filter(|webhook| webhook.type_ == CONVERSION);
    let crds = webhooks.flat_map(|webhook| {
        let service = service_name(&webhook.deployment_name);
        webhook.conversion_crds.iter().map(move |crd| (crd.as_str(), service.clone()))
    });
    crds.collect()
}

/// The CustomResourceDefinitions that nothing converts when a CSV goes: those that it converts, and none of the others of its namespace.
#[must_use]
pub fn abandoned<'a>(
    csv: &'a ClusterServiceVersion,
    others: &[impl std::borrow::Borrow<ClusterServiceVersion>],
) -> BTreeMap<&'a str, String> {
    let mut found = converted(csv);
    for other in others.iter().map(std::borrow::Borrow::borrow) {
        let is_itself = other.metadata.name == csv.metadata.name;
        if !is_itself && other.metadata.deletion_timestamp.is_none() {
            found.retain(|crd, _| !converted(other).contains_key(crd));
        }
    }
    found
}

/// The hash of a CA, given as PEM.
#[must_use]
pub fn ca_hash(authority: &str) -> String {
    digits(&Sha256::digest(authority.as_bytes()), 16)
}

/// The Secret with the serving certificate of a Deployment.
#[must_use]
pub fn secret_name(deployment: &str) -> String {
    format!("{}-cert", service_name(deployment))
}

/// The objects around one Deployment: Service, Secret without data, Role and RoleBinding for the Secret, ClusterRoleBinding
/// `…-system:auth-delegator`, and RoleBinding `…-auth-reader` in `kube-system`. None for a Deployment that the strategy does not have.
///
/// `ca_hash` is the hash of the CA that issued the certificate.
#[must_use]
pub fn objects(csv: &ClusterServiceVersion, deployment: &str, ca_hash: &str) -> Vec<Object> {
    let mut strategy = csv.spec.install.spec.iter().flat_map(|strategy| &strategy.deployments);
    let Some(spec) = strategy.find(|it| it.name == deployment).map(|it| &it.spec) else { return vec![] };
    let (service, secret) = (service_name(deployment), secret_name(deployment));
    let account = spec.pointer("/template/spec/serviceAccountName").and_then(Value::as_str);
    let account = account.filter(|account| !account.is_empty()).unwrap_or("default");
    let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace(csv)}]);
    let role_ref = |kind: &str, name: &str| json!({"apiGroup": RBAC, "kind": kind, "name": name});
    let own = |api_version: &str, kind: &str, name: &str, members: Value| {
        let mut object = with_members(managed(api_version, kind, namespace(csv), name), members);
        refer_to_owner(&mut object, csv);
        object
    };
    let foreign = |kind: &str, namespace: &str, name: &str, members: Value| {
        let mut object = with_members(managed(RBAC_VERSION, kind, namespace, name), members);
        set_owner(&mut object, csv);
        object
    };
    let selector = spec.pointer("/selector/matchLabels").cloned().unwrap_or_else(|| json!({}));
    let secret_rule =
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret]}]);
    let mut certificate = own("v1", "Secret", &secret, json!({"type": "kubernetes.io/tls"}));
    certificate.set_annotation(CA_HASH, ca_hash);
    vec![
        own(
            "v1",
            "Service",
            &service,
            json!({"spec": {"ports": ports(csv, deployment), "selector": selector}}),
        ),
        certificate,
        own(RBAC_VERSION, "Role", &secret, json!({"rules": secret_rule})),
        own(
            RBAC_VERSION,
            "RoleBinding",
            &secret,
            json!({"subjects": subjects, "roleRef": role_ref("Role", &secret)}),
        ),
        foreign(
            "ClusterRoleBinding",
            "",
            &format!("{service}-system:auth-delegator"),
            json!({"subjects": subjects, "roleRef": role_ref("ClusterRole", "system:auth-delegator")}),
        ),
        foreign(
            "RoleBinding",
            SYSTEM_NAMESPACE,
            &format!("{service}-auth-reader"),
            json!({"subjects": subjects, "roleRef": role_ref("Role", "extension-apiserver-authentication-reader")}),
        ),
    ]
}

/// A place where a serving certificate is expected: volume, path, names of certificate and key.
const MOUNTS: [(&str, &str, &str, &str); 2] = [
    ("apiservice-cert", "/apiserver.local.config/certificates", "apiserver.crt", "apiserver.key"),
    ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs", "tls.crt", "tls.key"),
];

/// Mounts a Secret with a certificate in all containers of a pod. Volumes of the same name and mounts at the same path are replaced where they
/// are; a mount of the same name at another path stays.
pub(super) fn mount_certificate(pod: &mut Map<String, Value>, secret: &str) {
    for (volume, path, certificate, key) in MOUNTS {
        let items = json!([{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}]);
        let made = json!({"name": volume, "secret": {"secretName": secret, "items": items}});
        put(pod, "volumes", made, |other| (text(other, "name") == volume).then_some(true));
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            put(container, "volumeMounts", json!({"name": volume, "mountPath": path}), |other| {
                let is_same_path = text(other, "mountPath") == path;
                (is_same_path || text(other, "name") == volume).then_some(is_same_path)
            });
        }
    }
}

/// Puts an entry in the place of the first that `takes_place` knows, if that is to be replaced, or at the end if there is none.
fn put(
    parent: &mut Map<String, Value>,
    list: &str,
    entry: Value,
    takes_place: impl Fn(&Value) -> Option<bool>,
) {
    let list = parent.entry(list).or_insert(Value::Null);
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(entries) = list.as_array_mut() else { return };
    match entries.iter().enumerate().find_map(|(at, other)| Some((at, takes_place(other)?))) {
        Some((at, true)) => entries[at] = entry,
        Some((_, false)) => {}
        None => entries.push(entry),
    }
}

/// One port for each port that a webhook or APIService of the Deployment names.
fn ports(csv: &ClusterServiceVersion, deployment: &str) -> Vec<Value> {
    let webhooks =
        csv.spec.webhook_definitions.iter().filter(|webhook| webhook.deployment_name == deployment);
    let webhooks = webhooks.map(|webhook| (port(webhook.container_port), webhook.target_port.clone()));
    let services = csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned);
    let services = services.filter(|service| service.deployment_name == deployment);
    let services = services.map(|service| (port(service.container_port), None));
    let mut ports: BTreeMap<i32, Value> = BTreeMap::new();
    for (port, target) in webhooks.chain(services) {
        ports.entry(port).or_insert_with(|| target.unwrap_or_else(|| port.into()));
    }
    let port =
        |(port, target): (i32, Value)| json!({"name": port.to_string(), "port": port, "targetPort": target});
    ports.into_iter().map(port).collect()
}

fn port(port: Option<i32>) -> i32 {
    port.filter(|port| *port != 0).unwrap_or(DEFAULT_PORT)
}

/// The kind of the configuration of an admission webhook; `None` for one that converts.
#[must_use]
pub fn configuration_kind(webhook: &WebhookDescription) -> Option<&'static str> {
    match webhook.type_.as_str() {
        "ValidatingAdmissionWebhook" => Some("ValidatingWebhookConfiguration"),
        "MutatingAdmissionWebhook" => Some("MutatingWebhookConfiguration"),
        _ => None,
    }
}

/// The configuration of an admission webhook; `None` for one that converts. Its name is generated by the apiserver.
///
/// `namespaces` selects the target namespaces of the group (`{}` for all), `ca_bundle` is the CA in base64.
#[must_use]
pub fn webhook_configuration(
    csv: &ClusterServiceVersion,
    webhook: &WebhookDescription,
    namespaces: &Value,
    ca_bundle: &str,
) -> Option<Object> {
    let kind = configuration_kind(webhook)?;
    let mut entry = json!({
        "namespaceSelector": namespaces,
        "name": webhook.generate_name, "rules": webhook.rules, "sideEffects": webhook.side_effects,
        "admissionReviewVersions": webhook.admission_review_versions, "clientConfig": client(csv, webhook, ca_bundle),
    });
    let is_mutating = kind == "MutatingWebhookConfiguration";
    let optional = [
        ("failurePolicy", webhook.failure_policy.as_ref().map(|it| json!(it))),
        ("matchPolicy", webhook.match_policy.as_ref().map(|it| json!(it))),
        ("objectSelector", webhook.object_selector.as_ref().map(|it| json!(it))),
        ("timeoutSeconds", webhook.timeout_seconds.map(|it| json!(it))),
        (
            "reinvocationPolicy",
            webhook.reinvocation_policy.as_ref().filter(|_| is_mutating).map(|it| json!(it)),
        ),
    ];
    for (member, value) in optional {
        if let Some(value) = value {
            entry[member] = value;
        }
    }
    let mut object = managed("admissionregistration.k8s.io/v1", kind, "", "");
    object.metadata_mut().remove("name");
    object.metadata_mut().insert("generateName".to_owned(), format!("{}-", webhook.generate_name).into());
    set_owner(&mut object, csv);
    object.set_label("olm.webhook-description-generate-name", &webhook.generate_name);
    object.set_label("olm.webhook-description-hash", &spec_hash::webhook(&json!(webhook)));
    Some(with_members(object, json!({"webhooks": [entry]})))
}

/// `spec.conversion` of the CustomResourceDefinitions that a webhook converts; `None` for an admission webhook.
#[must_use]
pub fn conversion(
    csv: &ClusterServiceVersion,
    webhook: &WebhookDescription,
    ca_bundle: &str,
) -> Option<Value> {
    (webhook.type_ == CONVERSION).then(|| {
        json!({"strategy": "Webhook", "webhook": {
            "clientConfig": client(csv, webhook, ca_bundle),
            "conversionReviewVersions": webhook.admission_review_versions,
        }})
    })
}

/// The APIService of an owned aggregated API.
#[must_use]
pub fn api_service(
    csv: &ClusterServiceVersion,
    description: &ApiServiceDescription,
    ca_bundle: &str,
) -> Object {
    let ApiServiceDescription { group, version, .. } = description;
    let name = format!("{version}.{group}");
    let mut object = managed("apiregistration.k8s.io/v1", "APIService", "", &name);
    set_owner(&mut object, csv);
    let service = json!({
        "namespace": namespace(csv), "name": service_name(&description.deployment_name),
        "port": port(description.container_port),
    });
    let spec = json!({
        "group": group, "version": version, "service": service, "caBundle": ca_bundle,
        "groupPriorityMinimum": 2000, "versionPriority": 15,
    });
    with_members(object, json!({"spec": spec}))
}

fn client(csv: &ClusterServiceVersion, webhook: &WebhookDescription, ca_bundle: &str) -> Value {
    let mut service = json!({
        "namespace": namespace(csv), "name": service_name(&webhook.deployment_name),
        "port": port(webhook.container_port),
    });
    let path = webhook.webhook_path.as_deref().or((webhook.type_ == CONVERSION).then_some("/"));
    if let Some(path) = path {
        service["path"] = path.into();
    }
    json!({"service": service, "caBundle": ca_bundle})
}

fn with_members(mut object: Object, members: Value) -> Object {
    if let Value::Object(members) = members {
        object.0.extend(members);
    }
    object
}
