//! Reasons of conditions. Clients match on them, so each is listed with the kinds and conditions that use it.
//!
//! Rule: operator-controller §5, catalogd §3.6; `Ready` and its reasons are decision 4.

/// The spec is fulfilled (Installed, Progressing, Succeeded, Ready; Progressing of catalogs).
pub const SUCCEEDED: &str = "Succeeded";
/// Nothing is installed, or what is installed could not be read (Installed).
pub const FAILED: &str = "Failed";
/// Nothing is installed yet (Installed while a first rollout runs, BundleDeprecated).
pub const ABSENT: &str = "Absent";
/// A revision is on its way (Progressing, Available, Ready).
pub const ROLLING_OUT: &str = "RollingOut";
/// An error occurred and another attempt follows (Progressing, Ready).
pub const RETRYING: &str = "Retrying";
/// A webhook certificate may not be written into its Secret (Stalled).
pub const CERTIFICATE_REFUSED: &str = "CertificateRefused";
/// Only a change by the user can help (Progressing, Ready).
pub const BLOCKED: &str = "Blocked";
/// `spec.config` does not fit the bundle (Progressing).
pub const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
/// The rollout took longer than `progressDeadlineMinutes` (Progressing).
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// The catalog deprecates the package, channel or bundle (deprecation conditions).
pub const DEPRECATED: &str = "Deprecated";
/// The catalog does not deprecate it (deprecation conditions).
pub const NOT_DEPRECATED: &str = "NotDeprecated";
/// No catalog could be asked (deprecation conditions).
pub const DEPRECATION_STATUS_UNKNOWN: &str = "DeprecationStatusUnknown";

/// All objects pass their probes (Available).
pub const PROBES_SUCCEEDED: &str = "ProbesSucceeded";
/// At least one object fails a probe (Available).
pub const PROBE_FAILURE: &str = "ProbeFailure";
/// An error hides the real state (Available=Unknown).
pub const RECONCILING: &str = "Reconciling";
/// The revision is archived (Available, Progressing of revisions).
pub const ARCHIVED: &str = "Archived";
/// The revision was made from a Helm release (documented by the API, never set).
pub const MIGRATED: &str = "Migrated";

/// The first pull of a catalog's content takes a while (Progressing of catalogs).
pub const PULLING: &str = "Pulling";
/// The catalog's content is served (Serving), or an extension's objects are available.
pub const AVAILABLE: &str = "Available";
/// The catalog's content is not served (Serving); an extension's objects are not available (Ready).
pub const UNAVAILABLE: &str = "Unavailable";
/// Reading an image ended the process again and again (Quarantined).
pub const READING_ENDED_THE_PROCESS: &str = "ReadingEndedTheProcess";
/// The user switched the catalog off (Serving).
pub const USER_SPECIFIED_UNAVAILABLE: &str = "UserSpecifiedUnavailable";

/// The template of the image names one (TemplatesHaveResolved, ResolvedImage).
pub const ALL_TEMPLATES_RESOLVED: &str = "AllTemplatesResolved";
/// It does not, and the image of the spec is used (TemplatesHaveResolved, ResolvedImage).
pub const UNABLE_TO_RESOLVE: &str = "UnableToResolve";

/// Installed and available, but a newer resolved bundle is not installed yet (Ready).
pub const UPGRADE_PENDING: &str = "UpgradePending";
/// A bundle with a higher major version would follow the installed one (UpgradeAvailable).
pub const MAJOR_VERSION_HELD: &str = "MajorVersionHeld";
/// The cluster does not meet what a better bundle needs (UpgradeAvailable).
pub const ENVIRONMENT_NOT_MET: &str = "EnvironmentNotMet";
/// Reconciliation is suspended by the user (Ready).
pub const PAUSED: &str = "Paused";
