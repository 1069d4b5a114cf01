//! The ServiceAccount that installs for the operators of a group (classic-apis §5.2, §7.1).

/// The account of a group as the cluster has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    /// `spec.serviceAccountName` is empty: OLM installs with its own rights.
    Unnamed,
    /// There is no account of that name in the namespace of the group.
    Missing,
    Present {
        uid: String,
        resource_version: String,
    },
}
