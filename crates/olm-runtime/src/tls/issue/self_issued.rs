//! The serving certificate of a process without another issuer: made by the process, kept in a Secret of its namespace,
//! shared by all replicas, rotated with overlap, and its CA published in a ConfigMap of the same name.
//!
//! There is no leader among the replicas: each may take the next step of [`super::plan`], and the apiserver lets one of them
//! win (create-only, `resourceVersion`); the others read what the winner wrote. Each serves what the Secret holds, so a restart
//! keeps it. Clients learn of a new CA through the ConfigMap before it is served.
//!
//! A Secret or ConfigMap of that name that another program wrote is rejected, not replaced; an empty one (as manifests may create,
//! so that the process needs no permission to create) is taken. Nothing is done periodically: the two objects are watched.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::material::{self, Generation, Keys};
use super::plan::{self, CertificateState, Step, Timing};
use super::secret;
use crate::Shutdown;
use crate::apply::{ErrorClass, classify, message};
use crate::tls::{ServingPair, TlsError};

/// The ConfigMap's key that holds the CA, as PEM.
pub const CA_KEY: &str = "ca.crt";
/// Common name of authorities.
const AUTHORITY: &str = "olm.operatorframework.io serving authority";
/// Marks the two objects as ours.
const LABEL: (&str, &str) = ("olm.operatorframework.io/serving-certificate", "self-issued");
/// The field manager of both.
const MANAGER: &str = "olm.operatorframework.io/serving-certificate";
/// How long before its end a certificate is rotated, at most a third of its life.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long clients get to learn of a new CA: longer than a kubelet takes to bring a ConfigMap into a mounted folder.
const SETTLE: SignedDuration = SignedDuration::from_mins(10);
/// How long clients get when the CA was published late, because the replica that staged it died.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Rounds of one pass, at most: read, create or repair, stage, publish, switch, and a race or two.
const MAX_ROUNDS: usize = 12;
/// The longest sleep towards a date: clocks are set.
const MAX_SLEEP: Duration = Duration::from_secs(12 * 3600);
/// The longest wait between attempts that fail.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(60);

/// The certificate to issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSpec {
    /// The namespace of the process.
    pub namespace: String,
    /// The name of the Secret and of the ConfigMap.
    pub name: String,
    /// The names under which clients reach the process: DNS names or addresses.
    pub names: Vec<String>,
    /// How long a certificate is valid.
    pub validity: SignedDuration,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SelfIssuedError {
    /// Only a change in the cluster or of the flags helps.
    #[error("{0}")]
    Refused(String),
    /// Worth another try.
    #[error("{0}")]
    Failed(String),
    /// What the Secret holds cannot be served with.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

type Changes<K> = BoxStream<'static, watcher::Result<Option<K>>>;

/// Keeps the certificate.
pub struct SelfIssued {
    keeper: Keeper,
    secret_changes: Changes<Secret>,
    map_changes: Changes<ConfigMap>,
    /// As last seen; the outer `None` is "not yet".
    secret: Option<Option<Secret>>,
    map: Option<Option<ConfigMap>>,
    wake: Option<Instant>,
    failures: u32,
}

/// Reads and writes the two objects.
struct Keeper {
    spec: CertificateSpec,
    timing: Timing,
    secrets: Api<Secret>,
    maps: Api<ConfigMap>,
}

impl std::fmt::Debug for SelfIssued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SelfIssued").field("wish", &self.keeper.spec).finish_non_exhaustive()
    }
}

