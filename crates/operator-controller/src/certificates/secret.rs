//! The Secret of a webhook certificate: whose it is, how it is created and changed. Pure.
//!
//! How the certificate lies in it is [`olm_runtime::tls::issue::secret`]'s. The Secret belongs to the extension, so that the
//! garbage collector takes it when the extension is gone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use olm_api::{ClusterExtension, labels};
use olm_runtime::tls::issue::secret::{bytes, changes};
use serde_json::{Value, json};

use super::needs::Place;
use super::plan::Stored;

pub use olm_runtime::tls::issue::secret::read;

const TYPE: &str = "kubernetes.io/tls";

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
    /// Nothing, but it does not say that it is ours.
    Unmarked,
    /// It is ours, and cannot be changed: only deleted.
    Frozen,
    /// Another controller has it, or it cannot be changed and is not ours; with the sentence for the user.
    Foreign(String),
}

/// Whether and how the Secret may be written.
#[must_use]
pub fn standing(secret: &Secret, owner: &Owner) -> Standing {
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
        (false, _) => Standing::Unmarked,
    }
}

/// The Secret to create.
#[must_use]
pub fn fresh(place: &Place, owner: &Owner, stored: &Stored) -> Secret {
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
pub fn patch(secret: &Secret, owner: &Owner, stored: &Stored) -> Value {
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

    fn stored(next: bool, previous: &str) -> Stored {
        let one = || generation(NOW, SignedDuration::from_hours(1));
        Stored { current: one(), next: next.then(one), previous: previous.to_owned() }
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
        assert_eq!(standing(&secret, &owner()), Standing::Ours);
        for state in [stored(true, ""), stored(true, "old\n"), stored(false, "old\n"), first] {
            let patch = patch(&secret, &owner(), &state);
            secret = patched(secret, &patch);
            assert_eq!(read(&secret), state);
            assert_eq!(standing(&secret, &owner()), Standing::Ours);
        }
        assert_eq!(secret.data.unwrap().into_keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
        assert!(read(&Secret::default()).next.is_none());
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
            match standing(&secret, &owner()) {
                Standing::Ours => "ours",
                Standing::Unmarked => "unmarked",
                Standing::Frozen => "frozen",
                Standing::Foreign(_) => "foreign",
            }
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
