//! Metrics and events of OLM Classic, under the names that the reference gave them.
//!
//! Rule: classic-apis §11, §14.

use crate::observe::Component::ClassicController;
use crate::observe::{Event, Metric, counter, gauge, normal, summary, warning};

/// ClusterServiceVersions, without copies.
pub const CSV_COUNT: Metric =
    gauge(ClassicController, "csv_count", &[], "ClusterServiceVersions in the cluster, without copies");
/// Whether each ClusterServiceVersion is installed.
pub const CSV_SUCCEEDED: Metric = gauge(
    ClassicController,
    "csv_succeeded",
    &["name", "namespace", "version"],
    "1 for each ClusterServiceVersion that is Succeeded, 0 for the others",
);
/// ClusterServiceVersions that are not installed.
pub const CSV_ABNORMAL: Metric = gauge(
    ClassicController,
    "csv_abnormal",
    &["name", "namespace", "phase", "reason", "version"],
    "1 for each ClusterServiceVersion that is not Succeeded",
);
/// Replaced ClusterServiceVersions.
pub const CSV_UPGRADE_COUNT: Metric = counter(
    ClassicController,
    "csv_upgrade_count",
    &[],
    "ClusterServiceVersions that began to be replaced by a newer one",
);
/// Deployments that were edited.
pub const CSV_EDITED_DEPLOYMENTS: Metric = gauge(
    ClassicController,
    "csv_edited_deployments",
    &["name", "namespace"],
    "Deployments of a ClusterServiceVersion that were edited; no series where there are none",
);

/// CatalogSources.
pub const CATALOG_SOURCE_COUNT: Metric =
    gauge(ClassicController, "catalog_source_count", &[], "CatalogSources in the cluster");
/// Whether each CatalogSource can be read.
pub const CATALOG_SOURCE_READY: Metric = gauge(
    ClassicController,
    "catalogsource_ready",
    &["name", "namespace"],
    "1 for each CatalogSource whose content can be read, 0 for the others",
);
/// How often the content of each CatalogSource was read.
pub const CATALOG_SOURCE_SNAPSHOTS: Metric = counter(
    ClassicController,
    "catalog_source_snapshots_total",
    &["name", "namespace"],
    "How often the whole content of a CatalogSource was read",
);
/// InstallPlans.
pub const INSTALL_PLAN_COUNT: Metric =
    gauge(ClassicController, "install_plan_count", &[], "InstallPlans in the cluster");
/// Steps about which the apiserver warned.
pub const INSTALL_PLAN_WARNINGS: Metric = counter(
    ClassicController,
    "installplan_warnings_total",
    &[],
    "Steps of InstallPlans about whose object the apiserver warned",
);
/// Subscriptions.
pub const SUBSCRIPTION_COUNT: Metric =
    gauge(ClassicController, "subscription_count", &[], "Subscriptions in the cluster");
/// Passes over each Subscription.
pub const SUBSCRIPTION_SYNCS: Metric = counter(
    ClassicController,
    "subscription_sync_total",
    &["approval", "channel", "installed", "name", "package"],
    "Passes over a Subscription with these values",
);
/// How long resolutions took.
pub const RESOLUTION_DURATION: Metric = summary(
    ClassicController,
    "olm_resolution_duration_seconds",
    &["outcome"],
    "How long the resolutions of namespaces took, in the last ten minutes",
);

/// All metrics.
pub const METRICS: &[Metric] = &[
    CSV_COUNT,
    CSV_SUCCEEDED,
    CSV_ABNORMAL,
    CSV_UPGRADE_COUNT,
    CSV_EDITED_DEPLOYMENTS,
    CATALOG_SOURCE_COUNT,
    CATALOG_SOURCE_READY,
    CATALOG_SOURCE_SNAPSHOTS,
    INSTALL_PLAN_COUNT,
    INSTALL_PLAN_WARNINGS,
    SUBSCRIPTION_COUNT,
    SUBSCRIPTION_SYNCS,
    RESOLUTION_DURATION,
];

const CSV: &str = "ClusterServiceVersion";
const PLAN: &str = "InstallPlan";