impl SelfIssued {
    /// Nothing is asked of the apiserver yet.
    pub fn new(client: &Client, spec: CertificateSpec) -> Self {
        let timing = Timing { validity: spec.validity, renew_before: RENEW_BEFORE, settle: SETTLE };
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &spec.namespace);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &spec.namespace);
        Self {
            secret_changes: watcher::watch_object(secrets.clone(), &spec.name)
                .backoff(crate::backoff::of_watch())
                .boxed(),
            map_changes: watcher::watch_object(maps.clone(), &spec.name)
                .backoff(crate::backoff::of_watch())
                .boxed(),
            keeper: Keeper { spec, timing, secrets, maps },
            secret: None,
            map: None,
            wake: None,
            failures: 0,
        }
    }

    /// The certificate to begin with; `None` if the process was asked to stop before. While the apiserver cannot be asked, it
    /// keeps trying.
    ///
    /// # Errors
    /// When only a change of the cluster or of the flags helps.
    pub async fn first(&mut self, stop: &Shutdown) -> Result<Option<Arc<ServingPair>>, SelfIssuedError> {
        tracing::info!(secret = self.title(), "waiting for the serving certificate");
        loop {
            match self.next(stop).await {
                None => return Ok(None),
                Some(Ok(current)) => {
                    return Ok(Some(ServingPair::given(&current.certificate, current.key.pem())?));
                }
                Some(Err(error @ SelfIssuedError::Refused(_))) => return Err(error),
                Some(Err(error)) => tracing::warn!(%error, "no serving certificate yet, trying again"),
            }
        }
    }

    /// Keeps the certificate in the Secret, and in `pair`, until shutdown.
    pub async fn keep(mut self, pair: Arc<ServingPair>, stop: Shutdown) {
        while let Some(outcome) = self.next(&stop).await {
            match outcome {
                Ok(current) => match pair.replace(&current.certificate, current.key.pem()) {
                    Ok(true) => tracing::info!(secret = self.title(), "serving certificate replaced"),
                    Ok(false) => {}
                    Err(error) => tracing::warn!(
                        error = crate::error_text::chain(&error),
                        "the new serving certificate cannot be used, the old one stays in use"
                    ),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot keep the serving certificate, the present one stays in use");
                }
            }
        }
    }

    /// Waits for a reason to check, checks, and returns the certificate to serve with; `None` when asked to stop.
    async fn next(&mut self, stop: &Shutdown) -> Option<Result<Generation, SelfIssuedError>> {
        loop {
            let wake = self.wake;
            let timer = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return None,
                Some(change) = self.secret_changes.next() => match change {
                    Ok(secret) => self.secret = Some(secret),
                    Err(error) => self.unseen("Secret", &error),
                },
                Some(change) = self.map_changes.next() => match change {
                    Ok(map) => self.map = Some(map),
                    Err(error) => self.unseen("ConfigMap", &error),
                },
                () = timer => {}
            }
            if self.secret.is_none() || self.map.is_none() {
                continue;
            }
            let (secret, map) = (self.secret.clone().flatten(), self.map.clone().flatten());
            let outcome = tokio::select! {
                () = stop.cancelled() => return None,
                outcome = self.keeper.pass(secret, map) => outcome,
            };
            match &outcome {
                Ok((_, again)) => {
                    self.failures = 0;
                    self.wake = again.map(|wait| Instant::now() + wait.min(MAX_SLEEP));
                }
                // a change wakes this
                Err(SelfIssuedError::Refused(_)) => self.wake = None,
                Err(_) => {
                    let wait = Duration::from_secs(1 << self.failures.min(6)).min(MAX_RETRY_WAIT);
                    self.failures = self.failures.saturating_add(1);
                    self.wake = Some(Instant::now() + wait.mul_f64(0.5 + rand::random::<f64>() / 2.0));
                }
            }
            return Some(outcome.map(|(current, _)| current));
        }
    }

    fn unseen(&self, kind: &str, error: &watcher::Error) {
        let error = crate::error_text::chain(error);
        tracing::warn!(kind, name = self.title(), error, "cannot watch the serving certificate's object");
    }

    fn title(&self) -> String {
        self.keeper.title()
    }
}

impl Keeper {
    fn title(&self) -> String {
        format!("{}/{}", self.spec.namespace, self.spec.name)
    }

