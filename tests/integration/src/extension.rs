//! Parts of the status of a ClusterExtension.

use anyhow::{Context as _, Result};
use olm_api::{ClusterExtension, Condition, condition};

/// The installed version as the status has it.
pub fn installed_version(extension: &ClusterExtension) -> Option<&str> {
    Some(extension.status.as_ref()?.install.as_ref()?.bundle.version.as_str())
}

/// The condition of this type, if it is about the present generation.
pub fn current<'a>(extension: &'a ClusterExtension, type_: &str) -> Option<&'a Condition> {
    let found = condition::find(&extension.status.as_ref()?.conditions, type_)?;
    (found.observed_generation == extension.metadata.generation).then_some(found)
}

/// A condition's status and message.
/// It fails when there is none of the present generation.
pub fn status_and_message(extension: &ClusterExtension, type_: &str) -> Result<(String, String)> {
    let found = current(extension, type_).with_context(|| format!("no present condition {type_}"))?;
    Ok((found.status.as_str().to_owned(), found.message.clone()))
}
