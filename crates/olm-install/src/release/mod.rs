//! The Helm release through which the reference installed an extension, and the revision that takes its objects over.
//!
//! Read only. operator-controller makes the revision when it adopts the extension, `kubectl olm plan` begins with it.
//! Rule: revisions §4.6, decision 1.

#[doc(hidden)]
pub mod fuzz;
mod stored;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use olm_api::secret_types;
use olm_core::Object;

use self::stored::{Index, Release, ReleaseError, deployed, further_chunks, payload};
use crate::desired::{Desired, Numbered};
use crate::resolution::{BundleFacts, Class, ExtensionRequest, PassError};

/// The number of the revision that a release becomes.
pub const FIRST: i64 = 1;
/// The fix for a release that cannot be read.
const FIX: &str = "nothing was changed; restore the Secret from a backup, or delete the ClusterExtension, which removes its \
                    objects, and create it again";

/// The release in force of an extension, as a revision.
#[derive(Debug, Clone)]
pub struct InstalledRelease {
    /// Name of the release's first Secret.
    pub secret: String,
    pub bundle: BundleFacts,
    pub revision: Numbered,
    pub objects: Vec<Object>,
}

/// Reads the release in force; `None` when there is none.
///
/// # Errors
/// Transient if the apiserver does not answer; else the release cannot be read or does not fit into a revision, and a user has to act.
pub async fn read(
    client: &Client,
    system_namespace: &str,
    request: &ExtensionRequest,
) -> Result<Option<InstalledRelease>, PassError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), system_namespace);
    let not_read = |error: &kube::Error| {
        let text = format!(
            "migrating storage: looking for a Helm release of {:?} in namespace {system_namespace}: {}",
            request.name,
            olm_runtime::apply::message(error)
        );
        PassError::new(Class::Transient, text)
    };
    let broken = |secret: &str, problem: &str| {
        let text = format!(
            "migrating storage: extension {:?} was installed through the Helm release in Secret {system_namespace}/{secret}, which \
             cannot be read: {problem}; {FIX}",
            request.name
        );
        PassError::new(Class::NeedsChange, text)
    };
    let indexes = ListParams::default()
        .labels(&format!("name={},owner=operator-controller", request.name))
        .fields(&format!("type={}", secret_types::HELM_INDEX));
    let mut releases = Vec::new();
    for found in secrets.list_metadata(&indexes).await.map_err(|error| not_read(&error))? {
        let index = Index::read(&found.metadata, &request.uid)
            .map_err(|error| broken(&found.name_any(), &error.to_string()))?;
        releases.extend(index);
    }
    let Some(index) = deployed(&releases).cloned() else { return Ok(None) };
    let wrong = |error: ReleaseError| broken(&index.secret, &error.to_string());
    let first = secrets.get(&index.secret).await.map_err(|error| not_read(&error))?;
    let mut further = Vec::new();
    for name in further_chunks(&first).map_err(wrong)? {
        let chunk = secrets.get_opt(&name).await.map_err(|error| not_read(&error))?;
        further.push((name, chunk));
    }
    let joined = payload(&first, &further).map_err(wrong)?;
    let (name, described) = (request.name.clone(), index.clone());
    let read = tokio::task::spawn_blocking(move || Release::read(&name, &described, &joined)).await;
    let read = read.map_err(|error| {
        PassError::new(Class::Transient, format!("migrating storage: reading the Helm release: {error}"))
    })?;
    let Release { bundle, properties, objects } = read.map_err(wrong)?;
    let invalid = |error: PassError| broken(&index.secret, &error.message);
    let desired = Desired::new(request, &bundle, properties.as_deref(), objects.clone()).map_err(invalid)?;
    let revision = desired.migrated(FIRST, system_namespace).map_err(invalid)?;
    Ok(Some(InstalledRelease { secret: index.secret, bundle, revision, objects }))
}
