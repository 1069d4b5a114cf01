//! Objects of the Go implementation that are in the way of olm-rs, or warn of what does not hold for it.
//!
//! Rule: catalogd §11.7, operator-controller §8.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;

use crate::failure::CommandError;

/// The name of the webhook configuration.
const WEBHOOK: &str = "catalogd-mutating-webhook-configuration";
/// The name of the policy, and of its binding.
const POLICY: &str = "clusterextension-serviceaccount-deprecated";

/// An object that is removed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Leftover {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) why: &'static str,
    #[serde(skip)]
    resource: ApiResource,
    #[serde(skip)]
    live: DynamicObject,
}

/// Those that are in the cluster.
pub(super) async fn read(client: &Client) -> Result<Vec<Leftover>, CommandError> {
    let webhook = "its failure policy is Fail, and nothing answers: each new ClusterCatalog is rejected";
    let policy = "it warns that spec.serviceAccount is ignored; here objects are written as that account";
    let all = [
        // the binding first: without its policy it is an error of the apiserver
        (resource::<ValidatingAdmissionPolicyBinding>(), POLICY, policy),
        (resource::<ValidatingAdmissionPolicy>(), POLICY, policy),
        (resource::<MutatingWebhookConfiguration>(), WEBHOOK, webhook),
    ];
    let mut found = Vec::new();
    for ((kind, resource), name, why) in all {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let live = api.get_opt(name).await;
        let live =
            live.map_err(|error| CommandError::from_request(&format!("read {}", resource.plural), &error))?;
        found.extend(live.map(|live| Leftover { kind, name, why, resource, live }));
    }
    Ok(found)
}

fn resource<K: Resource<DynamicType = ()> + k8s_openapi::Resource>() -> (&'static str, ApiResource) {
    (<K as k8s_openapi::Resource>::KIND, ApiResource::erase::<K>(&()))
}

impl Leftover {
    /// The object as a manifest that creates it again.
    pub(super) fn manifest(&self) -> DynamicObject {
        let mut object = self.live.clone();
        object.types = Some(kube::api::TypeMeta {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
        });
        let metadata = &mut object.metadata;
        metadata.managed_fields = None;
        metadata.resource_version = None;
        metadata.uid = None;
        metadata.generation = None;
        metadata.creation_timestamp = None;
        object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
        if let Some(data) = object.data.as_object_mut() {
            data.remove("status");
        }
        object
    }

    /// Deletes the object that was read.
    pub(super) async fn delete(&self, client: &Client) -> Result<(), CommandError> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.resource);
        let preconditions = Preconditions { uid: self.live.uid(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(self.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => {
                let doing = format!("delete {} {:?}", self.kind, self.name);
                Err(CommandError::from_request(&doing, &error))
            }
        }
    }
}
