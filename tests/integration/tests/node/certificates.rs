//! The serving certificate of an operator of OLM Classic: what its Secret holds, what its callers trust, what its pods serve with.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_certificates::material::{self, Keys, bundle};
use olm_certificates::plan::CertificateState;
use olm_certificates::secret;
use olm_integration::classic::Package;
use olm_kit::eventually;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::sample;
use crate::site::LIMIT;

/// The annotation with the hash of the authority.
const CA_HASH: &str = "olmcahash";
/// The key of the certificate of the authority.
const AUTHORITY_KEY: &str = "olmCAKey";
/// How long ago a certificate was issued that is due.
const AGE: SignedDuration = SignedDuration::from_hours(1);

/// What calls an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// A validating webhook, and the conversion of its kind.
    Webhooks,
    /// An APIService.
    Aggregator,
}

/// An operator with a serving certificate.
pub(crate) struct Served<'a> {
    pub(crate) package: &'a Package,
    pub(crate) callers: Callers,
}

impl Served<'_> {
    fn service(&self) -> String {
        format!("{}-service", sample::deployment_name(&self.package.name))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.package.client.clone(), &self.package.name)
    }

    /// The name of the Secret.
    pub(crate) fn secret(&self) -> String {
        format!("{}-cert", self.service())
    }

    pub(crate) async fn delete_secret(&self) -> Result<()> {
        self.secrets().delete(&self.secret(), &DeleteParams::default()).await?;
        Ok(())
    }

    /// What the Secret holds.
    pub(crate) async fn certificate_state(&self) -> Result<CertificateState> {
        Ok(secret::read(&self.secrets().get(&self.secret()).await?, AUTHORITY_KEY))
    }

    /// What each of the callers trusts, as PEM.
    pub(crate) async fn trusted(&self) -> Result<Vec<String>> {
        let Package { client, name, .. } = self.package;
        let found: Vec<Option<ByteString>> = match self.callers {
            Callers::Webhooks => {
                let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
                let own = ListParams::default().labels(&format!("olm.owner.namespace={name}"));
                let webhooks = webhooks.list(&own).await?.items.into_iter().flat_map(|it| it.webhooks);
                let mut found: Vec<_> = webhooks.flatten().map(|it| it.client_config.ca_bundle).collect();
                ensure!(!found.is_empty(), "no webhook");
                let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
                let crd = crds.get(&sample::crd(name).name()).await?;
                let webhook = crd.spec.conversion.and_then(|it| it.webhook?.client_config);
                found.push(webhook.and_then(|it| it.ca_bundle));
                found
            }
            Callers::Aggregator => {
                let services: Api<APIService> = Api::all(client.clone());
                let service = services.get(&format!("v1.{}", sample::group(name))).await?;
                vec![service.spec.and_then(|it| it.ca_bundle)]
            }
        };
        let text = |bytes: Option<ByteString>| Ok(String::from_utf8(bytes.context("no caBundle")?.0)?);
        found.into_iter().map(text).collect()
    }

    /// Replaces the certificate by one that ends after `left`, and so is due. Callers trust it before pods can serve with it.
    pub(crate) async fn make_due(&self, left: SignedDuration) -> Result<()> {
        let (service, namespace) = (self.service(), &self.package.name);
        let names = ["", ".svc", ".svc.cluster.local"].map(|suffix| format!("{service}.{namespace}{suffix}"));
        let issued_at = Timestamp::now().checked_sub(AGE)?;
        let ending = material::issue("test authority", &names, issued_at, AGE + left, Keys::generate()?)?;
        let CertificateState { current, previous, .. } = self.certificate_state().await?;
        let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let both = bundle([ending.authority.as_str(), &previous]);
        self.patch(json!({"previous-ca.crt": bytes(&both)})).await?;
        eventually("callers trust the ending certificate", LIMIT, || async {
            let trusted = self.trusted().await?;
            let is_known = |pem: &String| pem.contains(ending.authority.trim());
            ensure!(trusted.iter().all(is_known), "{} of {}", self.secret(), namespace);
            Ok(())
        })
        .await?;
        self.patch(json!({
            "tls.crt": bytes(&ending.certificate), "tls.key": bytes(ending.key.pem()), AUTHORITY_KEY: bytes(&ending.authority),
            "previous-ca.crt": bytes(&bundle([current.authority.as_str(), &previous])),
        }))
        .await
    }

    async fn patch(&self, data: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "data": data }));
        self.secrets().patch(&self.secret(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until pods serve with a certificate that none of these authorities signed. Returns what the Secret holds then.
    pub(crate) async fn serves_another(&self, than: &[&str]) -> Result<CertificateState> {
        eventually("another certificate is served", LIMIT, || async {
            let stored = self.certificate_state().await?;
            let is_another = than.iter().all(|authority| authority.trim() != stored.current.authority.trim());
            ensure!(is_another, "the Secret has no other");
            let expected = CertificateDer::from_pem_slice(stored.current.certificate.as_bytes())?;
            ensure!(self.served().await? == *expected, "pods serve with an earlier one");
            Ok(stored)
        })
        .await
    }

    /// The hash of the authority that the Secret has, and that of the pods, none of which is an earlier one.
    async fn marks(&self) -> Result<[Option<String>; 2]> {
        let deployments: Api<Deployment> = Api::namespaced(self.package.client.clone(), &self.package.name);
        let deployment = deployments.get(&sample::deployment_name(&self.package.name)).await?;
        let spec = deployment.spec.context("the Deployment has no spec")?;
        let status = deployment.status.context("the Deployment has no status")?;
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        let is_current = status.observed_generation == deployment.metadata.generation;
        ensure!(is_current && counts == [Some(1); 3], "{counts:?} of generation {is_current}");
        let of_secret = self.secrets().get(&self.secret()).await?.annotations().get(CA_HASH).cloned();
        let of_pods = spec.template.metadata.and_then(|it| it.annotations?.get(CA_HASH).cloned());
        Ok([of_secret, of_pods])
    }

    /// Waits until all pods are those of an authority.
    pub(crate) async fn pods_are_of(&self, authority: &str) -> Result<()> {
        let expected = Some(olm_core::digits(&Sha256::digest(authority.as_bytes()), 16));
        eventually("pods are replaced", LIMIT, || async {
            let marks = self.marks().await?;
            ensure!(marks.iter().all(|mark| *mark == expected), "{marks:?} instead of {expected:?}");
            Ok(())
        })
        .await
    }

    /// The certificate that clients of the Service get, in DER, once each caller's authorities have verified it.
    async fn served(&self) -> Result<Vec<u8>> {
        let Package { client, name, .. } = self.package;
        let services: Api<Service> = Api::namespaced(client.clone(), name);
        let spec = services.get(&self.service()).await?.spec.context("the Service has no spec")?;
        let address = spec.cluster_ip.context("the Service has no address")?;
        let port = spec.ports.iter().flatten().next().context("the Service has no port")?.port;
        let host = format!("{}.{name}.svc", self.service());
        let mut served = Vec::new();
        for trusted in self.trusted().await? {
            let client = reqwest::Client::builder()
                .tls_certs_only(reqwest::Certificate::from_pem_bundle(trusted.as_bytes())?)
                .tls_info(true)
                .no_proxy()
                .timeout(Duration::from_secs(10))
                .resolve(&host, format!("{address}:0").parse()?)
                .build()?;
            let answer = client.get(format!("https://{host}:{port}/")).send().await?;
            let info = answer.extensions().get::<reqwest::tls::TlsInfo>().context("no TLS")?;
            info.peer_certificate().context("no certificate")?.clone_into(&mut served);
        }
        Ok(served)
    }
}
