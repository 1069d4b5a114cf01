//! One module a verb. Each turns arguments into an [`crate::CommandOutput`] and prints nothing itself.

pub(crate) mod act;
pub(crate) mod bundle;
pub(crate) mod catalog;
pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod crd;
pub(crate) mod diff;
pub(crate) mod graph;
pub(crate) mod image;
pub(crate) mod list;
pub(crate) mod notices;
pub(crate) mod output;
pub(crate) mod paths;
pub(crate) mod plan;
pub(crate) mod rbac;
pub(crate) mod report;
pub(crate) mod search;
pub(crate) mod semver;
pub(crate) mod show;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod upgrade_check;
pub(crate) mod version;
pub(crate) mod versions;
pub(crate) mod why;
