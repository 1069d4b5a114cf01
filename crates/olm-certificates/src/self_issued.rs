//! The serving certificate of a process without another issuer: made by the process, kept in a Secret of its namespace,
//! shared by all replicas, rotated with overlap, and its CA published in a ConfigMap of the same name.
//!
//! There is no leader among the replicas: each may take the next step of [`super::plan`], and the apiserver lets one of them
//! win (create-only, `resourceVersion`); the others read what the winner wrote. Each serves what the Secret holds, so a restart
//! keeps it. Clients learn of a new CA through the ConfigMap before it is served.
//!
//! A Secret or ConfigMap of that name that another program wrote is rejected, not replaced; an empty one (as manifests may create,
//! so that the process needs no permission to create) is taken. Nothing is done periodically: the two objects are watched.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use olm_runtime::apply::message;
use olm_runtime::args::SelfIssuing;
use olm_runtime::tls::{ServingPair, TlsError};
use olm_runtime::{Shutdown, error_text, watched};
use serde_json::json;
use tokio::time::Instant;

use crate::executor::{CertificateSpec, Executor, ExecutorError, Ownership, SecretOwner, is_race};
use crate::material::Generation;
use crate::plan::{CertificateState, Step, Timing};
use crate::secret;

/// The ConfigMap's key that holds the CA, as PEM.
pub(crate) const CA_KEY: &str = "ca.crt";
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
/// How often one pass reads both objects, at most.
const MAX_ROUNDS: usize = 6;
/// The longest sleep towards a date: clocks are set.
const MAX_SLEEP: Duration = Duration::from_secs(12 * 3600);
/// The longest wait between attempts that fail.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(60);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SelfIssuedError {
    /// The objects cannot be written.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// What the Secret holds cannot be served with.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl SelfIssuedError {
    /// Only a change in the cluster or of the flags helps.
    fn is_final(&self) -> bool {
        matches!(self, Self::Executor(ExecutorError::Refused(_) | ExecutorError::Issue(_)))
    }
}

type Changes<K> = BoxStream<'static, watcher::Result<Option<K>>>;

/// Keeps the certificate.
pub struct SelfIssued {
    keeper: Keeper,
    secret_changes: Changes<Secret>,
    map_changes: Changes<ConfigMap>,
    /// As last observed; the outer `None` is "not yet".
    secret: Option<Option<Secret>>,
    map: Option<Option<ConfigMap>>,
    wake: Option<Instant>,
    failures: u32,
}

/// Writes the two objects.
struct Keeper {
    spec: CertificateSpec,
    executor: Executor,
    maps: Api<ConfigMap>,
}

impl std::fmt::Debug for SelfIssued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SelfIssued").field("spec", &self.keeper.spec).finish_non_exhaustive()
    }
}

