//! Events: changes of the ClusterOperator, and for each extension that it blocks an update. Rule: decisions 17 and 19.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use olm_api::openshift::{CLUSTER_OPERATOR, ClusterOperatorStatus};
use olm_core::go;
use olm_core::openshift::{Owner, Report};
use olm_runtime::events::{Events, NewEvent};

use crate::observe::Extension;
use crate::upgradeable::INSTALLED;

/// The latest events about extensions, so that each is sent once.
#[derive(Debug, Default)]
pub(crate) struct ExtensionEvents {
    /// `None` until the first report.
    last: Option<BTreeSet<ExtensionEvent>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExtensionEvent {
    pub(crate) extension: String,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    pub(crate) warning: bool,
}

impl ExtensionEvents {
    /// Takes a new report; returns the events that are new. At the first call these are the events about extensions that the
    /// published status does not name, so that a restart repeats nothing.
    pub(crate) fn update(
        &mut self,
        report: &Report,
        published: &ClusterOperatorStatus,
    ) -> Vec<ExtensionEvent> {
        let now = current_events(report);
        let message = published.condition("Upgradeable").map_or("", |it| it.message.as_str());
        // both forms in which the message names an extension
        let named = |name: &str| {
            [format!("ClusterExtension {}", go::quote(name)), format!("cluster extension {name}:")]
        };
        let is_published = |event: &ExtensionEvent| {
            message.contains(INSTALLED) && named(&event.extension).iter().any(|part| message.contains(part))
        };
        let is_new = |event: &&ExtensionEvent| match &self.last {
            Some(last) => !last.contains(*event),
            None => !is_published(event),
        };
        let mut new_events: Vec<ExtensionEvent> = now.iter().filter(is_new).cloned().collect();
        let blocks = |all: &BTreeSet<ExtensionEvent>| -> BTreeSet<String> {
            all.iter().filter(|event| event.reason == BLOCKS).map(|event| event.extension.clone()).collect()
        };
        let before = self.last.as_ref().map(blocks).unwrap_or_default();
        new_events.extend(before.difference(&blocks(&now)).map(|name| ExtensionEvent {
            extension: name.clone(),
            reason: "ClusterUpgradeUnblocked",
            text: format!("it no longer stands in the way of an update of the cluster to {}", report.target),
            warning: false,
        }));
        self.last = Some(now);
        new_events
    }
}

/// The reason of the event for an extension that blocks.
const BLOCKS: &str = "BlocksClusterUpgrade";

fn current_events(report: &Report) -> BTreeSet<ExtensionEvent> {
    let target = &report.target;
    // a ClusterServiceVersion has the condition alone: an event about it would need a right in every namespace
    let event = |owner: &Owner, reason: &'static str, text: String| match owner {
        Owner::Extension(extension) => {
            Some(ExtensionEvent { extension: extension.clone(), reason, text, warning: true })
        }
        Owner::Csv(_) => None,
    };
    let blocking = report.blocking.iter().filter_map(|one| {
        let text = format!(
            "bundle {} declares to run on OpenShift {} at most, so the cluster cannot be updated to {target}; upgrade or remove it",
            one.bundle, one.limit.stream
        );
        event(&one.owner, BLOCKS, text)
    });
    let unreadable = report.unreadable.iter().filter_map(|one| {
        event(&one.owner, BLOCKS, format!("the cluster cannot be updated to {target}: {}", one.message))
    });
    let suspicious = report.blocking.iter().chain(&report.fitting).filter(|one| one.limit.suspicious).filter_map(|one| {
        let text = format!(
            "bundle {bundle} declares olm.maxOpenShiftVersion as the number {stream}; in YAML {stream}0 without quotes becomes \
             that, so it may mean another version than its author's",
            bundle = one.bundle,
            stream = one.limit.stream,
        );
        event(&one.owner, "SuspiciousMaxOpenShiftVersion", text)
    });
    blocking.chain(unreadable).chain(suspicious).collect()
}

