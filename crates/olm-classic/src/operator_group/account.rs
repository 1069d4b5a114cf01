//! The ServiceAccount that installs for the operators of a group (classic-apis §5.2, §7.1).

use olm_api::classic::OperatorGroup;

use super::targets::{name, namespace, resolved};

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

/// Why no install plan of a namespace can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// No group, or none with target namespaces.
    #[error("no operator group found that is managing this namespace")]
    NoGroup,
    /// With the number of groups that have target namespaces.
    #[error("more than one operator group(s) are managing this namespace count={0}")]
    SeveralGroups(usize),
    #[error("please make sure the service account exists. sa={account} operatorgroup={namespace}/{group}")]
    Missing { account: String, namespace: String, group: String },
}

/// The account that install plans of a namespace act with; `None` for OLM's own rights. `exists` reports whether the namespace has a
/// ServiceAccount of that name.
///
/// # Errors
/// When there is not exactly one group with target namespaces, or its account is missing.
pub fn acting(
    own: &str,
    groups: &[OperatorGroup],
    exists: impl Fn(&str) -> bool,
) -> Result<Option<String>, AccountError> {
    let is_ready = |group: &&OperatorGroup| {
        namespace(group) == own && resolved(group).is_some_and(|targets| !targets.is_empty())
    };
    let ready: Vec<&OperatorGroup> = groups.iter().filter(is_ready).collect();
    let group = match ready.as_slice() {
        [] => return Err(AccountError::NoGroup),
        [group] => group,
        several => return Err(AccountError::SeveralGroups(several.len())),
    };
    let account = &group.spec.service_account_name;
    if account.is_empty() {
        return Ok(None);
    }
    if exists(account) {
        return Ok(Some(account.clone()));
    }
    Err(AccountError::Missing {
        account: account.clone(),
        namespace: own.to_owned(),
        group: name(group).to_owned(),
    })
}
