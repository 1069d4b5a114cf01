//! Events: what changed in the ClusterOperator, and for each extension that it stands in the way. Rule: decisions 17 and 19.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use olm_api::openshift::{CLUSTER_OPERATOR, ClusterOperatorStatus};
use olm_core::go_quote;
use olm_core::openshift::Report;
use olm_runtime::events::{Events, NewEvent};

use crate::observe::Extension;
use crate::upgradeable::INSTALLED;

/// What was told of extensions, so that it is told once.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// `None` until the first look.
    known: Option<BTreeSet<Note>>,
}

/// One thing to tell about an extension.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Note {
    pub(crate) extension: String,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    pub(crate) warning: bool,
}

impl Told {
    /// What is new to tell since the last call. At the first call nothing is that the published status names already, so that
    /// a restart tells nothing twice.
    pub(crate) fn news(&mut self, report: &Report, published: &ClusterOperatorStatus) -> Vec<Note> {
        let now = notes(report);
        let message = published.condition("Upgradeable").map_or("", |it| it.message.as_str());
        // both forms in which the message names an extension
        let named = |name: &str| {
            [format!("ClusterExtension {}", go_quote(name)), format!("cluster extension {name}:")]
        };
        let said = |note: &Note| {
            message.contains(INSTALLED) && named(&note.extension).iter().any(|part| message.contains(part))
        };
        let is_new = |note: &&Note| match &self.known {
            Some(known) => !known.contains(*note),
            None => !said(note),
        };
        let mut news: Vec<Note> = now.iter().filter(is_new).cloned().collect();
        let blocks = |all: &BTreeSet<Note>| -> BTreeSet<String> {
            all.iter().filter(|note| note.reason == BLOCKS).map(|note| note.extension.clone()).collect()
        };
        let before = self.known.as_ref().map(blocks).unwrap_or_default();
        news.extend(before.difference(&blocks(&now)).map(|name| Note {
            extension: name.clone(),
            reason: "ClusterUpgradeUnblocked",
            text: format!("it no longer stands in the way of an update of the cluster to {}", report.target),
            warning: false,
        }));
        self.known = Some(now);
        news
    }
}

/// The reason of the event for an extension that blocks.
const BLOCKS: &str = "BlocksClusterUpgrade";

fn notes(report: &Report) -> BTreeSet<Note> {
    let mut notes = BTreeSet::new();
    for one in &report.blocking {
        notes.insert(Note {
            extension: one.extension.clone(),
            reason: BLOCKS,
            text: format!(
                "bundle {} declares to run on OpenShift {} at most, so the cluster cannot be updated to {}; upgrade or remove it",
                one.bundle, one.limit.stream, report.target
            ),
            warning: true,
        });
    }
    for one in &report.unreadable {
        notes.insert(Note {
            extension: one.extension.clone(),
            reason: BLOCKS,
            text: format!("the cluster cannot be updated to {}: {}", report.target, one.message),
            warning: true,
        });
    }
    for one in report.blocking.iter().chain(&report.fitting).filter(|one| one.limit.suspicious) {
        notes.insert(Note {
            extension: one.extension.clone(),
            reason: "SuspiciousMaxOpenShiftVersion",
            text: format!(
                "bundle {bundle} declares olm.maxOpenShiftVersion as the number {stream}; in YAML {stream}0 without quotes becomes \
                 that, so it may mean another version than its author's",
                bundle = one.bundle,
                stream = one.limit.stream,
            ),
            warning: true,
        });
    }
    notes
}

/// Sends what is new about extensions; one that is gone hears nothing.
pub(crate) async fn extensions(events: &Events, news: &[Note], extensions: &[Extension]) {
    for note in news {
        let Some(extension) = extensions.iter().find(|it| it.name == note.extension) else { continue };
        let about = ObjectReference {
            api_version: Some(olm_api::API_VERSION.to_owned()),
            kind: Some("ClusterExtension".to_owned()),
            name: Some(extension.name.clone()),
            uid: Some(extension.uid.clone()),
            ..ObjectReference::default()
        };
        let event = NewEvent {
            warning: note.warning,
            reason: note.reason,
            action: "CheckClusterUpgrade",
            note: &note.text,
        };
        events.publish(&about, event).await;
    }
}

/// Sends an event about the ClusterOperator.
pub(crate) async fn operator(events: &Events, uid: Option<String>, warning: bool, reason: &str, note: &str) {
    let about = ObjectReference {
        api_version: Some("config.openshift.io/v1".to_owned()),
        kind: Some("ClusterOperator".to_owned()),
        name: Some(CLUSTER_OPERATOR.to_owned()),
        uid,
        ..ObjectReference::default()
    };
    events.publish(&about, NewEvent { warning, reason, action: "UpdateStatus", note }).await;
}

#[cfg(test)]
mod tests {
    use olm_api::ConditionStatus;
    use olm_api::openshift::OperatorCondition;
    use olm_core::openshift::{Bundle, Stream, judge};

    use super::*;

    fn report(bundles: &[(&str, &str)]) -> Report {
        let bundle = |(extension, value): &(&str, &str)| Bundle {
            extension: (*extension).to_owned(),
            name: format!("{extension}.v1"),
            properties: Some(format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":{value}}}]"#)),
        };
        let current = Stream::new(4, 18);
        judge(current, current.next(), &bundles.iter().map(bundle).collect::<Vec<_>>())
    }

    fn news(told: &mut Told, bundles: &[(&str, &str)], published: &str) -> Vec<(String, &'static str)> {
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
        told.news(&report(bundles), &status).into_iter().map(|note| (note.extension, note.reason)).collect()
    }

    #[test]
    fn each_turn_is_told_once() {
        let mut told = Told::default();
        let a = || ("a".to_owned(), BLOCKS);
        assert_eq!(news(&mut told, &[("a", "\"4.18\""), ("b", "\"4.19\"")], ""), [a()]);
        assert_eq!(news(&mut told, &[("a", "\"4.18\""), ("b", "\"4.19\"")], ""), []);
        assert_eq!(news(&mut told, &[("a", "true")], ""), [a()], "it blocks for another cause");
        assert_eq!(news(&mut told, &[("a", "\"4.19\"")], ""), [("a".to_owned(), "ClusterUpgradeUnblocked")]);
        assert_eq!(news(&mut told, &[], ""), []);
    }

    #[test]
    fn a_restart_tells_nothing_that_is_published() {
        let bundles = [("a", "\"4.18\""), ("b", "true"), ("c", "\"4.18\"")];
        let both = "InstalledOLMOperatorsUpgradeable: … bundle \"a.v1\" for ClusterExtension \"a\".\n\
                    InstalledOLMOperatorsUpgradeable:  … error(s) with cluster extension b: error in bundle b.v1: x";
        assert_eq!(news(&mut Told::default(), &bundles, both), [("c".to_owned(), BLOCKS)]);
    }

    #[test]
    fn the_trap_of_yaml_is_told_whether_it_blocks_or_not() {
        let found = news(&mut Told::default(), &[("a", "4.2")], "");
        assert_eq!(found, [("a".to_owned(), BLOCKS), ("a".to_owned(), "SuspiciousMaxOpenShiftVersion")]);
        assert_eq!(news(&mut Told::default(), &[("a", "4.20")], ""), []);
    }
}
