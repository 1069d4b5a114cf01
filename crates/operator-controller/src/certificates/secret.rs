//! The Secret of a webhook certificate: whose it is, how it is created and changed. Pure.
//!
//! How the certificate lies in it is [`olm_runtime::tls::issue::secret`]'s. The Secret belongs to the extension, so that the
//! garbage collector takes it when the extension is gone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use olm_api::{ClusterExtension, field_managers, labels};
use olm_bundle::WebhookCertificate;
use olm_runtime::tls::issue::secret::{bytes, changes};
use serde_json::{Value, json};

use super::needs::Place;
use super::plan::CertificateState;

pub use olm_runtime::tls::issue::secret::read;

const TYPE: &str = "kubernetes.io/tls";
/// cert-manager's annotation on the Secrets that it fills: the DNS names of the certificate.
const CERT_MANAGER_NAMES: &str = "cert-manager.io/alt-names";
/// The service CA's annotations on the Secrets that it fills: the Service of the certificate.
const SERVICE_CA_SERVICE: [&str; 2] = [
    "service.beta.openshift.io/originating-service-name",
    "service.alpha.openshift.io/originating-service-name",
];

/// Whose a Secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the extension.
    pub name: String,
    /// UID of the extension.
    pub uid: String,
}

/// What stands in the way of writing a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: it is ours and marked as such.
    Ours,
    /// Nothing, but it lacks our marks: it is empty, another provider filled it for the same Service, or marks were removed.
    Unmarked,
    /// It is ours, and cannot be changed: only deleted.
    Frozen,
    /// It holds something else, another controller has it, or it cannot be changed and is not ours; with the error message.
    Foreign(String),
}

/// Whether and how the Secret may be written for this certificate.
#[must_use]
pub fn standing(secret: &Secret, owner: &Owner, certificate: &WebhookCertificate) -> Standing {
    let owners = secret.owner_references();
    let ours = owners.iter().any(|one| one.uid == owner.uid);
    let other = owners.iter().find(|one| one.controller == Some(true) && one.uid != owner.uid);
    let place = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
    if let Some(other) = other {
        return Standing::Foreign(format!(
            "Secret {place} is controlled by {} {:?}; delete it or that object, so that webhook certificates can be written to it",
            other.kind, other.name
        ));
    }
    match (secret.immutable == Some(true), ours) {
        (true, true) => Standing::Frozen,
        (true, false) => Standing::Foreign(format!(
            "Secret {place} is immutable; delete it, so that webhook certificates can be written to it"
        )),
        (false, true)
            if marks(&owner.name).iter().all(|(key, value)| secret.labels().get(*key) == Some(value)) =>
        {
            Standing::Ours
        }
        (false, true) => Standing::Unmarked,
        (false, false)
            if is_empty(secret) || is_issued(secret, owner) || is_of_other_provider(secret, certificate) =>
        {
            Standing::Unmarked
        }
        (false, false) => Standing::Foreign(format!(
            "Secret {place} exists and holds no webhook certificate of this extension; delete or rename it, so that the \
             certificate of Service {:?} can be written under that name",
            certificate.service
        )),
    }
}

/// Whether the Secret waits to be filled: there is nothing in it to lose.
fn is_empty(secret: &Secret) -> bool {
    let fillable = matches!(secret.type_.as_deref(), None | Some("" | "Opaque" | TYPE));
    fillable && secret.data.iter().flatten().all(|(_, value)| value.0.is_empty())
}

/// Whether this issuer wrote the Secret, for this extension or one that had its name: the mark says so, or the field manager.
fn is_issued(secret: &Secret, owner: &Owner) -> bool {
    let is = |key: &str, value: &str| secret.labels().get(key).map(String::as_str) == Some(value);
    let managed = |manager: Option<&str>| manager == Some(field_managers::WEBHOOK_CERTIFICATES);
    is(labels::OWNER_NAME, &owner.name)
        && (is(labels::WEBHOOK_CERTIFICATE, labels::WEBHOOK_CERTIFICATE_BUILT_IN)
            || secret.managed_fields().iter().any(|entry| managed(entry.manager.as_deref())))
}

/// Whether cert-manager or the service CA filled the Secret for the same Service: the provider of the extension has changed.
fn is_of_other_provider(secret: &Secret, certificate: &WebhookCertificate) -> bool {
    let all = secret.annotations();
    let names = all.get(CERT_MANAGER_NAMES).into_iter().flat_map(|names| names.split(','));
    names.into_iter().any(|name| certificate.dns_names.iter().any(|ours| ours == name))
        || SERVICE_CA_SERVICE.iter().any(|key| all.get(*key) == Some(&certificate.service))
}

