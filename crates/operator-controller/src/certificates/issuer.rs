//! One pass of the built-in issuer over one extension: certificates, trust and leftovers of what its revisions need.
//!
//! Order: Secrets first, so that pods can start; then callers learn whom to trust; then what no revision needs is deleted. Decisions
//! come from [`olm_certificates::plan`]; the [`Executor`] carries them out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet, field_managers, labels};
use olm_bundle::{CaTarget, CertProvider, WebhookCertificate};
use olm_certificates::material::{self, CertificateError};
use olm_certificates::plan::{CertificateState, Step};
use olm_certificates::{CertificateSpec, Executor, ExecutorError, Ownership, SecretOwner, delete_secret};
use olm_install::content::{ContentError, ContentReader};
use olm_runtime::apply::{self, ErrorClass};
use olm_runtime::events::{Events, NewEvent};
use parking_lot::Mutex;

use super::Context;
use super::caller::{self, Caller, Kind, Service};
use super::cluster::{Cluster, secret_ref};
use super::needs::{Content, Needs};
use super::provider;
use super::secret::{self, Owner};
use crate::written_by;

/// Common name of authorities.
const AUTHORITY: &str = "olm.operatorframework.io webhook authority";
/// What the issuer does, as events name it.
const ACTION: &str = "IssueCertificate";

pub(super) struct Issuer {
    pub(super) context: Context,
    pub(super) cluster: Cluster,
    pub(super) executor: Executor,
    /// What the objects of each revision need of certificates, by its UID: its content never changes. The objects are not kept.
    pub(super) contents: Mutex<HashMap<String, Arc<Content>>>,
}

/// How a pass over an extension ended. One certificate that may not be written is reported whatever becomes of the others.
#[derive(Debug, Default)]
pub(super) struct PassOutcome {
    /// When to check again if nothing changes.
    pub(super) recheck_at: Option<Timestamp>,
    /// The error message of the first certificate that may not be written.
    pub(super) refused: Option<String>,
    /// The first of the other errors.
    pub(super) failure: Option<ExecutorError>,
}

impl PassOutcome {
    fn record(&mut self, step: Result<Option<Timestamp>, ExecutorError>) {
        match step {
            Ok(recheck_at) => self.recheck_at = self.recheck_at.into_iter().chain(recheck_at).min(),
            Err(ExecutorError::Refused(message)) => _ = self.refused.get_or_insert(message),
            Err(error) => _ = self.failure.get_or_insert(error),
        }
    }
}

/// What a pass works on.
struct Extension<'a> {
    object: &'a ClusterExtension,
    owner: Owner,
    events: &'a Events,
}

