//! Install modes against the namespaces of an operator group (classic-apis §7.3).

use std::collections::BTreeSet;

use olm_api::classic::ClusterServiceVersion;
use olm_bundle::InstallMode;

/// Why an operator may not watch the namespaces of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    #[error("operatorgroup has invalid selected namespaces, cannot configure to watch zero namespaces")]
    NoNamespace,
    #[error("OwnNamespace InstallModeType not supported, cannot configure to watch own namespace")]
    Own,
    #[error("AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces")]
    All,
    #[error("SingleNamespace InstallModeType not supported, cannot configure to watch one namespace")]
    Single,
    /// With the number of namespaces.
    #[error("MultiNamespace InstallModeType not supported, cannot configure to watch {0} namespaces")]
    Multi(usize),
    #[error(
        "operatorgroup has invalid selected namespaces, NamespaceAll found when |selected namespaces| > 1"
    )]
    AllAmongSeveral,
}

/// Modes that a CSV lists more than once, sorted by name.
#[must_use]
pub fn duplicates(csv: &ClusterServiceVersion) -> BTreeSet<&str> {
    let mut seen = BTreeSet::new();
    let modes = csv.spec.install_modes.iter().map(|mode| mode.type_.as_str());
    modes.filter(|mode| !seen.insert(*mode)).collect()
}

/// Whether the operator in the namespace `own` may watch these namespaces, an empty name being all. A mode that the CSV does not list is
/// not supported.
///
/// # Errors
/// The mode that it lacks, or that the namespaces are none or `""` among others.
pub fn check(csv: &ClusterServiceVersion, own: &str, targets: &[String]) -> Result<(), ModeError> {
    let supports =
        |mode: InstallMode| csv.spec.install_modes.iter().any(|it| it.supported && it.type_ == mode.as_str());
    let needs = |mode, error| if supports(mode) { Ok(()) } else { Err(error) };
    let targets: BTreeSet<&str> = targets.iter().map(String::as_str).collect();
    match (targets.len(), targets.contains(""), targets.contains(own)) {
        (0, _, _) => Err(ModeError::NoNamespace),
        (1, true, _) => needs(InstallMode::AllNamespaces, ModeError::All),
        (1, false, true) => needs(InstallMode::OwnNamespace, ModeError::Own),
        (1, false, false) => needs(InstallMode::SingleNamespace, ModeError::Single),
        (_, true, _) => Err(ModeError::AllAmongSeveral),
        (count, false, own) => {
            needs(InstallMode::MultiNamespace, ModeError::Multi(count))?;
            if own { needs(InstallMode::OwnNamespace, ModeError::Own) } else { Ok(()) }
        }
    }
}