/// The Secret to create.
#[must_use]
pub fn fresh(place: &Place, owner: &Owner, stored: &CertificateState) -> Secret {
    Secret {
        metadata: kube::core::ObjectMeta {
            namespace: Some(place.0.clone()),
            name: Some(place.1.clone()),
            labels: Some(
                marks(&owner.name).into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            ),
            owner_references: Some(vec![reference(owner)]),
            ..kube::core::ObjectMeta::default()
        },
        type_: Some(TYPE.to_owned()),
        data: Some(bytes(stored)),
        ..Secret::default()
    }
}

/// The merge patch that makes `secret` hold `stored` and marks it as ours; refused if it changed meanwhile.
#[must_use]
pub fn patch(secret: &Secret, owner: &Owner, stored: &CertificateState) -> Value {
    let others = secret.owner_references().iter().filter(|one| one.uid != owner.uid).cloned();
    let owners: Vec<OwnerReference> = others.chain([reference(owner)]).collect();
    json!({
        "metadata": {
            "resourceVersion": secret.resource_version(),
            "labels": marks(&owner.name),
            "ownerReferences": owners,
        },
        "data": changes(secret, stored),
    })
}

/// The merge patch that takes the extension off the owners, so that the Secret stays when the extension goes.
#[must_use]
pub fn orphan(secret: &Secret, uid: &str) -> Value {
    let others: Vec<_> = secret.owner_references().iter().filter(|one| one.uid != uid).collect();
    json!({"metadata": {"resourceVersion": secret.resource_version(), "ownerReferences": others}})
}

fn marks(extension: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (labels::OWNER_KIND, labels::OWNER_KIND_CLUSTER_EXTENSION.to_owned()),
        (labels::OWNER_NAME, extension.to_owned()),
        (labels::WEBHOOK_CERTIFICATE, labels::WEBHOOK_CERTIFICATE_BUILT_IN.to_owned()),
    ])
}

