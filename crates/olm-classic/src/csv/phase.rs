//! Phases and reasons of a CSV (classic-apis §6.2, §6.3).

use olm_api::classic::ClusterServiceVersion;

olm_core::words! {
    /// `status.phase`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Phase {
        /// No phase yet.
        New = "",
        Pending = "Pending",
        InstallReady = "InstallReady",
        Installing = "Installing",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Replacing = "Replacing",
        Deleting = "Deleting",
        /// The state could not be read, or the text is no phase.
        Unknown = "Unknown",
    }
}

impl Phase {
    /// The phase in the status of a CSV.
    #[must_use]
    pub fn read(csv: &ClusterServiceVersion) -> Self {
        let text = csv.status.as_ref().map_or("", |status| status.phase.as_str());
        text.parse().unwrap_or(Self::Unknown)
    }

    /// Whether a row of the table that counts in this phase depends on [`Observed::health`](super::Observed::health).
    #[must_use]
    pub fn depends_on_health(self) -> bool {
        matches!(self, Self::Installing | Self::Succeeded | Self::Failed)
    }
}

olm_core::words! {
    /// `status.reason`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Reason {
        NoOperatorGroup = "NoOperatorGroup",
        TooManyOperatorGroups = "TooManyOperatorGroups",
        NoTargetNamespaces = "NoTargetNamespaces",
        InvalidInstallModes = "InvalidInstallModes",
        UnsupportedOperatorGroup = "UnsupportedOperatorGroup",
        CannotModifyStaticProvidedApis = "CannotModifyStaticOperatorGroupProvidedAPIs",
        InterOperatorGroupOwnerConflict = "InterOperatorGroupOwnerConflict",
        DetectedClusterChange = "DetectedClusterChange",
        RequirementsUnknown = "RequirementsUnknown",
        RequirementsNotMet = "RequirementsNotMet",
        AllRequirementsMet = "AllRequirementsMet",
        OperatorConditionNotUpgradeable = "OperatorConditionNotUpgradeable",
        InvalidInstallStrategy = "InvalidInstallStrategy",
        InvalidWebhookDescription = "InvalidWebhookDescription",
        OwnerConflict = "OwnerConflict",
        /// Of Installing and of Succeeded.
        InstallSucceeded = "InstallSucceeded",
        InstallWaiting = "InstallWaiting",
        InstallCheckFailed = "InstallCheckFailed",
        InstallComponentFailed = "InstallComponentFailed",
        /// Another attempt gives the same error.
        InstallComponentFailedNoRetry = "InstallComponentFailedNoRetry",
        ComponentUnhealthy = "ComponentUnhealthy",
        ApiServiceResourceIssue = "APIServiceResourceIssue",
        NeedsCertRotation = "NeedsCertRotation",
        NeedsReinstall = "NeedsReinstall",
        BeingReplaced = "BeingReplaced",
        Replaced = "Replaced",
    }
}

impl Reason {
    /// The reason in the status of a CSV; `None` for a text that no row of the table writes.
    #[must_use]
    pub fn read(csv: &ClusterServiceVersion) -> Option<Self> {
        let text = csv.status.as_ref().map_or("", |status| status.reason.as_str());
        text.parse().ok()
    }

    /// Whether the operator groups of the namespace are the cause (rows 1 to 7).
    #[must_use]
    pub fn is_of_the_group(self) -> bool {
        matches!(
            self,
            Self::NoOperatorGroup
                | Self::TooManyOperatorGroups
                | Self::NoTargetNamespaces
                | Self::InvalidInstallModes
                | Self::UnsupportedOperatorGroup
                | Self::CannotModifyStaticProvidedApis
                | Self::InterOperatorGroupOwnerConflict
        )
    }
}
