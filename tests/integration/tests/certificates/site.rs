//! One extension with webhooks of every kind: a validating and a mutating one, and the conversion of its CRD.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_bundle::CaTarget;
use olm_certificates::material::{Authority, Generation, authorities, bundle};
use olm_certificates::{plan, secret};
use olm_kit::{BundleImage, Cluster, Crd, Options, Program, Registry, Stack, Wait, still};
use operator_controller::certificates::caller::{Caller, Kind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::world::{LIMIT, World};

/// The account of operator-controller, by which its requests are found.
const ACCOUNT: &str = "certificates-under-test";

/// A stack that records requests, for all tests whose cluster has no other provider.
async fn stack() -> Result<&'static Stack> {
    static SHARED: OnceCell<Stack> = OnceCell::const_new();
    let options = Options { audit: true, ..Options::default() };
    SHARED
        .get_or_try_init(|| async {
            let (cluster, registry) = tokio::try_join!(Cluster::start_for_olm(&options), Registry::start())?;
            let kubeconfig = cluster.kubeconfig_that_may_all(ACCOUNT).await?;
            let (catalogd, operator_controller) = tokio::try_join!(
                Program::catalogd(&cluster)?.start(),
                Program::operator_controller(&cluster)?.kubeconfig(&kubeconfig).start(),
            )?;
            Ok(Stack { catalogd, operator_controller, cluster_operator: None, registry, cluster })
        })
        .await
}

/// See the top of this file.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) secrets: Api<Secret>,
}

impl Site {
    /// Version 1.0.0, installed; 1.1.0 has no webhooks any more.
    pub(crate) async fn installed(prefix: &str) -> Result<Self> {
        let site = Self::empty(prefix).await?;
        let plain = site.world.bundle("1.1.0").crds([site.crd()]);
        site.world.serve_chain([("1.0.0", site.bundle("1.0.0")), ("1.1.0", plain)]).await?;
        site.world.install("1.0.0").await?;
        site.settled().await?;
        Ok(site)
    }

    /// Nothing yet but a namespace, on the shared stack.
    pub(crate) async fn empty(prefix: &str) -> Result<Self> {
        Self::on(stack().await?, prefix).await
    }

    /// Nothing yet but a namespace.
    pub(crate) async fn on(stack: &'static Stack, prefix: &str) -> Result<Self> {
        let world = World::on(stack, prefix).await?;
        let client = stack.cluster.client().await?;
        Ok(Self { secrets: Api::namespaced(client, &world.name), world })
    }

    /// The bundle with webhooks.
    pub(crate) fn bundle(&self, version: &str) -> BundleImage {
        self.with_webhooks(self.world.bundle(version), &self.deployment())
    }

    /// The same with another Deployment, from whose name Service and Secret of the certificate have theirs.
    pub(crate) fn renamed_bundle(&self, version: &str, deployment: &str) -> BundleImage {
        self.with_webhooks(self.world.bundle(version).deployments([]).deployment(deployment), deployment)
    }

