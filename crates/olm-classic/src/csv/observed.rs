//! The facts that a step of the phase machine depends on.

use std::collections::BTreeMap;

use olm_api::classic::Time;

use super::{Health, Neighbors, Reason, Requirements};

/// What was observed of the cluster for one CSV, and what came of the last attempt to install it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    pub group: GroupState,
    /// Whether the operator group has `spec.upgradeStrategy: TechPreviewUnsafeFailForward`.
    pub is_fail_forward: bool,
    /// The OperatorCondition of the replaced CSV.
    pub gate: UpgradeGate,
    pub requirements: Requirements,
    pub neighbors: Neighbors,
    pub install: InstallResult,
    pub health: Health,
    pub api_services: ApiServices,
    /// `None` without a certificate that can be served with.
    pub certificates: Option<Certificates>,
    /// Whether the Secret of a serving certificate is not there.
    pub is_certificate_missing: bool,
}

/// What the operator groups of the namespace decide (classic-apis §6.3 rows 1 to 7); until the group or the CSV changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GroupState {
    /// The CSV is a member of its group.
    #[default]
    Member,
    /// Its phase becomes Failed, and it is not copied. `reason` is one for which [`Reason::is_of_the_group`] holds.
    Failed { reason: Reason, message: String },
    /// The group has no status yet, or no namespaces because its account has never existed. Nothing is done; a new CSV stays without phase.
    Unresolved,
    /// The CSV's annotations differ from these. Writing them is the end of the pass.
    Annotate(BTreeMap<String, String>),
    /// The group's annotation `olm.providedAPIs` has to become this text. Writing it is the end of the pass; the CSV is requeued.
    SetProvidedApis(String),
}

/// Whether the CSV that is replaced lets itself be replaced (classic-apis §8).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UpgradeGate {
    #[default]
    Open,
    /// The reason for people, such as `the operator is not upgradeable: not now`.
    Closed(String),
}

/// What came of the last [`ApplyStrategy`](super::Action::ApplyStrategy).
///
/// Success counts until the CSV leaves InstallReady: the next time there, it is installed again. A failure counts until one of its inputs
/// changes (the CSV, the Subscription's settings, an object that was in the way) or the back-off of the controller ends; one that is not worth
/// a retry, until an input changes, such as the rights of the group's account. Otherwise, and after a restart, it is `NotTried`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InstallResult {
    #[default]
    NotTried,
    Succeeded,
    Failed {
        message: String,
        /// False for an error that only another input cures: an invalid strategy or patch, a timeout, missing rights.
        is_worth_a_retry: bool,
    },
}

/// The serving certificates that pods use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    /// When the last of them was issued.
    pub updated: Time,
    /// When the rotation of the first of them begins.
    pub rotate_at: Time,
}

/// The APIServices that a CSV owns, and the objects behind them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ApiServices {
    /// All are there and available, or none is needed.
    #[default]
    Present,
    /// All are there, and the apiserver cannot reach these.
    Unavailable(String),
    /// What is missing.
    Missing(String),
}