impl Issuer {
    /// One pass. `revisions` are those in force, oldest first.
    pub(super) async fn pass(
        &self,
        object: &ClusterExtension,
        revisions: &[Arc<ClusterObjectSet>],
    ) -> PassOutcome {
        let mut outcome = PassOutcome::default();
        let owner = Owner { name: object.name_any(), uid: object.uid().unwrap_or_default() };
        if object.metadata.deletion_timestamp.is_some() {
            self.context.expiries.retain(&owner.name, &BTreeSet::new());
            return outcome;
        }
        let built_in = provider::recorded(object) == Some(CertProvider::BuiltIn);
        if let Err(error) = self.cluster.synced().await {
            outcome.record(Err(ExecutorError::Failed(error)));
            return outcome;
        }
        let secrets = self.cluster.secrets_of(&owner.name);
        if (!built_in && secrets.is_empty()) || revisions.is_empty() {
            return outcome;
        }
        let (mut contents, mut unread) = (Vec::new(), None);
        for revision in revisions {
            match self.content(revision).await {
                Ok(content) => contents.push(content),
                Err(error) => unread = unread.or(Some(error.to_string())),
            }
        }
        let needs = Needs::from_revisions(&contents.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        let extension = Extension { object, owner, events: &self.context.events };

        let mut trust: BTreeMap<&CaTarget, BTreeMap<Service, String>> = BTreeMap::new();
        for certificate in needs.issue.values() {
            let kept = self.keep(&extension, certificate, unread.as_deref()).await;
            outcome.record(kept.map(|(state, recheck_at)| {
                let service = (certificate.namespace.clone(), certificate.service.clone());
                for target in &certificate.ca_targets {
                    trust.entry(target).or_default().insert(service.clone(), state.trust());
                }
                recheck_at
            }));
        }
        for (target, mut trust) in trust {
            if trust.len() > 1 {
                // it is about to call another Service: it trusts both before and after
                let all = material::bundle(trust.values().map(String::as_str));
                trust.values_mut().for_each(|bundle| bundle.clone_from(&all));
            }
            outcome.record(self.publish(&extension, target, &trust).await);
        }
        outcome.record(match unread {
            None => self.remove_unneeded(&extension, &needs, &secrets).await.map(|()| None),
            // a revision whose content is not read may need it
            Some(unread) => Err(ExecutorError::Failed(unread)),
        });
        outcome
    }

    /// Removes what none of the extension's revisions needs.
    async fn remove_unneeded(
        &self,
        extension: &Extension<'_>,
        needs: &Needs,
        secrets: &[Secret],
    ) -> Result<(), ExecutorError> {
        for name in &needs.unconverted {
            let target = CaTarget::CustomResourceDefinition(name.clone());
            let caller = self.cluster.caller(&target, &extension.owner.name);
            if let Some(body) = caller.and_then(|caller| caller.release()) {
                self.apply(&target, &body).await?;
            }
        }
        for leftover in secrets.iter().filter(|secret| !needs.issue.contains_key(&secret_ref(secret))) {
            if !needs.mounted.contains(&secret_ref(leftover)) && is_owned(leftover, &extension.owner.uid) {
                self.executor.delete(leftover).await?;
            }
        }
        self.context.expiries.retain(&extension.owner.name, &needs.issue.keys().cloned().collect());
        Ok(())
    }

    /// Makes the Secret hold what it should. Returns what it holds then, and when to check again.
    async fn keep(
        &self,
        extension: &Extension<'_>,
        certificate: &WebhookCertificate,
        unread: Option<&str>,
    ) -> Result<(CertificateState, Option<Timestamp>), ExecutorError> {
        let owner = &extension.owner;
        let spec = CertificateSpec {
            namespace: certificate.namespace.clone(),
            name: certificate.secret.clone(),
            names: certificate.dns_names.clone(),
            authority: AUTHORITY,
            authority_key: olm_certificates::secret::AUTHORITY_KEY,
            timing: self.context.timing,
        };
        let service = (certificate.namespace.clone(), certificate.service.clone());
        let targets = certificate.ca_targets.iter();
        let callers: Vec<Caller> =
            targets.filter_map(|target| self.cluster.caller(target, &owner.name)).collect();
        let trusted: Vec<&str> = callers.iter().flat_map(|caller| caller.trusted(&service)).collect();
        let secret = WebhookSecret { extension, certificate, unread };
        let key = (certificate.namespace.clone(), certificate.secret.clone());
        let cached = self.cluster.secret(&key);
        let settled = cached.and_then(|cached| self.executor.settled(&spec, &secret, &cached, &trusted));
        let (state, recheck_at) = match settled {
            Some(settled) => settled,
            None => {
                let outcome = self.executor.keep(&spec, &secret, &trusted).await;
                if let Err(ExecutorError::Disputed { title, .. }) = &outcome {
                    extension.report_dispute(title).await;
                }
                outcome?
            }
        };
        self.context.expiries.set(&owner.name, &key, &state);
        Ok((state, recheck_at))
    }

    /// Makes a caller trust what it should. Returns when to check again if that has to wait.
    async fn publish(
        &self,
        extension: &Extension<'_>,
        target: &CaTarget,
        trust: &BTreeMap<Service, String>,
    ) -> Result<Option<Timestamp>, ExecutorError> {
        let Some(caller) = self.cluster.caller(target, &extension.owner.name) else { return Ok(None) };
        let title = caller::title(target);
        let Some(body) = caller.ca_bundles(trust) else {
            self.executor.record_settled(&title);
            return Ok(None);
        };
        if let Some(wait) = self.executor.disputed_for(&title) {
            extension.report_dispute(&format!("the caBundle of {title}")).await;
            return Ok(Timestamp::now().checked_add(wait).ok());
        }
        self.apply(target, &body).await?;
        self.executor.record_write(&title);
        tracing::info!(caller = title, "caBundle written");
        Ok(None)
    }

    async fn apply(&self, target: &CaTarget, body: &serde_json::Value) -> Result<(), ExecutorError> {
        let (kind, name) = Kind::split(target);
        let applied = self.executor.apply_ca_bundles(&kind.resource(), name, body).await?;
        if let Some(object) = applied {
            self.cluster.put_caller(Caller::read(kind, &object));
        }
        Ok(())
    }

    /// What a revision consists of, as far as certificates go.
    async fn content(&self, revision: &ClusterObjectSet) -> Result<Arc<Content>, ExecutorError> {
        let uid = revision.uid().unwrap_or_default();
        let cached = self.contents.lock().get(&uid).cloned();
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let objects =
            ContentReader::new(&self.context.client, &self.context.system_namespace).objects(revision).await;
        let objects = objects.map_err(|error| match &error {
            ContentError::Secret { namespace, name, source } => {
                format!("reading Secret {namespace}/{name}: {}", apply::message(source))
            }
            ContentError::Invalid(_) => error.to_string(),
        });
        let objects = objects.map_err(ExecutorError::Failed)?;
        let content = Arc::new(Content::from_objects(&objects));
        self.contents.lock().insert(uid, Arc::clone(&content));
        Ok(content)
    }

    /// Evicts revisions that are gone, once more than `most` are cached.
    pub(super) fn evict_contents(&self, most: usize, there: impl Fn(&str) -> bool) {
        let mut contents = self.contents.lock();
        if contents.len() > most {
            contents.retain(|uid, _| there(uid));
        }
    }
}

impl Extension<'_> {
    async fn report(&self, warning: bool, reason: &'static str, note: &str) {
        let event = NewEvent { warning, reason, action: ACTION, note };
        self.events.publish(&self.object.object_ref(&()), event).await;
    }