    /// Makes Secret and ConfigMap, as last observed, what they should be; returns the certificate to serve with, and when to check
    /// again if nothing changes.
    async fn pass(
        &self,
        mut secret: Option<Secret>,
        mut map: Option<ConfigMap>,
    ) -> Result<(Generation, Option<Duration>), SelfIssuedError> {
        // what is as it should be costs no request; a write is decided on objects that were just read
        let mut live = false;
        for _ in 0..MAX_ROUNDS {
            let now = Timestamp::now();
            let found = State::read(secret.as_ref(), map.as_ref()).map_err(|kind| self.foreign(kind))?;
            let plan =
                plan::plan(found.stored.as_ref(), &self.spec.names, &[&found.published], now, &self.timing);
            let publish = match (&plan.step, &found.stored) {
                (Step::Nothing, Some(stored)) if stored.trust() == found.published => {
                    let wait = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    return Ok((stored.current.clone(), plan.recheck_at.map(wait)));
                }
                (Step::Nothing, Some(stored)) => Some(stored.trust()),
                _ => None,
            };
            if !live {
                // the ConfigMap first: a replica that changes the Secret after that writes the ConfigMap later than this read
                map = self.read("ConfigMap", &self.maps).await?;
                secret = self.read("Secret", &self.secrets).await?;
                live = true;
                continue;
            }
            let written = match publish {
                Some(trust) => self.publish(map.as_ref(), &trust).await.map(|written| map = Some(written)),
                None => match self.after(&plan.step, found.stored, now)? {
                    Some(desired) => self.store(secret.as_ref(), &desired, &plan.step).await.map(|written| {
                        secret = Some(written);
                    }),
                    None => {
                        return Err(SelfIssuedError::Failed(format!(
                            "Secret {} cannot be read",
                            self.title()
                        )));
                    }
                },
            };
            match written {
                Ok(()) if plan.step == Step::Nothing => {
                    if let Some(secret) = &secret {
                        return Ok((secret::read(secret).current, Some(GRACE_PERIOD)));
                    }
                }
                Ok(()) => {}
                Err(error) if is_race(&error) => live = false,
                Err(error) => {
                    let what = if plan.step == Step::Nothing { "ConfigMap" } else { "Secret" };
                    return Err(SelfIssuedError::Failed(format!(
                        "writing {what} {}: {}",
                        self.title(),
                        message(&error)
                    )));
                }
            }
        }
        Err(SelfIssuedError::Failed(format!("Secret {} is written by somebody else, too", self.title())))
    }

    fn after(
        &self,
        step: &Step,
        stored: Option<CertificateState>,
        now: Timestamp,
    ) -> Result<Option<CertificateState>, SelfIssuedError> {
        let fresh = match step {
            Step::Issue { .. } | Step::Stage(_) => Some(
                Keys::generate()
                    .and_then(|keys| {
                        material::issue(AUTHORITY, &self.spec.names, now, self.timing.validity, keys)
                    })
                    .map_err(|error| SelfIssuedError::Refused(error.to_string()))?,
            ),
            Step::Nothing | Step::Switch | Step::Drop => None,
        };
        Ok(plan::after(step, stored, fresh, now, &self.timing))
    }

    async fn read<K>(&self, kind: &str, api: &Api<K>) -> Result<Option<K>, SelfIssuedError>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let answer = api.get_opt(&self.spec.name).await;
        answer.map_err(|error| {
            SelfIssuedError::Failed(format!("reading {kind} {}: {}", self.title(), message(&error)))
        })
    }

    async fn store(
        &self,
        present: Option<&Secret>,
        desired: &CertificateState,
        step: &Step,
    ) -> kube::Result<Secret> {
        let written = match present {
            None => {
                let fresh = Secret {
                    metadata: self.metadata(),
                    type_: Some("kubernetes.io/tls".to_owned()),
                    data: Some(secret::bytes(desired)),
                    ..Secret::default()
                };
                self.secrets.create(&create(), &fresh).await?
            }
            Some(present) => {
                let patch = json!({
                    "metadata": marks(present.resource_version()),
                    "data": secret::changes(present, desired),
                });
                self.secrets.patch(&self.spec.name, &patched(), &Patch::Merge(patch)).await?
            }
        };
        let what = match step {
            Step::Issue { .. } => "serving certificate issued",
            Step::Stage(_) => {
                "the successor of the serving certificate is issued; clients learn to trust it before it is used"
            }
            Step::Switch => "serving certificate rotated",
            Step::Drop => "authorities of former serving certificates dropped",
            Step::Nothing => "nothing to do",
        };
        tracing::info!(secret = self.title(), "{what}");
        Ok(written)
    }

    async fn publish(&self, present: Option<&ConfigMap>, trust: &str) -> kube::Result<ConfigMap> {
        let written = match present {
            None => {
                let fresh = ConfigMap {
                    metadata: self.metadata(),
                    data: Some([(CA_KEY.to_owned(), trust.to_owned())].into()),
                    ..ConfigMap::default()
                };
                self.maps.create(&create(), &fresh).await?
            }
            Some(present) => {
                let patch = json!({"metadata": marks(present.resource_version()), "data": {CA_KEY: trust}});
                self.maps.patch(&self.spec.name, &patched(), &Patch::Merge(patch)).await?
            }
        };
        tracing::info!(config_map = self.title(), "CA of the serving certificate published");
        Ok(written)
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            namespace: Some(self.spec.namespace.clone()),
            name: Some(self.spec.name.clone()),
            labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    fn foreign(&self, kind: &'static str) -> SelfIssuedError {
        SelfIssuedError::Refused(format!(
            "{kind} {} exists and was not written by this program; delete it, or give another name in --tls-self-issued",
            self.title()
        ))
    }
}