/// All events.
pub const EVENTS: &[Event] = &[
    warning(CSV, "NoOperatorGroup", "Its namespace has no OperatorGroup; create one."),
    warning(CSV, "TooManyOperatorGroups", "Its namespace has several OperatorGroups; delete all but one."),
    warning(CSV, "NoTargetNamespaces", "Its OperatorGroup selects no namespace."),
    warning(CSV, "InvalidInstallModes", "It lists an install mode more than once."),
    warning(
        CSV,
        "UnsupportedOperatorGroup",
        "Its install modes do not support the targets of its OperatorGroup.",
    ),
    warning(
        CSV,
        "CannotModifyStaticOperatorGroupProvidedAPIs",
        "Its OperatorGroup keeps a fixed list of APIs, and its APIs are not in it.",
    ),
    warning(
        CSV,
        "InterOperatorGroupOwnerConflict",
        "An OperatorGroup with a common namespace has the same API.",
    ),
    normal(
        CSV,
        "DetectedClusterChange",
        "What its install depends on may have changed, such as the rights of the account that installs; after a restart, too.",
    ),
    normal(CSV, "RequirementsUnknown", "Its requirements are not checked yet."),
    normal(CSV, "RequirementsNotMet", "A requirement is not met; `status.requirementStatus` names it."),
    normal(CSV, "AllRequirementsMet", "Its requirements are met, and it is installed next."),
    normal(
        CSV,
        "OperatorConditionNotUpgradeable",
        "The OperatorCondition of the version that it replaces holds it.",
    ),
    warning(CSV, "InvalidInstallStrategy", "Its install strategy is invalid."),
    warning(CSV, "InvalidWebhookDescription", "A webhook of it is invalid or not allowed."),
    warning(CSV, "OwnerConflict", "Another operator owns one of its APIs."),
    normal(CSV, "InstallSucceeded", "Its objects are written, or healthy."),
    normal(CSV, "InstallWaiting", "Its Deployments are not ready yet."),
    warning(CSV, "InstallCheckFailed", "Its Deployments were not ready in time."),
    warning(CSV, "InstallComponentFailed", "An object of it could not be written; it is tried again."),
    warning(
        CSV,
        "InstallComponentFailedNoRetry",
        "An object of it could not be written, and only a change helps.",
    ),
    normal(CSV, "ComponentUnhealthy", "A Deployment of it is missing, changed or not ready."),
    warning(CSV, "APIServiceResourceIssue", "An object of an aggregated API of it is missing."),
    normal(CSV, "NeedsCertRotation", "The Secret of a serving certificate of it is gone."),
    normal(CSV, "NeedsReinstall", "It is installed again after a failure."),
    normal(CSV, "BeingReplaced", "A newer version replaces it."),
    normal(CSV, "Replaced", "A newer version has replaced it, and it is deleted."),
    normal(
        CSV,
        "DeploymentEdited",
        "A Deployment of it was edited; the note names the fields. It stays as it is.",
    ),
    normal(
        CSV,
        "DeploymentRepaired",
        "A Deployment of it was edited, and is written back; the note names the fields.",
    ),
    normal(CSV, "Waiting", "It waits for something that its conditions do not name; the note names it."),
    warning(CSV, "DisabledCopiedCSVs", "Copies of it in other namespaces are disabled by the OLMConfig."),
    normal("CatalogSource", "Waiting", "It cannot be read, or not as specified; the note names why."),
    normal(
        "OperatorGroup",
        "Waiting",
        "It waits for its ServiceAccount, or cannot select namespaces; the note names what to do.",
    ),
    warning(
        "Namespace",
        "ResolutionFailed",
        "Its Subscriptions cannot be resolved together; the note explains why.",
    ),
    normal(
        "Subscription",
        "Adopted",
        "It continues with what an earlier Subscription to its package installed, or what replaced its version.",
    ),
    normal(
        "Subscription",
        "PlanSuperseded",
        "A newer version takes the place of one that waited for approval; its InstallPlan was deleted.",
    ),
    normal("Subscription", "Waiting", "It waits; the note names for what, and what to do."),
    warning("Subscription", "BundleUnpackFailed", "The image of a bundle cannot be pulled or read."),
    normal(PLAN, "Waiting", "It waits, or is retried; the note names why, and what to do."),
    normal(PLAN, "PlanSuperseded", "It was deleted before its steps began: a newer one takes its place."),
    warning(PLAN, "AppliedWithWarnings", "The apiserver warned about the object of a step."),
    warning(
        PLAN,
        "CRDValidation",
        "Objects do not fit the new CustomResourceDefinition of a step, which converts them by webhook, or the webhook fails, or objects could not be checked.",
    ),
    normal(
        PLAN,
        "CRDChanged",
        "The CustomResourceDefinition of a step changes in a way that may break objects or clients.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_observe_names_are_unique() {
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..index].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert!(metric.labels.is_sorted() && !metric.help.ends_with('.'), "{}", metric.name);
        }
        for (index, event) in EVENTS.iter().enumerate() {
            let same = |other: &Event| (other.about, other.reason) == (event.about, event.reason);
            assert!(!EVENTS[..index].iter().any(same), "{event:?}");
            assert!(event.meaning.ends_with('.'), "{event:?}");
        }
    }
}
