//! Conditions: the type with the apiserver's limits, the condition types in use, and pure functions over a list of them.
//!
//! Nothing here reads a clock: the caller passes `now`. Which conditions a state has is decided elsewhere. [`CONDITIONS`] is
//! the one list of condition types.
//!
//! Rule: operator-controller §5 (`lastTransitionTime` moves only with `status`; `observedGeneration` is always current).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reason;

/// Nothing, another bundle or the resolved bundle is installed (ClusterExtension).
pub const INSTALLED: &str = "Installed";
/// The progress towards the spec (all kinds).
pub const PROGRESSING: &str = "Progressing";
/// All objects pass their probes (ClusterObjectSet, mirrored to ClusterExtension).
pub const AVAILABLE: &str = "Available";
/// The revision was rolled out once; never reset (ClusterObjectSet).
pub const SUCCEEDED: &str = "Succeeded";
/// The catalog's content can be fetched (ClusterCatalog).
pub const SERVING: &str = "Serving";
/// An image is not read again, because reading it ended the process (ClusterCatalog, ClusterExtension). Present only while it is True.
pub const QUARANTINED: &str = "Quarantined";
/// All variables of the template of the image have a value (ClusterCatalog). Absent without a template.
pub const TEMPLATES_HAVE_RESOLVED: &str = "TemplatesHaveResolved";
/// The message is the image that the template names (ClusterCatalog). Absent without a template.
pub const RESOLVED_IMAGE: &str = "ResolvedImage";
/// Any of the three below (ClusterExtension).
pub const DEPRECATED: &str = "Deprecated";
/// The catalog deprecates the package (ClusterExtension).
pub const PACKAGE_DEPRECATED: &str = "PackageDeprecated";
/// The catalog deprecates a channel in use (ClusterExtension).
pub const CHANNEL_DEPRECATED: &str = "ChannelDeprecated";
/// The catalog deprecates the installed bundle (ClusterExtension).
pub const BUNDLE_DEPRECATED: &str = "BundleDeprecated";
/// One word for people and GitOps tools: resolved bundle installed, available, nothing pending (decision 4).
pub const READY: &str = "Ready";
/// The catalog has an upgrade that is not made by itself (ClusterExtension). Present only while it is True.
pub const UPGRADE_AVAILABLE: &str = "UpgradeAvailable";
/// kstatus: work is under way (decision 4).
pub const RECONCILING: &str = "Reconciling";
/// kstatus: no progress without a change by the user (decision 4).
pub const STALLED: &str = "Stalled";

/// A condition type of one kind, and how programs treat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionSpec {
    /// The kind that has it.
    pub kind: &'static str,
    /// The condition type.
    pub type_: &'static str,
    /// The observation, for the documentation.
    pub meaning: &'static str,
    /// Whether it is exported as a series of the kind's condition metric.
    pub in_metrics: bool,
    /// When a change of it may wait for the next one.
    pub debounce: Debounce,
    /// When `kubectl olm status` prints it.
    pub verbosity: Verbosity,
    /// Reason of the Warning event that is emitted with its message when it becomes True. A Normal event is emitted in the
    /// extension controller's `events`.
    pub event: Option<&'static str>,
}

/// When a change of a condition may wait for the next one, so that a rollout is not one write for each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debounce {
    /// Each change of status or reason is written immediately.
    Never,
    /// While a rollout is under way.
    WhileRollingOut,
    /// From the moment when the predecessor is archived until its successor has succeeded.
    WhileSucceeding,
}

/// When `kubectl olm status` prints a condition; `-o wide` prints all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Always.
    Always,
    /// Only while it is True.
    WhenTrue,
    /// Only with `-o wide`.
    Wide,
}

impl ConditionSpec {
    const fn new(kind: &'static str, type_: &'static str, meaning: &'static str) -> Self {
        let (debounce, verbosity) = (Debounce::Never, Verbosity::Wide);
        Self { kind, type_, meaning, in_metrics: false, debounce, verbosity, event: None }
    }

    const fn in_metrics(mut self) -> Self {
        self.in_metrics = true;
        self
    }

    const fn debounced(mut self, debounce: Debounce) -> Self {
        self.debounce = debounce;
        self
    }

    const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = verbosity;
        self
    }

    const fn event(mut self, reason: &'static str) -> Self {
        self.event = Some(reason);
        self
    }
}

/// The kinds whose conditions are listed.
pub const EXTENSION: &str = "ClusterExtension";
/// Revisions.
pub const OBJECT_SET: &str = "ClusterObjectSet";
/// Catalogs.
pub const CATALOG: &str = "ClusterCatalog";

