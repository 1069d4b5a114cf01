//! Events: what a user would ask about, once for each change of a condition's reason or message (decision 19).

use kube::Resource;
use olm_api::cluster_catalog::{ClusterCatalog, ClusterCatalogStatus};
use olm_api::condition::{self, Condition};
use olm_api::reason;
use olm_runtime::events::{Events, Happening};

/// Tells what differs between the object's status and the new one.
pub(super) async fn tell(events: &Events, catalog: &ClusterCatalog, status: &ClusterCatalogStatus) {
    let about = catalog.object_ref(&());
    for news in news(catalog, status) {
        let Note { warning, reason, action, note } = &news;
        events.publish(&about, Happening { warning: *warning, reason, action, note }).await;
    }
}

/// Tells that the signature policy has accepted an image that is now served.
pub(super) async fn tell_signer(events: &Events, catalog: &ClusterCatalog, reference: &str, signer: &str) {
    let note = format!("{reference} is signed by {signer}");
    let happening = Happening { warning: false, reason: "SignatureVerified", action: "Verify", note: &note };
    events.publish(&catalog.object_ref(&()), happening).await;
}

#[derive(Debug, PartialEq, Eq)]
struct Note {
    warning: bool,
    reason: String,
    action: &'static str,
    note: String,
}

fn news(catalog: &ClusterCatalog, status: &ClusterCatalogStatus) -> Vec<Note> {
    let before = catalog.status.clone().unwrap_or_default();
    let mut notes = Vec::new();
    let resolved = |status: &ClusterCatalogStatus| {
        status.resolved_source.as_ref().map(|source| source.image.reference.clone())
    };
    if let Some(reference) =
        resolved(status).filter(|reference| resolved(&before).as_ref() != Some(reference))
    {
        let note = format!("serving content of {reference}");
        notes.push(Note { warning: false, reason: "Unpacked".to_owned(), action: "Unpack", note });
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
        notes.push(Note { warning: true, reason: now.reason, action: "Unpack", note: now.message });
    }
    if let Some(now) = changed(condition::SERVING)
        && now.reason != reason::AVAILABLE
    {
        let warning = now.reason == reason::UNAVAILABLE && catalog.metadata.deletion_timestamp.is_none();
        let note = if now.message.is_empty() { "content is not served".to_owned() } else { now.message };
        notes.push(Note { warning, reason: now.reason, action: "Withdraw", note });
    }
    notes
}
