//! The ownership of a webhook certificate's Secret. Pure.
//!
//! The form of the certificate in it belongs to [`olm_certificates::secret`]. The Secret belongs to the extension, so that the
//! garbage collector deletes it when the extension is gone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use olm_api::{field_managers, labels};
use olm_bundle::WebhookCertificate;
use olm_certificates::Ownership;
use olm_certificates::secret::TYPE;
use olm_install::desired::owner as owner_reference;
use serde_json::{Value, json};

/// cert-manager's annotation on the Secrets that it fills: the DNS names of the certificate.
const CERT_MANAGER_NAMES: &str = "cert-manager.io/alt-names";
/// The service CA's annotations on the Secrets that it fills: the Service of the certificate.
const SERVICE_CA_SERVICE: [&str; 2] = [
    "service.beta.openshift.io/originating-service-name",
    "service.alpha.openshift.io/originating-service-name",
];

/// The extension that owns a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub name: String,
    pub uid: String,
}

/// Whether and how the Secret may be written for this certificate. `unread` is why the content of a revision cannot be read: that one may
/// need the certificate of another provider.
#[must_use]
pub fn ownership(
    secret: &Secret,
    owner: &Owner,
    certificate: &WebhookCertificate,
    unread: Option<&str>,
) -> Ownership {
    let owners = secret.owner_references();
    let is_owned = owners.iter().any(|owner_ref| owner_ref.uid == owner.uid);
    let other =
        owners.iter().find(|owner_ref| owner_ref.controller == Some(true) && owner_ref.uid != owner.uid);
    let title = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
    if let Some(other) = other {
        if other.kind == labels::OWNER_KIND_CLUSTER_EXTENSION && other.name == owner.name {
            return Ownership::Foreign(format!(
                "Secret {title} belongs to another ClusterExtension {:?}, with the UID {}; the garbage collector deletes it if that \
                 one is gone, for example after a restore; else delete it, so that a new certificate can be written",
                other.name, other.uid
            ));
        }
        return Ownership::Foreign(format!(
            "Secret {title} is controlled by {} {:?}; delete it or that object, so that webhook certificates can be written to it",
            other.kind, other.name
        ));
    }
    let is_marked = || labels(owner).iter().all(|(key, value)| secret.labels().get(key) == Some(value));
    match (secret.immutable == Some(true), is_owned) {
        (true, true) => Ownership::Immutable,
        (true, false) => Ownership::Foreign(format!(
            "Secret {title} is immutable; delete it, so that webhook certificates can be written to it"
        )),
        (false, true) if is_marked() => Ownership::Own,
        (false, true) => Ownership::Unmarked,
        (false, false) if is_empty(secret) || is_issued(secret, owner) => Ownership::Unmarked,
        (false, false) if is_of_other_provider(secret, certificate) => match unread {
            None => Ownership::Unmarked,
            Some(unread) => Ownership::Unknown(format!(
                "Secret {title} may still be needed with the certificate of its provider: {unread}"
            )),
        },
        (false, false) => Ownership::Foreign(format!(
            "Secret {title} holds no webhook certificate of this extension; delete or rename it: the certificate of \
             Service {:?} takes its name",
            certificate.service
        )),
    }
}

/// Whether the Secret waits to be filled: there is nothing in it to lose.
fn is_empty(secret: &Secret) -> bool {
    let fillable = matches!(secret.type_.as_deref(), None | Some("" | "Opaque" | TYPE));
    fillable && secret.data.iter().flatten().all(|(_, value)| value.0.is_empty())
}

/// Whether this issuer wrote the Secret, for this extension or one that had its name: by the mark, or by the field manager.
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

/// The labels and owners that the Secret gets; other owners of what is `present` stay.
#[must_use]
pub fn marks(owner: &Owner, present: Option<&Secret>) -> ObjectMeta {
    let present = present.map(|secret| secret.owner_references()).unwrap_or_default();
    let others = present.iter().filter(|owner_ref| owner_ref.uid != owner.uid).cloned();
    let reference = OwnerReference { block_owner_deletion: None, ..owner_reference(&owner.name, &owner.uid) };
    ObjectMeta {
        labels: Some(labels(owner)),
        owner_references: Some(others.chain([reference]).collect()),
        ..ObjectMeta::default()
    }
}

/// The merge patch that takes the extension off the owners, so that the Secret stays when the extension goes.
#[must_use]
pub fn orphan(secret: &Secret, uid: &str) -> Value {
    let others: Vec<_> = secret.owner_references().iter().filter(|one| one.uid != uid).collect();
    json!({"metadata": {"resourceVersion": secret.resource_version(), "ownerReferences": others}})
}

