//! The extensions, what olm-rs adopts them from, and the major versions that it will not install by itself.

use kube::{Client, ResourceExt as _};
use olm_api::ClusterObjectSet;
use olm_install::SYSTEM_NAMESPACE;
use olm_install::release::{self, InstalledRelease};
use olm_install::resolution::validate;
use serde::Serialize;

use super::super::list;
use super::super::plan::adopted;
use crate::extensions;
use crate::failure::{CommandError, NO_REVISIONS, NOT_INSTALLED};
use crate::sources::{Controller, Sources};

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtensionRow {
    pub(super) name: String,
    pub(super) package: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// ClusterObjectSets that are used as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    revisions: Vec<String>,
    /// The first Secret of the Helm release that becomes revision 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    helm_release: Option<String>,
    /// Why it cannot be adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// A next major version, which the Go implementation would install by itself (decision 32).
    #[serde(skip_serializing_if = "Option::is_none")]
    held_major: Option<String>,
    /// Whether the catalogs could be read.
    catalogs_read: bool,
}

impl ExtensionRow {
    /// What the extension is adopted from, for people.
    pub(super) fn origin(&self) -> String {
        match (&self.error, &self.helm_release, self.revisions.as_slice()) {
            (Some(error), _, _) => format!("cannot be adopted: {error}"),
            (None, Some(secret), _) => format!("Helm release {secret}"),
            (None, None, []) => "nothing is installed".to_owned(),
            (None, None, [one]) => format!("revision {one}"),
            (None, None, [first, .., last]) => format!("revisions {first} to {last}"),
        }
    }

    /// The next major version, for people.
    pub(super) fn next_major(&self) -> String {
        match (&self.held_major, self.catalogs_read) {
            (Some(version), _) => format!("{version}, will be held"),
            (None, true) => "-".to_owned(),
            (None, false) => "?".to_owned(),
        }
    }
}

pub(super) async fn read(
    client: &Client,
    controller: Controller,
    sources: &Sources,
) -> Result<Vec<ExtensionRow>, CommandError> {
    let all = match extensions::all(client).await {
        // a cluster without the kind has no extensions
        Err(CommandError::Unreachable(text)) if text.starts_with(NOT_INSTALLED) => Vec::new(),
        all => all?,
    };
    let mut revisions = match extensions::revisions(client, None).await {
        Err(CommandError::Unreachable(text)) if text.starts_with(NO_REVISIONS) => Vec::new(),
        revisions => revisions?,
    };
    let mut rows = Vec::new();
    for extension in &all {
        let of_extension = |set: &ClusterObjectSet| set.name_any();
        let mut row = ExtensionRow {
            name: extension.name_any(),
            revisions: extensions::revisions_of(extension, &revisions).map(of_extension).collect(),
            ..ExtensionRow::default()
        };
        if row.revisions.is_empty() {
            match release_of(client, extension).await {
                Ok(Some(release)) => {
                    row.helm_release = Some(release.secret.clone());
                    row.version = Some(release.bundle.version.clone());
                    revisions.push(adopted(&release));
                }
                Ok(None) => {}
                Err(error) => row.error = Some(error),
            }
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Ok(rows);
    }
    let listed = list::rows_of(&all, &revisions, controller, sources).await;
    for (row, listed) in rows.iter_mut().zip(listed) {
        row.package = listed.package.clone();
        row.version = listed.version.clone().or(row.version.take());
        row.held_major = listed.held_major().map(str::to_owned);
        row.catalogs_read = listed.catalogs_read;
    }
    Ok(rows)
}

/// The Helm release in force, or why there is none that can be read.
async fn release_of(
    client: &Client,
    extension: &olm_api::ClusterExtension,
) -> Result<Option<InstalledRelease>, String> {
    let request = validate(extension).map_err(|error| error.message)?;
    release::read(client, SYSTEM_NAMESPACE, &request).await.map_err(|error| error.message)
}
