//! The interface of monitoring: the names of metrics and the reasons of events, each with its meaning. They change as slowly as the
//! rest of the API. Tables only; docs, dashboard and alerts are generated from them and checked against them.
//!
//! Rule: decision 19 (domain metrics beside the reference's names, events for every decision a user would ask about).

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
}

impl Kind {
    /// The word of the text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
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

const fn metric(
    from: Component,
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, from, help }
}

/// When the certificate that a process serves with ends.
pub const SERVING_CERTIFICATE_EXPIRY: Metric = metric(
    Component::Every,
    "olm_serving_certificate_expiry_timestamp_seconds",
    Kind::Gauge,
    &[],
    "When the certificate that the process serves with ends",
);
/// Events that were sent.
pub const EVENTS_SENT: Metric = metric(
    Component::Every,
    "olm_events_total",
    Kind::Counter,
    &["reason", "type"],
    "Events sent, by reason and type",
);
/// Conditions of extensions.
pub const EXTENSION_CONDITION: Metric = metric(
    Component::OperatorController,
    "olm_cluster_extension_condition",
    Kind::Gauge,
    &["condition", "name", "reason", "status"],
    "1 for what the conditions Installed, Progressing, Ready and Deprecated of each ClusterExtension say",
);
/// What is installed.
pub const EXTENSION_INFO: Metric = metric(
    Component::OperatorController,
    "olm_cluster_extension_info",
    Kind::Gauge,
    &["bundle", "name", "namespace", "package", "version"],
    "1 for each ClusterExtension, with the bundle that is installed, if any",
);
/// Conditions of catalogs.
pub const CATALOG_CONDITION: Metric = metric(
    Component::OperatorController,
    "olm_cluster_catalog_condition",
    Kind::Gauge,
    &["condition", "name", "reason", "status"],
    "1 for what the conditions Progressing and Serving of each ClusterCatalog say",
);
/// Revisions.
pub const REVISIONS: Metric = metric(
    Component::OperatorController,
    "olm_cluster_object_sets",
    Kind::Gauge,
    &["lifecycle_state"],
    "Number of ClusterObjectSets, by lifecycle state",
);
/// When certificates of webhooks end.
pub const WEBHOOK_CERTIFICATE_EXPIRY: Metric = metric(
    Component::OperatorController,
    "olm_webhook_certificate_expiry_timestamp_seconds",
    Kind::Gauge,
    &["extension", "namespace", "secret"],
    "When the built-in serving certificate in a Secret ends",
);