fn labels(owner: &Owner) -> BTreeMap<String, String> {
    [
        (labels::OWNER_KIND, labels::OWNER_KIND_CLUSTER_EXTENSION),
        (labels::OWNER_NAME, &owner.name),
        (labels::WEBHOOK_CERTIFICATE, labels::WEBHOOK_CERTIFICATE_BUILT_IN),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::jiff::SignedDuration;
    use olm_certificates::plan::CertificateState;
    use olm_certificates::secret::{created, patch};
    use olm_certificates::testing::{NOW, generation, patched, spec};

    use super::*;

    fn owner() -> Owner {
        Owner { name: "demo".to_owned(), uid: "u1".to_owned() }
    }

    fn state() -> CertificateState {
        let current = generation(NOW, SignedDuration::from_hours(1));
        CertificateState { current, next: None, previous: String::new() }
    }

    fn own() -> Secret {
        created(&spec(), marks(&owner(), None), &state())
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
        word_beside(None, secret)
    }

    fn word_beside(unread: Option<&str>, secret: &Secret) -> &'static str {
        match ownership(secret, &owner(), &certificate(), unread) {
            Ownership::Own => "own",
            Ownership::Unmarked => "unmarked",
            Ownership::Immutable => "immutable",
            Ownership::Foreign(_) => "foreign",
            Ownership::Unknown(_) => "unknown",
        }
    }

    #[test]
    #[rustfmt::skip]
    fn secret_ownership() {
        let reference = |controller: Option<bool>| OwnerReference {
            uid: "u0".to_owned(),
            kind: "Certificate".to_owned(),
            name: "c".to_owned(),
            controller,
            ..OwnerReference::default()
        };
        for (case, change, want) in [
            ("as created", (|_, _| {}) as fn(&mut Secret, OwnerReference), "own"),
            ("no labels", |secret, _| secret.metadata.labels = None, "unmarked"),
            ("no owners", |secret, _| secret.metadata.owner_references = None, "unmarked"),
            ("immutable", |secret, _| secret.immutable = Some(true), "immutable"),
            ("immutable without owners", |secret, _| (secret.immutable, secret.metadata.owner_references) = (Some(true), None), "foreign"),
            ("another owner", |secret, owner| secret.metadata.owner_references = Some(vec![owner]), "unmarked"),
        ] {
            let mut secret = own();
            change(&mut secret, reference(None));
            assert_eq!(word(&secret), want, "{case}");
            // what may be written is marked then
            if want == "unmarked" {
                let patch = patch(&spec(), &secret, marks(&owner(), Some(&secret)), &state());
                assert_eq!(word(&patched(&secret, &patch)), "own", "{case}");
            }
        }
        let mut secret = own();
        secret.metadata.owner_references = Some(vec![reference(Some(true))]);
        assert_eq!(word(&secret), "foreign");
        // restored from a backup: every mark is ours, the owner has another UID
        let mut restored = own();
        restored.metadata.owner_references.as_mut().unwrap()[0].uid = "u0".to_owned();
        let Ownership::Foreign(message) = ownership(&restored, &owner(), &certificate(), None) else {
            panic!("it is taken over");
        };
        assert!(message.contains("another ClusterExtension \"demo\", with the UID u0"), "{message}");
    }

    /// A Service is renamed so that the name of its Secret is that of a Secret which is there.
    #[test]
    fn secret_of_another_service_is_not_taken_over() {
        let renamed = WebhookCertificate {
            service: "renamed".to_owned(),
            dns_names: vec!["renamed.ns".to_owned(), "renamed.ns.svc".to_owned()],
            ..certificate()
        };
        let annotated = |annotations: Value| -> Secret {
            serde_json::from_value(json!({
                "metadata": {"namespace": "ns", "name": "hook-service-cert", "annotations": annotations}, "type": TYPE,
                "data": {"tls.crt": ByteString(b"crt".to_vec()), "tls.key": ByteString(b"key".to_vec())},
            }))
            .unwrap()
        };
        for annotations in [
            json!({CERT_MANAGER_NAMES: "hook-service.ns,hook-service.ns.svc"}),
            json!({(SERVICE_CA_SERVICE[0]): "hook-service"}),
            json!({}),
        ] {
            let secret = annotated(annotations.clone());
            let found = ownership(&secret, &owner(), &renamed, None);
            assert!(matches!(found, Ownership::Foreign(_)), "{annotations}");
        }
    }

    #[test]
    #[rustfmt::skip]
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
            ("waits for another controller", secret("kubernetes.io/service-account-token", "", json!({})), "foreign"),
            ("marked, kept on uninstall", labelled("demo", true, "kubectl"), "unmarked"),
            ("mark removed, written by the issuer", labelled("demo", false, issuer), "unmarked"),
            ("kept object of the same extension", labelled("demo", false, "kubectl"), "foreign"),
            ("certificate of another extension", labelled("other", true, issuer), "foreign"),
            ("cert-manager, same Service", annotated(CERT_MANAGER_NAMES, "x,hook-service.ns.svc"), "unmarked"),
            ("cert-manager, other Service", annotated(CERT_MANAGER_NAMES, "other.ns.svc"), "foreign"),
            ("service CA, same Service", annotated(SERVICE_CA_SERVICE[0], "hook-service"), "unmarked"),
            ("service CA, other Service", annotated(SERVICE_CA_SERVICE[1], "other"), "foreign"),
        ] {
            assert_eq!(word(&secret), want, "{case}");
            // the revision without content may need what another provider issued
            let is_of_provider = want == "unmarked" && case.contains("same Service");
            let want = if is_of_provider { "unknown" } else { want };
            assert_eq!(word_beside(Some("content not found"), &secret), want, "{case}, beside a revision without content");
        }
        let Ownership::Foreign(message) =
            ownership(&secret(TYPE, "key", json!({})), &owner(), &certificate(), None)
        else {
            panic!("it is taken");
        };
        assert!(
            message.contains("ns/hook-service-cert") && message.contains("delete or rename"),
            "{message}"
        );
    }

    #[test]
    fn secret_keeps_its_other_owners() {
        let mut secret = own();
        let other = OwnerReference { uid: "u2".to_owned(), ..OwnerReference::default() };
        secret.metadata.owner_references.as_mut().unwrap().push(other);
        let owners = |metadata: &Value| -> Vec<String> {
            let owners = metadata["ownerReferences"].as_array().unwrap();
            owners.iter().map(|owner| owner["uid"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(owners(&orphan(&secret, "u1")["metadata"]), ["u2"]);
        assert_eq!(owners(&json!(marks(&owner(), Some(&secret)))), ["u2", "u1"]);
    }
}
