//! The interface of monitoring: the names of metrics and the reasons of events, each with its meaning. They change as slowly as the
//! rest of the API. Tables only; docs, dashboard and alerts are generated from them and checked against them.
//!
//! Rule: decision 19 (domain metrics beside the reference's names, events for every decision a user would ask about).

use crate::classic;
use Component::{Catalogd, ClusterOperator, Every, OperatorController};

/// The programs that expose a metric or emit an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Every process.
    Every,
    /// catalogd.
    Catalogd,
    /// operator-controller.
    OperatorController,
    /// cluster-operator.
    ClusterOperator,
    /// classic-controller.
    ClassicController,
}

impl Component {
    /// As a person reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Every => "every process",
            Self::Catalogd => "catalogd",
            Self::OperatorController => "operator-controller",
            Self::ClusterOperator => "cluster-operator",
            Self::ClassicController => "classic-controller",
        }
    }
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; the name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// `_bucket`, `_sum` and `_count` belong to it.
    Histogram,
    /// Quantiles, with the label `quantile`; `_sum` and `_count` belong to it.
    Summary,
}

impl Kind {
    /// The word of the text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name, as it is scraped.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// Its labels, in alphabetical order.
    pub labels: &'static [&'static str],
    /// Who shows it.
    pub from: Component,
    /// What it counts or measures, as in its `HELP` line.
    pub help: &'static str,
}

pub(crate) type Text = &'static str;

pub(crate) const fn counter(from: Component, name: Text, labels: &'static [Text], help: Text) -> Metric {
    Metric { name, kind: Kind::Counter, labels, from, help }
}

pub(crate) const fn gauge(from: Component, name: Text, labels: &'static [Text], help: Text) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, from, help }
}

pub(crate) const fn summary(from: Component, name: Text, labels: &'static [Text], help: Text) -> Metric {
    Metric { name, kind: Kind::Summary, labels, from, help }
}

const fn histogram(from: Component, name: Text, labels: &'static [Text], help: Text) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, from, help }
}

/// When the certificate that a process serves with ends.
pub const SERVING_CERTIFICATE_EXPIRY: Metric = gauge(
    Every,
    "olm_serving_certificate_expiry_timestamp_seconds",
    &[],
    "When the certificate that the process serves with ends",
);
/// Events that were sent.
pub const EVENTS_SENT: Metric =
    counter(Every, "olm_events_total", &["reason", "type"], "Events sent, by reason and type");