/// All metrics.
pub const METRICS: &[Metric] = &[
    EXTENSION_CONDITION,
    EXTENSION_INFO,
    REVISIONS,
    CATALOG_CONDITION,
    WEBHOOK_CERTIFICATE_EXPIRY,
    metric(
        Component::Catalogd,
        "catalogd_served_catalogs",
        Kind::Gauge,
        &[],
        "Number of catalogs whose content is served",
    ),
    metric(
        Component::Catalogd,
        "catalogd_content_bytes",
        Kind::Gauge,
        &["catalog"],
        "Size of each served catalog",
    ),
    metric(
        Component::Catalogd,
        "catalogd_content_objects",
        Kind::Gauge,
        &["catalog"],
        "Number of objects in each served catalog",
    ),
    metric(
        Component::Catalogd,
        "catalogd_content_unpacked_timestamp_seconds",
        Kind::Gauge,
        &["catalog"],
        "When each served catalog was unpacked",
    ),
    metric(
        Component::Catalogd,
        "catalogd_http_request_duration_seconds",
        Kind::Histogram,
        &["code"],
        "Histogram of request duration in seconds",
    ),
    metric(
        Component::ClusterOperator,
        "olm_cluster_operator_condition",
        Kind::Gauge,
        &["condition", "reason"],
        "Conditions that OLM has for the ClusterOperator, 1 for True and 0 for False",
    ),
    metric(
        Component::ClusterOperator,
        "olm_extension_blocks_cluster_upgrade",
        Kind::Gauge,
        &["bundle", "extension", "max_openshift_version"],
        "Whether the limit that an installed bundle declares stands in the way of the next minor version of the cluster",
    ),
    metric(
        Component::ClusterOperator,
        "olm_cluster_operator_managed_elsewhere",
        Kind::Gauge,
        &["manager"],
        "1 while the ClusterOperator is left to the manager that is named, or to nobody",
    ),
    metric(
        Component::ClusterOperator,
        "olm_cluster_operator_status_writes_total",
        Kind::Counter,
        &[],
        "Number of times that the status of the ClusterOperator was written",
    ),
    EVENTS_SENT,
    SERVING_CERTIFICATE_EXPIRY,
    metric(
        Component::Every,
        "certwatcher_read_certificate_total",
        Kind::Counter,
        &[],
        "Total number of certificate reads",
    ),
    metric(
        Component::Every,
        "certwatcher_read_certificate_errors_total",
        Kind::Counter,
        &[],
        "Total number of certificate read errors",
    ),
    metric(
        Component::Every,
        "leader_election_master_status",
        Kind::Gauge,
        &["name"],
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master",
    ),
    metric(
        Component::Every,
        "rest_client_requests_total",
        Kind::Counter,
        &["code", "host", "method"],
        "Number of HTTP requests, partitioned by status code, method, and host",
    ),
    metric(
        Component::Every,
        "controller_runtime_reconcile_total",
        Kind::Counter,
        &["controller", "result"],
        "Total number of reconciliations per controller",
    ),
    metric(
        Component::Every,
        "controller_runtime_reconcile_errors_total",
        Kind::Counter,
        &["controller"],
        "Total number of reconciliation errors per controller",
    ),
    metric(
        Component::Every,
        "controller_runtime_terminal_reconcile_errors_total",
        Kind::Counter,
        &["controller"],
        "Total number of terminal reconciliation errors per controller",
    ),
    metric(
        Component::Every,
        "controller_runtime_reconcile_panics_total",
        Kind::Counter,
        &["controller"],
        "Total number of reconciliation panics per controller",
    ),
    metric(
        Component::Every,
        "controller_runtime_reconcile_time_seconds",
        Kind::Histogram,
        &["controller"],
        "Length of time per reconciliation per controller",
    ),
    metric(
        Component::Every,
        "controller_runtime_max_concurrent_reconciles",
        Kind::Gauge,
        &["controller"],
        "Maximum number of concurrent reconciles per controller",
    ),
    metric(
        Component::Every,
        "controller_runtime_active_workers",
        Kind::Gauge,
        &["controller"],
        "Number of currently used workers per controller",
    ),
    metric(
        Component::Every,
        "workqueue_depth",
        Kind::Gauge,
        &["controller", "name"],
        "Current depth of workqueue",
    ),
    metric(
        Component::Every,
        "workqueue_adds_total",
        Kind::Counter,
        &["controller", "name"],
        "Total number of adds handled by workqueue",
    ),
    metric(
        Component::Every,
        "workqueue_retries_total",
        Kind::Counter,
        &["controller", "name"],
        "Total number of retries handled by workqueue",
    ),
    metric(
        Component::Every,
        "workqueue_queue_duration_seconds",
        Kind::Histogram,
        &["controller", "name"],
        "How long in seconds an item stays in workqueue before being requested",
    ),
    metric(
        Component::Every,
        "workqueue_work_duration_seconds",
        Kind::Histogram,
        &["controller", "name"],
        "How long in seconds processing an item from workqueue takes",
    ),
    metric(
        Component::Every,
        "workqueue_unfinished_work_seconds",
        Kind::Gauge,
        &["controller", "name"],
        "How many seconds of work has been done that is in progress and has not been observed by work_duration",
    ),
    metric(
        Component::Every,
        "workqueue_longest_running_processor_seconds",
        Kind::Gauge,
        &["controller", "name"],
        "How many seconds has the longest running processor for workqueue been running",
    ),
    metric(
        Component::Every,
        "process_cpu_seconds_total",
        Kind::Counter,
        &[],
        "Total user and system CPU time spent in seconds",
    ),
    metric(
        Component::Every,
        "process_resident_memory_bytes",
        Kind::Gauge,
        &[],
        "Resident memory size in bytes",
    ),
    metric(
        Component::Every,
        "process_virtual_memory_bytes",
        Kind::Gauge,
        &[],
        "Virtual memory size in bytes",
    ),
    metric(Component::Every, "process_open_fds", Kind::Gauge, &[], "Number of open file descriptors"),
    metric(Component::Every, "process_max_fds", Kind::Gauge, &[], "Maximum number of open file descriptors"),
    metric(
        Component::Every,
        "process_start_time_seconds",
        Kind::Gauge,
        &[],
        "Start time of the process since unix epoch in seconds",
    ),
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

const fn event(about: &'static str, reason: &'static str, warning: bool, meaning: &'static str) -> Event {
    Event { about, reason, warning, meaning }
}

const CATALOG: &str = "ClusterCatalog";
const EXTENSION: &str = "ClusterExtension";
const REVISION: &str = "ClusterObjectSet";
const OPERATOR: &str = "ClusterOperator";

/// All events.
pub const EVENTS: &[Event] = &[
    event(CATALOG, "Unpacked", false, "Content of another image is served from now on."),
    event(
        CATALOG,
        "SignatureVerified",
        false,
        "The signature policy accepts the image; the note names who signed it.",
    ),
    event(CATALOG, "Retrying", true, "The image cannot be resolved, pulled or unpacked; it is tried again."),
    event(CATALOG, "Blocked", true, "The same, and only a change of the catalog helps."),
    event(
        CATALOG,
        "Unavailable",
        true,
        "Content is not served any more. Normal while the catalog is being deleted.",
    ),
    event(
        CATALOG,
        "UserSpecifiedUnavailable",
        false,
        "Content is not served any more, because `spec.availabilityMode` says so.",
    ),
    event(EXTENSION, "Resolved", false, "A bundle was chosen, and a revision made for it."),
    event(EXTENSION, "Installed", false, "The first bundle is installed."),
    event(EXTENSION, "Upgraded", false, "Another bundle is installed in place of the former one."),
    event(EXTENSION, "RolledBack", false, "A lower bundle is installed in place of the former one."),
    event(EXTENSION, "Paused", false, "Reconciliation is paused by annotation."),
    event(EXTENSION, "Resumed", false, "It is not any more."),
    event(EXTENSION, "Retrying", true, "A pass failed and is tried again."),
    event(
        EXTENSION,
        "NeedsChange",
        true,
        "A pass failed, and only a change in the cluster or of the extension helps.",
    ),
    event(EXTENSION, "Blocked", true, "The rollout cannot go on before something is changed."),
    event(EXTENSION, "InvalidConfiguration", true, "`spec.config` does not fit the bundle."),
    event(
        EXTENSION,
        "UpgradeRefused",
        true,
        "A CRD would change in an unsafe way; `spec.install.preflight.crdUpgradeSafety.enforcement` decides.",
    ),
    event(
        EXTENSION,
        "DependencyMissing",
        true,
        "The bundle depends on something that is not in the cluster; the note names who provides it.",
    ),
    event(EXTENSION, "SignatureRefused", true, "The signature policy does not accept the bundle's image."),
    event(
        EXTENSION,
        "ProgressDeadlineExceeded",
        true,
        "The rollout takes longer than `spec.progressDeadlineMinutes`.",
    ),
    event(EXTENSION, "Unavailable", true, "What is installed has become unavailable."),
    event(
        EXTENSION,
        "Deprecated",
        true,
        "The package, channel or bundle in use is deprecated; the note is its author's.",
    ),
    event(
        EXTENSION,
        "CatalogsUnavailable",
        true,
        "No selected catalog can be read; the installed bundle is kept.",
    ),
    event(
        EXTENSION,
        "ImageIgnored",
        true,
        "The catalog names another image for the installed bundle; the installed content is kept.",
    ),
    event(
        EXTENSION,
        "BundleWarning",
        true,
        "The bundle has something odd that does not stop its installation.",
    ),
    event(
        EXTENSION,
        "CRDUpgradeSafety",
        true,
        "A CRD changes in a way that is worth knowing and not refused.",
    ),
    event(EXTENSION, "CertificateIssued", false, "The certificate of a webhook's Service was issued."),
    event(
        EXTENSION,
        "CertificateReissued",
        false,
        "It was issued anew, because the former one could not be used.",
    ),
    event(EXTENSION, "CertificateRotating", false, "Its successor is issued, and callers learn to trust it."),
    event(EXTENSION, "CertificateRotated", false, "Its successor is in use."),
    event(EXTENSION, "CertificateDisputed", true, "Somebody else writes the certificate's Secret, too."),
    event(
        EXTENSION,
        "CertificateRefused",
        true,
        "The certificate cannot be written, because a Secret of its name holds something else or has another controller.",
    ),
    event(
        EXTENSION,
        "BlocksClusterUpgrade",
        true,
        "The installed bundle does not run on the next version of OpenShift, or its limit cannot be read; upgrade or remove it.",
    ),
    event(
        EXTENSION,
        "ClusterUpgradeUnblocked",
        false,
        "It no longer stands in the way of an update of the cluster.",
    ),
    event(
        EXTENSION,
        "SuspiciousMaxOpenShiftVersion",
        true,
        "The limit is a number without quotes, which YAML may have shortened.",
    ),
    event(REVISION, "Corrected", false, "An object that somebody changed or deleted was put back."),
    event(REVISION, "Collision", true, "An object belongs to somebody else and is not touched."),
    event(OPERATOR, "OperatorStatusChanged", false, "Conditions of the ClusterOperator have changed."),
    event(OPERATOR, "OperatorVersionChanged", false, "The version that it reports has changed."),
    event(
        OPERATOR,
        "ManagedElsewhere",
        false,
        "Somebody else writes the ClusterOperator; it is only watched.",
    ),
    event(OPERATOR, "StatusFailed", true, "Its status could not be written."),
    event(OPERATOR, "StatusCreateFailed", true, "The ClusterOperator could not be created."),
];

/// Whether an event of this reason about this kind is in the table.
#[must_use]
pub fn is_known(about: &str, reason: &str) -> bool {
    EVENTS.iter().any(|event| event.about == about && event.reason == reason)
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