impl SelfIssued {
    /// Issues in `namespace`, for `names` if none are given by flag. Nothing is asked of the apiserver yet.
    pub fn new(client: &Client, flags: &SelfIssuing, namespace: &str, names: Vec<String>) -> Self {
        let spec = spec(flags, namespace, names);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        Self {
            secret_changes: watched::single(secrets, &spec.name).boxed(),
            map_changes: watched::single(maps.clone(), &spec.name).boxed(),
            keeper: Keeper { spec, executor: Executor::new(client.clone(), MANAGER), maps },
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
        tracing::info!(secret = self.keeper.spec.title(), "waiting for the serving certificate");
        loop {
            match self.next(stop).await {
                None => return Ok(None),
                Some(Ok(current)) => {
                    return Ok(Some(ServingPair::given(&current.certificate, current.key.pem())?));
                }
                Some(Err(error)) if error.is_final() => return Err(error),
                Some(Err(error)) => tracing::warn!(%error, "no serving certificate yet, trying again"),
            }
        }
    }

    /// Keeps the certificate in the Secret, and in `pair`, until shutdown.
    pub async fn keep(mut self, pair: Arc<ServingPair>, stop: Shutdown) {
        while let Some(outcome) = self.next(&stop).await {
            match outcome {
                Ok(current) => match pair.replace(&current.certificate, current.key.pem()) {
                    Ok(true) => {
                        tracing::info!(secret = self.keeper.spec.title(), "serving certificate replaced")
                    }
                    Ok(false) => {}
                    Err(error) => tracing::warn!(
                        error = error_text::chain(&error),
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
                Some(change) = self.secret_changes.next() => if let Ok(secret) = change {
                    self.secret = Some(secret);
                },
                Some(change) = self.map_changes.next() => if let Ok(map) = change {
                    self.map = Some(map);
                },
                () = timer => {}
            }
            let (Some(secret), Some(map)) = (&self.secret, &self.map) else { continue };
            let outcome = tokio::select! {
                () = stop.cancelled() => return None,
                outcome = self.keeper.pass(secret.as_ref(), map.as_ref()) => outcome,
            };
            match &outcome {
                Ok((_, again)) => {
                    self.failures = 0;
                    self.wake = again.map(|wait| Instant::now() + wait.min(MAX_SLEEP));
                }
                // a change wakes this
                Err(error) if error.is_final() => self.wake = None,
                Err(_) => {
                    let wait = Duration::from_secs(1 << self.failures.min(6)).min(MAX_RETRY_WAIT);
                    self.failures = self.failures.saturating_add(1);
                    self.wake = Some(Instant::now() + wait.mul_f64(0.5 + rand::random::<f64>() / 2.0));
                }
            }
            return Some(outcome.map(|(current, _)| current));
        }
    }
}

impl Keeper {
    /// Makes Secret and ConfigMap, as last observed, what they should be; returns the certificate to serve with, and when to check
    /// again if nothing changes.
    async fn pass(
        &self,
        secret: Option<&Secret>,
        map: Option<&ConfigMap>,
    ) -> Result<(Generation, Option<Duration>), SelfIssuedError> {
        let wait =
            |at: Timestamp| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
        // what is as it should be costs no request
        let published = trusted_ca(map)?;
        if let Some(secret) = secret
            && let Some((state, at)) = self.executor.settled(&self.spec, &Process, secret, &[published])
            && state.trust() == published
        {
            return Ok((state.current, at.map(wait)));
        }
        for _ in 0..MAX_ROUNDS {
            // the ConfigMap first: a replica that changes the Secret after that writes the ConfigMap later than this read
            let map =
                self.maps.get_opt(&self.spec.name).await.map_err(|error| self.failed("reading", &error))?;
            let published = trusted_ca(map.as_ref())?;
            let (state, at) = self.executor.keep(&self.spec, &Process, &[published]).await?;
            let trust = state.trust();
            if trust == published {
                return Ok((state.current, at.map(wait)));
            }
            match self.publish(map.as_ref(), &trust).await {
                Ok(()) => return Ok((state.current, Some(GRACE_PERIOD))),
                Err(error) if is_race(&error) => {}
                Err(error) => return Err(self.failed("writing", &error).into()),
            }
        }
        Err(ExecutorError::Failed(format!("ConfigMap {} keeps changing", self.spec.title())).into())
    }

    async fn publish(&self, present: Option<&ConfigMap>, trust: &str) -> kube::Result<()> {
        let metadata = ObjectMeta {
            name: Some(self.spec.name.clone()),
            resource_version: present.and_then(ResourceExt::resource_version),
            ..marks()
        };
        let data = Some([(CA_KEY.to_owned(), trust.to_owned())].into());
        let map = ConfigMap { metadata, data, ..ConfigMap::default() };
        self.executor.write(&self.maps, &map, present.map(|_| json!(map))).await?;
        tracing::info!(config_map = self.spec.title(), "CA of the serving certificate published");
        Ok(())
    }

    fn failed(&self, doing: &str, error: &kube::Error) -> ExecutorError {
        ExecutorError::Failed(format!("{doing} ConfigMap {}: {}", self.spec.title(), message(error)))
    }
}

fn spec(flags: &SelfIssuing, namespace: &str, names: Vec<String>) -> CertificateSpec {
    CertificateSpec {
        namespace: namespace.to_owned(),
        name: flags.secret.clone(),
        names: if flags.names.is_empty() { names } else { flags.names.clone() },
        authority: AUTHORITY,
        authority_key: secret::AUTHORITY_KEY,
        timing: Timing { validity: flags.validity, renew_before: RENEW_BEFORE, settle: SETTLE },
    }
}

/// The process as the owner of its Secret.
struct Process;

impl SecretOwner for Process {
    fn ownership(&self, secret: &Secret) -> Ownership {
        if secret.data.as_ref().is_none_or(|data| data.values().all(|value| value.0.is_empty())) {
            Ownership::Unmarked
        } else if is_marked(secret.labels()) {
            Ownership::Own
        } else {
            Ownership::Foreign(foreign("Secret", secret))
        }
    }

    fn marks(&self, _: Option<&Secret>) -> ObjectMeta {
        marks()
    }

    async fn written(&self, spec: &CertificateSpec, step: &Step, _: &CertificateState) {
        let what = match step {
            Step::Issue { .. } => "serving certificate issued",
            Step::Stage(_) => {
                "the successor of the serving certificate is issued; clients learn to trust it before it is used"
            }
            Step::Switch => "serving certificate rotated",
            Step::Drop => "authorities of former serving certificates dropped",
            Step::Nothing => "nothing to do",
        };
        tracing::info!(secret = spec.title(), "{what}");
    }
}

/// The CA in the ConfigMap, if the process may write it.
fn trusted_ca(map: Option<&ConfigMap>) -> Result<&str, ExecutorError> {
    match map.and_then(|map| Some((map, map.data.as_ref()?))) {
        Some((_, data)) if data.values().all(String::is_empty) => Ok(""),
        Some((map, data)) if is_marked(map.labels()) => Ok(data.get(CA_KEY).map_or("", String::as_str)),
        Some((map, _)) => Err(ExecutorError::Refused(foreign("ConfigMap", map))),
        None => Ok(""),
    }
}

fn is_marked(labels: &BTreeMap<String, String>) -> bool {
    labels.get(LABEL.0).is_some_and(|value| value == LABEL.1)
}

fn marks() -> ObjectMeta {
    ObjectMeta { labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()), ..ObjectMeta::default() }
}

fn foreign(kind: &str, object: &impl ResourceExt) -> String {
    format!(
        "{kind} {}/{} exists and was not written by this program; delete it, or give another name in --tls-self-issued",
        object.namespace().unwrap_or_default(),
        object.name_any()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_issued_rejects_foreign_objects_and_takes_empty_ones() {
        let labels = |marked: bool| if marked { json!({LABEL.0: LABEL.1}) } else { json!({}) };
        let secret = |marked: bool, data: serde_json::Value| -> Secret {
            let metadata = json!({"namespace": "ns", "name": "s", "labels": labels(marked)});
            serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
        };
        let map = |marked: bool, text: &str| -> ConfigMap {
            let metadata = json!({"namespace": "ns", "name": "s", "labels": labels(marked)});
            serde_json::from_value(json!({"metadata": metadata, "data": {"ca.crt": text}})).unwrap()
        };
        let rejected = |kind: &str| {
            format!(
                "{kind} ns/s exists and was not written by this program; delete it, or give another name in --tls-self-issued"
            )
        };
        for (case, secret, want) in [
            ("created empty", secret(false, json!({})), Ownership::Unmarked),
            ("empty keys of a TLS Secret", secret(false, json!({"tls.crt": ""})), Ownership::Unmarked),
            ("own", secret(true, json!({"tls.crt": "eA=="})), Ownership::Own),
            ("foreign", secret(false, json!({"tls.crt": "eA=="})), Ownership::Foreign(rejected("Secret"))),
        ] {
            assert_eq!(Process.ownership(&secret), want, "{case}");
        }
        for (case, map, want) in [
            ("none", None, Ok("")),
            ("created empty", Some(map(false, "")), Ok("")),
            ("own", Some(map(true, "ca")), Ok("ca")),
            ("foreign", Some(map(false, "ca")), Err(rejected("ConfigMap"))),
        ] {
            assert_eq!(trusted_ca(map.as_ref()).map_err(|error| error.to_string()), want, "{case}");
        }
    }
}