/// All conditions. What exports, debounces, prints or documents conditions takes them from here.
pub const CONDITIONS: &[ConditionSpec] = &[
    ConditionSpec::new(EXTENSION, INSTALLED, "A bundle is installed.")
        .in_metrics()
        .debounced(Debounce::WhileSucceeding)
        .verbosity(Verbosity::Always),
    ConditionSpec::new(EXTENSION, PROGRESSING, "The controller works towards the spec, or has reached it.")
        .in_metrics()
        .verbosity(Verbosity::Always),
    ConditionSpec::new(EXTENSION, AVAILABLE, "All objects of the installed revision pass their probes.")
        .debounced(Debounce::WhileRollingOut),
    ConditionSpec::new(
        EXTENSION,
        READY,
        "The resolved bundle is installed and available, and nothing is pending.",
    )
    .in_metrics()
    .verbosity(Verbosity::Always),
    ConditionSpec::new(EXTENSION, RECONCILING, "Work is under way. Present only while it is True."),
    ConditionSpec::new(EXTENSION, STALLED, "Only a change of the extension, a catalog or the cluster helps. What others usually create, such as a namespace, is waited for under Reconciling. Present only while it is True.")
        .verbosity(Verbosity::Always),
    ConditionSpec::new(
        EXTENSION,
        QUARANTINED,
        "The bundle that the message names is not read again, because reading it ended operator-controller twice. Present only while it is True.",
    ),
    ConditionSpec::new(
        EXTENSION,
        UPGRADE_AVAILABLE,
        "The catalog has an upgrade that is not made by itself, or a better bundle that the cluster does not fit; the message names the field to set, or what the cluster lacks. Present only while it is True.",
    )
    .verbosity(Verbosity::WhenTrue),
    ConditionSpec::new(
        EXTENSION,
        DEPRECATED,
        "The package, a channel in use or the installed bundle is deprecated.",
    )
    .in_metrics()
    .debounced(Debounce::WhileSucceeding)
    .verbosity(Verbosity::WhenTrue),
    ConditionSpec::new(EXTENSION, PACKAGE_DEPRECATED, "The catalog deprecates the package.")
        .verbosity(Verbosity::WhenTrue)
        .event(reason::DEPRECATED),
    ConditionSpec::new(EXTENSION, CHANNEL_DEPRECATED, "The catalog deprecates a channel in use.")
        .verbosity(Verbosity::WhenTrue)
        .event(reason::DEPRECATED),
    ConditionSpec::new(EXTENSION, BUNDLE_DEPRECATED, "The catalog deprecates the installed bundle.")
        .debounced(Debounce::WhileSucceeding)
        .verbosity(Verbosity::WhenTrue)
        .event(reason::DEPRECATED),
    ConditionSpec::new(OBJECT_SET, PROGRESSING, "The revision is rolled out, or has been.")
        .verbosity(Verbosity::Always),
    ConditionSpec::new(OBJECT_SET, AVAILABLE, "All objects of the revision pass their probes.")
        .verbosity(Verbosity::Always),
    ConditionSpec::new(OBJECT_SET, SUCCEEDED, "The revision was rolled out once. It stays True.")
        .verbosity(Verbosity::Always),
    ConditionSpec::new(CATALOG, PROGRESSING, "The image is polled, pulled and unpacked as the spec asks.")
        .in_metrics(),
    ConditionSpec::new(CATALOG, SERVING, "The content can be fetched from `status.urls`.").in_metrics(),
    ConditionSpec::new(
        CATALOG,
        QUARANTINED,
        "The image that the message names is not read again, because reading it ended catalogd twice. Present only while it is True.",
    ),
    ConditionSpec::new(
        CATALOG,
        TEMPLATES_HAVE_RESOLVED,
        "All variables in the annotation `olm.catalogImageTemplate` have a value. Absent without the annotation.",
    ),
    ConditionSpec::new(
        CATALOG,
        RESOLVED_IMAGE,
        "The message is the image that the annotation `olm.catalogImageTemplate` names, which is used in place of the spec's while this is True. Absent without the annotation.",
    ),
];

/// The conditions of one kind.
pub fn of_kind(kind: &str) -> impl Iterator<Item = &'static ConditionSpec> {
    CONDITIONS.iter().filter(move |spec| spec.kind == kind)
}

/// What is listed about a condition type of a kind.
#[must_use]
pub fn spec(kind: &str, type_: &str) -> Option<&'static ConditionSpec> {
    of_kind(kind).find(|spec| spec.type_ == type_)
}

/// The longest message, in bytes. The apiserver counts characters, the reference bytes; the smaller of both is kept.
pub const MAX_MESSAGE: usize = 32_768;