    async fn report_dispute(&self, title: &str) {
        let note =
            format!("{title} is written by another client, too; stop that, or set --webhook-cert-provider");
        self.report(true, "CertificateDisputed", &note).await;
    }
}

/// The Secret of a webhook certificate, as the extension owns it.
struct WebhookSecret<'a> {
    extension: &'a Extension<'a>,
    certificate: &'a WebhookCertificate,
    /// Why the content of a revision cannot be read.
    unread: Option<&'a str>,
}

impl SecretOwner for WebhookSecret<'_> {
    fn ownership(&self, secret: &Secret) -> Ownership {
        secret::ownership(secret, &self.extension.owner, self.certificate, self.unread)
    }

    fn marks(&self, present: Option<&Secret>) -> ObjectMeta {
        secret::marks(&self.extension.owner, present)
    }

    async fn written(&self, spec: &CertificateSpec, step: &Step, state: &CertificateState) {
        let title = spec.title();
        let until =
            material::check(&state.current, &[]).map_or(Timestamp::UNIX_EPOCH, |lifetime| lifetime.not_after);
        let (reason, note) = match step {
            Step::Issue { fault: CertificateError::Missing, .. } => (
                "CertificateIssued",
                format!(
                    "certificate of Service {} issued into Secret {title}, valid until {until}",
                    self.certificate.service
                ),
            ),
            Step::Issue { fault, .. } => (
                "CertificateReissued",
                format!("certificate in Secret {title} issued again because {fault}; valid until {until}"),
            ),
            Step::Stage(_) => (
                "CertificateRotating",
                format!(
                    "the successor of the certificate in Secret {title} is issued; callers learn to trust it before it is used"
                ),
            ),
            Step::Switch => (
                "CertificateRotated",
                format!("Secret {title} holds the successor of its certificate, valid until {until}"),
            ),
            Step::Drop | Step::Nothing => return,
        };
        tracing::info!(secret = title, reason, "webhook certificate written");
        self.extension.report(false, reason, &note).await;
    }
}