/// Conditions of extensions.
pub const EXTENSION_CONDITION: Metric = gauge(
    OperatorController,
    "olm_cluster_extension_condition",
    &["condition", "name", "reason", "status"],
    "1 for the status and reason of the conditions Installed, Progressing, Ready and Deprecated of each ClusterExtension",
);
/// When conditions of extensions changed.
pub const EXTENSION_CONDITION_TRANSITION: Metric = gauge(
    OperatorController,
    "olm_cluster_extension_condition_transition_timestamp_seconds",
    &["condition", "name", "status"],
    "When the status of a condition of each ClusterExtension last changed",
);
/// When extensions were created.
pub const EXTENSION_CREATED: Metric = gauge(
    OperatorController,
    "olm_cluster_extension_created_timestamp_seconds",
    &["name"],
    "When each ClusterExtension was created",
);
/// What is installed.
pub const EXTENSION_INFO: Metric = gauge(
    OperatorController,
    "olm_cluster_extension_info",
    &["bundle", "name", "namespace", "package", "version"],
    "1 for each ClusterExtension, with the bundle that is installed, if any",
);
/// Upgrades that are not made by themselves.
pub const EXTENSION_UPGRADE_AVAILABLE: Metric = gauge(
    OperatorController,
    "olm_cluster_extension_upgrade_available",
    &["name", "reason"],
    "1 for each ClusterExtension with an upgrade that is not made by itself; reason MajorVersionHeld: set spec.source.catalog.version to take it; reason EnvironmentNotMet: the cluster lacks what it needs",
);
/// The time that resolution takes.
pub const RESOLUTION_DURATION: Metric = histogram(
    OperatorController,
    "olm_cluster_extension_resolution_duration_seconds",
    &["outcome"],
    "Time to read the package from the selected catalogs and to choose its bundle; outcome succeeded or failed",
);
/// Conditions of catalogs.
pub const CATALOG_CONDITION: Metric = gauge(
    OperatorController,
    "olm_cluster_catalog_condition",
    &["condition", "name", "reason", "status"],
    "1 for the status and reason of the conditions Progressing and Serving of each ClusterCatalog",
);
/// When conditions of catalogs changed.
pub const CATALOG_CONDITION_TRANSITION: Metric = gauge(
    OperatorController,
    "olm_cluster_catalog_condition_transition_timestamp_seconds",
    &["condition", "name", "status"],
    "When the status of a condition of each ClusterCatalog last changed",
);
/// When catalogs were created.
pub const CATALOG_CREATED: Metric = gauge(
    OperatorController,
    "olm_cluster_catalog_created_timestamp_seconds",
    &["name"],
    "When each ClusterCatalog was created",
);
/// Revisions.
pub const REVISIONS: Metric = gauge(
    OperatorController,
    "olm_cluster_object_sets",
    &["lifecycle_state"],
    "Number of ClusterObjectSets, by lifecycle state",
);
/// When certificates of webhooks end.
pub const WEBHOOK_CERTIFICATE_EXPIRY: Metric = gauge(
    OperatorController,
    "olm_webhook_certificate_expiry_timestamp_seconds",
    &["extension", "namespace", "secret"],
    "When the built-in serving certificate in a Secret ends",
);