/// What a cut message ends with (rule: operator-controller §3.5).
const CUT: &str = "\n\n... [message truncated]";

/// One observation about an object, in the shape that all Kubernetes tools know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When `status` last changed; a new message or reason alone does not move it.
    pub last_transition_time: Time,
    /// Explanation for people; may be empty.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// The `metadata.generation` that this observation is about; older than the object's means out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// One CamelCase word, the cause of the value of `status`; programs may match on it.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Whether the observation holds: True, False, or Unknown when it could not be made.
    pub status: ConditionStatus,
    /// What is observed, in CamelCase; each type occurs at most once.
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    #[serde(rename = "type")]
    pub type_: String,
}

/// The three values of a condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The observation holds.
    True,
    /// The observation does not hold.
    False,
    /// It could not be made.
    Unknown,
}

impl ConditionStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl std::fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Condition {
    /// A condition that has just been observed: `lastTransitionTime` is `now` in whole seconds. Use [`set`] to put it into a
    /// list; it keeps the older transition time where that is right. A message over [`MAX_MESSAGE`] is cut (see [`cut_message`]).
    pub fn new(
        type_: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Self {
        Self {
            last_transition_time: whole_seconds(now),
            message: cut_message(message.into()),
            observed_generation: generation,
            reason: reason.to_owned(),
            status,
            type_: type_.to_owned(),
        }
    }
}

/// `now` as the apiserver stores times: whole seconds, rounded down.
pub fn whole_seconds(now: Timestamp) -> Time {
    let rounding = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    Time(now.round(rounding).unwrap_or(now))
}

/// Cuts a message to [`MAX_MESSAGE`] bytes at a character boundary and marks its end; a shorter one is returned unchanged.
pub fn cut_message(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE - CUT.len()));
        message.push_str(CUT);
    }
    message
}

/// The condition of this type.
pub fn find<'a>(list: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    list.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition is present and `True`.
pub fn is_true(list: &[Condition], type_: &str) -> bool {
    has_status(list, type_, ConditionStatus::True)
}

/// Whether the condition is present and `False`.
pub fn is_false(list: &[Condition], type_: &str) -> bool {
    has_status(list, type_, ConditionStatus::False)
}

fn has_status(list: &[Condition], type_: &str, status: ConditionStatus) -> bool {
    find(list, type_).is_some_and(|condition| condition.status == status)
}

/// Puts `update` into the list. An existing condition of that type keeps its place in the list, and its
/// `lastTransitionTime` if `status` is the same; a new one goes to the end. Returns whether anything changed.
pub fn set(list: &mut Vec<Condition>, mut update: Condition) -> bool {
    let Some(present) = list.iter_mut().find(|condition| condition.type_ == update.type_) else {
        list.push(update);
        return true;
    };
    if present.status == update.status {
        update.last_transition_time = present.last_transition_time.clone();
    }
    let changed = *present != update;
    *present = update;
    changed
}

/// Removes the condition of this type; returns whether it was there.
pub fn remove(list: &mut Vec<Condition>, type_: &str) -> bool {
    let before = list.len();
    list.retain(|condition| condition.type_ != type_);
    list.len() != before
}