/// Sends the events about extensions that still exist.
pub(crate) async fn publish_extensions(
    events: &Events,
    new_events: &[ExtensionEvent],
    extensions: &[Extension],
) {
    for event in new_events {
        let Some(extension) = extensions.iter().find(|it| it.name == event.extension) else { continue };
        let about = ObjectReference {
            api_version: Some(olm_api::API_VERSION.to_owned()),
            kind: Some("ClusterExtension".to_owned()),
            name: Some(extension.name.clone()),
            uid: Some(extension.uid.clone()),
            ..ObjectReference::default()
        };
        let new_event = NewEvent {
            warning: event.warning,
            reason: event.reason,
            action: "CheckClusterUpgrade",
            note: &event.text,
        };
        events.publish(&about, new_event).await;
    }
}

/// Sends an event about the ClusterOperator.
pub(crate) async fn publish_operator(
    events: &Events,
    uid: Option<String>,
    warning: bool,
    reason: &str,
    note: &str,
) {
    let about = ObjectReference {
        api_version: Some("config.openshift.io/v1".to_owned()),
        kind: Some("ClusterOperator".to_owned()),
        name: Some(CLUSTER_OPERATOR.to_owned()),
        uid,
        ..ObjectReference::default()
    };
    events.publish_whole(&about, NewEvent { warning, reason, action: "UpdateStatus", note }).await;
}

#[cfg(test)]
mod tests {
    use olm_api::ConditionStatus;
    use olm_api::openshift::OperatorCondition;
    use olm_core::openshift::{Bundle, Stream, judge};

    use super::*;

    fn report(bundles: &[(&str, &str)]) -> Report {
        let bundle = |(extension, value): &(&str, &str)| Bundle {
            owner: Owner::Extension((*extension).to_owned()),
            name: format!("{extension}.v1"),
            properties: Some(format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":{value}}}]"#)),
        };
        let current = Stream::new(4, 18);
        judge(current, current.next(), &bundles.iter().map(bundle).collect::<Vec<_>>())
    }

    fn update(
        known: &mut ExtensionEvents,
        bundles: &[(&str, &str)],
        published: &str,
    ) -> Vec<(String, &'static str)> {
        let condition = OperatorCondition {
            last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            ),
            message: published.to_owned(),
            reason: String::new(),
            status: ConditionStatus::False,
            type_: "Upgradeable".to_owned(),
        };
        let status =
            ClusterOperatorStatus { conditions: vec![condition], ..ClusterOperatorStatus::default() };
        known
            .update(&report(bundles), &status)
            .into_iter()
            .map(|event| (event.extension, event.reason))
            .collect()
    }

    #[test]
    fn events_are_sent_once_per_change() {
        let mut known = ExtensionEvents::default();
        let a = || ("a".to_owned(), BLOCKS);
        assert_eq!(update(&mut known, &[("a", "\"4.18\""), ("b", "\"4.19\"")], ""), [a()]);
        assert_eq!(update(&mut known, &[("a", "\"4.18\""), ("b", "\"4.19\"")], ""), []);
        assert_eq!(update(&mut known, &[("a", "true")], ""), [a()], "it blocks for another cause");
        assert_eq!(
            update(&mut known, &[("a", "\"4.19\"")], ""),
            [("a".to_owned(), "ClusterUpgradeUnblocked")]
        );
        assert_eq!(update(&mut known, &[], ""), []);
    }

    #[test]
    fn events_are_not_repeated_after_a_restart() {
        let bundles = [("a", "\"4.18\""), ("b", "true"), ("c", "\"4.18\"")];
        let both = "InstalledOLMOperatorsUpgradeable: … bundle \"a.v1\" for ClusterExtension \"a\".\n\
                    InstalledOLMOperatorsUpgradeable:  … error(s) with cluster extension b: error in bundle b.v1: x";
        assert_eq!(update(&mut ExtensionEvents::default(), &bundles, both), [("c".to_owned(), BLOCKS)]);
    }

    #[test]
    fn events_warn_of_yaml_numbers() {
        let found = update(&mut ExtensionEvents::default(), &[("a", "4.2")], "");
        assert_eq!(found, [("a".to_owned(), BLOCKS), ("a".to_owned(), "SuspiciousMaxOpenShiftVersion")]);
        assert_eq!(update(&mut ExtensionEvents::default(), &[("a", "4.20")], ""), []);
    }
}
