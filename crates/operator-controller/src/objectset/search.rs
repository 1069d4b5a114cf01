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
use olm_rollout::teardown::Reason;
use olm_rollout::{Protection, Revision, field_names, phases};
use serde_json::json;

use super::content::{Inventory, Item};
use super::errors::{is_code, is_finding, text};

/// Why objects that should stay hold up the deletion of their revision.
const NO_LABEL: &str = "its objects are to be kept, and cannot be found without the label \
                        olm.operatorframework.io/owner-name; restore its Secrets, or remove the annotation deletion-policy";

/// Objects that have the revision among their owners, laid out in phases by kind.
///
/// # Errors
/// When a kind cannot be listed now: the garbage collector would delete its objects with the revision, also those that should stay, and out
/// of order. A kind whose aggregated apiserver is down holds up only [`Reason::Keep`], and so does a revision without the owner label, whose
/// objects have none either.
pub(super) async fn search(
    client: &Client,
    own: &Revision,
    reason: Reason,
) -> Result<Arc<Inventory>, String> {
    let Some(extension) = &own.extension else {
        return match reason {
            Reason::Keep => Err(NO_LABEL.to_owned()),
            Reason::Archive | Reason::Delete => Ok(Arc::default()),
        };
    };
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
                Err(error) => {
                    let is_skipped = is_finding(&error) || reason != Reason::Keep && is_code(&error, 503);
                    // without its CRDs, custom resources would not be deleted before the operator
                    if is_skipped && resource.kind != "CustomResourceDefinition" {
                        continue;
                    }
                    return Err(format!("listing {}: {}", resource.plural, text(&error)));
                }
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::{Apiserver, failure};

    /// A cluster with ConfigMaps, whose listing is answered so.
    fn apiserver(listing: (u16, Value)) -> Apiserver {
        let kind = json!({"resource": "configmaps", "singularResource": "configmap", "scope": "Namespaced", "verbs": ["delete", "list"],
            "responseKind": {"group": "", "version": "v1", "kind": "ConfigMap"}});
        let group = json!({"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [kind]}]});
        let groups = |items: Vec<&Value>| {
            json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": items})
        };
        let (core, others) = (groups(vec![&group]), groups(vec![]));
        Apiserver::new(move |_, uri| match uri.split('?').next().unwrap_or_default() {
            "/api" => (200, core.clone()),
            "/apis" => (200, others.clone()),
            _ => listing.clone(),
        })
    }

    /// Found by simulation, seed 4941: an object that the user keeps went with the revision, because its kind could not be listed.
    #[tokio::test]
    async fn search_skips_no_kind_that_may_hold_objects() {
        let owner = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "name": "e-1", "uid": "u1"});
        let map = json!({"metadata": {"name": "a", "namespace": "n", "ownerReferences": [owner]}});
        let list = json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": [map]});
        let [api_version, kind, name, uid, extension] =
            [olm_api::API_VERSION, "ClusterObjectSet", "e-1", "u1", "e"].map(str::to_owned);
        let own = Revision { api_version, kind, name, uid, number: 1, extension: Some(extension) };
        for (case, listing, reason, want) in [
            ("listed", (200, list), Reason::Keep, Some(1)),
            ("no right", failure(403, "Forbidden"), Reason::Keep, Some(0)),
            ("not served any more", failure(404, "NotFound"), Reason::Keep, Some(0)),
            ("busy", failure(429, "TooManyRequests"), Reason::Delete, None),
            ("failed", failure(500, "InternalError"), Reason::Archive, None),
            (
                "aggregated apiserver down, delete",
                failure(503, "ServiceUnavailable"),
                Reason::Delete,
                Some(0),
            ),
            ("aggregated apiserver down, keep", failure(503, "ServiceUnavailable"), Reason::Keep, None),
        ] {
            let found = search(&apiserver(listing).client(), &own, reason).await;
            let count = found
                .as_ref()
                .ok()
                .map(|found| found.phases.iter().map(|(_, items)| items.len()).sum::<usize>());
            assert_eq!(count, want, "{case}: {:?}", found.err());
        }
    }

    /// The garbage collector would delete them: without the label they are not found.
    #[tokio::test]
    async fn search_without_a_label_deletes_no_kept_objects() {
        let [api_version, kind, name, uid] =
            [olm_api::API_VERSION, "ClusterObjectSet", "own", "u1"].map(str::to_owned);
        let own = Revision { api_version, kind, name, uid, number: 1, extension: None };
        let client = apiserver((500, json!({}))).client();
        for (reason, is_error) in [(Reason::Keep, true), (Reason::Delete, false), (Reason::Archive, false)] {
            assert_eq!(search(&client, &own, reason).await.is_err(), is_error, "{reason:?}");
        }
    }
}
