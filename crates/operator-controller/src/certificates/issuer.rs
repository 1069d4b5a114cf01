//! One pass of the built-in issuer over one extension: what its revisions need, is made to be there.
//!
//! Order: Secrets first, so that pods can start; then callers learn whom to trust; then what nobody needs goes. What is
//! decided comes from [`super::plan`]; a write is decided on an object that was just read, never on a cached one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use olm_api::cluster_extension::WebhookCertificateProvider;
use olm_api::{ClusterExtension, ClusterObjectSet, field_managers, labels};
use olm_bundle::{CaTarget, WebhookCertificate};
use olm_core::Object;
use olm_runtime::apply::{self, Apply, ErrorClass};
use olm_runtime::backoff;
use olm_runtime::events::{Events, NewEvent};
use parking_lot::Mutex;

use super::caller::{self, Caller, Kind, Service};
use super::cluster::{Cluster, place};
use super::expiries::Expiries;
use super::material::{self, Keys};
use super::needs::{Content, Needs, Place};
use super::plan::{CertificateState, Step, Timing, after, plan};
use super::secret::{self, Owner, Standing};

/// Common name of authorities.
pub(super) const AUTHORITY: &str = "olm.operatorframework.io webhook authority";
/// Writes to one Secret in one pass, at most: create or delete, create, stage, switch, drop.
const WRITES: usize = 6;
/// How long after its last write an object counts as undisputed.
const CALM: Duration = Duration::from_secs(600);
/// From so many writes in a row on, somebody else is taken to write the object too.
const DISPUTED: u32 = 6;

/// Why a pass did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// Worth another try.
    #[error("{0}")]
    Failed(String),
    /// Only a change in the cluster helps; told to the user.
    #[error("{0}")]
    Refused(String),
}

/// The built-in issuer.
pub(super) struct Issuer {
    pub(super) client: Client,
    pub(super) system_namespace: String,
    pub(super) timing: Timing,
    pub(super) events: Events,
    pub(super) expiries: Expiries,
    pub(super) cluster: Cluster,
    /// What revisions consist of, by UID: it never changes.
    pub(super) contents: Mutex<HashMap<String, Arc<Content>>>,
    pub(super) disputes: Disputes,
}

/// What a pass works on.
struct Extension<'a> {
    object: &'a ClusterExtension,
    owner: Owner,
}