/// All metrics.
pub const METRICS: &[Metric] = &[
    EXTENSION_CONDITION,
    EXTENSION_CONDITION_TRANSITION,
    EXTENSION_CREATED,
    EXTENSION_INFO,
    EXTENSION_UPGRADE_AVAILABLE,
    RESOLUTION_DURATION,
    REVISIONS,
    CATALOG_CONDITION,
    CATALOG_CONDITION_TRANSITION,
    CATALOG_CREATED,
    WEBHOOK_CERTIFICATE_EXPIRY,
    gauge(Catalogd, "catalogd_served_catalogs", &[], "Number of catalogs whose content is served"),
    gauge(Catalogd, "catalogd_content_bytes", &["catalog"], "Size of each served catalog"),
    gauge(Catalogd, "catalogd_content_objects", &["catalog"], "Number of objects in each served catalog"),
    gauge(
        Catalogd,
        "catalogd_content_unpacked_timestamp_seconds",
        &["catalog"],
        "When each served catalog was unpacked",
    ),
    histogram(
        Catalogd,
        "catalogd_http_request_duration_seconds",
        &["code"],
        "Histogram of request duration in seconds",
    ),
    gauge(
        ClusterOperator,
        "olm_cluster_operator_condition",
        &["condition", "reason"],
        "Conditions that OLM has for the ClusterOperator, 1 for True and 0 for False",
    ),
    gauge(
        ClusterOperator,
        "olm_extension_blocks_cluster_upgrade",
        &["bundle", "extension", "max_openshift_version"],
        "Whether the limit that an installed bundle declares stands in the way of the next minor version of the cluster",
    ),
    gauge(
        ClusterOperator,
        "olm_cluster_operator_managed_elsewhere",
        &["manager"],
        "1 while the ClusterOperator is left to the manager that is named, if there is one",
    ),
    counter(
        ClusterOperator,
        "olm_cluster_operator_status_writes_total",
        &[],
        "Number of times that the status of the ClusterOperator was written",
    ),
    EVENTS_SENT,
    SERVING_CERTIFICATE_EXPIRY,
    counter(Every, "certwatcher_read_certificate_total", &[], "Total number of certificate reads"),
    counter(
        Every,
        "certwatcher_read_certificate_errors_total",
        &[],
        "Total number of certificate read errors",
    ),
    gauge(
        Every,
        "leader_election_master_status",
        &["name"],
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master",
    ),
    counter(
        Every,
        "rest_client_requests_total",
        &["code", "host", "method"],
        "Number of HTTP requests, partitioned by status code, method, and host",
    ),
    counter(
        Every,
        "controller_runtime_reconcile_total",
        &["controller", "result"],
        "Total number of reconciliations per controller",
    ),
    counter(
        Every,
        "controller_runtime_reconcile_errors_total",
        &["controller"],
        "Total number of reconciliation errors per controller",
    ),
    counter(
        Every,
        "controller_runtime_terminal_reconcile_errors_total",
        &["controller"],
        "Total number of terminal reconciliation errors per controller",
    ),
    counter(
        Every,
        "controller_runtime_reconcile_panics_total",
        &["controller"],
        "Total number of reconciliation panics per controller",
    ),
    histogram(
        Every,
        "controller_runtime_reconcile_time_seconds",
        &["controller"],
        "Length of time per reconciliation per controller",
    ),
    gauge(
        Every,
        "controller_runtime_max_concurrent_reconciles",
        &["controller"],
        "Maximum number of concurrent reconciles per controller",
    ),
    gauge(
        Every,
        "controller_runtime_active_workers",
        &["controller"],
        "Number of currently used workers per controller",
    ),
    gauge(Every, "workqueue_depth", &["controller", "name"], "Current depth of workqueue"),
    counter(
        Every,
        "workqueue_adds_total",
        &["controller", "name"],
        "Total number of adds handled by workqueue",
    ),
    counter(
        Every,
        "workqueue_retries_total",
        &["controller", "name"],
        "Total number of retries handled by workqueue",
    ),
    histogram(
        Every,
        "workqueue_queue_duration_seconds",
        &["controller", "name"],
        "How long in seconds an item stays in workqueue before being requested",
    ),
    histogram(
        Every,
        "workqueue_work_duration_seconds",
        &["controller", "name"],
        "How long in seconds processing an item from workqueue takes",
    ),
    gauge(
        Every,
        "workqueue_unfinished_work_seconds",
        &["controller", "name"],
        "How many seconds of work has been done that is in progress and has not been observed by work_duration",
    ),
    gauge(
        Every,
        "workqueue_longest_running_processor_seconds",
        &["controller", "name"],
        "How many seconds has the longest running processor for workqueue been running",
    ),
    counter(Every, "process_cpu_seconds_total", &[], "Total user and system CPU time spent in seconds"),
    gauge(Every, "process_resident_memory_bytes", &[], "Resident memory size in bytes"),
    gauge(Every, "process_virtual_memory_bytes", &[], "Virtual memory size in bytes"),
    gauge(Every, "process_open_fds", &[], "Number of open file descriptors"),
    gauge(Every, "process_max_fds", &[], "Maximum number of open file descriptors"),
    gauge(Every, "process_start_time_seconds", &[], "Start time of the process since unix epoch in seconds"),
];

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The kind of object that it is about.
    pub about: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// A `Warning` rather than a `Normal` event.
    pub warning: bool,
    /// When it is sent, and what helps.
    pub meaning: &'static str,
}

/// The row of [`METRICS`] with this name. A program that evaluates it at compile time cannot expose a metric without a row.
///
/// # Panics
/// When there is no such row.
#[must_use]
#[expect(clippy::panic, reason = "it is for const blocks, where a panic is a compile error")]
pub const fn metric_named(name: &str) -> &'static Metric {
    let mut index = 0;
    while index < METRICS.len() {
        if is_same(METRICS[index].name, name) {
            return &METRICS[index];
        }
        index += 1;
    }
    panic!("no metric of this name in METRICS, api/src/observe.rs")
}

const fn is_same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