/// Takes the extension's Secrets off it, so that they stay when the extension is deleted but its objects are kept.
///
/// # Errors
/// When the apiserver refuses; it can be repeated.
pub async fn leave_behind(client: &Client, extension: &str, uid: &str) -> kube::Result<()> {
    for secret in secrets_of(client, extension, uid).await? {
        let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
        let params = written_by(field_managers::WEBHOOK_CERTIFICATES);
        let patch = Patch::Merge(secret::orphan(&secret, uid));
        match api.patch_metadata(&secret.name_any(), &params, &patch).await {
            Err(error) if apply::classify(&error) != ErrorClass::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Deletes the extension's Secrets. The garbage collector would too, but perhaps half a minute later, and an extension that
/// comes back under the same name would find them in its way until then.
///
/// # Errors
/// When the apiserver refuses; it can be repeated.
pub async fn take_away(client: &Client, extension: &str, uid: &str) -> kube::Result<()> {
    for secret in secrets_of(client, extension, uid).await? {
        delete_secret(client, &secret).await?;
    }
    Ok(())
}

/// The Secrets with certificates that the extension with this UID owns.
async fn secrets_of(client: &Client, extension: &str, uid: &str) -> kube::Result<Vec<Secret>> {
    let selector = format!(
        "{}={},{}={extension}",
        labels::WEBHOOK_CERTIFICATE,
        labels::WEBHOOK_CERTIFICATE_BUILT_IN,
        labels::OWNER_NAME
    );
    let all: Api<Secret> = Api::all(client.clone());
    let mut found = all.list(&ListParams::default().labels(&selector)).await?.items;
    found.retain(|secret| is_owned(secret, uid));
    Ok(found)
}

fn is_owned(secret: &Secret, uid: &str) -> bool {
    secret.owner_references().iter().any(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::runtime::watcher::Event;
    use olm_certificates::plan::Timing;
    use olm_runtime::controller::{Requeue, Waker};
    use olm_runtime::metrics::{Metrics, Outcome};
    use olm_runtime::watched::{Object, Objects};
    use serde_json::{Value, json};
    use tokio::task::JoinSet;

    use super::*;
    use crate::certificates::{CertificateCheck, Expiries, NAME, RefusedCertificates, WORKERS, pass};
    use crate::revisions::Revisions;
    use crate::testing::Apiserver;

    fn revision(name: &str, objects: Value) -> Arc<ClusterObjectSet> {
        let set = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": {"name": name, "uid": name},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
                "phases": [{"name": "deploy", "objects": objects}]},
        });
        Arc::new(serde_json::from_value(set).unwrap())
    }

    /// An installed revision with a webhook behind each Service, and one whose content is lost.
    fn installed_and_lost(services: &[&str]) -> [Arc<ClusterObjectSet>; 2] {
        let inline = services.iter().flat_map(|service| {
            let metadata = json!({"name": service, "namespace": "n"});
            let volumes = json!([{"name": "c", "secret": {"secretName": format!("{service}-cert")}}]);
            let hook =
                json!({"name": "v", "clientConfig": {"service": {"namespace": "n", "name": service}}});
            [
                json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata}),
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                    "spec": {"template": {"spec": {"volumes": volumes}}}}),
                json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                    "metadata": {"name": service}, "webhooks": [hook]}),
            ]
        });
        let inline: Vec<Value> = inline.map(|object| json!({"object": object})).collect();
        let lost = json!([{"ref": {"name": "lost", "namespace": "olm", "key": "k"}}]);
        [revision("e-1", inline.into()), revision("e-2", lost)]
    }

    fn extension() -> ClusterExtension {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "e", "uid": "u1"},
            "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
            "status": {"webhookCertificates": {"provider": "built-in"}},
        }))
        .unwrap()
    }

    /// A Secret that cert-manager filled for this Service.
    fn filled(service: &str) -> Value {
        json!({"metadata": {"name": format!("{service}-cert"), "namespace": "n", "uid": "u3", "resourceVersion": "4",
            "annotations": {"cert-manager.io/alt-names": format!("{service}.n.svc")}},
            "data": {"tls.crt": "eA==", "tls.key": "eA=="}})
    }

    fn not_found() -> (u16, Value) {
        (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}))
    }

    fn issuer(client: Client, tasks: &mut JoinSet<()>) -> Issuer {
        Issuer {
            context: Context {
                client: client.clone(),
                system_namespace: "olm".to_owned(),
                timing: Timing::default(),
                extensions: Objects::empty(),
                revisions: Revisions::default(),
                meter: Metrics::new().controller(NAME, u32::from(WORKERS)),
                events: Events::new(client.clone(), "test", None),
                expiries: Expiries::default(),
                refused_certificates: RefusedCertificates::default(),
            },
            cluster: Cluster::start(&client, &Waker::default(), tasks),
            executor: Executor::new(client, field_managers::WEBHOOK_CERTIFICATES),
            contents: Mutex::default(),
        }
    }

    /// The content of the newest revision is lost. Pods of the installed one need a certificate that is valid, and what the other one needs
    /// is not known: it may be the certificate that cert-manager issued.
    #[tokio::test]
    async fn certificate_is_issued_beside_a_revision_without_content() {
        let [installed, lost] = installed_and_lost(&["s"]);
        let object = extension();
        let owner =
            json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "name": "e", "uid": "u1"});
        let leftover = json!({"metadata": {"name": "leftover", "namespace": "n", "uid": "u2", "resourceVersion": "3",
            "labels": {(labels::OWNER_NAME): "e"}, "ownerReferences": [owner]}});
        let filled = filled("s");
        let (create, patch) =
            ("POST /api/v1/namespaces/n/secrets?", "PATCH /api/v1/namespaces/n/secrets/s-cert?");
        let (alone, beside) = (vec![Arc::clone(&installed)], vec![installed, lost]);
        for (revisions, present, written, is_deleted) in [
            (&alone, None, Some(create), true),
            (&beside, None, Some(create), false),
            (&alone, Some(&filled), Some(patch), true),
            (&beside, Some(&filled), None, false),
        ] {
            let (leftover, present) = (leftover.clone(), present.cloned());
            let apiserver =
                Apiserver::new(move |method, uri| match uri.split('?').next().unwrap_or_default() {
                    "/api/v1/secrets" => {
                        (200, json!({"metadata": {"resourceVersion": "9"}, "items": [leftover]}))
                    }
                    path if method == "GET" && !path.contains("/namespaces/") => {
                        (200, json!({"metadata": {"resourceVersion": "9"}, "items": []}))
                    }
                    "/api/v1/namespaces/n/secrets/s-cert" if method == "GET" && present.is_some() => {
                        (200, json!(present))
                    }
                    _ => not_found(),
                });
            let mut tasks = JoinSet::new();
            let issuer = issuer(apiserver.client(), &mut tasks);
            // the apiserver does not keep what is created
            assert!(issuer.pass(&object, revisions).await.failure.is_some());
            let requests = apiserver.requests();
            let is_made = |start: &str| requests.iter().any(|line| line.starts_with(start));
            for request in [create, patch] {
                assert_eq!(is_made(request), written == Some(request), "{request} {requests:?}");
            }
            assert_eq!(is_made("DELETE /api/v1/namespaces/n/secrets/leftover"), is_deleted, "{requests:?}");
        }
    }

    /// The extension names what a user must change, and the other certificate is tried again soon.
    #[tokio::test]
    async fn certificate_refused_beside_a_failure_is_reported() {
        for (refused, other) in [("a", "b"), ("b", "a")] {
            for (case, answer) in [
                ("it cannot be known", (200, filled(other))),
                ("it cannot be read", (500, json!({"kind": "Status", "status": "Failure", "code": 500}))),
            ] {
                let foreign = json!({"metadata": {"name": format!("{refused}-cert"), "namespace": "n"},
                    "data": {"password": "eA=="}});
                let apiserver = Apiserver::new(move |method, uri| {
                    let path = uri.split('?').next().unwrap_or_default();
                    let is_secret = |service: &str| {
                        path == format!("/api/v1/namespaces/n/secrets/{service}-cert") && method == "GET"
                    };
                    if is_secret(refused) {
                        (200, foreign.clone())
                    } else if is_secret(other) {
                        answer.clone()
                    } else if method == "GET" && !path.contains("/namespaces/") {
                        (200, json!({"metadata": {"resourceVersion": "9"}, "items": []}))
                    } else {
                        not_found()
                    }
                });
                let mut tasks = JoinSet::new();
                let mut issuer = issuer(apiserver.client(), &mut tasks);
                for mut set in installed_and_lost(&["a", "b"]).map(Arc::unwrap_or_clone) {
                    set.metadata.labels = Some([(labels::OWNER_NAME.to_owned(), "e".to_owned())].into());
                    set.metadata.owner_references =
                        Some(vec![OwnerReference { uid: "u1".to_owned(), ..OwnerReference::default() }]);
                    issuer.context.revisions.apply(Event::Apply(Object::new(set)), |set| (set.name(), set));
                }
                for _ in 0..2 {
                    let requeue = pass(&issuer, &Object::new(extension())).await;
                    assert_eq!(requeue, (Requeue::Backoff, Outcome::Error), "{case}, {refused} is refused");
                    let requests = apiserver.requests();
                    let events = requests.iter().filter(|line| line.contains("CertificateRefused"));
                    assert_eq!(events.count(), 1, "{case}, {refused} is refused");
                    // these do not remember what was sent
                    issuer.context.events = Events::new(apiserver.client(), "test", None);
                }
                let check = issuer.context.refused_certificates.check("e", "u1", false);
                let CertificateCheck::Refused(message) = &check else {
                    panic!("{case}, {refused} is refused: {check:?}")
                };
                let want = format!("Secret n/{refused}-cert holds no webhook certificate");
                assert!(message.starts_with(&want), "{case}: {message}");
            }
        }
    }
}