impl Issuer {
    /// One pass. `revisions` are those in force, oldest first. Says when to look again if nothing changes.
    pub(super) async fn pass(
        &self,
        object: &ClusterExtension,
        revisions: &[Arc<ClusterObjectSet>],
    ) -> Result<Option<Timestamp>, Trouble> {
        let owner = Owner { name: object.name_any(), uid: object.uid().unwrap_or_default() };
        if object.metadata.deletion_timestamp.is_some() {
            self.expiries.keep(&owner.name, &BTreeSet::new());
            return Ok(None);
        }
        let provider = object.status.as_ref().and_then(|status| status.webhook_certificates.as_ref());
        let built_in = provider.is_some_and(|kept| kept.provider == WebhookCertificateProvider::BuiltIn);
        self.cluster.synced().await.map_err(Trouble::Failed)?;
        let secrets = self.cluster.secrets_of(&owner.name);
        if (!built_in && secrets.is_empty()) || revisions.is_empty() {
            return Ok(None);
        }
        let mut contents = Vec::new();
        for revision in revisions {
            contents.push(self.content(revision).await?);
        }
        let needs = Needs::of(&contents.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        let extension = Extension { object, owner };

        let mut look_again: Vec<Timestamp> = Vec::new();
        let mut trouble: Option<Trouble> = None;
        let mut trust: BTreeMap<&CaTarget, BTreeMap<Service, String>> = BTreeMap::new();
        for (place, certificate) in &needs.issue {
            match self.secret(&extension, place, certificate).await {
                Ok((stored, again)) => {
                    look_again.extend(again);
                    let service = (certificate.namespace.clone(), certificate.service.clone());
                    for target in &certificate.ca_targets {
                        trust.entry(target).or_default().insert(service.clone(), stored.trust());
                    }
                }
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        for (target, mut trust) in trust {
            if trust.len() > 1 {
                // it is about to call another Service: it trusts both before and after
                let all = material::bundle(trust.values().map(String::as_str));
                trust.values_mut().for_each(|one| one.clone_from(&all));
            }
            match self.teach(&extension, target, &trust).await {
                Ok(again) => look_again.extend(again),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        for name in &needs.unconverted {
            let target = CaTarget::CustomResourceDefinition(name.clone());
            let released =
                self.cluster.caller(&target, &extension.owner.name).and_then(|caller| caller.release());
            if let Some(body) = released {
                self.apply(&target, &body).await?;
            }
        }
        for leftover in secrets.iter().filter(|one| !needs.issue.contains_key(&place(one))) {
            if !needs.mounted.contains(&place(leftover)) {
                self.delete(leftover, &extension.owner).await?;
            }
        }
        self.expiries.keep(&extension.owner.name, &needs.issue.keys().cloned().collect());
        trouble.map_or(Ok(look_again.into_iter().min()), Err)
    }

    /// Makes the Secret hold what it should; gives what it holds then.
    async fn secret(
        &self,
        extension: &Extension<'_>,
        place: &Place,
        certificate: &WebhookCertificate,
    ) -> Result<(CertificateState, Option<Timestamp>), Trouble> {
        let owner = &extension.owner;
        let service = (certificate.namespace.clone(), certificate.service.clone());
        let callers: Vec<Caller> = certificate
            .ca_targets
            .iter()
            .filter_map(|target| self.cluster.caller(target, &owner.name))
            .collect();
        let trusted: Vec<&str> = callers.iter().flat_map(|caller| caller.trusted(&service)).collect();
        let decide = |stored: Option<&CertificateState>, now| {
            plan(stored, &certificate.dns_names, &trusted, now, &self.timing)
        };
        let done = |stored: CertificateState, again| {
            self.expiries.set(&owner.name, place, &stored);
            Ok((stored, again))
        };
        // what is as it should be costs no request
        if let Some(cached) = self.cluster.secret(place)
            && secret::standing(&cached, owner, certificate) == Standing::Ours
        {
            let stored = secret::read(&cached);
            let plan = decide(Some(&stored), Timestamp::now());
            if plan.step == Step::Nothing {
                self.disputes.settled(&place_title(place));
                return done(stored, plan.recheck_at);
            }
        }

        let api: Api<Secret> = Api::namespaced(self.client.clone(), &place.0);
        let mut live = api.get_opt(&place.1).await.map_err(|error| failed("reading", place, &error))?;
        for _ in 0..WRITES {
            let standing = live.as_ref().map(|live| secret::standing(live, owner, certificate));
            match &standing {
                Some(Standing::Foreign(sentence)) => return Err(Trouble::Refused(sentence.clone())),
                Some(Standing::Frozen) => {
                    if let Some(frozen) = live.take() {
                        self.delete(&frozen, owner).await?;
                    }
                    continue;
                }
                Some(Standing::Ours | Standing::Unmarked) | None => {}
            }
            let now = Timestamp::now();
            let stored = live.as_ref().map(secret::read);
            let plan = decide(stored.as_ref(), now);
            if plan.step == Step::Nothing
                && standing == Some(Standing::Ours)
                && let Some(stored) = stored
            {
                return done(stored, plan.recheck_at);
            }
            if let Some(wait) = self.disputes.write(&place_title(place)) {
                let title = place_title(place);
                self.dispute(extension, &format!("Secret {title} is written by somebody else, too")).await;
                return Err(Trouble::Failed(format!("Secret {title} is disputed; next try in {wait:?}")));
            }
            let fresh = match plan.step {
                Step::Issue { .. } | Step::Stage(_) => Some(
                    Keys::generate()
                        .and_then(|keys| {
                            material::issue(
                                AUTHORITY,
                                &certificate.dns_names,
                                now,
                                self.timing.validity,
                                keys,
                            )
                        })
                        .map_err(|error| Trouble::Failed(error.to_string()))?,
                ),
                Step::Nothing | Step::Switch | Step::Drop => None,
            };
            let Some(wanted) = after(&plan.step, stored, fresh, now, &self.timing) else {
                return Err(Trouble::Failed(format!("Secret {} cannot be read", place_title(place))));
            };
            let manager = Some(field_managers::WEBHOOK_CERTIFICATES.to_owned());
            let written = match &live {
                None => {
                    let params = PostParams { field_manager: manager, ..PostParams::default() };
                    api.create(&params, &secret::fresh(place, owner, &wanted)).await
                }
                Some(live) => {
                    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
                    api.patch(&place.1, &params, &Patch::Merge(secret::patch(live, owner, &wanted))).await
                }
            };
            live = match written {
                Ok(written) => {
                    self.tell(extension, &plan.step, certificate, &wanted).await;
                    Some(written)
                }
                Err(error) if is_race(&error) => {
                    api.get_opt(&place.1).await.map_err(|error| failed("reading", place, &error))?
                }
                Err(error) => return Err(failed("writing", place, &error)),
            };
        }
        Err(Trouble::Failed(format!("Secret {} keeps changing", place_title(place))))
    }

    /// Makes a caller trust what it should; says when to look again if that has to wait.
    async fn teach(
        &self,
        extension: &Extension<'_>,
        target: &CaTarget,
        trust: &BTreeMap<Service, String>,
    ) -> Result<Option<Timestamp>, Trouble> {
        let Some(caller) = self.cluster.caller(target, &extension.owner.name) else { return Ok(None) };
        let title = caller::title(target);
        let Some(body) = caller.teach(trust) else {
            self.disputes.settled(&title);
            return Ok(None);
        };
        if let Some(wait) = self.disputes.write(&title) {
            self.dispute(extension, &format!("the caBundle of {title} is written by somebody else, too"))
                .await;
            return Ok(Timestamp::now().checked_add(wait).ok());
        }
        self.apply(target, &body).await?;
        tracing::info!(caller = title, "caBundle written");
        Ok(None)
    }

    /// Applies what is ours of a caller. An object that is gone or new is left to the next pass.
    async fn apply(&self, target: &CaTarget, body: &serde_json::Value) -> Result<(), Trouble> {
        let kind = Kind::of(target);
        let api = apply::api(&self.client, &kind.resource(), None);
        let apply = Apply { manager: field_managers::WEBHOOK_CERTIFICATES, force: true, dry_run: false };
        match apply.object(&api, caller::name(target), body).await {
            Ok(stored) => {
                self.cluster.put_caller(Caller::of(kind, &stored));
                Ok(())
            }
            Err(error) if matches!(apply::classify(&error), ErrorClass::NotFound | ErrorClass::Conflict) => {
                Ok(())
            }
            Err(error) => Err(Trouble::Failed(format!(
                "writing the caBundle of {}: {}",
                caller::title(target),
                apply::message(&error)
            ))),
        }
    }

    /// Deletes a Secret of ours, unless it changed hands or is another one by now.
    async fn delete(&self, secret: &Secret, owner: &Owner) -> Result<(), Trouble> {
        if !secret.owner_references().iter().any(|one| one.uid == owner.uid) {
            return Ok(());
        }
        let place = place(secret);
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &place.0);
        let same = Preconditions { uid: secret.uid(), resource_version: None };
        match api.delete(&place.1, &DeleteParams::default().preconditions(same)).await {
            Err(error) if !matches!(apply::classify(&error), ErrorClass::NotFound | ErrorClass::Conflict) => {
                Err(failed("deleting", &place, &error))
            }
            _ => Ok(()),
        }
    }

    /// What a revision consists of, as far as certificates go.
    async fn content(&self, revision: &ClusterObjectSet) -> Result<Arc<Content>, Trouble> {
        let uid = revision.uid().unwrap_or_default();
        let known = self.contents.lock().get(&uid).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut secrets: BTreeMap<Place, Secret> = BTreeMap::new();
        let mut objects: Vec<Object> = Vec::new();
        for entry in revision.spec.phases.iter().flat_map(|phase| &phase.objects) {
            if let Some(inline) = &entry.object {
                objects.push(Object(inline.clone()));
                continue;
            }
            let Some(reference) = &entry.reference else { continue };
            let namespace = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            let place = (namespace.unwrap_or(&self.system_namespace).to_owned(), reference.name.clone());
            if !secrets.contains_key(&place) {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), &place.0);
                let secret = api.get(&place.1).await.map_err(|error| failed("reading", &place, &error))?;
                secrets.insert(place.clone(), secret);
            }
            let data = secrets.get(&place).and_then(|secret| secret.data.as_ref());
            let packed = data.and_then(|data| data.get(&reference.key)).ok_or_else(|| {
                Trouble::Failed(format!(
                    "key {:?} not found in Secret {}",
                    reference.key,
                    place_title(&place)
                ))
            })?;
            let object = olm_rollout::unpack(&packed.0, &reference.key, &place_title(&place))
                .map_err(|error| Trouble::Failed(error.to_string()))?;
            objects.push(object);
        }
        let content = Arc::new(Content::of(&objects));
        self.contents.lock().insert(uid, Arc::clone(&content));
        Ok(content)
    }

    async fn tell(
        &self,
        extension: &Extension<'_>,
        step: &Step,
        certificate: &WebhookCertificate,
        now: &CertificateState,
    ) {
        let place = format!("{}/{}", certificate.namespace, certificate.secret);
        let served =
            material::check(&now.current, &[]).map_or(Timestamp::UNIX_EPOCH, |lifetime| lifetime.not_after);
        let (reason, note) = match step {
            Step::Issue { fault: material::CertificateError::Missing, .. } => (
                "CertificateIssued",
                format!(
                    "certificate of Service {} issued into Secret {place}, valid until {served}",
                    certificate.service
                ),
            ),
            Step::Issue { fault, .. } => (
                "CertificateReissued",
                format!("certificate in Secret {place} issued anew because {fault}; valid until {served}"),
            ),
            Step::Stage(_) => (
                "CertificateRotating",
                format!(
                    "the successor of the certificate in Secret {place} is issued; callers learn to trust it before it is used"
                ),
            ),
            Step::Switch => (
                "CertificateRotated",
                format!("Secret {place} holds the successor of its certificate, valid until {served}"),
            ),
            Step::Drop | Step::Nothing => return,
        };
        tracing::info!(secret = place, reason, "webhook certificate written");
        let event = NewEvent { warning: false, reason, action: "IssueCertificate", note: &note };
        self.events.publish(&extension.object.object_ref(&()), event).await;
    }

    async fn dispute(&self, extension: &Extension<'_>, note: &str) {
        let note = format!("{note}; stop that, or set --webhook-cert-provider");
        let event = NewEvent {
            warning: true,
            reason: "CertificateDisputed",
            action: "IssueCertificate",
            note: &note,
        };
        self.events.publish(&extension.object.object_ref(&()), event).await;
    }

    /// Forgets revisions that are gone, once more than `most` are known.
    pub(super) fn forget_some(&self, most: usize, there: impl Fn(&str) -> bool) {
        let mut contents = self.contents.lock();
        if contents.len() > most {
            contents.retain(|uid, _| there(uid));
        }
    }
}

/// Takes the extension's Secrets off it, so that they stay when the extension is deleted but its objects are kept.
///
/// # Errors
/// When the apiserver refuses; it can be repeated.
pub async fn leave_behind(client: &Client, extension: &str, uid: &str) -> kube::Result<()> {
    for secret in secrets_of(client, extension, uid).await? {
        let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
        let params = PatchParams {
            field_manager: Some(field_managers::WEBHOOK_CERTIFICATES.to_owned()),
            ..PatchParams::default()
        };
        let patched = api
            .patch_metadata(&secret.name_any(), &params, &Patch::Merge(secret::orphan(&secret, uid)))
            .await;
        match patched {
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
        let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
        let same = Preconditions { uid: secret.uid(), resource_version: None };
        match api.delete(&secret.name_any(), &DeleteParams::default().preconditions(same)).await {
            Err(error) if !matches!(apply::classify(&error), ErrorClass::NotFound | ErrorClass::Conflict) => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The Secrets with certificates that the extension with this UID owns.
async fn secrets_of(client: &Client, extension: &str, uid: &str) -> kube::Result<Vec<Secret>> {
    let ours = format!(
        "{}={},{}={extension}",
        labels::WEBHOOK_CERTIFICATE,
        labels::WEBHOOK_CERTIFICATE_BUILT_IN,
        labels::OWNER_NAME
    );
    let all: Api<Secret> = Api::all(client.clone());
    let mut found = all.list(&ListParams::default().labels(&ours)).await?.items;
    found.retain(|secret| secret.owner_references().iter().any(|one| one.uid == uid));
    Ok(found)
}

/// Objects that were written lately: who is overwritten again and again waits longer and longer.
#[derive(Debug, Default)]
pub(super) struct Disputes(Mutex<HashMap<String, (u32, Instant)>>);

impl Disputes {
    /// Notes a write and allows it (`None`), or says how long to wait first.
    fn write(&self, title: &str) -> Option<Duration> {
        let mut all = self.0.lock();
        let now = Instant::now();
        all.retain(|_, (_, at)| now.duration_since(*at) < CALM.max(backoff::CAP));
        let (count, at) = all.entry(title.to_owned()).or_insert((0, now));
        if *count >= DISPUTED {
            // 5 ms doubled for each write before
            let wait = backoff::delay(count.saturating_add(4)).saturating_sub(now.duration_since(*at));
            if !wait.is_zero() {
                return Some(wait);
            }
        }
        *count = count.saturating_add(1);
        *at = now;
        None
    }

    /// Notes that the object is as it should be.
    fn settled(&self, title: &str) {
        let mut all = self.0.lock();
        if all.get(title).is_some_and(|(_, at)| at.elapsed() >= CALM) {
            all.remove(title);
        }
    }
}

fn place_title(place: &Place) -> String {
    format!("{}/{}", place.0, place.1)
}

fn failed(doing: &str, place: &Place, error: &kube::Error) -> Trouble {
    Trouble::Failed(format!("{doing} Secret {}: {}", place_title(place), apply::message(error)))
}

/// Somebody was faster; what they did is looked at next.
fn is_race(error: &kube::Error) -> bool {
    matches!(apply::classify(error), ErrorClass::Conflict | ErrorClass::AlreadyExists | ErrorClass::NotFound)
        && !matches!(error, kube::Error::Api(status) if status.message.contains("namespaces"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disputes_slow_down() {
        let disputes = Disputes::default();
        for _ in 0..DISPUTED {
            assert_eq!(disputes.write("a"), None);
        }
        assert!(disputes.write("a").is_some_and(|wait| wait > Duration::from_secs(1)));
        assert_eq!(disputes.write("b"), None);
        disputes.settled("a");
        assert!(disputes.write("a").is_some(), "one look between two writes is no peace");
    }
}