fn reference(owner: &Owner) -> OwnerReference {
    OwnerReference {
        api_version: ClusterExtension::api_version(&()).into_owned(),
        kind: ClusterExtension::kind(&()).into_owned(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::jiff::SignedDuration;

    use super::*;
    use crate::certificates::testing::{NOW, generation};

    fn owner() -> Owner {
        Owner { name: "demo".to_owned(), uid: "u1".to_owned() }
    }

    fn stored(next: bool, previous: &str) -> CertificateState {
        let one = || generation(NOW, SignedDuration::from_hours(1));
        CertificateState { current: one(), next: next.then(one), previous: previous.to_owned() }
    }

    fn place() -> Place {
        ("ns".to_owned(), "hook-service-cert".to_owned())
    }

    fn patched(mut secret: Secret, patch: &Value) -> Secret {
        let data = secret.data.get_or_insert_default();
        for (key, value) in patch["data"].as_object().unwrap() {
            match serde_json::from_value::<Option<ByteString>>(value.clone()).unwrap() {
                Some(bytes) => data.insert(key.clone(), bytes),
                None => data.remove(key),
            };
        }
        secret.metadata.labels = serde_json::from_value(patch["metadata"]["labels"].clone()).unwrap();
        secret.metadata.owner_references =
            serde_json::from_value(patch["metadata"]["ownerReferences"].clone()).unwrap();
        secret
    }

    #[test]
    fn what_is_written_is_read() {
        let first = stored(false, "");
        let mut secret = fresh(&place(), &owner(), &first);
        assert_eq!(read(&secret), first);
        assert_eq!(word(&secret), "ours");
        for state in [stored(true, ""), stored(true, "old\n"), stored(false, "old\n"), first] {
            let patch = patch(&secret, &owner(), &state);
            secret = patched(secret, &patch);
            assert_eq!(read(&secret), state);
            assert_eq!(word(&secret), "ours");
        }
        assert_eq!(secret.data.unwrap().into_keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
        assert!(read(&Secret::default()).next.is_none());
    }

    fn certificate() -> WebhookCertificate {
        WebhookCertificate {
            deployment: "hook".to_owned(),
            namespace: "ns".to_owned(),
            service: "hook-service".to_owned(),
            secret: "hook-service-cert".to_owned(),
            dns_names: vec!["hook-service.ns".to_owned(), "hook-service.ns.svc".to_owned()],
            ca_targets: vec![],
        }
    }

    fn word(secret: &Secret) -> &'static str {
        match standing(secret, &owner(), &certificate()) {
            Standing::Ours => "ours",
            Standing::Unmarked => "unmarked",
            Standing::Frozen => "frozen",
            Standing::Foreign(_) => "foreign",
        }
    }

    #[test]
    fn whose_it_is() {
        let reference = |uid: &str, controller: Option<bool>| OwnerReference {
            uid: uid.to_owned(),
            kind: "Certificate".to_owned(),
            name: "c".to_owned(),
            controller,
            ..OwnerReference::default()
        };
        let ours = fresh(&place(), &owner(), &stored(false, ""));
        let with = |change: &dyn Fn(&mut Secret)| {
            let mut secret = ours.clone();
            change(&mut secret);
            word(&secret)
        };
        assert_eq!(with(&|_| {}), "ours");
        assert_eq!(with(&|secret| secret.metadata.labels = None), "unmarked");
        assert_eq!(with(&|secret| secret.metadata.owner_references = None), "unmarked");
        assert_eq!(
            with(&|secret| secret.metadata.owner_references = Some(vec![reference("u0", None)])),
            "unmarked"
        );
        assert_eq!(
            with(&|secret| secret.metadata.owner_references = Some(vec![reference("u0", Some(true))])),
            "foreign"
        );
        assert_eq!(with(&|secret| secret.immutable = Some(true)), "frozen");
        assert_eq!(
            with(&|secret| {
                secret.immutable = Some(true);
                secret.metadata.owner_references = None;
            }),
            "foreign"
        );
    }

    #[test]
    fn secret_without_owner_is_taken_only_if_nothing_is_lost() {
        let secret = |type_: &str, key: &str, metadata: Value| -> Secret {
            let mut secret = json!({
                "metadata": {"namespace": "ns", "name": "hook-service-cert"}, "type": type_,
                "data": {"tls.crt": ByteString(vec![]), "tls.key": ByteString(key.as_bytes().to_vec())},
            });
            secret["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
            serde_json::from_value(secret).unwrap()
        };
        let annotated = |key: &str, value: &str| secret(TYPE, "key", json!({"annotations": {key: value}}));
        let labelled = |name: &str, marked: bool, manager: &str| {
            let mut labels = json!({labels::OWNER_NAME: name});
            if marked {
                labels[labels::WEBHOOK_CERTIFICATE] = json!(labels::WEBHOOK_CERTIFICATE_BUILT_IN);
            }
            secret(TYPE, "key", json!({"labels": labels, "managedFields": [{"manager": manager}]}))
        };
        let issuer = field_managers::WEBHOOK_CERTIFICATES;
        for (case, secret, want) in [
            ("holds a key", secret(TYPE, "key", json!({})), "foreign"),
            ("holds a password", secret("Opaque", "password", json!({})), "foreign"),
            ("is empty", secret(TYPE, "", json!({})), "unmarked"),
            (
                "waits for another controller",
                secret("kubernetes.io/service-account-token", "", json!({})),
                "foreign",
            ),
            ("marked, kept on uninstall", labelled("demo", true, "kubectl"), "unmarked"),
            ("mark removed, written by the issuer", labelled("demo", false, issuer), "unmarked"),
            ("kept object of the same extension", labelled("demo", false, "kubectl"), "foreign"),
            ("certificate of another extension", labelled("other", true, issuer), "foreign"),
            (
                "cert-manager, same Service",
                annotated(CERT_MANAGER_NAMES, "x,hook-service.ns.svc"),
                "unmarked",
            ),
            ("cert-manager, other Service", annotated(CERT_MANAGER_NAMES, "other.ns.svc"), "foreign"),
            ("service CA, same Service", annotated(SERVICE_CA_SERVICE[0], "hook-service"), "unmarked"),
            ("service CA, other Service", annotated(SERVICE_CA_SERVICE[1], "other"), "foreign"),
        ] {
            assert_eq!(word(&secret), want, "{case}");
        }
        let Standing::Foreign(message) = standing(&secret(TYPE, "key", json!({})), &owner(), &certificate())
        else {
            panic!("it is taken");
        };
        assert!(
            message.contains("ns/hook-service-cert") && message.contains("delete or rename"),
            "{message}"
        );
    }

    #[test]
    fn letting_go_keeps_other_owners() {
        let mut secret = fresh(&place(), &owner(), &stored(false, ""));
        secret
            .metadata
            .owner_references
            .as_mut()
            .unwrap()
            .push(OwnerReference { uid: "u2".to_owned(), ..OwnerReference::default() });
        let left = orphan(&secret, "u1");
        assert_eq!(left["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
        assert_eq!(left["metadata"]["ownerReferences"][0]["uid"], "u2");
    }
}
