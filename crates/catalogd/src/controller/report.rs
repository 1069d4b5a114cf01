//! Events: what a user would ask about, once for each change of a condition's reason or message (decision 19).

use kube::Resource;
use olm_api::cluster_catalog::{ClusterCatalog, ClusterCatalogStatus};
use olm_api::condition::{self, Condition};
use olm_api::reason;
use olm_runtime::events::{Events, NewEvent};

/// Emits an event for each difference between the object's status and the new one.
pub(super) async fn status_changed(events: &Events, catalog: &ClusterCatalog, status: &ClusterCatalogStatus) {
    let about = catalog.object_ref(&());
    for event in status_events(catalog, status) {
        let StatusEvent { warning, reason, action, note } = &event;
        events.publish(&about, NewEvent { warning: *warning, reason, action, note }).await;
    }
}

/// Emits the event that the signature policy has accepted an image that is now served.
pub(super) async fn signer_accepted(
    events: &Events,
    catalog: &ClusterCatalog,
    reference: &str,
    signer: &str,
) {
    let note = format!("{reference} is signed by {signer}");
    let event = NewEvent { warning: false, reason: "SignatureVerified", action: "Verify", note: &note };
    events.publish(&catalog.object_ref(&()), event).await;
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct StatusEvent {
    warning: bool,
    reason: String,
    action: &'static str,
    pub(super) note: String,
}

pub(super) fn status_events(catalog: &ClusterCatalog, status: &ClusterCatalogStatus) -> Vec<StatusEvent> {
    let before = catalog.status.clone().unwrap_or_default();
    let mut events = Vec::new();
    let resolved = |status: &ClusterCatalogStatus| {
        status.resolved_source.as_ref().map(|source| source.image.reference.clone())
    };
    if let Some(reference) =
        resolved(status).filter(|reference| resolved(&before).as_ref() != Some(reference))
    {
        let note = format!("serving content of {reference}");
        events.push(StatusEvent { warning: false, reason: "Unpacked".to_owned(), action: "Unpack", note });
    }
    let changed = |type_: &str| {
        let words =
            |condition: &Condition| (condition.status, condition.reason.clone(), condition.message.clone());
        let now = condition::find(&status.conditions, type_)?;
        let then = condition::find(&before.conditions, type_);
        (then.map(words) != Some(words(now))).then(|| now.clone())
    };
    if let Some(now) = changed(condition::PROGRESSING)
        && (now.reason == reason::RETRYING || now.reason == reason::BLOCKED)
    {
        events.push(StatusEvent { warning: true, reason: now.reason, action: "Unpack", note: now.message });
    }
    // a catalog that was not served is not withdrawn
    if let Some(now) = changed(condition::SERVING)
        && now.reason != reason::AVAILABLE
        && condition::is_true(&before.conditions, condition::SERVING)
    {
        let warning = now.reason == reason::UNAVAILABLE && catalog.metadata.deletion_timestamp.is_none();
        let note = if now.message.is_empty() { "content is not served".to_owned() } else { now.message };
        events.push(StatusEvent { warning, reason: now.reason, action: "Withdraw", note });
    }
    events
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use olm_api::condition::ConditionStatus;
    use serde_json::json;

    use super::super::plan::Quarantine;
    use super::super::status::{Attempt, derive};
    use super::*;

    fn catalog(serving: Option<bool>) -> ClusterCatalog {
        let mut catalog: ClusterCatalog = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "c"},
            "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/c:1"}}},
        }))
        .unwrap();
        if let Some(serving) = serving {
            let reason = if serving { reason::AVAILABLE } else { reason::UNAVAILABLE };
            let (status, now) = (ConditionStatus::from(serving), Timestamp::UNIX_EPOCH);
            let condition = Condition::new(condition::SERVING, status, reason, "", None, now);
            condition::set(&mut catalog.status.get_or_insert_default().conditions, condition);
        }
        catalog
    }

    #[test]
    fn withdrawal_is_an_event_of_served_catalogs() {
        let failed = Attempt::Failed {
            message: "no such host".to_owned(),
            blocked: false,
            nothing_served: true,
            quarantine: Quarantine::Unchanged,
        };
        for (serving, attempt, want) in [
            (Some(true), Attempt::Removed, Some("Unavailable")),
            (Some(true), Attempt::SwitchedOff, Some("UserSpecifiedUnavailable")),
            (Some(true), failed.clone(), Some("Unavailable")),
            (Some(false), Attempt::Removed, None),
            (Some(false), Attempt::SwitchedOff, None),
            (Some(false), failed.clone(), None),
            (None, Attempt::Removed, None),
            (None, Attempt::SwitchedOff, None),
            (None, failed, None),
        ] {
            let before = catalog(serving);
            let after = derive(&attempt, &before, None, Timestamp::UNIX_EPOCH);
            let events = status_events(&before, &after);
            let withdrawn = events.iter().find(|event| event.action == "Withdraw");
            assert_eq!(withdrawn.map(|event| event.reason.as_str()), want, "{serving:?} {attempt:?}");
        }
    }
}