    fn with_webhooks(&self, bundle: BundleImage, deployment: &str) -> BundleImage {
        let rules = json!([{"apiGroups": [self.group()], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["gadgets"]}]);
        let webhook = |kind: &str, name: String, more: Value| {
            let mut definition = json!({"type": kind, "generateName": name, "deploymentName": deployment,
                "containerPort": 443, "targetPort": 9443, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
            if let (Some(all), Value::Object(more)) = (definition.as_object_mut(), more) {
                all.extend(more);
            }
            definition
        };
        let admission = json!({"rules": rules, "failurePolicy": "Fail"});
        let conversion = json!({"conversionCRDs": [self.crd().name()]});
        bundle
            .crds([self.crd()])
            .webhook(webhook("ValidatingAdmissionWebhook", self.hook("v"), admission.clone()))
            .webhook(webhook("MutatingAdmissionWebhook", self.hook("m"), admission))
            .webhook(webhook("ConversionWebhook", self.hook("c"), conversion))
    }

    fn group(&self) -> String {
        format!("{}.example.com", self.world.name)
    }

    pub(crate) fn crd(&self) -> Crd {
        Crd::new("Gadget", &self.group())
    }

    fn deployment(&self) -> String {
        format!("{}-ctrl", self.world.name)
    }

    fn hook(&self, kind: &str) -> String {
        format!("{kind}.{}", self.group())
    }

    /// The Secret of the certificate.
    pub(crate) fn secret(&self) -> String {
        format!("{}-ctrl-service-cert", self.world.name)
    }

    /// The DNS names that the certificate must have.
    pub(crate) fn names(&self) -> Vec<String> {
        let host = format!("{0}-ctrl-service.{0}", self.world.name);
        vec![host.clone(), format!("{host}.svc"), format!("{host}.svc.cluster.local")]
    }

    /// The objects that call the webhooks.
    pub(crate) fn callers(&self) -> [CaTarget; 3] {
        [
            CaTarget::ValidatingWebhookConfiguration(self.hook("v")),
            CaTarget::MutatingWebhookConfiguration(self.hook("m")),
            CaTarget::CustomResourceDefinition(self.crd().name()),
        ]
    }

    pub(crate) async fn api(&self, target: &CaTarget) -> Result<Api<DynamicObject>> {
        let client = self.world.stack.cluster.client().await?;
        Ok(Api::all_with(client, &Kind::split(target).0.resource()))
    }

    /// A live caller.
    pub(crate) async fn live(&self, target: &CaTarget) -> Result<DynamicObject> {
        Ok(self.api(target).await?.get(Kind::split(target).1).await?)
    }

    /// The PEM texts that a live caller trusts.
    pub(crate) fn trusted(&self, target: &CaTarget, live: &DynamicObject) -> String {
        let service = (self.world.name.clone(), format!("{}-ctrl-service", self.world.name));
        let caller = Caller::read(Kind::split(target).0, live);
        caller.trusted(&service).map(str::to_owned).collect()
    }

    /// Waits until a caller trusts what `reached` likes.
    pub(crate) async fn until_trusts(
        &self,
        target: &CaTarget,
        what: &str,
        mut reached: impl FnMut(&[Authority]) -> bool,
    ) -> Result<Vec<Authority>> {
        let api = self.api(target).await?;
        let name = Kind::split(target).1;
        let wait = Wait::new(&api, name).within(LIMIT).log(self.world.stack.operator_controller.log());
        let live = wait.until(what, |live| reached(&authorities(&self.trusted(target, live)))).await?;
        Ok(authorities(&self.trusted(target, &live)))
    }

    /// What the Secret holds.
    pub(crate) async fn read_secret(&self) -> Result<(Secret, plan::CertificateState)> {
        let live = self.secrets.get(&self.secret()).await?;
        let stored = secret::read(&live, secret::AUTHORITY_KEY);
        Ok((live, stored))
    }

    /// Waits for a state of the Secret.
    pub(crate) async fn until_stored(
        &self,
        what: &str,
        mut reached: impl FnMut(&Secret, &plan::CertificateState) -> bool,
    ) -> Result<(Secret, plan::CertificateState)> {
        let name = self.secret();
        let wait =
            Wait::new(&self.secrets, &name).within(LIMIT).log(self.world.stack.operator_controller.log());
        let live = wait.until(what, |live| reached(live, &secret::read(live, secret::AUTHORITY_KEY))).await?;
        let stored = secret::read(&live, secret::AUTHORITY_KEY);
        Ok((live, stored))
    }

    /// Waits until every caller trusts exactly the authorities of the Secret.
    pub(crate) async fn settled(&self) -> Result<plan::CertificateState> {
        let (_, stored) = self.until_stored("is there", |_, _| true).await?;
        for target in &self.callers() {
            let expected = authorities(&stored.trust());
            self.until_trusts(target, "trusts the CA of the Secret", |found| {
                bundle(found.iter().map(|one| one.pem.as_str()))
                    == bundle(expected.iter().map(|one| one.pem.as_str()))
            })
            .await?;
        }
        Ok(stored)
    }

    /// Waits until an install has emitted its events and made its last request; returns the length of the audit log. A status is
    /// visible before its events are sent, and a response before it is recorded.
    pub(crate) async fn at_rest(&self) -> Result<usize> {
        self.world.until_event("CertificateIssued").await?;
        self.world.until_event("Installed").await?;
        let count = || self.requests(0).map(|requests| requests.len());
        still("the requests end", LIMIT, Duration::from_secs(3), count).await?;
        self.world.stack.cluster.audit_length()
    }

    /// Overwrites the certificate in the Secret as a foreign field manager.
    pub(crate) async fn overwrite(&self, generation: &Generation) -> Result<()> {
        let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let patch = json!({"data": {
            "tls.crt": bytes(&generation.certificate), "tls.key": bytes(generation.key.pem()), "ca.crt": bytes(&generation.authority),
        }});
        self.secrets.patch(&self.secret(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Requests of our controllers about this extension's certificates since the record had `from` lines: those that write,
    /// and those that read the Secret.
    pub(crate) fn requests(&self, from: usize) -> Result<Vec<String>> {
        let (secret, account) = (self.secret(), format!(":{ACCOUNT}"));
        let ours = self.world.stack.cluster.audited(from, |request| {
            request.user.ends_with(&account)
                && (request.writes() || (request.verb == "get" && request.name == secret))
                && (request.namespace == self.world.name || request.name.contains(&self.world.name))
        })?;
        Ok(ours.iter().map(|r| format!("{} {} {} -> {}", r.verb, r.resource, r.name, r.code)).collect())
    }
}

/// The end of a certificate that the present time allows for.
pub(crate) fn soon(seconds: i64) -> Result<Timestamp> {
    Ok(Timestamp::now().checked_add(k8s_openapi::jiff::SignedDuration::from_secs(seconds))?)
}

/// UID of an object that has one.
pub(crate) fn uid(secret: &Secret) -> Result<String> {
    secret.uid().context("no UID")
}
