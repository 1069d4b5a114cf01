//! Sends an image to a registry. Credentials are those of `docker login` (`$DOCKER_CONFIG/config.json`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};
use docker_credential::{CredentialRetrievalError, DockerCredential};
use http::HeaderValue;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};

use crate::image::{Blob, Part};

/// How a registry is reached.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// without TLS
    pub plain_http: bool,
    /// certificate authorities to trust beside the system's, PEM
    pub ca_file: Option<PathBuf>,
    /// where the credentials are instead of where `docker login` writes them
    pub docker_config: Option<PathBuf>,
}

/// Pushes `index` as `reference` (`registry/path:tag`) with its `parts`, then the `referrers`. Blobs that the registry has
/// are not sent again. The tag is written after everything that it needs.
///
/// # Errors
/// When the registry refuses something or cannot be reached.
pub async fn push(
    reference: &str,
    index: &Blob,
    parts: &[&Part],
    referrers: &[Part],
    way: &Way,
) -> Result<()> {
    let image: Reference = reference.parse().with_context(|| format!("{reference:?} names no image"))?;
    let client = client(way)?;
    let credentials = credentials(image.resolve_registry(), way)?;
    client
        .auth(&image, &credentials, RegistryOperation::Push)
        .await
        .with_context(|| format!("{} does not accept the push", image.resolve_registry()))?;
    let mut sent = BTreeSet::new();
    for part in parts.iter().copied().chain(referrers) {
        for blob in part.blobs.iter().filter(|blob| sent.insert(blob.digest.clone())) {
            let there = client.blob_exists(&image, &blob.digest).await.unwrap_or(false);
            if !there {
                client
                    .push_blob(&image, blob.bytes.clone(), &blob.digest)
                    .await
                    .with_context(|| format!("cannot push {} to {image}", blob.digest))?;
            }
        }
    }
    let named = |part: &Part| image.clone_with_digest(part.manifest.digest.clone());
    for part in parts {
        manifest(&client, &named(part), &part.manifest).await?;
    }
    manifest(&client, &image, index).await?;
    for part in referrers {
        manifest(&client, &named(part), &part.manifest).await?;
    }
    Ok(())
}

async fn manifest(client: &Client, image: &Reference, blob: &Blob) -> Result<()> {
    client
        .push_manifest_raw(image, blob.bytes.clone(), HeaderValue::from_static(blob.media_type))
        .await
        .with_context(|| format!("cannot push the manifest {image}"))?;
    Ok(())
}

fn client(way: &Way) -> Result<Client> {
    let mut config = ClientConfig::default();
    if way.plain_http {
        config.protocol = ClientProtocol::Http;
    }
    if let Some(path) = &way.ca_file {
        let data = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        config.extra_root_certificates.push(Certificate { encoding: CertificateEncoding::Pem, data });
    }
    Client::try_from(config).context("cannot make an HTTP client")
}

fn credentials(registry: &str, way: &Way) -> Result<RegistryAuth> {
    let found = match &way.docker_config {
        Some(path) => {
            let file =
                std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            docker_credential::get_credential_from_reader(file, registry)
        }
        None => docker_credential::get_credential(registry),
    };
    match found {
        Ok(DockerCredential::UsernamePassword(user, password)) => Ok(RegistryAuth::Basic(user, password)),
        Ok(DockerCredential::IdentityToken(token)) => Ok(RegistryAuth::Bearer(token)),
        // no user is logged in
        Err(
            CredentialRetrievalError::ConfigNotFound
            | CredentialRetrievalError::ConfigReadError
            | CredentialRetrievalError::NoCredentialConfigured,
        ) => Ok(RegistryAuth::Anonymous),
        Err(problem) => Err(anyhow::anyhow!(
            "cannot read the credentials for {registry}: {problem}; try `docker login {registry}`"
        )),
    }
}
