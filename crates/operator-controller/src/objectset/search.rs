//! Finds the objects of a revision whose content is lost, by their owner references, among all kinds that the cluster
//! serves.
//!
//! Used only when a revision must be taken away and its Secrets are gone (rule: revisions §17 row 11); costs one metadata
//! listing for each kind.

use std::sync::Arc;

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Client, ResourceExt};
use olm_core::Object;
use olm_rollout::{Protection, Revision, field_names, phases};
use serde_json::json;

use super::content::{Inventory, Item};
use super::errors::text;

/// Objects that have the revision among their owners, laid out in phases by kind.
pub(super) async fn search(client: &Client, own: &Revision) -> Result<Arc<Inventory>, String> {
    let Some(extension) = &own.extension else { return Ok(Arc::default()) };
    let discovery = Discovery::new(client.clone())
        .run_aggregated()
        .await
        .map_err(|error| format!("discovering kinds: {}", text(&error)))?;
    let mut found = vec![];
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST)
                || !capabilities.supports_operation(verbs::DELETE)
            {
                continue;
            }
            let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
            let params =
                ListParams::default().labels(&format!("{}={extension}", olm_api::labels::OWNER_NAME));
            let list = match api.list(&params).await {
                Ok(list) => list,
                // without its CRDs, custom resources would not be deleted before the operator
                Err(error) if resource.kind == "CustomResourceDefinition" => {
                    return Err(format!("listing {}: {}", resource.plural, text(&error)));
                }
                Err(_) => continue,
            };
            for item in list.items {
                if !item.owner_references().iter().any(|owner| owner.uid == own.uid) {
                    continue;
                }
                let mut object = Object::from_value(json!({
                    "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": item.name_any()},
                }))
                .unwrap_or_default();
                if capabilities.scope == Scope::Namespaced {
                    object.set_namespace(&item.namespace().unwrap_or_default());
                }
                let content_secret =
                    resource.kind == "Secret" && item.labels().contains_key(olm_api::labels::REVISION_NAME);
                if !content_secret {
                    found.push(object);
                }
            }
        }
    }
    let phases = phases(found).map_err(|error| error.to_string())?;
    let item = |object: &Object| Item {
        key: object.key(),
        protection: Protection::Prevent,
        field_names: field_names(object),
    };
    Ok(Arc::new(Inventory {
        phases: phases
            .iter()
            .map(|phase| (phase.name.clone(), phase.objects.iter().map(item).collect()))
            .collect(),
    }))
}