pub(crate) const fn normal(about: Text, reason: Text, meaning: Text) -> Event {
    Event { about, reason, warning: false, meaning }
}

pub(crate) const fn warning(about: Text, reason: Text, meaning: Text) -> Event {
    Event { about, reason, warning: true, meaning }
}

const CATALOG: &str = "ClusterCatalog";
const EXTENSION: &str = "ClusterExtension";
const REVISION: &str = "ClusterObjectSet";
const OPERATOR: &str = "ClusterOperator";

/// All events.
pub const EVENTS: &[Event] = &[
    normal(CATALOG, "Unpacked", "Content of another image is served from now on."),
    normal(
        CATALOG,
        "SignatureVerified",
        "The signature policy accepts the image; the note names who signed it.",
    ),
    warning(CATALOG, "Retrying", "The image cannot be resolved, pulled or unpacked; it is tried again."),
    warning(CATALOG, "Blocked", "The same, and only a change of the catalog helps."),
    warning(
        CATALOG,
        "Unavailable",
        "Content is not served any more. Normal while the catalog is being deleted.",
    ),
    normal(
        CATALOG,
        "UserSpecifiedUnavailable",
        "Content is no longer served, because `spec.availabilityMode` is `Unavailable`.",
    ),
    normal(EXTENSION, "Resolved", "A bundle was chosen, and a revision made for it."),
    normal(EXTENSION, "Installed", "The first bundle is installed."),
    normal(
        EXTENSION,
        "Adopted",
        "Revisions that an earlier extension or a backup left, or the objects of a Helm release, are its own from now on.",
    ),
    normal(EXTENSION, "Upgraded", "Another bundle is installed in place of the former one."),
    normal(EXTENSION, "RolledBack", "A lower bundle is installed in place of the former one."),
    normal(
        EXTENSION,
        "MajorVersionHeld",
        "The catalog has the next major version of what is installed; the note names the field to set.",
    ),
    warning(
        EXTENSION,
        "BundleSkipped",
        "The bundle to install is skipped by another one, which the range of versions leaves out.",
    ),
    warning(
        EXTENSION,
        "DependencyCheckSkipped",
        "The annotation `dependency-check` turns off the check of what the bundle depends on.",
    ),
    normal(
        EXTENSION,
        "EnvironmentNotMet",
        "The catalog has a better bundle that the cluster does not fit; the note names what the cluster lacks.",
    ),
    normal(EXTENSION, "Paused", "Reconciliation is paused by annotation."),
    normal(EXTENSION, "Resumed", "It is not any more."),
    warning(EXTENSION, "Retrying", "A pass failed and is tried again."),
    warning(
        EXTENSION,
        "NeedsChange",
        "A pass failed, and only a change in the cluster or of the extension helps.",
    ),
    warning(EXTENSION, "Blocked", "The rollout cannot continue before something is changed."),
    warning(EXTENSION, "InvalidConfiguration", "`spec.config` does not fit the bundle."),
    warning(
        EXTENSION,
        "UpgradeRefused",
        "A CRD would change in an unsafe way; `spec.install.preflight.crdUpgradeSafety.enforcement` decides. If the CRD belongs to \
         another ClusterExtension, the message names that one: uninstall one of the two.",
    ),
    warning(
        EXTENSION,
        "DependencyMissing",
        "The bundle depends on something that is not in the cluster; the note names who provides it.",
    ),
    warning(EXTENSION, "SignatureRefused", "The signature policy does not accept the bundle's image."),
    warning(
        EXTENSION,
        "ProgressDeadlineExceeded",
        "The rollout takes longer than `spec.progressDeadlineMinutes`.",
    ),
    warning(
        EXTENSION,
        "RolloutWaiting",
        "The pods of an object that the rollout waits for fail; the note names the first one and the cause.",
    ),
    warning(
        EXTENSION,
        "UninstallWaiting",
        "The extension is being deleted, and the note names what keeps its objects from going.",
    ),
    warning(EXTENSION, "Unavailable", "What is installed has become unavailable."),
    warning(
        EXTENSION,
        "Deprecated",
        "The package, channel or bundle in use is deprecated; the note is its author's.",
    ),
    warning(
        EXTENSION,
        "CatalogsUnavailable",
        "No selected catalog that may have the bundle of the newest revision can be read; that bundle is kept.",
    ),
    warning(
        EXTENSION,
        "BundleUnavailable",
        "The installed bundle cannot be rendered again for a new version of olm-rs; it is kept as it is until its image can be read.",
    ),
    warning(
        EXTENSION,
        "ImageIgnored",
        "The catalog names another image for the installed bundle; the installed content is kept.",
    ),
    warning(
        EXTENSION,
        "BundleWarning",
        "The bundle has an invalid part that does not stop its installation.",
    ),
    warning(
        EXTENSION,
        "CRDChangeAccepted",
        "The annotation `accept-crd-change` accepts findings of CRD upgrade safety in the bundle.",
    ),
    warning(EXTENSION, "CRDUpgradeSafety", "A CRD changes in a way that is worth knowing and not refused."),
    normal(EXTENSION, "CertificateIssued", "The certificate of a webhook's Service was issued."),
    normal(
        EXTENSION,
        "CertificateReissued",
        "It was issued again, because the former one could not be used.",
    ),
    normal(EXTENSION, "CertificateRotating", "Its successor is issued, and callers learn to trust it."),
    normal(EXTENSION, "CertificateRotated", "Its successor is in use."),
    warning(EXTENSION, "CertificateDisputed", "Another client writes the certificate's Secret, too."),
    warning(
        EXTENSION,
        "CertificateRefused",
        "The certificate cannot be written, because a Secret of its name holds something else or has another controller.",
    ),
    warning(
        EXTENSION,
        "BlocksClusterUpgrade",
        "The installed bundle does not run on the next version of OpenShift, or its limit cannot be read; upgrade or remove it.",
    ),
    normal(
        EXTENSION,
        "ClusterUpgradeUnblocked",
        "It no longer stands in the way of an update of the cluster.",
    ),
    warning(
        EXTENSION,
        "SuspiciousMaxOpenShiftVersion",
        "The limit is a number without quotes, which YAML may have shortened.",
    ),
    normal(REVISION, "Corrected", "An object that another client changed or deleted was restored."),
    warning(REVISION, "Collision", "An object belongs to another owner and is not touched."),
    warning(
        REVISION,
        "RemovalWaiting",
        "The revision is archived or being deleted, and waits for the revision that the note names.",
    ),
    normal(OPERATOR, "OperatorStatusChanged", "Conditions of the ClusterOperator have changed."),
    normal(OPERATOR, "OperatorVersionChanged", "The version that it reports has changed."),
    normal(OPERATOR, "ManagedElsewhere", "Another manager writes the ClusterOperator; it is only watched."),
    warning(OPERATOR, "StatusFailed", "Its status could not be written."),
    warning(OPERATOR, "StatusCreateFailed", "The ClusterOperator could not be created."),
];

/// Whether an event of this reason about this kind is in the table, or in that of OLM Classic.
#[must_use]
pub fn is_known(about: &str, reason: &str) -> bool {
    EVENTS.iter().chain(classic::observe::EVENTS).any(|event| event.about == about && event.reason == reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observe_names_are_unique_and_follow_the_rules() {
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..index].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            assert!(metric.labels.is_sorted() && !metric.help.ends_with('.'), "{}", metric.name);
        }
        for (index, event) in EVENTS.iter().enumerate() {
            let same = |other: &Event| (other.about, other.reason) == (event.about, event.reason);
            assert!(!EVENTS[..index].iter().any(same), "{event:?}");
            assert!(event.meaning.ends_with('.'), "{event:?}");
        }
        assert!(is_known("ClusterExtension", "Upgraded") && !is_known("ClusterCatalog", "Upgraded"));
    }
}