/// The content of the two objects.
struct State {
    stored: Option<CertificateState>,
    published: String,
}

impl State {
    /// Or the kind of the object that another program wrote.
    fn read(secret: Option<&Secret>, map: Option<&ConfigMap>) -> Result<Self, &'static str> {
        let marked = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get(LABEL.0).is_some_and(|value| value == LABEL.1)
        };
        let stored = match secret {
            None => None,
            Some(secret)
                if secret.data.as_ref().is_none_or(|data| data.values().all(|one| one.0.is_empty())) =>
            {
                None
            }
            Some(secret) if marked(secret.labels()) => Some(secret::read(secret)),
            Some(_) => return Err("Secret"),
        };
        let published = match map {
            None => String::new(),
            Some(map) if map.data.as_ref().is_none_or(|data| data.values().all(String::is_empty)) => {
                String::new()
            }
            Some(map) if marked(map.labels()) => {
                map.data.as_ref().and_then(|data| data.get(CA_KEY)).cloned().unwrap_or_default()
            }
            Some(_) => return Err("ConfigMap"),
        };
        Ok(Self { stored, published })
    }
}

fn marks(resource_version: Option<String>) -> serde_json::Value {
    json!({"resourceVersion": resource_version, "labels": {LABEL.0: LABEL.1}})
}

fn create() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

fn patched() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// The object was written, created or deleted since it was read.
fn is_race(error: &kube::Error) -> bool {
    matches!(classify(error), ErrorClass::Conflict | ErrorClass::AlreadyExists | ErrorClass::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::issue::testing::{NOW, generation};

    fn secret(label: bool, data: &[(&str, &str)]) -> Secret {
        let mut secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
        if label {
            secret.metadata.labels = Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into());
        }
        secret.data = Some(
            data.iter()
                .map(|(key, text)| ((*key).to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec())))
                .collect(),
        );
        secret
    }

    #[test]
    fn self_issued_rejects_foreign_objects_and_takes_empty_ones() {
        let map = |label: bool, text: &str| -> ConfigMap {
            let labels = if label { json!({LABEL.0: LABEL.1}) } else { json!({}) };
            serde_json::from_value(json!({"metadata": {"labels": labels}, "data": {"ca.crt": text}})).unwrap()
        };
        let describe = |secret: Option<&Secret>, map: Option<&ConfigMap>| match State::read(secret, map) {
            Ok(state) => format!("{} {:?}", state.stored.is_some(), state.published),
            Err(kind) => kind.to_owned(),
        };
        for (case, secret, map, want) in [
            ("nothing", None, None, "false \"\""),
            ("created empty", Some(secret(false, &[])), Some(map(false, "")), "false \"\""),
            ("empty keys of a TLS Secret", Some(secret(false, &[("tls.crt", "")])), None, "false \"\""),
            ("ours", Some(secret(true, &[("tls.crt", "x")])), Some(map(true, "ca")), "true \"ca\""),
            ("another's Secret", Some(secret(false, &[("tls.crt", "x")])), None, "Secret"),
            ("another's ConfigMap", None, Some(map(false, "ca")), "ConfigMap"),
        ] {
            assert_eq!(describe(secret.as_ref(), map.as_ref()), want, "{case}");
        }
    }

    #[test]
    fn self_issued_secret_is_read_as_stored() {
        let stored = |next: bool, previous: &str| CertificateState {
            current: generation(NOW, SignedDuration::from_hours(1)),
            next: next.then(|| generation(NOW, SignedDuration::from_hours(2))),
            previous: previous.to_owned(),
        };
        let first = stored(true, "old\n");
        let mut kept = Secret { data: Some(secret::bytes(&first)), ..Secret::default() };
        assert_eq!(secret::read(&kept), first);
        let second = stored(false, "");
        for (key, value) in secret::changes(&kept, &second) {
            let data = kept.data.get_or_insert_default();
            match serde_json::from_value::<Option<k8s_openapi::ByteString>>(value).unwrap() {
                Some(bytes) => drop(data.insert(key, bytes)),
                None => drop(data.remove(&key)),
            }
        }
        assert_eq!(secret::read(&kept), second);
        assert_eq!(kept.data.unwrap().into_keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
    }
}