/// A freshly derived list with the transition times (and the order) that the stored list justifies: conditions present in both keep
/// the stored order and, where the status is equal, the stored time; new ones follow; conditions that are only stored go away.
pub fn merge(stored: &[Condition], derived: Vec<Condition>) -> Vec<Condition> {
    let mut result: Vec<Condition> =
        stored.iter().filter(|old| find(&derived, &old.type_).is_some()).cloned().collect();
    for condition in derived {
        set(&mut result, condition);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_types_are_named_where_users_read() {
        use kube::CustomResourceExt as _;
        #[rustfmt::skip]
        let crds = [
            (EXTENSION, "api/src/cluster_extension.rs", crate::ClusterExtension::crd(), Some(crate::observe::EXTENSION_CONDITION)),
            (OBJECT_SET, "api/src/cluster_object_set.rs", crate::ClusterObjectSet::crd(), None),
            (CATALOG, "api/src/cluster_catalog.rs", crate::ClusterCatalog::crd(), Some(crate::observe::CATALOG_CONDITION)),
        ];
        assert!(CONDITIONS.iter().all(|spec| crds.iter().any(|(kind, ..)| *kind == spec.kind)));
        for (kind, file, crd, metric) in crds {
            let crd = serde_json::to_value(crd).unwrap();
            let status =
                "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions/description";
            let described = crd.pointer(status).and_then(|text| text.as_str()).unwrap();
            for (index, spec) in CONDITIONS.iter().enumerate().filter(|(_, spec)| spec.kind == kind) {
                let type_ = spec.type_;
                let same = |other: &ConditionSpec| (other.kind, other.type_) == (kind, type_);
                assert!(!CONDITIONS[..index].iter().any(same), "{kind} {type_} is listed twice");
                assert!(
                    described.contains(&format!("`{type_}`")),
                    "`{type_}` is missing in the CRD of {kind}, {file}: {described}"
                );
                assert!(spec.meaning.ends_with('.'), "{spec:?}");
                if let Some(reason) = spec.event {
                    assert!(
                        crate::observe::is_known(kind, reason),
                        "no event {reason} in api/src/observe.rs"
                    );
                }
                let in_help =
                    metric.is_some_and(|metric| metric.help.split([' ', ',']).any(|word| word == type_));
                assert_eq!(spec.in_metrics, in_help, "{kind} {type_} in the help text in api/src/observe.rs");
            }
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::new(second, 999_000_000).unwrap()
    }

    fn condition(type_: &str, status: ConditionStatus, message: &str, second: i64) -> Condition {
        Condition::new(type_, status, reason_for(status), message, Some(second), at(second))
    }

    fn reason_for(status: ConditionStatus) -> &'static str {
        match status {
            ConditionStatus::True => "Succeeded",
            ConditionStatus::False => "Failed",
            ConditionStatus::Unknown => "Reconciling",
        }
    }

    #[test]
    fn condition_transition_time_moves_only_with_the_status() {
        use ConditionStatus::{False, True, Unknown};
        for (case, old, new, want_second) in [
            ("same status, other message", True, True, 10),
            ("True to False", True, False, 20),
            ("False to Unknown", False, Unknown, 20),
            ("Unknown stays", Unknown, Unknown, 10),
        ] {
            let mut list = vec![condition("A", old, "old", 10)];
            assert!(set(&mut list, condition("A", new, "new", 20)), "{case}: something changed");
            assert_eq!(list[0].last_transition_time.0, Timestamp::new(want_second, 0).unwrap(), "{case}");
            assert_eq!((list[0].message.as_str(), list[0].observed_generation), ("new", Some(20)), "{case}");
        }
    }

    #[test]
    fn condition_set_again_changes_nothing() {
        let mut list = vec![condition("A", ConditionStatus::True, "m", 10)];
        let again = Condition::new("A", ConditionStatus::True, "Succeeded", "m", Some(10), at(99));
        let before = list.clone();
        assert!(!set(&mut list, again));
        assert_eq!(list, before);
    }

    #[test]
    fn condition_order_is_stable() {
        let mut list = vec![];
        for type_ in ["B", "A", "C", "A", "B"] {
            set(&mut list, condition(type_, ConditionStatus::True, "m", 1));
        }
        let types: Vec<_> = list.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["B", "A", "C"]);
        assert!(remove(&mut list, "A"));
        assert!(!remove(&mut list, "A"));
        assert!(is_true(&list, "B") && !is_false(&list, "B") && !is_true(&list, "A"));
    }

    #[test]
    fn condition_merge_keeps_stored_order_and_drops_the_rest() {
        let stored = vec![
            condition("B", ConditionStatus::True, "m", 1),
            condition("Gone", ConditionStatus::True, "m", 1),
            condition("A", ConditionStatus::False, "m", 1),
        ];
        let derived = vec![
            condition("A", ConditionStatus::True, "m", 5),
            condition("New", ConditionStatus::True, "m", 5),
            condition("B", ConditionStatus::True, "n", 5),
        ];
        let merged = merge(&stored, derived);
        let got: Vec<_> =
            merged.iter().map(|c| (c.type_.as_str(), c.last_transition_time.0.as_second())).collect();
        assert_eq!(got, [("B", 1), ("A", 5), ("New", 5)]);
    }

    #[test]
    fn condition_long_messages_are_cut_at_a_character() {
        let fits = "é".repeat(MAX_MESSAGE / 2);
        assert_eq!(cut_message(fits.clone()), fits);
        let cut = cut_message(fits + "x");
        assert!((MAX_MESSAGE - 1..=MAX_MESSAGE).contains(&cut.len()), "{}", cut.len());
        assert!(cut.ends_with("é\n\n... [message truncated]"));
    }

    #[test]
    fn condition_wire_form() {
        let json = serde_json::to_value(condition("A", ConditionStatus::True, "m", 10)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "A", "status": "True", "reason": "Succeeded", "message": "m",
                "observedGeneration": 10, "lastTransitionTime": "1970-01-01T00:00:10Z"
            })
        );
    }
}
